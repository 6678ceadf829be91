from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from tidegate.spark.autoscaler.attribution import HELD_S, Attribution
from tidegate.spark.autoscaler.jobs import JobWork
from tidegate.spark.autoscaler.meter import QueryMeter
from tidegate.spark.autoscaler.progress import read_progress
from tidegate.testing.spark import START_S, progress_json

FOREACH: dict[str, Any] = {"sink": {"description": "ForeachBatchSink"}}


def meter(name: str, *begins_s: float, took_s: float = 2.0, sink: Any = FOREACH) -> QueryMeter:
    """A query with batches that began at these times after the start."""
    made = QueryMeter()
    for number, at_s in enumerate(begins_s):
        made.add(read_progress(progress_json(name, number, START_S + at_s, took_s, 100, **sink)))
    return made


def job(began_s: float, ended_s: float, run: str = "", batch: int | None = None) -> JobWork:
    times: dict[str, Any] = {"began_s": START_S + began_s, "ended_s": START_S + ended_s}
    return JobWork(1, batch, 6.0, 6.0, 4, run=run, **times)


def work(meter: QueryMeter) -> list[float]:
    return [run_s for _, run_s in meter.batch_work()]


def test_a_job_with_a_run_and_a_batch_goes_there() -> None:
    one, two = meter("one", 0), meter("two", 0)
    Attribution().add([job(0.5, 1, "run-of-two", 0)], 4, {"one": one, "two": two}, START_S + 3)
    assert work(one) == [] and work(two) == [6.0]


def test_a_job_of_a_thread_belongs_to_the_batch_that_it_ran_in() -> None:
    one, plain = meter("one", 0, 5), meter("plain", 0, 5, sink={})
    meters = {"one": one, "plain": plain}
    Attribution().add([job(5.5, 6.5)], 4, meters, START_S + 9)
    assert work(one) == [6.0] and work(plain) == [], "a query without foreachBatch starts none"


@pytest.mark.parametrize(("run", "batch"), [("", None), ("run-of-one", 1)])
def test_a_batch_with_a_job_that_was_not_read_has_no_known_cost(
    run: str, batch: int | None
) -> None:
    one, known = meter("one", 0, 5), job(5.2, 5.4, "run-of-one", 1)
    attribution = Attribution()
    attribution.add([known], 4, {"one": one}, START_S + 9)
    assert one.cost() is not None
    attribution.add(
        [replace(job(5.5, 6.5, run, batch), complete=False)], 4, {"one": one}, START_S + 9
    )
    assert one.cost() is None


def test_a_job_of_a_run_without_a_batch_goes_by_time() -> None:
    one, two = meter("one", 0, 5), meter("two", 0, 5)
    Attribution().add([job(5.5, 6.5, "run-of-two")], 4, {"one": one, "two": two}, START_S + 9)
    assert work(one) == [] and work(two) == [6.0]


@pytest.mark.parametrize("unheard", [True, False])
def test_a_job_of_a_thread_waits_while_the_first_batch_of_a_query_runs(unheard: bool) -> None:
    """Until then, nobody knows that the query has a foreachBatch; other jobs are not kept."""
    plain, attribution = meter("plain", 0, 5, sink={}), Attribution()
    attribution.add([job(5.5, 6.5)], 4, {"plain": plain}, START_S + 8, unheard)
    one = meter("one", 5)
    attribution.add([], 4, {"plain": plain, "one": one}, START_S + 9)
    assert work(plain) == [] and work(one) == ([6.0] if unheard else [])


def test_a_job_waits_until_its_batch_has_ended() -> None:
    one, attribution = meter("one", 0), Attribution()
    one.idle(START_S + 8)  # the event of the batch may come after Spark's status
    attribution.add([job(5.5, 6.5)], 4, {"one": one}, START_S + 8)
    assert work(one) == []
    one.add(read_progress(progress_json("one", 1, START_S + 5, 2.0, 100, **FOREACH)))
    attribution.add([], 4, {"one": one}, START_S + 9)
    assert work(one) == [6.0]


def test_a_job_of_a_query_that_was_not_heard_of_yet_waits() -> None:
    attribution = Attribution()
    attribution.add([job(0.5, 1, "run-of-one", 0)], 4, {}, START_S + 2)
    one = meter("one", 0)
    attribution.add([], 4, {"one": one}, START_S + 3)
    assert work(one) == [6.0]
    attribution.add([job(0.5, 1, "run-of-two", 0)], 4, {}, START_S + 2)
    attribution.add([], 4, {}, START_S + HELD_S + 9)
    two = meter("two", 0)
    attribution.add([], 4, {"two": two}, START_S + HELD_S + 10)
    assert work(two) == [], "not for ever"


def test_what_two_queries_may_have_started_makes_both_readings_missing_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meters = {"one": meter("one", 0, 5), "two": meter("two", 0, 5)}
    attribution = Attribution()
    for name, number in (("one", 0), ("one", 1), ("two", 0), ("two", 1)):
        described = job(0.1, 0.2, f"run-of-{name}", number)
        attribution.add([described], 4, meters, START_S + 9)
    assert all(m.cost() is not None for m in meters.values())
    with caplog.at_level(logging.WARNING):
        attribution.add([job(0.5, 1), job(5.5, 6)], 4, meters, START_S + 9)
    assert all(m.cost() is None for m in meters.values())
    assert len([r for r in caplog.records if "cannot be attributed" in r.message]) == 2


def test_a_job_that_outlives_its_batch_is_not_part_of_it() -> None:
    one = meter("one", 0, 5)
    attribution = Attribution()
    attribution.add([job(0.1, 0.2, "run-of-one", 0)], 4, {"one": one}, START_S + 9)
    attribution.add([job(0.5, 4.5)], 4, {"one": one}, START_S + 9)
    assert one.cost() is None


def test_a_job_between_two_batches_is_not_of_the_query() -> None:
    one = meter("one", 0, 5)
    Attribution().add([job(3, 4)], 4, {"one": one}, START_S + 9)
    assert work(one) == []


def test_a_job_of_which_a_stage_was_dropped_makes_its_batch_unknown() -> None:
    one = meter("one", 0)
    part = replace(job(0.5, 1, "run-of-one", 0), complete=False)
    Attribution().add([part], 4, {"one": one}, START_S + 3)
    assert work(one) == [] and one.cost() is None
