"""Burstiness of events over time, at several scales, and over keys.

Everything here is computed from counts by step, or from sums of counts and of their squares. Such
sums add up over machines, so a log of any size can be described in a distributed way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.workloads.protocol import FloatArray

__all__ = [
    "SCALES",
    "block_sums",
    "dispersion_by_scale",
    "gini",
    "hurst_from_variances",
    "key_statistics",
    "lorenz",
    "usable_scales",
    "whole_blocks",
]

SCALES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of steps that are averaged to see how the variance decreases."""
_FEWEST_STEPS, _FEWEST_BLOCKS = 64, 15


def usable_scales(steps: int, first: int = 0) -> list[int]:
    """The scales at which a number of steps gives a usable variance; none below 64 steps.

    first: number of the first step, where blocks begin at multiples of the scale.

    >>> usable_scales(300)
    [1, 2, 4, 8, 16]
    """
    if steps < _FEWEST_STEPS:
        return []
    return [m for m in SCALES if whole_blocks(steps, m, first)[1] >= _FEWEST_BLOCKS]


def whole_blocks(steps: int, scale: int, first: int = 0) -> tuple[int, int]:
    """Start of the first whole block of `scale` steps, and the number of whole blocks.

    first: number of the first step; blocks begin at multiples of the scale.

    >>> whole_blocks(steps=10, scale=4, first=3)  # 3 | 4 5 6 7 | 8 9 10 11 | 12
    (1, 2)
    """
    skipped = -first % scale
    return skipped, max(0, (steps - skipped) // scale)


def block_sums(counts: FloatArray, scale: int, first: int = 0) -> FloatArray:
    """Counts of whole blocks of `scale` steps; `first` as in `whole_blocks`."""
    begin, number = whole_blocks(len(counts), scale, first)
    blocks = counts[begin : begin + number * scale].reshape(number, scale)
    return np.asarray(blocks.sum(axis=1))


def hurst_from_variances(scales: Sequence[int], variances: FloatArray) -> FloatArray:
    """The Hurst exponent by aggregated variance, for each row of variances of block *means*.

    Means of m steps have a variance ~ m^(2H−2). NaN with fewer than two scales or a zero variance.
    Trends and daily patterns bias the estimate upwards: it shows memory, but not which kind.

    scales: numbers of steps. variances: a row for each series and a column for each scale.
    """
    variances = np.atleast_2d(np.asarray(variances, dtype=np.float64))
    found = np.full(len(variances), np.nan)
    usable = (variances > 0).all(axis=1) if len(scales) > 1 else np.zeros(len(variances), bool)
    if usable.any():
        slopes = np.polyfit(np.log(scales), np.log(variances[usable]).T, 1)[0]
        found[usable] = np.clip(1 + slopes / 2, 0.0, 1.0)
    return found


def dispersion_by_scale(counts: FloatArray) -> dict[int, float]:
    """Variance / mean of the events in m steps, by m: 1 at all scales for a Poisson process.

    If it grows with the scale, bursts do not average out and a longer window does not help.

    >>> seen = dispersion_by_scale(np.random.default_rng(1).poisson(20, 20_000).astype(float))
    >>> round(seen[1], 1), round(seen[32], 1)
    (1.0, 1.0)
    """
    blocks = {m: block_sums(counts, m) for m in usable_scales(len(counts))}
    return {m: float(b.var() / b.mean()) for m, b in blocks.items() if b.mean() > 0}


def key_statistics(
    steps: int,
    step_s: float,
    first: int,
    events: FloatArray,
    peaks: FloatArray,
    sums: FloatArray,
    squares: FloatArray,
) -> dict[str, FloatArray]:
    """Rates and burstiness of many keys at once, over the same span.

    Returns by name: rate_per_s, share, peak_to_mean, cv, dispersion (variance / mean of the events
    in a step), hurst (NaN if unknown). Steps without an event count as zeros.

    Args:
        steps: Number of steps.
        step_s: Length of a step, in seconds.
        first: Number of the first step.
        events: Total of events by key.
        peaks: Most events in one step, by key.
        sums: Sums of events in whole blocks, a row for each key and a column for each of
            `usable_scales`, or for scale 1 alone in a short trace.
        squares: Sums of squares of the same.

    >>> counts = np.array([4.0, 0, 0, 4])
    >>> one = np.ones(1)
    >>> got = key_statistics(4, 2.0, 0, 8 * one, 4 * one, [[8]], [[32]])
    >>> {name: float(value[0]) for name, value in got.items() if name != "hurst"}
    {'rate_per_s': 1.0, 'share': 1.0, 'peak_to_mean': 2.0, 'cv': 1.0, 'dispersion': 2.0}
    """
    scales = usable_scales(steps, first) or [1]
    blocks = np.array([whole_blocks(steps, m, first)[1] for m in scales], dtype=np.float64)
    means = np.asarray(sums, dtype=np.float64) / blocks
    variances = np.maximum(0.0, np.asarray(squares, dtype=np.float64) / blocks - means**2)
    mean, variance = events / steps, variances[:, 0]
    return {
        "rate_per_s": np.asarray(mean / step_s),
        "share": np.asarray(events / events.sum()),
        "peak_to_mean": np.asarray(peaks / mean),
        "cv": np.sqrt(variance) / mean,
        "dispersion": variance / mean,
        "hurst": hurst_from_variances(scales, variances / np.square(scales)),
    }


def lorenz(sizes: FloatArray, keys: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The Lorenz curve: shares of events (y) of the smallest shares of keys (x), from 0 to 1.

    sizes: events of a key. keys: number of keys of that size.
    """
    order = np.argsort(sizes)
    sizes, keys = np.asarray(sizes, dtype=np.float64)[order], np.asarray(keys, np.float64)[order]
    x, y = np.cumsum(keys), np.cumsum(sizes * keys)
    return np.insert(x / x[-1], 0, 0.0), np.insert(y / y[-1], 0, 0.0)


def gini(sizes: FloatArray, keys: FloatArray) -> float:
    """The Gini coefficient: 0 if all keys have equally many events, near 1 if one has all.

    sizes, keys: as in `lorenz`.

    >>> gini(np.array([5.0]), np.array([8.0])), gini(np.array([0.0, 9.0]), np.array([3.0, 1.0]))
    (0.0, 0.75)
    """
    x, y = lorenz(sizes, keys)
    return float(1 - (np.diff(x) * (y[1:] + y[:-1])).sum())
