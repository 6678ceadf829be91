from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.errors import BackendError, NothingToScale
from tidegate.loop.backend import Outcome
from tidegate.loop.controller import Controller
from tidegate.loop.controls import Control, ControlFile, submit
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.model import Plan, Snapshot
from tidegate.policies import create
from tidegate.policies.base import Policy
from tidegate.policies.wrapper import innermost
from tidegate.testing import fleet_snapshot, steady_snapshot
from tidegate.testing.worlds import ImaginaryWorld, RecordedWorld


class FlakyWorld:
    """A world that fails to be observed in its second turn and to be changed in its third."""

    def __init__(self) -> None:
        self.turn = 0
        self.applied: list[Plan] = []

    def observe(self) -> Snapshot:
        self.turn += 1
        if self.turn == 2:
            raise BackendError("the metrics service does not answer")
        return fleet_snapshot({"host-1": [3.6]}, time_s=5.0 * self.turn)

    def apply(self, plan: Plan) -> Outcome:
        if self.turn == 3:
            raise OSError("connection reset")
        self.applied.append(plan)
        return Outcome()


def test_a_failing_turn_is_journalled_and_the_loop_lives(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        controller = Controller(FlakyWorld(), create("local-threshold"), journal)
        turns = [controller.step() for _ in range(4)]
    assert [turn.error for turn in turns] == [
        None,
        "BackendError: the metrics service does not answer",
        "OSError: connection reset",
        None,
    ]
    assert [turn.number for turn in read_journal(journal.path)] == [1, 2, 3, 4]
    assert turns[1].snapshot is None
    assert turns[2].plan is not None and turns[2].outcome is None


def test_a_failed_turn_leaves_the_memory_as_it_was() -> None:
    controller = Controller(FlakyWorld(), create("local-threshold", violations=9))
    controller.step()
    one_violation = controller.memory
    controller.step()
    controller.step()
    assert controller.memory == one_violation
    controller.step()
    assert controller.memory.hosts["host-1"].over == 2


def test_a_turn_with_nothing_to_scale_is_no_turn(tmp_path: Path) -> None:
    class Waiting(FlakyWorld):
        def observe(self) -> Snapshot:
            self.turn += 1
            if self.turn in (1, 2, 4):
                raise NothingToScale("no query runs")
            return steady_snapshot(time_s=5.0 * self.turn)

        def apply(self, plan: Plan) -> Outcome:
            return Outcome()

    with Journal(tmp_path / "journal.jsonl") as journal:
        controller = Controller(Waiting(), create("static"), journal)
        turns = [controller.step() for _ in range(5)]
    assert [turn.number for turn in turns] == [0, 0, 1, 1, 2]
    assert [turn.snapshot is None for turn in turns] == [True, True, False, True, False]
    assert [turn.number for turn in read_journal(journal.path)] == [1, 2]
    assert controller.turns == 2


def test_an_error_inside_a_policy_does_not_end_the_loop() -> None:
    class Broken(type(create("static"))):  # type: ignore[misc]
        def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
            raise ZeroDivisionError("oh")

    controller = Controller(RecordedWorld([steady_snapshot()] * 2), Broken())
    assert controller.step().error == "ZeroDivisionError: oh"
    assert controller.step().error == "ZeroDivisionError: oh"


@pytest.mark.parametrize("name", ["sarsa", "btu", "lag", "spark-dynamic-allocation"])
def test_a_restarted_controller_goes_on_where_the_journal_ends(name: str, tmp_path: Path) -> None:
    def turns(controller: Controller, world: ImaginaryWorld, count: int) -> list[Turn]:
        done = []
        for _ in range(count):
            done.append(controller.step())
            world.advance()
        return done

    policy: Policy = create(name)
    straight = ImaginaryWorld(seed=7, style=policy.style)
    expected = turns(Controller(straight, policy), straight, 8)

    broken = ImaginaryWorld(seed=7, style=policy.style)
    with Journal(tmp_path / "journal.jsonl") as journal:
        turns(Controller(broken, policy, journal), broken, 4)
    last = list(read_journal(journal.path))[-1]
    resumed = Controller(broken, policy, memory=policy.load_memory(last.memory))
    assert [t.plan for t in turns(resumed, broken, 4)] == [t.plan for t in expected[4:]]


def test_the_loop_keeps_its_pace_and_stops_when_told() -> None:
    now = [100.0]
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    def keep_going(turn: Turn) -> bool:
        now[0] += 7.0 if turn.number == 2 else 1.0  # the second turn takes longer than the interval
        return turn.number < 4

    controller = Controller(RecordedWorld([steady_snapshot()] * 4), create("static"))
    controller.run(5.0, keep_going, wait=wait, clock=lambda: now[0])
    assert controller.turns == 4
    assert waits == [4.0, 0.0, 4.0]


def test_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Blind(RecordedWorld):
        def observe(self) -> Snapshot:
            raise BackendError("query ticks has a continuous trigger")

    controller = Controller(Blind([steady_snapshot()]), create("static"))
    with caplog.at_level("WARNING"):
        turns = [controller.step() for _ in range(3)]
    assert all(turn.error for turn in turns)
    assert len(caplog.records) == 1


def test_a_policy_chosen_at_run_time_is_bounded_by_the_largest_target(tmp_path: Path) -> None:
    """Targets by query: the suggestion is for the largest, as at the start."""
    world = RecordedWorld([steady_snapshot()] * 2)
    controls = ControlFile(tmp_path / "j.jsonl", create("ds2"))
    controller = Controller(world, create("ds2"), controls=controls, slo_s=5.0, largest_slo_s=600.0)
    submit(tmp_path / "j.jsonl", Control("policy", "drs"))
    controller.step()
    assert innermost(controller.policy) == create("drs", t_max_s=420.0)


class Thinker(FixedTarget):
    """A policy that waits for an event before it decides."""

    ready = threading.Event()

    def decide(self, snapshot: Snapshot, memory: int) -> tuple[Plan, int]:
        assert self.ready.wait(60)
        return super().decide(snapshot, memory)


def test_a_decision_that_takes_too_long_fails_its_turn_and_changes_nothing() -> None:
    world = RecordedWorld([steady_snapshot(queue_length=0, time_s=n) for n in range(3)])
    loop = Controller(world, Thinker(hosts=3), decision_limit_s=0.05)
    late = loop.step()
    said = "BackendError: fixed has not decided in 0.05 s: nothing is changed"
    assert (late.error, late.plan, late.outcome) == (said, None, None)
    assert loop.step().error == said, "while it decides, no second decision begins"
    Thinker.ready.set()
    loop._deciding = None  # the machine may be slow
    assert loop.step().plan is not None
    assert loop.memory == 1, "what came too late is forgotten"


def test_a_decision_in_time_is_as_without_a_limit() -> None:
    now = steady_snapshot(queue_length=0)
    turns = [
        Controller(RecordedWorld([now]), FixedTarget(hosts=3), decision_limit_s=limit_s).step()
        for limit_s in (None, 60.0)
    ]
    assert turns[0].plan == turns[1].plan and turns[1].error is None
    failing = Controller(RecordedWorld([now]), Thinker(), decision_limit_s=60.0)
    failing.memory = "no number"
    assert "TypeError" in (failing.step().error or "")
