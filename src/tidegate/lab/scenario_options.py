"""The options of a scenario, and the one place where a scenario is built from them.

`tidegate backtest`, sweeps, the tuner and the Gymnasium environment all use the scenarios that
`ScenarioOptions.build` returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from tidegate.errors import InputError, TopologyError
from tidegate.loop.journal import read_journal
from tidegate.model import HostOffer, SloByQuery
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings
from tidegate.simulation.calibrate import BatchWorld, batch_scenario, calibrate, has_batches
from tidegate.simulation.scenario import Scenario
from tidegate.simulation.settings import FluidInflow
from tidegate.simulation.trace_input import read_workload
from tidegate.units import duration_s, finite
from tidegate.workloads import Scaled, Workload, peak_per_s, series
from tidegate.workloads.read import Gaps

__all__ = ["ScenarioOptions", "at_speed", "read_scenario", "recorded_world"]

DURATIONS = ("slo_s", "billing_unit_s", "startup_s", "interval_s", "fluid_step_s")
LOWEST = {
    "usd_per_h": 0,
    "max_hosts": 1,
    "penalty_usd": 0,
    "instances_per_host": 1,
    "service_scv": 0,
}
HIGHEST = {"usd_per_h": 1e6, "penalty_usd": 1e6, "instances_per_host": 1000}
"""Values beyond these are typing errors. Solvers take a cost of 1e20 for infinite, and every
instance is simulated."""
MOST_HOSTS = 5_000
"""Hosts that the peak of a workload may need: every host is simulated."""
MOST_TURNS = 1e7
"""Turns of a run at most: 4.7 years at intervals of 15 s."""
MOST_DRAWN = 1_000
"""Items of a step on average, up to which the fluid simulation gets the items that are drawn."""
PLANNED_LOAD = 0.7
"""Utilisation that the number of hosts at the start and the default service rate are sized for."""


@dataclass(frozen=True)
class ScenarioOptions:
    """What a scenario needs to know besides its workload.

    Args:
        slo_s: Latency target, arrival to completion, in seconds.
        slos_s: Latency targets by query of a calibrated Spark application, in seconds; the other
            queries have `slo_s`.
        billing_unit_s: Billing time unit of a host, in seconds.
        usd_per_h: Price of a host, in dollars per hour.
        startup_s: Time until a leased host runs, in seconds.
        interval_s: Time between two decisions, in seconds.
        max_hosts: Most hosts that can be leased; None: no limit.
        penalty_usd: Cost of a late item, in dollars; None: ten times the cost of processing one.
        instances_per_host: Instances of each operator that fit on a host; None: 4 for the single
            default operator, 1 with a topology.
        rate_per_instance: Items per second that one instance processes; None: ten hosts process
            the peak at 70 % utilisation. Not with a topology.
        service_scv: Squared coefficient of variation of service times: 0 constant, 1 exponential.
            Not with a topology.
        fluid_step_s: Time step of the fluid simulation, in seconds.
        fluid_inflow: What flows into it: the items of each step, as in the item-level world
            (``drawn``), or their expected number, which takes less time (``expected``). Where more
            than a thousand come in a step on average, it is always the expected number.
        topology: Operators with service times and one source; None: a single operator.
        world: A calibrated Spark application. It has its own operators, hosts, prices and
            interval, so that only the latency target and the penalty are taken from here.

    >>> from tidegate.workloads import ConstantRate
    >>> scenario = ScenarioOptions(slo_s=2.0).build(ConstantRate(40, duration_s=600))
    >>> scenario.rounds, scenario.initial_hosts
    (4, 10)
    """

    slo_s: float
    billing_unit_s: float = 60.0
    usd_per_h: float = 1.0
    startup_s: float = 45.0
    interval_s: float = 15.0
    max_hosts: int | None = None
    penalty_usd: float | None = None
    instances_per_host: int | None = None
    rate_per_instance: float | None = None
    service_scv: float = 0.0
    fluid_step_s: float = 1.0
    fluid_inflow: FluidInflow = "drawn"
    topology: Topology | None = None
    world: BatchWorld | None = None
    slos_s: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(vars(self), {})

    @classmethod
    def read(cls, written: Mapping[str, Any], names: Mapping[str, str]) -> ScenarioOptions:
        """Options as a user wrote them in a command or a file; durations may be text.

        written: values by field. names: what the user calls each field, for error messages.

        >>> ScenarioOptions.read({"slo_s": "soon"}, {"slo_s": "--slo"})
        Traceback (most recent call last):
        tidegate.errors.InputError: --slo is 'soon'; it must be a positive duration: write a number
        with a unit, such as 500ms, 5s, 10m or 1h
        """
        values = dict(written)
        if isinstance(target := values.get("slo_s"), str) and "=" in target:
            targets = SloByQuery.read(target, names.get("slo_s", "slo_s"))
            values |= {"slo_s": targets.default_s, "slos_s": targets.by_name}
        _check(values, names)
        for key in DURATIONS:
            if key in values:
                values[key] = duration_s(values[key])
        return cls(**values)

    @property
    def source(self) -> str:
        """The source that the workload must drive; a world with several has them in its journal."""
        topology = self.world.topology if self.world is not None else self.topology
        if self.world is not None and len(self.world.topology.sources) > 1:
            return "input"
        return "input" if topology is None else _one_source(topology)

    def build(self, workload: Workload) -> Scenario:
        """The scenario in which the workload drives the source.

        An operator without a latency target gets a share of `slo_s`, in proportion to its service
        time.
        """
        world_s = None if self.world is None else self.world.interval_s
        _check_turns(workload.duration_s / (world_s or self.interval_s))
        if self.world is not None:
            slo = SloByQuery(self.slo_s, self.slos_s) if self.slos_s else self.slo_s
            return batch_scenario(self.world, workload, slo, self.penalty_usd)
        topology, capacity = self._operators(workload)
        (source,) = topology.sources
        visits = topology.arrival_rates({source.name: 1.0})
        whole_s = math.fsum(visits[o.name] * (o.service_time_s or 0.0) for o in topology.operators)
        topology = replace(
            topology,
            operators=tuple(
                replace(o, slo_s=o.slo_s or self.slo_s * ((o.service_time_s or 0.0) / whole_s))
                for o in topology.operators
            ),
        )
        scenario = Scenario(
            topology=topology,
            offer=HostOffer(
                capacity,
                billing_unit_s=self.billing_unit_s,
                price_per_unit_usd=self.usd_per_h * self.billing_unit_s / 3600,
                startup_s=self.startup_s,
                max_hosts=self.max_hosts,
            ),
            workload=workload,
            slo_s=self.slo_s,
            interval_s=self.interval_s,
            duration_s=workload.duration_s,
            settings=CloudSettings(
                host_startup_s=(self.startup_s, self.startup_s),
                instance_startup_s=(1.0, 1.0),
                image_download_s=0.0,
                end_to_end_slo_s=self.slo_s,
                decision_s=self.interval_s,
                fluid_step_s=self.fluid_step_s,
                fluid_inflow=self._inflow(workload),
            ),
        )
        rounds, busiest_s = scenario.rounds, scenario.bottleneck_s
        first, peak = (
            _hosts(rate * busiest_s / (rounds * PLANNED_LOAD))
            for rate in (workload.rate(0.0), peak_per_s(workload))
        )
        penalty_usd = self.penalty_usd
        if penalty_usd is None:
            penalty_usd = 10 * self.usd_per_h / 3600 * busiest_s / rounds
        limits = [o.max_instances for o in topology.operators if o.max_instances is not None]
        return replace(
            scenario,
            settings=replace(scenario.settings, penalty_usd=penalty_usd),
            initial_hosts=max(1, first),
            shards=max(1, min(4 * rounds * max(1, peak) // 3, *limits, 10**6)),
        )

    def _inflow(self, workload: Workload) -> FluidInflow:
        """What flows into the fluid world: the number of very many items hardly varies."""
        per_step = float(series(workload, workload.duration_s).mean()) * self.fluid_step_s
        return "expected" if per_step > MOST_DRAWN else self.fluid_inflow

    def _operators(self, workload: Workload) -> tuple[Topology, Resources]:
        """The topology, and the capacity of a host that has room for its instances."""
        driven = next(iter(workload.arrivals(0.0, 0.0)))  # only the name: a second may be too much
        if self.topology is not None:
            _check_topology(self.topology, driven)
            many = self.instances_per_host or 1
            one = sum((operator.demand for operator in self.topology.operators), Resources(0))
            return self.topology, Resources(
                one.cpu_cores * many,
                max(one.memory_mb, 2048 * one.cpu_cores) * many,
                max(1000.0, one.network_mbps * many),
            )
        many = self.instances_per_host or 4
        rate = self.rate_per_instance
        if rate is None:
            rate = peak_per_s(workload) / (10 * many * PLANNED_LOAD)
            finite(rate, "peak rate of the workload", above=0, remedy="the trace has no items")
        work = Operator("work", Resources(1.0, 256), 1 / rate, self.service_scv)
        topology = Topology((work,), (Source(driven),), (Edge(driven, "work"),))
        return topology, Resources(many, 256 * 8 * many, 1000)


def _check_turns(turns: float) -> None:
    """Raise InputError if a run has more turns than it could ever finish."""
    if turns > MOST_TURNS:
        remedy = "take a shorter trace, with times in seconds, or a longer interval"
        raise InputError("turns of the run", f"{turns:.3g}", f"at most {MOST_TURNS:.3g}", remedy)


def _hosts(exactly: float) -> int:
    """Whole hosts for a load; InputError if they are too many to simulate."""
    if exactly > MOST_HOSTS:
        remedy = "raise the rate of an instance or the instances per host, or lower the rates"
        allowed = f"at most {MOST_HOSTS}"
        raise InputError("hosts that the load needs", f"{exactly:.3g}", allowed, remedy)
    return math.ceil(exactly - 1e-9)


def _check(values: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Refuse values out of range. names: what the user calls each field."""
    given = {key: value for key, value in values.items() if value is not None}
    for key, value in given.items():
        name = names.get(key, key)
        if key in DURATIONS:
            duration_s(value, name)
        elif key in LOWEST:
            finite(value, name, low=LOWEST[key], high=HIGHEST.get(key, math.inf))
        elif key == "rate_per_instance":
            finite(value, name, above=0)
        elif key == "fluid_inflow" and value not in get_args(FluidInflow):
            raise InputError(name, value, " or ".join(get_args(FluidInflow)))
    if given.get("slos_s") and "world" not in given:
        remedy = "backtest the journal of a Spark application, or give a world"
        queries = ", ".join(given["slos_s"])
        raise InputError(names.get("slo_s", "slo_s"), queries, "one target for all", remedy)
    if "topology" in given:
        if "world" in given:
            remedy = "the world has its own operators"
            name = names.get("topology", "topology")
            raise InputError(name, "given", "left out with a Spark world", remedy)
        for key in ("rate_per_instance", "service_scv"):
            if given.get(key):
                remedy = "the topology has the service times"
                allowed = f"left out with {names.get('topology', 'topology')}"
                raise InputError(names.get(key, key), given[key], allowed, remedy)


