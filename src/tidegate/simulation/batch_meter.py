"""What can be measured of queries in micro-batches and of their executors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidegate.model import (
    BatchCost,
    BatchReading,
    Host,
    InstanceReading,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Resources
from tidegate.simulation.batch_queries import Batch, BatchQueryState, QueryEngine
from tidegate.simulation.batch_tallies import QueryTally, SourceTally
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.settings import BatchSettings

__all__ = ["BatchMeter", "latency_of"]


@dataclass(frozen=True, slots=True)
class _Window:
    """Measurements since the last turn. busy: slot-seconds by host number."""

    time_s: float
    span_s: float
    operators: tuple[OperatorReading, ...]
    latency: Latency
    batches: BatchReading | None
    busy: dict[int, float]
    cores: tuple[float, ...]


class BatchMeter:
    """Measures queries and their executors; reading it twice at one moment changes nothing."""

    def __init__(
        self,
        engine: QueryEngine,
        hosts: SimulatedHosts,
        tallies: list[QueryTally],
        total: SourceTally,
        settings: BatchSettings,
    ) -> None:
        self._engine, self._hosts, self._settings = engine, hosts, settings
        # What edges really send on is what this world counts.
        edges = tuple(replace(edge, counted=True) for edge in hosts.topology.edges)
        self._topology = replace(hosts.topology, edges=edges)
        self._capacity = hosts.offer.capacity
        self._tallies, self._total = tallies, total
        self._seen = [(0, 0, 0, 0) for _ in tallies]
        self._window: _Window | None = None

    def loads(self, start_s: float, end_s: float) -> list[float]:
        """Busy share of the slots of each running executor between two moments."""
        busy = self._busy(start_s, end_s)
        cores = self._capacity.cpu_cores
        return [
            busy.get(host.number, 0.0) / (cores * (end_s - max(start_s, host.ready_s)))
            for host in self._hosts.hosts.values()
            if host.ready_s < end_s and not host.draining
        ]

    def snapshot(self, now_s: float) -> Snapshot:
        """What can be measured now."""
        before = self._window.time_s if self._window else 0.0
        if self._window is None or now_s > before:
            self._window = self._measure(before, now_s)
        seen = self._window
        self._hosts.forget_gone(now_s)
        return Snapshot(
            now_s,
            self._topology,
            self._hosts.offer,
            tuple(self._host_readings(now_s, seen)),
            tuple(self._instance_readings(now_s, seen)),
            seen.operators,
            seen.latency,
            seen.batches,
            self._settings.decision_s,
            self._hosts.leased_so_far,
            self._hosts.ended,
            own_slots=not self._settings.shared if len(self._tallies) > 1 else None,
        )

    def _busy(self, start_s: float, end_s: float) -> dict[int, float]:
        busy: dict[int, float] = {}
        for query in self._engine.queries:
            for batch in self._known(query, start_s):
                for host, used in batch.busy_by_host(start_s, end_s).items():
                    busy[host] = busy.get(host, 0.0) + used
        return busy

    def _known(self, query: BatchQueryState, start_s: float) -> list[Batch]:
        """Batches that end after `start_s`: not read yet, recent, or running."""
        known = {id(b): b for b in (*query.recent, *query.window)}
        if query.running:
            known[id(query.running)] = query.running
        return [batch for batch in known.values() if batch.end_s > start_s]

    def _measure(self, start_s: float, now_s: float) -> _Window:
        span = now_s - start_s
        busy = self._busy(start_s, now_s) if span > 0 else {}
        readings, cores = [], []
        for n, query in enumerate(self._engine.queries):
            used = sum(b.busy_between(start_s, now_s) for b in self._known(query, start_s))
            cores.append(used / span if span > 0 else 0.0)
            readings.append(self._reading(n, query, now_s, span))
            query.window.clear()
        latencies = self._total.take_window()
        latency = latency_of(latencies)
        known = [r.batches for r in readings if r.batches and r.batches.recent_durations_s]
        slowest = max(known, key=lambda b: float(np.mean(b.recent_durations_s)), default=None)
        if self._engine.pooled:
            shards = len(self._topology.operators)
            pool = readings[0]
            readings = [_share(pool, name, shards) for name in self._topology.by_name]
            cores = [cores[0] / shards] * shards
        return _Window(now_s, span, tuple(readings), latency, slowest, busy, tuple(cores))

    def _reading(
        self, n: int, query: BatchQueryState, now_s: float, span: float
    ) -> OperatorReading:
        tally, name = self._tallies[n], query.operator.name
        waiting = float(query.queued(now_s)) if self._settings.lag_visible else None
        arrived, processed, shed, dropped = self._seen[n]
        self._seen[n] = (tally.arrived, tally.processed, tally.shed, tally.dropped)
        if span <= 0:
            return OperatorReading(name, queue_length=waiting)
        recent = query.recent
        items = sum(len(b.items.arrived_s) for b in recent)
        work = sum(b.used_s for b in recent)
        cost = query.cost
        service_s = work / items if items else None
        if query.costs.fixed_work_s and cost is not None:
            service_s = cost.per_row.value or service_s
        # One value a batch, because all its items finish together.
        done = [b for b in recent if len(b.items.arrived_s)]
        delays = tuple(b.end_s - float(b.items.arrived_s.mean()) for b in done)
        tasks, running = query.operator.max_instances, query.running
        slots = math.floor(running.running_slots) if running else 0
        processed_per_s = (tally.processed - processed) / span
        return OperatorReading(
            name,
            arrival_rate_per_s=(tally.arrived - arrived) / span,
            processed_per_s=processed_per_s,
            dropped_per_s=(tally.shed - shed + tally.dropped - dropped) / span,
            service_time_s=service_s,
            queue_length=waiting,
            recent_durations_s=delays or None,
            pending_tasks=None if tasks is None else max(0, tasks - slots) * (running is not None),
            running_tasks=None if tasks is None else min(tasks, slots),
            batches=_batch_reading(query, cost) if recent else None,
            delay=_delay(query, now_s),
            backlog_s=_backlog_s(waiting, processed_per_s),
            shed_per_s=(tally.shed - shed) / span,
        )

    def _host_readings(self, now_s: float, seen: _Window) -> list[Host]:
        hosts = []
        for host in self._hosts.hosts.values():
            status, there = host.status(now_s), min(seen.span_s, seen.time_s - host.ready_s)
            used = None
            if status != "starting" and there > 0:
                used = seen.busy.get(host.number, 0.0) / (there * self._capacity.cpu_cores)
            hosts.append(Host(host.id, self._capacity, status, used, host.lease))
        return hosts

    def _instance_readings(self, now_s: float, seen: _Window) -> list[InstanceReading]:
        running: dict[str, int] = {}
        for instance in self._hosts.instances.values():
            if instance.ready_s <= now_s:
                running[instance.operator] = running.get(instance.operator, 0) + 1
        rates = {r.operator: r.processed_per_s for r in seen.operators}
        readings = []
        for i in self._hosts.instances.values():
            if i.ready_s > now_s:
                readings.append(InstanceReading(i.id, i.operator, i.host, "starting"))
                continue
            load = rate = None
            if seen.span_s > 0:
                share = running[i.operator]
                demand = self._topology.by_name[i.operator].demand
                cores = seen.cores[i.number] / share
                load = Resources(cores, demand.memory_mb, demand.network_mbps)
                done = rates[i.operator]
                rate = None if done is None else done / share
            readings.append(InstanceReading(i.id, i.operator, i.host, "running", load, rate))
        return readings


def _share(whole: OperatorReading, name: str, shards: int) -> OperatorReading:
    """The reading of one of a number of equal shards of a query."""

    def part(value: float | None) -> float | None:
        return None if value is None else value / shards

    return OperatorReading(
        name,
        arrival_rate_per_s=part(whole.arrival_rate_per_s),
        processed_per_s=part(whole.processed_per_s),
        dropped_per_s=part(whole.dropped_per_s),
        service_time_s=whole.service_time_s,
        queue_length=part(whole.queue_length),
        recent_durations_s=whole.recent_durations_s,
        batches=whole.batches,
        delay=whole.delay,
        backlog_s=whole.backlog_s,
        shed_per_s=part(whole.shed_per_s),
    )


def _batch_reading(query: BatchQueryState, cost: BatchCost | None) -> BatchReading:
    """The last batches of a query, of which there is at least one."""
    recent, costs = query.recent, query.costs
    return BatchReading(
        costs.trigger_s,
        tuple(b.end_s - b.start_s for b in recent),
        sum(b.overhead_s for b in recent) / len(recent),
        cost,
        None if costs.max_rows is None else float(costs.max_rows),
        "" if costs.max_rows is None else f"maxOffsetsPerTrigger={costs.max_rows}",
    )


def _delay(query: BatchQueryState, now_s: float) -> Latency:
    """Processing delay of the items that were done since the last measurement.

    If there are none, the age of the items in work is a lower bound.
    """
    ended = [b.end_s - b.items.arrived_s for b in query.window]
    if ended:
        return latency_of(np.concatenate(ended))
    if query.running is None:
        return Latency()
    return replace(latency_of(now_s - query.running.items.arrived_s), at_least=True)


def _backlog_s(waiting: float | None, processed_per_s: float) -> float | None:
    """Time in which the waiting items are processed at the present throughput, in seconds."""
    if waiting is None or not waiting:
        return waiting
    return waiting / processed_per_s if processed_per_s else None


def latency_of(latencies: NDArray[np.float64]) -> Latency:
    """Mean and percentiles; all missing without any items."""
    if not len(latencies):
        return Latency()
    p50, p95, p99 = np.percentile(latencies, (50, 95, 99)).tolist()
    return Latency(float(latencies.mean()), p50, p95, p99)
