"""The workloads of the papers that Tidegate reproduces, with explicit assumptions.

- FUGU: T. Heinze et al., *Auto-scaling techniques for elastic data stream processing*, ICDE
  Workshops 2014, replayed the tick load of three days of the Frankfurt stock exchange. Those days
  are not public. `ExchangeDay` generates days like the 28 whole Xetra days of July 2017 and
  February 2018 that we measured: `benchmarks/exchange_days.py` recomputes every number here from
  the trace files, and `designs/006-exchange-days.md` compares both.
- VISP: C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ CS
  3:e141, 2017, "Data arrival pattern". The series are those of the authors' dataProvider
  (github.com/visp-streaming/dataProvider) and not of the paper's text: its levels are 2, 4 and 6
  machines where the text says "two to eight", and steps last 501 and 1001 ticks of 480 ms.
- J. Cerviño et al., *Adaptive provisioning of stream processing systems in the cloud*, ICDE
  Workshops 2012.
- DRS: T. Z. J. Fu et al., *DRS: dynamic resource scheduling for real-time analytics over fast
  streams*, ICDCS 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.counting import Counts
from tidegate.workloads.protocol import (
    CHUNK_S,
    Chunked,
    FloatArray,
    check_seed,
    generator,
    word,
)
from tidegate.workloads.rates import Bursty, ConstantRate, RateTrace

__all__ = [
    "MINUTES",
    "ExchangeDay",
    "Pattern",
    "VideoFrames",
    "VispPattern",
    "cervino_ramp",
    "cervino_steps",
    "drs_tweets",
    "exchange_minutes",
]

# --- Cerviño and DRS -----------------------------------------------------------------------------

# Assumed. The text gives no levels for Fig. 7, only "step-wise", "demanding and sharp changes" and
# two submitters. It states one rate for a submitter, 30,000 tuples/s, which overloads a small VM.
# The levels go up to both submitters at 30,000, with rises and falls of one half, one and one and a
# half submitters. Each level is long enough for the system to settle.
_STEP_LEVELS = (15_000, 30_000, 60_000, 45_000, 15_000, 60_000, 30_000, 15_000)


def cervino_steps(
    levels_per_s: Sequence[float] = _STEP_LEVELS, step_s: float = 300.0, source: str = "stocks"
) -> RateTrace:
    """The step-wise rates of Cerviño's Fig. 7, with evenly spaced tuples.

    The paper's text states neither levels nor durations. Assumed here: levels up to 60,000
    tuples/s, which is both submitters at the 30,000 tuples/s that overload a small VM, for ten of
    the paper's 30 s periods each.

    levels_per_s: tuples per second, one level after the other; step_s: duration of each level, in
    seconds. source: name of the source.

    >>> steps = cervino_steps()
    >>> steps.duration_s / 60, len(steps.arrivals(290, 310)["stocks"])
    (40.0, 450000)
    """
    finite(step_s, "step_s", above=0)
    times = np.arange(len(levels_per_s), dtype=np.float64) * step_s
    rates = np.array(levels_per_s, dtype=np.float64)
    end_s = len(levels_per_s) * float(step_s)
    return RateTrace(times, rates, end_s=end_s, source=source, spacing="even")


def cervino_ramp(step_s: float = 60.0, steps: int = 11, source: str = "stocks") -> RateTrace:
    """From 100,000 to 200,000 tuples/s, as in Cerviño's Fig. 5.

    The paper states the two ends and "gradually". Assumed: equal steps (of 10,000), each of
    `step_s` seconds, which is long enough to add a VM by hand.

    >>> cervino_ramp().rate(0), cervino_ramp().rate(659)
    (100000.0, 200000.0)
    """
    return cervino_steps(np.linspace(100_000, 200_000, steps).tolist(), step_s, source)


def drs_tweets(duration_s: float = 1800.0, seed: int = 0, source: str = "tweets") -> ConstantRate:
    """DRS' tweets for frequent pattern detection: Poisson, 320 a second (section V).

    >>> drs_tweets().rate(0)
    320.0
    """
    return ConstantRate(320.0, duration_s, seed=seed, source=source)


@dataclass(frozen=True)
class VideoFrames(Chunked):
    """DRS' video for logo detection: each second brings 1 to 25 frames, 13 on average.

    The number is uniform and drawn for every second. As in the authors' code, the frames arrive in
    a burst at the start of the second, evenly over `burst_s`. The length of a burst is not
    published; 0.2 s is assumed.

    Args:
        duration_s: Duration, in seconds.
        low: Fewest frames in a second.
        high: Most frames in a second.
        burst_s: Length of a burst in seconds, at most 1; 0 for all frames at once.
        seed: Random seed.
        source: Name of the source.
        videos: Number of independent videos, whose frames add up.

    >>> video = VideoFrames(duration_s=1800)
    >>> len(video.arrivals(0, 1800)["video"]) / 1800
    13.223...
    """

    duration_s: float = 1800.0
    low: int = 1
    high: int = 25
    burst_s: float = 0.2
    seed: int = 0
    source: str = "video"
    videos: int = 1

    def __post_init__(self) -> None:
        finite(self.duration_s, "duration_s", above=0)
        finite(self.videos, "videos", low=1)
        finite(self.low, "low", low=0)
        finite(self.high, "high", low=self.low)
        finite(self.burst_s, "burst_s", low=0, high=1)
        check_seed(self.seed)

    @property
    def sources(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source,)

    def rate(self, t_s: float) -> float:
        """Frames expected per second at `t_s`, averaged over the second."""
        return self.videos * (self.low + self.high) / 2 if 0 <= t_s < self.duration_s else 0.0

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Frames expected between each edge and the next, bursts smoothed over their second."""
        inside = np.clip(edges_s, 0.0, self.duration_s)
        return {self.source: np.diff(inside) * self.videos * (self.low + self.high) / 2}

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        seconds = int(CHUNK_S)
        each = self._generator(chunk).integers(self.low, self.high + 1, (self.videos, seconds))
        frames = each.sum(axis=0)
        second = np.repeat(np.arange(seconds), frames)
        nth = np.arange(len(second)) - np.repeat(np.cumsum(frames) - frames, frames)
        return {self.source: chunk * CHUNK_S + second + nth / frames[second] * self.burst_s}


