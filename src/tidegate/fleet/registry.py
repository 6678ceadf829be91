"""The registry of a fleet: every query and host, with what was last measured of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.fleet.fence import Fence
from tidegate.fleet.holds import Hold
from tidegate.fleet.hosts import BackgroundCall, FleetHost, HostView, QueryView
from tidegate.fleet.queries import ContinuousQuery
from tidegate.model import HostStatus, OperatorReading
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.meter import QueryMeter

__all__ = [
    "SLOW_S",
    "HostEntry",
    "HostUsage",
    "QueryEntry",
    "QueryStatus",
    "Usage",
    "measure",
    "shares",
]

QueryStatus = Literal["waiting", "held", "starting", "running", "moving", "backing off", "parked"]

SLOW_S = 60.0
"""Seconds that a host may stay silent if its process is busy or has just started."""
NEARLY_S = 1.0
"""Answers arrive irregularly: a window that is shorter by this many seconds counts as covered."""
WORKING_CORES = 0.05
"""A process that uses fewer cores while it owes an answer is not working on it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources used in some time: CPU seconds, megabytes read and written, seconds in batches.

    A value that was not measured is None.
    """

    cpu_s: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None
    batch_s: float = 0.0

    @classmethod
    def between(
        cls, before: Usage | HostView, now: QueryView | HostView, batch_s: float = 0.0
    ) -> Usage:
        """The difference of two states of the same counters."""
        return cls(
            _increase(before.cpu_s, now.cpu_s),
            _increase(before.read_mb, now.read_mb),
            _increase(before.written_mb, now.written_mb),
            batch_s,
        )

    @classmethod
    def total(cls, parts: Sequence[Usage]) -> Usage:
        """The sum of what is known."""
        return cls(
            _sum(part.cpu_s for part in parts),
            _sum(part.read_mb for part in parts),
            _sum(part.written_mb for part in parts),
            sum(part.batch_s for part in parts),
        )


NOTHING = Usage(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class HostUsage:
    """Resources that a host and each of its queries used in `passed_s` seconds."""

    passed_s: float
    host: Usage
    queries: Mapping[str, Usage]


@dataclass
class QueryEntry:
    """A query in the registry.

    Args:
        query: Its definition.
        checkpoint: Its checkpoint folder.
        host: The host that it runs on; empty for none.
        target: The host that it should run on; empty for none.
        busy: Whether it is being moved.
        parked: Whether it failed too often and is not restarted.
        held: Why it must not start yet: a host that does not answer may still run it.
        fence: Of its checkpoint; None if the manager and the hosts do not share its folder.
        removing: Whether it is to be stopped and forgotten.
        failures: Failures since it last ran steadily, without those of its hosts.
        retry_s: It is not started before this time, on a steady clock.
        since_s: Time of its last start, stop or move, on a steady clock.
        error: The last error.
        run: Id of its run.
        batch: The last batch; -1 for none.
        load: Resources that it uses, as last measured.
        read_mbps: Megabits read per second; None if not measured.
        written_mbps: Megabits written per second; None if not measured.
        state_mb: Size of its state in megabytes; None if not measured.
        state_rows: Rows in its state; None if not measured.
        counters: Its counters when the host last answered.
        came_from: The host that it was moved from, until its first batch on the new host.
        period_s: Seconds from batch to batch, as last known.
        moves: Number of moves.
        pauses_s: The pause of each move, in seconds.
        meter: Rates and latencies of its batches.
    """

    query: ContinuousQuery
    checkpoint: str
    host: str = ""
    target: str = ""
    busy: bool = False
    parked: bool = False
    held: Hold | None = None
    fence: Fence | None = None
    removing: bool = False
    failures: int = 0
    retry_s: float = 0.0
    since_s: float = 0.0
    error: str | None = None
    run: str = ""
    batch: int = -1
    load: Resources | None = None
    read_mbps: float | None = None
    written_mbps: float | None = None
    state_mb: float | None = None
    state_rows: int | None = None
    counters: Usage = NOTHING
    came_from: str = ""
    period_s: float = 0.0
    moves: int = 0
    pauses_s: list[float] = field(default_factory=list)
    meter: QueryMeter = field(default_factory=QueryMeter)

    @property
    def name(self) -> str:
        """The query's name."""
        return self.query.name

    def status(self, steady_s: float) -> QueryStatus:
        """The state of the query. steady_s: the time on a steady clock."""
        if self.parked:
            return "parked"
        if self.busy:
            return "moving" if self.host else "starting"
        if self.host:
            return "running"
        if self.held is not None:
            return "held"
        return "backing off" if steady_s < self.retry_s else "waiting"

    def reading(self, now_s: float) -> OperatorReading:
        """The measurements for a policy; all are missing while the query runs nowhere."""
        if not self.host:
            return OperatorReading(self.name)
        return self.meter.reading(self.name, now_s, self.meter.period_s)

    def update(self, view: QueryView) -> Usage:
        """Take in a view of the query; return what it used since the last one.

        The counters of a new run start from zero.
        """
        if view.run != self.run:
            self.run, self.batch, self.counters = view.run, -1, NOTHING
        fresh = [p for p in view.progress if p.run == view.run and p.batch > self.batch]
        for progress in fresh:
            self.meter.add(progress)
            if progress.state_mb is not None:
                self.state_mb, self.state_rows = progress.state_mb, progress.state_rows
        if fresh:
            self.batch, self.came_from = fresh[-1].batch, ""
            self.period_s = self.meter.period_s or self.period_s
        before = self.counters
        self.counters = Usage(view.cpu_s or 0.0, view.read_mb or 0.0, view.written_mb or 0.0)
        return Usage.between(before, view, sum(p.duration_s for p in fresh))

    def describe(self, now_s: float, steady_s: float) -> dict[str, Any]:
        """The query as plain values, for ``tidegate fleet status``; what is unknown is None.

        now_s: Unix time in seconds. steady_s: the time on a steady clock.
        """
        load = self.load if self.host else None
        return {
            "query": self.name,
            "status": self.status(steady_s),
            "host": self.host,
            "wanted": self.target,
            "cpu_cores": load.cpu_cores if load is not None else None,
            "read_mbps": self.read_mbps if self.host else None,
            "written_mbps": self.written_mbps if self.host else None,
            "rows_per_s": self.reading(now_s).processed_per_s,
            "batch": self.batch,
            "state_mb": self.state_mb,
            "state_rows": self.state_rows,
            "moves": self.moves,
            "last_pause_s": self.pauses_s[-1] if self.pauses_s else None,
            "failures": self.failures,
            "error": self.error if self.held is None else self.held.describe(),
            "fenced": self.fence is not None,
            "held_by": sorted(self.held.places) if self.held is not None else [],
        }


