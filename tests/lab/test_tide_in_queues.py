"""`tide` in simulated queues in which paying for a promise would be wrong."""

from __future__ import annotations

from tidegate.lab.backtest import run_policy, stack_for
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.stack import StackOptions
from tidegate.simulation import RunReport
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ConstantRate


def run(scenario: Scenario, **parameters: float) -> RunReport:
    _, stack = stack_for("tide", scenario, StackOptions(parameters=parameters))
    return run_policy(scenario, stack)


def test_a_target_that_items_miss_by_themselves_is_not_paid_for() -> None:
    """One item in nine takes longer than the target, so no number of hosts keeps 95 %."""
    options = ScenarioOptions(slo_s=2.0, rate_per_instance=1 / 0.9, service_scv=1.0)
    scenario = options.build(ConstantRate(20, duration_s=2 * 3600))
    usual, modest = run(scenario), run(scenario, margin=1.0)
    assert usual.slo_compliance is not None and usual.slo_compliance < 0.91
    assert usual.resource_cost_usd < 1.5 * modest.resource_cost_usd
