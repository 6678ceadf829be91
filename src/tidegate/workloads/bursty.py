"""Items that come in bursts around a rate, as trades, log lines and frames do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.protocol import CHUNK_S, Chunked, FloatArray, check_seed
from tidegate.workloads.rates import ConstantRate, RateTrace, inside

__all__ = ["Bursty"]


@dataclass(frozen=True)
class Bursty(Chunked):
    """The rate of another workload, with its items gathered into short bursts.

    Bursts begin like a Poisson process; each has a geometric number of items, and each item
    follows the beginning of its burst after an exponential delay. With a mean size m the variance
    of the number of items in an interval much longer than a burst is 2m − 1 times its mean, so
    the *index of dispersion* says everything: 1 is Poisson, 9 is a minute of Frankfurt trades.

    The delay is taken on the clock of expected items, around the end of a chunk to its beginning,
    so that the expected rate is exactly the base's at every instant and a chunk needs no other.

    base: the rate (its seed and spacing are not used); dispersion: variance/mean of the counts
    over intervals ≫ burst_s, at least 1; burst_s: mean delay of an item within its burst;
    seed: which of the possible runs.

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
        """A chunk holds bursts whole: at least ten of their lengths, in whole minutes."""
        if self.burst_s * 10 > CHUNK_S:
            return CHUNK_S * math.ceil(self.burst_s * 10 / CHUNK_S)
        shortened = self.base.chunk_s
        while shortened < self.burst_s * 10:
            shortened *= 2
        return shortened

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`: the base's."""
        return self.base.rate(t_s)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next: the base's."""
        return self.base.expected(edges_s)

    def multiplied(self, factor: float) -> Bursty:
        """More bursts of the same size, as when more independent streams are joined."""
        return replace(self, base=self.base.multiplied(factor))

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        start_s, end_s = chunk * self.chunk_s, min((chunk + 1) * self.chunk_s, self.duration_s)
        low, high = self.base.curve.cumulative(np.array((start_s, end_s)))
        random = self._generator(chunk)
        size = (self.dispersion + 1) / 2
        bursts = int(random.poisson((high - low) / size))
        sizes = random.geometric(1 / size, bursts)
        share = np.repeat(random.random(bursts), sizes)
        share += random.standard_exponential(len(share)) * (self.burst_s / (end_s - start_s))
        share -= np.floor(share)
        share.sort()
        clock = low + (high - low) * share
        return {self.base.source: inside(self.base.curve.inverse(clock), start_s, end_s)}
