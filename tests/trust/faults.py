"""A job under ``tidegate submit`` around which everything goes wrong: it never ends, and is scaled.

The job has four queries (`job.py`). From its first second, its metrics port is taken. While its
executors rise, the driver is killed with SIGKILL, its journal is damaged in the middle, and it is
started again. The disk under its journal is full for ten seconds. A second copy is started in the
same folder, with the same journal. After each of these, executors must fall without input and rise
with it. At the end the rows of every query equal a batch computation over the same input.

    python -m tests.trust.faults             # about seven minutes; also: make test-trust
    python -m tests.trust.faults --keep      # keep the folder with logs and journals anyway

The disk is a tmpfs of two megabytes. Where that cannot be mounted, a limit on the size of the
driver's files takes its place.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.storm.disk import Disk
from tests.trust import job
from tidegate.apps.application import application, differences
from tidegate.apps.feed import TopicFeed
from tidegate.apps.four_queries import QUERIES, ROWS, SLO
from tidegate.apps.live import SETTINGS
from tidegate.loop.journal import read_journal
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.workloads import ConstantRate, Sum

APP = application("four-queries", **job.SETTINGS)
WORKERS, SLOTS = 4, 4
MOST = 3
"""Executors of the job at most; the last worker is for the second copy."""
LIMIT_S = 300.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""
FULL_S = 10.0
TIDEGATE = "import sys; from tidegate.cli import main; sys.argv[0] = 'tidegate'; main()"


class Job:
    """A submitted job. folder: of its data. number: of its log."""

    def __init__(self, scene: Scene, folder: Path, most: int) -> None:
        self.scene, self.folder, self.most = scene, folder, most
        self.expected_end = False
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in the scene's folder, with the scene's journal and port."""
        (self.folder / "application").unlink(missing_ok=True)
        settings = self.scene.cluster.conf() | SETTINGS | dict(APP.settings)
        settings["spark.cores.max"] = str(SLOTS * self.most)
        confs = [word for k, v in settings.items() for word in ("--conf", f"{k}={v}")]
        self.starts += 1
        self.expected_end = False
        with (self.scene.folder / f"{self.folder.name}-{self.starts}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", TIDEGATE, "submit", "--slo", SLO),
                    *("--max-executors", str(self.most), "--interval", "3s", "--stabilise", "5s"),
                    *("--journal", str(self.scene.journal)),
                    *("--metrics-port", str(self.scene.port)),
                    *("--master", self.scene.cluster.url, *confs),
                    *(str(Path(job.__file__)), str(self.folder)),
                ],
                stdout=log,
                stderr=log,
                env=os.environ | self.scene.cluster.environment(),
                cwd=self.scene.folder,
                start_new_session=True,
            )

    def check(self) -> None:
        """The job must not have ended."""
        assert self.process is not None
        code = self.process.poll()
        if code is not None and not self.expected_end:
            sys.exit(f"FAILED: {self.folder.name} ended with code {code}; see its log")

    def processes(self) -> list[int]:
        """Its processes: the JVM of the driver and its Python."""
        assert self.process is not None
        return [pid for pid in _processes() if _group(pid) == self.process.pid]

    def executors(self) -> int:
        """The executor processes of its application."""
        try:
            name = (self.folder / "application").read_text(encoding="ascii")
        except OSError:
            return 0
        return sum(
            b"CoarseGrainedExecutorBackend" in command and name.encode() in command.split(b"\0")
            for command in map(_command, _processes())
        )

    def kill(self) -> None:
        """Kill all of its processes at once."""
        assert self.process is not None
        self.expected_end = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Let it end by itself; its exit code."""
        assert self.process is not None
        self.expected_end = True
        (self.folder / "stop").touch()
        return self.process.wait(LIMIT_S)


class Scene:
    """The cluster, the feed, the journal and the job, in a folder."""

    def __init__(self, folder: Path, cluster: LocalCluster, disk: Disk, port: int) -> None:
        self.folder, self.cluster, self.disk, self.port = folder, cluster, disk, port
        self.journal = disk.folder / "tidegate.jsonl"
        self.began_s = time.monotonic()
        self.jobs: list[Job] = []
        self.feeds: list[TopicFeed] = []

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"{time.monotonic() - self.began_s:4.0f} s  {text}", flush=True)

    def started(self, name: str, most: int, share: float) -> tuple[Job, TopicFeed]:
        """A job with its feed; share: of the highest rates."""
        made = Job(self, self.folder / name, most)
        topics = {s: FileTopic(made.folder / "topics" / s, ROWS) for s in QUERIES.values()}
        feed = TopicFeed(APP, topics, load(share), seed=len(self.jobs)).start()
        made.start()
        self.jobs.append(made)
        self.feeds.append(feed)
        return made, feed

    def until(self, what: str, true: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Wait until something is true while no job ends."""
        end_s = time.monotonic() + limit_s
        while not true():
            for each in self.jobs:
                each.check()
            if time.monotonic() > end_s:
                sys.exit(f"FAILED: not within {limit_s:.0f} s: {what}")
            time.sleep(0.2)
        self.say(what)

    def follows(self, running: Job, feed: TopicFeed) -> None:
        """Without input executors must fall to one, with input they must rise."""
        feed.play(load(0.0))
        self.until("no input: one executor", lambda: running.executors() == 1)
        feed.play(load(1.0))
        self.until("input: more than one executor", lambda: running.executors() > 1)


def load(share: float) -> Sum:
    """Every source at a constant rate. share: of the highest rates."""
    rates = APP.rates_per_s.items()
    return Sum(tuple(ConstantRate(share * r, 1e9, source=s) for s, r in rates))


