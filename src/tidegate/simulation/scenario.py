"""A scenario: what arrives, what processes it, what can be leased, and the latency target.

The same scenario suits every style of policy. Policies of style ``engines`` and ``instances``
scale operators. Policies of style ``placement`` move operators that have one instance each, so
for them the topology is copied into shards and the same items are distributed over the shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from tidegate.model import Deployment, HostOffer, Instance
from tidegate.model.topology import Resources, Topology, sharded_topology
from tidegate.packing import Style
from tidegate.simulation import (
    BatchSettings,
    CloudSettings,
    FluidCloud,
    MicroBatchCloud,
    SimulatedCloud,
)
from tidegate.workloads import Predictable, Workload
from tidegate.workloads.counting import Counts, counted
from tidegate.workloads.protocol import FloatArray, generator

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Scenario", "Sharded"]

SHARD_CHUNK_S = 60.0


@dataclass(frozen=True)
class Scenario:
    """Everything that a policy is tested against.

    Args:
        topology: Operators, with the sources that the workload drives: one, or several for a
            Spark application with several queries.
        offer: Hosts that can be leased.
        workload: Items that arrive.
        slo_s: Latency target from an item's arrival until everything that follows from it is
            done, in seconds. Independent queries of a Spark application are judged by their own
            (`Operator.slo_s`).
        interval_s: Time between two decisions, in seconds.
        duration_s: Length of the run, in seconds.
        settings: Behaviour of the simulated cloud.
        initial_hosts: Hosts at the start, each running all operators.
        shards: Copies of the topology for placement policies; each operator of a copy has one
            instance.
        batches: Behaviour of a Spark application that works in micro-batches; None: items are
            processed one by one.
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
        """Mean number of items that each operator receives for one item from the sources."""
        names = [source.name for source in self.topology.sources]
        if len(names) < 2:
            return self.topology.arrival_rates(dict.fromkeys(names, 1.0))
        came = _items(self.workload, names)
        every = math.fsum(came.values()) or 1.0
        return self.topology.arrival_rates({name: items / every for name, items in came.items()})

    @cached_property
    def work_s(self) -> float:
        """Time for which one item from the sources keeps instances busy, over all operators."""
        return math.fsum(
            self.visits[o.name] * (o.service_time_s or 0.0) for o in self.topology.operators
        )

    @property
    def shared(self) -> bool:
        """Whether several queries share the slots of all executors."""
        several = len(self.topology.operators) > 1
        return self.batches is not None and self.batches.shared and several

    @cached_property
    def bottleneck_s(self) -> float:
        """Service time per item from the source, at the busiest operator.

        Operators with a limit of instances count only if all operators have one, and operators
        without items never.
        """
        every = [o for o in self.topology.operators if self.visits[o.name] > 0]
        every = every or list(self.topology.operators)
        some = [o for o in every if o.max_instances is None] or every
        return max(self.visits[o.name] * (o.service_time_s or 0.0) for o in some)

    @cached_property
    def rounds(self) -> int:
        """Instances of every operator that fit on a host, at least 1."""
        have = self.offer.capacity
        want = sum((operator.demand for operator in self.topology.operators), Resources(0))
        shares = [
            getattr(have, name) / getattr(want, name)
            for name in ("cpu_cores", "memory_mb", "network_mbps")
            if getattr(want, name) > 0
        ]
        return max(1, math.floor(min(shares, default=1.0) + 1e-9))

    def world(
        self, style: Style, seed: int = 0, fluid: bool = False
    ) -> SimulatedCloud | MicroBatchCloud:
        """A new simulated world for a policy of that style.

        seed: random seed of service times and start-up times. fluid: use the faster, approximate
        world; ignored for micro-batches.
        """
        if self.batches is not None:
            return self._batch_world(self.batches, style, seed)
        topology, workload = self.topology, self.workload
        if style == "placement":
            topology = sharded_topology(topology, self.shards)
            workload = Sharded(workload, tuple(source.name for source in topology.sources))
        return (FluidCloud if fluid else SimulatedCloud)(
            topology,
            self.offer,
            workload,
            seed=seed,
            initial=self.initial(topology),
            settings=self.settings,
        )

    def _batch_world(self, batches: BatchSettings, style: Style, seed: int) -> MicroBatchCloud:
        # A chain is not sharded: each of its queries would have a single slot.
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

    @property
    def _slots_are_instances(self) -> bool:
        """Whether several queries run in micro-batches, and any of them in any slot."""
        operators = self.topology.operators
        return (
            self.batches is not None
            and len(operators) > 1
            and all(o.demand.fits(Resources(1.0)) for o in operators)
        )

    def initial(self, topology: Topology) -> Deployment:
        """Full hosts at the start, or shards spread evenly over them."""
        hosts = [f"host-{n}" for n in range(1, self.initial_hosts + 1)]
        single = all(operator.max_instances == 1 for operator in topology.operators)
        placed: list[Instance] = []
        if self.shared or self._slots_are_instances:
            return _spread(topology, hosts, max(1, math.floor(self.offer.capacity.cpu_cores)))
        if single:
            for n, operator in enumerate(topology.operators):
                placed.append(Instance(f"{operator.name}-1", operator.name, hosts[n % len(hosts)]))
            return Deployment(tuple(hosts), tuple(placed))
        for operator in topology.operators:
            most = operator.max_instances or 10**9
            for n in range(1, min(most, self.rounds * len(hosts)) + 1):
                home = hosts[(n - 1) % len(hosts)]
                placed.append(Instance(f"{operator.name}-{n}", operator.name, home))
        return Deployment(tuple(hosts), tuple(placed))


