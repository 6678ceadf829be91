"""The simplest workload: items at random, at a constant rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Poisson"]


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process for each source. rates_per_s: items per second by source."""

    rates_per_s: Mapping[str, float]

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        """Sorted arrival times in [start_s, end_s) by source."""
        drawn = {}
        for name, rate in self.rates_per_s.items():
            count = rng.poisson(rate * (end_s - start_s))
            drawn[name] = np.sort(rng.uniform(start_s, end_s, count))
        return drawn

    def expected(self, edges_s: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Items to be expected between each moment and the next, by source."""
        return {name: rate * np.diff(edges_s) for name, rate in self.rates_per_s.items()}
