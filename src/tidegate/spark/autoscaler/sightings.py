"""What the driver reports of an executor and of a query at one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExecutorInfo", "QueryStatus", "Trigger"]


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
    with rows that runs now, Unix seconds, None when none runs. run: id of its run.
    """

    idle: bool = False
    began_s: float | None = None
    run: str = ""
