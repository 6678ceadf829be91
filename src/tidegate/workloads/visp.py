"""The four arrival patterns of the VISP evaluation, as its data provider really sent them.

Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ CS 3:e141,
2017, "Data arrival pattern"; the series are those of the authors' dataProvider (github.com/
visp-streaming/dataProvider), not of the paper's text: its levels are 2, 4 and 6 machines where the
text says "two to eight", and steps last 501 and 1001 ticks of 480 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.protocol import Chunked, FloatArray, check_seed

__all__ = ["VispPattern"]

Pattern = Literal["stepwise", "two_level", "random_walk_1", "random_walk_2"]

TICK_S = 0.48
TICKS = 15_000  # 120 minutes
_TICKS_PER_CHUNK = 125  # 60 s

# Items that one machine sends at each tick, by source.
ITEMS_PER_TICK = {"S1": 5, "S2": 1, "S3": 10}

# Machines in total and for how many segments; a segment is so many ticks long. Two jobs ran in
# parallel, each with one half of the machines, the first with the larger one.
_SERIES: dict[str, tuple[int, str]] = {
    "stepwise": (501, "2 4 6 4 " * 7 + "2 4"),
    "two_level": (1001, "2 6 " * 7 + "2"),
    "random_walk_1": (
        125,
        "2 4x2 5 6 5x5 4 5 6x2 7x2 6 5 4x2 5 6 7 6 5 4 5 6x3 7 6 7x2 6 5x2 4 3x2 4x2 5x2 6x3 5 4 "
        "5x2 6x2 7x5 6x3 5x4 4 5 4x2 5x2 4 3 4 3x4 2 3x4 2x2 1 2x3 3x2 2x2 3 4 3x4 2 3x8 2 1x9 2 3",
    ),
    "random_walk_2": (
        125,
        "2 4 3x2 2 1x11 2x2 1x5 2x5 1x5 2x7 3 4x3 5x2 6x2 5 6x2 5 4 5 6x3 7 8 7x4 8x7 7 6 5 6 7 "
        "8x10 7x2 6x2 5 4x3 5 6 7x2 8x5 7 6x4 5 4x2 5x4 4x4 3 2",
    ),
}


@dataclass(frozen=True)
class VispPattern(Chunked):
    """Manufacturing machines that all report at the same moment, every 480 ms.

    At each tick every machine sends 10 items to S3, 5 to S1 and 1 to S2, in one burst. Only the
    number of machines changes.

    pattern: "stepwise", "two_level", "random_walk_1" or "random_walk_2";
    spread_s: a burst's items are spread uniformly over so many seconds (0: all at once; how long
    the authors' threads took is not known);
    phase_s: how much later than the first job the second sends (not known either);
    seed: for the spread only.

    >>> walk = VispPattern("random_walk_2")
    >>> walk.machines(45 * 60), round(walk.rate(45 * 60), 1)
    (5, 166.7)
    >>> {source: len(times) for source, times in walk.arrivals(0, 7200).items()}
    {'S1': 345000, 'S2': 69000, 'S3': 690000}
    """

    pattern: Pattern = "stepwise"
    spread_s: float = 0.0
    phase_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pattern not in _SERIES:
            raise InputError("pattern", self.pattern, "one of " + ", ".join(_SERIES))
        finite(self.spread_s, "spread_s", low=0)
        finite(self.phase_s, "phase_s", low=0)
        if self.spread_s + self.phase_s > TICK_S:
            remedy = "a burst is over before the next one begins"
            raise InputError("spread_s + phase_s", self.spread_s + self.phase_s, "≤ 0.48", remedy)
        check_seed(self.seed)

    @property
    def duration_s(self) -> float:
        """The paper's 120 minutes."""
        return TICKS * 12 / 25

    @property
    def sources(self) -> tuple[str, ...]:
        """The paper's three sources."""
        return tuple(ITEMS_PER_TICK)

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """None unless bursts are spread: the series is fixed."""
        return super().streams if self.spread_s else frozenset()

    @cached_property
    def machines_by_tick(self) -> NDArray[np.int64]:
        """Machines that report at each of the 15,000 ticks, both jobs together."""
        ticks, text = _SERIES[self.pattern]
        runs = [run.partition("x") for run in text.split()]
        totals = [int(level) for level, _, count in runs for _ in range(int(count or 1))]
        return np.repeat(np.array(totals), ticks)[:TICKS]

    def machines(self, t_s: float) -> int:
        """How many machines report at `t_s`."""
        return int(self.machines_by_tick[int(t_s // TICK_S)]) if 0 <= t_s < self.duration_s else 0

    def rate(self, t_s: float) -> float:
        """Items per second at `t_s`, all sources together, averaged over the tick."""
        return self.machines(t_s) * sum(ITEMS_PER_TICK.values()) / TICK_S

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items between each edge and the next; ticks are smoothed over the 480 ms they last."""
        ticks = np.arange(TICKS + 1) * 12 / 25
        until = np.concatenate(([0], np.cumsum(self.machines_by_tick)))
        machine_ticks = np.diff(np.interp(edges_s, ticks, until))
        return {source: machine_ticks * items for source, items in ITEMS_PER_TICK.items()}

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        tick = np.arange(chunk * _TICKS_PER_CHUNK, min((chunk + 1) * _TICKS_PER_CHUNK, TICKS))
        total = self.machines_by_tick[tick]
        times = np.concatenate((tick * 12 / 25, tick * 12 / 25 + self.phase_s))
        reports = np.concatenate(((total + 1) // 2, total // 2))
        random = self._generator(chunk)
        found = {}
        for source, items in ITEMS_PER_TICK.items():
            sent = np.repeat(times, reports * items)
            if self.spread_s:
                sent += random.random(len(sent)) * self.spread_s
            found[source] = np.sort(sent, kind="stable")
        return found
