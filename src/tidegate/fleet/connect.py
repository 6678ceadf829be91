"""A Spark Connect server as a host: the only file that speaks Spark Connect."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import urllib.request
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidegate.errors import BackendError
from tidegate.fleet.endpoints import read_endpoint
from tidegate.fleet.hosts import HostRefused, HostView, QueryView, bounded
from tidegate.fleet.queries import ContinuousQuery
from tidegate.spark.autoscaler.progress import Progress, read_progress

__all__ = ["ConnectHost", "connect", "session_id"]

T = TypeVar("T")

USER = "tidegate"
BOUNDARY_S = 5.0
_RUN = re.compile(r"runId = (\S+)")


def session_id(fleet: str, endpoint: str) -> str:
    """The session of a fleet on an endpoint: the same after a restart, so its queries are found."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tidegate:{fleet}:{endpoint}"))


def connect(endpoint: str, session: str) -> Any:
    """A Spark Connect session. endpoint: ``sc://host:port/;token=…``; session: its id."""
    # PySpark's functions look here for which of its two kinds of columns to make.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what is wrong is in its exceptions too
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        remedy = "install it with: pip install 'tidegate[fleet]'"
        raise BackendError(f"Spark Connect is not installed ({error}): {remedy}") from None
    builder: Any = SparkSession.builder
    made = builder.remote(read_endpoint(endpoint).url(session_id=session, user_id=USER)).create()
    # By default a client tries for ten minutes to reach a server that is gone, also when the
    # process wants to end. Whether a host is gone is for the manager to judge, and soon.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    made.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=1000)])
    return made


def explained(error: Exception, place: str) -> Exception:
    """An error of a connection with what to do about it; any other as it is."""
    text = str(error)
    if "UNAUTHENTICATED" in text or "PERMISSION_DENIED" in text:
        remedy = "give the right one in its --endpoint, as ;token=…"
        said = "wants a token" if "No authentication token" in text else "does not take our token"
        return HostRefused(f"{place} {said}: {remedy}")
    if "UNAVAILABLE" in text and ("handshake" in text.lower() or "ssl" in text.lower()):
        when = "we use it with use_ssl=true, and with a token to any other machine than localhost"
        trust = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names a file of certificates to trust"
        return HostRefused(f"{place} and we do not agree on TLS: {when}; {trust}")
    if "UNAVAILABLE" in text:
        remedy = "is it running, and does it speak TLS just where use_ssl or a token ask for it?"
        return BackendError(f"{place} cannot be reached ({remedy})")
    return error


