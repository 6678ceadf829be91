"""Search the parameters of a policy for the settings that no others beat.

A random search over the numeric parameters that starts with the defaults. All candidates run on
the same trace. The result is the Pareto front of the cost of hosts and the share of items in time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.errors import SettingError
from tidegate.lab.backtest import Result, pareto, run_policy, stack_for, suited_settings
from tidegate.loop.stack import StackOptions
from tidegate.policies import Parameter, policy_class
from tidegate.simulation.scenario import Scenario

__all__ = ["config_text", "tune"]


def tune(
    scenario: Scenario,
    name: str,
    options: StackOptions | None = None,
    candidates: int = 24,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[Result]:
    """The Pareto front of a policy's settings, the cheapest first.

    Args:
        scenario: What the policy is tested against.
        name: The policy.
        options: Its guards; the default ones if None.
        candidates: Number of settings to try, the suggested ones first.
        seed: Random seed of the search.
        progress: Called with the completed share.
    """
    rng = random.Random(f"{seed}:{name}")
    suggested = suited_settings(name, scenario)
    parameters = policy_class(name).parameters()
    chosen = options or StackOptions()
    tried: list[Result] = []
    for number in range(candidates):
        settings = suggested if number == 0 else _drawn(rng, parameters, suggested)
        try:
            _, policy = stack_for(name, scenario, replace(chosen, parameters=settings))
        except SettingError:  # such as a lower threshold above the upper one
            continue
        report = run_policy(scenario, policy)
        tried.append(Result(f"{name} #{number}", settings, report, None))
        if progress is not None:
            progress((number + 1) / candidates)
    best = set(pareto(tried))
    front = [result for result in tried if result.policy in best]
    return sorted(front, key=lambda result: result.report.resource_cost_usd)


def _drawn(
    rng: random.Random, parameters: tuple[Parameter, ...], suggested: dict[str, Any]
) -> dict[str, Any]:
    """The suggested settings, with about half of the numeric ones changed up to threefold."""
    settings = dict(suggested)
    for parameter in parameters:
        value = suggested.get(parameter.name, parameter.default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if parameter.name not in suggested and rng.random() < 0.5:
            continue
        moved = float(value) * math.exp(rng.uniform(-math.log(3), math.log(3)))
        if parameter.low is not None:
            moved = max(parameter.low, moved)
        if parameter.high is not None:
            moved = min(parameter.high, moved)
        whole = parameter.kind.startswith("int")
        settings[parameter.name] = max(1, round(moved)) if whole else float(f"{moved:.3g}")
    return settings


def config_text(name: str, settings: dict[str, Any]) -> str:
    """Settings in the form of a configuration file.

    >>> print(config_text("drs", {"t_max_s": 0.5}), end="")
    policy: drs
    parameters:
      t_max_s: 0.5
    """
    lines = [f"policy: {name}"]
    if settings:
        lines += ["parameters:", *(f"  {key}: {value}" for key, value in settings.items())]
    return "\n".join([*lines, ""])
