"""Servers that are cut off or suspended in the middle of a batch, and then continue.

Each run has a query of its own with one kind of sink, and one fault on the server that runs it. The
seed determines both. The fault begins while a batch is in flight. Rows arrive before, during and
after it. In the end the sink must equal a batch computation, and no copy of the query and none of
its processes may be left.

    python -m tests.fleet.partitions [--seed 1] [--runs 200] [--lanes 2]

Finished runs are in the ledger, one line each; a second call runs only what is missing. ``--page``
writes the page in ``docs/measured`` from the ledger.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fleet.cut_off import FAULTS, HUB, Server, enter, why_not
from tests.fleet.ledger import LEDGER, Result, add, read, write_page
from tidegate.errors import BackendError
from tidegate.fleet import registry, world
from tidegate.fleet.connect import ConnectHost, connect, session_id
from tidegate.fleet.fence import Fence, epoch_of
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.providers import StaticProvider
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.world import FleetWorld
from tidegate.model.topology import Resources
from tidegate.spark.local import broker
from tidegate.spark.local.kafka_jars import connector_jars

ROOT = Path(__file__).parents[2]
FLEET = "partitions"
SCHEMA = "id long, word string, value double"
TOPIC = "partitions"
SINKS = ("files", "batches", "kafka")
ROWS = 12
"""Rows of a file. A batch takes at least two files, and every new row takes `SLOW_MS`."""
SLOW_MS = 30
LIMIT_S = 400.0
"""A step of a run that takes longer has failed."""
QUICK_S = 3.0
"""Stands for `SLOW_S`, the minute that a host which has just come up may be silent."""

log = logging.getLogger("partitions")


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for.

    sink: ``files``, ``batches`` or ``kafka``. fault: a name in `FAULTS`. lasts_s: its length in
    seconds. after_s: it begins so many seconds after a batch has begun. restart: whether another
    manager takes over while it lasts. lease_s, silence_s: settings of the fleet, in seconds.
    """

    seed: int
    sink: str
    fault: str
    lasts_s: float
    after_s: float
    restart: bool
    lease_s: float
    silence_s: float

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Draw a scenario. One in ten lasts for minutes, with the fleet's default settings."""
        rng = random.Random(seed)
        sink = rng.choices(SINKS, (4, 4, 2))[0]
        fault = rng.choice(list(FAULTS))
        kind = rng.choices(("moment", "seconds", "minutes"), (2, 7, 1))[0]
        low, high = {"moment": (0.2, 1.5), "seconds": (3.0, 10.0), "minutes": (60.0, 120.0)}[kind]
        lease_s, silence_s = (30.0, 10.0) if kind == "minutes" else (2.0, 2.0)
        lasts_s, after_s = round(rng.uniform(low, high), 1), round(rng.uniform(0.0, 0.8), 2)
        restart = kind != "moment" and rng.random() < 0.15
        return cls(seed, sink, fault, lasts_s, after_s, restart, lease_s, silence_s)


