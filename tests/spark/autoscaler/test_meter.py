from __future__ import annotations

from typing import Any

import pytest

from tests.spark.autoscaler.recordings import recorded
from tidegate.model import FirstBatch, Latency, OperatorReading
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.jobs import JobWork, StageWork
from tidegate.spark.autoscaler.meter import KEPT, QueryMeter, SourceCount, latency_of
from tidegate.spark.autoscaler.progress import Progress, read_progress
from tidegate.spark.autoscaler.query_topology import part_of
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
    assert QueryMeter().state_partitions is None and QueryMeter().cost() is None


def test_one_batch_tells_no_rate() -> None:
    seen = reading(fed(batch(0, 0, 100)), 1)
    assert seen.arrival_rate_per_s is None and seen.processed_per_s is None
    assert seen.queue_length is None and seen.service_time_s is None


def test_the_first_batch_of_a_run_is_named_since_no_rate_counts_it() -> None:
    meter = fed(batch(0, 0, 10_000, took_s=600.0))
    first = FirstBatch(10_000.0, 600.0, START_S + 600)
    assert reading(meter, 605).first_batch == first
    meter.add(batch(1, 600, 10))
    seen = reading(meter, 605)
    assert seen.first_batch == first and seen.processed_per_s == pytest.approx(10)
    assert reading(fed(idle(0), batch(0, 1, 10)), 3).first_batch is None, "it is in the rate"
    half = part_of(seen, "ticks-1", 2).first_batch
    assert half is not None and half.rows == 5_000


def test_rates_are_rows_over_the_time_from_batch_to_batch() -> None:
    meter = fed(batch(0, 0, 999), batch(1, 2, 100), batch(2, 4, 300, took_s=2.0))
    seen = reading(meter, 6)
    assert seen.arrival_rate_per_s == pytest.approx(400 / 4)
    assert seen.processed_per_s == pytest.approx(400 / 5)


def test_shed_rows_were_offered_but_not_processed() -> None:
    meter = fed(batch(0, 0, 999), batch(1, 2, 100), batch(2, 4, 300, took_s=2.0))
    assert reading(meter, 6).dropped_per_s is None, "not measured"
    meter.shed = {1: 20, 2: 180}
    seen = reading(meter, 6)
    assert seen.arrival_rate_per_s == pytest.approx(400 / 4)
    assert seen.processed_per_s == pytest.approx(200 / 5)
    assert seen.shed_per_s == seen.dropped_per_s == pytest.approx(200 / 5)
    assert sum(rows for _, rows in meter.latencies(START_S + 6)) == pytest.approx(80 + 120)
    half = part_of(seen, "ticks-1", 2)
    assert half.shed_per_s == pytest.approx(20)


def test_what_a_row_takes_is_learnt_from_the_rows_that_were_processed() -> None:
    rows = {number: 1000 + 500 * (number % 2) for number in range(8)}
    taken = {}
    for shed in (rows, {}):
        meter = QueryMeter(warm_up_s=0.0)
        meter.shed = shed
        for number, kept in rows.items():
            meter.add(batch(number, 2.0 * number, 2 * kept, took_s=kept / 4000))
            meter.add_work(JobWork(number, number, 0.001 * kept, 0.001 * kept, 4), 4)
        taken[bool(shed)] = reading(meter, 16).service_time_s
    assert taken[True] == pytest.approx(0.001, rel=0.05)
    assert taken[False] == pytest.approx(0.0005, rel=0.05), "as if shed rows had cost something"


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
    meter.add_work(JobWork(7, None, 99.0, 1.0, 500), slots=2)
    assert meter.ceiling == 4, "a job of no batch is passed over"


def test_a_new_run_begins_afresh() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    meter.add_work(JobWork(5, 1, 1.0, 1.0, 4), slots=2)
    meter.add(batch(2, 60, 100, run="another"))
    assert meter.run == "another" and meter.ceiling is None
    assert reading(meter, 61).arrival_rate_per_s is None, "the pause was no quiet time"


