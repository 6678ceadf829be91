"""A simulated Spark application: streaming queries in micro-batches on executors that come and go.

The snapshots have the shape of those of the live world: a query is an operator, an instance one of
its task slots, a host an executor. See also `designs/008-micro-batches.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    Instance,
    InstanceReading,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Resources, Topology
from tidegate.simulation.arrivals import ArrivalChunks, Arrivals, SeededArrivals
from tidegate.simulation.batch_queries import (
    Batch,
    BatchQueryState,
    Commit,
    Items,
    QueryEngine,
    QueryTally,
    SourceTally,
)
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.report import Compliance, RunReport, RunSeries
from tidegate.simulation.settings import CloudSettings
from tidegate.simulation.world import SimulatedWorld
from tidegate.units import finite

__all__ = ["BatchSettings", "MicroBatchCloud"]

Floats = NDArray[np.float64]
COPIES = 42
CHUNK_S = 60.0


@dataclass(frozen=True)
class BatchSettings(Value):
    """How a simulated Spark application behaves.

    Args:
        overhead_s: Part of each batch that more slots do not shorten, in seconds.
        overheads_s: The same by query.
        overhead_scv: Squared coefficient of variation of the overhead.
        trigger_interval_s: Trigger interval in seconds, 0 if the next batch starts at once.
        host_startup_s: Time from the request of an executor until it runs, uniform (low, high);
            None for that of the offer.
        warm_up_s: Time until the slots of a new executor take tasks, in seconds.
        lag_visible: Whether the source reports its backlog.
        tasks: Tasks of a batch of a pooled query, None for no limit.
        decision_s: Time until the next decision that snapshots state, in seconds.
        monitoring_s: Interval of the time series, in seconds.
        end_to_end_slo_s: End-to-end latency target, in seconds.
        penalty_usd: Penalty for each item that misses the end-to-end target; without one, for each
            item that misses the SLO of a query.
    """

    overhead_s: float = 0.5
    overheads_s: Mapping[str, float] = field(default_factory=dict)
    overhead_scv: float = 0.0
    trigger_interval_s: float = 0.0
    host_startup_s: tuple[float, float] | None = None
    warm_up_s: float = 0.0
    lag_visible: bool = True
    tasks: int | None = None
    decision_s: float | None = None
    monitoring_s: float = 15.0
    end_to_end_slo_s: float | None = None
    penalty_usd: float = 0.0

    def __post_init__(self) -> None:
        for name in ("overhead_s", "overhead_scv", "trigger_interval_s", "warm_up_s"):
            finite(getattr(self, name), name, low=0, error=SettingError)
        for name, value in self.overheads_s.items():
            finite(value, f"overhead of {name}", low=0, error=SettingError)
        finite(self.monitoring_s, "monitoring_s", above=0, error=SettingError)
        finite(self.penalty_usd, "penalty_usd", low=0, error=SettingError)

    def for_hosts(self) -> CloudSettings:
        """The settings that concern executors."""
        return CloudSettings(
            host_startup_s=self.host_startup_s,
            instance_startup_s=(self.warm_up_s, self.warm_up_s),
            image_download_s=0.0,
            migration_pause_s=0.0,
        )


class MicroBatchCloud(SimulatedWorld):
    """Streaming queries on executors, batch by batch.

    A batch takes all waiting items and runs on the slots that exist when it starts. New executors
    join at the next batch, and released ones leave at its end. Topics connect queries: the output
    of a batch arrives at the next query when the batch is committed.

    Args:
        topology: An operator for each query, with its service time per item (slot-seconds) and, as
            max_instances, the tasks of a batch.
        offer: What can be leased.
        workload: When items arrive, see `Arrivals` and `SeededArrivals`.
        seed: Random seed of the whole world.
        initial: What runs at the beginning, None for one full executor.
        settings: How the application behaves.
        pooled: Whether the operators are shards of one query that has all slots of all executors,
            for policies that place by load; all sources feed it.

    200 items a second of 10 ms on four slots, as in `tidegate.theory.microbatch`:

    >>> from tidegate.simulation import Poisson
    >>> from tidegate.model.topology import Edge, Operator, Resources, Source
    >>> query = Operator("q", Resources(1), service_time_s=0.01, service_scv=0)
    >>> topology = Topology((query,), (Source("in"),), (Edge("in", "q"),))
    >>> world = MicroBatchCloud(topology, HostOffer(Resources(4)), Poisson({"in": 200}), seed=1)
    >>> world.advance(600)
    >>> report = world.report()
    >>> round(report.latency_mean_s, 1), round(report.latency_max_s, 0)
    (1.5, 2.0)
    """

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        workload: Arrivals | SeededArrivals,
        *,
        seed: int,
        initial: Deployment | None = None,
        settings: BatchSettings | None = None,
        pooled: bool = False,
    ) -> None:
        self.pooled, self.settings = pooled, settings or BatchSettings()
        operators = topology.operators
        for operator in operators:
            if operator.service_time_s is None:
                key = f"operator {operator.name}: service_time_s"
                raise SettingError(
                    key, None, "given", "declare the slot-seconds that an item takes"
                )
        self._engine = QueryEngine(
            (replace(operators[0], max_instances=self.settings.tasks), *operators[1:])
            if pooled
            else operators,
            {
                o.name: self.settings.overheads_s.get(o.name, self.settings.overhead_s)
                for o in operators
            },
            self.settings.overhead_scv,
            self.settings.trigger_interval_s,
            seed,
            pooled,
        )
        hosts = SimulatedHosts(topology, offer, self._engine, self.settings.for_hosts(), seed)
        super().__init__(hosts)
        hosts.begin(initial if initial is not None else _one_executor(topology, offer))
        self._tallies = [QueryTally(query.operator) for query in self._engine.queries]
        self._total = SourceTally(self.settings.end_to_end_slo_s)
        names = tuple(tally.operator.name for tally in self._tallies)
        self._series = _SeriesRows(self.settings.monitoring_s, names)
        self._meter = _BatchMeter(self._engine, hosts, self._tallies, self._total, self.settings)
        self._index = {name: n for n, name in enumerate(topology.by_name)}
        # Without edges between queries, and one entry to each source, an item is done at once.
        self._simple = not any(e.origin in self._index for e in topology.edges) and all(
            sum(e.ratio for e in topology.edges if e.origin == s.name) == 1
            for s in topology.sources
        )
        self._left = np.zeros(0, np.int32)
        self._copy_rng = stream(seed, COPIES)
        self._shed_owed = 0.0
        self._chunks = ArrivalChunks(workload, topology, seed, CHUNK_S)
        self._coming = dict[str, Floats]()

    def _measure(self) -> Snapshot:
        return self._meter.snapshot(self.time_s)

    # --- time ---------------------------------------------------------------------------------

    def _next_stop_s(self) -> float:
        if self.time_s >= self._chunks.end_s:
            self._chunks.number += 1
            self._coming = dict(self._chunks.draw())
            for name in () if self.pooled else self._coming:
                self._chunks.source_number(name)
        return min(self._chunks.end_s, self._series.next_s)

    def _run_until(self, stop_s: float) -> None:
        self._take_arrivals(stop_s)
        while (commit := self._engine.step(stop_s)) is not None:
            self._finish(commit)

    def _process_events(self) -> None:
        super()._process_events()
        if self.time_s >= self._series.next_s:
            self._end_row()

    def _take_arrivals(self, stop_s: float) -> None:
        """Send the items that arrive until `stop_s`, less those that are shed, to their queries."""
        for name, times in list(self._coming.items()):
            cut = int(np.searchsorted(times, stop_s))
            taken, self._coming[name] = times[:cut], times[cut:]
            self._total.arrived += len(taken)
            kept = self._shed(np.asarray(taken, np.float64))
            roots = np.arange(len(kept), dtype=np.int64) + len(self._left)
            if not self._simple:
                self._left = np.concatenate((self._left, np.ones(len(kept), np.int32)))
            if self.pooled:
                self._send(0, Items(kept, kept, roots))
                continue
            self._copy(name, Items(kept, kept, roots))

    def _shed(self, times: Floats) -> Floats:
        """The items that remain when exactly the requested fraction is shed, evenly spread."""
        if not self._shed_fraction or not len(times):
            return times
        owed = self._shed_owed + self._shed_fraction * np.arange(len(times) + 1)
        dropped = np.diff(np.floor(owed + 1e-9)) > 0
        self._shed_owed = float(owed[-1] - math.floor(owed[-1] + 1e-9))
        self._total.shed += int(np.count_nonzero(dropped))
        return cast(Floats, times[~dropped])

    def _send(self, query: int, items: Items) -> None:
        self._tallies[query].arrived += len(items.arrived_s)
        self._engine.queries[query].add(items)

    def _copy(self, origin: str, items: Items) -> None:
        """Send the output of items over the edges of their origin; count roots that are done."""
        if self._simple:
            for edge in self.topology.edges:
                if edge.origin == origin:
                    self._send(self._index[edge.target], items)
            return
        children = np.zeros(len(items.roots), np.int32)
        for edge in self.topology.edges:
            if edge.origin != origin:
                continue
            whole = math.floor(edge.ratio)
            copies = np.full(len(items.roots), whole, np.int32)
            if edge.ratio > whole:
                copies += self._copy_rng.random(len(copies)) < edge.ratio - whole
            children += copies
            who = np.repeat(np.arange(len(copies)), copies)
            sent = Items(items.arrived_s[who], items.born_s[who], items.roots[who])
            self._send(self._index[edge.target], sent)
        np.add.at(self._left, items.roots, children - 1)
        roots, first = np.unique(items.roots, return_index=True)
        done = first[self._left[roots] == 0]
        self._total.count(items.arrived_s[done] - items.born_s[done])

    def _finish(self, commit: Commit) -> None:
        batch, tally = commit.batch, self._tallies[commit.query]
        tally.count(batch)
        if self._simple:
            self._total.count(batch.end_s - batch.items.born_s)
            return
        ended = np.full(len(batch.items.roots), batch.end_s)
        self._copy(tally.operator.name, Items(ended, batch.items.born_s, batch.items.roots))

    # --- results ------------------------------------------------------------------------------

    def _end_row(self) -> None:
        now = self.time_s
        self._hosts.forget_gone(now)
        hosts = self._hosts.hosts.values()
        running = sum(host.status(now) == "running" for host in hosts)
        slots = [sum(self._engine.slots(n, now).values()) for n in range(len(self._tallies))]
        loads = self._meter.loads(now - self._series.every_s, now)
        self._series.end_row(now, self._total, self._tallies, slots, (len(hosts), running), loads)

    def report(self) -> RunReport:
        """The results of the run so far."""
        total, slo, loads = self._total, self.settings.end_to_end_slo_s, self._series.loads()
        bound = [tally for tally in self._tallies if tally.operator.slo_s is not None]
        processed = sum(tally.processed for tally in bound)
        late = [sum(tally.late[n] for tally in bound) for n in range(3)]
        late_items = late[0] if slo is None else total.late
        done, quantile = total.finished, total.latencies.quantile
        return RunReport(
            duration_s=self.time_s,
            items_in=total.arrived,
            items_out=done,
            items_queued=total.arrived - done - total.shed,
            items_dropped=total.shed,
            items_shed=total.shed,
            operators=tuple(tally.report() for tally in self._tallies),
            compliance=Compliance(*(1 - n / processed for n in late)) if processed else None,
            slo_compliance=None if slo is None or not done else 1 - total.late / done,
            latency_mean_s=total.latencies.mean_s,
            latency_p50_s=quantile(0.5),
            latency_p90_s=quantile(0.9),
            latency_p95_s=quantile(0.95),
            latency_p99_s=quantile(0.99),
            latency_max_s=total.longest_s if done else None,
            late_items=late_items,
            penalty_cost_usd=late_items * self.settings.penalty_usd,
            time_to_adapt_s=None,
            late_episode_s=None,
            host_load_min=min(loads, default=None),
            host_load_mean=sum(loads) / len(loads) if loads else None,
            host_load_max=max(loads, default=None),
            series=self._series.series(),
            **self._hosts.report(self.time_s),
        )

    def latencies(self) -> LatencySketch:
        """End-to-end latencies so far, ready to be merged with those of other runs."""
        sketch = self._total.latencies
        return LatencySketch(sketch.counts.copy(), sketch.total_s)


def _one_executor(topology: Topology, offer: HostOffer) -> Deployment:
    """One executor whose slots go to the queries in turn."""
    slots = max(len(topology.operators), math.floor(offer.capacity.cpu_cores + 1e-9))
    placed: list[Instance] = []
    counts = dict.fromkeys(topology.by_name, 0)
    while len(placed) < slots:
        before = len(placed)
        for operator in topology.operators:
            if len(placed) < slots and counts[operator.name] < (operator.max_instances or slots):
                counts[operator.name] += 1
                name = f"{operator.name}-{counts[operator.name]}"
                placed.append(Instance(name, operator.name, "host-1"))
        if len(placed) == before:
            break
    return Deployment(("host-1",), tuple(placed))


# --- time series ------------------------------------------------------------------------------


class _SeriesRows:
    """The time series of a run: a row for each monitoring interval (`every_s` seconds)."""

    def __init__(self, every_s: float, names: tuple[str, ...]) -> None:
        self.next_s = self.every_s = every_s
        self._names = names
        self._rows: list[dict[str, float | None]] = []
        self._by_query: dict[str, list[dict[str, float | None]]] = {name: [] for name in names}
        self._before = (0.0, 0, 0, 0)
        self._seen = dict.fromkeys(names, (0, 0, 0))

    def end_row(
        self,
        now_s: float,
        total: SourceTally,
        queries: list[QueryTally],
        instances: list[int],
        hosts: tuple[int, int],
        loads: list[float],
    ) -> None:
        """Add the row of the interval that ends now.

        Args:
            now_s: End of the interval, in seconds.
            total: Counts of source items.
            queries: Counts by query.
            instances: Slots by query.
            hosts: Hosts leased and hosts running.
            loads: Busy share of the slots of each running host.
        """
        then_s, came, out, shed = self._before
        span, fresh = now_s - then_s, total.take_fresh()
        within = None
        if len(fresh) and total.slo_s is not None:
            within = float(np.mean(fresh <= total.slo_s))
        done = late = 0
        for tally, running in zip(queries, instances, strict=True):
            name = tally.operator.name
            arrived, processed, behind = self._seen[name]
            finished, beyond = tally.processed - processed, tally.late[0] - behind
            done, late = done + finished, late + beyond
            self._by_query[name].append(
                {
                    "queue": float(tally.arrived - tally.processed),
                    "arrival_rate_per_s": (tally.arrived - arrived) / span,
                    "processed_per_s": finished / span,
                    "instances": float(running),
                    "late": beyond / finished if finished else None,
                }
            )
            self._seen[name] = (tally.arrived, tally.processed, tally.late[0])
        self._rows.append(
            {
                "time_s": now_s,
                "arrival_rate_per_s": (total.arrived - came) / span,
                "finished_per_s": (total.finished - out) / span,
                "dropped_per_s": (total.shed - shed) / span,
                "latency_mean_s": float(fresh.mean()) if len(fresh) else None,
                "latency_p95_s": float(np.percentile(fresh, 95)) if len(fresh) else None,
                "compliance": within,
                "real_time": 1 - late / done if done else None,
                "hosts": float(hosts[0]),
                "hosts_running": float(hosts[1]),
                "host_load_min": min(loads, default=None),
                "host_load_mean": sum(loads) / len(loads) if loads else None,
                "host_load_max": max(loads, default=None),
            }
        )
        self._before = (now_s, total.arrived, total.finished, total.shed)
        self.next_s = now_s + self.every_s

    def loads(self) -> list[float]:
        """The mean loads of the rows, where known."""
        return [row["host_load_mean"] for row in self._rows if row["host_load_mean"] is not None]

    def series(self) -> RunSeries:
        """All rows, as a report shows them."""
        names = [n for n in RunSeries.__dataclass_fields__ if n != "operators"]
        columns = {name: tuple(row[name] for row in self._rows) for name in names}
        by_query = {
            name: {key: tuple(row[key] for row in rows) for key in rows[0]}
            for name, rows in self._by_query.items()
            if rows
        }
        return RunSeries(**columns, operators=by_query)


# --- measuring --------------------------------------------------------------------------------


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


class _BatchMeter:
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
        self._topology, self._capacity = hosts.topology, hosts.offer.capacity
        self._tallies, self._total = tallies, total
        self._seen = [(0, 0) for _ in tallies]
        self._shed = 0
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
        )

    def _busy(self, start_s: float, end_s: float) -> dict[int, float]:
        busy: dict[int, float] = {}
        for query in self._engine.queries:
            for batch in self._known(query, start_s):
                used = batch.busy_between(start_s, end_s) / sum(batch.hosts.values())
                for host, slots in batch.hosts.items():
                    busy[host] = busy.get(host, 0.0) + used * slots
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
        self._shed = self._total.shed
        latencies = self._total.take_window()
        latency = Latency()
        if len(latencies):
            p50, p95, p99 = np.percentile(latencies, (50, 95, 99)).tolist()
            latency = Latency(float(latencies.mean()), p50, p95, p99)
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
        arrived, processed = self._seen[n]
        self._seen[n] = (tally.arrived, tally.processed)
        if span <= 0:
            return OperatorReading(name, queue_length=waiting)
        recent = query.recent
        items = sum(len(b.items.arrived_s) for b in recent)
        work = sum(b.busy * (b.end_s - b.start_s - b.overhead_s) for b in recent)
        batches = None
        if recent:
            overhead = sum(b.overhead_s for b in recent) / len(recent)
            durations = tuple(b.end_s - b.start_s for b in recent)
            batches = BatchReading(query.trigger_s, durations, overhead)
        # One value a batch, because all its items finish together.
        done = [b for b in recent if len(b.items.arrived_s)]
        delays = tuple(b.end_s - float(b.items.arrived_s.mean()) for b in done)
        tasks, running = query.operator.max_instances, query.running
        slots = sum(running.hosts.values()) if running else 0
        entry = n == 0 or name in self._topology.entries
        return OperatorReading(
            name,
            arrival_rate_per_s=(tally.arrived - arrived) / span,
            processed_per_s=(tally.processed - processed) / span,
            dropped_per_s=(self._total.shed - self._shed) / span if entry else 0.0,
            service_time_s=work / items if items else None,
            queue_length=waiting,
            recent_durations_s=delays or None,
            pending_tasks=None if tasks is None else max(0, tasks - slots) * (running is not None),
            running_tasks=None if tasks is None else min(tasks, slots),
            batches=batches,
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
    )
