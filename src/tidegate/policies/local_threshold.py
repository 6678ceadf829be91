"""Local thresholds: every host watches its own utilisation (FUGU, section IV-A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.model import Host, Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.relief import Selection, excess_of, relieve
from tidegate.policies.base import Policy, Style, setting
from tidegate.theory.placement import select_to_move

__all__ = ["LocalThreshold", "LocalThresholdMemory", "ThreeUtilisations", "Watch"]


@dataclass(frozen=True)
class ThreeUtilisations(Policy):
    """The parameters that FUGU's three techniques share; the first three are the important ones."""

    target: float = setting(0.6, "utilisation to which a host is relieved, share", low=0, high=1)
    lower: float = setting(0.3, "a host below this is underloaded, share", low=0, high=1)
    upper: float = setting(0.8, "a host above this is overloaded, share", low=0, high=1)
    grace_s: float = setting(30.0, "time for which a host is left alone after a decision, s", low=0)
    grace_for: Literal["deciding", "affected"] = setting(
        "deciding",
        "hosts that are left alone: the one that decided, or also those that received operators",
        choices=("deciding", "affected"),
    )
    fill: float | None = setting(
        None, "utilisation up to which moves fill a host, share; none: `upper`", low=0, high=1
    )

    def check(self) -> None:
        """Lower, target and upper must be in rising order."""
        if not self.lower < self.target < self.upper:
            shown = f"lower {self.lower:g}, target {self.target:g}, upper {self.upper:g}"
            raise SettingError(f"{self.name}: thresholds", shown, "in rising order")

    def is_quiet(self, until_s: float, now_s: float) -> bool:
        """Whether a host is left alone, until a time that is at most `grace_s` away.

        One that is further away was set before the clock went back.
        """
        return now_s < until_s <= now_s + self.grace_s

    def affected(self, packing: Packing) -> list[str]:
        """Hosts other than the deciding ones that a decision leaves alone too."""
        if self.grace_for == "deciding":
            return []
        return [host for host in packing.hosts if packing.received(host)]

    def packing(self, snapshot: Snapshot) -> Packing:
        """A packing by measured load that fills hosts no further than allowed."""
        return Packing(snapshot, "load", self.upper if self.fill is None else self.fill)


@dataclass(frozen=True, slots=True)
class Watch(Value):
    """The state of a host: violations in a row, and the time until which it is left alone."""

    over: int = 0
    under: int = 0
    quiet_until_s: float = float("-1e300")


_UNWATCHED = Watch()


@dataclass(frozen=True, slots=True)
class LocalThresholdMemory(Value):
    """Watches by host."""

    hosts: Mapping[str, Watch] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalThreshold(ThreeUtilisations):
    """Relieve each host that is too busy, and release each host that is too idle.

    A host above `upper` for `violations` measurements in a row loses operators, selected by subset
    sum, until it is at `target`. New hosts are leased when the others are full. A host below
    `lower` for as many measurements is released if all of its operators fit on the others;
    otherwise the release is cancelled. After a decision the host is left alone for `grace_s`.

    The paper's default is 0.3 / 0.8 with target 0.6. A host at 0.9 of four cores must lose
    (0.9 − 0.6) · 4 = 1.2 cores:

    >>> from tidegate.testing import fleet_snapshot
    >>> policy = LocalThreshold(violations=1)
    >>> hot = fleet_snapshot({"host-1": [1.0, 0.8, 0.7, 0.6, 0.5], "host-2": [1.2]})
    >>> plan, memory = policy.decide(hot, policy.initial_memory())
    >>> [reason.text for reason in plan.reasons]
    ['host-1 is at 0.90, above 0.80: 2 operators leave']
    >>> round(sum(hot.operator(i.operator).demand.cpu_cores
    ...           for i in plan.deployment.instances if i.host == "host-1") / 4, 3)
    0.6

    T. Heinze et al., *Auto-scaling Techniques for Elastic Data Stream Processing*, ICDE 2014.
    """

    name: ClassVar[str] = "local-threshold"
    paper: ClassVar[str] = "FUGU (Heinze et al. 2014), IV-A"
    style: ClassVar[Style] = "placement"
    needs: ClassVar[tuple[str, ...]] = ("host.utilisation",)
    memory_type: ClassVar[type] = LocalThresholdMemory

    violations: int = setting(3, "measurements in a row beyond a threshold before acting", low=1)

    def decide(
        self, snapshot: Snapshot, memory: LocalThresholdMemory
    ) -> tuple[Plan, LocalThresholdMemory]:
        """Relieve the overloaded hosts, then release the underloaded ones, least loaded first."""
        now = snapshot.time_s
        watches = {
            host.id: self._watch(host, memory.hosts.get(host.id), now, first=not memory.hosts)
            for host in snapshot.running_hosts
        }
        packing = self.packing(snapshot)

        over = {
            host.id: host
            for host in snapshot.running_hosts
            if watches[host.id].over >= self.violations
        }
        excess = {name: excess_of(host, self.target) for name, host in over.items()}
        for name, moved in relieve(packing, excess, self.selection(packing)).items():
            host = over[name]
            if moved:
                packing.because(
                    "overload",
                    f"{host.id} is at {host.pressure:.2f}, above {self.upper:.2f}: "
                    f"{moved} operators leave",
                    host.id,
                )

        under = [h for h in snapshot.running_hosts if watches[h.id].under >= self.violations]
        for host in sorted(under, key=lambda host: host.pressure or 0.0):
            if packing.received(host.id) or len(packing.hosts) == 1:
                continue
            low = f"{host.id} is at {host.pressure:.2f}, below {self.lower:.2f}"
            if packing.evacuate(host.id, avoid=over):
                packing.because("underload", f"{low}: it is released", host.id)
            else:
                text = f"{low}, but its operators fit nowhere else: its release is cancelled"
                packing.because("release-cancelled", text, host.id)

        for host in (*over.values(), *under):
            watches[host.id] = Watch(quiet_until_s=now + self.grace_s)
        for name in self.affected(packing):
            watches[name] = Watch(quiet_until_s=now + self.grace_s)
        return packing.plan(), LocalThresholdMemory(
            {host: watch for host, watch in watches.items() if packing.has(host)}
        )

    def selection(self, packing: Packing) -> Selection:
        """The rule that selects the operators that leave a host."""
        return select_to_move

    def _watch(self, host: Host, watch: Watch | None, now_s: float, first: bool) -> Watch:
        if watch is None:  # a host that has just come up is empty, not underloaded
            watch = _UNWATCHED if first else Watch(quiet_until_s=now_s + self.grace_s)
        pressure = host.pressure
        if pressure is None:
            return watch  # a missing measurement neither adds to a violation nor ends it
        if not self.is_quiet(watch.quiet_until_s, now_s):
            if pressure > self.upper:
                return Watch(watch.over + 1, 0, watch.quiet_until_s)
            if pressure < self.lower:
                return Watch(0, watch.under + 1, watch.quiet_until_s)
        if watch.over or watch.under:
            return Watch(0, 0, watch.quiet_until_s)
        return watch  # as of most hosts: of a thousand, none is made again
