"""Arrivals from a rate: constant, a table of rates over time, or bursts around either.

The items of a Poisson process of rate 1 have exponential gaps. Any other rate is the same process
on a clock that advances with the expected number of items, Λ(t): draw on that clock, and convert
the times back with the inverse of Λ. `Curve` is that clock. It is exact for tables of constant
rates and of rates that change linearly, without thinning or approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.counting import MOST_DRAWN, Counts, count_drawn
from tidegate.workloads.protocol import CHUNK_S, Chunked, FloatArray, check_seed, chunk_for

__all__ = ["Bursty", "ConstantRate", "Curve", "FromCurve", "RateTrace"]

_MOST_TOGETHER = 100_000
"""Items that are drawn at once, as long as a chunk has no more; arrays of more leave the caches."""
Spacing = Literal["poisson", "even"]
Interpolation = Literal["step", "linear"]


class Curve:
    """A rate over time and its integral, both ways.

    knots_s: n + 1 increasing times; rates: the rate just after each of the first n;
    slopes: its change per second until the next knot.
    """

    def __init__(self, knots_s: FloatArray, rates: FloatArray, slopes: FloatArray) -> None:
        self.knots_s, self.rates, self.slopes = knots_s, rates, slopes
        width = np.diff(knots_s)
        self.items = np.concatenate(([0.0], np.cumsum((rates + slopes * width / 2) * width)))
        self.peak = float(max(rates.max(), (rates + slopes * width).max()))
        # Squares of rates that are almost nothing or without end are not exact.
        usual = (rates == 0) | ((rates > 1e-100) & (rates < 1e100))
        self._steps = bool(usual.all() and not slopes.any())

    def at(self, t_s: float) -> float:
        """Items per second at `t_s`, zero outside."""
        if not self.knots_s[0] <= t_s < self.knots_s[-1]:
            return 0.0
        i = int(np.searchsorted(self.knots_s, t_s, side="right")) - 1
        return float(self.rates[i] + self.slopes[i] * (t_s - self.knots_s[i]))

    def cumulative(self, t_s: FloatArray) -> FloatArray:
        """Items expected until each of `t_s`."""
        t_s = np.clip(t_s, self.knots_s[0], self.knots_s[-1])
        i = np.clip(np.searchsorted(self.knots_s, t_s, side="right") - 1, 0, len(self.rates) - 1)
        after = t_s - self.knots_s[i]
        grown: FloatArray = self.items[i] + (self.rates[i] + self.slopes[i] * after / 2) * after
        return grown

    def inverse(self, items: FloatArray) -> FloatArray:
        """When these numbers of items are expected to have arrived; `items` is below the total."""
        if len(self.rates) == 1 and self.slopes[0] == 0:
            return np.asarray(self.knots_s[0] + items / self.rates[0])
        i = np.clip(np.searchsorted(self.items, items, side="right") - 1, 0, len(self.rates) - 1)
        more, rate = items - self.items[i], self.rates[i]
        if self._steps:  # what follows, where no rate changes: the root of a square is exact
            after = np.divide(more, rate, out=np.zeros_like(more), where=rate > 0)
            return np.asarray(np.minimum(self.knots_s[i] + after, self.knots_s[i + 1]))
        root = np.sqrt(np.maximum(0.0, rate * rate + 2 * self.slopes[i] * more))
        divisor = rate + root
        after = np.divide(2 * more, divisor, out=np.zeros_like(more), where=divisor > 0)
        return np.asarray(np.minimum(self.knots_s[i] + after, self.knots_s[i + 1]))

    def times(self, factor: float) -> Curve:
        """The curve with all rates multiplied."""
        return Curve(self.knots_s, self.rates * factor, self.slopes * factor)


class FromCurve(Chunked):
    """Base of constant rates and rate tables; a subclass gives the curve."""

    seed: int
    source: str
    spacing: Spacing

    @property
    def curve(self) -> Curve:
        """The rate over time."""
        raise NotImplementedError

    @property
    def sources(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source,)

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """None if items are evenly spaced, which needs no random numbers."""
        return super().streams if self.spacing == "poisson" else frozenset()

    @cached_property
    def chunk_s(self) -> float:
        """Length of a chunk in seconds, shorter when the peak is high."""
        return chunk_for(self.curve.peak)

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`."""
        return self.curve.at(t_s)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next."""
        edges = np.asarray(edges_s, dtype=np.float64)
        return {self.source: np.diff(self.curve.cumulative(edges))}

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        return self._draw_together((chunk,))[0]

    def _draw_all(self, chunks: Sequence[int]) -> list[dict[str, FloatArray]]:
        most = max(1, int(_MOST_TOGETHER / max(1.0, self.curve.peak * self.chunk_s)))
        starts = range(0, len(chunks), most)
        return [one for n in starts for one in self._draw_together(chunks[n : n + most])]

    def _draw_together(self, chunks: Sequence[int]) -> list[dict[str, FloatArray]]:
        # Each chunk has its own random numbers. The rest is done for all of them at once: an
        # item is computed from the figures of its chunk, whichever others there are.
        starts_s = np.array(chunks) * self.chunk_s
        ends_s = np.minimum((np.array(chunks) + 1) * self.chunk_s, self.duration_s)
        low, high = self.curve.cumulative(np.array((starts_s, ends_s)))
        if self.spacing == "even":
            # Item n arrives when n + 1/2 items are expected, whatever the interval.
            parts = [
                np.arange(math.ceil(first - 0.5), math.ceil(last - 0.5)) + 0.5
                for first, last in zip(low, high, strict=True)
            ]
            counts = [len(part) for part in parts]
            clock = np.concatenate(parts)
        else:
            means = (high - low).tolist()
            parts = [
                sorted_uniform(self._generator(chunk), mean)
                for chunk, mean in zip(chunks, means, strict=True)
            ]
            counts = [len(part) for part in parts]
            clock = np.repeat(low, counts) + np.repeat(high - low, counts) * np.concatenate(parts)
        starts, ends = np.repeat(starts_s, counts), np.repeat(ends_s, counts)
        times = inside(self.curve.inverse(clock), starts, ends)
        # Copies, since a part of an array keeps the whole of it in memory.
        parts = np.split(times, np.cumsum(counts)[:-1])
        return [{self.source: part.copy()} for part in parts]

    def _have_many(self, chunks: range) -> Sequence[bool]:
        if self.spacing != "poisson":
            return super()._have_many(chunks)
        return chunks_with_many(self.curve, chunks, self.chunk_s)

    def _divided(self, chunk: int, points_s: FloatArray) -> Counts:
        clock = self.curve.cumulative(points_s)
        random, total = self._generator(chunk), clock[-1] - clock[0]
        count = random.poisson(total)  # as many as in `sorted_uniform`
        return np.atleast_2d(random.multinomial(count, np.diff(clock) / total))

    def _check(self) -> None:
        check_seed(self.seed)
        if self.spacing not in ("poisson", "even"):
            raise InputError("spacing", self.spacing, "'poisson' or 'even'")


def chunks_with_many(curve: Curve, chunks: range, chunk_s: float) -> list[bool]:
    """Whether the items of each chunk are better divided over the steps than drawn one by one."""
    borders: FloatArray = chunk_s * np.arange(chunks.start, chunks.stop + 1, dtype=np.float64)
    many: list[bool] = (np.diff(curve.cumulative(borders)) > MOST_DRAWN).tolist()
    return many


def sorted_uniform(random: np.random.Generator, mean: float) -> FloatArray:
    """A Poisson number of uniform draws from [0, 1), in order, without sorting.

    The partial sums of n + 1 exponential gaps, divided by their total, are n sorted uniforms.
    """
    count = int(random.poisson(mean))
    gaps = random.standard_exponential(count + 1)
    total = np.cumsum(gaps, out=gaps)
    return np.asarray(total[:-1] / total[-1])


def inside(
    times_s: FloatArray, start_s: float | FloatArray, end_s: float | FloatArray
) -> FloatArray:
    """Correct rounding errors that swap two times or cross the border of the chunk.

    start_s, end_s: of the chunk, or of the chunk of each item.
    """
    np.clip(times_s, start_s, np.nextafter(end_s, -math.inf), out=times_s)
    return np.maximum.accumulate(times_s, out=times_s)


@dataclass(frozen=True)
class ConstantRate(FromCurve):
    """A constant rate, the M in M/M/k if Poisson.

    rate_per_s: items per second on average. duration_s: duration, in seconds. seed: random seed.
    source: name of the source. spacing: "poisson", or "even" for evenly spaced items.

    >>> tweets = ConstantRate(320, duration_s=600, source="tweets")
    >>> len(tweets.arrivals(0, 600)["tweets"]) / 600
    320.153...
    """

    rate_per_s: float
    duration_s: float
    seed: int = 0
    source: str = "input"
    spacing: Spacing = "poisson"

    def __post_init__(self) -> None:
        finite(self.rate_per_s, "rate_per_s", low=0)
        finite(self.duration_s, "duration_s", above=0)
        self._check()

    @cached_property
    def curve(self) -> Curve:
        """One segment."""
        knots = np.array((0.0, self.duration_s))
        return Curve(knots, np.array((float(self.rate_per_s),)), np.zeros(1))

    def multiplied(self, factor: float) -> ConstantRate:
        """The same workload with `factor` times the rate."""
        return replace(self, rate_per_s=self.rate_per_s * factor)


@dataclass(frozen=True, eq=False)
class RateTrace(FromCurve):
    """A table of rates over time, with Poisson arrivals (or evenly spaced ones) at that rate.

    Args:
        t_s: Increasing times from 0, in seconds.
        rate_per_s: Items per second from each time on.
        end_s: End of the last rate; by default the last row lasts as long as the one before.
        interpolation: "step" holds each rate until the next, "linear" draws a line to it (the last
            row is then only the end of the last line).
        seed: Random seed.
        source: Name of the source.
        spacing: "poisson", or "even" for evenly spaced items.

    >>> steps = RateTrace((0, 60, 120), (10, 40, 20), source="orders")
    >>> steps.duration_s, steps.rate(75), steps.expected(np.array((0, 90, 180)))["orders"].tolist()
    (180.0, 40.0, [1800.0, 2400.0])
    >>> len(steps.arrivals(60, 120)["orders"]) / 60
    39.433...
    """

    t_s: FloatArray
    rate_per_s: FloatArray
    end_s: float | None = None
    interpolation: Interpolation = "step"
    seed: int = 0
    source: str = "input"
    spacing: Spacing = "poisson"

    def __post_init__(self) -> None:
        for name in ("t_s", "rate_per_s"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._check()
        self._check_table()

    def _check_table(self) -> None:
        times, rates = self.t_s, self.rate_per_s
        if times.ndim != 1 or len(times) == 0 or rates.shape != times.shape:
            allowed = "as many rates as times, and at least one"
            raise InputError("rate_per_s", f"{rates.shape} for {times.shape}", allowed)
        if times[0] != 0:
            remedy = "count from the start of the trace"
            raise InputError("t_s[0]", float(times[0]), "0", remedy)
        for name, bad, allowed in (
            ("t_s", ~np.isfinite(times), "a finite number"),
            ("t_s", np.diff(times, prepend=-1.0) <= 0, "after the one before it"),
            ("rate_per_s", ~(np.isfinite(rates) & (rates >= 0)), "a finite number of at least 0"),
        ):
            if bad.any():
                i = int(bad.argmax())
                raise InputError(f"{name}[{i}]", float(getattr(self, name)[i]), allowed)
        if self.interpolation not in ("step", "linear"):
            raise InputError("interpolation", self.interpolation, "'step' or 'linear'")
        if self.interpolation == "linear":
            if len(times) < 2:
                raise InputError("t_s", len(times), "at least two times", "a line needs two ends")
            if self.end_s is not None and self.end_s != times[-1]:
                raise InputError("end_s", self.end_s, "left out", "the last row is the end")
        elif self.end_s is not None:
            finite(self.end_s, "end_s", above=float(times[-1]))
        elif len(times) < 2:
            remedy = "one row does not say how long it lasts"
            raise InputError("end_s", None, "given for a table of one row", remedy)

    @cached_property
    def duration_s(self) -> float:
        """Seconds until the last rate ends."""
        if self.interpolation == "linear":
            return float(self.t_s[-1])
        if self.end_s is not None:
            return float(self.end_s)
        return float(2 * self.t_s[-1] - self.t_s[-2])

    @cached_property
    def curve(self) -> Curve:
        """The table as a curve."""
        if self.interpolation == "linear":
            slopes = np.diff(self.rate_per_s) / np.diff(self.t_s)
            return Curve(self.t_s, self.rate_per_s[:-1], slopes)
        knots = np.append(self.t_s, self.duration_s)
        return Curve(knots, self.rate_per_s, np.zeros_like(self.rate_per_s))

    def multiplied(self, factor: float) -> RateTrace:
        """The same workload with `factor` times the rate."""
        return replace(self, rate_per_s=self.rate_per_s * factor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateTrace) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        settings = (self.duration_s, self.interpolation, self.seed, self.source, self.spacing)
        return (self.t_s.tobytes(), self.rate_per_s.tobytes(), *settings)


@dataclass(frozen=True)
class Bursty(Chunked):
    """The rate of another workload, with its items gathered into short bursts.

    Bursts start like a Poisson process. Each has a geometric number of items, and each item
    follows the start of its burst after an exponential delay. With a mean size m, the variance of
    the number of items in an interval much longer than a burst is 2m − 1 times its mean. The *index
    of dispersion* therefore describes it: 1 is Poisson, 9 is a minute of Frankfurt trades.

    The delay applies to the clock of expected items and wraps around the end of a chunk, so that
    the expected rate is exactly that of the base and each chunk is independent of the others.

    base: the rate (its seed and spacing are not used). dispersion: variance/mean of the counts
    over intervals ≫ burst_s, at least 1. burst_s: mean delay of an item within its burst, in
    seconds. seed: random seed.

    >>> trades = Bursty(ConstantRate(12, duration_s=6000), dispersion=9, burst_s=0.03, seed=1)
    >>> times = trades.arrivals(0, 6000)["input"]
    >>> counts = np.histogram(times, np.arange(0, 6001, 5))[0]
    >>> round(float(counts.mean()), 1), round(float(counts.var() / counts.mean()), 1)
    (61.2, 8.8)
    """

    base: ConstantRate | RateTrace
    dispersion: float
    burst_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.base, ConstantRate | RateTrace):
            remedy = "bursts are made from a rate, not from items that are already fixed"
            raise InputError("base", type(self.base).__name__, "ConstantRate or RateTrace", remedy)
        finite(self.dispersion, "dispersion", low=1, remedy="1 is a Poisson process")
        finite(self.burst_s, "burst_s", low=0)
        check_seed(self.seed)

    @property
    def duration_s(self) -> float:
        """Seconds until the base ends."""
        return self.base.duration_s

    @property
    def sources(self) -> tuple[str, ...]:
        """The base's source."""
        return self.base.sources

    @property
    def chunk_s(self) -> float:
        """Length of a chunk in seconds: at least ten times that of a burst."""
        if self.burst_s * 10 > CHUNK_S:
            return CHUNK_S * math.ceil(self.burst_s * 10 / CHUNK_S)
        shortened = self.base.chunk_s
        while shortened < self.burst_s * 10:
            shortened *= 2
        return shortened

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`, as in the base."""
        return self.base.rate(t_s)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next, as in the base."""
        return self.base.expected(edges_s)

    def multiplied(self, factor: float) -> Bursty:
        """More bursts of the same size, as when more independent streams are joined."""
        return replace(self, base=self.base.multiplied(factor))

    def _have_many(self, chunks: range) -> Sequence[bool]:
        return chunks_with_many(self.base.curve, chunks, self.chunk_s)

    def _divided(self, chunk: int, points_s: FloatArray) -> Counts:
        if np.diff(points_s).min() < 10 * self.burst_s:  # the items of a burst may be far apart
            return np.array(list(count_drawn(self._draw(chunk), points_s).values()))
        # All items of a burst count where it starts.
        sizes, starts = self._bursts(self._generator(chunk), *self._span(chunk))
        clock = self.base.curve.cumulative(points_s)
        step = np.searchsorted((clock[1:-1] - clock[0]) / (clock[-1] - clock[0]), starts, "right")
        counts = np.bincount(step, sizes, len(clock) - 1)
        return np.atleast_2d(counts).astype(np.int64)

    def _span(self, chunk: int) -> tuple[float, float]:
        """When a chunk begins and ends."""
        return chunk * self.chunk_s, min((chunk + 1) * self.chunk_s, self.duration_s)

    def _bursts(
        self, random: np.random.Generator, start_s: float, end_s: float
    ) -> tuple[Counts, FloatArray]:
        """The size of each burst of a chunk, and where on its clock it starts, from 0 to 1."""
        low, high = self.base.curve.cumulative(np.array((start_s, end_s)))
        size = (self.dispersion + 1) / 2
        bursts = int(random.poisson((high - low) / size))
        return random.geometric(1 / size, bursts), random.random(bursts)

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        start_s, end_s = self._span(chunk)
        random = self._generator(chunk)
        sizes, starts = self._bursts(random, start_s, end_s)
        share = np.repeat(starts, sizes)
        share += random.standard_exponential(len(share)) * (self.burst_s / (end_s - start_s))
        share -= np.floor(share)
        share.sort()
        low, high = self.base.curve.cumulative(np.array((start_s, end_s)))
        clock = low + (high - low) * share
        return {self.base.source: inside(self.base.curve.inverse(clock), start_s, end_s)}
