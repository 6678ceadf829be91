"""A running Spark application as a world: observed through its listener, changed by executors."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from tidegate.backend import Outcome
from tidegate.errors import BackendError
from tidegate.model import (
    Deployment,
    Host,
    HostOffer,
    Instance,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.packing import Style
from tidegate.spark.gateway import Gateway
from tidegate.spark.hosts import ExecutorHosts
from tidegate.spark.meter import QueryMeter, latency_of
from tidegate.spark.progress import read_progress
from tidegate.steps import diff
from tidegate.topology import Edge, Operator, Resources, Source, Topology

__all__ = ["SparkWorld", "topology_of"]

log = logging.getLogger(__name__)

BOUNDARY_WAIT_S = 5.0


class Settable(Protocol):
    """What a running topology reads at each micro-batch (see `tidegate.spark.dials`)."""

    shed_fraction: float

    def set_parallelism(self, parallelism: Mapping[str, int]) -> None:
        """Tasks of each operator from its next batch on."""


class SparkWorld:
    """The backend of a live application. A host is an executor, an instance a task slot.

    gateway: the application. hosts: how executors come and go. offer: what a host has and costs.
    style: of the policy; for ``placement`` a query is cut into `shards` that each have a host.
    slo_s: the latency that is wanted. interval_s: between turns.
    topology: operators by query name, None: every query is an operator of its own.
    dials: where the operators read their parallelism and what to shed, None where they do not.
    lags: rows waiting for an operator, by its name, for sources that Spark itself cannot ask.
    """

    def __init__(
        self,
        gateway: Gateway,
        hosts: ExecutorHosts,
        offer: HostOffer,
        *,
        style: Style = "engines",
        slo_s: float | None = None,
        interval_s: float = 10.0,
        topology: Topology | None = None,
        dials: Settable | None = None,
        lags: Mapping[str, Callable[[], float | None]] | None = None,
        shards: int = 16,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.gateway = gateway
        self.hosts = hosts
        self.offer = offer
        self.style = style
        self.slo_s = slo_s
        self.interval_s = interval_s
        self.given_topology = topology
        self.dials = dials
        self.lags = dict(lags or {})
        self.shards = shards
        self.clock = clock
        self.errors: dict[str, str] = {}
        """What ended a query, by its name."""
        self._meters: dict[str, QueryMeter] = {}
        self._triggers: dict[str, float | None] = {}
        self._names: dict[str, str] = {}
        self._heard: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._batch_ended = threading.Event()
        self._wanted = Deployment(())
        self._filled: set[str] = set()
        self._busy_s: dict[str, tuple[float, float]] = {}
        self._end_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._end_listening = self.gateway.listen(self._hear)

    def close(self) -> None:
        """Stop listening; the application goes on as it is."""
        if self._end_listening is not None:
            self._end_listening()
            self._end_listening = None
        self.hosts.close()

    def _hear(self, kind: str, text: str) -> None:
        # In Spark's listener thread: note it, and out.
        self._heard.put((kind, text))
        if kind != "started":
            self._batch_ended.set()

    # --- observe ------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What can be measured now."""
        now_s = self.clock()
        self._names.update(self.gateway.active_queries())
        self.hosts.update()
        cores = [host.executor.cores for host in self.hosts.hosts.values() if host.executor]
        if cores:  # the next one will be like the last; before the first nobody knew
            capacity = replace(self.offer.capacity, cpu_cores=float(cores[-1]))
            self.offer = replace(self.offer, capacity=capacity)
        self._digest(sum(cores))
        topology = self._topology()
        shown, names = self._shown(topology)
        self._fill(shown)
        busy = self._busy(now_s)
        readings = {name: self._reading(name, now_s) for name in topology.by_name}
        parts = self.shards if shown is not topology else 1
        operators = tuple(_part_of(readings[names[name]], name, parts) for name in shown.by_name)
        exits = {o.name for o in topology.operators} - {e.origin for e in topology.edges}
        points = [p for n in exits if n in self._meters for p in self._meters[n].latencies(now_s)]
        slowest = max(
            (r.batches for r in readings.values() if r.batches is not None),
            key=lambda b: b.recent_durations_s[-1],
            default=None,
        )
        return Snapshot(
            time_s=now_s,
            topology=shown,
            offer=self._offer(),
            hosts=tuple(self._host(h.name, busy) for h in self.hosts.hosts.values()),
            instances=self._instances(shown, readings, names, busy),
            operators=operators,
            latency=latency_of(points) if points else Latency(),
            batches=slowest,
            interval_s=self.interval_s,
            leased_so_far=self.hosts.leased_so_far,
        )

    def _digest(self, slots: int) -> None:
        """Read what the listener noted, and what the batches' jobs took."""
        while True:
            try:
                kind, text = self._heard.get_nowait()
            except queue.Empty:
                break
            if kind == "ended":
                run, _, error = text.partition("\n")
                self._ended(run, error)
            elif kind in ("progress", "idle"):
                progress = read_progress(text)
                # The word that nothing came tells no name.
                name = self._names.setdefault(progress.query, progress.name or progress.query[:8])
                meter = self._meters.setdefault(name, QueryMeter(2 * self.interval_s))
                meter.add(progress)
                self.errors.pop(name, None)
        for meter in self._meters.values():
            if meter.run is not None:
                for work in self.gateway.work_of(meter.run, meter.last_job):
                    meter.add_work(work, max(1, slots))

    def _ended(self, run: str, error: str) -> None:
        for name, meter in list(self._meters.items()):
            if meter.run == run:
                del self._meters[name]
                self._triggers.pop(name, None)
                if error:
                    self.errors[name] = error.strip().splitlines()[0]
                    log.warning("query %s has failed: %s", name, self.errors[name])

    def _topology(self) -> Topology:
        """The given one, or the queries that run now side by side."""
        active = self.gateway.active_queries()
        self._names.update(active)
        for query, name in active.items():
            if name not in self._triggers:
                self._triggers[name] = self.gateway.trigger_interval_s(query)
        if self.given_topology is not None:
            topology = self.given_topology
        elif active:
            topology = topology_of(sorted(set(active.values())))
        else:
            raise BackendError("no streaming query runs: start one, and its load will be followed")
        return replace(topology, operators=tuple(self._limits(o) for o in topology.operators))

    def _limits(self, operator: Operator) -> Operator:
        """The operator with its SLO and the most slots that its tasks can use."""
        meter = self._meters.get(operator.name)
        limit = operator.max_instances
        if meter is not None and limit is None:
            # With dials the number of tasks is ours to choose; only state is cut for good.
            limit = meter.ceiling if self.dials is None else meter.state_partitions
        slo_s = self.slo_s if operator.slo_s is None else operator.slo_s
        return replace(operator, max_instances=limit, slo_s=slo_s)

    def _shown(self, topology: Topology) -> tuple[Topology, dict[str, str]]:
        """The topology in the policy's style, and which operator each of its operators is of."""
        if self.style != "placement" or len(topology.operators) > 1:
            return topology, {name: name for name in topology.by_name}
        from tidegate.lab.scenario import sharded_topology

        cut = sharded_topology(topology, self.shards)
        whole = topology.operators[0].name
        return cut, dict.fromkeys(cut.by_name, whole)

    def _fill(self, topology: Topology) -> None:
        """Books of what runs where: hosts that are gone lose theirs, one that came unasked fills.

        Spark hands out tasks by itself; a host works with all its slots from its first moment on.
        """
        here = {h.name: h for h in self.hosts.hosts.values() if h.status != "draining"}
        placed = [
            i for i in self._wanted.instances if i.host in here and i.operator in topology.by_name
        ]
        new = [name for name in here if name not in self._filled]
        names = list(topology.by_name)
        single = all(o.max_instances == 1 for o in topology.operators)
        count = {name: sum(i.operator == name for i in placed) for name in names}
        if single and not placed:
            spread = list(here)
            placed = [
                Instance(f"{name}-1", name, spread[n % len(spread)])
                for n, name in enumerate(names)
                if spread
            ]
        elif not single:
            numbers = {n: max((_number(i.id) for i in placed if i.operator == n), default=0)
                       for n in names}  # fmt: skip
            for host in new:
                for slot in range(round(self.offer.capacity.cpu_cores)):
                    # One of each first, then evenly.
                    name = min(names, key=lambda n: (count[n] > 0, count[n]))
                    limit = topology.by_name[name].max_instances
                    if len(names) == 1 or slot < len(names) or limit is None or count[name] < limit:
                        numbers[name] += 1
                        count[name] += 1
                        placed.append(Instance(f"{name}-{numbers[name]}", name, host))
        self._filled = set(here)
        self._wanted = Deployment(tuple(here), tuple(placed))

    def _busy(self, now_s: float) -> dict[str, float]:
        """Slots in use on average since the last turn, by host; new hosts are missing."""
        busy: dict[str, float] = {}
        seen: dict[str, tuple[float, float]] = {}
        for host in self.hosts.hosts.values():
            if host.executor is None:
                continue
            key = f"{host.name}/{host.executor.id}"
            seen[key] = (now_s, host.executor.busy_s)
            if key in self._busy_s:
                then_s, before = self._busy_s[key]
                if now_s > then_s:
                    busy[host.name] = max(0.0, host.executor.busy_s - before) / (now_s - then_s)
        self._busy_s = seen
        return busy

    def _host(self, name: str, busy: Mapping[str, float]) -> Host:
        host = self.hosts.hosts[name]
        capacity = self.offer.capacity
        if host.executor is not None:
            capacity = replace(capacity, cpu_cores=float(host.executor.cores))
        used = busy.get(name)
        return Host(
            name,
            capacity,
            host.status,
            None if used is None else used / capacity.cpu_cores,
            Lease(self.offer.billing_unit_s, self.offer.price_per_unit_usd, host.leased_s),
        )

    def _offer(self) -> HostOffer:
        """The offer with the start-up time that was seen, where one was."""
        seen = self.hosts.startups_s[-5:]
        return replace(self.offer, startup_s=sum(seen) / len(seen)) if seen else self.offer

    def _reading(self, name: str, now_s: float) -> OperatorReading:
        meter = self._meters.get(name)
        if meter is None:
            return OperatorReading(name)
        reading = meter.reading(name, now_s, self._triggers.get(name))
        if name in self.lags:
            reading = replace(reading, queue_length=self.lags[name]())
        pending, running = self.gateway.tasks_of(meter.run) if meter.run else (None, None)
        return replace(reading, pending_tasks=pending, running_tasks=running)

    def _instances(
        self,
        topology: Topology,
        readings: Mapping[str, OperatorReading],
        names: Mapping[str, str],
        busy: Mapping[str, float],
    ) -> tuple[InstanceReading, ...]:
        """Instances with their share of what their host and their operator did."""
        on_host: dict[str, int] = {}
        for instance in self._wanted.instances:
            on_host[instance.host] = on_host.get(instance.host, 0) + 1
        whole = sum(busy.values())
        found = []
        for instance in self._wanted.instances:
            status = self.hosts.hosts[instance.host].status
            up = status == "running"
            used = busy.get(instance.host)
            done = readings[names[instance.operator]].processed_per_s
            load = rate = None
            if up and used is not None:
                load = Resources(used / on_host[instance.host])
                if done is not None:
                    alike = [
                        i
                        for i in self._wanted.instances
                        if i.host == instance.host and names[i.operator] == names[instance.operator]
                    ]
                    share = used / whole if whole else 1 / max(1, len(busy))
                    rate = done * share / len(alike)
            found.append(
                InstanceReading(
                    instance.id,
                    instance.operator,
                    instance.host,
                    "running" if up else "starting",
                    load,
                    rate,
                )
            )
        return tuple(found)

    # --- apply --------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> Outcome:
        """Bring the application to the plan; what is released goes between two batches."""
        steps = diff(self._wanted, plan)
        leases = [step.host for step in steps if step.kind == "lease"]
        releases = [step.host for step in steps if step.kind == "release"]
        refused = self.hosts.lease(leases) if leases else []
        if releases:
            self._await_boundary()
            self.hosts.release(releases)
        here = {h.name for h in self.hosts.hosts.values() if h.status != "draining"}
        kept = tuple(i for i in plan.deployment.instances if i.host in here)
        self._wanted = Deployment(tuple(h for h in plan.deployment.hosts if h in here), kept)
        self._filled = set(self._wanted.hosts)
        if self.dials is not None:
            self.dials.set_parallelism(self._wanted.counts)
            self.dials.shed_fraction = plan.shed_fraction
        elif plan.shed_fraction:
            refused.append(
                f"{plan.shed_fraction:.0%} should be shed, but this query reads no dials: start it "
                "with tidegate.spark.dials, or set shed to false"
            )
        done = tuple(s for s in steps if s.host in here or s.kind in ("stop", "release"))
        return Outcome(done, tuple(refused))

    def _await_boundary(self) -> None:
        """Wait for the end of a batch, so that no task's work is lost; not for ever."""
        self._batch_ended.clear()
        with contextlib.suppress(BackendError):
            if self.gateway.active_queries():
                self._batch_ended.wait(BOUNDARY_WAIT_S)


def topology_of(queries: list[str]) -> Topology:
    """Queries side by side, each an operator with a source of its own; a slot is an instance."""
    return Topology(
        tuple(Operator(name, Resources(1.0)) for name in queries),
        tuple(Source(f"to-{name}") for name in queries),
        tuple(Edge(f"to-{name}", name) for name in queries),
    )


def _part_of(reading: OperatorReading, name: str, parts: int) -> OperatorReading:
    """A shard's reading: an equal part of what comes, the same times."""

    def part(value: float | None) -> float | None:
        return None if value is None else value / parts

    if parts == 1:
        return reading
    return replace(
        reading,
        operator=name,
        arrival_rate_per_s=part(reading.arrival_rate_per_s),
        processed_per_s=part(reading.processed_per_s),
        queue_length=part(reading.queue_length),
    )


def _number(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0
