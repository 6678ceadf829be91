"""KEDA's lag threshold with the brakes of the horizontal pod autoscaler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidegate.policies.lag import Lag, LagMemory
from tidegate.testing import steady_snapshot

FREE = Lag(up_hosts=1000, down_window_s=0)


def play(policy: Lag, scenes: Sequence[tuple[float, int, float | None]]) -> list[int]:
    """Hosts planned for each (time, hosts, lag); the world does not follow the plans."""
    memory = policy.initial_memory()
    planned = []
    for time_s, hosts, lag in scenes:
        snapshot = steady_snapshot(hosts=hosts, queue_length=lag, time_s=time_s)
        plan, memory = policy.decide(snapshot, memory)
        planned.append(plan.bounded_target)
    return planned


@pytest.mark.parametrize(
    ("lag", "hosts"), [(10, 1), (11.1, 2), (95, 10), (100, 10), (101, 11), (0, 1)]
)
def test_one_host_for_each_ten_items(lag: float, hosts: int) -> None:
    assert play(FREE, [(0, 1, lag)]) == [hosts]


@pytest.mark.parametrize(("lag", "hosts"), [(43.9, 4), (36.1, 4), (44.1, 5), (29, 3)])
def test_a_tenth_more_or_less_is_tolerated(lag: float, hosts: int) -> None:
    assert play(FREE, [(0, 4, lag)]) == [hosts]


@pytest.mark.parametrize(("hosts", "allowed"), [(1, 5), (2, 6), (4, 8), (5, 10), (10, 20)])
def test_growth_is_double_or_four_more_whichever_is_larger(hosts: int, allowed: int) -> None:
    assert play(Lag(), [(0, hosts, 10_000)]) == [allowed]


def test_the_limit_of_growth_holds_over_its_period_and_not_for_each_turn() -> None:
    scenes = [(0.0, 2, 10_000.0), (5.0, 6, 10_000.0), (14.0, 6, 10_000.0), (15.0, 6, 10_000.0)]
    assert play(Lag(), scenes) == [6, 6, 6, 12]


def test_shrinking_waits_until_all_wishes_of_the_window_agree() -> None:
    scenes = [(0.0, 8, 80.0), (100.0, 8, 40.0), (299.0, 8, 20.0), (300.0, 8, 20.0), (400.0, 8, 20)]
    assert play(Lag(), scenes) == [8, 8, 8, 4, 2]


def test_never_more_hosts_than_partitions() -> None:
    snapshot = steady_snapshot(hosts=1, queue_length=500)
    operators = tuple(replace(o, max_instances=3) for o in snapshot.topology.operators)
    limited = replace(snapshot, topology=replace(snapshot.topology, operators=operators))
    plan, _ = FREE.decide(limited, LagMemory())
    assert plan.bounded_target == 3


def test_a_missing_lag_changes_neither_plan_nor_memory() -> None:
    memory = LagMemory(((0.0, 3),), ((0.0, 3),))
    snapshot = steady_snapshot(hosts=3, queue_length=None, time_s=5)
    plan, after = Lag().decide(snapshot, memory)
    assert plan.deployment == snapshot.requested
    assert after == memory
