"""Which operators to move, and where to: subset sum and first fit, as in FUGU (section II).

Both are exact about what they promise: `select_to_move` finds the smallest load that is enough,
`first_fit_decreasing` never touches what it was not given and never fills a host beyond its room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.model.topology import Resources

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Item", "first_fit_decreasing", "select_to_move"]

MOST_STEPS = 1_000_000
"""Steps into which all loads together are divided at most, by `select_to_move`."""

_COMPILED_FROM = 20_000
"""Items times bins from which the compiled kernel pays for its start (measured: `make bench`)."""


def select_to_move(
    loads: Mapping[str, float], needed: float, resolution: float = 0.001
) -> tuple[str, ...]:
    """The operators whose total load is the smallest that is at least `needed`.

    An exact subset sum over loads in whole steps of `resolution` (longer ones where that would be
    more than `MOST_STEPS`), as a dynamic program whose table is one big integer a row: bit t is set
    when the load t can be reached. Loads are rounded down and the need up, so that what is chosen
    is always enough; where even all of it is too little, all of it is chosen.

    loads: load by operator, in any unit; needed: load to take away, in the same unit;
    resolution: in the same unit again (a thousandth of a core).

    >>> select_to_move({"a": 0.25, "b": 0.30, "c": 0.10, "d": 0.20}, needed=0.35)
    ('a', 'c')
    """
    if needed <= 0:
        return ()
    # The table has a bit for each step: loads that are wrong by orders of magnitude get long steps.
    resolution = max(resolution, math.fsum(loads.values()) / MOST_STEPS)
    steps = {name: math.floor(load / resolution + 1e-6) for name, load in loads.items()}
    # Ascending, so that going back through the rows meets the largest first: fewer moves.
    names = sorted([name for name, more in steps.items() if more > 0], key=steps.__getitem__)
    goal = math.ceil(needed / resolution - 1e-6)
    if sum(map(steps.__getitem__, names)) <= goal:
        return tuple(name for name in loads if loads[name] > 0)

    rows = [1]
    for name in names:
        rows.append(rows[-1] | rows[-1] << steps[name])
    above = rows[-1] >> goal
    total = goal + (above & -above).bit_length() - 1

    chosen = set()
    for row, name in zip(reversed(rows[:-1]), reversed(names), strict=True):
        rest = total - steps[name]
        if rest >= 0 and row >> rest & 1:
            chosen.add(name)
            total = rest
    return tuple(name for name in loads if name in chosen)


class Item(NamedTuple):
    """Something to place: an instance, its operator and the resources that it takes."""

    id: str
    operator: str
    size: Resources


def first_fit_decreasing(
    items: Sequence[Item],
    free: Sequence[Sequence[float]],
    neighbours: Mapping[str, frozenset[str]] | None = None,
    located: Mapping[str, Sequence[int]] | None = None,
) -> list[int]:
    """A bin for each item, or -1: the largest CPU first, each into the first bin with room.

    Bins that already hold a neighbouring operator come first. Memory and network are side
    constraints. Only the given items are placed; whatever else is in the bins stays there.

    free: cores, megabytes and megabits per second left in each bin, in order of preference.
    neighbours: operators that exchange items; located: bins that hold an operator already.

    >>> sizes = {"a": 0.4, "b": 0.7, "c": 0.5}
    >>> items = [Item(name, name, Resources(cores)) for name, cores in sizes.items()]
    >>> first_fit_decreasing(items, free=[(1.0, 0, 0), (1.0, 0, 0)])
    [1, 0, 1]
    """
    if len(items) * len(free) >= _COMPILED_FROM:
        return _place_compiled(items, free, neighbours or {}, located or {})
    return _place(items, free, neighbours or {}, located or {})


def _place(
    items: Sequence[Item],
    free: Sequence[Sequence[float]],
    neighbours: Mapping[str, frozenset[str]],
    located: Mapping[str, Sequence[int]],
) -> list[int]:
    room = [list(bin_) for bin_ in free]
    every = range(len(room))
    holders = {operator: set(bins) for operator, bins in located.items()}
    placed = [-1] * len(items)
    for index in sorted(range(len(items)), key=lambda i: -items[i].size.cpu_cores):
        _, operator, size = items[index]
        cores, memory, network = size.cpu_cores, size.memory_mb, size.network_mbps
        near: set[int] = set()
        for other in neighbours.get(operator, ()):
            near |= holders.get(other, set())
        for j in (*sorted(near), *every) if near else every:
            left = room[j]
            if cores - 1e-9 <= left[0] and memory - 1e-6 <= left[1] and network - 1e-6 <= left[2]:
                left[0] -= cores
                left[1] -= memory
                left[2] -= network
                placed[index] = j
                holders.setdefault(operator, set()).add(j)
                break
    return placed


def _place_compiled(
    items: Sequence[Item],
    free: Sequence[Sequence[float]],
    neighbours: Mapping[str, frozenset[str]],
    located: Mapping[str, Sequence[int]],
) -> list[int]:
    """The same as `_place`, on arrays; a property test holds the two equal."""
    import numpy as np

    from tidegate.theory._first_fit import first_fit_kernel

    groups = {name: g for g, name in enumerate(dict.fromkeys(item.operator for item in items))}
    sizes = np.array(
        [(i.size.cpu_cores, i.size.memory_mb, i.size.network_mbps) for i in items], dtype=np.float64
    )
    group_of = np.array([groups[item.operator] for item in items], dtype=np.int64)
    order = np.argsort(-sizes[:, 0], kind="stable")
    # What never changes: bins that hold a neighbour from the start. What does: neighbours that
    # are among the items themselves.
    fixed: list[set[int]] = [set() for _ in groups]
    moving: list[list[int]] = [[] for _ in groups]
    for name, g in groups.items():
        for other in neighbours.get(name, ()):
            fixed[g] |= set(located.get(other, ()))
            if other in groups:
                moving[g].append(groups[other])
    members: list[list[int]] = [[] for _ in groups]
    for index, item in enumerate(items):
        members[groups[item.operator]].append(index)
    placed = first_fit_kernel(
        sizes,
        order,
        group_of,
        np.array(free, dtype=np.float64).reshape(-1, 3),
        *_ragged([sorted(bins) for bins in fixed]),
        *_ragged(moving),
        *_ragged(members),
    )
    return [int(j) for j in placed]


def _ragged(rows: Sequence[Sequence[int]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of unequal length as (start of each row, all values)."""
    import numpy as np

    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    return starts, np.array([value for row in rows for value in row], dtype=np.int64)
