"""Guards: wrappers around a policy, each with one concern, that say so when they bind.

A guard is a policy itself, so guards stack: ``Bounds(CoolDown(policy))``. The outermost has the
last word. When one changes a plan, the plan keeps what the policy wanted (`Plan.raw`) and gains a
`Binding` with the number of hosts before and after, and why.

Guards look at what is *requested* now, not at what they said last: another guard, or a world that
refused, may have had a different last word.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from tidegate.codec import Value, from_plain, to_plain
from tidegate.errors import SettingError
from tidegate.model import Binding, Plan, Snapshot, Unmet
from tidegate.packing.reshape import (
    Reshaped,
    grows,
    shrinks,
    with_hosts,
    without_scale_in,
    without_scale_out,
)
from tidegate.policies.base import NoMemory, Policy, Style, setting
from tidegate.units import show_duration, weekly_period

__all__ = [
    "Bounds",
    "Budget",
    "CoolDown",
    "DryRun",
    "ExcludedPeriods",
    "Guard",
    "GuardMemory",
    "MissingMetrics",
    "Pause",
    "Stabilisation",
    "StepLimit",
]


@dataclass(frozen=True, slots=True)
class GuardMemory:
    """A guard's own memory around that of what it guards."""

    own: Any
    inner: Any


@dataclass(frozen=True)
class Guard(Policy):
    """A policy that lets another one decide and then has a word.

    Subclasses implement `limit`, and `own_memory` if they remember something.
    """

    inner: Policy

    paper: ClassVar[str] = "guard"
    own_memory: ClassVar[type] = NoMemory
    has_last_word: ClassVar[bool] = False
    """Whether it must hold even while a person has paused the rest."""

    # A guard's style and needs are those of what it guards.
    @property
    def style(self) -> Style:  # type: ignore[override]
        """The inner policy's style."""
        return self.inner.style

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The inner policy's needs."""
        return self.inner.needs

    @abstractmethod
    def limit(self, snapshot: Snapshot, plan: Plan, own: Any) -> tuple[Reshaped, str, Any]:
        """The deployment allowed, why it is not the one planned, and the guard's next memory."""

    @classmethod
    def around(cls, inner: Policy, settings: dict[str, Any]) -> Guard:
        """The guard around a policy, from settings as people write them."""
        return cls(inner=inner, **cls.read_settings(settings))

    def decide(self, snapshot: Snapshot, memory: GuardMemory) -> tuple[Plan, GuardMemory]:
        """Let the inner policy decide, then bind its plan where it goes too far."""
        plan, inner = self.inner.decide(snapshot, memory.inner)
        allowed, why, own_after = self.limit(snapshot, plan, memory.own)
        after = GuardMemory(own_after, inner)
        if allowed.deployment == plan.deployment:
            return plan, after
        binding = Binding(self.name, len(plan.deployment.hosts), len(allowed.deployment.hosts), why)
        bound = replace(
            plan,
            deployment=allowed.deployment,
            raw=plan.raw or plan.deployment,
            bindings=(*plan.bindings, binding),
            unmet=(*plan.unmet, *allowed.unmet),
        )
        return bound, after

    def initial_memory(self, seed: int = 0) -> GuardMemory:
        """The guard's and the inner policy's."""
        return GuardMemory(self.own_memory(), self.inner.initial_memory(seed))

    def save_memory(self, memory: GuardMemory) -> Any:
        """The guard's and the inner policy's, as plain JSON values."""
        return {"own": to_plain(memory.own), "inner": self.inner.save_memory(memory.inner)}

    def load_memory(self, plain: Any) -> GuardMemory:
        """What `save_memory` took apart."""
        own: Any = from_plain(self.own_memory, plain["own"])
        return GuardMemory(own, self.inner.load_memory(plain["inner"]))

    def describe(self) -> str:
        """The stack from the inside out, with the settings that differ from their defaults."""
        changed = [
            f"{p.name}={getattr(self, p.name)}"
            for p in self.parameters()
            if getattr(self, p.name) != p.default
        ]
        return f"{self.inner.describe()} → {self.name}({', '.join(changed)})"

    def _hosts(self, snapshot: Snapshot, plan: Plan, hosts: int) -> Reshaped:
        return with_hosts(snapshot, plan.deployment, hosts, self.style, self.measure)


def _unchanged(plan: Plan) -> Reshaped:
    return Reshaped(plan.deployment)


def _hold(snapshot: Snapshot) -> Reshaped:
    """All as it is; an operator without any instance is not started either, and that is said."""
    now = snapshot.requested
    gone = (name for name in snapshot.topology.by_name if not now.counts[name])
    return Reshaped(now, tuple(Unmet(name, 1, "nothing may be started now") for name in gone))


