"""The backend of a running Spark application: observes its queries and changes its executors."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, get_args

from tidegate.errors import BackendError, SettingError
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
from tidegate.spark.autoscaler.delays import bounded, latency_of
from tidegate.spark.autoscaler.executors import ExecutorManager
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.meter import WARM_UP_S, SourceCount
from tidegate.spark.autoscaler.query_topology import filled, part_of, topology_of
from tidegate.spark.autoscaler.query_watch import QueryWatch
from tidegate.spark.streams.live_settings import LiveSettings

__all__ = ["SloBy", "SparkWorld"]

log = logging.getLogger(__name__)

BOUNDARY_WAIT_S = 5.0

SloBy = Literal["delay", "event-age"]
"""Latency that the target is about: the processing delay, or the age by the rows' time stamps."""


class SparkWorld:
    """The backend of a live application. A host is an executor, an instance is a task slot.

    Args:
        gateway: The application.
        hosts: The manager that requests and releases executors.
        offer: Size and price of a host.
        style: Style of the policy; for ``placement`` a query is cut into shards with a host each.
        slo_s: Latency target of operators that have none, in seconds.
        interval_s: Time between two turns, in seconds.
        topology: Operators by query name, or a function that returns them at each turn; None: every
            query is an operator.
        live_settings: Where the operators read their parallelism and the share to shed; None where
            they do not.
        sources: Functions that count an operator's input, for sources whose lag Spark does not
            report.
        shards: Number of shards of a query for ``placement``.
        warm_up_s: Batches of the first seconds of a query do not count for its cost.
        slo_by: What the latency target is about: ``delay`` (from when rows could be read) or
            ``event-age`` (from the rows' own time stamps, for queries with a watermark).
        clock: Returns Unix seconds.
    """

    def __init__(
        self,
        gateway: Gateway,
        hosts: ExecutorManager,
        offer: HostOffer,
        *,
        style: Style = "engines",
        slo_s: float | None = None,
        interval_s: float = 10.0,
        topology: Topology | Callable[[], Topology] | None = None,
        live_settings: LiveSettings | None = None,
        sources: Mapping[str, Callable[[], SourceCount]] | None = None,
        shards: int = 16,
        warm_up_s: float = WARM_UP_S,
        slo_by: SloBy = "delay",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.gateway = gateway
        self.hosts = hosts
        self.offer = offer
        self.style = style
        self.slo_s = slo_s
        self.interval_s = interval_s
        self.given_topology = topology
        self.live_settings = live_settings
        self.sources = dict(sources or {})
        self.shards = shards
        if slo_by not in get_args(SloBy):
            raise SettingError("slo_by", slo_by, "delay or event-age")
        self.slo_by = slo_by
        self.clock = clock
        self._queries = QueryWatch(gateway, 2 * interval_s, warm_up_s)
        self._operators: frozenset[str] = frozenset()
        self._batch_ended = threading.Event()
        self._wanted = Deployment(())
        self._filled: set[str] = set()
        self._looks: dict[str, list[tuple[float, float]]] = {}
        self._span_s = 2.5 * interval_s  # two intervals, with a margin for late turns
        self._end_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Start listening to the queries."""
        self._end_listening = self.gateway.listen(self._hear)

    def close(self) -> None:
        """Stop listening; the application continues as it is."""
        if self._end_listening is not None:
            self._end_listening()
            self._end_listening = None
        self.hosts.close()

    def _hear(self, kind: str, text: str) -> None:
        # In Spark's listener thread: only queue the event.
        self._queries.hear(kind, text)
        if kind != "started":
            self._batch_ended.set()

    # --- observe ------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """A snapshot of all that can be measured now."""
        now_s = self.clock()
        self.hosts.update()
        cores = [host.executor.cores for host in self.hosts.hosts.values() if host.executor]
        if cores:  # assume that the next executor will be like the last one
            capacity = replace(self.offer.capacity, cpu_cores=float(cores[-1]))
            self.offer = replace(self.offer, capacity=capacity)
        joined = {
            h.executor.id: h.executor.added_s for h in self.hosts.hosts.values() if h.executor
        }
        self._queries.look(now_s, sum(cores), joined)
        if refused := self._queries.refused():
            raise BackendError(refused)
        topology = self._topology()
        shown, names = self._shown(topology)
        self._fill(shown)
        busy = self._busy(now_s)
        readings = {name: self._reading(name, now_s) for name in topology.by_name}
        parts = self.shards if shown is not topology else 1
        operators = tuple(part_of(readings[names[name]], name, parts) for name in shown.by_name)
        delay, event_age = self._end_to_end(topology, readings, now_s)
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
            latency=delay if self.slo_by == "delay" else event_age,
            batches=slowest,
            interval_s=self.interval_s,
            leased_so_far=self.hosts.leased_so_far,
            event_age=event_age,
        )

    @property
    def errors(self) -> dict[str, str]:
        """Errors that ended a query, by its name."""
        return self._queries.errors

    def work_of(self, operator: str) -> list[tuple[int, float]]:
        """Rows and slot-seconds of an operator's recent batches."""
        meter = self._queries.meters.get(operator)
        return meter.batch_work() if meter is not None else []

    def _end_to_end(
        self, topology: Topology, readings: Mapping[str, OperatorReading], now_s: float
    ) -> tuple[Latency, Latency]:
        """Processing delay and event age of the rows that leave the last queries.

        A row that leaves a chain was delayed by each query of it; for the queries before the last
        one their mean delay counts. Independent queries count by their rows.
        """
        exits = {o.name for o in topology.operators} - {e.origin for e in topology.edges}
        delays: list[tuple[float, float]] = []
        ages: list[tuple[float, float]] = []
        unsure, least_s = False, None
        for name in exits:
            meter, seen = self._queries.meters.get(name), readings[name].delay
            before_s = _delay_before_s(topology, readings, name)
            done = meter.latencies(now_s) if meter is not None else []
            delays += [(before_s + delay_s, rows) for delay_s, rows in done]
            ages += meter.event_ages(now_s) if meter is not None else []
            unsure = unsure or seen.at_least
            if seen.p50_s is not None and seen.p50_s > (latency_of(done).p95_s or 0.0):
                # Rows that are not processed yet have waited longer than those that are.
                least_s = max(before_s + seen.p50_s, least_s or 0.0)
        return bounded(latency_of(delays, unsure), least_s), latency_of(ages)

    def _topology(self) -> Topology:
        """The given topology, or the queries that run now as independent operators."""
        active = self._queries.active
        if self.given_topology is not None:
            given = self.given_topology
            topology = given() if callable(given) else given
        elif active:
            slots = round(self.offer.capacity.cpu_cores)
            topology = topology_of(sorted(set(active.values())), slots)
        else:
            raise BackendError("no streaming query is running: start one to have it scaled")
        return replace(topology, operators=tuple(self._limits(o) for o in topology.operators))

    def _limits(self, operator: Operator) -> Operator:
        """The operator with its latency target and the maximum of slots that its tasks can use."""
        meter = self._queries.meters.get(operator.name)
        limit = operator.max_instances
        if meter is not None and limit is None:
            # Live settings choose the number of tasks; only the partitions of state are fixed.
            limit = meter.ceiling if self.live_settings is None else meter.state_partitions
        slo_s = self.slo_s if operator.slo_s is None else operator.slo_s
        return replace(operator, max_instances=limit, slo_s=slo_s)

    def _shown(self, topology: Topology) -> tuple[Topology, dict[str, str]]:
        """The topology in the policy's style, and the query of each of its operators."""
        if self.style != "placement" or len(topology.operators) > 1:
            return topology, {name: name for name in topology.by_name}
        cut = sharded_topology(topology, self.shards)
        whole = topology.operators[0].name
        return cut, dict.fromkeys(cut.by_name, whole)

    def _fill(self, topology: Topology) -> None:
        """Update the assumed deployment: drop lost hosts, and fill hosts that were not requested.

        Spark assigns tasks by itself, so a host uses all its slots as soon as it has started.
        """
        here = [h.name for h in self.hosts.hosts.values() if h.status != "draining"]
        new = [name for name in here if name not in self._filled]
        slots = round(self.offer.capacity.cpu_cores)
        operators = frozenset(topology.by_name)
        if operators != self._operators and self.given_topology is None:
            # A query came or went: Spark shares the slots of all hosts anew.
            self._wanted, new = Deployment(()), here
        self._operators = operators
        self._wanted = filled(self._wanted, topology, here, new, slots)
        self._filled = set(here)

    def _busy(self, now_s: float) -> dict[str, float]:
        """Mean number of busy slots over the last two intervals, by host, except for new hosts.

        Spark counts a task's time when the task ends, so a single short interval may show too much.
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
        """The offer with the measured start-up time, if there is one."""
        seen = self.hosts.startups_s[-5:]
        return replace(self.offer, startup_s=sum(seen) / len(seen)) if seen else self.offer

    def _reading(self, name: str, now_s: float) -> OperatorReading:
        count = self.sources[name]() if name in self.sources else None
        return self._queries.reading(name, now_s, count)

    def _instances(
        self,
        topology: Topology,
        readings: Mapping[str, OperatorReading],
        names: Mapping[str, str],
        busy: Mapping[str, float],
    ) -> tuple[InstanceReading, ...]:
        """Instances with their share of the load of their host and their operator."""
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
        """Change the application to match the plan; hosts are released between two batches."""
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
        if self.live_settings is not None:
            self.live_settings.set_parallelism(self._wanted.counts)
            self.live_settings.shed_fraction = plan.shed_fraction
        elif plan.shed_fraction:
            refused.append(
                f"{plan.shed_fraction:.0%} should be shed, but the query reads no live settings: "
                "start it with tidegate.spark.streams.live_settings, or set shed to false"
            )
        done = tuple(s for s in steps if s.host in here or s.kind in ("stop", "release"))
        return Outcome(done, tuple(refused))

    def _await_boundary(self) -> None:
        """Wait up to `BOUNDARY_WAIT_S` for the end of a batch, so that no task's work is lost."""
        self._batch_ended.clear()
        with contextlib.suppress(BackendError):
            if self.gateway.active_queries():
                self._batch_ended.wait(BOUNDARY_WAIT_S)


def _delay_before_s(
    topology: Topology, readings: Mapping[str, OperatorReading], name: str
) -> float:
    """Mean processing delay of the slowest chain of queries before a query, in seconds."""

    def before_s(name: str, seen: frozenset[str]) -> float:
        origins = {e.origin for e in topology.edges if e.target == name}
        chains = [
            before_s(origin, seen | {origin}) + (readings[origin].delay.mean_s or 0.0)
            for origin in (origins & readings.keys()) - seen
        ]
        return max(chains, default=0.0)

    return before_s(name, frozenset({name}))
