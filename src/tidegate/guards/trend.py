"""Looking ahead: decide for the load that there will be when a new host is up.

A host takes time to start, and a load that rises goes on rising meanwhile. `Trend` shows its policy
the arrival rates as they will be then, by the trend of the last looks. Forecasts are scored against
what came, beside the forecast "no change"; one that does worse is not used until it does better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tidegate.codec import Value
from tidegate.guards import Guard, GuardMemory
from tidegate.model import Plan, Reason, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import setting
from tidegate.units import show_duration

__all__ = ["Trend", "TrendMemory"]


@dataclass(frozen=True, slots=True)
class TrendMemory(Value):
    """What was seen and foretold.

    seen: (time, rate) of the last looks. due: (time, rate foretold for it, rate when foretelling).
    missed, missed_by_none: how far forecasts were off, and how far "no change" was; both fade.
    """

    seen: tuple[tuple[float, float], ...] = ()
    due: tuple[tuple[float, float, float], ...] = ()
    missed: float = 0.0
    missed_by_none: float = 0.0


@dataclass(frozen=True)
class Trend(Guard):
    """The policy sees the arrival rates as they will be when a host leased now is up.

    Only a rise is foretold: what falls is believed when it is seen. The policy's own plan is not
    changed afterwards, so this guard never binds; it says so in a reason when it looked ahead.
    """

    name: ClassVar[str] = "trend"
    own_memory: ClassVar[type] = TrendMemory

    window_s: float = setting(30.0, "the trend is that of the last so many seconds", low=0)
    lead_s: float | None = setting(
        None, "how far to look ahead, s; none: a host's start-up and one decision", low=0
    )
    most: float = setting(2.0, "no rate is foretold to rise beyond so many times itself", low=1)
    fade: float = setting(0.9, "weight of earlier errors at each look, share", low=0, high=1)

    def decide(self, snapshot: Snapshot, memory: GuardMemory) -> tuple[Plan, GuardMemory]:
        """Look ahead, let the policy decide for that, and keep score."""
        own: TrendMemory = memory.own
        rates = snapshot.external_rates()
        now = math.fsum(rates.values()) if rates else None
        if now is None:
            plan, inner = self.inner.decide(snapshot, memory.inner)
            return plan, GuardMemory(own, inner)
        own = self._scored(own, snapshot.time_s, now)
        lead_s = self._lead_s(snapshot)
        then = self._foretold(own, now, lead_s)
        trusted = own.missed <= own.missed_by_none
        own = replace(own, due=(*own.due, (snapshot.time_s + lead_s, then, now)))
        factor = then / now if now > 0 and trusted else 1.0
        plan, inner = self.inner.decide(_busier(snapshot, factor), memory.inner)
        if factor > 1 and plan.deployment != snapshot.requested:
            text = f"{now:.0f}/s now, about {then:.0f}/s in {show_duration(lead_s)}"
            plan = replace(plan, reasons=(*plan.reasons, Reason("trend", text)))
        return plan, GuardMemory(own, inner)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: TrendMemory
    ) -> tuple[Reshaped, str, TrendMemory]:
        """Nothing: what there is to say was said before the decision."""
        return Reshaped(plan.deployment), "", own

    def _lead_s(self, snapshot: Snapshot) -> float:
        if self.lead_s is not None:
            return self.lead_s
        return snapshot.offer.startup_s + (snapshot.interval_s or 0.0)

    def _scored(self, own: TrendMemory, now_s: float, now: float) -> TrendMemory:
        """Note the rate, and judge the forecasts that were made for about now."""
        missed, by_none = self.fade * own.missed, self.fade * own.missed_by_none
        for _, foretold, before in (due for due in own.due if due[0] <= now_s):
            missed += abs(foretold - now)
            by_none += abs(before - now)
        seen = (*(look for look in own.seen if look[0] > now_s - self.window_s), (now_s, now))
        due = tuple(d for d in own.due if d[0] > now_s)
        return TrendMemory(seen, due, missed, by_none)

    def _foretold(self, own: TrendMemory, now: float, lead_s: float) -> float:
        """The rate after `lead_s` seconds if it rises on as it did; `now` if it did not."""
        if len(own.seen) < 3:
            return now
        mean_s = math.fsum(t for t, _ in own.seen) / len(own.seen)
        mean = math.fsum(rate for _, rate in own.seen) / len(own.seen)
        spread = math.fsum((t - mean_s) ** 2 for t, _ in own.seen)
        slope = math.fsum((t - mean_s) * (rate - mean) for t, rate in own.seen) / spread
        return min(now + max(0.0, slope) * lead_s, self.most * now)


def _busier(snapshot: Snapshot, factor: float) -> Snapshot:
    """The snapshot with all arrival rates so many times as high."""
    if factor == 1:
        return snapshot
    changed: list[Any] = []
    for reading in snapshot.operators:
        rate = reading.arrival_rate_per_s
        more = None if rate is None else rate * factor
        changed.append(replace(reading, arrival_rate_per_s=more))
    return replace(snapshot, operators=tuple(changed))
