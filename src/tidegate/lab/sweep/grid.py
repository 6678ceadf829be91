"""Sweeps: a grid of policies, parameters, traces, random seeds and prices, expanded into cells.

::

    policies:
      - drs
      - {name: static, parameters: {hosts: [4, 8, 12]}}
      - {name: lag, parameters: {threshold: {from: 50, to: 800, steps: 5, scale: log}}}
    traces:
      - {workload: exchange-day, options: {mean_per_s: 100}}
      - {file: my_trace.csv, gaps: hold}
    seeds: 10
    prices: [{billing_unit: 60s, usd_per_h: 1.0}, {billing_unit: 1h, usd_per_h: 0.8}]

A cell is one simulation. It holds everything that its result depends on except the code. The
cell's digest is its identifier, so a cell that has a result need not run again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from tidegate.codec import Value, from_plain, to_json
from tidegate.config import load_topology, read_yaml
from tidegate.errors import InputError
from tidegate.lab.backtest import check_guards
from tidegate.lab.scenario_options import ScenarioOptions, at_speed
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model.topology import Topology
from tidegate.policies import Situation, policy_class
from tidegate.simulation.settings import FluidInflow
from tidegate.simulation.trace_input import read_workload
from tidegate.units import finite
from tidegate.workloads import ConstantRate, ExchangeDay, VideoFrames, Workload

__all__ = [
    "GENERATORS",
    "PolicyGrid",
    "Price",
    "RecordedTrace",
    "SweepCell",
    "SweepGrid",
    "SweepTrace",
    "grid_from",
    "load_grid",
]

Mode = Literal["item", "fluid"]
GENERATORS: dict[str, Any] = {
    "exchange-day": ExchangeDay,
    "constant": ConstantRate,
    "video": VideoFrames,
}
KEYS = {
    "slo_s": "slo",
    "interval_s": "interval",
    "startup_s": "startup",
    "fluid_step_s": "fluid_step",
    "billing_unit_s": "prices: billing_unit",
    "usd_per_h": "prices: usd_per_h",
}
"""The fields of `ScenarioOptions` that have another name in a grid."""

MOST_SEEDS = 100_000
MOST_STEPS = 10_000
"""Seeds of a grid, and steps of a range, at most: more are a mistake and would fill the memory."""


@dataclass(frozen=True)
class RecordedTrace:
    """A trace that is ready to be sent to the executors.

    base: the workload of a file, or the name of a generator. options: of the generator.
    speed: as in `SweepTrace`.
    """

    base: Workload | str
    options: dict[str, Any]
    speed: float

    def workload(self, seed: int) -> Workload:
        """The items for a random seed: a generator's day, or items drawn at a file's rates."""
        if isinstance(self.base, str):
            made: Workload = GENERATORS[self.base](seed=seed, **self.options)
        else:
            made = replace(self.base, seed=seed) if hasattr(self.base, "seed") else self.base  # type: ignore[type-var]
        return at_speed(made, self.speed, seed)


@dataclass(frozen=True)
class SweepTrace(Value):
    """What arrives: a `file` as `tidegate backtest` reads it, or a generated `workload`.

    A random seed selects the day of a generator and the items drawn from a table of rates. It
    does not change a log of events.

    Args:
        file: Path of a trace or journal.
        workload: Name of a generator.
        name: Name in the report; default: that of the file or the generator.
        gaps: What to do about gaps in a rate trace: error, hold or zero.
        options: Options of the generator.
        speed: Play the trace this many times as fast, at the same rates.
    """

    file: str | None = None
    workload: str | None = None
    name: str = ""
    gaps: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    speed: float = 1.0

    def __post_init__(self) -> None:
        if (self.file is None) == (self.workload is None):
            remedy = f"known workloads are {', '.join(GENERATORS)}"
            raise InputError("traces", self.name or "…", "either a file or a workload", remedy)
        finite(self.speed, "traces: speed", above=0)
        if self.workload is not None:
            if self.workload not in GENERATORS:
                known = "one of " + ", ".join(GENERATORS)
                raise InputError("traces: workload", self.workload, known)
            options = set(inspect.signature(GENERATORS[self.workload]).parameters) - {"seed"}
            for key in self.options:
                if key not in options:
                    remedy = f"{self.workload} takes {', '.join(sorted(options))}"
                    raise InputError(f"traces: options: {key}", self.options[key], "known", remedy)
            try:
                GENERATORS[self.workload](seed=1, **self.options)
            except TypeError:
                remedy = f"{self.workload} takes {', '.join(sorted(options))}"
                raise InputError("traces: options", self.options, "complete", remedy) from None
        if not self.name:
            object.__setattr__(self, "name", self.workload or Path(self.file or "").stem)

    def within(self, folder: Path) -> SweepTrace:
        """The same trace with its file path relative to a folder; absolute paths stay."""
        return self if self.file is None else replace(self, file=str(folder / self.file))

    @property
    def digest(self) -> str:
        """A digest of what arrives: the file's content or the generator, and all options."""
        rest = {"options": self.options, "speed": self.speed, "gaps": self.gaps}
        found = hashlib.sha256(json.dumps([self.workload, rest], sort_keys=True).encode())
        if self.file is not None:
            try:
                found.update(Path(self.file).read_bytes())
            except OSError as error:
                why = error.strerror or ""
                raise InputError("traces: file", self.file, "readable", why) from None
        return found.hexdigest()[:16]

    def read(self) -> RecordedTrace:
        """Read the file; a generator needs no reading."""
        if self.workload is not None:
            return RecordedTrace(self.workload, self.options, self.speed)
        gaps: Any = self.gaps
        return RecordedTrace(read_workload(self.file or "", gaps), {}, self.speed)