class Source:
    """A folder of JSON files. A fifth of the rows have occurred before, so that state matters."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.rng = random.Random(seed)
        self.files = self.last = 0
        folder.mkdir(parents=True)

    def write(self, files: int) -> None:
        for _ in range(files):
            self.files += 1
            text = "".join(json.dumps(self._row()) + "\n" for _ in range(ROWS))
            hidden = self.folder / f".{self.files}"
            hidden.write_text(text, encoding="utf-8")
            hidden.rename(self.folder / f"{self.files:04}.json")

    def _row(self) -> dict[str, Any]:
        if self.last and self.rng.random() < 0.2:
            number = self.rng.randint(1, self.last)
        else:
            self.last = number = self.last + 1
        value = random.Random(f"{self.seed}-{number}").randrange(1000)
        return {"id": number, "word": f"r{self.seed}", "value": float(value)}


def result_of(frame: Any) -> Any:
    """What the query computes, of a stream or a batch."""
    return frame.dropDuplicates(["id"]).selectExpr("id", "word", "value * 2 + id as value")


def make_query(name: str, folder: Path, sink: str, bootstrap: str) -> ContinuousQuery:
    """A query from the files in ``source`` to a sink in ``sink``, or to Kafka."""
    source, target, tries = (str(folder / part) for part in ("source", "sink", "tries"))

    def define(session: Any, checkpoint: str) -> Any:
        rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(source)
        slow = f"reflect('java.lang.Thread', 'sleep', {SLOW_MS}L) is not null"
        writer = result_of(rows).where(slow)
        epoch = epoch_of(checkpoint)

        def put(frame: Any, batch: int) -> None:
            text = "\n".join(sorted(json.dumps(row.asDict()) for row in frame.collect()))
            once = f"{batch}-{epoch}-{time.time_ns()}"
            Path(tries, once).write_text(text, encoding="utf-8")
            time.sleep(0.2)
            part = Path(target, f".{once}")
            part.write_text(text, encoding="utf-8")
            part.rename(Path(target, f"{batch}.json"))

        if sink == "kafka":
            rows = writer.selectExpr("to_json(struct(*)) as value")
            kafka = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            stream = kafka.option("topic", TOPIC)
        elif sink == "batches":
            stream = writer.writeStream.foreachBatch(put)
        else:
            stream = writer.writeStream.format("json").option("path", target)
        return stream.trigger(processingTime="200 milliseconds")

    if sink == "batches":
        Path(target).mkdir()
        Path(tries).mkdir()
    return ContinuousQuery(name, define)


class Checkpoint:
    """What can be read in a checkpoint, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self, part: str) -> set[int]:
        with contextlib.suppress(FileNotFoundError):
            return {int(f.name) for f in (self.folder / part).iterdir() if f.name.isdecimal()}
        return set()

    @property
    def in_flight(self) -> bool:
        """Whether a batch has begun and has not ended, after at least one that has."""
        done = self.numbers("commits")
        return bool(done) and max(self.numbers("offsets")) > max(done)

    def batches(self) -> dict[str, int]:
        """The batch of each file that was read, by its name."""
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            for file in (self.folder / "sources" / "0").iterdir():
                if file.name.partition(".")[0].isdecimal():
                    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                        plain = json.loads(line)
                        found[plain["path"].rpartition("/")[2]] = plain["batchId"]
        return found

    def has_all(self, files: int) -> bool:
        """Whether so many files have been read, and their batches committed."""
        read = self.batches()
        return len(read) == files and max(read.values(), default=-1) in self.numbers("commits")