def test_event_age_is_from_event_time_and_delay_from_when_rows_could_be_read() -> None:
    old = {"min": moment(START_S - 99), "avg": moment(START_S - 98), "max": moment(START_S - 97)}
    meter = fed(batch(0, 0, 100), batch(1, 2, 100, took_s=2.0, eventTime=old))
    seen = reading(meter, 4)
    assert seen.event_age.mean_s == pytest.approx(102.0)
    assert seen.event_age.p50_s == pytest.approx(102.0, abs=0.1)
    assert seen.event_age.p99_s == pytest.approx(103.0, abs=0.1)
    assert seen.delay.mean_s == pytest.approx(3.0), "late data is not late here"
    assert seen.recent_durations_s == pytest.approx((3.0,))
    assert not seen.delay.at_least


def test_without_event_time_there_is_no_event_age() -> None:
    seen = reading(fed(batch(0, 0, 100), batch(1, 2, 100)), 3)
    assert seen.delay.mean_s == pytest.approx(2.0)  # between 1 s, its duration, and 3 s
    assert seen.event_age == Latency()


def test_rows_that_were_left_over_have_waited_since_they_arrived() -> None:
    """100 rows/s arrive, 50 are processed: rows are traced back to when they could be read."""
    meter = fed(*(batch(n, n, 50, behind=50 * n) for n in range(10)), window_s=2)
    seen = reading(meter, 10)
    assert seen.recent_durations_s is not None
    # The rows of the last batch are numbers 450 to 500, which arrived from 4 s to 4.5 s.
    assert seen.recent_durations_s[-1] == pytest.approx(10 - 4.25)
    assert list(seen.recent_durations_s) == sorted(seen.recent_durations_s), "it grows"


def test_in_overload_the_delay_is_at_least_the_backlog_over_the_throughput() -> None:
    meter = fed(*(batch(n, 2 * n, 100, behind=3000) for n in range(3)))
    seen = reading(meter, 5)
    assert seen.backlog_s == pytest.approx(60), "3,000 rows at 50 a second"
    assert seen.delay.at_least
    assert seen.delay.p95_s == pytest.approx(61) and seen.delay.mean_s == pytest.approx(61)


def test_a_batch_that_runs_for_long_has_delayed_its_rows_already() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    meter.in_flight_s = START_S + 4
    assert not reading(meter, 5).delay.at_least, "it is as young as any"
    seen = reading(meter, 44)
    assert seen.delay.at_least and seen.delay.p95_s == pytest.approx(40)
    assert seen.event_age == Latency(), "it has no event times"


def test_events_are_at_least_as_old_as_their_rows_have_waited() -> None:
    times = {"min": moment(START_S), "avg": moment(START_S + 1), "max": moment(START_S + 2)}
    meter = fed(batch(0, 0, 100), batch(1, 2, 100, eventTime=times))
    assert not reading(meter, 4).event_age.at_least
    meter.in_flight_s = START_S + 4
    seen = reading(meter, 44)
    assert seen.event_age.at_least and seen.event_age.p95_s == pytest.approx(40)


def test_a_batch_at_its_limit_may_have_left_rows_that_nobody_counted() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100), batch(2, 4, 60))
    meter.limits = ((SourceLimit("rows", 100),),)
    assert reading(meter, 5).delay.at_least
    assert reading(meter, 5).queue_length == 0, "the last one was below the limit"
    meter.add(batch(3, 6, 100))
    assert reading(meter, 7).queue_length is None
    free = fed(batch(0, 0, 100), batch(1, 2, 100))
    free.limits = ((),)
    seen = reading(free, 3)
    assert seen.queue_length == 0 and not seen.delay.at_least, "all that there was is read"


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


# --- idle queries -----------------------------------------------------------------------------


def test_a_query_that_never_had_a_row_has_a_rate_of_zero() -> None:
    seen = reading(fed(idle(START_S)), 1)
    assert seen.arrival_rate_per_s == 0 and seen.processed_per_s == 0
    assert seen.queue_length == 0 and seen.backlog_s == 0
    assert seen.service_time_s is None, "what a row takes is not known"
    assert reading(fed(batch(0, 0, 0)), 1).arrival_rate_per_s == 0, "an empty batch counts, too"


def test_rates_fall_to_zero_with_idle_events_and_rise_at_once() -> None:
    meter = fed(*(batch(n, 2 * n, 200) for n in range(10)), window_s=20)
    assert reading(meter, 20).arrival_rate_per_s == pytest.approx(100)
    for at_s in range(28, 89, 10):
        meter.add(idle(START_S + at_s))
    assert reading(meter, 88).arrival_rate_per_s == 0
    assert reading(meter, 88).delay == Latency(), "no row, no delay"
    meter.add(batch(10, 96, 600))
    assert reading(meter, 97).arrival_rate_per_s == pytest.approx(300), "those of one trigger"
    meter.add(batch(11, 98, 600))
    assert reading(meter, 99).arrival_rate_per_s == pytest.approx(300)
    assert reading(meter, 99).service_time_s is None


