"""A simulated fleet: streaming queries on hosts, in micro-batches that share the CPU.

The duration of a batch depends on the load of its host. As in Spark, an overloaded host runs fewer
and larger batches and has no endless queue. Hosts that are processes on one machine also share
that machine. The snapshots have the shape of those of the live fleet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.errors import InputError, SettingError
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Resources, Topology
from tidegate.simulation.hosts import HostEngine, SimulatedHosts
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.settings import CloudSettings
from tidegate.simulation.world import SimulatedWorld
from tidegate.units import finite

__all__ = ["QueryCloud", "QueryCost", "QuerySettings"]

Floats = NDArray[np.float64]
WORK = 51
RECENT = 10
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class QueryCost(Value):
    """What the batches of a query cost on a warm host.

    batch_cpu_s, row_cpu_s: CPU seconds of a batch and of each row in it. cores: cores that a batch
    keeps busy on an idle host. scv: squared coefficient of variation of a batch's work. memory_mb:
    megabytes that the query needs on its host. row_mbit: megabits that it reads and writes per row.
    """

    batch_cpu_s: float
    row_cpu_s: float = 0.0
    cores: float = 1.0
    scv: float = 0.0
    memory_mb: float = 0.0
    row_mbit: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch_cpu_s", "row_cpu_s", "scv", "memory_mb", "row_mbit"):
            finite(getattr(self, name), name, low=0, error=SettingError)
        finite(self.cores, "cores", above=0, error=SettingError)

    def cpu_s(self, rows: float) -> float:
        """CPU seconds of a batch with this number of rows."""
        return max(1e-6, self.batch_cpu_s + self.row_cpu_s * rows)


@dataclass(frozen=True)
class QuerySettings(Value):
    """How a simulated fleet behaves.

    Args:
        trigger_s: Time between the starts of two batches, in seconds; a late batch starts at once.
        interval_s: Time between two decisions, in seconds.
        pause_s: Time for which a moving query runs nowhere, in seconds.
        cold: Work of a query's first batch on a host, relative to its usual work.
        host_startup_s: Time from the lease of a host until it works, in seconds.
        host_cores: Most CPU cores that a host can use, None for its capacity.
        machine_cores: CPU cores that all hosts share, None if each has its own machine.
        step_s: Step of simulated time, in seconds.
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
    """A running batch. left: remaining share of it; whole_s: its duration on an idle host."""

    began_s: float
    mean_came_s: float
    rows: float
    whole_s: float
    left: float = 1.0


@dataclass
class _Query:
    """One query. next_file: the first file that no batch has read. moving: (host, pause)."""

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
    moving: tuple[int, float] | None = None
    cpu_s: float = 0.0
    done_rows: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    durations_s: list[float] = field(default_factory=list)


