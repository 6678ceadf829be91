"""The default guards in a simulated application whose changes disturb it.

The load needs four executors for two minutes and one for the next two. After a change, the first
batch takes longer by `change_s`: state moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.worlds import FIXED_WORK
from tidegate.lab.backtest import run_policy, stack_for
from tidegate.loop.stack import StackOptions
from tidegate.simulation.calibrate import batch_scenario
from tidegate.simulation.report import RunReport
from tidegate.workloads import RateTrace

LOUD, CALM = 2000.0, 200.0


def run(change_s: float, rates: list[float], without: tuple[str, ...] = ()) -> RunReport:
    """A run of drs with two minutes at each of the rates, under an SLO of 30 s."""
    operators = tuple(replace(o, service_time_s=0.005) for o in FIXED_WORK.topology.operators)
    topology = replace(FIXED_WORK.topology, operators=operators)
    settings = replace(FIXED_WORK.settings, change_s={"q": change_s}, fixed_work_s=2.0)
    world = replace(FIXED_WORK, topology=topology, settings=settings)
    times = np.array([120.0 * n for n in range(len(rates))])
    load = RateTrace(times, np.array(rates), source="events", end_s=120.0 * len(rates))
    scenario = batch_scenario(world, load, 30.0)
    _, stack = stack_for("drs", scenario, StackOptions(without=without, max_hosts=20))
    return run_policy(scenario, stack)


@pytest.mark.parametrize("change_s", [10.0, 40.0])
def test_where_changes_disturb_a_load_that_flips_is_held(change_s: float) -> None:
    rates = [LOUD, CALM] * 8
    weighed, followed = run(change_s, rates), run(change_s, rates, without=("change-cost",))
    assert weighed.rescales < followed.rescales / 3
    assert weighed.slo_compliance is not None and followed.slo_compliance is not None
    assert weighed.slo_compliance > followed.slo_compliance + 0.2


def test_a_calm_night_is_not_paid_for() -> None:
    night = run(40.0, [LOUD, CALM] * 4 + [CALM] * 30)
    assert night.host_seconds / night.duration_s < 3.0
