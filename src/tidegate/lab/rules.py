"""A rule of thumb: hosts for the largest rate of a window, times a margin.

Backtests run it with many settings and show the best of them. Which settings are best is known only
afterwards, so it is a yardstick: what it costs above the bound, no choice of settings can save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.codec import Value
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style, setting

__all__ = ["RuleMemory", "WindowRule"]


@dataclass(frozen=True, slots=True)
class RuleMemory(Value):
    """(time, rate) of the turns in the window that no later turn reaches, in s and items/s."""

    rates: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class WindowRule(Policy):
    """Hosts for the largest rate of a window, times a margin.

    With a window of zero, it is a fixed headroom above the present rate.

    >>> from tidegate.testing import station_snapshot
    >>> now = station_snapshot({"work": (30, 5)}, allocation=(4,), cores_per_host=4)
    >>> rule = WindowRule(margin=1.5, host_rate_per_s=20.0)
    >>> plan, _ = rule.decide(now, rule.initial_memory())
    >>> plan.bounded_target
    3
    """

    name: ClassVar[str] = "window"
    paper: ClassVar[str] = "rule of thumb"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s",)
    memory_type: ClassVar[type] = RuleMemory
    forecasts: ClassVar[bool] = True

    window_s: float = setting(0.0, "length of the window, s", low=0)
    margin: float = setting(1.5, "hosts for this multiple of the rate", low=0.01)
    host_rate_per_s: float = setting(1.0, "items that a full host processes in a second", low=1e-9)
    fixed_hosts: float = setting(0.0, "hosts that are busy whatever the rate is", low=0)

    def decide(self, snapshot: Snapshot, memory: RuleMemory) -> tuple[Plan, RuleMemory]:
        """Lease and release at once; the guards slow it down."""
        packing, outside = Packing(snapshot), snapshot.external_rates()
        if outside is None:
            packing.because("missing", "an arrival rate is unknown: no change")
            return packing.plan(), memory
        rate, now_s = math.fsum(outside.values()), snapshot.time_s
        kept = (r for r in memory.rates if now_s - self.window_s <= r[0] < now_s and r[1] > rate)
        rates = (*kept, (now_s, rate))
        busy = rates[0][1] / self.host_rate_per_s + self.fixed_hosts
        hosts = max(1, math.ceil(self.margin * busy - 1e-9))
        if hosts != len(packing.hosts):
            packing.because("rule", f"{rates[0][1]:.4g}/s × {self.margin:g}: {hosts} hosts")
            set_engines(packing, hosts)
        return packing.plan(), RuleMemory(rates)
