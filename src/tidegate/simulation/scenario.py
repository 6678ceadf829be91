"""A scenario: a workload, a topology, an offer of hosts and a latency target.

A scenario works with every style of policy. Policies of style ``engines`` and ``instances`` scale
operators. Policies of style ``placement`` move operators with one instance each; for them the
topology is split into shards, which share the same items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.errors import TopologyError
from tidegate.model import Deployment, HostOffer, Instance
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing import Style
from tidegate.simulation import (
    BatchSettings,
    CloudSettings,
    FluidCloud,
    MicroBatchCloud,
    SimulatedCloud,
)
from tidegate.units import finite
from tidegate.workloads import Workload, peak_per_s
from tidegate.workloads.protocol import FloatArray, generator

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Scenario", "Sharded", "scenario_for", "scenario_on"]

SHARD_CHUNK_S = 60.0


@dataclass(frozen=True)
class Scenario:
    """The conditions of a backtest.

    Args:
        topology: What runs.
        offer: What can be leased.
        workload: When items arrive.
        slo_s: End-to-end latency target, from the arrival of an item until all items derived from
            it are done, in seconds.
        interval_s: Time between two decisions, in seconds.
        duration_s: Duration, in seconds.
        settings: How the simulated cloud behaves.
        initial_hosts: Hosts at the start, each with instances of all operators.
        shards: Copies of the topology, with one instance of each operator, for placement policies.
        batches: How a Spark application in micro-batches behaves, None for item-level worlds.
    """

    topology: Topology
    offer: HostOffer
    workload: Workload
    slo_s: float
    interval_s: float
    duration_s: float
    settings: CloudSettings
    initial_hosts: int = 1
    shards: int = 40
    batches: BatchSettings | None = None

    @cached_property
    def visits(self) -> dict[str, float]:
        """Mean number of items at each operator for an item from outside."""
        return self.topology.arrival_rates({source.name: 1.0 for source in self.topology.sources})

    @cached_property
    def bottleneck_s(self) -> float:
        """Work of an item from outside at the busiest operator, in seconds.

        Operators with a limited number of instances count only if all are limited.
        """
        return _bottleneck_s(self.topology, self.visits)

    @cached_property
    def rounds(self) -> int:
        """Number of instances of every operator that fit on a host."""
        return _rounds(self.topology, self.offer.capacity)

    def world(
        self, style: Style, seed: int = 0, fluid: bool = False
    ) -> SimulatedCloud | MicroBatchCloud:
        """A new world for a policy of that style.

        seed: random seed of service times and start-ups. fluid: whether to use the cheaper, less
        exact fluid world, if there is one.
        """
        if self.batches is not None:
            return self._batch_world(self.batches, style, seed)
        topology, workload = self.topology, self.workload
        if style == "placement":
            topology = sharded_topology(topology, self.shards)
            workload = Sharded(workload, self.shards, _prefix(self.topology))
        return (FluidCloud if fluid else SimulatedCloud)(
            topology,
            self.offer,
            workload,
            seed=seed,
            initial=self.initial(topology),
            settings=self.settings,
        )

    def _batch_world(self, batches: BatchSettings, style: Style, seed: int) -> MicroBatchCloud:
        # A chain has no shards: each of its queries would have a single slot.
        pooled = style == "placement" and len(self.topology.operators) == 1
        topology = self.topology
        if pooled:
            batches = replace(batches, tasks=topology.operators[0].max_instances)
            topology = sharded_topology(topology, self.shards)
        return MicroBatchCloud(
            topology,
            self.offer,
            self.workload,
            seed=seed,
            initial=self.initial(topology),
            settings=batches,
            pooled=pooled,
        )

    def initial(self, topology: Topology) -> Deployment:
        """Full hosts at the start, or shards spread evenly over them."""
        hosts = [f"host-{n}" for n in range(1, self.initial_hosts + 1)]
        single = all(operator.max_instances == 1 for operator in topology.operators)
        placed: list[Instance] = []
        if single:
            for n, operator in enumerate(topology.operators):
                placed.append(Instance(f"{operator.name}-1", operator.name, hosts[n % len(hosts)]))
            return Deployment(tuple(hosts), tuple(placed))
        rounds = _rounds(topology, self.offer.capacity)
        for operator in topology.operators:
            most = operator.max_instances or 10**9
            for n in range(1, min(most, rounds * len(hosts)) + 1):
                home = hosts[(n - 1) % len(hosts)]
                placed.append(Instance(f"{operator.name}-{n}", operator.name, home))
        return Deployment(tuple(hosts), tuple(placed))


def _bottleneck_s(topology: Topology, visits: dict[str, float]) -> float:
    some = [o for o in topology.operators if o.max_instances is None] or topology.operators
    return max(visits[o.name] * (o.service_time_s or 0.0) for o in some)


def _together(topology: Topology) -> Resources:
    """Resources of one instance of each operator."""
    return sum((operator.demand for operator in topology.operators), Resources(0))


def _rounds(topology: Topology, capacity: Resources) -> int:
    """Number of instances of every operator that fit on a host, at least 1."""
    together = _together(topology)
    shares = [
        have / want
        for have, want in (
            (capacity.cpu_cores, together.cpu_cores),
            (capacity.memory_mb, together.memory_mb),
            (capacity.network_mbps, together.network_mbps),
        )
        if want > 0
    ]
    return max(1, math.floor(min(shares, default=1.0) + 1e-9))


def _prefix(topology: Topology) -> str:
    """Prefix of the sources of shards, after ``to-``."""
    return topology.operators[0].name + ("." if len(topology.operators) > 1 else "")


def sharded_topology(topology: Topology, shards: int) -> Topology:
    """A topology split into shards: complete copies with a source each.

    Every operator has one instance in each shard, with an eighth of the memory and network.
    """
    point = "." if len(topology.operators) > 1 else ""
    sources = {source.name for source in topology.sources}
    entry = f"to-{_prefix(topology)}"
    operators: list[Operator] = []
    edges: list[Edge] = []
    for n in range(1, shards + 1):
        for whole in topology.operators:
            size = whole.demand
            demand = Resources(size.cpu_cores, size.memory_mb / 8, size.network_mbps / 8)
            name, image = f"{whole.name}{point}{n}", whole.image_name
            operators.append(replace(whole, name=name, demand=demand, image=image, max_instances=1))
        for edge in topology.edges:
            origin = f"{entry}{n}" if edge.origin in sources else f"{edge.origin}{point}{n}"
            edges.append(Edge(origin, f"{edge.target}{point}{n}", edge.ratio))
    return Topology(
        tuple(operators), tuple(Source(f"{entry}{n + 1}") for n in range(shards)), tuple(edges)
    )


@dataclass(frozen=True)
class Sharded:
    """The items of a workload with one source, distributed at random over the shards.

    The distribution is fixed for each minute, so an item always goes to the same shard.

    base: the workload. shards: number of shards. name: what stands between ``to-`` and the number
    in the names of their sources.
    """

    base: Workload
    shards: int
    name: str = "work"

    @property
    def duration_s(self) -> float:
        """As long as the base."""
        return self.base.duration_s

    def rate(self, t_s: float) -> float:
        """As the base."""
        return self.base.rate(t_s)

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Arrival times by shard."""
        import numpy as np

        times: list[FloatArray] = []
        shards: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        chunk = math.floor(start_s / SHARD_CHUNK_S)
        while chunk * SHARD_CHUNK_S < end_s:
            bounds = (chunk * SHARD_CHUNK_S, (chunk + 1) * SHARD_CHUNK_S)
            (items,) = self.base.arrivals(*bounds).values()
            chosen = generator(self.shards, chunk).integers(0, self.shards, len(items))
            inside = (items >= start_s) & (items < end_s)
            times.append(items[inside])
            shards.append(chosen[inside])
            chunk += 1
        every, to = np.concatenate(times), np.concatenate(shards)
        return {f"to-{self.name}{n + 1}": every[to == n] for n in range(self.shards)}


