"""Progress events as a real Spark 4.3 told them (`tests/spark/autoscaler/record.py`), read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.spark.autoscaler.recordings import FIXTURES, events, recorded
from tidegate.errors import InputError
from tidegate.spark.autoscaler import progress
from tidegate.spark.autoscaler.progress import (
    SourceLag,
    lag_of,
    read_progress,
    register_lag,
)
from tidegate.testing.spark import progress_json

SCENARIOS = ("failing", "files", "files_limited", "kafka", "rate", "stateful", "two")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recorded_event_is_read(scenario: str) -> None:
    read = recorded(scenario)
    assert read
    for one in read:
        assert one.began_s > 1.7e9
        assert one.idle or (one.batch >= 0 and 0 < one.duration_s < 120)
    kinds = [kind for kind, _ in events(scenario)]
    assert kinds[0] == "started" and kinds[-1] == "ended"


def test_no_machine_is_in_the_recordings() -> None:
    for path in FIXTURES.iterdir():
        text = path.read_text(encoding="utf-8")
        assert all(found == "/data/in" for found in re.findall(r"file:(/[^\]\s\"]*)", text))


@pytest.mark.parametrize("scenario", ["files", "files_limited", "rate", "stateful", "two"])
def test_a_source_that_reports_no_lag_leaves_it_missing(scenario: str) -> None:
    assert {one.lag for one in recorded(scenario)} == {SourceLag()}


def test_kafka_tells_how_far_behind_its_latest_offsets_a_query_is() -> None:
    batches = [one for one in recorded("kafka") if not one.idle]
    assert [one.lag.items for one in batches] == [300, 200, 100, 0, 0]
    assert [one.rows for one in batches] == [100, 100, 100, 100, 30]


def test_event_times_and_state_come_with_a_watermark() -> None:
    with_rows = [one for one in recorded("stateful") if one.rows]
    for one in with_rows:
        assert one.event_time is not None
        assert one.event_time.min_s <= one.event_time.mean_s <= one.event_time.max_s
        assert one.event_time.max_s < one.committed_s
        assert one.state_partitions == 2
        assert one.state_rows is not None and one.state_mb is not None
    assert any(one.event_time is None for one in recorded("stateful") if not one.rows), (
        "a batch that only moves the watermark has no event times"
    )
    assert all(one.state_rows is None and one.state_partitions is None for one in recorded("rate"))


def test_an_idle_event_has_ids_and_a_time() -> None:
    idle = [one for one in recorded("files") if one.idle]
    batch = recorded("files")[0]
    assert idle and all((one.query, one.run) == (batch.query, batch.run) for one in idle)
    assert all(one.rows == 0 and one.duration_s == 0 and one.lag == SourceLag() for one in idle)


def test_a_restarted_query_keeps_its_id_and_gets_a_new_run() -> None:
    ended = [text for kind, text in events("failing") if kind == "ended"]
    assert "USER_RAISED_EXCEPTION" in ended[0] and "\n" not in ended[1]
    read = recorded("failing")
    assert len({one.query for one in read}) == 1 and len({one.run for one in read}) == 2
    assert [one.batch for one in read if one.rows] == [0, 1, 2]


def test_two_queries_are_told_apart() -> None:
    assert {one.name for one in recorded("two")} == {"left", "right"}
    assert len({one.query for one in recorded("two")}) == 2


def test_a_query_without_a_name_is_called_by_its_id() -> None:
    unnamed = progress_json("x").replace('"name": "x"', '"name": null')
    assert read_progress(unnamed).name == "id-of-x"


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([], SourceLag()),
        ([{"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 5, "1": 2}}}], SourceLag()),
        ([{"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 5}}}], SourceLag(items=0)),
        ([{"endOffset": 3, "latestOffset": 7}], SourceLag()),
        ([{"metrics": {"numFilesOutstanding": "4"}}], SourceLag(files=4)),
        ([{"metrics": {"numBytesOutstanding": "nan"}}], SourceLag()),
        ([{"metrics": {"numFilesOutstanding": "4"}}, {}], SourceLag()),
        ([{"metrics": {"numFilesOutstanding": "4"}}] * 2, SourceLag(files=8)),
    ],
)
def test_lag_is_missing_as_soon_as_one_source_does_not_tell(sources: Any, lag: SourceLag) -> None:
    assert lag_of(sources) == lag


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"timestamp": "today", "runId": 1}'])
def test_what_is_no_progress_event_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a progress event of Spark's"):
        read_progress(text)


def test_the_lag_of_a_new_source_takes_one_function() -> None:
    source = {"description": "PulsarSource[ticks]", "metrics": {"backlog": "12"}}
    assert lag_of([source]) == SourceLag()

    @register_lag("PulsarSource[")
    def pulsar_lag(source: Mapping[str, Any]) -> float:
        return float(source["metrics"]["backlog"])

    try:
        kafka = {
            "description": "KafkaV2[Subscribe[t]]",
            "endOffset": {"t": {"0": 1}},
            "latestOffset": {"t": {"0": 5}},
        }
        assert lag_of([source, kafka]) == SourceLag(items=16)
    finally:
        del progress._LAGS["PulsarSource["]
