"""The optimum in hindsight by a mixed-integer program: units to start and items to process.

Variables by slot m (all rows are sparse, because each state is defined by a recursion):

- ``start[m]``: billing units that start in the slot, whole numbers.
- ``early[m]``: the part of them that counts as starting at the begin of the slot; the rest counts
  as starting at its end. A unit that starts a share f into slot m covers the same part of every
  slot as (1−f) of a unit that starts at m and f of a unit that starts at m+1.
- ``hosts[m]``: mean number of hosts in the slot; ``lost[m]``: those of them that are starting up.
- ``served``, per window: items in time.
- Per window length, the work done before (``head``) and after (``tail``) the due point of each
  slot, the waiting work (``queue``) and the work done beyond what is due (``ahead``), both at
  least zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import Infeasible
from tidegate.lab.bound.slots import SlotGrid, Window

__all__ = ["Solution", "solve"]

Term = tuple[int, float]


@dataclass(frozen=True)
class Solution:
    """The result of the solver.

    dual_usd: no plan costs less. plan_usd: cost of the plan; None if none was found in time.
    values: variables of the plan. hosts: hosts of the plan by slot. late: its late items.
    """

    dual_usd: float
    plan_usd: float | None
    values: Any
    hosts: tuple[float, ...] = ()
    late: float = math.nan


class _Rows:
    """A linear program under construction: columns, then rows of terms."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.high: list[float] = []
        self.whole: list[int] = []
        self.at: tuple[list[int], list[int], list[float]] = ([], [], [])
        self.low_row: list[float] = []
        self.high_row: list[float] = []

    def columns(
        self, count: int, *, cost: float = 0.0, high: float = math.inf, whole: bool = False
    ) -> range:
        first = len(self.cost)
        self.cost += [cost] * count
        self.high += [high] * count
        self.whole += [int(whole)] * count
        return range(first, first + count)

    def row(self, terms: Iterable[Term], low: float = -math.inf, high: float = math.inf) -> None:
        number = len(self.low_row)
        for column, factor in terms:
            self.at[0].append(number)
            self.at[1].append(column)
            self.at[2].append(factor)
        self.low_row.append(low)
        self.high_row.append(high)


def solve(
    grid: SlotGrid,
    penalty_usd: float,
    *,
    late_at_most: float | None,
    whole_hosts: bool,
    time_limit_s: float,
    gap: float,
) -> Solution:
    """The cheapest plan, or a lower bound of its cost if the time limit is reached.

    Args:
        grid: Demand and offer in slots.
        penalty_usd: Cost of a late item.
        late_at_most: Most late items; None: any number.
        whole_hosts: Whether hosts are whole numbers.
        time_limit_s: Time limit of the solver, in seconds.
        gap: Relative gap at which the solver may stop; the bound accounts for it.
    """
    p = _Rows()
    start, hosts, usable = _leases(p, grid, whole_hosts and grid.whole)
    counted = _service(p, grid, start, usable, penalty_usd)
    seen = math.fsum(w.items for w in grid.windows if w.due is not None)
    if late_at_most is not None:
        p.row([(column, 1.0) for column in counted], low=seen - late_at_most)
    found = _highs(p, penalty_usd * seen, time_limit_s, gap)
    dual = max(0.0, found.dual_usd)
    if found.plan_usd is None:
        return replace(found, dual_usd=dual)
    late = max(0.0, seen - math.fsum(float(found.values[column]) for column in counted))
    series = tuple(max(0.0, round(float(found.values[column]), 6)) for column in hosts)
    return replace(found, dual_usd=dual, hosts=series, late=late)