def scenario_for(
    workload: Workload,
    slo_s: float,
    *,
    billing_unit_s: float = 60.0,
    usd_per_h: float = 1.0,
    rate_per_instance: float | None = None,
    instances_per_host: int = 4,
    startup_s: float = 45.0,
    interval_s: float = 15.0,
    max_hosts: int | None = None,
    penalty_usd: float | None = None,
    service_scv: float = 0.0,
) -> Scenario:
    """A scenario for a trace of which only the rate is known.

    Args:
        workload: When items arrive.
        slo_s: End-to-end latency target, in seconds.
        billing_unit_s: Billing unit of a host, in seconds.
        usd_per_h: Price of a host, in US dollars per hour.
        rate_per_instance: Items per second that one instance can process; None for a rate at which
            ten hosts carry the peak at 70 % utilisation.
        instances_per_host: Instances (and cores) of a host.
        startup_s: Start-up time of a host, in seconds.
        interval_s: Time between two decisions, in seconds.
        max_hosts: Most hosts, None for no limit.
        penalty_usd: Penalty for each late item; None for ten times the cost of processing one.
        service_scv: Variability of service times (0 constant, 1 exponential).
    """
    finite(instances_per_host, "instances_per_host", low=1)
    if rate_per_instance is None:
        rate_per_instance = peak_per_s(workload) / (10 * instances_per_host * 0.7)
    finite(rate_per_instance, "rate_per_instance", above=0)
    source = _source_of(workload)
    work = Operator("work", Resources(1.0, 256), 1 / rate_per_instance, service_scv)
    return scenario_on(
        Topology((work,), (Source(source),), (Edge(source, "work"),)),
        workload,
        slo_s,
        capacity=Resources(instances_per_host, 256 * 8 * instances_per_host, 1000),
        billing_unit_s=billing_unit_s,
        usd_per_h=usd_per_h,
        startup_s=startup_s,
        interval_s=interval_s,
        max_hosts=max_hosts,
        penalty_usd=penalty_usd,
    )


