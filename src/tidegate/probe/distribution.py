"""Distributions of durations that need the same memory for a minute and for a day."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegate.probe.results import Durations

__all__ = ["Distribution"]

_LOW_S, _DECADES, _PER_DECADE = 1e-7, 10, 200
_EDGES = _LOW_S * 10 ** (np.arange(_DECADES * _PER_DECADE + 1) / _PER_DECADE)
"""Upper edges of the bins, from 100 ns to 1,000 s; each is 1.2 % above the one before."""


class Distribution:
    """Weighted durations in logarithmic bins; mean and maximum are exact.

    A quantile is the upper edge of its bin: at most 1.2 % too long, never too short.

    >>> delays = Distribution()
    >>> delays.add([0.010, 0.020], [99, 1])
    >>> round(delays.quantile(0.99), 3), round(delays.quantile(1.0), 3), delays.quantile(0.99, 10)
    (0.01, 0.02, None)
    """

    def __init__(self) -> None:
        self._bins: NDArray[np.int64] = np.zeros(len(_EDGES) + 1, np.int64)
        self.count = 0
        self.total_s = 0.0
        self.worst_s = 0.0

    def add(self, seconds: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add durations, in seconds, each counted `weights` times (whole numbers; default: 1)."""
        values = np.maximum(np.asarray(seconds, float), 0.0)
        if not values.size:
            return
        times = np.ones(values.size) if weights is None else np.asarray(weights, float)
        places = np.searchsorted(_EDGES, values, side="left")
        self._bins += np.bincount(places, times, minlength=len(self._bins)).astype(np.int64)
        self.count += int(times.sum())
        self.total_s += float((values * times).sum())
        self.worst_s = max(self.worst_s, float(values.max()))

    def merge(self, other: Distribution) -> None:
        """Add what another distribution holds."""
        self._bins += other._bins
        self.count += other.count
        self.total_s += other.total_s
        self.worst_s = max(self.worst_s, other.worst_s)

    def quantile(self, share: float, missing: int = 0) -> float | None:
        """A duration that this share does not exceed; None without values.

        missing: number of further values that are longer than any, such as tuples that were lost.
        """
        if not self.count:
            return None
        wanted = share * (self.count + missing)
        if wanted > self.count * (1 + 1e-12):
            return None
        place = int(np.searchsorted(np.cumsum(self._bins), wanted - 1e-9))
        return self.worst_s if place >= len(_EDGES) else min(float(_EDGES[place]), self.worst_s)

    def durations(self, missing: int = 0) -> Durations | None:
        """Its figures, None without values; `missing` as in `quantile`."""
        if not self.count:
            return None
        p50, p95, p99 = (self.quantile(share, missing) for share in (0.5, 0.95, 0.99))
        return Durations(self.count, self.total_s / self.count, p50, p95, p99, self.worst_s)
