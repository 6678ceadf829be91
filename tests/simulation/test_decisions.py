"""The default stack in simulated applications: the decisions that a production job needs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.simulation.worlds import (
    FIXED_WORK_SLO_S,
    FOUR_QUERIES_SLO_S,
    fixed_work_scenario,
    four_queries_scenario,
)
from tidegate.lab.backtest import stack_for
from tidegate.loop.controller import Controller
from tidegate.simulation import RunReport
from tidegate.simulation.run import simulate
from tidegate.simulation.scenario import Scenario


def run(scenario: Scenario, end_s: float, seed: int = 0) -> tuple[list[int], RunReport]:
    """Planned hosts by turn, and the report."""
    _, stack = stack_for("drs", scenario)
    world = scenario.world(stack.style, seed)
    hosts = []
    for turn in simulate(world, Controller(world, stack, seed=seed), end_s=end_s, interval_s=10.0):
        assert turn.plan is not None
        hosts.append(len(turn.plan.deployment.hosts))
    return hosts, world.report()


@pytest.mark.parametrize("start", [1, 4, 20])
def test_fixed_work_settles_within_ten_turns(start: int) -> None:
    """The first autoscaler swung between 1 and 20 executors in this world."""
    hosts, report = run(fixed_work_scenario(initial_hosts=start), 1900)
    changes = [before != after for before, after in pairwise(hosts)]
    assert sum(changes[9:]) <= 2, hosts
    assert hosts[-1] == 2
    assert report.latency_max_s is not None
    assert report.latency_max_s <= FIXED_WORK_SLO_S


@pytest.mark.parametrize("seed", range(10))
def test_four_queries_are_followed_and_judged_apart(seed: int) -> None:
    """A load that rises tenfold, falls to zero for two minutes, and rises again."""
    hosts, report = run(four_queries_scenario(seed, grain=20), 1080, seed)
    assert max(hosts[30:54]) >= 3, "it rises"
    assert min(hosts[57:72]) == 1, "without input it shrinks to the minimum"
    assert max(hosts[80:]) >= 3, "it rises again"
    by_query = {o.operator: o for o in report.operators}
    for name in ("totals", "enriched", "limited"):
        assert by_query[name].slo_s == FOUR_QUERIES_SLO_S.get(name, FOUR_QUERIES_SLO_S["*"])
        kept = by_query[name].compliance
        assert kept is not None
        assert kept.real_time > 0.95, (name, kept)
    assert by_query["dead-letters"].compliance is None
