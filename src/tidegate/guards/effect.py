"""Two more guards: no host without work to do, and no more of what did not help."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.codec import Value
from tidegate.guards import Guard
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import Reshaped, grows, without_scale_out
from tidegate.policies.base import NoMemory, setting
from tidegate.units import show_duration

__all__ = ["Effect", "EffectMemory", "UsefulHosts"]


@dataclass(frozen=True)
class UsefulHosts(Guard):
    """No more hosts than the operators' instances can fill.

    An operator that is cut into so many tasks, by its source's partitions or by those of its
    state, gains nothing from more slots. What already runs is left to the policy.
    """

    name: ClassVar[str] = "useful-hosts"

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: NoMemory
    ) -> tuple[Reshaped, str, NoMemory]:
        """Clamp growth to the hosts that have work."""
        hosts, now = len(plan.deployment.hosts), len(snapshot.requested.hosts)
        useful = _useful_hosts(snapshot)
        # A placed operator has one instance by definition, which says nothing of its tasks.
        if self.style == "placement" or useful is None or hosts <= max(now, useful):
            return Reshaped(plan.deployment), "", own
        why = f"more than {useful} hosts would have nothing to do: {_narrowest(snapshot)}"
        return self._hosts(snapshot, plan, max(now, useful)), why, own


def _useful_hosts(snapshot: Snapshot) -> int | None:
    """Hosts that all instances together can fill, None when some operator has no limit."""
    limits = [operator.max_instances for operator in snapshot.topology.operators]
    cores = 0.0
    for operator, limit in zip(snapshot.topology.operators, limits, strict=True):
        if limit is None:
            return None
        cores += limit * operator.demand.cpu_cores
    return max(1, math.ceil(cores / snapshot.offer.capacity.cpu_cores - 1e-9))


def _narrowest(snapshot: Snapshot) -> str:
    limited = [o for o in snapshot.topology.operators if o.max_instances is not None]
    if not limited:
        return "the limit is elsewhere, at its source or sink perhaps"
    narrow = min(limited, key=lambda o: o.max_instances or 0)
    tasks = "1 task" if narrow.max_instances == 1 else f"{narrow.max_instances} tasks"
    return f"{narrow.name} has {tasks} a batch; repartition its input (or its state) for more"


@dataclass(frozen=True, slots=True)
class EffectMemory(Value):
    """How things were when it last grew, and since when growing is known not to help.

    hosts: running then; done_per_s: throughput then; grew_s, found_s: when.
    """

    hosts: int = 0
    done_per_s: float | None = None
    grew_s: float | None = None
    found_s: float | None = None


@dataclass(frozen=True)
class Effect(Guard):
    """Judge every growth by what came of it; where throughput stayed as it was, do not go on.

    It only speaks while there is more to do than is done (something waits, or the latency is over
    the operators' SLO); otherwise an unchanged throughput is all that was asked for.
    """

    name: ClassVar[str] = "effect"
    own_memory: ClassVar[type] = EffectMemory

    min_gain: float = setting(0.1, "rise of the throughput that counts as an effect, share", low=0)
    settle_s: float = setting(30.0, "time for new hosts to show an effect, s", low=0)
    hold_s: float = setting(300.0, "time before trying again what did not help, s", low=0)

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: EffectMemory
    ) -> tuple[Reshaped, str, EffectMemory]:
        """Compare with how things were at the last growth; hold where it did not help."""
        now_s, running = snapshot.time_s, len(snapshot.running_hosts)
        done = _throughput(snapshot)
        own = self._judged(own, now_s, running, done, _overloaded(snapshot))
        if not grows(snapshot, plan.deployment):
            return Reshaped(plan.deployment), "", own
        if own.found_s is not None:
            allowed = without_scale_out(snapshot, plan.deployment, self.measure)
            left = show_duration(own.found_s + self.hold_s - now_s)
            before = "?" if own.done_per_s is None else f"{own.done_per_s:.0f}"
            why = (
                f"{running - own.hosts} hosts were added and throughput is unchanged "
                f"({before}/s → {done or 0:.0f}/s): {_narrowest(snapshot)}; tried again in {left}"
            )
            return Reshaped(allowed), why, own
        if own.grew_s is None and len(plan.deployment.hosts) > len(snapshot.requested.hosts):
            own = EffectMemory(running, done, now_s)
        return Reshaped(plan.deployment), "", own

    def _judged(
        self, own: EffectMemory, now_s: float, running: int, done: float | None, overloaded: bool
    ) -> EffectMemory:
        if own.grew_s is None:
            return own
        if own.found_s is not None:
            recovered = done is not None and own.done_per_s is not None and self._helped(own, done)
            if recovered or not overloaded or now_s - own.found_s >= self.hold_s:
                return EffectMemory()
            return own
        if running <= own.hosts:
            # The new hosts are not here yet: the time to settle begins when they are.
            return replace(own, grew_s=now_s)
        if now_s - own.grew_s < self.settle_s:
            return own
        if done is None or own.done_per_s is None or not overloaded or self._helped(own, done):
            return EffectMemory()
        return replace(own, found_s=now_s)

    def _helped(self, own: EffectMemory, done: float) -> bool:
        return done >= (own.done_per_s or 0.0) * (1 + self.min_gain)


def _throughput(snapshot: Snapshot) -> float | None:
    """Items a second that the entries process, None when one is missing."""
    rates = [snapshot.reading[name].processed_per_s for name in snapshot.topology.entries]
    known = [rate for rate in rates if rate is not None]
    return math.fsum(known) if known and len(known) == len(rates) else None


def _overloaded(snapshot: Snapshot) -> bool:
    """Whether more comes than is done, or what is done comes too late."""
    slos = [o.slo_s for o in snapshot.topology.operators if o.slo_s is not None]
    p95_s = snapshot.latency.p95_s
    if slos and p95_s is not None and p95_s > max(slos):
        return True
    for name in snapshot.topology.entries:
        reading = snapshot.reading[name]
        if reading.arrival_rate_per_s is None or reading.processed_per_s is None:
            continue
        if reading.arrival_rate_per_s > 1.05 * reading.processed_per_s:
            return True
    return False
