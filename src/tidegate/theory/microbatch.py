"""The latency of micro-batches, and the processors that a latency bound needs.

A batch takes D = o + n·s/k: an overhead o that no processor shortens (planning, offsets, commit)
and the work of its n items, s seconds each, on k processors. It processes the items that arrived
while the last batch ran, or since the last trigger. With λ items per second, the load is a = λs,
and batches settle at the size that arrives in a period P:

    P = max(T, o·k / (k − a))        T: trigger interval; 0: the next batch starts at once
    D = o + a·P/k                    equal to P when batches run back to back

The oldest item of a batch has waited a whole period, so its latency is P + D; the mean one has
waited half of it, P/2 + D. Along a chain of queries the latencies add up.

Both are convex and decreasing in k. For k > a: o·k/(k − a) = o + o·a/(k − a) is, and
D − o = max(a·T/k, o·a/(k − a)) is the larger of two such functions; the maximum and the sum of
convex functions are convex. Each processor therefore gains less than the one before, and the
greedy allocation (`tidegate.theory.greedy`) is optimal.

The model is a fluid: it assumes many items that divide evenly over the processors. A batch with
fewer items or tasks than processors takes longer; `max_processors` is the number of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.errors import LatencyUnreachable, NotEnoughProcessors
from tidegate.theory.greedy import Entry, Greedy
from tidegate.units import finite

__all__ = ["BatchQuery", "assign", "fewest", "mean_s", "oldest_s"]

NEAR = 1e-3
"""A bound this close to the best latency, as a share of it, counts as unreachable: the remaining
gain falls with 1/k only, so that it would take an absurd number of processors."""


@dataclass(frozen=True, slots=True)
class BatchQuery(Value):
    """A query that works in micro-batches.

    Attributes:
        name: The query.
        arrival_rate_per_s: λ, items per second.
        service_time_s: s, time for which one item keeps one processor busy, in seconds.
        overhead_s: o, time of each batch that no processor shortens, in seconds.
        trigger_interval_s: T, in seconds; zero when the next batch starts at once.
        max_processors: Largest useful number of processors (tasks of a batch), None for no limit.

    200 items a second of 10 ms each keep two processors busy; with four, half of each batch is
    overhead, and it takes a second:

    >>> query = BatchQuery("q", 200, 0.01, overhead_s=0.5)
    >>> query.period_s(4), query.duration_s(4), query.oldest_s(4), query.mean_s(4)
    (1.0, 1.0, 2.0, 1.5)
    >>> slow = BatchQuery("q", 200, 0.01, overhead_s=0.5, trigger_interval_s=4)
    >>> slow.period_s(4), slow.duration_s(4), slow.oldest_s(4), slow.mean_s(4)
    (4.0, 2.5, 6.5, 4.5)
    """

    name: str
    arrival_rate_per_s: float
    service_time_s: float
    overhead_s: float
    trigger_interval_s: float = 0.0
    max_processors: int | None = None

    def __post_init__(self) -> None:
        finite(self.arrival_rate_per_s, f"{self.name}: arrival rate", low=0)
        finite(self.service_time_s, f"{self.name}: service time", low=0)
        finite(self.overhead_s, f"{self.name}: overhead", low=0)
        finite(self.trigger_interval_s, f"{self.name}: trigger interval", low=0)
        if self.max_processors is not None:
            finite(self.max_processors, f"{self.name}: max processors", low=1)

    @property
    def load(self) -> float:
        """The load a = λs: processors that are busy on average."""
        return self.arrival_rate_per_s * self.service_time_s

    @property
    def least_processors(self) -> int:
        """The fewest processors with which batches do not grow without limit."""
        return math.floor(self.load) + 1

    @property
    def floor_s(self) -> float:
        """The latency of the oldest item with the largest useful number of processors."""
        if self.max_processors is not None:
            return self.oldest_s(self.max_processors)
        return max(self.trigger_interval_s, self.overhead_s) + self.overhead_s

    def period_s(self, processors: int) -> float:
        """P: seconds from the start of a batch to the next, infinite under overload."""
        if processors <= self.load:
            return math.inf
        back_to_back = self.overhead_s * processors / (processors - self.load)
        return max(float(self.trigger_interval_s), back_to_back)

    def duration_s(self, processors: int) -> float:
        """D: seconds that a batch takes."""
        if processors <= self.load:
            return math.inf
        return self.overhead_s + self.load * self.period_s(processors) / processors

    def oldest_s(self, processors: int) -> float:
        """P + D: the latency that no item exceeds."""
        return self.period_s(processors) + self.duration_s(processors)

    def mean_s(self, processors: int) -> float:
        """P/2 + D: the mean latency."""
        return self.period_s(processors) / 2 + self.duration_s(processors)


def oldest_s(queries: Sequence[BatchQuery], allocation: Sequence[int]) -> float:
    """Latency of the oldest items along a chain of queries, seconds.

    allocation: processors of each. Where queries run in parallel, this exceeds the latency of every
    path.
    """
    return math.fsum(q.oldest_s(k) for q, k in zip(queries, allocation, strict=True))


def mean_s(queries: Sequence[BatchQuery], allocation: Sequence[int]) -> float:
    """Mean latency along a chain of queries, seconds."""
    return math.fsum(q.mean_s(k) for q, k in zip(queries, allocation, strict=True))


def _greedy(queries: Sequence[BatchQuery]) -> Greedy:
    """Give processors where they reduce the latency of the oldest items most."""

    def entry(index: int, k: int) -> Entry:
        query = queries[index]
        if query.max_processors is not None and k >= query.max_processors:
            return math.inf, 0.0, index, k
        # Where two queries gain the same, the one with the most load per processor comes first.
        return query.oldest_s(k + 1) - query.oldest_s(k), -query.load / k, index, k

    for query in queries:
        most = query.max_processors
        if most is not None and query.least_processors > most:
            raise NotEnoughProcessors(query.least_processors, most, query.name)
    least = (entry(i, query.least_processors) for i, query in enumerate(queries))
    return Greedy(least, lambda before: entry(before[2], before[3] + 1))


def assign(queries: Sequence[BatchQuery], processors: int) -> tuple[int, ...]:
    """The distribution of processors with the lowest latency of the oldest items.

    Processors beyond the limits of all queries stay unassigned. Raises NotEnoughProcessors when the
    batches of a query would grow without limit.

    >>> parse, score = BatchQuery("parse", 200, 0.01, 0.2), BatchQuery("score", 200, 0.03, 0.2)
    >>> assign((parse, score), 16)
    (5, 11)
    """
    greedy = _greedy(queries)
    spare = processors - sum(greedy.counts)
    if spare < 0:
        raise NotEnoughProcessors(sum(greedy.counts), processors)
    greedy.give(spare)
    return tuple(greedy.counts)


def fewest(
    queries: Sequence[BatchQuery], bound_s: float, correction: float = 1.0
) -> tuple[int, ...]:
    """The fewest processors with which even the oldest items are within a bound.

    bound_s: the bound, in seconds. correction: measured over estimated latency, a factor of the
    estimate. Raises LatencyUnreachable when no number of processors is enough (or only an absurd
    one, see `NEAR`), and NotEnoughProcessors when the limit of a query is too low.

    >>> fewest((BatchQuery("q", 200, 0.01, overhead_s=0.5),), bound_s=1.5)
    (6,)
    """
    finite(bound_s, "bound_s", above=0)
    finite(correction, "correction", above=0)
    greedy = _greedy(queries)
    floor_s = correction * math.fsum(query.floor_s for query in queries)
    endless = any(query.max_processors is None for query in queries)
    if correction * oldest_s(queries, greedy.counts) > bound_s and bound_s < floor_s * (
        1 + NEAR * endless
    ):
        raise LatencyUnreachable(bound_s, floor_s)
    while correction * oldest_s(queries, greedy.counts) > bound_s:
        if not greedy.give(1):  # every query has as many as it may
            raise LatencyUnreachable(bound_s, floor_s)
    return tuple(greedy.counts)
