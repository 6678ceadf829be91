"""Guards that look at the clock of the snapshot: cool-down, stabilisation, excluded periods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.errors import SettingError
from tidegate.guards import CoolDown, ExcludedPeriods, FirstLook, Guard, Stabilisation
from tidegate.model import Plan
from tidegate.policies.wrapper import WrapperMemory
from tidegate.testing import steady_snapshot


def play(
    guard: Guard, scenes: Sequence[tuple[float, int, int]], interval_s: float | None = None
) -> tuple[list[int], list[Plan], WrapperMemory]:
    """Hosts allowed for each (time, hosts running, hosts wished for)."""
    memory = guard.initial_memory()
    plans = []
    for time_s, hosts, wish in scenes:
        snapshot = steady_snapshot(hosts=hosts, queue_length=0, time_s=time_s)
        snapshot = replace(snapshot, interval_s=interval_s)
        wishing = replace(guard, inner=FixedTarget(wish))
        plan, memory = wishing.decide(snapshot, memory)
        plans.append(plan)
    return [plan.bounded_target for plan in plans], plans, memory


# --- cool-down --------------------------------------------------------------------------------


def test_the_first_change_needs_no_cool_down() -> None:
    assert play(CoolDown(FixedTarget()), [(0, 3, 5)])[0] == [5]
    assert play(CoolDown(FixedTarget()), [(0, 3, 1)])[0] == [1]


def test_growing_again_and_shrinking_wait_for_different_times() -> None:
    grew = [(0.0, 2, 3), (10.0, 3, 3)]  # the rise is seen at 10 s
    guard = CoolDown(FixedTarget(), up_s=30, down_s=300)
    assert play(guard, [*grew, (39.0, 3, 5)])[0][-1] == 3
    assert play(guard, [*grew, (40.0, 3, 5)])[0][-1] == 5
    assert play(guard, [*grew, (309.0, 3, 1)])[0][-1] == 3
    assert play(guard, [*grew, (310.0, 3, 1)])[0][-1] == 1


def test_a_fall_starts_both_waits_too() -> None:
    fell = [(0.0, 4, 3), (10.0, 3, 3)]
    guard = CoolDown(FixedTarget(), up_s=30, down_s=60)
    assert play(guard, [*fell, (30.0, 3, 5)])[0][-1] == 3
    assert play(guard, [*fell, (40.0, 3, 5)])[0][-1] == 5
    assert play(guard, [*fell, (69.0, 3, 1)])[0][-1] == 3
    assert play(guard, [*fell, (70.0, 3, 1)])[0][-1] == 1


def test_the_later_of_two_changes_counts() -> None:
    guard = CoolDown(FixedTarget(), up_s=30, down_s=60)
    for changes in ([(10.0, 4, 4), (100.0, 3, 3)], [(10.0, 2, 2), (100.0, 3, 3)]):
        scenes = [(0.0, 3, 3), *changes]
        assert play(guard, [*scenes, (120.0, 3, 5)])[0][-1] == 3
        assert play(guard, [*scenes, (130.0, 3, 5)])[0][-1] == 5


def test_a_cool_down_says_how_long_it_still_takes() -> None:
    _, plans, _ = play(
        CoolDown(FixedTarget(), down_s=300), [(0.0, 2, 3), (10.0, 3, 3), (70.0, 3, 1)]
    )
    (binding,) = plans[-1].bindings
    assert (binding.guard, binding.before, binding.after) == ("cool-down", 1, 3)
    assert binding.why == "cooling down: scales in again in 4 min"


def test_a_wish_that_was_not_fulfilled_starts_no_cool_down() -> None:
    scenes = [(0.0, 3, 5), (1.0, 3, 5), (2.0, 3, 5)]  # the world refuses to grow
    assert play(CoolDown(FixedTarget()), scenes)[0] == [5, 5, 5]


def test_a_change_that_somebody_else_made_counts_as_well() -> None:
    scenes = [(0.0, 3, 3), (10.0, 4, 4), (20.0, 4, 9)]
    assert play(CoolDown(FixedTarget(), up_s=30), scenes)[0] == [3, 4, 4]


# --- stabilisation ----------------------------------------------------------------------------


def test_when_shrinking_the_largest_wish_of_the_window_counts() -> None:
    scenes = [
        (0.0, 5, 5),
        (100.0, 5, 3),
        (200.0, 5, 2),
        (299.0, 5, 2),
        (300.0, 5, 2),
        (400.0, 5, 2),
    ]
    targets, plans, _ = play(Stabilisation(FixedTarget()), scenes)
    assert targets == [5, 5, 5, 5, 3, 2]
    assert plans[4].bindings[0].why == "3 hosts were planned within the last 5 min"
    assert plans[5].bindings == ()


def test_when_growing_the_wish_counts_at_once_unless_a_window_is_set() -> None:
    scenes = [(0.0, 2, 2), (10.0, 2, 6)]
    assert play(Stabilisation(FixedTarget()), scenes)[0] == [2, 6]
    slow = Stabilisation(FixedTarget(), up_s=60)
    scenes = [(0.0, 2, 2), (10.0, 2, 6), (50.0, 2, 4), (60.0, 2, 6), (69.0, 2, 6), (110.0, 2, 6)]
    assert play(slow, scenes)[0] == [2, 2, 2, 4, 4, 6]


def test_a_larger_wish_of_the_past_never_makes_a_shrinking_plan_grow() -> None:
    assert play(Stabilisation(FixedTarget()), [(0.0, 3, 9), (10.0, 3, 1)])[0] == [9, 3]


def test_each_direction_looks_back_through_its_own_window() -> None:
    guard = Stabilisation(FixedTarget(), up_s=600, down_s=100)
    assert play(guard, [(0.0, 5, 5), (150.0, 5, 2)])[0] == [5, 2]


def test_wishes_beyond_the_window_are_forgotten() -> None:
    scenes = [(float(t), 3, 3) for t in range(0, 2000, 50)]
    *_, memory = play(Stabilisation(FixedTarget(), down_s=300), scenes)
    assert len(memory.own.wishes) == 6


def test_the_window_begins_with_what_runs() -> None:
    guard = Stabilisation(FixedTarget(), down_s=60)
    scenes = [(0.0, 12, 1), (30.0, 12, 1), (59.0, 12, 1), (60.0, 12, 1)]
    targets, plans, _ = play(guard, scenes)
    assert targets == [12, 12, 12, 1]
    assert plans[1].bindings[0].why == (
        "12 hosts ran at the first look, 30 s ago, or were planned since"
    )


def test_after_a_gap_the_window_begins_again() -> None:
    guard = Stabilisation(FixedTarget(), down_s=60)
    before = [(0.0, 1, 1), (10.0, 1, 1), (20.0, 1, 1)]
    after = [(500.0, 12, 1), (559.0, 12, 1), (560.0, 12, 1)]
    assert play(guard, [*before, *after], interval_s=10)[0][3:] == [12, 12, 1]


def test_turns_that_are_further_apart_than_the_window_are_no_gap() -> None:
    guard = Stabilisation(FixedTarget(), down_s=60)
    assert play(guard, [(0.0, 5, 5), (120.0, 5, 2)], interval_s=120)[0] == [5, 2]


def test_hosts_that_nobody_planned_are_not_released_on_one_look() -> None:
    # The driver was restarted within the window, with the executors of a fresh start.
    guard = Stabilisation(FixedTarget(), down_s=60)
    scenes = [(0.0, 1, 1), (50.0, 1, 1), (60.0, 12, 1), (70.0, 12, 1), (120.0, 12, 1)]
    assert play(guard, scenes)[0] == [1, 1, 12, 12, 1]


def test_what_other_guards_keep_is_not_taken_for_new_hosts() -> None:
    # A limit outside lets go of a few hosts at a time.
    guard = Stabilisation(FixedTarget(), down_s=60)
    scenes = [(0.0, 12, 1), (60.0, 12, 1), (70.0, 7, 1), (80.0, 4, 1), (90.0, 3, 1)]
    assert play(guard, scenes)[0] == [12, 1, 1, 1, 1]


def test_a_window_of_zero_waits_for_nothing() -> None:
    assert play(Stabilisation(FixedTarget(), down_s=0), [(0.0, 12, 1)])[0] == [1]


def test_a_policy_that_picks_its_moment_releases_nothing_on_its_first_looks() -> None:
    guard = FirstLook(FixedTarget(), wait_s=60)
    scenes = [(0.0, 12, 1), (59.0, 12, 1), (60.0, 12, 1), (70.0, 11, 9)]
    targets, plans, _ = play(guard, scenes)
    assert targets == [12, 12, 1, 9]
    assert plans[1].bindings[0].why == "it has just begun to look: scales in in 1 s"
    again = [(0.0, 1, 1), (100.0, 1, 1), (110.0, 12, 1), (169.0, 12, 1), (170.0, 12, 1)]
    assert play(guard, again)[0] == [1, 1, 12, 12, 1]
    gap = [(0.0, 3, 3), (100.0, 3, 3), (1000.0, 3, 1), (1060.0, 3, 1)]
    assert play(guard, gap, interval_s=10)[0] == [3, 3, 3, 1]
    assert play(guard, [(0.0, 3, 5)])[0] == [5], "scaling out is not delayed"


# --- a clock that goes back -------------------------------------------------------------------


def reasons(plan: Plan) -> list[str]:
    return [reason.text for reason in plan.reasons if reason.code == "clock"]


SAID = ["the clock went back: what the guards remember from later times is forgotten"]


def test_a_cool_down_does_not_wait_for_a_moment_that_was_passed_already() -> None:
    guard = CoolDown(FixedTarget(), up_s=30, down_s=300)
    scenes = [(9990.0, 2, 3), (10000.0, 3, 3), (6400.0, 3, 5), (6410.0, 5, 5), (6420.0, 5, 9)]
    targets, plans, _ = play(guard, scenes)
    assert targets == [3, 3, 5, 5, 5], "a change after the jump counts as usual"
    assert [reasons(plan) for plan in plans] == [[], [], SAID, [], []]


def test_a_stabilisation_begins_anew_when_the_clock_goes_back() -> None:
    guard = Stabilisation(FixedTarget(), up_s=30, down_s=60)
    scenes = [(10000.0, 3, 3), (10010.0, 3, 3), (6400.0, 3, 5), (6430.0, 3, 5)]
    targets, plans, _ = play(guard, scenes)
    assert targets == [3, 3, 3, 5], "the first growth comes after the window, not after the jump"
    assert [reasons(plan) for plan in plans] == [[], [], SAID, []]
    fall = [(10000.0, 9, 9), (6400.0, 9, 1), (6459.0, 9, 1), (6460.0, 9, 1)]
    assert play(guard, fall)[0] == [9, 9, 9, 1]


def test_a_first_look_begins_anew_when_the_clock_goes_back() -> None:
    guard = FirstLook(FixedTarget(), wait_s=60)
    scenes = [(10000.0, 3, 3), (10100.0, 3, 3), (6400.0, 3, 1), (6460.0, 3, 1)]
    targets, plans, _ = play(guard, scenes)
    assert targets == [3, 3, 3, 1]
    assert [reasons(plan) for plan in plans] == [[], [], SAID, []]


def test_several_guards_say_it_once() -> None:
    guard = CoolDown(Stabilisation(FixedTarget(), down_s=60), up_s=30)
    memory = guard.initial_memory()
    said = []
    for time_s, hosts in ((10000.0, 2), (10010.0, 3), (6400.0, 3)):
        plan, memory = guard.decide(steady_snapshot(hosts=hosts, time_s=time_s), memory)
        said.append(reasons(plan))
    assert said == [[], [], SAID]


# --- excluded periods -------------------------------------------------------------------------


def at(text: str) -> float:
    """Seconds of a moment in UTC; 2024-01-01 was a Monday."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("periods", "moment", "held"),
    [
        ("09:30-11:00", "2024-01-01T09:29", False),
        ("09:30-11:00", "2024-01-01T09:30", True),
        ("09:30-11:00", "2024-01-06T10:59", True),
        ("09:30-11:00", "2024-01-01T11:00", False),
        ("mon-fri 09:30-11:00", "2024-01-05T10:00", True),  # Friday
        ("mon-fri 09:30-11:00", "2024-01-06T10:00", False),  # Saturday
        ("sat-mon 09:30-11:00", "2024-01-07T10:00", True),  # over the end of the week
        ("sat-mon 09:30-11:00", "2024-01-02T10:00", False),
        ("wed 00:00-24:00", "2024-01-03T23:59", True),
        ("wed 00:00-24:00", "2024-01-04T00:00", False),
        ("23:00-01:00", "2024-01-01T23:30", True),
        ("23:00-01:00", "2024-01-01T00:59", True),
        ("23:00-01:00", "2024-01-01T01:00", False),
        ("fri 23:00-01:00", "2024-01-05T23:30", True),
        ("fri 23:00-01:00", "2024-01-06T00:30", True),  # the night that began on Friday
        ("fri 23:00-01:00", "2024-01-05T00:30", False),
        ("sun 23:00-01:00", "2024-01-08T00:30", True),
        ("09:00-10:00, MON 12:00-13:00", "2024-01-01T12:30", True),
        ("", "2024-01-01T12:30", False),
    ],
)
def test_nothing_is_touched_in_an_excluded_period(periods: str, moment: str, held: bool) -> None:
    guard = ExcludedPeriods(FixedTarget(), periods=periods)
    targets, plans, _ = play(guard, [(at(moment), 3, 5)])
    assert targets == [3 if held else 5]
    assert [b.guard for b in plans[0].bindings] == (["excluded-periods"] if held else [])


def test_the_plan_says_which_moment_is_excluded() -> None:
    guard = ExcludedPeriods(FixedTarget(), periods="mon 00:00-24:00")
    _, plans, _ = play(guard, [(at("2024-01-01T12:30"), 3, 1)])
    assert plans[0].bindings[0].why == "Mon 12:30 UTC is an excluded period"


@pytest.mark.parametrize(
    "periods",
    [
        "noon",
        "9-11",
        "09:00",
        "09:00-25:00",
        "09:75-10:00",
        "someday 09:00-10:00",
        "mon fri 1:00-2:00",
    ],
)
def test_a_period_that_cannot_be_read_is_refused(periods: str) -> None:
    with pytest.raises(SettingError, match="write it as"):
        ExcludedPeriods(FixedTarget(), periods=periods)
