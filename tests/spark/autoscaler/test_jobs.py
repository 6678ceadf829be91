"""Jobs and stages in the JSON of Spark's REST interface, as Spark 4.3 writes it."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.spark.autoscaler.jobs import (
    StageWork,
    described,
    held_slots,
    moment_s,
    read_job,
    read_stage,
    root_execution,
    wall_s,
)

STAGE: dict[str, Any] = {
    "status": "COMPLETE",
    "attemptId": 0,
    "numTasks": 4,
    "submissionTime": "2026-11-16T03:28:49.816GMT",
    "firstTaskLaunchedTime": "2026-11-16T03:28:49.820GMT",
    "completionTime": "2026-11-16T03:28:50.097GMT",
    "executorDeserializeTime": 6,
    "executorRunTime": 528,
    "executorCpuTime": 16601034,
    "resultSerializationTime": 0,
    "inputBytes": 0,
    "inputRecords": 0,
}
SKIPPED = {key: value for key, value in STAGE.items() if not key.endswith("Time")}
TASK = {"launchTime": "2026-11-16T03:28:49.954GMT", "duration": 143}
OTHER = {"launchTime": "2026-11-16T03:28:49.962GMT", "duration": 130}
BATCH = "fb\nid = 90fa\nrunId = e08d\nbatch = 2"
TAGS = ["spark-session-0ea4", "spark-session-0ea4-execution-root-id-8"]


def test_a_stage_holds_slots_for_all_that_its_tasks_do() -> None:
    stage = read_stage(STAGE, TASK, [TASK, OTHER])
    assert stage is not None
    assert stage.run_s == pytest.approx(0.534)
    assert stage.longest_s == pytest.approx(0.143)
    assert stage.straggled_s == pytest.approx(0.005, abs=1e-5)
    assert stage.ended_s - stage.began_s == pytest.approx(0.281)
    assert held_slots([stage], most=2) == pytest.approx(1.92, abs=0.01)


def test_a_stage_that_was_skipped_did_not_run() -> None:
    assert read_stage(SKIPPED) is None


def test_a_job_has_its_run_and_batch_from_the_description() -> None:
    stage = read_stage(STAGE)
    assert stage is not None
    plain = {"jobId": 15, "submissionTime": "2026-11-16T03:28:48.753GMT", "completionTime": None}
    job = read_job(plain, [(STAGE, stage)], BATCH)
    assert (job.job, job.run, job.batch, job.tasks) == (15, "e08d", 2, 4)
    assert job.began_s == moment_s("2026-11-16T03:28:48.753GMT") and job.ended_s is None
    assert job.stages == (stage,)
    assert read_job(plain, [], "my own words").batch is None


def test_the_execution_of_the_batch_is_in_the_tags() -> None:
    assert root_execution({"jobTags": TAGS}) == 8
    assert root_execution({"jobTags": TAGS[:1]}) is None and root_execution({}) is None
    assert described("") == ("", None)


def test_time_in_which_stages_overlap_counts_once() -> None:
    assert wall_s([]) == 0
    assert wall_s([(3, 5), (0, 4), (7, 8)]) == 6


def test_tasks_that_wait_for_the_slots_of_other_queries_hold_fewer() -> None:
    """Three equal queries start at once: the third gets its slots when the others are done."""
    first = StageWork(0, 1, 12, 12, 1)
    third = StageWork(0, 3, 12, 12, 1)
    assert held_slots([first], most=12) == 12
    assert held_slots([third], most=12) == 4


def test_a_straggler_does_not_hide_the_slots_that_were_there() -> None:
    stage = StageWork(0, 10, 16, 32, longest_s=10, straggled_s=8)
    assert held_slots([stage], most=12) == pytest.approx(4)
    assert held_slots([], most=12) is None


def test_the_last_task_of_a_round_is_no_straggler() -> None:
    """Five tasks on four slots: the fifth runs alone, and no slot more is held for it."""
    stage = StageWork(0, 2.7, 5.7, 5, longest_s=1.7, straggled_s=1.7)
    assert held_slots([stage], most=4) == pytest.approx(2.5)
