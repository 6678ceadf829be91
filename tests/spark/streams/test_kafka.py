"""Kafka for real: a broker, crashes in the worst moments, and topics that others fill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.spark.local.doors import doors, is_refused, other_addresses
from tests.spark.streams.chains import CHAIN, STAIRS, expected, heights, stairs
from tidegate.errors import BackendError, InputError
from tidegate.spark.local.broker import LocalBroker
from tidegate.spark.streams.kafka import KafkaTopic
from tidegate.spark.streams.kafka_client import KafkaClient
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.locations import open_topic
from tidegate.spark.streams.topic import Manifest
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.testing.topics import ROWS, ids, sample_rows


def servers(broker: LocalBroker) -> str:
    return broker.location.removeprefix("kafka://")


def send(spark: SparkSession, broker: LocalBroker, topic: str, *values: str | None) -> None:
    """What somebody else's producer does."""
    client = KafkaClient.of(servers(broker))
    if client.partitions(topic) is None:
        client.create(topic, 2, {})
    spark.createDataFrame([(v,) for v in values], "value string").write.format("kafka").options(
        **{"kafka.bootstrap.servers": servers(broker), "topic": topic}
    ).save()


def test_the_embedded_broker_can_be_reached_on_loopback_only(broker: LocalBroker) -> None:
    assert broker.pid is not None
    here = doors([broker.pid])
    assert here and all(door.address.is_loopback for door in here)
    assert [d for d in here for at in other_addresses() if not is_refused(at, d.port)] == []


def test_a_batch_that_died_half_way_counts_for_nothing(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> KafkaTopic:
        return KafkaTopic(servers(broker), "half", tmp_path, ROWS, partitions=2)

    def batch(first: int, count: int) -> DataFrame:
        return spark.createDataFrame([(n, n) for n in range(first, first + count)], ROWS)

    def wanted(batch_id: int) -> Manifest:
        return Manifest("copy", batch_id, query="q")

    dead = opened()
    dead._client = KafkaClient(servers(broker))  # another process has a client of its own
    dead.write(batch(0, 10), wanted(0))
    # All rows are with the broker, and the driver dies: nobody ends the transaction.
    java, client = dead._publisher("copy")._java, dead._client
    java.beginTransaction()
    batch(10, 10).selectExpr("string(null)", "to_json(struct(*))")._jdf.collectAsList().forEach(
        client.sender(java, "half", "copy-1")
    )
    java.flush()
    assert sum(client.ends("half", committed=False).values()) > sum(client.ends("half").values())
    assert ids(opened().frame(spark)) == Counter(range(10))

    # The next driver does the batch again, perhaps with its rows in another order.
    second = opened()
    assert second.already(wanted(1)) is None
    second.write(batch(10, 10).orderBy("id", ascending=False), wanted(1))
    with pytest.raises(Py4JJavaError, match="newer producer"):  # the dead one was only asleep
        java.commitTransaction()
    assert ids(second.frame(spark)) == Counter(range(20))

    # The narrowest gap: Kafka has it, the driver dies before it could note so.
    real = Path.rename

    def die(path: Path, target: Path) -> Path:
        if path.name.startswith(".copy-"):
            raise KeyboardInterrupt
        return real(path, target)

    third = opened()
    third._client = KafkaClient(servers(broker))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            third.write(batch(20, 5), wanted(2))
    fourth = opened()
    done = fourth.already(wanted(2))
    assert done is not None
    assert done.totals == Counts(written=25)
    assert fourth.write(batch(20, 5), wanted(2)) == done
    assert ids(fourth.frame(spark)) == Counter(range(25))
    assert not list(tmp_path.glob(".copy*"))
    with pytest.raises(BackendError, match="stop one of them"):
        third.write(batch(90, 1), wanted(3))
    assert ids(fourth.frame(spark)) == Counter(range(25))


def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    place = f"{broker.location}/killed?partitions=2&max_rows_per_batch=20"
    items = open_topic(place, "items", CHAIN.sources["items"], tmp_path / "topics")  # type: ignore[arg-type]
    items.append(sample_rows(0, 120))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.streams.chains", str(tmp_path), place],
        cwd=Path(__file__).parents[3],
        start_new_session=True,
    )
    done = tmp_path / "topics" / "split" / f"split-{1:012d}.json"
    deadline = time.monotonic() + 400
    try:
        while not done.exists() and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and its JVM
        driver.wait()
    assert done.exists(), f"the driver ended with {driver.returncode}, -9 when it was given up"
    split = open_topic(place, "split", None, tmp_path / "topics")
    assert split.totals("split").seen < 120, "in the middle"
    with CHAIN.start(spark, tmp_path, topics=place) as running:
        running.drain()
        running.check()
        assert running.lag_items() == {"split": 0, "enrich": 0}
        found = Counter(map(tuple, running.topics["enrich"].frame(spark).collect()))
    assert found == expected(spark, 0, 120)
    assert running.live_settings.counts("split").seen == 120