class _Engine(HostEngine):
    """The queries, and how they share the CPUs of the hosts."""

    def __init__(self, queries: list[_Query], settings: QuerySettings, seed: int) -> None:
        self.queries, self.settings = queries, settings
        self.capacities: list[float] = []
        self._rng = stream(seed, WORK)

    # --- hosts and instances ------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        self.capacities.append(self.settings.host_cores or capacity.cpu_cores)
        return len(self.capacities) - 1

    def close_host(self, host: int, until_s: float) -> None:
        """Nothing is left on it."""

    def idle_from(self, host: int, now_s: float) -> float:
        return now_s

    def start(self, operator: int, host: int, ready_s: float) -> int:
        query = self.queries[operator]
        query.host, query.ready_s, query.cold = host, ready_s, ready_s > 0
        return 0

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        self.queries[operator].host, self.queries[operator].batch = NOWHERE, None
        return now_s

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Move at the end of the running batch, as in the live fleet."""
        self.queries[operator].moving = (host, pause_s)
        self._leave(self.queries[operator], now_s)
        return now_s + pause_s

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        self.stop(operator, slot, now_s)

    def fail_host(self, host: int, now_s: float) -> None:
        """Its queries have failed before."""

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
            work_s *= float(self._rng.gamma(1 / query.cost.scv, query.cost.scv))
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
        if query.moving is not None and query.batch is None:
            query.host, pause_s = query.moving
            query.ready_s, query.cold, query.moving = now_s + pause_s, True, None


class QueryCloud(SimulatedWorld):
    """A fleet of streaming queries, each with one instance on one host.

    Args:
        topology: An operator for each query.
        offer: What can be leased.
        files: By query, the arrival times of files and their numbers of rows, as two arrays.
        costs: By query, what its batches cost.
        initial: What runs at the beginning, warm.
        settings: How the fleet behaves.
        seed: Random seed.

    Two queries of half a core each run a batch a second on a host of one core. Each batch takes
    half a second, and files wait for nothing else.

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
        self.settings = settings or QuerySettings()
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
        super().__init__(SimulatedHosts(topology, offer, self._engine, cloud, seed))
        self._hosts.begin(initial)
        self._loads: dict[str, Resources] = {}
        self._rates: dict[str, float] = {}
        self._used: dict[int, float] = {}
        self._windows: dict[int, list[tuple[float, dict[str, tuple[float, float]]]]] = {}
        self._from_s = 0.0
        given = {
            "memory_mb": offer.capacity.memory_mb and any(c.memory_mb for c in costs.values()),
            "network_mbps": offer.capacity.network_mbps and any(c.row_mbit for c in costs.values()),
        }
        self._limits = frozenset(name for name, limit in given.items() if limit)
        """Limited are resources that a host has some of, and a query uses some of."""

    @property
    def moves(self) -> int:
        """Moves so far."""
        return self._hosts.steps["move"]

    def _run_until(self, stop_s: float) -> None:
        self._engine.run(self.time_s, stop_s)

    # --- measuring ----------------------------------------------------------------------------

    def _measure(self) -> Snapshot:
        """The time since the previous snapshot, so that each stretch is measured once."""
        now_s, passed_s = self.time_s, self.time_s - self._from_s
        self._hosts.forget_gone(now_s)
        if passed_s > 0:
            self._from_s, self._used = now_s, {}
            for number in {query.host for query in self._queries}:
                self._measure_host(number, passed_s)
        hosts = []
        for host in self._hosts.hosts.values():
            share = self._used.get(host.number, 0.0) / self.offer.capacity.cpu_cores
            busy = share if host.ready_s <= now_s and now_s > 0 else None
            status = host.status(now_s)
            memory, network = self._shares(host.number) if busy is not None else (None, None)
            limits = self._limits
            hosts.append(
                Host(
                    host.id,
                    self.offer.capacity,
                    status,
                    busy,
                    host.lease,
                    memory_share=memory,
                    network_share=network,
                    limits=limits,
                )
            )
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
            instances=tuple(self._instance(name) for name in self._hosts.instances),
            operators=tuple(self._reading(query) for query in self._queries),
            latency=Latency(mean_s=sum(recent) / len(recent) if recent else None),
            interval_s=self.settings.interval_s,
            leased_so_far=self._hosts.leased_so_far,
            ended=self._hosts.ended,
        )

    def _measure_host(self, number: int, passed_s: float) -> None:
        """The CPU that a host used: the mean over a trigger interval, as in the live fleet.

        A query that has moved brings its past along.
        """
        here = [query for query in self._queries if query.host == number]
        taken = {query.name: (query.cpu_s, query.done_rows) for query in here}
        windows, window_s = self._windows.setdefault(number, []), self.settings.trigger_s
        if windows and windows[-1][1].keys() != taken.keys():
            past = {n: (self._loads[n].cpu_cores, self._rates[n]) for n in taken}
            windows[:] = [(1.0, past)] * math.ceil(window_s)
        windows.append((passed_s, taken))
        while sum(span_s for span_s, _ in windows[1:]) >= window_s - 1e-9:
            del windows[0]
        whole_s = sum(span_s for span_s, _ in windows)
        for query in here:
            cores = sum(parts[query.name][0] for _, parts in windows) / whole_s
            rate = sum(parts[query.name][1] for _, parts in windows) / whole_s
            cost = query.cost
            self._loads[query.name] = Resources(cores, cost.memory_mb, rate * cost.row_mbit)
            self._used[number] = self._used.get(number, 0.0) + cores
            self._rates[query.name] = rate
            query.cpu_s = query.done_rows = 0.0

    def _shares(self, number: int) -> tuple[float | None, float | None]:
        """Shares of a host's memory and network that its queries use.

        None where not limited, and where a query was not measured yet.
        """
        capacity = self.offer.capacity
        here = [query.name for query in self._queries if query.host == number]
        loads = [self._loads[name] for name in here if name in self._loads]
        if len(loads) < len(here):
            return None, None
        memory_mb = sum(load.memory_mb for load in loads)
        network_mbps = sum(load.network_mbps for load in loads)
        return (
            memory_mb / capacity.memory_mb if "memory_mb" in self._limits else None,
            network_mbps / capacity.network_mbps if "network_mbps" in self._limits else None,
        )

    def _instance(self, name: str) -> InstanceReading:
        instance = self._hosts.instances[name]
        if instance.works_on != instance.host or instance.ready_s > self.time_s:
            return InstanceReading(name, instance.operator, instance.host, "starting")
        load = self._loads.get(instance.operator)
        return InstanceReading(name, instance.operator, instance.host, "running", load)

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
