"""Demand: the items that arrive in each period and the CPU work that they need.

The hindsight bound needs nothing else about a trace. A *stream* is a set of interchangeable items:
all items of one operator, all items of a source with the work of their whole path through the
topology, or all items of one size. Arrivals come from the trace and do not depend on the policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.model.topology import Topology
from tidegate.units import finite

__all__ = ["Demand", "Stream"]


@dataclass(frozen=True, slots=True)
class Stream(Value):
    """Items of one kind, by period.

    items: arrivals in each period. work_core_s: CPU work of those arrivals, in core-seconds,
    spread evenly over them. slo_s: latency target, in seconds; None: that of the bound.
    after: streams that feed this one, each with the most items here that follow from one item
    there. A late item there excuses that many items here, since they arrive later than in the
    trace.
    """

    name: str
    items: tuple[float, ...]
    work_core_s: tuple[float, ...]
    slo_s: float | None = None
    after: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.items) != len(self.work_core_s):
            allowed = f"as long as items ({len(self.items)} periods)"
            raise InputError(f"stream {self.name}: work_core_s", len(self.work_core_s), allowed)
        for name, values in (("items", self.items), ("work_core_s", self.work_core_s)):
            for n, value in enumerate(values):
                if not 0 <= value < math.inf:
                    finite(value, f"stream {self.name}: {name}[{n}]", low=0)
        if self.slo_s is not None:
            finite(self.slo_s, f"stream {self.name}: slo_s", above=0)
        for name, ratio in self.after:
            finite(ratio, f"stream {self.name}: ratio after {name}", low=0)


@dataclass(frozen=True)
class Demand(Value):
    """All streams of a trace over the same periods.

    period_s: length of a period, in seconds. Items may arrive at any time within it.

    >>> Demand.of([30, 90], [60, 180], period_s=60).work_core_s
    240.0
    """

    period_s: float
    streams: tuple[Stream, ...]

    def __post_init__(self) -> None:
        finite(self.period_s, "period_s", above=0)
        if not self.streams or not self.streams[0].items:
            raise InputError("streams", [s.name for s in self.streams], "at least one, not empty")
        seen: set[str] = set()
        for stream in self.streams:
            if len(stream.items) != self.periods:
                allowed = f"{self.periods} periods long, as {self.streams[0].name} is"
                raise InputError(f"stream {stream.name}", len(stream.items), allowed)
            for name, _ in stream.after:
                if name not in seen:
                    remedy = "name streams that precede it; a loop has no such order"
                    raise InputError(f"stream {stream.name}: after", name, "known", remedy)
            if stream.name in seen:
                raise InputError("stream", stream.name, "unique by name")
            seen.add(stream.name)

    @property
    def periods(self) -> int:
        """Number of periods."""
        return len(self.streams[0].items)

    @cached_property
    def items(self) -> float:
        """Number of items of all streams."""
        return math.fsum(n for stream in self.streams for n in stream.items)

    @cached_property
    def work_core_s(self) -> float:
        """CPU work of all items, in core-seconds."""
        return math.fsum(w for stream in self.streams for w in stream.work_core_s)

    @classmethod
    def of(
        cls,
        items: Sequence[float],
        work_core_s: Sequence[float],
        *,
        period_s: float,
        name: str = "items",
    ) -> Demand:
        """One stream. items, work_core_s: by period. period_s: length of a period, in seconds."""
        stream = Stream(name, tuple(map(float, items)), tuple(map(float, work_core_s)))
        return cls(period_s, (stream,))

    @classmethod
    def from_items(
        cls,
        arrival_s: Sequence[float],
        work_core_s: Sequence[float],
        *,
        period_s: float,
        periods: int,
        sizes: int = 6,
    ) -> Demand:
        """The demand of individual items, which is rigorous for random sizes.

        The late items of a policy may happen to be the large ones, so a bound must not assume the
        mean size for those in time. Items are therefore grouped into streams of equal size. An
        item between two sizes is split between them so that count and work stay the same, which
        can only lower the bound.

        arrival_s: arrival times, in seconds from zero. work_core_s: work of each item on its whole
        path, in core-seconds. period_s: length of a period, in seconds. periods: number of
        periods; later items are ignored. sizes: number of sizes; 1: all items have the mean size.

        >>> three = Demand.from_items([1, 2, 61], [1, 3, 2], period_s=60, periods=2, sizes=2)
        >>> [(stream.items, stream.work_core_s) for stream in three.streams]
        [((1.0, 0.5), (1.0, 0.5)), ((1.0, 0.5), (3.0, 1.5))]
        """
        import numpy as np

        arrival = np.asarray(arrival_s, dtype=float)
        work = np.asarray(work_core_s, dtype=float)
        if arrival.shape != work.shape or arrival.ndim != 1:
            raise InputError("work_core_s", work.shape, f"as long as arrival_s, {arrival.shape}")
        if arrival.size and not (np.isfinite(arrival).all() and np.isfinite(work).all()):
            raise InputError("arrival_s and work_core_s", math.nan, "finite numbers")
        if arrival.size and (arrival.min() < 0 or work.min() < 0):
            low = float(min(arrival.min(), work.min()))
            raise InputError("arrival_s and work_core_s", low, "at least 0")
        period = np.floor(arrival / period_s).astype(int)
        period, work = period[period < periods], work[period < periods]
        if sizes < 2 or work.size == 0 or work.min() == work.max():
            count = np.bincount(period, minlength=periods)
            total = np.bincount(period, weights=work, minlength=periods)
            return cls.of(count.tolist(), total.tolist(), period_s=period_s)
        # Sizes are spaced evenly in work, not in count: the many small items need few of them.
        ordered = np.sort(work)
        reached = np.cumsum(ordered) / ordered.sum()
        at = np.searchsorted(reached, np.linspace(0, 1, sizes)[1:-1])
        grid = np.unique(np.concatenate(([ordered[0]], ordered[at], [ordered[-1]])))
        below = np.clip(np.searchsorted(grid, work, side="right") - 1, 0, len(grid) - 2)
        share = (work - grid[below]) / (grid[below + 1] - grid[below])
        per_size = np.zeros((len(grid), periods))
        np.add.at(per_size, (below, period), 1 - share)
        np.add.at(per_size, (below + 1, period), share)
        streams = (
            Stream(f"size {i}", tuple(row.tolist()), tuple((row * grid[i]).tolist()))
            for i, row in enumerate(per_size)
        )
        return cls(period_s, tuple(streams))

    @classmethod
    def from_rates(
        cls,
        topology: Topology,
        rates_per_s: Mapping[str, Sequence[float]],
        *,
        period_s: float,
        confidence: float | None = None,
    ) -> Demand:
        """The expected demand end to end: one stream per source, each item with its whole path.

        rates_per_s: items per second by source and period; they count as actual arrivals.
        period_s: length of a period, in seconds. confidence: None assumes the mean work. A
        probability such as 0.99 assumes less work, so that with at least this probability no
        period has less (Maurer's inequality for sums of positive numbers, over all periods).
        """
        streams = []
        cells = sum(len(rates) for rates in rates_per_s.values())
        for source in topology.sources:
            if source.name not in rates_per_s:
                raise InputError("rates_per_s", sorted(rates_per_s), f"with source {source.name}")
            mean, square = _work_of_one(topology, source.name)
            items = [rate * period_s for rate in rates_per_s[source.name]]
            work = [_at_least(n * mean, n * square, cells, confidence) for n in items]
            streams.append(Stream(source.name, tuple(items), tuple(work)))
        return cls(period_s, tuple(streams))

    @classmethod
    def per_operator(
        cls,
        topology: Topology,
        rates_per_s: Mapping[str, Sequence[float]],
        *,
        period_s: float,
        slo_s: float,
        confidence: float | None = None,
    ) -> Demand:
        """The demand if each operator has a latency target and late items of each operator cost.

        An item that was never late leaves an operator within the sum of the latency targets on its
        path, so that sum is the stream's window. An item that was late may arrive at any time and
        excuses the items that follow from it. Ratios count as exact.

        slo_s: latency target of operators without their own, in seconds. The other parameters are
        as in `from_rates`. Raises InputError for a topology with a loop.
        """
        periods = max((len(rates) for rates in rates_per_s.values()), default=0)
        arrivals = [
            topology.arrival_rates({name: rates[n] for name, rates in rates_per_s.items()})
            for n in range(periods)
        ]
        window: dict[str, float] = {}
        streams: list[Stream] = []
        waiting = list(topology.operators)
        while waiting:
            ready = [
                o
                for o in waiting
                if all(
                    e.origin in window or e.origin not in topology.by_name
                    for e in topology.edges
                    if e.target == o.name and e.ratio > 0
                )
            ]
            if not ready:
                remedy = "use from_rates, which counts lateness end to end"
                raise InputError("topology", [o.name for o in waiting], "without loops", remedy)
            for operator in ready:
                into = [
                    (e.origin, e.ratio)
                    for e in topology.edges
                    if e.target == operator.name and e.origin in window and e.ratio > 0
                ]
                before = max((window[name] for name, _ in into), default=0.0)
                window[operator.name] = before + (operator.slo_s or slo_s)
                mean, square = _work_of_item(topology, operator.name)
                items = [rates[operator.name] * period_s for rates in arrivals]
                cells = periods * len(topology.operators)
                work = [_at_least(n * mean, n * square, cells, confidence) for n in items]
                streams.append(
                    Stream(
                        operator.name, tuple(items), tuple(work), window[operator.name], tuple(into)
                    )
                )
                waiting.remove(operator)
        return cls(period_s, tuple(streams))


def _work_of_item(topology: Topology, name: str) -> tuple[float, float]:
    """Mean and mean square of the core-seconds that one item needs in one operator."""
    operator = topology.by_name[name]
    if operator.service_time_s is None:
        remedy = "declare the operator's mean service time"
        raise InputError(f"operator {name}: service_time_s", None, "given", remedy)
    mean = operator.service_time_s * operator.demand.cpu_cores
    return mean, mean * mean * (1 + operator.service_scv)


def _work_of_one(topology: Topology, source: str) -> tuple[float, float]:
    """The same, over the whole path of one item of a source."""
    inflow: dict[str, float] = {}
    for edge in topology.edges:
        if edge.origin == source:
            inflow[edge.target] = inflow.get(edge.target, 0.0) + edge.ratio
    visits = topology.propagate(inflow)
    parts = [(n, *_work_of_item(topology, name)) for name, n in visits.items() if n > 0]
    return math.fsum(n * m for n, m, _ in parts), math.fsum(n * s for n, _, s in parts)


def _at_least(mean: float, square: float, cells: int, confidence: float | None) -> float:
    if confidence is None:
        return mean
    finite(confidence, "confidence", above=0, high=1 - 1e-12)
    return max(0.0, mean - math.sqrt(2 * square * math.log(cells / (1 - confidence))))