def test_a_topic_that_others_fill(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy((rows["id"] % 3).alias("third")).count()

    good = [f'{{"id": {n}, "note": "x", "more": [1]}}' for n in range(30)]
    send(spark, broker, "clicks", *good, "{torn", '{"id": "seven"}', "", None)
    schema = StructType([StructField("id", LongType()), StructField("note", StringType())])
    clicks = open_topic(broker.location, "clicks", schema)
    topology = StreamTopology(
        sources={"clicks": clicks},
        operators=(
            StreamOperator("even", ("clicks",), lambda rows: rows.filter("id % 2 = 0")),
            StreamOperator("count", ("even",), count, state_partitions=2, output_mode="update"),
        ),
    )
    for extra in (0, 12):
        if extra:
            send(spark, broker, "clicks", *(f'{{"id": {n}}}' for n in range(30, 30 + extra)))
        with topology.start(spark, tmp_path, topics=f"{broker.location}/others") as running:
            running.drain()
            running.check()
            assert running.lag_items() == {"even": 0, "count": 0}
            assert running.live_settings.counts("even") == Counts(34 + extra, 0, 15 + extra // 2)
            bad = {"not JSON of the schema": 3, "no value": 1}
            assert running.rejected(spark) == {"clicks": bad}
    send(spark, broker, "clicks", '{"id": 99}', '{"id": 98}')
    meter = running.for_autoscaler()["sources"]["even"]()
    assert (meter.waiting, meter.arrived) == (2, 48)  # stopped, and still known
    rows = {(r["third"], r["count"]) for r in running.topics["count"].frame(spark).collect()}
    assert {(0, 7), (1, 7), (2, 7)} <= rows
    with pytest.raises(InputError, match="only read"):
        clicks.append([{"id": 1}])


def test_a_loop_comes_to_rest_and_goes_on_after_a_restart(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    for first in (0, 10):
        with STAIRS.start(spark, tmp_path, topics=f"{broker.location}/loop") as running:
            running.topics["items"].append(heights(first, 10))
            running.drain(120)
            assert running.lag_items() == {"step": 0, "log": 0}
    found = Counter(map(tuple, running.topics["log"].frame(spark).collect()))
    assert found == stairs({n: n % 5 for n in range(20)})
    assert running.live_settings.counts("step") == Counts(seen=20 + 40, written=40)


def test_rows_come_back_as_they_were(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    schema = (
        "t timestamp, n timestamp_ntz, d date, x double, m decimal(20,5), b binary, "
        "`a.b` array<struct<k: string, v: float>>, s map<string, int>, z string, ok boolean"
    )
    moment = datetime(2026, 11, 15, 12, 30, 1, 123456)
    full: tuple[Any, ...] = (
        moment.replace(tzinfo=UTC),
        moment,
        date(1969, 7, 20),
        0.1 + 0.2,
        Decimal("123456789012345.67891"),
        bytearray(b"\x00\xff{"),
        [('ü\n"', 1.5), (None, None)],
        {"one": 1},
        "",
        False,
    )
    wild: tuple[Any, ...] = (None, None, None, float("nan"), None, None, [], {}, "\u2028 }", None)
    nothing: tuple[Any, ...] = (None,) * 10
    rows = spark.createDataFrame([full, wild, nothing], schema)
    topic = KafkaTopic(servers(broker), "types", tmp_path, rows.schema, key="z")
    topic.write(rows, Manifest("feed", 0))
    assert sorted(map(str, topic.frame(spark).collect())) == sorted(map(str, rows.collect()))


def test_mistakes_are_named(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    place = broker.location
    with pytest.raises(InputError, match="name host and port"):
        open_topic("kafka://nowhere", "t", ROWS)
    with pytest.raises(InputError, match="one of key, max_rows_per_batch"):
        open_topic(f"{place}?patitions=3", "t", ROWS)
    with pytest.raises(InputError, match="a folder, or kafka://"):
        open_topic("s3://bucket", "t", ROWS)
    with pytest.raises(InputError, match="create it, or correct the name"):
        open_topic(place, "absent", ROWS)
    with pytest.raises(InputError, match="alone for a topic that others fill"):
        open_topic(f"{place}?partitions=3", "absent", ROWS)
    with pytest.raises(BackendError, match="no broker answers"):
        open_topic("kafka://127.0.0.1:1", "t", ROWS)
    topic = open_topic(f"{place}/wrong?partitions=3", "t", ROWS, tmp_path)
    with pytest.raises(InputError, match="3, as topic wrong"):
        open_topic(f"{place}/wrong?partitions=4", "t", ROWS, tmp_path)
    with pytest.raises(InputError, match="max_rows_per_batch"):
        topic.read(spark, "reader", tmp_path / "checkpoint", 1)
    topic.append(sample_rows(0, 1))
    with pytest.raises(BackendError, match="remove both or neither"):
        open_topic(f"{place}/wrong", "t", ROWS, tmp_path / "elsewhere")
    with pytest.raises(BackendError, match="created on another broker or as files"):
        open_topic(f"{place}/right", "t", ROWS, tmp_path)
