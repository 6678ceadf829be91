from __future__ import annotations

import logging
from typing import Any

import pytest

from tidegate.spark.autoscaler import query_watch as module
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.gateway import QueryStatus, Trigger
from tidegate.spark.autoscaler.query_watch import QueryWatch
from tidegate.spark.autoscaler.sightings import read_status
from tidegate.testing.spark import START_S, FakeGateway, progress_json


def watched(gateway: FakeGateway) -> QueryWatch:
    watch = QueryWatch(gateway, window_s=20, warm_up_s=0)
    gateway.listen(watch.hear)
    return watch


def look(watch: QueryWatch, gateway: FakeGateway, executors: int = 1) -> None:
    here = dict.fromkeys(map(str, range(executors)), gateway.now_s)
    watch.look(gateway.now_s, 2 * executors, here)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("ContinuousTrigger", "a continuous trigger"), ("RealTimeTrigger", "a real-time trigger")],
)
def test_a_query_without_micro_batches_is_refused_in_a_sentence(kind: str, words: str) -> None:
    gateway = FakeGateway()
    gateway.query("ticks", trigger_s=2)
    watch = watched(gateway)
    look(watch, gateway)
    assert watch.refused() == ""
    gateway.query("alerts")
    gateway.triggers["id-of-alerts"] = Trigger(kind)
    look(watch, gateway)
    assert watch.refused().startswith(f"query alerts has {words}, which cannot be scaled: exec")
    del gateway.queries["id-of-alerts"]
    look(watch, gateway)
    assert watch.refused() == "", "it has ended"


def test_events_that_nobody_reads_are_dropped_and_measuring_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_HEARD", 50)
    gateway = FakeGateway()
    gateway.query("ticks")
    watch = watched(gateway)

    def hear(number: int) -> None:
        watch.hear(
            "progress",
            progress_json(batch=number, began_s=START_S + 2 * number, duration_s=1.0, rows=10),
        )

    hear(0)
    watch._digest()
    for number in range(1, 201):
        hear(number)
    watch._digest()
    (meter,) = watch.meters.values()
    assert len(meter._batches) == 50 and meter.last is not None and meter.last.batch == 200
    assert "150 events of queries were not read in time" in caplog.text
    hear(201)
    watch._digest()
    assert len(meter._batches) == 51 and caplog.text.count("not read in time") == 1


def test_a_query_that_waits_for_its_first_row_is_idle_before_spark_reports_it() -> None:
    gateway = FakeGateway()
    gateway.query("quiet", trigger_s=2)
    watch = watched(gateway)
    look(watch, gateway)
    assert watch.reading("quiet", gateway.now_s, None).arrival_rate_per_s is None
    gateway.statuses["id-of-quiet"] = QueryStatus(idle=True, run="run-of-quiet")
    look(watch, gateway)
    seen = watch.reading("quiet", gateway.now_s, None)
    assert seen.arrival_rate_per_s == 0 and seen.queue_length == 0


def test_a_query_that_falls_idle_is_noticed_between_two_idle_events() -> None:
    gateway = FakeGateway()
    gateway.query("ticks", trigger_s=2)
    watch = watched(gateway)
    for number in range(5):
        gateway.advance(2)
        gateway.batch("ticks", number, rows=100)
    look(watch, gateway)
    before = watch.reading("ticks", gateway.now_s, None).arrival_rate_per_s
    gateway.statuses["id-of-ticks"] = QueryStatus(idle=True, run="run-of-ticks")
    gateway.advance(8)
    look(watch, gateway)
    after = watch.reading("ticks", gateway.now_s, None).arrival_rate_per_s
    assert before == pytest.approx(50) and after is not None and 0 < after < 40
    gateway.advance(30)
    look(watch, gateway)
    gateway.advance(30)
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).arrival_rate_per_s == 0


def test_a_first_batch_that_runs_for_long_shows_as_a_delay() -> None:
    gateway = FakeGateway()
    gateway.query("ticks", trigger_s=2)
    watch = watched(gateway)
    gateway.statuses["id-of-ticks"] = QueryStatus(began_s=gateway.now_s)
    gateway.advance(60)
    look(watch, gateway)
    seen = watch.reading("ticks", gateway.now_s, None)
    assert seen.delay.at_least and seen.delay.p95_s == pytest.approx(60)
    assert seen.arrival_rate_per_s is None


def test_a_source_that_does_not_answer_shows_with_and_without_a_batch_before() -> None:
    gateway = FakeGateway()
    gateway.query("ticks", trigger_s=2)
    watch = watched(gateway)
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).source_wait_s is None
    gateway.statuses["id-of-ticks"] = QueryStatus(asked_s=gateway.now_s)
    gateway.advance(8)
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).source_wait_s == pytest.approx(8)
    took_ms = {"triggerExecution": 9500, "latestOffset": 9000, "getOffset": 250}
    gateway.statuses["id-of-ticks"] = QueryStatus()
    gateway.publish("progress", progress_json("ticks", 0, rows=10, durationMs=took_ms))
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).source_wait_s == pytest.approx(9.25)
    gateway.statuses["id-of-ticks"] = QueryStatus(asked_s=gateway.now_s)
    gateway.advance(4)
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).source_wait_s == pytest.approx(9.25)
    gateway.advance(8)
    look(watch, gateway)
    assert watch.reading("ticks", gateway.now_s, None).source_wait_s == pytest.approx(12)


