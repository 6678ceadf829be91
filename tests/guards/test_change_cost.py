"""Changes are weighed: what they save while they last against what they cost.

The worlds here are those in which a fixed rule is wrong: the same load that flips every two minutes
must be followed where changes are free and must not be where they disturb for a minute, and a calm
night must end the wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.guards import ReleaseLimit
from tidegate.guards.change_cost import (
    NOISE,
    ChangeCost,
    ChangeCostMemory,
    Disturbance,
    Episode,
    Latest,
    Usual,
    Watched,
)
from tidegate.model import BatchReading, Latency, Plan, Prediction, Snapshot
from tidegate.policies.base import NoMemory
from tidegate.policies.wrapper import WrapperMemory
from tidegate.testing import steady_snapshot

TURN_S = 10.0


@dataclass
class World:
    """An application in micro-batches whose first batch after each change takes longer.

    disturbed_s: by how much it takes longer. slower: factor on the work that hosts share. state_mb:
    size of the state.
    """

    guard: ChangeCost = field(default_factory=lambda: ChangeCost(FixedTarget()))
    disturbed_s: float = 0.0
    state_mb: float | None = 1000.0
    hosts: int = 12
    slower: float = 1.0
    time_s: float = 0.0
    memory: Any = None
    plans: list[Plan] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    _ends_s: float = 0.0
    _durations_s: list[float] = field(default_factory=list)
    _extra_s: float = 0.0

    def _run_batches(self) -> None:
        """Batches every five seconds, or as soon as the last one has ended."""
        while True:
            number = len(self._durations_s)
            # No two batches take exactly as long, as in life.
            took_s = 2.0 + 12.0 / self.hosts * self.slower + self._extra_s + 0.001 * (number % 7)
            begins_s = max(self._ends_s, 5.0 * math.ceil(self._ends_s / 5.0))
            if begins_s + took_s > self.time_s:
                return
            self._ends_s, self._extra_s = begins_s + took_s, 0.0
            self._durations_s.append(took_s)

    def snapshot(self, wanted: int, **more: Any) -> Snapshot:
        steady = steady_snapshot(self.hosts, queue_length=0, time_s=self.time_s)
        self._run_batches()
        recent = tuple(self._durations_s[-5:])
        reading = replace(
            steady.operators[0],
            arrival_rate_per_s=100.0 * wanted,
            processed_per_s=100.0 * wanted,
            batches=BatchReading(5.0, recent) if recent else None,
            state_mb=self.state_mb,
            delay=Latency(1.0, 1.0, 2.0, 3.0),
        )
        operator = replace(steady.topology.operators[0], slo_s=30.0)
        topology = replace(steady.topology, operators=(operator,))
        values: dict[str, Any] = {
            "operators": (reading,), "topology": topology, "interval_s": TURN_S,
            "latency": reading.delay,
        }  # fmt: skip
        return replace(steady, **values | more)

    def turn(self, wanted: int, **more: Any) -> Plan:
        """One turn in which the policy wants so many hosts; the plan is carried out at once."""
        guard = replace(self.guard, inner=FixedTarget(wanted))
        memory = guard.initial_memory() if self.memory is None else self.memory
        plan, self.memory = guard.decide(self.snapshot(wanted, **more), memory)
        if plan.bounded_target != self.hosts:
            self._extra_s = self.disturbed_s
        self.hosts = plan.bounded_target
        self.plans.append(plan)
        self.seen.append(self.hosts)
        self.time_s += TURN_S
        return plan

    def play(self, wanted: int, seconds: float) -> list[int]:
        """The hosts of each turn while the policy wants so many."""
        start = len(self.seen)
        for _ in range(round(seconds / TURN_S)):
            self.turn(wanted)
        return self.seen[start:]

    @property
    def own(self) -> ChangeCostMemory:
        own = self.memory.own
        assert isinstance(own, ChangeCostMemory)
        return own


def changes(hosts: list[int]) -> int:
    return sum(a != b for a, b in pairwise(hosts))


def flipping(world: World, times: int) -> list[int]:
    """A load that needs 12 hosts for two minutes, and 4 for the next two."""
    return [hosts for _ in range(times) for hosts in world.play(12, 120) + world.play(4, 120)]


def test_a_change_that_costs_nothing_is_followed_every_two_minutes() -> None:
    world = World(disturbed_s=0.0)
    flipping(world, 5)
    assert changes(flipping(world, 5)) >= 9


def test_with_large_state_a_load_that_flips_every_two_minutes_is_held() -> None:
    world = World(disturbed_s=80.0)
    flipping(world, 4)
    later = flipping(world, 10)
    assert changes(later) <= 1 and later[-1] == 12
    binding = world.plans[-1].bindings[-1]
    assert (binding.guard, binding.before, binding.after) == ("change-cost", 4, 12)
    assert binding.why.startswith("releasing 8 hosts saves ")
    assert "releasing and taking back costs " in binding.why


def test_a_calm_night_ends_the_wait() -> None:
    world = World(disturbed_s=80.0)
    flipping(world, 8)
    night = world.play(4, 3600)
    assert night[0] == 12 and night[-1] == 4
    assert night.index(4) * TURN_S < 1200, "it has lasted longer than it costs"
    assert changes(night) == 1


def test_after_a_calm_night_hosts_come_back_when_they_are_needed() -> None:
    world = World(disturbed_s=80.0)
    world.play(12, 120)
    world.play(4, 3600)
    assert world.turn(12).bounded_target == 12


def test_a_release_that_is_worth_it_says_both_figures() -> None:
    world = World()
    world.play(12, 60)
    plan = world.turn(10)
    assert plan.bounded_target == 10
    (reason,) = [reason for reason in plan.reasons if reason.code == "change-cost"]
    assert reason.text == (
        "releasing 2 hosts saves 1,200 host-seconds in the 10 min until the next change; releasing "
        "and taking back costs 120: batches after a change are assumed to take 5 s longer on 12 "
        "hosts"
    )


def test_one_host_of_many_is_released_when_it_was_not_needed_for_long() -> None:
    world = World(hosts=100)
    world.play(100, 60)
    hosts = world.play(99, 1500)
    assert hosts[0] == 100 and hosts[-1] == 99
    assert hosts.index(99) * TURN_S == pytest.approx(1000, abs=2 * TURN_S)


@pytest.mark.parametrize("disturbed_s", [0.0, 10.0, 40.0, 150.0])
def test_the_disturbance_is_measured(disturbed_s: float) -> None:
    world = World(disturbed_s=disturbed_s)
    world.play(12, 60)
    world.play(6, 300)
    (seen,) = world.own.disturbances
    assert seen.late_s == pytest.approx(disturbed_s, abs=0.2 * disturbed_s)
    assert seen.state_mb == 1000.0


def test_batches_that_stay_longer_on_fewer_hosts_are_no_disturbance() -> None:
    world = World(slower=5.0)
    world.play(12, 60)
    world.play(4, 300)  # from 7 s to 17 s, for good
    assert [seen.late_s for seen in world.own.disturbances] == [pytest.approx(0.0, abs=0.5)]


def test_a_release_in_several_steps_is_one_disturbance() -> None:
    world = World(disturbed_s=20.0)
    world.play(12, 60)
    for hosts in (10, 8, 7):
        world.play(hosts, 40)
    world.play(7, 120)
    (seen,) = world.own.disturbances
    assert seen.late_s == pytest.approx(60.0, abs=10)


def test_a_release_in_several_steps_is_weighed_as_a_whole() -> None:
    """Of 12 hosts one step releases 5, which would save too little; all 11 save enough."""
    own = ChangeCostMemory(disturbances=(Disturbance(20.0),) * 3, unneeded_s=(60.0,) * 3)
    seen = replace(World(time_s=100.0), state_mb=None).snapshot(12)
    steps = ChangeCost(ReleaseLimit(FixedTarget(1)))
    plan, _ = steps.decide(seen, WrapperMemory(own, WrapperMemory(NoMemory(), 0)))
    assert plan.bounded_target == 7
    plan, _ = ChangeCost(FixedTarget(7)).decide(seen, WrapperMemory(own, 0))
    assert plan.bounded_target == 12


def watched(hosts: int, *taken_s: tuple[float, ...], **more: Any) -> ChangeCostMemory:
    """A change from 12 hosts is under way; `hosts` of them run, and batches took 3 s before it.

    taken_s: for each query, the durations of its batches since then.
    """
    usual = tuple(Usual(f"q{n}" if n else "work", 3.0, 100.0) for n in range(len(taken_s)))
    queries = tuple(map(Watched, usual, taken_s))
    episode = Episode(80.0, 12, queries, state_mb=50.0)
    return ChangeCostMemory(90.0, hosts, usual=usual, episode=episode, **more)


def ended(own: ChangeCostMemory, hosts: int = 12) -> tuple[Disturbance, ...]:
    """What is remembered once so many hosts run, of which the policy wants all."""
    world = World(time_s=100.0, hosts=hosts)
    plan, memory = ChangeCost(FixedTarget(hosts)).decide(world.snapshot(1), WrapperMemory(own, 0))
    assert plan.bounded_target == hosts
    disturbances: tuple[Disturbance, ...] = memory.own.disturbances
    return disturbances


def test_fewer_hosts_explain_that_batches_take_longer() -> None:
    """Six hosts instead of twelve explain six seconds instead of three."""
    assert ended(watched(6, (10.0,))) == (Disturbance(4.0, 50.0),)
    assert ended(watched(6, (7.0, 7.0))) == (Disturbance(0.0, 50.0),), "within the noise"
    assert ended(watched(24, (10.0,)), 12) == (Disturbance(7.0, 50.0),), "more hosts explain none"


def test_a_batch_counts_when_it_takes_longer_than_noise_explains() -> None:
    """Six hosts instead of twelve explain six seconds."""
    assert ended(watched(6, (NOISE * 6.0,))) == (Disturbance(0.0, 50.0),)
    longer_s = NOISE * 6.0 + 0.01
    assert ended(watched(6, (longer_s,))) == (Disturbance(longer_s - 6.0, 50.0),)


def test_what_remains_at_the_end_is_the_new_normal() -> None:
    assert ended(watched(6, (10.0, 5.0, 4.0, 5.0))) == (Disturbance(6.0 + 1.0 + 1.0, 50.0),)
    assert ended(watched(6, (10.0, 5.0, 4.0))) == (Disturbance(6.0 + 1.0, 50.0),), "of three"
    assert ended(watched(6, (10.0, 2.0, 1.0, 2.0))) == (Disturbance(7.0, 50.0),), "not below before"


def test_the_query_that_suffers_most_counts_and_one_without_batches_does_not() -> None:
    assert ended(watched(6, (10.0,), (), (12.0,))) == (Disturbance(6.0, 50.0),)
    assert ended(watched(6, (), ())) == (), "nothing was seen"


def test_a_change_under_overload_is_not_measured() -> None:
    world = World(disturbed_s=40.0, hosts=6)
    world.play(6, 60)
    late = replace(world.snapshot(8).operators[0], processed_per_s=100.0)
    world.turn(8, operators=(late,))
    world.play(8, 200)
    assert world.hosts == 8 and world.own.disturbances == ()


def test_how_long_hosts_are_not_needed_is_counted_by_level() -> None:
    """Two of six hosts were never needed again; the third one always was, after a while."""
    world = World(hosts=6)
    world.play(6, 60)
    world.play(4, 300)
    for _ in range(3):
        world.play(3, 120)
        world.play(4, 120)
    assert world.own.unneeded_s == (110.0,) * 3 and len(world.own.released) == 1


def test_start_up_times_make_a_release_worth_less() -> None:
    world = World(time_s=100.0)
    own = ChangeCostMemory(disturbances=(Disturbance(2.0),) * 3, unneeded_s=(60.0,) * 3)
    seen = replace(world.snapshot(12), time_s=100.0)
    guard = ChangeCost(FixedTarget(11))
    assert guard.decide(seen, WrapperMemory(own, 0))[0].bounded_target == 11
    slow = replace(seen, offer=replace(seen.offer, startup_s=45.0))
    plan, _ = guard.decide(slow, WrapperMemory(own, 0))
    assert plan.bounded_target == 12
    assert plan.bindings[0].why == (
        "releasing 1 host saves 15 host-seconds in the 1 min until the next change, less 45 s to "
        "start again; releasing and taking back costs 48: batches after a change take 2 s longer "
        "on 12 hosts"
    )


def test_a_larger_state_is_expected_to_disturb_more() -> None:
    guard = ChangeCost(FixedTarget())
    own = ChangeCostMemory(disturbances=(Disturbance(10.0, 500.0), Disturbance(12.0, 600.0)))
    world = World(state_mb=1000.0)
    assert guard.expected_late_s(world.snapshot(12), own) == pytest.approx(20.0)
    world.state_mb = 1e6
    assert guard.expected_late_s(world.snapshot(12), own) == pytest.approx(44.0), "within reason"
    tiny = ChangeCostMemory(disturbances=(Disturbance(10.0, 0.001),) * 2)
    world.state_mb = 5.0
    assert guard.expected_late_s(world.snapshot(12), tiny) == 10.0, "both are hardly any state"
    world.state_mb = None
    assert guard.expected_late_s(world.snapshot(12), own) == pytest.approx(11.0)


# --- scaling out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicting(FixedTarget):
    """A fixed target with a prediction."""

    predicted_s: float = 1.0

    def decide(self, snapshot: Snapshot, memory: int) -> tuple[Plan, int]:
        plan, after = super().decide(snapshot, memory)
        return replace(plan, predicted=Prediction(sojourn_s=self.predicted_s)), after


def grown(predicted_s: float = 1.0, p95_s: float | None = 2.0, **reading: Any) -> Plan:
    """The plan for 15 hosts where 12 run and changes were measured to disturb for 30 s."""
    world = World(time_s=100.0)
    own = ChangeCostMemory(
        disturbances=(Disturbance(30.0, 1000.0),) * 3, unneeded_s=(300.0,) * 3, rate_per_s=1200.0
    )
    guard = replace(world.guard, inner=Predicting(15, predicted_s))
    seen = world.snapshot(12)
    latency = Latency(1.0, 1.0, p95_s, p95_s)
    operator = replace(seen.operators[0], **{"delay": latency} | reading)
    seen = replace(seen, operators=(operator,), latency=operator.delay)
    return guard.decide(seen, WrapperMemory(own, 0))[0]


def test_a_scale_out_that_gains_nothing_is_held_while_no_latency_is_in_danger() -> None:
    plan = grown()
    assert plan.bounded_target == 12
    assert plan.bindings[-1].why == (
        "more hosts would save 0 s of latency until the next change in 5 min, and batches after a "
        "change take 30 s longer; no latency is in danger"
    )


@pytest.mark.parametrize(
    "danger",
    [
        {"p95_s": 16.0},
        {"p95_s": None},
        {"delay": Latency(1.0, 1.0, 2.0, 2.0, at_least=True)},
        {"predicted_s": 16.0},
        {"processed_per_s": 1000.0},
        {"backlog_s": 16.0},
        {"arrival_rate_per_s": 1300.0},
        {"arrival_rate_per_s": None},
    ],
)
def test_a_scale_out_that_the_slo_may_need_is_never_delayed(danger: dict[str, Any]) -> None:
    assert grown(**danger).bounded_target == 15


def beside(seen: Snapshot, **reading: Any) -> Snapshot:
    """The same with another query before the first one, without an SLO and without state."""
    (work,), (known,) = seen.topology.operators, seen.operators
    topology = replace(seen.topology, operators=(replace(work, name="a", slo_s=None), work))
    rates = {"arrival_rate_per_s": 0.0, "processed_per_s": 0.0, "state_mb": None}
    first = replace(known, operator="a", **rates | reading)
    return replace(seen, topology=topology, operators=(first, known))


def test_a_query_that_had_no_batch_yet_is_left_out() -> None:
    seen = beside(World(time_s=100.0).snapshot(12), batches=BatchReading(5.0, ()))
    _, memory = ChangeCost(FixedTarget(12)).decide(seen, WrapperMemory(ChangeCostMemory(), 0))
    assert [usual.query for usual in memory.own.usual] == ["work"]


@pytest.mark.parametrize(("late_s", "held"), [(2.0, ["change-cost"]), (16.0, [])])
def test_a_query_without_an_slo_hides_no_danger_of_the_next_one(
    late_s: float, held: list[str]
) -> None:
    seen = World(time_s=100.0).snapshot(12)
    (known,) = seen.operators
    late = replace(known, delay=Latency(1.0, 1.0, late_s, late_s))
    seen = beside(replace(seen, operators=(late,), latency=Latency(1.0, 1.0, 2.0, 3.0)))
    own = ChangeCostMemory(
        disturbances=(Disturbance(30.0, 1000.0),) * 3, unneeded_s=(300.0,) * 3, rate_per_s=1200.0
    )
    plan, _ = ChangeCost(Predicting(15, 1.0)).decide(seen, WrapperMemory(own, 0))
    assert [binding.guard for binding in plan.bindings] == held


def test_a_scale_out_is_allowed_when_its_latency_is_worth_it() -> None:
    slow = Latency(9.0, 9.0, 10.0, 11.0)
    assert grown(predicted_s=1.0, delay=slow).bounded_target == 15


# --- memory ------------------------------------------------------------------------------------


def test_the_memory_is_bounded_and_can_be_saved() -> None:
    world = World(disturbed_s=1.0)
    for wanted in (12, 4, 7, 5, 12, 3) * 40:
        world.play(wanted, 70)
    own = world.own
    assert max(len(own.disturbances), len(own.unneeded_s)) <= 8
    assert own.episode is None or len(own.episode.queries[0].durations_s) <= 64
    guard = world.guard
    assert guard.load_memory(guard.save_memory(world.memory)) == world.memory


@dataclass(frozen=True)
class AtTheEndOfUnits(FixedTarget):
    """Needs two hosts fewer all the time, and plans to release them only once a minute."""

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, memory = super().decide(snapshot, memory)
        needed = plan.bounded_target
        if snapshot.time_s % 60:
            plan, memory = replace(self, hosts=len(snapshot.hosts)).still(snapshot, memory)
        return replace(plan, predicted=replace(plan.predicted, hosts_needed=needed)), memory

    def still(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """All hosts stay."""
        return super().decide(snapshot, memory)


def test_hosts_that_are_kept_to_the_end_of_their_unit_count_as_not_needed_before() -> None:
    """Short times without need were measured, so that only the time that passes shows more."""
    world = World(disturbed_s=80.0)
    flipping(world, 4)
    world.play(12, 120)
    guard = replace(world.guard, inner=AtTheEndOfUnits(4))
    released = []
    for _ in range(120):
        plan, world.memory = guard.decide(world.snapshot(4), world.memory)
        released.append(plan.bounded_target < 12)
        world.time_s += TURN_S
        if released[-1]:
            break
    assert released[-1] and len(released) > 6


def test_a_clock_that_goes_back_keeps_what_was_measured() -> None:
    world = World(disturbed_s=40.0)
    world.play(12, 60)
    world.play(6, 300)
    world.time_s -= 3600
    plan = world.turn(6)
    assert [reason.code for reason in plan.reasons] == ["fixed", "clock"]
    assert len(world.own.disturbances) == 1 and world.own.fewer_since_s is None


def test_what_happened_in_a_gap_is_no_change() -> None:
    world = World(disturbed_s=40.0)
    world.play(12, 60)
    world.time_s += 600
    world.hosts = 3
    world.play(3, 200)
    assert world.own.disturbances == ()


def test_without_batches_nothing_is_held() -> None:
    guard = ChangeCost(FixedTarget(1), late_s=1e6)
    plan, _ = guard.decide(steady_snapshot(12, queue_length=0), guard.initial_memory())
    assert plan.bounded_target == 1
    assert [reason.code for reason in plan.reasons] == ["fixed"]


# --- one turn ----------------------------------------------------------------------------------


def after(
    own: ChangeCostMemory,
    hosts: int = 12,
    wanted: int | None = None,
    guard: ChangeCost | None = None,
    time_s: float = 100.0,
    **reading: Any,
) -> tuple[Plan, ChangeCostMemory]:
    """The plan and the memory after a turn. hosts: that run. wanted: by the policy, or as many."""
    world = World(time_s=time_s, hosts=hosts)
    seen = world.snapshot(12)
    seen = replace(seen, operators=(replace(seen.operators[0], **reading),))
    guard = replace(guard or ChangeCost(FixedTarget()), inner=FixedTarget(wanted or hosts))
    plan, memory = guard.decide(seen, WrapperMemory(own, 0))
    assert isinstance(memory.own, ChangeCostMemory)
    return plan, memory.own


def test_a_release_must_save_more_than_it_costs() -> None:
    """Two hosts of twelve for 60 s are 120 host-seconds, as much as 2 · 5 s on twelve hosts."""
    for lasts_s, hosts in ((60.0, 12), (60.5, 10)):
        own = ChangeCostMemory(disturbances=(Disturbance(5.0),) * 2, unneeded_s=(lasts_s,) * 2)
        assert after(own, wanted=10, state_mb=None)[0].bounded_target == hosts


def test_hosts_that_are_needed_again_before_they_have_started_are_kept() -> None:
    own = ChangeCostMemory(disturbances=(Disturbance(0.0),) * 2, unneeded_s=(30.0,) * 2)
    seen = World(time_s=100.0, state_mb=None).snapshot(12)
    for startup_s, hosts in ((29.0, 10), (60.0, 12)):
        slow = replace(seen, offer=replace(seen.offer, startup_s=startup_s))
        plan, _ = ChangeCost(FixedTarget(10)).decide(slow, WrapperMemory(own, 0))
        assert plan.bounded_target == hosts


def test_a_state_that_shrank_is_expected_to_disturb_less_but_not_by_any_factor() -> None:
    own = ChangeCostMemory(disturbances=(Disturbance(40.0, 1000.0),) * 2)
    guard = ChangeCost(FixedTarget())
    for state_mb, late_s in ((500.0, 20.0), (250.0, 10.0), (100.0, 10.0), (4000.0, 160.0)):
        seen = World(time_s=100.0, state_mb=state_mb).snapshot(12)
        assert guard.expected_late_s(seen, own) == late_s
    unknown = ChangeCostMemory(disturbances=(Disturbance(40.0),) * 2)
    assert guard.expected_late_s(seen, unknown) == 40.0


def test_a_single_measurement_counts_as_much_as_the_assumption() -> None:
    guard = ChangeCost(FixedTarget(), late_s=6.0, unneeded_s=100.0)
    seen = World(time_s=100.0, state_mb=None).snapshot(12)
    assert guard.expected_late_s(seen, ChangeCostMemory()) == 6.0
    one = ChangeCostMemory(disturbances=(Disturbance(2.0),), unneeded_s=(300.0,))
    assert (guard.expected_late_s(seen, one), guard.expected_unneeded_s(0.0, one)) == (4.0, 200.0)
    since = replace(one, fewer_since_s=50.0)
    assert guard.expected_unneeded_s(240.0, since) == 200.0
    assert guard.expected_unneeded_s(260.0, since) == 210.0, "it has lasted longer already"


def test_the_time_of_a_release_that_was_held_back_counts_when_it_is_over() -> None:
    own = ChangeCostMemory(90.0, 12, requested=12, fewer_since_s=40.0, fewer_than=12)
    plan, later = after(own, hosts=12)
    assert plan.bounded_target == 12
    assert (later.unneeded_s, later.fewer_since_s, later.fewer_than) == ((60.0,), None, 0)
    _, still = after(own, hosts=12, wanted=11)
    assert (still.unneeded_s, still.fewer_since_s, still.fewer_than) == ((), 40.0, 12)
    _, fewer = after(replace(own, requested=10), hosts=10)
    assert (fewer.unneeded_s, fewer.fewer_since_s) == ((), None), "it was released meanwhile"
    _, begins = after(ChangeCostMemory(90.0, 12, requested=12), hosts=12, wanted=11)
    assert (begins.fewer_since_s, begins.fewer_than) == (100.0, 12)


def test_hosts_that_were_released_count_when_as_many_are_planned_again() -> None:
    released = ((30.0, 12), (60.0, 10))
    own = ChangeCostMemory(90.0, 8, requested=8, released=released, unneeded_s=(5.0,))
    _, same = after(own, hosts=8)
    assert (same.released, same.unneeded_s) == (released, (5.0,))
    _, some = after(own, hosts=8, wanted=10)
    assert (some.released, some.unneeded_s) == (((30.0, 12),), (5.0, 40.0))
    _, all_ = after(own, hosts=8, wanted=12)
    assert (all_.released, all_.unneeded_s) == ((), (5.0, 70.0, 40.0))
    _, more = after(own, hosts=7)
    assert more.released == (*released, (100.0, 8)), "one more was released since the last turn"
    _, few = after(replace(own, unneeded_s=(1.0,) * 8), hosts=8, wanted=12)
    assert few.unneeded_s == (1.0,) * 6 + (70.0, 40.0), "the last eight are remembered"


@pytest.mark.parametrize(
    ("began_s", "batches", "rate", "ends"),
    [
        (41.0, 3, 1200.0, False),
        (40.0, 3, 1200.0, True),
        (40.0, 2, 1200.0, False),
        (40.0, 2, 0.0, True),  # no rows, no batches
        (-199.0, 0, 1200.0, False),
        (-200.0, 1, 1200.0, True),  # after five times as long, whatever was seen
    ],
)
def test_when_an_episode_ends(began_s: float, batches: int, rate: float, ends: bool) -> None:
    """The time to watch is 60 s, and three batches show how long they take in the end."""
    usual = Usual("work", 3.0, 1200.0)
    episode = Episode(began_s, 10, (Watched(usual, (4.0,) * batches),), state_mb=7.0)
    seen = World(time_s=100.0).snapshot(12).operators[0].batches
    assert seen is not None
    own = ChangeCostMemory(
        95.0, 12, (Latest("work", seen.recent_durations_s),), (usual,), episode=episode
    )
    _, later = after(own, arrival_rate_per_s=rate, processed_per_s=rate)
    assert (later.episode is None) == ends
    assert len(later.disturbances) == (1 if ends and batches else 0)


def test_only_new_batches_of_a_turn_count_and_as_if_no_more_rows_came() -> None:
    usual = Usual("work", 3.0, 600.0)
    own = ChangeCostMemory(
        95.0,
        12,
        (Latest("work", (3.0, 4.0, 5.0)),),
        (usual,),
        episode=Episode(90.0, 10, (Watched(usual, (9.0,)),)),
    )
    for recent, fresh in (
        ((3.0, 4.0, 5.0), ()),
        ((4.0, 5.0, 8.0), (4.0,)),
        ((5.0, 8.0, 6.0), (4.0, 3.0)),
        ((8.0, 6.0), (4.0, 3.0)),
    ):
        _, later = after(own, batches=BatchReading(5.0, recent))
        assert later.episode is not None
        assert later.episode.queries[0].durations_s == (9.0, *fresh)
        assert later.latest == (Latest("work", recent),)
    for rate in (300.0, None):  # fewer rows do not make a batch longer
        _, later = after(own, batches=BatchReading(5.0, (8.0,)), arrival_rate_per_s=rate)
        assert later.episode is not None and later.episode.queries[0].durations_s == (9.0, 8.0)


def test_of_many_batches_the_first_and_the_last_three_are_remembered() -> None:
    usual = Usual("work", 3.0)
    known = tuple(float(n) for n in range(64))
    own = ChangeCostMemory(
        95.0, 12, usual=(usual,), episode=Episode(90.0, 10, (Watched(usual, known),))
    )
    _, later = after(own, batches=BatchReading(5.0, (64.0, 65.0)))
    assert later.episode is not None
    assert later.episode.queries[0].durations_s == (*known[:61], 63.0, 64.0, 65.0)


def test_an_episode_begins_with_a_change_of_what_runs_while_all_is_calm() -> None:
    own = ChangeCostMemory(90.0, 10, usual=(Usual("work", 3.0, 600.0),), requested=10)
    _, begun = after(own, hosts=12)
    assert begun.episode is not None
    assert (begun.episode.began_s, begun.episode.hosts, begun.episode.state_mb) == (100.0, 10, 1e3)
    assert begun.usual == own.usual, "what is usual is not measured meanwhile"
    for other in (replace(own, calm=False), replace(own, usual=()), replace(own, hosts=12)):
        _, none = after(other, hosts=12)
        assert none.episode is None and none.usual != own.usual
    again = replace(begun, hosts=12)
    _, longer = after(again, hosts=13, time_s=110.0)
    assert longer.episode is not None
    assert (longer.episode.began_s, longer.episode.hosts) == (110.0, 10), "the same direction"
    _, back = after(again, hosts=11, time_s=110.0)
    assert back.episode is not None and back.episode.hosts == 12, "another direction, another one"


def test_the_rate_is_a_mean_of_the_recent_turns() -> None:
    assert after(ChangeCostMemory())[1].rate_per_s == 1200.0
    assert after(ChangeCostMemory(90.0, rate_per_s=200.0))[1].rate_per_s == pytest.approx(500.0)
    _, unknown = after(ChangeCostMemory(90.0, rate_per_s=200.0), arrival_rate_per_s=None)
    assert unknown.rate_per_s == 200.0


def test_a_memory_of_an_older_version_was_calm() -> None:
    guard = ChangeCost(FixedTarget())
    assert guard.load_memory({"own": {"hosts": 3}, "inner": 0}).own == ChangeCostMemory(hosts=3)
    assert ChangeCostMemory().calm and ChangeCostMemory().fewer_than == 0


@pytest.mark.parametrize(
    ("danger", "hosts"),
    [
        ({"p95_s": 15.0}, 12),
        ({"p95_s": 15.1}, 15),
        ({"predicted_s": 15.0}, 12),
        ({"backlog_s": 15.0}, 12),
        ({"arrival_rate_per_s": 1285.0, "processed_per_s": 1285.0}, 12),
        ({"arrival_rate_per_s": 1290.0, "processed_per_s": 1290.0}, 15),
        # Three seconds less for 300 s are as much as 30 s twice.
        ({"predicted_s": 1.0, "delay": Latency(4.0, 4.0, 5.0, 5.0)}, 12),
        ({"predicted_s": 1.0, "delay": Latency(4.1, 4.1, 5.0, 5.0)}, 15),
    ],
)
def test_where_a_scale_out_begins_to_be_worth_it(danger: dict[str, Any], hosts: int) -> None:
    assert grown(**danger).bounded_target == hosts
