"""A fleet without Spark: fake hosts with faults on demand, and the contract of a host.

::

    fleet = FakeFleet(folder, {"a": 1.0, "b": 0.5})
    fleet.turns(2)
    fleet.provider.hosts["host-1"].dead = True
    fleet.turns(2)
    assert fleet.homes["a"] != "host-1"
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.fleet.hosts import FleetHost, HostSilent, HostView, QueryView
from tidegate.fleet.manager import FleetFolder, FleetManager, fleet_policy
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.world import FleetWorld
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.progress import Progress
from tidegate.testing.contracts import expect, expect_error

__all__ = ["FakeClock", "FakeCopy", "FakeFleet", "FakeHost", "FakeProvider", "check_host"]


def check_host(
    host: FleetHost,
    query: ContinuousQuery,
    bad: ContinuousQuery,
    checkpoint: str,
    reason: str,
    timeout_s: float = 60.0,
) -> None:
    """Raise CheckFailed unless a host keeps the contract of `FleetHost`.

    A query starts once, is reported, stops and resumes. A query that cannot start raises an error.

    Args:
        host: The host.
        query: A query that starts.
        bad: A query that fails to start.
        checkpoint: A folder for checkpoints, on this machine.
        reason: Words that the error of the bad query contains.
        timeout_s: Timeout of each call, in seconds.
    """

    def seen() -> QueryView | None:
        return host.look(timeout_s).queries.get(query.name)

    shared = Path(f"{checkpoint}-shared") / "folder"
    shared.mkdir(parents=True)
    (shared / "file").write_text("seen", encoding="utf-8")
    expect(
        not host.sees(shared / "none", "seen", timeout_s), "a host sees no file that is not there"
    )
    expect(not host.sees(shared / "file", "other", timeout_s), "a host reads what is in a file")
    expect(host.sees(shared / "file", "seen", timeout_s), "a host on this machine sees its files")

    expect(host.alive, "a host that is up is alive")
    expect(seen() is None, "a query that was not started is not reported")
    host.start(query, checkpoint, timeout_s)
    first = seen()
    expect(
        first is not None and first.active and first.error is None and bool(first.run),
        "a started query is reported as active, with a run and without an error",
    )
    with expect_error(Exception, "starting a second copy of a query is an error"):
        host.start(query, checkpoint, timeout_s)
    expect(seen() is not None and seen().run == first.run, "the first copy keeps running")  # type: ignore[union-attr]

    for _ in range(2):  # the second time it does not run any more
        host.stop(query.name, timeout_s)
    expect(seen() is None, "a stopped query is not reported")
    host.start(query, checkpoint, timeout_s)
    second = seen()
    expect(
        second is not None and second.active and second.run != first.run,  # type: ignore[union-attr]
        "a query that starts again has a new run",
    )
    host.stop(query.name, timeout_s)

    with expect_error(Exception, "a query that cannot start raises its error", reason):
        host.start(bad, checkpoint + "-bad", timeout_s)
    before = host.look(timeout_s)
    expect(bad.name not in before.queries, "a query that failed to start is not reported")
    after = host.look(timeout_s)
    if before.cpu_s is not None and after.cpu_s is not None:
        expect(after.cpu_s >= before.cpu_s, "CPU time never falls")


@dataclass
class FakeClock:
    """A clock that a test sets. now_s: the time in seconds."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s


@dataclass
class FakeCopy:
    """A query on a fake host."""

    run: str
    cpu_s: float = 0.0
    error: str | None = None
    active: bool = True
    progress: tuple[Progress, ...] = ()
    read_mb: float | None = None
    checkpoint: str = ""

    @property
    def fenced_off(self) -> bool:
        """Whether its epoch is over, so that it can neither begin a batch nor commit one."""
        return Path(self.checkpoint).is_file()


@dataclass
class FakeHost:
    """A host that only counts.

    Args:
        clock: The time in seconds.
        loads: CPU cores that each query uses.
        copies: The queries on the host.
        dead: The host has ended.
        hung: The host uses no CPU and does not answer.
        slow: The host uses CPU and does not answer.
        elsewhere: The host does not share its file system with the manager.
        refuse: Errors of queries that fail to start here, by name.
        started: Names of the queries that were started, in order.
        place: The address of the host.
    """

    clock: FakeClock
    loads: dict[str, float]
    copies: dict[str, FakeCopy] = field(default_factory=dict)
    dead: bool = False
    hung: bool = False
    slow: bool = False
    elsewhere: bool = False
    refuse: dict[str, Exception] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    place: str = ""

    def __post_init__(self) -> None:
        self.counted_s = self.clock()
        self.used_s = 0.0

    def cpu_s(self) -> float | None:
        """CPU time so far, in seconds."""
        if not self.hung:
            self._count()
        return self.used_s

    @property
    def alive(self) -> bool:
        """Whether the host has not ended."""
        return not self.dead

    def _check(self) -> None:
        if self.dead:
            raise BackendError("connection refused")
        if self.hung or self.slow:
            raise HostSilent("no answer")
        self._count()

    def _count(self) -> None:
        passed_s = self.clock() - self.counted_s
        self.counted_s = self.clock()
        for name, copy in self.copies.items():
            if copy.active:
                copy.cpu_s += passed_s * self.loads.get(name, 0.25)
                self.used_s += passed_s * self.loads.get(name, 0.25)

    def look(self, timeout_s: float) -> HostView:
        """The queries on the host."""
        self._check()
        views = {
            name: QueryView(c.run, c.active, c.error, c.progress, c.cpu_s, c.read_mb)
            for name, c in self.copies.items()
        }
        return HostView(views, self.used_s, 100.0)

    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        """Start a query."""
        self._check()
        if query.name in self.refuse:
            raise self.refuse[query.name]
        if query.name in self.copies and self.copies[query.name].active:
            raise BackendError("a query with that name is already active")
        self.started.append(query.name)
        run = f"{query.name}/{len(self.started)}/{id(self)}"
        self.copies[query.name] = FakeCopy(run, checkpoint=checkpoint)

    def stop(self, name: str, timeout_s: float) -> None:
        """Stop a query."""
        self._check()
        self.copies.pop(name, None)

    def sees(self, file: Path, text: str, timeout_s: float) -> bool:
        """Whether the host shares the folder of a file."""
        self._check()
        here = not self.elsewhere and file.exists()
        return here and file.read_text("utf-8") == text

    def batch(self, name: str, number: int = 0) -> None:
        """Let a query complete a batch."""
        copy = self.copies[name]
        phases = {"triggerExecution": 0.5}
        copy.progress += (Progress("q", copy.run, name, number, self.clock(), phases, 10),)

    def fail(self, name: str, error: str) -> None:
        """Let a query fail."""
        self.copies[name].active, self.copies[name].error = False, error


