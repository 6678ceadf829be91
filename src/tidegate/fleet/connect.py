"""A Spark Connect server as a host. No other module uses Spark Connect."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import time
import urllib.request
import uuid
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from tidegate.credentials import secret_from
from tidegate.errors import BackendError, InputError
from tidegate.fleet.hosts import (
    BackgroundCall,
    HostRefused,
    HostSilent,
    HostView,
    QueryView,
    bounded,
)
from tidegate.fleet.queries import ContinuousQuery
from tidegate.listening import check_place, shown_place
from tidegate.spark.autoscaler.progress import Progress, read_progress

__all__ = ["ConnectHost", "Endpoint", "connect", "read_endpoint", "session_id"]

T = TypeVar("T")

USER = "tidegate"
BOUNDARY_S = 5.0
OWN = ("session_id", "user_id")
REMEDY = "write it as sc://host:port/;token_file=…;use_ssl=true"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's environment variable for the token of servers without one in their address."""
_KEY = re.compile(r"[a-z0-9._-]+")
"""Keys that Spark sends to a server: names of gRPC's metadata."""
_TLS = re.compile(r"ssl handshake failed|SSL_ERROR|certificate", re.IGNORECASE)
"""In the error of a refused TLS connection. A connection without TLS has handshakes, too."""
_RUN = re.compile(r"runId = (\S+)")
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
"""The sessions of this process."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a Connect server.

    address: ``sc://host:port``. parameters: ``key=value``, as in Spark; they may hold a token and
    are never shown. ui_url: its web UI, for the CPU time of queries; None if not available.
    """

    address: str
    parameters: tuple[str, ...] = field(default=(), repr=False)
    ui_url: str | None = None

    def url(self, **more: str) -> str:
        """The connection string for Spark Connect, with more parameters.

        >>> read_endpoint("sc://spark:15002/;token=t").url(user_id="me")
        'sc://spark:15002/;token=t;user_id=me'
        """
        words = (*self.parameters, *(f"{key}={quote(value)}" for key, value in more.items()))
        return f"{self.address}/;" + ";".join(words)


def read_endpoint(text: str) -> Endpoint:
    """Read an address with its parameters; InputError, without the token, if it is not valid.

    The parameter ``token_file`` names a file with the token. Without a token, Spark takes the one
    in the environment variable ``SPARK_CONNECT_AUTHENTICATE_TOKEN``.

    >>> read_endpoint("sc://spark.example:15002/;use_ssl=true;ui=http://spark.example:4040").ui_url
    'http://spark.example:4040'
    """
    address, _, rest = text.partition("/;")
    address = address.rstrip("/")
    check_place(address, "--endpoint")
    try:
        parts = urlsplit(address)
        known = parts.scheme == "sc" and parts.hostname and not parts.path and parts.port != 0
    except ValueError:  # the port is not a number
        known = False
    if not known or shown_place(address) != address:
        allowed = "the address of a Connect server"
        raise InputError("--endpoint", shown_place(address), allowed, REMEDY)
    kept: list[str] = []
    ui_url = None
    for word in filter(None, rest.split(";")):
        key, _, value = word.partition("=")
        if not _KEY.fullmatch(key) or not value:  # it may be a token that was written wrongly
            allowed = "key=value, separated by semicolons"
            raise InputError(f"--endpoint {address}: parameter", "…", allowed, REMEDY)
        if key in OWN:
            remedy = "leave it out: the fleet needs its own sessions to find its queries again"
            raise InputError(
                f"--endpoint {address}: parameter", key, "left out: the fleet sets it", remedy
            )
        if key == "use_ssl" and value.lower() not in ("true", "false"):
            raise InputError(f"--endpoint {address}: use_ssl", "…", "true or false")
        if key == "ui":
            ui_url = value
        elif key == "token_file":
            token = secret_from(value, TOKEN_VARIABLE, f"--endpoint {address}: token_file")
            kept.append(f"token={quote(token or '', safe='')}")
        else:
            kept.append(word)
    plain = "use_ssl=false" in (word.lower() for word in kept) and parts.hostname != "localhost"
    if plain and any(word.startswith("token=") for word in kept):
        remedy = "a token needs TLS, except on localhost: leave use_ssl=false out"
        raise InputError(f"--endpoint {address}: use_ssl", "false", "true with a token", remedy)
    return Endpoint(address, tuple(kept), ui_url)


