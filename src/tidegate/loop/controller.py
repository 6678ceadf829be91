"""The control loop: observe, decide, apply, record. All of it is on this screen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tidegate.errors import BackendError, NothingToScale
from tidegate.logs import log_fields
from tidegate.loop.backend import Backend
from tidegate.loop.controls import Control, ControlFile, ControlState, apply_controls
from tidegate.loop.journal import Journal, Turn
from tidegate.loop.records import Patience, Recorder, Records
from tidegate.model import Plan, Snapshot
from tidegate.policies.base import Policy

__all__ = ["DECISION_S", "Controller"]

log = logging.getLogger(__name__)

DECISION_S = 30.0
"""Longest time of a decision about something that runs, in seconds."""


class Controller:
    """Drives one world with one policy.

    A turn that fails is recorded, and the loop continues. The memory then stays as it was before
    the turn: the next snapshot shows what the world did with a part of it. Controls that cannot be
    read and turns that cannot be written do not make a turn fail; they are noted in the next turn.
    When no query runs, `step` returns a turn without a snapshot and without an error, and records
    nothing.

    Args:
        backend: The world to observe and change.
        policy: The policy, with its wrappers.
        journal: The journal that turns are written to, None for none.
        memory: The memory that an earlier run left, None for a fresh start.
        seed: Random seed, for policies that use random numbers.
        controls: The file through which people control the loop, None for none.
        slo_s: The latency target in seconds, recorded in the journal.
        largest_slo_s: The largest target of a query in seconds, for a policy that is chosen at run
            time; None if it is `slo_s`.
        decision_limit_s: Longest time of a decision in seconds; a turn whose decision takes longer
            fails and changes nothing. None for no limit, as in a simulation.

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
        largest_slo_s: float | None = None,
        decision_limit_s: float | None = None,
    ) -> None:
        self.backend = backend
        self.policy = policy
        self.journal = journal
        self.memory = policy.initial_memory(seed) if memory is None else memory
        self.turns = 0
        self.controls = controls
        self.slo_s = slo_s
        self.largest_slo_s = slo_s if largest_slo_s is None else largest_slo_s
        self.in_force = ControlState()
        self._recorder = Recorder(journal)
        self._late: Records | None = None
        self._asking: Patience[list[Control]] = Patience()
        self._deciding: Patience[tuple[Plan, Any]] | None = None
        if decision_limit_s is not None:
            text = f"{policy.name} has not decided in {decision_limit_s:g} s: nothing is changed"
            self._deciding = Patience(decision_limit_s, lambda: BackendError(text))
        self._last_error: str | None = None
        self._unrecorded: tuple[Control, ...] = ()
        self._described: tuple[Policy, str] | None = None

    def await_files(self, records: Records) -> None:
        """Use the files of a loop that open late, as soon as they are open."""
        self._late = records
        self._recorder.awaited = records.opening is not None

    def _take_files(self) -> None:
        late = self._late
        if late is None or late.opening is None:
            return
        if late.opened_late():
            self.journal, self.controls = late.journal, late.controls
            self._recorder.begin(late.journal)
            self.note("the journal opened late: this run began without the memory in it")
        self._recorder.awaited = late.opening is not None

    def note(self, text: str) -> None:
        """Note something that is missing, and keeps no turn from deciding, in the next turn."""
        self._recorder.note(text)

    def step(self) -> Turn:
        """One turn."""
        self.turns += 1
        with log_fields(turn=self.turns):
            return self._step()

    def _step(self) -> Turn:
        snapshot = plan = outcome = error = None
        self._take_files()
        attempt = self._recorder.attempt
        controls = self._unrecorded
        if self.controls is not None:
            controls += attempt("controls", self._take_controls, ())
        try:
            snapshot = self.backend.observe()
            plan, memory = self._decide(snapshot)
            outcome = self.backend.apply(plan)
            self.memory = memory
        except NothingToScale as ended:  # no failure, and nothing to record
            log.info("no turn: %s", ended)
            self.turns, self._unrecorded = self.turns - 1, controls
            return Turn(self.turns, self.policy.name)
        except Exception as problem:  # whatever it is, the stream must continue
            error = f"{type(problem).__name__}: {problem}"
            expected = isinstance(problem, BackendError)
            # The same problem at every turn is said once; the journal has it in each.
            level = logging.DEBUG if error == self._last_error else logging.WARNING
            log.log(level, "turn %d failed: %s", self.turns, error, exc_info=not expected)
        self._last_error = error
        self._unrecorded = ()
        turn = Turn(
            self.turns,
            self._description(),
            snapshot,
            plan,
            outcome,
            None if self.journal is None else attempt("memory", self._saved_memory, None),
            error,
            controls=controls,
            slo_s=self.slo_s,
        )
        return self._recorder.write(turn)

    def _decide(self, snapshot: Snapshot) -> tuple[Plan, Any]:
        state, policy, memory = self.in_force, self.policy, self.memory
        if self._deciding is None:
            return state.decide(policy, snapshot, memory)
        return self._deciding.call(lambda: state.decide(policy, snapshot, memory))

    def _take_controls(self) -> tuple[Control, ...]:
        asked = [control for late in self._asking.late() for control in late]
        if self.controls is not None and not asked:
            asked = self._asking.call(self.controls.take)
        applied, self.in_force, self.policy, self.memory = apply_controls(
            asked, self.in_force, self.policy, self.memory, self.largest_slo_s
        )
        return applied

    def _description(self) -> str:
        # A policy is a frozen value: it is described once.
        policy, described = self.policy, self._described
        if described is None or described[0] is not policy:
            text = self._recorder.attempt("description of the policy", policy.describe, "")
            if not text:
                return policy.name
            described = self._described = policy, text
        return described[1]

    def _saved_memory(self) -> Any:
        return self.policy.save_memory(self.memory)

    def run(
        self,
        interval_s: float,
        keep_going: Callable[[Turn], bool],
        wait: Callable[[float], Any] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run one turn every `interval_s` seconds until `keep_going(turn)` is false.

        wait: waits for a number of seconds (``event.wait`` can be woken early). clock: a monotonic
        clock, in seconds. A turn that takes longer than the interval delays the next one.
        """
        due_s = clock()
        while keep_going(self.step()):
            due_s = max(due_s + interval_s, clock())
            wait(max(0.0, due_s - clock()))
