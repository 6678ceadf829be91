"""The difference between two documents, and turns that are written as such differences."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codec import from_plain, to_json, to_plain
from tidegate.dashboard.journals import WatchedJournal
from tidegate.errors import InputError
from tidegate.loop.backend import Outcome
from tidegate.loop.changes import Known, _expanded, changed, changes
from tidegate.loop.journal import Journal, Rotation, Turn, TurnReader, last_turns, read_journal
from tidegate.loop.lines import MOST_SINCE, SHORT
from tidegate.loop.records import remembered
from tidegate.loop.tail import parts_of
from tidegate.model import Deployment, Plan
from tidegate.model.leases import HostOffer, Lease
from tidegate.model.plan import Reason
from tidegate.model.snapshot import (
    BatchReading,
    Host,
    InstanceReading,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Operator, Resources, Topology
from tidegate.policies import create
from tidegate.testing import steady_snapshot
from tidegate.testing.turns import large_turn

scalars = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text("a/~0", max_size=2)
)
keys = st.sampled_from(["id", "name", "a", "b/c", "~", "", "0"])
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=25,
)


def copy(document: Any) -> Any:
    return json.loads(json.dumps(document))


# --- documents ----------------------------------------------------------------------------------


def applied(old: Turn, new: Turn) -> Turn:
    found = copy(changes(old, new))
    return from_plain(Turn, changed(copy(to_plain(old, defaults=False)), found))


@given(old=documents, new=documents)
def test_the_changes_lead_from_one_memory_to_the_other(old: Any, new: Any) -> None:
    result = applied(Turn(1, "p", memory=old), Turn(1, "p", memory=new))
    # Text tells 1 from 1.0 and True, and shows the order of keys.
    assert json.dumps(result.memory) == json.dumps(new)
    assert changes(Turn(1, "p", memory=new), Turn(1, "p", memory=copy(new))) == {}


hosts = st.builds(
    Host,
    st.sampled_from([f"h{n}" for n in range(9)]),
    st.builds(Resources, st.sampled_from([1.0, 2.0]), st.sampled_from([0.0, 5.0])),
    st.sampled_from(["running", "starting"]),
    st.none() | st.sampled_from([0.0, 0.25]),
    st.none() | st.builds(Lease, st.just(60.0), st.just(0.1), st.sampled_from([1.0, 2.0])),
    st.frozensets(st.sampled_from("abc")),
)
latencies = st.builds(Latency, st.none() | st.just(1.0), p99_s=st.none() | st.just(2.0))
readings = st.builds(
    OperatorReading,
    st.sampled_from("uvwxyz"),
    st.none() | st.floats(0, 9),
    recent_durations_s=st.none() | st.just((1.0, 2.0)) | st.just((2.0, 3.0)),
    batches=st.none()
    | st.builds(BatchReading, st.just(1.0), st.just((1.0,)), st.none() | st.just(0.1)),
    delay=latencies,
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    leased = tuple(draw(st.lists(hosts, unique_by=lambda host: host.id, max_size=7)))
    seen = tuple(draw(st.lists(readings, unique_by=lambda one: one.operator, max_size=6)))
    work = [draw(st.integers(0, 2)) for _ in leased]
    instances = tuple(
        InstanceReading(f"{h.id}-{n}", "u", h.id, load=draw(st.none() | st.just(h.capacity)))
        for h, count in zip(leased, work, strict=True)
        for n in range(count)
    )
    topology = Topology(tuple(Operator(name) for name in "uvwxyz"))
    snapshot = Snapshot(
        draw(st.floats(0, 9)),
        topology,
        HostOffer(Resources(1.0)),
        leased,
        instances,
        seen,
        draw(latencies),
        event_age=draw(latencies),
    )
    plan = Plan(
        Deployment(tuple(host.id for host in leased)),
        tuple(draw(st.lists(st.builds(Reason, st.sampled_from("ab"), st.just("t")), max_size=4))),
        raw=draw(st.none() | st.just(snapshot.requested)),
    )
    return Turn(
        draw(st.integers(1, 9)),
        "p",
        draw(st.none() | st.just(snapshot)),
        draw(st.none() | st.just(plan)),
        draw(st.none() | st.just(Outcome())),
        slo_s=draw(st.none() | st.just(1.0)),
        notes=tuple(draw(st.lists(st.just("n"), max_size=2))),
    )


@given(old=turns(), new=turns())
def test_the_changes_lead_from_one_turn_to_the_other(old: Turn, new: Turn) -> None:
    assert applied(old, new) == new
    assert changes(new, applied(old, new)) == {}


@given(old=turns(), news=st.lists(turns(), max_size=4))
def test_what_is_kept_of_the_old_turn_changes_nothing(old: Turn, news: list[Turn]) -> None:
    known: Known = {}
    for new in (*news, *news):
        assert changes(old, new, known) == changes(old, new)


@given(old=turns(), data=st.data())
def test_rows_that_are_the_same_objects_change_nothing(old: Turn, data: st.DataObject) -> None:
    def with_one_host_of(turn: Turn, hosts: tuple[Host, ...]) -> Turn:
        assert turn.snapshot is not None
        there = [host.id for host in hosts]
        if not there:
            return turn
        n = data.draw(st.integers(0, len(there) - 1))
        other = replace(hosts[n], utilisation=data.draw(st.sampled_from([0.0, 0.5])))
        return replace(
            turn, snapshot=replace(turn.snapshot, hosts=(*hosts[:n], other, *hosts[n + 1 :]))
        )

    if old.snapshot is None:
        return
    new = with_one_host_of(old, old.snapshot.hosts)
    assert new.snapshot is not None
    apart = from_plain(Turn, to_plain(new))  # equal values, no object in common
    assert changes(old, new) == changes(old, apart)
    assert applied(old, new) == new


def test_equal_values_of_a_column_are_written_once() -> None:
    def snapshot(shift: float) -> Snapshot:
        leased = tuple(
            Host(f"h{n}", Resources(n % 2 + shift), utilisation=n // 4 + shift) for n in range(8)
        )
        return Snapshot(0.0, Topology((Operator("u"),)), HostOffer(Resources(1.0)), leased)

    assert changes(snapshot(0.25), snapshot(0.5))["columns"]["hosts"] == {
        "capacity/cpu_cores": {"values": [0.5, 1.5], "which": [0, 1] * 4},
        "utilisation": {"like": ["hosts", "capacity/cpu_cores"], "counts": [4, 4]},
    }


def of_memory(old: Any, new: Any) -> dict[str, Any]:
    return changes(Turn(1, "p", memory=old), Turn(1, "p", memory=new))


@pytest.mark.parametrize(
    ("beside", "whole"),
    [
        ([], True),
        ([7], True),
        ([7, 8], False),
        ([{"id": "x"}], False),
        (7, True),
        ({"c": 7, "d": 8}, False),
    ],
)
def test_an_object_is_written_as_a_whole_when_most_of_it_has_changed(
    beside: Any, whole: bool
) -> None:
    """Two values of it have; a table in it is never written again."""
    old, new = ({"m": {"a": n, "b": n, "rest": beside}} for n in (1, 2))
    parts = {"memory/m/a": 2, "memory/m/b": 2}
    assert of_memory(old, new) == {"set": {"memory/m": new["m"]} if whole else parts}


def test_one_value_of_a_small_object_is_written_alone() -> None:
    assert of_memory({"m": {"a": 1}}, {"m": {"a": 2}}) == {"set": {"memory/m/a": 2}}


def test_an_object_of_which_something_is_gone_is_not_written_as_a_whole() -> None:
    old, new = {"m": {"a": 1, "b": 1, "c": 1}}, {"m": {"a": 2, "b": 2}}
    found = {"set": {"memory/m/a": 2, "memory/m/b": 2}, "drop": ["memory/m/c"]}
    assert of_memory(old, new) == found


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (["a", "b", "x", "y"], {"rows": {"memory": [[0, 2], {"new": ["x", "y"]}]}}),
        (["a", "x", "y"], {"set": {"memory": ["a", "x", "y"]}}),
        (["x", "a", "b"], {"rows": {"memory": [{"new": ["x"]}, [0, 2]]}}),
        (["b", "a"], {"rows": {"memory": [[1, 2], [0, 1]]}}),
        (["a", "a"], {"rows": {"memory": [[0, 1], {"new": ["a"]}]}}),
    ],
)
def test_a_list_is_written_anew_when_more_than_half_of_it_is_new(
    new: list[str], expected: dict[str, Any]
) -> None:
    assert of_memory(["a", "b"], new) == expected


def test_a_long_value_is_written_once() -> None:
    """Also one that is part of another; short ones are not worth a path."""
    long, short = "x" * 38, "x" * 37
    old = {"a": 0, "b": 0, "c": 0, "d": 0, "rest": [0] * 20}
    found = of_memory(old, old | {"a": long, "b": long, "c": short, "d": short})
    assert found == {
        "set": {"memory/a": long, "memory/c": short, "memory/d": short},
        "same": {"memory/b": "memory/a"},
    }
    found = of_memory(old, old | {"a": {"inner": {"deep": long}, "more": 1}, "b": long})
    assert found["same"] == {"memory/b": "memory/a/inner/deep"}


def utilised(values: list[float]) -> Snapshot:
    leased = tuple(Host(f"h{n}", Resources(1.0), utilisation=v) for n, v in enumerate(values))
    return Snapshot(0.0, Topology((Operator("u"),)), HostOffer(Resources(1.0)), leased)


def columns(old: list[float], new: list[float]) -> dict[str, Any]:
    """What changes in the utilisation of hosts."""
    return changes(utilised(old), utilised(new))


@pytest.mark.parametrize(
    ("new", "column"),
    [
        ([1, 2, 3, 4], {"values": [1, 2, 3, 4]}),
        ([1, 1, 2, 2], {"values": [1, 2], "counts": [2, 2]}),
        ([1, 1, 2, 3], {"values": [1, 1, 2, 3]}),
        ([1, 2, 1, 2, 1, 2, 1, 2], {"values": [1, 2], "which": [0, 1] * 4}),
        ([1, 2, 1, 2, 1, 2, 1], {"values": [1, 2, 1, 2, 1, 2, 1]}),
        ([1, 1, 1, 0, 0], {"values": [1], "counts": [3], "at": [[0, 3]]}),
        ([1, 0, 2, 3, 0], {"values": [1, 2, 3], "at": [[0, 1], [2, 4]]}),
    ],
)
def test_how_a_column_is_written(new: list[float], column: dict[str, Any]) -> None:
    found = columns([0.0] * len(new), [float(v) for v in new])
    assert found == {"columns": {"hosts": {"utilisation": column}}}
    before, after = (
        Turn(1, "static", utilised(values)) for values in ([0.0] * len(new), list(map(float, new)))
    )
    assert applied(before, after) == after


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_the_changes_of_many_rows_are_the_same_whichever_rows_are_the_same_objects(
    every: int,
) -> None:
    old, new = utilised([0.25] * 400), utilised([0.25] * 399 + [0.5])
    kept = tuple(
        before if n % every else after
        for n, (before, after) in enumerate(zip(old.hosts, new.hosts, strict=True))
    )
    assert kept[-1].utilisation == (0.25 if 399 % every else 0.5)
    found = changes(old, replace(new, hosts=kept))
    assert found == ({} if 399 % every else {"set": {"hosts/399/utilisation": 0.5}})


plain = [None, 0.0, 1.0, "x", math.nan, np.float64(0.5)]
pairs = st.tuples(st.sampled_from([*plain, -0.0, 1, True, 0.5]), st.sampled_from(plain))


@given(st.lists(pairs, min_size=4, max_size=12))
def test_a_column_has_the_values_that_differ_one_by_one(rows: list[tuple[Any, Any]]) -> None:
    olds, news = zip(*rows, strict=True)
    other = [n for n, (old, new) in enumerate(rows) if old is not new and old != new]
    found: dict[int, Any] = {}
    written = changes(executors(olds), executors(news))
    for text, value in written.get("set", {}).items():
        found[int(text.split("/")[1])] = value
    if written.get("columns"):
        column = written["columns"]["hosts"]["executor"]
        at = [n for a, b in column.get("at", [[0, len(rows)]]) for n in range(a, b)]
        found |= dict(zip(at, _expanded(column, {}), strict=True))
    assert [(n, repr(value)) for n, value in found.items()] == [(n, repr(news[n])) for n in other]


def executors(values: Sequence[Any]) -> Snapshot:
    leased = tuple(Host(f"h{n}", Resources(1.0), executor=v) for n, v in enumerate(values))
    return Snapshot(0.0, Topology((Operator("u"),)), HostOffer(Resources(1.0)), leased)


def test_few_values_are_no_column() -> None:
    assert columns([0.0] * 4, [0.5, 0.0, 0.0, 0.25]) == {
        "set": {"hosts/0/utilisation": 0.5, "hosts/3/utilisation": 0.25}
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": {"t": [[0, 9]]}},
        {"rows": {"t": [[0, 3]]}},
        {"rows": {"t": [[-1, 1]]}},
        {"rows": {"t": [[1, 1]]}},
        {"columns": {"t": {"v": {"values": [1], "counts": [2, 1]}}}},
        {"rows": {"none": []}},
        {"columns": {"t": {"v": {"values": [1]}}}},
        {"set": {"t/9/v": 1}},
        {"drop": ["u"]},
    ],
)
def test_changes_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        changed({"t": [{"v": 1}, {"v": 2}]}, wrong)


# --- turns --------------------------------------------------------------------------------------


def write(path: Path, turns: list[Turn], rotation: Rotation | None = None) -> list[bytes]:
    with Journal(path, rotation) as journal:
        for turn in turns:
            journal.write(turn)
    return path.read_bytes().splitlines(keepends=True)


def test_a_turn_of_fifty_executors_takes_four_kilobytes(tmp_path: Path) -> None:
    turns = [large_turn(n) for n in range(1, 2 * MOST_SINCE)]
    lines = write(tmp_path / "j.jsonl", turns)
    assert len(to_json(turns[-1], defaults=False)) > 40_000
    assert sum(map(len, lines)) / len(lines) < 4_000
    assert list(read_journal(tmp_path / "j.jsonl")) == turns
    assert list(last_turns(tmp_path / "j.jsonl")) == turns[::-1]
    full = [n for n, line in enumerate(lines) if b'"since":' not in line[:80]]
    assert full == [0, MOST_SINCE + 1]


def test_hosts_that_come_and_go_are_written_as_such(tmp_path: Path) -> None:
    sizes = [50, 50, 51, 53, 53, 48, 48, 50]
    turns = [large_turn(n, hosts) for n, hosts in enumerate(sizes, 1)]
    lines = write(tmp_path / "j.jsonl", turns)
    assert list(read_journal(tmp_path / "j.jsonl")) == turns
    assert max(map(len, lines[1:])) < len(lines[0]) / 2
    assert b'"rows":' in lines[2]


def test_a_fleet_that_became_another_one_is_written_in_full(tmp_path: Path) -> None:
    turns = [large_turn(1, 50), large_turn(2, 120), large_turn(3, 120)]
    lines = write(tmp_path / "j.jsonl", turns)
    assert [b'"since":' in line[:80] for line in lines] == [False, False, True]
    assert list(read_journal(tmp_path / "j.jsonl")) == turns


def test_when_turns_have_drifted_far_the_next_one_is_full(tmp_path: Path) -> None:
    turns = [large_turn(1, 50), *(large_turn(n, 60) for n in range(2, 60))]
    turns.insert(1, large_turn(1, 50))
    lines = write(tmp_path / "j.jsonl", turns)
    full = [n for n, line in enumerate(lines) if b'"since":' not in line[:80]]
    assert len(full) == 2 and 5 < full[1] < 40
    assert list(read_journal(tmp_path / "j.jsonl")) == turns


@pytest.mark.parametrize("length", [SHORT - 1, SHORT, SHORT + 1, SHORT + 2])
def test_whether_a_full_line_is_just_long_enough_its_changes_can_be_read(
    length: int, tmp_path: Path
) -> None:
    """length: of the full line with its end."""
    path = tmp_path / "j.jsonl"

    def turn(number: int) -> Turn:
        return Turn(number, "static", steady_snapshot(), memory=["x" * missing, number])

    missing = 0
    missing = length - 1 - len(to_json(turn(1), defaults=False))
    lines = write(path, [turn(1), turn(2)])
    assert len(lines[0]) == length and (len(lines[1]) < length) == (length > SHORT)
    assert [one.memory[1] for one in read_journal(path)] == [1, 2]
    assert [one.memory[1] for one in last_turns(path)] == [2, 1]
    watched = WatchedJournal(path, "j")
    watched.refresh()
    assert [json.loads(watched.raw(n))["memory"][1] for n in (0, 1)] == [1, 2]


def test_short_turns_are_written_in_full(tmp_path: Path) -> None:
    turns = [large_turn(n, 5) for n in range(1, 9)]
    lines = write(tmp_path / "j.jsonl", turns)
    assert max(map(len, lines)) < SHORT
    assert [json.loads(line)["snapshot"]["time_s"] for line in lines] == [
        10.0 * n for n in range(1, 9)
    ]


def test_what_the_memory_holds_is_kept_to_the_type_and_the_order(tmp_path: Path) -> None:
    memories: list[Any] = [
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        {"a": 1.0, "b": 2},
        {"a": True, "b": None},
        {"a": -0.0},
        {"a": 0.0},
        [0, 1],
        None,
        {"x": [[1.5, 2], [2.5, 3]]},
        {"x": [[2.5, 3], [3.5, 4]]},
    ]
    turns = [replace(large_turn(n), memory=memory) for n, memory in enumerate(memories, 1)]
    write(tmp_path / "j.jsonl", turns)
    read = list(read_journal(tmp_path / "j.jsonl"))
    assert [json.dumps(turn.memory) for turn in read] == [json.dumps(m) for m in memories]


def test_a_damaged_line_costs_no_other_turn(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = write(path, [large_turn(n) for n in range(1, 8)])
    for damage in (lines[2][:100], b"garbage\n", b"x" * 2 * SHORT, lines[0][:-500]):
        path.write_bytes(b"".join([*lines[:2], damage.rstrip(b"\n") + b"\n", *lines[3:]]))
        assert [turn.number for turn in read_journal(path, [])] == [1, 2, 4, 5, 6, 7]
        assert [turn.number for turn in last_turns(path)] == [7, 6, 5, 4, 2, 1]


def test_three_damaged_lines_that_look_like_full_ones_cost_no_other_turn(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = write(path, [large_turn(n) for n in range(1, 5)])
    garbage = [bytes([letter]) * 2 * SHORT + b"\n" for letter in b"xyz"]
    path.write_bytes(b"".join([*lines[:2], *garbage, *lines[2:]]))
    assert [turn.number for turn in read_journal(path, [])] == [1, 2, 3, 4]


def test_turns_whose_full_line_is_damaged_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = write(path, [large_turn(n) for n in range(1, 4)])
    with Journal(path) as journal:  # another process: it begins with a full line
        for number in (1, 2):
            journal.write(large_turn(number))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0].replace(b"9", b"8", 1), *lines[1:]]))
    said: list[str] = []
    assert [turn.number for turn in read_journal(path, said)] == [1, 1, 2]
    assert "2 lines are damaged" in said[0]
    assert "turn is 2; it must be based on turn 1: that line is damaged or missing" in said[0]
    with pytest.raises(InputError, match="based on turn 1"):
        TurnReader().read(lines[1])


def test_a_rotated_part_can_be_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    turns = [large_turn(n) for n in range(1, 60)]
    write(path, turns, Rotation(max_mb=0.1, keep=100))
    parts = parts_of(path)
    assert len(parts) >= 2
    read = [list(read_journal(part)) for part in parts]
    before = [turn for part in read for turn in part]
    assert before == turns[: len(before)] and list(read_journal(path)) == turns
    parts[0].unlink()
    assert list(read_journal(path)) == turns[len(read[0]) :]


def test_a_file_that_was_removed_begins_with_a_full_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.write(large_turn(1))
        journal.write(large_turn(2))
        path.unlink()
        journal.write(large_turn(3))
        journal.write(large_turn(4))
    assert [turn.number for turn in read_journal(path)] == [3, 4]


def test_a_torn_line_is_removed_and_the_next_ones_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = write(path, [large_turn(n) for n in range(1, 4)])
    path.write_bytes(b"".join(lines)[:-30])
    with Journal(path) as journal:
        assert journal.torn_bytes > 0
        journal.write(large_turn(4))
        journal.write(large_turn(5))
    assert [turn.number for turn in read_journal(path)] == [1, 2, 4, 5]


def test_a_write_that_failed_is_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        file = journal._file

        class Full:
            def write(self, data: bytes) -> int:
                file.write(data[:20])
                raise OSError(28, "No space left on device")

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        monkeypatch.setattr(journal, "_file", Full())
        with pytest.raises(OSError, match="No space"):
            journal.write(large_turn(1))
        monkeypatch.setattr(journal, "_file", file)
        journal.write(large_turn(2))
        journal.write(large_turn(3))
    assert [turn.number for turn in read_journal(path)] == [2, 3]


def test_the_dashboard_opens_any_turn_in_full(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    turns = [large_turn(n) for n in range(1, 8)]
    write(path, turns)
    watched = WatchedJournal(path, "j")
    while watched.refresh():
        pass
    assert [row.number for row in watched.rows] == list(range(1, 8))
    assert watched.turn(5)["number"] == 6
    assert TurnReader().read(watched.raw(5))[0] == turns[5]


def test_a_loop_continues_with_the_memory_of_a_line_with_changes(tmp_path: Path) -> None:
    path, policy = tmp_path / "j.jsonl", create("static")
    memory = policy.save_memory(policy.initial_memory(0))
    turns = [replace(large_turn(n), policy=policy.describe(), memory=memory) for n in (1, 2)]
    write(path, turns)
    assert policy.save_memory(remembered(path, policy)) == memory


def test_instances_with_readings_in_a_plan_are_written_as_instances(tmp_path: Path) -> None:
    first, second = large_turn(1), large_turn(2)
    assert second.snapshot is not None and second.plan is not None
    unusual = Plan(Deployment(second.plan.deployment.hosts, second.snapshot.instances))
    lines = write(tmp_path / "j.jsonl", [first, replace(second, plan=unusual)])
    assert b'"since":' not in lines[1][:80]
    read = list(read_journal(tmp_path / "j.jsonl"))
    assert read[1].plan is not None and read[1].plan.deployment == second.plan.deployment


def test_a_memory_that_a_policy_changes_in_place_is_written_as_it_was(tmp_path: Path) -> None:
    memory = {"count": 1}
    with Journal(tmp_path / "j.jsonl") as journal:
        for number in (1, 2, 3):
            memory["count"] = number
            journal.write(replace(large_turn(number), memory=memory))
    read = list(read_journal(tmp_path / "j.jsonl"))
    assert [turn.memory for turn in read] == [{"count": 1}, {"count": 2}, {"count": 3}]


def test_a_field_of_a_newer_version_is_passed_over_and_said(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    turns = [large_turn(n) for n in (1, 2)]
    full, based = write(path, turns)
    later = json.loads(based)
    later["changes"]["set"]["mood"] = "calm"
    path.write_bytes(full + json.dumps(later, separators=(",", ":")).encode() + b"\n")
    said: list[str] = []
    assert list(read_journal(path, said)) == turns
    assert said == ["j.jsonl was written by a newer version, whose fields are left out: mood"]
