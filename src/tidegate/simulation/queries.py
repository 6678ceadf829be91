"""A simulated fleet: streaming queries at home on hosts, in micro-batches that share the CPU.

Here a batch's length follows from how crowded its host is, and an overfull host has fewer and
larger batches instead of an endless queue, as Spark's have. Hosts that are processes on one machine
also share that machine. The snapshots have the shape of those of the live fleet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.errors import InputError, SettingError
from tidegate.loop.backend import Outcome
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.topology import Resources, Topology
from tidegate.simulation.hosts import Fleet
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.settings import CloudSettings
from tidegate.units import finite

__all__ = ["QueryCloud", "QueryCost", "QuerySettings"]

Floats = NDArray[np.float64]
WORK = 51
RECENT = 10
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class QueryCost(Value):
    """What the batches of a query cost on a warm host.

    batch_cpu_s, row_cpu_s: CPU seconds of a batch, and of each row in it. cores: that a batch keeps
    busy when nobody else wants them. scv: squared coefficient of variation of a batch's work.
    """

    batch_cpu_s: float
    row_cpu_s: float = 0.0
    cores: float = 1.0
    scv: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch_cpu_s", "row_cpu_s", "scv"):
            finite(getattr(self, name), name, low=0, error=SettingError)
        finite(self.cores, "cores", above=0, error=SettingError)

    def cpu_s(self, rows: float) -> float:
        """CPU seconds of a batch of so many rows."""
        return max(1e-6, self.batch_cpu_s + self.row_cpu_s * rows)


@dataclass(frozen=True)
class QuerySettings(Value):
    """How a simulated fleet behaves.

    trigger_s: seconds between the begins of batches that keep up; one that is late starts at once.
    interval_s: between decisions. pause_s: a move's, in which the query runs nowhere; cold: so many
    times the usual work has a query's first batch on a host. host_startup_s: from lease to work.
    host_cores: CPU that a host can use at most, None: its capacity; machine_cores: that all hosts
    share, None: each has a machine of its own. step_s: of simulated time.
    """

    trigger_s: float = 1.0
    interval_s: float = 5.0
    pause_s: float = 1.0
    cold: float = 1.0
    host_startup_s: float = 20.0
    host_cores: float | None = None
    machine_cores: float | None = None
    step_s: float = 0.02

    def __post_init__(self) -> None:
        for name in ("trigger_s", "interval_s", "step_s", "cold"):
            finite(getattr(self, name), name, above=0, error=SettingError)
        for name in ("pause_s", "host_startup_s"):
            finite(getattr(self, name), name, low=0, error=SettingError)


@dataclass
class _Batch:
    """A batch that runs. left: share of it that is still to do; whole_s: what it takes alone."""

    began_s: float
    mean_came_s: float
    rows: float
    whole_s: float
    left: float = 1.0


@dataclass
class _Query:
    """One query. next_file: the first that no batch has taken. going: (host, pause) of a move."""

    name: str
    cost: QueryCost
    came_s: Floats
    rows: Floats
    host: int = NOWHERE
    ready_s: float = 0.0
    cold: bool = True
    due_s: float = 0.0
    next_file: int = 0
    batch: _Batch | None = None
    going: tuple[int, float] | None = None
    cpu_s: float = 0.0
    done_rows: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    durations_s: list[float] = field(default_factory=list)


class _Engine:
    """The queries, and the hosts as `Fleet` wants them from an engine."""

    def __init__(self, queries: list[_Query], settings: QuerySettings, seed: int) -> None:
        self.queries, self.settings = queries, settings
        self.capacities: list[float] = []
        self._lots = stream(seed, WORK)

    # --- for the fleet ------------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        self.capacities.append(self.settings.host_cores or capacity.cpu_cores)
        return len(self.capacities) - 1

    def close_host(self, host: int, when_s: float) -> None:
        """Nothing is left on it."""

    def idle_from(self, host: int, now_s: float) -> float:
        return now_s

    def start(self, number: int, host: int, ready_s: float) -> int:
        query = self.queries[number]
        query.host, query.ready_s, query.cold = host, ready_s, ready_s > 0
        return 0

    def stop(self, number: int, slot: int, now_s: float) -> float:
        self.queries[number].host, self.queries[number].batch = NOWHERE, None
        return now_s

    def move(self, number: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Go when the batch has ended, as the live fleet waits for that."""
        self.queries[number].going = (host, pause_s)
        self._leave(self.queries[number], now_s)
        return now_s + pause_s

    # --- time ---------------------------------------------------------------------------------

    def run(self, start_s: float, end_s: float) -> None:
        step_s = self.settings.step_s
        now_s = start_s
        while now_s < end_s - 1e-9:
            taken_s = min(step_s, end_s - now_s)
            self._step(now_s, taken_s)
            now_s += taken_s

    def _step(self, now_s: float, step_s: float) -> None:
        wanted = [0.0] * len(self.capacities)
        active = []
        for query in self.queries:
            if query.batch is None:
                self._begin(query, now_s)
            if query.batch is not None:
                wanted[query.host] += query.cost.cores
                active.append(query)
        scale = [min(1.0, has / want) if want else 1.0 for has, want in self._pairs(wanted)]
        total = sum(want * part for want, part in zip(wanted, scale, strict=True))
        machine = self.settings.machine_cores
        whole = min(1.0, machine / total) if machine is not None and total > 0 else 1.0
        for query in active:
            batch, part = query.batch, scale[query.host] * whole
            assert batch is not None
            query.cpu_s += query.cost.cores * part * step_s
            batch.left -= part * step_s / batch.whole_s
            if batch.left <= 1e-9:
                self._commit(query, batch, now_s + step_s)

    def _pairs(self, wanted: list[float]) -> list[tuple[float, float]]:
        return list(zip(self.capacities, wanted, strict=True))

    def _begin(self, query: _Query, now_s: float) -> None:
        first = query.next_file
        if query.host == NOWHERE or now_s < max(query.ready_s, query.due_s) - 1e-9:
            return
        if first >= len(query.came_s) or query.came_s[first] > now_s + 1e-9:
            return
        last = int(np.searchsorted(query.came_s, now_s + 1e-9, side="right"))
        rows = query.rows[first:last]
        count = float(rows.sum())
        work_s = query.cost.cpu_s(count) * (self.settings.cold if query.cold else 1.0)
        if query.cost.scv > 0:
            work_s *= float(self._lots.gamma(1 / query.cost.scv, query.cost.scv))
        came_s = query.came_s[first:last]
        mean_s = float((came_s * rows).sum() / count) if count else float(came_s.mean())
        query.batch = _Batch(now_s, mean_s, count, max(1e-3, work_s / query.cost.cores))
        query.next_file, query.cold = last, False
        trigger_s = self.settings.trigger_s
        query.due_s = (math.floor(now_s / trigger_s + 1e-9) + 1) * trigger_s

    def _commit(self, query: _Query, batch: _Batch, now_s: float) -> None:
        query.batch = None
        query.done_rows += batch.rows
        query.delays_s.append(now_s - batch.mean_came_s)
        query.durations_s.append(now_s - batch.began_s)
        self._leave(query, now_s)

    def _leave(self, query: _Query, now_s: float) -> None:
        if query.going is not None and query.batch is None:
            query.host, pause_s = query.going
            query.ready_s, query.cold, query.going = now_s + pause_s, True, None


