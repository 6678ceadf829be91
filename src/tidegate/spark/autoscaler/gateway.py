"""What the autoscaler needs of a Spark driver, behind one protocol.

There are two implementations: `InProcessGateway` for a session of this process, and `AgentGateway`
for a driver elsewhere, in any language, that has Tidegate's agent. Both pass the same contract
tests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.jobs import JobWork
from tidegate.spark.autoscaler.sightings import ExecutorInfo, QueryStatus, Trigger

__all__ = ["ExecutorInfo", "Gateway", "JobWork", "QueryStatus", "Trigger"]


@runtime_checkable
class Gateway(Protocol):
    """A running Spark application: its executors, its streaming queries and its finished jobs.

    A call that fails raises BackendError with one sentence. What a driver does not report is
    missing.
    """

    @property
    def version(self) -> str:
        """The version of Spark."""

    @property
    def name(self) -> str:
        """The application's name."""

    @property
    def application(self) -> str:
        """The application's id at the cluster manager."""

    @property
    def scheme(self) -> str:
        """The scheme of ``spark.master``: ``local``, ``spark``, ``yarn``, ``k8s`` or another."""
        found = re.match(r"\w+", self.setting("spark.master"))
        return found.group() if found else ""

    @property
    def stopped(self) -> bool:
        """Whether the application has ended."""

    @property
    def succeeded_by_another(self) -> bool:
        """Whether the process of the driver has a Spark application other than this one."""

    @property
    def decommissions(self) -> bool:
        """Whether a released executor may finish its tasks; otherwise it is killed."""
        return self.setting("spark.decommission.enabled", "false").lower() == "true"

    @property
    def pod_prefix(self) -> str:
        """How the names of the executors' pods begin on Kubernetes, elsewhere empty.

        The driver sets it when it starts, unless the user did.
        """
        if self.scheme != "k8s":
            return ""
        return self.setting("spark.kubernetes.executor.podNamePrefix")

    def clock(self) -> float:
        """The time of the driver, Unix seconds: that of all times that it reports."""
        return time.time()

    def setting(self, key: str, default: str = "") -> str:
        """A setting of the application."""

    def executors(self, include_driver: bool = False) -> list[ExecutorInfo]:
        """The executors that run, in the order of their registration.

        include_driver: list the driver too, which runs the tasks of a ``local`` master.
        """

    def request_total(self, executors: int) -> bool:
        """Set the total number of executors that are requested; running ones are not removed.

        Returns whether the cluster manager has acknowledged it. The call changes nothing if the
        total is the same as before.
        """

    def decommission(self, ids: Sequence[str], why: str) -> list[str]:
        """Let executors finish their tasks and leave; the requested total stays as it is.

        Without ``spark.decommission.enabled`` they are killed, so call this between two batches.
        Returns the ids of the executors that leave.
        """

    def kill(self, ids: Sequence[str]) -> list[str]:
        """Kill executors with their tasks, which do not count as failed; the total stays.

        Returns the ids of the executors that are killed.
        """

    def may_create_pods(self) -> bool | None:
        """Whether the driver's account may create pods; None where that is unknown or no matter."""
        return None

    def executor_pods(self) -> Sequence[Mapping[str, Any]] | None:
        """The executor pods as the API server of Kubernetes lists them; None when unknown."""
        return None

    def state_partitions(self) -> dict[str, int] | None:
        """Number of state partitions that each executor has loaded, by its id.

        None when that is unknown.
        """

    def finished_jobs(
        self, after: int, running: Collection[int] = ()
    ) -> tuple[list[JobWork], int, set[int]]:
        """Jobs of the application that have ended since the last look.

        after: highest number of a job that was seen, -1 at first; running: those that still ran.
        The result has the jobs, in order, and the new values of the two.
        """

    def active_queries(self) -> dict[str, str]:
        """Names of the running queries of all sessions of the application, by id.

        What the other calls need of the queries is listed here, so call it once a turn.
        """

    def tasks_of(self, run: str) -> tuple[int, int]:
        """Numbers of tasks of a query's run that wait for a slot, and that run."""

    def trigger_of(self, query: str) -> Trigger:
        """The trigger of a query."""

    def status_of(self, query: str) -> QueryStatus:
        """What a query does now; neither idle nor in a batch when that cannot be read."""

    def read_limits(self, query: str) -> tuple[tuple[SourceLimit, ...], ...] | None:
        """The limits of each of a query's sources, None when they cannot be read (yet)."""

    def checkpoint_of(self, query: str) -> str | None:
        """Where a query's checkpoint is, as a URI; None when that is unknown."""
        return None

    def files_read(self, query: str) -> tuple[float, float] | None:
        """Numbers of files and rows that the last batch of a query read, None when unknown."""

    def in_batch(self) -> dict[str, str]:
        """Names of the queries that process a batch now, by run id; idle ones are not listed."""

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function for every event of every streaming query; return a function to stop it.

        hear: called with a kind (``progress``, ``idle``, ``started`` or ``ended``) and JSON, for
            ``started`` with the run id, or for ``ended`` with ``run id + newline + error``. It may
            run in Spark's thread, so it must only queue the event.
        """
