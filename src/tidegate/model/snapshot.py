"""What was measured: hosts, instances, operators, micro-batches and latency at one moment.

Three sets of hosts and instances are distinguished:

- **running**: it works now;
- **requested**: it was requested and has not been released, so it is running or starting;
- **planned**: a policy plans it; applying the plan turns planned into requested.

All values are frozen. A missing measurement is `None`, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import compress, starmap
from operator import ne
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from tidegate.codec import Sorted, Value
from tidegate.errors import InputError
from tidegate.model.leases import HostOffer, Lease, LeaseEnd
from tidegate.model.plan import Deployment, Instance
from tidegate.model.topology import Operator, ResourceName, Resources, Topology
from tidegate.units import finite
from tidegate.values import derived

__all__ = [
    "NO_LATENCY",
    "BatchCost",
    "BatchReading",
    "Estimate",
    "FirstBatch",
    "Host",
    "HostStatus",
    "InstanceReading",
    "InstanceStatus",
    "Latency",
    "Once",
    "OperatorReading",
    "Rates",
    "Snapshot",
]

T = TypeVar("T")
MOST_INSTANCES = 200_000
"""Instances that are remembered."""
FEW = 50
"""If fewer than one instance in `FEW` has moved, what was derived from the others is kept."""
_instance = cache(Instance)
"""An instance that stays where it is, is the same object in each turn: it need not be made again,
and a comparison of two deployments sees at once that it has not changed."""
HostStatus = Literal["starting", "running", "draining"]
InstanceStatus = Literal["starting", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class Host(Value):
    """A leased machine, cluster or executor, and how busy it is.

    Attributes:
        id: Its name.
        capacity: Its resources.
        status: Whether it starts, runs or drains.
        utilisation: Share of its CPU in use, 0 to 1 (above 1 under overload), None when it was not
            measured.
        memory_share: Share of its memory that its instances need, None when memory is not limited
            or was not measured.
        network_share: Share of its network in use, None when it is not limited or was not measured.
        limits: Resources besides CPU that are limited (``memory_mb``, ``network_mbps``): where the
            share of one is missing, it was not measured.
        lease: Its lease, None when it is not paid for.
        images: Images of operators that are cached on it.
        executor: Spark's id of the executor that it has at this moment, None when there is none.
        address: Name or IP address of the machine on which that executor runs, None when unknown.
        pod: Name of the executor's pod on Kubernetes.
        container: Id of the executor's container on YARN.
        excluded: Spark gives the executor no tasks for a while, because tasks failed there. Such a
            host counts as draining.
    """

    id: str
    capacity: Resources
    status: HostStatus = "running"
    utilisation: float | None = None
    lease: Lease | None = None
    images: Annotated[frozenset[str], Sorted] = frozenset()
    executor: str | None = None
    address: str | None = None
    pod: str | None = None
    container: str | None = None
    excluded: bool = False
    memory_share: float | None = None
    network_share: float | None = None
    limits: Annotated[frozenset[str], Sorted] = frozenset()

    def __post_init__(self) -> None:
        # Compared here first: the names for a message cost time at every turn.
        for share in (self.utilisation, self.memory_share, self.network_share):
            if share is not None and not 0 <= share < math.inf:
                for name in ("utilisation", "memory_share", "network_share"):
                    if getattr(self, name) is not None:
                        finite(getattr(self, name), f"host {self.id}: {name}", low=0)

    @property
    def pressure(self) -> float | None:
        """Share of its most used resource; None when its CPU or one of its limits was not measured.

        >>> Host("h", Resources(2), utilisation=0.5, network_share=0.9).pressure
        0.9
        """
        most, memory, network = self.utilisation, self.memory_share, self.network_share
        if (
            most is None
            or (memory is None and "memory_mb" in self.limits)
            or (network is None and "network_mbps" in self.limits)
        ):
            return None
        # Written out for speed: policies ask this of each host at every turn.
        if memory is not None and memory > most:
            most = memory
        if network is not None and network > most:
            most = network
        return most

    @property
    def tightest(self) -> ResourceName:
        """The resource of which the largest share is used; CPU if two are equal.

        >>> Host("h", Resources(2), utilisation=0.5, network_share=0.9).tightest
        'network_mbps'
        """
        used = self.utilisation or 0.0
        memory, network = self.memory_share or 0.0, self.network_share or 0.0
        if used >= max(memory, network):
            return "cpu_cores"
        return "memory_mb" if memory >= network else "network_mbps"


@dataclass(frozen=True, slots=True)
class InstanceReading(Instance):
    """An instance and its measurements.

    load: resources in use, None when not measured; processed_per_s: items finished per second;
    latest_processed_per_s: the same over the last second, where that is measured.
    """

    status: InstanceStatus = "running"
    load: Resources | None = None
    processed_per_s: float | None = None
    latest_processed_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate(Value):
    """An estimated quantity with the interval in which it is believed to lie.

    Attributes:
        value: The best guess.
        low: Lower end of the interval.
        high: Upper end of the interval.
        identified: Whether the data separate this quantity from the others. If not, the interval
            contains every value that the data allow, and a policy must be careful.
    """

    value: float
    low: float
    high: float
    identified: bool = True


@dataclass(frozen=True, slots=True)
class BatchCost(Value):
    """What a micro-batch of n rows costs on k task slots: D = o + (W + n·s)/k.

    Attributes:
        overhead: o, the part that no slot shortens (planning, offsets, commit, skew), in seconds.
        fixed_work: W, slot-seconds of work in each batch however many rows it has (task launches,
            state commits).
        per_row: s, slot-seconds of work for each row.
        skew_s: The part of the overhead that is due to a task that takes longer than the others,
            in seconds; None when task times are unknown.
        slots: Task slots that recent batches really held, on average; None when unknown.
        useful_slots: Slots beyond which the longest task alone decides how long a batch takes;
            None when task times are unknown.
        held_share: Share of the slots that a batch could use which recent batches really held, 0
            to 1: other queries hold the rest, or tasks do not follow each other without gaps. None
            when unknown.
    """

    overhead: Estimate
    fixed_work: Estimate
    per_row: Estimate
    skew_s: float | None = None
    slots: float | None = None
    useful_slots: float | None = None
    held_share: float | None = None


@dataclass(frozen=True, slots=True)
class BatchReading(Value):
    """The micro-batches of a query.

    Attributes:
        trigger_interval_s: Trigger interval in seconds; zero when each batch starts as soon as the
            last one has ended.
        recent_durations_s: Durations of the recent batches in seconds, oldest first.
        overhead_s: The part of a batch that more processors do not shorten, in seconds; None when
            it was not measured.
        cost: The three terms of a batch's duration, None when they were not measured.
        max_rows: Most rows that the sources admit in a batch, None for no limit.
        admission: What limits the rows of a batch, such as ``maxOffsetsPerTrigger=5000``; empty
            without a limit.
    """

    trigger_interval_s: float
    recent_durations_s: tuple[float, ...]
    overhead_s: float | None = None
    cost: BatchCost | None = None
    max_rows: float | None = None
    admission: str = ""


@dataclass(frozen=True, slots=True)
class FirstBatch(Value):
    """The first known micro-batch of a query's run: what came before it is unknown.

    No rate and no delay counts its rows, since both need the batch before. They have waited at
    least for the batch itself.

    Attributes:
        rows: Its rows.
        duration_s: Its duration in seconds.
        committed_s: When it ended, on the snapshot's clock, in seconds.
    """

    rows: float
    duration_s: float
    committed_s: float


@dataclass(frozen=True, slots=True)
class Latency(Value):
    """Latency of items in seconds; at_least: whether the figures are lower bounds."""

    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    at_least: bool = False


NO_LATENCY = Latency()


@dataclass(frozen=True)
class OperatorReading(Value):
    """Measurements of an operator since the last turn, over all of its instances.

    Attributes:
        operator: Its name.
        arrival_rate_per_s: Items that were offered, per second: shed ones count.
        processed_per_s: Items that were processed, per second: shed ones do not count.
        dropped_per_s: Items that were shed or found a full queue, per second.
        service_time_s: Mean time for which one item keeps an instance busy, in seconds.
        arrival_scv: Squared coefficient of variation of the times between arrivals.
        service_scv: Squared coefficient of variation of the service times.
        queue_length: Waiting items.
        recent_durations_s: Time in the operator, waiting included, of recently sampled items, in
            seconds, oldest first.
        pending_tasks: Tasks that wait in the scheduler, where there is one.
        running_tasks: Tasks that the scheduler runs.
        batches: Its micro-batches, where the operator is a streaming query.
        delay: Processing delay of its items: from when they could be read to when their result was
            committed. The SLO is judged by it.
        event_age: Age of its items by their own time stamps when their result was committed; late
            data is old by design.
        backlog_s: Time in which the waiting items could be processed at the present throughput, in
            seconds.
        state_mb: Memory of its state, in MB.
        first_batch: The first batch of the query's run, which no rate counts; None without rows.
        shed_per_s: Those of the dropped items that were shed on request, per second.
        latest_arrival_per_s: Items that were offered in the last second, where that is measured.
        latest_processed_per_s: Items that were processed in the last second.
        source_wait_s: Time that its sources took at the last batch to say what there is to read, or
            have taken by now if that is longer, in seconds. Long when a source does not answer.
    """

    operator: str
    arrival_rate_per_s: float | None = None
    processed_per_s: float | None = None
    dropped_per_s: float | None = None
    service_time_s: float | None = None
    arrival_scv: float | None = None
    service_scv: float | None = None
    queue_length: float | None = None
    recent_durations_s: tuple[float, ...] | None = None
    pending_tasks: int | None = None
    running_tasks: int | None = None
    batches: BatchReading | None = None
    delay: Latency = NO_LATENCY
    event_age: Latency = NO_LATENCY
    backlog_s: float | None = None
    state_mb: float | None = None
    first_batch: FirstBatch | None = None
    shed_per_s: float | None = None
    latest_arrival_per_s: float | None = None
    latest_processed_per_s: float | None = None
    source_wait_s: float | None = None

    def __post_init__(self) -> None:
        # Compared here first: the names for a message cost time at every turn.
        for value in (self.arrival_rate_per_s, self.service_time_s, self.queue_length):
            if value is not None and not (type(value) is float and 0 <= value < math.inf):
                for name in ("arrival_rate_per_s", "service_time_s", "queue_length"):
                    if getattr(self, name) is not None:
                        finite(getattr(self, name), f"operator {self.operator}: {name}", low=0)
                return

    @classmethod
    def unchecked(cls, **values: Any) -> OperatorReading:
        """A reading of values that are known to be valid, in a third of the time.

        values: fields by name; the others have their defaults.
        """
        reading = object.__new__(cls)
        object.__setattr__(reading, "__dict__", {**_NO_READING, **values})
        return reading

    def changed(self, **values: Any) -> OperatorReading:
        """The reading with other values, which are known to be valid, by the name of the field.

        `dataclasses.replace` checks the reading again and takes several times as long.
        """
        reading = object.__new__(type(self))
        object.__setattr__(reading, "__dict__", {**self.__dict__, **values})
        return reading


_NO_READING = dict(vars(OperatorReading("")))


class Once(Generic[T]):
    """A value that is computed when it is first asked for, and kept.

    make: computes it from what follows; it must return the same value at any time.
    """

    __slots__ = ("_make", "_of", "_value")

    def __init__(self, make: Callable[..., T], *of: Any) -> None:
        self._make: Callable[..., T] | None = make
        self._of = of

    def __call__(self) -> T:
        """The value."""
        if self._make is not None:
            self._value, self._make = self._make(*self._of), None
            self._of = ()
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self(),)  # a copy in another process has the value


def _known(value: T) -> Once[T]:
    return Once(_same, value)


def _same(value: T) -> T:
    return value


class Rates(NamedTuple):
    """Items per second by operator, None where they were not measured.

    arrived: offered to the operator. processed: by all of its instances.
    """

    arrived: Mapping[str, float | None]
    processed: Mapping[str, float | None]


class _Later:
    """A field that is computed on first use, by the function given to `Snapshot.unchecked`.

    It is empty when no function was given, which is also the default of the field.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._function = name, f"{name}_later"

    def __get__(self, snapshot: Any, owner: type) -> Any:
        if snapshot is None:
            return ()
        value = snapshot.__dict__.get(self._function, tuple)()
        return snapshot.__dict__.setdefault(self._name, value)


