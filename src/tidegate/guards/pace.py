"""Limits on how often the number of hosts changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.codec import Value
from tidegate.guards.base import Guard, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, grows, shrinks, without_scale_in, without_scale_out
from tidegate.policies.base import setting
from tidegate.units import show_duration

__all__ = ["CoolDown", "CoolDownMemory", "Stabilisation", "StabilisationMemory"]


@dataclass(frozen=True, slots=True)
class CoolDownMemory(Value):
    """Size of the requested deployment in the last turn, and when it last grew and shrank."""

    hosts: int | None = None
    instances: int = 0
    grew_s: float | None = None
    shrank_s: float | None = None


@dataclass(frozen=True)
class CoolDown(Guard):
    """Wait after a change before scaling out again, and longer before scaling in.

    A change in either direction starts both waits, so that a host that was just added is not
    released.
    """

    name: ClassVar[str] = "cool-down"
    own_memory: ClassVar[type] = CoolDownMemory

    up_s: float = setting(30.0, "time after a change before scaling out, s", low=0)
    down_s: float = setting(300.0, "time after a change before scaling in, s", low=0)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: CoolDownMemory
    ) -> tuple[Reshaped, str, CoolDownMemory]:
        """Forbid the direction that is still cooling down."""
        now, current = snapshot.time_s, snapshot.requested
        hosts, instances = len(current.hosts), len(current.instances)
        if own.hosts is not None and (hosts, instances) != (own.hosts, own.instances):
            rose = (hosts, instances) > (own.hosts, own.instances)
            own = replace(own, grew_s=now) if rose else replace(own, shrank_s=now)
        own = replace(own, hosts=hosts, instances=instances)

        changes = [at for at in (own.grew_s, own.shrank_s) if at is not None]
        waited_s = now - max(changes) if changes else math.inf
        allowed, why = plan.deployment, []
        if waited_s < self.down_s and shrinks(snapshot, allowed):
            allowed = without_scale_in(snapshot, allowed, self.measure)
            why.append(f"scales in again in {show_duration(self.down_s - waited_s)}")
        if waited_s < self.up_s and grows(snapshot, allowed):
            allowed = without_scale_out(snapshot, allowed, self.measure)
            why.append(f"scales out again in {show_duration(self.up_s - waited_s)}")
        return Reshaped(allowed), "cooling down: " + ", ".join(why), own


@dataclass(frozen=True, slots=True)
class StabilisationMemory(Value):
    """(time, number of hosts planned) of the recent turns, oldest first."""

    wishes: tuple[tuple[float, int], ...] = ()  # the name that journals of 0.1.0 have


@dataclass(frozen=True)
class Stabilisation(Guard):
    """Follow a plan only when it has lasted.

    To scale in, the largest plan within the last `down_s` seconds counts. To scale out, the
    smallest plan within the last `up_s` seconds counts (zero by default: scaling out is urgent).
    """

    name: ClassVar[str] = "stabilisation"
    own_memory: ClassVar[type] = StabilisationMemory

    up_s: float = setting(0.0, "window whose smallest plan counts when scaling out, s", low=0)
    down_s: float = setting(300.0, "window whose largest plan counts when scaling in, s", low=0)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: StabilisationMemory
    ) -> tuple[Reshaped, str, StabilisationMemory]:
        """Compare the plan with those of the window."""
        now_s = snapshot.time_s
        now, planned = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        horizon_s = now_s - max(self.up_s, self.down_s)
        recent = (*(turn for turn in own.wishes if turn[0] > horizon_s), (now_s, planned))
        own = StabilisationMemory(recent)
        if planned < now:
            steady = max(count for at, count in recent if at > now_s - self.down_s or at == now_s)
            steady = min(steady, now)
            span = show_duration(self.down_s)
        elif planned > now:
            steady = min(count for at, count in recent if at > now_s - self.up_s or at == now_s)
            steady = max(steady, now)
            span = show_duration(self.up_s)
        else:
            return unchanged(plan), "", own
        if steady == planned:
            return unchanged(plan), "", own
        why = f"{steady} hosts were planned within the last {span}"
        return self.with_hosts(snapshot, plan, steady), why, own
