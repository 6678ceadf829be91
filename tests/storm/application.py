"""A storm over an application on the embedded cluster, with a controller attached to its agent.

The job, its controller, the master, the workers and the executors are processes, which are killed
and paused. The controller reaches the driver by a way that can be cut, and writes its journal to a
disk that can be full. While faults happen, files of rows arrive.

    python -m tests.storm.application FOLDER FAULTS SEED...
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clusters.agent.standalone import environment, with_agent
from tests.spark.autoscaler import ticks
from tests.storm import job, watch
from tests.storm.disk import Disk
from tests.storm.faults import JUMPS_S, Senses
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
from tidegate.lifecycle import Closing
from tidegate.loop.clock import SET
from tidegate.loop.journal import Turn, read_journal
from tidegate.loop.records import LOST
from tidegate.spark.autoscaler.agent import announced
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.processes import LOOPBACK, Process, spark_home

WORKERS, SLOTS = 2, 2
POLICIES = ("drs", "tide", "ds2", "lag", "queue-threshold", "adaptive-provisioning")
INTERVAL_S = 0.5
KINDS = {
    "clock back": 6,
    "clock forward": 6,
    "faketime": 4,
    "missing metrics": 8,
    "absurd metrics": 8,
    "full disk": 6,
    "garbage control": 5,
    "controller paused": 5,
    "controller cut off": 5,
    "driver paused": 5,
    "executor paused": 5,
    "controller killed": 4,
    "torn journal": 6,
    "zeros in journal": 3,
    "port taken": 3,
    "executor killed": 2,
    "worker killed": 1,
    "driver killed": 1,
}
"""Kinds of faults with their weights: the cheap ones come often."""
PAUSES_S = (1.5, 3.0)
SILENCES_S = (2.0, 6.0)
"""Pauses of a controller, shorter and longer than its lease."""
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
STAY = (
    "CoarseGrainedExecutorBackend",
    "deploy.worker.Worker",
    "SparkSubmit",
    "job.py",
    "tests.storm.controller",
    "kafka.Kafka",
)
"""Processes that may come while a seed runs, and stay for the next one."""
# A JVM that lives for minutes is through sooner when it does not optimise.
LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Cluster(Closing):
    """What the seeds of a run share: a master, workers, and the application on them.

    folder: for everything.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._starts = 0
        with contextlib.ExitStack() as stack:
            cluster = LocalCluster(SLOTS, 512, WORKERS, folder / "cluster")
            self.hosts = stack.enter_context(cluster.start(hosts=WORKERS))
            self.way = stack.enter_context(Way(self._agent_port))
            stack.callback(lambda: self.job.kill())  # noqa: PLW0108 - it may be another one then
            self.job = self.start_job()
            stack.callback(lambda: self._spare.kill())  # noqa: PLW0108 - it may be another one then
            self._spare = self._start_controller()
            until((folder / "agent").exists, lambda: "no agent")
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def end(self) -> str:
        """Let the application end; return what is wrong with that."""
        (self.folder / "stop").touch()
        with contextlib.suppress(TimeoutError):
            until(lambda: not self.job.running, lambda: "the job does not end")
        code = self.job.exit_code
        return "" if code == ticks.ENDED_WELL else f"the job ended with code {code}"

    def start_job(self) -> Process:
        """Start the application, or start it again."""
        settings = {
            "spark.driver.extraJavaOptions": LIGHT,
            "spark.executor.extraJavaOptions": LIGHT,
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.heartbeatInterval": "1s",
            "spark.locality.wait": "0",
        }
        words = [*with_agent(self.hosts, self.folder / "agent", **settings), *self.more_words()]
        program = [str(spark_home() / "bin" / "spark-submit"), *words, str(Path(job.__file__))]
        env = environment(self.hosts)
        return Process([*program, str(self.folder)], self._log("job"), env)

    def more_words(self) -> list[str]:
        """More options of spark-submit."""
        return []

    def controller(self, seed: Path) -> Process:
        """A controller for a seed. It has started already, so that it is there at once."""
        made, self._spare = self._spare, self._start_controller()
        put(self.folder / f"go-{made.pid}", str(seed))
        return made

    def _start_controller(self) -> Process:
        env = environment()
        if FAKETIME is not None:
            self.fake_clock(0.0)
            env |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.folder / "faketime"),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        words = [sys.executable, "-m", "tests.storm.controller", str(self.folder)]
        return Process(words, self._log("controller"), env)

    def fake_clock(self, ahead_s: float) -> None:
        """Let the clock of controllers be ahead by some seconds."""
        self.faked_s = ahead_s
        put(self.folder / "faketime", f"{ahead_s:+.0f}")

    def _agent_port(self) -> int:
        try:
            url, _ = announced(self.folder / "agent")
        except Exception as error:
            raise OSError from error
        return int(url.rpartition(":")[2])

    def _log(self, name: str) -> Path:
        self._starts += 1
        return self.folder / "logs" / f"{name}-{self._starts}.log"


