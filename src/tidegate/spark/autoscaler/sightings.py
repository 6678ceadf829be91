"""What the driver reports of an executor and of a query at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.spark.autoscaler.jobs import moment_s

__all__ = [
    "ExecutorInfo",
    "QueryStatus",
    "Trigger",
    "read_executors",
    "read_status",
    "read_trigger",
]


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """An executor as the driver sees it.

    Args:
        id: Spark's id of the executor.
        cores: Task slots: its cores, divided by ``spark.task.cpus``.
        memory_mb: Memory for storage and execution, in MB.
        busy_s: Total run time of its finished tasks, in seconds.
        tasks: Tasks that run now.
        added_s: When it registered, Unix seconds.
        shuffle_mb: Shuffle data that it has written since it started, in MB; None: not known.
        cached_mb: Cached blocks in its memory and on its disk, in MB; None: not known.
        leaving: It is being decommissioned or removed, and gets no more tasks.
        excluded: Spark gives it no tasks for a while, because tasks failed there.
        host: Name or IP address of its machine, on Kubernetes of its pod; None: not known.
        pod: Name of its pod on Kubernetes, None elsewhere.
        container: Id of its container on YARN, None elsewhere.
    """

    id: str
    cores: int
    memory_mb: float
    busy_s: float
    tasks: int
    added_s: float
    shuffle_mb: float | None = None
    cached_mb: float | None = None
    leaving: bool = False
    excluded: bool = False
    host: str | None = None
    pod: str | None = None
    container: str | None = None

    @property
    def described(self) -> str:
        """Its names for a log: its id and where it runs.

        >>> ExecutorInfo("3", 2, 512.0, 0.0, 0, 0.0, host="10.0.0.7", pod="job-exec-3").described
        'executor 3 on 10.0.0.7, pod job-exec-3'
        """
        where = f" on {self.host}" if self.host else ""
        pod = f", pod {self.pod}" if self.pod else ""
        container = f", container {self.container}" if self.container else ""
        return f"executor {self.id}{where}{pod}{container}"


def host_of(host_port: str) -> str:
    """The host in ``host:port``; Spark leaves the port out until it knows it.

    >>> [host_of(text) for text in ("worker-7:38211", "worker-7", "[fd00::7]:38211", "fd00::7")]
    ['worker-7', 'worker-7', 'fd00::7', 'fd00::7']
    """
    if host_port.startswith("["):
        return host_port[1:].partition("]")[0]
    return host_port if host_port.count(":") > 1 else host_port.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Trigger:
    """The trigger of a query.

    kind: Spark's name of it, such as ``ProcessingTimeTrigger``; empty when it could not be read.
    interval_s: seconds between two batches, 0 when there is no pause, None if there are no batches
    or it is unknown.
    """

    kind: str = ""
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """What a query does at this moment.

    idle: whether it waits and had nothing to read when it last looked. began_s: start of the batch
    with rows that runs now, Unix seconds, None when none runs. run: id of its run. asked_s: since
    when it waits for its sources to say what there is to read, Unix seconds, None when it does not.
    """

    idle: bool = False
    began_s: float | None = None
    run: str = ""
    asked_s: float | None = None


def read_executors(
    plain: Iterable[Mapping[str, Any]], include_driver: bool = False, pod_prefix: str = ""
) -> list[ExecutorInfo]:
    """Executors from Spark's JSON, in the order of their registration.

    plain: as in Spark's REST interface, with ``isActive``: neither decommissioned nor removed.
    include_driver: list the driver too. pod_prefix: how the names of the pods of executors begin,
    empty where they are no pods.
    """
    found = [
        ExecutorInfo(
            id=e["id"],
            cores=e["maxTasks"] or e["totalCores"],
            memory_mb=e["maxMemory"] / 2**20,
            busy_s=e["totalDuration"] / 1000,
            tasks=e["activeTasks"],
            added_s=moment_s(e["addTime"]),
            shuffle_mb=e["totalShuffleWrite"] / 2**20,
            cached_mb=(e["memoryUsed"] + e["diskUsed"]) / 2**20,
            leaving=not e["isActive"],
            excluded=e["isExcluded"],
            host=host_of(e.get("hostPort") or "") or None,
            pod=f"{pod_prefix}-exec-{e['id']}" if pod_prefix and e["id"] != "driver" else None,
            container=(e.get("attributes") or {}).get("CONTAINER_ID"),
        )
        for e in plain
        if include_driver or e["id"] != "driver"
    ]
    return sorted(found, key=lambda e: (e.added_s, e.id))


def read_trigger(kind: str, interval_ms: float | None) -> Trigger:
    """A trigger from the name of its class and its interval in milliseconds, None without one.

    >>> read_trigger("ProcessingTimeTrigger", 5000), read_trigger("AvailableNowTrigger", None)
    (Trigger(kind='ProcessingTimeTrigger', interval_s=5.0),
     Trigger(kind='AvailableNowTrigger', interval_s=0.0))
    """
    if kind in ("AvailableNowTrigger", "OneTimeTrigger"):
        return Trigger(kind, 0.0)  # it works off what is there, batch after batch
    return Trigger(kind, None if interval_ms is None else interval_ms / 1000)


def read_status(status: Mapping[str, Any], run: str, began_ms: float | None) -> QueryStatus:
    """A status from Spark's JSON.

    began_ms: start of the trigger that is active now, Unix milliseconds; 0 or None when it is
    unknown.
    """
    message = str(status["message"])
    if status["isTriggerActive"]:
        began_s = began_ms / 1000 if began_ms else None
        # Until its sources have answered, a query says of its data what it knew before.
        return QueryStatus(
            began_s=began_s if status["isDataAvailable"] else None,
            run=run,
            asked_s=began_s if message.startswith("Getting offsets") else None,
        )
    waits = message.startswith("Waiting for")
    return QueryStatus(idle=waits and not status["isDataAvailable"], run=run)
