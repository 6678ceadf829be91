"""The calls to the JVM that a turn makes, counted on a JVM that is none."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.errors import BackendError
from tidegate.spark.autoscaler import holdings
from tidegate.spark.autoscaler import job_reader as module
from tidegate.spark.autoscaler.in_process import InProcessGateway, _translated
from tidegate.spark.autoscaler.jobs import first_batches

BEGAN, ENDED = "2026-01-01T00:00:00.000GMT", "2026-01-01T00:00:01.000GMT"


class Jvm:
    """Counts calls by name; `answers` has results, or functions of the arguments, by name."""

    def __init__(self, answers: dict[str, Any], calls: list[str], name: str = "") -> None:
        self.answers, self.calls, self.called = answers, calls, name

    def __getattr__(self, name: str) -> Jvm:
        if name.startswith("__"):
            raise AttributeError(name)
        return Jvm(self.answers, self.calls, name)

    def __call__(self, *given: Any) -> Any:
        self.calls.append(self.called)
        answer = self.answers.get(self.called, self)
        return answer(*given) if callable(answer) and not isinstance(answer, Jvm) else answer


class Jobs(list[Any]):
    """A sequence of Scala, the newest job first."""

    def head(self) -> Any:
        return SimpleNamespace(jobId=lambda: self[0]["jobId"])

    def nonEmpty(self) -> bool:
        return bool(self)

    def take(self, count: int) -> list[Any]:
        return self[:count]


def job(number: int, run: str, batch: int, status: str = "SUCCEEDED") -> dict[str, Any]:
    text = f"runId = {run}\nbatch = {batch}"
    stages = [3 * number, 3 * number + 1, 3 * number + 2]
    return {"jobId": number, "stageIds": stages, "description": text, "status": status}


def stage(number: int) -> dict[str, Any]:
    return {
        "numTasks": 64, "executorRunTime": 900, "attemptId": 0, "submissionTime": BEGAN,
        "completionTime": ENDED, "executorCpuTime": 1, "inputRecords": 0, "inputBytes": 0,
    }  # fmt: skip


def on_jvm(
    queries: int = 0, jobs: list[dict[str, Any]] | None = None
) -> tuple[InProcessGateway, list[str]]:
    """A gateway to an application, and the calls that it makes."""
    calls: list[str] = []
    by_number = {j["jobId"]: j for j in jobs or ()}
    task = {"duration": 40, "launchTime": BEGAN}
    status = json.dumps(
        {"isTriggerActive": False, "isDataAvailable": False, "message": "Waiting for"}
    )
    running = []
    for n in range(queries):
        own = {
            "id": f"id-{n}",
            "runId": f"run-{n}",
            "name": f"q-{n}",
            "json": status,
            "hasNext": False,
        }
        running.append(Jvm(own, calls))
    answers = {
        "values": lambda: [calls.append("next") or q for q in running],  # type: ignore[func-returns-value]
        "writeValueAsString": json.dumps,
        "jobsList": Jobs(sorted(by_number.values(), key=lambda j: -j["jobId"])),
        "job": by_number.__getitem__,
        "lastStageAttempt": stage,
        "taskList": [task, task],
        "hasNext": False,
        "getActiveJobsIds": [n for n, j in by_number.items() if j["status"] == "RUNNING"],
        "getStageInfo": SimpleNamespace(numActiveTasks=2, numTasks=5, numCompletedTasks=1),
    }
    gateway, jvm = InProcessGateway.__new__(InProcessGateway), Jvm(answers, calls)
    gateway._jvm = gateway._scala = gateway._json = gateway._context = jvm
    gateway.spark = SimpleNamespace(_jsparkSession=jvm)  # type: ignore[assignment]
    gateway._listener = None
    gateway._reader = module.JobReader(gateway)
    return gateway, calls


def calls_of_a_turn(queries: int) -> int:
    jobs = [job(n, f"run-{n}", 7, "RUNNING") for n in range(queries)]
    gateway, calls = on_jvm(queries, jobs)
    for query in gateway.active_queries():
        assert gateway.status_of(query).idle
        gateway.read_limits(query)
    for n in range(queries):
        assert gateway.tasks_of(f"run-{n}") == (6, 6), "three stages with two of five each"
    return len(calls)


def test_the_calls_of_a_turn_grow_with_the_queries_and_not_with_their_square() -> None:
    few, many = calls_of_a_turn(10), calls_of_a_turn(40)
    assert many <= 4 * few


def test_the_tasks_are_those_of_this_turn() -> None:
    gateway, _ = on_jvm(1, [job(0, "run-0", 7, "RUNNING")])
    gateway.active_queries()
    assert gateway.tasks_of("run-0") == (6, 6)
    gateway._context.answers["getActiveJobsIds"] = []
    assert gateway.tasks_of("run-0") == (6, 6), "read once a turn"
    gateway.active_queries()
    assert gateway.tasks_of("run-0") == (0, 0)


def test_a_query_that_came_after_the_listing_is_found() -> None:
    gateway, _ = on_jvm(1)
    assert gateway.status_of("id-0").run == "run-0"
    assert not gateway.status_of("id-9").run


def test_only_some_of_very_many_jobs_are_read(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [job(n, f"run-{n % 4}", n // 8) for n in range(400)]
    gateway, calls = on_jvm(4, jobs)
    found, newest, left = gateway.finished_jobs(0)
    assert [j.job for j in found] == list(range(1, 400)), "every one is known"
    assert (newest, left) == (399, set())
    read = [j for j in found if j.complete]
    assert 0 < len(read) <= module.JOBS_PER_TURN
    assert {j.run for j in read} == {f"run-{n}" for n in range(4)}, "of each query some"
    whole = {(j.run, j.batch) for j in read}
    assert all(j.complete for j in found if (j.run, j.batch) in whole), "whole batches"
    assert all(j.batch is not None and not j.stages for j in found if not j.complete)
    assert calls.count("taskList") <= module.TASK_LISTS_PER_TURN
    assert calls.count("lastStageAttempt") == 3 * len(read)
    gateway.finished_jobs(0)
    assert len([r for r in caplog.records if "only" in r.getMessage()]) == 1, "said once"


def test_a_job_that_is_listed_after_a_later_one_is_read_and_one_that_was_dropped_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway, _ = on_jvm(1, [job(n, "run-0", n) for n in (0, 1, 3)])
    found, newest, left = gateway.finished_jobs(0)
    assert ([j.job for j in found], newest, left) == ([1, 3], 3, {2})
    gateway._scala.answers["job"] = {2: job(2, "run-0", 2)}.__getitem__
    found, newest, left = gateway.finished_jobs(newest, left)
    assert ([j.job for j in found], newest, left) == ([2], 3, set())
    assert not caplog.records
    gateway, _ = on_jvm(1, [job(n, "run-0", n) for n in (0, 1, 3)])
    _, newest, left = gateway.finished_jobs(0)
    found, _, left = gateway.finished_jobs(newest, left)
    assert (found, left) == ([], set()), "it is gone, and not looked for again"
    assert "1 jobs were dropped" in caplog.text


def test_few_jobs_are_all_read() -> None:
    gateway, _ = on_jvm(4, [job(n, f"run-{n % 4}", n // 8) for n in range(40)])
    found, _, _ = gateway.finished_jobs(-1)
    assert len(found) == 40 and all(j.complete and len(j.stages) == 3 for j in found)


def test_of_a_query_the_newest_batches_are_read_first() -> None:
    jobs = [job(n, "busy", n // 2) for n in range(8)] + [job(8, "rare", 0)]
    assert [j["jobId"] for j in first_batches(jobs, 5)] == [8, 6, 7, 4, 5]
    assert [j["jobId"] for j in first_batches(jobs, 2)] == [8], "no half of a batch"


def test_the_sample_of_state_partitions_is_limited_over_all_queries() -> None:
    gateway, calls = on_jvm(20)
    operator = {"operatorName": "stateStoreSave", "numShufflePartitions": 200}
    for query in gateway._active():
        query.answers |= {
            "json": json.dumps({"stateOperators": [operator, operator]}),
            "isDefined": True,
            "get": "executor_127.0.0.1_3",
        }
    calls.clear()
    assert gateway.state_partitions() == {"3": 20 * 2 * 200}, "a sample stands for all"
    assert calls.count("getLocation") <= holdings.STATE_SAMPLE


JVM_ERROR = """An error occurred while calling o46.requestTotalExecutors.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: Could not find YarnScheduler.
\tat org.apache.spark.rpc.netty.Dispatcher.postMessage(Dispatcher.scala:181)
\t... 12 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (JVM_ERROR, "org.apache.spark.SparkException: Could not find YarnScheduler."),
        (JVM_ERROR.partition("Caused")[0], "org.apache.spark.SparkException: Exception thrown"),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_the_jvm_is_its_innermost_cause_and_not_its_stack(
    text: str, cause: str
) -> None:
    with pytest.raises(BackendError) as caught, _translated("a total of 1 could not be requested"):
        raise RuntimeError(text)
    assert str(caught.value).startswith(f"a total of 1 could not be requested: {cause}")
