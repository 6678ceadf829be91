"""Commands that read a journal, where a part of it cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tidegate.loop.journal import Journal, Rotation, read_journal

FIXTURE = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0" / "live.jsonl"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A journal with one damaged line and one of a newer version, in several files."""
    path = tmp_path / "run.jsonl"
    turns = list(read_journal(FIXTURE))
    with Journal(path, Rotation(max_mb=0.02)) as journal:
        for turn in turns:
            journal.write(turn)
    part = tmp_path / "run.jsonl.000001"
    lines = part.read_text().splitlines()
    lines[1] = lines[1][:300]
    lines[2] = json.dumps(json.loads(lines[2]) | {"mood": "calm"})
    part.write_text("\n".join(lines) + "\n")
    return path


def test_a_report_says_what_is_not_in_it(damaged: Path, tmp_path: Path) -> None:
    done = tidegate("report", damaged, "--out", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(
        "tidegate: not in these figures: 1 line is damaged and left out of run.jsonl; the first: "
        "run.jsonl.000001 line 2 is"
    )
    assert second.endswith("written by a newer version, whose fields are left out: mood")
    assert "Not in these figures: 1 line is damaged" in (tmp_path / "r.html").read_text()
    done = tidegate("report", damaged, "--json")
    found = json.loads(done.stdout)
    assert found["turns"] == 28 and len(found["not_read"]) == 2


@pytest.mark.parametrize(
    "words", [("replay", "--policy", "static"), ("calibrate",), ("backtest", "--slo", "5s")]
)
def test_other_commands_warn_and_go_on(
    damaged: Path, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    done = tidegate(words[0], damaged, *words[1:])
    assert done.returncode == 0, done.stderr
    assert "run.jsonl.000001 line 2 is" in caplog.text  # Python prints it where nobody listens
    assert "left out: mood" in caplog.text


def test_turns_that_were_lost_are_named_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    note = "3 turns before this one could not be written: No space left on device"
    with Journal(path) as journal:
        for turn in read_journal(FIXTURE):
            if turn.number not in (4, 5, 6):
                journal.write(replace(turn, notes=(note,)) if turn.number == 7 else turn)
    done = tidegate("report", path, "--out", tmp_path / "r.html")
    assert done.stderr == f"tidegate: not in these figures: turn 7: {note}\n"
    assert note in (tmp_path / "r.html").read_text()
