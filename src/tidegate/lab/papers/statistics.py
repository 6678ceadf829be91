"""Statistics that the experiments of the papers share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tidegate.simulation import LatencySketch, RunReport
from tidegate.simulation.kernels.sketch import BUCKETS, bucket_middle

__all__ = [
    "deviation_s",
    "half_width",
    "interval",
    "mean",
    "mean_between",
    "ranks",
    "spread",
]


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def spread(values: Sequence[float], digits: int = 3, factor: float = 1.0, unit: str = "") -> str:
    """A mean with its standard deviation over seeds, and without one for a single seed.

    >>> spread([1.0, 1.2], unit=" s"), spread([0.5])
    ('1.1 ± 0.141 s', '0.5')
    """
    values = [value * factor for value in values]
    middle = f"{mean(values):.{digits}g}"
    if len(values) > 1:
        middle += f" ± {float(np.std(values, ddof=1)):.{digits}g}"
    return middle + unit


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of the mean (Student's t), None for a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import t  # it would take longer than all else that a command imports

    spread = float(np.std(values, ddof=1)) / float(np.sqrt(len(values)))
    return float(t.ppf(0.975, len(values) - 1)) * spread


def interval(values: Sequence[float], digits: int = 2, sign: bool = False) -> str:
    """The mean with half the width of its 95 % interval.

    >>> interval([0.5, 0.52, 0.54]), interval([0.5])
    ('0.52 ± 0.05', '0.50')
    """
    middle = f"{float(np.mean(values)):{'+' if sign else ''}.{digits}f}"
    half = half_width(values)
    return middle if half is None else f"{middle} ± {half:.{digits}f}"


def ranks(values: Sequence[float]) -> tuple[int, ...]:
    """The place of each value, 0 for the smallest; equal values in the order given.

    >>> ranks([30, 10, 20])
    (2, 0, 1)
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    places = [0] * len(values)
    for place, i in enumerate(order):
        places[i] = place
    return tuple(places)


@cache
def _middles() -> NDArray[np.float64]:
    """The middle of every bucket; on first use, because it loads compiled code."""
    return np.array([bucket_middle(i) for i in range(BUCKETS)])


def deviation_s(latencies: LatencySketch) -> float:
    """Standard deviation of the latencies of single items, off by less than 1 %."""
    counts, total = latencies.counts, latencies.count
    if total == 0:
        return math.nan
    middle = float(np.dot(counts, _middles())) / total
    return math.sqrt(float(np.dot(counts, (_middles() - middle) ** 2)) / total)


def mean_between(report: RunReport, start_s: float, end_s: float) -> float:
    """Mean latency of the items that were finished in (start_s, end_s], NaN without any.

    Rows of the time series that end in this interval count as a whole.
    """
    rows = report.series
    items = seconds = 0.0
    before = 0.0
    for end, rate, latency in zip(
        rows.time_s, rows.finished_per_s, rows.latency_mean_s, strict=True
    ):
        if end is None or rate is None:
            continue
        if start_s + 1e-6 < end <= end_s + 1e-6 and latency is not None:
            weight = rate * (end - before)
            items += weight
            seconds += weight * latency
        before = end
    return seconds / items if items else math.nan
