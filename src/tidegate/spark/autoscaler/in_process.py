"""The gateway to the driver of this process: calls to its JVM for what PySpark does not wrap.

All such calls are in this module, and those that differ between versions of Spark in `versions`, so
that a new version is checked in one place. Results come as JSON from the writer of Spark's REST
interface: one call to the JVM instead of hundreds.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidegate.errors import BackendError, SettingError
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.holdings import StateStore, sampled_stores, stores_by_executor
from tidegate.spark.autoscaler.job_reader import JobReader, Json, TaskList
from tidegate.spark.autoscaler.jobs import JobWork
from tidegate.spark.autoscaler.kubernetes_api import KubernetesApi
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.spark.autoscaler.sightings import (
    ExecutorInfo,
    QueryStatus,
    Trigger,
    read_executors,
    read_status,
    read_trigger,
)
from tidegate.spark.autoscaler.versions import Version, version_of, warn_if_untested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["InProcessGateway"]

log = logging.getLogger(__name__)

_CAUSES = (":", "Caused by:")
"""How the lines of an error of the JVM begin that name a cause."""


class InProcessGateway(Gateway):
    """The gateway to an application whose driver is this process.

    spark: a classic session (one with a SparkContext in this process).
    watch_only: the application is only observed, so Spark's dynamic allocation may be on.

    Raises SettingError when the application cannot be scaled from outside, with the reason.
    """

    # As `active_queries` found them: one listing a turn, and not one for each query.
    _executions: Mapping[str, Any] = MappingProxyType({})  # by the id of the query
    _run_ids: frozenset[str] | None = None  # of these queries; None: not read yet
    _tasks_by_run: Mapping[str, tuple[int, int]] | None = None  # None: not read in this turn
    _calls = Version()

    def __init__(self, spark: SparkSession, watch_only: bool = False) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise SettingError(
                "spark",
                type(spark).__module__,
                "a classic session",
                "Spark Connect has no SparkContext: start the server with the agent, and run "
                "tidegate attach",
            )
        self.spark = spark
        self._context = context
        self._jvm = context._jvm
        self._scala = context._jsc.sc()
        self._json = self._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        self._calls = version_of(self.version)
        warn_if_untested(self.version)
        self._sessions: dict[str, Any] = {}  # the sessions that are listened to, by their id
        self._listener: Any = None
        self._reader = JobReader(self)
        self._kubernetes: KubernetesApi | None = None
        if self.scheme == "k8s":
            namespace = self.setting("spark.kubernetes.namespace", "default")
            self._kubernetes = KubernetesApi(
                self._scala.schedulerBackend, namespace, self.application
            )
        if not watch_only:
            check_scalable(self.setting)

    def setting(self, key: str, default: str = "") -> str:
        """A setting of the application."""
        # PySpark's own getConf copies all settings, one call to the JVM each.
        return str(self._scala.getConf().get(key, default))

    @property
    def version(self) -> str:
        """The version of Spark."""
        return str(self._context.version)

    @property
    def name(self) -> str:
        """The application's name."""
        return str(self._context.appName)

    @property
    def application(self) -> str:
        """The application's id at the cluster manager."""
        return str(self._context.applicationId)

    @property
    def stopped(self) -> bool:
        """Whether the application has ended."""
        try:
            return self._context._jsc is None or bool(self._scala.isStopped())
        except Exception:  # the JVM does not answer any more
            return True

    @property
    def succeeded_by_another(self) -> bool:
        """Whether this process has a Spark application other than this one."""
        other = type(self._context)._active_spark_context
        return other is not None and other is not self._context

    # --- executors ----------------------------------------------------------------------------

    def executors(self, include_driver: bool = False) -> list[ExecutorInfo]:
        """The executors that run, in the order of their registration.

        include_driver: list the driver too, which runs the tasks of a ``local`` master.
        """
        with _translated("its executors could not be listed"):
            text = self._json.writeValueAsString(self._scala.statusStore().executorList(True))
            backend = self._scala.schedulerBackend()
            plain = json.loads(text)
            active = {
                e["id"]: e["id"] == "driver" or bool(backend.isExecutorActive(e["id"]))
                for e in plain
            }
        seen = [e | {"isActive": active[e["id"]]} for e in plain]
        return read_executors(seen, include_driver, self.pod_prefix)

    def request_total(self, executors: int) -> bool:
        """Set the total number of executors that are requested; running ones are not removed.

        Returns whether the cluster manager has acknowledged it. The call changes nothing if the
        total is the same as before.
        """
        with _translated(f"a total of {executors} could not be requested"):
            no_preference = self._jvm.PythonUtils.toScalaMap({})
            return bool(self._scala.requestTotalExecutors(executors, 0, no_preference))

    def decommission(self, ids: Sequence[str], why: str) -> list[str]:
        """Let executors finish their tasks and leave; the requested total stays as it is.

        Without ``spark.decommission.enabled`` they are killed, so call this between two batches.
        Returns the ids of the executors that leave.
        """
        if not self.decommissions:
            return self.kill(ids)
        if not ids:
            return []
        with _translated(f"executors {', '.join(ids)} could not be released"):
            pairs = self._context._gateway.new_array(self._jvm.scala.Tuple2, len(ids))
            information = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
            for n, executor in enumerate(ids):
                pairs[n] = self._jvm.scala.Tuple2(
                    executor, information(why, self._jvm.scala.Option.empty())
                )
            backend = self._scala.schedulerBackend()
            adjust_target, triggered_by_executor = False, False
            return self._listed(
                backend.decommissionExecutors(pairs, adjust_target, triggered_by_executor)
            )

    def kill(self, ids: Sequence[str]) -> list[str]:
        """Kill executors with their tasks, which do not count as failed; the total stays.

        Returns the ids of the executors that are killed.
        """
        if not ids:
            return []
        with _translated(f"executors {', '.join(ids)} could not be killed"):
            backend = self._scala.schedulerBackend()
            adjust_target, count_failures, force = False, False, True
            names = self._jvm.PythonUtils.toSeq(list(ids))
            return self._listed(backend.killExecutors(names, adjust_target, count_failures, force))

    def may_create_pods(self) -> bool | None:
        """Whether the driver's account may create pods; None without Kubernetes or an answer."""
        return None if self._kubernetes is None else self._kubernetes.may_create_pods()

    def executor_pods(self) -> Sequence[Mapping[str, Any]] | None:
        """The executor pods; None without Kubernetes or an answer."""
        return None if self._kubernetes is None else self._kubernetes.executor_pods()

    def state_partitions(self) -> dict[str, int] | None:
        """Number of state partitions that each executor has loaded, by its id.

        Spark's coordinator of state stores is asked for each partition, or for a sample of them.
        None when it does not answer.
        """
        try:
            queries = {str(query.id()): query for query in self._active()}
            stores = sampled_stores({id: _stateful(query) for id, query in queries.items()})
            return stores_by_executor(stores, [self._place(queries[s.query], s) for s in stores])
        except Exception as error:
            log.debug("the coordinator of state stores did not answer: %s", error)
            return None

    def _place(self, query: Any, store: StateStore) -> str | None:
        state = self._jvm.org.apache.spark.sql.execution.streaming.state
        coordinator = query.sparkSession().streams().stateStoreCoordinator()
        root = f"{query.resolvedCheckpointRoot()}/state"
        id = state.StateStoreId(root, store.operator, store.partition, store.name)
        place = coordinator.getLocation(state.StateStoreProviderId(id, query.runId()))
        return str(place.get()) if place.isDefined() else None

    def _listed(self, sequence: Any) -> list[str]:
        return [str(item) for item in json.loads(self._json.writeValueAsString(sequence))]

    # --- queries ------------------------------------------------------------------------------

    def finished_jobs(
        self, after: int, running: Collection[int] = ()
    ) -> tuple[list[JobWork], int, set[int]]:
        """Jobs of the application that have ended since the last look.

        after: highest number of a job that was seen, -1 at first; running: those that still ran.
        The result has the jobs, in order, and the new values of the two.
        """
        with _translated("the status store did not answer"):
            return self._reader.finished(after, running)

    def list_jobs(self, after: int, most: int, others: Collection[int]) -> tuple[list[Json], int]:
        """Jobs as JSON; see `JobSource`."""
        store = self._scala.statusStore()
        listed = store.jobsList(None)  # the newest first
        newest = listed.head().jobId() if listed.nonEmpty() else after
        fresh = max(0, newest - after) if after >= 0 else most
        text = self._json.writeValueAsString(listed.take(min(most, fresh)))
        plain = [job for job in json.loads(text) if job["jobId"] > after]
        for number in others:
            with contextlib.suppress(Exception):  # dropped from Spark's store in the meantime
                plain.append(json.loads(self._json.writeValueAsString(store.job(number))))
        return plain, newest

    def stages(self, numbers: Sequence[int]) -> list[Json | None]:
        """Stages as JSON; see `JobSource`."""
        store = self._scala.statusStore()
        found: list[Json | None] = []
        for number in numbers:
            try:
                text = self._json.writeValueAsString(store.lastStageAttempt(number))
            except Exception:  # dropped from Spark's store
                found.append(None)
            else:
                found.append(json.loads(text))
        return found

    def task_lists(self, wanted: Sequence[TaskList]) -> list[list[Json]]:
        """Tasks as JSON; see `JobSource`."""
        store, found = self._scala.statusStore(), []
        for one in wanted:
            try:
                by, every = self._jvm.scala.Option.apply(one.order), self._jvm.java.util.ArrayList()
                first = store.taskList(one.stage, one.attempt, 0, one.most, by, False, every)
                found.append(json.loads(self._json.writeValueAsString(first)))
            except Exception:  # another version of Spark, or the tasks were dropped
                found.append([])
        return found

    def batch_texts(self, jobs: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Descriptions of the executions of jobs; see `JobSource`."""
        found: list[str | None] = []
        for job in jobs:
            text = None
            try:
                shared = self.spark._jsparkSession.sharedState()
                root = self._calls.root_execution(job, shared)
                execution = None if root is None else shared.statusStore().execution(root)
                if execution is not None and execution.isDefined():
                    text = str(execution.get().description())
            except Exception as error:
                log.debug("the execution of job %s could not be read: %s", job["jobId"], error)
            found.append(text)
        return found

    def runs(self) -> frozenset[str]:
        """Runs of the queries that the last listing found."""
        if not self._executions:
            self._index(self._active())
        if self._run_ids is None:
            self._run_ids = frozenset(str(q.runId()) for q in self._executions.values())
        return self._run_ids

    def tasks_of(self, run: str) -> tuple[int, int]:
        """Numbers of tasks of a query's run that wait for a slot, and that run.

        The jobs are listed at the first call after `active_queries`, for all runs at once.
        """
        if self._tasks_by_run is None:
            with _translated("the status tracker did not answer"):
                self._tasks_by_run = self._reader.active_tasks()
        return self._tasks_by_run.get(run, (0, 0))

    def active_jobs(self) -> list[Json]:
        """Jobs that run, as JSON; see `JobSource`."""
        tracker, store = self._context.statusTracker(), self._scala.statusStore()
        found = []
        for number in tracker.getActiveJobsIds():
            try:
                job = json.loads(self._json.writeValueAsString(store.job(number)))
            except Exception:
                continue  # it has just begun or ended
            seen = [tracker.getStageInfo(stage) for stage in job["stageIds"]]
            keys = ("numTasks", "numActiveTasks", "numCompletedTasks")
            job["stages"] = [{key: getattr(s, key) for key in keys} for s in seen if s is not None]
            found.append(job)
        return found

    def trigger_of(self, query: str) -> Trigger:
        """The trigger of a query."""
        try:
            trigger = self._execution(query).trigger()
            kind = str(trigger.getClass().getSimpleName()).rstrip("$")
        except Exception:  # it ended in the meantime
            return Trigger()
        try:
            interval_ms = float(trigger.intervalMs())
        except Exception:  # a trigger of another kind has no interval
            interval_ms = None
        return read_trigger(kind, interval_ms)

    def status_of(self, query: str) -> QueryStatus:
        """What a query does now; neither idle nor in a batch when that cannot be read."""
        try:
            execution = self._execution(query)
            status, run = json.loads(execution.status().json()), str(execution.runId())
            began_ms = 0
            if status["isTriggerActive"]:
                began_ms = self._calls.batch_began_ms(execution)
            return read_status(status, run, began_ms)
        except Exception as error:
            log.debug("the status of %s could not be read: %s", query, error)
            return QueryStatus()

    def read_limits(self, query: str) -> tuple[tuple[SourceLimit, ...], ...] | None:
        """The limits of each of a query's sources, None when they cannot be read (yet)."""
        try:
            sources = self._execution(query).uniqueSources().iterator()
            found = []
            while sources.hasNext():
                pair = sources.next()
                found.append(tuple(_limits(str(pair._1().toString()), pair._2())))
        except Exception as error:
            log.debug("the read limits of %s could not be read: %s", query, error)
            return None
        return tuple(found) or None

    def checkpoint_of(self, query: str) -> str | None:
        """Where a query's checkpoint is, as a URI; None when that is unknown."""
        try:
            return str(self._execution(query).resolvedCheckpointRoot())
        except Exception as error:
            log.debug("the checkpoint of %s could not be read: %s", query, error)
            return None

    def files_read(self, query: str) -> tuple[float, float] | None:
        """Numbers of files and rows that the last batch of a query read, None when unknown."""
        try:
            leaves = self._execution(query).lastExecution().executedPlan().collectLeaves()
            files = rows = 0.0
            for number in range(leaves.size()):
                metrics = leaves.apply(number).metrics()
                if metrics.contains("numFiles"):
                    files += metrics.apply("numFiles").value()
                    rows += metrics.apply("numOutputRows").value()
        except Exception:  # no batch yet, or another plan
            return None
        return (files, rows) if files else None

    def _execution(self, query: str) -> Any:
        """Spark's execution of a running query."""
        if query not in self._executions:
            self._index(self._active())
        if query not in self._executions:
            raise BackendError(f"query {query} does not run")
        return self._executions[query]

    def _index(self, active: Sequence[Any]) -> None:
        self._executions = {str(query.id()): query for query in active}
        self._run_ids = None

    def active_queries(self) -> dict[str, str]:
        """Names of the running queries of all sessions of the application, by id.

        What the other calls need of the queries is listed here, so call it once a turn.
        """
        with _translated("its queries could not be listed"):
            self._tasks_by_run = None
            active = self._active()
            self._listen_to(active)
            self._index(active)
            return {i: query.name() or i[:8] for i, query in self._executions.items()}

    def in_batch(self) -> dict[str, str]:
        """Names of the queries that process a batch now, by run id; idle ones are not listed."""
        with _translated("its queries did not answer"):
            found = {}
            for query in self._active():
                status = query.status()
                if status.isTriggerActive() and status.isDataAvailable():
                    found[str(query.runId())] = query.name() or str(query.id())[:8]
            return found

    def _active(self) -> list[Any]:
        """The JVM's running queries. A session knows only its own; they share this register."""
        return list(self.spark._jsparkSession.sharedState().activeStreamingQueries().values())

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function for every event of every streaming query; return a function to stop it.

        A query of another session is heard from the next call of `active_queries` on.

        hear: called with a kind (``progress``, ``idle``, ``started`` or ``ended``) and JSON, or for
            ``ended`` with ``run id + newline + error``. It runs in Spark's thread, so it must only
            queue the event.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._context._gateway)  # type: ignore[no-untyped-call]
        wrapper = self._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        self._listener = wrapper(_Listener(hear))
        self._add_session(self.spark._jsparkSession)

        def end() -> None:
            listener, self._listener = self._listener, None
            for session in self._sessions.values():
                with contextlib.suppress(Exception):  # the application may have ended already
                    session.streams().removeListener(listener)
            self._sessions.clear()

        return end

    def _listen_to(self, queries: Sequence[Any]) -> None:
        """Listen to the sessions of queries: each session calls its own listeners only."""
        if self._listener is not None:
            for query in queries:
                self._add_session(query.sparkSession())

    def _add_session(self, session: Any) -> None:
        name = str(session.sessionUUID())
        if name not in self._sessions:
            session.streams().addListener(self._listener)
            self._sessions[name] = session


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


def _stateful(query: Any) -> list[Json]:
    """The stateful operators of a query in its last progress event."""
    progress = query.lastProgress()
    return json.loads(progress.json())["stateOperators"] if progress else []


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn an error of the JVM or of the connection to it into a BackendError of one sentence."""
    try:
        yield
    except Exception as error:
        raise BackendError(f"{what}: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """The innermost cause of an error of the JVM, without its stack; else the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.partition(":")[2].strip() for line in lines if line.startswith(_CAUSES)]
    return next((line for line in reversed([*lines[-1:], *causes]) if line), type(error).__name__)


def _limits(source: str, limit: Any) -> Iterator[SourceLimit]:
    """Spark's read limit of a source."""
    kind = str(limit.getClass().getSimpleName())
    if kind == "CompositeReadLimit":
        for part in limit.getReadLimits():
            yield from _limits(source, part)
    elif kind == "ReadMaxRows":
        yield SourceLimit("rows", float(limit.maxRows()), source)
    elif kind == "ReadMaxFiles":
        yield SourceLimit("files", float(limit.maxFiles()), source)
    elif kind == "ReadMaxBytes":
        yield SourceLimit("bytes", float(limit.maxBytes()), source)
