"""Access to the JVM of a Spark session, for what PySpark does not wrap.

All such calls are in this module, so that a new Spark version is checked in one place. Results come
as JSON from the writer of Spark's REST interface: one call to the JVM instead of hundreds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidegate.errors import BackendError, SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExecutorInfo", "Gateway", "JobWork"]

log = logging.getLogger(__name__)

KNOWN_VERSIONS = ("4.0", "4.1", "4.2", "4.3")


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """An executor as the driver sees it.

    Args:
        id: Spark's id of the executor.
        cores: Task slots.
        memory_mb: Memory for storage and execution, in MB.
        busy_s: Total run time of its finished tasks, in seconds.
        tasks: Tasks that run now.
        added_s: When it registered, Unix seconds.
    """

    id: str
    cores: int
    memory_mb: float
    busy_s: float
    tasks: int
    added_s: float


@dataclass(frozen=True, slots=True)
class JobWork:
    """Resources that one finished job of a query used.

    Args:
        job: Spark's number of the job.
        batch: Number of its micro-batch, None when Spark did not report it.
        run_s: Slot-seconds of its tasks.
        cpu_s: Seconds of CPU time.
        tasks: Tasks of its longest stage.
        read_rows: Rows that its tasks read from files.
        read_bytes: Bytes that its tasks read from files.
    """

    job: int
    batch: int | None
    run_s: float
    cpu_s: float
    tasks: int
    read_rows: int = 0
    read_bytes: int = 0


class Gateway:
    """The JVM of a running Spark application.

    spark: a classic session (one with a SparkContext in this process).
    watch_only: the application is only observed, so Spark's dynamic allocation may be on.

    Raises SettingError when the application cannot be scaled from outside, with the reason.
    """

    def __init__(self, spark: SparkSession, watch_only: bool = False) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise SettingError(
                "spark",
                type(spark).__module__,
                "a classic session",
                "Spark Connect has no SparkContext: create the autoscaler in the driver",
            )
        self.spark = spark
        self._context = context
        self._jvm = context._jvm
        self._scala = context._jsc.sc()
        self._json = self._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        self.version: str = context.version
        if not self.version.startswith(KNOWN_VERSIONS):
            log.warning("Spark %s is untested; tested versions: %s", self.version, KNOWN_VERSIONS)
        if not watch_only and self.setting("spark.dynamicAllocation.enabled", "false") == "true":
            raise SettingError(
                "spark.dynamicAllocation.enabled",
                "true",
                "false",
                "two autoscalers on one application undo each other's changes: switch Spark's "
                "off, or watch it with dry_run=True",
            )

    def setting(self, key: str, default: str = "") -> str:
        """A setting of the application."""
        return str(self._context.getConf().get(key, default))

    @property
    def name(self) -> str:
        """The application's name."""
        return str(self._context.appName)

    @property
    def application(self) -> str:
        """The application's id at the cluster manager."""
        return str(self._context.applicationId)

    @property
    def scheme(self) -> str:
        """The scheme of ``spark.master``: ``local``, ``spark``, ``yarn``, ``k8s`` or another."""
        found = re.match(r"\w+", str(self._context.master))
        return found.group() if found else ""

    @property
    def stopped(self) -> bool:
        """Whether the application has ended."""
        try:
            return self._context._jsc is None or bool(self._scala.isStopped())
        except Exception:  # the JVM does not answer any more
            return True

    # --- executors ----------------------------------------------------------------------------

    def executors(self, include_driver: bool = False) -> list[ExecutorInfo]:
        """The executors that run, in the order of their registration.

        include_driver: list the driver too, which runs the tasks of a ``local`` master.
        """
        with _translated("its executors could not be listed"):
            text = self._json.writeValueAsString(self._scala.statusStore().executorList(True))
        found = [
            ExecutorInfo(
                id=e["id"],
                cores=e["totalCores"],
                memory_mb=e["maxMemory"] / 2**20,
                busy_s=e["totalDuration"] / 1000,
                tasks=e["activeTasks"],
                added_s=_moment_s(e["addTime"]),
            )
            for e in json.loads(text)
            if include_driver or e["id"] != "driver"
        ]
        return sorted(found, key=lambda e: (e.added_s, e.id))

    def request_total(self, executors: int) -> None:
        """Set the total number of executors that are requested; running ones are not removed."""
        with _translated(f"{executors} executors could not be requested"):
            no_preference = self._jvm.PythonUtils.toScalaMap({})
            self._scala.requestTotalExecutors(executors, 0, no_preference)

    def decommission(self, ids: Sequence[str], why: str) -> None:
        """Let executors finish their tasks and leave; blocks are migrated where that is enabled.

        Without ``spark.decommission.enabled`` they are killed, so call this between two batches.
        """
        if not ids:
            return
        with _translated(f"executors {', '.join(ids)} could not be released"):
            if self.setting("spark.decommission.enabled", "false") == "true":
                self._decommission(ids, why)
            else:
                self._scala.killExecutors(self._jvm.PythonUtils.toSeq(list(ids)))

    def _decommission(self, ids: Sequence[str], why: str) -> None:
        pairs = self._context._gateway.new_array(self._jvm.scala.Tuple2, len(ids))
        information = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
        for n, executor in enumerate(ids):
            pairs[n] = self._jvm.scala.Tuple2(
                executor, information(why, self._jvm.scala.Option.empty())
            )
        backend = self._scala.schedulerBackend()
        adjust_target, triggered_by_executor = True, False
        backend.decommissionExecutors(pairs, adjust_target, triggered_by_executor)

    # --- queries ------------------------------------------------------------------------------

    def work_of(self, run: str, after_job: int) -> list[JobWork]:
        """Finished jobs of a query's run with a number above `after_job`, in order."""
        with _translated("the status store did not answer"):
            jobs = self._jobs_of(run)
            running = set(self._context.statusTracker().getActiveJobsIds())
            # Jobs after one that still runs are left for later, or that job would be skipped.
            end = min(running & set(jobs), default=math.inf)
            found = [self._job(job) for job in jobs if after_job < job < end]
        return [job for job in found if job is not None]

    def _jobs_of(self, run: str) -> list[int]:
        # As JSON: PySpark would fetch a thousand job ids one by one.
        ids = self._context.statusTracker()._jtracker.getJobIdsForGroup(run)
        return sorted(json.loads(self._json.writeValueAsString(ids)))

    def _job(self, job: int) -> JobWork | None:
        store = self._scala.statusStore()
        try:
            plain = json.loads(self._json.writeValueAsString(store.job(job)))
        except Exception:  # dropped from Spark's store in the meantime
            return None
        if plain["status"] == "RUNNING":
            return None
        run_s = cpu_s = longest_s = 0.0
        tasks = rows = size = 0
        for stage in plain["stageIds"]:
            try:
                text = self._json.writeValueAsString(store.lastStageAttempt(stage))
            except Exception:
                continue  # skipped, or dropped from Spark's store
            seen = json.loads(text)
            took_s = seen["executorRunTime"] / 1000
            run_s += took_s
            cpu_s += seen["executorCpuTime"] / 1e9
            rows += seen["inputRecords"]
            size += seen["inputBytes"]
            if took_s >= longest_s:
                longest_s, tasks = took_s, seen["numTasks"]
        batch = re.search(r"batch = (\d+)", plain.get("description", ""))
        number = int(batch.group(1)) if batch else None
        return JobWork(job, number, run_s, cpu_s, tasks, rows, size)

    def tasks_of(self, run: str) -> tuple[int, int]:
        """Numbers of tasks of a query's run that wait for a slot, and that run."""
        with _translated("the status tracker did not answer"):
            tracker = self._context.statusTracker()
            waiting = running = 0
            for job in set(self._jobs_of(run)) & set(tracker.getActiveJobsIds()):
                information = tracker.getJobInfo(job)
                for stage in information.stageIds if information else ():
                    seen = tracker.getStageInfo(stage)
                    if seen is not None and seen.numActiveTasks:
                        running += seen.numActiveTasks
                        waiting += seen.numTasks - seen.numActiveTasks - seen.numCompletedTasks
        return max(0, waiting), running

    def trigger_interval_s(self, query: str) -> float | None:
        """Trigger interval of a query in seconds, 0 when there is no pause, None if unknown."""
        for active in self.spark.streams.active:
            if active.id == query:
                try:
                    trigger = active._jsq.streamingQuery().trigger()
                    return float(trigger.intervalMs()) / 1000
                except Exception:  # a trigger of another kind has no interval
                    return None
        return None

    def active_queries(self) -> dict[str, str]:
        """Names of the running queries, by id."""
        with _translated("its queries could not be listed"):
            return {q.id: q.name or q.id[:8] for q in self.spark.streams.active}

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function for every event of every streaming query; return a function to stop it.

        hear: called with a kind (``progress``, ``idle``, ``started`` or ``ended``) and JSON, or for
            ``ended`` with ``run id + newline + error``. It runs in Spark's thread, so it must only
            queue the event.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._context._gateway)  # type: ignore[no-untyped-call]
        wrapper = self._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        listener = wrapper(_Listener(hear))
        streams = self.spark._jsparkSession.streams()
        streams.addListener(listener)

        def end() -> None:
            with contextlib.suppress(Exception):  # the application may have ended already
                streams.removeListener(listener)

        return end


class _Listener:
    """Spark's listener interface with one JVM call per event (PySpark's makes hundreds)."""

    def __init__(self, hear: Callable[[str, str], None]) -> None:
        self._hear = hear

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - the name in the interface
        self._hear("started", f"{event.runId()}")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._hear("progress", event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._hear("idle", event.json())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        error = event.exception()
        self._hear("ended", f"{event.runId()}\n{error.get() if error.isDefined() else ''}")

    class Java:
        """The interface that this class implements, for py4j."""

        implements: tuple[str, ...] = (
            "org.apache.spark.sql.streaming.PythonStreamingQueryListener",
        )


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn an error of the JVM or of the connection to it into a BackendError of one sentence."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise BackendError(f"{what}: {lines[-1] if lines else type(error).__name__}") from error


def _moment_s(text: str) -> float:
    """Unix seconds of a time in the format of Spark's REST interface, which ends in GMT."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT")
    return moment.replace(tzinfo=UTC).timestamp()