@dataclass(frozen=True)
class SweepCell(Value):
    """One simulation of a sweep.

    The fields from `billing_unit_s` to `topology` are those of `ScenarioOptions`.

    Args:
        policy: Name of the policy.
        parameters: Parameters that the grid sets; the others are chosen as in a backtest.
        guards: Settings of guards by name, as the grid sets them.
        trace: Name of the trace.
        trace_digest: Digest of the trace's content.
        seed: Random seed.
        mode: Simulate every item, or a fluid.
        without_guards: Names of guards that are switched off.
    """

    policy: str
    parameters: dict[str, Any]
    guards: dict[str, dict[str, Any]]
    trace: str
    trace_digest: str
    seed: int
    billing_unit_s: float
    usd_per_h: float
    mode: Mode
    slo_s: float
    interval_s: float
    startup_s: float
    instances_per_host: int | None = None
    rate_per_instance: float | None = None
    max_hosts: int | None = None
    penalty_usd: float | None = None
    service_scv: float = 0.0
    fluid_step_s: float = 1.0
    fluid_inflow: FluidInflow = "drawn"
    topology: Topology | None = None
    without_guards: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A digest of everything that the result depends on except the code."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()[:16]

    @property
    def case(self) -> str:
        """A digest of what policies have in common when they are compared on the same seed."""
        bare = replace(self, policy="", parameters={}, guards={}, seed=0, without_guards=())
        return bare.id

    @property
    def stack(self) -> StackOptions:
        """The parameters and guards of the policy."""
        return StackOptions(self.parameters, self.guards, self.without_guards)

    @property
    def options(self) -> ScenarioOptions:
        """The options of the scenario."""
        own = {f.name for f in fields(self)}
        known = [f.name for f in fields(ScenarioOptions) if f.name in own]
        return ScenarioOptions(**{name: getattr(self, name) for name in known})

    @property
    def setting(self) -> str:
        """The grid's parameters and guards as text: ``hosts=4``."""
        parts = [f"{key}={_short(value)}" for key, value in self.parameters.items()]
        for name, settings in self.guards.items():
            inside = ", ".join(f"{key}={_short(value)}" for key, value in settings.items())
            parts.append(f"{name}({inside})")
        parts += [f"without {name}" for name in self.without_guards]
        return ", ".join(parts)


