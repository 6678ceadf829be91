"""The paper's model: each operator is a queue, and all form a Jackson network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.errors import Infeasible, LatencyUnreachable, NotEnoughProcessors
from tidegate.model import Snapshot, Unmet
from tidegate.model.topology import Operator
from tidegate.packing.packing import most_hosts
from tidegate.theory import queueing
from tidegate.theory.queueing import MOST_PROCESSORS, Station, machines_for
from tidegate.values import derived

__all__ = ["JacksonNetwork", "assigned", "fewest_hosts", "read_network", "slots_of_host"]

NEAR_BEST = 1.05
"""Multiple of the best latency of queues that replaces a bound that cannot be met."""


@dataclass(frozen=True)
class JacksonNetwork:
    """The paper's model: each operator is an Erlang queue, and all form a Jackson network.

    stations: the operators with items whose service time is known. external_per_s: items per
    second from outside. kept: processors of the other operators; an idle one has a single one, and
    one whose service time is unknown keeps those that it has.
    """

    stations: tuple[Station, ...]
    external_per_s: float
    kept: Mapping[str, int] = field(default_factory=dict)
    # A decision needs the same counts more than once: what runs, what is requested and what is
    # planned are mostly the same.
    _sojourn_s: dict[tuple[int, ...], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _best: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @derived
    def names(self) -> tuple[str, ...]:
        """The operators."""
        return tuple(station.name for station in self.stations)

    @derived
    def loads(self) -> tuple[float, ...]:
        """Processors that each operator keeps busy."""
        return tuple(station.load for station in self.stations)

    @property
    def limits(self) -> tuple[int | None, ...]:
        """Largest number of processors of each operator."""
        return tuple(station.max_processors for station in self.stations)

    def sojourn_s(self, counts: Sequence[int]) -> float:
        """The mean sojourn time, zero without items."""
        if not self.stations:
            return 0.0
        known, asked = self._sojourn_s, tuple(counts)
        if asked not in known:
            known[asked] = queueing.sojourn_s(self.stations, asked, self.external_per_s)
        return known[asked]

    def fewest(self, bound_s: float, correction: float) -> tuple[int, ...]:
        """The paper's Program 6."""
        counts = queueing.fewest_processors(self.stations, bound_s, self.external_per_s, correction)
        self._best[sum(counts)] = counts  # Theorem 1: no other distribution is better
        return counts

    def assign(self, processors: int) -> tuple[int, ...]:
        """The paper's Algorithm 1."""
        found = self._best.get(processors)
        return found or queueing.assign_processors(self.stations, processors)


def read_network(
    snapshot: Snapshot, *, t_max_s: float, catch_up_s: float, general: bool
) -> JacksonNetwork | None:
    """The network that a snapshot describes, None when it shows nothing about the load.

    t_max_s: the bound, in seconds. catch_up_s: time in which to process a backlog, in seconds.
    general: whether queues have the measured variability.
    """
    external = snapshot.external_rates()
    if external is None:
        return None
    stations, kept = [], {}
    running = snapshot.requested.counts
    for operator in snapshot.topology.operators:
        name, reading = operator.name, snapshot.reading[operator.name]
        rate, service_s = reading.arrival_rate_per_s, snapshot.service_time_s(name)
        if rate == 0 and not reading.queue_length:
            kept[name] = 1
        elif rate is None or not service_s:
            kept[name] = max(1, running[name])
        else:
            stations.append(_station(snapshot, operator, service_s, t_max_s, catch_up_s, general))
    unknown = [name for name in kept if snapshot.reading[name].arrival_rate_per_s != 0]
    if not stations and unknown:
        return None
    outside = sum(external.values())
    if outside <= 0:  # the source is silent, and queues inside still drain
        outside = max((station.arrival_rate_per_s for station in stations), default=0.0)
    return JacksonNetwork(tuple(stations), outside, kept)


def _station(
    snapshot: Snapshot,
    operator: Operator,
    service_s: float,
    t_max_s: float,
    catch_up_s: float,
    general: bool,
) -> Station:
    reading = snapshot.reading[operator.name]
    rate = reading.arrival_rate_per_s or 0.0
    service_scv = operator.service_scv if reading.service_scv is None else reading.service_scv
    arrival_scv = 1.0 if reading.arrival_scv is None else reading.arrival_scv
    # The model describes a steady state; items beyond its usual queue are a backlog.
    backlog = max(0.0, (reading.queue_length or 0.0) - rate * t_max_s)
    extra = backlog / catch_up_s if catch_up_s else 0.0
    return Station(
        operator.name,
        rate + extra,
        1 / service_s,
        arrival_scv if general else 1.0,
        service_scv if general else 1.0,
        operator.max_instances,
    )


def fewest_hosts(
    snapshot: Snapshot,
    network: JacksonNetwork,
    bound_s: float,
    slots: int,
    taken: int,
    correction: float = 1.0,
) -> tuple[int, list[Unmet]]:
    """Number of hosts for the fewest processors, and unmet demand.

    Args:
        snapshot: What was measured.
        network: The operators.
        bound_s: Bound on the mean latency, in seconds.
        slots: Processors of a host.
        taken: Processors that are not for the operators of the network.
        correction: Measured over estimated latency.
    """
    unmet = []
    fewest: tuple[int, ...] = ()
    try:
        while not fewest and network.stations:
            try:
                fewest = network.fewest(bound_s, correction)
            except LatencyUnreachable as error:
                # Close to the best latency; its last millisecond would cost too much.
                unmet.append(Unmet("", 0, str(error)))
                bound_s = NEAR_BEST * error.floor_s
    except NotEnoughProcessors as error:
        # An operator may not have as many instances as it needs: use its maximum.
        unmet.append(Unmet("", error.needed - error.available, str(error)))
        least = (math.floor(min(load, MOST_PROCESSORS)) + 1 for load in network.loads)
        fewest = tuple(min(k, limit or k) for k, limit in zip(least, network.limits, strict=True))
    hosts = max(1, machines_for(sum(fewest), slots, taken))
    most = most_hosts(snapshot)
    if hosts > most:
        short = sum(fewest) - (most * slots - taken)
        unmet.append(Unmet("", short, f"at most {most} hosts are available"))
        hosts = most
    return hosts, unmet


def assigned(network: JacksonNetwork, processors: int) -> tuple[int, ...]:
    """The best distribution, or one by load where a queue grows in any case."""
    if not network.stations:
        return ()
    try:
        return network.assign(processors)
    except Infeasible:
        return _by_load(network.loads, processors)


def slots_of_host(snapshot: Snapshot) -> int:
    """Number of instances of any operators that fit on a new host."""
    capacity, largest = snapshot.offer.capacity, snapshot.topology.largest_demand
    rooms = [
        math.floor(have / want + 1e-9)
        for have, want in (
            (capacity.cpu_cores, largest.cpu_cores),
            (capacity.memory_mb, largest.memory_mb),
            (capacity.network_mbps, largest.network_mbps),
        )
        if want > 0
    ]
    return max(1, min(rooms, default=1))


def _by_load(loads: Sequence[float], processors: int) -> tuple[int, ...]:
    """One processor for each operator, and the others in proportion to the load."""
    counts = [1] * len(loads)
    for _ in range(processors - len(loads)):
        neediest = max(range(len(loads)), key=lambda i: loads[i] / counts[i])
        counts[neediest] += 1
    return tuple(counts)
