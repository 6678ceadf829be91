"""The latency of micro-batches, and the task slots that latency bounds need.

A batch of n items on k slots takes D = o + (W + n·s)/k: an overhead o that no slot shortens
(planning, offsets, commit), W slot-seconds of work that every batch has (task launches, state
commits), and s slot-seconds for each item. It processes the items that arrived while the last batch
ran, or since the last trigger. With λ items per second, the load is a = λs, and batches settle at
the size that arrives in a period P:

    P = max(T, (o·k + W) / (k - a))      T: trigger interval; 0: the next batch starts at once
    D = o + (W + a·P)/k                  equal to P when batches run back to back

The oldest item of a batch has waited a whole period, so its latency is P + D; the mean one has
waited half of it, P/2 + D. Along a chain of queries the latencies add up. Queries that do not feed
each other share the slots and nothing else.

A query that is fed by one with a longer trigger interval F gets its items in blocks, one for each
commit there, and works on a block at once: P is at least F, and an item waits P - F at most (or for
the query's own trigger).

Both are convex and decreasing in k. For k > a: (o·k + W)/(k - a) = o + (o·a + W)/(k - a) is, and
D - o = max((W + a·T)/k, (o·a + W)/(k - a)) is the larger of two such functions; the maximum and the
sum of convex functions are convex. Each slot therefore gains less than the one before, and the
greedy allocation (`tidegate.theory.greedy`) is optimal.

A bound B on P + D needs k ≥ (W + a·T)/(B - T - o) and k ≥ (2W + a·B)/(B - 2o): P + D is the larger
of T + o + (W + a·T)/k and twice the period of batches that run back to back.

A source that admits at most N items a batch passes on N/max(T, D) items per second. If more arrive
than it passes on with any number of slots, more slots do not help.

The model is a fluid: it assumes many items that divide evenly over the slots. A batch with fewer
items or tasks than slots takes longer; `max_processors` is the number of tasks. Tasks of the same
length run in rounds, and slots that do not make a round less do not help; see `in_rounds`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.codec import Value
from tidegate.errors import NotEnoughProcessors
from tidegate.theory.greedy import Entry, Greedy
from tidegate.units import finite

__all__ = [
    "BatchQuery",
    "PathBound",
    "Sizing",
    "assign",
    "fewest",
    "in_rounds",
    "mean_s",
    "oldest_s",
    "slots_for_rounds",
]

NEAR = 1e-3
"""A bound this close to the best latency, as a share of it, counts as unreachable."""

NEAR_BEST = 1.25
"""A bound that cannot be reached is replaced by this multiple of the best latency: the gain of more
slots falls with 1/k only, so that the last part of it would cost an absurd number of slots."""

MOST_SLOTS = 1000.0
"""A batch is not planned on more slots than this only to read a source faster."""

PART = 0.7
"""The aim moves by at most this part of the way from the best latency to the limit."""

STEP = 0.05
"""Relative size of the steps in which a query that shares its slots gets more of them."""


@dataclass(frozen=True, slots=True)
class BatchQuery(Value):
    """A query that works in micro-batches.

    Attributes:
        name: The query.
        arrival_rate_per_s: λ, items per second.
        service_time_s: s, time for which one item keeps one slot busy, in seconds.
        overhead_s: o, time of each batch that no slot shortens, in seconds.
        trigger_interval_s: T, in seconds; zero when the next batch starts at once.
        max_processors: Largest useful number of slots (tasks of a batch), None for no limit.
        fixed_work_s: W, slot-seconds of work that every batch has.
        max_rows: N, most items that the source admits in a batch, None for no limit.
        fed_every_s: F, seconds between two blocks in which its items arrive; zero: one by one.

    200 items a second of 10 ms each keep two slots busy; with four, half of each batch is overhead,
    and it takes a second:

    >>> query = BatchQuery("q", 200, 0.01, overhead_s=0.5)
    >>> query.period_s(4), query.duration_s(4), query.oldest_s(4), query.mean_s(4)
    (1.0, 1.0, 2.0, 1.5)
    >>> slow = BatchQuery("q", 200, 0.01, overhead_s=0.5, trigger_interval_s=4)
    >>> slow.period_s(4), slow.duration_s(4), slow.oldest_s(4), slow.mean_s(4)
    (4.0, 2.5, 6.5, 4.5)

    Work that every batch has is shortened by slots, and overhead is not:

    >>> state = BatchQuery("q", 200, 0.01, 0.5, trigger_interval_s=4, fixed_work_s=8)
    >>> state.duration_s(8), state.duration_s(16)
    (2.5, 1.5)

    Items that arrive in blocks do not wait, and all of a block are in one batch:

    >>> fed = BatchQuery("q", 200, 0.01, overhead_s=0.5, fed_every_s=4)
    >>> fed.period_s(4), fed.duration_s(4), fed.oldest_s(4), fed.mean_s(4)
    (4.0, 2.5, 2.5, 2.5)
    """

    name: str
    arrival_rate_per_s: float
    service_time_s: float
    overhead_s: float
    trigger_interval_s: float = 0.0
    max_processors: float | None = None
    fixed_work_s: float = 0.0
    max_rows: float | None = None
    fed_every_s: float = 0.0

    def __post_init__(self) -> None:
        finite(self.fed_every_s, f"{self.name}: interval of blocks", low=0)
        finite(self.arrival_rate_per_s, f"{self.name}: arrival rate", low=0)
        finite(self.service_time_s, f"{self.name}: service time", low=0)
        finite(self.overhead_s, f"{self.name}: overhead", low=0)
        finite(self.trigger_interval_s, f"{self.name}: trigger interval", low=0)
        finite(self.fixed_work_s, f"{self.name}: fixed work", low=0)
        if self.max_processors is not None:
            finite(self.max_processors, f"{self.name}: max processors", low=1)
        if self.max_rows is not None:
            finite(self.max_rows, f"{self.name}: max rows", above=0)

    @property
    def load(self) -> float:
        """The load a = λs: slots that are busy with items on average."""
        return self.arrival_rate_per_s * self.service_time_s

    @property
    def least_processors(self) -> int:
        """The fewest whole slots with which batches do not grow without limit."""
        return math.floor(self.load) + 1

    @property
    def floor_s(self) -> float:
        """The latency of the oldest item with the largest useful number of slots."""
        if self.max_processors is not None:
            return self.oldest_s(self.max_processors)
        return self._wait_s(max(self._interval_s, self.overhead_s)) + self.overhead_s

    @property
    def _interval_s(self) -> float:
        """The shortest time between two batches, in seconds."""
        return max(float(self.trigger_interval_s), float(self.fed_every_s))

    def _wait_s(self, period_s: float) -> float:
        """Seconds that the oldest item of a batch has waited if batches are so far apart."""
        own_s = min(self.trigger_interval_s, self.fed_every_s)
        return max(period_s - self.fed_every_s, own_s)

    @property
    def admitted_per_s(self) -> float:
        """Most items per second that the source passes on, however many slots there are."""
        if self.max_rows is None:
            return math.inf
        # Without a trigger interval, batches can be shortened down to their overhead. The last part
        # of that would take an absurd number of slots.
        full_s = self.fixed_work_s + self.max_rows * self.service_time_s
        shortest_s = max(self._interval_s, 2 * self.overhead_s, full_s / MOST_SLOTS)
        return self.max_rows / shortest_s if shortest_s > 0 else math.inf

    def admitted(self) -> BatchQuery:
        """The query with the items that its source passes on, if fewer than arrive.

        >>> BatchQuery("q", 4_000, 0.001, 0.5, 5, max_rows=5_000).admitted().arrival_rate_per_s
        1000.0
        """
        if self.arrival_rate_per_s <= self.admitted_per_s:
            return self
        return replace(self, arrival_rate_per_s=self.admitted_per_s)

    def period_s(self, processors: float) -> float:
        """P: seconds from the start of a batch to the next, infinite under overload."""
        if processors <= self.load:
            return math.inf
        spare = processors - self.load
        back_to_back = (self.overhead_s * processors + self.fixed_work_s) / spare
        period_s = max(self._interval_s, back_to_back)
        rows = self.arrival_rate_per_s * period_s
        if self.max_rows is not None and rows > self.max_rows * (1 + 1e-9):
            return math.inf
        return period_s

    def duration_s(self, processors: float) -> float:
        """D: seconds that a batch takes."""
        period_s = self.period_s(processors)
        if not math.isfinite(period_s):
            return math.inf
        return self.overhead_s + (self.fixed_work_s + self.load * period_s) / processors

    def oldest_s(self, processors: float) -> float:
        """P + D: the latency that no item exceeds."""
        return self._wait_s(self.period_s(processors)) + self.duration_s(processors)

    def mean_s(self, processors: float) -> float:
        """P/2 + D: the mean latency."""
        return self._wait_s(self.period_s(processors)) / 2 + self.duration_s(processors)

    def slots_for(self, bound_s: float) -> float:
        """The slots (a real number) with which even the oldest item is within a bound.

        A query that shares its slots with others may need less than a whole one. The result is
        infinite when no number of slots is enough, and zero without items.

        >>> BatchQuery("q", 2_000, 0.0005, 0.5, 5, fixed_work_s=20).slots_for(11.0)
        5.1
        """
        if not self.arrival_rate_per_s:
            return 0.0
        trigger_s, work_s, load = self._interval_s, self.fixed_work_s, self.load
        waits_s, twice_s = self._wait_s(trigger_s), bound_s + self.fed_every_s
        needs = [
            _over(work_s + load * trigger_s, bound_s - waits_s - self.overhead_s),
            _over(2 * work_s + load * twice_s, twice_s - 2 * self.overhead_s),
        ]
        if self.fed_every_s:  # behind, and yet the own trigger is the longer wait
            room_s = bound_s - min(self.trigger_interval_s, self.fed_every_s)
            needs.append(_over(work_s + load * room_s, room_s - self.overhead_s))
        if self.max_rows is not None:
            full_s = self.max_rows / self.arrival_rate_per_s
            if full_s < trigger_s:
                return math.inf
            full_work_s = work_s + self.max_rows * self.service_time_s
            needs.append(_over(full_work_s, full_s - self.overhead_s))
        slots = max(needs)
        most = math.inf if self.max_processors is None else self.max_processors
        return slots if slots <= most else math.inf


def _over(work_s: float, time_s: float) -> float:
    """Slots that do so much work in so much time; infinite when there is no time."""
    return work_s / time_s if time_s > 0 else math.inf


def in_rounds(slots: float, tasks: float) -> float:
    """The slots that tasks of the same length keep busy in the mean.

    Twelve tasks on eight slots run in two rounds, as on six, and the second one is half empty:

    >>> [in_rounds(slots, 12) for slots in (4, 6, 8, 11, 12, 20)]
    [4.0, 6.0, 6.0, 6.0, 12.0, 12.0]
    """
    whole = math.floor(slots + 1e-9)
    return float(slots) if whole < 1 else tasks / math.ceil(tasks / whole - 1e-9)


def slots_for_rounds(slots: float, tasks: float) -> float:
    """The fewest slots that are worth `slots` in rounds, at most one for each task.

    >>> [slots_for_rounds(slots, 12) for slots in (0.5, 3.5, 6, 6.5, 20)]
    [0.5, 4.0, 6.0, 12.0, 12.0]
    """
    if slots <= 1:
        return slots
    return float(math.ceil(tasks / max(1, math.floor(tasks / slots + 1e-9)) - 1e-9))


def oldest_s(queries: Sequence[BatchQuery], allocation: Sequence[float]) -> float:
    """Latency of the oldest items along a chain of queries, seconds.

    allocation: slots of each.
    """
    return math.fsum(q.oldest_s(k) for q, k in zip(queries, allocation, strict=True))


def mean_s(queries: Sequence[BatchQuery], allocation: Sequence[float]) -> float:
    """Mean latency along a chain of queries, seconds."""
    return math.fsum(q.mean_s(k) for q, k in zip(queries, allocation, strict=True))


def assign(
    queries: Sequence[BatchQuery], processors: int, bounds_s: Sequence[float] | None = None
) -> tuple[int, ...]:
    """The distribution of whole slots with the lowest latency of the oldest items.

    bounds_s: bound of each query, in seconds; the latency is then minimised in proportion to it.
    Slots beyond the limits of all queries stay unassigned. Raises NotEnoughProcessors when the
    batches of a query would grow without limit.

    >>> parse, score = BatchQuery("parse", 200, 0.01, 0.2), BatchQuery("score", 200, 0.03, 0.2)
    >>> assign((parse, score), 16)
    (5, 11)
    """
    weights = [1.0 / b for b in bounds_s] if bounds_s is not None else [1.0] * len(queries)

    def entry(index: int, k: int) -> Entry:
        query = queries[index]
        if query.max_processors is not None and k >= query.max_processors:
            return math.inf, 0.0, index, k
        # Where two queries gain the same, the one with the most load per slot comes first.
        gain = query.oldest_s(k + 1) - query.oldest_s(k)
        if math.isnan(gain):  # both infinite: the source admits too few items with so few slots
            gain = -math.inf
        return gain * weights[index], -query.load / k, index, k

    for query in queries:
        most = query.max_processors
        if most is not None and query.load >= most:
            raise NotEnoughProcessors(query.least_processors, math.floor(most), query.name)
    least = (entry(i, query.least_processors) for i, query in enumerate(queries))
    greedy = Greedy(least, lambda before: entry(before[2], before[3] + 1))
    spare = processors - sum(greedy.counts)
    if spare < 0:
        raise NotEnoughProcessors(sum(greedy.counts), processors)
    if queries:
        greedy.give(spare)
    return tuple(greedy.counts)


@dataclass(frozen=True, slots=True)
class PathBound(Value):
    """A bound on the latency of the oldest items along a path of queries.

    path: indices of the queries, in order. bound_s: the latency to aim at, in seconds. limit_s: the
    latency that must not be exceeded, if it is larger; the aim may then move towards it where the
    aim is so close to the best latency that it would cost an absurd number of slots.
    """

    path: tuple[int, ...]
    bound_s: float
    limit_s: float | None = None

    def near(self, floor_s: float, endless: bool) -> float:
        """The latency to aim at if the best one is `floor_s`, in seconds.

        endless: whether more slots always shorten the latency, if only a little.
        """
        near_s = NEAR_BEST * floor_s
        if self.limit_s is not None and self.limit_s > floor_s:
            near_s = min(near_s, floor_s + PART * (self.limit_s - floor_s))
        elif self.bound_s >= floor_s * (1 + NEAR * endless):
            return self.bound_s
        return max(self.bound_s, near_s)


@dataclass(frozen=True, slots=True)
class Sizing(Value):
    """The slots that bounds need.

    slots: slots of each query; a query that shares them may have part of one. floors: bounds that
    no number of slots meets, each with the best latency in seconds; slots are then for a latency
    near the best. short: queries that may not have as many slots as their load needs.
    """

    slots: tuple[float, ...]
    floors: tuple[tuple[PathBound, float], ...] = ()
    short: tuple[int, ...] = ()


def fewest(
    queries: Sequence[BatchQuery], bounds: Sequence[PathBound], whole: Sequence[bool] | None = None
) -> Sizing:
    """The fewest slots with which even the oldest items are within every bound.

    whole: for each query, whether it needs dedicated whole slots; default: all do. Others share.

    >>> alerts = BatchQuery("alerts", 100, 0.001, 0.3)
    >>> report = BatchQuery("report", 2_000, 0.0005, 0.5, 5, fixed_work_s=20)
    >>> found = fewest((alerts, report), (PathBound((0,), 1.4), PathBound((1,), 10.5)),
    ...                (False, False))
    >>> [round(slots, 2) for slots in found.slots]
    [0.17, 5.32]
    """
    whole = [True] * len(queries) if whole is None else list(whole)
    slots = [0.0] * len(queries)
    short = []
    for index, query in enumerate(queries):
        most = math.inf if query.max_processors is None else query.max_processors
        if query.load >= most:
            short.append(index)
            slots[index] = most
        elif whole[index]:
            slots[index] = float(query.least_processors)
        elif query.arrival_rate_per_s:
            slots[index] = min(most, query.load * (1 + STEP))
    floors = []
    for bound in bounds:
        path = [i for i in bound.path if i not in short and queries[i].arrival_rate_per_s]
        if not path:
            continue
        floor_s = math.fsum(queries[i].floor_s for i in path)
        endless = any(queries[i].max_processors is None for i in path)
        bound_s = bound.near(floor_s, endless)
        if bound.bound_s < floor_s * (1 + NEAR * endless):
            floors.append((bound, floor_s))
        _meet(queries, path, bound_s, slots, whole)
    return Sizing(tuple(slots), tuple(floors), tuple(short))


def _most(query: BatchQuery) -> float:
    return math.inf if query.max_processors is None else query.max_processors


def _meet(
    queries: Sequence[BatchQuery],
    path: Sequence[int],
    bound_s: float,
    slots: list[float],
    whole: Sequence[bool],
) -> None:
    """Give slots to the queries of a path, where they help most, until its bound is met."""
    for index in path:  # necessary for each of them alone, and enough for a single one
        need = min(queries[index].slots_for(bound_s), _most(queries[index]))
        if math.isfinite(need):
            need = float(math.ceil(need - 1e-9)) if whole[index] else need
            slots[index] = max(slots[index], need)
    while math.fsum(queries[i].oldest_s(slots[i]) for i in path) > bound_s * (1 + 1e-9):
        gains = []
        for index in path:
            # Thousands of slots, which only a wrong rate needs, are not counted one by one.
            part = slots[index] // MOST_SLOTS if whole[index] else STEP * slots[index]
            step = max(1.0 if whole[index] else STEP, part)
            more = min(slots[index] + step, _most(queries[index]))
            if more > slots[index]:
                before, after = queries[index].oldest_s(slots[index]), queries[index].oldest_s(more)
                if math.isinf(after) and more > max(MOST_SLOTS, 2 * queries[index].load):
                    continue  # its source admits too few items, with any number of slots
                gain = math.inf if math.isinf(before) else (before - after) / (more - slots[index])
                gains.append((gain, -index, more))
        if not gains or max(gains)[0] <= 0:
            return
        _, index, more = max(gains)
        slots[-index] = more
