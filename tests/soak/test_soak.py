"""One simulated day with faults, of three seeds; `make soak` runs thirty.

The other tests show that the soak finds what it looks for.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.soak import __main__ as program
from tests.soak import soak as soak_module
from tests.soak.faults import OTHERS, PER_DAY, RESTARTS, Fault, faults_of_day
from tests.soak.soak import (
    COMPARED,
    MOST_BLOCKS,
    MOST_MB,
    TURNS_A_DAY,
    DayResult,
    Soak,
    _used_mb,
    continued,
)
from tidegate.loop import journal as journal_module
from tidegate.loop import records as records_module
from tidegate.loop.journal import read_journal
from tidegate.loop.tail import mend, parts_of

pytest.importorskip("resource")  # the full disk is a limit of the kernel


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_day_of_faults_changes_no_decision_and_is_in_the_journal(
    seed: int, tmp_path: Path
) -> None:
    said: list[str] = []
    soak = Soak(seed, 1, tmp_path / f"seed-{seed}", said.append)
    assert soak.run() == []
    assert soak.turn == TURNS_A_DAY and sum(soak.counts.values()) == PER_DAY
    assert soak.counts.keys() == {*RESTARTS, *OTHERS}
    assert soak.restarts >= len(RESTARTS)
    assert soak.compared > COMPARED * len(RESTARTS) / 2
    assert len([line for line in said if line.endswith(": noticed")]) == PER_DAY
    assert said[-1].startswith("day 1 of 1: 1440 turns, 24 faults,")
    assert f"| {seed} | 1 | 1,440 | 24 |" in program.table(tmp_path)


def test_the_faults_of_a_day_do_not_overlap_and_leave_its_end_alone() -> None:
    for seed in range(10):
        days = [faults_of_day(seed, day, TURNS_A_DAY) for day in range(3)]
        faults = [fault for day in days for fault in day]
        assert all(a.last + 2 < b.turn for a, b in pairwise(faults))
        assert all(day[-1].last < (n + 1) * TURNS_A_DAY - 10 for n, day in enumerate(days))
        assert {fault.kind for fault in days[2]} == {*OTHERS}, "a calm day"
        assert not any(fault.killed_at for fault in days[2])
        assert any(fault.killed_at for fault in faults)


# --- the soak finds problems ----------------------------------------------------------------------


def problems(folder: Path, *faults: Fault, policy: str = "drs") -> str:
    """The problems of some turns with these faults."""
    soak = Soak(1, 1, folder)
    soak.policy_name, soak.faults = policy, deque(faults)
    soak.turns_a_day = 1_000_000  # of which this is the beginning
    soak.say = lambda text: None
    last, after = faults[-1].last + 5, soak._after

    def until(turn: Any) -> bool:
        go_on = after(turn)
        soak.days *= soak.turn < last
        return go_on and soak.turn < last

    soak._after = until  # type: ignore[method-assign]
    soak._save = lambda: None  # type: ignore[method-assign]
    soak._judge = lambda: None  # type: ignore[method-assign]
    return "\n".join(soak.run())


ALL = (
    Fault("killed", 5),
    Fault("torn journal", 10),
    Fault("full disk", 15, 3),
    Fault("clock back", 22, seconds=-3600.0),
)


def test_nothing_is_found_without_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, *ALL) == ""


def test_a_lost_memory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "remembered", lambda *_: None)
    assert "the memory is not that of the last whole turn" in problems(tmp_path, Fault("killed", 5))


def test_a_memory_of_an_earlier_turn_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = journal_module.last_turns

    def older(path: Path) -> Any:
        return list(turns(path))[1:]

    monkeypatch.setattr(records_module, "last_turns", older)
    found = problems(tmp_path, Fault("restart", 30), policy="tide")
    assert "the memory is not that of the last whole turn" in found


def test_a_turn_that_was_not_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = records_module._write

    def forgetful(journal: Any, turn: Any) -> None:
        if turn.number != 7:
            write(journal, turn)

    monkeypatch.setattr(records_module, "_write", forgetful)
    assert "the turn is not in the journal" in problems(tmp_path, Fault("restart", 10))


def test_lost_turns_without_a_note_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "LOST", "are of no importance")
    assert "the notes are" in problems(tmp_path, Fault("full disk", 5, 3))


def test_a_torn_line_without_a_note_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "mend", lambda path: 0 * mend(path))
    assert "of a torn line" in problems(tmp_path, Fault("zeros in journal", 10))


def test_a_clock_that_went_back_without_a_word_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.guards.base.CLOCK", "calendar")
    found = problems(tmp_path, Fault("clock back", 22, seconds=-3600.0))
    assert "no plan says that the clock went back" in found


def test_growth_is_found(tmp_path: Path) -> None:
    soak = Soak(1, 1, tmp_path)
    soak.objects = [100_000] * 12 + [100_000 + 400 * n for n in range(24)]
    soak._judge()
    assert "objects grow" in soak.problems[0]
    soak.objects = [100_000 + n % 7 * 500 for n in range(24)]
    soak.problems.clear()
    soak._judge()
    assert soak.problems == []


@pytest.mark.parametrize(("name", "most"), [("used_mb", MOST_MB), ("blocks", MOST_BLOCKS)])
def test_memory_in_use_that_grows_is_found(tmp_path: Path, name: str, most: float) -> None:
    soak = Soak(1, 9, tmp_path)
    for step, said in ((0.5 * most, ""), (1.5 * most, "memory in use grows")):
        soak.problems.clear()
        soak.results = [DayResult(n, process=os.getpid()) for n in range(9)]
        for n, day in enumerate(soak.results):
            setattr(day, name, 100 * most + step * (n // 3))
        soak._judge()
        assert [said in problem for problem in soak.problems] == [True] * bool(said)


def test_memory_in_use_is_measured() -> None:
    before, kept = _used_mb(), bytearray(50_000_000)
    after = _used_mb()
    if before is None or after is None:
        pytest.skip("the C library does not tell")
    assert 49 < after - before < 51 and kept


# --- it continues ---------------------------------------------------------------------------------


def test_a_run_that_was_interrupted_continues_with_the_same_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two(seed: int, day: int, turns: int) -> list[Fault]:
        far = Fault("clock forward", day * turns + 8, seconds=2e5)  # rotates the journal
        return [far, Fault("killed", day * turns + 20)]

    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if sum(" of 3: " in line for line in said) == 2 and "clock forward" in text:
            raise KeyboardInterrupt  # in the third day, after its rotation

    monkeypatch.setattr(soak_module, "faults_of_day", two)
    monkeypatch.setattr(soak_module, "TURNS_A_DAY", 30)
    monkeypatch.setattr(soak_module, "LOOKS_PER_DAY", 2)
    whole = Soak(1, 3, tmp_path / "whole")
    whole.run()
    with pytest.raises(KeyboardInterrupt):
        continued(tmp_path / "parts", 1, 3, interrupt).run()
    rest = continued(tmp_path / "parts", 1, 3, lambda text: None)
    assert len(rest.results) == 2 and rest.turn == 60
    rest.run()
    assert rest.turn == whole.turn == 90

    def decisions(soak: Soak) -> list[Any]:
        turns = list(read_journal(soak.path))
        return [(t.snapshot.time_s, t.plan) for t in turns if t.snapshot is not None]

    assert decisions(rest) == decisions(whole)
    assert len(decisions(whole)) == 90 and len(parts_of(rest.path)) == 3