# --- VISP ----------------------------------------------------------------------------------------

Pattern = Literal["stepwise", "two_level", "random_walk_1", "random_walk_2"]

TICK_S = 0.48
TICKS = 15_000  # 120 minutes
_TICKS_PER_CHUNK = 125  # 60 s

# Items that one machine sends at each tick, by source.
ITEMS_PER_TICK = {"S1": 5, "S2": 1, "S3": 10}

# Ticks of a segment, and the number of machines in each segment ("5x3": three segments with 5). Two
# jobs ran in parallel, each with one half of the machines, the first with the larger half.
_SERIES: dict[str, tuple[int, str]] = {
    "stepwise": (501, "2 4 6 4 " * 7 + "2 4"),
    "two_level": (1001, "2 6 " * 7 + "2"),
    "random_walk_1": (
        125,
        "2 4x2 5 6 5x5 4 5 6x2 7x2 6 5 4x2 5 6 7 6 5 4 5 6x3 7 6 7x2 6 5x2 4 3x2 4x2 5x2 6x3 5 4 "
        "5x2 6x2 7x5 6x3 5x4 4 5 4x2 5x2 4 3 4 3x4 2 3x4 2x2 1 2x3 3x2 2x2 3 4 3x4 2 3x8 2 1x9 2 3",
    ),
    "random_walk_2": (
        125,
        "2 4 3x2 2 1x11 2x2 1x5 2x5 1x5 2x7 3 4x3 5x2 6x2 5 6x2 5 4 5 6x3 7 8 7x4 8x7 7 6 5 6 7 "
        "8x10 7x2 6x2 5 4x3 5 6 7x2 8x5 7 6x4 5 4x2 5x4 4x4 3 2",
    ),
}


