"""The vocabulary of a decision: what was measured (`Snapshot`) and what is wanted (`Plan`).

Three sets of hosts and instances are never confused:

- **running**: it works now;
- **requested**: it was asked for and has not been given up, so running or still starting;
- **planned**: a policy wants it; applying the plan turns planned into requested.

All values are frozen. A measurement that is missing is `None`, never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.model.leases import HostOffer, Lease, LeaseEnd
from tidegate.model.readings import (
    BatchReading,
    Host,
    HostStatus,
    Instance,
    InstanceReading,
    InstanceStatus,
    Latency,
    OperatorReading,
)
from tidegate.model.topology import Operator, Resources, Topology
from tidegate.units import finite

__all__ = [
    "BatchReading",
    "Binding",
    "Deployment",
    "Host",
    "HostOffer",
    "HostStatus",
    "Instance",
    "InstanceReading",
    "InstanceStatus",
    "Latency",
    "Lease",
    "LeaseEnd",
    "OperatorReading",
    "Plan",
    "Prediction",
    "Reason",
    "Snapshot",
    "Unmet",
]


NO_LATENCY = Latency()


@dataclass(frozen=True)
class Deployment(Value):
    """Hosts, and instances on them, as totals: two equal deployments need no step between them.

    >>> Deployment(("h2", "h1")) == Deployment(("h1", "h2"))
    True
    """

    hosts: tuple[str, ...]
    instances: tuple[Instance, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", tuple(sorted(self.hosts)))
        object.__setattr__(self, "instances", tuple(sorted(self.instances, key=_by_id)))

    @cached_property
    def by_id(self) -> dict[str, Instance]:
        """Instances by id."""
        return {instance.id: instance for instance in self.instances}

    @cached_property
    def counts(self) -> Counter[str]:
        """Instances by operator."""
        return Counter(instance.operator for instance in self.instances)

    @cached_property
    def home(self) -> dict[str, str]:
        """Host by instance."""
        return {instance.id: instance.host for instance in self.instances}


_by_id = attrgetter("id")


class _Later:
    """A field that can be told later: by the function given to `Snapshot.unchecked` in its place.

    Empty where none was given, which is also the field's default.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._teller = name, f"{name}_later"

    def __get__(self, snapshot: Any, owner: type) -> Any:
        if snapshot is None:
            return ()
        told = snapshot.__dict__.get(self._teller, tuple)()
        return snapshot.__dict__.setdefault(self._name, told)


def _later() -> Any:
    return _Later()


