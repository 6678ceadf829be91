"""Statistics of a workload, and a sparkline for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.burstiness import block_sums, hurst_from_variances, usable_scales
from tidegate.workloads.protocol import FloatArray, Workload
from tidegate.workloads.rates import RateTrace

__all__ = ["Description", "describe", "peak_per_s", "series", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
MOST_STEPS = 5_000_000


@dataclass(frozen=True, slots=True)
class Description:
    """Statistics of a workload, all at one step.

    Args:
        duration_s: Duration, in seconds.
        step_s: Step, in seconds.
        items: Total of items.
        mean_per_s: Mean rate, in items per second.
        peak_per_s: Peak rate, in items per second.
        cv: Standard deviation / mean of the rate.
        max_rise: Largest increase from one step to the next / mean.
        dispersion: Variance / mean of the items in a step (1 for a Poisson process, 0 for an even
            one).
        autocorrelation: Of the rate, by lag in steps, for lags that are short enough.
        hurst: Hurst exponent (0.5: independent steps, near 1: long memory and trends); None with
            fewer than 64 steps or no variance.
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
        """Peak / mean."""
        return self.peak_per_s / self.mean_per_s if self.mean_per_s else math.nan


def series(workload: Workload, step_s: float) -> FloatArray:
    """Items per second over each whole step, all sources together.

    Expected items if the workload can compute them (recorded rates and events are exact), otherwise
    counted arrivals.

    >>> series(RateTrace((0, 60), (10, 40)), step_s=30).tolist()
    [10.0, 10.0, 40.0, 40.0]
    """
    finite(step_s, "step_s", above=0)
    steps = math.floor(workload.duration_s / step_s + 1e-9)
    if not 1 <= steps <= MOST_STEPS:
        allowed = f"at most the duration of {workload.duration_s:g} s, and not microscopic"
        raise InputError("step_s", step_s, allowed)
    edges = np.arange(steps + 1, dtype=np.float64) * step_s
    # `isinstance` of a protocol takes as long as all the rest.
    if expected := getattr(workload, "expected", None):
        items = sum(expected(edges).values(), np.zeros(steps))
        return np.asarray(items / step_s)
    found = workload.arrivals(0.0, float(edges[-1])).values()
    counts = sum((np.diff(np.searchsorted(times, edges)) for times in found), np.zeros(steps))
    return np.asarray(counts / step_s)


def natural_step_s(workload: Workload) -> float:
    """The step of a table; otherwise a round step that gives some hundred points."""
    if isinstance(workload, RateTrace) and len(workload.t_s) > 1:
        return float(np.median(np.diff(workload.t_s)))
    wanted = workload.duration_s / 500
    round_steps = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
    fitting = [step for step in round_steps if step <= wanted]
    return fitting[-1] if fitting else workload.duration_s / 100


def peak_per_s(workload: Workload) -> float:
    """The peak rate of a workload, as in `describe`."""
    return float(series(workload, natural_step_s(workload)).max())


def describe(workload: Workload, step_s: float | None = None) -> Description:
    """Mean, peak, burstiness and memory of a workload.

    step_s: step of the statistics in seconds, by default that of the recording.

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
    """Correlation between a value and the one `lag` steps later, −1 to 1."""
    centred = values - values.mean()
    return float((centred[lag:] * centred[:-lag]).sum() / (centred * centred).sum())


def hurst(values: FloatArray) -> float | None:
    """The Hurst exponent by aggregated variance: means of m values have a variance ~ m^(2H−2).

    Trends and daily patterns bias the estimate upwards: it shows memory, but not which kind.

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

    width: most columns. Each shows the largest of its values, so that no peak is lost.

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
