"""The live check of one version of Spark, run by a Python that has this version installed.

    python -m tests.versions.check RESULT.json                     # attached in the driver
    python -m tests.versions.check RESULT.json --gateway agent     # through the agent in the driver

It starts an embedded standalone cluster with one worker, a session, a query whose tasks sleep
(``heavy``), a query with state in another session (``ticks``), one with ``foreachBatch``
(``writes``), and an autoscaler for them. Then two more workers join. The executors must grow, fall
to one after ``heavy`` has ended, and be replaced after a kill. Everything that a gateway reports
must be there, the rows of the queries must be exact, the autoscaler must log no warning, and all
processes must end. The result is a JSON file with an entry for each of these checks.

It imports nothing that only tests need, such as pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.autoscaler import ticks
from tests.versions.pins import GATEWAYS
from tidegate.errors import BackendError
from tidegate.loop.journal import read_journal
from tidegate.spark import Autoscaler, LocalCluster
from tidegate.spark.agent import PLUGIN, agent_jar
from tidegate.spark.autoscaler.agent import AgentGateway, announced
from tidegate.spark.autoscaler.gateway import Gateway, Trigger
from tidegate.spark.local.session import session

CORES, MOST = 2, 3
PARTITIONS = 12
ROWS_PER_S = 24
STATE_PARTITIONS = 2
LIGHT_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.driver.extraJavaOptions": LIGHT_JVM,
    "spark.executor.extraJavaOptions": LIGHT_JVM,
    "spark.sql.shuffle.partitions": str(STATE_PARTITIONS),
    "spark.locality.wait": "0s",  # the autoscaler warns of a wait for the executor with the state
}


class CheckError(Exception):
    """A check that failed, in a sentence."""


class Report:
    """What was checked so far. limit_s: how long to wait for an event, in seconds."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.began_s = time.monotonic()
        self.facts: dict[str, Any] = {"python": platform.python_version()}
        self.checks: list[dict[str, Any]] = []
        self.executors: list[tuple[float, int]] = []

    def passed(self, what: str, detail: object = "") -> None:
        """Note a check that has passed, and print it."""
        self._note(what, True, str(detail))

    def failed(self, what: str, detail: object) -> None:
        """Note a check that has failed, and print it."""
        self._note(what, False, str(detail))

    def that(self, what: str, true: bool, detail: object = "") -> None:
        """Note a check, which does not end the run when it fails."""
        self._note(what, true, str(detail))

    def until(self, what: str, look: Callable[[], tuple[bool, Any]], needed: bool = False) -> Any:
        """Wait until something is seen.

        look: returns whether it is there, and what was seen. needed: nothing can go on without it.
        """
        end_s, seen = time.monotonic() + self.limit_s, None
        while time.monotonic() < end_s:
            true, seen = look()
            if true:
                self.passed(what, seen)
                return seen
            time.sleep(0.1)
        self.failed(what, f"not within {self.limit_s:g} s; last seen: {seen}")
        if needed:
            raise CheckError(what)
        return seen

    def saw_executors(self, count: int) -> None:
        """Note how many executor processes there are, when their number changes."""
        if not self.executors or self.executors[-1][1] != count:
            self.executors.append((round(time.monotonic() - self.began_s, 1), count))

    def _note(self, what: str, true: bool, detail: str) -> None:
        at_s = round(time.monotonic() - self.began_s, 1)
        self.checks.append({"check": what, "passed": true, "seen": detail, "at_s": at_s})
        print(f"{at_s:6.1f} s  {'ok    ' if true else 'FAILED'}  {what}: {detail}", flush=True)

    def as_json(self) -> dict[str, Any]:
        """The result. It has passed if there are checks and none of them failed."""
        return {
            **self.facts,
            "passed": bool(self.checks) and all(check["passed"] for check in self.checks),
            "seconds": round(time.monotonic() - self.began_s, 1),
            "executors": self.executors,
            "checks": self.checks,
        }