class QueryCloud:
    """Streaming queries on hosts, as a backend.

    topology: an operator for each query. offer: what can be leased. files: by query, when files of
    rows come and how many rows each has, as two arrays. costs: by query. initial: what runs at the
    beginning, warm. settings: the physics. seed: of what is drawn by lot.

    Two queries of half a core each, a batch a second, on a host of one core: each batch takes its
    half second, and a file waits for nothing else.

    >>> from tidegate.model import Instance
    >>> from tidegate.model.topology import Operator
    >>> names = ("a", "b")
    >>> second = np.arange(60.0)
    >>> world = QueryCloud(
    ...     Topology(tuple(Operator(name, max_instances=1) for name in names)),
    ...     HostOffer(Resources(1)),
    ...     {name: (second, np.full(60, 10.0)) for name in names},
    ...     {name: QueryCost(0.25, cores=0.5) for name in names},
    ...     initial=Deployment(("host-1",), tuple(Instance(f"{n}-1", n, "host-1") for n in names)),
    ... )
    >>> world.advance(10)
    >>> seen = world.observe()
    >>> round(seen.hosts[0].utilisation, 2), round(seen.reading["a"].recent_durations_s[-1], 2)
    (0.5, 0.5)
    """

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        files: Mapping[str, tuple[Floats, Floats]],
        costs: Mapping[str, QueryCost],
        *,
        initial: Deployment,
        settings: QuerySettings | None = None,
        seed: int = 0,
    ) -> None:
        for name in topology.by_name:
            if name not in files or name not in costs:
                raise InputError("query", name, "one with files and a cost")
        self.topology, self.offer = topology, offer
        self.settings = settings or QuerySettings()
        self.time_s = 0.0
        self._queries = [
            _Query(name, costs[name], np.asarray(files[name][0]), np.asarray(files[name][1]))
            for name in topology.by_name
        ]
        self._engine = _Engine(self._queries, self.settings, seed)
        startup_s = self.settings.host_startup_s
        cloud = CloudSettings(
            host_startup_s=(startup_s, startup_s),
            instance_startup_s=(0.0, 0.0),
            image_download_s=0.0,
            migration_pause_s=self.settings.pause_s,
        )
        # A fleet asks an engine for hosts and places only, and never to run.
        self._fleet = Fleet(topology, offer, cast(Any, self._engine), cloud, seed)
        self._fleet.begin(initial)
        self._loads: dict[str, Resources] = {}
        self._rates: dict[str, float] = {}
        self._used: dict[int, float] = {}
        self._looks: dict[int, list[tuple[float, dict[str, tuple[float, float]]]]] = {}
        self._from_s = 0.0
        self._snapshot: Snapshot | None = None

    # --- the backend protocol -----------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What was measured since the last look; the same until time passes or a plan is applied.

        A look closes the books of the stretch before it, so that each is measured once.
        """
        if self._snapshot is None:
            self._snapshot = self._look()
        return self._snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Begin what leads to the plan; applying it again changes nothing."""
        outcome = self._fleet.apply(plan, self.time_s)
        if outcome.steps:
            self._snapshot = None
        return outcome

    @property
    def moves(self) -> int:
        """Moves so far."""
        return self._fleet.steps["move"]

    def advance(self, seconds: float) -> None:
        """Let time pass, usually until the next decision."""
        end_s = self.time_s + finite(seconds, "seconds", low=0)
        while self.time_s < end_s - 1e-9:
            stop_s = min(end_s, max(self._fleet.next_event_s, self.time_s))
            if stop_s > self.time_s:
                self._engine.run(self.time_s, stop_s)
                self.time_s = stop_s
            self._fleet.happen(self.time_s)
        self._fleet.forget_gone(self.time_s)
        self._snapshot = None

    # --- measuring ----------------------------------------------------------------------------

    def _look(self) -> Snapshot:
        now_s, passed_s = self.time_s, self.time_s - self._from_s
        if passed_s > 0:
            self._from_s, self._used = now_s, {}
            for number in {query.host for query in self._queries}:
                self._close_books(number, passed_s)
        hosts = []
        for host in self._fleet.hosts.values():
            up = host.ready_s <= now_s
            share = self._used.get(host.number, 0.0) / self.offer.capacity.cpu_cores
            status = "draining" if host.draining else "running" if up else "starting"
            busy = share if up and now_s > 0 else None
            hosts.append(Host(host.id, self.offer.capacity, cast(Any, status), busy, host.lease))
        recent = [query.delays_s[-1] for query in self._queries if query.delays_s]
        return Snapshot(
            time_s=now_s,
            topology=replace(
                self.topology,
                operators=tuple(
                    replace(o, demand=self._loads.get(o.name, o.demand))
                    for o in self.topology.operators
                ),
            ),
            offer=self.offer,
            hosts=tuple(hosts),
            instances=tuple(self._instance(name) for name in self._fleet.instances),
            operators=tuple(self._reading(query) for query in self._queries),
            latency=Latency(mean_s=sum(recent) / len(recent) if recent else None),
            interval_s=self.settings.interval_s,
            leased_so_far=self._fleet.leased_so_far,
            ended=self._fleet.ended,
        )

    def _close_books(self, number: int, passed_s: float) -> None:
        """What a host took: the mean of its last looks, with queries' past, as the live fleet."""
        here = [query for query in self._queries if query.host == number]
        taken = {query.name: (query.cpu_s, query.done_rows) for query in here}
        looks, window_s = self._looks.setdefault(number, []), self.settings.trigger_s
        if looks and looks[-1][1].keys() != taken.keys():
            past = {n: (self._loads[n].cpu_cores, self._rates[n]) for n in taken}
            looks[:] = [(1.0, past)] * math.ceil(window_s)
        looks.append((passed_s, taken))
        while sum(took_s for took_s, _ in looks[1:]) >= window_s - 1e-9:
            del looks[0]
        whole_s = sum(took_s for took_s, _ in looks)
        for query in here:
            cores = sum(parts[query.name][0] for _, parts in looks) / whole_s
            self._loads[query.name] = Resources(cores)
            self._used[number] = self._used.get(number, 0.0) + cores
            self._rates[query.name] = sum(p[query.name][1] for _, p in looks) / whole_s
            query.cpu_s = query.done_rows = 0.0

    def _instance(self, name: str) -> InstanceReading:
        instance = self._fleet.instances[name]
        up = instance.works_on == instance.host and instance.ready_s <= self.time_s
        status, load = ("running", self._loads.get(instance.operator)) if up else ("starting", None)
        return InstanceReading(name, instance.operator, instance.host, cast(Any, status), load)

    def _reading(self, query: _Query) -> OperatorReading:
        rate = self._rates.get(query.name)
        delays, took = tuple(query.delays_s[-RECENT:]), tuple(query.durations_s[-RECENT:])
        return OperatorReading(
            query.name,
            arrival_rate_per_s=rate,
            processed_per_s=rate,
            recent_durations_s=delays or None,
            batches=BatchReading(self.settings.trigger_s, took) if took else None,
        )