class ConnectHost:
    """A Connect server that is up.

    endpoint: its address. session: the id of the session that all our queries live in.
    ui_url: of its web page, for the CPU time of queries; None: that is not measured.
    pid: of its process when that is on this machine, for CPU and memory; None: not measured.
    running: whether its process lives, where that can be asked.
    """

    def __init__(
        self,
        endpoint: str,
        session: str,
        ui_url: str | None = None,
        pid: int | None = None,
        running: Callable[[], bool] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.session_id = session
        self.pid = pid
        self._session: Any = None
        self._running = running
        self._handles: dict[str, Any] = {}
        self._stages = _Stages(ui_url) if ui_url else None

    @property
    def place(self) -> str:
        """Its address, without its token."""
        return self.endpoint.partition("/;")[0]

    @property
    def alive(self) -> bool:
        """Whether its process has not ended; True where nobody knows."""
        return self._running is None or self._running()

    def cpu_s(self) -> float | None:
        """Seconds of CPU that its process took, None when that is not on this machine."""
        return process_usage(self.pid).cpu_s if self.pid is not None else None

    def look(self, timeout_s: float) -> HostView:
        """What runs on it, with what Spark and the operating system tell of it."""
        return self._bounded(self._look, timeout_s, f"a look at {self.place}")

    def warm_up(self, timeout_s: float) -> None:
        """Have a batch and a stream done: a JVM is slow at what it does for the first time.

        Without that, the first query that is moved here would pause for its host's class loading.
        """

        def first() -> None:
            session = self._connected()
            session.range(10).groupBy().count().collect()
            counts = session.readStream.format("rate").load().groupBy().count()
            writer = counts.writeStream.format("noop").outputMode("complete")
            stream = writer.trigger(availableNow=True).start()
            stream.awaitTermination(timeout_s)
            stream.stop()

        self._bounded(first, timeout_s, f"a first query on {self.place}")
        self.look(timeout_s)

    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        """Start a query; an error of the query's own function is passed on."""
        what = f"the start of {query.name} on {self.place}"
        self._bounded(lambda: self._start(query, checkpoint), timeout_s, what)

    def stop(self, name: str, timeout_s: float) -> None:
        """Stop a query when its batch has ended, or after five seconds in the middle of one.

        A batch that is cut off is done again from its offsets, so that costs time and no rows.
        """
        self._bounded(lambda: self._stop(name), timeout_s, f"the stop of {name} on {self.place}")

    # --- inside -------------------------------------------------------------------------------

    def _bounded(self, call: Callable[[], T], timeout_s: float, what: str) -> T:
        try:
            return bounded(call, timeout_s, what, lambda: self.alive)
        except Exception as error:
            raise explained(error, self.place) from error

    def _connected(self) -> Any:
        if not self.alive:
            raise BackendError(f"{self.place} has ended")
        if self._session is None:
            self._session = connect(self.endpoint, self.session_id)
        return self._session

    def _active(self) -> dict[str, Any]:
        active = {query.name: query for query in self._connected().streams.active if query.name}
        for name, query in active.items():
            known = self._handles.get(name)
            if known is None or known.runId != query.runId:
                self._handles[name] = query
        return active

    def _start(self, query: ContinuousQuery, checkpoint: str) -> None:
        self._handles[query.name] = query.start(self._connected(), checkpoint)

    def _stop(self, name: str) -> None:
        query = self._active().get(name)
        if query is not None:
            end_s, first = time.monotonic() + BOUNDARY_S, _last_batch(query)
            while query.status["isTriggerActive"] and time.monotonic() < end_s:
                if _last_batch(query) != first:  # one has just ended, and the next just begun
                    break
                time.sleep(0.05)
            query.stop()
        self._handles.pop(name, None)

    def _look(self) -> HostView:
        active = self._active()
        if self._stages is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._stages.update()
        views = {}
        for name, handle in list(self._handles.items()):
            run = str(handle.runId)
            took = self._stages.of(run) if self._stages else (None, None, None)
            if name in active:
                progress = tuple(_progress(p) for p in handle.recentProgress)
                views[name] = QueryView(run, True, None, progress, *took)
            else:
                views[name] = QueryView(run, False, _failure(handle), (), *took)
        used = process_usage(self.pid) if self.pid is not None else Usage()
        return HostView(views, used.cpu_s, used.memory_mb, used.read_mb, used.written_mb)


def _progress(event: Any) -> Progress:
    plain = json.loads(event.json)
    plain["numInputRows"] = event.numInputRows  # Connect leaves the total to its sources
    return read_progress(json.dumps(plain))


def _last_batch(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last.batchId)


def _failure(handle: Any) -> str | None:
    """What ended a query, in one line; None when it was stopped."""
    try:
        error = handle.exception()
    except Exception as problem:  # the server forgets ended queries after a while
        return f"it ended, and its host does not say why ({type(problem).__name__})"
    if error is None:
        return None
    return str(error).split("JVM stacktrace")[0].strip().splitlines()[0]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has taken since it began, None where the system does not say.

    read_mb, written_mb: through files and sockets alike. Linux counts network traffic by network
    namespace only, and processes on loopback share one, so there is no narrower figure.
    """

    cpu_s: float | None = None
    memory_mb: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None


def process_usage(pid: int) -> Usage:
    """What a process of this machine has taken, from ``/proc``."""
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return Usage()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    memory_mb = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    try:
        lines = (folder / "io").read_text(encoding="ascii").splitlines()
    except OSError:  # for its owner only, where the system is strict
        return Usage(cpu_s, memory_mb)
    counts = {key: int(value) / 2**20 for key, _, value in (ln.partition(": ") for ln in lines)}
    return Usage(cpu_s, memory_mb, counts.get("rchar"), counts.get("wchar"))


class _Stages:
    """CPU time and traffic of the stages that have ended, summed by run, from the REST interface.

    Spark remembers the last few hundred stages only, so each is added when it is first seen.
    """

    def __init__(self, ui_url: str) -> None:
        self._ui_url = ui_url.rstrip("/")
        self._application: str | None = None
        self._seen: set[tuple[int, int]] = set()
        self._taken: dict[str, tuple[float, float, float]] = {}
        self.told = False

    def of(self, run: str) -> tuple[float, float, float] | tuple[None, None, None]:
        """(CPU seconds, megabytes read, written) of a run so far; None before Spark told any."""
        return self._taken.get(run, (0.0, 0.0, 0.0)) if self.told else (None, None, None)

    def update(self) -> None:
        """Add the stages that have ended since the last time."""
        if self._application is None:
            self._application = self._get("applications")[0]["id"]
        done = self._get(f"applications/{self._application}/stages?status=complete")
        before, self._seen = self._seen, {(s["stageId"], s["attemptId"]) for s in done}
        self.told = True
        for stage in done:
            found = _RUN.search(stage.get("description") or "")
            if (stage["stageId"], stage["attemptId"]) in before or found is None:
                continue
            cpu_s, read_mb, written_mb = self._taken.get(found[1], (0.0, 0.0, 0.0))
            took_ns = stage["executorCpuTime"] + stage.get("executorDeserializeCpuTime", 0)
            self._taken[found[1]] = (
                cpu_s + took_ns / 1e9,
                read_mb + _megabytes(stage, "inputBytes", "shuffleReadBytes"),
                written_mb + _megabytes(stage, "outputBytes", "shuffleWriteBytes"),
            )

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._ui_url}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)


def _megabytes(stage: Mapping[str, Any], *keys: str) -> float:
    return float(sum(stage.get(key, 0) for key in keys)) / 2**20
