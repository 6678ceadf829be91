"""A market that writes its ticks into a folder as time passes, as small files of JSON lines.

The feed follows a workload on the wall clock and keeps exact books: which file held which ticks.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidegate.units import finite
from tidegate.workloads import Workload

__all__ = ["SYMBOLS", "FedFile", "Feed"]

SYMBOLS = ("ALV", "BAS", "BAYN", "BEI", "BMW", "CBK", "DBK", "DTE", "HEN3", "SAP", "SIE", "VOW3")
CLOSING_SYMBOL = "END"
AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class FedFile:
    """A file that was written. event_s: event times of its ticks, Unix seconds, in order."""

    name: str
    event_s: NDArray[np.float64]


class Feed:
    """Writes ticks into a folder in a thread of its own, from `start` to `stop`.

    A tick's event time is its moment in the workload on the wall clock; it is in a file at most
    `every_s` later. A feed that was held up catches up in one file, and no tick changes its time.
    Files appear whole: they are written under a hidden name, which Spark passes over, and renamed.

    folder: made if it is not there. workload: what to follow, from its beginning; its sources are
    read together. every_s: seconds between two files. seed: of symbols and prices.
    """

    def __init__(
        self,
        folder: Path,
        workload: Workload,
        every_s: float = 0.5,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.every_s = finite(every_s, "every_s", above=0)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, FedFile] = {}
        """What was written so far, by file name."""
        self.rows = 0
        """Ticks written so far."""
        self._random = np.random.default_rng(seed)
        self._prices = self._random.integers(2_000, 20_000, len(SYMBOLS))
        self._clock = clock
        self._lock = threading.Lock()
        self._workload = workload
        self._began_s = self._fed_s = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> Feed:
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
        """Write what is due and end; safe to call twice."""
        if not self._stop.is_set():
            self._stop.set()
            if self._thread.ident is not None:
                self._thread.join()
            with self._lock:
                self._write_due()

    def close_windows(self) -> None:
        """Write one tick an hour ahead, of no symbol: the watermark passes all that came before."""
        with self._lock:
            self._write([CLOSING_SYMBOL], [0], np.array([self._clock() + AFTER_S]))

    # --- inside -------------------------------------------------------------------------------

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stop.is_set():
            due_s = max(due_s + self.every_s, self._clock())
            self._stop.wait(max(0.0, due_s - self._clock()))
            with self._lock:
                self._write_due()

    def _write_due(self) -> None:
        now_s = self._clock()
        began_s = self._began_s
        found = self._workload.arrivals(self._fed_s - began_s, now_s - began_s)
        self._fed_s = now_s
        moments = np.sort(np.concatenate(list(found.values()))) + began_s
        if not len(moments):
            return
        which = self._random.integers(0, len(SYMBOLS), len(moments))
        steps = self._random.integers(-5, 6, len(moments))
        prices = []
        for symbol, step in zip(which, steps, strict=True):
            self._prices[symbol] = max(100, self._prices[symbol] + step)
            prices.append(int(self._prices[symbol]))
        self._write([SYMBOLS[symbol] for symbol in which], prices, moments)

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
