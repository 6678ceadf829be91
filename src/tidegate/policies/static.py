"""A fixed number of hosts, usually sized for the peak: the most common set-up today."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import NoMemory, Policy, Situation, Style, setting

__all__ = ["Static"]


@dataclass(frozen=True)
class Static(Policy):
    """Keep a fixed number of hosts. This is the baseline for all other policies.

    >>> from tidegate.testing import steady_snapshot
    >>> plan, _ = Static(hosts=5).decide(steady_snapshot(hosts=2), NoMemory())
    >>> plan.bounded_target
    5
    """

    name: ClassVar[str] = "static"
    paper: ClassVar[str] = "baseline: fixed provisioning"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()

    hosts: int | None = setting(None, "number of hosts; none: the present number", low=1)

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """Enough hosts to carry the peak load at 70 % utilisation."""
        peak, per_host = situation.peak_instances, situation.instances_per_host
        if peak is None or per_host is None:
            return {}
        return {"hosts": max(1, math.ceil(peak / (0.7 * per_host)))}

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        """The same number of hosts at every turn."""
        packing = Packing(snapshot)
        before = packing.host_count
        if self.hosts is not None:
            set_engines(packing, self.hosts)
            if packing.host_count != before:
                packing.because("static", f"{before} hosts run, {self.hosts} are configured")
        return packing.plan(), memory
