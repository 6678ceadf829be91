"""How many items arrive in each step, for which many items need not be drawn one by one.

A flow needs only the number of items of each of its steps. Drawing an item and finding its step
takes some 35 ns, so that a day at 700 items a second took two seconds, eight times as long as the
rest of the simulation. Where the total of a chunk of time is known, one random draw divides it over
the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_DRAWN", "Counts", "count_by_chunk", "count_drawn", "counted"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

MOST_DRAWN = 10_000
"""Items of a chunk, on average, up to which they are drawn in order to be counted."""


def counted(workload: Any, edges_s: Floats) -> Mapping[str, Counts]:
    """How many items of a workload arrive from each edge until before the next, by source.

    Workloads without ``counted(edges_s)`` are asked for all their items.
    """
    if hasattr(workload, "counted"):
        found: Mapping[str, Counts] = workload.counted(edges_s)
        return found
    return count_drawn(workload.arrivals(float(edges_s[0]), float(edges_s[-1])), edges_s)


def count_drawn(times_s: Mapping[str, Floats], edges_s: Floats) -> dict[str, Counts]:
    """How many of these items arrive from each edge until before the next, by source."""
    # Like np.histogram, which takes ten times as long to find out that all is in order.
    return {source: np.diff(np.searchsorted(times, edges_s)) for source, times in times_s.items()}


def count_by_chunk(
    edges_s: Floats,
    chunk_s: float,
    many: Sequence[bool],
    first: int,
    rows: int,
    one_by_one: Callable[[float, float], Counts],
    divided: Callable[[int, Floats], Counts],
) -> Counts:
    """How many items arrive from each edge until before the next, a row for each source.

    Args:
        edges_s: Moments in order, in seconds.
        chunk_s: Length of a chunk, in seconds.
        many: Whether a chunk has too many items to be drawn, for each chunk from `first` on.
        first: Number of the first chunk.
        rows: Number of sources.
        one_by_one: How many items arrive between all edges, of those that are drawn from one moment
            until before another.
        divided: How many items of a chunk with many arrive between moments that begin and end with
            the chunk, a row for each source.
    """
    found = np.zeros((rows, len(edges_s) - 1), np.int64)
    place = 0
    while place < len(many):
        begin = place
        if many[place]:
            place += 1
        while place < len(many) and not many[begin] and not many[place]:
            place += 1
        start_s, end_s = (first + begin) * chunk_s, (first + place) * chunk_s
        if not many[begin]:
            found += one_by_one(start_s, end_s)
            continue
        inside = edges_s[(edges_s > start_s) & (edges_s < end_s)]
        points = np.unique(np.concatenate(([start_s], inside, [end_s])))
        step = np.searchsorted(edges_s, points[:-1], "right") - 1
        known = (step >= 0) & (step < found.shape[1])
        found[:, step[known]] += divided(first + begin, points)[:, known]
    return found
