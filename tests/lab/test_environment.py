from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import RateTrace

gymnasium = pytest.importorskip("gymnasium")


@pytest.fixture
def hour() -> Scenario:
    t = np.arange(0.0, 3600.0, 60.0)
    rates = 60 + 50 * np.sin(2 * math.pi * t / 3600)
    return ScenarioOptions(slo_s=2.0, interval_s=60.0).build(RateTrace(t, rates, seed=1))


def test_the_environment_passes_gymnasiums_own_checker(hour: Scenario) -> None:
    from gymnasium.utils.env_checker import check_env

    from tidegate.lab.environment import TideEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(TideEnv(hour), skip_render_check=True)


def test_an_episode_lasts_as_long_as_the_trace_and_its_rewards_are_its_cost(hour: Scenario) -> None:
    from tidegate.lab.environment import TideEnv

    env = TideEnv(hour)
    env.reset(seed=3)
    total, steps, over, info = 0.0, 0, False, {"cost_usd": 0.0}
    while not over:
        _, reward, _, over, info = env.step(np.int64(1))
        total += reward
        steps += 1
    assert steps == 60
    started = hour.initial_hosts * hour.offer.price_per_unit_usd
    assert info["cost_usd"] == pytest.approx(-total + started)


def test_more_hosts_cost_more_and_fewer_are_late(hour: Scenario) -> None:
    from tidegate.lab.environment import TideEnv

    def cost_of(action: int) -> tuple[float, float]:
        env = TideEnv(hour, max_hosts=12)
        env.reset(seed=3)
        over = False
        while not over:
            seen, _, _, over, info = env.step(np.int64(action))
        return float(seen[0]), info["cost_usd"]

    assert cost_of(2)[0] == 12.0
    assert cost_of(0)[0] == 1.0
