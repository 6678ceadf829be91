"""A simulated Spark application: streaming queries in micro-batches on executors that come and go.

The snapshots have the shape of those of the live world: a query is an operator, an instance one of
its task slots, a host an executor. Also see `designs/008-micro-batches.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.errors import InputError, SettingError
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.topology import Topology
from tidegate.simulation.batch_meter import BatchMeter
from tidegate.simulation.batch_queries import Commit, Items, QueryEngine
from tidegate.simulation.batch_tally import QueryBooks, Rows, WholeBooks
from tidegate.simulation.hosts import Fleet
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.report import Compliance, RunReport
from tidegate.simulation.settings import Arrivals, CloudSettings, SeededArrivals
from tidegate.units import finite

__all__ = ["BatchSettings", "MicroBatchCloud"]

Floats = NDArray[np.float64]
ARRIVALS, COPIES = 31, 42
CHUNK_S = 60.0


@dataclass(frozen=True)
class BatchSettings(Value):
    """How a simulated Spark application behaves.

    overhead_s: the part of each batch that no slot shortens; overheads_s: the same by query;
    overhead_scv: its squared coefficient of variation. trigger_interval_s: 0: the next batch
    starts at once. host_startup_s: from the request until an executor runs, uniform (low, high),
    None: the offer's; warm_up_s: until its slots then take tasks. lag_visible: whether the source
    tells how many items wait. tasks: of a batch of a pooled query, None: any number.
    decision_s: what snapshots say about the time until the next decision; monitoring_s: a row of
    the time series each. end_to_end_slo_s: bound on an item's whole way; penalty_usd: for each
    item that takes longer than that (without it: that takes a query longer than its SLO).
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

    def fleet(self) -> CloudSettings:
        """The part that concerns executors."""
        return CloudSettings(
            host_startup_s=self.host_startup_s,
            instance_startup_s=(self.warm_up_s, self.warm_up_s),
            image_download_s=0.0,
            migration_pause_s=0.0,
        )


