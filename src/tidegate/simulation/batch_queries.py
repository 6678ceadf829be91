"""Queries that work in micro-batches: items wait, a batch takes them all, and ends as one.

Python loops over batches, which are seconds apart; within one, NumPy works on all items at once.
As an engine for `Fleet` it knows which hosts a batch runs on, so that these are kept to its end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Operator, Resources
from tidegate.simulation.kernels.random import stream

__all__ = ["Batch", "Commit", "Items", "Query", "QueryEngine"]

Floats = NDArray[np.float64]
Roots = NDArray[np.int64]
WORK = 41
RECENT_BATCHES = 10
"""Batches that "recent" measurements are taken from."""


@dataclass(frozen=True, slots=True)
class Items:
    """Items at a query: when each came there, when and as which root its origin came in."""

    came_s: Floats
    born_s: Floats
    roots: Roots

    def cut(self, at: int) -> tuple[Items, Items]:
        """The first so many, and the rest."""
        return (
            Items(self.came_s[:at], self.born_s[:at], self.roots[:at]),
            Items(self.came_s[at:], self.born_s[at:], self.roots[at:]),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that runs or has run.

    overhead_s: until its tasks begin; busy: slots that its tasks keep busy from then to `end_s`;
    hosts: slots by host number that it was given.
    """

    start_s: float
    overhead_s: float
    end_s: float
    busy: float
    hosts: dict[int, int]
    items: Items

    def busy_between(self, start_s: float, end_s: float) -> float:
        """Slot-seconds of its tasks that fall into a stretch of time."""
        begin = max(start_s, self.start_s + self.overhead_s)
        return self.busy * max(0.0, min(end_s, self.end_s) - begin)


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch's end: everything in it is done at `batch.end_s`."""

    query: int
    batch: Batch


@dataclass
class Query:
    """One operator's batches.

    trigger_s: zero when the next batch starts at once. waiting: blocks of items, each sorted by
    time. recent: the last finished batches; window: those since they were last read.
    """

    operator: Operator
    overhead_s: float
    overhead_scv: float
    trigger_s: float
    lots: np.random.Generator
    waiting: list[Items] = field(default_factory=list)
    running: Batch | None = None
    free_s: float = 0.0
    recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    window: list[Batch] = field(default_factory=list)

    def add(self, items: Items) -> None:
        """Items that come, now or later, sorted by time."""
        if len(items.came_s):
            self.waiting.append(items)

    def queued(self, now_s: float) -> int:
        """Items that have come and are in no batch yet."""
        return sum(int(np.searchsorted(b.came_s, now_s, side="right")) for b in self.waiting)

    @property
    def next_start_s(self) -> float:
        """When the next batch starts, as far as it is known; infinite without items."""
        if self.running is not None or not self.waiting:
            return math.inf
        first = min(float(block.came_s[0]) for block in self.waiting)
        if not self.trigger_s:
            return max(first, self.free_s)
        # A missed trigger is made up for at once; otherwise the next one that finds something.
        missed = math.floor(self.free_s / self.trigger_s) * self.trigger_s
        if self.recent and self.recent[-1].start_s < missed and first <= self.free_s:
            return self.free_s
        return math.ceil(max(first, self.free_s) / self.trigger_s - 1e-9) * self.trigger_s

    def begin(self, now_s: float, hosts: dict[int, int]) -> None:
        """Take all that waits into a batch on the slots given."""
        taken: list[Items] = []
        left: list[Items] = []
        for block in self.waiting:
            head, tail = block.cut(int(np.searchsorted(block.came_s, now_s, side="right")))
            taken.append(head)
            if len(tail.came_s):
                left.append(tail)
        self.waiting = left
        items = Items(
            np.concatenate([t.came_s for t in taken]),
            np.concatenate([t.born_s for t in taken]),
            np.concatenate([t.roots for t in taken]),
        )
        count = len(items.came_s)
        # An item is one slot's work, and a batch has no more tasks than the operator allows.
        busy = min(sum(hosts.values()), count, self.operator.max_instances or count)
        work = self._work_s(count)
        overhead = _gamma(self.lots, self.overhead_s, self.overhead_scv)
        end = now_s + overhead + work / busy
        self.running = Batch(now_s, overhead, end, busy, hosts, items)

    def _work_s(self, count: int) -> float:
        """Slot-seconds of so many items: the sum of gamma service times is gamma again."""
        mean, scv = self.operator.service_time_s or 0.0, self.operator.service_scv
        return _gamma(self.lots, count * mean, scv / count)

    def commit(self) -> Batch:
        """End the running batch."""
        batch = self.running
        assert batch is not None
        self.running, self.free_s = None, batch.end_s
        self.recent.append(batch)
        self.window.append(batch)
        return batch


