"""The feed and the ledger, without Spark: its logs are written by hand, as Spark writes them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.apps.audit import Ledger, audit
from tidegate.apps.feed import Feed
from tidegate.errors import BackendError, InputError
from tidegate.spark.local import session
from tidegate.workloads import ConstantRate


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def fed(folder: Path, seconds: int = 60, every_s: float = 5.0) -> Feed:
    """A feed of a minute, written without a thread."""
    clock = Clock()
    feed = Feed(folder, ConstantRate(8, duration_s=1e6, seed=3), every_s, clock=clock)
    for _ in range(round(seconds / every_s)):
        clock.now_s += every_s
        feed._write_due()
    return feed


def write_log(file: Path, lines: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", *(json.dumps(line) for line in lines)]))


def commit(
    folder: Path, batch: int, offset: int, names: Sequence[str], at_s: float, mark_s: float = 0.0
) -> None:
    """Write what Spark writes for a batch; no names: a batch without new files."""
    if names:
        entries = [{"path": f"file:///in/{n}", "timestamp": 1, "batchId": offset} for n in names]
        write_log(folder / "sources" / "0" / str(offset), entries)
    head = {"batchWatermarkMs": round(1000 * mark_s)}
    write_log(folder / "offsets" / str(batch), [head, {"logOffset": offset}])
    write_log(folder / "commits" / str(batch), [{}])
    os.utime(folder / "commits" / str(batch), (at_s, at_s))


def test_a_feed_follows_its_workload_and_keeps_books(tmp_path: Path) -> None:
    feed = fed(tmp_path / "in")
    ticks = [
        json.loads(line)
        for name in feed.files
        for line in (tmp_path / "in" / name).read_text().splitlines()
    ]
    expected = ConstantRate(8, duration_s=1e6, seed=3).arrivals(0, 60)["input"] + 1_000_000
    assert [t["id"] for t in ticks] == list(range(len(expected)))
    assert np.allclose([t["at_us"] / 1e6 for t in ticks], expected, atol=1e-6)
    assert feed.rows == len(ticks) == sum(len(f.event_s) for f in feed.files.values())
    assert not list((tmp_path / "in").glob(".*"))


def test_a_feed_changes_its_workload_and_stops(tmp_path: Path) -> None:
    feed = Feed(tmp_path, ConstantRate(200, duration_s=1e6), every_s=0.05).start()
    time.sleep(0.3)
    began_s = feed.play(ConstantRate(2000, duration_s=1e6))
    time.sleep(0.3)
    feed.stop()
    feed.stop()
    rows = feed.rows
    before = sum(int((f.event_s < began_s).sum()) for f in feed.files.values())
    assert 0 < before < rows - before
    time.sleep(0.15)
    assert feed.rows == rows == sum(len(f.event_s) for f in feed.files.values())


def test_a_feed_refuses_a_pace_that_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="every_s is 0"):
        Feed(tmp_path, ConstantRate(1, duration_s=1), every_s=0)


def test_the_ledger_knows_lag_and_latency_of_each_tick(tmp_path: Path) -> None:
    feed = fed(tmp_path / "in")
    names, checkpoint = list(feed.files), tmp_path / "checkpoint"
    ledger = Ledger(feed, checkpoint)
    assert (ledger.lag(), ledger.batches) == (feed.rows, 0)
    commit(checkpoint, 0, 0, names[:4], at_s=1_000_030)
    commit(checkpoint, 1, 0, [], at_s=1_000_031)  # no new files: the source's count stays
    commit(checkpoint, 2, 1, names[4:6], at_s=1_000_040)
    done = ledger.done_s()
    assert done == dict.fromkeys(names[:4], 1_000_030.0) | dict.fromkeys(names[4:6], 1_000_040.0)
    rows = [len(feed.files[n].event_s) for n in names]
    assert ledger.rows_done() == sum(rows[:6]) and ledger.lag() == sum(rows[6:])
    latencies, waiting = ledger.latencies()
    assert len(latencies) == sum(rows[:6]) and waiting == sum(rows[6:])
    assert latencies[0] == pytest.approx(1_000_030 - feed.files[names[0]].event_s[0])
    some, left = ledger.latencies(from_s=1_000_020, until_s=1_000_030)
    assert len(some) == sum(rows[4:6]) and left == 0 and some.max() <= 20


def test_a_compacted_log_of_the_source_counts_once(tmp_path: Path) -> None:
    feed = fed(tmp_path / "in")
    names, checkpoint = list(feed.files), tmp_path / "checkpoint"
    commit(checkpoint, 0, 0, names[:2], at_s=1_000_030)
    commit(checkpoint, 1, 1, names[2:4], at_s=1_000_040)
    log = checkpoint / "sources" / "0"
    every = [json.loads(line) for n in "01" for line in (log / n).read_text().splitlines()[1:]]
    (log / "1").unlink()
    write_log(log / "1.compact", every)
    assert len(Ledger(feed, checkpoint).done_s()) == 4


def sink_of(folder: Path, bars: Sequence[dict[str, Any]]) -> Path:
    """A file sink with bars in a committed file, and a file that a failed attempt left."""
    folder.mkdir()
    lines = "\n".join(json.dumps(bar) for bar in bars)
    (folder / "part-1.json").write_text(lines)
    (folder / "part-0-failed.json").write_text(lines)
    write_log(
        folder / "_spark_metadata" / "0", [{"path": "file:///x/part-1.json", "action": "add"}]
    )
    return folder


def test_the_audit_counts_what_is_lost_repeated_or_wrong(tmp_path: Path) -> None:
    from tidegate.apps.audit import _expected

    feed = fed(tmp_path / "in")
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    end_s = 1_000_040.0
    commit(checkpoint, 0, 0, list(feed.files), at_s=1_000_070, mark_s=end_s)
    every = _expected((source / name for name in feed.files), 10)
    bars = [bar for bar in every.values() if bar["end_ms"] <= 1000 * end_s]
    assert len(bars) < len(every)  # the last windows are not out, and not expected

    def audited(name: str, shown: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
        result = audit(source, sink_of(tmp_path / name, shown), Ledger(feed, checkpoint), 10)
        assert result.bars == len(bars) and result.ticks == sum(b["ticks"] for b in bars)
        assert result.clean == (not (result.lost or result.repeated or result.wrong_bars))
        return result.lost, result.repeated, result.wrong_bars

    ticks = bars[0]["ticks"]
    assert audited("right", bars) == (0, 0, 0)
    assert audited("lost", bars[1:]) == (ticks, 0, 0)
    assert audited("twice", [*bars, bars[0]]) == (0, ticks, 0)
    assert audited("wrong", [bars[0] | {"checksum": 1}, *bars[1:]]) == (0, 0, 1)


def test_a_file_that_was_never_read_is_lost_and_one_that_waits_is_not(tmp_path: Path) -> None:
    from tidegate.apps.audit import _expected

    feed = fed(tmp_path / "in")
    source, checkpoint, names = tmp_path / "in", tmp_path / "checkpoint", list(feed.files)
    read = [name for name in names[:-1] if name != names[2]]
    commit(checkpoint, 0, 0, read, at_s=1_000_070, mark_s=1_000_050)
    bars = _expected((source / name for name in read), 10).values()
    sink = sink_of(tmp_path / "out", [b for b in bars if b["end_ms"] <= 1_000_050_000])
    result = audit(source, sink, Ledger(feed, checkpoint), 10)
    assert (result.lost, result.repeated) == (len(feed.files[names[2]].event_s), 0)


def test_missing_java_and_memory_are_sentences_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BackendError, match="no bin/java: install a Java 17"):
        session.check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(BackendError, match=r"needs Java 17 or later.*11\.0\.2"):
        session.check_java()
    monkeypatch.setattr(session, "memory_available_mb", lambda: 4000.0)
    assert session.hosts_that_fit(4, 512) == 2
    monkeypatch.setattr(session, "memory_available_mb", lambda: 1000.0)
    with pytest.raises(BackendError, match="1000 MB of free memory"):
        session.hosts_that_fit(4, 512)
    monkeypatch.setattr(session, "memory_available_mb", lambda: None)
    assert session.hosts_that_fit(4, 512) == 4
