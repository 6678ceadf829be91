"""The promised share: how many items were late, and how careful that makes the forecasts.

This is adaptive conformal inference (I. Gibbs and E. Candès, *Adaptive conformal inference under
distribution shift*, NeurIPS 2021) with the share of late items as the error. The *care* θ rises
with late items and falls with time. `designs/020-tide.md` has the theorem: the late items are at
most those that the promise allows, a constant, and those that are counted as out of reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from tidegate.codec import Value
from tidegate.model import Latency, Snapshot

__all__ = ["MOST_TURNS", "Promise", "late_now", "late_share", "longest_s"]

MOST_TURNS = 5.0
"""Usual turns for which one counts at most: care for a spike would be paid for hours after it."""


@dataclass(frozen=True, slots=True)
class Promise(Value):
    """What became of the promise so far.

    Attributes:
        care: θ, from 0 to the largest allowed; the price of a late item is multiplied by its
            exponential.
        turns: Number of turns with items.
        items: Items in these turns. Their mean is a usual turn, the unit in which turns count.
        late: Late items among them.
        out_of_reach: Late items that the largest care would not have prevented.
    """

    care: float = 0.0
    turns: int = 0
    items: float = 0.0
    late: float = 0.0
    out_of_reach: float = 0.0

    def after(
        self,
        items: float,
        late: float,
        share: float,
        step: float,
        most: float,
        most_turns: float = MOST_TURNS,
    ) -> Promise:
        """The promise after a turn.

        items: finished in the turn. late: share of them that was late. share: that was promised to
        be in time. step: γ, by how much a usual turn in which all items are late raises the care.
        most: the largest care. most_turns: usual turns for which this one counts at most.
        """
        if items <= 0:
            return self
        turns, total = self.turns + 1, self.items + items
        usual = total / turns
        missed = items / usual * (late - (1 - share))
        care = min(most, self.care + step * min(missed, most_turns))
        beyond = max(0.0, self.care + step * missed - care) / step * usual
        return Promise(
            max(care, 0.0),
            turns,
            total,
            self.late + late * items,
            self.out_of_reach + beyond,
        )

    def blame_nobody(self, lost: float) -> Promise:
        """The promise with late items that more hosts would not have helped, of counted turns."""
        if lost <= 0:
            return self
        return replace(self, late=self.late + lost, out_of_reach=self.out_of_reach + lost)

    @property
    def in_time(self) -> float | None:
        """Share of all items that were in time, None without items."""
        return 1 - self.late / self.items if self.items else None


def late_share(latency: Latency, slo_s: float) -> float | None:
    """Share of items above the target, from the percentiles; None when nothing was measured.

    Between two percentiles it is interpolated. If the median is above the target, all items count
    as late; if the largest percentile is within it, none does.

    >>> late_share(Latency(mean_s=1.0, p50_s=0.8, p95_s=1.6, p99_s=2.4), slo_s=2.0)
    0.03
    >>> late_share(Latency(mean_s=9.0, p50_s=8.0, p95_s=9.9, p99_s=9.9), slo_s=2.0)
    1.0
    """
    known = [
        (at_s, beyond)
        for at_s, beyond in ((latency.p50_s, 0.5), (latency.p95_s, 0.05), (latency.p99_s, 0.01))
        if at_s is not None
    ]
    if not known:
        if latency.mean_s is None:
            return None
        return 1.0 if latency.mean_s > slo_s else 0.0
    if slo_s < known[0][0]:
        return 1.0 if latency.p50_s is not None else known[0][1]
    for (low_s, more), (high_s, less) in pairwise(known):
        if slo_s < high_s:
            part = (slo_s - low_s) / (high_s - low_s) if math.isfinite(high_s) else 0.0
            return round(more + (less - more) * part, 12)
    return 0.0


def late_now(snapshot: Snapshot, slo_s: float) -> tuple[float, float] | None:
    """Items that were finished since the last turn and the share of them that was late.

    Queries with a measured delay are judged by their own SLO; otherwise the end-to-end latency is
    judged. None when it is not known.
    """
    span_s = snapshot.interval_s or 1.0
    items = late = 0.0
    for name, reading in snapshot.reading.items():
        limit_s = snapshot.operator(name).slo_s or slo_s
        share = late_share(reading.delay, limit_s)
        if share is None or reading.processed_per_s is None:
            continue
        items += reading.processed_per_s * span_s
        late += reading.processed_per_s * span_s * share
    if items:
        return items, late / items
    share = late_share(snapshot.latency, slo_s)
    done = [snapshot.reading[name].processed_per_s for name in snapshot.topology.entries]
    known = [rate for rate in done if rate is not None]
    if share is None or not known:
        return None
    return math.fsum(known) * span_s, share


def longest_s(snapshot: Snapshot) -> float:
    """The longest latency that was measured since the last turn, in seconds; 0 if none was."""
    found = [snapshot.latency, *(reading.delay for reading in snapshot.operators)]
    return max(
        (s for at in found for s in (at.mean_s, at.p50_s, at.p95_s, at.p99_s) if s is not None),
        default=0.0,
    )
