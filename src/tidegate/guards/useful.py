"""No hosts beyond those that the tasks of the operators can fill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.guards.base import Guard
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped
from tidegate.policies.base import NoMemory

__all__ = ["UsefulHosts", "narrowest"]


@dataclass(frozen=True)
class UsefulHosts(Guard):
    """Limit scale-out to the number of hosts that the tasks of the operators can fill.

    The partitions of a source or of a state limit the tasks of an operator. More slots than tasks
    have no effect. The guard does not release hosts that already run.
    """

    name: ClassVar[str] = "useful-hosts"
    limits_changes_only: ClassVar[bool] = True

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: NoMemory
    ) -> tuple[Reshaped, str, NoMemory]:
        """Clamp scale-out to the useful number of hosts."""
        hosts, now = len(plan.deployment.hosts), len(snapshot.requested.hosts)
        # A placed operator has one instance by definition, which does not limit its tasks.
        useful = None if hosts <= now or self.style == "placement" else _useful_hosts(snapshot)
        if useful is None or hosts <= useful:
            return Reshaped(plan.deployment), "", own
        why = f"more than {useful} hosts would have nothing to do: {narrowest(snapshot)}"
        return self.with_hosts(snapshot, plan, max(now, useful)), why, own


def _useful_hosts(snapshot: Snapshot) -> int | None:
    """Number of hosts that all instances can fill, None when an operator has no limit."""
    limits = [operator.max_instances for operator in snapshot.topology.operators]
    cores = 0.0
    for operator, limit in zip(snapshot.topology.operators, limits, strict=True):
        if limit is None:
            return None
        # A task takes a whole slot, also where several queries share one and reserve a part each.
        cores += limit * max(1.0, operator.demand.cpu_cores)
    return max(1, math.ceil(cores / snapshot.offer.capacity.cpu_cores - 1e-9))


def narrowest(snapshot: Snapshot) -> str:
    """A sentence on which operator limits the throughput, and what helps."""
    limited = [o for o in snapshot.topology.operators if o.max_instances is not None]
    if not limited:
        return "the limit is elsewhere, perhaps in a source or sink"
    narrow = min(limited, key=lambda o: o.max_instances or 0)
    tasks = "1 task" if narrow.max_instances == 1 else f"{narrow.max_instances} tasks"
    return f"{narrow.name} has {tasks} per batch; repartition its input (or its state) for more"
