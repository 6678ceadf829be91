"""Combined workloads: a sum of several, or one that is scaled in rate or speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.protocol import (
    Chunked,
    FloatArray,
    Predictable,
    Workload,
    check_interval,
    check_seed,
    merged,
)

__all__ = ["Only", "Scaled", "Sum"]


def _streams(workload: Workload) -> frozenset[tuple[int, str]]:
    streams: frozenset[tuple[int, str]] = getattr(workload, "streams", frozenset())
    return streams


def _expected(workload: Workload, edges_s: FloatArray) -> dict[str, FloatArray]:
    if not isinstance(workload, Predictable):
        kind = type(workload).__name__
        raise InputError("workload", kind, "one that has expected()", "give it that method")
    return workload.expected(edges_s)


@dataclass(frozen=True)
class Sum:
    """Several workloads at the same time; items of the same source are merged.

    Parts with the same random stream (same seed, same source) are refused: they would not be
    independent, and two equal parts would send every item twice at the same instant.

    parts: the workloads.

    >>> from tidegate.workloads.rates import ConstantRate
    >>> both = Sum((ConstantRate(5, 60, seed=1), ConstantRate(7, 90, seed=2)))
    >>> both.duration_s, both.rate(30), both.rate(70)
    (90, 12.0, 7.0)
    """

    parts: tuple[Workload, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise InputError("parts", [], "a list of at least one workload")
        seen: set[tuple[int, str]] = set()
        for i, part in enumerate(self.parts):
            if shared := seen & _streams(part):
                seed, source = min(shared)
                remedy = "give each part a different seed"
                key = f"parts[{i}]: seed for source {source}"
                raise InputError(key, seed, "different from the other parts'", remedy)
            seen |= _streams(part)

    @property
    def duration_s(self) -> float:
        """Seconds until the last part ends."""
        return max(part.duration_s for part in self.parts)

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """The random streams of all parts."""
        return frozenset().union(*(_streams(part) for part in self.parts))

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times in [start_s, end_s) by source."""
        by_source: dict[str, list[FloatArray]] = {}
        for part in self.parts:
            for source, times in part.arrivals(start_s, end_s).items():
                by_source.setdefault(source, []).append(times)
        return {s: times[0] if len(times) == 1 else merged(times) for s, times in by_source.items()}

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`."""
        return sum(part.rate(t_s) for part in self.parts)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next, by source."""
        total: dict[str, FloatArray] = {}
        for part in self.parts:
            for source, items in _expected(part, edges_s).items():
                total[source] = total[source] + items if source in total else items
        return total

    def multiplied(self, factor: float) -> Sum:
        """Every part with `factor` times its rate."""
        return Sum(tuple(Scaled(part, rate_factor=factor) for part in self.parts))


@dataclass(frozen=True)
class Only:
    """One source of a workload, on request under another name.

    base: the workload. source: one of its sources. name: what it is called here, None for its own
    name.

    >>> from tidegate.workloads.papers import VispPattern
    >>> images = Only(VispPattern("stepwise"), "S2", "images")
    >>> {source: len(times) for source, times in images.arrivals(0, 0.5).items()}
    {'images': 4}
    """

    base: Workload
    source: str
    name: str | None = None

    def __post_init__(self) -> None:
        known = self.base.arrivals(0.0, 0.0)
        if self.source not in known:
            raise InputError("source", self.source, f"one of {', '.join(known)}")

    @property
    def duration_s(self) -> float:
        """As long as the base."""
        return self.base.duration_s

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """The random stream of its source."""
        name = self.name or self.source
        return frozenset(
            (seed, name) for seed, source in _streams(self.base) if source == self.source
        )

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times in [start_s, end_s) of this source."""
        return {self.name or self.source: self.base.arrivals(start_s, end_s)[self.source]}

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`, over a millisecond."""
        count = self.expected(np.array([t_s, t_s + 1e-3])).popitem()[1]
        return float(count[0]) * 1e3

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next."""
        return {self.name or self.source: _expected(self.base, edges_s)[self.source]}


@dataclass(frozen=True)
class Scaled:
    """A workload scaled in rate or speed.

    A higher speed keeps the items and therefore raises their rate: a day of 511 minutes at speed
    8.5 takes an hour and has 8.5 times the rate. To keep the rate as well, multiply it by 1/8.5.

    A workload that is defined by a rate gets another rate. A workload of fixed items is thinned
    (each item stays with a fixed probability), or its items are repeated at the same instant.

    base: the workload. rate_factor: factor on the number of items. speed: factor on the speed.
    seed: random seed of thinning and repeating.

    >>> from tidegate.workloads.rates import ConstantRate
    >>> hour = Scaled(ConstantRate(11, duration_s=30_660), rate_factor=10, speed=8.5)
    >>> hour.duration_s, hour.rate(1800)
    (3607.05..., 935.0)
    """

    base: Workload
    rate_factor: float = 1.0
    speed: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        finite(self.rate_factor, "rate_factor", above=0)
        finite(self.speed, "speed", above=0)
        check_seed(self.seed)

    @cached_property
    def _inner(self) -> Workload:
        """The base at its original speed, with the requested number of items."""
        if self.rate_factor == 1:
            return self.base
        multiplied: Any = getattr(self.base, "multiplied", None)
        if multiplied is not None:
            inner: Workload = multiplied(self.rate_factor)
            return inner
        return _Repeated(self.base, self.rate_factor, self.seed)

    @property
    def duration_s(self) -> float:
        """Seconds until it ends, at the new speed."""
        return self.base.duration_s / self.speed

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """The base's random streams."""
        return _streams(self.base)

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times in [start_s, end_s) by source."""
        check_interval(start_s, end_s)
        if self.speed == 1:
            return self._inner.arrivals(start_s, end_s)
        # Request a little more and cut by the new times, so that a single comparison decides
        # whether an item lies in the interval.
        margin = 1e-9 * (1 + abs(end_s) * self.speed)
        found = self._inner.arrivals(start_s * self.speed - margin, end_s * self.speed + margin)
        scaled = {source: times / self.speed for source, times in found.items()}
        return {s: t[(t >= start_s) & (t < end_s)] for s, t in scaled.items()}

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`, at the new speed."""
        return self.base.rate(t_s * self.speed) * self.rate_factor * self.speed

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next, by source."""
        items = _expected(self.base, np.asarray(edges_s) * self.speed)
        return {source: count * self.rate_factor for source, count in items.items()}

    def multiplied(self, factor: float) -> Scaled:
        """The same at `factor` times the rate."""
        return Scaled(self.base, self.rate_factor * factor, self.speed, self.seed)


@dataclass(frozen=True)
class _Repeated(Chunked):
    """Items of another workload, each kept, dropped or repeated at random."""

    base: Workload
    factor: float
    seed: int = 0

    @property
    def duration_s(self) -> float:
        return self.base.duration_s

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.base.arrivals(0, 0))

    def rate(self, t_s: float) -> float:
        return self.base.rate(t_s) * self.factor

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        found = self.base.arrivals(chunk * self.chunk_s, (chunk + 1) * self.chunk_s)
        random = self._generator(chunk)
        whole, part = math.floor(self.factor), self.factor % 1
        return {
            source: np.repeat(found[source], whole + (random.random(len(found[source])) < part))
            for source in self.sources
        }
