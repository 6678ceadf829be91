"""The backend of a running Spark application: observes its queries and changes its executors."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar, get_args

from tidegate.errors import BackendError, NothingToScale, SettingError
from tidegate.loop.backend import Outcome
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    SloByQuery,
    Snapshot,
)
from tidegate.model.steps import diff
from tidegate.model.topology import Operator, Resources, Topology, sharded_topology
from tidegate.packing import Style
from tidegate.spark.autoscaler.delays import bounded, latency_of
from tidegate.spark.autoscaler.executors import ExecutorManager
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.meter import WARM_UP_S, SourceCount
from tidegate.spark.autoscaler.query_topology import filled, part_of, placed, topology_of
from tidegate.spark.autoscaler.query_watch import QueryWatch
from tidegate.spark.streams.live_settings import LiveSettings

__all__ = ["SloBy", "SparkWorld"]

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

BOUNDARY_WAIT_S = 5.0
"""A turn waits for the end of the batches for at most this time, in seconds."""
POSTPONE_LIMIT_S = 300.0
"""A release is postponed for at most this time, in seconds, however long the batches are."""
POLL_S = 0.1
"""Time between two looks at whether the queries are inside a batch, in seconds."""
LOOKS_UNTIL_A_NAME_IS_UNKNOWN = 3


def _unless_over(
    call: Callable[Concatenate[SparkWorld, P], T],
) -> Callable[Concatenate[SparkWorld, P], T]:
    """Raise NothingToScale in place of other errors once the application has ended."""

    @wraps(call)
    def wrapped(world: SparkWorld, /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return call(world, *given, **named)
        except NothingToScale:
            raise
        except Exception as error:
            if world.gateway.stopped:
                raise NothingToScale("the application has ended") from error
            raise

    return wrapped


SloBy = Literal["delay", "event-age"]
"""Latency that the target is about: the processing delay, or the age by the rows' time stamps."""