def session_id(fleet: str, endpoint: str) -> str:
    """The session of a fleet on an endpoint. It is the same after a restart of the manager."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tidegate:{fleet}:{endpoint}"))


def connect(endpoint: str, session: str) -> Any:
    """Open a Spark Connect session. endpoint: ``sc://host:port/;token=…``; session: its id."""
    # PySpark's functions look here to decide which kind of column they make.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its exceptions say the same
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        remedy = "install it with: pip install 'tidegate[fleet]'"
        raise BackendError(f"Spark Connect is not installed ({error}): {remedy}") from None
    builder: Any = SparkSession.builder
    made = builder.remote(read_endpoint(endpoint).url(session_id=session, user_id=USER)).create()
    # By default a client tries for ten minutes to reach a server that is gone, even while the
    # process wants to end. The manager decides much earlier whether a host is gone.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    made.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=1000)])
    _sessions.add(made)
    # The client has registered its own end, which asks the server and waits for the answer of one
    # that hangs. What was registered last runs first, and a client that is closed asks nothing.
    atexit.unregister(_close_connections)
    atexit.register(_close_connections)
    return made


def _close_connections() -> None:
    """Close the connections of all sessions when this process ends; their queries run on.

    A session that Python collects while it ends closes its connection then, and waits for calls
    that are under way. The thread that would end them does not run any more, so that the process
    would never end.
    """
    for made in list(_sessions):
        with contextlib.suppress(Exception):
            made.client.close()


def explained(error: Exception, place: str) -> Exception:
    """Turn an error of a connection into one with a remedy; return any other error unchanged."""
    text = str(error)
    if "UNAUTHENTICATED" in text or "PERMISSION_DENIED" in text:
        remedy = f"give the right one in its --endpoint as ;token_file=…, or in {TOKEN_VARIABLE}"
        said = "requires a token" if "No authentication token" in text else "rejects our token"
        return HostRefused(f"{place} {said}: {remedy}")
    if "UNAVAILABLE" in text and _TLS.search(text):
        when = "Tidegate uses TLS with use_ssl=true, and with a token unless on localhost"
        trust = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names a file of trusted certificates"
        return HostRefused(f"{place}: the TLS handshake failed: {when}; {trust}")
    if "UNAVAILABLE" in text:
        remedy = "check that it runs, and that it uses TLS if use_ssl or a token requires it"
        return BackendError(f"{place} cannot be reached ({remedy})")
    return error


class ConnectHost:
    """A Connect server that is up.

    endpoint: its address. session: the id of the session for all queries of the fleet.
    ui_url: its web UI, for the CPU time of queries; None if not available. pid: its process, if it
    is on this machine, for CPU and memory. running: whether its process runs, if that is known.
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
        self._seen: set[Path] = set()
        self._late: dict[str, list[BackgroundCall[None]]] = {}
        self._stages = _Stages(ui_url) if ui_url else None

    @property
    def place(self) -> str:
        """Its address, without its token."""
        return self.endpoint.partition("/;")[0]

    @property
    def alive(self) -> bool:
        """Whether its process runs; True if that is unknown."""
        return self._running is None or self._running()

    def cpu_s(self) -> float | None:
        """CPU time of its process, in seconds; None if it is not on this machine."""
        return process_usage(self.pid).cpu_s if self.pid is not None else None

    def look(self, timeout_s: float) -> HostView:
        """The queries on the host, as reported by Spark and the operating system."""
        return self._bounded(self._look, timeout_s, f"a look at {self.place}")

    def warm_up(self, timeout_s: float) -> None:
        """Run a batch and a stream, so that the JVM loads the classes that queries need.

        Without this, the first query that moves to the host would pause for the class loading.
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
        """Start a query; an error of the query's function is raised."""
        what = f"the start of {query.name} on {self.place}"
        calls: list[BackgroundCall[None]] = []
        try:
            self._bounded(lambda: self._start(query, checkpoint), timeout_s, what, calls.append)
        except HostSilent:
            self._late.setdefault(query.name, []).extend(calls)
            raise

    def stop(self, name: str, timeout_s: float) -> None:
        """Stop a query after its batch, or after five seconds in the middle of one.

        Spark repeats an interrupted batch from its offsets, so no rows are lost.
        """
        deadline_s = time.monotonic() + timeout_s
        for call in self._late.get(name, ()):
            if not call.done(deadline_s, lambda: self.alive) and self.alive:
                raise HostSilent(f"an earlier start of {name} on {self.place} has not ended")
        self._late.pop(name, None)
        left_s = max(1.0, deadline_s - time.monotonic())
        self._bounded(lambda: self._stop(name), left_s, f"the stop of {name} on {self.place}")

    def sees(self, file: Path, text: str, timeout_s: float) -> bool:
        """Whether the server reads this text in this file, by the path that queries use.

        What it has seen once, it is not asked again for any file in the same parent folder.
        """
        folder = file.parent.parent

        def read() -> bool:
            try:
                rows = self._connected().read.text(str(file)).collect()
            except Exception as error:
                if "PATH_NOT_FOUND" in str(error):
                    return False
                raise
            return [row.value for row in rows] == [text]

        if folder not in self._seen:
            what = f"a look at the checkpoints from {self.place}"
            if not self._bounded(read, timeout_s, what):
                return False
            self._seen.add(folder)
        return True

    # --- inside -------------------------------------------------------------------------------

    def _bounded(
        self,
        call: Callable[[], T],
        timeout_s: float,
        what: str,
        begun: Callable[[BackgroundCall[T]], None] | None = None,
    ) -> T:
        try:
            return bounded(call, timeout_s, what, lambda: self.alive, begun)
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
                if _last_batch(query) != first:  # a batch has just ended, and the next has begun
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
            used = self._stages.of(run) if self._stages else (None, None, None)
            if name in active:
                progress = tuple(_progress(p) for p in handle.recentProgress)
                views[name] = QueryView(run, True, None, progress, *used)
            else:
                views[name] = QueryView(run, False, _failure(handle), (), *used)
        usage = process_usage(self.pid) if self.pid is not None else HostView()
        return replace(usage, queries=views)


