"""A fixed number of hosts: what most people run today, sized for the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import NoMemory, Policy, Style, setting

__all__ = ["Static"]


@dataclass(frozen=True)
class Static(Policy):
    """Keep so many hosts, whatever happens. The baseline that everything else has to beat.

    >>> from tidegate.testing import steady_snapshot
    >>> plan, _ = Static(hosts=5).decide(steady_snapshot(hosts=2), NoMemory())
    >>> plan.bounded_target
    5
    """

    name: ClassVar[str] = "static"
    paper: ClassVar[str] = "baseline: fixed provisioning"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()

    hosts: int | None = setting(None, "hosts to keep; none: as many as there are", low=1)

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        """The same number of hosts as ever."""
        packing = Packing(snapshot)
        before = len(packing.hosts)
        if self.hosts is not None:
            set_engines(packing, self.hosts)
            if len(packing.hosts) != before:
                packing.because("static", f"{self.hosts} hosts are wanted, {before} were there")
        return packing.plan(), memory
