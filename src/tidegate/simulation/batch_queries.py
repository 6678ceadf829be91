"""Queries that run in micro-batches: a batch takes waiting items, and they finish together.

A batch of n items on k slots takes o + (W + n·s)/k. Python loops over batches, which are seconds
apart; within a batch, NumPy handles all items at once. In this engine each query has its own slots;
`tidegate.simulation.shared_slots` has the one in which all queries share all slots. The engine
knows which hosts a batch runs on, so that these are kept until its end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.model import BatchCost
from tidegate.model.topology import Operator, Resources
from tidegate.simulation.hosts import HostEngine
from tidegate.simulation.kernels.random import stream
from tidegate.theory.batch_cost import BatchSample, BatchSamples, estimate
from tidegate.theory.microbatch import in_rounds

__all__ = [
    "Batch",
    "BatchQueryState",
    "Commit",
    "Items",
    "OwnBatch",
    "QueryCosts",
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

    def in_order(self) -> Items:
        """The items in the order in which they arrived."""
        order = np.argsort(self.arrived_s, kind="stable")
        return Items(self.arrived_s[order], self.born_s[order], self.roots[order])

    def cut(self, at: int) -> tuple[Items, Items]:
        """The first `at` items, and the rest."""
        return (
            Items(self.arrived_s[:at], self.born_s[:at], self.roots[:at]),
            Items(self.arrived_s[at:], self.born_s[at:], self.roots[at:]),
        )


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """What the batches of a query cost, and when they run.

    Args:
        overhead_s: Mean part of each batch that more slots do not shorten, in seconds.
        overhead_scv: Squared coefficient of variation of the overhead.
        fixed_work_s: Slot-seconds of work in each batch, however many items it has.
        trigger_s: Trigger interval in seconds, 0 if the next batch starts at once.
        max_rows: Most items that a batch takes, None for all that wait.
        change_s: Time by which the first batch on other hosts takes longer, in seconds.
        buffer_rows: Most items that wait for a batch, None for any number; later ones are dropped.
    """

    overhead_s: float = 0.5
    overhead_scv: float = 0.0
    fixed_work_s: float = 0.0
    trigger_s: float = 0.0
    max_rows: int | None = None
    change_s: float = 0.0
    buffer_rows: int | None = None


class Batch(Protocol):
    """A running or finished batch."""

    @property
    def start_s(self) -> float:
        """When it started, in seconds."""

    @property
    def end_s(self) -> float:
        """When it is committed, in seconds; infinite while that is not known."""

    @property
    def items(self) -> Items:
        """The items in it."""

    @property
    def overhead_s(self) -> float:
        """Time until its tasks can start, in seconds."""

    @property
    def running_slots(self) -> float:
        """Slots that its tasks use at present."""

    @property
    def used_s(self) -> float:
        """Slot-seconds of its tasks, as measured."""

    @property
    def sample(self) -> BatchSample:
        """The batch as its cost is estimated from it, once it has ended."""

    def busy_between(self, start_s: float, end_s: float) -> float:
        """Slot-seconds of its tasks between two moments."""

    def busy_by_host(self, start_s: float, end_s: float) -> dict[int, float]:
        """The same by host number."""


@dataclass(frozen=True, slots=True)
class OwnBatch:
    """A batch on slots that belong to its query.

    work_s: slot-seconds of its tasks; busy: slots that they use from the end of the overhead to
    `end_s`; tasks: their number, None if unlimited; hosts: its slots by host number.
    """

    start_s: float
    overhead_s: float
    end_s: float
    work_s: float
    busy: float
    tasks: int | None
    hosts: dict[int, int]
    items: Items

    @property
    def running_slots(self) -> float:
        """Slots that it has, used or not."""
        return sum(self.hosts.values())

    @property
    def used_s(self) -> float:
        """Slot-seconds of its tasks, as measured."""
        return self.busy * (self.end_s - self.start_s - self.overhead_s)

    @property
    def sample(self) -> BatchSample:
        """The batch as its cost is estimated from it."""
        return BatchSample(
            len(self.items.arrived_s),
            self.end_s - self.start_s,
            self.work_s,
            self.busy,
            None if self.tasks is None else self.work_s / self.tasks,
            self.busy,
        )

    def busy_between(self, start_s: float, end_s: float) -> float:
        """Slot-seconds of its tasks between two moments."""
        begin = max(start_s, self.start_s + self.overhead_s)
        return self.busy * max(0.0, min(end_s, self.end_s) - begin)

    def busy_by_host(self, start_s: float, end_s: float) -> dict[int, float]:
        """Slot-seconds of its tasks between two moments, by host number."""
        used = self.busy_between(start_s, end_s) / sum(self.hosts.values())
        return {host: used * slots for host, slots in self.hosts.items()}


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a batch: all its items are done at `batch.end_s`."""

    query: int
    batch: Batch