@dataclass
class HostEntry:
    """A host in the registry. All times are those of a steady clock, in seconds.

    Args:
        name: Its name.
        leased_s: Time at which it was leased.
        host: The host; None while it starts.
        up_s: Time at which it came up.
        leaving: Whether it is released once it is empty.
        answered_s: Time of its last answer.
        view: Its last answer.
        utilisation: Share of its CPU in use; None if not measured.
        memory_share: Share of its memory that its queries need; None if not measured.
        network_share: Share of its network that its queries use; None if not measured.
        unattributed: The part of the utilisation that belongs to no query.
        shared: The part of the utilisation that was divided by time in batches, because no task
            accounts for it.
        read_mbps: Megabits read per second; None if not measured.
        written_mbps: Megabits written per second; None if not measured.
        history: The usage of the last seconds, over which all of this is averaged.
        pending: A request for a view that is under way.
        asked_s: Time of that request.
    """

    name: str
    leased_s: float
    host: FleetHost | None = None
    up_s: float | None = None
    leaving: bool = False
    answered_s: float = 0.0
    view: HostView | None = None
    utilisation: float | None = None
    memory_share: float | None = None
    network_share: float | None = None
    unattributed: float = 0.0
    shared: float = 0.0
    read_mbps: float | None = None
    written_mbps: float | None = None
    history: tuple[HostUsage, ...] = ()
    pending: BackgroundCall[HostView] | None = None
    asked_s: float = 0.0

    @property
    def status(self) -> HostStatus:
        """The state of the host."""
        if self.leaving:
            return "draining"
        return "running" if self.host is not None else "starting"

    def patience_s(self, steady_s: float, silence_s: float) -> float:
        """Seconds that the host may stay silent before it counts as lost.

        A host whose process uses CPU is slow and gets a minute: on a crowded machine a JVM that
        compiles its first queries answers late. A host whose process uses none hangs. If the
        process cannot be observed, a host that has just come up gets the minute.
        """
        cpu_s = self.host.cpu_s() if self.host is not None else None
        known_s = self.view.cpu_s if self.view is not None else None
        if cpu_s is None or known_s is None:
            slow = self.view is None or steady_s - (self.up_s or steady_s) < SLOW_S
        else:
            slow = cpu_s - known_s > WORKING_CORES * (steady_s - self.answered_s)
        return max(silence_s, SLOW_S) if slow else silence_s

    def describe(self, steady_s: float, queries: int) -> dict[str, Any]:
        """The host as plain values, for ``tidegate fleet status``. queries: number on the host."""
        return {
            "host": self.name,
            "status": self.status,
            "utilisation": self.utilisation,
            "memory_share": self.memory_share,
            "network_share": self.network_share,
            "unattributed": self.unattributed,
            "shared": self.shared,
            "read_mbps": self.read_mbps,
            "written_mbps": self.written_mbps,
            "memory_mb": self.view.memory_mb if self.view is not None else None,
            "queries": queries,
            "endpoint": getattr(self.host, "endpoint", "").partition("/;")[0],
            "pid": getattr(self.host, "pid", None),
            "age_s": steady_s - self.leased_s,
        }