class MicroBatchCloud:
    """Streaming queries on executors, batch by batch, as a backend.

    A batch takes all that waits and runs on the slots that are there when it begins; new executors
    join at the next one, and released ones leave at its end. Queries are joined by topics: what
    comes of a batch arrives at the next query when the batch is committed.

    topology: an operator for each query, with its service time per item (slot-seconds) and, as
    max_instances, the tasks of a batch. offer, workload, seed, initial: as in `SimulatedCloud`
    (initial None: one full executor). settings: the physics.
    pooled: the operators are shards of one query that has every slot of every executor, for
    policies that place by load; all sources feed it.

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
        self.topology, self.offer, self.pooled = topology, offer, pooled
        self.settings = settings or BatchSettings()
        self.time_s = 0.0
        self._workload: Any = workload
        self._seeded = len(signature(workload.arrivals).parameters) > 2
        self._seed = seed
        operators = topology.operators
        for operator in operators:
            if operator.service_time_s is None:
                key = f"operator {operator.name}: service_time_s"
                raise SettingError(
                    key, None, "given", "declare the slot-seconds that an item takes"
                )
        overheads = {
            o.name: self.settings.overheads_s.get(o.name, self.settings.overhead_s)
            for o in operators
        }
        self._engine = QueryEngine(
            (replace(operators[0], max_instances=self.settings.tasks), *operators[1:])
            if pooled
            else operators,
            overheads,
            self.settings.overhead_scv,
            self.settings.trigger_interval_s,
            seed,
            pooled,
        )
        # A fleet asks an engine for slots only, and never to run.
        engine = cast(Any, self._engine)
        self._fleet = Fleet(topology, offer, engine, self.settings.fleet(), seed)
        self._fleet.begin(initial if initial is not None else _one_executor(topology, offer))
        self._books = [QueryBooks(query.operator) for query in self._engine.queries]
        self._whole = WholeBooks(self.settings.end_to_end_slo_s)
        self._rows = Rows(self.settings.monitoring_s, tuple(b.operator.name for b in self._books))
        self._meter = BatchMeter(
            topology, offer, self._engine, self._fleet, self._books, self._whole,
            lag_visible=self.settings.lag_visible, decision_s=self.settings.decision_s,
        )  # fmt: skip
        self._index = {name: n for n, name in enumerate(topology.by_name)}
        # Without edges between queries, and one entry to each source, an item is done at once.
        self._simple = not any(e.origin in self._index for e in topology.edges) and all(
            sum(e.ratio for e in topology.edges if e.origin == s.name) == 1
            for s in topology.sources
        )
        self._left = np.zeros(0, np.int32)
        self._copy_lots = stream(seed, COPIES)
        self._shed_fraction = self._shed_owed = 0.0
        self._chunk, self._coming = -1, dict[str, Floats]()
        self._snapshot: Snapshot | None = None

    # --- the backend protocol -----------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What can be measured now; the same until time passes or a plan is applied."""
        if self._snapshot is None:
            self._snapshot = self._meter.snapshot(self.time_s)
        return self._snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Begin what leads to the plan; applying it again changes nothing."""
        self._shed_fraction = finite(plan.shed_fraction, "shed_fraction", low=0, high=1)
        outcome = self._fleet.apply(plan, self.time_s)
        self._snapshot = None
        return outcome

    # --- time ---------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, usually until the next decision."""
        end = self.time_s + finite(seconds, "seconds", low=0)
        while self.time_s < end:
            if self.time_s >= (self._chunk + 1) * CHUNK_S:
                self._draw_arrivals()
            stop = min(end, (self._chunk + 1) * CHUNK_S, self._rows.next_s)
            stop = min(stop, max(self._fleet.next_event_s, self.time_s))
            if stop > self.time_s:
                self._take_arrivals(stop)
                while (commit := self._engine.step(stop)) is not None:
                    self._book(commit)
                self.time_s = stop
            self._fleet.happen(self.time_s)
            if self.time_s >= self._rows.next_s:
                self._close_row()
        self._snapshot = None

    def _draw_arrivals(self) -> None:
        """The items of the next minute, from a generator that nothing else draws from."""
        self._chunk += 1
        start, end = self._chunk * CHUNK_S, (self._chunk + 1) * CHUNK_S
        if self._seeded:
            lots = stream(self._seed, ARRIVALS, self._chunk)
            drawn = self._workload.arrivals(start, end, lots)
        else:
            drawn = self._workload.arrivals(start, end)
        known = {source.name for source in self.topology.sources}
        for name in drawn:
            if not self.pooled and name not in known:
                allowed = "a source of the topology: " + ", ".join(sorted(known))
                raise InputError("arrivals of", name, allowed)
        self._coming = dict(drawn)

    def _take_arrivals(self, stop: float) -> None:
        """Items that come until `stop`, less those that are shed, to the queries they feed."""
        for name, times in list(self._coming.items()):
            cut = int(np.searchsorted(times, stop))
            taken, self._coming[name] = times[:cut], times[cut:]
            self._whole.came += len(taken)
            kept = self._unshed(np.asarray(taken, np.float64))
            roots = np.arange(len(kept), dtype=np.int64) + len(self._left)
            if not self._simple:
                self._left = np.concatenate((self._left, np.ones(len(kept), np.int32)))
            if self.pooled:
                self._send(0, Items(kept, kept, roots))
                continue
            self._copy(name, Items(kept, kept, roots))

    def _unshed(self, times: Floats) -> Floats:
        """What is left after shedding the declared fraction, exactly: every so-manieth item."""
        if not self._shed_fraction or not len(times):
            return times
        owed = self._shed_owed + self._shed_fraction * np.arange(len(times) + 1)
        dropped = np.diff(np.floor(owed + 1e-9)) > 0
        self._shed_owed = float(owed[-1] - math.floor(owed[-1] + 1e-9))
        self._whole.shed += int(np.count_nonzero(dropped))
        return cast(Floats, times[~dropped])

    def _send(self, query: int, items: Items) -> None:
        self._books[query].arrived += len(items.came_s)
        self._engine.queries[query].add(items)

    def _copy(self, origin: str, items: Items) -> None:
        """Send what comes of items over all edges of their origin; book the roots that are done."""
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
                copies += self._copy_lots.random(len(copies)) < edge.ratio - whole
            children += copies
            who = np.repeat(np.arange(len(copies)), copies)
            sent = Items(items.came_s[who], items.born_s[who], items.roots[who])
            self._send(self._index[edge.target], sent)
        np.add.at(self._left, items.roots, children - 1)
        roots, first = np.unique(items.roots, return_index=True)
        done = first[self._left[roots] == 0]
        self._whole.book(items.came_s[done] - items.born_s[done])

    def _book(self, commit: Commit) -> None:
        batch, books = commit.batch, self._books[commit.query]
        books.book(batch)
        if self._simple:
            self._whole.book(batch.end_s - batch.items.born_s)
            return
        ended = np.full(len(batch.items.roots), batch.end_s)
        self._copy(books.operator.name, Items(ended, batch.items.born_s, batch.items.roots))

    # --- results ------------------------------------------------------------------------------

    def _close_row(self) -> None:
        now = self.time_s
        self._fleet.forget_gone(now)
        hosts = self._fleet.hosts.values()
        running = sum(host.ready_s <= now and not host.draining for host in hosts)
        slots = [sum(self._engine.lent(n, now).values()) for n in range(len(self._books))]
        loads = self._meter.loads(now - self._rows.every_s, now)
        self._rows.close(now, self._whole, self._books, slots, (len(hosts), running), loads)

    def report(self) -> RunReport:
        """What the run comes to so far."""
        now, fleet, whole = self.time_s, self._fleet, self._whole
        fleet.forget_gone(now)
        units = fleet.paid_units + sum(fleet.units(host, now) for host in fleet.hosts.values())
        seconds = sum(min(now, host.gone_s) - host.lease.started_s for host in fleet.hosts.values())
        bound = [books for books in self._books if books.operator.slo_s is not None]
        processed = sum(books.processed for books in bound)
        late = [sum(books.late[n] for books in bound) for n in range(3)]
        slo, loads = self.settings.end_to_end_slo_s, self._rows.loads()
        late_items = late[0] if slo is None else whole.late
        quantile = whole.latencies.quantile
        return RunReport(
            duration_s=now,
            items_in=whole.came,
            items_out=whole.out,
            items_queued=whole.came - whole.out - whole.shed,
            items_dropped=whole.shed,
            items_shed=whole.shed,
            operators=tuple(books.report() for books in self._books),
            compliance=Compliance(*(1 - n / processed for n in late)) if processed else None,
            slo_compliance=None if slo is None or not whole.out else 1 - whole.late / whole.out,
            latency_mean_s=whole.latencies.mean_s,
            latency_p50_s=quantile(0.5),
            latency_p90_s=quantile(0.9),
            latency_p95_s=quantile(0.95),
            latency_p99_s=quantile(0.99),
            latency_max_s=whole.longest_s if whole.out else None,
            paid_units=units,
            resource_cost_usd=units * self.offer.price_per_unit_usd,
            late_items=late_items,
            penalty_cost_usd=late_items * self.settings.penalty_usd,
            rescales=fleet.rescales,
            steps={
                kind: fleet.steps[kind] for kind in ("lease", "release", "start", "stop", "move")
            },
            migrations=fleet.steps["move"],
            failures=fleet.failures,
            refused=fleet.refused,
            time_to_adapt_s=None,
            late_episode_s=None,
            host_load_min=min(loads, default=None),
            host_load_mean=sum(loads) / len(loads) if loads else None,
            host_load_max=max(loads, default=None),
            host_seconds=fleet.host_seconds + seconds,
            peak_hosts=fleet.peak_hosts,
            series=self._rows.series(),
        )

    def latencies(self) -> LatencySketch:
        """End-to-end latencies so far, ready to be merged with those of other runs."""
        sketch = self._whole.latencies
        return LatencySketch(sketch.counts.copy(), sketch.total_s)


def _one_executor(topology: Topology, offer: HostOffer) -> Deployment:
    """One executor whose slots are dealt out to the queries in turn."""
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
