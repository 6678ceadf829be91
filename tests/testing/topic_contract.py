"""What every topic promises, whatever holds its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.topic import Manifest, Topic

ROWS = StructType([StructField("id", LongType()), StructField("value", LongType())])
Open = Callable[[StructType | None], Topic]


def some(first: int, count: int) -> list[dict[str, int]]:
    return [{"id": n, "value": n * n} for n in range(first, first + count)]


def ids(rows: DataFrame) -> Counter[int]:
    return Counter(int(row["id"]) for row in rows.select("id").collect())


def once(*numbers: int) -> Counter[int]:
    return Counter(range(*numbers))


def check_publishing(open_topic: Open, spark: SparkSession) -> None:
    """Batches are there wholly and once; a repeated one changes nothing; all is on record."""
    with pytest.raises(InputError, match="given for a new topic"):
        open_topic(None)
    topic = open_topic(ROWS)
    assert ids(topic.frame(spark)) == Counter()
    first = topic.append(some(0, 10), "feed", batch_id=0)
    assert topic.append(some(50, 3), "feed", batch_id=0) == first, "repeated: as it was"
    topic.append(some(10, 5), "feed")
    topic.append([], "other")

    again = open_topic(None)  # another process
    assert again.schema == topic.schema
    assert again.append(some(50, 3), "feed", batch_id=1).counts == Counts(seen=5, written=5)
    again.append(some(15, 1), "feed", batch_id=7)
    with pytest.raises(InputError, match="number batches upwards"):
        again.append(some(16, 1), "feed", batch_id=6)
    assert again.totals("feed") == Counts(seen=16, written=16)
    assert (again.totals("other"), again.totals("nobody")) == (Counts(), Counts())
    assert ids(again.frame(spark)) == once(16)
    assert topic.arrived_items() == again.arrived_items() == 16
    with pytest.raises(InputError, match="as when the topic was created"):
        open_topic(StructType([StructField("id", StringType())]))


def check_queries(open_topic: Open, spark: SparkSession) -> None:
    """What a query writes is there once, and old batches never hide those of a new query."""
    topic = open_topic(ROWS)
    batch = spark.createDataFrame([(n, n) for n in range(20)], ROWS).repartition(3)
    wanted = Manifest("copy", 4, counts=Counts(seen=30, dropped=10), query="q1", parallelism=3)
    assert topic.already(wanted) is None
    done = topic.write(batch, wanted)
    assert (done.counts, done.totals) == (Counts(30, 10, 20),) * 2
    assert (done.parallelism, done.query) == (3, "q1")
    assert topic.write(batch, wanted) == done == open_topic(None).already(wanted)
    with pytest.raises(BackendError, match="remove both or neither"):
        topic.already(Manifest("copy", 0, query="q2"))
    assert ids(topic.frame(spark)) == once(20)


def check_reading(open_topic: Open, spark: SparkSession, folder: Path) -> None:
    """A query gets each row once, through restarts; its lag is exact; trimming loses nothing."""
    topic, checkpoint = open_topic(ROWS), folder / "checkpoint"
    with pytest.raises(InputError, match="nobody reads it yet"):
        topic.lag_items("reader")
    topic.append(some(0, 30), "feed")
    topic.append(some(30, 12), "other")
    assert topic.trim(0) == 0, "nobody has read it"
    got: list[Counter[int]] = []
    items: list[int] = []
    lags: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        got.append(ids(batch))
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
    assert (items, lags) == ([42], [42]), "a batch counts until it is committed"
    assert topic.lag_items("reader") == open_topic(None).lag_items("reader") == 0
    topic.append(some(42, 8), "feed")
    assert topic.lag_items("reader") == 8
    assert topic.trim(3600) == 0, "all of it is young"
    assert topic.trim(0) == 1, "the newest of each producer stays, and what nobody has read"
    assert topic.lag_items("reader") == 8 and topic.arrived_items() == 50
    run(open_topic(None))  # another process goes on
    assert sum(got, Counter()) == once(50), "each row once"
    assert items == [42, 8]
    assert topic.totals("feed").written == 38
    with pytest.raises(InputError, match="known are reader"):
        topic.lag_items("nobody")