@dataclass(frozen=True)
class Snapshot(Value):
    """What was measured at one moment: all that a policy may know.

    time_s: seconds on the world's clock (Unix time when live, from zero in a simulation).
    topology: what runs. offer: what else can be leased.
    hosts: in the order of their leases; instances; operators: what was measured.
    latency: end to end. batches: where the world works in micro-batches (of the slowest query).
    interval_s: seconds until the next decision, None when unknown.
    leased_so_far: hosts ever leased, so that a new one gets a name nobody had.
    ended: leases that ended since the snapshot before, where the world knows when.
    """

    time_s: float
    topology: Topology
    offer: HostOffer
    hosts: tuple[Host, ...] = _later()
    instances: tuple[InstanceReading, ...] = _later()
    operators: tuple[OperatorReading, ...] = ()
    latency: Latency = NO_LATENCY
    batches: BatchReading | None = None
    interval_s: float | None = None
    leased_so_far: int = 0
    ended: tuple[LeaseEnd, ...] = ()

    def __post_init__(self) -> None:
        finite(self.time_s, "time_s")
        known = {host.id for host in self.hosts}
        if len(known) != len(self.hosts):
            raise InputError("hosts", [h.id for h in self.hosts], "unique by id")
        names = self.topology.by_name
        # All at once is quicker than one by one; a culprit is looked for when there is one.
        if not (
            len({instance.id for instance in self.instances}) == len(self.instances)
            and {instance.host for instance in self.instances} <= known
            and {instance.operator for instance in self.instances} <= names.keys()
        ):
            self._refuse_instance(known)
        for reading in self.operators:
            if reading.operator not in names:
                allowed = "an operator of the topology"
                raise InputError("reading of operator", reading.operator, allowed)

    @classmethod
    def unchecked(cls, **values: Any) -> Snapshot:
        """A snapshot of values that are known to go together, as in a world that made them itself.

        values: all fields by name, and any derived value that is known already. In place of
        `hosts` and `instances`, functions `hosts_later` and `instances_later` that tell them: many
        policies never ask. They must tell the same whenever that is.
        """
        snapshot = object.__new__(cls)
        snapshot.__dict__.update(values)
        return snapshot

    def _refuse_instance(self, known: set[str]) -> None:
        names = self.topology.by_name
        seen: set[str] = set()
        for instance in self.instances:
            if instance.operator not in names or instance.host not in known or instance.id in seen:
                shown = f"{instance.id} ({instance.operator} on {instance.host})"
                allowed = "unique, of an operator in the topology, on a host in the snapshot"
                raise InputError("instance", shown, allowed)
            seen.add(instance.id)

    @cached_property
    def host(self) -> dict[str, Host]:
        """Hosts by id."""
        return {host.id: host for host in self.hosts}

    @cached_property
    def capacities(self) -> dict[str, Resources]:
        """What each host has to give, in lease order."""
        return {host.id: host.capacity for host in self.hosts}

    @cached_property
    def reading(self) -> dict[str, OperatorReading]:
        """Readings by operator; one without any measurement where none was given."""
        given = {reading.operator: reading for reading in self.operators}
        return {name: given.get(name) or OperatorReading(name) for name in self.topology.by_name}

    @cached_property
    def running_hosts(self) -> tuple[Host, ...]:
        """Hosts that work now, in lease order."""
        return tuple(host for host in self.hosts if host.status == "running")

    @cached_property
    def running(self) -> Deployment:
        """The deployment that works now; where all that was asked for does, that very one."""
        if len(self.running_hosts) == len(self.hosts) and all(
            instance.status == "running" for instance in self.instances
        ):
            return self.requested
        return Deployment(
            tuple(host.id for host in self.running_hosts),
            tuple(
                Instance(i.id, i.operator, i.host) for i in self.instances if i.status == "running"
            ),
        )

    @cached_property
    def requested(self) -> Deployment:
        """The deployment asked for: running or starting, and not on its way out."""
        kept = {host.id for host in self.hosts if host.status != "draining"}
        return Deployment(
            tuple(kept),
            tuple(
                Instance(i.id, i.operator, i.host)
                for i in self.instances
                if i.status != "stopping" and i.host in kept
            ),
        )

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        return self.topology.by_name[name]

    def service_time_s(self, name: str) -> float | None:
        """Mean service time of an operator: measured, else declared, else missing."""
        measured = self.reading[name].service_time_s
        return measured if measured is not None else self.operator(name).service_time_s

    def backlog(self, name: str) -> float | None:
        """Items that wait for an operator longer than they must; None when not measured.

        That is all of them, but in micro-batches: there what came since the last batch began waits
        for the next in any case. A batch longer than half the SLO is no excuse, since what waits
        for one and is then in the next is late: what it holds beyond that is a backlog too.
        """
        reading = self.reading[name]
        waiting, batches = reading.queue_length, reading.batches
        if waiting is None or batches is None or reading.arrival_rate_per_s is None:
            return waiting
        limit_s = self.operator(name).slo_s
        period_s = max(batches.trigger_interval_s, *batches.recent_durations_s[-1:])
        usual_s = period_s if limit_s is None else min(period_s, limit_s / 2)
        rate = reading.arrival_rate_per_s
        return max(0.0, waiting - rate * usual_s, rate * (period_s - usual_s))

    def external_rates(self) -> dict[str, float] | None:
        """Items per second from outside at each entry; None when a rate that this needs is missing.

        What arrives at an entry less what other operators send there.
        """
        entries = self.topology.entries
        outside: dict[str, float] = {}
        for name in entries:
            rate = self.reading[name].arrival_rate_per_s
            if rate is None:
                return None
            outside[name] = rate
        for edge in self.topology.edges:
            if edge.target in outside and edge.origin in self.topology.by_name:
                rate = self.reading[edge.origin].arrival_rate_per_s
                if rate is None:
                    return None
                outside[edge.target] -= rate * edge.ratio
        return {name: max(0.0, rate) for name, rate in outside.items()}

    def missing(self, needs: Iterable[str]) -> tuple[str, ...]:
        """Which of the measurements in `needs` are absent, as ``subject.measurement``.

        needs: names such as ``host.utilisation``, ``instance.load``, ``operator.queue_length``,
        ``latency.mean_s`` or ``batches``. A draining or starting host owes no measurement.
        """
        absent: list[str] = []
        for need in needs:
            kind, _, name = need.partition(".")
            if kind == "host":
                absent += [f"{h.id}.{name}" for h in self.running_hosts if getattr(h, name) is None]
            elif kind == "instance":
                absent += [
                    f"{i.id}.{name}"
                    for i in self.instances
                    if i.status == "running" and getattr(i, name) is None
                ]
            elif kind == "operator" and name == "service_time_s":
                absent += [f"{o}.{name}" for o in self.reading if self.service_time_s(o) is None]
            elif kind == "operator":
                absent += [
                    f"{o}.{name}" for o, r in self.reading.items() if getattr(r, name) is None
                ]
            elif (kind == "latency" and getattr(self.latency, name) is None) or (
                kind == "batches" and self.batches is None
            ):
                absent.append(need)
        return tuple(absent)


@dataclass(frozen=True, slots=True)
class Reason(Value):
    """Why a plan is as it is. code: a fixed word for counting; text: a sentence for people."""

    code: str
    text: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Unmet(Value):
    """Demand that a plan could not meet. instances: how many of `operator` found no place."""

    operator: str
    instances: int
    why: str


@dataclass(frozen=True, slots=True)
class Binding(Value):
    """A guard that changed a plan: hosts wanted before it, hosts left after it, and why."""

    guard: str
    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class Prediction(Value):
    """What the plan should bring about, so that the next turn can judge it.

    sojourn_s: mean end-to-end time; utilisation: mean over the hosts, 0 to 1;
    capacity_per_s: items per second that could be processed; cost_usd_per_h: price of the hosts.
    """

    sojourn_s: float | None = None
    utilisation: float | None = None
    capacity_per_s: float | None = None
    cost_usd_per_h: float | None = None


@dataclass(frozen=True, slots=True)
class Plan(Value):
    """The deployment that is wanted, as totals, with its reasons.

    shed_fraction: share of the input to drop, 0 to 1, where load shedding is switched on.
    raw: the deployment that the policy itself wanted, where a guard changed it; bindings: which.
    """

    deployment: Deployment
    reasons: tuple[Reason, ...] = ()
    predicted: Prediction = Prediction()
    unmet: tuple[Unmet, ...] = ()
    shed_fraction: float = 0.0
    raw: Deployment | None = None
    bindings: tuple[Binding, ...] = field(default=())

    @property
    def raw_target(self) -> int:
        """Hosts that the policy wanted, before any guard."""
        return len((self.raw or self.deployment).hosts)

    @property
    def bounded_target(self) -> int:
        """Hosts planned after all guards."""
        return len(self.deployment.hosts)
