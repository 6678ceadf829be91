"""The hindsight bound: a lower bound of the cost of every policy.

Assume a policy that knows the whole trace in advance, can split work over hosts like a fluid, and
loses nothing by packing, migration or starting instances. It must still lease hosts for the work
of the items in time, and pay the penalty for the others. The cheapest way to do so is the solution
of a mixed-integer program (HiGHS). The reported bound is the *dual* bound of that program, which
holds even if the solver reaches its time limit. designs/005-hindsight-bound.md has the proof and
lists the relaxations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.lab.bound import dp, milp
from tidegate.lab.bound.demand import Demand
from tidegate.lab.bound.slots import BilledFrom, SlotGrid, Starts, slot_grid
from tidegate.model import HostOffer
from tidegate.units import finite

__all__ = ["Bound", "hindsight_bound"]

Method = Literal["auto", "milp", "dp"]


@dataclass(frozen=True, slots=True)
class Bound(Value):
    """A lower bound of the cost, and an idealised plan that comes close to it.

    The plan uses every relaxation of the bound, so no policy can follow it exactly.

    Args:
        cost_usd: No policy costs less.
        method: ``milp`` (whole hosts), ``lp`` (fractions of hosts), ``dp``, or ``prices`` (whole
            hosts, by prices of slots; without a plan).
        gap: Distance from `cost_usd` to `plan_usd`, as a share of `plan_usd`; None without a plan.
        plan_usd: Cost of the plan; None if the solver found none in time.
        resource_usd: Cost of the plan's hosts.
        late_items: Late items of the plan.
        hosts: Mean number of the plan's hosts in each slot.
        slot_s: Length of a slot, in seconds.
    """

    cost_usd: float
    method: Literal["milp", "lp", "dp", "prices"]
    gap: float | None
    plan_usd: float | None
    resource_usd: float | None
    late_items: float | None
    hosts: tuple[float, ...]
    slot_s: float

    def regret(self, cost_usd: float) -> float:
        """Cost of a policy above the bound, as a share of the bound; infinite if that is zero."""
        if self.cost_usd > 0:
            return cost_usd / self.cost_usd - 1
        return 0.0 if cost_usd <= 0 else math.inf

    @classmethod
    def by_prices(cls, cost_usd: float, slot_s: float) -> Bound:
        """A bound by prices of slots; see `whole_host_bound`."""
        return cls(_safe(cost_usd), "prices", None, None, None, None, (), slot_s)


def hindsight_bound(
    demand: Demand,
    offer: HostOffer,
    slo_s: float,
    penalty_usd: float,
    *,
    run_s: float | None = None,
    starts: Starts = "any",
    billed_from: BilledFrom = "running",
    initial_hosts: int | None = None,
    whole_hosts: bool = True,
    time_limit_s: float = 20.0,
    gap: float = 1e-3,
    method: Method = "auto",
    share: float | None = None,
) -> Bound:
    """The lowest cost of hosts and penalties for late items together.

    Args:
        demand: What arrives.
        offer: Hosts that can be leased, with start-up time and price.
        slo_s: Latency target, in seconds.
        penalty_usd: Cost of each late or dropped item, in dollars.
        run_s: End of the run, for billing and counting, in seconds from the first period; None:
            when the last item is done or late. Items that are due after it count as in time.
        starts: ``any``: leases may start at any time. ``slot``: leases start and end with slots,
            as for policies that act once per period with a start-up time of whole periods.
        billed_from: Leases are paid from the request, or from when the host runs. ``running`` is a
            bound for both.
        initial_hosts: Hosts that run at time zero; None: any number.
        whole_hosts: False allows fractions of hosts, which is faster and gives a lower bound, far
            lower where few hosts do. `whole_host_bound` has whole hosts for any number of slots.
        time_limit_s: Time limit of the solver, in seconds.
        gap: Relative gap at which the solver may stop.
        method: ``dp`` requires the dynamic program.
        share: Share of all items that must be in time; None: any. With a penalty of zero this is
            the lowest cost of hosts for that share. Raises Infeasible if it is out of reach.

    Eight host-minutes of work; a latency target of one minute spreads the peak over eight units:

    >>> from tidegate.model.topology import Resources
    >>> offer = HostOffer(Resources(1), billing_unit_s=60, price_per_unit_usd=1, max_hosts=10)
    >>> demand = Demand.of([60, 360, 60], [60, 360, 60], period_s=60)
    >>> bound = hindsight_bound(demand, offer, slo_s=60, penalty_usd=1, starts="slot")
    >>> round(bound.cost_usd, 3), sum(bound.hosts)
    (8.0, 8.0)
    """
    finite(penalty_usd, "penalty_usd", low=0)
    if share is not None:
        finite(share, "share", low=0, high=1)
    grid = slot_grid(
        demand,
        offer,
        slo_s,
        run_s=run_s,
        starts=starts,
        billed_from=billed_from,
        initial_hosts=initial_hosts,
    )
    fits = share is None and dp.tractable(grid)
    if method == "dp" and not fits:
        remedy = "it needs starts='slot', one stream of one item size, few hosts and short units"
        raise InputError("method", method, "auto or milp here", remedy)
    if method == "dp" or (method == "auto" and whole_hosts and fits and dp.tractable(grid, 2e3)):
        best = dp.optimum(grid, penalty_usd)
        resource = best.cost_usd - penalty_usd * best.late
        return Bound(
            _safe(best.cost_usd),
            "dp",
            0.0,
            best.cost_usd,
            resource,
            best.late,
            best.hosts,
            grid.slot_s,
        )
    found = milp.solve(
        grid,
        penalty_usd,
        late_at_most=None if share is None else (1 - share) * demand.items * (1 + 1e-12),
        whole_hosts=whole_hosts,
        time_limit_s=time_limit_s,
        gap=gap,
    )
    return _bound(grid, found, whole_hosts, penalty_usd)


def _bound(grid: SlotGrid, found: milp.Solution, whole: bool, penalty_usd: float) -> Bound:
    cost = _safe(found.dual_usd)
    method: Literal["milp", "lp"] = "milp" if whole and grid.whole else "lp"
    if found.plan_usd is None:
        return Bound(cost, method, None, None, None, None, (), grid.slot_s)
    gap = (found.plan_usd - cost) / found.plan_usd if found.plan_usd > 0 else 0.0
    resource = max(0.0, found.plan_usd - penalty_usd * found.late)
    return Bound(cost, method, gap, found.plan_usd, resource, found.late, found.hosts, grid.slot_s)


def _safe(cost_usd: float) -> float:
    """The cost less a millionth, for the solver's tolerances."""
    return max(0.0, cost_usd * (1 - 1e-6))
