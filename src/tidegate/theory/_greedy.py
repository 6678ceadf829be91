"""The compiled inner loop of `queueing.assign_processors`. Compilation is cached on disk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.theory.compiled import compiled

__all__ = ["greedy_kernel"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def _sift_down(heap: Ints, gain: Floats, tie: Floats, start: int) -> None:
    """Put the entry at `start` where it belongs; the order is (gain, tie, index)."""
    here = start
    while True:
        least = here
        for child in (2 * here + 1, 2 * here + 2):
            if child < len(heap):
                c, m = heap[child], heap[least]
                if gain[c] < gain[m] or (
                    gain[c] == gain[m] and (tie[c] < tie[m] or (tie[c] == tie[m] and c < m))
                ):
                    least = child
        if least == here:
            return
        heap[here], heap[least] = heap[least], heap[here]
        here = least


@compiled
def greedy_kernel(
    counts: Ints,
    loads: Floats,
    factors: Floats,
    limits: Ints,
    blocking: Floats,
    waits: Floats,
    processors: int,
) -> Ints:
    """Give `processors` one at a time where they take away most waiting; returns the counts.

    counts: the least processors, changed in place; blocking, waits: Erlang B and waiting items at
    those; limits: -1 for none.
    """
    n = len(counts)
    gain = np.empty(n)
    tie = np.zeros(n)
    inverse = np.empty(n)
    after = np.empty(n)
    for i in range(n):
        a, k = loads[i], counts[i] + 1
        inverse[i] = 1 + k / (a * blocking[i]) if a * blocking[i] > 0 else np.inf
        b = 1 / inverse[i]
        spare = k - a
        after[i] = k * b * a / (spare * (spare + a * b))
        gain[i] = (after[i] - waits[i]) * factors[i]
        if 0 <= limits[i] <= counts[i]:
            gain[i] = np.inf
    heap = np.arange(n)
    for start in range(n // 2 - 1, -1, -1):
        _sift_down(heap, gain, tie, start)
    for _ in range(processors):
        i = heap[0]
        if gain[i] > 0:
            break
        counts[i] += 1
        a = loads[i]
        k = counts[i] + 1
        before = after[i]
        inverse[i] = 1 + k * inverse[i] / a if a > 0 else np.inf
        spare = k - a
        after[i] = k * a / (spare * (spare * inverse[i] + a))
        gain[i] = (after[i] - before) * factors[i]
        tie[i] = 0.0 if gain[i] != 0 else -a / counts[i]
        if 0 <= limits[i] <= counts[i]:
            gain[i] = np.inf
        _sift_down(heap, gain, tie, 0)
    return counts
