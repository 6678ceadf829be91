"""Record what Spark's listener says of queries on several sources, for tests without a JVM.

    python -m tests.spark.autoscaler.record                                 # all but Kafka
    python -m tests.spark.autoscaler.record --only kafka --kafka HOST:PORT --jars A.jar,B.jar

Each scenario becomes a file in ``tests/fixtures/progress``: a line an event, as
`Gateway.listen` tells it, the temporary folder replaced by ``/data``. For
Kafka a broker must run at HOST:PORT, and the jars are those of Spark's Kafka connector. The
recordings here are of Spark 4.3.0; that of Kafka with the connector of 4.2.0 and its token provider
of 4.0.0 (no others were to be had at the time) and a broker of version 3.9.1.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.spark.autoscaler.in_process import InProcessGateway

OUT = Path(__file__).parents[2] / "fixtures" / "progress"
LIMIT_S = 120.0


class Recorder:
    """One scenario: its folder, and the events so far."""

    def __init__(self, spark: SparkSession, folder: Path, kafka: str) -> None:
        self.spark = spark
        self.folder = folder
        self.kafka = kafka
        self.events: list[tuple[str, str]] = []
        (folder / "in").mkdir(parents=True)

    def hear(self, kind: str, text: str) -> None:
        """Note an event."""
        self.events.append((kind, text))

    def feed(self, number: int, rows: int = 20) -> None:
        """A new file of so many rows in the input folder."""
        now_s = time.time()
        lines = [json.dumps({"ts": now_s - n / 10, "k": n % 4, "v": n}) for n in range(rows)]
        new = self.folder / f"{number}.new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.folder / "in" / f"{number:03}.json")

    def read(self, **options: Any) -> DataFrame:
        """The input folder as a stream."""
        files = self.spark.readStream.schema("ts double, k int, v long").options(**options)
        return files.json(str(self.folder / "in")).withColumn("ts", F.col("ts").cast("timestamp"))

    def start(self, frame: DataFrame, name: str, mode: str = "append") -> StreamingQuery:
        """A query over the stream, triggered every 500 ms."""
        writer = frame.writeStream.format("noop").queryName(name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.folder / f"at-{name}"))
        return writer.trigger(processingTime="500 milliseconds").start()

    def wait(self, kind: str, count: int, name: str = "", rows: bool = False) -> None:
        """Wait until so many events of a kind have come, of a query or with rows if asked for."""
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            fitting = [t for k, t in self.events if k == kind and (not name or f'"{name}"' in t)]
            if rows:
                fitting = [t for t in fitting if json.loads(t)["numInputRows"]]
            if len(fitting) >= count:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{count} events {kind!r} did not come in {LIMIT_S:g} s")

    def lines(self) -> list[str]:
        """The events as they are kept."""
        kept = []
        for kind, text in self.events:
            line: dict[str, Any] = {"kind": kind}
            if kind in ("progress", "idle"):
                line["event"] = json.loads(text)
            else:
                line["text"] = "\n".join(text.splitlines()[:3])  # the trace is of no use
            kept.append(json.dumps(line).replace(str(self.folder), "/data"))
        return kept


def files(it: Recorder) -> None:
    """A folder without a limit: Spark says nothing of what is left. It falls idle in the end."""
    it.feed(1)
    query = it.start(it.read(), "files")
    for number in range(2, 5):
        it.wait("progress", number - 1, rows=True)
        it.feed(number)
    it.wait("progress", 4, rows=True)
    it.wait("idle", 2)
    query.stop()
    it.wait("ended", 1)


def files_limited(it: Recorder) -> None:
    """A folder read one file at a time: files and bytes outstanding are told."""
    for number in range(1, 6):
        it.feed(number, rows=10 * number)
    query = it.start(it.read(maxFilesPerTrigger=1), "limited")
    it.wait("progress", 5, rows=True)
    query.stop()
    it.wait("ended", 1)


def rate(it: Recorder) -> None:
    """The rate source, which tells no lag."""
    query = it.start(it.spark.readStream.format("rate").option("rowsPerSecond", 50).load(), "rate")
    it.wait("progress", 6, rows=True)
    query.stop()
    it.wait("ended", 1)


def stateful(it: Recorder) -> None:
    """Windows with a watermark: event times and state are told."""
    windows = it.read().withWatermark("ts", "1 second")
    counts = windows.groupBy("k", F.window("ts", "1 second")).count()
    it.feed(1)
    query = it.start(counts, "windows", "update")
    for number in range(2, 6):
        it.wait("progress", number - 1, rows=True)
        it.feed(number)
    it.wait("progress", 5, rows=True)
    query.stop()
    it.wait("ended", 1)


def failing(it: Recorder) -> None:
    """A query that fails on its second file and is restarted from its checkpoint."""
    it.feed(1, rows=10)
    broken = it.read(maxFilesPerTrigger=1).where("v < 15 or assert_true(v < 15) is null")
    it.start(broken, "fragile")
    it.wait("progress", 1, rows=True)
    it.feed(2, rows=20)
    it.wait("ended", 1)
    query = it.start(it.read(maxFilesPerTrigger=1), "fragile")
    it.wait("progress", 2, rows=True)
    it.feed(3, rows=30)
    it.wait("progress", 3, rows=True)
    query.stop()
    it.wait("ended", 2)


def two(it: Recorder) -> None:
    """Two queries at once in one application."""
    it.feed(1)
    queries = [it.start(it.read(), "left"), it.start(it.read(maxFilesPerTrigger=1), "right")]
    for number in range(2, 4):
        it.wait("progress", number - 1, "left", rows=True)
        it.wait("progress", number - 1, "right", rows=True)
        it.feed(number)
    it.wait("progress", 3, "left", rows=True)
    it.wait("progress", 3, "right", rows=True)
    for query in queries:
        query.stop()
    it.wait("ended", 2)


def kafka(it: Recorder) -> None:
    """A topic with more in it than a batch may take: offsets behind the latest are told."""
    from_topic = {"kafka.bootstrap.servers": it.kafka, "subscribe": "ticks"}
    rows = it.spark.range(400).selectExpr("cast(id as string) as value", "'ticks' as topic")
    rows.write.format("kafka").option("kafka.bootstrap.servers", it.kafka).save()
    limited = from_topic | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    query = it.start(it.spark.readStream.format("kafka").options(**limited).load(), "kafka")
    it.wait("progress", 4, rows=True)
    it.wait("idle", 1)
    rows.limit(30).write.format("kafka").option("kafka.bootstrap.servers", it.kafka).save()
    it.wait("progress", 5, rows=True)
    query.stop()
    it.wait("ended", 1)


SCENARIOS: dict[str, Callable[[Recorder], None]] = {
    scenario.__name__: scenario
    for scenario in (files, files_limited, rate, stateful, failing, two, kafka)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, action="append")
    parser.add_argument("--kafka", default="", metavar="HOST:PORT")
    parser.add_argument("--jars", default="")
    asked = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").appName("record")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.noDataProgressEventInterval": "1s",
        "spark.jars": asked.jars,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    gateway = InProcessGateway(spark)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in asked.only or [n for n in SCENARIOS if n != "kafka" or asked.kafka]:
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(spark, Path(folder), asked.kafka)
            end = gateway.listen(recorder.hear)
            SCENARIOS[name](recorder)
            end()
            (OUT / f"{name}.jsonl").write_text("\n".join(recorder.lines()) + "\n")
            print(f"{name}: {len(recorder.events)} events", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
