"""A storm over a fleet: real Connect hosts, and a manager that is a process of its own.

The hosts outlive the manager. It reaches each by a way that can be cut, and writes its journal and
its log of moves to a disk that can be full. While faults happen, files of rows arrive.

    python -m tests.storm.fleet FOLDER FAULTS SEED...
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

from tests.clusters.agent.standalone import environment
from tests.spark.autoscaler import ticks
from tests.storm import watch
from tests.storm.disk import Disk
from tests.storm.faults import Senses
from tests.storm.feed import Feed, committed
from tests.storm.proxy import Way
from tests.storm.seed import (
    MARK,
    Broken,
    Happened,
    SeedLine,
    drawn,
    group,
    marked,
    play,
    put,
    stopped,
    strangers,
    until,
    write_lines,
)
from tests.storm.watch import Shows, Watch
from tidegate.fleet.providers import EmbeddedProvider, StaticProvider
from tidegate.lifecycle import Closing
from tidegate.loop.journal import Turn
from tidegate.loop.records import LOST
from tidegate.model.topology import Resources
from tidegate.spark.agent import agent_jar
from tidegate.spark.local.processes import LOOPBACK, Process

HOSTS = 2
NAMES = ("ticks-a", "ticks-b")
TOKEN = "storm-" + "0123456789abcdef" * 2
POLICIES = ("local-threshold", "global-threshold", "sarsa")
KINDS = {
    "clock back": 4,
    "clock forward": 4,
    "missing metrics": 5,
    "absurd metrics": 5,
    "full disk": 4,
    "garbage control": 4,
    "manager killed": 4,
    "manager paused": 5,
    "torn journal": 4,
    "torn move log": 5,
    "torn fence": 5,
    "host paused": 6,
    "host cut off": 6,
    "host paused in a move": 3,
    "host killed": 1,
}
"""Kinds of faults with their weights: the cheap ones come often."""


class Server(Closing):
    """A Connect server that can be started again, at an address that stays.

    provider: starts it. name: its name there.
    """

    def __init__(self, provider: EmbeddedProvider, name: str) -> None:
        self.provider, self.name = provider, name
        self._ports: dict[str, int] = {}
        self.ways = [Way(lambda: self._port("connect")), Way(lambda: self._port("ui"))]
        self.start()

    @property
    def endpoint(self) -> str:
        """Its address for a manager."""
        place, ui = self.place, f"http://{LOOPBACK}:{self.ways[1].port}"
        return f"{place}/;token={TOKEN};ui={ui}"

    @property
    def place(self) -> str:
        """Its address, without the token."""
        return f"sc://localhost:{self.ways[0].port}"

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        if self.name not in self.provider._servers:
            return False  # it was killed
        if not self._ports:
            with patch("tidegate.fleet.providers.secrets.token_urlsafe", return_value=TOKEN):
                if self.provider.host(self.name) is None:
                    return False
            process = self.provider._servers[self.name].process
            said = r"Connect server started at: [\d.]+:(\d+)"
            self._ports = {
                "connect": int(process.wait_for(said, 0.0).group(1)),
                "ui": int(process.wait_for(r"'SparkUI' on port (\d+)", 0.0).group(1)),
            }
        return True

    def start(self) -> None:
        """Start it."""
        with patch("tidegate.fleet.providers.secrets.token_urlsafe", return_value=TOKEN):
            self.provider.lease(self.name)

    def kill(self) -> None:
        """Kill it."""
        self._ports = {}
        self.provider.kill(self.name)

    def pids(self) -> list[int]:
        """Its processes."""
        return group(self.provider.pid(self.name))

    def close(self) -> None:
        """End it, and the ways to it."""
        self.kill()
        for way in self.ways:
            way.close()

    def _port(self, what: str) -> int:
        if what not in self._ports:
            raise OSError("it has not started")
        return self._ports[what]


class Hosts(Closing):
    """What the seeds of a run share: servers, and a manager that waits for the next one to die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._starts = 0
        settings = {
            "spark.plugins": "io.tidegate.spark.FleetPlugin",
            "spark.jars": str(agent_jar()),
        }
        with contextlib.ExitStack() as stack:
            provider = EmbeddedProvider(
                "storm", folder / "hosts", cores=2, memory_mb=512, settings=settings
            )
            stack.callback(provider.close)
            names = [f"server-{number}" for number in range(1, HOSTS + 1)]
            self.servers = [stack.enter_context(Server(provider, name)) for name in names]
            until(lambda: all(s.ready for s in self.servers), lambda: "no servers", 600)
            stack.callback(lambda: self._spare.kill())  # noqa: PLW0108 - another one by then
            self._spare = self._start_manager()
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def manager(self, seed: Path) -> Process:
        """A manager for a seed. It has started already, so that it is there at once."""
        made, self._spare = self._spare, self._start_manager()
        put(self.folder / f"go-{made.pid}", str(seed))
        return made

    def _start_manager(self) -> Process:
        self._starts += 1
        words = [sys.executable, "-m", "tests.storm.manager", str(self.folder)]
        log = self.folder / "logs" / f"manager-{self._starts}.log"
        return Process(words, log, environment())


