"""What happens while a policy has no measurements, and at which times there are more hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.errors import SettingError
from tidegate.guards import Guard, InitialHosts, ScheduledMinimum, WhenBlind
from tidegate.model import Plan
from tidegate.testing import steady_snapshot


@dataclass(frozen=True)
class Curious(FixedTarget):
    """A policy that needs two measurements."""

    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length", "operator.processed_per_s")


def play(
    guard: Guard,
    scenes: Sequence[tuple[float, int, bool]],
    most: int | None = None,
) -> list[Plan]:
    """Plans for each (time, hosts running, whether there are measurements)."""
    memory, plans = guard.initial_memory(), []
    for time_s, hosts, known in scenes:
        snapshot = steady_snapshot(hosts, queue_length=0 if known else None, time_s=time_s)
        offer = replace(snapshot.offer, max_hosts=most)
        snapshot = replace(snapshot, offer=offer, interval_s=10.0)
        plan, memory = guard.decide(snapshot, memory)
        plans.append(plan)
    return plans


def targets(plans: Sequence[Plan]) -> list[int]:
    return [plan.bounded_target for plan in plans]


BLIND_FROM_10 = [(0.0, 3, True), (10.0, 3, False), (69.0, 3, False), (70.0, 3, False)]


@pytest.mark.parametrize(("then", "after"), [("hold", 3), ("maximum", 9), ("5", 5), ("1", 1)])
def test_what_happens_when_blind_is_a_setting(then: str, after: int) -> None:
    guard = WhenBlind(FixedTarget(2), then=then)
    scenes = [*BLIND_FROM_10, (80.0, 3, True)]
    assert targets(play(guard, scenes, most=9)) == [2, 2, 2, after, 2]


def test_it_says_what_is_missing_and_since_when() -> None:
    plan = play(WhenBlind(FixedTarget(4), then="maximum"), BLIND_FROM_10, most=9)[-1]
    assert [b.why for b in plan.bindings] == [
        "work.queue_length is missing for 1 min: the maximum of 9 hosts"
    ]
    plan = play(WhenBlind(FixedTarget(2)), BLIND_FROM_10)[-1]
    assert [b.why for b in plan.bindings] == [
        "work.queue_length is missing for 1 min: nothing is released"
    ]


def test_how_long_it_waits_is_a_setting() -> None:
    guard = WhenBlind(FixedTarget(4), then="9", after_s=5)
    assert targets(play(guard, [(0.0, 3, False), (4.0, 3, False), (5.0, 3, False)])) == [4, 4, 9]
    assert targets(play(replace(guard, after_s=0), [(0.0, 3, False)])) == [9]


def test_without_a_maximum_nothing_is_released() -> None:
    assert targets(play(WhenBlind(FixedTarget(2), then="maximum"), BLIND_FROM_10))[-1] == 3


def test_a_clock_that_goes_back_begins_the_wait_again() -> None:
    guard = WhenBlind(FixedTarget(4), then="9")
    scenes = [(10_000.0, 3, False), (6_400.0, 3, False), (6_459.0, 3, False), (6_460.0, 3, False)]
    assert targets(play(guard, scenes)) == [4, 4, 4, 9]


@pytest.mark.parametrize("then", ["most", "0", "-1", "2.5", "", "10001", "9" * 400])
def test_another_word_is_refused(then: str) -> None:
    with pytest.raises(SettingError, match="hold, maximum, or a number of hosts from 1 to 10000"):
        WhenBlind(FixedTarget(), then=then)


def test_a_number_may_be_given_as_such_in_a_file() -> None:
    assert WhenBlind(FixedTarget(), then="10000").then == "10000"
    guard = WhenBlind.around(FixedTarget(4), {"then": 5})
    assert targets(play(guard, BLIND_FROM_10))[-1] == 5


# --- at the start ------------------------------------------------------------------------------


def test_initial_hosts_are_asked_for_until_the_first_measurements() -> None:
    guard = InitialHosts(FixedTarget(2), hosts=6)
    plans = play(guard, [(0.0, 1, False), (10.0, 6, False), (20.0, 6, True), (30.0, 6, False)])
    assert targets(plans) == [6, 6, 2, 2]
    assert plans[0].bindings[0].why == (
        "6 hosts until the first measurements: work.queue_length is missing"
    )


def test_initial_hosts_release_nothing() -> None:
    assert targets(play(InitialHosts(FixedTarget(9), hosts=6), [(0.0, 9, False)])) == [9]


def test_a_restarted_application_starts_with_them_again() -> None:
    guard = InitialHosts(FixedTarget(2), hosts=6)
    after_a_gap = [(0.0, 2, True), (10.0, 2, True), (120.0, 2, False)]
    assert targets(play(guard, after_a_gap)) == [2, 2, 6]
    fewer_ever_leased = [(0.0, 4, True), (10.0, 4, True), (20.0, 1, False)]
    assert targets(play(guard, fewer_ever_leased)) == [2, 2, 6]
    no_gap = [(0.0, 2, True), (30.0, 2, False)]
    assert targets(play(guard, no_gap)) == [2, 2], "two turns are no gap, nor are 30 s"


def test_several_missing_measurements_are_counted() -> None:
    guard = InitialHosts(Curious(2), hosts=6)
    assert play(guard, [(0.0, 1, False)])[0].bindings[0].why == (
        "6 hosts until the first measurements: work.queue_length and 1 more are missing"
    )


# --- by the time of day ------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = "weekdays 08:00-18:00: 4, sat 10:00-12:00: 2"


def least(periods: str, local: str, zone: str = "Europe/Berlin", fold: int = 0) -> int:
    """Hosts at a moment of the local clock, when the policy wants one."""
    moment = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone), fold=fold)
    guard = ScheduledMinimum(FixedTarget(1), periods=periods, time_zone=zone)
    return play(guard, [(moment.timestamp(), 1, True)])[0].bounded_target


@pytest.mark.parametrize(
    ("local", "hosts"),
    [
        ("2024-01-01T07:59", 1),  # a Monday
        ("2024-01-01T08:00", 4),
        ("2024-07-01T08:00", 4),  # in summer time, an hour earlier in UTC
        ("2024-07-01T07:59", 1),
        ("2024-01-05T17:59", 4),
        ("2024-01-05T18:00", 1),
        ("2024-01-06T10:00", 2),
        ("2024-01-06T09:00", 1),
        ("2024-01-07T10:00", 1),
    ],
)
def test_a_minimum_by_the_time_of_day(local: str, hosts: int) -> None:
    assert least(OFFICE, local) == hosts


def test_the_minimum_says_why_and_never_lowers_a_plan() -> None:
    monday = datetime(2024, 1, 1, 9, 0, tzinfo=BERLIN).timestamp()
    guard = ScheduledMinimum(FixedTarget(1), periods=OFFICE, time_zone="Europe/Berlin")
    (plan,) = play(guard, [(monday, 1, True)])
    assert plan.bindings[0].why == "the minimum at Mon 09:00 Europe/Berlin is 4 hosts"
    (plan,) = play(replace(guard, inner=FixedTarget(7)), [(monday, 1, True)])
    assert (plan.bounded_target, plan.bindings) == (7, ())


def minutes_at(periods: str, start: str, hours: int) -> int:
    """Minutes with a minimum of 3 hosts in the hours after a moment of the clock in Berlin."""
    first_s = datetime.fromisoformat(start).replace(tzinfo=BERLIN).timestamp()
    guard = ScheduledMinimum(FixedTarget(1), periods=periods, time_zone="Europe/Berlin")
    scenes = [(first_s + 60.0 * n, 1, True) for n in range(60 * hours)]
    return sum(plan.bounded_target == 3 for plan in play(guard, scenes))


def test_a_period_on_the_days_when_the_clocks_change() -> None:
    night = "sat 22:00-06:00: 3"
    assert minutes_at(night, "2024-03-23T12:00", 24) == 8 * 60
    assert minutes_at(night, "2024-03-30T12:00", 24) == 7 * 60, "02:00 to 03:00 does not exist"
    assert minutes_at(night, "2024-10-26T12:00", 24) == 9 * 60, "02:00 to 03:00 comes twice"
    assert minutes_at("sun 02:00-03:00: 3", "2024-03-31T00:00", 12) == 0
    assert minutes_at("sun 02:00-03:00: 3", "2024-10-27T00:00", 12) == 120
    assert minutes_at("sun 08:00-09:00: 3", "2024-03-31T00:00", 12) == 60
    assert least("sun 02:30-03:00: 3", "2024-10-27T02:45", fold=1) == 3


def test_where_periods_overlap_the_largest_minimum_counts() -> None:
    assert least("09:00-17:00: 2, mon 10:00-11:00: 5", "2024-01-01T10:30") == 5
    assert least("mon 10:00-11:00: 5, 09:00-17:00: 2", "2024-01-01T11:30") == 2
    assert least("", "2024-01-01T10:30") == 1
    assert least("09:00-17:00: 1", "2024-01-01T10:30") == 1
    ScheduledMinimum(FixedTarget(), periods="09:00-17:00: 10000")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"periods": "08:00-18:00"}, "write it as"),
        ({"periods": "weekdays 08:00-18:00: many"}, "write it as"),
        ({"periods": "weekdays 08:00-18:00: 0"}, "write it as"),
        ({"periods": "weekdays 08:00-18:00: 10001"}, "write it as"),
        ({"periods": "4"}, "write it as"),
        ({"periods": "workdays 08:00-18:00: 4"}, "write it as"),
        ({"periods": "08:00-26:00: 4"}, "write it as"),
        ({"periods": OFFICE, "time_zone": "Berlin"}, "time_zone is 'Berlin'.*Europe/Berlin"),
        ({"periods": OFFICE, "time_zone": "../etc/passwd"}, "a known time zone"),
        ({"periods": OFFICE, "time_zone": ""}, "a known time zone"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        ScheduledMinimum(FixedTarget(), **settings)
