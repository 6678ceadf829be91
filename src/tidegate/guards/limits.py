"""Limits on the number of hosts, and on its change in one turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.errors import SettingError
from tidegate.guards.base import Guard, unchanged
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory, setting

__all__ = ["Bounds", "ReleaseLimit", "StepLimit"]


@dataclass(frozen=True)
class Bounds(Guard):
    """Keep the number of hosts between `min_hosts` and `max_hosts`."""

    name: ClassVar[str] = "bounds"
    has_last_word: ClassVar[bool] = True

    min_hosts: int = setting(1, "smallest number of hosts", low=1)
    max_hosts: int | None = setting(None, "largest number of hosts; none: no limit", low=1)

    def check(self) -> None:
        """The bounds must not cross."""
        if self.max_hosts is not None and self.max_hosts < self.min_hosts:
            raise SettingError(
                "max_hosts", self.max_hosts, f"at least min_hosts ({self.min_hosts})"
            )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp the number of hosts."""
        hosts = len(plan.deployment.hosts)
        most = math.inf if self.max_hosts is None else self.max_hosts
        if hosts < self.min_hosts:
            why = f"the minimum is {self.min_hosts} hosts"
            return self.with_hosts(snapshot, plan, self.min_hosts), why, own
        if hosts > most:
            why = f"the maximum is {self.max_hosts} hosts"
            return self.with_hosts(snapshot, plan, int(most)), why, own
        return unchanged(plan), "", own


@dataclass(frozen=True)
class StepLimit(Guard):
    """Limit the number of hosts that one turn adds or releases."""

    name: ClassVar[str] = "step-limit"
    limits_changes_only: ClassVar[bool] = True

    up: int | None = setting(None, "largest number of hosts added per turn; none: no limit", low=1)
    down: int | None = setting(
        None, "largest number of hosts released per turn; none: no limit", low=1
    )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp the change in the number of hosts."""
        now, hosts = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        if self.up is not None and hosts > now + self.up:
            why = f"at most {self.up} more per turn"
            return self.with_hosts(snapshot, plan, now + self.up), why, own
        if self.down is not None and hosts < now - self.down:
            why = f"at most {self.down} fewer per turn"
            return self.with_hosts(snapshot, plan, now - self.down), why, own
        return unchanged(plan), "", own


@dataclass(frozen=True)
class ReleaseLimit(Guard):
    """Release less than a share of the hosts in one turn, or one host.

    A plan that halves a running job is more often a wrong reading than a right decision, and the
    next turn can release more. Of 12 hosts at least 7 stay, of 3 hosts 2, and of 2 hosts 1.
    """

    name: ClassVar[str] = "release-limit"
    limits_changes_only: ClassVar[bool] = True

    share: float = setting(
        0.5, "share of the hosts of which less is released per turn; 1: no limit", low=0, high=1
    )

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Clamp the number of hosts that are released."""
        now, hosts = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        most = max(1, math.ceil(self.share * now - 1e-9) - 1)
        if now - hosts <= most:
            return unchanged(plan), "", own
        why = f"less than {self.share:.0%} of {now} hosts are released in one turn"
        return self.with_hosts(snapshot, plan, now - most), why, own
