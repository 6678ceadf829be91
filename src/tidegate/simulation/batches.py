"""A simulated Spark application: streaming queries in micro-batches on executors that come and go.

The snapshots have the shape of those of the live world: a query is an operator, an instance one of
its task slots, a host an executor. See also `designs/008-micro-batches.md`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import SettingError
from tidegate.model import (
    Deployment,
    HostOffer,
    Instance,
    Snapshot,
)
from tidegate.model.topology import Topology
from tidegate.simulation.arrivals import ArrivalChunks, Arrivals, SeededArrivals
from tidegate.simulation.batch_meter import BatchMeter
from tidegate.simulation.batch_queries import Commit, Items, QueryCosts, QueryEngine
from tidegate.simulation.batch_series import SeriesRows
from tidegate.simulation.batch_tallies import QueryTally, SourceTally
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.report import Compliance, RunReport
from tidegate.simulation.settings import BatchSettings
from tidegate.simulation.shared_slots import SharedEngine
from tidegate.simulation.world import SimulatedWorld

__all__ = ["MicroBatchCloud"]

Floats = NDArray[np.float64]
COPIES = 42
CHUNK_S = 60.0


class MicroBatchCloud(SimulatedWorld):
    """Streaming queries on executors, batch by batch.

    A batch takes all waiting items, or as many as its source admits. If each query has its own
    slots, a batch runs on those that exist when it starts: new executors join at the next batch,
    and released ones leave at its end. If queries share all slots (`BatchSettings.shared`), see
    `SharedEngine`. Topics connect queries: the output of a batch arrives at the next query when the
    batch is committed.

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
        behaviour = self.settings
        if pooled:
            engine = QueryEngine(
                (replace(operators[0], max_instances=behaviour.tasks), *operators[1:]),
                [_costs(behaviour, operators[0].name)],
                seed,
                pooled,
            )
        else:
            # A single query has nobody to share with.
            kind = SharedEngine if behaviour.shared and len(operators) > 1 else QueryEngine
            engine = kind(operators, [_costs(behaviour, o.name) for o in operators], seed)
        self._engine = engine
        hosts = SimulatedHosts(topology, offer, self._engine, self.settings.for_hosts(), seed)
        super().__init__(hosts)
        hosts.begin(initial if initial is not None else _one_executor(topology, offer))
        engine.warm_up_s = self.settings.warm_up_s
        self._tallies = [QueryTally(query.operator) for query in self._engine.queries]
        self._total = SourceTally(self.settings.end_to_end_slo_s)
        names = tuple(tally.operator.name for tally in self._tallies)
        self._series = SeriesRows(self.settings.monitoring_s, names)
        self._meter = BatchMeter(self._engine, hosts, self._tallies, self._total, self.settings)
        self._index = {name: n for n, name in enumerate(topology.by_name)}
        # Without edges between queries, and one entry to each source, an item is done at once.
        self._simple = not any(e.origin in self._index for e in topology.edges) and all(
            sum(e.ratio for e in topology.edges if e.origin == s.name) == 1
            for s in topology.sources
        )
        # Independent queries are judged apart, so that an item's target is that of its query.
        apart = self._simple and len(self._tallies) > 1 and self.settings.end_to_end_slo_s
        self._targets_s = [tally.operator.slo_s if apart else None for tally in self._tallies]
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
        for n, query in enumerate(self._engine.queries):
            for items in query.take_lost():
                self._count_lost(n, items)

    def _count_lost(self, query: int, items: Items) -> None:
        """Count items that found a full buffer; their source items end here if nothing is left."""
        self._tallies[query].dropped += len(items.roots)
        if self._simple:
            self._total.dropped += len(items.roots)
            return
        np.add.at(self._left, items.roots, -1)
        self._total.dropped += int(np.count_nonzero(self._left[np.unique(items.roots)] == 0))

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
            self._note_shed(name, len(taken) - len(kept))
            roots = np.arange(len(kept), dtype=np.int64) + len(self._left)
            if not self._simple:
                self._left = np.concatenate((self._left, np.ones(len(kept), np.int32)))
            if self.pooled:
                self._send(0, Items(kept, kept, roots))
                continue
            self._copy(name, Items(kept, kept, roots))

    def _note_shed(self, source: str, items: int) -> None:
        """Count shed items at the queries that they would have reached first."""
        if not items:
            return
        edges = (
            [(0, 1.0)]
            if self.pooled
            else [
                (self._index[e.target], e.ratio) for e in self.topology.edges if e.origin == source
            ]
        )
        for query, ratio in edges:
            self._tallies[query].arrived += round(items * ratio)
            self._tallies[query].shed += round(items * ratio)

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
            self._total.count(batch.end_s - batch.items.born_s, self._targets_s[commit.query])
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
            items_queued=total.arrived - done - total.shed - total.dropped,
            items_dropped=total.shed + total.dropped,
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

    def batch_durations_s(self, since_s: float = 0.0) -> dict[str, tuple[float, ...]]:
        """Durations of the recent batches of each query that ended after `since_s`, in seconds."""
        return {
            query.operator.name: tuple(
                batch.end_s - batch.start_s for batch in query.recent if batch.end_s > since_s
            )
            for query in self._engine.queries
        }

    def latencies(self) -> LatencySketch:
        """End-to-end latencies so far, ready to be merged with those of other runs."""
        sketch = self._total.latencies
        return LatencySketch(sketch.counts.copy(), sketch.total_s)


def _costs(settings: BatchSettings, query: str) -> QueryCosts:
    """What the settings say about one query."""
    return QueryCosts(
        settings.overheads_s.get(query, settings.overhead_s),
        settings.overhead_scv,
        settings.fixed_works_s.get(query, settings.fixed_work_s),
        settings.trigger_intervals_s.get(query, settings.trigger_interval_s),
        settings.max_rows.get(query),
        settings.change_s.get(query, 0.0),
        settings.buffer_rows.get(query),
    )


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
