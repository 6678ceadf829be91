"""FUGU IV-A by scenario: hosts of four cores, thresholds 0.3 / 0.8, target 0.6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from tidegate.errors import SettingError
from tidegate.model import Host, Plan, Snapshot
from tidegate.policies.local_threshold import LocalThreshold, LocalThresholdMemory, Watch
from tidegate.testing import HOST, fleet_snapshot

HOT = {"host-1": [1.0, 0.8, 0.7, 0.6, 0.5], "host-2": [1.4]}  # 0.90 and 0.35
COLD = {"host-1": [1.6], "host-2": [0.4, 0.4]}  # 0.40 and 0.20
FINE = {"host-1": [1.6], "host-2": [1.4]}


def play(
    policy: LocalThreshold, scenes: Sequence[Mapping[str, Sequence[float]] | Snapshot]
) -> tuple[list[Plan], LocalThresholdMemory]:
    """One decision for each scene, ten seconds apart; the world does not follow the plans."""
    memory = policy.initial_memory()
    plans = []
    for turn, scene in enumerate(scenes):
        snapshot = scene if isinstance(scene, Snapshot) else fleet_snapshot(scene)
        plan, memory = policy.decide(replace(snapshot, time_s=10.0 * turn), memory)
        plans.append(plan)
    return plans, memory


def codes(plans: Sequence[Plan]) -> list[list[str]]:
    return [[reason.code for reason in plan.reasons] for plan in plans]


def unmeasured(scene: Mapping[str, Sequence[float]], host: str) -> Snapshot:
    snapshot = fleet_snapshot(scene)
    hosts = tuple(replace(h, utilisation=None) if h.id == host else h for h in snapshot.hosts)
    return replace(snapshot, hosts=hosts)


def test_only_the_third_violation_in_a_row_counts() -> None:
    plans, _ = play(LocalThreshold(), [HOT, HOT, HOT])
    assert codes(plans) == [[], [], ["overload"]]


def test_a_normal_measurement_in_between_starts_the_count_again() -> None:
    plans, memory = play(LocalThreshold(), [HOT, HOT, FINE, HOT, HOT])
    assert codes(plans) == [[]] * 5
    assert memory.hosts["host-1"].over == 2


def test_a_missing_measurement_neither_counts_nor_resets() -> None:
    plans, _ = play(LocalThreshold(), [HOT, HOT, unmeasured(HOT, "host-1"), HOT])
    assert codes(plans) == [[], [], [], ["overload"]]


def test_over_and_under_do_not_add_up() -> None:
    turned = {"host-1": [0.2], "host-2": [1.4]}
    plans, memory = play(LocalThreshold(), [HOT, HOT, turned])
    assert codes(plans) == [[]] * 3
    assert (memory.hosts["host-1"].over, memory.hosts["host-1"].under) == (0, 1)


def test_the_host_comes_down_to_the_target_and_nothing_else_moves() -> None:
    policy = LocalThreshold(violations=1)
    (plan,), _ = play(policy, [HOT])
    stay = [i.operator for i in plan.deployment.instances if i.host == "host-1"]
    cores = {o.name: o.demand.cpu_cores for o in fleet_snapshot(HOT).topology.operators}
    assert sum(cores[name] for name in stay) == pytest.approx(2.4)
    assert plan.deployment.home["q6-1"] == "host-2"
    assert plan.deployment.hosts == ("host-1", "host-2")


def test_a_new_host_comes_when_the_others_are_full() -> None:
    (plan,), _ = play(LocalThreshold(violations=1), [{"host-1": [1.8, 1.7], "host-2": [2.4]}])
    assert plan.deployment.hosts == ("host-1", "host-2", "host-3")


def test_a_host_is_left_alone_for_the_grace_period_after_a_decision() -> None:
    policy = LocalThreshold(violations=1, grace_s=25)
    plans, _ = play(policy, [HOT, HOT, HOT, HOT])  # at 0, 10, 20, 30 s
    assert codes(plans) == [["overload"], [], [], ["overload"]]


def test_only_the_affected_host_has_a_grace_period() -> None:
    policy = LocalThreshold(violations=1, grace_s=100)
    both = {"host-1": [1.6], "host-2": [1.8, 1.7]}
    plans, _ = play(policy, [HOT, both])
    assert codes(plans) == [["overload"], ["overload"]]
    assert [plan.reasons[0].subject for plan in plans] == ["host-1", "host-2"]


def test_a_host_that_has_just_come_up_is_empty_and_not_underloaded() -> None:
    policy = LocalThreshold(violations=1, grace_s=15)
    grown = {"host-1": [1.6], "host-2": [1.4], "host-3": [0.1]}
    plans, _ = play(policy, [FINE, grown, grown, grown])
    assert codes(plans) == [[], [], [], ["underload"]]


def test_an_idle_host_is_released_and_its_operators_move() -> None:
    plans, memory = play(LocalThreshold(), [COLD, COLD, COLD])
    assert codes(plans) == [[], [], ["underload"]]
    assert plans[-1].deployment.hosts == ("host-1",)
    assert set(plans[-1].deployment.home.values()) == {"host-1"}
    assert set(memory.hosts) == {"host-1"}


def test_a_release_is_cancelled_when_one_operator_fits_nowhere_else() -> None:
    tight = {"host-1": [2.6], "host-2": [0.4, 0.7]}  # host-1 may be filled to 3.2
    (plan,), memory = play(LocalThreshold(violations=1), [tight])
    assert codes([plan]) == [["release-cancelled"]]
    assert plan.deployment == fleet_snapshot(tight).requested
    assert memory.hosts["host-2"].quiet_until_s == 30.0


def test_the_least_loaded_of_several_idle_hosts_goes_first() -> None:
    idle = {"host-1": [1.0], "host-2": [0.4], "host-3": [2.4]}
    (plan,), _ = play(LocalThreshold(violations=1), [idle])
    assert plan.reasons[0].subject == "host-2"


def test_a_host_that_received_something_is_not_released_in_the_same_turn() -> None:
    scene = {"host-1": [1.8, 1.7], "host-2": [0.1], "host-3": [2.9]}
    (plan,), _ = play(LocalThreshold(violations=1), [scene])
    assert codes([plan]) == [["overload"]]
    assert "host-2" in plan.deployment.hosts


def test_the_last_host_is_never_released() -> None:
    (plan,), _ = play(LocalThreshold(violations=1), [{"host-1": [0.1]}])
    assert plan.deployment.hosts == ("host-1",)
    assert plan.reasons == ()


def test_hosts_that_start_are_not_watched() -> None:
    snapshot = fleet_snapshot(FINE)
    starting = replace(
        snapshot, hosts=(*snapshot.hosts, Host("host-3", HOST, "starting", utilisation=0.0))
    )
    _, memory = play(LocalThreshold(violations=1), [starting])
    assert set(memory.hosts) == {"host-1", "host-2"}


def test_the_share_that_may_be_filled_can_be_set() -> None:
    scene = {"host-1": [1.0, 0.8, 0.7, 0.6, 0.5], "host-2": [1.2]}
    (plan,), _ = play(LocalThreshold(violations=1, fill=0.4), [scene])
    assert "host-3" in plan.deployment.hosts


def test_thresholds_must_stand_in_rising_order() -> None:
    with pytest.raises(SettingError, match="in rising order"):
        LocalThreshold(lower=0.7)
    with pytest.raises(SettingError, match="violations is 0"):
        LocalThreshold(violations=0)


def test_a_fresh_watch_is_not_quiet() -> None:
    assert Watch().quiet_until_s < -1e9


@pytest.mark.parametrize(("grace_for", "quiet"), [("deciding", False), ("affected", True)])
def test_a_host_that_received_operators_may_be_left_alone_too(
    grace_for: Literal["deciding", "affected"], quiet: bool
) -> None:
    policy = LocalThreshold(violations=1, grace_for=grace_for)
    plans, memory = play(policy, [HOT])
    assert any(i.host == "host-2" for i in plans[0].deployment.instances if i.operator != "q6")
    assert (memory.hosts["host-2"].quiet_until_s == 30.0) == quiet
    assert memory.hosts["host-1"].quiet_until_s == 30.0
