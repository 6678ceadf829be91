"""The manager's books: which query is on which host, and what was last seen of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate.fleet.hosts import Asked, FleetHost, HostView, QueryView
from tidegate.fleet.queries import ContinuousQuery
from tidegate.model import HostStatus, OperatorReading
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.meter import QueryMeter

__all__ = ["HostEntry", "Look", "QueryEntry", "QueryStatus", "Taken", "shares"]

QueryStatus = Literal["waiting", "starting", "running", "moving", "backing off", "parked"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a query took: CPU s, megabytes read and written (None: not told), s in batches."""

    cpu_s: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None
    batch_s: float = 0.0


NOTHING = Taken(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Look:
    """What a host took in the seconds before a look, and each query on it; None: not told."""

    passed_s: float
    cpu_s: float | None
    read_mb: float | None
    written_mb: float | None
    taken: Mapping[str, Taken]


def _since(before: float | None, now: float | None) -> float | None:
    return None if now is None else max(0.0, now - (before or 0.0))


@dataclass
class QueryEntry:
    """A query in the books.

    host: where it runs, empty for nowhere; wanted: where it should.
    busy: whether a move of it is under way. failures: how often it failed by its own fault since
    it last ran steadily; retry_s: not started before this moment; error: the last one.
    load: what it took when last measured; read_mbps, written_mbps: megabits a second, None when not
    measured. counters: its CPU seconds and megabytes read and written at the last look.
    came_from: the host that it was moved from, until it has done a batch where it is.
    period_s: from batch to batch, when last known.
    """

    query: ContinuousQuery
    checkpoint: str
    host: str = ""
    wanted: str = ""
    busy: bool = False
    parked: bool = False
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
    counters: Taken = NOTHING
    came_from: str = ""
    period_s: float = 0.0
    moves: int = 0
    pauses_s: list[float] = field(default_factory=list)
    meter: QueryMeter = field(default_factory=QueryMeter)

    def status(self, now_s: float) -> QueryStatus:
        """Where in its life it is."""
        if self.parked:
            return "parked"
        if self.busy:
            return "moving" if self.host else "starting"
        if self.host:
            return "running"
        return "backing off" if now_s < self.retry_s else "waiting"

    def reading(self, now_s: float) -> OperatorReading:
        """What a policy reads of it; all missing while it runs nowhere."""
        name = self.query.name
        if not self.host:
            return OperatorReading(name)
        return self.meter.reading(name, now_s, self.meter.period_s)

    def read(self, view: QueryView) -> Taken:
        """Take in a look at it; return what it took since the last.

        A new run starts from zero, as its counters do.
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
        before, self.counters = self.counters, Taken(view.cpu_s, view.read_mb, view.written_mb)
        return Taken(
            _since(before.cpu_s, view.cpu_s),
            _since(before.read_mb, view.read_mb),
            _since(before.written_mb, view.written_mb),
            sum(p.duration_s for p in fresh),
        )


@dataclass
class HostEntry:
    """A host in the books.

    leased_s, up_s: when it was asked for and came up. host: None while it is starting.
    leaving: whether it is to go when it is empty. looked_s: when it last answered.
    utilisation: share of its CPU, None when not measured; unattributed: the part of it that no
    query accounts for; shared: the part that was split by the time in batches, as tasks do not
    account for it. read_mbps, written_mbps: megabits a second, None when not measured.
    looks: the last ones, over which all that is averaged.
    asked: a look that is under way, since asked_s.
    """

    name: str
    leased_s: float
    host: FleetHost | None = None
    up_s: float | None = None
    leaving: bool = False
    looked_s: float = 0.0
    view: HostView | None = None
    utilisation: float | None = None
    unattributed: float = 0.0
    shared: float = 0.0
    read_mbps: float | None = None
    written_mbps: float | None = None
    looks: tuple[Look, ...] = ()
    asked: Asked[HostView] | None = None
    asked_s: float = 0.0

    @property
    def status(self) -> HostStatus:
        """Where in its life it is."""
        if self.leaving:
            return "draining"
        return "running" if self.host is not None else "starting"


def shares(
    host_cpu_s: float | None, task_cpu_s: dict[str, float], batch_s: dict[str, float]
) -> dict[str, float]:
    """The CPU time of a host, split among its queries so that the parts sum to it.

    What tasks took is known by query. The rest (planning, commits, compiling, collecting garbage)
    goes with the time that queries were in batches; where no batch has ended, with what their tasks
    took, or in equal parts, as each of them looks for input at every trigger. Spark counts a task
    when its stage has ended, so tasks may seem to have taken more than there was; then they are
    scaled down to it.

    host_cpu_s: None when only the tasks are known.

    >>> shares(4.0, {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 3.0})
    {'a': 2.25, 'b': 1.75}
    """
    tasks = sum(task_cpu_s.values())
    if host_cpu_s is None:
        return dict(task_cpu_s)
    if tasks > host_cpu_s:
        return {name: took * host_cpu_s / tasks for name, took in task_cpu_s.items()}
    equal = dict.fromkeys(task_cpu_s, 1.0)
    weights = next((w for w in (batch_s, task_cpu_s, equal) if sum(w.values()) > 0), {})
    total, rest = sum(weights.values()), host_cpu_s - tasks
    return {name: took + rest * weights[name] / total for name, took in task_cpu_s.items()}
