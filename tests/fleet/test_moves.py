"""Moves, their log, and the recovery of a manager after another died during a move."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.cli.fleet import fleet
from tidegate.errors import BackendError
from tidegate.fleet.fence import Fence
from tidegate.fleet.hosts import HostRefused, HostSilent
from tidegate.fleet.moves import Move, MoveLog, carry_out, pauses_by_state, read_moves
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.world import FleetWorld
from tidegate.testing import FakeClock, FakeHost, FakeProvider


def query(name: str = "q") -> ContinuousQuery:
    return ContinuousQuery(name, lambda session, checkpoint: None)


class Crash(BaseException):
    """The manager dies: nothing catches this."""


class CrashingLog(MoveLog):
    """Fails before or after the n-th line is on disk."""

    def __init__(self, path: Path, line: int, written: bool) -> None:
        super().__init__(path)
        self.left, self.written = line, written

    def step(self, move: Move, step: Any, **more: Any) -> None:
        self.left -= 1
        if self.left == 0 and not self.written:
            raise Crash
        super().step(move, step, **more)
        if self.left == 0:
            raise Crash


def hosts() -> tuple[FakeClock, FakeHost, FakeHost]:
    clock = FakeClock()
    return clock, FakeHost(clock, {}), FakeHost(clock, {})


def test_a_move_stops_here_and_starts_there(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    log = MoveLog(tmp_path / "moves.jsonl")
    now_s = iter([90.0, 100.0, 102.56789])
    moved = carry_out(
        log.begin("q", "a", "b"), query(), "c", old, new, log, 1, clock=lambda: next(now_s)
    )
    assert (moved.where, moved.error) == ("b", None)
    assert moved.pause_s == pytest.approx(2.56789)
    assert [move.pause_s for move in read_moves(log.path)] == [2.568], "to the millisecond"
    assert not old.copies and "q" in new.copies
    assert MoveLog(log.path).moves["q"].step == "started"


def test_a_start_that_failed_has_lost_its_checkpoint_before_it_is_stopped(tmp_path: Path) -> None:
    _, _, new = hosts()
    new.refuse["q"] = BackendError("no answer")
    fence = Fence(tmp_path / "c")
    epochs: list[tuple[int, bool]] = []
    stop = new.stop

    def noted(name: str, timeout_s: float) -> None:
        epochs.append((fence.latest(), fence.holds(fence.latest())))
        stop(name, timeout_s)

    new.stop = noted  # type: ignore[method-assign]
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "", "b"), query(), "c", None, new, log, 1, fence=fence)
    assert moved.where == "" and epochs == [(1, False)]


def test_a_line_with_just_the_keys_that_a_step_needs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "moves.jsonl"
    path.write_text(
        '{"time_s": 1, "number": 7, "query": "q", "origin": "a", "host": "b", "step": "begin"}\n'
        '{"number": 8, "query": "q", "origin": "a", "host": "b", "step": "begin"}\n'
    )
    log = MoveLog(path)
    log.close()
    assert log.last == 7, "the other one has no time"


def test_a_start_that_fails_rolls_back(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    new.refuse["q"] = BackendError("no room")
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1)
    assert moved.where == "a" and "no room" in str(moved.error)
    assert "q" in old.copies and "q" not in new.copies
    assert MoveLog(log.path).moves["q"].side == "a"


def test_a_target_that_dies_under_the_move_rolls_back(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    new.dead = True
    log = MoveLog(tmp_path / "moves.jsonl")
    assert carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1).where == "a"


def test_a_target_that_goes_silent_is_doubtful_and_nothing_is_started_twice(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    new.hung = True
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1)
    assert (moved.where, moved.doubtful) == ("", "b")
    assert not old.copies


def test_a_target_that_lives_and_does_not_stop_a_late_start_is_doubtful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    new.refuse["q"] = BackendError("no room")

    def refuse(*_: object) -> None:
        raise BackendError("busy")

    monkeypatch.setattr(new, "stop", refuse)
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1)
    assert (moved.where, moved.doubtful) == ("", "b")
    assert not old.copies, "nothing is started twice"


def test_an_origin_that_does_not_stop_keeps_its_query(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    old.hung = True
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1)
    assert moved.where == "a" and not new.copies


def test_a_rollback_that_gets_no_answer_is_doubtful(tmp_path: Path) -> None:
    _, old, new = hosts()
    old.start(query(), "c", 1)
    new.refuse["q"] = BackendError("no room")
    old.refuse["q"] = HostSilent("nothing")
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query(), "c", old, new, log, 1)
    assert (moved.where, moved.doubtful) == ("", "a")
    assert moved.error == (
        "b did not start it: BackendError: no room, and neither did a: HostSilent: nothing"
    )
    assert MoveLog(log.path).moves["q"].side == ""


def test_a_log_begins_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "fleet" / "one" / "moves.jsonl", clock=lambda: 12.5)
    assert log.begin("q", "a", "b").number == 1
    log.close()
    again = MoveLog(log.path)
    assert again.last == 1 and list(again.moves) == ["q"]
    assert again.begin("prix-été", "a", "b").number == 2
    assert '"prix-été"' in again.path.read_text("utf-8"), "people read it, too"
    again.close()
    with pytest.raises(ValueError, match="closed file"):
        again.begin("q", "b", "a")
    assert len(log.path.read_text().splitlines()) == 2


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.jsonl")
    log.begin("q", "a", "b")
    log.close()
    with log.path.open("a") as file:
        file.write('{"number": 1, "step": "stop')
    again = MoveLog(log.path)
    assert again.moves["q"].step == "begin"
    assert again.begin("q", "a", "b").number == 2
    again.close()
    assert len(MoveLog(log.path).path.read_text().splitlines()) == 2


STEP = (
    b'{"number": 1, "query": "q", "origin": "a", "host": "b", "step": "started", "time_s": 1.0, '
    b'"pause_s": 2.0, "state_mb": 0.5}'
)


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe", b"{}", b"[1]", b"[" * 50_000, b'{"number": "x"}', '{"ü'.encode()[:-1],
        STEP.replace(b'"q"', b'["q"]'), STEP.replace(b'"b"', b"null"),
        STEP.replace(b"started", b"flown"), STEP.replace(b"1.0", b"1e300"),
        STEP.replace(b"2.0", b'"long"'), STEP.replace(b"0.5", b"9" * 400),
    ],
)  # fmt: skip
def test_a_damaged_line_is_left_out_and_the_rest_counts(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "moves.jsonl"
    log = MoveLog(path)
    log.step(log.begin("q", "a", "b"), "started", pause_s=1.0)
    log.close()
    first = path.read_bytes()
    path.write_bytes(damage + b"\n" + first + damage + b"\n")
    again = MoveLog(path)
    assert (again.last, again.moves["q"].step) == (1, "started")
    again.close()
    (record,) = read_moves(path)
    assert (record.query, record.pause_s) == ("q", 1.0)
    assert "line 1 of" in caplog.text and "is damaged and left out" in caplog.text


def test_a_log_torn_at_any_byte_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "moves.jsonl"
    log = MoveLog(path)
    log.begin("früh", "a", "b")
    log.close()
    whole = path.read_bytes()
    for torn in range(len(whole)):
        path.write_bytes(whole[:torn])
        again = MoveLog(path)
        again.begin("spät", "a", "b")
        again.close()
        assert {move.query for move in MoveLog(path).moves.values()} <= {"früh", "spät"}
        assert "spät" in MoveLog(path).moves


def test_what_a_full_disk_refuses_is_not_written_later(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.jsonl")
    log.begin("early", "a", "b")
    whole = log.path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file may grow by ten more bytes: the rest of the line is refused, as by a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
    try:
        for _ in range(2):
            with pytest.raises(OSError):
                log.begin("refused", "a", "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(log.moves) == ["early"]
    log.begin("late", "a", "b")
    log.close()
    assert log.path.read_bytes().startswith(whole) and b"refused" not in log.path.read_bytes()
    assert list(MoveLog(log.path).moves) == ["early", "late"]


def test_a_log_that_could_not_be_written_is_closed(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.jsonl")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError):
            log.begin("refused", "a", "b")
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_step_is_on_the_disk_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MoveLog(tmp_path / "moves.jsonl")
    seen: list[int] = []
    monkeypatch.setattr(
        "tidegate.fleet.moves.os.fsync", lambda handle: seen.append(os.fstat(handle).st_size)
    )
    log.begin("q", "a", "b")
    assert seen == [log.path.stat().st_size] and seen[0] > 0
    log.close()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_a_manager_that_dies_at_any_step_leaves_one_copy_or_none(
    tmp_path: Path, line: int, written: bool, fails: bool
) -> None:
    clock = FakeClock()
    provider = FakeProvider(clock)
    provider.lease("host-1")
    provider.lease("host-2")
    provider.hosts["host-1"].start(query(), "c", 1)
    if fails:
        provider.hosts["host-2"].refuse["q"] = BackendError("no room")
    log = CrashingLog(tmp_path / "moves.jsonl", line, written)
    with pytest.raises(Crash):
        move = log.begin("q", "host-1", "host-2")
        one, two = provider.hosts["host-1"], provider.hosts["host-2"]
        carry_out(move, query(), "c", one, two, log, 1)
    log.close()
    world = FleetWorld(provider, tmp_path, clock=clock, spawn=lambda work: work())
    world.add([query()])
    world.recover()
    entry, copies = world.queries["q"], provider.copies("q")
    assert copies == ([entry.host] if entry.host else [])
    assert set(world.hosts) == set(copies)


@pytest.mark.parametrize("step, kept", [("begin", "host-1"), ("stopped", "host-2")])
def test_of_two_copies_the_one_in_the_log_stays(tmp_path: Path, step: Any, kept: str) -> None:
    clock = FakeClock()
    provider = FakeProvider(clock)
    for name in ("host-1", "host-2"):
        provider.lease(name)
        provider.hosts[name].start(query(), "c", 1)
        provider.hosts[name].start(query("unknown"), "c", 1)
    log = MoveLog(tmp_path / "moves.jsonl")
    log.step(log.begin("q", "host-1", "host-2"), step)
    world = FleetWorld(provider, tmp_path, clock=clock, spawn=lambda work: work(), move_log=log)
    world.add([query()])
    world.recover()
    assert provider.copies("q") == [kept] == [world.queries["q"].host]
    assert provider.copies("unknown") == []


def test_a_host_that_does_not_answer_at_the_start_is_left_out(tmp_path: Path) -> None:
    clock = FakeClock()
    provider = FakeProvider(clock)
    for name in ("host-1", "host-2"):
        provider.lease(name)
    provider.hosts["host-1"].hung = True
    provider.hosts["host-2"].start(query(), "c", 1)
    world = FleetWorld(provider, tmp_path, clock=clock)
    world.add([query()])
    world.recover()
    assert list(world.hosts) == ["host-2"] and provider.killed == ["host-1"]


def test_a_new_fleet_without_hosts_is_refused_and_an_old_one_waits(tmp_path: Path) -> None:
    for old in (False, True):
        provider = FakeProvider(FakeClock())
        provider.lease("host-1")
        provider.hosts["host-1"].hung = True
        world = FleetWorld(provider, tmp_path)
        if old:
            world.log.begin("q", "", "host-1")
            world.recover()
            assert not world.hosts
        else:
            with pytest.raises(BackendError, match="no host: no answer"):
                world.recover()


def test_a_host_that_refuses_us_at_the_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = FakeProvider(FakeClock())
    for name in ("host-1", "host-2"):
        provider.lease(name)

    def refuse(timeout_s: float) -> Any:
        raise HostRefused("host-2 rejects our token")

    monkeypatch.setattr(provider.hosts["host-2"], "look", refuse)
    with pytest.raises(HostRefused, match="token"):
        FleetWorld(provider, tmp_path).recover()


def test_the_log_tells_pauses_by_the_size_of_the_state(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.jsonl", lambda: 60.0)
    for number, state_mb in enumerate((0.2, 0.4, 12.0)):
        details = {"pause_s": number + 1.0, "state_mb": state_mb, "state_rows": 5}
        log.step(log.begin("q", "host-1", "host-2"), "started", **details)
    log.step(log.begin("q", "host-2", "host-1"), "back", error="no room")
    log.step(log.begin("q", "", "host-1"), "started", pause_s=9.0)  # a start is no move
    log.close()
    with log.path.open("a") as file:
        file.write('{"torn')
    moves = read_moves(log.path)
    assert [m.outcome for m in moves] == ["moved", "moved", "moved", "back"]
    assert moves[-1].error == "no room" and moves[-1].pause_s is None
    assert pauses_by_state(moves) == [("below 1 MB", 2, 1.5, 2.0), ("10 to 100 MB", 1, 3.0, 3.0)]
    assert read_moves(tmp_path / "none.jsonl") == []

    edges = [replace(moves[0], state_mb=mb, pause_s=mb) for mb in (0.999, 1.0, 9.99, 10.0)]
    assert pauses_by_state(edges) == [
        ("below 1 MB", 1, 0.999, 0.999),
        ("1 to 10 MB", 2, pytest.approx(5.495), 9.99),
        ("10 to 100 MB", 1, 10.0, 10.0),
    ]

    shown = CliRunner().invoke(fleet, ["moves", "--folder", str(tmp_path)]).output
    assert (
        "rolled back" in shown
        and "10 to 100 MB" in shown
        and "12.0 MB" in shown
        and "200 kB" in shown
    )
