"""The ratio rule of Spark's old DStreams: batch time against batch interval."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style, setting

__all__ = ["DStreamsRatio", "DStreamsRatioMemory"]


@dataclass(frozen=True, slots=True)
class DStreamsRatioMemory(Value):
    """Ratios since the last decision, its time, and the number of random draws so far."""

    ratios: tuple[float, ...] = ()
    decided_s: float | None = None
    drawn: int = 0
    seed: int = 0


@dataclass(frozen=True)
class DStreamsRatio(Policy):
    """More hosts when batches take most of their interval, fewer when they take little of it.

    Every `interval_s` the policy takes the mean ratio of processing time to batch interval. At `up`
    or more, it adds round(mean) hosts, at least one. At `down` or less, it releases one, chosen at
    random as in Spark. Without batches or an interval, the mean utilisation of the hosts is used.

    Spark's defaults: 60 s, 0.9, 0.3. Batches of 9.5 s every 10 s add one host:

    >>> from tidegate.testing import steady_snapshot
    >>> policy = DStreamsRatio(interval_s=0)
    >>> busy = steady_snapshot(hosts=2, batch_durations_s=(9.4, 9.6))
    >>> plan, _ = policy.decide(busy, policy.initial_memory())
    >>> plan.bounded_target
    3

    Apache Spark, ``streaming.dynamicAllocation``.
    """

    name: ClassVar[str] = "dstreams-ratio"
    paper: ClassVar[str] = "baseline: Spark DStreams dynamic allocation"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()
    memory_type: ClassVar[type] = DStreamsRatioMemory

    interval_s: float = setting(60.0, "time between two decisions, s", low=0)
    up: float = setting(0.9, "ratio at and above which hosts are added", low=0)
    down: float = setting(0.3, "ratio at and below which a host is released", low=0)

    def check(self) -> None:
        """The two ratios must not cross."""
        if self.down >= self.up:
            raise SettingError(f"{self.name}: down", self.down, f"below up ({self.up:g})")

    def initial_memory(self, seed: int = 0) -> DStreamsRatioMemory:
        """Nothing measured yet. seed: random seed."""
        return DStreamsRatioMemory(seed=seed)

    def decide(
        self, snapshot: Snapshot, memory: DStreamsRatioMemory
    ) -> tuple[Plan, DStreamsRatioMemory]:
        """Gather ratios; decide when the interval is over."""
        packing = Packing(snapshot)
        now = snapshot.time_s
        decided = memory.decided_s
        if decided is None or decided > now:  # the clock went back
            decided = now - self.interval_s
        fresh = _ratios(snapshot)
        ratios = (*memory.ratios, *fresh)
        if now - decided < self.interval_s or not fresh:  # old measurements alone decide nothing
            return packing.plan(), DStreamsRatioMemory(ratios, decided, memory.drawn, memory.seed)
        mean = sum(ratios) / len(ratios)
        hosts, drawn = packing.host_count, memory.drawn
        if mean >= self.up:
            more = max(1, math.floor(mean + 0.5))  # as Java rounds, halves up
            set_engines(packing, hosts + more)
            text = f"batches take {mean:.2f} of their interval: {more} more"
            packing.because("overload", text)
        elif mean <= self.down and hosts > 1:
            names = [host.id for host in snapshot.hosts if host.id in packing.hosts]
            loser = random.Random(f"{memory.seed}:{drawn}").choice(names)
            drawn += 1
            set_engines(packing, hosts - 1, victims=[loser])
            text = (
                f"batches take {mean:.2f} of their interval: {loser} is released, chosen at random"
            )
            packing.because("underload", text, loser)
        return packing.plan(), DStreamsRatioMemory((), now, drawn, memory.seed)


def _ratios(snapshot: Snapshot) -> list[float]:
    if snapshot.batches is not None and snapshot.batches.trigger_interval_s > 0:
        interval_s = snapshot.batches.trigger_interval_s
        return [took_s / interval_s for took_s in snapshot.batches.recent_durations_s]
    busy = snapshot.utilisations.values()
    known = [share for share in busy if share is not None]
    return [sum(known) / len(known)] if known and len(known) == len(busy) else []