def _progress(event: Any) -> Progress:
    plain = json.loads(event.json)
    plain["numInputRows"] = event.numInputRows  # Connect gives the total by source only
    return read_progress(json.dumps(plain))


def _last_batch(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last.batchId)


def _failure(handle: Any) -> str | None:
    """The error that ended a query, in one line; None if it was stopped."""
    try:
        error = handle.exception()
    except Exception as problem:  # the server forgets ended queries after a while
        return f"it ended, and its host does not say why ({type(problem).__name__})"
    if error is None:
        return None
    return str(error).split("JVM stacktrace")[0].strip().splitlines()[0]


def process_usage(pid: int) -> HostView:
    """Read the resource usage of a process on this machine from ``/proc``.

    Linux counts network traffic only by network namespace, and processes on loopback share one, so
    the traffic is that of files and sockets together.
    """
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return HostView()
    cpu_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    memory_mb = int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    try:
        lines = (folder / "io").read_text(encoding="ascii").splitlines()
    except OSError:  # on a strict system only its owner may read it
        return HostView({}, cpu_s, memory_mb)
    counts = {key: int(value) / 2**20 for key, _, value in (ln.partition(": ") for ln in lines)}
    return HostView({}, cpu_s, memory_mb, counts.get("rchar"), counts.get("wchar"))


class _Stages:
    """CPU time and traffic of completed stages, summed by run, from Spark's REST interface.

    Spark remembers only the last few hundred stages, so each is added when it is first seen.
    """

    def __init__(self, ui_url: str) -> None:
        self._ui_url = ui_url.rstrip("/")
        self._application: str | None = None
        self._seen: set[tuple[int, int]] = set()
        self._used: dict[str, tuple[float, float, float]] = {}
        self._answered = False

    def of(self, run: str) -> tuple[float, float, float] | tuple[None, None, None]:
        """(CPU seconds, megabytes read, written) of a run so far; None before the first answer."""
        return self._used.get(run, (0.0, 0.0, 0.0)) if self._answered else (None, None, None)

    def update(self) -> None:
        """Add the stages that have completed since the last call."""
        if self._application is None:
            self._application = self._get("applications")[0]["id"]
        done = self._get(f"applications/{self._application}/stages?status=complete")
        before, self._seen = self._seen, {(s["stageId"], s["attemptId"]) for s in done}
        self._answered = True
        for stage in done:
            found = _RUN.search(stage.get("description") or "")
            if (stage["stageId"], stage["attemptId"]) in before or found is None:
                continue
            cpu_s, read_mb, written_mb = self._used.get(found[1], (0.0, 0.0, 0.0))
            cpu_ns = stage["executorCpuTime"] + stage.get("executorDeserializeCpuTime", 0)
            self._used[found[1]] = (
                cpu_s + cpu_ns / 1e9,
                read_mb + _megabytes(stage, "inputBytes", "shuffleReadBytes"),
                written_mb + _megabytes(stage, "outputBytes", "shuffleWriteBytes"),
            )

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._ui_url}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)


def _megabytes(stage: Mapping[str, Any], *keys: str) -> float:
    return float(sum(stage.get(key, 0) for key in keys)) / 2**20