def _leases(p: _Rows, grid: SlotGrid, whole: bool) -> tuple[range, range, list[list[Term]]]:
    """Columns of units and hosts, and by slot the terms of the hosts that can work."""
    slots, unit, lost = grid.slots, grid.unit, grid.lost
    start = p.columns(slots, cost=grid.price_usd, whole=whole)
    hosts = p.columns(slots, high=math.inf if lost else grid.max_hosts)
    free = grid.starts == "any"
    early = p.columns(slots) if free else start

    def begun(m: int, units: range, at_once: range) -> list[Term]:
        """Terms of the units that count as starting at the begin of slot m."""
        if m < 0:
            return []
        terms = [(at_once[m], 1.0)]
        if free and m > 0:
            terms += [(units[m - 1], 1.0), (at_once[m - 1], -1.0)]
        return terms

    def running(total: range, m: int, length: int, units: range, at_once: range) -> None:
        """Make total[m] the number of units that began in the last `length` slots."""
        terms = [(total[m], 1.0), *_times(-1.0, begun(m, units, at_once))]
        if m > 0:
            terms.append((total[m - 1], -1.0))
        p.row(terms + begun(m - length, units, at_once), 0.0, 0.0)

    usable = [[(hosts[m], 1.0)] for m in range(slots)]
    for m in range(slots):
        if free:
            p.row([(early[m], 1.0), (start[m], -1.0)], high=0.0)
        running(hosts, m, unit, start, early)
    if lost:
        new = p.columns(slots)
        new_early = p.columns(slots) if free else new
        starting = p.columns(slots)
        for m in range(slots):
            # A unit that is not new continues one that ends here, or a host of the start.
            old = [(start[m], 1.0), (new[m], -1.0)]
            ended = [(start[m - unit], -1.0)] if m >= unit else []
            p.row(old + ended, 0.0 if not ended else -math.inf, grid.initial if m == 0 else 0.0)
            p.row(old, low=0.0)
            if free:
                p.row([(new_early[m], 1.0), (new[m], -1.0)], high=0.0)
                p.row([(early[m], 1.0), (new_early[m], -1.0), *_times(-1.0, old)], high=0.0)
                p.row([(early[m], 1.0), (new_early[m], -1.0)], low=0.0)
            running(starting, m, lost, new, new_early)
            usable[m].append((starting[m], -1.0))
            p.row(usable[m], 0.0, grid.max_hosts)
    for m in range(min(grid.closed, slots)):
        if grid.initial < math.inf:
            p.row(usable[m], high=grid.initial)
    return start, hosts, usable


def _service(
    p: _Rows, grid: SlotGrid, start: range, usable: list[list[Term]], late_cost: float
) -> list[int]:
    """Add the items in time and their work; returns the columns that count them."""
    by_key: dict[tuple[int, int], int] = {}
    counted: list[int] = []
    pools: dict[tuple[int, float], list[tuple[Window, int]]] = {}
    for window in grid.windows:
        if window.due is None:
            continue
        column = p.columns(1, cost=-late_cost, high=window.items)[0]
        by_key[window.stream, window.period] = column
        counted.append(column)
        length = (window.due - window.release, window.due_part)
        pools.setdefault(length, []).append((window, column))
    counted += _excused(p, grid, by_key, late_cost)

    done: list[list[Term]] = [[] for _ in range(grid.slots)]
    heads: list[tuple[float, range]] = []
    for (_, part), pool in pools.items():
        head = p.columns(grid.slots) if part > 0 else None
        tail = p.columns(grid.slots)
        queue, ahead = p.columns(grid.slots), p.columns(grid.slots)
        released: list[list[Term]] = [[] for _ in range(grid.slots)]
        due: list[list[Term]] = [[] for _ in range(grid.slots + 1)]
        for window, column in pool:
            released[window.release].append((column, window.size))
            due[window.due or 0].append((column, window.size))
        for m in range(grid.slots):
            now = [(tail[m], 1.0)] + ([(head[m], 1.0)] if head else [])
            done[m] += now
            last = [(queue[m - 1], -1.0)] if m else []
            p.row([(queue[m], 1.0), *last, *now, *_times(-1.0, released[m])], 0.0, 0.0)
            before = [(ahead[m - 1], -1.0), (tail[m - 1], -1.0)] if m else []
            first = [(head[m], -1.0)] if head else []
            p.row([(ahead[m], 1.0), *before, *first, *due[m]], 0.0, 0.0)
        if due[grid.slots]:  # due at the very end
            end = grid.slots - 1
            p.row([(ahead[end], 1.0), (tail[end], 1.0), *_times(-1.0, due[grid.slots])], low=0.0)
        if head:
            heads.append((part, head))
    for m in range(grid.slots):
        p.row(done[m] + _times(-1.0, usable[m]), high=0.0)
    _heads(p, grid, start, usable, heads)
    return counted