def waiting(folder: Path) -> int:
    """Rows that a job has not processed."""
    topics = {q: FileTopic(folder / "topics" / s, ROWS) for q, s in QUERIES.items()}
    return sum(topic.lag_items(query) for query, topic in topics.items())


def first_batches(folder: Path) -> bool:
    """Whether each query with input has committed a batch."""
    names = [query for query in QUERIES if query != "alarms"]
    return all(any((folder / "checkpoints" / n / "commits").glob("[0-9]*")) for n in names)


def check_rows(folder: Path) -> str:
    """Compare the results of a job with a batch computation; the number of rows in a sentence."""

    def table(name: str) -> pa.Table:
        topic = FileTopic(folder / "topics" / name)
        files = [topic.folder / m.name / file for m in topic.batches() for file in m.files]
        tables = [pq.read_table(file) for file in files]
        return pa.concat_tables(tables) if tables else pa.table({n: [] for n in ROWS.names})

    inputs = {source: table(source) for source in QUERIES.values()}
    for name, expected in APP.reference(inputs).items():
        missing, extra = differences(expected.to_pylist(), table(name).to_pylist())
        if missing or extra:
            lost, more = missing.total(), extra.total()
            sys.exit(f"FAILED: {name} lacks {lost} rows and has {more} that no batch computes")
    return ", ".join(f"{source} {rows.num_rows}" for source, rows in inputs.items())


def damage(journal: Path) -> None:
    """Overwrite the middle of a journal, and give one line a field of a newer version."""
    lines = journal.read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    lines[middle] = b"\x00\xff{" + lines[middle][3 : len(lines[middle]) // 2] + b"\n"
    last = len(lines) - 1
    lines[last] = lines[last].replace(b"{", b'{"of_a_newer_version": [1], ', 1)
    journal.write_bytes(b"".join(lines))


def last_turn_s(journal: Path) -> float:
    """The time of the last complete turn that the journal has, 0 without one."""
    turns = [turn for turn in read_journal(journal) if turn.snapshot is not None]
    return max((t.snapshot.time_s for t in turns if t.snapshot is not None), default=0.0)


def play(scene: Scene) -> None:
    """All faults in order."""
    running, feed = scene.started("job", MOST, 0.05)
    scene.until("first batches, with the metrics port taken", lambda: first_batches(running.folder))
    feed.play(load(0.0))
    scene.until("no input: one executor", lambda: running.executors() == 1)
    feed.play(load(1.0))
    scene.until("executors rise", lambda: running.executors() > 1)
    running.kill()
    damage(scene.journal)
    scene.say("killed, journal damaged in the middle")
    running.start()
    scene.until("started again", lambda: running.executors() > 0)
    scene.follows(running, feed)
    size, until_s = scene.journal.stat().st_size, time.monotonic() + FULL_S
    with scene.disk.full(scene.journal, running.processes()):
        scene.say(f"the disk is full for {FULL_S:.0f} s")
        scene.until("disk full", lambda: time.monotonic() > until_s)
    scene.say(f"room again; the journal grew by {scene.journal.stat().st_size - size} bytes")
    freed_s = time.time()
    scene.until("turns in the journal again", lambda: last_turn_s(scene.journal) > freed_s)
    copy, other = scene.started("copy", 1, 0.02)
    scene.until("a second copy works in the same folder", lambda: first_batches(copy.folder))
    scene.follows(running, feed)
    freed_s = time.time()
    scene.until("turns in the journal still", lambda: last_turn_s(scene.journal) > freed_s)
    for each, rows in ((copy, other), (running, feed)):
        rows.stop()
        topic = FileTopic(each.folder / "topics" / QUERIES["totals"], ROWS)
        scene.until("all rows are processed", lambda f=each.folder: not waiting(f))  # type: ignore[misc]
        topic.append(APP.closing(time.time())[QUERIES["totals"]], "closing")
        scene.until("windows closed", lambda f=each.folder: not waiting(f))  # type: ignore[misc]
        # One more batch, without rows, sends on what the last rows have closed.
        ended = each.folder / "topics" / "totals"
        seen = len(list(ended.glob("totals-*")))
        scene.until("the last windows", lambda f=ended, n=seen: len(list(f.glob("totals-*"))) > n)  # type: ignore[misc]
        code = each.end()
        if code:
            sys.exit(f"FAILED: {each.folder.name} ended with code {code}")
        scene.say(f"{each.folder.name}: rows equal a batch ({check_rows(each.folder)})")


def main() -> None:
    """Play in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    options = parser.parse_args()
    logging.getLogger("tidegate").setLevel(logging.ERROR)  # it warns of the damage at every look
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # still cleans up
    folder = Path(tempfile.mkdtemp(prefix="tidegate-trust-"))
    print(f"in {folder}", flush=True)
    with contextlib.ExitStack() as stack:
        disk = Disk(folder / "disk")
        stack.callback(disk.close)
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        cluster = stack.enter_context(
            LocalCluster(SLOTS, 768, WORKERS, folder / "cluster").start(hosts=WORKERS)
        )
        scene = Scene(folder, cluster, disk, taken.getsockname()[1])
        try:
            play(scene)
        finally:
            for feed in scene.feeds:
                feed.stop()
            for each in scene.jobs:
                if each.process is not None and each.process.poll() is None:
                    each.kill()
    if not options.keep:  # what has failed is kept in any case
        shutil.rmtree(folder, ignore_errors=True)
    print("passed", flush=True)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