# --- measuring --------------------------------------------------------------------------------


def shares(
    host_cpu_s: float | None, task_cpu_s: dict[str, float], batch_s: dict[str, float]
) -> dict[str, float]:
    """Divide the CPU time of a host among its queries so that the parts add up to it.

    Spark counts the CPU time of tasks by query. The rest (planning, commits, compilation, garbage
    collection) is divided by the time that queries spent in batches. If no batch has ended, it is
    divided by the CPU time of their tasks, or else equally, since every query checks for input at
    each trigger. Spark counts a task when its stage has ended, so the tasks may exceed the total;
    they are then scaled down to it.

    host_cpu_s: None if only the tasks are known.

    >>> shares(4.0, {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 3.0})
    {'a': 2.25, 'b': 1.75}
    """
    tasks = sum(task_cpu_s.values())
    if host_cpu_s is None:
        return dict(task_cpu_s)
    if tasks > host_cpu_s:
        return {name: used_s * host_cpu_s / tasks for name, used_s in task_cpu_s.items()}
    equal = dict.fromkeys(task_cpu_s, 1.0)
    weights = next((w for w in (batch_s, task_cpu_s, equal) if sum(w.values()) > 0), {})
    total, rest = sum(weights.values()), host_cpu_s - tasks
    return {name: used_s + rest * weights[name] / total for name, used_s in task_cpu_s.items()}


def measure(
    host: HostEntry,
    before: HostView,
    passed_s: float,
    queries: Mapping[str, QueryEntry],
    used: Mapping[str, Usage],
    capacity: Resources,
    query_mb: float = 0.0,
    limits: Collection[str] = (),
) -> None:
    """Update the utilisation of a host and the loads of its queries.

    A host works in batches: it would look idle between two batches and full during one. So all
    values are means over a window, as long as the batch period of its slowest query but at most a
    minute. A query that arrives or leaves takes its past usage with it (`_expected_usage`).

    The CPU of the queries and the `unattributed` part add up to the CPU of the host. A host on this
    machine reports its own traffic; for a remote host, the traffic is what Spark counted.

    Args:
        host: The host, whose `view` is the latest one.
        before: The view before that.
        passed_s: Seconds between the two views.
        queries: All queries by name.
        used: What Spark counted since the earlier view, by query on this host.
        capacity: Resources of the host for its queries.
        query_mb: Megabytes that a query needs besides its state, if memory is limited.
        limits: Resources besides CPU that are limited.
    """
    view, cores = host.view, capacity.cpu_cores
    assert view is not None
    latest = HostUsage(passed_s, Usage.between(before, view), used)
    window_s = min(SLOW_S, max((queries[name].period_s for name in used), default=0.0))
    if host.history and host.history[-1].queries.keys() != used.keys():
        host.history = _expected_usage(host, {name: queries[name] for name in used}, window_s)
    host.history = _recent((*host.history, latest), window_s)
    passed_s = sum(usage.passed_s for usage in host.history)
    whole = Usage.total([usage.host for usage in host.history])
    every = {name: Usage.total([usage.queries[name] for usage in host.history]) for name in used}
    task_s = {name: usage.cpu_s or 0.0 for name, usage in every.items()}
    measured = whole.cpu_s is not None or any(u.cpu_s is not None for u in every.values())
    parts = shares(whole.cpu_s, task_s, {name: usage.batch_s for name, usage in every.items()})
    attributed_s = sum(parts.values())
    whole_s = attributed_s if whole.cpu_s is None else whole.cpu_s
    host.utilisation = whole_s / passed_s / cores if measured else None
    host.unattributed = (whole_s - attributed_s) / passed_s / cores
    host.shared = max(0.0, attributed_s - sum(task_s.values())) / passed_s / cores
    for name, usage in every.items():
        entry = queries[name]
        entry.read_mbps = _mbps(usage.read_mb, passed_s)
        entry.written_mbps = _mbps(usage.written_mb, passed_s)
        if measured:
            # A load has no missing parts: what was not measured does not restrict its placement.
            network_mbps = (entry.read_mbps or 0.0) + (entry.written_mbps or 0.0)
            memory_mb = entry.state_mb or 0.0
            if "memory_mb" in limits:
                memory_mb += max(query_mb, entry.query.demand.memory_mb)
            entry.load = Resources(parts[name] / passed_s, memory_mb, network_mbps)
    if view.read_mb is None and view.written_mb is None:
        whole = Usage.total(list(every.values()))
    host.read_mbps = _mbps(whole.read_mb, passed_s)
    host.written_mbps = _mbps(whole.written_mb, passed_s)
    _limit(host, [queries[name] for name in used], capacity, limits)


