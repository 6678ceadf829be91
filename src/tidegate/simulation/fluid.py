"""The fluid world: work flows continuously, one second at a time.

It does not follow single items. In each step as much of the inflow begins as there are free servers
for, and the rest waits; what has begun ends a service time later. The wait has two parts: the
backlog divided by the capacity, and the random waiting below capacity (Allen–Cunneen, as in
`tidegate.theory.queueing`), as far as the flow itself does not have it. Times spread around their
mean like a shifted exponential of the right variance. Numbers of items are real numbers, so
conservation holds up to rounding; end-to-end times take the longest branch.

The inflow of a step is the number of the items that the item-level world gets in it, so that
policies see the same noise. `CloudSettings.fluid_inflow` can make it the expected number: this
takes less time where there are many items, but thresholds are then never crossed by chance. Use the
fluid world for screening; `benchmarks/fluid_error.py` measures how far it is from items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tidegate.model.topology import Topology
from tidegate.simulation.items import SimulatedCloud
from tidegate.simulation.kernels.flow import empty_flow, run_fluid
from tidegate.simulation.kernels.state import Floats
from tidegate.simulation.network import Coming, ItemEngine
from tidegate.simulation.settings import CloudSettings
from tidegate.theory.compiled import entry_of
from tidegate.workloads.counting import count_drawn, counted

__all__ = ["FluidCloud", "FluidEngine"]

CHUNKS_AT_ONCE = 64
"""Most chunks whose expected arrivals are requested at once: each request has a fixed cost.

The first requests are for fewer, so that a short run does not compute the arrivals of a long one.
"""
FIRST_CHUNKS = 4
"""Chunks of the first request."""
PARTS = 4
"""Service times that stand for all those of an operator."""


class FluidEngine(ItemEngine):
    """The engine of `FluidCloud`: servers as in `ItemEngine`, items as a flow."""

    def __init__(self, topology: Topology, settings: CloudSettings, seed: int) -> None:
        super().__init__(topology, settings, seed)
        services = [settings.service_of(operator) for operator in topology.operators]
        equal = {source.name: 1.0 / max(1, self._sources) for source in topology.sources}
        self._flow = empty_flow(
            [service.parts_s(PARTS) for service in services],
            [service.variation for service in services],
            list(topology.arrival_rates(equal).values()),
            self._sources,
            settings.fluid_step_s,
        )
        self._rates, self._drawn = np.zeros((self._sources, 1)), False
        self._rates_from_s, self._rates_step_s = 0.0, math.inf
        self._run: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_run": None}  # compiled code is found again, and not pickled

    def set_rates(self, start_s: float, step_s: float, rates: Floats, drawn: bool) -> None:
        """Set the inflow: items per second by source and step, from `start_s` on.

        drawn: whether these are items that were drawn at random, and not their expected number.
        """
        self._rates_from_s, self._rates_step_s, self._rates = float(start_s), float(step_s), rates
        self._drawn = drawn

    def idle_from(self, host: int, now_s: float) -> float:
        """Now: in a flow no instance holds an item."""
        return now_s

    def run(self, coming: Coming, end_s: float, shed_fraction: float) -> Floats:
        """Simulate until `end_s`, with the inflow from `set_rates`; returns the series' rows."""
        self._watch_contention()
        rows = self._empty_rows(end_s)
        given = (
            self.net, self._flow, self._rates, self._drawn, self._rates_from_s, self._rates_step_s,
            float(end_s), float(shed_fraction), rows,
        )  # fmt: skip
        if self._run is None:
            self._run = entry_of(run_fluid, *given)
        return rows[: self._run(*given)]


class FluidCloud(SimulatedCloud):
    """`SimulatedCloud` with a flow in place of items; the same arguments and methods.

    The world counts the workload's arrivals, with ``counted(edges_s)``, the numbers between each
    two moments by source, where the workload has that. If it is to use their expected number
    (`CloudSettings.fluid_inflow`) and the workload has ``expected(edges_s)``, that number between
    each two moments by source, it uses that.
    """

    default_engine = FluidEngine
    _rates: Sequence[Floats] = ()
    """Items per second by chunk, then by source and step, of the chunks before `_rates_end`."""
    _rates_end = 0
    _step_s = 0.0

    def _draw_arrivals(self) -> None:
        chunks = self._chunks
        if chunks.number >= self._rates_end:
            self._request_rates()
        engine = self._engine
        assert isinstance(engine, FluidEngine)
        rates = self._rates[chunks.number - self._rates_end]  # from the end
        drawn = self._expected is None
        engine.set_rates(chunks.number * chunks.chunk_s, self._step_s, rates, drawn)

    def _request_rates(self) -> None:
        """Compute the rates of the current chunk and of some that follow."""
        chunks, number = self._chunks, self._chunks.number
        steps = max(1, round(chunks.chunk_s / self.settings.fluid_step_s))
        # Other workloads are asked for one chunk at a time, as in the item-level world.
        known = any(hasattr(chunks.workload, name) for name in ("counted", "expected"))
        at_once = 1
        if known and (not chunks.seeded or self._expected is not None):
            at_once = min(CHUNKS_AT_ONCE, max(FIRST_CHUNKS, 2 * len(self._rates)))
        self._rates_end = number + at_once
        self._step_s = chunks.chunk_s / steps
        starts = np.arange(number, number + at_once)[:, None] * chunks.chunk_s
        rates = self._rates_between(starts + np.arange(steps + 1) * self._step_s)
        rates /= self._step_s
        self._rates = list(rates)

    def _rates_between(self, edges: Floats) -> Floats:
        """Items between each edge and the next by chunk, source and step. edges: a row a chunk."""
        count, steps = len(edges), edges.shape[1] - 1
        items = np.zeros((count, len(self.topology.sources), steps))
        if self._expected is not None:
            for name, values in self._expected(edges.ravel()).items():
                # No time passes between the end of a chunk and the start of the next.
                whole = np.append(values, 0.0).reshape(count, steps + 1)
                items[:, self._chunks.source_number(name)] = whole[:, :-1]
            return items
        # The end of a chunk is the start of the next.
        borders = np.append(edges[:, :-1], edges[-1, -1])
        chunks = self._chunks
        found = (
            count_drawn(chunks.draw(), borders)
            if chunks.seeded
            else counted(chunks.workload, borders)
        )
        for name, numbers in found.items():
            items[:, chunks.source_number(name)] = numbers.reshape(count, steps)
        return items

    @cached_property
    def _expected(self) -> Callable[[Floats], Mapping[str, Floats]] | None:
        """The workload's expected number of items, if that is to be used."""
        if self.settings.fluid_inflow == "drawn":
            return None
        return getattr(self._chunks.workload, "expected", None)
