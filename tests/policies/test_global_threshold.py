"""FUGU IV-B by scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.model import Plan
from tidegate.policies.global_threshold import GlobalThreshold, GlobalThresholdMemory
from tidegate.testing import fleet_snapshot

HOT = {"host-1": [1.2, 1.2, 1.2], "host-2": [1.2, 1.2, 1.2]}  # 0.9 and 0.9
COLD = {"host-1": [0.8], "host-2": [0.4], "host-3": [0.9]}  # 0.2, 0.1 and 0.225


def play(
    policy: GlobalThreshold, scenes: Sequence[Mapping[str, Sequence[float]]]
) -> tuple[list[Plan], GlobalThresholdMemory]:
    memory = policy.initial_memory()
    plans = []
    for turn, scene in enumerate(scenes):
        plan, memory = policy.decide(fleet_snapshot(scene, time_s=10.0 * turn), memory)
        plans.append(plan)
    return plans, memory


def codes(plans: Sequence[Plan]) -> list[list[str]]:
    return [[reason.code for reason in plan.reasons] for plan in plans]


def test_a_single_hot_host_goes_unnoticed() -> None:
    one_hot = {"host-1": [1.9, 1.9], "host-2": [1.6], "host-3": [1.6]}  # 0.95, 0.4, 0.4
    plans, memory = play(GlobalThreshold(violations=1), [one_hot])
    assert codes(plans) == [[]]
    assert plans[0].deployment == fleet_snapshot(one_hot).requested
    assert memory == GlobalThresholdMemory()


def test_a_high_mean_moves_load_off_every_host_above_the_target() -> None:
    plans, _ = play(GlobalThreshold(), [HOT, HOT, HOT])
    assert codes(plans) == [[], [], ["overload"]]
    on_new = [i.id for i in plans[-1].deployment.instances if i.host == "host-3"]
    assert on_new == ["q3-1", "q6-1"]


def test_a_low_mean_releases_the_host_with_the_least_load() -> None:
    plans, _ = play(GlobalThreshold(violations=1), [COLD])
    assert codes(plans) == [["underload"]]
    assert plans[0].deployment.hosts == ("host-1", "host-3")
    assert plans[0].deployment.home["q2-1"] == "host-1"


def test_a_release_is_cancelled_when_its_operators_fit_nowhere_else() -> None:
    tight = {"host-1": [1.15], "host-2": [1.1]}
    policy = GlobalThreshold(violations=1, fill=0.5)
    plans, _ = play(policy, [tight])
    assert codes(plans) == [["release-cancelled"]]
    assert plans[0].deployment == fleet_snapshot(tight).requested


def test_the_last_host_stays() -> None:
    plans, _ = play(GlobalThreshold(violations=1), [{"host-1": [0.1]}])
    assert plans[0].deployment.hosts == ("host-1",)


def test_the_whole_system_rests_after_a_decision() -> None:
    plans, _ = play(GlobalThreshold(violations=1, grace_s=15), [HOT, HOT, HOT])
    assert codes(plans) == [["overload"], [], ["overload"]]


def test_one_missing_measurement_means_no_mean_and_no_change_of_the_count() -> None:
    policy = GlobalThreshold(violations=2)
    _, memory = play(policy, [HOT])
    snapshot = fleet_snapshot(HOT)
    blind = replace(
        snapshot, hosts=(replace(snapshot.hosts[0], utilisation=None), snapshot.hosts[1])
    )
    plan, after = policy.decide(blind, memory)
    assert plan.deployment == snapshot.requested
    assert after == memory
    plan, _ = policy.decide(snapshot, after)
    assert codes([plan]) == [["overload"]]


def test_a_normal_mean_resets_the_count() -> None:
    fine = {"host-1": [2.0], "host-2": [2.0]}
    plans, _ = play(GlobalThreshold(violations=2), [HOT, fine, HOT])
    assert codes(plans) == [[], [], []]
