"""The fluid world: work flows continuously, one second at a time.

It does not count single items. In each step the running instances serve as much of the inflow as
they can, and the rest waits. The wait has two parts: the backlog divided by the capacity, and the
random waiting below capacity (Allen–Cunneen, as in `tidegate.theory.queueing`). Times spread around
their mean like a shifted exponential of the right variance. Numbers of items are real numbers, so
conservation holds up to rounding; end-to-end times take the longest branch. Use it for screening;
`benchmarks/simulation.py` measures how far it is from the item-level world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegate.model.topology import Topology
from tidegate.simulation.items import SimulatedCloud
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.flow import run_fluid
from tidegate.simulation.kernels.state import Floats
from tidegate.simulation.network import Coming, ItemEngine
from tidegate.simulation.settings import CloudSettings

__all__ = ["FluidCloud", "FluidEngine"]

CHUNKS_AT_ONCE = 64
"""Most chunks whose expected arrivals are requested at once: each request has a fixed cost.

The first requests are for fewer, so that a short run does not compute the arrivals of a long one.
"""
FIRST_CHUNKS = 4
"""Chunks of the first request."""


class FluidEngine(ItemEngine):
    """The engine of `FluidCloud`: servers as in `ItemEngine`, items as a flow."""

    def __init__(self, topology: Topology, settings: CloudSettings, seed: int) -> None:
        super().__init__(topology, settings, seed)
        net = self.net
        operators = len(topology.operators)
        self._queue = np.zeros(operators)
        self._usual = np.full(operators, -1.0)
        kind, sigma = net.ops_i[:, at.KIND], net.ops_f[:, at.LOG_SIGMA]
        self._scv = np.where(kind == at.DETERMINISTIC, 0.0, np.expm1(sigma**2))
        self._scv = np.where(kind == at.EXPONENTIAL, 1.0, self._scv)
        equal = {source.name: 1.0 / max(1, self._sources) for source in topology.sources}
        self._visits = np.array(list(topology.arrival_rates(equal).values()))
        self._rates = np.zeros((self._sources, 1))
        self._rates_from_s, self._rates_step_s = 0.0, math.inf

    def set_rates(self, start_s: float, step_s: float, rates: Floats) -> None:
        """Set the inflow: items per second by source and step, from `start_s` on."""
        self._rates_from_s, self._rates_step_s, self._rates = start_s, step_s, rates

    def idle_from(self, host: int, now_s: float) -> float:
        """Now: in a flow no instance holds an item."""
        return now_s

    def run(self, coming: Coming, end_s: float, shed_fraction: float) -> Floats:
        """Simulate until `end_s`, with the inflow from `set_rates`; returns the series' rows."""
        self._watch_contention()
        rows = self._empty_rows(end_s)
        filled = run_fluid(
            self.net,
            self._queue,
            self._usual,
            self._scv,
            self._visits,
            self._rates,
            self._rates_from_s,
            self._rates_step_s,
            end_s,
            shed_fraction,
            rows,
        )
        return rows[:filled]


class FluidCloud(SimulatedCloud):
    """`SimulatedCloud` with a flow in place of items; the same arguments and methods.

    If the workload has ``expected(edges_s)``, the expected number of items between each two
    moments by source, the world uses that; otherwise it counts the workload's arrivals, with
    ``counted(edges_s)``, a row for each source of the topology, where the workload has that.
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
        engine.set_rates(chunks.number * chunks.chunk_s, self._step_s, rates)

    def _request_rates(self) -> None:
        """Compute the rates of the current chunk and of some that follow."""
        chunks, number = self._chunks, self._chunks.number
        steps = max(1, round(chunks.chunk_s / self.settings.fluid_step_s))
        # Without expected or counted items, arrivals are drawn chunk by chunk.
        at_once = 1
        if hasattr(chunks.workload, "expected") or hasattr(chunks.workload, "counted"):
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
        expected: Any = getattr(self._chunks.workload, "expected", None)
        if expected is not None:
            for name, values in expected(edges.ravel()).items():
                # No time passes between the end of a chunk and the start of the next.
                whole = np.append(values, 0.0).reshape(count, steps + 1)
                items[:, self._chunks.source_number(name)] = whole[:, :-1]
            return items
        counted: Any = getattr(self._chunks.workload, "counted", None)
        if counted is not None:
            # The end of a chunk is the start of the next.
            whole = counted(np.append(edges[:, :-1], edges[-1, -1]))
            items[:] = whole.reshape(len(whole), count, steps).swapaxes(0, 1)
            return items
        for name, times in self._chunks.draw().items():
            # Like np.histogram, which takes ten times as long to find out that all is in order.
            before = np.searchsorted(times, edges[0])
            before[-1] = np.searchsorted(times, edges[0, -1], "right")
            items[0, self._chunks.source_number(name)] = np.diff(before)
        return items