@dataclass
class BatchQueryState:
    """The batches of one query.

    waiting: blocks of items, each sorted by time. recent: the last finished batches; window: those
    since the last measurement. samples: batches from which costs are estimated. on: hosts of the
    last batch, None before the first. lost: items that found a full buffer.
    """

    operator: Operator
    costs: QueryCosts
    rng: np.random.Generator
    waiting: list[Items] = field(default_factory=list)
    running: Batch | None = None
    free_s: float = 0.0
    recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    window: list[Batch] = field(default_factory=list)
    samples: BatchSamples = field(default_factory=BatchSamples)
    on: frozenset[int] | None = None
    lost: list[Items] = field(default_factory=list)
    _cost: BatchCost | None = None

    @property
    def cost(self) -> BatchCost | None:
        """The three terms of a batch as they are estimated now, None before the first batch."""
        if self._cost is None:
            self._cost = estimate(self.samples.kept())
        return self._cost

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
        trigger_s = self.costs.trigger_s
        if not trigger_s:
            return max(first, self.free_s)
        # After a missed trigger the batch starts at once, otherwise at the next trigger with items.
        missed = math.floor(self.free_s / trigger_s) * trigger_s
        if self.recent and self.recent[-1].start_s < missed and first <= self.free_s:
            return self.free_s
        return math.ceil(max(first, self.free_s) / trigger_s - 1e-9) * trigger_s

    def begin(self, now_s: float, hosts: dict[int, int]) -> None:
        """Start a batch with the waiting items on these slots (by host)."""
        items = self.take(now_s)
        count = len(items.arrived_s)
        busy = min(float(sum(hosts.values())), self.most_slots(count))
        tasks = self.operator.max_instances
        if tasks is not None and (count >= tasks or self.costs.fixed_work_s):
            busy = in_rounds(busy, tasks)
        work, overhead = self.draw(count, frozenset(hosts))
        end = now_s + overhead + work / busy
        self.running = OwnBatch(now_s, overhead, end, work, busy, tasks, hosts, items)

    def take(self, now_s: float) -> Items:
        """Remove the items of the next batch: those that wait, the oldest ones up to `max_rows`.

        Where the buffer is limited, items that came when it was full are lost.
        """
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
        buffer = self.costs.buffer_rows
        if buffer is not None and len(items.arrived_s) > buffer:
            items, lost = items.in_order().cut(buffer)
            self.lost.append(lost)
        most = self.costs.max_rows
        if most is None or len(items.arrived_s) <= most:
            return items
        head, tail = items.in_order().cut(most)
        self.waiting.insert(0, tail)
        return head

    def take_lost(self) -> list[Items]:
        """Remove and return the items that found a full buffer."""
        lost, self.lost = self.lost, []
        return lost

    def most_slots(self, count: int) -> float:
        """Slots that a batch of that many items can use.

        One slot works on an item, and a batch has at most `max_instances` tasks. Fixed work is
        done by every task, with items or without.
        """
        tasks = math.inf if self.operator.max_instances is None else self.operator.max_instances
        return tasks if self.costs.fixed_work_s else min(count, tasks)

    def draw(self, count: int, hosts: frozenset[int]) -> tuple[float, float]:
        """Slot-seconds and overhead of a batch of that many items on these hosts."""
        mean, scv = self.operator.service_time_s or 0.0, self.operator.service_scv
        # A sum of gamma service times is gamma again.
        work = self.costs.fixed_work_s + _gamma(self.rng, count * mean, scv / count)
        overhead = _gamma(self.rng, self.costs.overhead_s, self.costs.overhead_scv)
        if self.on is not None and self.on != hosts:
            overhead += self.costs.change_s
        self.on = hosts
        return work, overhead

    def commit(self) -> Batch:
        """Finish the running batch."""
        batch = self.running
        assert batch is not None
        self.running, self.free_s = None, batch.end_s
        self.recent.append(batch)
        self.window.append(batch)
        self.samples.add(batch.sample)
        self._cost = None
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
        costs: What the batches of each query cost.
        seed: Random seed.
        pooled: Whether all operators are shards of one query that has all slots of all hosts.
    """

    def __init__(
        self,
        operators: tuple[Operator, ...],
        costs: Sequence[QueryCosts],
        seed: int,
        pooled: bool = False,
    ) -> None:
        self.pooled = pooled
        self.queries = [
            BatchQueryState(operator, cost, stream(seed, WORK, n))
            for n, (operator, cost) in enumerate(zip(operators, costs, strict=False))
        ]
        self._hosts: dict[int, tuple[float, int]] = {}  # by number: ready time and slots
        self._slots: list[dict[int, tuple[int, float]]] = [{} for _ in operators]
        self._next = 0
        self.warm_up_s = 0.0
        """Time until the slots of a new host take tasks, for engines in which hosts have slots."""

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
        batches = (query.running for query in self.queries)
        ends = (b.end_s for b in batches if isinstance(b, OwnBatch) and host in b.hosts)
        return max(ends, default=now_s)

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
