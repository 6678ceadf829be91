"""Patterns: the detector by itself in any order of events, and the whole application on Spark."""

from __future__ import annotations

import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tidegate.apps.application import application, settle
from tidegate.apps.patterns.detector import LATE, DetectorInstance, Event, Rules, instance_of
from tidegate.apps.patterns.texts import brute_force, maximal, spoiled, texts
from tidegate.errors import InputError
from tidegate.spark.streams.file_topics import FileTopic

SMALL = Rules(window=120, slide=30, support=0.05, longest=4, instances=4)


def some_texts(first: int, count: int, seed: int) -> Any:
    moments = 1_700_000_000 + np.arange(first, first + count) / 320
    return texts("texts", moments, first, np.random.default_rng(seed))


def shares(row: dict[str, Any], rules: Rules) -> list[Event]:
    """What the generator makes of a good text."""
    import json
    import re

    words = sorted(set(re.findall("[a-z]+", json.loads(row["value"])["text"].lower())))
    found = [" ".join(c) for n in range(1, rules.longest + 1) for c in combinations(words, n)]
    return [
        Event("text", row["id"] // rules.slide, n, [p for p in found if number(p, rules) == n])
        for n in range(rules.instances)
    ]


def number(pattern: str, rules: Rules) -> int:
    return instance_of(pattern, rules.instances)


def shuffled_run(rows: list[dict[str, Any]], rules: Rules, seed: int) -> list[Event]:
    """All instances, each fed at its own pace, in disorder, and packed away after every step."""
    lots = np.random.default_rng(seed)
    instances = [DetectorInstance(n) for n in range(rules.instances)]
    waiting: list[list[Event]] = [[] for _ in instances]
    for n, queue in enumerate(waiting):
        # Disorder, of less than the detector's patience.
        order = np.argsort(np.arange(len(rows)) + lots.uniform(0, 50, len(rows)))
        queue += [shares(rows[i], rules)[n] for i in order]
    made = []
    while any(waiting):
        n = int(lots.integers(len(instances)))
        cut = int(lots.integers(1, 60))
        now, waiting[n] = waiting[n][:cut], waiting[n][cut:]
        for event in instances[n].work(now, rules):
            made.append(event)
            if event.kind == "closed":
                for queue in waiting:
                    queue.insert(int(lots.integers(len(queue) + 1)), event)
        instances[n] = DetectorInstance.unpack(instances[n].pack())
    return made


def changes(events: list[Event], rules: Rules) -> Counter[Any]:
    return Counter(
        ((e.slide or 0) * rules.slide + rules.slide, e.patterns[0], e.kind, e.times)
        for e in events
        if e.kind in "+-"
    )


def expected(table: Any, rules: Rules) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in brute_force(table, rules))


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_events_does_not_matter(seed: int) -> None:
    table = some_texts(0, 600, seed)
    made = shuffled_run(table.to_pylist(), SMALL, seed)
    assert changes(made, SMALL) == expected(table, SMALL)
    assert {e.kind for e in made} == {"closed", "+", "-"}
    assert any(len(e.patterns[0].split(" ")) == 4 for e in made if e.kind == "-")


def test_lost_texts_delay_a_window_and_do_not_stop_it() -> None:
    table = some_texts(0, 300, 5)
    rows = table.to_pylist()
    kept = rows[:40] + rows[45:]  # five of the second slide are lost
    lone = {**rows[0], "id": 10**9}  # a number far ahead closes nothing
    one = Rules(window=120, slide=30, support=0.05, instances=1)
    instance = DetectorInstance(0)
    early = list(instance.work([shares(row, one)[0] for row in [lone, *kept[:80]]], one))
    assert [e.slide for e in early if e.kind == "closed"] == [0]
    made = [*early, *instance.work([shares(row, one)[0] for row in kept[80:]], one)]
    assert [e.slide for e in made if e.kind == "closed"] == list(range(10))
    late = list(instance.work(shares(rows[41], one), one))
    assert [(e.kind, e.rejected) for e in late] == [("bad", LATE)]


