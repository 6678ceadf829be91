"""The contract of a topic, whatever stores its rows. Each check runs on a Spark session.

A check takes a function that opens one and the same topic. Its argument is a schema, or None to
open the topic that already exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.topic import Manifest, Topic
from tidegate.testing.contracts import expect, expect_error

__all__ = [
    "ROWS",
    "OpenTopic",
    "check_publishing",
    "check_reading",
    "check_writing",
    "ids",
    "sample_rows",
]

ROWS = StructType([StructField("id", LongType()), StructField("value", LongType())])
OpenTopic = Callable[[StructType | None], Topic]


def sample_rows(first: int, count: int) -> list[dict[str, int]]:
    """Rows with ids from `first` on and the schema `ROWS`."""
    return [{"id": n, "value": n * n} for n in range(first, first + count)]


def ids(rows: DataFrame) -> Counter[int]:
    """How often each id occurs."""
    return Counter(int(row["id"]) for row in rows.select("id").collect())


def _same(found: object, expected: object, rule: str) -> None:
    expect(found == expected, rule, f"{found}, expected {expected}")


def check_publishing(open_topic: OpenTopic, spark: SparkSession) -> None:
    """Raise CheckFailed unless appended batches are complete, stored once, and counted."""
    with expect_error(InputError, "a new topic needs a schema"):
        open_topic(None)
    topic = open_topic(ROWS)
    _same(ids(topic.frame(spark)), Counter(), "a new topic is empty")
    first = topic.append(sample_rows(0, 10), "feed", batch_id=0)
    again = topic.append(sample_rows(50, 3), "feed", batch_id=0)
    _same(again, first, "a repeated batch changes nothing")
    topic.append(sample_rows(10, 5), "feed")
    topic.append([], "other")

    other = open_topic(None)  # as another process opens it
    _same(other.schema, topic.schema, "the schema is stored")
    counts = other.append(sample_rows(50, 3), "feed", batch_id=1).counts
    _same(counts, Counts(seen=5, written=5), "another process knows the batches")
    other.append(sample_rows(15, 1), "feed", batch_id=7)
    with expect_error(InputError, "batch numbers rise"):
        other.append(sample_rows(16, 1), "feed", batch_id=6)
    _same(other.totals("feed"), Counts(seen=16, written=16), "rows are counted by producer")
    totals = other.totals("other"), other.totals("nobody")
    _same(totals, (Counts(), Counts()), "a producer without rows has none")
    _same(ids(other.frame(spark)), Counter(range(16)), "each row is stored once")
    arrived = topic.arrived_items(), other.arrived_items()
    _same(arrived, (16, 16), "arrivals are the same for all who opened the topic")
    with expect_error(InputError, "a schema cannot change"):
        open_topic(StructType([StructField("id", StringType())]))


def check_writing(open_topic: OpenTopic, spark: SparkSession) -> None:
    """Raise CheckFailed unless batches of a query are stored once and never hide a new query's."""
    topic = open_topic(ROWS)
    batch = spark.createDataFrame([(n, n) for n in range(20)], ROWS).repartition(3)
    wanted = Manifest("copy", 4, counts=Counts(seen=30, dropped=10), query="q1", parallelism=3)
    _same(topic.already(wanted), None, "a new batch is not stored yet")
    done = topic.write(batch, wanted)
    _same((done.counts, done.totals), (Counts(30, 10, 20),) * 2, "rows are counted")
    _same((done.parallelism, done.query), (3, "q1"), "the manifest names the query")
    _same(topic.write(batch, wanted), done, "a repeated batch changes nothing")
    _same(open_topic(None).already(wanted), done, "another process knows the batch")
    with expect_error(BackendError, "a new query needs a new topic"):
        topic.already(Manifest("copy", 0, query="q2"))
    _same(ids(topic.frame(spark)), Counter(range(20)), "each row is stored once")


def check_reading(open_topic: OpenTopic, spark: SparkSession, folder: Path) -> None:
    """Raise CheckFailed unless a query reads each row once, the lag is exact, and trimming is safe.

    folder: for the checkpoint of the query.
    """
    topic, checkpoint = open_topic(ROWS), folder / "checkpoint"
    with expect_error(InputError, "an unread topic has no lag"):
        topic.lag_items("reader")
    topic.append(sample_rows(0, 30), "feed")
    topic.append(sample_rows(30, 12), "other")
    _same(topic.trim(0), 0, "an unread topic is not trimmed")
    read: list[Counter[int]] = []
    items: list[int] = []
    lags: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        read.append(ids(batch))
        items.append(topic.items_in(Checkpoint(checkpoint), batch_id))
        lags.append(topic.lag_items("reader"))

    def run(reader: Topic) -> None:
        query = (
            reader.read(spark, "reader", checkpoint)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run(topic)
    _same((items, lags), ([42], [42]), "a batch counts as lag until it is committed")
    left = topic.lag_items("reader"), open_topic(None).lag_items("reader")
    _same(left, (0, 0), "a committed batch is no lag")
    topic.append(sample_rows(42, 8), "feed")
    _same(topic.lag_items("reader"), 8, "new rows are lag")
    _same(topic.trim(3600), 0, "recent batches are not trimmed")
    _same(topic.trim(0), 1, "unread batches and the newest of each producer are not trimmed")
    _same((topic.lag_items("reader"), topic.arrived_items()), (8, 50), "trimming keeps the counts")
    run(open_topic(None))  # another process continues
    _same(sum(read, Counter()), Counter(range(50)), "each row is read once")
    _same(items, [42, 8], "each batch knows its rows")
    _same(topic.totals("feed").written, 38, "trimming keeps the totals")
    with expect_error(InputError, "an unknown reader is refused"):
        topic.lag_items("nobody")
