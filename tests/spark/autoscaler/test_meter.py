from __future__ import annotations

from typing import Any

import pytest

from tests.spark.autoscaler.recordings import recorded
from tidegate.model import Latency, OperatorReading
from tidegate.spark.autoscaler.gateway import JobWork
from tidegate.spark.autoscaler.meter import QueryMeter, SourceCount, latency_of
from tidegate.spark.autoscaler.progress import Progress, read_progress
from tidegate.testing.spark import START_S, moment, progress_json


def idle(at_s: float) -> Progress:
    text = f'{{"id": "id-of-ticks", "runId": "run-of-ticks", "timestamp": "{moment(at_s)}"}}'
    return read_progress(text)


def fed(*batches: Progress, window_s: float = 20.0) -> QueryMeter:
    meter = QueryMeter(window_s)
    for batch in batches:
        meter.add(batch)
    return meter


def batch(number: int, at_s: float, rows: int, took_s: float = 1.0, **more: Any) -> Progress:
    """A batch that begins so many seconds after the start."""
    text = progress_json(batch=number, began_s=START_S + at_s, duration_s=took_s, rows=rows, **more)
    return read_progress(text)


def reading(meter: QueryMeter, after_s: float, trigger_s: float | None = 2.0) -> OperatorReading:
    return meter.reading("ticks", START_S + after_s, trigger_s)


def test_a_meter_that_has_seen_nothing_measures_nothing() -> None:
    assert reading(QueryMeter(), 0) == OperatorReading("ticks")
    assert QueryMeter().latencies(START_S) == []
    assert QueryMeter().run is None and QueryMeter().ceiling is None
    assert QueryMeter().state_partitions is None


def test_one_batch_tells_no_rate() -> None:
    seen = reading(fed(batch(0, 0, 100)), 1)
    assert seen.arrival_rate_per_s is None and seen.processed_per_s is None
    assert seen.queue_length is None and seen.service_time_s is None


def test_rates_are_rows_over_the_time_from_batch_to_batch() -> None:
    meter = fed(batch(0, 0, 999), batch(1, 2, 100), batch(2, 4, 300, took_s=2.0))
    seen = reading(meter, 6)
    assert seen.arrival_rate_per_s == pytest.approx(400 / 4)
    assert seen.processed_per_s == pytest.approx(400 / 5)


def test_the_period_is_the_usual_time_from_batch_to_batch() -> None:
    assert fed(batch(1, 0, 5)).period_s is None
    assert fed(*(batch(n, at_s, 5) for n, at_s in enumerate((0, 2, 4, 9, 11)))).period_s == 2.0


def test_what_is_left_over_has_arrived_as_well() -> None:
    meter = fed(batch(0, 0, 100, behind=50), batch(1, 2, 100, behind=250))
    seen = reading(meter, 3)
    assert seen.arrival_rate_per_s == pytest.approx((100 + 200) / 2)
    assert seen.processed_per_s == pytest.approx(100 / 2)
    assert seen.queue_length == 250


def test_only_the_window_counts_but_one_batch_at_least() -> None:
    meter = fed(*(batch(n, 2.0 * n, 100 if n < 20 else 500) for n in range(22)), window_s=4)
    assert reading(meter, 43).arrival_rate_per_s == pytest.approx(250)
    assert reading(meter, 400).arrival_rate_per_s == pytest.approx(250)


def test_idle_is_a_measured_zero() -> None:
    meter = fed(batch(0, 0, 100), idle(START_S + 10), idle(START_S + 20), window_s=10)
    seen = reading(meter, 20)
    assert seen.arrival_rate_per_s == 0 and seen.processed_per_s == 0
    assert seen.queue_length == 0
    assert seen.batches is not None and len(seen.batches.recent_durations_s) == 1


def test_rows_left_are_told_from_bytes_by_the_bytes_of_a_row() -> None:
    files: dict[str, Any] = {"sources": [{"metrics": {"numBytesOutstanding": "5000"}}]}
    meter = fed(batch(0, 0, 100), batch(1, 2, 100, **files))
    assert reading(meter, 3).queue_length is None, "nobody knows yet what a row takes"
    meter.add_work(JobWork(0, 0, 1.0, 1.0, 4, read_rows=100, read_bytes=1000), slots=2)
    assert reading(meter, 3).queue_length == pytest.approx(500)


def test_a_row_takes_slot_time_and_a_batch_has_overhead() -> None:
    meter = fed(batch(0, 0, 100, took_s=3.0), batch(1, 4, 100, took_s=3.0))
    for number in range(2):
        meter.add_work(JobWork(number, number, run_s=4.0, cpu_s=1.0, tasks=8), slots=4)
    seen = reading(meter, 7)
    assert seen.service_time_s == pytest.approx(0.04)
    assert seen.batches is not None
    assert seen.batches.trigger_interval_s == 2.0
    assert seen.batches.recent_durations_s == (3.0, 3.0)
    assert seen.batches.overhead_s == pytest.approx(2.0), "4 s of work on 4 slots explain one"
    assert reading(meter, 7, trigger_s=None).batches is None


def test_fewer_tasks_than_slots_work_side_by_side_as_tasks() -> None:
    meter = fed(batch(0, 0, 100, took_s=3.0))
    meter.add_work(JobWork(0, 0, run_s=4.0, cpu_s=1.0, tasks=2), slots=8)
    batches = reading(meter, 4).batches
    assert batches is not None and batches.overhead_s == pytest.approx(1.0)
    assert meter.ceiling == 2


