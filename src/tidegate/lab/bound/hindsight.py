"""What no policy can undercut: the clairvoyant optimum in hindsight, as a true lower bound.

Whoever knew the whole trace in advance, could split work over hosts as a fluid, and had nothing to
lose by packing, migration or starting instances, would still have to lease hosts that do the work
of the items in time, and pay for the others. The cheapest way to do that is found as a
mixed-integer program (HiGHS); what is reported is its *dual* bound, which holds even when the
time limit strikes first. designs/005-hindsight-bound.md has the proof and says what is relaxed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.lab.bound import dp as exact
from tidegate.lab.bound import milp as program
from tidegate.lab.bound.demand import Demand, Stream
from tidegate.lab.bound.slots import BilledFrom, Grid, Starts, lay
from tidegate.model import HostOffer
from tidegate.units import finite

__all__ = ["Bound", "Demand", "Stream", "cheapest_for_share", "hindsight_bound"]

Method = Literal["auto", "milp", "dp"]


@dataclass(frozen=True, slots=True)
class Bound(Value):
    """A lower bound of cost, and the clairvoyant's plan that comes close to it.

    cost_usd: no policy costs less. method: ``milp`` (whole hosts), ``lp`` (fractions) or ``dp``.
    gap: how far `plan_usd` lies above `cost_usd`, as a share of `plan_usd`; None without a plan.
    plan_usd: cost of the plan found; its resource_usd and late_items.
    hosts: hosts of the plan per slot of slot_s seconds (the mean over the slot).

    The plan uses every freedom that the bound grants, so it is a picture, not a recipe.
    """

    cost_usd: float
    method: Literal["milp", "lp", "dp"]
    gap: float | None
    plan_usd: float | None
    resource_usd: float | None
    late_items: float | None
    hosts: tuple[float, ...]
    slot_s: float

    def regret(self, cost_usd: float) -> float:
        """How much more a policy paid, as a share of the bound; infinite where that is zero."""
        if self.cost_usd > 0:
            return cost_usd / self.cost_usd - 1
        return 0.0 if cost_usd <= 0 else math.inf


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
) -> Bound:
    """The least that resources and penalties for late items can cost together.

    demand: what arrives. offer: what can be leased, how fast, at what price. slo_s: seconds from
    arrival until an item is late. penalty_usd: what each late (or dropped) item costs.
    run_s: when the world stops, billing and counting, in seconds from the first period; None:
    when the last item is in time or late. Items that may be due later count as in time.
    starts: ``any`` holds for leases that start at any moment, ``slot`` only where leases start
    and end with the slots (policies that act once a period, start-up a multiple of it).
    billed_from: the lease is paid from the request or from when the host runs; ``running`` holds
    for both. initial_hosts: hosts that run at time zero; None: as many as one likes.
    whole_hosts: False also allows fractions of hosts: quicker and a little lower. Take it for more
    than some hundred slots, where whole hosts gain little and their plan is poor.
    time_limit_s, gap: when HiGHS may stop. method: ``dp`` demands the dynamic program.

    Eight host-minutes of work; a minute's SLO lets the peak spill over, so eight units do:

    >>> from tidegate.model.topology import Resources
    >>> offer = HostOffer(Resources(1), billing_unit_s=60, price_per_unit_usd=1, max_hosts=10)
    >>> demand = Demand.of([60, 360, 60], [60, 360, 60], period_s=60)
    >>> bound = hindsight_bound(demand, offer, slo_s=60, penalty_usd=1, starts="slot")
    >>> round(bound.cost_usd, 3), sum(bound.hosts)
    (8.0, 8.0)
    """
    finite(penalty_usd, "penalty_usd", low=0)
    grid = _grid(demand, offer, slo_s, run_s, starts, billed_from, initial_hosts)
    if method == "dp" and not exact.tractable(grid):
        remedy = "it needs starts='slot', one stream of one item size, few hosts and short units"
        raise InputError("method", method, "auto or milp here", remedy)
    if method == "dp" or (method == "auto" and whole_hosts and exact.tractable(grid, 2e3)):
        best = exact.optimum(grid, penalty_usd)
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
    found = program.solve(
        grid,
        penalty_usd,
        late_at_most=None,
        whole_hosts=whole_hosts,
        time_limit_s=time_limit_s,
        gap=gap,
    )
    return _bound(grid, found, whole_hosts, penalty_usd)


def cheapest_for_share(
    demand: Demand,
    offer: HostOffer,
    slo_s: float,
    share: float,
    *,
    run_s: float | None = None,
    starts: Starts = "any",
    billed_from: BilledFrom = "running",
    initial_hosts: int | None = None,
    whole_hosts: bool = True,
    time_limit_s: float = 20.0,
    gap: float = 1e-3,
) -> Bound:
    """The least that resources cost for anyone who has at least a share of all items in time.

    share: 0 to 1; the other parameters as in `hindsight_bound`.
    Raises Infeasible when nobody can, such as with too few hosts.
    """
    finite(share, "share", low=0, high=1)
    grid = _grid(demand, offer, slo_s, run_s, starts, billed_from, initial_hosts)
    found = program.solve(
        grid,
        0.0,
        late_at_most=(1 - share) * demand.items * (1 + 1e-12),
        whole_hosts=whole_hosts,
        time_limit_s=time_limit_s,
        gap=gap,
    )
    return _bound(grid, found, whole_hosts, 0.0)


def _grid(
    demand: Demand,
    offer: HostOffer,
    slo_s: float,
    run_s: float | None,
    starts: Starts,
    billed_from: BilledFrom,
    initial_hosts: int | None,
) -> Grid:
    return lay(
        demand,
        offer,
        slo_s,
        run_s=run_s,
        starts=starts,
        billed_from=billed_from,
        initial_hosts=initial_hosts,
    )


def _bound(grid: Grid, found: program.Solution, whole: bool, penalty_usd: float) -> Bound:
    cost = _safe(found.dual_usd)
    method: Literal["milp", "lp"] = "milp" if whole and grid.whole else "lp"
    if found.plan_usd is None:
        return Bound(cost, method, None, None, None, None, (), grid.slot_s)
    gap = (found.plan_usd - cost) / found.plan_usd if found.plan_usd > 0 else 0.0
    resource = max(0.0, found.plan_usd - penalty_usd * found.late)
    return Bound(cost, method, gap, found.plan_usd, resource, found.late, found.hosts, grid.slot_s)


def _safe(cost_usd: float) -> float:
    """A millionth less: what the solver's tolerances can amount to."""
    return max(0.0, cost_usd * (1 - 1e-6))
