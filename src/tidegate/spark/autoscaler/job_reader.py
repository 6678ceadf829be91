"""Which finished jobs of an application are read in a turn, and to which run a job belongs.

A gateway supplies Spark's JSON of jobs, stages and tasks in lists, so that a gateway to a driver
elsewhere needs one request for each list. What is read is limited, so as not to burden the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidegate.spark.autoscaler.jobs import (
    JobWork,
    StageWork,
    described,
    first_batches,
    read_job,
    read_stage,
)

__all__ = ["JobReader", "JobSource", "Json", "TaskList"]

log = logging.getLogger(__name__)

Json = dict[str, Any]

FIRST_LOOK = 50
"""Number of jobs that are read when the autoscaler is attached to a running application."""
MOST_LISTED = 10_000
"""Largest number of jobs that are listed in one turn."""
JOBS_PER_TURN = 50
"""Largest number of finished jobs whose stages are read in one turn, at some 10 ms each."""
TASK_LISTS_PER_TURN = 40
"""Largest number of task lists that are read in one turn."""
SHORT_STAGE_MS = 100
"""The tasks of a shorter stage are not looked at one by one."""
UNEVEN = 1.5
"""A task is longer than the others if it takes this many times the mean."""


class TaskList(NamedTuple):
    """A request for the first tasks of a stage in falling order.

    stage, attempt: numbers of Spark. order: Spark's name of the column. most: number of tasks.
    """

    stage: int
    attempt: int
    order: str
    most: int


class JobSource(Protocol):
    """Spark's JSON of jobs, as its REST interface has it."""

    def list_jobs(self, after: int, most: int, others: Collection[int]) -> tuple[list[Json], int]:
        """Jobs with a number above `after`, at most `most`, and other ones by number.

        The result has the jobs, without those that Spark has dropped, and the highest number.
        """

    def stages(self, numbers: Sequence[int]) -> list[Json | None]:
        """The last attempts of stages; None for one that Spark has dropped."""

    def task_lists(self, wanted: Sequence[TaskList]) -> list[list[Json]]:
        """Tasks of stages; empty where they cannot be read."""

    def batch_texts(self, jobs: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """For each job the description of the SQL execution within which it was started.

        That of a batch names its query. None when Spark does not know the execution.
        """

    def active_jobs(self) -> list[Json]:
        """Jobs that run, each with ``stages``: the numbers of all, active and completed tasks."""

    def runs(self) -> frozenset[str]:
        """Runs of the queries that the last listing found."""


class JobReader:
    """Reads the jobs of an application turn by turn.

    source: the gateway.
    """

    def __init__(self, source: JobSource) -> None:
        self.source = source
        self._missing: set[int] = set()  # jobs that were not listed although later ones were
        self._dropped = False  # whether a warning about jobs that were dropped was given
        self._skipped = False  # whether a warning about jobs that were not read was given

    def finished(
        self, after: int, running: Collection[int] = ()
    ) -> tuple[list[JobWork], int, set[int]]:
        """Jobs that have ended since the last look; see `Gateway.finished_jobs`."""
        most = MOST_LISTED if after >= 0 else FIRST_LOOK
        plain, newest = self.source.list_jobs(after, most, running)
        listed = {job["jobId"] for job in plain}
        # Jobs that are submitted at the same time may reach the store in another order, so one that
        # is missing is looked up once more.
        self._warn_of_dropped(len(self._missing.intersection(running) - listed))
        first = max(after + 1, newest - most + 1) if after >= 0 else newest + 1
        self._missing = set(range(first, newest + 1)) - listed
        ended = [job for job in plain if job["status"] != "RUNNING"]
        left = {job["jobId"] for job in plain if job["status"] == "RUNNING"} | self._missing
        found = self._works(first_batches(ended, JOBS_PER_TURN))
        read = {job.job for job in found}
        rest = [job for job in ended if job["jobId"] not in read]
        # Their number and batch are known, but not what they used.
        found += [read_job(j, [], str(j.get("description") or ""), False) for j in rest]
        self._warn_of_skipped(len(rest), len(ended))
        return sorted(found, key=lambda job: job.job), max(after, newest), left

    def active_tasks(self) -> dict[str, tuple[int, int]]:
        """Numbers of tasks that wait and that run, by the run of their query."""
        found: dict[str, tuple[int, int]] = {}
        jobs = self.source.active_jobs()
        for job, text in zip(jobs, self._texts(jobs), strict=True):
            run = described(text)[0]
            if not run:
                continue
            waiting, running = found.get(run, (0, 0))
            for stage in job["stages"]:
                if stage["numActiveTasks"]:
                    running += stage["numActiveTasks"]
                    waiting += (
                        stage["numTasks"] - stage["numActiveTasks"] - stage["numCompletedTasks"]
                    )
            found[run] = (max(0, waiting), running)
        return found

    def _works(self, jobs: Sequence[Mapping[str, Any]]) -> list[JobWork]:
        numbers = [stage for job in jobs for stage in job["stageIds"]]
        seen = dict(zip(numbers, self.source.stages(numbers), strict=True)) if numbers else {}
        read = self._read_stages([stage for stage in seen.items() if stage[1] is not None])
        works = []
        for job, text in zip(jobs, self._texts(jobs), strict=True):
            mine = [n for n in job["stageIds"] if seen[n] is not None]
            # A stage whose result was there already was skipped, and has no work.
            stages = [(seen[n] or {}, work) for n in mine if (work := read[n]) is not None]
            works.append(read_job(job, stages, text, len(mine) == len(job["stageIds"])))
        return works

    def _read_stages(self, seen: Sequence[tuple[int, Json | None]]) -> dict[int, StageWork | None]:
        """Stages with their longest task and, where it stands out, the two that ended last.

        Spark sorts all tasks of a stage for it, so only some stages of a turn are looked at.
        """
        plain = {number: stage for number, stage in seen if stage is not None}
        long = [
            TaskList(number, stage["attemptId"], "ert", 1)  # by run time
            for number, stage in plain.items()
            if stage["numTasks"] >= 2 and stage["executorRunTime"] >= SHORT_STAGE_MS
        ][:TASK_LISTS_PER_TURN]
        longest = self._lists(long)
        uneven = [
            TaskList(one.stage, one.attempt, "ct", 2)  # by the time of its end
            for one in long
            if (tasks := longest[one.stage])
            and tasks[0].get("duration", 0) > UNEVEN * _usual_ms(plain[one.stage])
        ][: TASK_LISTS_PER_TURN - len(long)]
        last = self._lists(uneven)
        return {
            number: read_stage(
                stage, next(iter(longest.get(number, ())), None), last.get(number, ())
            )
            for number, stage in plain.items()
        }

    def _lists(self, wanted: Sequence[TaskList]) -> dict[int, list[Json]]:
        found = self.source.task_lists(wanted) if wanted else []
        return {one.stage: tasks for one, tasks in zip(wanted, found, strict=True)}

    def _texts(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """For each job the description of the batch that it belongs to, or its own one.

        Code in ``foreachBatch`` may have changed the job's, but not that of the batch's execution.
        """
        own = [str(job.get("description") or "") for job in jobs]
        nameless = [n for n, text in enumerate(own) if not described(text)[0]]
        asked = [jobs[n] for n in nameless]
        batches = dict(zip(nameless, self.source.batch_texts(asked) if asked else (), strict=True))
        for n, batch in batches.items():
            group = str(jobs[n].get("jobGroup") or "")
            if batch is not None and "runId = " in batch:
                own[n] = batch
            elif group and group in self.source.runs():
                own[n] = f"runId = {group}"
        return own

    def _warn_of_dropped(self, dropped: int) -> None:
        if dropped > 0 and not self._dropped:
            self._dropped = True
            log.warning(
                "%d jobs were dropped from Spark's status store before they were read, so the "
                "cost of batches is too low: raise spark.ui.retainedJobs",
                dropped,
            )

    def _warn_of_skipped(self, skipped: int, ended: int) -> None:
        if skipped and not self._skipped:
            self._skipped = True
            log.warning(
                "%d jobs ended since the last turn, and only %d of them are read, so as not to "
                "burden the driver: the cost of a query's batches comes from some of them",
                ended,
                ended - skipped,
            )


def _usual_ms(stage: Mapping[str, Any]) -> float:
    """Mean run time of a stage's tasks, in milliseconds."""
    run_ms, tasks = float(stage["executorRunTime"]), int(stage["numTasks"])
    return run_ms / max(1, tasks)


def _first(tasks: Sequence[Json] | None) -> Json | None:
    return tasks[0] if tasks else None
