"""No scale-in while measurements are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.guards.base import Guard, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, shrinks, without_scale_in
from tidegate.policies.base import NoMemory

__all__ = ["MissingMetrics"]


@dataclass(frozen=True)
class MissingMetrics(Guard):
    """Do not scale in while a measurement that the policy needs is missing."""

    name: ClassVar[str] = "missing-metrics"
    limits_changes_only: ClassVar[bool] = True

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Keep all hosts and instances while a measurement is missing."""
        if not shrinks(snapshot, plan.deployment):
            return unchanged(plan), "", own
        missing = snapshot.missing(self.needs)
        if not missing:
            return unchanged(plan), "", own
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        kept = without_scale_in(snapshot, plan.deployment, self.measure)
        return Reshaped(kept), f"nothing is released while {missing[0]}{more} is missing", own
