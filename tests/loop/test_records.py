"""Opening what a loop keeps on disk never fails, whatever is there."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.loop.helpers import record
from tidegate.codec import to_json
from tidegate.errors import JournalError, NothingToScale
from tidegate.loop import journal as journal_module
from tidegate.loop import records as records_module
from tidegate.loop.controller import Controller
from tidegate.loop.controls import Control, ControlFile, listener_of, submit
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.records import MOST_JOURNALS, Recorder, open_records, remembered
from tidegate.policies import create
from tidegate.policies.base import Policy
from tidegate.testing import steady_snapshot
from tidegate.testing.worlds import ImaginaryWorld, RecordedWorld

LONG_S = 60.0
"""For what must happen, however slow the machine is."""
POLICY = "sarsa"
"""A policy whose memory differs from turn to turn."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Turn]]:
    """The bytes of a journal, and its turns."""
    path = tmp_path_factory.mktemp("recorded") / "j.jsonl"
    turns = record(path, POLICY, turns=6)
    return path.read_bytes(), turns


def ends(content: bytes) -> list[int]:
    """Where each line ends, without its newline."""
    return [at for at, byte in enumerate(content) if byte == 10]


def memory_of(turn: Turn) -> Any:
    return create(POLICY).load_memory(turn.memory)


def works(path: Path, policy: Policy | None = None) -> tuple[Path | None, Any, Turn]:
    """Open records and decide one turn: the journal in use, the memory found, and the turn."""
    policy = policy or create(POLICY)
    world = ImaginaryWorld(seed=3, style=policy.style)
    with open_records(path, policy) as records:
        loop = Controller(world, policy, records.journal, records.memory, 0, records.controls)
        turn = loop.step()
        assert turn.error is None and turn.plan is not None
        if records.journal is None:
            return None, records.memory, turn
        assert list(read_journal(records.journal.path))[-1] == turn
        return records.journal.path, records.memory, turn


# --- what is there --------------------------------------------------------------------------------


def test_a_damaged_line_in_the_middle_does_not_matter(
    tmp_path: Path, recorded: tuple[bytes, list[Turn]]
) -> None:
    path = tmp_path / "j.jsonl"
    lines = recorded[0].splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff\x00 nonsense\n" + b"".join(lines[1:]))
    assert works(path)[:2] == (path, memory_of(recorded[1][-1]))


def test_damaged_last_lines_leave_the_memory_of_the_last_readable_turn(
    tmp_path: Path, recorded: tuple[bytes, list[Turn]]
) -> None:
    path = tmp_path / "j.jsonl"
    lines = recorded[0].splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + b'{"number":4}\n[]\n\x00\x00\n' + lines[3][:100])
    assert works(path)[:2] == (path, memory_of(recorded[1][2]))


