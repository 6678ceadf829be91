"""Queue thresholds: more instances when items wait, fewer when none do (VISP's baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors import SettingError
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import release_empty, start_somewhere, stop_some
from tidegate.policies.base import NoMemory, Policy, Style, setting

__all__ = ["QueueThreshold"]


@dataclass(frozen=True)
class QueueThreshold(Policy):
    """The baseline of the VISP paper: 50 waiting items are one instance too few.

    More than `up` items waiting start one instance, more than `double` two; fewer than `down`
    stop one. A host is leased when all others are full and released when its last instance has
    stopped, whether or not its time is paid. (The authors' code has 250, 1250 and 20 since May
    2017.)

    The paper's 50 / 250 / 1, with 300 items waiting at a single instance:

    >>> from tidegate.testing import steady_snapshot
    >>> policy = QueueThreshold()
    >>> plan, _ = policy.decide(steady_snapshot(hosts=1, queue_length=300), NoMemory())
    >>> plan.deployment.counts["work"]
    3

    C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*,
    PeerJ Computer Science 3:e141, 2017.
    """

    name: ClassVar[str] = "queue-threshold"
    paper: ClassVar[str] = "VISP (Hochreiner et al. 2017), baseline"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)

    up: float = setting(50.0, "more waiting items than this start one instance", low=0)
    double: float = setting(250.0, "more waiting items than this start two", low=0)
    down: float = setting(1.0, "fewer waiting items than this stop one instance", low=0)

    def check(self) -> None:
        """The three thresholds must not cross."""
        if not self.down <= self.up <= self.double:
            shown = f"down {self.down:g}, up {self.up:g}, double {self.double:g}"
            raise SettingError(f"{self.name}: thresholds", shown, "in rising order")

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        """One look at each queue."""
        packing = Packing(snapshot)
        counts = packing.counts
        for operator in snapshot.topology.by_name:
            waiting = snapshot.backlog(operator)
            if waiting is None:
                continue
            if waiting > self.up:
                more = 2 if waiting > self.double else 1
                for _ in range(more):
                    if packing.may_start(operator):
                        start_somewhere(packing, operator)
                text = f"{waiting:g} items wait for {operator}: up to {more} more"
                packing.because("queue", text, operator)
            elif waiting < self.down and counts[operator] > 1:
                stop_some(packing, operator, 1)
                packing.because("idle", f"nothing waits for {operator}: one fewer", operator)
        release_empty(packing)
        return packing.plan(), memory
