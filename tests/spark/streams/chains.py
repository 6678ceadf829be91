"""The chain that several tests run, also as a program of its own that a test can kill."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import LongType, StructField, StructType

from tidegate.apps.exchange_day import imitate_call
from tidegate.errors import BackendError
from tidegate.spark.local.kafka_jars import connector_jars
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.topology import StreamOperator, StreamTopology

ROWS = StructType([StructField("id", LongType()), StructField("value", LongType())])


def kafka_jars() -> str:
    """Spark's Kafka connector, which a JVM takes only when it starts; none: not fetched."""
    try:
        return connector_jars()
    except BackendError:  # what needs Kafka is skipped
        return ""


def local_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not whichever python3 comes first
    return (
        SparkSession.builder.master("local[2]")
        .appName("tidegate tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.ui.showConsoleProgress", "false")
        # Short lives: no time to optimise, no heap worth several collector threads.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .config("spark.jars", kafka_jars())
        .getOrCreate()
    )


def split(rows: DataFrame) -> DataFrame:
    """Two rows from one, and none from every seventh."""
    halves = fn.explode(fn.array(fn.lit(0), fn.lit(1))).alias("half")
    return rows.filter("id % 7 <> 0").select("id", "value", halves)


def enrich(rows: DataFrame) -> DataFrame:
    return imitate_call(rows, 0.001).select(
        "id", "half", (fn.col("value") * 10 + fn.col("half")).alias("worth")
    )


def mark(rows: DataFrame) -> DataFrame:
    """Adds the task that a row was computed in."""
    return rows.withColumn("task", fn.spark_partition_id())


CHAIN = StreamTopology(
    sources={"items": ROWS},
    operators=(
        StreamOperator("split", ("items",), split, ratio=2),
        StreamOperator("enrich", ("split",), enrich),
    ),
)


def some(first: int, count: int) -> list[dict[str, int]]:
    return [{"id": n, "value": n * n} for n in range(first, first + count)]


def source(folder: Path, name: str = "items") -> FileTopic:
    return FileTopic(folder / "topics" / name, ROWS)


def sink(spark: SparkSession, folder: Path, name: str) -> Counter[tuple[object, ...]]:
    """All rows of a topic, with how often each is there."""
    return Counter(map(tuple, FileTopic(folder / "topics" / name).frame(spark).collect()))


def expected(spark: SparkSession, first: int, count: int) -> Counter[tuple[object, ...]]:
    """What the chain makes of `some(first, count)`, computed as one batch."""
    rows = spark.createDataFrame([(r["id"], r["value"]) for r in some(first, count)], ROWS)
    return Counter(map(tuple, enrich(split(rows)).collect()))


if __name__ == "__main__":
    place = sys.argv[2] if len(sys.argv) > 2 else None
    files = None if place else 1
    running = CHAIN.start(
        local_session(), Path(sys.argv[1]), max_files_per_trigger=files, topics=place
    )
    running.queries["enrich"].awaitTermination()


def same(rows: DataFrame) -> DataFrame:
    return rows


def forget_last_commit(folder: Path, operator: str) -> int:
    """As if the driver had died after the last batch was published and before Spark noted it."""
    commits = folder / "checkpoints" / operator / "commits"
    last = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


TURNS = StructType([StructField("id", LongType()), StructField("value", LongType())])


def down(rows: DataFrame) -> DataFrame:
    """One step down for each row that is above zero."""
    return rows.filter("value > 0").select("id", (fn.col("value") - 1).alias("value"))


STAIRS = StreamTopology(
    sources={"items": ROWS},
    operators=(
        StreamOperator("step", ("items", "step"), down, ratio=0.7, schema=TURNS),
        StreamOperator("log", ("step",), same),
    ),
)


def stairs(heights: dict[int, int]) -> Counter[tuple[object, ...]]:
    return Counter((id_, below) for id_, height in heights.items() for below in range(height))


def heights(first: int, count: int) -> list[dict[str, int]]:
    return [{"id": n, "value": n % 5} for n in range(first, first + count)]
