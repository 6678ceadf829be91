"""Arrivals: the workload protocols, the simplest workload, and how worlds draw from a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.model.topology import Topology
from tidegate.simulation.kernels.random import stream

__all__ = ["ArrivalChunks", "Arrivals", "Poisson", "SeededArrivals"]

Floats = NDArray[np.float64]
ARRIVALS = 31


class Arrivals(Protocol):
    """A workload with its own random seed: when items arrive from each source.

    The answer for a stretch of time never depends on the caller, so every policy gets the same
    items.
    """

    def arrivals(self, start_s: float, end_s: float) -> Mapping[str, Floats]:
        """Sorted arrival times in [start_s, end_s) by source."""


class SeededArrivals(Protocol):
    """A workload without its own random seed: the world passes a generator.

    The world asks for fixed stretches of time one after the other. The generator of each depends
    only on the world's seed and the number of the stretch.
    """

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> Mapping[str, Floats]:
        """Sorted arrival times in [start_s, end_s) by source."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process for each source. rates_per_s: items per second by source."""

    rates_per_s: Mapping[str, float]

    def arrivals(self, start_s: float, end_s: float, rng: np.random.Generator) -> dict[str, Floats]:
        """Sorted arrival times in [start_s, end_s) by source."""
        drawn = {}
        for name, rate in self.rates_per_s.items():
            count = rng.poisson(rate * (end_s - start_s))
            drawn[name] = np.sort(rng.uniform(start_s, end_s, count))
        return drawn

    def expected(self, edges_s: Floats) -> dict[str, Floats]:
        """Expected number of items between each moment and the next, by source."""
        return {name: rate * np.diff(edges_s) for name, rate in self.rates_per_s.items()}


class ArrivalChunks:
    """The arrivals of a workload, one chunk of time after the other.

    workload: the workload. topology: whose sources it feeds. seed: the world's random seed.
    chunk_s: length of a chunk, in seconds. seeded: whether the world passes a generator.
    """

    def __init__(
        self,
        workload: Arrivals | SeededArrivals,
        topology: Topology,
        seed: int,
        chunk_s: float,
    ) -> None:
        self.workload: Any = workload
        self.chunk_s = chunk_s
        self.number = -1
        self.seeded = len(signature(workload.arrivals).parameters) > 2
        self._seed = seed
        self._sources = {source.name: n for n, source in enumerate(topology.sources)}

    @property
    def end_s(self) -> float:
        """End of the current chunk, in seconds; 0 before the first."""
        return (self.number + 1) * self.chunk_s

    def draw(self) -> Mapping[str, Floats]:
        """The arrivals of the current chunk, from a generator that serves nothing else."""
        drawn: Mapping[str, Floats]
        start_s, end_s = self.number * self.chunk_s, self.end_s
        if self.seeded:
            rng = stream(self._seed, ARRIVALS, self.number)
            drawn = self.workload.arrivals(start_s, end_s, rng)
        else:
            drawn = self.workload.arrivals(start_s, end_s)
        return drawn

    def source_number(self, name: str) -> int:
        """Position of a source in the topology; raises InputError for an unknown name."""
        if name not in self._sources:
            known = "a source of the topology: " + ", ".join(self._sources)
            raise InputError("arrivals of", name, known)
        return self._sources[name]