def _limit(
    host: HostEntry, here: Sequence[QueryEntry], capacity: Resources, limits: Collection[str]
) -> None:
    """Update the shares of memory and network that the queries on a host use.

    Both are sums over the queries, so that a query that leaves takes its part along: a JVM keeps
    the memory that it once had, and the traffic of a process includes its files and our questions.
    A share is missing where the resource is not limited, and where a query was not measured: the
    sum of the others would be too small. The state of a query is known after its first batch.
    """
    host.memory_share = host.network_share = None
    known_mb = all(e.load is not None and (e.state_mb is not None or e.batch >= 0) for e in here)
    if "memory_mb" in limits and known_mb:
        used_mb = sum(entry.load.memory_mb for entry in here if entry.load is not None)
        host.memory_share = used_mb / capacity.memory_mb
    traffic = [_sum((entry.read_mbps, entry.written_mbps)) for entry in here]
    known = [mbps for mbps in traffic if mbps is not None]
    if "network_mbps" in limits and len(known) == len(here):
        host.network_share = sum(known) / capacity.network_mbps


def _expected_usage(
    host: HostEntry, queries: Mapping[str, QueryEntry], window_s: float
) -> tuple[HostUsage, ...]:
    """The usage that a host would have had with the queries that are on it now, by second.

    Without it, the measurements just after a move would depend on whether a batch happens to run.
    Empty if one of the queries was never measured.
    """
    loads = {n: entry.load.cpu_cores for n, entry in queries.items() if entry.load is not None}
    if not loads or len(loads) < len(queries):
        return ()
    used = {n: Usage(loads[n], *_megabytes(entry)) for n, entry in queries.items()}
    whole = Usage(sum(loads.values()), *_megabytes(host))
    return (HostUsage(1.0, whole, used),) * math.ceil(window_s)


def _recent(history: tuple[HostUsage, ...], window_s: float) -> tuple[HostUsage, ...]:
    """The last entries that together cover a window."""
    covered_s, first = 0.0, len(history)
    for usage in reversed(history):
        if covered_s > max(0.0, window_s - NEARLY_S):
            break
        covered_s, first = covered_s + usage.passed_s, first - 1
    return history[first:]


def _increase(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(0.0, now - before)


def _mbps(megabytes: float | None, passed_s: float) -> float | None:
    return None if megabytes is None else megabytes * 8 / passed_s


def _megabytes(entry: QueryEntry | HostEntry) -> tuple[float | None, float | None]:
    """The megabytes that an entry reads and writes in one second."""
    read, written = entry.read_mbps, entry.written_mbps
    return (None if read is None else read / 8), (None if written is None else written / 8)


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum of the known parts; None if no part is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
