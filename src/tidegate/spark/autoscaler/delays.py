"""How long rows waited: processing delay and event age of micro-batches. Pure.

The *processing delay* of a row is the time from when it could be read to the commit of its batch.
Spark does not report when a row arrived, but a batch that starts reads (or counts) what has arrived
by then. Rows are read in the order of their arrival, so the number of rows that had arrived at the
start of each batch shows between which two starts a row arrived.

The *event age* is the time from a row's own time stamp to the commit. Data that is late by design
is old, however fast it is processed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.model import Latency
from tidegate.spark.autoscaler.progress import Progress

__all__ = ["BatchDelay", "bounded", "delays_of", "event_ages", "latency_of"]

POINTS = 20
"""Number of equal parts of a batch's rows, to compute percentiles over several batches."""


@dataclass(frozen=True, slots=True)
class BatchDelay:
    """Processing delays of a batch's rows, in equal parts.

    parts_s: delays in seconds, the longest first. at_least: whether rows may have waited longer,
    because they arrived before the first known batch, or nobody counted what was left over.
    """

    parts_s: tuple[float, ...]
    at_least: bool = False

    @property
    def mean_s(self) -> float:
        """Mean delay in seconds."""
        return math.fsum(self.parts_s) / len(self.parts_s)


def delays_of(
    batches: Sequence[Progress], left: Sequence[float | None], since: int = 1
) -> dict[int, BatchDelay]:
    """Processing delays by position, of the batches that had rows, from position `since` on.

    batches: successive batches and idle events of one run. left: rows that had arrived at the start
    of each and were left for later ones, None when there may be some and nobody counted them.
    """
    starts_s: list[float] = []
    arrived: list[float] = []  # rows that had arrived at each start, since the first
    found: dict[int, BatchDelay] = {}
    done, unsure = 0.0, False
    for number, (batch, rest) in enumerate(zip(batches, left, strict=True)):
        before, done = done, done + batch.rows
        starts_s.append(batch.began_s)
        arrived.append(max(done + (rest or 0.0), arrived[-1] if arrived else 0.0))
        if number >= max(1, since) and batch.rows:
            rows = [before + batch.rows * (n + 0.5) / POINTS for n in range(POINTS)]
            came_s = (_when(row, starts_s, arrived) for row in rows)
            parts = tuple(max(0.0, batch.committed_s - at_s) for at_s in came_s)
            found[number] = BatchDelay(parts, unsure or rows[0] <= arrived[0])
        unsure = rest is None or (unsure and bool(rest))
    return found


def _when(row: float, starts_s: Sequence[float], arrived: Sequence[float]) -> float:
    """When a row arrived, evenly between the two starts that it arrived between; Unix seconds."""
    after = bisect.bisect_left(arrived, row)
    if after == 0:
        return starts_s[0]
    after = min(after, len(arrived) - 1)
    more = arrived[after] - arrived[after - 1]
    share = (row - arrived[after - 1]) / more if more > 0 else 1.0
    return starts_s[after - 1] + min(1.0, share) * (starts_s[after] - starts_s[after - 1])


def event_ages(batch: Progress) -> tuple[float, ...]:
    """Event ages of a batch's rows in seconds, in equal parts; none without event times."""
    seen, end_s = batch.event_time, batch.committed_s
    if seen is None or not batch.rows:
        return ()
    least, mean, most = (max(0.0, end_s - at_s) for at_s in (seen.max_s, seen.mean_s, seen.min_s))
    return tuple(_parts(least, mean, most))


def _parts(least: float, mean: float, most: float) -> list[float]:
    """Midpoints of equal parts of a distribution that is uniform on each side of its mean."""
    below = (most - mean) / (most - least) if most > least else 0.5
    found = []
    for n in range(POINTS):
        share = (n + 0.5) / POINTS
        if share < below:
            found.append(least + (mean - least) * share / below)
        else:
            found.append(mean + (most - mean) * (share - below) / (1 - below))
    return found


def latency_of(weighted: Iterable[tuple[float, float]], at_least: bool = False) -> Latency:
    """Mean and percentiles of pairs (seconds, weight); all missing without any pairs.

    >>> latency_of([(1.0, 1.0), (3.0, 1.0)]).mean_s, latency_of([]).p95_s
    (2.0, None)
    """
    points = sorted(weighted)
    total = math.fsum(weight for _, weight in points)
    if not total:
        return Latency()
    found: list[float] = []
    reached = 0.0
    wanted = [0.5 * total, 0.95 * total, 0.99 * total]
    for value, weight in points:
        reached += weight
        while len(found) < 3 and reached >= wanted[len(found)] - 1e-9 * total:
            found.append(value)
    mean_s = math.fsum(value * weight for value, weight in points) / total
    return Latency(mean_s, found[0], found[1], found[2], at_least)


def bounded(latency: Latency, least_s: float | None) -> Latency:
    """A latency of rows of which the next ones wait at least `least_s` seconds, None: unknown.

    >>> bounded(Latency(1.0, 1.0, 2.0, 2.5), least_s=30.0)
    Latency(mean_s=30.0, p50_s=30.0, p95_s=30.0, p99_s=30.0, at_least=True)
    >>> bounded(Latency(1.0, 1.0, 2.0, 2.5), least_s=1.5)
    Latency(mean_s=1.0, p50_s=1.0, p95_s=2.0, p99_s=2.5, at_least=False)
    """
    if least_s is None or (latency.p95_s is not None and least_s <= latency.p95_s):
        return latency
    return replace(
        latency,
        **{
            name: max(least_s, getattr(latency, name) or 0.0)
            for name in ("mean_s", "p50_s", "p95_s", "p99_s")
        },
        at_least=True,
    )
