"""The demo's application and exact accounting by row, without Spark: its logs are made here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.apps.application import InputCount, application, differences
from tidegate.apps.exchange_day import TICKS
from tidegate.apps.feed import PublishedBatch
from tidegate.apps.latency import latencies, processed_s
from tidegate.spark.streams.file_topics import FileTopic

APP = application("exchange-day")
START_S = 1_000_000.0


def ticks(first_s: float, seconds: float, first_id: int = 0) -> pa.Table:
    """Eight ticks a second."""
    moments = START_S + first_s + np.arange(0, seconds, 0.125)
    return APP.generate("ticks", moments, first_id, np.random.default_rng(first_id))


def test_a_reference_has_every_tick_once_and_only_windows_that_have_closed() -> None:
    inputs = ticks(0, 60)
    open_windows = APP.reference({"ticks": inputs})["bars"].to_pylist()
    assert max(bar["start_ms"] for bar in open_windows) == 1000 * (START_S + 30)
    closing = APP.closing(START_S + 60)["ticks"].cast(inputs.schema)
    bars = APP.reference({"ticks": pa.concat_tables([inputs, closing])})["bars"].to_pylist()
    assert sum(bar["ticks"] for bar in bars) == inputs.num_rows == 480
    assert sum(bar["checksum"] for bar in bars) == sum(range(480))
    rows = [r for r in inputs.to_pylist() if r["symbol"] == "SAP" and r["at_us"] < 1_000_010e6]
    (bar,) = (b for b in bars if b["symbol"] == "SAP" and b["start_ms"] == 1_000_000_000)
    cents = [row["cents"] for row in rows]
    assert (bar["first"], bar["last"], bar["ticks"]) == (cents[0], cents[-1], len(cents))
    assert (bar["lowest"], bar["highest"]) == (min(cents), max(cents))
    assert bar["mean"] == pytest.approx(sum(cents) / len(cents))


def test_lost_and_repeated_ticks_are_counted() -> None:
    bars = APP.reference({"ticks": ticks(0, 60)})["bars"].to_pylist()
    count = APP.input_count
    assert isinstance(count, InputCount)

    def audited(shown: list[dict[str, Any]]) -> tuple[int, int]:
        return count.lost_and_repeated(*differences(bars, shown))

    first = bars[0]["ticks"]
    assert audited(bars) == (0, 0)
    assert audited(bars[1:]) == (first, 0)
    assert audited([*bars, bars[0]]) == (0, first)
    # One tick lost here and one repeated there do not cancel out.
    moved = [bars[0] | {"ticks": first - 1}, bars[1] | {"ticks": bars[1]["ticks"] + 1}, *bars[2:]]
    assert audited(moved) == (1, 1)
    wrong = [bars[0] | {"checksum": 1}, *bars[1:]]
    assert audited(wrong) == (0, 0) and differences(bars, wrong)[0].total() == 1


class Chain:
    """Two operators in a row, whose checkpoints are written as Spark writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topics = {name: FileTopic(folder / name, TICKS) for name in ("ticks", "a", "b")}
        self.queries = {"a": None, "b": None}
        self.topics["ticks"]._register("a", folder / "checkpoints" / "a")
        self.topics["a"]._register("b", folder / "checkpoints" / "b")

    def commit(self, name: str, batch: int, source: str, names: list[str], at_s: float) -> None:
        """Record a batch of an operator that has read these batches of its source."""
        checkpoint = self.folder / "checkpoints" / name
        offset = batch if names else batch - 1
        files = [
            {
                "path": f"file://{self.topics[source].folder / n}/part-00000.parquet",
                "batchId": batch,
            }
            for n in names
        ]
        if names:
            _log(checkpoint / "sources" / "0" / str(batch), files)
        _log(checkpoint / "offsets" / str(batch), [{}, {"logOffset": offset}])
        _log(checkpoint / "commits" / str(batch), [{}])
        os.utime(checkpoint / "commits" / str(batch), (at_s, at_s))


def _log(file: Path, lines: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", *map(json.dumps, lines)]))


def test_the_latency_of_a_row_ends_with_the_last_operators_commit(tmp_path: Path) -> None:
    chain, published = Chain(tmp_path), []
    running: Any = chain
    for n in range(4):
        manifest = chain.topics["ticks"].append(ticks(5 * n, 5, 40 * n), "feed")
        event_s = START_S + 5 * n + np.arange(0, 5, 0.125)
        published.append(PublishedBatch("ticks", manifest.name, event_s))
    names = [batch.name for batch in published]
    found = latencies(running, published)
    assert found is not None and (len(found[0]), found[1]) == (0, 160)
    chain.commit("a", 0, "ticks", names[:2], START_S + 12)
    chain.topics["a"].append(ticks(0, 10), "a")
    found = latencies(running, published)
    assert found is not None and found[1] == 160
    chain.commit("b", 0, "a", ["a-000000000000"], START_S + 15)
    chain.topics["b"].append(ticks(0, 1), "b")
    chain.commit("a", 1, "ticks", [names[2]], START_S + 20)
    chain.topics["a"].append(ticks(10, 5), "a")  # b has not read this one
    done = processed_s(running)
    assert done is not None
    assert done["ticks"] == dict.fromkeys(names[:2], START_S + 15)
    found = latencies(running, published)
    assert found is not None and (len(found[0]), found[1]) == (80, 80)
    assert found[0][0] == pytest.approx(15) and found[0][-1] == pytest.approx(15 - 9.875)
    some = latencies(running, published, START_S + 5, START_S + 12)
    assert some is not None and (len(some[0]), some[1]) == (40, 16)


def test_without_files_latencies_by_row_are_unknown() -> None:
    running: Any = SimpleNamespace(topics={"ticks": object(), "a": object()}, queries={"a": None})
    assert latencies(running, []) is None