def _excused(
    p: _Rows,
    grid: SlotGrid,
    by_key: dict[tuple[int, int], int],
    late_cost: float,
) -> list[int]:
    """Add items that arrive later than in the trace because a preceding item was late."""
    windows = {(w.stream, w.period): w for w in grid.windows}
    columns: list[int] = []
    for (stream, period), served in by_key.items():
        before = [
            (windows[up, period], by_key.get((up, period)), ratio)
            for up, ratio in grid.after[stream]
            if (up, period) in windows
        ]
        if not before:
            continue
        window = windows[stream, period]
        column = p.columns(1, cost=-late_cost, high=window.items)[0]
        most = math.fsum(ratio * up.items for up, _, ratio in before)
        terms = [(at, ratio) for _, at, ratio in before if at is not None]
        p.row([(column, 1.0), *terms], high=most)
        p.row([(column, 1.0), (served, 1.0)], high=window.items)
        columns.append(column)
    return columns


def _heads(
    p: _Rows,
    grid: SlotGrid,
    start: range,
    usable: list[list[Term]],
    heads: list[tuple[float, range]],
) -> None:
    """Limit the work in a part of a slot to what the existing hosts can do in that part.

    Hosts that can start and stop within the slot are counted by the units that overlap it.
    """
    heads.sort(key=lambda pair: pair[0])
    touching = p.columns(grid.slots) if heads and grid.starts == "any" and grid.whole else None
    for m in range(grid.slots if touching else 0):
        assert touching is not None
        terms = [(touching[m], 1.0), (start[m], -1.0)]
        terms += [(touching[m - 1], -1.0)] if m else []
        terms += [(start[m - grid.unit - 1], 1.0)] if m > grid.unit else []
        p.row(terms, 0.0, 0.0)
    for i, (part, _) in enumerate(heads):
        for m in range(grid.slots):
            early = [(head[m], 1.0) for _, head in heads[: i + 1]]
            if grid.starts == "slot" and grid.whole:
                p.row(early + _times(-part, usable[m]), high=0.0)
                continue
            if grid.max_hosts < math.inf:
                p.row(early, high=part * grid.max_hosts)
            if touching:
                p.row([*early, (touching[m], -part)], high=0.0)


def _times(factor: float, terms: list[Term]) -> list[Term]:
    return [(column, factor * value) for column, value in terms]


def _highs(p: _Rows, offset: float, time_limit_s: float, gap: float) -> Solution:
    """Solve the relaxation, then the program with whole hosts.

    An interior-point method solves the relaxation of a whole day in seconds. The program with
    whole hosts then has the time limit to raise that bound and to find a plan.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, linprog, milp
    from scipy.sparse import csr_array, vstack

    rows, columns, factors = p.at
    matrix = csr_array((factors, (rows, columns)), shape=(len(p.low_row), len(p.cost)))
    cost, high = np.array(p.cost), np.array(p.high)
    low_row, high_row = np.array(p.low_row), np.array(p.high_row)
    same = low_row == high_row
    above, below = np.isfinite(low_row) & ~same, np.isfinite(high_row) & ~same
    relaxed = linprog(
        cost,
        vstack([matrix[below], -matrix[above]]).tocsr() if (above | below).any() else None,
        np.concatenate([high_row[below], -low_row[above]]) if (above | below).any() else None,
        matrix[same],
        low_row[same],
        bounds=np.column_stack([np.zeros(len(cost)), high]),
        method="highs-ipm",
        options={"time_limit": max(60.0, time_limit_s)},
    )
    if relaxed.status == 2:
        raise Infeasible(
            "that share of items cannot be in time with any number of hosts: ask for a smaller "
            "share, or allow more hosts or a longer SLO"
        )
    solved = relaxed.status == 0
    dual = float(relaxed.fun) + offset if solved else 0.0
    if not any(p.whole):
        return Solution(dual, dual if solved else None, relaxed.x if solved else None)
    # The last column is the offset, so that the gap refers to the true cost.
    found = milp(
        np.append(cost, offset),
        integrality=np.append(p.whole, 0),
        bounds=Bounds(np.append(np.zeros(len(cost)), 1.0), np.append(high, 1.0)),
        constraints=LinearConstraint(
            csr_array((factors, (rows, columns)), shape=(len(p.low_row), len(p.cost) + 1)),
            low_row,
            high_row,
        ),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    if found.status == 2:
        raise Infeasible(
            "that share of items cannot be in time with whole hosts: ask for a smaller share, "
            "or allow more hosts or a longer SLO"
        )
    if found.mip_dual_bound is not None and math.isfinite(found.mip_dual_bound):
        dual = max(dual, float(found.mip_dual_bound))
    if found.x is None:
        return Solution(dual, None, None)
    return Solution(dual, max(dual, float(found.fun)), found.x[:-1])