class Warnings(logging.Handler):
    """Keeps what Tidegate logs at the level of a warning or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.levelname}: {record.getMessage()}")


def executor_processes(application: str) -> list[int]:
    """Processes of the executors of an application, as the operating system lists them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                words = (entry / "cmdline").read_bytes().split(b"\0")
                backend = any(b"CoarseGrainedExecutorBackend" in word for word in words)
                if backend and application.encode() in words:
                    found.append(int(entry.name))
    return found


def start_heavy(spark: SparkSession, folder: Path) -> StreamingQuery:
    """A query with more work than one executor can do. The tasks of one partition are longer."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_S)
    wait = f"reflect('java.lang.Thread', 'sleep', if(value % {PARTITIONS} = 0, 350L, 100L)) as w"
    slow = rows.option("numPartitions", PARTITIONS).load().selectExpr("value as v", wait)
    writer = slow.writeStream.format("json").option("path", str(folder / "out"))
    writer = writer.queryName("heavy").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="1 second").start()


def start_writes(spark: SparkSession, folder: Path) -> StreamingQuery:
    """A query whose ``foreachBatch`` runs two jobs, the second under a job group of its own."""

    def write(rows: DataFrame, number: int) -> None:
        rows.collect()
        rows.sparkSession.sparkContext.setJobGroup("mine", "my own words")
        rows.collect()

    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    writer = rows.writeStream.foreachBatch(write).queryName("writes")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="2 seconds").start()


def check_readings(
    report: Report,
    gateway: Gateway,
    heavy: StreamingQuery,
    writes: StreamingQuery,
    began_s: float,
) -> None:
    """Everything that a gateway reports must be there.

    What cannot be read is only missing, without an error, so each reading is looked at.
    """
    names = {name: query for query, name in gateway.active_queries().items()}
    every = {"heavy", "ticks", "writes"}
    report.that("the queries of all sessions", set(names) == every, sorted(names))

    def complete() -> tuple[bool, object]:
        """The memory of an executor is known some time after its registration."""
        executors = gateway.executors()
        known = all(
            e.cores == CORES
            and e.memory_mb > 0
            and e.added_s >= began_s - 1
            and e.shuffle_mb is not None
            and e.cached_mb is not None
            and not e.excluded
            for e in executors
        )
        return known and any(e.busy_s > 0 and e.tasks > 0 for e in executors), executors

    report.until("every field of the executors", complete)
    trigger = gateway.trigger_of(names["heavy"])
    report.that("the trigger", trigger == Trigger("ProcessingTimeTrigger", 1.0), trigger)
    trigger = gateway.trigger_of(names["ticks"])
    report.that("no pause", trigger == Trigger("ProcessingTimeTrigger", 0.0), trigger)

    def in_batch() -> tuple[bool, object]:
        status = gateway.status_of(names["heavy"])
        since = status.began_s
        return since is not None and began_s - 1 <= since <= time.time() + 1, status

    report.until("the start of the batch that runs", in_batch)
    run = str(heavy.runId)
    report.until("the queries in a batch", lambda: (run in (q := gateway.in_batch()), q))

    def tasks() -> tuple[bool, object]:
        gateway.active_queries()  # begins a turn
        waiting, running = gateway.tasks_of(run)
        return running > 0 and waiting > 0, (waiting, running)

    report.until("the tasks that wait and that run", tasks)

    def idle() -> tuple[bool, object]:
        status = gateway.status_of(names["ticks"])
        return status.idle and status.began_s is None, status

    report.until("an idle query", idle)
    limits = gateway.read_limits(names["ticks"])
    flat = [(limit.kind, limit.amount) for source in limits or () for limit in source]
    report.that("the limit of a source", flat == [("files", 1.0)], limits)
    limits = gateway.read_limits(names["heavy"])
    report.that("a source without a limit", limits == ((),), limits)
    files = gateway.files_read(names["ticks"])
    report.that("the files of a batch", files is not None and files[0] == 1, files)
    report.until(
        "where the state is",
        lambda: (sum((s := gateway.state_partitions() or {}).values()) == STATE_PARTITIONS, s),
    )

    def jobs() -> tuple[bool, object]:
        found, _, _ = gateway.finished_jobs(-1)
        mine = [job for job in found if job.run == run and job.batch is not None and job.complete]
        stages = [s for job in mine for s in job.stages if s.tasks == PARTITIONS and s.run_s > 1]
        # The list of tasks was read if the longest is longer than a guess from the sums can be.
        read = [s for s in stages if s.longest_s > 2.2 * s.run_s / s.tasks and s.straggled_s > 0]
        return bool(read), read[-1] if read else (len(found), len(mine), stages)

    report.until("the longest and the last tasks of a stage", jobs)

    def attributed() -> tuple[bool, object]:
        found, _, _ = gateway.finished_jobs(-1)
        mine = [j.batch for j in found if j.run == str(writes.runId) and j.batch is not None]
        return len(mine) > len(set(mine)), mine

    report.until("jobs of foreachBatch under another job group", attributed)


@dataclass
class Bench:
    """A running application with its autoscaler. folder: for logs and data."""

    report: Report
    folder: Path
    cluster: LocalCluster
    spark: SparkSession
    application: str
    began_s: float

    def processes(self) -> int:
        """The number of executors, as the operating system lists them."""
        number = len(executor_processes(self.application))
        self.report.saw_executors(number)
        return number

    def check_scaling(self, autoscaler: Autoscaler) -> None:
        """Attach, grow, shrink, and replace what was killed."""
        report, gateway = self.report, autoscaler.gateway
        heavy = start_heavy(self.spark, self.folder / "heavy")
        writes = start_writes(self.spark, self.folder / "writes")
        loop = autoscaler.controller
        report.until("a turn", lambda: (loop.turns > 0, loop.turns), needed=True)
        for number in range(2, MOST + 1):  # Spark asks for one executor now
            self.cluster.lease(f"host-{number}")
        report.until("executors grow", lambda: ((n := self.processes()) > 1, n), needed=True)

        def listed() -> list[str]:
            return [e.id for e in gateway.executors()]

        report.until("the driver knows them", lambda: (len(e := listed()) > 1, e), needed=True)
        check_readings(report, gateway, heavy, writes, self.began_s)
        writes.stop()
        heavy.stop()
        report.until("executors shrink", lambda: ((n := self.processes()) == 1, n), needed=True)
        seen = report.until("the driver knows of one", lambda: (len(e := listed()) == 1, e))
        killed = gateway.kill(seen)
        report.that("executors can be killed", killed == seen, killed)
        report.until(
            "a killed one is replaced",
            lambda: (bool(e := listed()) and not set(e) & set(seen), e),
        )

    def check_rows(self, light: StreamingQuery) -> None:
        """The queries have lost and repeated nothing. light: the query with state, which runs."""
        report, source, sink = self.report, self.folder / "in", self.folder / "out"
        ticks.write_input(source, 2, 2)
        wanted = ticks.batch_result(source)
        report.until(
            "the query with state writes all rows",
            lambda: (len(w := ticks.written(sink)) >= len(wanted), f"{len(w)} values"),
        )
        report.that("its rows are exact", ticks.written(sink) == wanted)
        light.stop()
        done = ticks.written(self.folder / "heavy" / "out")
        exact = sorted(done.elements()) == list(range(len(done)))
        report.that("the rows of the heavy query are exact", exact and bool(done), len(done))


def check_pandas(report: Report, spark: SparkSession) -> None:
    """PySpark must work with the versions of NumPy, pandas and PyArrow that Tidegate brings."""

    def doubled(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(x=np.asarray(frame["x"]) * 2.0)

    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    spark.conf.set("spark.sql.execution.arrow.pyspark.fallback.enabled", "false")
    given = pd.DataFrame({"x": np.arange(5.0), "t": pd.date_range("2026-01-01", periods=5)})
    sent = spark.createDataFrame(given).mapInPandas(doubled, "x double, t timestamp")
    back: Any = sent.toPandas()
    found = list(back.sort_values("t")["x"])
    versions = f"NumPy {np.__version__}, pandas {pd.__version__}, PyArrow {pa.__version__}"
    report.that("functions on pandas", found == [0.0, 2.0, 4.0, 6.0, 8.0], versions)


def run(report: Report, folder: Path, by_agent: bool) -> None:
    """All checks, in order.

    folder: for logs and data. by_agent: the autoscaler is attached to the agent, over HTTP.
    """
    warnings = Warnings()
    logging.getLogger("tidegate").addHandler(warnings)
    began_s, journal = time.time(), folder / "journal.jsonl"
    ticks.write_input(folder / "in", 0, 2)
    address, settings = folder / "agent.json", dict(SETTINGS)
    if by_agent:
        settings |= {
            "spark.jars": str(agent_jar()),
            "spark.plugins": PLUGIN,
            "spark.tidegate.agent.announce": str(address),
        }
    with (
        LocalCluster(CORES, 512, MOST, folder / "cluster").start(hosts=1) as cluster,
        session(cluster, folder / "driver.log", settings) as spark,
    ):
        context = spark.sparkContext
        jvm, driver = context._jvm, context._gateway.proc  # type: ignore[union-attr]
        report.facts |= facts(context.version, jvm)
        bench = Bench(report, folder, cluster, spark, str(context.applicationId), began_s)
        folders = (folder / name for name in ("in", "out", "checkpoint"))
        light = ticks.start(spark.newSession(), *folders)
        driven = AgentGateway(*announced(address)) if by_agent else spark
        with _attached(driven, journal) as autoscaler:
            gateway = autoscaler.gateway
            report.passed("attached", gateway.version)
            bench.check_scaling(autoscaler)
            bench.check_rows(light)
            report.until("no query runs", lambda: (not (q := gateway.active_queries()), q))
            report.that("it is still there", not autoscaler.watching and not gateway.stopped)
        check_pandas(report, spark)
        spark.stop()
        report.until("the executors end", lambda: ((n := bench.processes()) == 0, n))
        report.until("the application is gone", lambda: (gone(gateway), ""))
    report.that("the JVM of the driver has ended", driver.poll() is not None, driver.poll())
    report.that("no context is left", SparkContext._active_spark_context is None)
    turns = list(read_journal(journal))
    errors = [turn.error for turn in turns if turn.error]
    report.that("no turn failed", bool(turns) and not errors, errors or f"{len(turns)} turns")
    # The autoscaler is right to warn of the executor that was killed.
    others = [text for text in warnings.texts if "somebody else decommissions it" not in text]
    report.that("no warning", not others, others)


def gone(gateway: Gateway) -> bool:
    """Whether the application has ended. An agent that has ended is noticed by the next call."""
    with contextlib.suppress(BackendError):
        gateway.executors()
    return gateway.stopped


def facts(spark: str, jvm: Any) -> dict[str, str]:
    """The versions of everything."""
    return {
        "spark": spark,
        "scala": str(jvm.scala.util.Properties.versionNumberString()),
        "java": str(jvm.java.lang.System.getProperty("java.version")),
    }


@contextlib.contextmanager
def _attached(driven: SparkSession | Gateway, journal: Path) -> Iterator[Autoscaler]:
    with Autoscaler(
        driven, slo="10s", interval="2s", stabilise="4s", max_executors=MOST, journal=journal
    ) as autoscaler:
        yield autoscaler


def main() -> None:
    """Run the check and write its result; exit code 1 when it failed."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("result", type=Path, help="the JSON file for the result")
    words.add_argument("--gateway", choices=GATEWAYS, default=GATEWAYS[0])
    words.add_argument("--limit", type=float, default=240.0, help="seconds to wait for an event")
    words.add_argument("--keep", type=Path, help="keep logs and data in this folder")
    given = words.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="tidegate-version-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(given.limit)
    report.facts["gateway"] = given.gateway
    try:
        run(report, folder, given.gateway == "agent")
    except CheckError:
        pass  # it is in the report
    except Exception as error:
        traceback.print_exc()
        report.failed("nothing raises", f"{type(error).__name__}: {error}")
    finally:
        given.result.write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if report.as_json()["passed"] else 1)


if __name__ == "__main__":
    main()
