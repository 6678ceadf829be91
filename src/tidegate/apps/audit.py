"""Exact books of a tick query: when each tick was done, and whether any was lost or repeated.

Everything is read from files: which file of ticks was in which batch (the checkpoint's log of the
source), when the batch committed (its commit file), what came out (the sink's own log, so that
what a failed attempt left behind does not count). Spark is not asked, so that a run whose driver
has died is audited like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.apps.feed import Feed
from tidegate.codec import Value
from tidegate.spark.autoscaler.meter import SourceCount

__all__ = ["Audit", "Ledger", "audit"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Commit:
    """A committed batch. at_s: when, Unix seconds; watermark_s: windows up to it are out."""

    at_s: float
    offset: int
    watermark_s: float


class Ledger:
    """What a query has done with the files of a feed, as its checkpoint tells.

    feed: who wrote the files; checkpoint: the query's folder. The session must keep its logs
    (`ticks.SETTINGS`).
    """

    def __init__(self, feed: Feed, checkpoint: Path) -> None:
        self.feed = feed
        self.checkpoint = checkpoint
        self._commits: dict[int, _Commit] = {}
        self._offset_of: dict[str, int] = {}
        self._read_logs: set[str] = set()

    def update(self) -> None:
        """Read what has been committed since the last time."""
        for file in _numbered(self.checkpoint / "commits"):
            if int(file.name) not in self._commits:
                offsets = _lines(self.checkpoint / "offsets" / file.name)
                self._commits[int(file.name)] = _Commit(
                    at_s=file.stat().st_mtime,
                    offset=int(offsets[1].get("logOffset", -1)),
                    watermark_s=offsets[0]["batchWatermarkMs"] / 1000,
                )
        for file in (self.checkpoint / "sources" / "0").glob("[0-9]*"):
            if file.name not in self._read_logs:
                for entry in _lines(file):
                    self._offset_of[Path(entry["path"]).name] = int(entry["batchId"])
                self._read_logs.add(file.name)

    @property
    def batches(self) -> int:
        """Batches committed, those without any tick included."""
        self.update()
        return len(self._commits)

    @property
    def watermark_s(self) -> float:
        """Windows that end no later are out, Unix seconds."""
        return max((commit.watermark_s for commit in self._commits.values()), default=0.0)

    def done_s(self) -> dict[str, float]:
        """When each file of ticks was committed, Unix seconds, by its name."""
        self.update()
        # The source counts its offsets by itself: a batch without new files raises none.
        first_with: dict[int, float] = {}
        reached = -1
        for _, commit in sorted(self._commits.items()):
            for offset in range(reached + 1, commit.offset + 1):
                first_with[offset] = commit.at_s
            reached = max(reached, commit.offset)
        return {
            name: first_with[offset]
            for name, offset in self._offset_of.items()
            if offset in first_with
        }

    def rows_done(self) -> int:
        """Ticks in committed batches."""
        return sum(len(self.feed.files[n].event_s) for n in self.done_s() if n in self.feed.files)

    def lag(self) -> float:
        """Ticks written and not yet in a committed batch."""
        return float(self.feed.rows - self.rows_done())

    def count(self) -> SourceCount:
        """What the source's owner knows: ticks written, and those that no batch has taken yet."""
        self.update()
        written = self.feed.rows
        taken = (self.feed.files.get(name) for name in list(self._offset_of))
        waiting = written - sum(len(file.event_s) for file in taken if file)
        return SourceCount(float(max(0, waiting)), float(written))

    def latencies(self, from_s: float = 0.0, until_s: float = float("inf")) -> tuple[Floats, int]:
        """Seconds from event to commit of each tick, and how many ticks are still to be done.

        from_s, until_s: of ticks whose event time is in between, Unix seconds.
        """
        done = self.done_s()
        found: list[Floats] = []
        waiting = 0
        for name, file in list(self.feed.files.items()):
            inside = file.event_s[(file.event_s >= from_s) & (file.event_s < until_s)]
            if name in done:
                found.append(done[name] - inside)
            else:
                waiting += len(inside)
        return (np.concatenate(found) if found else np.empty(0)), waiting


