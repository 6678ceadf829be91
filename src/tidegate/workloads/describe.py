"""What a workload is like, in a few numbers and one line of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.burstiness import block_sums, hurst_from_variances, usable_scales
from tidegate.workloads.protocol import FloatArray, Predictable, Workload
from tidegate.workloads.rates import RateTrace

__all__ = ["Description", "describe", "peak_per_s", "series", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
MOST_STEPS = 5_000_000


@dataclass(frozen=True, slots=True)
class Description:
    """A workload in numbers, all of them taken at one step.

    duration_s, step_s: seconds; items: how many in all; mean_per_s, peak_per_s: items per second;
    cv: standard deviation / mean of the rate; max_rise: largest increase from one step to the
    next / mean; dispersion: variance / mean of the items in a step (index of dispersion: 1 for a
    Poisson process, 0 for an even one); autocorrelation: of the rate, at the lags (in steps) that
    the trace is long enough for; hurst: how slowly averages calm down (0.5: independent steps,
    towards 1: long memory and trends), None when there are fewer than 64 steps or no variance.
    """

    duration_s: float
    step_s: float
    items: float
    mean_per_s: float
    peak_per_s: float
    cv: float
    max_rise: float
    dispersion: float
    autocorrelation: dict[int, float]
    hurst: float | None

    @property
    def peak_to_mean(self) -> float:
        """Peak / mean, the first thing that a capacity planner asks for."""
        return self.peak_per_s / self.mean_per_s if self.mean_per_s else math.nan


def series(workload: Workload, step_s: float) -> FloatArray:
    """Items per second over each whole step, all sources together.

    Expected where the workload knows it (recorded rates and events are what they were), counted
    from its arrivals where it does not.

    >>> series(RateTrace((0, 60), (10, 40)), step_s=30).tolist()
    [10.0, 10.0, 40.0, 40.0]
    """
    finite(step_s, "step_s", above=0)
    steps = math.floor(workload.duration_s / step_s + 1e-9)
    if not 1 <= steps <= MOST_STEPS:
        allowed = f"at most the duration of {workload.duration_s:g} s, and not microscopic"
        raise InputError("step_s", step_s, allowed)
    edges = np.arange(steps + 1, dtype=np.float64) * step_s
    if isinstance(workload, Predictable):
        items = sum(workload.expected(edges).values(), np.zeros(steps))
        return np.asarray(items / step_s)
    found = workload.arrivals(0.0, float(edges[-1])).values()
    counts = sum((np.diff(np.searchsorted(times, edges)) for times in found), np.zeros(steps))
    return np.asarray(counts / step_s)


def natural_step_s(workload: Workload) -> float:
    """A table's own step; else a round one that gives some hundred points."""
    if isinstance(workload, RateTrace) and len(workload.t_s) > 1:
        return float(np.median(np.diff(workload.t_s)))
    wanted = workload.duration_s / 500
    round_steps = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
    fitting = [step for step in round_steps if step <= wanted]
    return fitting[-1] if fitting else workload.duration_s / 100


def peak_per_s(workload: Workload) -> float:
    """The peak that `describe` tells, where nothing else is asked for."""
    return float(series(workload, natural_step_s(workload)).max())


def describe(workload: Workload, step_s: float | None = None) -> Description:
    """Mean, peak, burstiness and memory of a workload.

    step_s: the step at which it is looked at, by default the one that it was recorded with.

    >>> day = describe(RateTrace(np.arange(0, 600, 60), (8, 9, 12, 30, 14, 11, 9, 8, 8, 11)))
    >>> day.mean_per_s, day.peak_to_mean, round(day.cv, 2), round(day.autocorrelation[1], 2)
    (12.0, 2.5, 0.52, 0.2)
    """
    step_s = natural_step_s(workload) if step_s is None else step_s
    rates = series(workload, step_s)
    mean = float(rates.mean())
    sd = float(rates.std())
    rise = float(np.diff(rates).max()) if len(rates) > 1 else 0.0
    lags = [lag for lag in (1, 2, 5, 15, 30, 60) if lag * 3 <= len(rates)]
    return Description(
        duration_s=float(workload.duration_s),
        step_s=float(step_s),
        items=float(rates.sum() * step_s),
        mean_per_s=mean,
        peak_per_s=float(rates.max()),
        cv=sd / mean if mean else math.nan,
        max_rise=max(0.0, rise) / mean if mean else math.nan,
        dispersion=sd * sd * step_s / mean if mean else math.nan,
        autocorrelation={lag: autocorrelation(rates, lag) for lag in lags} if sd else {},
        hurst=hurst(rates),
    )


def autocorrelation(values: FloatArray, lag: int) -> float:
    """How much a value says about the one `lag` later, −1 to 1."""
    centred = values - values.mean()
    return float((centred[lag:] * centred[:-lag]).sum() / (centred * centred).sum())


def hurst(values: FloatArray) -> float | None:
    """The Hurst exponent by aggregated variance: means of m values have a variance ~ m^(2H−2).

    An estimate, biased upwards by trends and daily shapes: it says "memory", not which kind.

    >>> round(hurst(np.random.default_rng(1).normal(size=4096)), 2)
    0.49
    """
    sizes = usable_scales(len(values))
    if not sizes or values.std() == 0:
        return None
    variances = np.array([(block_sums(values, m) / m).var() for m in sizes])
    found = float(hurst_from_variances(sizes, variances)[0])
    return None if math.isnan(found) else found


def sparkline(values: Sequence[float] | FloatArray, width: int = 60) -> str:
    """Values as a line of blocks for the terminal, from zero to their peak; NaN is a space.

    width: columns at most; each shows the largest of its values, so that no peak is lost.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7])
    '▁▂▃▄▅▆▇█'
    >>> len(sparkline(range(1000), width=40))
    40
    """
    finite(width, "width", low=1)
    array = np.asarray(values, dtype=np.float64)
    if len(array) == 0:
        return ""
    columns = np.array_split(array, min(int(width), len(array)))
    peaks = [float(np.nanmax(c)) if not np.isnan(c).all() else math.nan for c in columns]
    top = max((peak for peak in peaks if math.isfinite(peak)), default=0.0)
    return "".join(" " if math.isnan(peak) else _BLOCKS[_level(peak, top)] for peak in peaks)


def _level(value: float, top: float) -> int:
    if top <= 0 or value <= 0:
        return 0
    return min(len(_BLOCKS) - 1, int(min(value, top) / top * (len(_BLOCKS) - 1) + 0.5))