class SparkWorld:
    """The backend of a live application. A host is an executor, an instance is a task slot.

    Args:
        gateway: The application.
        hosts: The manager that requests and releases executors.
        offer: Size and price of a host.
        style: Style of the policy; for ``placement`` a query is cut into shards with a host each.
        slo: Latency targets by query. A target that names a query takes precedence over the one in
            the topology; the default is for operators that have none.
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
        dry_run: Whether plans change nothing: neither executors nor live settings.
        closing: Set when the autoscaler stops, so that a release waits no longer; None: set by
            `close` only.
        clock: Returns Unix seconds.
    """

    def __init__(
        self,
        gateway: Gateway,
        hosts: ExecutorManager,
        offer: HostOffer,
        *,
        style: Style = "engines",
        slo: SloByQuery | None = None,
        interval_s: float = 10.0,
        topology: Topology | Callable[[], Topology] | None = None,
        live_settings: LiveSettings | None = None,
        sources: Mapping[str, Callable[[], SourceCount]] | None = None,
        shards: int = 16,
        warm_up_s: float = WARM_UP_S,
        slo_by: SloBy = "delay",
        dry_run: bool = False,
        closing: threading.Event | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.gateway = gateway
        self.hosts = hosts
        self.offer = offer
        self.style = style
        self.slo = slo
        self._looks_for_slo = LOOKS_UNTIL_A_NAME_IS_UNKNOWN
        self.interval_s = interval_s
        self.given_topology = topology
        self.live_settings = live_settings
        self.sources = dict(sources or {})
        self.shards = shards
        if slo_by not in get_args(SloBy):
            raise SettingError("slo_by", slo_by, "delay or event-age")
        self.slo_by = slo_by
        self.dry_run = dry_run
        self.clock = clock
        self._queries = QueryWatch(gateway, 2 * interval_s, warm_up_s)
        self._operators: frozenset[str] = frozenset()
        self._ends: queue.SimpleQueue[str] = queue.SimpleQueue()  # while a release waits for them
        self._waits = threading.Event()
        self._closing = threading.Event() if closing is None else closing
        self._due_s: float | None = None  # since when a release is postponed
        self._chosen: frozenset[str] = frozenset()  # the hosts of a release that is postponed
        self._slowest: BatchReading | None = None
        self._warned = False
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
        self._closing.set()
        if self._end_listening is not None:
            self._end_listening()
            self._end_listening = None
        self.hosts.close()

    def _hear(self, kind: str, text: str) -> None:
        # In Spark's listener thread: only queue the event.
        self._queries.hear(kind, text)
        if kind in ("progress", "idle") and self._waits.is_set():
            self._ends.put(text)

    # --- observe ------------------------------------------------------------------------------

    @_unless_over
    def observe(self) -> Snapshot:
        """A snapshot of all that can be measured now."""
        now_s = self.clock()
        self.hosts.update()
        executors = [host.executor for host in self.hosts.hosts.values() if host.executor]
        # One that is excluded or leaves gets no tasks.
        cores = [e.cores for e in executors if not (e.excluded or e.leaving)]
        if cores:  # assume that the next executor will be like the last one
            capacity = replace(self.offer.capacity, cpu_cores=float(cores[-1]))
            self.offer = replace(self.offer, capacity=capacity)
        joined = {
            h.executor.id: h.executor.added_s for h in self.hosts.hosts.values() if h.executor
        }
        self._note_shed()
        self._queries.look(now_s, sum(cores), joined)
        self._note_shed()
        if refused := self._queries.refused():
            raise BackendError(refused)
        topology = self._topology()
        self._warn_of_unknown_names(topology)
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
        self._slowest = slowest
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
            own_slots=self.live_settings is not None if len(topology.operators) > 1 else None,
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
        age = latency_of(ages)
        return (
            bounded(latency_of(delays, unsure), least_s),
            bounded(age, None if age.p95_s is None else least_s),
        )

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
            raise NothingToScale("no streaming query is running: start one to have it scaled")
        return replace(topology, operators=tuple(self._limits(o) for o in topology.operators))

    def _limits(self, operator: Operator) -> Operator:
        """The operator with its latency target and the maximum of slots that its tasks can use."""
        meter = self._queries.meters.get(operator.name)
        limit = operator.max_instances
        if meter is not None and limit is None:
            # Live settings choose the number of tasks; only the partitions of state are fixed.
            limit = meter.ceiling if self.live_settings is None else meter.state_partitions
        slo_s = operator.slo_s
        if self.slo is not None and (slo_s is None or operator.name in self.slo.by_name):
            slo_s = self.slo.of(operator.name)
        return replace(operator, max_instances=limit, slo_s=slo_s)

    def _warn_of_unknown_names(self, topology: Topology) -> None:
        """Warn once about latency targets for queries that there are not.

        An application may start its queries one after the other, so the first looks do not count.
        """
        self._looks_for_slo -= 1
        if self.slo is None or self._looks_for_slo != 0:
            return
        unknown = self.slo.unknown(topology.by_name)
        if unknown:
            log.warning(
                "the SLO names %s, but no query has that name; the queries are %s",
                ", ".join(unknown),
                ", ".join(sorted(topology.by_name)),
            )

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
            # A query came or went: Spark shares the slots of all hosts in another way.
            self._wanted, new = Deployment(()), here
        self._operators = operators
        if not self._wanted.instances or self.dry_run:
            self._wanted, new = self._running_now(topology, here, new)
        self._wanted = filled(self._wanted, topology, here, new, slots)
        self._filled = set(here)

    def _running_now(
        self, topology: Topology, here: list[str], new: list[str]
    ) -> tuple[Deployment, list[str]]:
        """The deployment with the parallelism that was set, and the hosts that are still to fill.

        Nothing changes unless it was set for every operator and the hosts have room for it.
        """
        settings = self.live_settings
        chosen = {n: settings.chosen_parallelism(n) for n in topology.by_name} if settings else {}
        counts = {name: count for name, count in chosen.items() if count is not None}
        if not counts or len(counts) < len(topology.by_name):
            return self._wanted, new
        found = placed(counts, topology, here, round(self.offer.capacity.cpu_cores))
        return (self._wanted, new) if found is None else (found, [])

    def _busy(self, now_s: float) -> dict[str, float]:
        """Mean number of busy slots over the last two intervals, by host, except for new hosts.

        Spark counts a task's time when the task ends, so a single short interval may show too much.
        """
        busy: dict[str, float] = {}
        seen: dict[str, list[tuple[float, float]]] = {}
        for host in self.hosts.hosts.values():
            if host.executor is None:
                continue
            key = host.executor.id  # a release may exchange the executors of two hosts
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
            executor=host.executor.id if host.executor else None,
            address=host.executor.host if host.executor else None,
            pod=host.executor.pod if host.executor else None,
            container=host.executor.container if host.executor else None,
            excluded=host.excluded,
        )

    def _offer(self) -> HostOffer:
        """The offer with the measured start-up time, if there is one."""
        seen = self.hosts.startups_s[-5:]
        return replace(self.offer, startup_s=sum(seen) / len(seen)) if seen else self.offer

    def _note_shed(self) -> None:
        """Give the meters the rows that were shed: before batches settle, and for new queries."""
        for name, meter in self._queries.meters.items():
            if self.live_settings is not None:
                meter.shed = self.live_settings.shed_rows(name)

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

    @_unless_over
    def apply(self, plan: Plan) -> Outcome:
        """Change the application to match the plan; hosts are released between batches.

        What the cluster manager refuses stays as it was, and the outcome says so. The next turn
        then sees it as it is and plans again.
        """
        before = self._wanted
        steps = diff(before, plan)
        leases = [step.host for step in steps if step.kind == "lease"]
        releases = [step.host for step in steps if step.kind == "release"]
        refused = list(self.hosts.lease(leases)) if leases else []
        notes: list[str] = []
        if releases:
            late, cost = self._release(releases)
            refused += late
            notes += cost
        else:
            self._due_s, self._chosen = None, frozenset()
        notes += self.hosts.waiting()
        here = {h.name for h in self.hosts.hosts.values() if h.status != "draining"}
        self._wanted = self._reached(before, plan.deployment, releases, here)
        self._filled = set(self._wanted.hosts)
        if self.dry_run:
            pass
        elif self.live_settings is not None:
            self.live_settings.set_parallelism(self._wanted.counts)
            self.live_settings.shed_fraction = plan.shed_fraction
        elif plan.shed_fraction:
            refused.append(
                f"{plan.shed_fraction:.0%} should be shed, but the query reads no live settings: "
                "start it with tidegate.spark.streams.live_settings, or set shed to false"
            )
        return Outcome(diff(before, self._wanted), tuple(refused), tuple(notes))

    @staticmethod
    def _reached(
        before: Deployment, planned: Deployment, releases: Sequence[str], here: set[str]
    ) -> Deployment:
        """The planned deployment without hosts that were refused, with hosts that stay."""
        stay = [host for host in before.hosts if host in releases and host in here]
        kept = [i for i in planned.instances if i.host in here]
        names = {i.id for i in kept}
        kept += [i for i in before.instances if i.host in stay and i.id not in names]
        return Deployment((*(h for h in planned.hosts if h in here), *stay), tuple(kept))

    def _release(self, hosts: Sequence[str]) -> tuple[list[str], list[str]]:
        """Release hosts between batches; return why some stay, and what the release costs."""
        if self._chosen != frozenset(hosts):  # a choice takes time, so a postponed one stays
            self.hosts.choose(hosts)
            self._chosen = frozenset(hosts)
        busy = self._await_boundary()
        if busy and (self._closing.is_set() or not self._overdue()):
            why = f"there was no pause between the batches of {busy}"
            return [f"{host} is not released yet: {why}" for host in hosts], []
        waited_s = 0.0 if self._due_s is None else self.clock() - self._due_s
        refused = self.hosts.release(hosts) or []
        if len(refused) == len(hosts):
            return refused, []
        self._due_s, self._chosen = None, frozenset()
        notes = []
        if busy:
            notes.append(
                f"released during a batch of {busy}, after {waited_s:.0f} s without a pause "
                f"between the batches: {self._cost}"
            )
        if not self.gateway.decommissions:
            notes.append(f"spark.decommission.enabled is false: {self._cost}")
            if not self._warned:
                self._warned = True
                log.warning("%s; set it to true when the application starts", notes[-1])
        return refused, notes

    @property
    def _cost(self) -> str:
        """What a release costs a batch that is under way."""
        if self.gateway.decommissions:
            return "tasks that run there end first; their shuffle data is computed again"
        return "tasks that run on a released executor are killed and run again elsewhere"

    def _await_boundary(self) -> str:
        """Wait until no query is inside a batch; return the queries that are when time is up.

        A query that has just reported the end of a batch is between two batches, also if its next
        one begins at once. The wait is at most `BOUNDARY_WAIT_S` and half an interval.
        """
        end_s = time.monotonic() + min(BOUNDARY_WAIT_S, self.interval_s / 2)
        self._ends = queue.SimpleQueue()
        self._waits.set()
        ended: set[str] = set()
        try:
            while True:
                busy = {n for run, n in self.gateway.in_batch().items() if run not in ended}
                left_s = end_s - time.monotonic()
                if not busy or left_s <= 0 or self._closing.is_set():
                    return ", ".join(sorted(busy))
                ended = self._ended_within(min(left_s, POLL_S))
        except BackendError as error:
            log.debug("whether a batch runs is not known: %s", error)
            return ""
        finally:
            self._waits.clear()

    def _ended_within(self, seconds: float) -> set[str]:
        """Runs whose batches end within a time; returns at the first of them."""
        ended: set[str] = set()
        try:
            ended.add(json.loads(self._ends.get(timeout=seconds))["runId"])
            while True:
                ended.add(json.loads(self._ends.get_nowait())["runId"])
        except queue.Empty:
            return ended

    def _overdue(self) -> bool:
        """Whether a release has waited for twice the slowest batch and trigger, or the limit."""
        now_s = self.clock()
        if self._due_s is None:
            self._due_s = now_s
        cycle_s = 0.0
        if self._slowest is not None:
            durations = self._slowest.recent_durations_s
            cycle_s = max(durations, default=0.0) + (self._slowest.trigger_interval_s or 0.0)
        patience_s = min(POSTPONE_LIMIT_S, max(2 * cycle_s, 2 * self.interval_s))
        return now_s - self._due_s >= patience_s


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
