"""Holds that a person sets: a pause, or a dry run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tidegate.guards.base import Guard, hold, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, grows, shrinks, without_scale_in, without_scale_out
from tidegate.policies.base import NoMemory, setting

__all__ = ["DryRun", "Pause"]


@dataclass(frozen=True)
class Pause(Guard):
    """Stop scaling in, out or both."""

    name: ClassVar[str] = "pause"

    direction: Literal["in", "out", "both"] = setting(
        "both", "direction that is paused", choices=("in", "out", "both")
    )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Forbid the paused direction."""
        wanted = plan.deployment
        if self.direction == "both":
            return hold(snapshot), "scaling is paused", own
        if self.direction == "in" and shrinks(snapshot, wanted):
            kept = without_scale_in(snapshot, wanted, self.measure)
            return Reshaped(kept), "scaling in is paused", own
        if self.direction == "out" and grows(snapshot, wanted):
            kept = without_scale_out(snapshot, wanted, self.measure)
            return Reshaped(kept), "scaling out is paused", own
        return unchanged(plan), "", own


@dataclass(frozen=True)
class DryRun(Guard):
    """Decide, but change nothing. The plan keeps the intended deployment as its raw deployment."""

    name: ClassVar[str] = "dry-run"

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Keep the requested deployment."""
        return hold(snapshot), "this is a dry run", own