@dataclass(frozen=True)
class PolicyGrid(Value):
    """A policy with values for some parameters: one, a list, or a range.

    A range is ``{from: 0.2, to: 2, steps: 4}``, with ``scale: log`` in equal ratios.
    guards: settings of guards by name, as in a configuration file.

    >>> some = PolicyGrid("drs", {"t_max_s": {"from": 0.5, "to": 2, "steps": 3, "scale": "log"}})
    >>> some.settings()
    [{'t_max_s': 0.5}, {'t_max_s': 1.0}, {'t_max_s': 2.0}]
    """

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    guards: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = policy_class(self.name)
        for key, given in self.parameters.items():
            for value in _values(f"{self.name}: {key}", given):
                kind.read_settings({key: value})
        self.stack()

    def stack(self, without: Collection[str] = (), max_hosts: int | None = None) -> str:
        """The policy with its guards, as `Policy.describe` shows it.

        without: names of guards to switch off. max_hosts: largest number of hosts.
        """
        options = StackOptions(guards=self.guards, without=without, max_hosts=max_hosts)
        return build_stack(self.name, Situation(), options).describe()

    def settings(self) -> list[dict[str, Any]]:
        """All combinations of the parameters' values, in the order of the file."""
        kind = policy_class(self.name)
        choices = [
            [kind.read_settings({key: value})[key] for value in _values(key, given)]
            for key, given in self.parameters.items()
        ]
        return [dict(zip(self.parameters, chosen, strict=True)) for chosen in product(*choices)]


@dataclass(frozen=True)
class Price(Value):
    """The price of a host. billing_unit: a started unit is paid in full; usd_per_h: in dollars."""

    billing_unit: Any = "60s"
    usd_per_h: float = 1.0


@dataclass(frozen=True)
class SweepGrid(Value):
    """A sweep as users write it; every list is a dimension.

    Args:
        policies: Policies with values of their parameters.
        traces: What arrives.
        seeds: A list of random seeds; in a file also their number, counted from 1.
        prices: Prices of a host.
        mode: ``item`` simulates every item; ``fluid`` is faster and approximate.
        interval: Times between two decisions.
        slo: Latency targets, arrival to completion.
        startup: Time until a leased host runs.
        topology: Operators; default: one operator.
        rate_per_instance: As in `tidegate backtest`, like the options below.
        instances_per_host: Instances of each operator that fit on a host.
        max_hosts: Most hosts that can be leased.
        penalty_usd: Cost of a late item, in dollars.
        service_scv: Variability of service times.
        fluid_step: Time step of the fluid mode; a longer one is faster and coarser.
        fluid_inflow: What flows into it: ``drawn`` is the items of each step; ``expected`` is their
            expected number, which is faster where there are many, and shows policies no noise.
        without_guards: Names of guards to switch off.
    """

    policies: tuple[PolicyGrid, ...]
    traces: tuple[SweepTrace, ...]
    seeds: tuple[int, ...] = (1,)
    prices: tuple[Price, ...] = (Price(),)
    mode: Mode = "fluid"
    interval: tuple[Any, ...] = ("60s",)
    slo: tuple[Any, ...] = ("2s",)
    startup: Any = "45s"
    topology: Topology | None = None
    rate_per_instance: float | None = None
    instances_per_host: int | None = None
    max_hosts: int | None = None
    penalty_usd: float | None = None
    service_scv: float = 0.0
    fluid_step: Any = "1s"
    fluid_inflow: FluidInflow = "drawn"
    without_guards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("policies", "traces", "seeds", "prices", "interval", "slo"):
            if not getattr(self, key):
                raise InputError(key, [], "a list of at least one", "add one, or leave the key out")
        for seed in self.seeds:
            finite(seed, "seeds", low=0)
        check_guards(self.without_guards, "without_guards")
        self.scenarios()
        names = [trace.name for trace in self.traces]
        for name in names:
            if names.count(name) > 1:
                remedy = "give one of them another `name`"
                raise InputError("traces: name", name, "different for each trace", remedy)

    @property
    def trace(self) -> dict[str, SweepTrace]:
        """Traces by name."""
        return {trace.name: trace for trace in self.traces}

    def scenarios(self) -> list[ScenarioOptions]:
        """All combinations of prices, latency targets and intervals."""
        same = ("topology", "rate_per_instance", "instances_per_host", "max_hosts", "penalty_usd",
                "service_scv", "fluid_inflow")  # fmt: skip
        base = {name: getattr(self, name) for name in same}
        base |= {"startup_s": self.startup, "fluid_step_s": self.fluid_step}
        return [
            ScenarioOptions.read(
                base
                | {"slo_s": slo, "interval_s": interval}
                | {"billing_unit_s": price.billing_unit, "usd_per_h": price.usd_per_h},
                KEYS,
            )
            for price, slo, interval in product(self.prices, self.slo, self.interval)
        ]

    def cells(self) -> Iterator[SweepCell]:
        """Every cell once. Cells with the same items follow each other and share them.

        Traces and seeds are shuffled, always in the same order. Expensive and cheap ones mix, so
        that progress so far predicts the time that is left.
        """
        digests = {trace.name: trace.digest for trace in self.traces}
        days = sorted(product(digests, self.seeds), key=_shuffled)
        settings = [(policy, chosen) for policy in self.policies for chosen in policy.settings()]
        scenarios = [
            # Only a Spark world has targets by query, and a sweep has no such world.
            {
                n: getattr(options, n)
                for n in (f.name for f in fields(options))
                if n not in ("world", "slos_s")
            }
            for options in self.scenarios()
        ]
        for name, seed in days:
            for options, (policy, chosen) in product(scenarios, settings):
                yield SweepCell(
                    policy=policy.name,
                    parameters=chosen,
                    guards=policy.guards,
                    trace=name,
                    trace_digest=digests[name],
                    seed=seed,
                    mode=self.mode,
                    without_guards=self.without_guards,
                    **options,
                )