class Fleet(Senses):
    """The world of a seed: queries, their feed, and a manager with its files on a small disk.

    hosts: where it runs. seed: random seed.
    """

    name = "fleet"

    def __init__(self, hosts: Hosts, seed: int) -> None:
        self.hosts = hosts
        self.folder = hosts.folder / f"seed-{seed}"
        self.rng = random.Random(f"fleet/{seed}")
        self.policy = self.rng.choice(POLICIES)
        self.fleet = f"storm-{seed}"
        self.folder.mkdir()
        endpoints = [server.endpoint for server in hosts.servers]
        with contextlib.ExitStack() as stack:
            self.disk = stack.enter_context(Disk(self.folder / "disk", 16))
            self.journal = self.disk.folder / "journal.jsonl"
            self.moves = self.disk.folder / "moves.jsonl"
            self.watch = Watch(self.journal)
            self.feed = stack.enter_context(Feed(self.folder / "in", self._batches))
            given = {
                "fleet": self.fleet,
                "endpoints": endpoints,
                "queries": NAMES,
                "policy": self.policy,
                "hosts": HOSTS,
                "disk": str(self.disk.folder),
            }
            put(self.folder / "manager.json", json.dumps(given))
            stack.callback(lambda: self.manager.kill())  # noqa: PLW0108 - another one by then
            self.manager = hosts.manager(self.folder)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End all that belongs to the seed."""
        self._stack.close()

    def _batches(self) -> int:
        return min(committed(self.folder / "checkpoints" / name) for name in NAMES)

    def _a_host(self) -> tuple[str, Server]:
        """A host that is measured, and its server."""
        found: list[tuple[str, Server]] = []

        def there() -> bool:
            self.watch.new()
            last = self.watch.last.snapshot if self.watch.last is not None else None
            known = [h.id for h in last.hosts if h.utilisation is not None] if last else []
            places = json.loads((self.folder / "hosts.json").read_bytes())
            servers = {server.place: server for server in self.hosts.servers}
            found[:] = [(n, servers[p]) for n, p in sorted(places.items()) if n in known]
            return bool(found)

        until(there, lambda: "no host is measured")
        return self.rng.choice(found)

    # --- faults -------------------------------------------------------------------------------

    def kinds(self) -> dict[str, int]:
        """All of them."""
        return KINDS

    def _full_disk(self) -> Happened:
        full_s = self.rng.choice((3.0, 5.0))
        self.disk.fill(self.journal, [self.manager.pid], full_s)
        return Happened(f"journal and move log, for {full_s:g} s", watch.noted(LOST))

    def _manager_paused(self) -> Happened:
        before, began_s = self.watch.last, time.time() + self.offset_s
        pause_s = self.rng.choice((3.0, 8.0))
        with stopped([self.manager.pid]):
            time.sleep(pause_s)
        gap = watch.gap(before, began_s, time.time() + self.offset_s)
        return Happened(f"manager, for {pause_s:g} s", watch.either(watch.failed, gap))

    def _again(self, damage: Callable[[], str]) -> Happened:
        """Kill the manager, damage something, and start another one."""
        self.manager.kill()
        said = damage()
        self.watch.begin_again()
        before = self.watch.last
        self.manager = self.hosts.manager(self.folder)
        return Happened(said, watch.either(watch.noted("torn line"), watch.begins_again(before)))

    def _manager_killed(self) -> Happened:
        return self._again(lambda: "manager")

    def _torn_journal(self) -> Happened:
        return self._again(lambda: self._tear(self.journal))

    def _torn_move_log(self) -> Happened:
        return self._again(lambda: self._tear(self.moves))

    def _torn_fence(self) -> Happened:
        def damage() -> str:
            torn = []
            for name in NAMES:
                fence = self.folder / "checkpoints" / f"{name}~fence"
                leases = sorted(fence.glob("epoch-*.lease"))
                if leases:
                    file = self.rng.choice(leases)
                    torn.append(f"{file.name} {self._tear(file)}")
                (fence / f".{self.rng.getrandbits(32):x}.tmp").write_bytes(self.rng.randbytes(20))
            return "; ".join(torn)

        return self._again(damage)

    def _tear(self, file: Path) -> str:
        size = file.stat().st_size if file.exists() else 0
        if size < 2:
            return "nothing to tear"
        first = self.rng.choice((1, max(1, size - 1_000)))  # anywhere, or near the end
        at = self.rng.randint(first, size - 1)
        os.truncate(file, at)
        return f"at byte {at} of {size}"

    def _host_paused(self) -> Happened:
        name, server = self._a_host()
        pause_s = self.rng.choice((3.0, 10.0))
        with stopped(server.pids()):
            time.sleep(pause_s)
        return Happened(f"{name}, for {pause_s:g} s", unanswered(name))

    def _host_cut_off(self) -> Happened:
        name, server = self._a_host()
        how, cut_s = self.rng.choice(("stall", "reset", "refuse")), self.rng.choice((3.0, 10.0))
        for way in server.ways:
            getattr(way, how)()
        time.sleep(cut_s)
        for way in server.ways:
            way.heal()
        return Happened(f"{name} {how}, for {cut_s:g} s", unanswered(name))

    def _host_paused_in_a_move(self) -> Happened:
        name, server = self._a_host()
        query = self.rng.choice(NAMES)
        put(self.folder / "command.json", json.dumps({"do": "move", "query": query, "host": name}))
        time.sleep(self.rng.uniform(0.1, 1.5))
        with stopped(server.pids()):
            time.sleep(6.0)
        return Happened(f"{name}, to which {query} moves, for 6 s", unanswered(name))

    def _host_killed(self) -> Happened:
        name, server = self._a_host()
        server.kill()
        return Happened(name, unanswered(name), server.start)

    # --- well and end -------------------------------------------------------------------------

    _since_s = -1.0
    _before: tuple[int, ...] = ()
    _turn = False

    def well(self, since_s: float) -> str:
        """A turn that did not fail with all queries running, and a batch of each, since then."""
        if not self.manager.running:
            raise Broken(f"the manager has ended with code {self.manager.exit_code}")
        if not all(server.ready for server in self.hosts.servers):
            return "a server has not started"
        now = tuple(committed(self.folder / "checkpoints" / name) for name in NAMES)
        if since_s != self._since_s:
            self._since_s, self._before, self._turn = since_s, now, False
        self._turn = self._turn or any(map(_all_run, self.watch.new()))
        if not self._turn:
            return "no turn without an error, with all queries running"
        behind = [n for n, a, b in zip(NAMES, self._before, now, strict=True) if b <= a]
        return f"no batch of {', '.join(behind)}" if behind else ""

    def finish(self, end: SeedLine) -> None:
        """Wait for all rows, compare them, and end the manager, which stops its queries."""
        self.feed.close()
        wanted = ticks.batch_result(self.folder / "in")
        sinks = [self.folder / "out" / name for name in NAMES]
        with contextlib.suppress(TimeoutError):
            until(
                lambda: all(ticks.written(s).total() >= wanted.total() for s in sinks),
                lambda: "rows are missing",
            )
        for sink in sinks:
            found = ticks.written(sink)
            end.rows += wanted.total()
            end.missing += (wanted - found).total()
            end.extra += (found - wanted).total()
        if end.missing or end.extra:
            end.problems.append(f"the sinks lack {end.missing} rows and have {end.extra} too many")
        end.queries_lost = len(NAMES) - len(self._running())
        os.kill(self.manager.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            until(lambda: not self.manager.running, lambda: "the manager does not end", 60.0)
        if self.manager.running:
            os.kill(self.manager.pid, signal.SIGUSR1)  # its log says where it hangs
            time.sleep(2.0)
        self.manager.kill()
        if self.manager.exit_code != 0:
            end.problems.append(f"the manager ended with code {self.manager.exit_code}")
        end.queries_left = len(self._running())
        if end.queries_lost or end.queries_left:
            lost, left = end.queries_lost, end.queries_left
            end.problems.append(f"{lost} queries did not run at the end, and {left} ran after it")

    def _running(self) -> list[str]:
        """Queries that run on the servers, each as often as it runs."""
        endpoints = [server.endpoint for server in self.hosts.servers]
        provider = StaticProvider(self.fleet, endpoints, Resources(1))
        found: list[str] = []
        for _, host in provider.survivors():
            found += [name for name, one in host.look(60.0).queries.items() if one.active]
        return found


def _all_run(turn: Turn) -> bool:
    if turn.error is not None or turn.snapshot is None:
        return False
    return [i.status for i in turn.snapshot.instances] == ["running"] * len(NAMES)


def unanswered(host: str) -> Shows:
    """A snapshot without a host, or without a measurement of it."""

    def shows(turns: Sequence[Turn]) -> str:
        for turn in turns:
            if turn.snapshot is None:
                continue
            known = {one.id: one for one in turn.snapshot.hosts}
            if host not in known:
                return f"the snapshot lacks {host}"
            if known[host].utilisation is None:
                return f"{host} is not measured"
        return ""

    return shows


def main() -> None:
    folder, faults, *seeds = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # still cleans up
    with Hosts(Path(folder)) as hosts:
        for seed in map(int, seeds):
            before = set(marked(os.environ[MARK]))
            with Fleet(hosts, seed) as world:
                lines, end = play(world, seed, drawn(world.kinds(), world.rng, int(faults)))
            # A server may be a new one, and one manager is kept as a spare.
            stay = ("SparkConnectServer", "tests.storm.manager")
            end.processes_left = strangers(os.environ[MARK], before, stay)
            write_lines(Path(folder), lines, end)


if __name__ == "__main__":
    main()
