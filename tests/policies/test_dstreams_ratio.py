"""Spark's DStreams rule: every 60 s, 0.9 and 0.3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidegate.errors import SettingError
from tidegate.model import Plan
from tidegate.policies.dstreams_ratio import DStreamsRatio, DStreamsRatioMemory
from tidegate.testing import steady_snapshot


def decide(hosts: int, batches_s: Sequence[float], seed: int = 0) -> Plan:
    policy = DStreamsRatio()
    snapshot = steady_snapshot(hosts=hosts, batch_durations_s=batches_s)  # every 10 s
    return policy.decide(snapshot, policy.initial_memory(seed))[0]


@pytest.mark.parametrize(
    ("took_s", "hosts"),
    [(8.9, 4), (9.0, 5), (14.9, 5), (15.0, 6), (25.0, 7), (3.1, 4), (3.0, 3), (0.0, 3)],
)
def test_the_ratio_says_how_many_come_and_whether_one_goes(took_s: float, hosts: int) -> None:
    assert decide(4, [took_s]).bounded_target == hosts


def test_the_mean_of_all_batches_of_the_interval_counts() -> None:
    policy = DStreamsRatio()
    memory = DStreamsRatioMemory(decided_s=0.0)
    for time_s, took_s in ((20.0, 20.0), (40.0, 4.0)):
        snapshot = steady_snapshot(hosts=2, batch_durations_s=[took_s], time_s=time_s)
        plan, memory = policy.decide(snapshot, memory)
        assert plan.deployment == snapshot.requested
    snapshot = steady_snapshot(hosts=2, batch_durations_s=[4.0], time_s=60.0)
    plan, memory = policy.decide(snapshot, memory)  # (2.0 + 0.4 + 0.4) / 3 = 0.93
    assert plan.bounded_target == 3
    assert memory == DStreamsRatioMemory((), 60.0)


def test_there_is_no_second_decision_within_the_interval() -> None:
    policy = DStreamsRatio()
    memory = policy.initial_memory()
    targets = []
    for time_s in (0.0, 59.0, 60.0):
        snapshot = steady_snapshot(hosts=2, batch_durations_s=[9.5], time_s=time_s)
        plan, memory = policy.decide(snapshot, memory)
        targets.append(plan.bounded_target)
    assert targets == [3, 2, 3]


def test_the_one_that_goes_is_drawn_by_lot_from_the_seed() -> None:
    gone = {
        seed: (set(steady_snapshot(hosts=4).requested.hosts) - set(plan.deployment.hosts)).pop()
        for seed in range(30)
        for plan in [decide(4, [1.0], seed)]
    }
    assert set(gone.values()) == {"host-1", "host-2", "host-3", "host-4"}
    assert all(decide(4, [1.0], seed).reasons[0].subject == host for seed, host in gone.items())


def test_each_draw_is_a_new_one() -> None:
    policy = DStreamsRatio(interval_s=0)
    memory = policy.initial_memory(seed=0)
    losers = []
    for turn in range(12):
        snapshot = steady_snapshot(hosts=4, batch_durations_s=[1.0], time_s=float(turn))
        plan, memory = policy.decide(snapshot, memory)
        losers.append(plan.reasons[0].subject)
    assert memory.drawn == 12
    assert len(set(losers)) > 1


def test_the_last_host_stays() -> None:
    assert decide(1, [0.1]).bounded_target == 1


def test_without_batches_the_mean_utilisation_stands_for_the_ratio() -> None:
    snapshot = steady_snapshot(hosts=2)
    busy = replace(snapshot, hosts=tuple(replace(h, utilisation=0.95) for h in snapshot.hosts))
    policy = DStreamsRatio()
    assert policy.decide(busy, policy.initial_memory())[0].bounded_target == 3
    blind = replace(busy, hosts=(busy.hosts[0], replace(busy.hosts[1], utilisation=None)))
    assert policy.decide(blind, policy.initial_memory())[0].bounded_target == 2


def test_no_decision_is_taken_on_what_is_long_past() -> None:
    memory = DStreamsRatioMemory((0.1, 0.1), decided_s=0.0)
    snapshot = steady_snapshot(hosts=2, time_s=100.0)
    blind = replace(snapshot, hosts=tuple(replace(h, utilisation=None) for h in snapshot.hosts))
    plan, after = DStreamsRatio().decide(blind, memory)
    assert plan.bounded_target == 2
    assert after == memory


def test_the_ratios_must_not_cross() -> None:
    with pytest.raises(SettingError, match="below up"):
        DStreamsRatio(down=0.95)
