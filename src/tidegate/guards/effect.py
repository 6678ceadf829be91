"""Judge every scale-out by its effect on throughput."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tidegate.codec import Value
from tidegate.guards.base import Guard, unchanged
from tidegate.guards.overload import overloaded, overloaded_queries
from tidegate.guards.useful import narrowest
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, grows, without_scale_out
from tidegate.policies.base import setting
from tidegate.units import show_duration
from tidegate.values import changed

__all__ = ["Effect", "EffectMemory"]


@dataclass(frozen=True, slots=True)
class EffectMemory(Value):
    """The state before the last scale-out, and when it was found to have no effect.

    hosts: hosts that ran before it. done_per_s: throughput before it. grew_s: time of the
    scale-out. found_s: time of the finding, None while there is none. by_query: throughput of each
    entry before it, where it is known.
    """

    hosts: int = 0
    done_per_s: float | None = None
    grew_s: float | None = None
    found_s: float | None = None
    by_query: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Effect(Guard):
    """Stop scaling out when the last scale-out did not raise throughput.

    The guard only acts under overload, when more arrives than is processed or the latency of a
    query is above its SLO. Otherwise an unchanged throughput is expected. Only the queries that are
    overloaded count, and it is an effect if one of them processes more.
    """

    name: ClassVar[str] = "effect"
    own_memory: ClassVar[type] = EffectMemory

    min_gain: float = setting(
        0.1, "smallest rise of throughput that counts as an effect, share", low=0
    )
    settle_s: float = setting(30.0, "time that new hosts have to show an effect, s", low=0)
    hold_s: float = setting(300.0, "time before the next attempt to scale out, s", low=0)

    def forget_later(self, own: EffectMemory, now_s: float) -> EffectMemory:
        """Forget a scale-out or a finding of the future."""
        grew_s, found_s = own.grew_s, own.found_s
        later = (grew_s is not None and grew_s > now_s) or (found_s is not None and found_s > now_s)
        return EffectMemory() if later else own

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: EffectMemory
    ) -> tuple[Reshaped, str, EffectMemory]:
        """Compare with the state before the last scale-out; hold if it had no effect."""
        grown = grows(snapshot, plan.deployment)
        if own.grew_s is None and not grown:  # there is nothing to judge
            return unchanged(plan), "", own
        now_s, running = snapshot.time_s, snapshot.hosts_running
        done = _throughput(snapshot)
        own = self._judged(own, snapshot, running, done)
        if not grown:
            return unchanged(plan), "", own
        if own.found_s is not None:
            allowed = without_scale_out(snapshot, plan.deployment, self.measure)
            left = show_duration(own.found_s + self.hold_s - now_s)
            before = "?" if own.done_per_s is None else f"{own.done_per_s:.0f}"
            why = (
                f"{running - own.hosts} hosts were added and throughput is unchanged "
                f"({before}/s → {done or 0:.0f}/s): {narrowest(snapshot)}; next attempt in {left}"
            )
            return Reshaped(allowed), why, own
        if own.grew_s is None and len(plan.deployment.hosts) > len(snapshot.requested.hosts):
            own = EffectMemory(running, done, now_s, by_query=tuple(_by_query(snapshot)))
        return unchanged(plan), "", own

    def _judged(
        self, own: EffectMemory, snapshot: Snapshot, running: int, done: float | None
    ) -> EffectMemory:
        if own.grew_s is None:
            return own
        now_s, strained = snapshot.time_s, overloaded(snapshot)
        if own.found_s is not None:
            recovered = done is not None and self._helped(own, snapshot, done)
            if recovered or not strained or now_s - own.found_s >= self.hold_s:
                return EffectMemory()
            return own
        if running <= own.hosts:
            # The new hosts are still starting: the settling time begins when they run.
            return changed(own, grew_s=now_s)
        if now_s - own.grew_s < self.settle_s:
            return own
        if done is None or own.done_per_s is None or not strained:
            return EffectMemory()
        return EffectMemory() if self._helped(own, snapshot, done) else changed(own, found_s=now_s)

    def _helped(self, own: EffectMemory, snapshot: Snapshot, done: float) -> bool:
        """Whether an overloaded query processes more than before, or all of them together do."""
        if own.done_per_s is None:
            return False
        before, now = dict(own.by_query), dict(_by_query(snapshot))
        strained = [name for name in overloaded_queries(snapshot) if name in before and name in now]
        if strained:
            return any(now[name] >= before[name] * (1 + self.min_gain) for name in strained)
        return done >= own.done_per_s * (1 + self.min_gain)


def _by_query(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """Items per second that each entry processes, where that is known."""
    for name in snapshot.topology.entries:
        rate = snapshot.rates.processed[name]
        if rate is not None:
            yield name, rate


def _throughput(snapshot: Snapshot) -> float | None:
    """Items per second that the entries process, None when a rate is missing."""
    processed = snapshot.rates.processed
    rates = [processed[name] for name in snapshot.topology.entries]
    known = [rate for rate in rates if rate is not None]
    return math.fsum(known) if known and len(known) == len(rates) else None
