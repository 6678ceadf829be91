"""A lower bound with whole hosts, for traces of any length and without an integer program.

Divide the time into slots. The work that arrives in a slot must be done before the slot's end plus
the SLO, or it is late. So N billing units that *touch* this span of time do at most N times what a
unit can do in it, and N is a whole number. Give each slot a price such that a unit, whenever it
starts, never touches slots for more than the unit costs. Then every policy costs at least the sum
over all slots of

    min over N = 0, 1, 2, … of  (price of the slot) · N + (penalty) · (work that N units cannot do)

which is a formula per slot. Any prices give a valid bound; good ones give a tight one. With short
billing units equal prices are good. With long ones a linear program finds better ones, and only
its prices are used, so the bound does not depend on the solver's precision. Where the load is many
hosts, fractions of hosts are as good, and the simpler sum (work × price of a host-second) is
higher; the higher one of the two counts in each stretch of time. designs/005-hindsight-bound.md
has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["FineDemand", "whole_host_bound"]

SIZES = 6
"""Lengths of slots that are tried, each twice the one before."""
STRETCH_UNITS = 60
"""Billing units in a stretch of time in which one way of counting is used."""
SLOTS_PER_UNIT = (60, 30, 12)
"""Slots in a billing unit of a linear program; the first that leads to few enough programs."""
LONG_UNIT_S = 600.0
"""Billing units from which on linear programs choose the prices: in shorter ones the load hardly
changes, and equal prices are as good."""
MOST_SLOTS = 1_500
"""Slots of one linear program."""
MOST_PROGRAMS = 24
"""Linear programs at most; beyond that, slots have equal prices."""


@dataclass(frozen=True)
class FineDemand:
    """Work by slot. Any number of hosts can be leased.

    Args:
        slot_s: Length of a slot, in seconds.
        work: Work that arrives in each slot, in host-seconds, as an array.
        slo_s: Latency target, in seconds.
        unit_s: Billing unit, in seconds.
        price_usd: Price of a unit, in dollars.
        penalty_usd: Least penalty for a late host-second of work, in dollars.
    """

    slot_s: float
    work: Any
    slo_s: float
    unit_s: float
    price_usd: float
    penalty_usd: float

    def coarser(self, factor: int) -> FineDemand:
        """The same in slots that are `factor` times as long; work at the end may be left out."""
        whole = len(self.work) // factor
        work = self.work[: whole * factor].reshape(whole, factor).sum(axis=1)
        return replace(self, slot_s=self.slot_s * factor, work=work)

    def fits(self, hosts: int) -> bool:
        """Whether a number of hosts can do the work of every ten billing units."""
        import numpy as np

        slots = max(1, round(10 * self.unit_s / self.slot_s))
        sums = np.add.reduceat(self.work, np.arange(0, len(self.work), slots))
        return bool(sums.max() <= hosts * slots * self.slot_s)

    @property
    def touched(self) -> int:
        """Most slots that a unit touches: starts are open intervals of one unit, slot and SLO."""
        return math.ceil((self.unit_s + self.slot_s + self.slo_s) / self.slot_s - 1e-9)

    @property
    def unit_work_s(self) -> float:
        """Most host-seconds that one unit can do for the work of one slot."""
        return min(self.unit_s, self.slot_s + self.slo_s)


def whole_host_bound(demand: FineDemand) -> float:
    """No policy costs less, in dollars.

    The work must arrive at least an SLO before the end of the run: later items cannot be late.

    One host-second of work every ten seconds, all day, an SLO of 2 s: a host is needed all day,
    with breaks of 2 s between two of its units at most.

    >>> import numpy as np
    >>> day = FineDemand(2.0, np.full(43_200, 0.2), 2.0, 60.0, 1 / 60, 0.01)
    >>> round(whole_host_bound(day), 1), round(float(day.work.sum()) / 3600, 1)
    (22.5, 2.4)
    """
    return max(_by_stretches(demand), _by_programs(demand))


def _least(demand: FineDemand, prices: Any) -> Any:
    """The least cost of each slot, given the price at which a unit touches it."""
    import numpy as np

    units = np.floor(demand.work / demand.unit_work_s * (1 + 1e-12))
    rest = np.maximum(0.0, demand.work - units * demand.unit_work_s)
    all_late = demand.penalty_usd * demand.work
    # The cost is convex in the number of units: one of these three is the least.
    some_late = units * prices + demand.penalty_usd * rest
    return np.minimum(np.minimum((units + 1) * prices, some_late), all_late)


# --- equal prices ---------------------------------------------------------------------------------


def _by_stretches(demand: FineDemand) -> float:
    """The sum over stretches of time, each counted in the way that gives most there.

    A unit that reaches from one stretch into the next costs no more than its share of time in each,
    since the first and last slots of a stretch are free.
    """
    import numpy as np

    per_s = min(demand.price_usd / demand.unit_s, demand.penalty_usd)
    most = 2 ** (SIZES - 1)
    length = max(1, math.ceil(STRETCH_UNITS * demand.unit_s / demand.slot_s / most)) * most
    late = math.ceil(demand.slo_s / demand.slot_s)  # its work may be done in the next stretch
    # One stretch is not much longer than all slots, however long a unit is.
    length = min(length, math.ceil((len(demand.work) + late) / most + 3) * most)
    stretches = math.ceil(len(demand.work) / length)
    work = np.zeros(stretches * length)
    work[: len(demand.work)] = demand.work
    inside = work.reshape(stretches, length)[:, : max(0, length - late)]
    best = per_s * inside.sum(axis=1)
    for size in range(SIZES):
        slots = replace(demand, work=work).coarser(2**size)
        if slots.slot_s > demand.unit_s and size > 0:
            break
        price = slots.price_usd / slots.touched
        costs = _least(slots, price).reshape(stretches, length // 2**size)
        after = 1 + math.ceil(slots.slo_s / slots.slot_s)
        best = np.maximum(best, costs[:, 1 : max(1, costs.shape[1] - after)].sum(axis=1))
    return float(best.sum())


# --- prices by linear programs --------------------------------------------------------------------


def _by_programs(demand: FineDemand) -> float:
    """The sum with prices that linear programs choose; zero for short units and too many programs.

    Between two programs, slots that a unit can touch from both sides are free.
    """
    if demand.unit_s < LONG_UNIT_S:
        return 0.0
    for per_unit in SLOTS_PER_UNIT:
        slots = demand.coarser(max(1, math.ceil(demand.unit_s / per_unit / demand.slot_s)))
        size = max(MOST_SLOTS, 10 * slots.touched)
        if math.ceil(len(slots.work) / size) <= MOST_PROGRAMS:
            break
    else:
        return 0.0
    total = 0.0
    for first in range(0, len(slots.work), size):
        end = min(first + size, len(slots.work))
        last = end - (slots.touched if end < len(slots.work) else 0)
        part = replace(slots, work=slots.work[first:last])
        total += float(_least(part, _good_prices(part)).sum())
    return total


def _good_prices(demand: FineDemand) -> Any:
    """Prices of slots for a high bound; a unit never touches more than it costs."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    count, width = len(demand.work), min(demand.touched, len(demand.work))
    units = np.floor(demand.work / demand.unit_work_s * (1 + 1e-12))
    rest = np.maximum(0.0, demand.work - units * demand.unit_work_s)
    each = np.arange(count)
    # Columns: the cost of each slot, then the prices summed up, whose differences are the prices.
    at, then = count + each, count + each + 1
    windows = np.arange(count - width + 1)
    ones = np.ones(count)
    rows, columns, factors = [], [], []
    for first, slope in ((0, units + 1), (count, units)):
        rows += [first + each] * 3
        columns += [each, then, at]
        factors += [ones, -slope, slope]
    rows += [2 * count + each] * 2 + [3 * count + windows] * 2
    columns += [at, then, count + windows + width, count + windows]
    factors += [ones, -ones, np.ones(len(windows)), -np.ones(len(windows))]
    matrix = coo_array(
        (np.concatenate(factors), (np.concatenate(rows), np.concatenate(columns))),
        shape=(3 * count + len(windows), 2 * count + 1),
    )
    limits = np.concatenate(
        [
            np.zeros(count),
            demand.penalty_usd * rest,
            np.zeros(count),
            np.full(len(windows), demand.price_usd),
        ]
    )
    high = np.concatenate([demand.penalty_usd * demand.work, np.full(count + 1, np.inf)])
    found = linprog(
        np.concatenate([-ones, np.zeros(count + 1)]),
        matrix.tocsr(),
        limits,
        bounds=np.column_stack([np.zeros(2 * count + 1), high]),
        method="highs",
    )
    if found.x is None:
        return np.full(count, demand.price_usd / demand.touched)
    prices = np.maximum(0.0, np.diff(found.x[count:]))
    sums = np.concatenate([[0.0], np.cumsum(prices)])
    dearest = float((sums[width:] - sums[:-width]).max())
    return prices * min(1.0, demand.price_usd / dearest * (1 - 1e-9) if dearest > 0 else 1.0)
