"""Limits on how often the number of hosts changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.codec import Value
from tidegate.guards.base import Guard, fresh_start, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, grows, shrinks, without_scale_in, without_scale_out
from tidegate.policies.base import setting
from tidegate.units import show_duration

__all__ = [
    "CoolDown",
    "CoolDownMemory",
    "FirstLook",
    "FirstLookMemory",
    "Stabilisation",
    "StabilisationMemory",
]


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

    def forget_later(self, own: CoolDownMemory, now_s: float) -> CoolDownMemory:
        """Forget changes of the future."""
        if not any(at is not None and at > now_s for at in (own.grew_s, own.shrank_s)):
            return own
        grew_s, shrank_s = (
            None if at is None or at > now_s else at for at in (own.grew_s, own.shrank_s)
        )
        return replace(own, grew_s=grew_s, shrank_s=shrank_s)

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
    """The plans of the recent turns, and when it began to look.

    The first field holds (time, number of hosts planned), oldest first. hosts: hosts requested in
    the last turn. began_s: time of the first look, when the hosts that ran counted as planned.
    """

    wishes: tuple[tuple[float, int], ...] = ()  # the name that journals of 0.1.0 have
    hosts: int | None = None
    began_s: float | None = None

    @property
    def plans(self) -> tuple[tuple[float, int], ...]:
        """(time, number of hosts planned) of the recent turns, oldest first."""
        return self.wishes


@dataclass(frozen=True)
class Stabilisation(Guard):
    """Follow a plan only when it has lasted.

    To scale in, the largest plan within the last `down_s` seconds counts. To scale out, the
    smallest plan within the last `up_s` seconds counts (zero by default: scaling out is urgent).
    The window begins with what runs: at the first look, after a gap longer than the window, and
    when hosts run that nobody planned, the number of hosts counts as planned at that moment.
    """

    name: ClassVar[str] = "stabilisation"
    own_memory: ClassVar[type] = StabilisationMemory

    up_s: float = setting(0.0, "window whose smallest plan counts when scaling out, s", low=0)
    down_s: float = setting(300.0, "window whose largest plan counts when scaling in, s", low=0)

    def forget_later(self, own: StabilisationMemory, now_s: float) -> StabilisationMemory:
        """Forget plans of the future."""
        if not own.wishes or own.wishes[-1][0] <= now_s:  # the last one is the latest
            return own
        # Without plans, it begins with what runs.
        return StabilisationMemory()

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: StabilisationMemory
    ) -> tuple[Reshaped, str, StabilisationMemory]:
        """Compare the plan with those of the window."""
        now_s = snapshot.time_s
        now, planned = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        earlier, began_s = self._earlier(snapshot, own, now)
        own = StabilisationMemory((*earlier, (now_s, planned)), now, began_s)
        if planned < now:
            window_s = self.down_s
            seen = [count for at, count in earlier if at > now_s - window_s]
            steady = min(max(planned, *seen) if seen else planned, now)
        elif planned > now:
            window_s = self.up_s
            seen = [count for at, count in earlier if at > now_s - window_s]
            steady = max(min(planned, *seen) if seen else planned, now)
        else:
            return unchanged(plan), "", own
        if steady == planned:
            return unchanged(plan), "", own
        why = f"{steady} hosts were planned within the last {show_duration(window_s)}"
        if own.began_s is not None and own.began_s > now_s - window_s:
            since = show_duration(now_s - own.began_s)
            why = f"{steady} hosts ran at the first look, {since} ago, or were planned since"
        return self.with_hosts(snapshot, plan, steady), why, own

    def _earlier(
        self, snapshot: Snapshot, own: StabilisationMemory, now: int
    ) -> tuple[list[tuple[float, int]], float | None]:
        """The plans within the window, beginning with what runs where there are none.

        With the time of the first look.
        """
        now_s, window_s = snapshot.time_s, max(self.up_s, self.down_s)
        plans = own.plans
        last_s, last = plans[-1] if plans else (None, 0)
        unplanned = own.hosts is not None and now > max(own.hosts, last)
        if fresh_start(last_s, snapshot, window_s) or unplanned:
            return [(now_s, now)], now_s
        since_s = now_s - window_s
        return [turn for turn in plans if turn[0] > since_s], own.began_s


@dataclass(frozen=True, slots=True)
class FirstLookMemory(Value):
    """began_s: time of the first look; last_s: time of the last one; hosts: requested then."""

    began_s: float | None = None
    last_s: float | None = None
    hosts: int | None = None


@dataclass(frozen=True)
class FirstLook(Guard):
    """Release nothing in the first seconds, after a gap, or when hosts run that nobody planned.

    It is for policies that choose the moment of a release, which `stabilisation` would miss.
    """

    name: ClassVar[str] = "first-look"
    own_memory: ClassVar[type] = FirstLookMemory

    wait_s: float = setting(60.0, "time before the first release, s", low=0)

    def forget_later(self, own: FirstLookMemory, now_s: float) -> FirstLookMemory:
        """Begin again when the last look was in the future."""
        return FirstLookMemory() if own.last_s is not None and own.last_s > now_s else own

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: FirstLookMemory
    ) -> tuple[Reshaped, str, FirstLookMemory]:
        """Forbid to scale in until the wait is over."""
        now_s, now = snapshot.time_s, len(snapshot.requested.hosts)
        wanted = max(now, len(plan.deployment.hosts))
        began_s = own.began_s
        unplanned = own.hosts is not None and now > own.hosts
        if began_s is None or fresh_start(own.last_s, snapshot, self.wait_s) or unplanned:
            began_s = now_s
        own = FirstLookMemory(began_s, now_s, wanted)
        left_s = began_s + self.wait_s - now_s
        if left_s <= 0 or not shrinks(snapshot, plan.deployment):
            return unchanged(plan), "", own
        kept = without_scale_in(snapshot, plan.deployment, self.measure)
        why = f"it has just begun to look: scales in in {show_duration(left_s)}"
        return Reshaped(kept), why, own