def _later() -> Any:
    return _Later()


@dataclass(frozen=True)
class Snapshot(Value):
    """All measurements at one moment, which is all that a policy may know.

    Attributes:
        time_s: Time on the world's clock, in seconds (Unix time when live, from zero in a
            simulation).
        topology: The operators and how they are connected.
        offer: The hosts that can be leased.
        hosts: The leased hosts, in the order of their leases.
        instances: The instances on these hosts.
        operators: Measurements by operator.
        latency: End-to-end latency, from when items could be read to their results.
        event_age: The same from the items' own time stamps, where they have any.
        batches: Micro-batches of the slowest query, where there are micro-batches.
        interval_s: Time until the next decision, in seconds, None when unknown.
        leased_so_far: Number of hosts ever leased, so that new hosts get new names.
        ended: Leases that ended since the last snapshot, where the world knows when.
        own_slots: Whether a query works only on the slots of its instances, and not on any slot
            that is free, None when unknown or if there is one query only.
    """

    time_s: float
    topology: Topology
    offer: HostOffer
    hosts: tuple[Host, ...] = _later()
    instances: tuple[InstanceReading, ...] = _later()
    operators: tuple[OperatorReading, ...] = _later()
    latency: Latency = NO_LATENCY
    batches: BatchReading | None = None
    interval_s: float | None = None
    leased_so_far: int = 0
    ended: tuple[LeaseEnd, ...] = ()
    event_age: Latency = NO_LATENCY
    own_slots: bool | None = None

    def __post_init__(self) -> None:
        finite(self.time_s, "time_s")
        known = {host.id for host in self.hosts}
        if len(known) != len(self.hosts):
            raise InputError("hosts", [h.id for h in self.hosts], "unique by id")
        names = self.topology.by_name
        # Checking all at once is faster; the culprit is searched for only when there is one.
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
        """A snapshot of values that are known to be consistent, without checks.

        values: all fields by name, and any derived value that is already known. Functions
        `hosts_later`, `instances_later`, `operators_later`, `rates_later`, `queues_later` and
        `loads_later` can replace these, since many policies never use them, and
        `utilisations_later` the utilisation of hosts without limits besides CPU. A function must
        return the same value at any time; with `Once`, copies of the snapshot share it.
        """
        snapshot = object.__new__(cls)
        object.__setattr__(snapshot, "__dict__", values)  # a new dictionary at each call
        return snapshot

    def with_operators(self, operators: tuple[OperatorReading, ...]) -> Snapshot:
        """The snapshot with other readings of the same operators.

        Hosts and instances that were not asked for so far are not computed.
        """
        return self._with(operators=operators)

    def with_arrivals_times(self, factor: float, operators: Iterable[str]) -> Snapshot:
        """The snapshot with the arrival rates of some operators multiplied by a factor.

        Readings that were not asked for so far are not computed.
        """
        chosen, (arrived, processed) = set(operators), self.rates
        more = {
            name: rate * factor if rate is not None and name in chosen else rate
            for name, rate in arrived.items()
        }
        read = self.__dict__.get("operators_later") or (lambda: self.operators)

        def readings() -> tuple[OperatorReading, ...]:
            return tuple(
                reading.changed(arrival_rate_per_s=rate * factor)
                if (rate := reading.arrival_rate_per_s) is not None and reading.operator in chosen
                else reading
                for reading in read()
            )

        same: dict[str, Any] = {
            kind: () for kind in ("batched", "delayed") if not getattr(self, kind)
        }
        if "queues_later" in self.__dict__:
            same["queues_later"] = self.__dict__["queues_later"]
        return self._with(operators_later=Once(readings), rates=Rates(more, processed), **same)

    def _with(self, **values: Any) -> Snapshot:
        same = self.__dict__.copy()
        for name in _OF_READINGS:
            same.pop(name, None)
        return Snapshot.unchecked(**same, **values)

    def _refuse_instance(self, known: set[str]) -> None:
        names = self.topology.by_name
        seen: set[str] = set()
        for instance in self.instances:
            if instance.operator not in names or instance.host not in known or instance.id in seen:
                shown = f"{instance.id} ({instance.operator} on {instance.host})"
                allowed = "unique, of an operator in the topology, on a host in the snapshot"
                raise InputError("instance", shown, allowed)
            seen.add(instance.id)

    @derived
    def host(self) -> dict[str, Host]:
        """Hosts by id."""
        return {host.id: host for host in self.hosts}

    @derived
    def capacities(self) -> dict[str, Resources]:
        """Capacity by host, in lease order."""
        return {host.id: host.capacity for host in self.hosts}

    @derived
    def reading(self) -> dict[str, OperatorReading]:
        """Readings by operator; a reading without measurements where there is none."""
        given = {reading.operator: reading for reading in self.operators}
        return {name: given.get(name) or OperatorReading(name) for name in self.topology.by_name}

    @derived
    def batched(self) -> tuple[OperatorReading, ...]:
        """Readings of the operators that work in micro-batches."""
        return tuple(reading for reading in self.operators if reading.batches is not None)

    @derived
    def delayed(self) -> tuple[OperatorReading, ...]:
        """Readings of the operators whose processing delay was measured."""
        return tuple(reading for reading in self.operators if reading.delay.p95_s is not None)

    @derived
    def rates(self) -> Rates:
        """Items per second of each operator, in topology order."""
        known: Once[Rates] | None = self.__dict__.get("rates_later")
        if known is not None:
            return known()
        reading = self.reading
        return Rates(
            {name: one.arrival_rate_per_s for name, one in reading.items()},
            {name: one.processed_per_s for name, one in reading.items()},
        )

    @derived
    def queues(self) -> Mapping[str, float | None]:
        """Waiting items by operator, None where they were not counted."""
        known: Once[Mapping[str, float | None]] | None = self.__dict__.get("queues_later")
        if known is not None:
            return known()
        return {name: one.queue_length for name, one in self.reading.items()}

    @derived
    def loads(self) -> Mapping[str, Resources]:
        """Resources in use by instance, where they were measured."""
        known: Once[Mapping[str, Resources]] | None = self.__dict__.get("loads_later")
        if known is not None:
            return known()
        return {one.id: one.load for one in self.instances if one.load is not None}

    @derived
    def running_hosts(self) -> tuple[Host, ...]:
        """Running hosts, in lease order."""
        return tuple([host for host in self.hosts if host.status == "running"])

    @derived
    def hosts_running(self) -> int:
        """Number of running hosts; without computing the hosts where all are known to run."""
        known = self.__dict__.get("running")
        return len(self.running_hosts if known is None else known.hosts)

    @derived
    def utilisations(self) -> Mapping[str, float | None]:
        """Utilisation by running host, in lease order, None where it was not measured."""
        known: Once[Mapping[str, float | None]] | None = self.__dict__.get("utilisations_later")
        if known is not None:
            return known()
        return {host.id: host.utilisation for host in self.running_hosts}

    @derived
    def pressures(self) -> Mapping[str, float | None]:
        """The pressure of each running host (`Host.pressure`), in lease order."""
        if "utilisations_later" in self.__dict__:
            return self.utilisations
        return {host.id: host.pressure for host in self.running_hosts}

    @derived
    def running(self) -> Deployment:
        """The running deployment; the same object as `requested` where all of that runs."""
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

    @derived
    def requested(self) -> Deployment:
        """The requested deployment: what runs or starts, without what drains or stops."""
        kept = {host.id: None for host in self.hosts if host.status != "draining"}
        staying: Sequence[InstanceReading] = self.instances
        if len(kept) < len(self.hosts) or "stopping" in [one.status for one in staying]:
            staying = [i for i in staying if i.status != "stopping" and i.host in kept]
        return _deployment(
            tuple(kept),
            tuple([one.id for one in staying]),
            tuple([one.operator for one in staying]),
            tuple([one.host for one in staying]),
        )

    @derived
    def unrequested(self) -> tuple[Instance, ...]:
        """Instances that are not requested any more: they stop, or their host drains."""
        requested = self.requested.by_id
        return tuple(instance for instance in self.instances if instance.id not in requested)

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        return self.topology.by_name[name]

    def service_time_s(self, name: str) -> float | None:
        """Mean service time of an operator: measured, else declared, else missing."""
        measured = self.reading[name].service_time_s
        return measured if measured is not None else self.operator(name).service_time_s

    def backlog(self, name: str) -> float | None:
        """Items that wait for an operator longer than necessary; None when not measured.

        These are all waiting items, except in micro-batches: items that arrived since the last
        batch started wait for the next one in any case. If a batch takes longer than half of the
        SLO, the items beyond that half count as backlog too, since an item that waits for one such
        batch and is processed in the next is late.
        """
        if not self.batched:
            return self.queues[name]
        reading = self.reading[name]
        waiting, batches = reading.queue_length, reading.batches
        if waiting is None or batches is None or reading.arrival_rate_per_s is None:
            return waiting
        limit_s = self.operator(name).slo_s
        period_s = max((batches.trigger_interval_s, *batches.recent_durations_s[-1:]))
        usual_s = period_s if limit_s is None else min(period_s, limit_s / 2)
        rate = reading.arrival_rate_per_s
        return max(0.0, waiting - rate * usual_s, rate * (period_s - usual_s))

    def external_rates(self) -> dict[str, float] | None:
        """Items per second from outside at each entry; None when a rate is missing.

        This is the arrival rate of the entry minus the rate at which operators send items to it.
        """
        return None if self._outside is None else self._outside.copy()

    @derived
    def _outside(self) -> dict[str, float] | None:
        arrived, edges = self.rates.arrived, self.topology.edges_to_entries
        entries = self.topology.entries
        # Entries and rates are in topology order.
        every = len(entries) == len(arrived)
        outside: dict[str, Any] = dict(arrived) if every else {n: arrived[n] for n in entries}
        if None in outside.values():
            return None
        if not edges:
            return outside
        for edge in edges:
            rate = arrived[edge.origin]
            if rate is None:
                return None
            outside[edge.target] -= rate * edge.ratio
        return {name: rate if rate > 0.0 else 0.0 for name, rate in outside.items()}

    def missing(self, needs: Iterable[str]) -> tuple[str, ...]:
        """Which of the measurements in `needs` are absent, as ``subject.measurement``.

        needs: names such as ``host.utilisation``, ``instance.load``, ``operator.queue_length``,
        ``latency.mean_s`` or ``batches``. Draining and starting hosts need no measurements, and an
        operator without arrivals needs no service time.
        """
        absent: list[str] = []
        for need in needs:
            kind, _, name = need.partition(".")
            if need == "host.utilisation":  # which is known without hosts
                absent += [f"{h}.{name}" for h, used in self.utilisations.items() if used is None]
            elif kind == "host":
                absent += [f"{h.id}.{name}" for h in self.running_hosts if getattr(h, name) is None]
            elif kind == "instance":
                absent += [
                    f"{i.id}.{name}"
                    for i in self.instances
                    if i.status == "running" and getattr(i, name) is None
                ]
            elif kind == "operator" and name == "service_time_s":
                absent += [
                    f"{o}.{name}"
                    for o, r in self.reading.items()
                    # Where nothing arrived, there was nothing to measure and nothing is needed.
                    # Batches whose rows cost nothing that could be measured have a known cost.
                    if self.service_time_s(o) is None
                    and r.arrival_rate_per_s != 0
                    and (r.batches is None or r.batches.cost is None)
                ]
            elif need == "operator.queue_length":  # which is known without readings
                absent += [f"{o}.{name}" for o, waiting in self.queues.items() if waiting is None]
            elif kind == "operator":
                absent += [
                    f"{o}.{name}" for o, r in self.reading.items() if getattr(r, name) is None
                ]
            elif (kind == "latency" and getattr(self.latency, name) is None) or (
                kind == "batches" and self.batches is None
            ):
                absent.append(need)
        return tuple(absent)