class Lane:
    """Two servers and a manager, on which runs follow each other.

    folder: for everything that runs write. kafka: whether to start a broker.
    """

    def __init__(self, folder: Path, kafka: bool) -> None:
        self.folder = folder
        self.closing = contextlib.ExitStack()
        self.servers: list[Server] = []
        self.bootstrap = ""
        if kafka:
            broker.LOOPBACK = HUB  # the address that the servers can reach
            made = self.closing.enter_context(AutoBroker(folder=folder / "kafka"))
            self.bootstrap = made.address()
        self.jars = connector_jars() if kafka else ""
        self.closing.callback(self.close)
        self.incarnation = 0
        self.fleet: FleetManager | None = None
        try:
            self.fresh()
        except BaseException:
            self.closing.close()
            raise

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.close()
        self.servers = []

    @property
    def world(self) -> FleetWorld:
        assert self.fleet is not None
        found = self.fleet.world
        assert isinstance(found, FleetWorld)
        return found

    def fresh(self) -> None:
        """Start new servers and a new fleet."""
        self.fleet = None
        self.incarnation += 1
        self.close()
        home = self.folder / f"fleet-{self.incarnation}"
        first = 2 * self.incarnation - 1
        self.servers = [Server(n, home / f"server-{n}", self.jars) for n in (first, first + 1)]
        for server in self.servers:
            server.ready()
        self.home = home
        self.manage(2.0, 2.0)

    def manage(
        self, lease_s: float, silence_s: float, queries: tuple[ContinuousQuery, ...] = ()
    ) -> None:
        """Let a new manager take over; the queries run on meanwhile."""
        if self.fleet is not None:
            self.fleet.leave_queries = True
            self.fleet.shut_down()
        provider = StaticProvider(FLEET, [s.endpoint for s in self.servers], Resources(2))
        made = FleetWorld(
            provider,
            self.home,
            interval_s=1.0,
            silence_s=silence_s,
            lease_s=lease_s,
            move_limit_s=30.0,
            max_failures=20,  # on a crowded machine, Spark gives up on a Python worker after 10 s
        )
        made.add(queries)
        made.recover()
        policy = fleet_policy("local-threshold", parameters={"violations": 10_000})
        self.fleet = FleetManager(made, policy, None, self.home / "journal.jsonl")

    def until(self, seen: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> float:
        """Run turns until a condition holds; return the seconds that it took."""
        began_s = time.monotonic()
        while not seen():
            if time.monotonic() - began_s > limit_s:
                raise TimeoutError(f"{what}: not in {limit_s:g} s")
            assert self.fleet is not None
            self.fleet.turn()
            time.sleep(0.1)
        return time.monotonic() - began_s

    def both_up(self) -> None:
        """Wait until both servers are hosts of the fleet and have answered."""

        def seen() -> bool:
            hosts = self.world.hosts
            if len(hosts) < 2 and not self.world.shunned:
                with contextlib.suppress(BackendError):
                    self.world.lease(f"host-{self.world.leased_so_far + 1}")
            up = [h for h in hosts.values() if h.host is not None and h.view is not None]
            return len(up) == 2

        self.until(seen, "two hosts")

    def copies(self) -> dict[str, list[str]]:
        """The queries that run on each server, asked by a connection of its own."""
        found = {}
        for server in self.servers:
            host = ConnectHost(server.endpoint, session_id(FLEET, server.endpoint))
            view = host.look(60.0)
            found[server.endpoint] = [name for name, seen in view.queries.items() if seen.active]
        return found

    def workers(self) -> list[int]:
        """The Python processes on the servers that belong to a query."""
        found = []
        for server in self.servers:
            for pid in server.processes():
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if b"foreach_batch_worker" in words:
                        found.append(pid)
        return found

    def server_of(self, host: str) -> Server:
        place = self.world.hosts[host].host
        assert place is not None
        return next(s for s in self.servers if s.endpoint == place.place)

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """A session on the first server, for reading results."""
        made = connect(self.servers[0].endpoint, str(uuid.uuid4()))
        try:
            yield made
        finally:
            made.stop()


class AutoBroker(broker.LocalBroker):
    """A broker that makes topics when they are first used."""

    def start(self) -> Any:
        plain = broker._settings

        def settings(*given: Any) -> str:
            return plain(*given).replace("topics.enable=false", "topics.enable=true")

        broker._settings = settings
        try:
            return super().start()
        finally:
            broker._settings = plain


class Mend:
    """Ends a fault after some seconds, whatever the manager does meanwhile."""

    def __init__(self, mend: Callable[[], None], after_s: float) -> None:
        self._mend, self._done_s = mend, 0.0
        self._timer = threading.Timer(after_s, self._run)
        self._timer.start()

    def _run(self) -> None:
        self._mend()
        self._done_s = time.monotonic()

    def wait(self) -> float:
        """Wait for the end of the fault; return its time, on a monotonic clock."""
        self._timer.join()
        return self._done_s


class Run:
    """One run on a lane."""

    def __init__(self, lane: Lane, scenario: Scenario) -> None:
        self.lane, self.plan = lane, scenario
        self.name = f"run-{scenario.seed}"
        self.folder = lane.home / self.name
        self.source = Source(self.folder / "source", scenario.seed)
        self.query = make_query(self.name, self.folder, scenario.sink, lane.bootstrap)
        self.checkpoint = Checkpoint(lane.home.resolve() / "checkpoints" / self.name)
        self.times: dict[str, float | None] = {"noticed": None, "moved": None, "freed": None}

    def entry(self) -> registry.QueryEntry:
        return self.lane.world.queries[self.name]

    def perform(self) -> Result:
        """Run it to its end and return what was found."""
        lane, plan, began_s = self.lane, self.plan, time.monotonic()
        lane.world.lease_s, lane.world.silence_s = plan.lease_s, plan.silence_s
        lane.both_up()
        lane.world.add([self.query])
        self.source.write(6)
        lane.until(lambda: self.checkpoint.in_flight, "a batch in flight")
        lane.until(lambda: bool(self.entry().host) and not self.entry().busy, "the start")
        self.victim = self.entry().host
        self.server = lane.server_of(self.victim)
        self._catch_a_batch()
        mend = Mend(FAULTS[plan.fault](self.server), plan.lasts_s)
        self.fault_s = time.monotonic()
        try:
            self._wait_out()
        finally:
            mended_s = mend.wait()
        self.source.write(2)
        self.until(lambda: self.checkpoint.has_all(self.source.files), "all rows")
        self.until(lambda: not lane.world.shunned, "the server back")
        if self.times["noticed"] is not None:
            self.times["freed"] = time.monotonic() - mended_s
        problems = self._end()
        return self._compare(problems, time.monotonic() - began_s)

    def until(self, seen: Callable[[], bool], what: str) -> None:
        """Run turns until a condition holds, and note when the fleet reacts to the fault."""

        def noted() -> bool:
            self._note()
            return seen()

        self.lane.until(noted, what)

    def _note(self) -> None:
        where, passed_s = self.entry().host, time.monotonic() - self.fault_s
        if where != self.victim and self.times["noticed"] is None:
            self.times["noticed"] = passed_s
        if where not in ("", self.victim) and self.times["moved"] is None:
            self.times["moved"] = passed_s

    def _catch_a_batch(self) -> None:
        """Wait for the beginning of a batch, and then as long as the scenario says."""
        self.source.write(2)
        begun = max(self.checkpoint.numbers("offsets"))
        self.lane.until(lambda: max(self.checkpoint.numbers("offsets")) > begun, "a new batch")
        time.sleep(self.plan.after_s)

    def _wait_out(self) -> None:
        """Run turns for as long as the fault lasts; rows arrive meanwhile."""
        lane, plan = self.lane, self.plan
        self.source.write(2)
        if plan.restart:
            middle_s = self.fault_s + plan.lasts_s * 0.4
            self.until(lambda: time.monotonic() >= middle_s, "the middle of the fault")
            lane.manage(plan.lease_s, plan.silence_s, (self.query,))
            # A new manager gives other names to the hosts.
            again = [n for n in lane.world.hosts if lane.server_of(n) is self.server]
            self.victim = again[0] if again else ""
        end_s = self.fault_s + plan.lasts_s
        self.until(lambda: time.monotonic() >= end_s, "the end of the fault")

    def _end(self) -> list[str]:
        """Stop the query; return what must not be."""
        lane, problems = self.lane, []
        running = [name for names in lane.copies().values() for name in names]
        lane.world.remove([self.name])
        lane.until(lambda: self.name not in lane.world.queries, "the removal")
        left = [name for names in lane.copies().values() for name in names]
        with contextlib.suppress(TimeoutError):
            lane.until(lambda: not lane.workers(), "the end of all workers", 20.0)
        if running != [self.name]:
            problems.append(f"running: {running}")
        if left:
            problems.append(f"left: {left}")
        if workers := lane.workers():
            problems.append(f"processes left: {workers}")
        return problems

    def _compare(self, problems: list[str], took_s: float) -> Result:
        with self.lane.session() as session:
            source = session.read.schema(SCHEMA).json(str(self.source.folder))
            want = rows_of(result_of(source))
            got = self._written(session)
        extra, missing = got - want, want - got
        if missing:
            problems.append(f"missing: {sorted(missing)[:5]}")
        if set(got) - set(want):
            problems.append(f"unknown: {sorted(set(got) - set(want))[:5]}")
        epochs = Fence(self.checkpoint.folder).latest()
        repeated_in: list[int] = []
        if self.plan.sink == "kafka":
            repeated_in = self._batches_of({row[0] for row in extra})
            if len(repeated_in) >= epochs:
                problems.append(f"repeated: batches {repeated_in} with {epochs} starts")
        elif extra:
            problems.append(f"twice: {sorted(extra)[:5]}")
        problems += self._contents()
        plan, times = self.plan, self.times
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
            starts=epochs,
            noticed_s=times["noticed"],
            moved_s=times["moved"],
            freed_s=times["freed"],
            took_s=took_s,
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


def rows_of(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], row["word"], row["value"]) for row in frame.collect())


