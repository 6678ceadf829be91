"""Look ahead: decide for the load that is expected when a new host has started.

A host takes time to start, on Spark it helps only after a micro-batch or two, and a load that rises
usually keeps rising meanwhile. `Trend` shows its policy the arrival rates that the recent trend
predicts for that moment. It scores its forecasts
against the measured rates, next to the forecast "no change". While "no change" does better, the
policy sees the measured rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.codec import Value
from tidegate.model import Snapshot
from tidegate.policies.base import setting
from tidegate.policies.wrapper import ObservationWrapper
from tidegate.units import show_duration

__all__ = ["Trend", "TrendMemory"]

RISING = 1.02
"""Ratio of a rate to its usual value from which an entry counts as rising."""


Seen = tuple[tuple[float, float], ...]
Due = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class TrendMemory(Value):
    """Recent rates, pending forecasts and the score so far.

    seen: (time, rate) of the last observations. due: (time, forecast for it, rate at the time of
    the forecast). missed, missed_by_none: decayed sums of the absolute errors of the forecasts and
    of "no change". usual: usual rate of each entry, a decaying mean.
    """

    seen: Seen = ()
    due: tuple[Due, ...] = ()
    missed: float = 0.0
    missed_by_none: float = 0.0
    usual: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Trend(ObservationWrapper):
    """Show the policy the arrival rates that are expected when a host leased now has started.

    Only rises are forecast. A falling rate counts when it has been measured. The forecast is for
    the whole input; it is shown for the entries whose own rate rises, and for what they feed.
    """

    name: ClassVar[str] = "trend"
    own_memory: ClassVar[type] = TrendMemory

    window_s: float = setting(30.0, "length of the window that the trend is fitted to, s", low=0)
    lead_s: float | None = setting(
        None,
        "how far to look ahead, s; none: a host's start-up, two micro-batches and one decision",
        low=0,
    )
    most: float = setting(2.0, "largest ratio of a forecast to the present rate", low=1)
    fade: float = setting(0.9, "weight of earlier errors at each turn, share", low=0, high=1)

    def view(self, snapshot: Snapshot, own: TrendMemory) -> tuple[Snapshot, str, TrendMemory]:
        """The snapshot with the rates that are expected after the lead time."""
        rates = snapshot.external_rates()
        if not rates:
            return snapshot, "", own
        now = math.fsum(rates.values())
        seen, due, missed, by_none = self._scored(own, snapshot.time_s, now)
        lead_s = self._lead_s(snapshot)
        then = self._forecast(seen, now, lead_s)
        usual = dict(own.usual)
        means = tuple([(n, 0.5 * usual.get(n, rate) + 0.5 * rate) for n, rate in rates.items()])
        due.append((snapshot.time_s + lead_s, then, now))
        own = TrendMemory(seen, tuple(due), missed, by_none, means)
        if then <= now or missed > by_none:  # "no change" does better
            return snapshot, "", own
        rising = {name for name, rate in rates.items() if rate > RISING * usual.get(name, 0.0)}
        risen = math.fsum(rates[name] for name in rising)
        factor = min(self.most, 1 + (then - now) / risen) if risen > 0 else 1.0
        if factor <= 1:
            return snapshot, "", own
        change = f"{now:.0f}/s now, about {then:.0f}/s in {show_duration(lead_s)}"
        return snapshot.with_arrivals_times(factor, _fed_by(snapshot, rising)), change, own

    def _lead_s(self, snapshot: Snapshot) -> float:
        if self.lead_s is not None:
            return self.lead_s
        # The batch that runs when a host arrives ends without it, and the next one is slow, because
        # its tasks load their code on the new host.
        batch_s = 0.0
        for reading in snapshot.batched:
            if reading.batches and (recent_s := reading.batches.recent_durations_s):
                batch_s = max(batch_s, math.fsum(recent_s) / len(recent_s))
        return snapshot.offer.startup_s + 2 * batch_s + (snapshot.interval_s or 0.0)

    def _scored(
        self, own: TrendMemory, now_s: float, now: float
    ) -> tuple[Seen, list[Due], float, float]:
        """Record the rate, and score the forecasts that were made for about now.

        Returns the observations, the pending forecasts and both sums of errors.
        """
        if own.seen and own.seen[-1][0] > now_s:  # the clock went back
            own = replace(own, seen=(), due=())
        missed, by_none = self.fade * own.missed, self.fade * own.missed_by_none
        due: list[Due] = []
        for forecast in own.due:
            at_s, rate, before = forecast
            if at_s > now_s:
                due.append(forecast)
            else:
                missed += abs(rate - now)
                by_none += abs(before - now)
        since_s = now_s - self.window_s
        seen = (*[look for look in own.seen if look[0] > since_s], (now_s, now))
        return seen, due, missed, by_none

    def _forecast(self, seen: Seen, now: float, lead_s: float) -> float:
        """The rate after `lead_s` seconds if it keeps rising; `now` if it does not rise."""
        if len(seen) < 3:
            return now
        mean_s = math.fsum(t for t, _ in seen) / len(seen)
        mean = math.fsum(rate for _, rate in seen) / len(seen)
        spread = math.fsum((t - mean_s) ** 2 for t, _ in seen)
        if spread == 0:  # the clock stands still
            return now
        slope = math.fsum((t - mean_s) * (rate - mean) for t, rate in seen) / spread
        return min(now + max(0.0, slope) * lead_s, self.most * now)


def _fed_by(snapshot: Snapshot, entries: set[str]) -> set[str]:
    """The entries, and all operators that items from them reach."""
    reached, edge_of = set(entries), snapshot.topology.edges
    while more := {e.target for e in edge_of if e.origin in reached} - reached:
        reached |= more
    return reached