def _deployment(
    hosts: tuple[str, ...], names: tuple[str, ...], operators: tuple[str, ...], on: tuple[str, ...]
) -> Deployment:
    """The deployment of instances with these names and operators, each on a host.

    Most snapshots have the placement of the one before, and then the same object: what was derived
    from it stands, and a comparison of two plans sees at once that nothing has changed. Where a few
    instances have moved, what was derived from the others stands.
    """
    if _instance.cache_info().currsize > MOST_INSTANCES:
        _instance.cache_clear()
    last = _last_placement(hosts, names, operators)
    made: Deployment | None = None
    if last:
        was_on, before = last[0]
        if on == was_on:
            return before
        moved = list(compress(zip(names, operators, on, strict=True), map(ne, on, was_on)))
        if FEW * len(moved) < len(names):
            made = before.with_moved(starmap(_instance, moved))
    if made is None:
        made = Deployment(hosts, tuple(map(_instance, names, operators, on)))
    last[:] = [(on, made)]
    return made


@lru_cache(maxsize=2)
def _last_placement(
    hosts: tuple[str, ...], names: tuple[str, ...], operators: tuple[str, ...]
) -> list[tuple[tuple[str, ...], Deployment]]:
    """Where these instances were last, and the deployment; empty at first, to be filled."""
    return []


_OF_READINGS = (
    "operators", "operators_later", "reading", "rates", "rates_later", "queues", "queues_later",
    "_outside", "batched", "delayed",
)  # fmt: skip
"""What a snapshot keeps of its readings, in the form of `Snapshot.unchecked`."""