@dataclass(frozen=True, slots=True)
class Audit(Value):
    """The sink beside a computation of the same input, over all windows that should be out.

    ticks: that the input has in these windows. lost: of these, missing in the sink; repeated:
    counted there more often than in the input. wrong_bars: bars with any other value.
    """

    bars: int
    ticks: int
    lost: int
    repeated: int
    wrong_bars: int

    @property
    def clean(self) -> bool:
        """Whether every tick is there exactly once and every bar is right."""
        return not (self.lost or self.repeated or self.wrong_bars)


def audit(source: Path, sink: Path, ledger: Ledger, window_s: int = 10) -> Audit:
    """Compare the sink with what its input comes to.

    All files count up to the last that was committed, by the feed's books and not by Spark's: one
    that Spark never read is lost. Files after it are waiting, and windows that the watermark has
    not passed are still open.

    source: the folder of ticks; sink: the folder of bars. window_s: as given to the query.
    """
    last = max(ledger.done_s(), default="")
    due = [name for name in list(ledger.feed.files) if name <= last]
    expected = _expected((source / name for name in due), window_s)
    horizon_ms = 1000 * ledger.watermark_s
    expected = {key: bar for key, bar in expected.items() if key[1] + 1000 * window_s <= horizon_ms}
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for bar in _committed_rows(sink):
        found.setdefault((bar["symbol"], bar["start_ms"]), []).append(bar)
    lost = repeated = wrong = 0
    for key in expected.keys() | found.keys():
        want = expected.get(key)
        got = found.get(key, [])
        difference = sum(bar["ticks"] for bar in got) - (want["ticks"] if want else 0)
        lost += max(0, -difference)
        repeated += max(0, difference)
        wrong += not difference and any(dict(bar) != want for bar in got)
    return Audit(len(expected), sum(b["ticks"] for b in expected.values()), lost, repeated, wrong)


def _expected(files: Iterable[Path], window_s: int) -> dict[tuple[str, int], dict[str, Any]]:
    """The bars of all ticks in files, by symbol and start of the window in milliseconds."""
    window_us = window_s * 1_000_000
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for file in files:
        for line in file.read_text(encoding="ascii").splitlines():
            tick = json.loads(line)
            start_ms = tick["at_us"] // window_us * window_s * 1000
            groups.setdefault((tick["symbol"], start_ms), []).append(tick)
    bars = {}
    for (symbol, start_ms), ticks in groups.items():
        ticks.sort(key=lambda tick: tick["id"])
        cents = [tick["cents"] for tick in ticks]
        bars[symbol, start_ms] = {
            "symbol": symbol,
            "start_ms": start_ms,
            "end_ms": start_ms + 1000 * window_s,
            "first": cents[0],
            "least": min(cents),
            "mean": sum(cents) / len(cents),
            "greatest": max(cents),
            "last": cents[-1],
            "ticks": len(cents),
            "checksum": sum(tick["id"] for tick in ticks),
        }
    return bars


def _committed_rows(sink: Path) -> list[dict[str, Any]]:
    """The rows of a JSON file sink, of batches that it has committed."""
    names: set[str] = set()
    for file in (sink / "_spark_metadata").glob("[0-9]*"):
        names |= {Path(entry["path"]).name for entry in _lines(file) if entry["action"] == "add"}
    rows = []
    for name in sorted(names):
        text = (sink / name).read_text(encoding="utf-8")
        rows += [json.loads(line) for line in text.splitlines() if line]
    return rows


def _numbered(folder: Path) -> list[Path]:
    """Files whose name is a number; Spark's temporary ones have another."""
    return [file for file in folder.glob("[0-9]*") if file.name.isdecimal()]


def _lines(file: Path) -> list[Any]:
    """The JSON lines of one of Spark's logs, after its version."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[1:] if line]
