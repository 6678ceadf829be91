"""What would have been: the traffic of a recorded run under another policy."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.loop.journal import Turn
from tidegate.policies.base import Policy
from tidegate.simulation import RunReport
from tidegate.simulation.calibrate import batch_scenario, calibrate
from tidegate.simulation.run import run
from tidegate.simulation.trace_input import recorded

__all__ = ["counterfactual"]


def counterfactual(
    turns: Sequence[Turn], policy: Policy, slo_s: float, name: str = "journal", seed: int = 0
) -> RunReport:
    """A run of the policy on the traffic of some turns, in a world that was calibrated from them.

    This is how a dry run tells what it would have cost and how often it would have been late: the
    executors that were never asked for cannot be observed, only simulated.

    slo_s: an item is late beyond so many seconds. name: for error messages. JournalError when the
    turns do not tell enough (see `calibrate`).
    """
    world = calibrate(turns, name).world
    scenario = batch_scenario(world, recorded(turns, name, seed), slo_s)
    return run(
        scenario.world(policy.style, seed),
        policy,
        duration_s=scenario.duration_s,
        interval_s=scenario.interval_s,
        seed=seed,
    )
