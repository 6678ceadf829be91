"""Feeds follow a workload on the wall clock: into files of JSON lines, or into topics.

The one that writes files keeps exact books: which file held which ticks.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from tidegate.units import finite
from tidegate.workloads import Workload

if TYPE_CHECKING:
    from tidegate.apps.application import Application
    from tidegate.spark.streams.topic import Topic

__all__ = ["SYMBOLS", "FedFile", "Feed", "PacedFeed", "TopicFeed"]

SYMBOLS = ("ALV", "BAS", "BAYN", "BEI", "BMW", "CBK", "DBK", "DTE", "HEN3", "SAP", "SIE", "VOW3")
CLOSING_SYMBOL = "END"
AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class FedFile:
    """A file that was written. event_s: event times of its ticks, Unix seconds, in order."""

    name: str
    event_s: NDArray[np.float64]


class PacedFeed:
    """Follows a workload on the wall clock in a thread of its own, from `start` to `stop`.

    An item's event time is its moment in the workload; it is published at most `every_s` later. A
    feed that was held up catches up at once, and no item changes its time.

    workload: what to follow, from its beginning. every_s: seconds between two publications.
    """

    def __init__(
        self, workload: Workload, every_s: float = 0.5, clock: Callable[[], float] = time.time
    ) -> None:
        self.every_s = finite(every_s, "every_s", above=0)
        self._clock = clock
        self._lock = threading.Lock()
        self._workload = workload
        self._began_s = self._fed_s = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.error: Exception | None = None
        """What has ended it, None while all is well."""

    def start(self) -> Self:
        """Begin now; returns at once."""
        self._began_s = self._fed_s = self._clock()
        self._thread.start()
        return self

    def play(self, workload: Workload) -> float:
        """Follow another workload from its beginning; returns when it begins, Unix seconds."""
        with self._lock:
            self._write_due()
            self._workload, self._began_s = workload, self._fed_s
            return self._began_s

    def stop(self) -> None:
        """Publish what is due and end; safe to call twice."""
        if not self._stop.is_set():
            self._stop.set()
            if self._thread.ident is not None:
                self._thread.join()
            if self.error is None:
                with self._lock:
                    self._write_due()

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stop.is_set():
            due_s = max(due_s + self.every_s, self._clock())
            self._stop.wait(max(0.0, due_s - self._clock()))
            try:
                with self._lock:
                    self._write_due()
            except Exception as error:  # told to whoever looks, see `error`
                self.error = error
                return

    def _write_due(self) -> None:
        now_s = self._clock()
        began_s = self._began_s
        found = self._workload.arrivals(self._fed_s - began_s, now_s - began_s)
        self._fed_s = now_s
        self._publish({source: moments + began_s for source, moments in found.items()})

    def _publish(self, moments: Mapping[str, NDArray[np.float64]]) -> None:
        """Send the items of these moments (Unix seconds, ascending) by source."""
        raise NotImplementedError


class Feed(PacedFeed):
    """Writes ticks into a folder.

    Files appear whole: they are written under a hidden name, which Spark passes over, and renamed.

    folder: made if it is not there. workload: its sources are read together. every_s: seconds
    between two files. seed: of symbols and prices.
    """

    def __init__(
        self,
        folder: Path,
        workload: Workload,
        every_s: float = 0.5,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(workload, every_s, clock)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, FedFile] = {}
        """What was written so far, by file name."""
        self.rows = 0
        """Ticks written so far."""
        self._random = np.random.default_rng(seed)
        self._prices = self._random.integers(2_000, 20_000, len(SYMBOLS))

    def close_windows(self) -> None:
        """Write one tick an hour ahead, of no symbol: the watermark passes all that came before."""
        with self._lock:
            self._write([CLOSING_SYMBOL], [0], np.array([self._clock() + AFTER_S]))

    def _publish(self, moments: Mapping[str, NDArray[np.float64]]) -> None:
        at_s = np.sort(np.concatenate(list(moments.values())))
        if not len(at_s):
            return
        which = self._random.integers(0, len(SYMBOLS), len(at_s))
        steps = self._random.integers(-5, 6, len(at_s))
        prices = []
        for symbol, step in zip(which, steps, strict=True):
            self._prices[symbol] = max(100, self._prices[symbol] + step)
            prices.append(int(self._prices[symbol]))
        self._write([SYMBOLS[symbol] for symbol in which], prices, at_s)

    def _write(self, symbols: list[str], cents: list[int], event_s: NDArray[np.float64]) -> None:
        name = f"ticks-{len(self.files):06d}.json"
        hidden = self.folder / f".{name}"
        rows = zip(symbols, cents, event_s.tolist(), strict=True)
        lines = [
            # Whole microseconds are what Spark keeps of a time, and integers add up exactly.
            json.dumps({"id": self.rows + n, "symbol": s, "cents": c, "at_us": round(t * 1e6)})
            for n, (s, c, t) in enumerate(rows)
        ]
        hidden.write_text("\n".join(lines) + "\n", encoding="ascii")
        # In the books before it can be read, so that lag is never negative.
        self.files[name] = FedFile(name, event_s)
        self.rows += len(lines)
        hidden.rename(self.folder / name)


class TopicFeed(PacedFeed):
    """Publishes an application's input in its sources' topics.

    topics: by source. bad: share of bad rows; seed: of the rows. A recording begins with its first
    row whenever another workload is played, and rows of a generator are numbered on and on.
    """

    def __init__(
        self,
        application: Application,
        topics: Mapping[str, Topic],
        workload: Workload,
        *,
        bad: float = 0.0,
        seed: int = 0,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(workload, every_s, clock)
        self.rows = 0
        """Rows published so far."""
        self._application = application
        self._topics = topics
        self._bad = bad
        self._random = np.random.default_rng(seed)
        self.made = dict.fromkeys(topics, 0)
        """Items so far by source, bad ones not among them."""
        self._first = dict(self.made)

    def play(self, workload: Workload) -> float:
        """Follow another workload from its beginning; returns when it begins, Unix seconds."""
        began_s = super().play(workload)
        if self._application.replays:
            self._first = dict(self.made)
        return began_s

    def _publish(self, moments: Mapping[str, NDArray[np.float64]]) -> None:
        for source, at_s in moments.items():
            if len(at_s):
                first = self.made[source] - self._first[source]
                table = self._application.generate(source, at_s, first, self._random)
                self.made[source] += len(at_s)
                if self._bad and self._application.spoil is not None:
                    table = self._application.spoil(table, self._bad, self._random)
                self._topics[source].append(table, "feed")
                self.rows += table.num_rows
