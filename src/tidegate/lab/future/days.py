"""Exchange days on which several questions are examined: what `tidegate backtest` simulates.

Queues with a latency target of 2 s, hosts that start in 45 s and are paid by the minute, and the
default guards around each policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.errors import InputError
from tidegate.lab.backtest import bound_of, run_policy, situation_of, stack_for
from tidegate.lab.future.questions import Size
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies.base import Policy
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ExchangeDay, Workload, read_trace

__all__ = ["DayResult", "day_scenario", "exchange_days", "run_day"]

SLO_S = 2.0


def exchange_days(size: Size) -> Iterator[tuple[int, Workload]]:
    """A day for each seed: recorded ones from the end of the folder's list, else generated ones."""
    if size.traces is None:
        for seed in size.numbers:
            yield seed, ExchangeDay(seed=seed)
        return
    files = sorted(size.traces.glob("xetra/xetra_*-??_rate.csv"))
    if len(files) < size.seeds:
        remedy = "give a folder with more days, or use fewer --seeds"
        raise InputError("--traces", str(size.traces), f"a folder with {size.seeds} days", remedy)
    for seed, file in zip(size.numbers, files[-size.seeds :], strict=True):
        yield seed, read_trace(file)


def day_scenario(workload: Workload, length: float = 1.0) -> Scenario:
    """The scenario of a day. length: share of the day that is simulated."""
    scenario = ScenarioOptions(slo_s=SLO_S).build(workload)
    return replace(scenario, duration_s=length * scenario.duration_s)


@dataclass(frozen=True)
class DayResult:
    """A policy on a day.

    Args:
        in_time: Share of the items that were done within the latency target.
        cost_usd: Hosts and late items, in dollars.
        hosts_usd: Hosts alone, in dollars.
        rescales: Number of plans that changed something.
        ratio: Cost over the bound in hindsight.
    """

    in_time: float
    cost_usd: float
    hosts_usd: float
    rescales: int
    ratio: float


def run_day(
    scenario: Scenario, policy: str | Policy, seed: int, bound_usd: float | None = None
) -> DayResult:
    """Run a policy through a day, with the default guards.

    policy: its name, for the parameters that it suggests, or a policy that is used as it is;
    bound_usd: the bound of the day's cost, if it is known.
    """
    if isinstance(policy, str):
        _, stack = stack_for(policy, scenario)
    else:
        options = StackOptions(max_hosts=scenario.offer.max_hosts)
        stack = build_stack(policy, situation_of(scenario), options)
    report = run_policy(scenario, stack, seed)
    bound = bound_of(scenario).cost_usd if bound_usd is None else bound_usd
    return DayResult(
        report.items_out * (report.slo_compliance or 0.0) / max(1, report.items_in),
        report.total_cost_usd,
        report.resource_cost_usd,
        report.rescales,
        report.total_cost_usd / bound,
    )
