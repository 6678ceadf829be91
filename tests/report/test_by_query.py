"""Queries are judged apart, lower bounds stay lower bounds, and no figure leaves out in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tests.report.queries import SLOS_S, many_queries, write_many
from tidegate.loop.journal import Turn
from tidegate.model import FirstBatch, Latency, Snapshot
from tidegate.report.live import figures, left_out_text, live_page
from tidegate.report.points import latency_figures, points_of
from tidegate.report.queries import judged, limit_of, queries_of
from tidegate.report.summary import LeftOut, Measured, summarise


def snapshot(turn: Turn) -> Snapshot:
    assert turn.snapshot is not None
    return turn.snapshot


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    return many_queries()


def test_a_lower_bound_counts_at_that_value_or_above() -> None:
    bound = Latency(p50_s=12.0, at_least=True)
    assert all(point.seconds >= 12 and point.at_least for point in points_of(bound, 100))
    found = latency_figures([(bound, 100), (Latency(1, 1, 2, 3), 100)], slo_s=5.0)
    assert found.in_time == pytest.approx(0.5) and not found.at_most, "12 s or more is late"
    assert found.at_least and found.p95_s is not None and found.p95_s >= 12


def test_a_share_in_time_is_an_upper_bound_while_lower_bounds_are_within_the_slo() -> None:
    found = latency_figures([(Latency(p50_s=4.0, at_least=True), 100)], slo_s=5.0)
    assert found.in_time == 1 and found.at_most


def test_every_query_is_judged_by_its_own_slo(turns: list[Turn]) -> None:
    found = {query.name: query for query in summarise(turns).queries}
    assert {name: query.slo_s for name, query in found.items()} == SLOS_S
    assert found["alerts"].delay.in_time == 1
    assert found["alerts"].event_age.p95_s == pytest.approx(90), "late data is old by design"
    sessions = found["sessions"]
    assert sessions.delay.in_time is not None and 0.5 < sessions.delay.in_time < 1
    assert sessions.delay.at_least and sessions.peak_backlog_s == 44 and sessions.peak_state_mb
    assert found["dead-letter"].items == 0 and found["dead-letter"].delay.in_time is None
    assert found["audit"].limited_s > 0 and "maxOffsets" in found["audit"].admission


def test_an_slo_on_the_command_line_replaces_only_the_default(turns: list[Turn]) -> None:
    found = {query.name: query.slo_s for query in summarise(turns, slo_s=9.0).queries}
    assert found == {"alerts": 2.0, "sessions": 9.0, "dead-letter": 9.0, "audit": 60.0}


def test_the_page_has_a_section_by_query(turns: list[Turn]) -> None:
    html = live_page("four", turns, summarise(turns)).html()
    for text in (
        "<h2>Queries</h2>", "at least", "event age p95", "no items", "maxOffsetsPerTrigger=5000",
        "Processing delay by query, p95", "By query, each with its own SLO: sessions",
        "the batches so far do not separate this term",
    ):  # fmt: skip
        assert text in html, text
    assert "from event to commit" not in html


def test_thirty_queries_are_all_in_the_table_and_the_worst_in_the_chart() -> None:
    turns = many_queries(30, turns=12)
    html = live_page("thirty", turns, summarise(turns)).html()
    assert html.count("dead-letter-") >= 6
    assert "are not drawn" in html


def test_a_single_query_of_an_old_journal_is_judged_by_the_latency(turns: list[Turn]) -> None:
    one = many_queries(1)
    old = [
        replace(
            t,
            snapshot=replace(
                snapshot(t),
                operators=tuple(replace(r, delay=Latency()) for r in snapshot(t).operators),
            ),
        )
        for t in one
    ]
    assert summarise(old).queries[0].delay == summarise(one).queries[0].delay


def test_what_limits_a_query_is_a_sentence(turns: list[Turn]) -> None:
    now = snapshot(turns[30])
    assert queries_of(now) == tuple(SLOS_S)
    assert limit_of(now.reading["audit"]) == (
        "the source admits at most 5,000 rows a batch (maxOffsetsPerTrigger=5000): "
        "more executors do not help"
    )
    assert limit_of(now.reading["dead-letter"]) == ""
    assert "fixed work" in limit_of(snapshot(turns[3]).reading["sessions"])


def test_an_slo_about_the_event_age_is_judged_by_it(turns: list[Turn]) -> None:
    aged = [replace(t, snapshot=replace(snapshot(t), latency=snapshot(t).event_age)) for t in turns]
    found = {query.name: query for query in summarise(aged).queries}
    alerts = found["alerts"]
    assert alerts.by_age and alerts.delay.in_time == pytest.approx(0, abs=0.05), "a minute old"
    assert alerts.delay.p95_s is not None and alerts.delay.p95_s < 2
    assert judged(snapshot(aged[0]))[0].name == "alerts"
    assert "by its event age" in live_page("aged", aged, summarise(aged)).html()


def test_exact_figures_of_a_query_replace_its_estimates(turns: list[Turn]) -> None:
    exact = Measured(1000, 10, 0.5, 1.5, 2.5)
    summary = summarise(turns, measured=exact, by_query={"alerts": exact})
    found = {query.name: query for query in summary.queries}
    alerts = found["alerts"]
    assert alerts.exact and alerts.delay.in_time == pytest.approx(0.99) and alerts.items == 1000
    assert not found["sessions"].exact
    assert "within its SLO" in dict(figures(summary)), "each row by the SLO of its query"


# --- nothing is left out in silence -----------------------------------------------------------


def test_turns_outside_the_counted_time_are_named_with_their_own_figures(
    turns: list[Turn],
) -> None:
    begin_s = snapshot(turns[0]).time_s
    summary = summarise(turns, from_s=begin_s + 100, until_s=begin_s + 495)
    before, after = summary.left_out
    assert before.name == "before" and before.duration_s == pytest.approx(100)
    assert after.name == "after" and after.duration_s == pytest.approx(100)
    assert before.items and before.p95_s is not None and before.slo_compliance is not None
    shown = dict(figures(summary))
    assert "within the SLO of their query, p95" in shown["not counted: before"]
    html = live_page("part", turns, summary).html()
    assert html.count('class="shade"') >= 6, "before and after, in each chart"
    assert "Not counted: before, 1.67 min" in html
    assert summarise(turns).left_out == ()


def test_a_warm_up_that_is_not_in_the_journal_is_named_in_answer_and_figures(
    turns: list[Turn],
) -> None:
    begin_s = snapshot(turns[0]).time_s
    warm_up = LeftOut("warm-up", begin_s - 41, begin_s, 3012, 0.612, 17.0, exact=True)
    summary = summarise(turns, measured=Measured(100, 0, 1, 2, 3), before=warm_up)
    text = "41 s, 3012 items, 61.2% within the SLO of their query, p95 17 s"
    assert left_out_text(warm_up, summary) == text
    assert dict(figures(summary))["not counted: warm-up"] == text
    assert f"Not counted: warm-up, {text}." in live_page("day", turns, summary).html()


def later(turns: list[Turn], from_number: int, by_s: float) -> list[Turn]:
    """The turns, with a time of that length before one of them in which there was none."""
    return [
        replace(t, snapshot=replace(snapshot(t), time_s=snapshot(t).time_s + by_s))
        if t.number >= from_number
        else t
        for t in turns
    ]


def test_a_time_without_snapshots_is_not_counted_and_is_named(turns: list[Turn]) -> None:
    whole, down = summarise(turns), summarise(later(turns, 31, 36_000.0))
    assert down.duration_s == pytest.approx(whole.duration_s)
    assert down.items == pytest.approx(whole.items)
    assert down.slo_compliance == pytest.approx(whole.slo_compliance)
    assert down.executor_s == pytest.approx(whole.executor_s)
    assert down.saved == pytest.approx(whole.saved)
    (gap,) = down.left_out
    assert gap.name == "not watched" and gap.duration_s == pytest.approx(36_000)
    assert gap.items is None and gap.slo_compliance is None
    assert dict(figures(down))["not counted: not watched"] == "10 h, items unknown"
    html = live_page("down", later(turns, 31, 36_000.0), down).html()
    assert "Not counted: not watched, 10 h, items unknown." in html
    twice = summarise(later(later(turns, 31, 36_000.0), 41, 7_200.0))
    assert dict(figures(twice))["not counted: not watched"] == "12 h in 2 parts, items unknown"


def test_late_turns_are_counted_and_a_journal_of_two_turns_may_have_a_gap(
    turns: list[Turn],
) -> None:
    late = summarise(later(turns, 31, 15.0))
    assert late.left_out == () and late.duration_s == pytest.approx(615)
    assert summarise(later(turns[:2], 2, 3_600.0)).duration_s == pytest.approx(20)


@pytest.mark.parametrize("count", [1, 4])
def test_rows_of_a_first_batch_are_late_by_its_duration_at_least(count: int) -> None:
    every = many_queries(count)
    first = FirstBatch(1e6, 600.0, snapshot(every[3]).time_s - 1)

    def started(turn: Turn) -> Turn:
        now = snapshot(turn)
        operators = (replace(now.operators[0], first_batch=first), *now.operators[1:])
        return replace(turn, snapshot=replace(now, operators=operators))

    begun = [started(t) if t.number > 3 else t for t in every]
    old, new = summarise(every), summarise(begun)
    assert new.items - old.items == pytest.approx(1e6)
    assert old.slo_compliance is not None and new.slo_compliance is not None
    judged_items = old.items - old.without_latency
    in_time = old.slo_compliance * judged_items / (judged_items + 1e6)
    assert new.slo_compliance == pytest.approx(in_time)
    alerts = new.queries[0]
    assert alerts.delay.p99_s == 600 and alerts.delay.at_least
    before_s = first.committed_s - 1_000
    assert summarise([started(t) for t in every[20:]], from_s=before_s).items == pytest.approx(
        summarise(every[20:]).items
    ), "it was before this journal"


def without_delay(turn: Turn) -> Turn:
    now = snapshot(turn)
    blind = tuple(replace(r, delay=Latency()) for r in now.operators)
    return replace(turn, snapshot=replace(now, operators=blind, latency=Latency()))


@pytest.mark.parametrize("count", [1, 4])
def test_items_without_a_latency_are_named(count: int) -> None:
    every = many_queries(count)
    blind = [without_delay(t) if 20 <= n < 30 else t for n, t in enumerate(every)]
    summary = summarise(blind)
    assert summary.without_latency > 0
    assert "not in the share" in dict(figures(summary))["without a latency"]
    # Of the four queries, three have rows in these ten turns.
    assert summary.without_latency_s == pytest.approx(100 if count == 1 else 300)
    length = "1.67 min" if count == 1 else "5 min, added up over the queries"
    assert f" of {length}: not in" in dict(figures(summary))["without a latency"]
    assert summarise(every).without_latency_s == 0
    assert summarise(every).without_latency == 0


def test_the_share_in_time_judges_independent_queries_by_their_own_slo(turns: list[Turn]) -> None:
    summary = summarise(turns)
    assert summary.by_query and "within its SLO" in dict(figures(summary))
    shares = [(q.delay.items, q.delay.in_time) for q in summary.queries]
    total = sum(items for items, _ in shares)
    in_time = sum(items * share for items, share in shares if share is not None)
    assert summary.slo_compliance == pytest.approx(in_time / total)


def test_shed_and_set_aside_items_are_named(turns: list[Turn]) -> None:
    shedding = [
        replace(
            t,
            snapshot=replace(
                snapshot(t),
                operators=tuple(replace(r, dropped_per_s=2.0) for r in snapshot(t).operators),
            ),
        )
        for t in turns
    ]
    assert dict(figures(summarise(shedding)))["shed"].startswith("about 4800 items")
    measured = Measured(100, 0, 1, 2, 3, set_aside=7)
    assert dict(figures(summarise(turns, measured=measured)))["set aside"].startswith("7 bad rows")


def test_items_that_still_wait_at_the_end_are_named(turns: list[Turn]) -> None:
    overloaded = turns[:28]
    assert dict(figures(summarise(overloaded)))["waiting at the end"].startswith("62")
    measured = Measured(100, 0, 1, 2, 3)  # rows that were not processed count as late
    assert "waiting at the end" not in dict(figures(summarise(overloaded, measured=measured)))


def test_items_that_wait_are_added_up_where_they_are_known(turns: list[Turn]) -> None:
    def blind(turn: Turn, *names: str) -> Turn:
        now = snapshot(turn)
        operators = tuple(
            replace(r, queue_length=None) if r.operator in names else r for r in now.operators
        )
        return replace(turn, snapshot=replace(now, operators=operators))

    known = summarise(turns[:28])
    one = [blind(t, "audit") for t in turns[:28]]
    summary, audit = summarise(one), snapshot(turns[27]).reading["audit"].queue_length
    assert known.waiting is not None and summary.waiting is not None and audit
    assert summary.waiting == pytest.approx(known.waiting - audit)
    assert known.waiting_unknown == () and summary.waiting_unknown == ("audit",)
    text = dict(figures(summary))["waiting at the end"]
    assert text.endswith("items: not in the share in time; unknown for audit")
    assert "Without audit wherever it was not measured." in live_page("one", one, summary).html()
    none = summarise([blind(t, *SLOS_S) for t in turns[:28]])
    assert none.waiting is None and none.waiting_unknown == tuple(SLOS_S)
    assert dict(figures(none))["waiting at the end"].startswith("unknown for ")


def test_the_command_reports_by_query(tmp_path: Path) -> None:
    path = write_many(tmp_path / "four.jsonl")
    done = tidegate("report", path, "--out", tmp_path / "four.html")
    assert done.returncode == 0, done.stderr
    assert "alerts" in done.stdout and "at least" in done.stdout
