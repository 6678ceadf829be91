"""VISP's BTU-based policy, Figs. 4 and 5, by scenario."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.policies.visp_worlds import BUSY, IDLE, LATE, NOW_S, world
from tidegate.model import Plan, Snapshot
from tidegate.policies.btu import Btu, BtuMemory


def decide(snapshot: Snapshot, memory: BtuMemory | None = None) -> tuple[Plan, BtuMemory]:
    policy = Btu()
    return policy.decide(snapshot, memory or policy.initial_memory())


def codes(plan: Plan) -> list[str]:
    return [reason.code for reason in plan.reasons]


# --- up ---------------------------------------------------------------------------------------


def test_a_late_operator_gets_one_instance_where_there_is_room() -> None:
    plan, memory = decide(world({"host-1": ["a"]}, {"a": LATE}))
    assert plan.deployment.home == {"a-1": "host-1", "a-2": "host-1"}
    assert codes(plan) == ["late"]
    assert memory == BtuMemory({"a": 1}, {"a": NOW_S}, turn=1)


def test_late_but_hardly_anything_waits_means_no_change() -> None:
    snapshot = world({"host-1": ["a"]}, {"a": (50.0, (2.0,))})
    plan, memory = decide(snapshot)
    assert plan.deployment == snapshot.requested
    assert memory == BtuMemory(turn=1)


@pytest.mark.parametrize(("aim", "instances"), [(1.0, 1), (0.7, 2)])
def test_an_aim_below_the_slo_scales_out_earlier(aim: float, instances: int) -> None:
    nearly_late = world({"host-1": ["a"]}, {"a": (60.0, (0.8,))})  # the SLO is 1 s
    policy = Btu(aim=aim)
    plan, _ = policy.decide(nearly_late, policy.initial_memory())
    assert plan.deployment.counts["a"] == instances


def test_a_host_with_the_image_is_preferred() -> None:
    two: dict[str, list[str]] = {"host-1": ["b"], "host-2": ["b"]}
    plain, _ = decide(world({**two, "host-3": ["a"] * 4}, {"a": LATE, "b": BUSY}))
    assert plain.deployment.home["a-5"] == "host-1"
    cached, _ = decide(
        world({**two, "host-3": ["a"] * 4}, {"a": LATE, "b": BUSY}, images={"host-2": "a"})
    )
    assert cached.deployment.home["a-5"] == "host-2"


def test_another_operator_makes_way_before_a_host_is_leased() -> None:
    plan, memory = decide(world({"host-1": ["a", "b", "b", "b"]}, {"a": LATE, "b": IDLE}))
    assert plan.deployment.hosts == ("host-1",)
    assert plan.deployment.counts == {"a": 2, "b": 2}
    assert codes(plan) == ["make-way", "late"]
    assert memory.scalings == {"b": 1, "a": 1}


def test_the_operator_that_can_spare_most_makes_way() -> None:
    plan, _ = decide(
        world(
            {"host-1": ["c", "a", "a", "b", "b"]},
            {"a": BUSY, "b": IDLE, "c": LATE},
            cores={"a": 0.75, "b": 0.75, "c": 0.75},
        )
    )
    assert plan.deployment.counts == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("other", [(0.0, (5.0,)), (5.0, (3.0,))])
def test_a_host_is_leased_when_nobody_can_spare_anything(
    other: tuple[float, tuple[float, ...]],
) -> None:
    single = world({"host-1": ["a", "a", "a", "b"]}, {"a": LATE, "b": other})
    plan, _ = decide(single)
    assert plan.deployment.hosts == ("host-1", "host-2")
    assert plan.deployment.home["a-4"] == "host-2"
    assert codes(plan) == ["lease", "late"]


def test_no_host_to_be_had_is_unmet_demand() -> None:
    full = world({"host-1": ["a"] * 4}, {"a": LATE}, max_hosts=1)
    plan, memory = decide(full)
    assert plan.deployment == full.requested
    assert [(u.operator, u.instances) for u in plan.unmet] == [("a", 1)]
    assert memory.scalings == {}


def test_an_operator_without_slo_is_never_late() -> None:
    snapshot = world({"host-1": ["a"]}, {"a": LATE})
    free = tuple(replace(o, slo_s=None) for o in snapshot.topology.operators)
    plan, _ = decide(replace(snapshot, topology=replace(snapshot.topology, operators=free)))
    assert plan.deployment.counts == {"a": 1}


def test_only_the_last_n_durations_make_the_trend() -> None:
    past = (9.0, 0.7, 0.8, 0.9, 0.95)
    snapshot = world({"host-1": ["a"]}, {"a": (60.0, past)})
    assert decide(snapshot)[0].deployment.counts == {"a": 1}  # falling, with the 9 s in it
    recent, _ = Btu(observations=4).decide(snapshot, BtuMemory())
    assert recent.deployment.counts == {"a": 2}


# --- down -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left_s", "hosts"), [(300, 2), (31, 2), (30, 1), (1, 1)])
def test_a_release_is_considered_in_the_last_five_percent_only(left_s: float, hosts: int) -> None:
    plan, _ = decide(
        world({"host-1": ["a"], "host-2": ["a"]}, {"a": IDLE}, left_s={"host-2": left_s})
    )
    assert plan.bounded_target == hosts


@pytest.mark.parametrize(("interval_s", "hosts"), [(60.0, 1), (20.0, 2)])
def test_a_window_that_falls_between_two_decisions_is_not_missed(
    interval_s: float, hosts: int
) -> None:
    snapshot = world(
        {"host-1": ["a"], "host-2": ["a"]},
        {"a": IDLE},
        left_s={"host-2": 50},
        interval_s=interval_s,
    )
    assert decide(snapshot)[0].bounded_target == hosts


def test_what_cannot_be_spared_migrates() -> None:
    plan, memory = decide(
        world({"host-1": ["a"], "host-2": ["b"]}, {"a": BUSY, "b": BUSY}, left_s={"host-2": 10})
    )
    assert plan.deployment.hosts == ("host-1",)
    assert plan.deployment.home == {"a-1": "host-1", "b-1": "host-1"}
    assert memory.scalings == {}


def test_a_release_stops_at_most_a_fifth_of_an_operator() -> None:
    snapshot = world(
        {"host-1": ["a"] * 7, "host-2": ["a"] * 3},
        {"a": IDLE},
        cores={"a": 0.25},
        left_s={"host-2": 10},
    )
    plan, memory = decide(snapshot)
    assert plan.deployment.hosts == ("host-1",)
    assert plan.deployment.counts == {"a": 8}
    assert memory.scalings == {"a": 2}


def test_even_a_small_operator_can_lose_one() -> None:
    plan, _ = decide(world({"host-1": ["a"], "host-2": ["a"]}, {"a": IDLE}, left_s={"host-2": 10}))
    assert plan.deployment.counts == {"a": 1}


def test_a_host_is_prolonged_when_an_instance_fits_nowhere_else() -> None:
    snapshot = world(
        {"host-1": ["a"], "host-2": ["b"]},
        {"a": BUSY, "b": BUSY},
        cores={"a": 3.5},
        left_s={"host-2": 10},
    )
    plan, _ = decide(snapshot)
    assert plan.deployment == snapshot.requested
    assert codes(plan) == ["prolong"]


def test_a_simulated_release_that_fails_leaves_no_trace() -> None:
    snapshot = world(
        {"host-1": ["x", "a"], "host-2": ["a", "y"]},
        {"x": BUSY, "a": IDLE, "y": BUSY},
        cores={"x": 3.0, "a": 0.5, "y": 1.0},
        left_s={"host-2": 10},
    )
    before = BtuMemory({"x": 4}, {"x": 7.0})
    plan, memory = decide(snapshot, before)
    assert plan.deployment == snapshot.requested
    assert codes(plan) == ["prolong"]
    assert memory == replace(before, turn=1)


def test_the_last_host_is_neither_released_nor_prolonged() -> None:
    plan, _ = decide(world({"host-1": ["a"]}, {"a": IDLE}, left_s={"host-1": 1}))
    assert plan.deployment.hosts == ("host-1",)
    assert plan.reasons == ()


def test_two_hosts_that_end_together_do_not_both_go() -> None:
    snapshot = world(
        {"host-1": ["a"], "host-2": ["b"]},
        {"a": BUSY, "b": BUSY},
        left_s={"host-1": 10, "host-2": 10},
    )
    plan, _ = decide(snapshot)
    assert plan.bounded_target == 1
    assert plan.deployment.counts == {"a": 1, "b": 1}


def test_a_host_that_has_just_received_something_is_prolonged() -> None:
    plan, _ = decide(
        world(
            {"host-1": ["b"] * 4, "host-2": ["a"]},
            {"a": LATE, "b": BUSY},
            left_s={"host-2": 10},
        )
    )
    assert plan.bounded_target == 2
    assert codes(plan) == ["late", "prolong"]


def test_nothing_is_released_on_absent_data() -> None:
    snapshot = world({"host-1": ["a"], "host-2": ["a"]}, {"a": IDLE}, left_s={"host-2": 10})
    blind = replace(snapshot, operators=(replace(snapshot.operators[0], queue_length=None),))
    plan, _ = decide(blind)
    assert plan.bounded_target == 2
    assert "a.queue_length is missing" in plan.reasons[0].text


def test_where_time_costs_nothing_it_is_always_the_time_to_think() -> None:
    snapshot = world({"host-1": ["a"], "host-2": ["a"]}, {"a": IDLE})
    free = replace(snapshot, hosts=tuple(replace(h, lease=None) for h in snapshot.hosts))
    assert decide(free)[0].bounded_target == 1
