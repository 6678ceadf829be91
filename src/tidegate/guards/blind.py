"""How many hosts there are while a policy has no measurements to decide by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.guards.base import Guard, fresh_start, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, without_scale_in
from tidegate.policies.base import setting
from tidegate.units import show_duration

__all__ = ["InitialHosts", "InitialHostsMemory", "WhenBlind", "WhenBlindMemory"]

HOLD, MAXIMUM = "hold", "maximum"

MOST_HOSTS = 10_000
"""Largest number of hosts to ask for without measurements."""
RESTART_S = 30.0
"""A longer time without a turn, and without two turns, counts as a restart."""


@dataclass(frozen=True, slots=True)
class InitialHostsMemory(Value):
    """Whether all measurements were there once since the start.

    seen: whether they were. last_s: time of the last turn. leased: hosts ever leased until then; a
    lower number means that the application was restarted.
    """

    seen: bool = False
    last_s: float | None = None
    leased: int = 0


@dataclass(frozen=True)
class InitialHosts(Guard):
    """Ask for a number of hosts at the start, until the first measurements are there.

    The first measurements of an application take a while: its queries start, and their first
    batches must end. After them the policy decides.
    """

    name: ClassVar[str] = "initial-hosts"
    own_memory: ClassVar[type] = InitialHostsMemory

    hosts: int = setting(
        1, "smallest number of hosts until the first measurements", low=1, high=MOST_HOSTS
    )

    def forget_later(self, own: InitialHostsMemory, now_s: float) -> InitialHostsMemory:
        """Keep what was seen, but no turn of the future."""
        if own.last_s is None or own.last_s <= now_s:
            return own
        return InitialHostsMemory(own.seen, now_s, own.leased)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: InitialHostsMemory
    ) -> tuple[Reshaped, str, InitialHostsMemory]:
        """Raise the plan to the initial number of hosts while measurements are missing."""
        again = fresh_start(own.last_s, snapshot, RESTART_S) or snapshot.leased_so_far < own.leased
        missing = snapshot.missing(self.needs)
        seen = not missing or (own.seen and not again)
        own = InitialHostsMemory(seen, snapshot.time_s, snapshot.leased_so_far)
        if seen or len(plan.deployment.hosts) >= self.hosts:
            return unchanged(plan), "", own
        why = f"{self.hosts} hosts until the first measurements: {_some(missing)} missing"
        return self.with_hosts(snapshot, plan, self.hosts), why, own


@dataclass(frozen=True, slots=True)
class WhenBlindMemory(Value):
    """since_s: when a measurement was first found to be missing, None while all are there."""

    since_s: float | None = None


@dataclass(frozen=True)
class WhenBlind(Guard):
    """Hold, or go to a set number of hosts, when measurements have been missing for a while.

    To hold is to release nothing, as `missing-metrics` does from the first turn; a policy may still
    add hosts for the load that it knows. A number may be lower than what runs: hosts are then
    released without measurements, within the limits of the other guards.
    """

    name: ClassVar[str] = "when-blind"
    own_memory: ClassVar[type] = WhenBlindMemory

    then: str = setting(
        HOLD, "hold (release nothing), maximum (of the offer), or a number of hosts"
    )
    after_s: float = setting(60.0, "time for which a measurement must be missing, s", low=0)

    def check(self) -> None:
        """Refuse anything but the two words and numbers."""
        if self.then not in (HOLD, MAXIMUM):
            self._number()

    def _number(self) -> int:
        text = str(self.then).strip()
        if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_HOSTS:
            allowed = f"hold, maximum, or a number of hosts from 1 to {MOST_HOSTS}"
            raise SettingError(f"{self.name}: then", self.then, allowed)
        return int(text)

    def forget_later(self, own: WhenBlindMemory, now_s: float) -> WhenBlindMemory:
        """Begin to wait again when the wait began in the future."""
        return WhenBlindMemory() if own.since_s is not None and own.since_s > now_s else own

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: WhenBlindMemory
    ) -> tuple[Reshaped, str, WhenBlindMemory]:
        """Replace the plan when a measurement has been missing for too long."""
        missing = snapshot.missing(self.needs)
        if not missing:
            return unchanged(plan), "", WhenBlindMemory()
        since_s = snapshot.time_s if own.since_s is None else own.since_s
        own = WhenBlindMemory(since_s)
        blind_s = snapshot.time_s - since_s
        if blind_s < self.after_s:
            return unchanged(plan), "", own
        why = f"{_some(missing)} missing for {show_duration(blind_s)}"
        most = snapshot.offer.max_hosts
        if self.then == HOLD or (self.then == MAXIMUM and most is None):
            kept = without_scale_in(snapshot, plan.deployment, self.measure)
            return Reshaped(kept), f"{why}: nothing is released", own
        hosts = most if self.then == MAXIMUM and most is not None else self._number()
        word = "the maximum of " if self.then == MAXIMUM else ""
        return self.with_hosts(snapshot, plan, hosts), f"{why}: {word}{hosts} hosts", own


def _some(missing: tuple[str, ...]) -> str:
    """The first of the missing measurements and the number of the others, with a verb."""
    if len(missing) == 1:
        return f"{missing[0]} is"
    return f"{missing[0]} and {len(missing) - 1} more are"
