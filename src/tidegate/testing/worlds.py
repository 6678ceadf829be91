"""Two small worlds: one recorded, one random.

Neither simulates a cloud; `tidegate.simulation` does. `RecordedWorld` replays snapshots.
`ImaginaryWorld` draws plausible snapshots at random, so that a policy can be checked in thousands
of situations per second.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

from tidegate.errors import BackendError
from tidegate.loop.backend import Outcome
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    HostStatus,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.steps import diff
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing import Packing
from tidegate.policies.base import Style

__all__ = ["ImaginaryWorld", "RecordedWorld"]


class RecordedWorld:
    """Replays snapshots; `plans` keeps the plans, which change nothing.

    Every `observe` returns the next snapshot.
    """

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = iter(snapshots)
        self._current: Snapshot | None = None
        self.plans: list[Plan] = []

    def observe(self) -> Snapshot:
        """The next snapshot; BackendError at the end of the recording."""
        self._current = next(self._snapshots, None)
        if self._current is None:
            raise BackendError("the recording has ended: there are no more snapshots")
        return self._current

    def apply(self, plan: Plan) -> Outcome:
        """Record the plan."""
        self.plans.append(plan)
        return Outcome()


class ImaginaryWorld:
    """Random operators on random hosts with random measurements, some of which are missing.

    seed: random seed; the same seed gives the same world. style: the kind of policy that it is for
    (operators with one instance each for ``placement``).
    """

    def __init__(self, seed: int, style: Style = "instances") -> None:
        self._random = random.Random(seed)
        self._style = style
        self.topology = self._draw_topology()
        self.offer = HostOffer(
            Resources(4, 7168, 1000),
            billing_unit_s=self._random.choice([60.0, 600.0, 3600.0]),
            price_per_unit_usd=1.0,
            max_hosts=self._random.choice([None, 6, 12]),
        )
        self.time_s = 1_000.0
        self._hosts: dict[str, tuple[float, HostStatus]] = {}  # id: (leased at, status)
        self._requested = Deployment(())
        self._leased = 0
        self._rate = self._random.uniform(5, 50)
        self._snapshot = Snapshot(self.time_s, self.topology, self.offer)
        self.apply(self._first_plan())
        self.advance()

    def observe(self) -> Snapshot:
        """The current snapshot; it stays the same until `advance` or `apply`."""
        return self._snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Request the plan; new hosts start, old ones drain, unknown operators are refused."""
        known = self.topology.by_name
        wanted = plan.deployment
        refused = [i for i in wanted.instances if i.operator not in known]
        if refused:
            kept = tuple(i for i in wanted.instances if i.operator in known)
            wanted = Deployment(wanted.hosts, kept)
        steps = diff(self._requested, wanted)
        for step in steps:
            if step.kind == "lease":
                self._hosts[step.host] = (self.time_s, "starting")
                self._leased += 1
            elif step.kind == "release":
                self._hosts[step.host] = (self._hosts[step.host][0], "draining")
        self._requested = wanted
        self._snapshot = self._draw_snapshot()
        return Outcome(steps, tuple(f"start {i.id}: {i.operator} is unknown" for i in refused))

    def advance(self) -> None:
        """Let time pass: hosts start, go or die, and rates change."""
        rng = self._random
        self.time_s += rng.choice([5.0, 15.0, 60.0])
        self._rate = max(0.5, self._rate * rng.uniform(0.5, 2.0))
        for host, (leased_s, status) in list(self._hosts.items()):
            if status == "draining" or (status == "running" and rng.random() < 0.02):
                del self._hosts[host]
            elif status == "starting" and rng.random() < 0.7:
                self._hosts[host] = (leased_s, "running")
        self._requested = Deployment(
            tuple(host for host in self._requested.hosts if host in self._hosts),
            tuple(i for i in self._requested.instances if i.host in self._hosts),
        )
        self._snapshot = self._draw_snapshot()

    # --- drawing ------------------------------------------------------------------------------

    def _draw_topology(self) -> Topology:
        rng = self._random
        single = self._style == "placement"
        names = [f"op{n}" for n in range(1, rng.randint(2, 8 if single else 5))]
        operators = tuple(
            Operator(
                name,
                Resources(rng.choice([0.25, 0.5, 0.75]), rng.uniform(100, 700), 10),
                service_time_s=rng.uniform(0.005, 0.1),
                service_scv=rng.uniform(0, 2),
                slo_s=rng.choice([None, 0.5, 1.0]),
                max_instances=1 if single else rng.choice([None, None, 7]),
            )
            for name in names
        )
        edges = [Edge("input", names[0])]
        edges += [Edge(a, b, rng.uniform(0.2, 1.5)) for a, b in pairwise(names)]
        if len(names) > 1 and rng.random() < 0.3:
            edges.append(Edge(names[-1], names[-1], 0.3))
        return Topology(operators, (Source("input"),), tuple(edges))

    def _first_plan(self) -> Plan:
        packing = Packing(self._snapshot)
        for _ in range(self._random.randint(0, 3)):
            host = packing.lease()
            for operator in self.topology.operators:
                if host and packing.may_start(operator.name):
                    packing.start(operator.name, host)
        return packing.plan()

    def _maybe(self, value: float) -> float | None:
        return None if self._random.random() < 0.05 else value

    def _draw_snapshot(self) -> Snapshot:
        rng = self._random
        used: dict[str, float] = {}
        instances = []
        capacity = self.offer.capacity.cpu_cores
        for instance in self._requested.instances:
            up = self._hosts[instance.host][1] == "running"
            demand = self.topology.by_name[instance.operator].demand
            cores = demand.cpu_cores * rng.uniform(0.1, 1.5)
            used[instance.host] = used.get(instance.host, 0.0) + cores
            load = Resources(cores, demand.memory_mb * rng.uniform(0.5, 1.0), 5)
            instances.append(
                InstanceReading(
                    instance.id,
                    instance.operator,
                    instance.host,
                    "running" if up else "starting",
                    load if up and rng.random() < 0.95 else None,
                    self._maybe(rng.uniform(0, 2 * self._rate)) if up else None,
                )
            )
        hosts = tuple(
            Host(
                host,
                self.offer.capacity,
                status,
                self._maybe(used.get(host, 0.0) / capacity) if status == "running" else None,
                Lease(self.offer.billing_unit_s, self.offer.price_per_unit_usd, leased_s),
                frozenset(rng.sample(sorted(self.topology.by_name), k=1)),
            )
            for host, (leased_s, status) in self._hosts.items()
        )
        return Snapshot(
            self.time_s,
            self.topology,
            self.offer,
            hosts,
            tuple(instances),
            tuple(self._draw_reading(name) for name in self.topology.by_name),
            Latency(mean_s=self._maybe(rng.uniform(0.05, 3))),
            BatchReading(10.0, (rng.uniform(1, 12),)) if rng.random() < 0.7 else None,
            interval_s=rng.choice([None, 60.0]),
            leased_so_far=self._leased,
        )

    def _draw_reading(self, operator: str) -> OperatorReading:
        rng = self._random
        rates = self.topology.arrival_rates({"input": self._rate})
        service_s = self.topology.by_name[operator].service_time_s or 0.1
        return OperatorReading(
            operator,
            arrival_rate_per_s=self._maybe(rates[operator] * rng.uniform(0.9, 1.1)),
            processed_per_s=self._maybe(rates[operator]),
            service_time_s=self._maybe(service_s * rng.uniform(0.8, 1.2)),
            queue_length=self._maybe(float(rng.choice([0, 0, 3, 60, 300]))),
            recent_durations_s=tuple(rng.uniform(0.01, 2) for _ in range(rng.randint(0, 6))),
        )
