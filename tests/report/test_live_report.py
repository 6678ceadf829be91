"""A run's summary, page and live view, from journals that the simulator wrote."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from tests.cli.helpers import tidegate
from tests.loop.helpers import record as imagined
from tests.report.queries import many_queries
from tidegate.cli.live_view import LiveView, turn_line, view
from tidegate.errors import JournalError
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.stack import wrapped
from tidegate.model import Latency
from tidegate.policies import create
from tidegate.report.live import figures, live_page
from tidegate.report.summary import Measured, capacity_of, decisions_of, lag_of, rate_of, summarise
from tidegate.simulation import RunReport
from tidegate.simulation.run import run
from tidegate.workloads import RateTrace

SLO_S = 2.0


def record(path: Path) -> RunReport:
    """A tide of ten minutes in the simulated cloud, with hosts of two slots."""
    tide = RateTrace(np.array([0.0, 200.0, 400.0]), np.array([20.0, 90.0, 20.0]), seed=1)
    scenario = ScenarioOptions(
        SLO_S,
        rate_per_instance=10,
        instances_per_host=2,
        startup_s=20,
        interval_s=10,
        max_hosts=8,
    ).build(tide)
    policy = wrapped(create("drs", t_max_s=SLO_S / 2), {"stabilisation": {"down_s": "60s"}})
    world = scenario.world(policy.style)
    with Journal(path) as journal:
        return run(world, policy, duration_s=600, interval_s=10, journal=journal)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    journal = tmp_path_factory.mktemp("live") / "tide.jsonl"
    return journal, record(journal)


@pytest.fixture(scope="module")
def path(recorded: tuple[Path, RunReport]) -> Path:
    return recorded[0]


@pytest.fixture(scope="module")
def turns(path: Path) -> list[Turn]:
    return list(read_journal(path))


def text_of(shown: RenderableType, width: int = 100) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(shown)
    file = out.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_summary_agrees_with_the_simulators_own_report(
    recorded: tuple[Path, RunReport], turns: list[Turn]
) -> None:
    report, summary = recorded[1], summarise(turns)
    assert summary.slo_s == SLO_S
    assert summary.duration_s == pytest.approx(report.duration_s)
    assert summary.items == pytest.approx(report.items_out, rel=0.05)
    assert summary.executor_s == pytest.approx(report.host_seconds)
    assert summary.cost_usd == pytest.approx(report.resource_cost_usd)
    assert summary.peak_executors == report.peak_hosts
    assert summary.static_executor_s == pytest.approx(report.peak_hosts * 600)
    assert 0.1 < summary.saved < 0.8
    assert summary.slo_compliance == pytest.approx(report.slo_compliance, abs=0.05)
    assert summary.p50_s == pytest.approx(report.latency_p50_s, rel=0.3)
    assert summary.scale_up_s == pytest.approx(20, abs=10)
    assert not summary.exact and summary.lost is None


def test_every_change_of_hosts_is_a_decision_with_a_reason(turns: list[Turn]) -> None:
    made = summarise(turns).decisions
    assert any(d.after > d.before for d in made) and any(d.after < d.before for d in made)
    for before, after in pairwise(made):
        assert after.before == before.after
    assert all(d.reason for d in made if d.after > d.before)
    assert summarise(turns).rescales == len(made)


def test_exact_figures_replace_estimates(turns: list[Turn]) -> None:
    measured = Measured(1000, 20, 0.5, 1.5, 2.5, lost=0, repeated=0)
    summary = summarise(turns, measured=measured)
    assert summary.exact and summary.slo_compliance == 0.98 and summary.p95_s == 1.5
    shown = dict(figures(summary))
    assert shown["lost · repeated"] == "0 · 0"
    assert shown["within 2 s"] == "98.0%"
    assert dict(figures(summarise(turns)))["within 2 s"].startswith("about ")


def test_a_warm_up_can_be_left_out(turns: list[Turn]) -> None:
    late = summarise(turns, from_s=300, until_s=500)
    assert late.duration_s == pytest.approx(200)
    assert all(300 <= d.time_s <= 500 for d in late.decisions)
    with pytest.raises(JournalError, match="longer than an interval"):
        summarise(turns, from_s=9000)


def test_what_was_not_measured_stays_unknown(turns: list[Turn]) -> None:
    blind = [
        replace(t, snapshot=replace(t.snapshot, operators=(), latency=Latency()))
        for t in turns
        if t.snapshot is not None
    ]
    now = blind[-1].snapshot
    assert now is not None
    assert (rate_of(now), capacity_of(now), lag_of(now)) == (None, None, None)
    summary = summarise(blind)
    assert summary.slo_compliance is None and summary.p95_s is None and summary.items == 0
    assert "p95" in live_page("blind", blind, summary).html()
    assert "–" in text_of(view(blind, SLO_S))


def test_a_failed_turn_is_shown_and_counted(turns: list[Turn]) -> None:
    failed = [*turns, Turn(99, "drs", error="BackendError: Spark is gone")]
    summary = summarise(failed)
    assert summary.failed_turns == 1
    assert "Spark is gone" in live_page("x", failed, summary).html()
    assert "Spark is gone" in text_of(view(failed, SLO_S))
    assert (
        turn_line(failed[-1], failed[0], SLO_S) == "  turn 99 failed: BackendError: Spark is gone"
    )


def test_the_page_has_pictures_marks_and_decisions_and_loads_nothing(turns: list[Turn]) -> None:
    html = live_page("the tide", turns, summarise(turns)).html()
    for title in ("Rate and capacity", "Latency", "Executors", "Backlog"):
        assert f'aria-label="{title}' in html
    assert html.count('class="mark"') >= 3 * len(decisions_of(turns))
    assert "against a bound of" in html and "stabilisation" in html
    assert "http" not in html


def test_the_view_tells_what_is_going_on_at_every_turn(turns: list[Turn]) -> None:
    assert "starting" in text_of(view([], SLO_S, "starting the cluster"))
    for n in range(1, len(turns) + 1):
        shown = text_of(view(turns[:n], SLO_S, "a tide"))
        assert "latency p95" in shown and "■" in shown and "cost so far" in shown
        assert all(len(line) <= 100 for line in shown.splitlines())
    assert "→" in text_of(view(turns, SLO_S))
    starting = next(
        n
        for n, t in enumerate(turns)
        if t.snapshot and any(h.status == "starting" for h in t.snapshot.hosts)
    )
    assert "◔" in text_of(view(turns[: starting + 1], SLO_S)).split("running")[0]


def test_in_a_log_a_turn_is_one_line(turns: list[Turn]) -> None:
    out = Console(file=io.StringIO(), width=100)
    with LiveView(SLO_S, out) as shown:
        shown.say("starting")
        for turn in turns:
            shown.turn(turn)
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert lines[0] == "starting" and len(lines) == 1 + len(turns)
    assert any("→" in line for line in lines)


def test_what_is_shed_is_said(turns: list[Turn]) -> None:
    last = next(turn for turn in reversed(turns) if turn.plan is not None)
    assert last.plan is not None
    assert "shed" not in turn_line(last, turns[0], SLO_S) + text_of(view([last], SLO_S))
    shedding = replace(last, plan=replace(last.plan, shed_fraction=0.25))
    assert "sheds 25%" in turn_line(shedding, turns[0], SLO_S)
    assert "25% is shed" in text_of(view([shedding], SLO_S))


def test_several_queries_have_a_line_each_with_their_own_slo() -> None:
    turns = many_queries()
    shown = text_of(view(turns[:26], 30.0))
    for name in ("alerts", "sessions", "dead-letter", "audit"):
        assert name in shown
    assert "≥ 44 s" in shown and "latency p95" not in shown and "the source admits" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    line = turn_line(turns[25], turns[0], 30.0)
    assert "sessions p95 ≥ 44 s of 30 s ! 1/3 late" in line
    thirty = text_of(view(many_queries(30, turns=4), 30.0))
    assert "and 22 queries further from their SLO" in thirty


def test_in_a_terminal_the_view_stays_in_place(turns: list[Turn]) -> None:
    out = Console(file=io.StringIO(), width=100, force_terminal=True)
    with LiveView(SLO_S, out) as shown:
        for turn in turns[:3]:
            shown.turn(turn)
    assert isinstance(out.file, io.StringIO)
    assert "executors" in out.file.getvalue()


def test_the_command_writes_a_report_of_any_journal(path: Path, tmp_path: Path) -> None:
    done = tidegate("report", path, "--out", tmp_path / "x" / "tide.html")
    assert done.returncode == 0, done.stderr
    assert "executor-seconds" in done.stdout and "tide.html" in done.stdout
    assert "<svg" in (tmp_path / "x" / "tide.html").read_text()
    plain = json.loads(tidegate("report", path, "--slo", "9s", "--json").stdout)
    assert plain["slo_s"] == 9 and plain["decisions"]


@pytest.mark.parametrize("policy", ["btu", "sarsa", "adaptive-provisioning"])
def test_journals_of_all_styles_can_be_reported(policy: str, tmp_path: Path) -> None:
    turns = imagined(tmp_path / "j.jsonl", policy)
    assert "<svg" in live_page(policy, turns, summarise(turns)).html()
    assert text_of(view(turns, SLO_S))