def scenario_on(
    topology: Topology,
    workload: Workload,
    slo_s: float,
    *,
    instances_per_host: int = 1,
    capacity: Resources | None = None,
    billing_unit_s: float = 60.0,
    usd_per_h: float = 1.0,
    startup_s: float = 45.0,
    interval_s: float = 15.0,
    max_hosts: int | None = None,
    penalty_usd: float | None = None,
) -> Scenario:
    """A scenario in which a trace drives the source of a topology.

    An operator without an SLO gets a share of `slo_s`, in proportion to its service time.

    Args:
        topology: With service times and one source, which has the name of the workload's.
        workload: When items arrive.
        slo_s: End-to-end latency target, in seconds.
        instances_per_host: Instances of every operator that fit on a host, without `capacity`.
        capacity: Resources of a host.
        billing_unit_s: Billing unit of a host, in seconds.
        usd_per_h: Price of a host, in US dollars per hour.
        startup_s: Start-up time of a host, in seconds.
        interval_s: Time between two decisions, in seconds.
        max_hosts: Most hosts, None for no limit.
        penalty_usd: Penalty for each late item; None for ten times the cost of processing one.
    """
    finite(slo_s, "slo_s", above=0)
    finite(instances_per_host, "instances_per_host", low=1)
    _check(topology, _source_of(workload))
    (source,) = topology.sources
    visits = topology.arrival_rates({source.name: 1.0})
    whole_s = math.fsum(visits[o.name] * (o.service_time_s or 0.0) for o in topology.operators)
    topology = replace(
        topology,
        operators=tuple(
            replace(o, slo_s=o.slo_s or slo_s * ((o.service_time_s or 0.0) / whole_s))
            for o in topology.operators
        ),
    )
    capacity = capacity or _host_for(topology, instances_per_host)
    rounds = _rounds(topology, capacity)
    per_host_s = _bottleneck_s(topology, visits)
    first, peak = (
        math.ceil(rate * per_host_s / (rounds * 0.7) - 1e-9)
        for rate in (workload.rate(0.0), peak_per_s(workload))
    )
    if penalty_usd is None:
        penalty_usd = 10 * usd_per_h / 3600 * per_host_s / rounds
    limits = [o.max_instances for o in topology.operators if o.max_instances is not None]
    return Scenario(
        topology=topology,
        offer=HostOffer(
            capacity,
            billing_unit_s=billing_unit_s,
            price_per_unit_usd=usd_per_h * billing_unit_s / 3600,
            startup_s=startup_s,
            max_hosts=max_hosts,
        ),
        workload=workload,
        slo_s=slo_s,
        interval_s=interval_s,
        duration_s=workload.duration_s,
        settings=CloudSettings(
            host_startup_s=(startup_s, startup_s),
            instance_startup_s=(1.0, 1.0),
            image_download_s=0.0,
            end_to_end_slo_s=slo_s,
            penalty_usd=penalty_usd,
            decision_s=interval_s,
        ),
        initial_hosts=max(1, first),
        shards=max(1, min(4 * rounds * max(1, peak) // 3, *limits, 10**6)),
    )


def _source_of(workload: Workload) -> str:
    return next(iter(workload.arrivals(0.0, min(1.0, workload.duration_s))))


def _check(topology: Topology, driven: str) -> None:
    """Raise TopologyError if a trace cannot drive the topology."""
    names = [source.name for source in topology.sources]
    if names != [driven]:
        remedy = "a trace drives one source: keep that one, and edges from it"
        raise TopologyError("sources", ", ".join(names), f"one, {driven}", remedy)
    if not any(edge.origin == driven for edge in topology.edges):
        remedy = "add an edge from it, or nothing arrives"
        raise TopologyError(f"source {driven}: edges", 0, "at least 1", remedy)
    for operator in topology.operators:
        if operator.service_time_s is None:
            remedy = "write the seconds for one item, or service_rate_per_s"
            raise TopologyError(f"operator {operator.name}: service_time_s", None, "given", remedy)
        if operator.demand.cpu_cores <= 0:
            key, cores = f"operator {operator.name}: cpu_cores", operator.demand.cpu_cores
            raise TopologyError(key, cores, "above 0", "say what an instance keeps busy")


def _host_for(topology: Topology, instances: int) -> Resources:
    """Resources for a number of instances of every operator, with at least 2 GB per core."""
    one = _together(topology)
    return Resources(
        one.cpu_cores * instances,
        max(one.memory_mb, 2048 * one.cpu_cores) * instances,
        max(1000.0, one.network_mbps * instances),
    )