def _items(workload: Workload, names: list[str]) -> dict[str, float]:
    """Items of each source in the whole workload."""
    import numpy as np

    if isinstance(workload, Predictable):
        found = workload.expected(np.array([0.0, workload.duration_s]))
        return {name: float(np.sum(found.get(name, 0.0))) for name in names}
    times = workload.arrivals(0.0, workload.duration_s)
    return {name: float(len(times.get(name, ()))) for name in names}


def _spread(topology: Topology, hosts: list[str], slots: int) -> Deployment:
    """Instances on all slots of the hosts, query by query in turn, as live.

    At least one of each query, since a snapshot shows what a query has.
    """
    names = list(topology.by_name)
    counts = dict.fromkeys(names, 0)
    limits = {name: topology.by_name[name].max_instances for name in names}
    # With more queries than slots, an instance is a share of a slot.
    share = min(1.0, max(operator.demand.cpu_cores for operator in topology.operators) or 1.0)
    per_host = math.floor(slots / share + 1e-9)
    turns: list[str] = []
    for _ in range(per_host * len(hosts)):
        # Slots that a query with a limit cannot use go to the others.
        able = [name for name in names if counts[name] < (limits[name] or math.inf)]
        if not able:
            break
        turns.append(name := min(able, key=counts.__getitem__))
        counts[name] += 1
    full = len(turns) == per_host * len(hosts)
    numbers = dict.fromkeys(names, 0)
    placed: list[Instance] = []
    for n, name in enumerate(turns):
        numbers[name] += 1
        home = hosts[n // per_host if full else n % len(hosts)]
        placed.append(Instance(f"{name}-{numbers[name]}", name, home))
    for n, name in enumerate(name for name in names if not counts[name]):
        placed.append(Instance(f"{name}-1", name, hosts[n % len(hosts)]))
    return Deployment(tuple(hosts), tuple(placed))


@dataclass(frozen=True)
class Sharded:
    """A workload with one source, its items distributed at random over the sources of shards.

    The random choice is fixed for each minute, so the same item always goes to the same shard.
    sources: names of the shards' sources.
    """

    base: Workload
    sources: tuple[str, ...]

    @property
    def duration_s(self) -> float:
        """The duration of the base."""
        return self.base.duration_s

    def rate(self, t_s: float) -> float:
        """The rate of the base."""
        return self.base.rate(t_s)

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Arrival times by shard."""
        import numpy as np

        every, shard = self._items(start_s, end_s)
        by_shard = every[np.argsort(shard, kind="stable")]
        ends = np.cumsum(np.bincount(shard, minlength=len(self.sources))).tolist()
        parts = zip(self.sources, [0, *ends], ends, strict=False)
        return {name: by_shard[start:end] for name, start, end in parts}

    def counted(self, edges_s: FloatArray) -> dict[str, Counts]:
        """How many items arrive from each moment until before the next, by shard."""
        import numpy as np

        steps, shards = len(edges_s) - 1, len(self.sources)
        borders = self._borders(float(edges_s[0]), float(edges_s[-1]))
        points = np.union1d(borders, edges_s)
        (numbers,) = counted(self.base, points).values()
        before = np.concatenate(([0], np.cumsum(numbers)))
        shard = self._shards(borders, before[np.searchsorted(points, borders)])
        step = np.searchsorted(edges_s, points[:-1], "right") - 1
        places = shard * steps + np.repeat(step, numbers)
        inside = (step >= 0) & (step < steps)
        if not inside.all():
            places = places[np.repeat(inside, numbers)]
        found = np.bincount(places, minlength=shards * steps).reshape(shards, steps)
        return dict(zip(self.sources, found, strict=True))

    def _items(
        self, start_s: float, end_s: float
    ) -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """All arrival times in order, and the number of each one's shard."""
        import numpy as np

        borders = self._borders(start_s, end_s)
        (times,) = self.base.arrivals(float(borders[0]), float(borders[-1])).values()
        shards = self._shards(borders, np.searchsorted(times, borders))
        if borders[0] == start_s and borders[-1] == end_s:
            return times, shards
        inside = (times >= start_s) & (times < end_s)
        return times[inside], shards[inside]

    @staticmethod
    def _borders(start_s: float, end_s: float) -> FloatArray:
        """Of the minutes in which a stretch of time lies."""
        import numpy as np

        first = math.floor(start_s / SHARD_CHUNK_S)
        last = max(first + 1, math.ceil(end_s / SHARD_CHUNK_S))
        borders: FloatArray = SHARD_CHUNK_S * np.arange(first, last + 1, dtype=np.float64)
        return borders

    def _shards(
        self, borders: FloatArray, until: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The number of the shard of each item. until: how many came until each of the borders."""
        import numpy as np

        count, first = len(self.sources), round(float(borders[0]) / SHARD_CHUNK_S)
        return np.concatenate(
            [
                generator(count, chunk).integers(0, count, end - start)
                for chunk, (start, end) in enumerate(pairwise(until.tolist()), first)
            ]
        )
