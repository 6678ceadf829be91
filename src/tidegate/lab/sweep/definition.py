"""Sweeps: a grid of policies, parameters, traces, seeds and prices, taken apart into cells.

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

A cell is one simulation. It holds everything that its result depends on but the code, so that its
digest is its name: a cell that has been run under that name need not be run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from tidegate.codec import Value, from_plain, to_json
from tidegate.config import load_topology, read_yaml
from tidegate.errors import InputError
from tidegate.lab.sweep.traces import Trace
from tidegate.loop.stack import wrapped
from tidegate.model.topology import Topology
from tidegate.policies import create, policy_class
from tidegate.units import duration_s, finite

__all__ = ["Cell", "Grid", "PolicyGrid", "Price", "load_grid"]

Mode = Literal["item", "fluid"]


@dataclass(frozen=True)
class Cell(Value):
    """One simulation of a sweep.

    parameters, guards: as the grid gives them; what it leaves out is what `tidegate backtest`
    would take. trace: its name; trace_digest: of its content. Times in seconds, money in dollars.
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
    topology: Topology | None = None

    @property
    def id(self) -> str:
        """A digest of all that the result depends on but the code."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()[:16]

    @property
    def case(self) -> str:
        """A digest of what policies have in common when they are compared on the same seed."""
        return replace(self, policy="", parameters={}, guards={}, seed=0).id

    @property
    def setting(self) -> str:
        """The grid's parameters and guards, for people: ``hosts=4``."""
        parts = [f"{key}={_short(value)}" for key, value in self.parameters.items()]
        for name, settings in self.guards.items():
            inside = ", ".join(f"{key}={_short(value)}" for key, value in settings.items())
            parts.append(f"{name}({inside})")
        return ", ".join(parts)


@dataclass(frozen=True)
class PolicyGrid(Value):
    """A policy with values for some parameters: one, a list, or a range.

    A range is ``{from: 0.2, to: 2, steps: 4}``, with ``scale: log`` in equal ratios.
    guards: around the policy, as in a configuration file.

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
        wrapped(create("static"), self.guards)

    def settings(self) -> list[dict[str, Any]]:
        """All combinations of the parameters' values, in the order in which they stand."""
        kind = policy_class(self.name)
        choices = [
            [kind.read_settings({key: value})[key] for value in _values(key, given)]
            for key, given in self.parameters.items()
        ]
        return [dict(zip(self.parameters, chosen, strict=True)) for chosen in product(*choices)]


@dataclass(frozen=True)
class Price(Value):
    """What a host costs. billing_unit: the time that is always paid whole; usd_per_h: dollars."""

    billing_unit: Any = "60s"
    usd_per_h: float = 1.0

    def __post_init__(self) -> None:
        duration_s(self.billing_unit, "prices: billing_unit")
        finite(self.usd_per_h, "prices: usd_per_h", low=0)


@dataclass(frozen=True)
class Grid(Value):
    """A sweep as people write it; every list is a dimension.

    policies, traces, prices: what is tried. seeds: a list, or how many (from 1 on). mode: item by
    item, or ``fluid``, which is quicker and less exact. interval: between two decisions; slo: an
    item is in time within this; both may be lists. startup: of a host.
    topology: a file with operators of one's own, else one operator. rate_per_instance,
    instances_per_host, max_hosts, penalty_usd, service_scv: as in `tidegate backtest`.
    fluid_step: of the fluid mode; a longer one is quicker and coarser.
    """

    policies: tuple[PolicyGrid, ...]
    traces: tuple[Trace, ...]
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

    def __post_init__(self) -> None:
        for key in ("policies", "traces", "seeds", "prices", "interval", "slo"):
            if not getattr(self, key):
                raise InputError(key, [], "a list of at least one", "add one, or leave the key out")
        for key in ("interval", "slo"):
            for value in getattr(self, key):
                duration_s(value, key)
        duration_s(self.startup, "startup")
        duration_s(self.fluid_step, "fluid_step")
        for seed in self.seeds:
            finite(seed, "seeds", low=0)
        for key, low in (("instances_per_host", 1), ("max_hosts", 1), ("penalty_usd", 0)):
            if getattr(self, key) is not None:
                finite(getattr(self, key), key, low=low)
        if self.rate_per_instance is not None:
            finite(self.rate_per_instance, "rate_per_instance", above=0)
        finite(self.service_scv, "service_scv", low=0)
        names = [trace.name for trace in self.traces]
        for name in names:
            if names.count(name) > 1:
                remedy = "give one of them a `name` of its own"
                raise InputError("traces: name", name, "different for each trace", remedy)

    @property
    def trace(self) -> dict[str, Trace]:
        """Traces by name."""
        return {trace.name: trace for trace in self.traces}

    def cells(self) -> Iterator[Cell]:
        """Every cell once; those on the same items one after the other, so that these are shared.

        Traces and seeds are shuffled (always in the same way): dear and cheap ones mix, and what
        is still to come takes about as long as what is done.
        """
        digests = {trace.name: trace.digest for trace in self.traces}
        days = sorted(product(digests, self.seeds), key=_shuffled)
        base: dict[str, Any] = {
            "mode": self.mode,
            "startup_s": duration_s(self.startup),
            "instances_per_host": self.instances_per_host,
            "rate_per_instance": self.rate_per_instance,
            "max_hosts": self.max_hosts,
            "penalty_usd": self.penalty_usd,
            "service_scv": self.service_scv,
            "fluid_step_s": duration_s(self.fluid_step),
            "topology": self.topology,
        }
        settings = [(policy, chosen) for policy in self.policies for chosen in policy.settings()]
        for name, seed in days:
            for price, slo, interval, (policy, chosen) in product(
                self.prices, self.slo, self.interval, settings
            ):
                yield Cell(
                    policy=policy.name,
                    parameters=chosen,
                    guards=policy.guards,
                    trace=name,
                    trace_digest=digests[name],
                    seed=seed,
                    billing_unit_s=duration_s(price.billing_unit),
                    usd_per_h=price.usd_per_h,
                    slo_s=duration_s(slo),
                    interval_s=duration_s(interval),
                    **base,
                )


def load_grid(path: str | os.PathLike[str]) -> Grid:
    """A grid from a YAML file; the files that it names are beside it."""
    return grid_from(read_yaml(path), Path(path).parent)


def grid_from(plain: Mapping[str, Any], folder: Path = Path()) -> Grid:
    """A grid from the values of a file. folder: where the files that it names are.

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
        read["seeds"] = list(range(1, int(finite(read["seeds"], "seeds", low=1)) + 1))
    if isinstance(read.get("topology"), str):
        read["topology"] = load_topology(folder / read["topology"])
    grid = from_plain(Grid, read)
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
    steps = int(finite(given["steps"], f"{key}: steps", low=2))
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
