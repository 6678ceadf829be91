"""What is planned: a deployment as totals, with the reasons for it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from tidegate.codec import Value
from tidegate.values import derived

__all__ = ["Binding", "Deployment", "Instance", "Plan", "Prediction", "Reason", "Unmet"]

_by_id = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """One copy of an operator on one host."""

    id: str
    operator: str
    host: str


@dataclass(frozen=True)
class Deployment(Value):
    """Hosts and the instances on them, as totals. Two equal deployments need no step between them.

    >>> Deployment(("h2", "h1")) == Deployment(("h1", "h2"))
    True
    """

    hosts: tuple[str, ...]
    instances: tuple[Instance, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", tuple(sorted(self.hosts)))
        object.__setattr__(self, "instances", tuple(sorted(self.instances, key=_by_id)))

    def with_moved(
        self, moved: Iterable[Instance], hosts: Iterable[str] | None = None
    ) -> Deployment:
        """The deployment with some of its instances on other hosts.

        In a large fleet most instances stay, and they are in order already: those that move are
        looked up. What was derived from the others is taken over: with other hosts, the numbers of
        instances.

        moved: the instances as they are to be, each with the id and operator of one that is here.
        hosts: all hosts, None for the same as here.
        """
        instances = list(self.instances)
        pairs: list[tuple[Instance, Instance]] = []
        for one in moved:
            n = bisect_left(instances, one.id, key=_by_id)
            pairs.append((instances[n], one))
            instances[n] = one
        made, known = object.__new__(Deployment), self.__dict__
        made.__dict__["hosts"] = self.hosts if hosts is None else tuple(sorted(hosts))
        made.__dict__["instances"] = tuple(instances)  # in order: there is nothing to sort
        if "counts" in known:
            made.__dict__["counts"] = self.counts
        if hosts is None:
            if "host_names" in known:
                made.__dict__["host_names"] = self.host_names
            if "home" in known:
                made.__dict__["home"] = self.home | {one.id: one.host for _, one in pairs}
            if "by_host" in known:
                made.__dict__["by_host"] = _moved_between(self.by_host, pairs)
        return made

    @derived
    def by_id(self) -> dict[str, Instance]:
        """Instances by id."""
        return {instance.id: instance for instance in self.instances}

    @derived
    def host_names(self) -> frozenset[str]:
        """The hosts as a set."""
        return frozenset(self.hosts)

    @derived
    def by_host(self) -> dict[str, dict[str, Instance]]:
        """Instances by id on each host; hosts in the order of their names."""
        found: dict[str, dict[str, Instance]] = {host: {} for host in self.hosts}
        for instance in self.instances:
            found[instance.host][instance.id] = instance
        return found

    @derived
    def counts(self) -> Counter[str]:
        """Instances by operator."""
        return Counter([instance.operator for instance in self.instances])

    @derived
    def home(self) -> dict[str, str]:
        """Host by instance."""
        return {instance.id: instance.host for instance in self.instances}


def _moved_between(
    by_host: dict[str, dict[str, Instance]], moved: Iterable[tuple[Instance, Instance]]
) -> dict[str, dict[str, Instance]]:
    """Instances on each host after some have moved. moved: each before and after."""
    found = by_host.copy()
    for was, one in moved:
        found[was.host] = {name: i for name, i in found[was.host].items() if name != was.id}
        found[one.host] = dict(sorted([*found[one.host].items(), (one.id, one)]))
    return found


@dataclass(frozen=True, slots=True)
class Reason(Value):
    """A reason for a plan. code: a fixed word, for counting. text: a sentence."""

    code: str
    text: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Unmet(Value):
    """Demand that a plan could not meet. instances: number of instances that found no place."""

    operator: str
    instances: int
    why: str


@dataclass(frozen=True, slots=True)
class Binding(Value):
    """A guard that changed a plan: the number of hosts before and after it, and why."""

    guard: str
    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class Prediction(Value):
    """The effect that the plan should have, so that the next turn can judge it.

    sojourn_s: mean end-to-end time; utilisation: mean over the hosts, 0 to 1;
    capacity_per_s: items per second that could be processed; cost_usd_per_h: price of the hosts;
    hosts_needed: hosts that are needed, where the plan keeps more because they are paid for.
    """

    sojourn_s: float | None = None
    utilisation: float | None = None
    capacity_per_s: float | None = None
    cost_usd_per_h: float | None = None
    hosts_needed: int | None = None


@dataclass(frozen=True, slots=True)
class Plan(Value):
    """The planned deployment, as totals, with the reasons for it.

    Attributes:
        deployment: Hosts and instances.
        reasons: Why the policy planned them.
        predicted: The effect that they should have.
        unmet: Demand that could not be met.
        shed_fraction: Share of the input to drop, 0 to 1, where load shedding is on.
        raw: The policy's own deployment, where a guard changed it.
        bindings: The guards that changed it.
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
        """Number of hosts that the policy planned, before any guard."""
        return len((self.raw or self.deployment).hosts)

    @property
    def bounded_target(self) -> int:
        """Number of hosts after all guards."""
        return len(self.deployment.hosts)
