"""A recorded run, for tests that read journals."""

from __future__ import annotations

from pathlib import Path

from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal, Turn
from tidegate.policies import create
from tidegate.testing.worlds import ImaginaryWorld


def record(path: Path, policy_name: str, turns: int = 10, seed: int = 3) -> list[Turn]:
    policy = create(policy_name)
    world = ImaginaryWorld(seed=seed, style=policy.style)
    done = []
    with Journal(path) as journal:
        controller = Controller(world, policy, journal)
        for _ in range(turns):
            done.append(controller.step())
            world.advance()
    return done
