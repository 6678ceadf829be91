"""Hosts and instances of a simulated world: leased, started, moved, failed and paid for.

Costs and start-up times are plain Python, because a plan changes few hosts once a minute. The
engine of the world learns of instances as servers that work from some moment on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np

from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, HostStatus, Instance, Lease, LeaseEnd, Plan
from tidegate.model.steps import Step, diff
from tidegate.model.topology import Resources, Topology
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.settings import CloudSettings
from tidegate.values import Value

__all__ = ["HostEngine", "SimulatedHost", "SimulatedHosts", "SimulatedInstance"]

HOST_START, INSTANCE_START, FAILURE, VICTIM = 11, 12, 13, 14
_NOTHING = Outcome()


class HostEngine(Protocol):
    """What processes items on hosts whose instances start, stop, move and fail."""

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """Add a host that runs from `ready_s`; returns its number."""

    def close_host(self, host: int, until_s: float) -> None:
        """Remove a host at `until_s`."""

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """Add an instance of an operator that works from `ready_s`; returns its slot."""

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Remove an instance; returns when the work that it has begun is done."""

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Pause an instance and continue on another host; returns when it works again."""

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        """Lose an instance; the item that it worked on returns to the head of the queue."""

    def fail_host(self, host: int, now_s: float) -> None:
        """Lose a host, with the instances that were about to leave it."""

    def idle_from(self, host: int, now_s: float) -> float:
        """When the last item on a host is done, `now_s` if there is none."""


@dataclass(slots=True)
class SimulatedHost:
    """A leased host. number: its number in the engine; gone_s: when it is released.

    images: when each image is loaded. leaving: instances that still have to move out.
    """

    id: str
    number: int
    lease: Lease
    ready_s: float
    images: dict[str, float] = field(default_factory=dict)
    memory_mb: float = 0.0
    draining: bool = False
    gone_s: float = math.inf
    leaving: int = 0

    def status(self, now_s: float) -> HostStatus:
        """Its status as a snapshot shows it."""
        if self.draining:
            return "draining"
        return "starting" if self.ready_s > now_s else "running"


@dataclass(frozen=True, slots=True)
class SimulatedInstance(Value):
    """An instance. host: its target host; slot: its place in the engine; ready_s: from when.

    A change replaces it, so that a snapshot may keep the instances of its moment.
    """

    id: str
    operator: str
    number: int
    slot: int
    host: str
    ready_s: float
    works_on: str  # where it still works while it moves


def _between(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """Like `rng.uniform`, which spends several times as long on checking its arguments."""
    low, high = bounds
    return low + (high - low) * rng.random()


class SimulatedHosts:
    """All hosts and instances of a world, and what they cost.

    Time passes only through the `now_s` that callers pass; `next_event_s` is the time of the next
    call that is due. `changes` increases with every change of a host or an instance.

    topology: what runs. offer: what can be leased. engine: what processes items on the hosts.
    settings: start-up times, migration and failures. seed: random seed.
    """

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        engine: HostEngine,
        settings: CloudSettings,
        seed: int,
    ) -> None:
        self.topology = topology
        self.offer = offer
        self.engine = engine
        self.settings = settings
        self.hosts: dict[str, SimulatedHost] = {}
        self.instances: dict[str, SimulatedInstance] = {}
        self.requested = Deployment(())
        self.changes = 0
        self.leased_so_far = 0
        self.paid_units = 0
        self.host_seconds = 0.0
        self.peak_hosts = 0
        self.failures = 0
        self.rescales = 0
        self.ended: tuple[LeaseEnd, ...] = ()
        """Leases that ended since the last plan."""
        self.refused = 0
        self.steps: Counter[str] = Counter()
        self.before_move: Callable[[int, int, float], None] | None = None
        self._index = {name: i for i, name in enumerate(topology.by_name)}
        self._host_rng = stream(seed, HOST_START)
        self._instance_rng = stream(seed, INSTANCE_START)
        self._failure_rng = stream(seed, FAILURE)
        self._victim_rng = stream(seed, VICTIM)
        # (time, order, kind, who); the order makes ties deterministic.
        self._events: list[tuple[float, int, str, str]] = []
        self._first_gone_s = math.inf  # no host is gone before
        self._event_count = 0
        for moment in settings.host_failures_s:
            self._schedule(moment, "fail", "")

    @property
    def next_event_s(self) -> float:
        """Time of the next move or failure."""
        return self._events[0][0] if self._events else math.inf

    def _schedule(self, time_s: float, kind: str, who: str) -> None:
        self._event_count += 1
        heappush(self._events, (time_s, self._event_count, kind, who))

    def process_events(self, now_s: float) -> None:
        """Carry out the moves and failures that are due."""
        while self._events and self._events[0][0] <= now_s:
            _, _, kind, who = heappop(self._events)
            self.changes += 1
            if kind == "move":
                self._move_now(who, now_s)
            elif kind == "fail":
                self._fail(who, now_s)

    # --- plans --------------------------------------------------------------------------------

    def begin(self, deployment: Deployment) -> None:
        """Start with a deployment that runs from the first moment, with images loaded."""
        for name in deployment.hosts:
            self._lease(name, 0.0, startup_s=0.0)
        for instance in deployment.instances:
            host = self.hosts[instance.host]
            host.images[self.topology.by_name[instance.operator].image_name] = 0.0
            self._start(Step("start", instance.host, instance.id, instance.operator), 0.0, 0.0)
        self.requested = deployment

    def apply(self, plan: Plan, now_s: float) -> Outcome:
        """Start the steps that lead to the plan; each refused step comes with its reason."""
        if self.ended:
            self.ended = tuple(end for end in self.ended if end.time_s >= now_s)
        steps = diff(self.requested, plan)
        if not steps:
            return _NOTHING
        self.changes += 1
        self.forget_gone(now_s)
        done: list[Step] = []
        refused: list[str] = []
        occupied: set[str] = set()
        for step in steps:
            if step.kind == "release" and not occupied:  # releases come last
                occupied = {instance.host for instance in self.instances.values()}
            why = self._refusal(step, occupied)
            if why:
                refused.append(f"{step}: {why}")
                continue
            if step.kind == "lease":
                self._lease(step.host, now_s)
            elif step.kind == "start":
                self._start(step, now_s)
            elif step.kind == "stop":
                self._stop(step.instance, now_s)
            elif step.kind == "move":
                self._move(step, now_s)
            else:
                self._release(self.hosts[step.host], now_s)
            done.append(step)
            self.steps[step.kind] += 1
        self.rescales += bool(done)
        self.refused += len(refused)
        self.requested = self._as_requested() if refused else plan.deployment
        return Outcome(tuple(done), tuple(refused))

    def _refusal(self, step: Step, occupied: set[str]) -> str:
        """Why a step is refused, empty if it is possible. occupied: hosts with instances."""
        host = self.hosts.get(step.host)
        if step.kind == "lease":
            if host is not None:
                return "a host of that name is being released"
            most = self.offer.max_hosts
            if most is not None and len(self.hosts) >= most:
                return f"the limit of {most} hosts is reached"
            return ""
        if host is None or (host.draining and step.kind != "stop"):
            return "no such host"
        if step.kind == "release":
            return "instances still run on it" if step.host in occupied else ""
        if step.kind in ("start", "move"):
            if step.operator not in self._index:
                return "the topology has no such operator"
            needs = self.topology.by_name[step.operator].demand.memory_mb
            has = self.offer.capacity.memory_mb
            if host.memory_mb > 0 and host.memory_mb + needs > has + 1e-6:
                return f"it needs {needs:g} MB; {has - host.memory_mb:g} MB are free"
        return ""

    def _as_requested(self) -> Deployment:
        return Deployment(
            tuple(host.id for host in self.hosts.values() if not host.draining),
            tuple(Instance(i.id, i.operator, i.host) for i in self.instances.values()),
        )

    # --- steps --------------------------------------------------------------------------------

    def _lease(self, name: str, now_s: float, startup_s: float | None = None) -> None:
        offer = self.offer
        if startup_s is None:
            bounds = self.settings.host_startup_s or (offer.startup_s, offer.startup_s)
            startup_s = _between(bounds, self._host_rng)
        ready = now_s + startup_s
        number = self.engine.open_host(offer.capacity, ready)
        self.hosts[name] = SimulatedHost(name, number, offer.lease(now_s), ready)
        self.leased_so_far += 1
        self.peak_hosts = max(self.peak_hosts, len(self.hosts))
        if self.settings.host_failures_per_h > 0:
            lives = float(self._failure_rng.exponential(3600 / self.settings.host_failures_per_h))
            self._schedule(ready + lives, "fail", name)

    def _ready_on(
        self, host: SimulatedHost, operator: str, now_s: float, startup_s: float | None
    ) -> float:
        """When an instance can work on a host: host up, image loaded, instance started."""
        image = self.topology.by_name[operator].image_name
        up = max(now_s, host.ready_s)
        if image not in host.images:
            host.images[image] = up + self.settings.image_download_s
        if startup_s is None:
            startup_s = _between(self.settings.instance_startup_s, self._instance_rng)
        return max(up, host.images[image]) + startup_s

    def _start(self, step: Step, now_s: float, startup_s: float | None = None) -> None:
        host = self.hosts[step.host]
        ready = self._ready_on(host, step.operator, now_s, startup_s)
        number = self._index[step.operator]
        slot = self.engine.start(number, host.number, ready)
        host.memory_mb += self.topology.by_name[step.operator].demand.memory_mb
        self.instances[step.instance] = SimulatedInstance(
            step.instance, step.operator, number, slot, host.id, ready, host.id
        )

    def _stop(self, name: str, now_s: float) -> None:
        instance = self.instances.pop(name)
        done = self.engine.stop(instance.number, instance.slot, now_s)
        home = self.hosts[instance.host]
        home.memory_mb -= self.topology.by_name[instance.operator].demand.memory_mb
        worked = self.hosts[instance.works_on]
        if worked is not home:
            self._left(worked, done)
        self._busy_until(worked, done)

    def _move(self, step: Step, now_s: float) -> None:
        """Start a copy on the new host; its state follows once it is up (see `_move_now`)."""
        instance = self.instances[step.instance]
        size = self.topology.by_name[instance.operator].demand.memory_mb
        old, new = self.hosts[instance.host], self.hosts[step.host]
        old.memory_mb -= size
        new.memory_mb += size
        if instance.works_on == instance.host:
            old.leaving += 1
        if instance.works_on == step.host:  # it has not left yet and now stays
            new.leaving -= 1
            self._replace(instance, step.host, now_s, instance.works_on)
            return
        ready_s = max(instance.ready_s, self._ready_on(new, instance.operator, now_s, None))
        self._replace(instance, step.host, ready_s, instance.works_on)
        self._schedule(ready_s, "move", instance.id)

    def _replace(
        self, instance: SimulatedInstance, host: str, ready_s: float, works_on: str
    ) -> None:
        """Note where an instance is to be, from when it works, and where it is until then."""
        name = instance.id
        self.instances[name] = SimulatedInstance(
            name, instance.operator, instance.number, instance.slot, host, ready_s, works_on
        )

    def _move_now(self, name: str, now_s: float) -> None:
        """Pause the instance, transfer its state and continue on the new host."""
        instance = self.instances.get(name)
        if instance is None or instance.works_on == instance.host or instance.ready_s > now_s:
            return  # stopped, or moved elsewhere, in the meantime
        state_mb = self.topology.by_name[instance.operator].state_mb
        settings = self.settings
        pause = settings.migration_pause_s + state_mb * 8 / settings.bandwidth_mbps
        old, new = self.hosts[instance.works_on], self.hosts[instance.host]
        if self.before_move is not None:
            self.before_move(instance.number, instance.slot, now_s)
        resumes = self.engine.move(instance.number, instance.slot, new.number, pause, now_s)
        self._replace(instance, instance.host, resumes, instance.host)
        self._left(old, resumes)

    def _left(self, host: SimulatedHost, when_s: float) -> None:
        host.leaving -= 1
        self._busy_until(host, when_s)

    def _busy_until(self, host: SimulatedHost, when_s: float) -> None:
        """Keep a host that is being released until the last item on it is done."""
        if host.draining:
            before = -math.inf if math.isinf(host.gone_s) else host.gone_s
            latest = max(before, when_s)
            if host.leaving == 0:
                host.gone_s = latest
                self._first_gone_s = min(self._first_gone_s, latest)
                self.engine.close_host(host.number, latest)

    def _release(self, host: SimulatedHost, now_s: float) -> None:
        host.draining = True
        self._busy_until(host, self.engine.idle_from(host.number, now_s))

    # --- ends ---------------------------------------------------------------------------------

    def forget_gone(self, now_s: float) -> None:
        """Add released hosts to the totals and drop them."""
        if now_s < self._first_gone_s:
            return
        for host in [host for host in self.hosts.values() if host.gone_s <= now_s]:
            self._close(host)
        self._first_gone_s = min((host.gone_s for host in self.hosts.values()), default=math.inf)

    def _close(self, host: SimulatedHost) -> None:
        self.changes += 1
        ended = (*self.ended, LeaseEnd(host.id, host.gone_s))
        self.ended = tuple(sorted(ended, key=lambda end: (end.time_s, end.host)))
        self.paid_units += self.units(host, host.gone_s)
        self.host_seconds += host.gone_s - host.lease.started_s
        del self.hosts[host.id]

    def units(self, host: SimulatedHost, now_s: float) -> int:
        """Billing units started on a host."""
        return host.lease.units_paid(min(now_s, host.gone_s))

    def report(self, now_s: float) -> dict[str, Any]:
        """The fields of a `RunReport` that concern hosts."""
        self.forget_gone(now_s)
        hosts = self.hosts.values()
        units = self.paid_units + sum(self.units(host, now_s) for host in hosts)
        seconds = sum(min(now_s, host.gone_s) - host.lease.started_s for host in hosts)
        kinds = ("lease", "release", "start", "stop", "move")
        return {
            "paid_units": units,
            "resource_cost_usd": units * self.offer.price_per_unit_usd,
            "rescales": self.rescales,
            "steps": {kind: self.steps[kind] for kind in kinds},
            "migrations": self.steps["move"],
            "failures": self.failures,
            "refused": self.refused,
            "host_seconds": self.host_seconds + seconds,
            "peak_hosts": self.peak_hosts,
        }

    def _fail(self, name: str, now_s: float) -> None:
        """Lose a host with all its instances; items in work return to their queues."""
        self.forget_gone(now_s)
        running = [host.id for host in self.hosts.values() if host.ready_s <= now_s]
        if not name and running:
            name = running[int(self._victim_rng.integers(len(running)))]
        host = self.hosts.get(name)
        if host is None:
            return
        self.failures += 1
        for instance in [i for i in self.instances.values() if name in (i.host, i.works_on)]:
            size = self.topology.by_name[instance.operator].demand.memory_mb
            self.hosts[instance.host].memory_mb -= size
            old = self.hosts[instance.works_on]
            if old is host:
                self.engine.fail(instance.number, instance.slot, now_s)
                del self.instances[instance.id]
            elif old.draining:
                done = self.engine.stop(instance.number, instance.slot, now_s)
                del self.instances[instance.id]
                self._left(old, done)
            else:  # it was to move here and has not left: it stays
                self._replace(instance, old.id, now_s, old.id)
                old.memory_mb += size
                old.leaving -= 1
        self.engine.fail_host(host.number, now_s)
        host.gone_s = now_s
        self.engine.close_host(host.number, now_s)
        self._close(host)
        self.requested = self._as_requested()