class Application(Senses):
    """The world of a seed: a query, its feed, and a controller with a journal on a small disk.

    cluster: where it runs. seed: random seed.
    """

    name = "application"

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.way = cluster, cluster.way
        self.folder = cluster.folder / f"seed-{seed}"
        self.rng = random.Random(f"{self.name}/{seed}")
        self.policy = self.rng.choice(POLICIES)
        self.folder.mkdir()
        with contextlib.ExitStack() as stack:
            self.disk = stack.enter_context(Disk(self.folder / "disk", 16))
            self.journal = self.disk.folder / "tidegate.jsonl"
            self.watch = Watch(self.journal)
            checkpoint = self.folder / "checkpoint"
            feed = Feed(self.folder / "in", lambda: committed(checkpoint))
            self.feed = stack.enter_context(feed)
            (self.folder / "go").write_text(self.servers(), encoding="utf-8")
            with socket.create_server((LOOPBACK, 0)) as free:
                self.port = free.getsockname()[1]
            self._write_settings()
            stack.callback(lambda: self.controller.kill())  # noqa: PLW0108 - it may be another one then
            self.controller = cluster.controller(self.folder)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End all that belongs to the seed."""
        self._stack.close()

    def servers(self) -> str:
        """Kafka's servers; empty for a source of files."""
        return ""

    def _write_settings(self) -> None:
        settings = {
            "slo": "5s",
            "policy": self.policy,
            "max_executors": WORKERS,
            "interval": f"{INTERVAL_S}s",
            "stabilise": "2s",
            "journal": str(self.journal),
        }
        url = f"http://{LOOPBACK}:{self.way.port}"
        given = {"url": url, "port": self.port, "settings": settings}
        (self.folder / "controller.json").write_text(json.dumps(given))

    def _an_executor(self) -> tuple[str, int]:
        """Id and process id of an executor that the last snapshot has."""
        found: dict[str, int] = {}

        def there() -> bool:
            self.watch.new()
            last = self.watch.last
            if last is not None and last.snapshot is not None:
                known = {host.executor for host in last.snapshot.running_hosts}
                groups = {worker.pid for worker in self.cluster.hosts.workers.values()}
                found.update({e: p for e, p in executors(groups).items() if e in known})
            return bool(found)

        until(there, lambda: "no executor in the snapshot")
        return self.rng.choice(sorted(found.items()))

    # --- faults -------------------------------------------------------------------------------

    def kinds(self) -> dict[str, int]:
        """All, except for those that this machine cannot have."""
        return {k: w for k, w in KINDS.items() if k != "faketime" or FAKETIME is not None}

    @staticmethod
    def shows_jump(before: Turn | None, seconds: float) -> Shows:
        """The guards say it when the clock went back."""
        return watch.jumped(before, seconds)

    def _faketime(self) -> Happened:
        # Decisions go on with the driver's clock; the journal says what happened to this one.
        seconds = self.rng.choice(JUMPS_S) * self.rng.choice((1, -1))
        self.cluster.fake_clock(self.cluster.faked_s + seconds)
        return Happened(f"controller {seconds:+.0f} s", watch.noted(SET))

    def _full_disk(self) -> Happened:
        full_s = self.rng.choice(PAUSES_S)
        self.disk.fill(self.journal, [self.controller.pid], full_s)
        return Happened(f"journal, for {full_s:g} s", watch.noted(LOST))

    def _paused(self, what: str, pids: list[int], pause_s: float) -> Happened:
        before, began_s = self.watch.last, time.time() + self.offset_s
        with stopped(pids):
            time.sleep(pause_s)
        ended_s = time.time() + self.offset_s
        shows = watch.either(watch.failed, watch.gap(before, began_s, ended_s))
        return Happened(f"{what}, for {pause_s:g} s", shows)

    def _controller_paused(self) -> Happened:
        return self._paused("controller", [self.controller.pid], self.rng.choice(SILENCES_S))

    def _driver_paused(self) -> Happened:
        return self._paused("driver", group(self.cluster.job.pid), self.rng.choice(SILENCES_S))

    def _executor_paused(self) -> Happened:
        executor, pid = self._an_executor()
        before, pause_s = self.watch.last, self.rng.choice((3.0, 5.0))
        with stopped([pid]):
            time.sleep(pause_s)
        shows = watch.either(watch.slow_batch(before, 0.8 * pause_s), watch.lacks(executor))
        return Happened(f"executor {executor}, for {pause_s:g} s", shows)

    def _executor_killed(self) -> Happened:
        executor, pid = self._an_executor()
        os.kill(pid, signal.SIGKILL)
        return Happened(f"executor {executor}", watch.lacks(executor))

    def _worker_killed(self) -> Happened:
        executor, pid = self._an_executor()
        workers = {worker.pid: name for name, worker in self.cluster.hosts.workers.items()}
        name = workers[os.getpgid(pid)]
        self.cluster.hosts.workers.pop(name).kill()
        self.cluster.hosts.lease(name)
        return Happened(f"{name} with executor {executor}", watch.lacks(executor))

    def _controller_killed(self) -> Happened:
        before = self.watch.last
        self.controller.kill()
        self.controller = self.cluster.controller(self.folder)
        return Happened("controller", watch.begins_again(before))

    def _controller_cut_off(self) -> Happened:
        cut = self.rng.choice((self.way.stall, self.way.reset, self.way.refuse))
        before, began_s, cut_s = self.watch.last, time.time() + self.offset_s, 3.0
        cut()
        time.sleep(cut_s)
        self.way.heal()
        gap = watch.gap(before, began_s, time.time() + self.offset_s)
        shows = watch.either(watch.failed, watch.begins_again(before), gap)
        return Happened(f"{cut.__name__}, for {cut_s:g} s", shows)

    def _damaged(self, damage: Callable[[], str]) -> Happened:
        """Kill the controller, damage its journal, and start another one."""
        until(lambda: self.journal.stat().st_size > 2, lambda: "no journal")
        self.controller.kill()
        said = damage()
        self.watch.begin_again()
        before = self.watch.last
        self.controller = self.cluster.controller(self.folder)
        return Happened(said, watch.either(watch.noted("torn line"), watch.begins_again(before)))

    def _torn_journal(self) -> Happened:
        def damage() -> str:
            size = self.journal.stat().st_size
            first = self.rng.choice((1, max(1, size - 4_000)))  # anywhere, or near the end
            at = self.rng.randint(first, size - 1)
            os.truncate(self.journal, at)
            return f"at byte {at} of {size}"

        return self._damaged(damage)

    def _zeros_in_journal(self) -> Happened:
        def damage() -> str:
            size = self.journal.stat().st_size
            at, count = self.rng.randint(1, size), self.rng.randint(1, 4_096)
            with self.journal.open("r+b") as file:
                file.seek(at)
                file.write(bytes(count))
            return f"{count} bytes from byte {at} of {size}"

        return self._damaged(damage)

    def _port_taken(self) -> Happened:
        self.controller.kill()
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((LOOPBACK, self.port))
        taken.listen()
        self.controller = self.cluster.controller(self.folder)
        return Happened(f"port {self.port} of metrics", watch.noted("no metrics"), taken.close)

    def _driver_killed(self) -> Happened:
        before = self.watch.last
        self.cluster.job.kill()
        torn = self._tear_neighbours() if self.rng.random() < 0.5 else ""
        self.cluster.job = self.cluster.start_job()
        shows = watch.either(watch.failed, watch.begins_again(before))
        return Happened("driver" + torn, shows)

    def _tear_neighbours(self) -> str:
        """Leave torn files beside those of the checkpoint and of the sink, as writers that died."""
        checkpoint, count = self.folder / "checkpoint", 0
        for sub in ("offsets", "commits", "state/0/0", "sources/0"):
            files = [f for f in (checkpoint / sub).glob("*") if f.is_file()]
            if files:
                file = self.rng.choice(sorted(files))
                torn = file.with_name(f".{int(time.time())}.{self.rng.getrandbits(64):x}.tmp")
                torn.write_bytes(file.read_bytes()[: self.rng.randint(0, file.stat().st_size)])
                count += 1
        parts = sorted((self.folder / "out").glob("part-*.json"))
        if parts:
            file = self.rng.choice(parts)
            name = f"part-00009-{self.rng.getrandbits(64):x}-c000.json"
            file.with_name(name).write_bytes(file.read_bytes()[: self.rng.randint(0, 200)])
            count += 1
        return f", {count} torn files beside checkpoint and sink"

    # --- well and end -------------------------------------------------------------------------

    _since_s = -1.0
    _batch = 0
    _turn = False

    def well(self, since_s: float) -> str:
        """A turn that did not fail and a batch, both since then; all processes alive."""
        if not self.cluster.job.running:
            raise Broken(f"the job has ended with code {self.cluster.job.exit_code}")
        if not self.controller.running:
            raise Broken(f"the controller has ended with code {self.controller.exit_code}")
        if since_s != self._since_s:
            self._since_s, self._batch, self._turn = since_s, self.feed.batches(), False
        self._turn = self._turn or any(
            turn.error is None and turn.snapshot is not None and turn.snapshot.running_hosts
            for turn in self.watch.new()
        )
        if not self._turn:
            return "no turn without an error, with an executor"
        return "" if self.feed.batches() > self._batch else "no batch"

    def finish(self, end: SeedLine) -> None:
        """Wait for all rows, compare them, stop the query, then its controller."""
        self.feed.close()
        wanted = ticks.batch_result(self.folder / "in")
        sink = self.folder / "out"
        with contextlib.suppress(TimeoutError):
            until(lambda: ticks.written(sink).total() >= wanted.total(), lambda: "rows missing")
        found = ticks.written(sink)
        end.rows = wanted.total()
        end.missing, end.extra = (wanted - found).total(), (found - wanted).total()
        if end.missing or end.extra:
            end.problems.append(f"the sink lacks {end.missing} rows and has {end.extra} too many")
        (self.folder / "stop").touch()
        left = self.folder / "left"
        with contextlib.suppress(TimeoutError):
            until(left.exists, lambda: "the query does not stop")
        end.queries_lost = 0 if left.exists() else 1
        end.queries_left = int(left.read_text()) if left.exists() else 1
        if end.queries_left:
            end.problems.append(f"{end.queries_left} queries are left")
        self.controller.stop(30.0)
        if self.controller.exit_code != 0:
            end.problems.append(f"the controller ended with code {self.controller.exit_code}")
        for turn in read_journal(self.journal, []) if end.faults else ():
            hosts = turn.plan.bounded_target if turn.plan is not None else 1
            if not 1 <= hosts <= WORKERS:
                end.problems.append(f"turn {turn.number} wants {hosts} executors")


def executors(groups: set[int]) -> dict[str, int]:
    """Process ids of executors by their ids. groups: process groups of their workers."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "--executor-id" in words and os.getpgid(int(entry.name)) in groups:
                    found[words[words.index("--executor-id") + 1]] = int(entry.name)
    return found


def run(cluster: Cluster, world: type[Application], faults: int, seeds: Sequence[int]) -> None:
    """Run seeds one after the other, and let the application end."""
    for seed in seeds:
        before = set(marked(os.environ[MARK]))
        with world(cluster, seed) as one:
            lines, end = play(one, seed, drawn(one.kinds(), one.rng, faults))
        # Executors come and go, and one controller is kept as a spare.
        end.processes_left = strangers(os.environ[MARK], before, STAY)
        write_lines(cluster.folder, lines, end)
        if not cluster.job.running:
            sys.exit("the application has ended")
    if problem := cluster.end():
        sys.exit(problem)


def main(where: type[Cluster], world: type[Application]) -> None:
    """Run the seeds on the command line in a kind of cluster."""
    folder, faults, *seeds = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # still cleans up
    with where(Path(folder)) as cluster:
        run(cluster, world, int(faults), list(map(int, seeds)))


if __name__ == "__main__":
    main(Cluster, Application)
