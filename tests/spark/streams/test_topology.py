"""Topologies on a real Spark: nothing lost, nothing repeated, whatever changes or dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.streams import chains
from tests.spark.streams.chains import (
    CHAIN,
    ROWS,
    enrich,
    expected,
    forget_last_commit,
    mark,
    same,
    sink,
    some,
    source,
)
from tidegate.apps.exchange_day import imitate_call
from tidegate.errors import BackendError, TopologyError
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.packing import Packing
from tidegate.spark.autoscaler.executors import executor_manager
from tidegate.spark.autoscaler.in_process import InProcessGateway
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.shedding import shedding
from tidegate.spark.streams.topology import StreamOperator, StreamTopology


def test_parallelism_changes_at_the_next_batch_and_lag_is_exact(
    spark: SparkSession, tmp_path: Path
) -> None:
    topology = StreamTopology(
        sources={"items": ROWS},
        operators=(
            StreamOperator("split", ("items",), chains.split),
            StreamOperator("enrich", ("split",), lambda rows: mark(enrich(rows))),
        ),
    )
    items = source(tmp_path)
    items.append(some(0, 100))
    live_settings = LiveSettings(default_parallelism=2)
    with topology.start(spark, tmp_path, live_settings) as running:
        running.drain()
        assert running.lag_items() == {"split": 0, "enrich": 0}
        live_settings.set_parallelism({"enrich": 5})
        items.append(some(100, 100))
        running.drain()
        running.check()
        edge = running.model().edges[1]
        assert edge.ratio == pytest.approx(2 * (200 - 29) / 200)  # measured: 29 are dropped
    items.append(some(200, 30))
    assert running.lag_items() == {"split": 30, "enrich": 0}  # stopped, and still known

    assert live_settings.counts("split") == Counts(seen=200, written=342)
    used = {m.batch_id: m.parallelism for m in FileTopic(tmp_path / "topics/enrich").batches()}
    assert used == {0: 2, 1: 5}
    out = sink(spark, tmp_path, "enrich")
    assert Counter(row[:3] for row in out.elements()) == expected(spark, 0, 200)
    assert {row[3] for row in out if row[0] < 100} == {0, 1}  # type: ignore[operator]
    assert {row[3] for row in out if row[0] >= 100} == set(range(5))  # type: ignore[operator]


def test_the_tasks_of_a_stateful_operator_follow_its_parallelism(
    spark: SparkSession, tmp_path: Path
) -> None:
    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy("value").count()

    def topology(rebalances: bool) -> StreamTopology:
        counting = StreamOperator(
            "count", ("items",), count, state_partitions=6, output_mode="update",
            rebalances=rebalances,
        )  # fmt: skip
        return StreamTopology({"items": ROWS}, (counting,))

    rows = [{"id": n, "value": n % 60} for n in range(120)]
    with topology(rebalances=True).start(spark, tmp_path) as running:
        for wanted in (None, 2, 9, 1):
            if wanted is not None:
                running.live_settings.set_parallelism({"count": wanted})
            running.topics["items"].append(rows)
            running.drain()
    batches = list(FileTopic(tmp_path / "topics/count").batches())
    assert [len(batch.files) for batch in batches] == [6, 2, 6, 1], "a file of each task"
    assert [batch.parallelism for batch in batches] == [None, 2, 9, 1]
    with topology(rebalances=False).start(spark, tmp_path) as running:  # as if nothing had changed
        running.live_settings.set_parallelism({"count": 2})
        running.topics["items"].append(rows)
        running.drain()
    batches = list(FileTopic(tmp_path / "topics/count").batches())
    assert len(batches[-1].files) == 6
    found = sink(spark, tmp_path, "count")
    assert found == Counter((value, 2 * n) for value in range(60) for n in range(1, 6))


def test_a_plan_takes_effect_at_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    items = source(tmp_path)
    items.append(some(0, 50))
    with CHAIN.start(spark, tmp_path) as running:
        given = running.for_autoscaler()
        gateway = InProcessGateway(spark, watch_only=True)
        hosts = executor_manager(gateway, time.time)
        offer = HostOffer(Resources(2))
        world = SparkWorld(gateway, hosts, offer, style="instances", interval_s=1.0, **given)
        world.start()
        try:
            running.drain()
            items.append(some(50, 50))
            running.drain()
            seen = world.observe()
            assert seen.requested.counts == {"split": 1, "enrich": 1}, "two slots, one each"
            assert {o.operator: o.queue_length for o in seen.operators} == {"split": 0, "enrich": 0}
            packing = Packing(seen)
            for _ in range(2):
                packing.start("enrich", packing.instances_of("enrich")[0].host)
            world.apply(packing.plan())
            items.append(some(100, 50))
            running.drain()
            later = world.observe()
        finally:
            world.close()
    items.append(some(150, 5))
    running.live_settings.record("split", Counts(seen=155))  # by a batch that is not committed yet
    assert given["sources"]["split"]() == SourceCount(5, 155), "nothing is counted twice"
    assert later.requested.counts == {"split": 1, "enrich": 3}
    ratios = {(e.origin, e.target): e.ratio for e in later.topology.edges}
    assert ratios["split", "enrich"] == 2 * 128 / 150, "as it was measured, at every turn"
    assert later.reading["split"].service_time_s, "run time of tasks, by query"
    used = [m.parallelism for m in FileTopic(tmp_path / "topics/enrich").batches()]
    assert used[-1] == 3
    assert sink(spark, tmp_path, "enrich") == expected(spark, 0, 150)


def test_a_dry_run_leaves_the_parallelism_as_it_was_set(
    spark: SparkSession, tmp_path: Path
) -> None:
    source(tmp_path).append(some(0, 50))
    live_settings = LiveSettings()
    with CHAIN.start(spark, tmp_path, live_settings) as running:
        live_settings.set_parallelism({"split": 1, "enrich": 3})
        gateway = InProcessGateway(spark, watch_only=True)
        hosts, offer = executor_manager(gateway, time.time), HostOffer(Resources(5))
        given = running.for_autoscaler()
        for dry_run in (True, False):
            world = SparkWorld(
                gateway, hosts, offer, style="instances", interval_s=1.0, dry_run=dry_run, **given
            )
            world.start()
            try:
                packing = Packing(world.observe())
                packing.start("enrich", packing.instances_of("enrich")[0].host)
                world.apply(packing.plan())
            finally:
                world.close()
            wanted = 3 if dry_run else 2  # two slots hold one instance each, and one is added
            assert live_settings.chosen_parallelism("enrich") == wanted


def test_a_killed_driver_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    items = source(tmp_path)
    for n in range(12):
        items.append(some(n * 20, 20))
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.streams.chains", str(tmp_path)],
        cwd=Path(__file__).parents[3],
        start_new_session=True,
    )
    done = tmp_path / "topics" / "enrich" / f"enrich-{1:012d}"
    deadline = time.monotonic() + 300
    try:
        while not done.exists() and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and its JVM
        driver.wait()
    assert done.exists()
    assert FileTopic(tmp_path / "topics" / "split").totals("split").seen < 240  # in the middle
    with CHAIN.start(spark, tmp_path) as running:
        running.drain()
    assert sink(spark, tmp_path, "enrich") == expected(spark, 0, 240)
    assert running.live_settings.counts("split").seen == 240

    # The narrowest gap: published, not committed. The batch is repeated and changes nothing.
    forget_last_commit(tmp_path, "enrich")
    with CHAIN.start(spark, tmp_path) as running:
        items.append(some(240, 20))
        running.drain()
        running.check()
    assert sink(spark, tmp_path, "enrich") == expected(spark, 0, 260)


def test_what_is_shed_is_counted_and_a_replay_sheds_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    gate = StreamTopology(
        sources={"items": ROWS}, operators=(StreamOperator("gate", ("items",), same),)
    )
    items, live_settings = source(tmp_path), LiveSettings()
    with gate.start(spark, tmp_path, live_settings) as running:
        items.append(some(0, 100))
        running.drain()
        assert live_settings.counts("gate") == Counts(seen=100, written=100)  # off by default
        live_settings.shed_fraction = 0.3
        items.append(some(100, 1000))
        running.drain()
    before, counts = sink(spark, tmp_path, "gate"), live_settings.counts("gate")
    assert counts.seen == 1100 == counts.written + counts.dropped
    assert counts.written == before.total() == len(before)
    assert 250 < counts.dropped < 350

    # Died while it wrote that batch. Meanwhile the dial stands elsewhere.
    last = forget_last_commit(tmp_path, "gate")
    shutil.rmtree(tmp_path / "topics" / "gate" / f"gate-{last:012d}")
    again = LiveSettings()
    again.shed_fraction = 0.9
    with gate.start(spark, tmp_path, again) as running:
        running.drain()
    assert sink(spark, tmp_path, "gate") == before
    assert again.counts("gate") == counts

    # Without its checkpoint the query begins at batch 0 again, which the topic takes for done.
    shutil.rmtree(tmp_path / "checkpoints")
    with gate.start(spark, tmp_path) as running:
        with pytest.raises(StreamingQueryException, match="remove both or neither"):
            running.drain()
        with pytest.raises(BackendError, match="operator gate has failed"):
            running.check()


def test_a_full_buffer_sheds_the_rest_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    gate = StreamTopology(
        sources={"items": ROWS}, operators=(StreamOperator("gate", ("items",), same),)
    )
    items, live_settings = source(tmp_path), LiveSettings(buffer_rows=250)
    with gate.start(spark, tmp_path, live_settings) as running:
        items.append(some(0, 200))
        running.drain()
        assert live_settings.counts("gate") == Counts(seen=200, written=200)
        items.append(some(200, 1000))
        running.drain()
    counts = live_settings.counts("gate")
    assert counts.seen == 1200 == counts.written + counts.dropped
    assert 700 < counts.dropped < 800  # three quarters of a thousand, by a hash
    assert sum(live_settings.shed_rows("gate").values()) == counts.dropped


def test_shedding_before_a_function_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    items, live_settings = source(tmp_path), LiveSettings()
    live_settings.shed_fraction = 0.5
    items.append(some(0, 400))
    left: dict[int, int] = {}
    sheds = shedding(
        lambda batch, n: left.update({n: batch.count()}),
        live_settings,
        tmp_path / "shed",
        name="own",
    )
    stream = items.read(spark, "own", tmp_path / "checkpoint")
    query = (
        stream.writeStream.foreachBatch(sheds)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counts = live_settings.counts("own")
    assert counts.seen == 400 == sum(left.values()) + counts.dropped
    assert counts.dropped > 0
    assert items.lag_items("own") == 0


def test_splits_joins_state_and_trimming(spark: SparkSession, tmp_path: Path) -> None:
    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy((rows["id"] % 3).alias("third")).count()

    topology = StreamTopology(
        sources={"items": ROWS},
        operators=(
            StreamOperator("even", ("items",), lambda rows: rows.filter("id % 2 = 0")),
            StreamOperator("odd", ("items",), lambda rows: rows.filter("id % 2 = 1")),
            StreamOperator(
                "count", ("even", "odd"), count, state_partitions=3, output_mode="update"
            ),
        ),
    )
    assert topology.model().entries == ("even", "odd")
    assert topology.model().by_name["count"].max_instances == 3
    folder = tmp_path / "with a space"
    items = source(folder)
    for n in range(150):
        items.append(some(2 * n, 2))
    for n in (300, 360):  # the second life finds the topics trimmed and the state as it was
        with topology.start(spark, folder, trigger_s=0.02) as running:
            running.drain()
            items.append(some(n, 60))
            running.trim(0)  # hundreds of batches vanish while the queries look for the next
            running.drain()
            running.check()
            assert running.lag_items() == {"even": 0, "odd": 0, "count": 0}
    assert len(items.batches()) <= 2
    assert running.live_settings.counts("count").seen == 420
    final = {(third, 140) for third in range(3)}
    assert final <= set(sink(spark, folder, "count"))


@pytest.fixture
def java_says(spark: SparkSession) -> Iterator[Any]:
    """What the JVM prints of exceptions that nobody caught."""
    java = spark._jvm.java  # type: ignore[union-attr]
    printed, before = java.io.ByteArrayOutputStream(), java.lang.System.err
    java.lang.System.setErr(java.io.PrintStream(printed, True))
    yield printed
    java.lang.System.setErr(before)


def test_stopping_at_work_is_quiet_and_a_start_goes_on(
    spark: SparkSession, tmp_path: Path, java_says: Any
) -> None:
    items = source(tmp_path)
    for n in range(8):
        items.append(some(n * 20, 20))
    running = CHAIN.start(spark, tmp_path, trigger_s=0, max_files_per_trigger=1)
    deadline = time.monotonic() + 60
    while running.live_settings.counts("split").seen == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.stop()
    assert java_says.toString() == ""
    assert all(query.exception() is None for query in running.queries.values())
    assert running.lag_items()["split"] > 0  # it did not wait for the end of the input
    with CHAIN.start(spark, tmp_path) as running:
        running.drain()
    assert sink(spark, tmp_path, "enrich") == expected(spark, 0, 160)


def test_an_imitated_call_waits_for_each_row(spark: SparkSession) -> None:
    rows = imitate_call(spark.range(40).repartition(1), 0.02)
    began = time.monotonic()
    assert len(rows.select("id").collect()) == 40
    assert time.monotonic() - began >= 40 * 0.02


def test_only_state_needs_to_be_rebalanced() -> None:
    with pytest.raises(TopologyError, match="state_partitions"):
        StreamOperator("split", ("items",), chains.split, rebalances=True)


def test_an_operator_stands_after_its_inputs() -> None:
    with pytest.raises(
        TopologyError, match=r"known here are items; an operator that closes a loop"
    ):
        StreamTopology({"items": ROWS}, (StreamOperator("a", ("b",), same),))
    with pytest.raises(TopologyError, match="unique in the topology"):
        StreamTopology({"items": ROWS}, (StreamOperator("items", ("items",), same),))


def test_an_operator_has_its_own_trigger_and_rate_limit(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(TopologyError, match="operator a: max_files is 0"):
        StreamOperator("a", ("items",), same, max_files=0)
    with pytest.raises(TopologyError, match="operator a: trigger_s is -1"):
        StreamOperator("a", ("items",), same, trigger_s=-1.0)
    operators = (
        StreamOperator("free", ("items",), same),
        StreamOperator("limited", ("items",), same, max_files=1, trigger_s=0.0),
    )
    topology = StreamTopology({"items": ROWS}, operators)
    for n in range(3):  # files that are there before the first batch
        source(tmp_path).append([{"id": n, "value": n}])
    with topology.start(spark, tmp_path, trigger_s=0.1) as running:
        running.drain()
    commits = {
        name: len(list((tmp_path / "checkpoints" / name / "commits").glob("[0-9]*")))
        for name in ("free", "limited")
    }
    assert commits == {"free": 1, "limited": 3}
