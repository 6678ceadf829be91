"""Topologies: operators, the sources that feed them and the edges between them.

A topology is any directed graph, loops included. From each item that an operator processes,
`ratio` items on average leave over each of its edges, so the arrival rates solve the *traffic
equations* λ_i = γ_i + Σ_j λ_j · ratio_ji, where γ_i is what the sources send directly to i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tidegate.codec import Value
from tidegate.errors import TopologyError
from tidegate.units import finite

__all__ = [
    "Edge",
    "Operator",
    "ResourceName",
    "Resources",
    "Source",
    "Topology",
    "sharded_topology",
]

ResourceName = Literal["cpu_cores", "memory_mb", "network_mbps"]
"""The fields of `Resources`."""


@dataclass(frozen=True, slots=True)
class Resources(Value):
    """An amount of CPU, memory and network: a host's capacity, a demand or a measured load.

    cpu_cores: cores (a fraction is a share of one); memory_mb: megabytes;
    network_mbps: megabits per second.

    >>> Resources(4, 7168) - Resources(1.5, 512)
    Resources(cpu_cores=2.5, memory_mb=6656, network_mbps=0.0)
    """

    cpu_cores: float
    memory_mb: float = 0.0
    network_mbps: float = 0.0

    def __post_init__(self) -> None:
        # Written out for speed: this runs for each of ten thousand instances at every turn.
        if not (
            -1e15 < self.cpu_cores < 1e15
            and -1e15 < self.memory_mb < 1e15
            and -1e15 < self.network_mbps < 1e15
        ):
            for name in ("cpu_cores", "memory_mb", "network_mbps"):
                finite(getattr(self, name), name, low=-1e15, high=1e15, error=TopologyError)

    @staticmethod
    def unchecked(cpu_cores: float, memory_mb: float, network_mbps: float) -> Resources:
        """Resources of numbers that are known to be finite, in half of the time."""
        made = object.__new__(Resources)
        _set_cores(made, cpu_cores)
        _set_memory(made, memory_mb)
        _set_network(made, network_mbps)
        return made

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_cores + other.cpu_cores,
            self.memory_mb + other.memory_mb,
            self.network_mbps + other.network_mbps,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu_cores - other.cpu_cores,
            self.memory_mb - other.memory_mb,
            self.network_mbps - other.network_mbps,
        )

    def fits(self, free: Resources) -> bool:
        """Whether this amount fits into `free`, with a tolerance of a billionth of a core."""
        return (
            self.cpu_cores <= free.cpu_cores + 1e-9
            and self.memory_mb <= free.memory_mb + 1e-6
            and self.network_mbps <= free.network_mbps + 1e-6
        )


# Slots of a frozen value are set through their descriptors.
_set_cores, _set_memory, _set_network = (
    vars(Resources)[name].__set__ for name in ("cpu_cores", "memory_mb", "network_mbps")
)


@dataclass(frozen=True, slots=True)
class Operator(Value):
    """A processing step, of which any number of instances may run.

    Attributes:
        name: Unique name in the topology.
        demand: Resources that one instance reserves on its host.
        service_time_s: Mean time that one instance needs for one item, in seconds, None when
            unknown.
        service_scv: Squared coefficient of variation of that time (0 constant, 1 exponential).
        slo_s: Latency target of one item in this operator, in seconds, None when there is none.
        state_mb: State that moves with an instance, in megabytes.
        image: Image that a host must have cached to start quickly; the name by default.
        max_instances: Largest useful number of instances (partitions of its state, a single
            collector), None for no limit.
    """

    name: str
    demand: Resources = Resources(1.0)
    service_time_s: float | None = None
    service_scv: float = 1.0
    slo_s: float | None = None
    state_mb: float = 0.0
    image: str | None = None
    max_instances: int | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise TopologyError("name", self.name, "a word", "give each operator a name")
        key = f"operator {self.name}: "
        for name in ("service_time_s", "slo_s"):
            if (value := getattr(self, name)) is not None:
                finite(value, key + name, above=0, error=TopologyError)
        finite(self.service_scv, key + "service_scv", low=0, error=TopologyError)
        finite(self.state_mb, key + "state_mb", low=0, error=TopologyError)
        for name in ("cpu_cores", "memory_mb", "network_mbps"):
            finite(getattr(self.demand, name), key + name, low=0, error=TopologyError)
        if self.max_instances is not None:
            finite(self.max_instances, key + "max_instances", low=1, error=TopologyError)

    @property
    def image_name(self) -> str:
        """The image that an instance needs."""
        return self.image or self.name


@dataclass(frozen=True, slots=True)
class Source(Value):
    """A source of items. rate_per_s: items per second, None when it has to be measured."""

    name: str
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.rate_per_s is not None:
            key = f"source {self.name}: rate_per_s"
            finite(self.rate_per_s, key, low=0, error=TopologyError)


@dataclass(frozen=True, slots=True)
class Edge(Value):
    """A connection from a source or operator to an operator.

    ratio: items sent over this edge for each item that leaves the source or is processed by the
    operator (0.02 for a filter, 3 for a splitter). counted: whether the ratio was counted while
    items passed, rather than declared.
    """

    origin: str
    target: str
    ratio: float = 1.0
    counted: bool = False

    def __post_init__(self) -> None:
        key = f"edge {self.origin} → {self.target}: ratio"
        finite(self.ratio, key, low=0, error=TopologyError)


@dataclass(frozen=True)
class Topology(Value):
    """Operators with the sources and edges that feed them.

    A detector that sends half of its items back to itself sees each item twice on average:

    >>> loop = Topology(
    ...     operators=(Operator("generate"), Operator("detect"), Operator("report")),
    ...     sources=(Source("tweets", rate_per_s=320),),
    ...     edges=(
    ...         Edge("tweets", "generate"),
    ...         Edge("generate", "detect"),
    ...         Edge("detect", "detect", ratio=0.5),
    ...         Edge("detect", "report", ratio=0.25),
    ...     ),
    ... )
    >>> loop.arrival_rates()
    {'generate': 320.0, 'detect': 640.0, 'report': 160.0}
    """

    operators: tuple[Operator, ...]
    sources: tuple[Source, ...] = ()
    edges: tuple[Edge, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.operators:
            raise TopologyError("operators", [], "a list of at least one operator")
        seen: set[str] = set()
        for name in (*(o.name for o in self.operators), *(s.name for s in self.sources)):
            if name in seen:
                remedy = "rename one of the two: sources and operators share one set of names"
                raise TopologyError("name", name, "unique in the topology", remedy)
            seen.add(name)
        for edge in self.edges:
            if edge.target not in self.by_name:
                raise TopologyError(
                    "edge target", edge.target, "an operator of the topology", self._names
                )
            if edge.origin not in seen:
                raise TopologyError(
                    "edge origin", edge.origin, "a source or operator of the topology", self._names
                )

    @property
    def _names(self) -> str:
        names = [*(s.name for s in self.sources), *self.by_name]
        return "known names are " + ", ".join(names)

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        """Operators by their names."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def neighbours(self) -> dict[str, frozenset[str]]:
        """For each operator, those that it exchanges items with."""
        near: dict[str, set[str]] = {}
        for edge in self.edges:
            if edge.origin in self.by_name and edge.origin != edge.target:
                near.setdefault(edge.origin, set()).add(edge.target)
                near.setdefault(edge.target, set()).add(edge.origin)
        found = dict.fromkeys(self.by_name, frozenset[str]())
        found.update((operator, frozenset(others)) for operator, others in near.items())
        return found

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The operators that sources feed, in topology order; all of them when none is fed."""
        names = {source.name for source in self.sources}
        fed = {edge.target for edge in self.edges if edge.origin in names}
        return tuple(o.name for o in self.operators if o.name in fed) or tuple(self.by_name)

    @cached_property
    def largest_demand(self) -> Resources:
        """The largest demand of an instance, of each resource by itself."""
        demands = [operator.demand for operator in self.operators]
        return Resources(
            max(demand.cpu_cores for demand in demands),
            max(demand.memory_mb for demand in demands),
            max(demand.network_mbps for demand in demands),
        )

    @cached_property
    def slos_s(self) -> dict[str, float]:
        """The SLOs of the operators that have one, in seconds."""
        return {o.name: o.slo_s for o in self.operators if o.slo_s is not None}

    @cached_property
    def largest_slo_s(self) -> float:
        """The largest SLO of an operator, in seconds; infinite if none has one."""
        return max(self.slos_s.values(), default=math.inf)

    @cached_property
    def edges_to_entries(self) -> tuple[Edge, ...]:
        """The edges over which operators send items to entries."""
        return tuple(e for e in self.edges if e.origin in self.by_name and e.target in self.entries)

    @property
    def external_rate_per_s(self) -> float | None:
        """Items per second that the sources send in, None when a source's rate is unknown."""
        rates = [source.rate_per_s for source in self.sources]
        return None if None in rates else sum(rate for rate in rates if rate is not None)

    def arrival_rates(self, source_rates: Mapping[str, float] | None = None) -> dict[str, float]:
        """Items per second that arrive at each operator, by the traffic equations.

        source_rates: items per second by source, in place of the declared ones.
        """
        return self.propagate(self._inflow(source_rates or {}))

    def propagate(self, inflow: Mapping[str, float]) -> dict[str, float]:
        """The arrival rates that result from `inflow`, items per second sent to each operator.

        Raises TopologyError for a loop that amplifies, where rates would grow without end.
        """
        rates = {name: float(inflow.get(name, 0.0)) for name in self.by_name}
        order = self._downstream_order
        if order is not None:
            for name in order:
                for edge in self._outgoing[name]:
                    rates[edge.target] += rates[name] * edge.ratio
            return rates
        return self._solve_with_loops(rates)

    def after(self, names: Iterable[str]) -> set[str]:
        """The operators that some operators feed, directly or through others, in any order."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            new = {edge.target for edge in self._outgoing[todo.pop()]} - found
            found |= new
            todo += new
        return found

    def _inflow(self, source_rates: Mapping[str, float]) -> dict[str, float]:
        inflow: dict[str, float] = {}
        for source in self.sources:
            rate = source_rates.get(source.name, source.rate_per_s)
            if rate is None:
                key = f"source {source.name}: rate_per_s"
                raise TopologyError(key, None, "given", "declare it or measure it")
            for edge in self.edges:
                if edge.origin == source.name:
                    inflow[edge.target] = inflow.get(edge.target, 0.0) + rate * edge.ratio
        return inflow

    @cached_property
    def _outgoing(self) -> dict[str, list[Edge]]:
        outgoing: dict[str, list[Edge]] = {name: [] for name in self.by_name}
        for edge in self.edges:
            if edge.origin in outgoing:
                outgoing[edge.origin].append(edge)
        return outgoing

    @cached_property
    def _downstream_order(self) -> tuple[str, ...] | None:
        """Operators in an order in which all edges go forward, None when there is a loop."""
        waiting = dict.fromkeys(self.by_name, 0)
        for edges in self._outgoing.values():
            for edge in edges:
                waiting[edge.target] += 1
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:  # grows while it is read
            for edge in self._outgoing[name]:
                waiting[edge.target] -= 1
                if waiting[edge.target] == 0:
                    ready.append(edge.target)
        return tuple(ready) if len(ready) == len(waiting) else None

    def _solve_with_loops(self, inflow: dict[str, float]) -> dict[str, float]:
        import numpy as np

        names = list(self.by_name)
        index = {name: i for i, name in enumerate(names)}
        routing = np.zeros((len(names), len(names)))
        for edges in self._outgoing.values():
            for edge in edges:
                routing[index[edge.target], index[edge.origin]] += edge.ratio
        gain = float(max(abs(np.linalg.eigvals(routing))))
        if gain >= 1 - 1e-9:
            remedy = "the ratios around a loop must multiply to less than 1, or items never leave"
            raise TopologyError(
                f"gain of the loop through {self._loop_members()}", f"{gain:.4g}", "below 1", remedy
            )
        solved = np.linalg.solve(np.eye(len(names)) - routing, [inflow[name] for name in names])
        # The solver returns values such as 640.0000000000001, and -2e-15 where nothing arrives;
        # rates are not known to 12 digits.
        return {
            name: max(0.0, float(f"{rate:.12g}")) for name, rate in zip(names, solved, strict=True)
        }

    def _loop_members(self) -> str:
        """The operators that can reach themselves, for the error message."""

        def reachable(start: str) -> set[str]:
            seen: set[str] = set()
            todo = [start]
            while todo:
                for edge in self._outgoing[todo.pop()]:
                    if edge.ratio > 0 and edge.target not in seen:
                        seen.add(edge.target)
                        todo.append(edge.target)
            return seen

        return ", ".join(name for name in self.by_name if name in reachable(name))


def sharded_topology(topology: Topology, shards: int) -> Topology:
    """A topology copied into shards, each fed by its own source.

    Every operator has one instance in each shard, with an eighth of its memory and network.
    """
    point = "." if len(topology.operators) > 1 else ""
    sources = {source.name for source in topology.sources}
    entry = f"to-{topology.operators[0].name}{point}"
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
