"""Looking ahead, and keeping score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.model import BatchReading, Plan, Snapshot
from tidegate.policies.drs import Drs
from tidegate.policies.trend import Trend, TrendMemory
from tidegate.testing import steady_snapshot


def moment(time_s: float, rate: float | None, startup_s: float = 20.0) -> Snapshot:
    snapshot = replace(steady_snapshot(hosts=1, queue_length=0), time_s=time_s, interval_s=5.0)
    reading = replace(snapshot.operators[0], arrival_rate_per_s=rate)
    offer = replace(snapshot.offer, startup_s=startup_s)
    return replace(snapshot, operators=(reading,), offer=offer)


class Story:
    """A guard asked turn after turn; `shown` is the rate that its policy saw last."""

    def __init__(self, **settings: Any) -> None:
        self.shown: list[float | None] = []
        story = self

        class Looking(FixedTarget):
            def decide(self, snapshot: Snapshot, memory: int) -> tuple[Plan, int]:
                story.shown.append(snapshot.operators[0].arrival_rate_per_s)
                return super().decide(snapshot, memory)

        self.guard = Trend(Looking(hosts=2), **settings)
        self.memory = self.guard.initial_memory()

    def turn(self, time_s: float, rate: float | None) -> Plan:
        plan, self.memory = self.guard.decide(moment(time_s, rate), self.memory)
        return plan


def test_a_rise_is_seen_as_it_will_be_when_a_host_is_up() -> None:
    story = Story()
    for time_s in range(0, 60, 5):
        plan = story.turn(time_s, 100 + 2 * time_s)
    # Two a second more: in 20 s of start-up and 5 s to the next decision that is 50.
    assert story.shown[-1] == pytest.approx(100 + 2 * 55 + 50)
    assert plan.reasons[-1].text == "210/s now, about 260/s in 25 s"
    assert not plan.bindings


def test_a_host_helps_only_after_the_micro_batch_in_which_it_arrives_and_a_slow_one() -> None:
    trend = Trend(FixedTarget(hosts=2))
    memory = trend.initial_memory()
    for time_s in range(0, 60, 5):
        seen = moment(time_s, 100.0 + 2 * time_s)
        batches = BatchReading(trigger_interval_s=3.0, recent_durations_s=(4.0, 8.0))
        reading = replace(seen.operators[0], batches=batches)
        plan, memory = trend.decide(replace(seen, operators=(reading,)), memory)
    assert plan.reasons[-1].text == "210/s now, about 284/s in 37 s"  # 20 + 2 · 6 + 5


def test_a_fall_is_believed_when_it_is_seen() -> None:
    story = Story()
    for time_s in range(0, 60, 5):
        story.turn(time_s, 500 - 5 * time_s)
    assert story.shown[-1] == 500 - 5 * 55


def test_no_rate_is_foretold_beyond_its_double() -> None:
    story = Story(lead_s=1000.0)
    for time_s in range(0, 30, 5):
        story.turn(time_s, 10 + time_s)
    assert story.shown[-1] == pytest.approx(2 * 35)


def test_forecasts_that_do_worse_than_none_are_not_used() -> None:
    story = Story(lead_s=10.0, window_s=12.0)
    saw = [100.0, 150.0, 200.0, 150.0]  # a saw tooth: what rose has fallen when it is due
    for n in range(40):
        story.turn(5.0 * n, saw[n % 4])
    assert story.shown[-8:] == [saw[n % 4] for n in range(32, 40)]
    own: TrendMemory = story.memory.own
    assert own.missed > own.missed_by_none
    for n in range(40, 80):
        story.turn(5.0 * n, 100 + 10 * (n - 40))
    assert (story.shown[-1] or 0) > 100 + 10 * 39, "trusted again"


def test_what_is_missing_stays_missing_and_the_memory_can_be_saved() -> None:
    story = Story()
    story.turn(0, 100)
    story.turn(5, None)
    assert story.shown[-1] is None
    assert story.guard.load_memory(story.guard.save_memory(story.memory)) == story.memory


def test_drs_grows_before_it_is_too_late() -> None:
    bare, ahead = Drs(t_max_s=0.5), Trend(Drs(t_max_s=0.5))
    memory = ahead.initial_memory()
    for time_s in range(0, 40, 5):
        now = moment(time_s, 7.0 + 0.2 * time_s)
        plain, _ = bare.decide(now, bare.initial_memory())
        plan, memory = ahead.decide(now, memory)
    assert (plain.bounded_target, plan.bounded_target) == (1, 2)


def test_rates_of_the_future_are_forgotten() -> None:
    """The clock went back: a trend through later and earlier looks would be none."""
    trend = Trend(FixedTarget(), window_s=30, lead_s=10)
    own = TrendMemory()
    for time_s, rate in ((10_000.0, 900.0), (10_010.0, 500.0), (10_020.0, 100.0), (6_400.0, 50.0)):
        _, _, own = trend.view(moment(time_s, rate), own)
    assert [at for at, _ in own.seen] == [6_400.0]
    assert [at for at, *_ in own.due] == [6_410.0]


def test_a_clock_that_stands_still_has_no_trend() -> None:
    trend, own = Trend(FixedTarget(), window_s=30, lead_s=10), TrendMemory()
    for rate in (100.0, 200.0, 300.0, 400.0):
        snapshot, change, own = trend.view(moment(50.0, rate), own)
        assert change == "" and snapshot.operators[0].arrival_rate_per_s == rate
