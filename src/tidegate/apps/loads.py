"""The papers' load shapes for live runs, by name.

A shape says when the items of a source arrive, for a mean rate and a duration, see
`tidegate.apps.application.Shape`. What the papers played for an hour or two is played in the time
of the run, at the mean rate of the application: a shorter run has faster changes, not more items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from tidegate.apps.market import exchange_day
from tidegate.errors import InputError
from tidegate.workloads import ConstantRate, Only, Scaled, VideoFrames, VispPattern, Workload
from tidegate.workloads.papers import ITEMS_PER_TICK, TICK_S, Pattern

__all__ = ["LOADS", "Shape", "load", "steady", "video", "visp"]

Shape = Callable[[str, float, float, int], Workload]
"""shape(source, mean_per_s, seconds, seed): when the source's items arrive in these seconds."""

BURST_S = 0.65
"""Length of a burst of frames in seconds, as in the reproduction of DRS."""
MACHINES = 4.0
"""Machines of the factory at its own rate, about the mean of VISP's patterns."""


def steady(source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    """A Poisson process at the mean rate."""
    return ConstantRate(mean_per_s, seconds, seed=seed, source=source)


def video(source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    """Each second a burst of 1 to 25 frames of each video, 13 on average (DRS).

    A mean rate that is no multiple of 13 frames/s leaves frames out or repeats them.

    >>> video("frames", 26, 600, 1).rate(0)
    26.0
    """
    videos = max(1, round(mean_per_s / 13))
    made = VideoFrames(seconds, burst_s=BURST_S, seed=seed, source=source, videos=videos)
    factor = mean_per_s / made.rate(0)
    return made if factor == 1 else Scaled(made, rate_factor=factor)


def visp(pattern: Pattern, source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    """Machines that report together every 480 ms, in a number that follows a pattern (VISP).

    Of the factory's sensors each machine sends what it does in the paper. With four machines on
    average, which is the factory's own rate, the numbers of machines are those of the paper.

    >>> steps = visp("stepwise", "S2", 4 / 0.48, 120, 1)
    >>> [round(steps.rate(t) * 0.48) for t in (2, 6, 10, 14)]
    [2, 4, 6, 4]
    """
    sensor = source if source in ITEMS_PER_TICK else "S2"
    one = Only(VispPattern(pattern, length_s=seconds), sensor, source)
    factor = mean_per_s / (MACHINES * ITEMS_PER_TICK[sensor] / TICK_S)
    return one if factor == 1 else Scaled(one, rate_factor=factor, seed=seed)


LOADS: dict[str, Shape] = {
    "steady": steady,
    "exchange-day": exchange_day,
    "video": video,
    **{f"visp:{pattern}": partial(visp, pattern) for pattern in get_args(Pattern)},
}
"""Load shapes by name."""


def load(name: str) -> Shape:
    """The load shape of that name."""
    if name not in LOADS:
        raise InputError("load", name, f"one of {', '.join(LOADS)}")
    return LOADS[name]
