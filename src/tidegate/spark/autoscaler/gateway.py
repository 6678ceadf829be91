"""The few things that Tidegate asks of the JVM behind a session and PySpark does not wrap.

All of it is here, so that a new Spark version is checked in one place. Answers come as JSON, by
Spark's own writer for its REST interface: one call across the border instead of hundreds.
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

    cores: task slots; busy_s: run time of its finished tasks in all; tasks: running now.
    added_s: when it registered, Unix seconds.
    """

    id: str
    cores: int
    memory_mb: float
    busy_s: float
    tasks: int
    added_s: float


@dataclass(frozen=True, slots=True)
class JobWork:
    """What one finished job of a query has taken.

    batch: of which micro-batch, None when Spark did not say. run_s: slot-seconds of its tasks;
    cpu_s: seconds of processor time. tasks: in the stage that took longest.
    read_rows, read_bytes: what its tasks read from files.
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

    spark: a classic session (one with a SparkContext in this process). Raises SettingError when
    the application cannot be scaled from outside, and says why.
    watch_only: nobody will scale it, so Spark may do so itself.
    """

    def __init__(self, spark: SparkSession, watch_only: bool = False) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise SettingError(
                "spark",
                type(spark).__module__,
                "a classic session",
                "Spark Connect has no SparkContext: attach where the driver runs",
            )
        self.spark = spark
        self._context = context
        self._jvm = context._jvm
        self._scala = context._jsc.sc()
        self._json = self._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        self.version: str = context.version
        if not self.version.startswith(KNOWN_VERSIONS):
            log.warning("Spark %s is not among those tested: %s", self.version, KNOWN_VERSIONS)
        if not watch_only and self.setting("spark.dynamicAllocation.enabled", "false") == "true":
            raise SettingError(
                "spark.dynamicAllocation.enabled",
                "true",
                "false",
                "two autoscalers on one application undo each other's work: switch Spark's off, "
                "or watch it with dry_run=True",
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
        """The id that the cluster manager gave the application."""
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
        except Exception:  # nobody answers any more
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
        """Ask the cluster manager for so many executors in all; running ones are not removed."""
        with _translated(f"{executors} executors could not be requested"):
            nowhere_special = self._jvm.PythonUtils.toScalaMap({})
            self._scala.requestTotalExecutors(executors, 0, nowhere_special)

    def decommission(self, ids: Sequence[str], why: str) -> None:
        """Let executors finish what they do and leave; blocks move away where that is enabled.

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
            # One that still runs hides those after it, or it would be passed over for good.
            end = min(running & set(jobs), default=math.inf)
            found = [self._job(job) for job in jobs if after_job < job < end]
        return [job for job in found if job is not None]

    def _jobs_of(self, run: str) -> list[int]:
        # As JSON: PySpark would fetch a thousand remembered jobs one by one.
        ids = self._context.statusTracker()._jtracker.getJobIdsForGroup(run)
        return sorted(json.loads(self._json.writeValueAsString(ids)))

    def _job(self, job: int) -> JobWork | None:
        store = self._scala.statusStore()
        try:
            plain = json.loads(self._json.writeValueAsString(store.job(job)))
        except Exception:  # thrown away in the meantime
            return None
        if plain["status"] == "RUNNING":
            return None
        run_s = cpu_s = longest_s = 0.0
        tasks = rows = size = 0
        for stage in plain["stageIds"]:
            try:
                text = self._json.writeValueAsString(store.lastStageAttempt(stage))
            except Exception:
                continue  # it was skipped, or thrown away
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
        """Tasks of a query's run that wait for a slot, and tasks that have one."""
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
        """Seconds between two triggers of a query, 0 when there is no pause, None if unknown."""
        for active in self.spark.streams.active:
            if active.id == query:
                try:
                    trigger = active._jsq.streamingQuery().trigger()
                    return float(trigger.intervalMs()) / 1000
                except Exception:  # a trigger of another kind has no interval
                    return None
        return None

    def active_queries(self) -> dict[str, str]:
        """Names of the queries that run, by id."""
        with _translated("its queries could not be listed"):
            return {q.id: q.name or q.id[:8] for q in self.spark.streams.active}

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Have every event of every streaming query told; returns how to end it.

        hear: gets a kind (``progress``, ``idle``, ``started`` or ``ended``) and JSON or, for an
        end, ``run id + newline + error``. It is called from Spark's own thread: it must only note.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._context._gateway)  # type: ignore[no-untyped-call]
        wrapper = self._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        listener = wrapper(_Listener(hear))
        streams = self.spark._jsparkSession.streams()
        streams.addListener(listener)

        def end() -> None:
            with contextlib.suppress(Exception):  # the application may be gone already
                streams.removeListener(listener)

        return end


class _Listener:
    """Spark's listener interface, told in one string an event (PySpark's own makes hundreds)."""

    def __init__(self, hear: Callable[[str, str], None]) -> None:
        self._hear = hear

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - the interface's name
        self._hear("started", f"{event.runId()}")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._hear("progress", event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._hear("idle", event.json())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        error = event.exception()
        self._hear("ended", f"{event.runId()}\n{error.get() if error.isDefined() else ''}")

    class Java:
        """Which interface this is, for py4j."""

        implements: tuple[str, ...] = (
            "org.apache.spark.sql.streaming.PythonStreamingQueryListener",
        )


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Whatever the JVM or the connection to it raises, as one sentence."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise BackendError(f"{what}: {lines[-1] if lines else type(error).__name__}") from error


def _moment_s(text: str) -> float:
    """Unix seconds of a time as Spark's REST interface writes it, with GMT at the end."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT")
    return moment.replace(tzinfo=UTC).timestamp()
