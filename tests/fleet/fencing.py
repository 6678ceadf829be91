"""Servers that are paused or cut off in the middle of a batch, replaced, and continue.

Three queries run on two Spark Connect servers that the manager cannot kill: one without state and
one with windows write files, one writes with ``foreachBatch``. In each run, a fault hits one server
while rows arrive: its process is paused, or its link is cut (both ways, to it, or from it), until
its queries run elsewhere or for a moment. Then it continues. In the end every sink must have the
rows that Python computes from the same input, and no row twice. The seed determines what happens
and when; the moment within a batch also depends on the machine.

    python -m tests.fleet.fencing [--runs 200] [--first 1] [--out out/fence.jsonl]

Each run adds one line of JSON to the file. Seeds that are in the file are not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.fleet.namespaces import CUTS, Server, can_cut
from tidegate.fleet.fence import Fence, epoch_of
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.providers import StaticProvider
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.registry import SLOW_S
from tidegate.fleet.world import FleetWorld
from tidegate.model.topology import Resources

SCHEMA = "id long, second long, name string"
QUERIES = ("plain", "windows", "each")
WINDOW_S = 4
LATE_S = 4
LEASE_S = 2.0
RUNS_PER_SERVER = 20
PAUSE_S = 0.3
"""Seconds that ``foreachBatch`` takes before and after it writes, so that faults fall into it."""


class Input:
    """Files of rows; each appears complete. Event time advances by a second with each file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.rows: list[tuple[int, int, str]] = []
        self.files = 0

    def write(self, rng: random.Random, count: int = 20) -> None:
        first = len(self.rows)
        self._file([(first + n, self.files, f"n{rng.randrange(3)}") for n in range(count)])

    def finish(self) -> None:
        """Write a row that closes all windows of the others."""
        self.files += 100
        self._file([(len(self.rows), self.files, "end")])

    def _file(self, rows: list[tuple[int, int, str]]) -> None:
        self.rows += rows
        self.files += 1
        hidden = self.folder / f".{self.files}"
        lines = [json.dumps(dict(zip(("id", "second", "name"), row, strict=True))) for row in rows]
        hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        hidden.rename(self.folder / f"{self.files:05}.json")

    def expected(self, query: str) -> Counter[tuple[Any, ...]]:
        """The rows that a sink must have in the end."""
        if query != "windows":
            return Counter((row[0],) for row in self.rows)
        groups: dict[tuple[int, str], list[int]] = {}
        for id_, second, name in self.rows:
            if name != "end":
                groups.setdefault((second // WINDOW_S * WINDOW_S, name), []).append(id_)
        return Counter((at, name, len(ids), sum(ids)) for (at, name), ids in groups.items())


def queries_of(folder: Path) -> list[ContinuousQuery]:
    """The three queries over the input in a folder."""
    source, sinks = str(folder / "input"), folder / "sinks"

    def read(session: Any) -> Any:
        reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 3)
        return reader.json(source)

    def write(frame: Any, name: str) -> Any:
        writer = frame.writeStream.format("json").option("path", str(sinks / name))
        return writer.trigger(processingTime="200 milliseconds")

    def plain(session: Any, checkpoint: str) -> Any:
        return write(read(session).selectExpr("id"), "plain")

    def windows(session: Any, checkpoint: str) -> Any:
        from pyspark.sql import functions as fn

        at = fn.timestamp_seconds("second")
        rows = read(session).withColumn("at", at).withWatermark("at", f"{LATE_S} seconds")
        window = fn.window("at", f"{WINDOW_S} seconds")
        sums = rows.groupBy(window, "name").agg(
            fn.count("id").alias("count"), fn.sum("id").alias("sum")
        )
        start = fn.unix_timestamp(fn.col("window.start")).alias("start")
        return write(sums.select(start, "name", "count", "sum"), "windows")

    def each(session: Any, checkpoint: str) -> Any:
        epoch, target, pause_s = epoch_of(checkpoint), str(sinks / "each"), PAUSE_S

        def put(frame: Any, batch: int) -> None:
            """Replace what was written under the number of this batch."""
            import time
            from pathlib import Path

            ids = [row.id for row in frame.collect()]
            time.sleep(pause_s)
            sink = Path(target)
            sink.mkdir(parents=True, exist_ok=True)
            part = sink / f".{batch}-{epoch}"
            part.write_text("".join(f'{{"id": {id_}}}\n' for id_ in ids), encoding="utf-8")
            part.replace(sink / f"{batch}.json")
            with (sink / ".log").open("a", encoding="utf-8") as log:
                log.write(f"{batch} {epoch}\n")
            time.sleep(pause_s)

        writer = read(session).selectExpr("id").writeStream.foreachBatch(put)
        return writer.trigger(processingTime="200 milliseconds")

    return [ContinuousQuery(f.__name__, f) for f in (plain, windows, each)]


def written(folder: Path, query: str) -> Counter[tuple[Any, ...]]:
    """The rows that readers of a sink see. Of a file sink, the files in its log count."""
    sink = folder / "sinks" / query
    if query == "each":
        files = set(sink.glob("[0-9]*.json"))
    else:
        entries: set[str] = set()
        for log in (sink / "_spark_metadata").glob("[0-9]*"):
            lines = log.read_text("utf-8").splitlines()[1:]
            entries |= {json.loads(line)["path"] for line in lines}
        files = {sink / Path(entry).name for entry in entries}
    names = ("start", "name", "count", "sum") if query == "windows" else ("id",)
    rows: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            plain = json.loads(line)
            rows[tuple(plain[name] for name in names)] += 1
    return rows


def in_flight(folder: Path, query: str) -> bool:
    """Whether a batch has begun and is not committed."""

    def last(name: str) -> int:
        checkpoint = folder / "fleet" / "checkpoints" / query / name
        return max((int(f.name) for f in checkpoint.glob("[0-9]*")), default=-1)

    return last("offsets") > last("commits")


class Disturbed(Protocol):
    """A server that can be paused or cut off."""

    def disturb(self, fault: str) -> None:
        """Pause it, or cut it off."""

    def heal(self) -> None:
        """Undo it."""


class Run:
    """One run. endpoints: of the servers, which have the same order as `servers`."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        servers: Sequence[Disturbed],
        endpoints: list[str],
        faults: Sequence[str],
    ) -> None:
        self.folder, self.seed, self.servers = folder, seed, servers
        self.rng = random.Random(seed)
        self.fault = self.rng.choice(faults)
        self.short = self.rng.random() < 0.15  # healed before anyone is replaced
        self.input = Input(folder / "input")
        provider = StaticProvider(f"fence-{seed}-{time.time_ns()}", endpoints, Resources(2))
        self.places = [endpoint.partition("/;")[0] for endpoint in endpoints]
        self.world = FleetWorld(
            provider,
            folder / "fleet",
            interval_s=1.0,
            silence_s=2.5,
            lease_s=LEASE_S,
            move_limit_s=60.0,
            moves_at_once=3,
        )
        self.world.add(queries_of(folder))
        policy = fleet_policy("local-threshold", parameters={"violations": 10_000})
        self.manager = FleetManager(self.world, policy)

    def until(self, seen: Callable[[], bool], what: str, limit_s: float = 240.0) -> float:
        began_s = time.monotonic()
        while not seen():
            if time.monotonic() - began_s > limit_s:
                status = json.dumps(self.manager.command({"do": "status"})["queries"], indent=1)
                raise TimeoutError(f"{what}: not in {limit_s:g} s\n{status}")
            self.manager.turn()
            time.sleep(0.1)
        return time.monotonic() - began_s

    def fence(self, query: str) -> Fence:
        found = self.world.queries[query].fence
        assert found is not None
        return found

    def place_of(self, query: str) -> str:
        host = self.world.hosts.get(self.world.queries[query].host)
        return "" if host is None or host.host is None else host.host.place

    def begin(self) -> None:
        """Start the queries and let each run a batch."""
        entries = self.world.queries.values()
        for name in ("host-1", "host-2"):
            self.world.lease(name)
        self.input.write(self.rng)
        self.until(lambda: all(e.host and e.batch >= 0 for e in entries), "the first batches")
        for query in QUERIES:  # spread over both servers, differently in each run
            self.world.move(query, self.rng.choice(("host-1", "host-2")))
        settled = lambda: all(e.host == e.target and not e.busy for e in entries)  # noqa: E731
        self.until(settled, "the placement")

    def play(self) -> dict[str, Any]:
        """Run, and return what happened."""
        began_s = time.monotonic()
        world, rng = self.world, self.rng
        self.begin()
        victim = world.hosts[world.queries[rng.choice(QUERIES)].host]
        victim.up_s = (victim.up_s or 0.0) - SLOW_S  # a new host would be given a minute
        assert victim.host is not None
        place = victim.host.place
        hit = [q for q in QUERIES if self.place_of(q) == place]
        server = self.servers[self.places.index(place)]
        for _ in range(rng.randint(2, 5)):
            self.input.write(rng)
            time.sleep(rng.uniform(0.0, 0.4))
        epochs = {q: self.fence(q).latest() for q in hit}
        server.disturb(self.fault)
        flying = [q for q in hit if in_flight(self.folder, q)]
        self.input.write(rng)
        replaced_s = None
        if self.short:
            time.sleep(rng.uniform(0.1, 1.0))
        else:
            gone = lambda: all(self.place_of(q) not in ("", place) for q in hit)  # noqa: E731
            replaced_s = self.until(gone, "the replacement")
            before = {q: world.queries[q].batch for q in hit}
            self.input.write(rng)
            if rng.random() < 0.7:  # otherwise it continues while the new copy starts
                done = lambda: all(world.queries[q].batch > before[q] for q in hit)  # noqa: E731
                self.until(done, "a batch of the new copy")
        # A server that is cut off has stopped its copies itself, if it has the plugin.
        released = [q for q in hit if '"released"' in (self.fence(q).lease(epochs[q]) or "")]
        server.heal()
        for _ in range(rng.randint(1, 3)):
            self.input.write(rng)
            self.manager.turn()
        self.until(lambda: not world.shunned, "an answer of the server")
        self.input.finish()

        def complete() -> bool:
            return all(
                written(self.folder, q).total() >= self.input.expected(q).total() for q in QUERIES
            )

        self.until(complete, "all rows")
        wrong = {
            q: [sum((got - want).values()), sum((want - got).values())]
            for q in QUERIES
            for got, want in [(written(self.folder, q), self.input.expected(q))]
            if got != want
        }
        log = (self.folder / "sinks" / "each" / ".log").read_text("utf-8").split("\n")
        batches = Counter(line.split()[0] for line in log if line)
        return {
            "seed": self.seed,
            "fault": self.fault,
            "replaced_s": None if replaced_s is None else round(replaced_s, 1),
            "hit": hit,
            "in_flight": flying,
            "stopped_by_itself": released,
            "epochs": {q: self.fence(q).latest() for q in QUERIES},
            "rows": len(self.input.rows),
            "batches_written_twice": sum(count > 1 for count in batches.values()),
            "extra_and_missing": wrong,
            "equal": not wrong,
            "took_s": round(time.monotonic() - began_s, 1),
        }


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--runs", type=int, default=200)
    reader.add_argument("--first", type=int, default=1, help="the first seed")
    reader.add_argument("--out", type=Path, default=Path("out/fence.jsonl"))
    reader.add_argument("--without-plugin", action="store_true")
    given = reader.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done: dict[int, dict[str, Any]] = {}
    if given.out.exists():
        lines = given.out.read_text("utf-8").splitlines()
        done = {run["seed"]: run for run in map(json.loads, lines)}
    linked = can_cut()
    faults = ("pause", "pause", *CUTS) if linked else ("pause",)
    seeds = [s for s in range(given.first, given.first + given.runs) if s not in done]
    if seeds:
        play(seeds, given.out, linked, faults, not given.without_plugin)
        done = {r["seed"]: r for r in map(json.loads, given.out.read_text("utf-8").splitlines())}
    runs = [run for run in done.values() if given.first <= run["seed"] < given.first + given.runs]
    equal = sum(run["equal"] for run in runs)
    flying = sum(bool(run["in_flight"]) for run in runs)
    print(f"{len(runs)} runs, {flying} with a batch in flight, {equal} with equal sinks")
    return 0 if equal == len(runs) == given.runs else 1


def play(seeds: list[int], out: Path, linked: bool, faults: Sequence[str], plugin: bool) -> None:
    """Play runs, and add their lines to a file. After some runs, and a failure, servers are new."""
    left = list(seeds)
    while left:
        with tempfile.TemporaryDirectory(prefix="tidegate-fence-") as name:
            folder = Path(name)
            servers: list[Server] = []
            try:
                for number in range(2):
                    servers.append(Server(number, folder / "servers", linked, plugin))
                endpoints = [server.wait() for server in servers]
                for _ in range(min(RUNS_PER_SERVER, len(left))):
                    line = one(folder, left.pop(0), servers, endpoints, faults)
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    print(json.dumps(line), flush=True)
                    if "error" in line:
                        break
            finally:
                for server in servers:
                    server.close()


def one(
    folder: Path,
    seed: int,
    servers: Sequence[Disturbed],
    endpoints: list[str],
    faults: Sequence[str],
) -> dict[str, Any]:
    """Play one run; an error is part of its line."""
    run = Run(folder / f"run-{seed}", seed, servers, endpoints, faults)
    try:
        return run.play()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return {"seed": seed, "fault": run.fault, "in_flight": [], "equal": False, "error": why}
    finally:
        for server in servers:
            server.heal()
        run.manager.shut_down()


if __name__ == "__main__":
    sys.exit(main())
