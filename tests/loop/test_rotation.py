"""Journals that are rotated, locked, large, or full of nonsense at their end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import IO, Any

import pytest

from tests.dashboard.journals import line
from tidegate.cli.metrics import follow
from tidegate.dashboard.journals import JournalList, WatchedJournal
from tidegate.errors import InputError, JournalError
from tidegate.loop.journal import Journal, Rotation, Turn, last_turns, read_journal
from tidegate.loop.lock import WriterLock, try_lock
from tidegate.loop.tail import MOST_FROM_THE_END, Tail, last_lines, mend, parts_of
from tidegate.report.metrics import Metrics
from tidegate.testing import steady_snapshot

SMALL = Rotation(max_mb=0.0015, keep=100)
"""Two turns in each file."""


def turn(number: int, time_s: float = 0.0) -> Turn:
    return Turn(number, "static", steady_snapshot(time_s=time_s or 10.0 * number))


def numbers(path: Path) -> list[int]:
    return [turn.number for turn in read_journal(path)]


def write(path: Path, count: int, rotation: Rotation = SMALL, first: int = 1) -> None:
    with Journal(path, rotation) as journal:
        for number in range(first, first + count):
            journal.write(turn(number))


# --- rotation -----------------------------------------------------------------------------------


def test_a_journal_is_rotated_by_size_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 9)
    parts = parts_of(path)
    assert len(parts) > 2
    assert [part.name for part in parts] == [f"j.jsonl.{n:06d}" for n in range(1, len(parts) + 1)]
    assert all(part.stat().st_size <= 1500 for part in [*parts, path])
    assert numbers(path) == list(range(1, 10))
    write(path, 3, first=10)
    assert numbers(path) == list(range(1, 13)), "a continued journal goes on with its parts"


def test_by_default_a_journal_takes_no_more_than_is_documented() -> None:
    """A day in a file, two weeks in all, 960 MB at most."""
    rotation = Rotation()
    assert (rotation.keep + 1) * rotation.max_mb == 960
    assert rotation.keep * rotation.max_age_s == 14 * 86_400


def test_a_file_that_was_replaced_is_read_from_its_start_and_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\ntwo\n")
    tail = Tail(path)
    assert (tail.number, tail.size, tail.read_to, tail.rest) == (0, 0, 0, b"")
    assert list(tail.lines()) == [b"one", b"two"]
    assert (tail.generation, tail.number, tail.size, tail.read_to) == (1, 3, 9, 9)
    path.write_bytes(b"three\nfo")
    assert list(tail.lines()) == [b"three"]
    assert (tail.generation, tail.number, tail.size, tail.read_to) == (2, 1, 8, 6)
    assert tail.rest == b"fo" and tail.line(0) == b"three\n"
    path.write_bytes(b"THREE\nfour\n")  # as long as it was, or longer
    assert list(tail.lines()) == [b"THREE", b"four"]
    assert (tail.generation, tail.number, tail.read_to, tail.rest) == (3, 2, 11, b"")


def test_a_journal_is_rotated_by_the_age_of_its_first_turn(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    day = Rotation(max_age_s=100)
    with Journal(path, day) as journal:
        journal.write(turn(1, 1_000))
        journal.write(turn(2, 1_090))
    with Journal(path, day) as journal:  # a restart does not make it younger
        journal.write(Turn(3, "static", error="no snapshot"))
        journal.write(turn(4, 1_100))
        journal.write(turn(5, 1_199))
    assert [len(numbers(part)) for part in parts_of(path)] == [3]
    assert numbers(path) == [1, 2, 3, 4, 5]


def test_a_clock_that_goes_back_does_not_delay_the_next_rotation(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, Rotation(max_age_s=100)) as journal:
        for number, time_s in enumerate([1e6, 1e6 + 10, 50, 60, 149, 150], 1):
            journal.write(turn(number, time_s))
    assert [numbers(part) for part in parts_of(path)] == [[1, 2, 3, 4, 5]]


def test_the_oldest_parts_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 20, Rotation(max_mb=0.0015, keep=2))
    assert len(parts_of(path)) == 2
    assert numbers(path)[-1] == 20 and numbers(path)[0] > 10
    assert numbers(path) == list(range(numbers(path)[0], 21))


def test_a_journal_that_cannot_be_renamed_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    write(tmp_path / "j.jsonl", 9)
    assert numbers(tmp_path / "j.jsonl") == list(range(1, 10))
    assert len([text for text in caplog.messages if "cannot be rotated" in text]) == 1


def test_a_rotation_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"

    def refuse(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    with Journal(path, SMALL) as journal:
        for number in range(1, 13):
            with monkeypatch.context() as patch:
                if number in (4, 5, 6, 11, 12):
                    patch.setattr(Path, "rename", refuse)
                journal.write(turn(number))
            if number == 6:
                assert len(parts_of(path)) == 1
    assert len(parts_of(path)) > 2, "later writes rotate it"
    assert numbers(path) == list(range(1, 13))
    said = [text for text in caplog.messages if "cannot be rotated" in text]
    assert len(said) == 2, "once for each time that it fails"


@pytest.mark.parametrize("damaged", ["1.2.3", "--", "e"])
def test_a_damaged_time_in_the_first_turn_does_not_matter(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 2, Rotation())
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0].replace('"time_s":10.0', f'"time_s":{damaged}', 1) + lines[1])
    assert damaged in path.read_text()
    with Journal(path) as journal:
        journal.write(turn(3))
    assert numbers(path) == [2, 3]


def test_a_process_that_dies_in_the_middle_of_a_rotation_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 2)
    path.rename(tmp_path / "j.jsonl.000001")  # the new file was not begun
    assert numbers(path) == [1, 2]
    assert next(last_turns(path)).number == 2
    write(path, 1, first=3)
    assert numbers(path) == [1, 2, 3]


def test_a_file_that_somebody_removed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.write(turn(1))
        path.unlink()
        journal.write(turn(2))
        assert numbers(path) == [2]


@pytest.mark.parametrize("left", [0, 100])
@pytest.mark.parametrize("rotation", [None, Rotation()])
def test_turns_after_a_truncation_can_be_read(
    tmp_path: Path, left: int, rotation: Rotation | None
) -> None:
    path = tmp_path / "j.jsonl"
    learnt = "x" * 9_000  # so long that later lines have only what has changed

    def long(number: int) -> Turn:
        return Turn(number, "static", steady_snapshot(time_s=number), memory=[learnt, number])

    with Journal(path, rotation) as journal:
        for number in range(1, 4):
            journal.write(long(number))
        assert path.stat().st_size < 2 * len(learnt)
        os.truncate(path, left)  # as `> FILE` and `logrotate` with copytruncate do
        for number in range(4, 7):
            journal.write(long(number))
        assert path.stat().st_size < 2 * len(learnt), "the others are based on the first one"
    assert numbers(path) == [4, 5, 6]
    assert next(last_turns(path)).memory == [learnt, 6]


def test_a_journal_that_could_not_be_opened_again_is_opened_at_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.jsonl"

    def refuse(self: Path, *given: object, **more: object) -> None:
        raise OSError(24, "Too many open files")

    with Journal(path) as journal:
        journal.write(turn(1))
        path.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                journal.write(turn(2))
        journal.write(turn(3))
    assert numbers(path) == [3]


# --- readers that follow --------------------------------------------------------------------------


def test_a_follower_reads_every_line_once_whatever_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    tail = Tail(path, rotated=True)
    seen: list[int] = []
    with Journal(path, SMALL) as journal:
        for number in range(1, 30):
            journal.write(turn(number))
            if number % 7 in (0, 1, 3):  # it looks now and then, at times after two rotations
                for text in tail.lines():
                    seen.append(int(text.split(b":")[1].split(b",")[0]))
                    if len(seen) % 5 == 0:
                        break  # and at times not to the end
    seen += [int(text.split(b":")[1].split(b",")[0]) for text in tail.lines()]
    assert seen == list(range(1, 30))
    assert tail.generation == 1
    assert [tail.line(n).startswith(b'{"number":%d,' % (n + 1)) for n in range(29)] == [True] * 29
    assert tail.read_to == tail.size == sum(p.stat().st_size for p in [*parts_of(path), path])


def test_a_rotation_between_listing_and_opening_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path, rotated=True)
    listed = tail._listed
    rotated: list[bool] = []

    def listed_and_rotated() -> object:
        found = listed()
        if not rotated:
            rotated.append(True)
            path.rename(tmp_path / "j.jsonl.000001")
            path.write_bytes(b"three\n")
        return found

    monkeypatch.setattr(tail, "_listed", listed_and_rotated)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert list(tail.lines()) == [b"one", b"two", b"three"]
    assert tail.generation == 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "the wrong file is closed"


@pytest.mark.parametrize("sooner", [True, False])
def test_a_rotation_while_the_parts_are_listed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sooner: bool
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path, rotated=True)
    rotated: list[bool] = []

    def rotate() -> None:
        if not rotated:
            rotated.append(True)
            path.rename(tmp_path / "j.jsonl.000001")
            path.write_bytes(b"three\n")

    def listed(given: Path) -> list[Path]:
        if sooner:
            rotate()
        found = parts_of(given)
        rotate()
        return found

    monkeypatch.setattr("tidegate.loop.tail.parts_of", listed)
    assert [*tail.lines(), *tail.lines()] == [b"one", b"two", b"three"]
    assert tail.generation == 1


def test_a_turn_is_not_taken_from_a_new_file_with_the_inode_of_a_removed_one(
    tmp_path: Path,
) -> None:
    path, first = tmp_path / "j.jsonl", tmp_path / "j.jsonl.000001"
    first.write_bytes(b"one\n")
    path.write_bytes(b"two\n")
    tail = Tail(path, rotated=True)
    assert list(tail.lines()) == [b"one", b"two"]
    inode = first.stat().st_ino
    path.rename(tmp_path / "j.jsonl.000002")
    first.write_bytes(b"six\n")
    first.rename(path)  # as if it was removed, and the new file had its inode
    assert path.stat().st_ino == inode
    for _ in range(2):
        with pytest.raises(InputError, match="rotation has removed"):
            tail.line(0)
        assert tail.line(1) == b"two\n"
        list(tail.lines())
    assert tail.line(2) == b"six\n"


def test_a_part_without_an_end_is_read_to_its_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    (tmp_path / "j.jsonl.000002").write_bytes(b"one\ntw")
    path.write_bytes(b"three\n")
    tail = Tail(path, rotated=True)
    assert list(tail.lines()) == [b"one", b"tw", b"three"]
    assert (tail.line(1), tail.line(2)) == (b"tw", b"three\n")
    assert (tail.name, tail.number) == ("j.jsonl", 1)


def test_a_turn_whose_part_was_removed_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 5)
    tail = Tail(path, rotated=True)
    list(tail.lines())
    parts_of(path)[0].unlink()
    with pytest.raises(InputError, match="rotation has removed"):
        tail.line(0)
    assert tail.line(4).startswith(b'{"number":5,')
    assert list(tail.lines()) == [] and tail.generation == 1


def test_the_dashboard_shows_a_rotated_journal_as_one(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, SMALL) as journal:
        shown = JournalList([tmp_path])
        for number in range(1, 12):
            journal.write(turn(number))
            shown.refresh()
    (watched,) = shown.journals
    assert [row.number for row in watched.rows] == list(range(1, 12))
    assert watched.turn(0)["number"] == 1 and watched.about()["read"] == 1.0


def test_metrics_follow_a_rotated_journal(tmp_path: Path) -> None:
    path, ended, metrics = tmp_path / "j.jsonl", threading.Event(), Metrics()
    write(path, 9)
    ended.set()
    follow(path, metrics, ended)
    assert "tidegate_turns_total 9.0" in metrics.text().decode()


def test_metrics_of_a_journal_that_was_replaced_begin_again(tmp_path: Path) -> None:
    path, metrics = tmp_path / "j.jsonl", Metrics()
    write(path, 9, Rotation())

    class Replaced(threading.Event):
        """It ends after the second look; between the two, another run begins the journal anew."""

        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                self.set()
                path.unlink()
                write(path, 2, Rotation())
                return False
            return True

    follow(path, metrics, Replaced())
    assert "tidegate_turns_total 2.0" in metrics.text().decode()


# --- the end of a file ----------------------------------------------------------------------------


def test_a_large_journal_is_opened_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with path.open("wb") as file:
        file.write(line(1))
        file.seek(300_000_000)  # a hole: it reads as zeros and takes no room
        file.write(b"\n" + line(2) + line(3) + line(4)[:-20])
    next(last_turns(path))  # imports what it needs
    tracemalloc.start()
    try:
        with Journal(path, rotation=None) as journal:
            assert next(last_turns(path)).number == 3
            journal.write(turn(5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert journal.torn_bytes == len(line(4)) - 20
    assert peak < 2_000_000
    assert [turn.number for _, turn in zip(range(2), last_turns(path), strict=False)] == [5, 3]


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_lines_from_the_end_are_those_from_the_start(length: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    lines = [b"a" * 10, b"b" * length, b"c" * 70_000, b"d"]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert list(last_lines(path)) == [text for text in reversed(lines) if text]
    assert mend(path) == 0 and path.read_bytes() == b"\n".join(lines) + b"\n"
    path.write_bytes(b"\n".join(lines))
    assert mend(path) == 1, "d is torn"
    path.write_bytes(b"a\n" + b"b" * length)
    assert mend(path) == length and path.read_bytes() == b"a\n"


def test_a_file_without_lines_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(MOST_FROM_THE_END + 10)
    assert mend(path) == 0
    assert path.stat().st_size == MOST_FROM_THE_END + 11, "a new line begins after it"
    assert list(last_lines(path)) == []


def test_lines_that_begin_too_far_from_the_end_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"".join(b"%09d\n" % n for n in range(20)))
    monkeypatch.setattr("tidegate.loop.tail.FROM_THE_END", 30)
    monkeypatch.setattr("tidegate.loop.tail.MOST_FROM_THE_END", 75)
    assert [int(line) for line in last_lines(path)] == [19, 18, 17, 16, 15, 14, 13]
    monkeypatch.setattr("tidegate.loop.tail.MOST_FROM_THE_END", 200)
    assert [int(line) for line in last_lines(path)] == list(range(19, -1, -1))


def test_a_file_with_nothing_but_a_torn_line_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b'{"number": 1, "poli')
    assert mend(path) == 19
    assert path.read_bytes() == b""


def test_a_reader_of_a_file_that_grows_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    for expected in (b"one", b"more", b"more"):
        seen = []
        for found in tail.lines():
            seen.append(found)
            with path.open("ab") as file:
                file.write(b"more\n")
        assert seen == [expected]


# --- one writer -----------------------------------------------------------------------------------


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, SMALL) as journal:
        for number in range(1, 5):  # also after a rotation
            journal.write(turn(number))
            with pytest.raises(JournalError, match="no other process writes to"):
                Journal(path)
    Journal(path).close()
    assert not (tmp_path / "j.jsonl.lock").exists()


def writer(path: Path, then: str) -> subprocess.Popen[bytes]:
    """Another process that has the journal open. then: what it does next, in Python."""
    code = "import os, sys; from tidegate.loop.journal import Journal; j = Journal(sys.argv[1]);"
    return subprocess.Popen(
        [sys.executable, "-c", code + then, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_another_process_is_refused_too_and_death_gives_up_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    other = writer(path, "print('locked', flush=True); sys.stdin.read(1); os._exit(9)")
    with other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(JournalError, match="no other process writes to"):
            Journal(path)
        other.stdin.write(b"x")
    assert other.returncode == 9
    Journal(path).close()


def test_a_forked_process_does_not_hold_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    parent = writer(
        path, "os.fork() or (print('forked', flush=True), sys.stdin.read(1)); os._exit(0)"
    )
    with parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"forked\n"
        parent.wait()
        Journal(path).close()  # its child still waits


def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = WriterLock(path)
    first.close()
    first.close()
    second = WriterLock(path)
    with pytest.raises(BlockingIOError):
        WriterLock(path)
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_is_removed_while_it_is_taken_is_taken_on_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def removed_at_first(file: IO[Any]) -> bool:
        looks.append(Path(file.name))
        if len(looks) == 1:
            looks[0].unlink()
        return try_lock(file)

    with monkeypatch.context() as patch:
        patch.setattr("tidegate.loop.lock.try_lock", removed_at_first)
        lock = WriterLock(tmp_path / "j")
    assert looks == [tmp_path / "j.lock"] * 2, "the first is nobody's, the second is right"
    with pytest.raises(BlockingIOError):
        WriterLock(tmp_path / "j")
    lock.close()


def test_a_lock_is_kept_where_inodes_are_not_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def never(file: object, path: Path) -> bool:
        looks.append(path)
        assert len(looks) < 100, "it does not end"
        return False

    monkeypatch.setattr("tidegate.loop.lock._is_at", never)
    lock = WriterLock(tmp_path / "j")
    with pytest.raises(BlockingIOError):
        WriterLock(tmp_path / "j")
    lock.close()
    assert list(tmp_path.iterdir()) == []


def test_without_locks_everybody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.loop.lock.fcntl", None)  # as on Windows
    with Journal(tmp_path / "j.jsonl") as one, Journal(tmp_path / "j.jsonl") as two:
        one.write(turn(1))
        two.write(turn(2))
    assert numbers(tmp_path / "j.jsonl") == [1, 2]


def test_what_is_no_journal_is_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("milk\nbread")
    with pytest.raises(JournalError, match="a journal of Tidegate, or a new file"):
        Journal(notes)
    assert notes.read_text() == "milk\nbread"
    with pytest.raises(JournalError, match="it must be a file"):
        Journal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="it must be a file"):
        Journal(tmp_path / "pipe")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes.txt", "pipe"]


def test_a_turn_can_be_read_by_others_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    watched = WatchedJournal(path, "j")
    with Journal(path) as journal:
        for number in (1, 2, 3):
            journal.write(turn(number))
            assert numbers(path) == list(range(1, number + 1))
            assert watched.refresh() and watched.rows[-1].number == number