def status(message: str, trigger: bool, data: bool, began_ms: float | None = 7_000) -> QueryStatus:
    seen = {"message": message, "isTriggerActive": trigger, "isDataAvailable": data}
    return read_status(seen, "r", began_ms)


def test_a_query_asks_its_sources_before_it_knows_whether_there_is_data() -> None:
    asks = "Getting offsets from KafkaV2[Subscribe[t]]"
    assert status(asks, True, False) == QueryStatus(run="r", asked_s=7.0)
    assert status(asks, True, True) == QueryStatus(began_s=7.0, run="r", asked_s=7.0)
    assert status(asks, True, False, None) == QueryStatus(run="r"), "since when is unknown"
    assert status("Processing new data", True, True) == QueryStatus(began_s=7.0, run="r")
    assert status("Waiting for data to arrive", False, False) == QueryStatus(idle=True, run="r")
    assert status("Waiting for next trigger", False, True) == QueryStatus(run="r")


def test_the_limits_of_the_sources_are_in_the_reading() -> None:
    gateway = FakeGateway()
    gateway.query("ticks", trigger_s=2)
    gateway.limits["id-of-ticks"] = ((SourceLimit("rows", 5000, "KafkaV2[Subscribe[t]]"),),)
    watch = watched(gateway)
    gateway.batch("ticks", 0, rows=100)
    look(watch, gateway)
    batches = watch.reading("ticks", gateway.now_s, None).batches
    assert batches is not None
    assert (batches.max_rows, batches.admission) == (5000, "maxOffsetsPerTrigger=5000")


def test_queries_of_two_sessions_with_one_name_are_measured_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = FakeGateway()
    for session in ("a", "b"):
        gateway.queries[session] = "alerts"
        gateway.triggers[session] = Trigger("ProcessingTimeTrigger", 2)
    watch = watched(gateway)
    for number in range(5):
        gateway.advance(2)
        for session, rows in (("a", 100), ("b", 20)):
            event = progress_json(
                "alerts", number, gateway.now_s - 1, rows=rows, run=f"run-{session}", id=session
            )
            gateway.publish("progress", event)
        gateway.queries = dict(reversed(gateway.queries.items()))  # Spark lists them in any order
        look(watch, gateway)
    assert watch.active == {"a": "alerts", "b": "alerts (2)"}
    rates = [
        watch.reading(name, gateway.now_s, None).arrival_rate_per_s
        for name in ("alerts", "alerts (2)")
    ]
    assert rates == pytest.approx([50, 10])
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("several sessions run a query named alerts; one of them is called alert")
    gateway.publish("ended", "run-a\n")
    del gateway.queries["a"]
    look(watch, gateway)
    assert set(watch.meters) == {"alerts (2)"}, "the other one keeps its name"


def test_a_query_that_is_started_anew_under_another_id_has_the_name_of_the_first() -> None:
    gateway = FakeGateway()
    gateway.queries["a"] = "alerts"
    watch = watched(gateway)
    gateway.publish("progress", progress_json("alerts", 7, rows=9, run="run-a", id="a"))
    look(watch, gateway)
    gateway.queries = {"b": "alerts"}
    gateway.publish("progress", progress_json("alerts", 0, rows=9, run="run-b", id="b"))
    gateway.publish("progress", progress_json("alerts", 8, rows=9, run="run-a", id="a"))
    look(watch, gateway)
    assert watch.active == {"b": "alerts"}
    assert watch.meters["alerts"].run == "run-b", "a late event of the one that ended is left out"


STATE = {"stateOperators": [{"memoryUsedBytes": 2**20, "numShufflePartitions": 8}]}


@pytest.mark.parametrize(
    ("wait", "executors", "state", "warns"),
    [
        (None, 2, STATE, True),
        ("3000", 2, STATE, True),
        ("0", 2, STATE, False),
        ("0s", 2, STATE, False),
        ("100ms", 2, STATE, False),
        (None, 1, STATE, False),
        (None, 2, {}, False),
    ],
)
def test_a_locality_wait_that_keeps_state_from_new_executors_is_warned_of_once(
    wait: str | None,
    executors: int,
    state: dict[str, Any],
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = FakeGateway(executors)
    gateway.query("counts", trigger_s=2)
    if wait is not None:
        gateway.settings["spark.locality.wait"] = wait
    watch = watched(gateway)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            gateway.advance(2)
            gateway.batch("counts", number, rows=100, **state)
            look(watch, gateway, executors)
    said = [r.getMessage() for r in caplog.records if "spark.locality.wait=0" in r.getMessage()]
    assert len(said) == warns