@dataclass(frozen=True)
class VispPattern(Chunked):
    """Manufacturing machines that all report at the same moment, every 480 ms.

    At each tick every machine sends 10 items to S3, 5 to S1 and 1 to S2, in one burst. Only the
    number of machines changes.

    pattern: "stepwise", "two_level", "random_walk_1" or "random_walk_2".
    spread_s: seconds over which the items of a burst spread uniformly, 0 for all at once. The paper
    does not give the time that the authors' threads took.
    phase_s: delay of the second job after the first, in seconds (not given either).
    seed: random seed of the spread.
    length_s: seconds in which the whole series is played. Ticks stay 480 ms apart: a shorter one
    leaves ticks out.

    >>> walk = VispPattern("random_walk_2")
    >>> walk.machines(45 * 60), round(walk.rate(45 * 60), 1)
    (5, 166.7)
    >>> {source: len(times) for source, times in walk.arrivals(0, 7200).items()}
    {'S1': 345000, 'S2': 69000, 'S3': 690000}
    """

    pattern: Pattern = "stepwise"
    spread_s: float = 0.0
    phase_s: float = 0.0
    seed: int = 0
    length_s: float = TICKS * 12 / 25

    def __post_init__(self) -> None:
        if self.pattern not in _SERIES:
            raise InputError("pattern", self.pattern, "one of " + ", ".join(_SERIES))
        finite(self.length_s, "length_s", low=TICK_S, high=TICKS * 12 / 25)
        finite(self.spread_s, "spread_s", low=0)
        finite(self.phase_s, "phase_s", low=0)
        if self.spread_s + self.phase_s > TICK_S:
            remedy = "a burst is over before the next one begins"
            raise InputError("spread_s + phase_s", self.spread_s + self.phase_s, "≤ 0.48", remedy)
        check_seed(self.seed)

    @property
    def duration_s(self) -> float:
        """The paper's 120 minutes, or as long as it is played."""
        return self.ticks * 12 / 25

    @property
    def ticks(self) -> int:
        """The number of ticks that are played."""
        return round(self.length_s * 25 / 12)

    @property
    def sources(self) -> tuple[str, ...]:
        """The paper's three sources."""
        return tuple(ITEMS_PER_TICK)

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """None unless bursts are spread: the series is fixed."""
        return super().streams if self.spread_s else frozenset()

    @cached_property
    def machines_by_tick(self) -> NDArray[np.int64]:
        """Machines that report at each tick (15,000 in the paper), both jobs together."""
        ticks, text = _SERIES[self.pattern]
        runs = [run.partition("x") for run in text.split()]
        totals = [int(level) for level, _, count in runs for _ in range(int(count or 1))]
        series = np.repeat(np.array(totals), ticks)[:TICKS]
        return series[np.arange(self.ticks) * TICKS // self.ticks]

    def machines(self, t_s: float) -> int:
        """The number of machines that report at `t_s`."""
        return int(self.machines_by_tick[int(t_s // TICK_S)]) if 0 <= t_s < self.duration_s else 0

    def rate(self, t_s: float) -> float:
        """Items per second at `t_s`, all sources together, averaged over the tick."""
        return self.machines(t_s) * sum(ITEMS_PER_TICK.values()) / TICK_S

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items between each edge and the next; ticks are smoothed over the 480 ms they last."""
        ticks = np.arange(self.ticks + 1) * 12 / 25
        until = np.concatenate(([0], np.cumsum(self.machines_by_tick)))
        machine_ticks = np.diff(np.interp(edges_s, ticks, until))
        return {source: machine_ticks * items for source, items in ITEMS_PER_TICK.items()}

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        tick = np.arange(chunk * _TICKS_PER_CHUNK, min((chunk + 1) * _TICKS_PER_CHUNK, self.ticks))
        total = self.machines_by_tick[tick]
        times = np.concatenate((tick * 12 / 25, tick * 12 / 25 + self.phase_s))
        reports = np.concatenate(((total + 1) // 2, total // 2))
        random = self._generator(chunk)
        found = {}
        for source, items in ITEMS_PER_TICK.items():
            sent = np.repeat(times, reports * items)
            if self.spread_s:
                sent += random.random(len(sent)) * self.spread_s
            found[source] = np.sort(sent, kind="stable")
        return found


# --- FUGU ----------------------------------------------------------------------------------------

MINUTES = 511  # 9:00 to 17:30 local time, and the minute of the closing auction's call

# Median over the days of rate/mean, in blocks of ten minutes. The minutes listed below (in the
# first, the 40th and the last block) are not counted here.
_SHAPE = (
    "1.89 1.49 1.31 1.23 1.08 1.05 1.06 0.92 0.93 0.90 0.87 0.86 0.85 0.81 0.81 0.77 0.74 "
    "0.77 0.67 0.64 0.61 0.62 0.59 0.66 0.71 0.61 0.57 0.54 0.58 0.57 0.62 0.61 0.67 0.76 "
    "0.73 0.75 0.80 0.79 0.86 1.12 1.07 1.12 1.20 1.13 1.13 1.20 1.12 1.16 1.39 1.50 1.80"
)
# Minutes for which ten-minute blocks are too coarse: the opening, the US opening, the close.
_MOMENTS: dict[int, tuple[float, ...]] = {
    0: (1.09, 1.44, 1.97, 1.85, 1.92, 2.53, 2.48, 2.12, 1.84, 1.64),
    390: (1.73, 1.41, 1.36, 1.19, 1.31, 1.53, 1.57),
    508: (2.52, 4.03, 0.43),
}
_US_DATA_MINUTE = 330  # 14:30 local time, when US statistics are published

# The logarithm of the random factor on the shape, minute by minute.
_SLOW_SD, _SLOW_MINUTES = 0.12, 25.0  # slow drift
_FAST_SD, _FAST_KEEP = 0.19, 0.12  # change between minutes, and the share that stays
_JUMP_SHARE, _JUMP_MEAN, _JUMP_MOST, _JUMP_AFTER = 0.05, 0.5, 1.6, 0.3  # a large order
_NEWS_PER_DAY, _NEWS_LOW, _NEWS_HIGH, _NEWS_MINUTES = 0.3, 0.8, 2.2, 6.0  # with aftershocks
_LEVEL_SD = 0.197  # of the logarithm of a day's mean


def _shape() -> FloatArray:
    shape = np.append(np.repeat(np.array(_SHAPE.split(), dtype=np.float64), 10), 1.0)
    for minute, values in _MOMENTS.items():
        shape[minute : minute + len(values)] = values
    return shape


def _autoregressive(random: np.random.Generator, sd: float, keep: float) -> FloatArray:
    """Normal values of standard deviation `sd`, each correlated with the last by `keep`."""
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
    log_rate = _autoregressive(random, _SLOW_SD, np.exp(-1 / _SLOW_MINUTES))
    log_rate += _autoregressive(random, _FAST_SD, _FAST_KEEP)
    jumps = np.minimum(random.exponential(_JUMP_MEAN, MINUTES), _JUMP_MOST)
    jumps *= random.random(MINUTES) < _JUMP_SHARE
    jumps /= np.maximum(1.0, shape)  # an order counts less in a busy minute
    log_rate += jumps
    log_rate[1:] += _JUMP_AFTER * jumps[:-1]
    for _ in range(random.poisson(_NEWS_PER_DAY)):
        # Half of the news are US statistics, the rest occur at any minute.
        at = _US_DATA_MINUTE if random.random() < 0.5 else int(random.integers(15, 480))
        size = random.uniform(_NEWS_LOW, _NEWS_HIGH)
        log_rate[at:] += size * np.exp(-np.arange(MINUTES - at) / _NEWS_MINUTES)
    rates = shape * np.exp(log_rate)
    return np.asarray(rates / rates.mean())


@dataclass(frozen=True)
class ExchangeDay:
    """The trades of one day (511 minutes) on an exchange like Frankfurt's.

    The day has a peak at the opening, a calm noon, a step when the US markets open at 15:30 and a
    rush to the close. A slow drift, single high minutes and occasional news with aftershocks add to
    that. Within a minute, trades arrive in bursts of a few hundredths of a second, as large orders
    match many small ones. Each seed is another day.

    seed: random seed. mean_per_s: trades per second over the day; None draws it like that of the
    real days (8 to 17, median 10.7). dispersion, burst_s: as in `Bursty`, from the one Frankfurt
    minute with single trades. source: name of the source.

    To replay it in an hour, as FUGU did, use ``Scaled(day, speed=511 / 60)``.

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

    def counted(self, edges_s: FloatArray) -> dict[str, Counts]:
        """How many trades arrive from each edge until before the next."""
        return self.trades.counted(edges_s)

    def multiplied(self, factor: float) -> ExchangeDay:
        """The same day with `factor` times the trades."""
        return replace(self, mean_per_s=self.level_per_s * factor)
