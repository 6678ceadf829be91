"""FUGU's three days from trace files, in place of generated ones.

A file gives the ticks of the whole exchange over a day, in any of the forms that `read_trace`
knows. Its shape and its volume relative to Day 1 are taken over; the cluster stays sized for Day 1.
How ticks divide among sectors and cluster within a minute is still drawn, for files do not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.errors import InputError
from tidegate.workloads import read_trace
from tidegate.workloads.papers import MINUTES

__all__ = ["DAYS", "RecordedDay", "read_days"]

DAYS = 3
SHORTEST_S, LONGEST_S = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """A day from a file.

    name: of the file; level_per_s: ticks per second on average; curve: the rate in each of 511
    equal parts of the day, as a multiple of the average.
    """

    name: str
    level_per_s: float
    curve: tuple[float, ...]


def read_days(paths: Sequence[str | Path]) -> tuple[RecordedDay, ...]:
    """Days 1, 2 and 3 from three files, or one sentence about what is wrong with them."""
    if len(paths) != DAYS:
        remedy = "give Days 1, 2 and 3 by --days FILE --days FILE --days FILE"
        raise InputError("--days", len(paths), f"{DAYS} files", remedy)
    return tuple(_read(Path(path)) for path in paths)


def _read(path: Path) -> RecordedDay:
    trace = read_trace(path)
    if not SHORTEST_S <= trace.duration_s <= LONGEST_S:
        allowed = f"{SHORTEST_S:g} to {LONGEST_S:g} s, one day of trading"
        remedy = "cut the file to one day, and check the unit of its times"
        raise InputError(f"--days {path.name}: duration", trace.duration_s, allowed, remedy)
    edges = np.linspace(0.0, trace.duration_s, MINUTES + 1)
    (ticks,) = trace.expected(edges).values()
    level = float(ticks.sum()) / trace.duration_s
    if level <= 0:
        remedy = "its rates are all zero: choose another day or column"
        raise InputError(f"--days {path.name}: mean rate", level, "above 0", remedy)
    return RecordedDay(path.name, level, tuple((ticks / ticks.mean()).tolist()))