def test_fields_of_a_newer_version_are_ignored_with_one_warning(
    tmp_path: Path, recorded: tuple[bytes, list[Turn]], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"
    newer = []
    for text in recorded[0].splitlines():
        plain = json.loads(text)
        plain |= {"mood": "calm", "version": 2}
        plain["snapshot"]["hosts"] = [host | {"colour": 7} for host in plain["snapshot"]["hosts"]]
        newer.append(json.dumps(plain) + "\n")
    path.write_text("".join(newer).replace('{"number": ', '{"number":'))
    assert works(path)[:2] == (path, memory_of(recorded[1][-1]))
    caplog.clear()
    assert len(list(read_journal(path))) == 7
    assert caplog.messages == [
        "j.jsonl was written by a newer version, whose fields are left out: mood, "
        "snapshot.hosts.colour"
    ]


def test_a_folder_or_another_file_in_its_place_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, notes = tmp_path / "j.jsonl", tmp_path / "notes.txt"
    folder.mkdir()
    notes.write_text("buy milk")
    assert works(folder)[0] == tmp_path / "j-2.jsonl"
    assert works(notes)[0] == tmp_path / "notes-2.txt"
    assert notes.read_text() == "buy milk" and not list(folder.iterdir())
    assert caplog.messages[0].startswith("this run writes its journal to")
    assert len(caplog.messages) == 2


def test_where_nothing_can_be_written_there_is_no_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    path, memory, turn = works(tmp_path / "file" / "j.jsonl")
    assert path is None and memory is None and turn.memory is None
    (warning,) = caplog.messages
    assert "writes no journal" in warning and warning.count("\n") == 0


def test_a_journal_that_must_not_be_read_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: tuple[bytes, list[Turn]]
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(recorded[0])
    openly = Path.open

    def guarded(self: Path, *arguments: Any, **named: Any) -> Any:
        if self == path:  # root may read everything, so the mode of the file is no test
            raise PermissionError(errno.EACCES, "Permission denied")
        return openly(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", guarded)
    assert works(path)[:2] == (tmp_path / "j-2.jsonl", None)


def test_a_folder_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.loop.records.OPEN_S", 0.05)
    monkeypatch.setattr("tidegate.loop.records.Journal", lambda path: threading.Event().wait())
    assert works(tmp_path / "j.jsonl")[0] is None
    assert "did not open in 0.05 s" in caplog.text


def test_a_folder_that_answers_late_is_used_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that is very busy, a journal may take longer to open than a loop waits."""
    go, path, policy = threading.Event(), tmp_path / "j.jsonl", create("static")

    def slow(name: Path) -> Journal:
        go.wait()
        return Journal(name)

    monkeypatch.setattr("tidegate.loop.records.OPEN_S", 0.05)
    monkeypatch.setattr("tidegate.loop.records.Journal", slow)
    with open_records(path, policy) as records:
        world = RecordedWorld([steady_snapshot()] * 4)
        controller = Controller(world, policy, records.journal, records.memory)
        controller.await_files(records)
        controller.note("the port is taken")
        controller.step()
        controller.step()
        go.set()
        assert records.opening is not None and records.opening.ended(LONG_S)
        controller.step()
        controller.step()
        assert controller.controls is not None, "people can control it"
    third, fourth = read_journal(path)
    assert (third.number, fourth.number, fourth.notes) == (3, 4, ())
    assert third.notes == (
        "the port is taken",
        "the journal opened late: this run began without the memory in it",
        "2 turns before this one could not be written: the journal was not open yet",
    )


def test_a_note_is_said_once_when_a_folder_that_answers_late_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, policy = threading.Event(), create("static")

    def slow(name: Path) -> Journal:
        go.wait()
        raise JournalError("journal", str(name), "a file to write to", "Permission denied")

    monkeypatch.setattr("tidegate.loop.records.OPEN_S", 0.05)
    monkeypatch.setattr("tidegate.loop.records.Journal", slow)
    with open_records(tmp_path / "j.jsonl", policy) as records:
        controller = Controller(RecordedWorld([steady_snapshot()] * 5), policy)
        controller.await_files(records)
        assert controller.step().notes == ()
        go.set()
        assert records.opening is not None and records.opening.ended(LONG_S)
        controller.step()
        controller.note("the port is taken")
        notes = [controller.step().notes for _ in range(2)]
    assert ["the port is taken" in said for said in notes] == [True, False]


@pytest.mark.parametrize("opens_first", [True, False])
def test_a_journal_that_nobody_waits_for_is_not_kept_from_others(
    opens_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, path = threading.Event(), tmp_path / "j.jsonl"

    def slow(name: Path) -> Journal:
        go.wait()
        return Journal(name)

    with monkeypatch.context() as patched:
        patched.setattr("tidegate.loop.records.OPEN_S", 0.05)
        patched.setattr("tidegate.loop.records.Journal", slow)
        records = open_records(path, create("static"))
        assert records.opening is not None
        if not opens_first:
            records.close()
        go.set()
        assert records.opening.ended(LONG_S)
        if opens_first:
            records.close()
    Journal(path).close()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_damaged_the_loop_starts_and_its_turn_is_read_again(
    data: st.DataObject, recorded: tuple[bytes, list[Turn]], tmp_path_factory: Any
) -> None:
    """Bytes are flipped, cut out, zeroed, repeated, or the file ends anywhere."""
    content = bytearray(recorded[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        length = data.draw(st.sampled_from([1, 2, 50, 3000]))
        kind = data.draw(st.sampled_from(["flip", "cut", "zero", "repeat", "end", "newline"]))
        piece = bytes(content[at : at + length])
        new = {
            "flip": bytes(byte ^ data.draw(st.integers(1, 255)) for byte in piece[:1]) + piece[1:],
            "cut": b"",
            "zero": bytes(len(piece)),
            "repeat": piece * 2,
            "newline": b"\n" + piece,
        }
        if kind == "end":
            del content[at:]
        else:
            content[at : at + length] = new[kind]
    path = tmp_path_factory.mktemp("damaged") / "j.jsonl"
    path.write_bytes(content)
    assert works(path)[0] is not None


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_wherever_a_journal_ends_the_memory_is_that_of_its_last_whole_turn(
    data: st.DataObject, recorded: tuple[bytes, list[Turn]], tmp_path_factory: Any
) -> None:
    content = recorded[0][: data.draw(st.integers(0, len(recorded[0])))]
    path = tmp_path_factory.mktemp("torn") / "j.jsonl"
    path.write_bytes(content)
    whole = sum(end <= len(content) for end in ends(recorded[0]))
    expected = memory_of(recorded[1][whole - 1]) if whole else None
    assert works(path)[:2] == (path, expected)


def test_the_first_turn_after_a_torn_line_says_so(
    recorded: tuple[bytes, list[Turn]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, policy = tmp_path / "j.jsonl", create("static")
    path.write_bytes(recorded[0][:-40])
    torn = len(recorded[0]) - 40 - ends(recorded[0])[-2] - 1
    with open_records(path, policy) as records:
        loop = Controller(RecordedWorld([steady_snapshot()] * 2), policy, records.journal)
        assert loop.step().notes == (
            f"the journal ended with {torn} bytes of a torn line: removed",
        )
        assert loop.step().notes == ()
    assert len([text for text in caplog.messages if "of a torn line" in text]) == 1


# --- two applications in one folder ---------------------------------------------------------------


def test_a_second_application_writes_next_to_the_first_and_leaves_its_controls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, policy = tmp_path / "tidegate.jsonl", create("static")
    with open_records(path, policy) as first, open_records(path, policy) as second:
        assert first.journal is not None and second.journal is not None
        assert second.journal.path == tmp_path / "tidegate-2.jsonl"
        assert [text for text in caplog.messages if "tidegate-2.jsonl" in text]
        one = Controller(RecordedWorld([steady_snapshot()] * 3), policy, first.journal)
        two = Controller(RecordedWorld([steady_snapshot()] * 3), policy, second.journal)
        for _ in range(3):
            one.step()
            two.step()
        submit(path, Control("pause", "both"))
        assert first.controls is not None and second.controls is not None
        assert len(first.controls.take()) == 1 and second.controls.take() == []
    assert [turn.number for turn in read_journal(path)] == [1, 2, 3]
    assert [turn.number for turn in read_journal(second.journal.path)] == [1, 2, 3]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tidegate-2.jsonl", path.name]


def test_after_many_applications_one_goes_without_a_journal(tmp_path: Path) -> None:
    path, policy = tmp_path / "t.jsonl", create("static")
    many = [open_records(path, policy) for _ in range(MOST_JOURNALS + 1)]
    used = [records.journal is not None for records in many]
    for records in many:
        records.close()
    assert used == [True] * MOST_JOURNALS + [False]


def test_a_control_file_that_another_loop_listens_to_stays(tmp_path: Path) -> None:
    path, policy = tmp_path / "t.jsonl", create("static")
    listening = ControlFile(path, policy)
    with open_records(path, policy) as records:
        assert records.journal is not None and records.controls is None
        assert listener_of(path) is not None
    listening.close()


# --- memory ---------------------------------------------------------------------------------------


def test_a_memory_that_the_policy_cannot_read_is_left_out_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = create("sarsa")
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.write(Turn(1, policy.describe(), steady_snapshot(), memory={"nonsense": 1}))
    assert remembered(tmp_path / "j.jsonl", policy) is None
    assert "the journal's memory cannot be read" in caplog.text


def test_the_memory_of_another_policy_is_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "sarsa")
    assert remembered(path, create("sarsa")) is not None

    class Alike(type(create("sarsa"))):  # type: ignore[misc]
        """Can load the memory, but is not the policy that saved it."""

        def describe(self) -> str:
            return "alike"

    assert remembered(path, Alike()) is None
    assert "written by sarsa: starting without memory" in caplog.text
    assert remembered(path, create("btu")) is None


def test_a_memory_that_cannot_be_loaded_is_left(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "sarsa")

    class Broken(type(create("sarsa"))):  # type: ignore[misc]
        def load_memory(self, plain: Any) -> Any:
            raise ZeroDivisionError("oh")

    assert remembered(path, Broken()) is None


def test_a_policy_that_never_saved_a_memory_starts_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.write(Turn(1, "sarsa", error="no memory"))
    assert remembered(path, create("sarsa")) is None
    assert not caplog.records
    assert remembered(path, create("btu")) is None
    assert "written by sarsa: starting without memory" in caplog.text


def test_a_turn_whose_memory_was_not_saved_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    turns = record(path, "sarsa", turns=3)
    with Journal(path) as journal:
        journal.write(Turn(4, "sarsa", error="no memory"))
    assert remembered(path, create("sarsa")) == memory_of(turns[-1])
    with Journal(path) as journal:
        journal.write(Turn(5, "btu"))
    assert remembered(path, create("sarsa")) is None, "another policy decided since"
    assert remembered(None, create("sarsa")) is None
    assert remembered(tmp_path / "none.jsonl", create("sarsa")) is None


# --- a full disk ----------------------------------------------------------------------------------


class FullDisk:
    """A file that writes `room` bytes and then has no room left."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.room: int | None = None

    def write(self, data: Any) -> int:
        if self.room is None:
            return int(self.file.write(data))
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.file.write(bytes(data)[: self.room])
        self.room -= written
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 1, 40, 500])
def test_a_full_disk_is_noted_and_overcome(
    room: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        disk = FullDisk(journal._file)
        journal._file = disk  # type: ignore[assignment]
        loop = Controller(RecordedWorld([steady_snapshot()] * 9), create("static"), journal)
        loop.step()
        disk.room = room
        assert [loop.step().error for _ in range(3)] == [None] * 3, "deciding goes on"
        assert [turn.number for turn in read_journal(path)] == [1]
        disk.room = None
        loop.step()
        loop.step()
    turns = list(read_journal(path))
    assert [turn.number for turn in turns] == [1, 5, 6]
    assert turns[1].notes == (
        "3 turns before this one could not be written: No space left on device",
    )
    assert turns[2].notes == ()
    said = [text for text in caplog.messages if "journal" in text]
    assert len(said) == 2 and "cannot be written (No space left on device)" in said[0]
    assert said[1] == "the journal is written again; it lacks 3 turns"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tidegate-test", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"no small file system can be mounted: {error}")
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_system_that_is_full_is_noted_and_overcome(small_disk: Path) -> None:
    path, policy = small_disk / "j.jsonl", create("static")
    filler = small_disk / "filler"
    records = open_records(path, policy)
    world = RecordedWorld([steady_snapshot(3)] * 400)
    loop = Controller(world, policy, records.journal, None, 0, records.controls)
    loop.step()
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    while loop._recorder.lost < 5:
        assert loop.step().error is None
    lost_from = loop.turns - 4
    again = open_records(small_disk / "other.jsonl", policy)  # opening a new one does not fail
    assert Controller(RecordedWorld([steady_snapshot()]), policy, again.journal).step().plan
    again.close()
    filler.unlink()
    loop.step()
    records.close()
    turns = list(read_journal(path))
    assert [t.number for t in turns] == [*range(1, lost_from), loop.turns]
    assert turns[-1].notes[0].startswith("5 turns before this one could not be written: No space")


def test_a_limit_of_the_file_size_is_noted(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "j.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        loop = Controller(RecordedWorld([steady_snapshot()] * 9), create("static"), journal)
        loop.step()
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        try:
            assert loop.step().error is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert loop.step().notes == ("1 turn before this one could not be written: File too large",)
    assert [turn.number for turn in read_journal(path)] == [1, 3]


# --- other paperwork ------------------------------------------------------------------------------


def test_what_a_plug_in_cannot_save_or_describe_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(type(create("static"))):  # type: ignore[misc]
        def save_memory(self, memory: Any) -> Any:
            raise TypeError("no JSON")

        def describe(self) -> str:
            raise KeyError("hosts")

    with Journal(tmp_path / "j.jsonl") as journal:
        loop = Controller(RecordedWorld([steady_snapshot()] * 3), Broken(), journal)
        turns = [loop.step() for _ in range(3)]
    assert [turn.error for turn in turns] == [None] * 3
    assert turns[0].notes == (
        "description of the policy: KeyError: 'hosts'",
        "memory: TypeError: no JSON",
    )
    assert turns[0].policy == "static" and turns[0].memory is None
    assert list(read_journal(journal.path)) == turns
    assert len(caplog.messages) == 2, "once, not in every turn"


def test_a_memory_that_is_no_json_is_left_out(tmp_path: Path) -> None:
    class Odd(type(create("static"))):  # type: ignore[misc]
        def save_memory(self, memory: Any) -> Any:
            return {"random": random.Random(1)}

    with Journal(tmp_path / "j.jsonl") as journal:
        loop = Controller(RecordedWorld([steady_snapshot()] * 3), Odd(), journal)
        loop.step()
    (turn,) = read_journal(journal.path)
    assert turn.plan is not None and turn.memory is None
    assert "written without memory and controls" in turn.notes[0]


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_control_with_a_huge_number_is_refused(digits: int, tmp_path: Path) -> None:
    path, policy = tmp_path / "j.jsonl", create("drs")
    with open_records(path, policy) as records:
        world = ImaginaryWorld(seed=3, style=policy.style)
        loop = Controller(world, policy, records.journal, None, 0, records.controls)
        assert records.controls is not None
        with records.controls.path.open("ab") as file:
            number = b"9" * digits
            file.write(b'{"do":"policy","value":"drs","parameters":{"t_max_s":%s}}\n' % number)
            file.write(b'{"do":"pause","value":"both","asked_s":%s}\n' % number)
        turn = loop.step()
        assert turn.error is None and turn.plan is not None
        assert len(turn.controls) == 2 and all(control.refused for control in turn.controls)
        assert loop.step().error is None
    assert [turn.number for turn in read_journal(path)] == [1, 2]


def test_controls_that_cannot_be_read_do_not_keep_a_turn_from_deciding(tmp_path: Path) -> None:
    class Deaf:
        def take(self) -> list[Control]:
            raise OSError(errno.EIO, "Input/output error")

    loop = Controller(
        RecordedWorld([steady_snapshot()]),
        create("static"),
        controls=Deaf(),  # type: ignore[arg-type]
    )
    turn = loop.step()
    assert turn.plan is not None and turn.error is None
    assert turn.notes == ("controls: Input/output error",)


def settle() -> None:
    """Wait for the threads that wait for a disk."""
    for thread in threading.enumerate():
        if thread.name == "tidegate-patience":
            thread.join(30)


def test_a_disk_that_hangs_does_not_keep_turns_from_deciding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, hangs, answers = tmp_path / "j.jsonl", threading.Event(), threading.Event()
    begun = 0
    with Journal(path) as journal:
        write = journal.write

        def slow(turn: Turn) -> None:
            nonlocal begun
            begun += 1
            if hangs.is_set():
                answers.wait(30)
            write(turn)

        monkeypatch.setattr(journal, "write", slow)
        monkeypatch.setattr(records_module, "WRITE_S", 30.0)
        loop = Controller(RecordedWorld([steady_snapshot()] * 9), create("static"), journal)
        loop.step()
        hangs.set()
        monkeypatch.setattr(records_module, "WRITE_S", 0.05)
        turns = [loop.step() for _ in range(4)]
        assert all(turn.plan is not None and turn.error is None for turn in turns)
        assert begun == 2, "what waits for the disk does not pile up"
        monkeypatch.setattr(records_module, "WRITE_S", 30.0)
        hangs.clear()
        answers.set()
        settle()
        loop.step()
        loop.step()
    written = list(read_journal(path))
    assert [turn.number for turn in written] == [1, 2, 6, 7], "the late one is written after all"
    assert written[2].notes == (
        "3 turns before this one could not be written: the disk does not answer",
    )
    assert len([text for text in caplog.messages if "cannot be written" in text]) == 1


def test_controls_on_a_disk_that_hangs_are_applied_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, answers = tmp_path / "j.jsonl", threading.Event()
    policy = create("static")
    with Journal(path), closing(ControlFile(path, policy)) as controls:
        take = controls.take
        monkeypatch.setattr(controls, "take", lambda: take() if answers.wait(30) else [])
        monkeypatch.setattr(records_module, "WRITE_S", 0.05)
        world = RecordedWorld([steady_snapshot()] * 9)
        loop = Controller(world, policy, None, controls=controls)
        submit(path, Control("pause", "both"))
        turns = [loop.step(), loop.step()]
        assert [turn.error for turn in turns] == [None, None]
        assert turns[0].notes == ("controls: the disk does not answer",)
        answers.set()
        settle()
        assert [control.do for control in loop.step().controls] == ["pause"]
        monkeypatch.setattr(records_module, "WRITE_S", 30.0)
        assert loop.step().controls == ()


def test_a_closed_journal_is_not_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    loop = Controller(RecordedWorld([steady_snapshot()] * 2), create("static"), journal)
    loop.step()
    journal.close()
    assert loop.step().error is None, "a turn that outlasts the end of the loop"
    assert [turn.number for turn in read_journal(path)] == [1]


def test_lines_are_smaller_without_defaults_and_read_the_same(tmp_path: Path) -> None:
    turn = record(tmp_path / "j.jsonl", "drs", turns=1)[0]
    text = (tmp_path / "j.jsonl").read_bytes()
    assert text.startswith(journal_module.FIRST_BYTES)
    assert len(text) < 0.8 * len(to_json(turn))
    assert next(read_journal(tmp_path / "j.jsonl")) == turn
    assert os.linesep.encode() == text[-1:]


def test_a_control_before_a_turn_that_is_none_is_recorded_with_the_next(tmp_path: Path) -> None:
    class Pausing(RecordedWorld):
        ended = True

        def observe(self) -> Any:
            if self.ended:
                raise NothingToScale("no query runs")
            return super().observe()

    path, policy, world = tmp_path / "j.jsonl", create("static"), Pausing([steady_snapshot()] * 2)
    with open_records(path, policy) as records:
        loop = Controller(world, policy, records.journal, None, 0, records.controls)
        submit(path, Control("pause", "in"))
        loop.step()
        world.ended = False
        loop.step()
        loop.step()
    assert [turn.controls for turn in read_journal(path)] == [(Control("pause", "in"),), ()]


def test_what_fails_again_after_it_went_well_is_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder(None)

    def fail() -> int:
        raise ZeroDivisionError("oh")

    for do, said in ((fail, 1), (fail, 1), (lambda: 7, 1), (fail, 2)):
        assert recorder.attempt("memory", do, None) == (None if do is fail else 7)
        assert len(caplog.messages) == said
    notes = recorder.write(Turn(1, "static")).notes
    assert notes == ("memory: ZeroDivisionError: oh",) * 3
    assert recorder.write(Turn(2, "static")).notes == (), "each is noted once"
