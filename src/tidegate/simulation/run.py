"""The loop that runs a policy in a simulated world: the real controller, with simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.errors import BackendError
from tidegate.loop.controller import Controller
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal, Turn
from tidegate.policies.base import Policy
from tidegate.simulation import MicroBatchCloud, RunReport, SimulatedCloud, SimulatedWorld

__all__ = ["run", "simulate"]


def simulate(
    world: SimulatedWorld,
    controller: Controller,
    *,
    end_s: float,
    interval_s: float | Callable[[int], float],
    decide_at_end: bool = False,
) -> Iterator[Turn]:
    """Let a controller drive a world, and yield each turn once the time until the next has passed.

    Unlike a live loop, this one stops at the first turn that fails and raises a `BackendError`.

    world: the world whose time passes; the controller's backend is this world or a view of it.
    end_s: when the simulation ends, in simulated seconds.
    interval_s: seconds between two decisions, or a function that takes the number of turns so far
    and returns the time of the next decision.
    decide_at_end: whether a last decision is made at `end_s`.
    """
    while True:
        over = world.time_s >= end_s - 1e-9
        if over and not decide_at_end:
            return
        turn = controller.step()
        if turn.error is not None:
            raise BackendError(f"{turn.policy} failed at {world.time_s:g} s: {turn.error}")
        if not over:
            wait_s = (
                interval_s(controller.turns) - world.time_s if callable(interval_s) else interval_s
            )
            world.advance(min(wait_s, end_s - world.time_s))
        yield turn
        if over:
            return


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
    go_on: Callable[[], bool] = lambda: True,
) -> RunReport:
    """Let a policy drive a world until `duration_s` and report on the run.

    Args:
        world: The simulated world.
        policy: The policy that decides, with its guards around it.
        duration_s: End of the simulation, in simulated seconds.
        interval_s: Time between two decisions, in seconds.
        journal: Where turns are written, None for nowhere.
        controls: Where people leave requests for the loop, None for nowhere.
        seed: Random seed of policies that decide at random.
        progress: Called every 16 turns with the share of the run that is done.
        go_on: Asked after each turn; the run ends early, with a report so far, if it says no.
    """
    controller = Controller(world, policy, journal, seed=seed, controls=controls)
    for turn in simulate(world, controller, end_s=duration_s, interval_s=interval_s):
        if progress is not None and turn.number % 16 == 0:
            progress(world.time_s / duration_s)
        if not go_on():
            break
    return world.report()
