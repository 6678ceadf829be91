"""Queries that share all slots of all executors, as in an application without live settings.

Spark's scheduler is first in, first out by job: free slots go to the tasks of the job that was
submitted first, and later jobs get what it leaves. Jobs are submitted when a batch has been
planned, so batches queue in the order in which their overhead ends. A batch that runs alone has all
slots, up to its number of tasks.

Tasks are a fluid here: the work of a batch is divisible, and its slots change at the moment when
another batch ends, or when an executor joins or leaves. Between two such moments they are constant,
so that the ends of batches are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidegate.model.topology import Operator, Resources
from tidegate.simulation.batch_queries import Commit, Items, QueryCosts, QueryEngine
from tidegate.theory.batch_cost import BatchSample

__all__ = ["SharedBatch", "SharedEngine"]


@dataclass(frozen=True, slots=True)
class _Share:
    """Slots of a batch. pool: from the common slots; drains: by host that is being released."""

    pool: float = 0.0
    drains: dict[int, float] = field(default_factory=dict)

    @property
    def slots(self) -> float:
        return self.pool + sum(self.drains.values())


NOTHING = _Share()


@dataclass(frozen=True, slots=True)
class _Span:
    """A time in which a batch had the same slots. common: the common slots by host."""

    start_s: float
    end_s: float
    share: _Share
    common: dict[int, int]

    def by_host(self, start_s: float, end_s: float) -> dict[int, float]:
        """Slot-seconds between two moments by host; Spark spreads tasks evenly over executors."""
        time_s = max(0.0, min(end_s, self.end_s) - max(start_s, self.start_s))
        every = sum(self.common.values())
        part = self.share.pool / every if every else 0.0
        used = {host: slots * part * time_s for host, slots in self.common.items()}
        for host, slots in self.share.drains.items():
            used[host] = used.get(host, 0.0) + slots * time_s
        return used


@dataclass(eq=False, slots=True)
class SharedBatch:
    """A batch that shares slots with others.

    Args:
        start_s: When it started, in seconds.
        overhead_s: Time until its tasks can start, in seconds.
        work_s: Slot-seconds of its tasks.
        most: Most slots that it can use.
        tasks: Number of its tasks, None if unlimited.
        items: The items in it.
        end_s: When it ends if nothing changes; infinite while it has no slots.
        left_s: Slot-seconds that were left at `since_s`.
        since_s: When its slots last changed, in seconds.
        share: Slots that it has since then.
        common: The common slots by host since then.
        spans: The times before.
    """

    start_s: float
    overhead_s: float
    work_s: float
    most: float
    tasks: int | None
    items: Items
    end_s: float = math.inf
    left_s: float = 0.0
    since_s: float = 0.0
    share: _Share = NOTHING
    common: dict[int, int] = field(default_factory=dict)
    spans: list[_Span] = field(default_factory=list)

    @property
    def ready_s(self) -> float:
        """When its tasks can start, in seconds."""
        return self.start_s + self.overhead_s

    @property
    def running_slots(self) -> float:
        """Slots that its tasks use at present."""
        return self.share.slots

    @property
    def used_s(self) -> float:
        """Slot-seconds of its tasks."""
        return self.work_s

    @property
    def sample(self) -> BatchSample:
        """The batch as its cost is estimated from it.

        The slots that it held are those of the whole time since its tasks could start: more slots
        also shorten the wait for the first one.
        """
        active_s = self.end_s - self.ready_s
        return BatchSample(
            len(self.items.arrived_s),
            self.end_s - self.start_s,
            self.work_s,
            self.work_s / active_s if active_s > 0 else self.share.slots,
            None if self.tasks is None else self.work_s / self.tasks,
            min(self.most, float(sum(self.common.values()))),
        )

    def give(self, share: _Share, common: dict[int, int], now_s: float) -> None:
        """Change its slots; without a change its end stays the same to the last bit."""
        if share == self.share and common == self.common:
            return
        self.settle(now_s)
        self.share, self.common = share, common
        self.end_s = now_s + self.left_s / share.slots if share.slots > 0 else math.inf

    def settle(self, now_s: float) -> None:
        """Count the work since its slots last changed."""
        if now_s > self.since_s:
            self.spans.append(_Span(self.since_s, now_s, self.share, self.common))
            self.left_s = max(0.0, self.left_s - self.share.slots * (now_s - self.since_s))
        self.since_s = now_s

    def busy_between(self, start_s: float, end_s: float) -> float:
        """Slot-seconds of its tasks between two moments."""
        return math.fsum(self.busy_by_host(start_s, end_s).values())

    def busy_by_host(self, start_s: float, end_s: float) -> dict[int, float]:
        """Slot-seconds of its tasks between two moments, by host number."""
        busy: dict[int, float] = {}
        for span in (*self.spans, _Span(self.since_s, self.end_s, self.share, self.common)):
            for host, used in span.by_host(start_s, end_s).items():
                busy[host] = busy.get(host, 0.0) + used
        return busy


@dataclass(frozen=True, slots=True)
class _Drain:
    """A host that is being released. batches: those whose tasks it still runs, until `until_s`."""

    slots: int
    until_s: float
    batches: tuple[SharedBatch, ...]


class SharedEngine(QueryEngine):
    """All queries on the same slots, first in, first out.

    A host that is released runs the tasks that it has begun until their batches end; batches that
    come later do not use it.

    operators, costs, seed: as in `QueryEngine`.
    """

    def __init__(
        self, operators: tuple[Operator, ...], costs: Sequence[QueryCosts], seed: int
    ) -> None:
        super().__init__(operators, costs, seed)
        self._now_s = 0.0
        self._line: list[SharedBatch] = []  # batches whose tasks run or wait, the first one first
        self._drains: dict[int, _Drain] = {}
        self._joined: set[int] = set()  # hosts whose slots take tasks

    # --- time ---------------------------------------------------------------------------------

    def step(self, end_s: float) -> Commit | None:
        """Continue to the next batch that ends by `end_s`; None if there is none."""
        while True:
            batches = self._batches()
            ends = [b.end_s if b else math.inf for b in batches]
            starts = [self._start_s(n) for n in range(len(self.queries))]
            ending, changing, starting = min(ends), self._next_change_s(batches), min(starts)
            now_s = min(ending, changing, starting)
            if now_s > end_s:
                return None
            self._now_s = max(self._now_s, now_s)
            if ending <= now_s:
                return self._commit(ends.index(ending), ending)
            if changing <= now_s:
                ready = [b for b in self._new(batches) if b.ready_s <= now_s]
                self._line += sorted(ready, key=lambda batch: batch.ready_s)
                self._distribute()
                continue
            self._begin(starts.index(starting), starting)

    def _batches(self) -> list[SharedBatch | None]:
        running = [query.running for query in self.queries]
        return [batch if isinstance(batch, SharedBatch) else None for batch in running]

    def _new(self, batches: Iterable[SharedBatch | None]) -> list[SharedBatch]:
        """Batches that are still in their overhead."""
        return [batch for batch in batches if batch is not None and batch not in self._line]

    def _next_change_s(self, batches: Iterable[SharedBatch | None]) -> float:
        """When the slots of batches change next, other than by the end of one."""
        ready = (batch.ready_s for batch in self._new(batches))
        joining = (at for host, (at, _) in self._hosts.items() if host not in self._joined)
        leaving = (drain.until_s for drain in self._drains.values())
        return min((*ready, *joining, *leaving), default=math.inf)

    def _begin(self, n: int, now_s: float) -> None:
        query = self.queries[n]
        items = query.take(now_s)
        count = len(items.arrived_s)
        work, overhead = query.draw(count, frozenset(self.slots(n, now_s)))
        tasks = query.operator.max_instances
        batch = SharedBatch(now_s, overhead, work, query.most_slots(count), tasks, items)
        batch.left_s, batch.since_s = work, batch.ready_s
        query.running = batch

    def _commit(self, n: int, now_s: float) -> Commit:
        query = self.queries[n]
        batch = query.running
        assert isinstance(batch, SharedBatch)
        batch.settle(now_s)
        batch.left_s = 0.0
        self._line.remove(batch)
        done = query.commit()
        self._distribute()
        return Commit(n, done)

    # --- slots --------------------------------------------------------------------------------

    def slots(self, n: int, now_s: float) -> dict[int, int]:
        """Slots by host, which are the same for each query."""
        return {host: slots for host, (ready, slots) in self._hosts.items() if ready <= now_s}

    def _first_slot_s(self, n: int) -> float:
        return min((ready for ready, _ in self._hosts.values()), default=math.inf)

    def _distribute(self) -> None:
        """Give the slots of this moment to the batches in line."""
        now_s = self._now_s
        self._drains = {h: drain for h, drain in self._drains.items() if drain.until_s > now_s}
        common = self.slots(0, now_s)
        self._joined = set(common)
        shares = _shares(self._line, sum(common.values()), self._drains)
        for batch, share in zip(self._line, shares, strict=True):
            batch.give(share, common, now_s)

    # --- hosts --------------------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """Add a host whose slots take tasks after its start and warm-up; returns its number."""
        return super().open_host(capacity, ready_s + self.warm_up_s)

    def idle_from(self, host: int, now_s: float) -> float:
        """When the batches that run now will have ended, if no further host comes or goes."""
        self._now_s = max(self._now_s, now_s)
        if host not in self._joined:
            return now_s
        drains = {**self._drains, host: self._drain(host, math.inf)}
        common = sum(slots for other, slots in self.slots(0, now_s).items() if other != host)
        left = {id(b): b.left_s - b.share.slots * (now_s - b.since_s) for b in self._line}
        line, time_s, last_s = list(self._line), now_s, now_s
        while line:
            rates = [share.slots for share in _shares(line, common, drains)]
            took = [
                left[id(b)] / r if r > 0 else math.inf for b, r in zip(line, rates, strict=True)
            ]
            span_s = min(took)
            if math.isinf(span_s):
                break
            time_s += span_s
            for batch, rate in zip(line, rates, strict=True):
                left[id(batch)] -= rate * span_s
            ended = line.pop(took.index(span_s))
            if ended in drains[host].batches:
                last_s = time_s
        return last_s

    def _drain(self, host: int, until_s: float) -> _Drain:
        """A host that takes no new tasks. Only batches with slots have tasks on it."""
        running = tuple(batch for batch in self._line if batch.share.slots > 0)
        return _Drain(self._hosts[host][1], until_s, running)

    def close_host(self, host: int, until_s: float) -> None:
        """Release a host: it runs what it has begun until `until_s`."""
        if host in self._joined and until_s > self._now_s:
            self._drains[host] = self._drain(host, until_s)
        self._hosts.pop(host, None)
        self._distribute()

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Remove a slot, which decides nothing here."""
        self._slots[operator].pop(slot)
        return now_s

    def fail_host(self, host: int, now_s: float) -> None:
        """Lose a host; what its tasks have done is kept."""
        self._now_s = max(self._now_s, now_s)
        self._drains.pop(host, None)
        super().fail_host(host, now_s)
        self._distribute()


def _shares(line: Sequence[SharedBatch], common: float, drains: dict[int, _Drain]) -> list[_Share]:
    """The slots of each batch, the first in line first. common: slots of hosts that stay."""
    free, leaving = float(common), {host: float(d.slots) for host, d in drains.items()}
    found = []
    for batch in line:
        wanted, taken = batch.most, dict[int, float]()
        for host, drain in drains.items():
            if wanted > 0 and leaving[host] > 0 and batch in drain.batches:
                taken[host] = min(wanted, leaving[host])
                leaving[host] -= taken[host]
                wanted -= taken[host]
        pool = min(wanted, free)
        free -= pool
        found.append(_Share(pool, taken))
    return found
