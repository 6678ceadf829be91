"""Percentiles of any number of latencies in a fixed amount of memory.

A latency falls into one of 2,560 buckets: the binary exponent of the number and the first six
bits of its mantissa. A bucket is at most 1/64 of its value wide, so its middle is off by less
than 0.8 %. The bucket number is read from the bits of the float without a logarithm, which is
why the kernels can afford it for each item. Two sketches are merged by adding their counts.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.theory.compiled import compiled

__all__ = ["BUCKETS", "LatencySketch", "bucket_middle", "bucket_of", "quantile_of"]

Counts = NDArray[np.int64]

LOWEST_EXPONENT = -20
"""Anything below 2**-20 s, a microsecond, is in the first bucket."""
OCTAVES = 40
STEPS = 64
BUCKETS = OCTAVES * STEPS
TOGETHER = 8
"""Buckets that are looked at together for a change: most are empty. It divides their number."""
RELATIVE_ERROR = 1 / (2 * STEPS)

_SHIFT = 52 - 6
_OFFSET = (1023 + LOWEST_EXPONENT) * STEPS


@compiled(inline="always")
def bucket_of(seconds: float) -> int:
    """The bucket that a latency falls into."""
    index = (np.float64(seconds).view(np.int64) >> _SHIFT) - _OFFSET
    if index < 0:
        return 0
    return int(index) if index < BUCKETS else BUCKETS - 1


@compiled
def bucket_middle(index: int) -> float:
    """The latency in the middle of a bucket, in seconds."""
    octave, step = index // STEPS, index % STEPS
    return math.ldexp(1.0 + (step + 0.5) / STEPS, LOWEST_EXPONENT + octave)


def quantile_of(counts: Counts, total: int, share: float) -> float:
    """The latency that `share` of the items do not exceed; NaN without items."""
    if total == 0:
        return math.nan
    wanted = max(1.0, float(math.ceil(share * total)))
    bucket = int(np.searchsorted(np.cumsum(counts), wanted))
    return float(bucket_middle(min(bucket, len(counts) - 1)))


class LatencySketch:
    """Counts of latencies by bucket, with their number and sum.

    >>> import numpy as np
    >>> sketch = LatencySketch().add(np.arange(1, 1001) / 1000)
    >>> sketch.count, round(sketch.quantile(0.95), 2), round(sketch.mean_s, 4)
    (1000, 0.95, 0.5005)
    """

    def __init__(self, counts: Counts | None = None, total_s: float = 0.0) -> None:
        self.counts = np.zeros(BUCKETS, np.int64) if counts is None else counts
        self.total_s = total_s

    @property
    def count(self) -> int:
        """Latencies in the sketch."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float | None:
        """Exact mean, None without items."""
        return self.total_s / self.count if self.count else None

    def add(self, seconds: NDArray[np.float64]) -> LatencySketch:
        """Add latencies, in seconds; returns the sketch itself."""
        values = np.asarray(seconds, np.float64)
        _count(self.counts, values)
        self.total_s += float(values.sum())
        return self

    def merged(self, other: LatencySketch) -> LatencySketch:
        """The sum of both sketches."""
        return LatencySketch(self.counts + other.counts, self.total_s + other.total_s)

    def quantile(self, share: float) -> float | None:
        """The latency that `share` (0 to 1) of the items do not exceed, None without items."""
        if not 0 <= share <= 1:
            raise InputError("quantile", share, "between 0 and 1", "0.95 is the 95th percentile")
        total = self.count
        return float(quantile_of(self.counts, total, share)) if total else None


@compiled
def _count(counts: Counts, values: NDArray[np.float64]) -> None:
    for value in values:
        counts[bucket_of(value)] += 1
