"""A limit on spending."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.errors import SettingError
from tidegate.guards.base import Guard, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory, setting

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget(Guard):
    """Limit spending. The hard limit always holds; the soft one only while latency is low."""

    name: ClassVar[str] = "budget"

    soft_usd_per_h: float | None = setting(
        None, "limit while latency is within its target, $/h", low=0
    )
    hard_usd_per_h: float | None = setting(None, "limit at all times, $/h", low=0)
    slo_s: float | None = setting(
        None, "p95 latency above which the soft limit does not hold, s", low=0
    )

    def check(self) -> None:
        """The limits must not cross."""
        soft, hard = self.soft_usd_per_h, self.hard_usd_per_h
        if soft is not None and hard is not None and soft > hard:
            raise SettingError("soft_usd_per_h", soft, f"at most hard_usd_per_h ({hard:g})")

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp to the number of hosts that the budget pays for, at least one."""
        price = snapshot.offer.usd_per_h
        if price <= 0:
            return unchanged(plan), "", own
        latency_s = snapshot.latency.p95_s
        late = self.slo_s is not None and latency_s is not None and latency_s > self.slo_s
        # The soft limit is the lower one and is checked first: it holds when both are exceeded.
        for limit, kind in ((self.soft_usd_per_h, "soft"), (self.hard_usd_per_h, "hard")):
            if limit is None or (kind == "soft" and late):
                continue
            affordable = max(1, math.floor(limit / price + 1e-9))
            if len(plan.deployment.hosts) > affordable:
                why = f"the {kind} budget of ${limit:g}/h pays for {affordable} hosts"
                return self.with_hosts(snapshot, plan, affordable), why, own
        return unchanged(plan), "", own
