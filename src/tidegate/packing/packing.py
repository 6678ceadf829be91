"""A mutable copy of the deployment, for a policy to try changes on.

A policy reads a frozen snapshot and returns a frozen plan. In between it tries changes on a
`Packing`, which lives for one decision, knows the room that is left on each host, and becomes a
plan at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal, cast

from tidegate.model import (
    Deployment,
    Instance,
    Plan,
    Prediction,
    Reason,
    Snapshot,
    Unmet,
)
from tidegate.model.topology import Resources
from tidegate.theory.placement import Item, first_fit_decreasing
from tidegate.units import natural
from tidegate.values import derived

__all__ = ["MOST_NEW_HOSTS", "Measure", "Packing", "Style", "capacity_of", "most_hosts", "sizes_of"]

Measure = Literal["demand", "load"]
Style = Literal["engines", "instances", "placement"]

_NOTHING = Prediction()
MOST_NEW_HOSTS = 1_000
"""Hosts that one decision leases at most."""


class Packing:
    """Which instance is on which host, during one decision.

    It starts from the *requested* deployment, so that hosts that are starting are not requested
    twice. An operator without an instance (a new one, or one whose host died) gets one at once.

    snapshot: the measurements.
    measure: the size of an instance: its reserved ``demand``, or its measured ``load`` (its demand
        where the load is missing).
    fill: share of a host's CPU, and of its other resources in `Host.limits`, up to which instances
        may be placed on it, 0 to 1. A new host has the limits of those that there are.
    deployment: another deployment to start from; then no instance is started at once.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        measure: Measure = "demand",
        fill: float = 1.0,
        deployment: Deployment | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.fill = fill
        self.reasons: list[Reason] = []
        self.unmet: list[Unmet] = []
        self._start = start = deployment or snapshot.requested
        self._measure: Measure = measure
        self._moved: set[str] = set()
        """Instances that were started, moved or stopped."""
        self._rooms: dict[str, list[float]] = {}
        """What is left of the hosts that something asked about; others are as at the start."""
        self._reserving: set[str] = set()
        """Instances that count with their demand, even if their load is known."""
        # Instances of a snapshot are of operators in its topology: lengths are enough to compare.
        if deployment is None and len(start.counts) < len(snapshot.topology.by_name):
            self._revive()

    # Most decisions change nothing and never need these. All are computed from the initial
    # deployment, so that the time of the computation does not matter.

    @derived
    def home(self) -> dict[str, str]:
        """The host of each instance."""
        return self._start.home.copy()

    @derived
    def hosts(self) -> dict[str, dict[str, Instance]]:
        """The instances on each host by name, hosts in lease order.

        To read, not to change: those of a host are the initial deployment's own until one of them
        moves (`_own`), as most never do.
        """
        start = self._start.by_host
        return {host: start[host] for host in self._first_hosts}

    @derived
    def _first_hosts(self) -> tuple[str, ...]:
        """The hosts of the initial deployment, in lease order."""
        kept = self._start.host_names
        known = tuple([host for host in self.snapshot.capacities if host in kept])
        if len(known) == len(kept):
            return known
        return tuple(dict.fromkeys((*known, *self._start.hosts)))

    @derived
    def _counts(self) -> dict[str, int]:
        """Instances by operator, in any order; some that have none are left out."""
        return dict(self._start.counts)

    @property
    def sizes(self) -> dict[str, Resources]:
        """Size of each initial instance; `size` has that of one, also of one that was started."""
        return sizes_of(self.snapshot, self._start, self._measure)

    @property
    def free(self) -> dict[str, list[float]]:
        """What is left on each host, in lease order. `room` has that of one host, in less time."""
        if not self._rooms:
            self._find_rooms()
        return {host: self.room(host) for host in self.hosts}

    def copy(self) -> Packing:
        """An independent packing in the same state, to try changes that may be discarded."""
        twin = object.__new__(Packing)
        twin.__dict__.update(self.__dict__)
        start = self._start.by_host
        twin.hosts = {
            host: placed if placed is start.get(host) else placed.copy()
            for host, placed in self.hosts.items()
        }
        twin._rooms = {host: left.copy() for host, left in self._rooms.items()}
        for name in ("home", "_counts", "_numbers", "_moved", "_reserving", "reasons", "unmet"):
            if name in self.__dict__:
                setattr(twin, name, self.__dict__[name].copy())
        return twin

    # --- asking -------------------------------------------------------------------------------

    @property
    def host_count(self) -> int:
        """Number of hosts; the same as ``len(packing.hosts)``, without listing them first."""
        return len(self.hosts if "hosts" in self.__dict__ else self._start.host_names)

    def has(self, host: str) -> bool:
        """Whether a host is leased; the same as ``host in packing.hosts``, without listing them."""
        return host in (self.hosts if "hosts" in self.__dict__ else self._start.host_names)

    @property
    def counts(self) -> dict[str, int]:
        """Instances by operator, in topology order."""
        have = self._counts
        return {name: have.get(name, 0) for name in self.snapshot.topology.by_name}

    def count(self, operator: str) -> int:
        """Instances of one operator."""
        return self._counts.get(operator, 0)

    def instances_of(self, operator: str) -> list[Instance]:
        """The instances of one operator, by host in lease order."""
        return [
            i for placed in self.hosts.values() for i in placed.values() if i.operator == operator
        ]

    def size(self, instance: Instance) -> Resources:
        """The size of an instance."""
        if self._measure == "load" and instance.id not in self._reserving:
            load = self.snapshot.loads.get(instance.id)
            if load is not None:
                return load
        return self.snapshot.topology.by_name[instance.operator].demand

    def room(self, host: str) -> list[float]:
        """Cores, megabytes and megabits per second that are left on a host."""
        left = self._rooms.get(host)
        if left is None:  # nothing has changed on it so far
            left = self._rooms[host] = self._whole(self._capacity(host))
            by_load, operators = self._measure == "load", self.snapshot.topology.by_name
            for instance in self._start.by_host[host].values():
                size = self.size(instance) if by_load else operators[instance.operator].demand
                left[0] -= size.cpu_cores
                left[1] -= size.memory_mb
                left[2] -= size.network_mbps
        return left

    def instance(self, name: str) -> Instance:
        """The instance of that name."""
        return self.hosts[self.home[name]][name]

    def fits(self, size: Resources, host: str) -> bool:
        """Whether a host has room for an instance of this size."""
        left = self._rooms.get(host) or self.room(host)
        return (
            size.cpu_cores <= left[0] + 1e-9
            and size.memory_mb <= left[1] + 1e-6
            and size.network_mbps <= left[2] + 1e-6
        )

    def received(self, host: str) -> bool:
        """Whether the host has received an instance since the decision began."""
        if not self._moved:
            return False
        here, before = self.home, self._start.home
        return any(here.get(name) == host != before.get(name) for name in self._moved)

    def may_start(self, operator: str, more: int = 1) -> bool:
        """Whether the operator may have `more` further instances."""
        limit = self.snapshot.operator(operator).max_instances
        return limit is None or self.count(operator) + more <= limit

    # --- trying -------------------------------------------------------------------------------

    def lease(self) -> str | None:
        """A new, empty host, or None when there are no more (see `most_hosts`)."""
        offer = self.snapshot.offer
        if len(self.hosts) >= most_hosts(self.snapshot):
            return None
        if offer.max_hosts is not None:
            # A draining host has not been released yet, so it still counts against the offer.
            draining = sum(host.status == "draining" for host in self.snapshot.hosts)
            if len(self.hosts) + draining >= offer.max_hosts:
                return None
        self._leased += 1
        host = f"host-{self._leased}"
        self.hosts[host] = {}
        self._rooms[host] = self._whole(offer.capacity)
        return host

    def release(self, host: str) -> None:
        """Release a host and stop the instances on it."""
        home, counts = self.home, self._counts
        for name, instance in self.hosts.pop(host).items():
            del home[name]
            counts[instance.operator] -= 1
            self._moved.add(name)
        self._rooms.pop(host, None)

    def keep_host(self, host: str) -> None:
        """Keep a leased host, without instances, that the initial deployment releases."""
        self.hosts[host] = {}
        self._rooms[host] = self._whole(self._capacity(host))

    def keep(self, instance: Instance) -> None:
        """Keep an instance that the initial deployment stops, on the host that it names."""
        self._reserving.add(instance.id)
        self._put(instance)

    def start(self, operator: str, host: str) -> Instance:
        """Start an instance of an operator on a host, whether or not there is room."""
        self._numbers[operator] = number = self._numbers[operator] + 1
        instance = Instance(f"{operator}-{number}", operator, host)
        self._put(instance)
        return instance

    def stop(self, instance_id: str) -> Instance:
        """Stop an instance."""
        host = self.home.pop(instance_id)
        self._moved.add(instance_id)
        left = self.room(host)
        instance = self._own(host).pop(instance_id)
        size = self.size(instance)
        left[0] += size.cpu_cores
        left[1] += size.memory_mb
        left[2] += size.network_mbps
        self._counts[instance.operator] -= 1
        return instance

    def move(self, instance_id: str, host: str) -> None:
        """Move an instance to another host, whether or not there is room."""
        # In full, since an evacuation does this for each instance of a host.
        was = self.home.pop(instance_id)
        gone = self._own(was).pop(instance_id)
        self._own(host)[instance_id] = Instance(instance_id, gone.operator, host)
        self.home[instance_id] = host
        self._moved.add(instance_id)
        size, left, less = self.size(gone), self.room(was), self.room(host)
        left[0] += size.cpu_cores
        left[1] += size.memory_mb
        left[2] += size.network_mbps
        less[0] -= size.cpu_cores
        less[1] -= size.memory_mb
        less[2] -= size.network_mbps

    def place(
        self, instance_ids: Iterable[str], avoid: Collection[str] = (), lease: bool = False
    ) -> list[str]:
        """Move instances by first fit decreasing, near their neighbours; return those left over.

        avoid: hosts that receive nothing; lease: whether to lease new hosts for instances without
        room. Instances that are left over stay where they are.
        """
        waiting = list(instance_ids)
        waiting = self._fit(waiting, [host for host in self.hosts if host not in avoid])
        while waiting and lease:
            host = self.lease()
            if host is None:
                break
            left = self._fit(waiting, [host])
            if len(left) == len(waiting):
                # Larger than the share that may be filled: it gets a host for itself.
                sizes = {name: self.size(self.instance(name)) for name in waiting}
                largest = max(waiting, key=lambda name: sizes[name].cpu_cores)
                if not sizes[largest].fits(self.snapshot.offer.capacity):
                    self.release(host)
                    break
                self.move(largest, host)
                left = [name for name in waiting if name != largest]
            waiting = left
        return waiting

    def evacuate(self, host: str, avoid: Collection[str] = ()) -> bool:
        """Move all instances of a host elsewhere and release it; change nothing if one is left."""
        before = {name: instance.host for name, instance in self.hosts[host].items()}
        if self.place(before, avoid={host, *avoid}):
            for name, home in before.items():
                if self.home[name] != home:
                    self.move(name, home)
            return False
        self.release(host)
        return True

    # --- the result ---------------------------------------------------------------------------

    @property
    def deployment(self) -> Deployment:
        """The resulting deployment; the initial object if nothing changed."""
        if "hosts" not in self.__dict__:  # nothing can have changed
            return self._start
        home, before = self.home, self._start.home
        moved = {name for name in self._moved if home.get(name) != before.get(name)}
        if not moved and self.hosts.keys() == self._start.host_names:
            return self._start
        unique = len(before) == len(self._start.instances)
        if unique and moved <= home.keys() and moved <= before.keys():
            there = (self.hosts[home[name]][name] for name in moved)
            return self._start.with_moved(there, self.hosts)
        # Those that stay are in order already, which makes it quick to sort all.
        stay = [i for i in self._start.instances if i.id not in moved]
        new = [self.hosts[home[name]][name] for name in moved if name in home]
        return Deployment(tuple(self.hosts), (*stay, *new))

    def plan(self, predicted: Prediction | None = None) -> Plan:
        """The packing as a plan, with the reasons added so far."""
        predicted = predicted or _NOTHING
        cost = self.host_count * self.snapshot.offer.usd_per_h
        return Plan(
            self.deployment,
            reasons=tuple(self.reasons),
            predicted=Prediction(
                predicted.sojourn_s,
                predicted.utilisation,
                predicted.capacity_per_s,
                cost,
                predicted.hosts_needed,
            ),
            unmet=tuple(self.unmet),
        )

    def because(self, code: str, text: str, subject: str = "") -> None:
        """Add a reason."""
        self.reasons.append(Reason(code, text, subject))

    # --- inside -------------------------------------------------------------------------------

    @derived
    def _leased(self) -> int:
        """The highest number in the name of a host; most decisions do not need it."""
        known = (*self.snapshot.capacities, *self._start.hosts)
        return max(self.snapshot.leased_so_far, 0, *map(_number, known))

    @derived
    def _numbers(self) -> dict[str, int]:
        """The highest number in the names of each operator's instances."""
        numbers = dict.fromkeys(self.snapshot.topology.by_name, 0)
        groups = [self.snapshot.unrequested, self.snapshot.requested.instances]
        if self._start is not self.snapshot.requested:
            groups.append(self._start.instances)
        for group in groups:
            for instance in group:
                number, operator = _number(instance.id), instance.operator
                numbers[operator] = max(numbers[operator], number)
        return numbers

    @derived
    def _shares(self) -> tuple[float, float, float]:
        """The shares of a host's cores, memory and network that may be filled."""
        fill = self.fill
        if fill == 1.0:  # hosts that nobody has asked for so far are not computed
            return 1.0, 1.0, 1.0
        limits: frozenset[str] = frozenset().union(*(host.limits for host in self.snapshot.hosts))
        return (
            fill,
            fill if "memory_mb" in limits else 1.0,
            fill if "network_mbps" in limits else 1.0,
        )

    def _find_rooms(self) -> None:
        """Find the room on all hosts of the initial deployment: of many, in less time than `room`.

        That takes instance by instance in the order of their names, as memory has them.
        """
        have, else_has = self.snapshot.capacities, self.snapshot.offer.capacity
        rooms = self._rooms
        known, room = else_has, self._whole(else_has)
        for host in self._first_hosts:
            capacity = have.get(host, else_has)
            if capacity is not known:  # as of most hosts
                known, room = capacity, self._whole(capacity)
            rooms[host] = room.copy()
        start = self._start
        sizes = _sizes(self.snapshot, start, self._measure)
        for size, host in zip(sizes, start.home.values(), strict=True):
            left = rooms[host]
            left[0] -= size.cpu_cores
            left[1] -= size.memory_mb
            left[2] -= size.network_mbps

    def _capacity(self, host: str) -> Resources:
        """The capacity of a host, without listing the hosts of the snapshot."""
        return self.snapshot.capacities.get(host, self.snapshot.offer.capacity)

    def _whole(self, capacity: Resources) -> list[float]:
        """What may be filled of an empty host."""
        cores, memory, network = self._shares
        return [
            capacity.cpu_cores * cores,
            capacity.memory_mb * memory,
            capacity.network_mbps * network,
        ]

    def _own(self, host: str) -> dict[str, Instance]:
        """The instances on a host, to change."""
        placed = self.hosts[host]
        if placed is self._start.by_host.get(host):
            placed = self.hosts[host] = placed.copy()
        return placed

    def _put(self, instance: Instance) -> None:
        name, host = instance.id, instance.host
        left = self.room(host)
        self._own(host)[name] = instance
        self.home[name] = host
        self._moved.add(name)
        size = self.size(instance)
        left[0] -= size.cpu_cores
        left[1] -= size.memory_mb
        left[2] -= size.network_mbps
        self._counts[instance.operator] = self.count(instance.operator) + 1

    def _fit(self, names: list[str], hosts: list[str]) -> list[str]:
        """Place the instances that fit on these hosts; return the others."""
        if not names or not hosts:
            return names
        index = {host: j for j, host in enumerate(hosts)}
        moving = set(names)
        placed = [self.instance(name) for name in names]
        items = [Item(one.id, one.operator, self.size(one)) for one in placed]
        neighbours = self.snapshot.topology.neighbours
        near = {other for item in items for other in neighbours[item.operator]}
        located: dict[str, list[int]] = {operator: [] for operator in near}
        if near:
            for host, j in index.items():
                for instance in self.hosts[host].values():
                    if instance.operator in near and instance.id not in moving:
                        located[instance.operator].append(j)
        if not self._rooms:
            self._find_rooms()
        rooms = [self._rooms.get(host) or self.room(host) for host in hosts]
        found = first_fit_decreasing(items, rooms, neighbours, located)
        for item, j in zip(items, found, strict=True):
            if j >= 0:
                self.move(item.id, hosts[j])
        return [item.id for item, j in zip(items, found, strict=True) if j < 0]

    def _revive(self) -> None:
        """First fit decreasing for operators without an instance, hosts of neighbours first."""
        gone = [name for name, count in self.counts.items() if count == 0]
        gone.sort(key=lambda name: -self.snapshot.operator(name).demand.cpu_cores)
        for operator in gone:
            size = self.snapshot.operator(operator).demand
            hosts = self._nearest_first(operator)
            host = next((host for host in hosts if self.fits(size, host)), None)
            if host is None and size.fits(self.snapshot.offer.capacity):
                host = self.lease()
            if host is None:
                self.unmet.append(Unmet(operator, 1, "no host has room for its only instance"))
                continue
            self.start(operator, host)
            self.because("revive", f"{operator} had no instance, so one starts on {host}", operator)

    def _nearest_first(self, operator: str) -> list[str]:
        """The hosts in lease order, those with a neighbouring operator before the others."""
        near = self.snapshot.topology.neighbours[operator]
        if not near:
            return list(self.hosts)
        apart = {
            host: not any(instance.operator in near for instance in placed.values())
            for host, placed in self.hosts.items()
        }
        return sorted(apart, key=lambda host: apart[host])