def test_brute_force_by_hand() -> None:
    rules = Rules(window=4, slide=2, support=0.5, longest=2, instances=1)
    counts, top = maximal([["a", "b", "c"], ["a", "b"], ["b", "c"], ["d"]], rules)
    assert counts["b"] == 3
    assert top == {"a b": 2, "b c": 2}
    with pytest.raises(InputError, match="a multiple of the slide, 30"):
        Rules(window=100, slide=30)


def test_patterns_on_spark_with_a_restart_and_bad_texts(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = application(
        "patterns", window=400, slide=100, support=0.03, instances=4, state_partitions=2
    )
    good = some_texts(0, 900, 7)
    poison = [
        {"id": 17, "value": "}{", "sent_us": 0},  # bad, and yet it has its place in a window
        {"id": None, "value": '{"text": "who am i", "at_us": 1}', "sent_us": 1},
        {"id": 10**12, "value": '{"text": "far ahead", "at_us": 1}', "sent_us": 1},
        {"id": -1, "value": '{"text": "' + "a b c d e f g h i j k l m" + '"}', "sent_us": 1},
    ]
    import pyarrow as pa

    table = pa.concat_tables(
        [good.slice(0, 17), good.slice(18), pa.Table.from_pylist(poison, schema=good.schema)]
    )
    table = spoiled(table, 0.05, np.random.default_rng(1))
    places = table["id"].to_pandas().fillna(450).clip(upper=900).to_numpy()
    table = table.take(np.argsort(places, kind="stable"))

    with app.topology.start(spark, tmp_path) as running:
        running.topics["texts"].append(table.slice(0, 500))
        end_s = time.monotonic() + 120
        while running.live_settings.counts("detect").written == 0 and time.monotonic() < end_s:
            running.check()
            time.sleep(0.02)
    assert running.lag_items()["detect"] > 0  # stopped in the middle
    with app.topology.start(spark, tmp_path) as running:
        running.topics["texts"].append(table.slice(500))
        settle(running, 200)
        check = app.compare(spark, running)
        model = running.model()

    assert check.exact, check.wrong
    found = check.results["report"].to_pylist()
    assert {row["until"] for row in found} == set(range(100, 1000, 100))
    assert {row["change"] for row in found} == {"+", "-"}
    assert max(row["pattern"].count(" ") for row in found) == 3
    reasons = check.rejected["generate"]
    assert set(reasons) == {
        "malformed JSON",
        "no words",
        "no number",
        "more than 12 words",
        "the clock is behind",
        "the clock is ahead",
    }
    assert sum(reasons.values()) == table.num_rows - 900  # the good ones, and the one far ahead
    assert "detect" not in check.rejected  # nobody came late
    loop = {(e.origin, e.target): e.ratio for e in model.edges}["detect", "detect"]
    counts = running.live_settings.counts("detect")
    assert 0 < loop == counts.written / counts.seen < 0.1
    assert "changes of the maximal patterns" in app.tally(check.inputs, check.results)[0]


def test_the_detector_is_rebalanced_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    app = application(
        "patterns", window=120, slide=30, support=0.05, instances=4, state_partitions=4,
        rebalances=True, wait_s=0.0001,
    )  # fmt: skip
    with app.topology.start(spark, tmp_path) as running:
        for n, tasks in enumerate((1, 4, 2)):
            running.live_settings.set_parallelism({"detect": tasks})
            running.topics["texts"].append(some_texts(60 * n, 60, seed=n))
            settle(running, 300.0)
    check = app.compare(spark, running)
    assert check.exact, check.wrong
    assert check.results["report"].num_rows > 0
    used = [batch.parallelism for batch in FileTopic(tmp_path / "topics/detect").batches()]
    assert list(dict.fromkeys(used)) == [1, 4, 2], "from batch to batch, without a restart"
