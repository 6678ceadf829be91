"""Spark's own dynamic allocation: grow while tasks wait, release executors that sit idle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.codec import Value
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style, setting

__all__ = ["SparkDynamicAllocation", "SparkDynamicAllocationMemory"]


@dataclass(frozen=True, slots=True)
class SparkDynamicAllocationMemory(Value):
    """next_add: executors of the next request; backlog_s, idle_s: since when, by host."""

    next_add: int = 1
    due_s: float | None = None
    idle_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkDynamicAllocation(Policy):
    """What ``spark.dynamicAllocation.enabled`` does to a Structured Streaming job today.

    While tasks wait for longer than the backlog timeout, 1, 2, 4, 8 … executors are requested, one
    round per timeout, but no more than the tasks could use. An executor that was idle for
    `idle_timeout_s` is released. With micro-batches every few seconds that never happens, which is
    the common complaint. Without a scheduler, an item counts as a task.

    Spark's defaults: 1 s, 60 s, ratio 1. Tasks that wait for three rounds add 1 + 2 + 4 executors:

    >>> from tidegate.testing import steady_snapshot
    >>> policy, hosts = SparkDynamicAllocation(), 1
    >>> memory = policy.initial_memory()
    >>> for second in range(4):
    ...     now = steady_snapshot(hosts=hosts, queue_length=500, time_s=second)
    ...     plan, memory = policy.decide(now, memory)
    ...     hosts = plan.bounded_target
    >>> hosts
    8

    Apache Spark, ``ExecutorAllocationManager``.
    """

    name: ClassVar[str] = "spark-dynamic-allocation"
    paper: ClassVar[str] = "baseline: Spark core dynamic allocation"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("host.utilisation",)
    memory_type: ClassVar[type] = SparkDynamicAllocationMemory

    backlog_timeout_s: float = setting(
        1.0, "time that tasks wait before executors are requested, s", low=0
    )
    idle_timeout_s: float = setting(60.0, "time after which an idle executor is released, s", low=0)
    allocation_ratio: float = setting(
        1.0, "share of the executors that the tasks could use", low=0.01, high=1
    )

    def decide(
        self, snapshot: Snapshot, memory: SparkDynamicAllocationMemory
    ) -> tuple[Plan, SparkDynamicAllocationMemory]:
        """Request executors for waiting tasks; release idle ones."""
        packing = Packing(snapshot)
        now, hosts = snapshot.time_s, packing.host_count
        pending = _pending_tasks(snapshot)
        idle = {
            host: min(now, memory.idle_s.get(host, now))  # the clock may have gone back
            for host, used in snapshot.utilisations.items()
            if used == 0 or (used is None and host in memory.idle_s)
        }
        if pending is None:
            return packing.plan(), SparkDynamicAllocationMemory(memory.next_add, memory.due_s, idle)
        if pending > 0:
            latest = now + self.backlog_timeout_s
            due = latest if memory.due_s is None else min(memory.due_s, latest)
            if now < due:
                return packing.plan(), SparkDynamicAllocationMemory(memory.next_add, due, idle)
            useful = math.ceil(self._tasks(snapshot, pending) / _slots(snapshot))
            target = max(hosts, min(hosts + memory.next_add, useful))
            set_engines(packing, target)
            grown = packing.host_count - hosts
            if grown:
                packing.because("backlog", f"{pending:g} tasks wait: {grown} more executors")
            following = 2 * memory.next_add if grown == memory.next_add else 1
            due = now + self.backlog_timeout_s
            return packing.plan(), SparkDynamicAllocationMemory(following, due, idle)
        expired = [
            host
            for host, since_s in idle.items()
            if now - since_s >= self.idle_timeout_s and packing.has(host)
        ]
        set_engines(packing, hosts - len(expired), victims=expired)
        if packing.host_count < hosts:
            text = f"{', '.join(expired)} had no task for {self.idle_timeout_s:g} s"
            packing.because("idle", text)
        kept = {host: since_s for host, since_s in idle.items() if packing.has(host)}
        return packing.plan(), SparkDynamicAllocationMemory(1, None, kept)

    def _tasks(self, snapshot: Snapshot, pending: float) -> float:
        running = [reading.running_tasks for reading in snapshot.reading.values()]
        if None in running:  # every slot of a host is busy for its utilisation
            busy = sum((used or 0.0) * _slots(snapshot) for used in snapshot.utilisations.values())
        else:
            busy = float(sum(count for count in running if count is not None))
        return (pending + busy) * self.allocation_ratio


def _pending_tasks(snapshot: Snapshot) -> float | None:
    """Tasks that wait for a slot, None when nobody knows."""
    total = 0.0
    for reading in snapshot.reading.values():
        waiting = reading.queue_length if reading.pending_tasks is None else reading.pending_tasks
        if waiting is None:
            return None
        total += waiting
    return total


def _slots(snapshot: Snapshot) -> int:
    """Tasks that an executor runs at a time: its cores."""
    return max(1, math.floor(snapshot.offer.capacity.cpu_cores))
