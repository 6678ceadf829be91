"""Finished jobs and stages, read from Spark's REST JSON, and the slots that a batch held. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.theory.microbatch import in_rounds

__all__ = [
    "JobWork",
    "StageWork",
    "available_slots",
    "described",
    "first_batches",
    "held_slots",
    "moment_s",
    "read_job",
    "read_stage",
    "root_execution",
    "useful_tasks",
    "wall_s",
]


@dataclass(frozen=True, slots=True)
class StageWork:
    """A stage that has ended.

    Args:
        began_s: When its tasks were handed to the scheduler, Unix seconds. While other queries hold
            the slots, they wait there.
        ended_s: When its last task ended, Unix seconds.
        run_s: Slot-seconds of its tasks.
        tasks: Number of its tasks.
        longest_s: Duration of its longest task, in seconds.
        straggled_s: Time at its end in which only its last task ran, in seconds.
        reads_files: Whether its tasks read files.
    """

    began_s: float
    ended_s: float
    run_s: float
    tasks: int
    longest_s: float
    straggled_s: float = 0.0
    reads_files: bool = False


@dataclass(frozen=True, slots=True)
class JobWork:
    """Resources that one finished job used.

    Args:
        job: Spark's number of the job.
        batch: Number of its micro-batch, None when Spark did not report it.
        run_s: Slot-seconds of its tasks.
        cpu_s: Seconds of CPU time.
        tasks: Tasks of its longest stage.
        read_rows: Rows that its tasks read from files.
        read_bytes: Bytes that its tasks read from files.
        run: Run of the query that it belongs to, empty when Spark did not report it.
        began_s: When it was submitted, Unix seconds, None when unknown.
        ended_s: When it ended, Unix seconds, None when unknown.
        stages: Its stages that ran; empty when they are unknown.
        complete: Whether all its stages could be read.
    """

    job: int
    batch: int | None
    run_s: float
    cpu_s: float
    tasks: int
    read_rows: int = 0
    read_bytes: int = 0
    run: str = ""
    began_s: float | None = None
    ended_s: float | None = None
    stages: tuple[StageWork, ...] = ()
    complete: bool = True


def described(text: str) -> tuple[str, int | None]:
    r"""Run and batch in the description that Spark gives to the jobs of a query.

    >>> described("ticks\nid = q-1\nrunId = r-1\nbatch = 7"), described("my own words")
    (('r-1', 7), ('', None))
    """
    run = re.search(r"runId = (\S+)", text)
    batch = re.search(r"batch = (\d+)", text)
    return run.group(1) if run else "", int(batch.group(1)) if batch else None


def first_batches(jobs: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Jobs to read when there are too many: whole batches, the newest of each query first.

    A batch of which only some jobs are read has no known cost, and each query needs some batches
    that have one. Jobs without a description count as one batch.

    jobs: jobs as Spark's JSON. most: number of jobs that can be read. The result is in the order in
    which to read them.
    """
    batches: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    for job in sorted(jobs, key=lambda job: int(job["jobId"])):
        batches.setdefault(described(str(job.get("description") or "")), []).append(job)
    ages: dict[str, int] = {}
    ranked = []
    for (run, _), group in sorted(batches.items(), key=lambda b: -int(b[1][-1]["jobId"])):
        ages[run] = ages.get(run, -1) + 1
        ranked.append((ages[run], group))
    chosen: list[Mapping[str, Any]] = []
    for _, group in sorted(ranked, key=lambda pair: pair[0]):
        if len(chosen) + len(group) <= most:
            chosen += group
    return chosen


def root_execution(job: Mapping[str, Any]) -> int | None:
    """The SQL execution within which a job was started, from Spark's tags of it.

    Code in ``foreachBatch`` may set another job group and description; the tag stays that of the
    batch.
    """
    for tag in job.get("jobTags") or ():
        if found := re.search(r"execution-root-id-(\d+)$", tag):
            return int(found.group(1))
    return None


def read_stage(
    plain: Mapping[str, Any],
    longest: Mapping[str, Any] | None = None,
    last: Sequence[Mapping[str, Any]] = (),
) -> StageWork | None:
    """A stage from Spark's JSON, None when it did not run.

    longest: its longest task, None when it is unknown. last: the two tasks that ended last, the
    last one first; empty when they are unknown.
    """
    if not plain.get("submissionTime") or not plain.get("completionTime"):
        return None
    began_s, ended_s = moment_s(plain["submissionTime"]), moment_s(plain["completionTime"])
    tasks = max(1, int(plain["numTasks"]))
    # A task holds its slot while its code is loaded and its result is written, too.
    keys = ("executorRunTime", "executorDeserializeTime", "resultSerializationTime")
    run_s = sum(plain.get(key) or 0 for key in keys) / 1000
    longest_s, straggled_s = min(run_s, max(0.0, ended_s - began_s)), 0.0
    if longest is not None and longest.get("duration") is not None:
        longest_s = longest["duration"] / 1000
    elif tasks > 1:
        longest_s = min(longest_s, 2 * run_s / tasks)
    ends_s = [moment_s(t["launchTime"]) + t["duration"] / 1000 for t in last if t.get("duration")]
    if len(ends_s) == 2:
        straggled_s = max(0.0, ends_s[0] - ends_s[1])
    reads_files = bool(plain.get("inputBytes"))
    return StageWork(began_s, ended_s, run_s, tasks, longest_s, straggled_s, reads_files)


