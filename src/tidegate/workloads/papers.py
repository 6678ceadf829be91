"""The workloads of Cerviño et al. and of DRS, with what their papers leave open said aloud.

J. Cerviño et al., *Adaptive provisioning of stream processing systems in the cloud*, ICDE
Workshops 2012. T. Z. J. Fu et al., *DRS: dynamic resource scheduling for real-time analytics over
fast streams*, ICDCS 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.units import finite
from tidegate.workloads.protocol import CHUNK_S, Chunked, FloatArray, check_seed
from tidegate.workloads.rates import ConstantRate, RateTrace

__all__ = ["VideoFrames", "cervino_ramp", "cervino_steps", "drs_tweets"]

# Assumed. The text gives no level of Fig. 7, only "step-wise", "demanding and sharp changes" and
# two submitters; the one rate that it states for a submitter is 30,000 tuples/s, which is meant
# to overload a small VM. So: up to both submitters at 30,000, with rises and falls of one half,
# one and one and a half submitters, each level long enough to settle.
_STEP_LEVELS = (15_000, 30_000, 60_000, 45_000, 15_000, 60_000, 30_000, 15_000)


def cervino_steps(
    levels_per_s: Sequence[float] = _STEP_LEVELS, step_s: float = 300.0, source: str = "stocks"
) -> RateTrace:
    """The step-wise rates of Cerviño's Fig. 7; tuples at equal distances, as a submitter sends.

    The paper's text states neither levels nor durations. Assumed here: levels up to 60,000
    tuples/s, that is both of its submitters at the 30,000 tuples/s which the text says overload a
    small VM, for ten of its 30-s periods each.

    levels_per_s: tuples per second, one after the other; step_s: how long each lasts.

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
    `step_s` seconds, time enough to add a VM by hand.

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

    The number is uniform and drawn for every second; the frames come in a burst at its beginning
    (so the authors' code), evenly over `burst_s`. The length of a burst is not published: 0.2 s
    is assumed, 0 puts all frames of a second at its beginning.

    duration_s: how long it lasts, seconds; low, high: fewest and most frames in a second;
    burst_s: at most 1; seed: which of the possible videos; source: the source that it feeds.

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

    def __post_init__(self) -> None:
        finite(self.duration_s, "duration_s", above=0)
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
        return (self.low + self.high) / 2 if 0 <= t_s < self.duration_s else 0.0

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Frames expected between each edge and the next, bursts smoothed over their second."""
        inside = np.clip(edges_s, 0.0, self.duration_s)
        return {self.source: np.diff(inside) * (self.low + self.high) / 2}

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        seconds = int(CHUNK_S)
        frames = self._generator(chunk).integers(self.low, self.high + 1, seconds)
        second = np.repeat(np.arange(seconds), frames)
        nth = np.arange(len(second)) - np.repeat(np.cumsum(frames) - frames, frames)
        return {self.source: chunk * CHUNK_S + second + nth / frames[second] * self.burst_s}
