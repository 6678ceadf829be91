"""Rows, sentences and details, from journals that the simulator wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.queries import SLOS_S, many_queries
from tidegate.dashboard.view import (
    Row,
    RowBuilder,
    change_of,
    columns,
    detail_of,
    effect_of,
    tables_of,
    thinned,
)
from tidegate.dashboard.view import thresholds_of as implied
from tidegate.loop.backend import Outcome
from tidegate.loop.controls import Control
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import Binding, Deployment, Plan, Reason, Unmet
from tidegate.model.steps import Step
from tidegate.policies.sarsa import QTable
from tidegate.report.summary import capacity_of, lag_of, rate_of, summarise
from tidegate.testing import steady_snapshot


def read(path: Path) -> tuple[list[Turn], list[Row]]:
    turns = list(read_journal(path))
    builder = RowBuilder()
    return turns, [builder.add(turn) for turn in turns]


@pytest.mark.parametrize("name", ["drs", "btu", "sarsa"])
def test_rows_say_what_the_report_says(journals: dict[str, Path], name: str) -> None:
    turns, rows = read(journals[name])
    summary = summarise(turns)
    assert [row.index for row in rows] == list(range(len(turns)))
    for turn, row in zip(turns, rows, strict=True):
        assert turn.snapshot is not None
        assert row.rate_per_s == rate_of(turn.snapshot)
        assert row.capacity_per_s == capacity_of(turn.snapshot)
        assert row.lag == lag_of(turn.snapshot)
    assert rows[-1].cost_usd == pytest.approx(summary.cost_usd)
    assert sum(_rescaled(row) for row in rows) == summary.rescales


def _rescaled(row: Row) -> bool:
    return row.change is not None and row.change.before != row.change.after


def decided(before: int, after: int, **plan: Any) -> Turn:
    """A turn that goes from so many hosts to so many."""
    snapshot = steady_snapshot(before)
    hosts = tuple(f"host-{n + 1}" for n in range(after))
    kind: Any = "lease" if after > before else "release"
    steps = tuple(
        Step(kind, f"host-{n + 1}") for n in range(min(before, after), max(before, after))
    )
    wanted = Plan(Deployment(hosts), **plan)
    return Turn(7, "drs → bounds()", snapshot, wanted, Outcome(steps))


def test_a_change_tells_what_and_why_in_plain_words() -> None:
    grown = change_of(decided(2, 3, reasons=(Reason("latency", "it would be late"),)))
    assert grown is not None
    assert (grown.kind, grown.before, grown.after) == ("out", 2, 3)
    assert grown.text == "Added 1 host (2 → 3): it would be late."
    shrunk = change_of(decided(3, 1))
    assert shrunk is not None
    assert shrunk.text == "Released 2 hosts (3 → 1)."


def test_a_change_tells_what_a_guard_kept_the_policy_from() -> None:
    turn = decided(
        2,
        3,
        raw=Deployment(tuple(f"host-{n}" for n in range(5))),
        bindings=(Binding("bounds", 5, 3, "at most 3 hosts are allowed"),),
    )
    change = change_of(turn)
    assert change is not None
    assert (
        "The policy targeted 5 hosts; bounds limited it: at most 3 hosts are allowed."
        in change.text
    )
    row = RowBuilder().add(turn)
    assert (row.wanted, row.planned, row.guards) == (5, 3, "bounds")


def test_the_reason_that_explains_the_hosts_comes_first() -> None:
    reasons = (Reason("make-way", "a makes way"), Reason("lease", "no host has room"))
    change = change_of(decided(1, 2, reasons=reasons))
    assert change is not None
    assert change.why == "no host has room"


def test_quiet_failed_and_refused_turns() -> None:
    quiet = Turn(1, "static", steady_snapshot(), Plan(Deployment(("host-1",))), Outcome())
    assert change_of(quiet) is None
    failed = RowBuilder().add(Turn(2, "static", error="BackendError: gone"))
    assert (failed.time_s, failed.error) == (None, "BackendError: gone")
    refused = change_of(replace(quiet, outcome=Outcome((), ("no more hosts can be had",))))
    assert refused is not None
    assert refused.kind == "refused"
    assert refused.text == "Nothing was applied. Refused: no more hosts can be had."


def test_what_people_asked_for_is_folded() -> None:
    builder = RowBuilder()
    turn = Turn(1, "static", steady_snapshot())
    row = builder.add(replace(turn, controls=(Control("pause", "both"), Control("dry-run", "on"))))
    assert row.controls == ("pause scaling", "decide without acting")
    assert (builder.in_force.paused, builder.in_force.dry_run) == ("both", True)
    row = builder.add(replace(turn, controls=(Control("pause", "no", refused="too late"),)))
    assert row.controls == ("resume scaling (refused: too late)",)
    assert builder.in_force.paused == "both"


def test_thresholds_are_those_of_the_tables(journals: dict[str, Path]) -> None:
    turns, rows = read(journals["sarsa"])
    tables = tables_of(turns[-1].memory)
    assert tables
    for plain in tables.values():
        table = QTable(tuple(tuple(row) for row in plain["rows"]))
        assert implied(plain) == table.thresholds
    assert rows[-1].lower is not None
    assert {row.lower for row in read(journals["drs"])[1]} == {None}


@pytest.mark.parametrize(
    "table", [None, 7, [], {"rows": 7}, {"rows": [7]}, {"rows": [[1, 2]]}, {"rows": [[1, 2, "x"]]}]
)
def test_a_learning_table_of_another_form_is_left_out(table: object) -> None:
    whole = {"rows": [[0.1, 0.2, 0.3]]}
    memory = {"own": {}, "inner": {"tables": {"host-1": table, "host-2": whole}}}
    assert tables_of(memory) == {"host-2": whole}
    turn = Turn(1, "sarsa", steady_snapshot(), memory=memory)
    assert "host-1" not in str(detail_of(turn, RowBuilder().add(turn), [])["learning"])
    assert tables_of({"tables": table}) == {}


def test_thinning_keeps_decisions_and_the_worst() -> None:
    _, rows = [], [Row(n, n + 1, float(n), p95_s=1.0) for n in range(10_000)]
    change = change_of(decided(1, 2))
    rows[4321] = replace(rows[4321], p95_s=99.0)
    rows[1234] = replace(rows[1234], change=change)
    few = thinned(rows, 300)
    assert len(few) <= 310
    assert {4321, 1234, 9999} <= {row.index for row in few}
    assert [row.index for row in few] == sorted(row.index for row in few)
    every = [replace(row, change=change) for row in rows]
    assert len(thinned(every, 300)) <= 310
    assert thinned(rows[:50], 300) == rows[:50]


def test_columns_are_plain(journals: dict[str, Path]) -> None:
    _, rows = read(journals["drs"])
    found = columns(rows)
    assert {len(values) for values in found.values()} == {len(rows)}
    changes = [change for change in found["change"] if change]
    assert changes
    assert all(change["text"].startswith(change["what"]) for change in changes)


def test_a_turn_in_full(journals: dict[str, Path]) -> None:
    turns, rows = read(journals["drs"])
    at = next(n for n, row in enumerate(rows) if _rescaled(row))
    shown = detail_of(turns[at], rows[at], rows[at + 1 :])
    busiest = max(shown["operators"], key=lambda operator: operator["busy"] or 0.0)
    assert [o["name"] for o in shown["operators"] if o["bottleneck"]] == [busiest["name"]]
    assert shown["plan"]["raw_target"] == turns[at].plan.raw_target  # type: ignore[union-attr]
    assert sum(len(host["instances"]) for host in shown["hosts"]) == len(
        turns[at].snapshot.instances  # type: ignore[union-attr]
    )
    assert all(0 < host["lease_left_s"] <= host["lease_unit_s"] for host in shown["hosts"])
    assert shown["steps"]
    assert shown["learning"] is None
    came = shown["effect"]
    assert came["before"]["running"] == rows[at].running
    assert came["after"]["running"] == rows[at].change.after  # type: ignore[union-attr]


def test_hosts_are_shown_with_their_executor_and_place() -> None:
    turn = decided(3, 3)
    assert turn.snapshot is not None
    one, two, three = turn.snapshot.hosts
    hosts = (
        replace(one, executor="4", address="10.0.0.7", pod="job-exec-4"),
        replace(two, executor="5", address="worker-5", status="draining", excluded=True),
        three,
    )
    turn = replace(turn, snapshot=replace(turn.snapshot, hosts=hosts))
    shown = [
        (h["executor"], h["place"], h["excluded"]) for h in detail_of(turn, Row(0, 1, 0.0))["hosts"]
    ]
    assert shown == [("4", "job-exec-4", False), ("5", "worker-5", True), (None, None, False)]


def test_what_is_predicted_of_an_operator_follows_the_model() -> None:
    from tidegate.testing import station_snapshot

    now = station_snapshot({"a": (40.0, 10.0), "b": (40.0, 10.0)}, (5, 4), cores_per_host=9)
    turn = Turn(1, "drs", now)
    shown = {o["name"]: o for o in detail_of(turn, RowBuilder().add(turn))["operators"]}
    # M/M/5 at 80 %: 0.1 s of service and C(5, 4)/(50 − 40) = 0.0554 s of waiting.
    assert shown["a"]["predicted_s"] == pytest.approx(0.1554, abs=1e-4)
    assert shown["b"]["predicted_s"] is None
    assert shown["b"]["overloaded"]


def test_what_came_of_it_is_the_turn_after_all_of_it_ran() -> None:
    start = Row(0, 1, 0.0, running=1, hosts=1, change=change_of(decided(1, 2)))
    later = [
        Row(1, 2, 10.0, running=1, hosts=2, p95_s=9.0),
        Row(2, 3, 20.0, running=2, hosts=2, p95_s=8.0),
        Row(3, 4, 30.0, running=2, hosts=2, p95_s=1.0),
    ]
    came = effect_of(start, later)
    assert came["after"]["p95_s"] == 1.0
    assert came["text"] == "All hosts ran after 20 s at most; 30 s after the decision:"
    assert effect_of(start, [])["after"] is None
    never = effect_of(start, later[:1])
    assert "never reached" in never["text"]


def test_a_quiet_turn_says_who_held_it() -> None:
    now = steady_snapshot(2)
    plan = Plan(
        now.requested,
        (Reason("late", "it is late"),),
        raw=Deployment(("host-1", "host-2", "host-3")),
        bindings=(Binding("pause", 3, 2, "scaling is paused"),),
        unmet=(Unmet("work", 1, "no room"),),
    )
    turn = Turn(1, "drs", now, plan, Outcome())
    text = detail_of(turn, RowBuilder().add(turn))["text"]
    assert text == (
        "The policy targeted 3 hosts; pause limited it: scaling is paused. "
        "Reason of the policy: it is late."
    )


def test_every_query_is_shown_with_its_own_slo_and_what_limits_it() -> None:
    builder = RowBuilder()
    turns = many_queries()
    rows = [builder.add(turn) for turn in turns]
    shown = {query["name"]: query for query in detail_of(turns[25], rows[25])["queries"]}
    assert {name: query["slo_s"] for name, query in shown.items()} == SLOS_S
    assert shown["sessions"]["delay"]["at_least"] and shown["sessions"]["backlog_s"] == 44
    assert shown["sessions"]["parts_s"][1] == pytest.approx(20 / 12)
    assert shown["audit"]["unclear"] == ["rows"] and "5,000 rows" in shown["audit"]["limit"]
    assert shown["dead-letter"]["delay"]["p95_s"] is None
    assert rows[25].worst["name"] == "sessions" and rows[25].beyond == 1 and rows[25].judged == 3
    totals = builder.queries.plain()
    assert totals["alerts"]["late"] == 0 < totals["sessions"]["late"] < totals["sessions"]["rows"]
    assert totals["dead-letter"]["rows"] == 0


def test_without_queries_there_is_no_table_of_them() -> None:
    turn = Turn(1, "static", steady_snapshot())
    row = RowBuilder().add(turn)
    assert detail_of(turn, row)["queries"] == [] and row.worst is None
