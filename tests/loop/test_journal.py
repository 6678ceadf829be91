from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.loop.helpers import record
from tidegate.codec import to_json
from tidegate.errors import JournalError
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.replay import replay
from tidegate.policies import available, create
from tidegate.testing import steady_snapshot


def test_a_journal_reads_back_what_was_written(tmp_path: Path) -> None:
    written = record(tmp_path / "j.jsonl", "btu")
    assert list(read_journal(tmp_path / "j.jsonl")) == written


def test_a_new_journal_has_nothing_to_mend(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        assert journal.torn_bytes == 0


def test_a_journal_makes_its_folders(tmp_path: Path) -> None:
    with Journal(tmp_path / "runs" / "today" / "j.jsonl") as journal:
        journal.write(Turn(1, "static"))
    assert [turn.number for turn in read_journal(journal.path)] == [1]


def test_each_turn_is_one_line_of_plain_json(tmp_path: Path) -> None:
    record(tmp_path / "j.jsonl", "drs", turns=3)
    lines = (tmp_path / "j.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_torn_last_line_is_passed_over_and_cut_off(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "lag", turns=3)
    whole = path.read_bytes()
    path.write_bytes(whole[: -1 - cut])
    assert [turn.number for turn in read_journal(path)] == [1, 2]
    with Journal(path) as journal:
        assert journal.torn_bytes > 0
        journal.write(Turn(4, "again", steady_snapshot()))
    assert [turn.number for turn in read_journal(path)] == [1, 2, 4]


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "lag", turns=2)
    path.write_bytes(path.read_bytes()[:-1])
    with Journal(path) as journal:
        assert journal.torn_bytes == 0
        journal.write(Turn(3, "again"))
    assert [turn.number for turn in read_journal(path)] == [1, 2, 3]


def test_a_damaged_line_in_the_middle_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "lag", turns=4)
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:50]
    path.write_text("\n".join(lines) + "\n")
    assert [turn.number for turn in read_journal(path)] == [1, 3, 4]
    (warning,) = caplog.messages
    assert warning.startswith(
        "1 line is damaged and left out of j.jsonl; the first: j.jsonl line 2"
    )
    said: list[str] = []
    list(read_journal(path, said))
    assert said == [warning] and len(caplog.messages) == 1, "the caller says it"


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_last_line_without_an_end_counts_beside_damaged_ones(good: int, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    record(path, "lag", turns=good + 1)
    path.write_bytes(b'{"number":\n{"number":\n' + path.read_bytes()[:-1])
    said: list[str] = []
    turns = list(read_journal(path, said))
    assert [turn.number for turn in turns] == list(range(1, good + 2))
    assert said[0].startswith(
        "2 lines are damaged and left out of j.jsonl; the first: j.jsonl line 1"
    )


def test_a_file_without_any_turn_is_an_error_that_names_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("time,rate\n0,5\n")
    with pytest.raises(JournalError, match=r"rates\.csv line 1 is 'time,rate…'"):
        list(read_journal(path))


def test_a_line_that_was_cut_within_a_character_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(to_json(Turn(1, "drs → bounds()")).encode() + b"\n")
    with path.open("ab") as file:
        file.write('{"number": 2, "policy": "drs →'.encode()[:-1])
    assert [turn.number for turn in read_journal(path)] == [1]
    with Journal(path) as journal:
        assert journal.torn_bytes > 0
    assert path.read_bytes().count(b"\n") == 1 and path.read_bytes().endswith(b"\n")


def test_a_missing_journal_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        list(read_journal(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("name", available())
def test_replaying_a_journal_with_its_own_policy_finds_no_difference(
    name: str, tmp_path: Path
) -> None:
    record(tmp_path / "j.jsonl", name)
    compared = list(replay(read_journal(tmp_path / "j.jsonl"), create(name)))
    assert len(compared) == 10
    assert all(row.agrees and row.steps == () for row in compared)


def test_a_replay_goes_on_after_a_turn_that_failed(tmp_path: Path) -> None:
    first, *others = record(tmp_path / "j.jsonl", "static", turns=3)
    failed = Turn(9, "static", first.snapshot, error="it did not decide")
    rows = list(replay([first, failed, *others], create("static")))
    assert [row.number for row in rows] == [first.number, *(turn.number for turn in others)]


def test_replay_shows_where_another_policy_would_do_otherwise(tmp_path: Path) -> None:
    record(tmp_path / "j.jsonl", "static")
    compared = list(replay(read_journal(tmp_path / "j.jsonl"), create("static", hosts=6)))
    different = [row for row in compared if not row.agrees]
    assert different
    assert all(row.other.bounded_target == 6 for row in different)
    assert any(step.kind == "lease" for step in different[0].steps)


def test_a_plan_with_as_many_hosts_and_other_instances_does_not_agree(tmp_path: Path) -> None:
    (row,) = replay(record(tmp_path / "j.jsonl", "static", turns=1), create("static"))
    assert row.agrees
    fewer = replace(row.recorded.deployment, instances=row.recorded.deployment.instances[1:])
    assert len(fewer.hosts) == len(row.other.deployment.hosts)
    assert not replace(row, recorded=replace(row.recorded, deployment=fewer)).agrees
