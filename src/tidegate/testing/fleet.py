"""Hosts made of dictionaries, with faults on demand, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.errors import BackendError
from tidegate.fleet.hosts import FleetHost, HostSilent, HostView, QueryView
from tidegate.fleet.queries import ContinuousQuery
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.progress import Progress


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Copy:
    run: str
    cpu_s: float = 0.0
    error: str | None = None
    active: bool = True
    progress: tuple[Progress, ...] = ()
    read_mb: float | None = None


@dataclass
class FakeHost:
    """loads: cores that each query takes; refuse: queries that fail to start here, with why.

    dead, hung, slow: it has ended, does nothing, or works and gives no answer.
    """

    clock: Clock
    loads: dict[str, float]
    copies: dict[str, Copy] = field(default_factory=dict)
    dead: bool = False
    hung: bool = False
    slow: bool = False
    refuse: dict[str, Exception] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    place: str = ""

    def __post_init__(self) -> None:
        self.counted_s = self.clock()
        self.used_s = 0.0

    def cpu_s(self) -> float | None:
        if not self.hung:
            self._count()
        return self.used_s

    @property
    def alive(self) -> bool:
        return not self.dead

    def _check(self) -> None:
        if self.dead:
            raise BackendError("connection refused")
        if self.hung or self.slow:
            raise HostSilent("no answer")

    def _count(self) -> None:
        passed_s = self.clock() - self.counted_s
        self.counted_s = self.clock()
        for name, copy in self.copies.items():
            if copy.active:
                copy.cpu_s += passed_s * self.loads.get(name, 0.25)
                self.used_s += passed_s * self.loads.get(name, 0.25)

    def look(self, timeout_s: float) -> HostView:
        self._check()
        self._count()
        views = {
            name: QueryView(c.run, c.active, c.error, c.progress, c.cpu_s, c.read_mb)
            for name, c in self.copies.items()
        }
        return HostView(views, self.used_s, 100.0)

    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        self._check()
        self._count()
        if query.name in self.refuse:
            raise self.refuse[query.name]
        if query.name in self.copies and self.copies[query.name].active:
            raise BackendError("a query with that name is already active")
        self.started.append(query.name)
        self.copies[query.name] = Copy(f"{query.name}/{len(self.started)}/{id(self)}")

    def stop(self, name: str, timeout_s: float) -> None:
        self._check()
        self._count()
        self.copies.pop(name, None)

    def batch(self, name: str, number: int = 0) -> None:
        """A query has done a batch."""
        copy = self.copies[name]
        phases = {"triggerExecution": 0.5}
        copy.progress += (Progress("q", copy.run, name, number, self.clock(), phases, 10),)

    def fail(self, name: str, error: str) -> None:
        """A query ends by its own fault."""
        self.copies[name].active, self.copies[name].error = False, error


class FakeProvider:
    def __init__(self, clock: Clock, max_hosts: int | None = 4, cores: float = 2.0) -> None:
        self.clock = clock
        self.capacity = Resources(cores, 1024, 1000)
        self.max_hosts = max_hosts
        self.outlive = True
        self.hosts: dict[str, FakeHost] = {}
        self.loads: dict[str, float] = {}
        self.starting: set[str] = set()
        self.slow = False
        self.released: list[str] = []
        self.killed: list[str] = []

    def lease(self, name: str) -> None:
        if self.max_hosts is not None and len(self.hosts) >= self.max_hosts:
            raise BackendError("no more hosts")
        self.hosts[name] = FakeHost(self.clock, self.loads, place=name)
        if self.slow:
            self.starting.add(name)

    def host(self, name: str) -> FleetHost | None:
        if name not in self.hosts:
            raise BackendError(f"{name} is no host")
        return None if name in self.starting else self.hosts[name]

    def release(self, name: str) -> None:
        assert not any(c.active for c in self.hosts[name].copies.values()), "released while in use"
        self.released.append(name)
        del self.hosts[name]

    def kill(self, name: str) -> bool:
        self.killed.append(name)
        self.hosts.pop(name, None)
        return True

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        return list(self.hosts.items())

    def close(self) -> None:
        pass

    def copies(self, query: str) -> list[str]:
        """Hosts on which a query is running."""
        return [
            name
            for name, host in self.hosts.items()
            if query in host.copies and host.copies[query].active and not host.dead
        ]
