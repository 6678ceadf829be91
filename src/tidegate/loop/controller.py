"""The control loop: observe, decide, apply, write it down. The whole of it is on this screen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tidegate.errors import BackendError
from tidegate.loop.backend import Backend
from tidegate.loop.controls import ControlFile, Steering, heed_all
from tidegate.loop.journal import Journal, Turn
from tidegate.policies.base import Policy

__all__ = ["Controller"]

log = logging.getLogger(__name__)


class Controller:
    """Drives one world with one policy.

    A turn that fails is journalled and the loop lives; the memory stays as it was before it, since
    what the world did with half a turn shows in the next snapshot.

    backend: the world. policy: with its guards around it. journal: where turns are written, None
    for nowhere. memory: where an earlier run left off, None for a fresh start. seed: for policies
    that draw lots. controls: where people leave what they want of the loop, None for nowhere.
    slo_s: the latency promised, for whoever reads the journal.

    >>> from tidegate.policies import create
    >>> from tidegate.testing import engine_snapshot
    >>> from tidegate.testing.worlds import RecordedWorld
    >>> world = RecordedWorld([engine_snapshot(30_000, [10_000, 10_000])])
    >>> turn = Controller(world, create("adaptive-provisioning")).step()
    >>> turn.plan.bounded_target, turn.plan.reasons[0].text
    (3, '30000/s arrive and 2 engines process 20000/s: 2 → 3 engines')
    """

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        journal: Journal | None = None,
        memory: Any = None,
        seed: int = 0,
        controls: ControlFile | None = None,
        slo_s: float | None = None,
    ) -> None:
        self.backend = backend
        self.policy = policy
        self.journal = journal
        self.memory = policy.initial_memory(seed) if memory is None else memory
        self.turns = 0
        self.controls = controls
        self.slo_s = slo_s
        self.steering = Steering()

    def step(self) -> Turn:
        """One turn."""
        self.turns += 1
        snapshot = plan = outcome = error = None
        asked = self.controls.take() if self.controls is not None else []
        heard, self.steering, self.policy, self.memory = heed_all(
            asked, self.steering, self.policy, self.memory
        )
        try:
            snapshot = self.backend.observe()
            plan, memory = self.steering.decide(self.policy, snapshot, self.memory)
            outcome = self.backend.apply(plan)
            self.memory = memory
        except Exception as problem:  # whatever it is, the stream goes on without us
            error = f"{type(problem).__name__}: {problem}"
            expected = isinstance(problem, BackendError)
            log.warning("turn %d failed: %s", self.turns, error, exc_info=not expected)
        saved = None if self.journal is None else self.policy.save_memory(self.memory)
        told = self.policy.describe()
        turn = Turn(
            self.turns,
            told,
            snapshot,
            plan,
            outcome,
            saved,
            error,
            controls=heard,
            slo_s=self.slo_s,
        )
        if self.journal is not None:
            self.journal.write(turn)
        return turn

    def run(
        self,
        interval_s: float,
        keep_going: Callable[[Turn], bool],
        wait: Callable[[float], Any] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Turn after turn, one each `interval_s` seconds, until `keep_going(turn)` says no.

        wait: waits so many seconds (``event.wait`` to be woken early); clock: seconds that only
        rise. A turn that takes longer than the interval delays the next and skips none twice.
        """
        due_s = clock()
        while keep_going(self.step()):
            due_s = max(due_s + interval_s, clock())
            wait(max(0.0, due_s - clock()))