class FakeProvider:
    """A provider of fake hosts. Set `slow` to keep new hosts in `starting`.

    Set `killable` to False for servers that the provider cannot end: an abandoned host keeps
    running in `abandoned`, and its address is not used again.

    clock: the time in seconds. max_hosts: the largest number of hosts. cores: of one host.
    """

    outlive = True

    def __init__(self, clock: FakeClock, max_hosts: int | None = 4, cores: float = 2.0) -> None:
        self.clock = clock
        self.capacity = Resources(cores, 1024, 1000)
        self.limits: frozenset[str] = frozenset()
        self.query_mb = 0.0
        self.max_hosts = max_hosts
        self.hosts: dict[str, FakeHost] = {}
        self.loads: dict[str, float] = {}
        self.starting: set[str] = set()
        self.slow = False
        self.released: list[str] = []
        self.killed: list[str] = []
        self.killable = True
        self.abandoned: dict[str, FakeHost] = {}

    def lease(self, name: str) -> None:
        """Start a host."""
        if self.max_hosts is not None and len(self.hosts) >= self.max_hosts:
            raise BackendError(f"{name} is refused: all {self.max_hosts} hosts are in use")
        self.hosts[name] = FakeHost(self.clock, self.loads, place=name)
        if self.slow:
            self.starting.add(name)

    def host(self, name: str) -> FleetHost | None:
        """The host, None while it starts."""
        if name not in self.hosts:
            raise BackendError(f"{name} is no host")
        return None if name in self.starting else self.hosts[name]

    def release(self, name: str) -> None:
        """Release a host, which must be empty."""
        active = any(copy.active for copy in self.hosts[name].copies.values())
        expect(not active, f"{name} is released only when no query runs there")
        self.released.append(name)
        del self.hosts[name]

    def kill(self, name: str) -> bool:
        """Abandon a host."""
        self.killed.append(name)
        gone = self.hosts.pop(name, None)
        if not self.killable and gone is not None:
            self.abandoned[name] = gone
        return self.killable

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        """All hosts, also those that were abandoned and could not be ended."""
        self.hosts, self.abandoned = {**self.abandoned, **self.hosts}, {}
        return list(self.hosts.items())

    def close(self) -> None:
        """Do nothing."""

    def copies(self, query: str) -> list[str]:
        """Hosts on which a query runs and can use its checkpoint."""
        return [
            name
            for name, host in {**self.abandoned, **self.hosts}.items()
            if query in host.copies
            and host.copies[query].active
            and not host.copies[query].fenced_off
            and not host.dead
        ]


class FakeFleet:
    """A manager over fake hosts, turn by turn. Moves complete at once.

    folder: of the fleet. loads: CPU cores that each query uses, by name. policy: its name.
    bounds: `min_hosts` and `max_hosts`.
    """

    def __init__(
        self, folder: Path, loads: dict[str, float], policy: str = "local-threshold", **bounds: int
    ) -> None:
        self.clock = FakeClock()
        self.provider = FakeProvider(self.clock, bounds.get("max_hosts", 4))
        self.provider.loads.update(loads)
        self.folder = folder
        self.policy = fleet_policy(policy, **bounds)  # type: ignore[arg-type]
        self.world = self._new_world(
            ContinuousQuery(name, lambda session, checkpoint: None, demand=Resources(cores))
            for name, cores in loads.items()
        )
        self.manager = FleetManager(self.world, self.policy, FleetFolder(folder))

    def _new_world(self, queries: Iterable[ContinuousQuery]) -> FleetWorld:
        world = FleetWorld(
            self.provider,
            self.folder,
            clock=self.clock,
            steady_clock=self.clock,
            spawn=lambda work: work(),
            moves_at_once=9,
        )
        world.add(queries)
        return world

    def turns(self, count: int = 1) -> None:
        """Run turns, five seconds each; no query may ever run twice."""
        for _ in range(count):
            self.manager.turn()
            self.clock.now_s += 5
            for name in self.world.queries:
                expect(len(self.provider.copies(name)) <= 1, f"{name} runs only once")

    def restart(self) -> None:
        """Replace the manager by a new one, which takes over the hosts."""
        queries = [entry.query for entry in self.world.queries.values()]
        self.world.log.close()
        self.world = self._new_world(queries)
        self.world.recover()
        self.manager = FleetManager(self.world, self.policy)

    @property
    def homes(self) -> dict[str, str]:
        """The host of each query, empty for none, which must agree with the hosts themselves."""
        homes = {name: entry.host for name, entry in self.world.queries.items()}
        for name, host in homes.items():
            on = self.provider.copies(name)
            expect(on == ([host] if host else []), f"{name} runs where the registry says")
        return homes