@dataclass(frozen=True)
class Bounds(Guard):
    """Never fewer than `min_hosts`, never more than `max_hosts`."""

    name: ClassVar[str] = "bounds"
    has_last_word: ClassVar[bool] = True

    min_hosts: int = setting(1, "hosts that are always kept", low=1)
    max_hosts: int | None = setting(None, "hosts that are never exceeded; none: no limit", low=1)

    def check(self) -> None:
        """The bounds must not cross."""
        if self.max_hosts is not None and self.max_hosts < self.min_hosts:
            raise SettingError(
                "max_hosts", self.max_hosts, f"at least min_hosts ({self.min_hosts})"
            )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp the number of hosts."""
        hosts = len(plan.deployment.hosts)
        most = math.inf if self.max_hosts is None else self.max_hosts
        if hosts < self.min_hosts:
            why = f"at least {self.min_hosts} hosts are kept"
            return self._hosts(snapshot, plan, self.min_hosts), why, own
        if hosts > most:
            why = f"at most {self.max_hosts} hosts are allowed"
            return self._hosts(snapshot, plan, int(most)), why, own
        return _unchanged(plan), "", own


@dataclass(frozen=True)
class StepLimit(Guard):
    """At most so many hosts more or fewer in one turn."""

    name: ClassVar[str] = "step-limit"

    up: int | None = setting(None, "hosts added in a turn at most; none: no limit", low=1)
    down: int | None = setting(None, "hosts released in a turn at most; none: no limit", low=1)

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp the change in the number of hosts."""
        now, hosts = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        if self.up is not None and hosts > now + self.up:
            return self._hosts(snapshot, plan, now + self.up), f"at most {self.up} more a turn", own
        if self.down is not None and hosts < now - self.down:
            why = f"at most {self.down} fewer a turn"
            return self._hosts(snapshot, plan, now - self.down), why, own
        return _unchanged(plan), "", own


@dataclass(frozen=True, slots=True)
class CoolDownMemory(Value):
    """The requested deployment's size when last seen, and when it last grew and shrank."""

    hosts: int | None = None
    instances: int = 0
    grew_s: float | None = None
    shrank_s: float | None = None


@dataclass(frozen=True)
class CoolDown(Guard):
    """After a change, wait: so long before growing again, so long before shrinking.

    A rise starts both waits, so that what was just added is not taken away; a fall as well.
    """

    name: ClassVar[str] = "cool-down"
    own_memory: ClassVar[type] = CoolDownMemory

    up_s: float = setting(30.0, "time after a change before growing, s", low=0)
    down_s: float = setting(300.0, "time after a change before shrinking, s", low=0)

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
            why.append(f"shrinks again in {show_duration(self.down_s - waited_s)}")
        if waited_s < self.up_s and grows(snapshot, allowed):
            allowed = without_scale_out(snapshot, allowed, self.measure)
            why.append(f"grows again in {show_duration(self.up_s - waited_s)}")
        return Reshaped(allowed), "cooling down: " + ", ".join(why), own


@dataclass(frozen=True, slots=True)
class StabilisationMemory(Value):
    """(time, hosts wanted) of the last turns, oldest first."""

    wishes: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class Stabilisation(Guard):
    """Follow a wish only when it has lasted: the largest within the window when shrinking.

    When growing, the smallest wish within `up_s` counts (none by default: growing is urgent).
    """

    name: ClassVar[str] = "stabilisation"
    own_memory: ClassVar[type] = StabilisationMemory

    up_s: float = setting(0.0, "the smallest wish of so long counts when growing, s", low=0)
    down_s: float = setting(300.0, "the largest wish of so long counts when shrinking, s", low=0)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: StabilisationMemory
    ) -> tuple[Reshaped, str, StabilisationMemory]:
        """Compare the wish with those of the window."""
        now_s, now, wish = (
            snapshot.time_s,
            len(snapshot.requested.hosts),
            len(plan.deployment.hosts),
        )
        horizon_s = now_s - max(self.up_s, self.down_s)
        wishes = (*(w for w in own.wishes if w[0] > horizon_s), (now_s, wish))
        own = StabilisationMemory(wishes)
        if wish < now:
            steady = max(count for at, count in wishes if at > now_s - self.down_s or at == now_s)
            steady = min(steady, now)
            span = show_duration(self.down_s)
        elif wish > now:
            steady = min(count for at, count in wishes if at > now_s - self.up_s or at == now_s)
            steady = max(steady, now)
            span = show_duration(self.up_s)
        else:
            return _unchanged(plan), "", own
        if steady == wish:
            return _unchanged(plan), "", own
        why = f"{steady} hosts were wanted within the last {span}"
        return self._hosts(snapshot, plan, steady), why, own