def read_job(
    plain: Mapping[str, Any],
    stages: Sequence[tuple[Mapping[str, Any], StageWork]],
    text: str,
    complete: bool = True,
) -> JobWork:
    """A job from Spark's JSON.

    stages: its stages that ran, as JSON and as read. text: the description of its batch. complete:
    whether all stages could be read.
    """
    run, batch = described(text)
    slowest = max((stage for _, stage in stages), key=lambda s: s.run_s, default=None)
    return JobWork(
        job=int(plain["jobId"]),
        batch=batch,
        run_s=math.fsum(stage.run_s for _, stage in stages),
        cpu_s=sum(seen["executorCpuTime"] for seen, _ in stages) / 1e9,
        tasks=slowest.tasks if slowest else 0,
        read_rows=sum(seen["inputRecords"] for seen, _ in stages),
        read_bytes=sum(seen["inputBytes"] for seen, _ in stages),
        run=run,
        began_s=_maybe_s(plain.get("submissionTime")),
        ended_s=_maybe_s(plain.get("completionTime")),
        stages=tuple(stage for _, stage in stages),
        complete=complete,
    )


def wall_s(spans: Iterable[tuple[float, float]]) -> float:
    """Time in seconds that is covered by at least one of the spans (begin, end).

    >>> wall_s([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    covered = 0.0
    reached = -math.inf
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def held_slots(stages: Sequence[StageWork], most: int) -> float | None:
    """Task slots that a batch held on average while it had tasks to run, None without any.

    most: slots of the application. Time in which tasks waited for a slot counts, since more slots
    would shorten it. Time in which only a straggler ran does not: the other slots were there.

    Eight tasks of a second on four slots, and four tasks of which one takes ten seconds:

    >>> held_slots([StageWork(0, 2, 8, 8, longest_s=1)], most=12)
    4.0
    >>> held_slots([StageWork(0, 10, 13, 4, longest_s=10, straggled_s=9)], most=12)
    4.0
    """
    work_s = math.fsum(stage.run_s for stage in stages)
    span_s = wall_s((stage.began_s, stage.ended_s) for stage in stages)
    if work_s <= 0 or span_s <= 0:
        return None
    least = work_s / span_s
    tail_s = math.fsum(stage.straggled_s for stage in stages)
    widest = float(max(stage.tasks for stage in stages))
    even = (work_s - tail_s) / (span_s - tail_s) if span_s > tail_s else widest
    available = available_slots(stages, most) or widest
    return min(max(least, even), max(least, available))


def available_slots(stages: Sequence[StageWork], most: int) -> float | None:
    """Task slots that a batch could have held, had it been alone; None without any work.

    most: slots of the application. A stage holds at most one slot for each of its tasks and runs in
    rounds of them, so a batch with a narrow stage holds fewer on average.

    >>> available_slots([StageWork(0, 2, 8, 8, longest_s=1), StageWork(2, 4, 2, 1, 2)], most=8)
    3.3333333333333335
    >>> available_slots([StageWork(0, 2, 12, 12, longest_s=1)], most=8)
    6.0
    """
    work_s = math.fsum(stage.run_s for stage in stages)
    least_s = math.fsum(stage.run_s / in_rounds(max(1, most), stage.tasks) for stage in stages)
    return work_s / least_s if least_s > 0 else None


def useful_tasks(stages: Sequence[StageWork]) -> int:
    """Tasks of the longest stage, and of the stages of its size that run at the same time.

    More slots than that are of no use. The two sides of a join are read at the same time, and a
    function of `foreachBatch` may start several jobs at once.

    >>> one, other = StageWork(0, 9, 30, 4, longest_s=8), StageWork(0, 8, 28, 4, longest_s=8)
    >>> useful_tasks([one, other, StageWork(9, 10, 2, 8, longest_s=1)])
    8
    """
    longest = max(stages, key=lambda stage: stage.run_s)
    return longest.tasks + sum(
        stage.tasks
        for stage in stages
        if stage is not longest
        and stage.run_s >= longest.run_s / 2
        and min(stage.ended_s, longest.ended_s) > max(stage.began_s, longest.began_s)
    )


def moment_s(text: str) -> float:
    """Unix seconds of a time in the format of Spark's REST interface, which ends in GMT."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT")
    return moment.replace(tzinfo=UTC).timestamp()


def _maybe_s(text: str | None) -> float | None:
    return moment_s(text) if text else None
