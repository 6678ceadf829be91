"""A Spark application without Spark: executors come late and die, batches end on command.

The clock stands still until `FakeGateway.advance`. The fakes keep the contracts of the real gateway
and cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidegate.errors import BackendError
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.gateway import ExecutorInfo, Gateway, JobWork, QueryStatus, Trigger
from tidegate.spark.local.cluster import LocalCluster

__all__ = ["START_S", "FakeCluster", "FakeGateway", "moment", "progress_json"]

START_S = 1_800_000_000.0


def progress_json(
    name: str = "ticks",
    batch: int = 0,
    began_s: float = START_S,
    duration_s: float = 1.0,
    rows: int = 0,
    run: str = "",
    behind: float | None = None,
    **more: Any,
) -> str:
    """A progress event as Spark writes it.

    Args:
        name: Name of the query.
        batch: Number of the batch.
        began_s: Start of the batch, Unix time in seconds.
        duration_s: Duration of the batch, in seconds.
        rows: Input rows.
        run: Id of the run; empty means one that follows from the name.
        behind: Offsets that a Kafka source has not read yet; None for another source.
        more: More fields of the event.
    """
    source: dict[str, Any] = {"endOffset": None, "latestOffset": None}
    if behind is not None:
        source = {"endOffset": {"t": {"0": 100}}, "latestOffset": {"t": {"0": 100 + behind}}}
    event = {
        "id": f"id-of-{name}",
        "runId": run or f"run-of-{name}",
        "name": name,
        "batchId": batch,
        "timestamp": moment(began_s),
        "durationMs": {"triggerExecution": round(duration_s * 1000)},
        "numInputRows": rows,
        "sources": [source],
    }
    return json.dumps(event | more)


def moment(time_s: float) -> str:
    """Unix time in seconds as Spark writes it."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class FakeGateway(Gateway):
    """An application whose executors and queries a test controls.

    Executors that drain count towards the total, as on real cluster managers. A test may set:
    `broken` (the sentence with which every call fails), `ended` (whether the application has
    ended), `deaf` (requests and releases are not acknowledged), `stuck` (executors that never
    leave), `batches` (names of queries inside a batch, by run id), `state` (state partitions by
    executor) and `settings`. `requests` has the totals that differed, and `calls` everything that
    was asked for, in order.

    executors: their number at the start. cores: slots of an executor. startup_s: seconds from the
    request until an executor is up.
    """

    def __init__(self, executors: int = 1, cores: int = 2, startup_s: float = 5.0) -> None:
        self.now_s = START_S
        self.cores = cores
        self.startup_s = startup_s
        self.up: dict[str, ExecutorInfo] = {}
        self.coming: list[float] = []
        self.leaving: set[str] = set()
        self.total = executors
        self.requests: list[int] = []
        self.queries: dict[str, str] = {}
        self.triggers: dict[str, Trigger] = {}
        self.statuses: dict[str, QueryStatus] = {}
        self.limits: dict[str, tuple[tuple[SourceLimit, ...], ...]] = {}
        self.works: list[JobWork] = []
        self.tasks: dict[str, tuple[int, int]] = {}
        self.broken = ""
        self.ended = False
        self.settings: dict[str, str] = {
            "spark.master": "spark://127.0.0.1:7077",
            "spark.decommission.enabled": "true",
        }
        self.batches: dict[str, str] = {}
        self.state: dict[str, int] | None = None
        self.deaf = False
        self.stuck: set[str] = set()
        self.calls: list[str] = []
        self._numbers = 0
        self._jobs = -1
        self._hear: Callable[[str, str], None] | None = None
        for _ in range(executors):
            self._add()

    def clock(self) -> float:
        """Unix time in seconds."""
        return self.now_s

    # --- what a test does ---------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass: requested executors start, decommissioned ones go."""
        self.now_s += seconds
        for executor in self.leaving - self.stuck:
            self.up.pop(executor, None)
        self.leaving &= self.stuck
        self.coming = self.coming[: max(0, self.total - len(self.up))]
        while len(self.up) + len(self.coming) < self.total:
            self.coming.append(self.now_s - seconds + self.startup_s)
        for due_s in [due for due in self.coming if due <= self.now_s]:
            self.coming.remove(due_s)
            self._add(due_s)

    def lose(self, executor: str) -> None:
        """End an executor at once, without a request."""
        del self.up[executor]

    def work(self, executor: str, busy_s: float) -> None:
        """Let an executor complete tasks that took `busy_s` seconds of slots."""
        seen = self.up[executor]
        self.up[executor] = replace(seen, busy_s=seen.busy_s + busy_s)

    def query(self, name: str, trigger_s: float = 0.0) -> None:
        """Start a query."""
        self.queries[f"id-of-{name}"] = name
        self.triggers[f"id-of-{name}"] = Trigger("ProcessingTimeTrigger", trigger_s)

    def batch(
        self, name: str, batch: int, rows: int, tasks: int = 8, run_s: float = 1.0, **more: Any
    ) -> None:
        """Complete a batch that took one second.

        Args:
            name: Name of the query.
            batch: Number of the batch.
            rows: Input rows.
            tasks: Number of tasks.
            run_s: Run time of its tasks, in seconds of slots.
            more: More fields of the progress event.
        """
        run = f"run-of-{name}"
        self.batches.pop(run, None)
        self._jobs += 1
        self.works.append(JobWork(self._jobs, batch, run_s, run_s / 2, tasks, run=run))
        self.publish("progress", progress_json(name, batch, self.now_s - 1, 1.0, rows, run, **more))

    def publish(self, kind: str, text: str) -> None:
        """Send an event to the listener."""
        if self._hear is not None:
            self._hear(kind, text)

    def _add(self, at_s: float | None = None) -> str:
        name = str(self._numbers)
        self._numbers += 1
        added_s = self.now_s if at_s is None else at_s
        self.up[name] = ExecutorInfo(
            name, self.cores, 512.0, 0.0, 0, added_s, host=f"worker-{name}"
        )
        return name

    # --- what Tidegate asks -------------------------------------------------------------------

    def setting(self, key: str, default: str = "") -> str:
        """A setting of `settings`."""
        return self.settings.get(key, default)

    @property
    def application(self) -> str:
        """Id of the application."""
        return "app-1"

    @property
    def version(self) -> str:
        """The version of Spark."""
        return "4.3.0"

    @property
    def name(self) -> str:
        """The name of the application."""
        return "application"

    @property
    def succeeded_by_another(self) -> bool:
        """No other application follows."""
        return False

    @property
    def stopped(self) -> bool:
        """Whether a test has ended the application."""
        return self.ended

    def executors(self, include_driver: bool = False) -> list[ExecutorInfo]:
        """The executors that are up; BackendError if `broken` is set."""
        self._check()
        return [replace(e, leaving=e.leaving or e.id in self.leaving) for e in self.up.values()]

    def request_total(self, executors: int) -> bool:
        """Set the number of executors."""
        self._check()
        self.calls.append(f"total {executors}")
        if not self.requests or self.requests[-1] != executors:
            self.requests.append(executors)
        if not self.deaf:
            self.total = executors
        return not self.deaf

    def decommission(self, ids: Sequence[str], why: str) -> list[str]:
        """Release executors."""
        self._check()
        self.calls.append(f"release {' '.join(ids)}")
        if self.deaf:
            return []
        self.leaving |= set(ids)
        return list(ids)

    def kill(self, ids: Sequence[str]) -> list[str]:
        """Kill executors."""
        self._check()
        self.calls.append(f"kill {' '.join(ids)}")
        for executor in ids:
            self.up.pop(executor, None)
            self.leaving.discard(executor)
        return list(ids)

    def state_partitions(self) -> dict[str, int] | None:
        """The state partitions that a test has set."""
        return self.state

    def in_batch(self) -> dict[str, str]:
        """The queries inside a batch that a test has set."""
        return dict(self.batches)

    def _check(self) -> None:
        if self.broken:
            raise BackendError(self.broken)

    def finished_jobs(
        self, after: int, running: Collection[int] = ()
    ) -> tuple[list[JobWork], int, set[int]]:
        """The jobs in `works` with a number above `after`."""
        found = [work for work in self.works if work.job > after]
        return found, max([after, *(work.job for work in found)]), set()

    def tasks_of(self, run: str) -> tuple[int, int]:
        """Pending and running tasks of a run."""
        return self.tasks.get(run, (0, 0))

    def trigger_of(self, query: str) -> Trigger:
        """The trigger of a query."""
        return self.triggers.get(query, Trigger())

    def status_of(self, query: str) -> QueryStatus:
        """The status of a query that a test has set."""
        return self.statuses.get(query, QueryStatus())

    def read_limits(self, query: str) -> tuple[tuple[SourceLimit, ...], ...] | None:
        """The limits of a query's sources that a test has set."""
        return self.limits.get(query)

    def files_read(self, query: str) -> tuple[float, float] | None:
        """Nothing is known of files."""
        return None

    def active_queries(self) -> dict[str, str]:
        """Names of the queries by id."""
        return dict(self.queries)

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Send events to a function until the returned function is called."""
        self._hear = hear

        def end() -> None:
            self._hear = None

        return end


class FakeCluster(LocalCluster):
    """Workers for the executors of a `FakeGateway`, one executor each.

    gateway: the application. hosts: number of workers at the start. room: the largest number.
    """

    def __init__(self, gateway: FakeGateway, hosts: int = 1, room: int = 9) -> None:
        self.gateway = gateway
        self.cores, self.memory_mb, self.room = gateway.cores, 512, room
        self.here: dict[str, list[str]] = {}
        self.dead: set[str] = set()
        self.workers = {}
        self.drained: list[str] = []
        for number in range(1, hosts + 1):
            self.lease(f"host-{number}")
        self.settle()

    def lease(self, name: str) -> None:
        """Start a worker."""
        if len(self.here) >= self.room:
            raise BackendError(f"{name} is refused: the machine is full: end something")
        self.here[name] = []
        self.workers[name] = None  # type: ignore[assignment]

    def settle(self) -> None:
        """Assign every executor without a worker to a free worker, as a master would."""
        homes = {e for on in self.here.values() for e in on}
        for executor in self.gateway.up:
            if executor not in homes:
                for name, on in self.here.items():
                    if name not in self.drained and not any(e in self.gateway.up for e in on):
                        on.append(executor)
                        break

    def drain(self, name: str) -> None:
        """Decommission a worker."""
        self.drained.append(name)
        self.gateway.leaving |= set(self.here[name])

    def give_back(self, name: str) -> None:
        """Stop a worker."""
        for executor in self.here.pop(name, []):
            self.gateway.up.pop(executor, None)
        self.workers.pop(name, None)
        if name in self.drained:
            self.drained.remove(name)

    def lost(self) -> list[str]:
        """Remove the workers in `dead` and return their names."""
        gone = [name for name in self.here if name in self.dead]
        for name in gone:
            self.give_back(name)
        return gone

    def executors_on(self, name: str, application: str) -> list[str]:
        """Executors of the application on a worker."""
        assert application == self.gateway.application
        return self.here[name]