def _gamma(lots: np.random.Generator, mean: float, scv: float) -> float:
    """A positive number by lot; the mean itself where nothing varies."""
    if mean <= 0 or scv <= 1e-12:
        return mean
    return float(lots.gamma(1 / scv, mean * scv))


class QueryEngine:
    """All queries, and the slots that hosts lend them; what `Fleet` calls an engine.

    pooled: all operators are shards of one query, which has every slot of every running host.
    """

    def __init__(
        self,
        operators: tuple[Operator, ...],
        overhead_s: dict[str, float],
        overhead_scv: float,
        trigger_s: float,
        seed: int,
        pooled: bool = False,
    ) -> None:
        self.pooled = pooled
        self.queries = [
            Query(o, overhead_s[o.name], overhead_scv, trigger_s, stream(seed, WORK, n))
            for n, o in enumerate(operators[:1] if pooled else operators)
        ]
        self._hosts: dict[int, tuple[float, int]] = {}  # number: from when, how many slots
        self._slots: list[dict[int, tuple[int, float]]] = [{} for _ in operators]
        self._next = 0

    # --- time ---------------------------------------------------------------------------------

    def step(self, end_s: float) -> Commit | None:
        """Go on to the next batch that ends by `end_s`; None when there is none."""
        while True:
            ends = [q.running.end_s if q.running else math.inf for q in self.queries]
            starts = [self._start_s(n) for n in range(len(self.queries))]
            ending, starting = min(ends), min(starts)
            if min(ending, starting) > end_s:
                return None
            if ending <= starting:
                n = ends.index(ending)
                return Commit(n, self.queries[n].commit())
            n = starts.index(starting)
            self.queries[n].begin(starting, self.lent(n, starting))

    def _start_s(self, n: int) -> float:
        """When a query's next batch starts: not before it has a slot."""
        start = self.queries[n].next_start_s
        if math.isinf(start):
            return start
        return max(start, self._first_slot_s(n))

    def _first_slot_s(self, n: int) -> float:
        if self.pooled:
            return min((ready for ready, _ in self._hosts.values()), default=math.inf)
        return min((ready for _, ready in self._slots[n].values()), default=math.inf)

    def lent(self, n: int, now_s: float) -> dict[int, int]:
        """Slots by host that a query has now."""
        if self.pooled:
            return {host: slots for host, (ready, slots) in self._hosts.items() if ready <= now_s}
        lent: dict[int, int] = {}
        for host, ready in self._slots[n].values():
            if ready <= now_s:
                lent[host] = lent.get(host, 0) + 1
        return lent

    def _busy_until(self, host: int, now_s: float) -> float:
        batches = (q.running for q in self.queries if q.running and host in q.running.hosts)
        return max((batch.end_s for batch in batches), default=now_s)

    # --- what a fleet asks --------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """A host that runs from `ready_s`; returns its number."""
        self._next += 1
        self._hosts[self._next] = (ready_s, max(1, math.floor(capacity.cpu_cores + 1e-9)))
        return self._next

    def close_host(self, host: int, until_s: float) -> None:
        """The host is being given back: no batch begins on it any more."""
        self._hosts.pop(host, None)

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """A slot for an operator from `ready_s`; returns its number."""
        self._next += 1
        self._slots[operator][self._next] = (host, ready_s)
        return self._next

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Take a slot away, at the end of the batch that it works on."""
        host, _ = self._slots[operator].pop(slot)
        return now_s if self.pooled else self._busy_until(host, now_s)

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """A slot elsewhere from the next batch on."""
        self._slots[operator][slot] = (host, now_s)
        return now_s

    def idle_from(self, host: int, now_s: float) -> float:
        """When the batches that run on a host have ended."""
        return self._busy_until(host, now_s)

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        """A slot is gone; the running batch is not simulated to notice."""
        self._slots[operator].pop(slot, None)

    def fail_host(self, host: int, now_s: float) -> None:
        """A host is gone."""
        self._hosts.pop(host, None)
