"""A generator of exchange days with the statistics of real ones, for FUGU's experiments.

FUGU (Heinze et al., ICDE Workshops 2014) replayed the tick load of three days of the Frankfurt
stock exchange. Those days are not public. This generator makes days like the 28 whole Xetra days
of July 2017 and February 2018 that we measured: `benchmarks/exchange_days.py` recomputes every
number here from the trace files, and `designs/006-exchange-days.md` lays both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tidegate.units import finite
from tidegate.workloads.bursty import Bursty
from tidegate.workloads.protocol import FloatArray, check_seed, generator, word
from tidegate.workloads.rates import RateTrace

__all__ = ["MINUTES", "ExchangeDay", "exchange_minutes"]

MINUTES = 511  # 9:00 to 17:30 local time, and the minute of the closing auction's call

# Median over the days of rate/mean, in blocks of ten minutes; blocks with minutes of their own
# below (the first, the 40th and the last) stand here without them.
_SHAPE = (
    "1.89 1.49 1.31 1.23 1.08 1.05 1.06 0.92 0.93 0.90 0.87 0.86 0.85 0.81 0.81 0.77 0.74 "
    "0.77 0.67 0.64 0.61 0.62 0.59 0.66 0.71 0.61 0.57 0.54 0.58 0.57 0.62 0.61 0.67 0.76 "
    "0.73 0.75 0.80 0.79 0.86 1.12 1.07 1.12 1.20 1.13 1.13 1.20 1.12 1.16 1.39 1.50 1.80"
)
# Where ten minutes are too coarse: the opening, the US opening at 15:30, and the close.
_MOMENTS: dict[int, tuple[float, ...]] = {
    0: (1.09, 1.44, 1.97, 1.85, 1.92, 2.53, 2.48, 2.12, 1.84, 1.64),
    390: (1.73, 1.41, 1.36, 1.19, 1.31, 1.53, 1.57),
    508: (2.52, 4.03, 0.43),
}
_US_DATA_MINUTE = 330  # 14:30 local time, when US statistics are published

# The logarithm of what a day adds to the shape, minute by minute.
_SLOW_SD, _SLOW_MINUTES = 0.12, 25.0  # wandering of the mood
_FAST_SD, _FAST_KEEP = 0.19, 0.12  # from one minute to the next, and how much of it stays
_JUMP_SHARE, _JUMP_MEAN, _JUMP_MOST, _JUMP_AFTER = 0.05, 0.5, 1.6, 0.3  # a large order
_NEWS_PER_DAY, _NEWS_LOW, _NEWS_HIGH, _NEWS_MINUTES = 0.3, 0.8, 2.2, 6.0  # and its aftershocks
_LEVEL_SD = 0.197  # of the logarithm of a day's mean


def _shape() -> FloatArray:
    shape = np.append(np.repeat(np.array(_SHAPE.split(), dtype=np.float64), 10), 1.0)
    for minute, values in _MOMENTS.items():
        shape[minute : minute + len(values)] = values
    return shape


def _wandering(random: np.random.Generator, sd: float, keep: float) -> FloatArray:
    """Normal values of standard deviation `sd`, each `keep` times the last one plus something."""
    steps = random.normal(0, sd * np.sqrt(1 - keep**2), MINUTES)
    steps[0] /= np.sqrt(1 - keep**2)
    for i in range(1, MINUTES):
        steps[i] += keep * steps[i - 1]
    return steps


def exchange_minutes(seed: int) -> FloatArray:
    """The rate of each of the 511 minutes of a day, relative to the day's mean.

    >>> day = exchange_minutes(1)
    >>> len(day), round(float(day.mean()), 6)
    (511, 1.0)
    """
    check_seed(seed)
    random = generator(seed, word("exchange day"))
    shape = _shape()
    log_rate = _wandering(random, _SLOW_SD, np.exp(-1 / _SLOW_MINUTES))
    log_rate += _wandering(random, _FAST_SD, _FAST_KEEP)
    jumps = np.minimum(random.exponential(_JUMP_MEAN, MINUTES), _JUMP_MOST)
    jumps *= random.random(MINUTES) < _JUMP_SHARE
    jumps /= np.maximum(1.0, shape)  # the same order is less in a busy minute
    log_rate += jumps
    log_rate[1:] += _JUMP_AFTER * jumps[:-1]
    for _ in range(random.poisson(_NEWS_PER_DAY)):
        # Half of the news are US statistics, the rest may come at any minute.
        at = _US_DATA_MINUTE if random.random() < 0.5 else int(random.integers(15, 480))
        size = random.uniform(_NEWS_LOW, _NEWS_HIGH)
        log_rate[at:] += size * np.exp(-np.arange(MINUTES - at) / _NEWS_MINUTES)
    rates = shape * np.exp(log_rate)
    return np.asarray(rates / rates.mean())


@dataclass(frozen=True)
class ExchangeDay:
    """The trades of one day on an exchange like Frankfurt's, 511 minutes of them.

    A peak at the opening, a calm noon, a step when the US markets open at 15:30, a rush to the
    close; on it a slowly wandering mood, minutes that jump, and now and then news with
    aftershocks. Inside a minute trades come in bursts of a few hundredths of a second, as large
    orders meet many small ones. Different seeds are different days.

    seed: which day; mean_per_s: trades per second over the day, by default drawn like the real
    days' (8 to 17, median 10.7): give a number to load a cluster; dispersion, burst_s: as in
    `Bursty`, from the one Frankfurt minute with single trades; source: the source that it feeds.

    To play it in an hour, as FUGU did, use ``Scaled(day, speed=511 / 60)``.

    >>> day = ExchangeDay(seed=1, mean_per_s=1000)
    >>> peak = max(day.rate(60 * minute) for minute in range(511))
    >>> round(peak / 1000, 2)
    4.21
    """

    seed: int = 1
    mean_per_s: float | None = None
    dispersion: float = 9.0
    burst_s: float = 0.03
    source: str = "ticks"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.mean_per_s is not None:
            finite(self.mean_per_s, "mean_per_s", above=0)
        _ = self.trades  # its checks

    @cached_property
    def level_per_s(self) -> float:
        """Trades per second over the whole day."""
        if self.mean_per_s is not None:
            return float(self.mean_per_s)
        random = generator(self.seed, word("exchange level"))
        return float(11.2 * np.exp(random.normal(0, _LEVEL_SD)))

    @cached_property
    def trades(self) -> Bursty:
        """The rate of each minute, and the bursts on it."""
        rates = exchange_minutes(self.seed) * self.level_per_s
        table = RateTrace(np.arange(MINUTES, dtype=np.float64) * 60, rates, source=self.source)
        return Bursty(table, self.dispersion, self.burst_s, self.seed)

    @property
    def duration_s(self) -> float:
        """A trading day in seconds."""
        return self.trades.duration_s

    @property
    def sources(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source,)

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """The random stream of the trades."""
        return self.trades.streams

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times of trades in [start_s, end_s)."""
        return self.trades.arrivals(start_s, end_s)

    def rate(self, t_s: float) -> float:
        """Trades expected per second at `t_s`."""
        return self.trades.rate(t_s)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Trades expected between each edge and the next."""
        return self.trades.expected(edges_s)

    def multiplied(self, factor: float) -> ExchangeDay:
        """The same day with `factor` times the trades."""
        return replace(self, mean_per_s=self.level_per_s * factor)