def test_the_ceiling_is_that_of_the_longest_job_of_a_batch() -> None:
    meter = fed(batch(0, 0, 100))
    for job, (run_s, tasks) in enumerate([(5.0, 3), (5.5, 4), (5.2, 200)]):
        meter.add_work(JobWork(job, 0, run_s, 1.0, tasks), slots=2)
    assert meter.ceiling == 4
    assert meter.last_job == 2
    meter.add_work(JobWork(7, None, 99.0, 1.0, 500), slots=2)
    assert meter.ceiling == 4 and meter.last_job == 7, "a job of no batch is only passed over"


def test_a_new_run_begins_afresh() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    meter.add_work(JobWork(5, 1, 1.0, 1.0, 4), slots=2)
    meter.add(batch(2, 60, 100, run="another"))
    assert meter.run == "another" and meter.last_job == -1 and meter.ceiling is None
    assert reading(meter, 61).arrival_rate_per_s is None, "the pause was no quiet time"


def test_latency_is_from_event_time_to_the_commit() -> None:
    times = {"min": moment(START_S), "avg": moment(START_S + 1), "max": moment(START_S + 2)}
    meter = fed(batch(0, 0, 100), batch(1, 2, 100, took_s=2.0, eventTime=times))
    found = latency_of(meter.latencies(START_S + 4))
    assert found.mean_s == pytest.approx(3.0)
    assert found.p50_s == pytest.approx(3.0, abs=0.1)
    assert found.p99_s == pytest.approx(4.0, abs=0.1)
    assert reading(meter, 4).recent_durations_s == pytest.approx((3.0,))


def test_without_event_time_it_is_from_when_the_rows_could_be_read() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    found = latency_of(meter.latencies(START_S + 3))
    assert found.mean_s == pytest.approx(2.0)  # between 1 s, its duration, and 3 s
    left = fed(batch(0, 0, 100, behind=10), batch(1, 2, 100, behind=0))
    assert left.latencies(START_S + 3) == [], "how long the left ones waited nobody knows"


def test_percentiles_weigh_rows() -> None:
    found = latency_of([(1.0, 94.0), (2.0, 4.0), (10.0, 2.0)])
    assert (found.p50_s, found.p95_s, found.p99_s) == (1.0, 2.0, 10.0)
    assert latency_of([]) == Latency() == latency_of([(1.0, 0.0)])


@pytest.mark.parametrize("scenario", ["files", "files_limited", "kafka", "rate", "stateful"])
def test_recorded_queries_give_rates_and_latencies(scenario: str) -> None:
    read = recorded(scenario)
    meter = fed(*read, window_s=600)
    seen = meter.reading(scenario, read[-1].committed_s, 0.5)
    assert seen.arrival_rate_per_s is not None and seen.arrival_rate_per_s > 0
    assert seen.processed_per_s is not None and seen.processed_per_s > 0
    latency = latency_of(meter.latencies(read[-1].committed_s))
    assert latency.p50_s is not None and latency.p99_s is not None
    assert 0 < latency.p50_s <= latency.p99_s < 120
    assert seen.queue_length == {"kafka": 0.0, "files": 0.0}.get(scenario)


def test_a_recorded_restart_clears_the_rates() -> None:
    read = recorded("failing")
    second = next(n for n, one in enumerate(read) if one.run != read[0].run)
    meter = fed(*read[: second + 1])
    assert meter.reading("fragile", read[second].committed_s, 0.5).arrival_rate_per_s is None


def test_cold_batches_count_only_until_there_are_warm_ones() -> None:
    meter = QueryMeter(warm_up_s=15)
    expected = [None, 0.05, 0.01]  # the very first never counts
    for number, (at_s, run_s) in enumerate([(0, 9.0), (14, 5.0), (16, 1.0)]):
        meter.add(batch(number, at_s, 100), fresh=True)
        meter.add_work(JobWork(number, number, run_s, 1.0, 4), slots=2)
        assert reading(meter, 20).service_time_s == expected[number]


def test_a_query_that_ran_before_anybody_looked_is_warm() -> None:
    meter = QueryMeter(warm_up_s=15)
    meter.add(batch(7, 0, 100))
    meter.add_work(JobWork(7, 7, 2.0, 1.0, 4), slots=2)
    assert reading(meter, 2).service_time_s == 0.02


def test_the_service_time_is_what_one_more_row_takes() -> None:
    meter = QueryMeter()
    for number in range(12):
        rows = 100 + 50 * (number % 4)
        meter.add(batch(number, number, rows))
        # 24 tasks cost 0.48 s whatever they do, and each row 8 ms.
        meter.add_work(JobWork(number, number, 0.48 + 0.008 * rows, 0.1, 24), slots=4)
    seen = reading(meter, 12)
    assert seen.service_time_s == pytest.approx(0.008)


def test_what_the_owner_of_a_source_counts_goes_before_what_spark_sees() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    seen = reading(meter, 3)
    first = meter.counted(seen, SourceCount(500, 1000), START_S)
    assert first.arrival_rate_per_s == seen.arrival_rate_per_s and first.queue_length == 500
    then = meter.counted(seen, SourceCount(900, 3000), START_S + 5)
    assert then.arrival_rate_per_s == pytest.approx(400)
    late = meter.counted(seen, SourceCount(0, 3100), START_S + 30)
    assert late.arrival_rate_per_s == pytest.approx(100 / 25), "since the last look"
    assert meter.counted(seen, SourceCount(), START_S + 31).queue_length is None
