"""No streaming query without a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.guards.base import Guard
from tidegate.model import Deployment, Instance, Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory

__all__ = ["EveryQueryRuns"]


@dataclass(frozen=True)
class EveryQueryRuns(Guard):
    """Place a query that fits on no host on the host with the most room.

    A crowded host is better than a query that does not run.
    """

    name: ClassVar[str] = "every-query-runs"
    has_last_word: ClassVar[bool] = True

    def limit(self, snapshot: Snapshot, plan: Plan, own: NoMemory) -> tuple[Reshaped, str, Any]:
        """Add the missing instances."""
        wanted = plan.deployment
        gone = [name for name in snapshot.topology.by_name if not wanted.counts[name]]
        if not gone or not wanted.hosts:
            return Reshaped(wanted), "", own
        sizes = {name: o.demand.cpu_cores for name, o in snapshot.topology.by_name.items()}
        taken = dict.fromkeys(wanted.hosts, 0.0)
        for instance in wanted.instances:
            taken[instance.host] += sizes[instance.operator]
        more = []
        for name in gone:
            host = min(taken, key=lambda host: taken[host])
            taken[host] += sizes[name]
            more.append(Instance(f"{name}-1", name, host))
        why = f"{', '.join(gone)} would not run"
        return Reshaped(Deployment(wanted.hosts, (*wanted.instances, *more))), why, own
