"""A scenario: what arrives, what processes it, what can be leased, and what counts as in time.

The same scenario suits every style of policy. Policies of style ``engines`` and ``instances``
scale one operator; those of style ``placement`` move operators that each have one instance, so for
them the operator is cut into shards and the same items are dealt out to these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.model import Deployment, HostOffer, Instance
from tidegate.packing import Style
from tidegate.simulation import (
    BatchSettings,
    CloudSettings,
    FluidCloud,
    MicroBatchCloud,
    SimulatedCloud,
)
from tidegate.topology import Edge, Operator, Resources, Source, Topology
from tidegate.units import finite
from tidegate.workloads import Workload, describe
from tidegate.workloads.protocol import FloatArray, generator

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Scenario", "Sharded", "scenario_for"]

SHARD_CHUNK_S = 60.0


@dataclass(frozen=True)
class Scenario:
    """All that a policy is tried on.

    topology, offer, workload: as everywhere. slo_s: an item is in time when all that came of it is
    done so many seconds after its arrival. interval_s: time between two decisions.
    duration_s: how long it runs. initial_hosts: hosts at the start, each running the operators.
    shards: operators with one instance each that placement policies get, in place of one.
    batches: where the world is a Spark application in micro-batches, how that behaves.
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

    def world(
        self, style: Style, seed: int = 0, fluid: bool = False
    ) -> SimulatedCloud | MicroBatchCloud:
        """A fresh world for a policy of that style.

        seed: of service times and start-ups; fluid: the cheaper, less exact world, where there is
        one.
        """
        if self.batches is not None:
            return self._batch_world(self.batches, style, seed)
        topology, workload = self.topology, self.workload
        if style == "placement":
            topology = sharded_topology(topology, self.shards)
            workload = Sharded(workload, self.shards)
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
        rounds = _rounds(topology, self.offer)
        for operator in topology.operators:
            most = operator.max_instances or 10**9
            for n in range(1, min(most, rounds * len(hosts)) + 1):
                home = hosts[(n - 1) % len(hosts)]
                placed.append(Instance(f"{operator.name}-{n}", operator.name, home))
        return Deployment(tuple(hosts), tuple(placed))


def _rounds(topology: Topology, offer: HostOffer) -> int:
    """How often a host can run one instance of every operator."""
    together = Resources(0)
    for operator in topology.operators:
        together += operator.demand
    shares = [
        have / want
        for have, want in (
            (offer.capacity.cpu_cores, together.cpu_cores),
            (offer.capacity.memory_mb, together.memory_mb),
            (offer.capacity.network_mbps, together.network_mbps),
        )
        if want > 0
    ]
    return max(1, math.floor(min(shares, default=1.0) + 1e-9))


def sharded_topology(topology: Topology, shards: int) -> Topology:
    """A topology of one operator, cut into shards that are fed by a source each.

    A topology of several operators stays as it is, each with one instance at most.
    """
    if len(topology.operators) > 1:
        operators = tuple(replace(o, max_instances=1) for o in topology.operators)
        return replace(topology, operators=operators)
    whole = topology.operators[0]
    demand = Resources(
        whole.demand.cpu_cores, whole.demand.memory_mb / 8, whole.demand.network_mbps / 8
    )
    names = [f"{whole.name}{n}" for n in range(1, shards + 1)]
    return Topology(
        tuple(
            replace(whole, name=name, demand=demand, image=whole.image_name, max_instances=1)
            for name in names
        ),
        tuple(Source(f"to-{name}") for name in names),
        tuple(Edge(f"to-{name}", name) for name in names),
    )


@dataclass(frozen=True)
class Sharded:
    """The items of a workload with one source, dealt out by lot to the sources of the shards.

    The lots are fixed for each minute, so the same item always goes to the same shard.
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
            lots = generator(self.shards, chunk).integers(0, self.shards, len(items))
            inside = (items >= start_s) & (items < end_s)
            times.append(items[inside])
            shards.append(lots[inside])
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
    """A scenario around a trace of which nothing but the rate is known.

    slo_s: end-to-end, in seconds. billing_unit_s, usd_per_h: of a host. startup_s: of a host.
    rate_per_instance: items per second that one instance can do; None: so many that ten hosts carry
    the peak at 70 % utilisation. instances_per_host: cores of a host.
    interval_s: between decisions. penalty_usd: for each late item; None: ten times what it costs
    to process one. service_scv: variability of service times (0 constant, 1 exponential).
    """
    finite(slo_s, "slo_s", above=0)
    finite(instances_per_host, "instances_per_host", low=1)
    known = describe(workload)
    if rate_per_instance is None:
        rate_per_instance = known.peak_per_s / (10 * instances_per_host * 0.7)
    finite(rate_per_instance, "rate_per_instance", above=0)
    peak_hosts = math.ceil(known.peak_per_s / (rate_per_instance * instances_per_host * 0.7))
    first = workload.rate(0.0) / (rate_per_instance * instances_per_host * 0.7)
    service_s = 1 / rate_per_instance
    if penalty_usd is None:
        penalty_usd = 10 * usd_per_h / 3600 * service_s / instances_per_host
    source = next(iter(workload.arrivals(0.0, min(1.0, workload.duration_s))))
    return Scenario(
        topology=Topology(
            (Operator("work", Resources(1.0, 256), service_s, service_scv, slo_s=slo_s),),
            (Source(source),),
            (Edge(source, "work"),),
        ),
        offer=HostOffer(
            Resources(instances_per_host, 256 * 8 * instances_per_host, 1000),
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
        initial_hosts=max(1, math.ceil(first)),
        shards=4 * instances_per_host * max(1, peak_hosts) // 3,
    )
