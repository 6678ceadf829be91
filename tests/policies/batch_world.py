"""A deterministic application in micro-batches, small enough to see that it is right.

Queries with known costs share the slots of all hosts evenly while their batches run. One call of
`turn` runs the batches of ten seconds and lets a stack decide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from tidegate.model import (
    BatchReading,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import Policy
from tidegate.theory.batch_cost import BatchSample, BatchSamples, estimate


@dataclass
class Query:
    """A query with its true cost, and what it has measured so far."""

    name: str
    rate_per_s: Callable[[float], float]
    slo_s: float
    overhead_s: float = 0.5
    fixed_work_s: float = 0.0
    service_s: float = 0.0005
    trigger_s: float = 5.0
    max_rows: float | None = None
    tasks: int | None = None
    heard: bool = True
    held_at_most: float | None = None
    noise: random.Random | None = None
    begins_s: float = 0.0
    queue: float = 0.0
    arrived_to_s: float = 0.0
    samples: BatchSamples = field(default_factory=BatchSamples)
    durations_s: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    done: float = 0.0

    def factor(self) -> float:
        """A random factor with a deviation of a fifth, 1 without noise."""
        return 1.0 if self.noise is None else max(0.3, self.noise.gauss(1, 0.2))

    def arrive(self, until_s: float) -> float:
        """Let items arrive up to a time, and return how many came."""
        steps = max(1, math.ceil(until_s - self.arrived_to_s))
        step_s = (until_s - self.arrived_to_s) / steps
        more = sum(
            self.rate_per_s(self.arrived_to_s + (n + 0.5) * step_s) * step_s for n in range(steps)
        )
        self.queue += more
        self.arrived_to_s = until_s
        return more


class BatchWorld:
    """Queries on hosts; hosts come `startup_s` after they were planned."""

    def __init__(
        self, queries: list[Query], hosts: int, slots: int, most: int, startup_s: float = 10.0
    ) -> None:
        self.queries, self.slots, self.most, self.startup_s = queries, slots, most, startup_s
        self.now_s = 0.0
        self.up_s = {f"host-{n + 1}": 0.0 for n in range(hosts)}
        self.leased = hosts
        self.history: list[int] = []
        self.late: list[tuple[float, str, float]] = []
        self.reasons: list[str] = []

    @property
    def running(self) -> float:
        """Slots that run now."""
        return float(sum(up <= self.now_s for up in self.up_s.values()) * self.slots)

    def _busy_with(self, query: Query) -> float:
        """Slots of a batch: all that run now, shared by the queries that have items."""
        running = self.running
        active = sum(bool(q.queue or q.rate_per_s(q.arrived_to_s)) for q in self.queries)
        share = running / max(1, active)
        return min(share, query.tasks or share, query.held_at_most or share)

    def run_batches(self, until_s: float) -> None:
        """Run all batches that begin before a time."""
        for query in self.queries:
            query.done = 0.0
            while query.begins_s < until_s:
                begin_s = query.begins_s
                query.arrive(begin_s)
                rows = min(query.queue, query.max_rows or math.inf)
                if not rows:
                    query.begins_s = begin_s + max(query.trigger_s, 1.0)
                    continue
                slots = self._busy_with(query)
                work_s = query.factor() * (query.fixed_work_s + rows * query.service_s)
                took_s = query.factor() * query.overhead_s + work_s / slots
                waited_s = query.queue / max(query.rate_per_s(begin_s), 1e-9)
                query.queue -= rows
                query.done += rows
                available = min(self.running, query.tasks or self.running)
                query.samples.add(BatchSample(rows, took_s, work_s, slots, available=available))
                query.durations_s.append(took_s)
                query.delays_s.append(waited_s + took_s)
                if waited_s + took_s > query.slo_s:
                    self.late.append((begin_s, query.name, waited_s + took_s))
                query.begins_s = begin_s + max(query.trigger_s, took_s)
        self.now_s = until_s

    def snapshot(self, window_s: float) -> Snapshot:
        """What is measured now."""
        share = min(1.0, self.slots / len(self.queries))
        names = [q.name for q in self.queries]
        operators = tuple(
            Operator(q.name, Resources(share), slo_s=q.slo_s, max_instances=q.tasks)
            for q in self.queries
        )
        topology = Topology(
            operators,
            tuple(Source(f"to-{name}") for name in names),
            tuple(Edge(f"to-{name}", name) for name in names),
        )
        hosts = tuple(
            Host(name, Resources(self.slots), "running" if up <= self.now_s else "starting")
            for name, up in self.up_s.items()
        )
        instances = tuple(
            InstanceReading(f"{name}-{n + 1}", name, host.id)
            for n, host in enumerate(hosts)
            for name in names
        )
        return Snapshot(
            self.now_s,
            topology,
            HostOffer(Resources(self.slots), max_hosts=self.most),
            hosts,
            instances,
            tuple(self._reading(q, window_s) for q in self.queries if q.heard),
            Latency(max((q.delays_s[-1] for q in self.queries if q.delays_s), default=None)),
            interval_s=window_s,
            leased_so_far=self.leased,
        )

    def _reading(self, query: Query, window_s: float) -> OperatorReading:
        rate = query.rate_per_s(self.now_s - 0.1)
        cost = estimate(query.samples.kept())
        if cost is None:
            return OperatorReading(query.name, rate, 0.0, queue_length=query.queue)
        batches = BatchReading(
            query.trigger_s,
            tuple(query.durations_s[-10:]),
            cost.overhead.value,
            cost,
            query.max_rows,
            f"maxOffsetsPerTrigger={query.max_rows:.0f}" if query.max_rows else "",
        )
        return OperatorReading(
            query.name,
            arrival_rate_per_s=rate,
            processed_per_s=query.done / window_s,
            service_time_s=cost.per_row.value or None,
            queue_length=query.queue,
            batches=batches,
            delay=Latency(query.delays_s[-1], p95_s=query.delays_s[-1]),
        )

    def apply(self, plan: Plan) -> None:
        """Lease and release hosts."""
        wanted = set(plan.deployment.hosts)
        for host in [h for h in self.up_s if h not in wanted]:
            del self.up_s[host]
        for host in sorted(wanted - self.up_s.keys()):
            self.up_s[host] = self.now_s + self.startup_s
            self.leased += 1

    def run(self, stack: Policy, turns: int, interval_s: float = 10.0) -> list[int]:
        """Hosts after each turn."""
        memory = stack.initial_memory(0)
        for _ in range(turns):
            self.run_batches(self.now_s + interval_s)
            plan, memory = stack.decide(self.snapshot(interval_s), memory)
            self.reasons += [r.text for r in plan.reasons] + [b.why for b in plan.bindings]
            self.apply(plan)
            self.history.append(len(self.up_s))
        return self.history


def changes(history: list[int]) -> int:
    """How often the number of hosts changed."""
    return sum(a != b for a, b in pairwise(history))
