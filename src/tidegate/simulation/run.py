"""Running a policy in a simulated world: the real controller, with simulated time."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.errors import BackendError
from tidegate.loop.controller import Controller
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal
from tidegate.policies.base import Policy
from tidegate.simulation import MicroBatchCloud, RunReport, SimulatedCloud

__all__ = ["run"]


def run(
    world: SimulatedCloud | MicroBatchCloud,
    policy: Policy,
    *,
    duration_s: float,
    interval_s: float,
    journal: Journal | None = None,
    controls: ControlFile | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> RunReport:
    """Let a policy drive a world until `duration_s`, with a decision each `interval_s` seconds.

    journal, controls: as for `Controller`. seed: for policies that draw lots.
    progress: called with the share done, now and then.

    Unlike a live loop this one stops at the first turn that fails: in a laboratory that is a
    finding, not something to live with.
    """
    controller = Controller(world, policy, journal, seed=seed, controls=controls)
    while world.time_s < duration_s - 1e-9:
        turn = controller.step()
        if turn.error is not None:
            raise BackendError(f"{policy.describe()} failed at {world.time_s:g} s: {turn.error}")
        world.advance(min(interval_s, duration_s - world.time_s))
        if progress is not None and controller.turns % 16 == 0:
            progress(world.time_s / duration_s)
    return world.report()