def test_short_pauses_are_part_of_the_rate() -> None:
    meter = fed(batch(0, 0, 100), idle(START_S + 5), batch(1, 10, 100), idle(START_S + 15))
    meter.add(batch(2, 20, 100))
    assert reading(meter, 21).arrival_rate_per_s == pytest.approx(10)


def test_a_long_quiet_time_does_not_displace_the_batches() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    for n in range(1000):
        meter.idle(START_S + 10 + n)
    assert meter.period_s == 2.0
    assert reading(meter, 1010).arrival_rate_per_s == 0


def test_rows_that_foreach_batch_reads_again_count_once() -> None:
    source = {
        "description": "KafkaV2[Subscribe[t]]",
        "startOffset": {"t": {"0": 100}},
        "endOffset": {"t": {"0": 150}},
        "latestOffset": {"t": {"0": 150}},
        "numInputRows": 150,
    }
    assert batch(0, 0, 150, sources=[source]).rows == 50
    assert batch(0, 0, 150, sources=[source | {"startOffset": None}]).rows == 150


# --- what a batch costs -----------------------------------------------------------------------


def worked(
    number: int, at_s: float, work_s: float, slots: int, longest_s: float | None = None
) -> JobWork:
    """The job of a batch that begins half a second into it.

    slots: slots that its tasks held; longest_s: duration of a task that began with the first ones.
    """
    took_s = work_s / slots if longest_s is None else longest_s
    tail_s = 0.0 if longest_s is None else longest_s - (work_s - longest_s) / (slots - 1)
    began_s = START_S + at_s + 0.5
    stage = StageWork(began_s, began_s + took_s, work_s, 32, longest_s or work_s / 32, tail_s)
    return JobWork(number, number, work_s, work_s, 32, stages=(stage,))


def test_the_three_terms_are_read_from_the_slots_that_a_batch_held() -> None:
    """0.5 s of overhead, 2 slot-seconds a batch, 1 ms a row, on 4 of an application's 12 slots."""
    meter = QueryMeter()
    for number in range(12):
        rows = 8_000 + 1_000 * (number % 5)
        work_s = 2 + rows * 0.001
        meter.add(batch(number, 20.0 * number, rows, took_s=0.5 + work_s / 4))
        meter.add_work(worked(number, 20.0 * number, work_s, slots=4), slots=12)
    seen = reading(meter, 240)
    assert seen.batches is not None and seen.batches.cost is not None
    cost = seen.batches.cost
    assert cost.overhead.value == pytest.approx(0.5, abs=0.01)
    assert cost.fixed_work.value == pytest.approx(2, rel=0.05)
    assert cost.per_row.value == pytest.approx(0.001, rel=0.05) and cost.per_row.identified
    assert cost.slots == pytest.approx(4)
    assert seen.service_time_s == cost.per_row.value
    assert seen.batches.overhead_s == cost.overhead.value


def test_a_straggler_is_told_from_overhead() -> None:
    meter = QueryMeter()
    for number in range(6):
        meter.add(batch(number, 20.0 * number, 10_000, took_s=10.5))
        meter.add_work(worked(number, 20.0 * number, 16.0, slots=4, longest_s=10.0), slots=12)
    cost = meter.cost()
    assert cost is not None and cost.skew_s is not None
    assert cost.slots == pytest.approx(4, rel=0.1)
    assert cost.skew_s == pytest.approx(6, rel=0.1)
    assert cost.overhead.value - cost.skew_s == pytest.approx(0.5, abs=0.3)


def test_empty_batches_cost_what_they_cost() -> None:
    meter = QueryMeter()
    for number in range(4):
        meter.add(batch(number, 2.0 * number, 0, took_s=1.0))
        meter.add_work(worked(number, 2.0 * number, 1.0, slots=2), slots=2)
    seen = reading(meter, 8)
    assert seen.batches is not None and seen.batches.cost is not None
    assert seen.batches.cost.fixed_work.value == pytest.approx(1.0)
    assert seen.service_time_s is None and seen.arrival_rate_per_s == 0


