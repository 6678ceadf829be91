"""The optimum in hindsight by dynamic programming: exact, for few hosts and short units.

The state after a slot is the running units by age and the waiting work by due slot. With a given
number of hosts, processing the oldest work first and dropping overdue work completes the most work
in time, and with items of one size the most items. So only the leases must be chosen, and of two
paths into the same state the cheaper one is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.lab.bound.slots import SlotGrid

__all__ = ["Optimum", "optimum", "tractable"]

Queue = tuple[tuple[int, float], ...]
State = tuple[tuple[int, ...], Queue]
Path = tuple["Path", int] | None


@dataclass(frozen=True)
class Optimum:
    """The optimum: cost, hosts by slot and late items."""

    cost_usd: float
    hosts: tuple[float, ...]
    late: float


def tractable(grid: SlotGrid, most_states: float = 3e4) -> bool:
    """Whether the dynamic program applies and is likely to have at most `most_states` states."""
    sizes = {round(w.size, 12) for w in grid.windows if w.due is not None}
    fits = grid.starts == "slot" and grid.whole and not grid.lost and len(sizes) <= 1
    fits = fits and (grid.closed == 0 or grid.initial == math.inf) and not any(grid.after)
    if not fits or grid.max_hosts > 12 or grid.unit > 64:
        return False
    hosts = int(grid.max_hosts)
    ages = math.comb(hosts + grid.unit - 1, grid.unit - 1)
    longest = max((w.due - w.release for w in grid.windows if w.due is not None), default=0)
    waiting: int = (hosts + 1) ** min(3, longest)
    return ages * waiting <= most_states


def optimum(grid: SlotGrid, penalty_usd: float) -> Optimum:
    """The cheapest plan that starts whole units at slots. penalty_usd: cost of a late item."""
    size = max((w.size for w in grid.windows if w.due is not None), default=0.0)
    arriving: dict[int, list[tuple[int, float]]] = {}
    parts = {w.due_part for w in grid.windows if w.due is not None} or {0.0}
    for w in grid.windows:
        if w.due is not None and w.size > 0:
            arriving.setdefault(w.release, []).append((w.due, w.items * w.size))
    (part,) = parts
    late_cost = penalty_usd / size if size else 0.0
    states: dict[State, tuple[float, float, Path]] = {((0,) * (grid.unit - 1), ()): (0, 0, None)}
    for m in range(grid.slots):
        following: dict[State, tuple[float, float, Path]] = {}
        for (ages, queue), (cost, late, path) in states.items():
            waiting = queue + tuple(arriving.get(m, ()))
            running = sum(ages)
            for started in range(int(grid.max_hosts) - running + 1):
                hosts = running + started
                left, overdue = _serve(waiting, hosts, m, part)
                state: State = ((*ages[1:], started) if ages else (), left)
                total = cost + started * grid.price_usd + overdue * late_cost
                if state not in following or total < following[state][0]:
                    following[state] = (total, late + overdue, (path, hosts))
        states = following
    best: tuple[float, float, Path] = (math.inf, 0.0, None)
    for (_, queue), (cost, late, path) in states.items():
        overdue = math.fsum(work for _, work in queue)  # all due at the end
        if cost + overdue * late_cost < best[0]:
            best = (cost + overdue * late_cost, late + overdue, path)
    series: list[float] = []
    step = best[2]
    while step is not None:
        step, hosts = step
        series.append(float(hosts))
    return Optimum(best[0], tuple(reversed(series)), best[1] / size if size else 0.0)


def _serve(waiting: Queue, hosts: int, slot: int, part: float) -> tuple[Queue, float]:
    """The work that waits after a slot, and the work that became overdue in it."""
    rest = _work_off(waiting, hosts * part)
    overdue = math.fsum(work for due, work in rest if due <= slot)
    return _work_off(tuple(w for w in rest if w[0] > slot), hosts * (1 - part)), overdue


def _work_off(waiting: Queue, capacity: float) -> Queue:
    left = []
    for due, work in waiting:
        used = min(work, capacity)
        capacity -= used
        if work - used > 1e-12:
            left.append((due, round(work - used, 12)))
    return tuple(left)
