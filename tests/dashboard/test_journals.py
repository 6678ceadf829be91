"""Journals that grow, shrink, are replaced, or hold nonsense."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.dashboard.journals import line
from tidegate.dashboard import journals as module
from tidegate.dashboard.journals import JournalList, WatchedJournal
from tidegate.errors import BackendError, InputError
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal, Rotation
from tidegate.loop.tail import Tail
from tidegate.policies import create
from tidegate.testing.turns import large_turn


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    tail = Tail(path)
    assert list(tail.lines()) == []  # not there yet
    path.write_bytes(b"one\ntw")
    assert list(tail.lines()) == [b"one"]
    assert list(tail.lines()) == []
    with path.open("ab") as file:
        file.write(b"o\n\nthree\n")
    assert list(tail.lines()) == [b"two", b"three"]
    assert tail.line(1) == b"two\n"
    assert tail.generation == 1


def test_one_file_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link, journal = tmp_path / "a.jsonl", tmp_path / "c.jsonl"
    link.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "b.jsonl")
    journal.write_bytes(line(1))
    shown = JournalList([tmp_path])
    with journal.open("ab") as file:
        file.write(line(2))
    assert shown.refresh() and shown.refresh() is False
    (watched,) = shown.journals
    assert [row.number for row in watched.rows] == [1, 2]
    assert caplog.messages == [f"{link} is left out: No such file or directory"]
    (tmp_path / "elsewhere").write_bytes(line(1))
    shown.refresh()
    assert [known.path for known in shown.journals] == [journal, link]


def test_a_shorter_file_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    list(tail.lines())
    path.write_bytes(b"new\n")
    assert list(tail.lines()) == [b"new"]
    assert tail.generation == 2


def test_a_longer_file_with_other_lines_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    list(tail.lines())
    path.write_bytes(b"uno\ndue\ntre\n")  # the same file, written anew
    assert list(tail.lines()) == [b"uno", b"due", b"tre"]
    assert tail.generation == 2


def test_a_rotated_file_is_begun_again_even_if_it_comes_late(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    list(tail.lines())
    path.rename(tmp_path / "j.1")
    assert list(tail.lines()) == []
    path.write_bytes(b"one\n")
    assert list(tail.lines()) == [b"one"]
    assert tail.generation == 2


def test_a_book_follows_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = WatchedJournal(path, "j")
    assert not journal.refresh()
    assert journal.about()["turns"] == 0
    path.write_bytes(line(1) + line(2) + line(3)[:20])
    assert journal.refresh()
    assert [row.number for row in journal.rows] == [1, 2]
    before = journal.edition
    path.write_bytes(line(9, hosts=2))
    journal.refresh()
    assert [row.number for row in journal.rows] == [9]
    assert journal.edition != before
    path.unlink()
    assert journal.refresh()
    assert journal.rows == []


def test_a_line_that_is_no_turn_is_shown_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(line(1) + b'{"number": "x"}\n' + line(3))
    journal = WatchedJournal(path, "j")
    journal.refresh()
    assert [row.number for row in journal.rows] == [1, 0, 3]
    assert "not a turn" in (journal.rows[1].error or "")
    assert journal.turn(2)["number"] == 3
    with pytest.raises(InputError):
        journal.turn(1)
    with pytest.raises(InputError, match="between 0 and 2"):
        journal.turn(3)


def test_memory_is_bounded_and_old_turns_open_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 200)
    path = tmp_path / "j.jsonl"
    path.write_bytes(b"".join(line(n + 1) for n in range(1500)))
    journal = WatchedJournal(path, "j")
    while journal.refresh(at_most_s=0.02):
        assert len(journal.rows) <= 200
    assert journal.about()["turns"] == 1500
    assert len(journal.rows) <= 200
    kept = {row.index for row in journal.rows}
    gone = next(n for n in range(1, 1500) if n not in kept)
    assert journal.turn(gone)["number"] == gone + 1
    assert journal.turn(gone)["index"] == gone
    assert [row.index for row in journal.after(1497)] == [1498, 1499]


def test_a_long_journal_shows_its_last_turns_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECENT_TURNS", 20)
    path = tmp_path / "j.jsonl"
    with Journal(path, rotation=Rotation(max_mb=0.1)) as writer:
        for n in range(1, 131):  # most lines have only what has changed since a full one
            writer.write(large_turn(n))
        short = WatchedJournal(path, "j")
        assert short.refresh(at_most_s=0)
        assert [row.number for row in short.rows] == [1]

        monkeypatch.setattr(module, "LONG_MB", 0.2)
        journal = WatchedJournal(path, "j")
        assert journal.refresh(at_most_s=0)
        assert [row.number for row in journal.rows] == list(range(111, 131))
        assert [row.index for row in journal.rows] == list(range(110, 130))
        about = journal.about()
        assert (about["turns"], about["read"]) == (130, 0.0)
        assert journal.turn(3)["number"] == 4  # any other turn can be opened, too
        writer.write(large_turn(131))
        first, last = journal.edition, 0
        while journal.refresh(at_most_s=0):
            if journal.edition == first:
                last = journal.rows[-1].number
    assert last == 131  # a turn that was written meanwhile
    assert [row.number for row in journal.rows] == list(range(1, 132))
    assert journal.about()["read"] == 1.0
    while short.refresh():
        pass
    assert short.rows == journal.rows
    assert short.edition == journal.edition != first


def test_a_folder_shows_its_journals_also_new_ones(tmp_path: Path) -> None:
    (tmp_path / "moves.jsonl").write_text('{"move": 1}\n')
    (tmp_path / "a.jsonl").write_bytes(line(1))
    shown = JournalList([tmp_path])
    assert [journal.name for journal in shown.journals] == ["a"]
    (tmp_path / "b.jsonl").write_bytes(line(1))
    shown.refresh()
    assert [journal.name for journal in shown.journals] == ["a", "b"]
    with pytest.raises(InputError):
        shown.journal(2)


def test_wishes_are_looked_at_before_they_are_left(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line(1))
    journal = WatchedJournal(path, "j")
    assert not journal.controllable()["enabled"]
    with pytest.raises(BackendError, match="no loop is listening"):
        journal.request({"do": "pause", "value": "in"}, 0.0)
    file = ControlFile(path, create("drs", t_max_s=0.5))
    try:
        about = journal.controllable()
        assert (about["enabled"], about["policy"]) == (True, "drs")
        names = {entry["name"] for entry in about["policies"]}
        assert "ds2" in names
        assert "sarsa" not in names  # it decides on something else
        drs = next(entry for entry in about["policies"] if entry["name"] == "drs")
        assert drs["parameters"][0]["value"] == 0.5
        for plain in (
            {"do": "explode"},
            {"do": "pause", "value": "x"},
            {"do": "policy", "value": "drs", "parameters": {"t_max_s": "-1s"}},
            {"do": "policy", "value": "nobody"},
        ):
            with pytest.raises(InputError):
                journal.request(plain, 0.0)
        journal.request({"do": "policy", "value": "drs", "parameters": {"t_max_s": "2s"}}, 5.0)
        (heard,) = file.take()
        assert (heard.value, dict(heard.parameters), heard.asked_s) == ("drs", {"t_max_s": "2s"}, 5)
    finally:
        file.close()