def run_lane(scenarios: list[Scenario], ledger: Path, folder: Path) -> int:
    """Run scenarios one after the other; return how many had a problem."""
    world.SLOW_S = registry.SLOW_S = QUICK_S
    wrong = 0
    lane = Lane(folder, any(scenario.sink == "kafka" for scenario in scenarios))
    with lane.closing:
        for scenario in scenarios:
            log.warning("--- %s", scenario)
            run = Run(lane, scenario)
            try:
                result = run.perform()
            except Exception as error:
                log.exception("run %d failed", scenario.seed)
                result = Result.failed(scenario, f"{type(error).__name__}: {error}".splitlines()[0])
            add(ledger, result)
            print(result.line(), flush=True)
            if result.problem:
                wrong += 1
                lane.fresh()
            else:
                shutil.rmtree(run.folder)
    return wrong


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    reader.add_argument("--seed", type=int, default=1, help="the first seed")
    reader.add_argument("--runs", type=int, default=200, help="the number of seeds")
    reader.add_argument("--sinks", default=",".join(SINKS), help="only runs with these")
    reader.add_argument("--lanes", type=int, default=1, help="runs at the same time")
    reader.add_argument("--ledger", type=Path, default=LEDGER)
    reader.add_argument("--logs", type=Path, default=ROOT / "out" / "fence")
    reader.add_argument("--page", action="store_true", help="write the page from the ledger")
    reader.add_argument("--lane", type=int, default=None, help=argparse.SUPPRESS)
    given = reader.parse_args()
    if given.page:
        write_page()
        return 0
    if why := why_not():
        sys.exit(f"this machine has no network namespaces for us: {why}")
    if given.lane is None and given.lanes > 1:
        base = [sys.executable, "-m", "tests.fleet.partitions", *sys.argv[1:]]
        lanes = [subprocess.Popen([*base, f"--lane={n}"]) for n in range(given.lanes)]
        return max(lane.wait() for lane in lanes)
    enter("tests.fleet.partitions", sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so clean up
    done = {result.seed for result in read(given.ledger)}
    every = map(Scenario.of, range(given.seed, given.seed + given.runs))
    wanted = [s for s in every if s.seed not in done and s.sink in given.sinks.split(",")]
    if given.lane is not None:
        wanted = [s for s in wanted if s.seed % given.lanes == given.lane]
    given.logs.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=given.logs / f"lane-{given.lane or 0}.log",
        format="%(asctime)s %(name)s %(message)s",
        level=logging.WARNING,
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with tempfile.TemporaryDirectory(prefix="tidegate-partitions-") as folder:
        return 1 if run_lane(wanted, given.ledger, Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
