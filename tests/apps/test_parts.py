"""What a live run is made of, without a JVM: feed, settings, topology files."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.apps import APPLICATIONS
from tidegate.apps.application import ResultCheck, application
from tidegate.apps.factory.plant import Plant
from tidegate.apps.feed import TopicFeed
from tidegate.apps.live import LiveResult, LiveRun, known_times
from tidegate.apps.profile import _one_source
from tidegate.cli.lifecycle import cleared
from tidegate.config import load_topology, save_topology
from tidegate.errors import BackendError, InputError
from tidegate.model.topology import Edge, Operator, Source, Topology
from tidegate.spark.local import session
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.topic import Manifest
from tidegate.workloads import ConstantRate

LINE = Topology(
    (Operator("a", service_time_s=0.5, service_scv=0.0), Operator("b", max_instances=2)),
    (Source("in", 12.5),),
    (Edge("in", "a"), Edge("a", "b", 0.25)),
)


class Kept:
    """A topic that keeps what is appended."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def append(self, rows: pa.Table, producer: str) -> Manifest:
        self.tables.append(rows)
        return Manifest(producer, len(self.tables) - 1)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def fed(replays: bool, **settings: Any) -> tuple[TopicFeed, Clock, Kept, list[int]]:
    firsts: list[int] = []
    app = application("max-price")

    def generate(source: str, moments: Any, first_id: int, random: Any) -> pa.Table:
        firsts.append(first_id)
        return app.generate(source, moments, first_id, random)

    clock, topic = Clock(), Kept()
    marked = replace(app, generate=generate, replays=replays)
    workload = ConstantRate(50, 1e6, seed=1, source="stocks")
    topics: Any = {"stocks": topic}
    return TopicFeed(marked, topics, workload, clock=clock, **settings), clock, topic, firsts


@pytest.mark.parametrize(("replays", "after"), [(False, 100), (True, 0)])
def test_a_recording_begins_anew_and_a_generator_goes_on(replays: bool, after: int) -> None:
    feed, clock, topic, firsts = fed(replays)
    clock.now_s += 2
    even = ConstantRate(50, 1e6, seed=2, source="stocks")
    feed.play(even)
    before = feed.made["stocks"]
    clock.now_s += 2
    feed._publish_due()
    assert firsts == [0, before if after else 0]
    assert feed.rows == sum(t.num_rows for t in topic.tables) == feed.made["stocks"] > before > 50


def test_a_feed_follows_its_workload_and_remembers_what_it_published() -> None:
    feed, clock, topic, _ = fed(False)
    for _ in range(12):
        clock.now_s += 5
        feed._publish_due()
    expected = ConstantRate(50, 1e6, seed=1, source="stocks").arrivals(0, 60)["stocks"] + 1_000
    assert np.allclose(np.concatenate([b.event_s for b in feed.published]), expected)
    assert [b.name for b in feed.published] == [f"feed-{n:012d}" for n in range(12)]
    assert [len(b.event_s) for b in feed.published] == [t.num_rows for t in topic.tables]


def test_a_feed_changes_its_workload_and_stops() -> None:
    topics: Any = {"stocks": Kept()}
    slow, fast = (ConstantRate(rate, 1e6, source="stocks") for rate in (200, 2000))
    feed = TopicFeed(application("max-price"), topics, slow, every_s=0.05).start()
    time.sleep(0.3)
    began_s = feed.play(fast)
    time.sleep(0.3)
    feed.stop()
    feed.stop()
    rows = feed.rows
    before = sum(int((batch.event_s < began_s).sum()) for batch in feed.published)
    assert 0 < before < rows - before
    time.sleep(0.15)
    assert feed.rows == rows == sum(len(batch.event_s) for batch in feed.published)


def test_a_feed_refuses_a_pace_that_makes_no_sense() -> None:
    with pytest.raises(InputError, match="every_s is 0"):
        fed(False, every_s=0)


def test_bad_rows_are_added_to_the_good_ones() -> None:
    feed, clock, topic, _ = fed(False, bad=0.5)
    clock.now_s += 10
    feed._publish_due()
    (table,) = topic.tables
    assert 1.3 * feed.made["stocks"] < table.num_rows == feed.rows < 1.7 * feed.made["stocks"]


def test_a_feed_that_fails_says_so() -> None:
    feed, _, topic, _ = fed(False)

    def full(rows: pa.Table, producer: str) -> Manifest:
        raise OSError("no space left")

    topic.append = full  # type: ignore[method-assign]
    feed.start()
    feed._clock.now_s += 5  # type: ignore[attr-defined]
    feed._thread.join(30)
    feed.stop()
    assert str(feed.error) == "no space left"


def test_a_topology_file_gives_back_what_was_written(tmp_path: Path) -> None:
    save_topology(LINE, tmp_path / "new" / "line.yaml", "a line")
    assert load_topology(tmp_path / "new" / "line.yaml") == LINE
    text = (tmp_path / "new" / "line.yaml").read_text()
    assert text.startswith("# a line\n") and "slo_s" not in text and "counted" not in text
    with pytest.raises(InputError, match="can be written"):
        save_topology(LINE, tmp_path / "new")


