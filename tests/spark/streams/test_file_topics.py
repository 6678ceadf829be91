"""Topics without Spark: names, counts, lag and retention. Needs no Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.streams.chains import ROWS, some
from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.topic import Manifest


def consumer(topic: FileTopic, checkpoint: Path, name: str = "reader") -> None:
    """Registers a consumer as `read` does, without a session."""
    folder = topic.folder / "_consumers"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"checkpoint": str(checkpoint)}))


def log(path: Path, *lines: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *map(json.dumps, lines)]))


def take(checkpoint: Path, batch_id: int, files: list[tuple[int, Path]], suffix: str = "") -> None:
    """What Spark writes when a batch takes files up."""
    entries = [{"path": f.as_uri(), "timestamp": 0, "batchId": n} for n, f in files]
    log(checkpoint / "sources" / "0" / f"{batch_id}{suffix}", *entries)
    log(checkpoint / "offsets" / str(batch_id), {"conf": {}}, {"logOffset": batch_id})


def data(topic: FileTopic, manifest: Manifest) -> Path:
    return topic.folder / manifest.name / "part-00000.parquet"


def test_a_repeated_batch_changes_nothing_and_an_unfinished_one_is_not_there(
    tmp_path: Path,
) -> None:
    topic = FileTopic(tmp_path / "t", ROWS)
    first = topic.append(some(0, 10), "feed", batch_id=0)
    assert topic.append(some(50, 3), "feed", batch_id=0) == first
    topic.append(some(10, 5), "feed")
    topic.append(some(15, 1), "feed", batch_id=7)
    with pytest.raises(InputError, match="number batches upwards"):
        topic.append(some(16, 1), "feed", batch_id=6)
    (tmp_path / "t" / f".feed-{2:012d}-torn").mkdir()
    topic.append([], "other")

    again = FileTopic(tmp_path / "t")  # another process
    assert [(m.producer, m.batch_id, m.counts.written) for m in again.batches()] == [
        ("feed", 0, 10),
        ("feed", 1, 5),
        ("feed", 7, 1),
        ("other", 0, 0),
    ]
    assert again.totals("feed") == Counts(seen=16, written=16)
    again.sweep("feed")
    assert not list((tmp_path / "t").glob(".feed*"))


def test_two_writers_of_one_name_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rival = FileTopic(tmp_path / "t", ROWS), FileTopic(tmp_path / "t", ROWS)
    hidden = topic._hidden
    rivals = [some(10, 1)]

    def slow(manifest: Manifest) -> Path:
        if rivals:  # the other takes the number in between
            rival.append(rivals.pop())
        return hidden(manifest)

    monkeypatch.setattr(topic, "_hidden", slow)
    topic.append(some(0, 2))
    assert [m.counts.written for m in topic.batches()] == [1, 2]


def test_another_schema_is_refused(tmp_path: Path) -> None:
    FileTopic(tmp_path / "t", ROWS)
    with pytest.raises(InputError, match="as when the topic was created"):
        FileTopic(tmp_path / "t", StructType([StructField("id", StringType())]))
    with pytest.raises(InputError, match="given for a new topic"):
        FileTopic(tmp_path / "new")


def test_lag_is_what_is_published_and_not_committed(tmp_path: Path) -> None:
    topic, checkpoint = FileTopic(tmp_path / "t", ROWS), tmp_path / "checkpoint"
    batches = [topic.append(some(0, n)) for n in range(1, 13)]
    consumer(topic, checkpoint)
    assert topic.lag_items("reader") == 78
    taken = [(n, data(topic, batch)) for n, batch in enumerate(batches)]
    for n in range(9):
        take(checkpoint, n, [taken[n]])
    assert topic.lag_items("reader") == 78  # taken up, not committed
    log(checkpoint / "commits" / "8", {})
    assert topic.lag_items("reader") == 78 - 45
    assert topic.items_in(Checkpoint(checkpoint), 8) == 9

    take(checkpoint, 9, taken[:10], ".compact")
    for n in range(9):  # Spark removes what the compact entry repeats
        (checkpoint / "sources" / "0" / str(n)).unlink()
    take(checkpoint, 10, [taken[10]])
    log(checkpoint / "commits" / "10", {})
    assert topic.items_in(Checkpoint(checkpoint), 9) == 10
    assert topic.lag_items("reader") == FileTopic(tmp_path / "t").lag_items("reader") == 12
    with pytest.raises(InputError, match="known are reader"):
        topic.lag_items("nobody")


def test_trim_keeps_what_somebody_needs(tmp_path: Path) -> None:
    topic = FileTopic(tmp_path / "t", ROWS)
    batches = [topic.append(some(0, n)) for n in range(1, 5)]
    assert topic.trim(0) == 0  # nobody has read it
    for name, upto in (("fast", 4), ("slow", 1)):
        consumer(topic, tmp_path / name, name)
        for n in range(upto):
            take(tmp_path / name, n, [(n, data(topic, batches[n]))])
            log(tmp_path / name / "commits" / str(n), {})
    assert topic.trim(3600) == 0
    assert topic.trim(0) == 1
    assert (topic.lag_items("fast"), topic.lag_items("slow")) == (0, 9)
    take(tmp_path / "slow", 1, [(1, data(topic, b)) for b in batches[1:]])
    log(tmp_path / "slow" / "commits" / "1", {})
    assert topic.trim(0) == 2  # the newest stays: it carries the totals
    assert topic.totals("python").written == 10
    assert topic.append(some(0, 1)).batch_id == 4


def test_an_unknown_log_is_an_error_not_a_guess(tmp_path: Path) -> None:
    log(tmp_path / "commits" / "0", {})
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(BackendError, match="only v1 is understood"):
        Checkpoint(tmp_path).committed()
    log(tmp_path / "offsets" / "0", {}, {"ticks": 17})
    with pytest.raises(BackendError, match="neither that of a file source nor of Kafka"):
        Checkpoint(tmp_path).committed()


def test_live_settings_refuse_what_makes_no_sense_and_change_nothing_then() -> None:
    live_settings = LiveSettings()
    with pytest.raises(InputError, match="parallelism of b is 0"):
        live_settings.set_parallelism({"a": 4, "b": 0})
    assert live_settings.parallelism("a") == 1
    with pytest.raises(InputError, match="shed_fraction is"):
        live_settings.shed_fraction = 1.5
    assert live_settings.shed_fraction == 0