def load_grid(path: str | os.PathLike[str]) -> SweepGrid:
    """A grid from a YAML file; paths in it are relative to its folder."""
    return grid_from(read_yaml(path), Path(path).parent)


def grid_from(plain: Mapping[str, Any], folder: Path = Path()) -> SweepGrid:
    """A grid from the values of a file. folder: paths are relative to it.

    >>> grid = grid_from({"policies": ["drs", "ds2"], "traces": ["exchange-day"], "seeds": 3})
    >>> len(list(grid.cells()))
    6
    """
    read = dict(plain)
    for key in ("policies", "traces", "prices", "interval", "slo"):
        if key in read and not isinstance(read[key], list):
            read[key] = [read[key]]
    read["policies"] = [{"name": p} if isinstance(p, str) else p for p in read.get("policies", [])]
    read["traces"] = [{"workload": t} if isinstance(t, str) else t for t in read.get("traces", [])]
    if isinstance(read.get("seeds"), int) and not isinstance(read["seeds"], bool):
        read["seeds"] = list(
            range(1, int(finite(read["seeds"], "seeds", low=1, high=MOST_SEEDS)) + 1)
        )
    if isinstance(read.get("topology"), str):
        read["topology"] = load_topology(folder / read["topology"])
    grid = from_plain(SweepGrid, read)
    return replace(grid, traces=tuple(trace.within(folder) for trace in grid.traces))


def _values(key: str, given: Any) -> list[Any]:
    """The values of a parameter: one, those of a list, or those of a range."""
    if isinstance(given, list):
        if not given:
            raise InputError(key, given, "a list of at least one value", "or leave it out")
        return given
    if not isinstance(given, dict):
        return [given]
    known = {"from", "to", "steps", "scale"}
    if not {"from", "to", "steps"} <= set(given) <= known:
        remedy = "write {from: 0.2, to: 2, steps: 4}, and scale: log for equal ratios"
        raise InputError(key, given, "a range", remedy)
    scale = given.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise InputError(f"{key}: scale", scale, "linear or log")
    log = scale == "log"
    low, high = (
        finite(given[end], f"{key}: {end}", above=0 if log else None) for end in ("from", "to")
    )
    steps = int(finite(given["steps"], f"{key}: steps", low=2, high=MOST_STEPS))
    if log:
        low, high = math.log(low), math.log(high)
    found = [low + (high - low) * n / (steps - 1) for n in range(steps)]
    found = [float(f"{math.exp(value) if log else value:.6g}") for value in found]
    whole = isinstance(given["from"], int) and isinstance(given["to"], int)
    return list(dict.fromkeys(round(value) for value in found)) if whole else found


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shuffled(day: tuple[str, int]) -> str:
    return hashlib.sha256(json.dumps(day).encode()).hexdigest()
