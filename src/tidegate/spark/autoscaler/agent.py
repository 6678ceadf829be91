"""The gateway to a driver that has Tidegate's agent: any language, any deploy mode, any session.

The agent (``agent/java``) is a plugin of Spark that answers over HTTP with JSON. It decides
nothing; what follows from its answers is computed here and in `JobReader`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.credentials import secret_from
from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.spark.autoscaler.admission import LimitKind, SourceLimit
from tidegate.spark.autoscaler.agent_calls import (
    DEFAULT_URL,
    EVENT_WAIT_S,
    AgentCalls,
    NoAnswer,
    NotInControl,
    NotThere,
)
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.holdings import sampled_stores, stores_by_executor
from tidegate.spark.autoscaler.job_reader import JobReader, Json, TaskList
from tidegate.spark.autoscaler.jobs import JobWork, root_execution
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.spark.autoscaler.sightings import (
    ExecutorInfo,
    QueryStatus,
    Trigger,
    read_executors,
    read_status,
    read_trigger,
)
from tidegate.spark.autoscaler.versions import warn_if_untested

__all__ = [
    "DEFAULT_URL",
    "AgentGateway",
    "NoAnswer",
    "NotInControl",
    "NotThere",
    "agent_token",
    "announced",
]

log = logging.getLogger(__name__)

PROTOCOL = 1
"""The version of the agent's interface that is understood here."""
VARIABLE = "TIDEGATE_AGENT_TOKEN"
SHORTEST_TOKEN = 12
LEASE_S = 30
"""Silence after which the agent lets another controller take over, in seconds."""
LONGEST_ANNOUNCEMENT = 100_000
"""Bytes of a file in which an agent announces itself, at most; it may have a certificate."""
EVENT_PAUSE_S = 0.2
"""Pause between two requests for events, in seconds: many queries end their batches together."""
RETRY_S = 1.0
"""Pause after a request for events that failed, in seconds."""
LIMIT_KINDS: dict[str, LimitKind] = {
    "ReadMaxRows": "rows",
    "ReadMaxFiles": "files",
    "ReadMaxBytes": "bytes",
}


def agent_token(file: str | os.PathLike[str] | None = None) -> str:
    """The token for an agent, from a file or from the variable TIDEGATE_AGENT_TOKEN.

    It is never an argument of a command, which others on the machine could see.
    """
    token = (secret_from(file, VARIABLE, "--token-file") or "").strip()
    if not token:
        remedy = "set it to the agent's token, or name a file with --token-file"
        raise InputError(VARIABLE, "", "not empty", remedy)
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        key = VARIABLE if file is None else "--token-file"
        allowed = f"at least {SHORTEST_TOKEN} printable ASCII characters"
        raise InputError(key, "…", allowed, "use a long random word")
    return token


