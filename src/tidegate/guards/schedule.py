"""What holds at certain times: no changes, or a higher minimum."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from tidegate.errors import SettingError
from tidegate.guards.base import Guard, hold, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory, setting
from tidegate.units import weekly_period

__all__ = ["ExcludedPeriods", "ScheduledMinimum"]

Period = tuple[frozenset[int], int, int]


@dataclass(frozen=True)
class ExcludedPeriods(Guard):
    """Change nothing during certain periods in UTC: ``mon-fri 09:30-11:00, 23:00-01:00``."""

    name: ClassVar[str] = "excluded-periods"

    periods: str = setting("", "comma-separated [days] HH:MM-HH:MM, in UTC")

    def check(self) -> None:
        """Reject periods that cannot be parsed."""
        self._parsed()

    def _parsed(self) -> list[Period]:
        return [weekly_period(text) for text in self.periods.split(",") if text.strip()]

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Hold inside a period."""
        moment = datetime.fromtimestamp(snapshot.time_s, UTC)
        if any(_inside(period, moment) for period in self._parsed()):
            return hold(snapshot), f"{moment:%a %H:%M} UTC is an excluded period", own
        return unchanged(plan), "", own


@dataclass(frozen=True)
class ScheduledMinimum(Guard):
    """Keep a minimum of hosts at certain times: ``weekdays 08:00-18:00: 4, sat 10:00-12:00: 2``.

    The times are those of a wall clock in `time_zone`. A period that begins on a day when clocks
    are set forward or back is shorter or longer by an hour. Where periods overlap, the largest
    minimum counts. The maximum of `bounds` holds at all times.
    """

    name: ClassVar[str] = "scheduled-minimum"

    periods: str = setting("", "comma-separated [days] HH:MM-HH:MM: HOSTS")
    time_zone: str = setting("UTC", "time zone of the periods, such as Europe/Berlin")

    def check(self) -> None:
        """Reject periods that cannot be parsed, and unknown time zones."""
        self._parsed()
        self._zone()

    def _parsed(self) -> list[tuple[Period, int]]:
        found = []
        for text in self.periods.split(","):
            if not text.strip():
                continue
            period, _, hosts = text.rpartition(":")
            number = hosts.strip()
            if not number.isdecimal() or "-" not in period or not 1 <= int(number[:9]) <= 10_000:
                remedy = "write it as [mon-fri] HH:MM-HH:MM: HOSTS"
                raise SettingError(
                    f"{self.name}: periods", text.strip(), "a period with a number", remedy
                )
            found.append((weekly_period(period, f"{self.name}: periods"), int(number)))
        return found

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError):
            remedy = "write a name such as UTC or Europe/Berlin"
            key = f"{self.name}: time_zone"
            raise SettingError(key, self.time_zone, "a known time zone", remedy) from None

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Raise the plan to the minimum of the periods that contain this moment."""
        moment = datetime.fromtimestamp(snapshot.time_s, self._zone())
        least = max((n for period, n in self._parsed() if _inside(period, moment)), default=0)
        if len(plan.deployment.hosts) >= least:
            return unchanged(plan), "", own
        why = f"the minimum at {moment:%a %H:%M} {self.time_zone} is {least} hosts"
        return self.with_hosts(snapshot, plan, least), why, own


def _inside(period: Period, moment: datetime) -> bool:
    """Whether a moment is in a weekly period. An end before the start is on the next day."""
    days, start, end = period
    minute, today = moment.hour * 60 + moment.minute, moment.weekday()
    if start <= end:
        return today in days and start <= minute < end
    evening = today in days and minute >= start
    return evening or ((today - 1) % 7 in days and minute < end)
