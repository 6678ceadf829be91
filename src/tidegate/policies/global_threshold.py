"""Global thresholds: one utilisation for the whole system, the mean (FUGU, section IV-B)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.codec import Value
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.relief import excess_of, relieve
from tidegate.policies.base import Style, setting
from tidegate.policies.local_threshold import ThreeUtilisations, Watch

__all__ = ["GlobalThreshold", "GlobalThresholdMemory"]


@dataclass(frozen=True, slots=True)
class GlobalThresholdMemory(Value):
    """Violations of the mean utilisation."""

    watch: Watch = field(default_factory=Watch)


@dataclass(frozen=True)
class GlobalThreshold(ThreeUtilisations):
    """Scale when the hosts are too busy or too idle on average.

    Above `upper`, the load to move is computed for every host over `target`; below `lower`, the
    host with the least load is released and its operators are redistributed. There are fewer
    decisions than with local thresholds, but a single overloaded host goes unnoticed.

    Two hosts at 0.9 of four cores move (0.9 − 0.6) · 4 = 1.2 cores each to a third one:

    >>> from tidegate.testing import fleet_snapshot
    >>> policy = GlobalThreshold(violations=1)
    >>> hot = fleet_snapshot({"host-1": [1.2, 1.2, 1.2], "host-2": [1.2, 1.2, 1.2]})
    >>> plan, _ = policy.decide(hot, policy.initial_memory())
    >>> [i.id for i in plan.deployment.instances if i.host == "host-3"]
    ['q3-1', 'q6-1']

    T. Heinze et al., *Auto-scaling Techniques for Elastic Data Stream Processing*, ICDE 2014.
    """

    name: ClassVar[str] = "global-threshold"
    paper: ClassVar[str] = "FUGU (Heinze et al. 2014), IV-B"
    style: ClassVar[Style] = "placement"
    needs: ClassVar[tuple[str, ...]] = ("host.utilisation",)
    memory_type: ClassVar[type] = GlobalThresholdMemory

    violations: int = setting(3, "measurements in a row beyond a threshold before acting", low=1)

    def decide(
        self, snapshot: Snapshot, memory: GlobalThresholdMemory
    ) -> tuple[Plan, GlobalThresholdMemory]:
        """Compare the mean utilisation with the thresholds."""
        packing = self.packing(snapshot)
        measured = [used for used in snapshot.pressures.values() if used is not None]
        if not measured or len(measured) < len(snapshot.pressures):
            return packing.plan(), memory  # the mean of what happens to be known is not the mean
        mean = sum(measured) / len(measured)

        watch = memory.watch
        quiet = self.is_quiet(watch.quiet_until_s, snapshot.time_s)
        over = watch.over + 1 if mean > self.upper and not quiet else 0
        under = watch.under + 1 if mean < self.lower and not quiet else 0
        if over >= self.violations:
            self._scale_out(packing, mean)
        elif under >= self.violations:
            self._scale_in(packing, mean)
        else:
            kept = Watch(over, under, watch.quiet_until_s)
            return packing.plan(), GlobalThresholdMemory(kept)
        rest = Watch(quiet_until_s=snapshot.time_s + self.grace_s)
        return packing.plan(), GlobalThresholdMemory(rest)

    def _scale_out(self, packing: Packing, mean: float) -> None:
        excess = {
            host.id: excess_of(host, self.target)
            for host in packing.snapshot.running_hosts
            if host.pressure is not None and host.pressure > self.target
        }
        moved = sum(relieve(packing, excess).values())
        text = (
            f"the mean is {mean:.2f}, above {self.upper:.2f}: {moved} operators leave their hosts"
        )
        packing.because("overload", text)

    def _scale_in(self, packing: Packing, mean: float) -> None:
        running = [h for h in packing.snapshot.running_hosts if h.id in packing.hosts]
        least = min(running, key=lambda host: host.pressure or 0.0)
        low = f"the mean is {mean:.2f}, below {self.lower:.2f}"
        if len(packing.hosts) == 1:
            return
        if packing.evacuate(least.id):
            packing.because("underload", f"{low}: {least.id} is released", least.id)
        else:
            text = f"{low}, but what runs on {least.id} fits nowhere else: its release is cancelled"
            packing.because("release-cancelled", text, least.id)
