"""The compiled inner loop of `placement.first_fit_decreasing`. Compilation is cached on disk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.theory.compiled import compiled

__all__ = ["first_fit_kernel"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def _fits(size: Floats, left: Floats) -> bool:
    return bool(
        size[0] - 1e-9 <= left[0] and size[1] - 1e-6 <= left[1] and size[2] - 1e-6 <= left[2]
    )


@compiled
def first_fit_kernel(
    sizes: Floats,
    order: Ints,
    group_of: Ints,
    room: Floats,
    fixed_start: Ints,
    fixed: Ints,
    moving_start: Ints,
    moving: Ints,
    member_start: Ints,
    member: Ints,
) -> Ints:
    """A bin for each item or -1; `room` is used up on the way.

    sizes (n, 3) and room (m, 3): cores, megabytes, megabits per second. order: items by falling
    CPU. group_of: each item's operator. fixed: bins that hold a neighbour of a group from the
    start; moving: neighbouring groups; member: items of a group; each as rows in one array.
    """
    placed = np.full(len(sizes), -1, np.int64)
    for index in order:
        size = sizes[index]
        group = group_of[index]
        best = -1
        for f in range(fixed_start[group], fixed_start[group + 1]):
            if _fits(size, room[fixed[f]]):
                best = fixed[f]
                break
        for m in range(moving_start[group], moving_start[group + 1]):
            other = moving[m]
            for p in range(member_start[other], member_start[other + 1]):
                j = placed[member[p]]
                if j >= 0 and (best < 0 or j < best) and _fits(size, room[j]):
                    best = j
        if best < 0:
            for j in range(len(room)):
                if _fits(size, room[j]):
                    best = j
                    break
        if best >= 0:
            placed[index] = best
            for r in range(3):
                room[best, r] -= size[r]
    return placed
