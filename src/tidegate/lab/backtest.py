"""Backtests: every policy on the same trace, beside the bound that none can undercut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.lab.bound import Bound, Demand, hindsight_bound
from tidegate.loop.journal import Journal
from tidegate.loop.stack import wrapped
from tidegate.policies import create, policy_class
from tidegate.policies.base import Policy, Situation
from tidegate.simulation import RunReport
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import Workload, describe, series
from tidegate.workloads.protocol import FloatArray

__all__ = ["Result", "backtest", "bound_caveat", "bound_of", "pareto", "suited_settings"]

MOST_SLOTS = 360
"""Periods of the bound's program at most: more take minutes and change little."""
WHOLE_SLOTS = 150
"""Periods up to which the bound insists on whole hosts; beyond, that takes too long to pay off."""
MOST_ITEMS = 2e7
"""Items up to which a backtest goes item by item unless told otherwise."""


@dataclass(frozen=True)
class Result:
    """One policy's run.

    settings: parameters that differ from the defaults. regret: how much more it cost than the
    bound, as a share; None without a bound.
    """

    policy: str
    settings: dict[str, Any]
    report: RunReport
    regret: float | None

    @property
    def cost_usd(self) -> float:
        """Hosts and penalties for late items."""
        return self.report.total_cost_usd

    @property
    def slo_compliance(self) -> float:
        """Share of all items that came in which were done in time."""
        out = self.report.items_out
        in_time = out * (self.report.slo_compliance or 0.0)
        return in_time / self.report.items_in if self.report.items_in else 1.0

    @property
    def mean_hosts(self) -> float:
        """Hosts leased on average."""
        return self.report.host_seconds / self.report.duration_s


def suited_settings(name: str, scenario: Scenario) -> dict[str, Any]:
    """The parameters that a policy suggests for a scenario; all others keep their defaults."""
    return policy_class(name).suggested(situation_of(scenario))


def situation_of(scenario: Scenario) -> Situation:
    """What a scenario reveals before the first turn: latency target, peak load, throughput."""
    return Situation(
        slo_s=scenario.slo_s,
        micro_batches=scenario.batches is not None,
        floor_s=sum(
            scenario.visits[o.name] * (o.service_time_s or 0.0) for o in scenario.topology.operators
        ),
        peak_instances=_busiest(scenario),
        instances_per_host=scenario.rounds,
        host_rate_per_s=scenario.rounds / scenario.bottleneck_s,
    )


def _busiest(scenario: Scenario) -> float:
    """Instances of the busiest operator that the items of the fullest minute keep busy."""
    step_s = max(60.0, scenario.duration_s / 5000)
    rates = series(scenario.workload, min(step_s, scenario.duration_s))
    return max((float(rate) * scenario.bottleneck_s for rate in rates), default=0.0)


def bound_caveat(scenario: Scenario) -> str:
    """Why the bound is only an estimate in a scenario, as a sentence; empty where it is a bound."""
    lots = [o.name for o in scenario.topology.operators if o.service_scv > 0]
    ways = [f"{e.origin} → {e.target}" for e in scenario.topology.edges if e.ratio % 1]
    if not lots and not ways:
        return ""
    what = f"service times vary ({', '.join(lots)})" if lots else ""
    if ways:
        what += (" and " if what else "") + f"ways are drawn by lot ({', '.join(ways)})"
    return (
        f"An estimate, not a strict bound: {what}, while it takes items in time for as much work "
        "as others. A policy whose late items are the large ones may undercut it."
    )


def bound_of(scenario: Scenario, time_limit_s: float = 20.0, fluid: bool = False) -> Bound:
    """The least that any policy can pay in a scenario.

    That holds strictly where all items take the same work; `bound_caveat` tells of the others.
    fluid: for the fluid world, in which the expected items arrive and not those drawn by lot.
    """
    period_s = max(scenario.interval_s, scenario.duration_s / MOST_SLOTS)
    rates = series(scenario.workload, period_s)
    if not fluid:
        rates = _arrived_per_s(scenario.workload, period_s, len(rates))
    (source,) = scenario.topology.sources
    demand = Demand.from_rates(
        scenario.topology,
        {source.name: [float(rate) for rate in rates]},
        period_s=period_s,
        confidence=0.99 if bound_caveat(scenario) else None,
    )
    return hindsight_bound(
        demand,
        scenario.offer,
        scenario.slo_s,
        scenario.settings.penalty_usd,
        run_s=scenario.duration_s,
        initial_hosts=scenario.initial_hosts,
        whole_hosts=len(rates) <= WHOLE_SLOTS,
        time_limit_s=time_limit_s,
    )


def _arrived_per_s(workload: Workload, period_s: float, periods: int) -> FloatArray:
    """Items per second that do arrive in each period, counted."""
    import numpy as np

    found = (workload.arrivals(n * period_s, (n + 1) * period_s) for n in range(periods))
    return np.array([sum(map(len, by_source.values())) / period_s for by_source in found])


def suits_fluid(scenario: Scenario) -> bool:
    """Whether there are so many items that only the fluid world is quick enough."""
    return scenario.batches is None and describe(scenario.workload).items > MOST_ITEMS


def run_policy(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    fluid: bool = False,
    journal: Path | None = None,
) -> RunReport:
    """One run of a policy in a scenario. fluid: in the cheaper, less exact world.

    journal: a file to write the turns to.
    """
    with nullcontext() if journal is None else Journal(journal) as file:
        return run(
            scenario.world(policy.style, seed, fluid),
            policy,
            duration_s=scenario.duration_s,
            interval_s=scenario.interval_s,
            journal=file,
            seed=seed,
            progress=progress,
        )


def backtest(
    scenario: Scenario,
    names: Sequence[str],
    *,
    bound: Bound | None = None,
    guards: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    fluid: bool = False,
    progress: Callable[[str, float], None] | None = None,
    journals: Path | None = None,
) -> list[Result]:
    """Run policies on one scenario, the cheapest first.

    names: policies, with the parameters that the scenario suggests. guards: by name with their
    settings, around each of them. fluid: in the cheaper, less
    exact world. progress: called with the policy and the share of its run that is done.
    journals: a folder for a journal of each run, by the policy's name.
    """
    results = []
    for name in names:
        policy_class(name)  # refuse an unknown one before hours of work, not after
        if journals is not None:
            (journals / f"{name}.jsonl").unlink(missing_ok=True)  # a journal would be continued
    for name in names:
        settings = suited_settings(name, scenario)
        policy = wrapped(create(name, **settings), guards or {})

        def tell(share: float, name: str = name) -> None:
            if progress is not None:
                progress(name, share)

        journal = None if journals is None else journals / f"{name}.jsonl"
        report = run_policy(scenario, policy, seed, tell, fluid, journal)
        cost = report.total_cost_usd
        results.append(Result(name, settings, report, bound.regret(cost) if bound else None))
        tell(1.0)
    return sorted(results, key=lambda result: result.cost_usd)


def pareto(results: Sequence[Result]) -> list[str]:
    """The policies that none beats in both resource cost and compliance."""
    front = []
    for mine in results:
        beaten = any(
            other.report.resource_cost_usd <= mine.report.resource_cost_usd
            and other.slo_compliance >= mine.slo_compliance
            and (
                other.report.resource_cost_usd < mine.report.resource_cost_usd
                or other.slo_compliance > mine.slo_compliance
            )
            for other in results
        )
        if not beaten:
            front.append(mine.policy)
    return front
