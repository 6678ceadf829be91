"""The fence with Spark: a query whose epoch is over neither begins a batch nor commits one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.fleet.fence import Fence
from tidegate.lifecycle import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 300.0


def add_file(folder: Path, number: int) -> None:
    """Add a file with one row, which appears complete."""
    folder.mkdir(exist_ok=True)
    (folder / f".{number}").write_text(json.dumps({"id": number}))
    (folder / f".{number}").rename(folder / f"{number}.json")


def until(seen: Callable[[], bool]) -> None:
    assert wait_until(seen, LIMIT_S)


def numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.glob("[0-9]*"))


def rows_of(spark: SparkSession, folder: Path) -> Any:
    rows = spark.readStream.schema("id long").json(str(folder / "source"))
    return rows.writeStream.trigger(processingTime="100 milliseconds")


def test_a_batch_in_flight_cannot_be_committed_and_is_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    fence = Fence(tmp_path / "checkpoint")
    commits = fence.checkpoint / "commits"
    in_batch, go = threading.Event(), threading.Event()
    batches: list[tuple[int, list[int]]] = []

    def put(frame: DataFrame, batch: int) -> None:
        batches.append((batch, [row.id for row in frame.collect()]))
        in_batch.set()
        go.wait(LIMIT_S)

    def start() -> Any:
        writer = rows_of(spark, tmp_path).foreachBatch(put)
        return writer.option("checkpointLocation", fence.claim()).start()

    add_file(tmp_path / "source", 0)
    old = start()
    assert in_batch.wait(LIMIT_S)
    fence.revoke()
    go.set()
    until(lambda: not old.isActive)
    assert old.exception() is not None
    assert numbers(fence.checkpoint / "offsets") == [0] and numbers(commits) == []
    new = start()
    try:
        until(lambda: numbers(commits) == [0])
    finally:
        new.stop()
    assert batches == [(0, [0]), (0, [0])]


def test_no_batch_begins_after_the_epoch_and_an_idle_query_is_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    fence = Fence(tmp_path / "checkpoint", lease_s=2.0)
    commits, sink = fence.checkpoint / "commits", str(tmp_path / "sink")

    def start() -> Any:
        writer = rows_of(spark, tmp_path).format("json").option("path", sink)
        return writer.option("checkpointLocation", fence.claim()).start()

    add_file(tmp_path / "source", 0)
    old = start()
    until(lambda: numbers(commits) == [0])
    fence.revoke()
    add_file(tmp_path / "source", 1)
    until(lambda: not old.isActive)
    assert old.exception() is not None and numbers(commits) == [0]
    new = start()
    try:
        until(lambda: numbers(commits) == [0, 1])
        written = spark.read.schema("id long").json(sink).collect()
        assert sorted(row.id for row in written) == [0, 1]
        _check_plugin(spark, fence, new)
    finally:
        new.stop()


def _check_plugin(spark: SparkSession, fence: Fence, query: Any) -> None:
    """With the plugin, a query renews its lease, and is stopped when its epoch is over."""
    jvm: Any = spark._jvm
    plugin = jvm.io.tidegate.spark.FleetPlugin().driverPlugin()
    plugin.init(None, None)
    epoch = fence.latest()

    def lease(key: str) -> Any:
        return json.loads(fence.lease(epoch) or "{}").get(key)

    try:
        until(lambda: lease("state") == "held" and lease("renewals") >= 2)
        assert query.isActive
        fence.revoke()
        until(lambda: lease("state") == "released")
        assert not query.isActive and query.exception() is None
    finally:
        plugin.shutdown()
