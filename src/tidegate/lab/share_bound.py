"""The least that hosts cost for a share of items in time, from the hindsight bound.

Let B(p) be the hindsight bound with a penalty of p for each late item: every policy has

    (price of its hosts) + p · (its late items) ≥ B(p).

A policy with a share s of n items in time has at most (1 − s)·n late ones, so its hosts cost at
least B(p) − p·(1 − s)·n, for every p. The largest of these values is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.lab.backtest import bound_caveat, fine_demand_of
from tidegate.lab.bound.whole import whole_host_bound
from tidegate.simulation.scenario import Scenario

__all__ = ["least_hosts_usd"]

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Penalties that are tried, in multiples of the scenario's own."""
ROUNDING = 1e-6
"""Share by which sums may be rounded up."""


def least_hosts_usd(
    scenario: Scenario, shares: Sequence[float], items: int, fluid: bool = False
) -> dict[float, float]:
    """Dollars of hosts below which no policy has a share of the items in time, by share.

    Empty where the bound is not strict, or hosts or late items have no price.

    shares: of items in time. items: that arrive. fluid: for the fluid world.
    """
    penalty_usd = scenario.settings.penalty_usd
    if bound_caveat(scenario) or penalty_usd <= 0 or scenario.offer.price_per_unit_usd <= 0:
        return {}
    fine = fine_demand_of(scenario, fluid)
    if fine is None:
        return {}
    found = [
        (
            factor * penalty_usd,
            whole_host_bound(replace(fine, penalty_usd=factor * fine.penalty_usd)),
        )
        for factor in PENALTIES
    ]
    return {
        share: max(0.0, *((1 - ROUNDING) * usd - each * (1 - share) * items for each, usd in found))
        for share in shares
    }
