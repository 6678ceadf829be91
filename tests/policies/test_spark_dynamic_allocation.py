"""Spark's ExecutorAllocationManager: backlog 1 s, idle 60 s, ratio 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegate.model import Snapshot
from tidegate.policies.spark_dynamic_allocation import (
    SparkDynamicAllocation,
    SparkDynamicAllocationMemory,
)
from tidegate.testing import steady_snapshot


def follow(
    waiting: Sequence[float | None], hosts: int = 1, **settings: Any
) -> tuple[list[int], SparkDynamicAllocationMemory]:
    """Hosts after each second, in a world that follows every plan at once."""
    policy = SparkDynamicAllocation(**settings)
    memory = policy.initial_memory()
    planned = []
    for second, tasks in enumerate(waiting):
        snapshot = steady_snapshot(hosts=hosts, queue_length=tasks, time_s=float(second))
        plan, memory = policy.decide(snapshot, memory)
        hosts = plan.bounded_target
        planned.append(hosts)
    return planned, memory


def idle(hosts: int, busy: Sequence[str] = (), time_s: float = 0.0) -> Snapshot:
    snapshot = steady_snapshot(hosts=hosts, queue_length=0, time_s=time_s)
    return replace(
        snapshot,
        hosts=tuple(replace(h, utilisation=0.5 if h.id in busy else 0.0) for h in snapshot.hosts),
    )


def test_requests_double_while_tasks_wait() -> None:
    assert follow([500] * 5)[0] == [1, 2, 4, 8, 16]


def test_tasks_must_wait_for_the_backlog_timeout_first() -> None:
    assert follow([500] * 5, backlog_timeout_s=3.0)[0] == [1, 1, 1, 2, 2]


def test_an_empty_queue_starts_the_doubling_again() -> None:
    planned, _ = follow([500, 500, 500, 0, 500, 500])
    assert planned == [1, 2, 4, 4, 4, 5]


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 6), (0.5, 3)])
def test_no_more_executors_come_than_the_tasks_could_use(ratio: float, most: int) -> None:
    # 20 wait, and hosts of four slots are half busy: (20 + 2·hosts)·ratio / 4
    snapshot = steady_snapshot(hosts=1, queue_length=20)
    policy = SparkDynamicAllocation(allocation_ratio=ratio, backlog_timeout_s=0)
    plan, _ = policy.decide(snapshot, SparkDynamicAllocationMemory(next_add=100))
    assert plan.bounded_target == most


def test_the_schedulers_own_count_of_tasks_comes_first() -> None:
    snapshot = steady_snapshot(hosts=1, queue_length=500)
    asked = replace(snapshot.operators[0], pending_tasks=6, running_tasks=2)
    policy = SparkDynamicAllocation(backlog_timeout_s=0)
    plan, _ = policy.decide(
        replace(snapshot, operators=(asked,)), SparkDynamicAllocationMemory(next_add=100)
    )
    assert plan.bounded_target == 2


def test_an_executor_goes_after_sixty_seconds_without_work() -> None:
    policy = SparkDynamicAllocation()
    memory = policy.initial_memory()
    targets = []
    for time_s in (0.0, 59.0, 60.0):
        plan, memory = policy.decide(idle(3, busy=["host-2"], time_s=time_s), memory)
        targets.append(plan.deployment.hosts)
    everyone = ("host-1", "host-2", "host-3")
    assert targets == [everyone, everyone, ("host-2",)]
    assert memory.idle_s == {}


def test_work_in_between_starts_the_idle_time_again() -> None:
    policy = SparkDynamicAllocation()
    memory = policy.initial_memory()
    for time_s, busy in ((0.0, ()), (30.0, ("host-2",)), (60.0, ()), (89.0, ())):
        plan, memory = policy.decide(idle(2, busy=["host-1", *busy], time_s=time_s), memory)
        assert plan.bounded_target == 2
    plan, _ = policy.decide(idle(2, busy=["host-1"], time_s=120.0), memory)
    assert plan.deployment.hosts == ("host-1",)


def test_the_last_executor_stays() -> None:
    policy = SparkDynamicAllocation(idle_timeout_s=0)
    plan, _ = policy.decide(idle(2), policy.initial_memory())
    assert plan.bounded_target == 1


def test_unknown_tasks_change_nothing() -> None:
    planned, memory = follow([500, None, 500])
    assert planned == [1, 1, 2]
    assert memory.next_add == 2


def test_an_exhausted_offer_starts_the_doubling_again() -> None:
    snapshot = steady_snapshot(hosts=2, queue_length=500)
    limited = replace(snapshot, offer=replace(snapshot.offer, max_hosts=3))
    policy = SparkDynamicAllocation(backlog_timeout_s=0)
    plan, memory = policy.decide(limited, SparkDynamicAllocationMemory(next_add=4))
    assert plan.bounded_target == 3
    assert memory.next_add == 1
