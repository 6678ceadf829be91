"""A policy for tests of the wrappers around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style, setting


@dataclass(frozen=True)
class FixedTarget(Policy):
    """A policy with a fixed number of hosts, which counts its decisions."""

    name: ClassVar[str] = "fixed"
    paper: ClassVar[str] = "test"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)
    memory_type: ClassVar[type] = int

    hosts: int = setting(1, "number of hosts", low=1)

    def decide(self, snapshot: Snapshot, memory: int) -> tuple[Plan, int]:
        packing = Packing(snapshot)
        set_engines(packing, self.hosts)
        packing.because("fixed", f"{self.hosts} hosts are wanted")
        return packing.plan(), memory + 1