def test_known_times_are_those_of_the_same_operators() -> None:
    model = replace(LINE, operators=tuple(replace(o, service_time_s=None) for o in LINE.operators))
    assert known_times(model, None) is model
    assert known_times(model, LINE).by_name["a"].service_time_s == 0.5
    with pytest.raises(InputError, match="the application's own operators"):
        known_times(application("ticks").topology.model(), LINE)


def test_a_known_ratio_counts_until_it_was_counted() -> None:
    first, last = LINE.edges[0], LINE.edges[-1]
    running = replace(LINE, edges=(replace(first, ratio=7.0), *LINE.edges[1:-1],
                                   replace(last, ratio=0.3, counted=True)))  # fmt: skip
    edges = known_times(running, LINE).edges
    assert edges[0] == first
    assert edges[-1] == replace(last, ratio=0.3, counted=True)


def test_one_source_brings_the_rates_of_several() -> None:
    several = Topology(
        LINE.operators,
        (Source("x", 30.0), Source("y", 10.0)),
        (Edge("x", "a"), Edge("y", "a", 2.0), Edge("y", "b"), Edge("a", "b", 0.5)),
    )
    one = _one_source(several)
    assert one.sources == (Source("input", 40.0),)
    assert one.arrival_rates() == several.arrival_rates() == {"a": 50.0, "b": 35.0}
    assert _one_source(LINE) is LINE


def test_a_run_knows_its_rates_and_what_it_cannot_do(tmp_path: Path) -> None:
    run = LiveRun(application("max-price"), tmp_path, rate=2.0, seconds=80.0)
    assert run.rates_per_s == {"stocks": pytest.approx(60_000)}
    assert run.slo_s == 10.0
    moments = run.workload().arrivals(0, 80)["stocks"]
    steps = np.histogram(moments, np.arange(0, 81, 10))[0]
    assert steps.max() > 3 * steps.min()
    with pytest.raises(InputError, match="no bad rows"):
        LiveRun(replace(run.application, spoil=None), tmp_path, bad=0.1)


def test_operators_may_have_their_own_latency_target(tmp_path: Path) -> None:
    run = LiveRun(application("max-price"), tmp_path, slo="merge=2s,30s")
    assert (run.slo_s, run.slo_by_query.of("merge")) == (30.0, 2.0)
    with pytest.raises(InputError, match=r"slo is 'marge=…'.*they are maxima, merge"):
        LiveRun(application("max-price"), tmp_path, slo="marge=2s,30s")


def test_unknown_applications_are_named() -> None:
    with pytest.raises(InputError, match=", ".join(APPLICATIONS)):
        application("word-count")


def test_item_counts_say_where_each_item_went() -> None:
    topology = application("max-price").topology
    counts = {"maxima": Counts(seen=1000, dropped=300, written=75), "merge": Counts(75, 0, 60)}
    rejected = {"maxima": {"no text": 20, "malformed JSON": 5}}
    result = LiveResult(0.0, 1.0, 1000, 1.0, counts, ResultCheck({}, {}, {}, rejected))
    # What maxima has set aside is in its topic, and never came to merge.
    assert result.item_counts(topology) == [
        ("maxima", 1000, 300, 25, 675, 50),
        ("merge", 50, 0, 0, 50, 60),
    ]


def test_the_trickle_before_a_run_is_one_for_slow_applications_too(tmp_path: Path) -> None:
    app = application("factory", reader="own")
    trickle = LiveRun(app, tmp_path, rate=0.6).steady("trickle")
    second = {s: n[0] for s, n in trickle.expected(np.array([0.0, 1.0])).items()}
    assert second == pytest.approx({"S1": 2.5, "S2": 1.0, "S3": 5.0})


def test_a_run_keeps_its_hands_off_data_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    assert list(cleared(tmp_path).iterdir()) == []
    (tmp_path / "data" / "topics").mkdir(parents=True)
    cleared(tmp_path)
    (tmp_path / "data" / "topics").rename(tmp_path / "data" / "letters")
    with pytest.raises(InputError, match="would be lost: choose another folder"):
        cleared(tmp_path)


def test_the_factory_spoils_messages_of_every_source() -> None:
    plant, random = Plant(), np.random.default_rng(1)
    for source in ("S1", "S2", "S3"):
        good = plant.generate(source, np.arange(12.0), 0, random)
        bad = plant.spoil(good, 0.5, random)
        assert bad.schema == good.schema and bad.drop_columns(bad.column_names[-1]) == (
            good.drop_columns(good.column_names[-1])
        )
        changed = [a != b for a, b in zip(good[-1].to_pylist(), bad[-1].to_pylist(), strict=True)]
        assert 0 < sum(changed) < 12


def test_missing_java_and_memory_are_sentences_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BackendError, match="no bin/java: install a Java 17"):
        session.check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(BackendError, match=r"needs Java 17 or later.*11\.0\.2"):
        session.check_java()
    monkeypatch.setattr(session, "memory_available_mb", lambda: 4000.0)
    assert session.hosts_that_fit(4, 512) == 2
    monkeypatch.setattr(session, "memory_available_mb", lambda: 1000.0)
    with pytest.raises(BackendError, match="1000 MB of free memory"):
        session.hosts_that_fit(4, 512)
    monkeypatch.setattr(session, "memory_available_mb", lambda: None)
    assert session.hosts_that_fit(4, 512) == 4
