"""Queries that run in micro-batches: a batch takes all waiting items, and they finish together.

Python loops over batches, which are seconds apart; within a batch, NumPy handles all items at once.
The engine knows which hosts a batch runs on, so that these are kept until its end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Operator, Resources
from tidegate.simulation.hosts import HostEngine
from tidegate.simulation.kernels.random import stream

__all__ = [
    "Batch",
    "BatchQueryState",
    "Commit",
    "Items",
    "QueryEngine",
]

Floats = NDArray[np.float64]
Roots = NDArray[np.int64]
WORK = 41
RECENT_BATCHES = 10
"""Number of batches behind "recent" measurements."""


@dataclass(frozen=True, slots=True)
class Items:
    """Items at a query: when each arrived there, and the arrival time and number of its origin."""

    arrived_s: Floats
    born_s: Floats
    roots: Roots

    def cut(self, at: int) -> tuple[Items, Items]:
        """The first `at` items, and the rest."""
        return (
            Items(self.arrived_s[:at], self.born_s[:at], self.roots[:at]),
            Items(self.arrived_s[at:], self.born_s[at:], self.roots[at:]),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A running or finished batch.

    overhead_s: time until its tasks start; busy: slots that its tasks use from then to `end_s`;
    hosts: its slots by host number.
    """

    start_s: float
    overhead_s: float
    end_s: float
    busy: float
    hosts: dict[int, int]
    items: Items

    def busy_between(self, start_s: float, end_s: float) -> float:
        """Slot-seconds of its tasks between two moments."""
        begin = max(start_s, self.start_s + self.overhead_s)
        return self.busy * max(0.0, min(end_s, self.end_s) - begin)


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a batch: all its items are done at `batch.end_s`."""

    query: int
    batch: Batch


@dataclass
class BatchQueryState:
    """The batches of one query.

    trigger_s: trigger interval, 0 if the next batch starts at once. waiting: blocks of items, each
    sorted by time. recent: the last finished batches; window: those since the last measurement.
    """

    operator: Operator
    overhead_s: float
    overhead_scv: float
    trigger_s: float
    rng: np.random.Generator
    waiting: list[Items] = field(default_factory=list)
    running: Batch | None = None
    free_s: float = 0.0
    recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    window: list[Batch] = field(default_factory=list)

    def add(self, items: Items) -> None:
        """Add items that arrive now or later, sorted by time."""
        if len(items.arrived_s):
            self.waiting.append(items)

    def queued(self, now_s: float) -> int:
        """Items that have arrived and are in no batch yet."""
        return sum(int(np.searchsorted(b.arrived_s, now_s, side="right")) for b in self.waiting)

    @property
    def next_start_s(self) -> float:
        """Start of the next batch, infinite without items or while a batch runs."""
        if self.running is not None or not self.waiting:
            return math.inf
        first = min(float(block.arrived_s[0]) for block in self.waiting)
        if not self.trigger_s:
            return max(first, self.free_s)
        # After a missed trigger the batch starts at once, otherwise at the next trigger with items.
        missed = math.floor(self.free_s / self.trigger_s) * self.trigger_s
        if self.recent and self.recent[-1].start_s < missed and first <= self.free_s:
            return self.free_s
        return math.ceil(max(first, self.free_s) / self.trigger_s - 1e-9) * self.trigger_s

    def begin(self, now_s: float, hosts: dict[int, int]) -> None:
        """Start a batch with all waiting items on these slots (by host)."""
        taken: list[Items] = []
        left: list[Items] = []
        for block in self.waiting:
            head, tail = block.cut(int(np.searchsorted(block.arrived_s, now_s, side="right")))
            taken.append(head)
            if len(tail.arrived_s):
                left.append(tail)
        self.waiting = left
        items = Items(
            np.concatenate([t.arrived_s for t in taken]),
            np.concatenate([t.born_s for t in taken]),
            np.concatenate([t.roots for t in taken]),
        )
        count = len(items.arrived_s)
        # One slot works on an item, and a batch has at most `max_instances` tasks.
        busy = min(sum(hosts.values()), count, self.operator.max_instances or count)
        work = self._work_s(count)
        overhead = _gamma(self.rng, self.overhead_s, self.overhead_scv)
        end = now_s + overhead + work / busy
        self.running = Batch(now_s, overhead, end, busy, hosts, items)

    def _work_s(self, count: int) -> float:
        """Slot-seconds of a number of items: a sum of gamma service times is gamma again."""
        mean, scv = self.operator.service_time_s or 0.0, self.operator.service_scv
        return _gamma(self.rng, count * mean, scv / count)

    def commit(self) -> Batch:
        """Finish the running batch."""
        batch = self.running
        assert batch is not None
        self.running, self.free_s = None, batch.end_s
        self.recent.append(batch)
        self.window.append(batch)
        return batch


def _gamma(rng: np.random.Generator, mean: float, scv: float) -> float:
    """A random positive number; the mean itself if the variation is 0."""
    if mean <= 0 or scv <= 1e-12:
        return mean
    return float(rng.gamma(1 / scv, mean * scv))


class QueryEngine(HostEngine):
    """All queries, and the slots that they have on hosts.

    Args:
        operators: An operator for each query.
        overhead_s: Overhead of a batch by operator, in seconds.
        overhead_scv: Squared coefficient of variation of the overhead.
        trigger_s: Trigger interval, in seconds.
        seed: Random seed.
        pooled: Whether all operators are shards of one query that has all slots of all hosts.
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
            BatchQueryState(o, overhead_s[o.name], overhead_scv, trigger_s, stream(seed, WORK, n))
            for n, o in enumerate(operators[:1] if pooled else operators)
        ]
        self._hosts: dict[int, tuple[float, int]] = {}  # by number: ready time and slots
        self._slots: list[dict[int, tuple[int, float]]] = [{} for _ in operators]
        self._next = 0

    # --- time ---------------------------------------------------------------------------------

    def step(self, end_s: float) -> Commit | None:
        """Continue to the next batch that ends by `end_s`; None if there is none."""
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
            self.queries[n].begin(starting, self.slots(n, starting))

    def _start_s(self, n: int) -> float:
        """Start of a query's next batch, which needs a slot."""
        start = self.queries[n].next_start_s
        if math.isinf(start):
            return start
        return max(start, self._first_slot_s(n))

    def _first_slot_s(self, n: int) -> float:
        if self.pooled:
            return min((ready for ready, _ in self._hosts.values()), default=math.inf)
        return min((ready for _, ready in self._slots[n].values()), default=math.inf)

    def slots(self, n: int, now_s: float) -> dict[int, int]:
        """Slots of a query by host."""
        if self.pooled:
            return {host: slots for host, (ready, slots) in self._hosts.items() if ready <= now_s}
        found: dict[int, int] = {}
        for host, ready in self._slots[n].values():
            if ready <= now_s:
                found[host] = found.get(host, 0) + 1
        return found

    def _busy_until(self, host: int, now_s: float) -> float:
        batches = (q.running for q in self.queries if q.running and host in q.running.hosts)
        return max((batch.end_s for batch in batches), default=now_s)

    # --- hosts and slots ----------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """Add a host that runs from `ready_s`; returns its number."""
        self._next += 1
        self._hosts[self._next] = (ready_s, max(1, math.floor(capacity.cpu_cores + 1e-9)))
        return self._next

    def close_host(self, host: int, until_s: float) -> None:
        """Release a host: no further batch starts on it."""
        self._hosts.pop(host, None)

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """Add a slot for an operator from `ready_s`; returns its number."""
        self._next += 1
        self._slots[operator][self._next] = (host, ready_s)
        return self._next

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Remove a slot; returns the end of the batch that it works on."""
        host, _ = self._slots[operator].pop(slot)
        return now_s if self.pooled else self._busy_until(host, now_s)

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Move a slot; it works on the new host from the next batch on."""
        self._slots[operator][slot] = (host, now_s)
        return now_s

    def idle_from(self, host: int, now_s: float) -> float:
        """End of the batches that run on a host."""
        return self._busy_until(host, now_s)

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        """Lose a slot; the running batch is not affected."""
        self._slots[operator].pop(slot, None)

    def fail_host(self, host: int, now_s: float) -> None:
        """Lose a host."""
        self._hosts.pop(host, None)
