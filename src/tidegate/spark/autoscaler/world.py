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

from tidegate.errors import BackendError
from tidegate.loop.backend import Outcome
from tidegate.model import (
    Deployment,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.steps import diff
from tidegate.model.topology import Operator, Resources, Topology, sharded_topology
from tidegate.packing import Style
from tidegate.spark.autoscaler.executors import ExecutorHosts
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.meter import WARM_UP_S, QueryMeter, SourceCount, latency_of
from tidegate.spark.autoscaler.progress import read_progress
from tidegate.spark.autoscaler.query_topology import filled, part_of, topology_of

__all__ = ["SparkWorld"]

log = logging.getLogger(__name__)

BOUNDARY_WAIT_S = 5.0


class Settable(Protocol):
    """What a running topology reads at each micro-batch (see `spark.streams.live_settings`)."""

    shed_fraction: float

    def set_parallelism(self, parallelism: Mapping[str, int]) -> None:
        """Tasks of each operator from its next batch on."""


class SparkWorld:
    """The backend of a live application. A host is an executor, an instance a task slot.

    gateway: the application. hosts: how executors come and go. offer: what a host has and costs.
    style: of the policy; for ``placement`` a query is cut into `shards` that each have a host.
    slo_s: the latency that is wanted. interval_s: between turns.
    topology: operators by query name, or what tells them at each turn; None: every query is an
        operator of its own.
    dials: where the operators read their parallelism and what to shed, None where they do not.
    sources: what those who fill them know, by operator, where Spark itself cannot tell the lag.
    warm_up_s: a query's batches of the first so many seconds do not tell its service time.
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
        topology: Topology | Callable[[], Topology] | None = None,
        dials: Settable | None = None,
        sources: Mapping[str, Callable[[], SourceCount]] | None = None,
        shards: int = 16,
        warm_up_s: float = WARM_UP_S,
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
        self.sources = dict(sources or {})
        self.shards = shards
        self.warm_up_s = warm_up_s
        self.clock = clock
        self.errors: dict[str, str] = {}
        """What ended a query, by its name."""
        self._meters: dict[str, QueryMeter] = {}
        self._triggers: dict[str, float | None] = {}
        self._names: dict[str, str] = {}
        self._heard: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._fresh: set[str] = set()  # runs that were seen starting
        self._batch_ended = threading.Event()
        self._wanted = Deployment(())
        self._filled: set[str] = set()
        self._looks: dict[str, list[tuple[float, float]]] = {}
        self._span_s = 2.5 * interval_s  # two intervals, with some room for late turns
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
        operators = tuple(part_of(readings[names[name]], name, parts) for name in shown.by_name)
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

    def work_of(self, operator: str) -> list[tuple[int, float]]:
        """Rows and slot-seconds of an operator's recent batches; none when it had no batch."""
        meter = self._meters.get(operator)
        return meter.batch_work() if meter is not None else []

    def _digest(self, slots: int) -> None:
        """Read what the listener noted, and what the batches' jobs took."""
        while True:
            try:
                kind, text = self._heard.get_nowait()
            except queue.Empty:
                break
            if kind == "started":
                self._fresh.add(text)
            elif kind == "ended":
                run, _, error = text.partition("\n")
                self._fresh.discard(run)
                self._ended(run, error)
            elif kind in ("progress", "idle"):
                progress = read_progress(text)
                # The word that nothing came tells no name.
                name = self._names.setdefault(progress.query, progress.name or progress.query[:8])
                meter = self._meters.setdefault(
                    name, QueryMeter(2 * self.interval_s, self.warm_up_s)
                )
                meter.add(progress, fresh=progress.run in self._fresh)
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
            given = self.given_topology
            topology = given() if callable(given) else given
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
        cut = sharded_topology(topology, self.shards)
        whole = topology.operators[0].name
        return cut, dict.fromkeys(cut.by_name, whole)

    def _fill(self, topology: Topology) -> None:
        """Books of what runs where: hosts that are gone lose theirs, one that came unasked fills.

        Spark hands out tasks by itself; a host works with all its slots from its first moment on.
        """
        here = [h.name for h in self.hosts.hosts.values() if h.status != "draining"]
        new = [name for name in here if name not in self._filled]
        slots = round(self.offer.capacity.cpu_cores)
        self._wanted = filled(self._wanted, topology, here, new, slots)
        self._filled = set(here)

    def _busy(self, now_s: float) -> dict[str, float]:
        """Slots in use on average in the last two intervals, by host; new hosts are missing.

        Spark counts a task's time when it ends, so that one short look may see more than there is.
        """
        busy: dict[str, float] = {}
        seen: dict[str, list[tuple[float, float]]] = {}
        for host in self.hosts.hosts.values():
            if host.executor is None:
                continue
            key = f"{host.name}/{host.executor.id}"
            looks = [look for look in self._looks.get(key, ()) if look[0] >= now_s - self._span_s]
            seen[key] = [*looks, (now_s, host.executor.busy_s)]
            (then_s, before), (_, after) = seen[key][0], seen[key][-1]
            if now_s > then_s:
                busy[host.name] = min(host.executor.cores, (after - before) / (now_s - then_s))
        self._looks = seen
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
        if name in self.sources:
            reading = meter.counted(reading, self.sources[name](), now_s)
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
                "with tidegate.spark.streams.live_settings, or set shed to false"
            )
        done = tuple(s for s in steps if s.host in here or s.kind in ("stop", "release"))
        return Outcome(done, tuple(refused))

    def _await_boundary(self) -> None:
        """Wait for the end of a batch, so that no task's work is lost; not for ever."""
        self._batch_ended.clear()
        with contextlib.suppress(BackendError):
            if self.gateway.active_queries():
                self._batch_ended.wait(BOUNDARY_WAIT_S)
