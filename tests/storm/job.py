"""The application of the storm: one query of `ticks` for each seed, until a file asks it to stop.

    spark-submit job.py FOLDER

A query runs while its folder ``seed-N`` has a file ``go`` and no file ``stop``. After its stop, the
number of queries that are left is in a file ``left``. A query that fails ends the application.

If the file ``go`` names Kafka's servers, the rows go through a topic. They may come there twice, if
the application is killed, and the query leaves out what it has seen.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.autoscaler import ticks


def start(spark: SparkSession, home: Path) -> StreamingQuery:
    """Start or continue the query of a seed."""
    servers = (home / "go").read_text(encoding="utf-8")
    if not servers:
        return ticks.start(spark, *(home / name for name in ("in", "out", "checkpoint")))
    from tidegate.spark.streams.kafka_client import KafkaClient

    client = KafkaClient.of(servers)
    if client.partitions(home.name) is None:
        client.create(home.name, 2, {})
    threading.Thread(target=forward, args=(spark, home, servers), daemon=True).start()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", home.name).option("startingOffsets", "earliest")
    records = reader.option("maxOffsetsPerTrigger", 2 * ticks.ROWS).load()
    rows = records.selectExpr("cast(cast(value as string) as long) as v")
    return ticks.write(rows, home / "out", home / "checkpoint")


def forward(spark: SparkSession, home: Path, servers: str) -> None:
    """Send the rows of all files to the topic, in order, as long as the query runs."""
    sent = home / "sent"
    sent.mkdir(exist_ok=True)
    while not (home / "stop").exists():
        for file in sorted((home / "in").glob("*.json")):
            if (sent / file.name).exists():
                continue
            rows = spark.read.schema("v long").json(str(file)).selectExpr("string(v) as value")
            writer = rows.write.format("kafka").option("kafka.bootstrap.servers", servers)
            try:
                writer.option("topic", home.name).save()
            except Exception as error:  # the broker is away; it is tried again
                print(f"{file.name} is not sent: {str(error)[:200]}", flush=True)
                break
            (sent / file.name).touch()
        time.sleep(0.2)


def main() -> None:
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.appName("storm").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    running: dict[Path, StreamingQuery] = {}
    while not (folder / "stop").exists():
        for home in (go.parent for go in folder.glob("seed-*/go")):
            stops = (home / "stop").exists()
            if home in running and stops:
                running.pop(home).stop()
                written = home / "left.writing"  # who looks for the number never sees a part
                written.write_text(str(len(spark.streams.active)), encoding="ascii")
                written.rename(home / "left")
            elif home not in running and not stops:
                running[home] = start(spark, home)
        for query in running.values():
            if not query.isActive:
                sys.exit(f"a query ended, and nobody asked it to: {query.exception()}")
        time.sleep(0.2)
    sys.exit(ticks.ENDED_WELL)


if __name__ == "__main__":
    main()