def announced(file: str | os.PathLike[str]) -> tuple[str, str]:
    """Address and token in the file in which an agent announced itself; the token may be empty."""
    try:
        if not Path(file).is_file():  # a pipe would be waited for
            raise ValueError("it is no file")
        with Path(file).open("rb") as opened:
            said = json.loads(opened.read(LONGEST_ANNOUNCEMENT))
        return str(said["url"]), str(said.get("token", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        remedy = "it is the file that spark.tidegate.agent.announce names"
        raise InputError("agent", str(file), "a file that an agent wrote", remedy) from None


class AgentGateway(Gateway):
    """The gateway to an application whose driver has the agent.

    Args:
        url: Address of the agent, such as ``http://127.0.0.1:8271``.
        token: The agent's token.
        ca_file: Certificates that the agent's certificate is checked with; None: those of the
            system.
        watch_only: The application is only observed, so another controller may be at work and
            Spark's dynamic allocation may be on.
        name: Name of this controller in logs. Default: host and process id.
        application: Id or name of the application that is meant; another at this address is not
            touched. Empty: any.
        certificate: The agent's certificate as PEM, which is trusted without ca_file; empty: none.

    Raises SettingError when the application cannot be scaled from outside, BackendError when the
    agent does not answer or is controlled by another controller.
    """

    def __init__(
        self,
        url: str,
        token: str,
        ca_file: str | os.PathLike[str] | None = None,
        watch_only: bool = False,
        name: str | None = None,
        application: str = "",
        certificate: str = "",
    ) -> None:
        self._calls = AgentCalls(url, token, ca_file, certificate)
        self._about: Json = self._calls.get("/v1/application")
        if self._about.get("protocol") != PROTOCOL:
            raise BackendError(
                f"the agent speaks version {self._about.get('protocol')} of the interface and this "
                f"controller version {PROTOCOL}: use the jar of the same release of Tidegate"
            )
        if not self._about["id"]:
            raise NotThere("the application is still starting")
        if application not in ("", self._about["id"], self._about["name"]):
            other = f"{self._about['name']} ({self._about['id']})"
            raise NotThere(f"the application at {url} is {other}, not {application}")
        self._settings: dict[str, str] = self._about["settings"]
        self._name: str | None = None  # None: only watching
        self._reader = JobReader(self)
        self._queries: dict[str, Json] = {}
        self._tasks_by_run: Mapping[str, tuple[int, int]] | None = None
        self._event = int(self._about["lastEvent"])
        self._ended = threading.Event()
        if not watch_only:
            check_scalable(self.setting)
            self._take(name or f"{socket.gethostname()}/{os.getpid()}")
        warn_if_untested(self.version)

    def _take(self, name: str) -> None:
        """Take control of the application, unless another controller has it."""
        self._name = name
        self._calls.key = ""
        # The agent ends the lease of its child process as soon as that dies.
        child = os.environ.get("TIDEGATE_CONTROLLER_ID", "")
        asked = {"name": name, "seconds": LEASE_S, "id": child}
        taken = self._calls.post("/v1/controller", asked)
        self._calls.key = str(taken["key"])

    def _change(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change something. A controller that was silent for too long takes control again.

        It then does not repeat the change, which was decided long ago: the next turn decides again.
        """
        try:
            return self._calls.post(path, body)
        except NotInControl:
            if self._name is None:
                raise
            self._take(self._name)
            raise NotInControl(
                "this controller was silent for too long; it is in control again"
            ) from None

    def clock(self) -> float:
        """The driver's time, Unix seconds; its clock may differ from this machine's."""
        return self._calls.clock()

    def setting(self, key: str, default: str = "") -> str:
        """A setting of the application."""
        return self._settings.get(key, default)

    @property
    def version(self) -> str:
        """The version of Spark."""
        return str(self._about["spark"])

    @property
    def name(self) -> str:
        """The application's name."""
        return str(self._about["name"])

    @property
    def application(self) -> str:
        """The application's id at the cluster manager."""
        return str(self._about["id"])

    @property
    def stopped(self) -> bool:
        """Whether the application has ended: nobody listens at the agent's address any more."""
        return self._ended.is_set() or self._calls.gone

    @property
    def succeeded_by_another(self) -> bool:
        """Never: another application has another agent."""
        return False

    # --- executors ----------------------------------------------------------------------------

    def executors(self, include_driver: bool = False) -> list[ExecutorInfo]:
        """The executors that run, in the order of their registration."""
        found = self._calls.get("/v1/executors")
        return read_executors(found, include_driver, self.pod_prefix)

    def request_total(self, executors: int) -> bool:
        """Set the total number of executors that are requested."""
        answer = self._change("/v1/total", {"executors": executors})
        return bool(answer["acknowledged"])

    def decommission(self, ids: Sequence[str], why: str) -> list[str]:
        """Let executors finish their tasks and leave."""
        if not self.decommissions:
            return self.kill(ids)
        asked = {"ids": list(ids), "why": why}
        return [str(id) for id in self._change("/v1/decommission", asked)] if ids else []

    def kill(self, ids: Sequence[str]) -> list[str]:
        """Kill executors with their tasks."""
        asked = {"ids": list(ids)}
        return [str(id) for id in self._change("/v1/kill", asked)] if ids else []

    def may_create_pods(self) -> bool | None:
        """Whether the driver's account may create pods; None where that is unknown."""
        found = self._about_pods("/v1/may-create-pods")
        return found if isinstance(found, bool) else None

    def executor_pods(self) -> Sequence[Mapping[str, Any]] | None:
        """The executor pods as Kubernetes lists them; None when unknown."""
        found = self._about_pods("/v1/pods")
        return found if isinstance(found, list) else None

    def _about_pods(self, path: str) -> object:
        if self.scheme != "k8s":
            return None
        try:
            return self._calls.get(path)
        except BackendError as error:  # also of an agent that does not know the question
            log.debug("nothing is known about pods: %s", error)
            return None

    def state_partitions(self) -> dict[str, int] | None:
        """Number of state partitions that each executor has loaded, by its id."""
        try:
            stateful = self._calls.get("/v1/state-operators")
            stores = sampled_stores({i: found or [] for i, found in stateful.items()})
            asked = [store._asdict() for store in stores]
            found = self._calls.post("/v1/state-locations", {"stores": asked}) if stores else []
            return stores_by_executor(stores, found)
        except BackendError as error:
            log.debug("the coordinator of state stores did not answer: %s", error)
            return None

    # --- jobs ---------------------------------------------------------------------------------

    def finished_jobs(
        self, after: int, running: Collection[int] = ()
    ) -> tuple[list[JobWork], int, set[int]]:
        """Jobs of the application that have ended since the last look."""
        return self._reader.finished(after, running)

    def list_jobs(self, after: int, most: int, others: Collection[int]) -> tuple[list[Json], int]:
        """Jobs as JSON; see `JobSource`."""
        running = ",".join(str(number) for number in sorted(others))
        answer = self._calls.get("/v1/jobs", after=after, most=most, running=running)
        return answer["jobs"], int(answer["newest"])

    def stages(self, numbers: Sequence[int]) -> list[Json | None]:
        """Stages as JSON; see `JobSource`."""
        found: list[Json | None] = self._calls.post("/v1/stages", {"stages": list(numbers)})
        return found

    def task_lists(self, wanted: Sequence[TaskList]) -> list[list[Json]]:
        """Tasks as JSON; see `JobSource`."""
        asked = [one._asdict() for one in wanted]
        found: list[list[Json]] = self._calls.post("/v1/task-lists", {"lists": asked})
        return found

    def batch_texts(self, jobs: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Descriptions of the executions of jobs; see `JobSource`."""
        asked = [{"job": job["jobId"], "root": root_execution(job)} for job in jobs]
        found: list[str | None] = self._calls.post("/v1/executions", {"jobs": asked})
        return found

    def active_jobs(self) -> list[Json]:
        """Jobs that run, as JSON; see `JobSource`."""
        found: list[Json] = self._calls.get("/v1/active-jobs")
        return found

    def runs(self) -> frozenset[str]:
        """Runs of the queries that the last listing found."""
        if not self._queries:
            self.active_queries()
        return frozenset(str(query["run"]) for query in self._queries.values())

    def tasks_of(self, run: str) -> tuple[int, int]:
        """Numbers of tasks of a query's run that wait for a slot, and that run."""
        if self._tasks_by_run is None:
            self._tasks_by_run = self._reader.active_tasks()
        return self._tasks_by_run.get(run, (0, 0))

    # --- queries ------------------------------------------------------------------------------

    def active_queries(self) -> dict[str, str]:
        """Names of the running queries of all sessions of the application, by id."""
        self._tasks_by_run = None
        self._queries = {query["id"]: query for query in self._calls.get("/v1/queries")}
        return {id: query["name"] or id[:8] for id, query in self._queries.items()}

    def _query(self, query: str) -> Json:
        if query not in self._queries:
            with contextlib.suppress(BackendError):
                self.active_queries()
        return self._queries.get(query, {})

    def trigger_of(self, query: str) -> Trigger:
        """The trigger of a query."""
        seen = self._query(query).get("trigger")
        return read_trigger(seen["kind"], seen["intervalMs"]) if seen else Trigger()

    def status_of(self, query: str) -> QueryStatus:
        """What a query does now; neither idle nor in a batch when that cannot be read."""
        seen = self._query(query)
        if not seen.get("status"):
            return QueryStatus()
        return read_status(seen["status"], seen["run"], seen["beganMs"])

    def read_limits(self, query: str) -> tuple[tuple[SourceLimit, ...], ...] | None:
        """The limits of each of a query's sources, None when they cannot be read (yet)."""
        found = tuple(
            tuple(
                SourceLimit(LIMIT_KINDS[one["kind"]], one["amount"], one["source"]) for one in many
            )
            for many in self._query(query).get("limits") or ()
        )
        return found or None

    def checkpoint_of(self, query: str) -> str | None:
        """Where a query's checkpoint is, as a URI; None when that is unknown."""
        found = self._query(query).get("checkpoint")
        return None if found is None else str(found)

    def files_read(self, query: str) -> tuple[float, float] | None:
        """Numbers of files and rows that the last batch of a query read, None when unknown."""
        seen = self._query(query).get("files")
        return (float(seen[0]), float(seen[1])) if seen else None

    def in_batch(self) -> dict[str, str]:
        """Names of the queries that process a batch now, by run id; idle ones are not listed."""
        found = {}
        for query in self._calls.get("/v1/query-status"):
            status = query["status"]
            if status and status["isTriggerActive"] and status["isDataAvailable"]:
                found[query["run"]] = query["name"] or query["id"][:8]
        return found

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function for every event of every streaming query; return a function to stop it.

        The events of the agent are fetched in a thread, which renews the lease too.
        """
        # From this request on, the agent listens to the queries.
        with contextlib.suppress(BackendError):  # the thread says what is wrong
            self._calls.get("/v1/events", after=self._event, wait=0)
        stop = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(hear, stop), name="tidegate-events", daemon=True
        )
        thread.start()

        def end() -> None:
            stop.set()
            with contextlib.suppress(BackendError):  # the application may have ended already
                self.leave()
            thread.join(EVENT_WAIT_S / 10)

        return end

    def leave(self) -> None:
        """Let another controller take over at once; the executors stay as they are."""
        if self._calls.key:
            self._calls.delete("/v1/controller")
            self._calls.key = ""

    def _follow(self, hear: Callable[[str, str], None], stop: threading.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                wait_ms = round(EVENT_WAIT_S * 1000)
                answer = self._calls.get("/v1/events", after=self._event, wait=wait_ms)
            except TidegateError as error:
                if self._calls.gone:
                    self._ended.set()
                    return
                failures += 1
                # One failure is normal at the end of the application: it breaks the connection.
                if failures == 2 and not stop.is_set():
                    log.warning("events of queries are missing: %s", error)
                stop.wait(RETRY_S)
                continue
            failures = 0
            if answer["dropped"]:
                log.warning("%d events of queries were not read in time", answer["dropped"])
            for event in answer["events"]:
                self._event = int(event["number"])
                if not stop.is_set():
                    hear(event["kind"], event["text"])
            stop.wait(EVENT_PAUSE_S)
