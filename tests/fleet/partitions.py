"""Servers that are cut off or suspended in the middle of a batch, and then continue.

Each run has a query of its own with one kind of sink, and one fault on the server that runs it. The
seed determines both. The fault begins while a batch is in flight. Rows arrive before, during and
after it. In the end the sink must equal a batch computation, and no copy of the query and none of
its processes may be left.

    python -m tests.fleet.partitions [--seed 1] [--runs 200] [--hosts 3]

Finished runs are in the ledger, one line each; a second call runs what is missing or had a problem.
``--page`` writes the page in ``docs/measured`` from the ledger. ``--unfenced`` takes the fence
away, to show that these runs would notice; its results are in a separate ledger.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.fleet.cut_off import CUT_OFF, FAULTS, HUB, Server, enter, why_not
from tests.fleet.ledger import LEDGER, UNFENCED, Result, add, commit, last_runs, read, write_page
from tests.fleet.partition_scenario import (
    SCHEMA,
    SINKS,
    TOPIC,
    Checkpoint,
    Scenario,
    Source,
    make_query,
    result_of,
    side_by_side,
)
from tidegate.fleet import registry, world
from tidegate.fleet.connect import ConnectHost, connect, session_id
from tidegate.fleet.fence import Fence, LeaseWatch
from tidegate.fleet.hosts import BackgroundCall
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.providers import StaticProvider
from tidegate.fleet.world import FleetWorld
from tidegate.model.topology import Resources
from tidegate.spark.local import broker
from tidegate.spark.local.kafka_jars import connector_jars

ROOT = Path(__file__).parents[2]
FLEET = "partitions"
LIMIT_S = 600.0
"""A step of a run that takes longer has failed."""
SILENCE_S = 2.0
"""A host that does not answer for so long is lost."""
QUICK_S = 3.0
"""Stands for `SLOW_S`, the minute that a host which has just come up may be silent."""

T = TypeVar("T")

log = logging.getLogger("partitions")


class Lane:
    """Servers and a manager, on which a few runs are under way at a time.

    folder: for everything that runs write. kafka: whether to start a broker. count: of servers.
    until_noticed: whether faults last until the fleet has noticed them, however long that takes.
    """

    def __init__(self, folder: Path, kafka: bool, count: int, until_noticed: bool = False) -> None:
        self.folder, self.count, self.until_noticed = folder, count, until_noticed
        self.closing = contextlib.ExitStack()
        self.servers: list[Server] = []
        self.runs: list[Run] = []
        self.faulty: set[Server] = set()
        self.readers: Counter[Server] = Counter()
        self.bootstrap = ""
        if kafka:
            vars(broker)["LOOPBACK"] = HUB  # the address that the servers can reach
            made = self.closing.enter_context(AutoBroker(folder=folder / "kafka"))
            self.bootstrap = made.address()
        self.jars = connector_jars() if kafka else ""
        self.closing.callback(self.close)
        self.incarnation = 0
        self._due_s = 0.0
        try:
            self.fresh()
        except BaseException:
            self.closing.close()
            raise

    @property
    def world(self) -> FleetWorld:
        return self._world

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.close()
        self.servers = []

    def fresh(self) -> None:
        """Start new servers and a new fleet."""
        self.close()
        self.faulty.clear()
        self.readers.clear()
        self.home = self.folder / f"fleet-{self.incarnation}"
        first = 1 + self.incarnation * self.count
        numbers = range(first, first + self.count)
        self.servers = [Server(n, self.home / f"server-{n}", self.jars) for n in numbers]
        for server in self.servers:
            server.ready()
        self.incarnation += 1
        self._manage()

    def restart_manager(self) -> None:
        """Let another manager take over, while the queries run on."""
        known = set(self._world.queries)
        self._manager.leave_queries = True
        self._manager.shut_down()
        self._manage([run for run in self.runs if run.name in known])

    def _manage(self, runs: Iterable[Run] = ()) -> None:
        provider = StaticProvider(FLEET, [s.endpoint for s in self.servers], Resources(2))
        self._world = FleetWorld(
            provider, self.home, interval_s=1.0, silence_s=SILENCE_S, move_limit_s=30.0
        )
        for run in runs:
            self.add(run)
        self._world.recover()
        policy = fleet_policy("local-threshold", parameters={"violations": 10_000})
        self._manager = FleetManager(self._world, policy, None, self.home / "journal.jsonl")

    def add(self, run: Run) -> None:
        """Register the query of a run, with the lease of its scenario."""
        self._world.lease_s = run.plan.lease_s
        self._world.add([run.query])

    def turn(self) -> None:
        """Do what `FleetManager.run` does; all servers are hosts, unless they are shunned."""
        found = self._world
        found.reconcile()
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + found.interval_s
        while len(found.hosts) + len(found.shunned) < len(self.servers):
            found.lease(f"host-{found.leased_so_far + 1}")
        self._manager.turn()
        soon_s = time.monotonic() + 1.0
        for entry in found.queries.values():
            # Spark gives a Python worker 10 s to start. On a crowded machine this is often not
            # enough, and the runs would spend their time in backing off.
            entry.failures, entry.retry_s = 0, min(entry.retry_s, soon_s)

    def perform(self, scenarios: Iterable[Scenario], at_once: int) -> Iterator[tuple[Run, Result]]:
        """Perform runs, a few at the same time; yield each with its result."""
        waiting = list(scenarios)
        while waiting or self.runs:
            while waiting and len(self.runs) < at_once:
                log.warning("--- %s", waiting[0])
                self.runs.append(Run(self, waiting.pop(0)))
            self.turn()
            for run in list(self.runs):
                result = run.advance()
                if result is not None:
                    self.runs.remove(run)
                    yield run, result
            time.sleep(0.05)

    def host_for(self, run: Run) -> str | None:
        """A host that answers and on which no other query runs; None if there is none now.

        There is none while another query starts, since starts need most of the CPU.
        """
        found = self._world
        if any(other.starting for other in self.runs if other is not run):
            return None
        used = {name for e in found.queries.values() for name in (e.host, e.target)}
        for name, host in found.hosts.items():
            up = host.host is not None and host.view is not None and not host.leaving
            if up and name not in used and self.server_of(name) not in self.faulty:
                return name
        return None

    def server_of(self, host: str) -> Server:
        """The server that is a host of this name."""
        found = self._world.hosts[host].host
        assert found is not None
        return self.server_at(found.place)

    def server_at(self, place: str) -> Server:
        """The server at an address."""
        return next(s for s in self.servers if s.endpoint == place)

    def well(self) -> list[Server]:
        """The servers without a fault that the fleet uses."""
        away = {*self.faulty, *map(self.server_at, self.world.shunned)}
        return [server for server in self.servers if server not in away]

    def copies(self, servers: Iterable[Server]) -> list[str]:
        """The queries that run on some servers, asked by a connection of its own."""
        found = []
        for server in servers:
            host = ConnectHost(server.endpoint, session_id(FLEET, server.endpoint))
            view = host.look(60.0)
            found += [name for name, seen in view.queries.items() if seen.active]
        return found


class AutoBroker(broker.LocalBroker):
    """A broker that makes topics when they are first used."""

    def start(self) -> Any:
        plain = broker._settings

        def settings(*given: Any) -> str:
            return plain(*given).replace("topics.enable=false", "topics.enable=true")

        vars(broker)["_settings"] = settings
        try:
            return super().start()
        finally:
            vars(broker)["_settings"] = plain


class Fault(threading.Thread):
    """Waits for the beginning of a batch, and then puts a server out of reach for some time.

    It has its own thread, so that its times do not depend on what the manager does. began_s,
    ended_s: on a monotonic clock, 0 before. in_flight: whether a batch was in flight. may_end: the
    fault does not end before this is set.
    """

    def __init__(self, server: Server, plan: Scenario, checkpoint: Checkpoint) -> None:
        super().__init__(daemon=True)
        self.server, self.plan, self.checkpoint = server, plan, checkpoint
        self.began_s = self.ended_s = 0.0
        self.in_flight = False
        self.may_end = threading.Event()

    def run(self) -> None:
        before, end_s = max(self.checkpoint.numbers("offsets")), time.monotonic() + 20.0
        while max(self.checkpoint.numbers("offsets")) == before and time.monotonic() < end_s:
            time.sleep(0.01)
        time.sleep(self.plan.after_s)
        mend = FAULTS[self.plan.fault](self.server)
        self.in_flight = self.checkpoint.in_flight
        self.began_s = time.monotonic()
        time.sleep(self.plan.lasts_s)
        self.may_end.wait(LIMIT_S)
        mend()
        self.ended_s = time.monotonic()


Steps = Generator[tuple[str, Callable[[], bool]], None, Result]


class Run:
    """One run. It is a sequence of conditions, and continues when the next one holds."""

    def __init__(self, lane: Lane, scenario: Scenario) -> None:
        self.lane, self.plan = lane, scenario
        self.name = f"run-{scenario.seed}"
        self.folder = lane.home / self.name
        self.source = Source(self.folder / "source", scenario.seed)
        self.query = make_query(self.name, self.folder, scenario.sink, lane.bootstrap)
        self.checkpoint = Checkpoint(lane.home.resolve() / "checkpoints" / self.name)
        self.fault: Fault | None = None
        self.been: set[str] = set()
        self.noticed_s: float | None = None
        self.moved_s: float | None = None
        self.freed_s: float | None = None
        self._steps = self._perform()
        self._began_s = time.monotonic()
        self._next()

    @property
    def starting(self) -> bool:
        """Whether the query has been placed and has completed no batch."""
        return self.name in self.lane.world.queries and not self.checkpoint.numbers("commits")

    def advance(self) -> Result | None:
        """Take the next step if it is time for it; return the result at the end."""
        self._note()
        try:
            if self._seen():
                self._next()
            elif time.monotonic() > self._limit_s:
                raise TimeoutError(f"{self._what}: not in {LIMIT_S:g} s")
        except StopIteration as end:
            result: Result = end.value
            return result
        except Exception as error:
            log.exception("run %d failed", self.plan.seed)
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            return Result.failed(self.plan, why)
        return None

    def _next(self) -> None:
        self._what, self._seen = next(self._steps)
        self._limit_s = time.monotonic() + LIMIT_S

    def _where(self) -> str:
        """The address of the server that runs the query, as the fleet knows it; empty for none."""
        entry = self.lane.world.queries.get(self.name)
        return self._place(entry.host) if entry is not None else ""

    def _place(self, name: str | None) -> str:
        host = self.lane.world.hosts.get(name or "")
        return host.host.place if host is not None and host.host is not None else ""

    def _note(self) -> None:
        """Note where the query is, and when the fleet reacts to the fault."""
        where, fault = self._where(), self.fault
        entry = self.lane.world.queries.get(self.name)
        if entry is not None:  # a start that got no answer may have happened all the same
            self.been |= {where, self._place(entry.target if entry.busy else "")} - {""}
        if fault is None or not fault.began_s or self.name not in self.lane.world.queries:
            return
        passed_s = time.monotonic() - fault.began_s
        if where != fault.server.endpoint and self.noticed_s is None:
            self.noticed_s = passed_s
            fault.may_end.set()
        if where not in ("", fault.server.endpoint) and self.moved_s is None:
            self.moved_s = passed_s
        back = fault.ended_s and fault.server.endpoint not in self.lane.world.shunned
        if back and self.noticed_s is not None and self.freed_s is None:
            self.freed_s = time.monotonic() - fault.ended_s

    def _perform(self) -> Steps:
        lane, plan = self.lane, self.plan
        self.source.write(6)
        yield "a free host", self._placed
        yield "the first batch", lambda: bool(self._where() and self.checkpoint.numbers("commits"))
        yield "a server to put out of reach", self._reserved
        assert self.fault is not None
        fault, server = self.fault, self.fault.server
        self.source.write(2)
        if not lane.until_noticed:
            fault.may_end.set()
        fault.start()
        yield "the fault", lambda: bool(fault.began_s)
        self.source.write(2)
        if plan.restart:
            middle_s = fault.began_s + plan.lasts_s * 0.4
            yield "the middle of the fault", lambda: time.monotonic() >= middle_s
            lane.restart_manager()
        yield "the end of the fault", lambda: bool(fault.ended_s)
        lane.faulty.discard(server)
        self.source.write(2)
        yield "all rows", lambda: self.checkpoint.has_all(self.source.files)
        yield "the server back", lambda: server.endpoint not in lane.world.shunned
        problems: list[str] = []
        running, end_s = list[str](), time.monotonic() + LIMIT_S
        while not running and time.monotonic() < end_s:
            # It may be on its way to another server, because of the fault of another run.
            yield "a copy that runs", lambda: bool(self._where())
            running = yield from self._asked(self._copies)
        if running != [self.name]:
            problems.append(f"running: {running}")
        lane.world.remove([self.name])
        yield "the removal", lambda: self.name not in lane.world.queries
        if left := (yield from self._asked(self._copies)):
            problems.append(f"left: {left}")
        end_s = time.monotonic() + 30.0
        yield "the end of its workers", lambda: not self._workers() or time.monotonic() > end_s
        if workers := self._workers():
            problems.append(f"processes left: {workers}")
        result = yield from self._asked(lambda: self._compare(problems))
        return replace(result, took_s=time.monotonic() - self._began_s)

    def _placed(self) -> bool:
        """Start the query on a host of its own, once there is one."""
        host = self.lane.host_for(self)
        if host is None:
            return False
        self.lane.add(self)
        self.lane.world.move(self.name, host)
        return True

    def _reserved(self) -> bool:
        """Take the server that runs the query, unless too few others would be left."""
        lane, well = self.lane, self.lane.well()
        found = [s for s in well if s.endpoint == self._where() and not lane.readers[s]]
        if not found or len(well) < 2:
            return False
        lane.faulty.add(found[0])
        self.fault = Fault(found[0], self.plan, self.checkpoint)
        return True

    def _asked(self, work: Callable[[], T]) -> Generator[tuple[str, Callable[[], bool]], None, T]:
        """Call something that asks the servers on which the query was, while they are well."""
        lane = self.lane
        where = [lane.server_at(place) for place in self.been]
        yield "answering servers", lambda: set(where) <= set(lane.well())
        lane.readers.update(where)  # no other run puts them out of reach meanwhile
        call = BackgroundCall(work)
        yield "an answer", lambda: call.done(0.0)
        lane.readers.subtract(where)
        if call.error is not None:
            raise call.error
        return cast(T, call.value)

    def _copies(self) -> list[str]:
        every = self.lane.copies(map(self.lane.server_at, self.been))
        return [name for name in every if name == self.name]

    def _workers(self) -> list[int]:
        """The Python processes that ran the function of the query and have not ended."""
        found = []
        for file in (self.folder / "workers").glob("*"):
            with contextlib.suppress(OSError):
                if b"foreach_batch_worker" in Path(f"/proc/{file.name}/cmdline").read_bytes():
                    found.append(int(file.name))
        return found

    def _compare(self, problems: list[str]) -> Result:
        with reading(self.lane.server_at(min(self.been))) as session:
            source = session.read.schema(SCHEMA).json(str(self.source.folder))
            want = rows_of(result_of(source))
            got = self._written(session)
        extra, missing = got - want, want - got
        if missing:
            problems.append(f"missing: {sorted(missing)[:5]}")
        if set(got) - set(want):
            problems.append(f"unknown: {sorted(set(got) - set(want))[:5]}")
        starts = Fence(self.checkpoint.folder).latest()
        repeated_in: list[int] = []
        if self.plan.sink == "kafka":
            repeated_in = self._batches_of({row[0] for row in extra})
            if len(repeated_in) > starts - 1:
                problems.append(f"repeated: batches {repeated_in} with {starts} starts")
        elif extra:
            problems.append(f"twice: {sorted(extra)[:5]}")
        problems += self._contents()
        if self.plan.fault in CUT_OFF:
            tries = [file.name for file in (self.folder / "tries").glob("*")]
            problems += ["two copies at the same time"] * side_by_side(tries)
        plan, fault = self.plan, self.fault
        assert fault is not None
        return Result(
            seed=plan.seed,
            sink=plan.sink,
            fault=plan.fault,
            lasts_s=plan.lasts_s,
            lease_s=plan.lease_s,
            restart=plan.restart,
            rows=want.total(),
            equal=set(got) == set(want),
            repeated=extra.total(),
            repeated_batches=len(repeated_in),
            starts=starts,
            noticed_s=self.noticed_s,
            moved_s=self.moved_s,
            freed_s=self.freed_s,
            in_flight=fault.in_flight,
            problem="; ".join(problems),
        )

    def _written(self, session: Any) -> Counter[tuple[Any, ...]]:
        target = self.folder / "sink"
        if self.plan.sink == "kafka":
            options = {"kafka.bootstrap.servers": self.lane.bootstrap, "subscribe": TOPIC}
            rows = session.read.format("kafka").options(**options).load()
            fields = rows.selectExpr(f"from_json(string(value), '{SCHEMA}') as row").select("row.*")
            return rows_of(fields.where(f"word = 'r{self.plan.seed}'"))
        if self.plan.sink == "files":
            return rows_of(session.read.schema(SCHEMA).json(str(target)))
        lines = [ln for f in target.glob("[0-9]*.json") for ln in f.read_text().splitlines()]
        plain = map(json.loads, lines)
        return Counter((row["id"], row["word"], row["value"]) for row in plain)

    def _batches_of(self, numbers: set[int]) -> list[int]:
        """The batches of some rows: a row is written in the first batch that has it."""
        first: dict[int, int] = {}
        for file, batch in self.checkpoint.batches().items():
            for line in (self.source.folder / file).read_text().splitlines():
                number = json.loads(line)["id"]
                first[number] = min(batch, first.get(number, batch))
        return sorted({first[number] for number in numbers})

    def _contents(self) -> list[str]:
        """Batches that had different rows in two attempts."""
        texts: dict[str, set[str]] = {}
        for file in (self.folder / "tries").glob("*"):
            texts.setdefault(file.name.partition("-")[0], set()).add(file.read_text())
        return [
            f"batch {batch} had two contents" for batch, every in texts.items() if len(every) > 1
        ]


@contextlib.contextmanager
def reading(server: Server) -> Iterator[Any]:
    """A session for reading results."""
    made = connect(server.endpoint, str(uuid.uuid4()))
    try:
        yield made
    finally:
        made.stop()


def rows_of(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], row["word"], row["value"]) for row in frame.collect())


def take_the_fence_away() -> None:
    """Let every start use the bare checkpoint, and no lease be waited for.

    Epochs are still counted, since the number of starts is compared with the rows.
    """
    claim = Fence.claim

    def bare(one: Fence) -> str:
        claim(one)
        return str(one.checkpoint)

    fence: Any = Fence
    fence.claim = bare
    watch: Any = LeaseWatch
    watch.over = lambda _: True
    watch.left_s = 0.0


def run_all(
    scenarios: list[Scenario], ledger: Path, folder: Path, hosts: int, until_noticed: bool
) -> int:
    """Perform runs and note their results; return how many had a problem."""
    vars(world)["SLOW_S"] = vars(registry)["SLOW_S"] = QUICK_S
    wrong = 0
    kafka = any(scenario.sink == "kafka" for scenario in scenarios)
    lane = Lane(folder, kafka, hosts, until_noticed)
    with lane.closing:
        for run, result in lane.perform(scenarios, hosts):
            add(ledger, result)
            print(result.line(), flush=True)
            if result.problem:
                wrong += 1
            else:
                shutil.rmtree(run.folder)
    return wrong


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    reader.add_argument("--seed", type=int, default=1, help="the first seed")
    reader.add_argument("--runs", type=int, default=200, help="the number of seeds")
    reader.add_argument("--sinks", default=",".join(SINKS), help="only runs with these")
    reader.add_argument("--hosts", type=int, default=3, help="servers, and runs at the same time")
    reader.add_argument("--until-noticed", action="store_true", help="no fault ends before")
    reader.add_argument("--unfenced", action="store_true", help="without the fence")
    reader.add_argument("--ledger", type=Path, help="default: that of the page")
    reader.add_argument("--logs", type=Path, default=ROOT / "out" / "fence")
    reader.add_argument("--page", action="store_true", help="write the page from the ledger")
    given = reader.parse_args()
    if given.page:
        write_page()
        return 0
    if why := why_not():
        sys.exit(f"this machine has no network namespaces for us: {why}")
    enter("tests.fleet.partitions", sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so clean up
    if given.unfenced:
        take_the_fence_away()
    ledger = given.ledger or (UNFENCED if given.unfenced else LEDGER)
    done = {
        result.seed for result in last_runs(read(ledger)) if not result.problem or given.unfenced
    }
    commit()  # what is loaded now, whatever is committed while the runs last
    every = map(Scenario.of, range(given.seed, given.seed + given.runs))
    wanted = [s for s in every if s.seed not in done and s.sink in given.sinks.split(",")]
    given.logs.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=given.logs / "fleet.log",
        format="%(asctime)s %(name)s %(message)s",
        level=logging.WARNING,
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with tempfile.TemporaryDirectory(prefix="tidegate-partitions-") as folder:
        wrong = run_all(wanted, ledger, Path(folder), given.hosts, given.until_noticed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
