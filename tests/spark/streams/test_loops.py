"""Loops on a real Spark: what comes round is worked on exactly once, and the loop comes to rest."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.streams.chains import (
    ROWS,
    STAIRS,
    TURNS,
    forget_last_commit,
    heights,
    same,
    sink,
    some,
    source,
    stairs,
)
from tidegate.errors import BackendError, TopologyError
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.topology import StreamOperator, StreamTopology


def test_a_loop_comes_to_rest_and_goes_on_after_a_crash(
    spark: SparkSession, tmp_path: Path
) -> None:
    items = source(tmp_path)
    items.append(heights(0, 20))
    running = STAIRS.start(spark, tmp_path, trigger_s=0, max_files_per_trigger=1)
    deadline = time.monotonic() + 60
    while running.live_settings.counts("step").seen <= 20 and time.monotonic() < deadline:
        time.sleep(0.01)  # until something has come round
    running.stop()
    assert 0 < running.lag_items()["step"] < 60  # in the middle of the loop

    # Died after the last batch was published and before Spark noted it.
    forget_last_commit(tmp_path, "step")
    with STAIRS.start(spark, tmp_path) as running:
        items.append(heights(20, 20))
        running.drain(60)
        assert running.lag_items() == {"step": 0, "log": 0}
        written = 2 * 4 * (0 + 1 + 2 + 3 + 4)
        assert running.live_settings.counts("step") == Counts(seen=40 + written, written=written)
        model = running.model()
        ratio = {(edge.origin, edge.target): edge.ratio for edge in model.edges}
        assert ratio["step", "step"] == ratio["step", "log"] == written / (40 + written)
        assert model.arrival_rates({"items": 10}) == {"step": 30.0, "log": 20.0}
        running.trim(0)  # what has come round is needed no more
        items.append([{"id": 100, "value": 3}])
        running.drain(60)
    expected = stairs({n: n % 5 for n in range(40)} | {100: 3})
    assert sink(spark, tmp_path, "log") == expected

    # Died while it wrote its last batch: the state of the loop is what was published before.
    last = forget_last_commit(tmp_path, "log")
    shutil.rmtree(tmp_path / "topics" / "log" / f"log-{last:012d}")
    with STAIRS.start(spark, tmp_path) as running:
        running.drain(60)
    assert sink(spark, tmp_path, "log") == expected


def add_up(key: tuple[Any, ...], groups: Iterable[Any], state: Any) -> Iterator[Any]:
    """The sum of a key so far; every second time that it grows it tells the key below."""
    import pandas as pd  # type: ignore[import-untyped]

    total, times = state.get if state.exists else (0, 0)
    for group in groups:
        for value in sorted(group["value"]):
            total, times = total + int(value), times + 1
            if times % 2 == 0 and key[0] > 0:
                yield pd.DataFrame({"id": [key[0] - 1], "value": [total]})
    state.update((total, times))


def test_a_loop_through_two_operators_with_state_survives_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    def cascade(rows: DataFrame) -> DataFrame:
        return rows.groupBy("id").applyInPandasWithState(
            add_up, "id long, value long", "total long, times long", "append", "NoTimeout"
        )

    topology = StreamTopology(
        sources={"items": ROWS},
        operators=(
            StreamOperator("cascade", ("items", "back"), cascade, state_partitions=2, ratio=0.5),
            StreamOperator("back", ("cascade",), same, schema=TURNS),
        ),
    )
    items = source(tmp_path)
    for n in range(2):
        with topology.start(spark, tmp_path) as running:
            items.append([{"id": 3, "value": 1}] * 8)
            running.drain(90)
            assert set(running.lag_items().values()) == {0}
        if n == 0:  # published, not committed: the state must not take the batch in twice
            forget_last_commit(tmp_path, "cascade")
    # By hand: each key adds up what comes and passes on its total at every second item.
    passed: Counter[tuple[object, ...]] = Counter()
    coming = [1] * 16
    for key in (3, 2, 1):
        totals = [sum(coming[: n + 1]) for n in range(len(coming))]
        coming = totals[1::2]
        passed.update((key - 1, total) for total in coming)
    assert sink(spark, tmp_path, "back") == passed
    assert running.live_settings.counts("cascade").seen == 16 + 14


def test_a_loop_that_grows_is_noticed_and_can_be_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    double = StreamOperator(
        "double", ("items", "double"), lambda rows: rows.union(rows), ratio=0.9, schema=TURNS
    )
    source(tmp_path).append(some(0, 1))
    with StreamTopology({"items": ROWS}, (double,)).start(spark, tmp_path) as running:
        deadline = time.monotonic() + 60
        while running.live_settings.counts("double").seen < 3 and time.monotonic() < deadline:
            time.sleep(0.01)  # until something has come round
        with pytest.raises(BackendError, match=r"not come to rest: still waiting are \{'double'"):
            running.drain(0)
        with pytest.raises(TopologyError, match="gain of the loop through double"):
            running.model().arrival_rates({"items": 1})
    assert not running.queries["double"].isActive


def test_what_a_loop_must_declare(spark: SparkSession, tmp_path: Path) -> None:
    loop = ("items", "a")
    with pytest.raises(TopologyError, match="an operator that closes a loop needs schema="):
        StreamTopology({"items": ROWS}, (StreamOperator("a", loop, same),))
    with pytest.raises(TopologyError, match="gain of the loop through a"):
        StreamTopology({"items": ROWS}, (StreamOperator("a", loop, same, schema=TURNS),))
    wrong = StructType([StructField("id", LongType())])
    only = StreamOperator("a", ("items",), same, schema=wrong)
    with pytest.raises(TopologyError, match="that of the rows it produces, struct<id:bigint,value"):
        StreamTopology({"items": ROWS}, (only,)).start(spark, tmp_path)
