"""Train your own policy in the Gymnasium environment, by the cross-entropy method.

Covers: the environment over the simulated cloud, a policy with two numbers to learn (release a host
below one utilisation, lease one above another), learning on one day and testing on another.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tidegate.lab.environment import TideEnv
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import RateTrace

ROUNDS, CANDIDATES, ELITE = 3, 8, 3
HOURS = 1


def tide(seed: int) -> Scenario:
    """An hour whose rate rises and falls twice."""
    t = np.arange(0.0, HOURS * 3600.0, 60.0)
    rate = 60 + 45 * np.sin(2 * math.pi * 2 * t / t[-1])
    return ScenarioOptions(slo_s=2.0, interval_s=30.0).build(RateTrace(t, rate, seed=seed))


def cost_of(env: TideEnv, thresholds: NDArray[np.float64]) -> float:
    """Dollars that an episode costs with these thresholds."""
    low, high = sorted(thresholds)
    seen, _ = env.reset(seed=0)
    over, cost = False, 0.0
    while not over:
        busy, coming = float(seen[2]), float(seen[1])
        action = 2 if busy > high and coming == 0 else 0 if 0 <= busy < low else 1
        seen, _, _, over, info = env.step(np.int64(action))
        cost = info["cost_usd"]
    return cost


def main() -> None:
    env, other_day = TideEnv(tide(seed=1)), TideEnv(tide(seed=2))
    lots = np.random.default_rng(7)
    mean, spread = np.array([0.3, 0.7]), np.array([0.2, 0.2])
    print(f"thresholds {mean[0]:.2f} and {mean[1]:.2f} cost ${cost_of(env, mean):.2f}")
    for number in range(1, ROUNDS + 1):
        drawn = np.clip(mean + spread * lots.standard_normal((CANDIDATES, 2)), 0.05, 0.98)
        costs = np.array([cost_of(env, thresholds) for thresholds in drawn])
        best = np.sort(drawn[np.argsort(costs)[:ELITE]], axis=1)
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.02
        print(f"round {number}: {mean[0]:.2f} and {mean[1]:.2f}, the best costs ${costs.min():.2f}")
    print(f"on another day they cost ${cost_of(other_day, mean):.2f}")


if __name__ == "__main__":
    main()