def most_hosts(snapshot: Snapshot) -> int:
    """The largest number of hosts that a decision may want: the offer's, or `MOST_NEW_HOSTS` more.

    A measurement that is wrong by orders of magnitude must not keep the loop busy for minutes, or
    lease a data centre. The turns after it go on where the demand is real.
    """
    here = len(snapshot.requested.hosts) + MOST_NEW_HOSTS
    most = snapshot.offer.max_hosts
    return here if most is None else min(here, most)


def capacity_of(snapshot: Snapshot, host: str) -> Resources:
    """Capacity of a host; that of the offer for a host that is not leased yet."""
    known = snapshot.host.get(host)
    return known.capacity if known else snapshot.offer.capacity


def sizes_of(snapshot: Snapshot, deployment: Deployment, measure: Measure) -> dict[str, Resources]:
    """Size of each instance: its load if that is requested and measured, else its demand."""
    return dict(zip(deployment.home, _sizes(snapshot, deployment, measure), strict=True))


def _sizes(snapshot: Snapshot, deployment: Deployment, measure: Measure) -> Sequence[Resources]:
    """Size of each instance, in the order of `Deployment.home`."""
    operators, loads = snapshot.topology.by_name, snapshot.loads if measure == "load" else {}
    if loads:
        found = list(map(loads.get, deployment.home))
        if all(found):  # every load was measured
            return cast(list[Resources], found)
    each: Collection[Instance] = deployment.instances
    if len(each) > len(deployment.home):  # a plan with two instances of one id, which is refused
        each = deployment.by_id.values()
    return [loads.get(i.id) or operators[i.operator].demand for i in each]


@lru_cache(maxsize=1 << 16)
def _number(name: str) -> int:
    """The number after the last dash of an id, 0 without one."""
    return natural(name.rpartition("-")[2]) or 0
