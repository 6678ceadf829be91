"""No changes at certain times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from tidegate.guards.base import Guard, hold, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory, setting
from tidegate.units import weekly_period

__all__ = ["ExcludedPeriods"]


@dataclass(frozen=True)
class ExcludedPeriods(Guard):
    """Change nothing during certain periods in UTC: ``mon-fri 09:30-11:00, 23:00-01:00``."""

    name: ClassVar[str] = "excluded-periods"

    periods: str = setting("", "comma-separated [days] HH:MM-HH:MM, in UTC")

    def check(self) -> None:
        """Reject periods that cannot be parsed."""
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
                return hold(snapshot), f"{moment:%a %H:%M} UTC is an excluded period", own
        return unchanged(plan), "", own
