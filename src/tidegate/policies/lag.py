"""The lag rule of KEDA and the horizontal pod autoscaler: a number of waiting items per host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.codec import Value
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Situation, Style, setting

__all__ = ["Lag", "LagMemory"]

Past = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class LagMemory(Value):
    """wanted, running: (time, hosts) pairs of the last minutes, oldest first."""

    wanted: Past = ()
    running: Past = ()


@dataclass(frozen=True)
class Lag(Policy):
    """⌈lag / threshold⌉ hosts, with the scaling limits of the Kubernetes HPA.

    The lag is what waits at the operators that sources feed. Within `tolerance` nothing changes;
    growth is limited to doubling or `up_hosts`, whichever is more, within `up_period_s`; shrinking
    waits until all targets of the last `down_window_s` agree; there are never more hosts than
    partitions (the entry's `max_instances`). A missing lag changes nothing.

    Defaults: 10 items a host, tolerance 0.1, 300 s, 100 % or 4 within 15 s. With 95 waiting,
    10 hosts are wanted, and from two the first step goes to 6:

    >>> from tidegate.testing import steady_snapshot
    >>> policy = Lag()
    >>> plan, _ = policy.decide(steady_snapshot(hosts=2, queue_length=95), policy.initial_memory())
    >>> plan.reasons[0].text, plan.bounded_target
    ('95 items wait; at 10 per host, 10 hosts are needed; the growth limit allows 6', 6)

    KEDA and Kubernetes HPA documentation.
    """

    name: ClassVar[str] = "lag"
    paper: ClassVar[str] = "baseline: KEDA / Kubernetes HPA"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)
    memory_type: ClassVar[type] = LagMemory

    threshold: float = setting(10.0, "waiting items per host (KEDA's lagThreshold)", low=1e-9)
    tolerance: float = setting(0.1, "relative deviation that is ignored", low=0)
    down_window_s: float = setting(
        300.0, "window whose largest target counts when scaling in, s", low=0
    )
    up_period_s: float = setting(15.0, "period of the growth limit, s", low=0)
    up_hosts: int = setting(4, "hosts that may be added within the period in any case", low=1)

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """A threshold that a full host works off within half of the latency target."""
        if situation.host_rate_per_s is None or situation.slo_s is None:
            return {}
        return {"threshold": max(1.0, situation.host_rate_per_s * situation.slo_s / 2)}

    def decide(self, snapshot: Snapshot, memory: LagMemory) -> tuple[Plan, LagMemory]:
        """Compare the lag per host with the threshold."""
        packing = Packing(snapshot)
        lags = [snapshot.queues[name] for name in snapshot.topology.entries]
        if None in lags:
            return packing.plan(), memory
        lag = sum(value for value in lags if value is not None)
        now, hosts = snapshot.time_s, packing.host_count
        ratio = lag / (self.threshold * hosts) if hosts else math.inf
        goal = hosts if abs(ratio - 1) <= self.tolerance else math.ceil(lag / self.threshold)
        goal = max(1, min(goal, _partitions(snapshot)))

        wanted = (*_since(memory.wanted, now, self.down_window_s), (now, goal))
        running = (*_since(memory.running, now, self.up_period_s), (now, hosts))
        steady = max(count for _, count in wanted) if goal < hosts else goal
        least = min(count for _, count in running)
        allowed = min(steady, max(2 * least, least + self.up_hosts, hosts))
        target = min(allowed, hosts) if goal < hosts else allowed
        set_engines(packing, target)
        if packing.host_count != hosts:
            text = (
                f"{lag:g} items wait; at {self.threshold:g} per host, {goal} hosts are needed; "
                f"the growth limit allows {packing.host_count}"
            )
            packing.because("lag" if packing.host_count > hosts else "idle", text)
        return packing.plan(), LagMemory(wanted, running)


def _since(past: Past, now_s: float, window_s: float) -> Past:
    """What is within a window. After the clock went back, later entries count as of now."""
    kept = [look for look in past if look[0] > now_s - window_s]
    if kept and kept[-1][0] > now_s:  # the last one is the latest
        kept = [(min(at, now_s), count) for at, count in kept]
    return tuple(kept)


def _partitions(snapshot: Snapshot) -> int:
    """Consumers that the entries can use in all."""
    limits = [snapshot.operator(name).max_instances for name in snapshot.topology.entries]
    return 10**9 if None in limits else max(limit for limit in limits if limit is not None)