@dataclass(frozen=True)
class Budget(Guard):
    """Money: the hard limit always holds; the soft one gives way while the SLO is missed."""

    name: ClassVar[str] = "budget"

    soft_usd_per_h: float | None = setting(None, "spend this much without need, $/h", low=0)
    hard_usd_per_h: float | None = setting(None, "never spend more, $/h", low=0)
    slo_s: float | None = setting(None, "p95 latency that the soft limit gives way for, s", low=0)

    def check(self) -> None:
        """The limits must not cross."""
        soft, hard = self.soft_usd_per_h, self.hard_usd_per_h
        if soft is not None and hard is not None and soft > hard:
            raise SettingError("soft_usd_per_h", soft, f"at most hard_usd_per_h ({hard:g})")

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """The hosts that the money pays for, one at least."""
        price = snapshot.offer.usd_per_h
        if price <= 0:
            return _unchanged(plan), "", own
        latency_s = snapshot.latency.p95_s
        late = self.slo_s is not None and latency_s is not None and latency_s > self.slo_s
        # The soft limit is the lower one, so it comes first: it holds when both are exceeded.
        for limit, kind in ((self.soft_usd_per_h, "soft"), (self.hard_usd_per_h, "hard")):
            if limit is None or (kind == "soft" and late):
                continue
            affordable = max(1, math.floor(limit / price + 1e-9))
            if len(plan.deployment.hosts) > affordable:
                why = f"the {kind} budget of ${limit:g}/h pays for {affordable} hosts"
                return self._hosts(snapshot, plan, affordable), why, own
        return _unchanged(plan), "", own


@dataclass(frozen=True)
class MissingMetrics(Guard):
    """Never scale in on absent data: what the policy needs must have been measured."""

    name: ClassVar[str] = "missing-metrics"

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Forbid shrinking when a measurement is missing."""
        missing = snapshot.missing(self.needs)
        if not missing or not shrinks(snapshot, plan.deployment):
            return _unchanged(plan), "", own
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        kept = without_scale_in(snapshot, plan.deployment, self.measure)
        return Reshaped(kept), f"nothing is released while {missing[0]}{more} is missing", own


@dataclass(frozen=True)
class ExcludedPeriods(Guard):
    """Touch nothing at certain times of the day, in UTC: ``mon-fri 09:30-11:00, 23:00-01:00``."""

    name: ClassVar[str] = "excluded-periods"

    periods: str = setting("", "comma-separated [days] HH:MM-HH:MM, in UTC")

    def check(self) -> None:
        """Every period must be readable."""
        self._parsed()

    def _parsed(self) -> list[tuple[frozenset[int], int, int]]:
        return [weekly_period(text) for text in self.periods.split(",") if text.strip()]

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Hold inside a period."""
        moment = datetime.fromtimestamp(snapshot.time_s, UTC)
        minute, today = moment.hour * 60 + moment.minute, moment.weekday()
        for days, start, end in self._parsed():
            if start <= end:
                inside = today in days and start <= minute < end
            else:  # over midnight: the evening of a day and the morning of the next
                evening = today in days and minute >= start
                inside = evening or ((today - 1) % 7 in days and minute < end)
            if inside:
                return _hold(snapshot), f"{moment:%a %H:%M} UTC is an excluded period", own
        return _unchanged(plan), "", own


@dataclass(frozen=True)
class Pause(Guard):
    """Stop scaling in, out or both, until told otherwise."""

    name: ClassVar[str] = "pause"

    direction: Literal["in", "out", "both"] = setting(
        "both", "which direction is paused", choices=("in", "out", "both")
    )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Forbid the paused direction."""
        wanted = plan.deployment
        if self.direction == "both":
            return _hold(snapshot), "scaling is paused", own
        if self.direction == "in" and shrinks(snapshot, wanted):
            kept = without_scale_in(snapshot, wanted, self.measure)
            return Reshaped(kept), "scaling in is paused", own
        if self.direction == "out" and grows(snapshot, wanted):
            kept = without_scale_out(snapshot, wanted, self.measure)
            return Reshaped(kept), "scaling out is paused", own
        return _unchanged(plan), "", own


@dataclass(frozen=True)
class DryRun(Guard):
    """Decide and say so, and change nothing: the wish stays in the plan as its raw deployment."""

    name: ClassVar[str] = "dry-run"

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Hold, always."""
        return _hold(snapshot), "this is a dry run", own