def test_the_first_batch_on_a_new_executor_counts_only_without_others() -> None:
    meter = QueryMeter()
    for number in range(4):
        meter.add(batch(number, 2.0 * number, 100))
        meter.add_work(JobWork(number, number, 1.0, 1.0, 8), slots=2)
    meter.executor_joined(START_S + 6.5)
    for number in (4, 5, 6):
        meter.add(batch(number, 2.0 * number, 100, took_s=1.5))
        meter.add_work(JobWork(number, number, 50.0 if number == 4 else 1.0, 1.0, 8), slots=4)
    cost = meter.cost()
    assert cost is not None and cost.per_row.high == pytest.approx(0.01)


def test_a_batch_whose_work_is_partly_unknown_does_not_count() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    for number in range(2):
        meter.add_work(JobWork(number, number, 1.0, 1.0, 8), slots=2)
        meter.incomplete(number)
    assert reading(meter, 3).service_time_s is None and meter.cost() is None


def test_batches_whose_work_is_unknown_need_constant_memory() -> None:
    meter = fed(batch(0, 0, 100))
    for number in range(5 * KEPT):
        meter.incomplete(number)
    assert len(meter._incomplete) == KEPT and 5 * KEPT - 1 in meter._incomplete


# --- ceilings ---------------------------------------------------------------------------------


def staged(*stages: tuple[float, int, bool]) -> JobWork:
    """A job with stages of (slot-seconds, tasks, whether they read files)."""
    made = tuple(StageWork(0, 1, run_s, tasks, run_s / tasks, 0, f) for run_s, tasks, f in stages)
    return JobWork(0, 0, sum(s.run_s for s in made), 0.0, 1, stages=made)


def test_the_ceiling_is_that_of_the_longest_stage() -> None:
    meter = fed(batch(0, 0, 100))
    meter.add_work(staged((1.0, 3, True), (9.0, 64, False), (0.1, 200, False)), slots=8)
    assert meter.ceiling == 64


def test_both_sides_of_a_join_run_at_the_same_time() -> None:
    meter = fed(batch(0, 0, 100))
    meter.add_work(staged((9.0, 4, False), (8.0, 4, False), (1.0, 16, False)), slots=8)
    assert meter.ceiling == 8


def test_files_are_cut_into_as_many_tasks_as_there_are_slots_so_that_is_no_ceiling() -> None:
    meter = fed(batch(0, 0, 100))
    meter.add_work(staged((9.0, 4, True), (1.0, 2, False)), slots=4)
    assert meter.ceiling is None
    few = fed(batch(0, 0, 1))
    few.add_work(staged((9.0, 1, True)), slots=4)
    assert few.ceiling == 1, "one small file is one task"


def test_batches_without_rows_do_not_lower_the_ceiling() -> None:
    meter = fed(batch(0, 0, 100), *(batch(n, n, 0) for n in range(1, 20)))
    for number in range(20):
        meter.add_work(JobWork(number, number, 1.0, 1.0, 1 if number else 16), slots=4)
    assert meter.ceiling == 16


def test_rows_per_file_and_per_byte_turn_limits_into_rows() -> None:
    meter = fed(batch(0, 0, 100), batch(1, 2, 100))
    meter.limits = ((SourceLimit("files", 20, "FileStreamSource[x]"),),)
    assert reading(meter, 3).batches.max_rows is None  # type: ignore[union-attr]
    meter.count_files(2, 999)
    meter.count_files(2, 100)
    batches = reading(meter, 3).batches
    assert batches is not None
    assert (batches.max_rows, batches.admission) == (1000, "maxFilesPerTrigger=20")
    meter.limits = ((SourceLimit("bytes", 5000),),)
    meter.add_work(JobWork(0, 0, 1.0, 1.0, 4, read_rows=100, read_bytes=1000), slots=2)
    batches = reading(meter, 3).batches
    assert batches is not None
    assert (batches.max_rows, batches.admission) == (500, "maxBytesPerTrigger=5000")


def test_the_size_of_the_state_is_read() -> None:
    states = [{"memoryUsedBytes": 3 * 2**20, "numRowsTotal": 5, "numShufflePartitions": 2}]
    assert reading(fed(batch(0, 0, 100, stateOperators=states)), 1).state_mb == 3