def _one_source(topology: Topology) -> str:
    names = [source.name for source in topology.sources]
    if len(names) != 1:
        remedy = "a trace drives one source: write `sources: [{name: …}]` and an edge from it"
        raise TopologyError("sources", ", ".join(names), "one source", remedy)
    return names[0]


def _check_topology(topology: Topology, driven: str) -> None:
    """Refuse a topology that the workload cannot drive. driven: the workload's source."""
    if (name := _one_source(topology)) != driven:
        remedy = "a trace drives one source: keep that one, and edges from it"
        raise TopologyError("sources", name, f"one, {driven}", remedy)
    if not any(edge.origin == driven for edge in topology.edges):
        remedy = "add an edge from it, or nothing arrives"
        raise TopologyError(f"source {driven}: edges", 0, "at least 1", remedy)
    for operator in topology.operators:
        if operator.service_time_s is None:
            remedy = "write the seconds for one item, or service_rate_per_s"
            raise TopologyError(f"operator {operator.name}: service_time_s", None, "given", remedy)
        if operator.demand.cpu_cores <= 0:
            key, cores = f"operator {operator.name}: cpu_cores", operator.demand.cpu_cores
            raise TopologyError(key, cores, "above 0", "give the cores that an instance uses")


def at_speed(workload: Workload, speed: float, seed: int = 0) -> Workload:
    """The workload played `speed` times as fast, at the same rates."""
    if speed == 1:
        return workload
    return Scaled(workload, rate_factor=1 / speed, speed=speed, seed=seed)


def recorded_world(trace: Path) -> BatchWorld | None:
    """The Spark application that a journal describes; None if it has no micro-batches."""
    if trace.suffix == ".jsonl" and has_batches(turns := list(read_journal(trace))):
        return calibrate(turns, trace.name).world
    return None


def read_scenario(
    trace: Path,
    options: ScenarioOptions,
    gaps: Gaps | None = None,
    speed: float = 1.0,
    seed: int = 0,
) -> Scenario:
    """The scenario of a trace file or a journal.

    gaps: what to do about gaps in a rate trace. speed: play it that many times as fast, at the
    same rates. seed: random seed of the arrivals.
    """
    workload = read_workload(trace, gaps, seed, options.source)
    several = options.world is not None and len(options.world.topology.sources) > 1
    if several and trace.suffix != ".jsonl":
        remedy = "give the journal of the application: it has the input of each query"
        raise InputError("trace", trace.name, "a journal for a world with several queries", remedy)
    return options.build(at_speed(workload, speed, seed))
