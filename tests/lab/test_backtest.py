from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.errors import BackendError, InputError, TidegateError, UnknownPolicy
from tidegate.lab.backtest import backtest, bound_of, pareto, run_policy, suited_settings
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.lab.tune import config_text, tune
from tidegate.loop.journal import Journal, read_journal
from tidegate.loop.stack import load_policy
from tidegate.policies import available, create, policy_class
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario, Sharded
from tidegate.simulation.trace_input import read_workload
from tidegate.workloads import RateTrace

MINUTES = np.arange(0.0, 1200.0, 60.0)
RATES = 50 + 40 * np.sin(2 * math.pi * MINUTES / 1200)


@pytest.fixture(scope="module")
def tide() -> Scenario:
    return ScenarioOptions(slo_s=2.0).build(RateTrace(MINUTES, RATES, seed=5))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "tide.csv"
    rows = "\n".join(f"{t:g},{rate:.3f}" for t, rate in zip(MINUTES, RATES, strict=True))
    path.write_text(f"t_s,rate\n{rows}\n")
    return path


def test_every_policy_meets_the_same_items_and_none_undercuts_the_bound(tide: Scenario) -> None:
    bound = bound_of(tide, time_limit_s=5)
    assert bound.cost_usd > 0
    results = backtest(tide, available(), bound=bound)
    assert [r.policy for r in results] == [
        r.policy for r in sorted(results, key=lambda r: r.cost_usd)
    ]
    assert len({r.report.items_in for r in results}) == 1
    for result in results:
        report = result.report
        assert report.items_in == report.items_out + report.items_queued + report.items_dropped
        assert result.regret is not None and result.regret >= 0, result.policy


def test_a_backtest_is_the_same_again(tide: Scenario) -> None:
    first = backtest(tide, ["drs", "sarsa"])
    assert [r.report for r in first] == [r.report for r in backtest(tide, ["drs", "sarsa"])]


def test_a_static_fleet_for_the_peak_is_in_time_and_costs_more_than_drs(tide: Scenario) -> None:
    by_name = {r.policy: r for r in backtest(tide, ["static", "drs"])}
    assert by_name["static"].slo_compliance > 0.99
    assert by_name["static"].report.resource_cost_usd > by_name["drs"].report.resource_cost_usd


def test_an_unknown_policy_is_refused_before_anything_runs(tide: Scenario) -> None:
    with pytest.raises(UnknownPolicy):
        backtest(tide, ["drs", "nobody"])


def test_shards_deal_out_the_same_items_however_time_is_cut(tide: Scenario) -> None:
    sharded = Sharded(tide.workload, tuple(f"shard-{n}" for n in range(7)))
    whole = sharded.arrivals(0.0, 300.0)
    pieces = [sharded.arrivals(t, t + 37.5) for t in np.arange(0.0, 300.0, 37.5)]
    for name, items in whole.items():
        assert np.array_equal(items, np.concatenate([piece[name] for piece in pieces]))
    together = np.sort(np.concatenate(list(whole.values())))
    assert np.array_equal(together, tide.workload.arrivals(0.0, 300.0)["input"])


def test_the_fluid_world_is_near_the_items(tide: Scenario) -> None:
    policy = create("ds2")
    items = run_policy(tide, policy)
    fluid = run_policy(tide, policy, fluid=True)
    assert fluid.resource_cost_usd == pytest.approx(items.resource_cost_usd, rel=0.15)


def test_the_front_holds_whom_nobody_beats(tide: Scenario) -> None:
    results = backtest(tide, ["static", "drs", "ds2"])
    front = pareto(results)
    cheapest = min(results, key=lambda r: r.report.resource_cost_usd)
    assert cheapest.policy in front
    for result in results:
        beaten = any(
            other.report.resource_cost_usd < result.report.resource_cost_usd
            and other.slo_compliance > result.slo_compliance
            for other in results
        )
        assert beaten <= (result.policy not in front)


def test_tuning_gives_settings_that_the_configuration_accepts(
    tide: Scenario, tmp_path: Path
) -> None:
    front = tune(tide, "queue-threshold", candidates=6, seed=1)
    assert front
    costs = [r.report.resource_cost_usd for r in front]
    assert costs == sorted(costs)
    compliances = [r.slo_compliance for r in front]
    assert compliances == sorted(compliances)
    path = tmp_path / "settings.yaml"
    path.write_text(config_text("queue-threshold", front[0].settings))
    chosen = load_policy(path)
    assert chosen == create("queue-threshold", **front[0].settings)
    assert "guards" not in path.read_text()  # the builder of stacks adds them


def test_the_command_prints_a_leaderboard_and_writes_pictures(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--policies", "drs,static", "--bound-time", "2s", "--report", page)
    done = tidegate("backtest", trace, *options)
    assert done.returncode == 0, done.stderr
    assert "hindsight bound" in done.stdout
    default = (
        "trend(), missing-metrics(), stabilisation(down_s=60.0), release-limit(), "
        "change-cost(), useful-hosts(), effect(), bounds()"
    )
    assert f"guards: {default}" in " ".join(done.stdout.split())
    assert f"next: tidegate backtest {trace} --tune " in done.stdout  # however long the path is
    rows = [line.split() for line in done.stdout.splitlines()]
    costs = [float(row[-9]) for row in rows if row and row[0] in ("drs", "static")]
    assert len(costs) == 2 and costs == sorted(costs)
    html = page.read_text()
    assert html.count("<svg") == 2 + 2 * 2
    assert len(html) < 2_000_000 and "http" not in html.replace("http://www.w3.org", "")


@pytest.mark.parametrize(("per_instance", "warned"), [(0.4, True), (0.5, True), (4.0, False)])
def test_an_slo_below_the_time_of_an_item_is_out_of_reach(
    per_instance: float, warned: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "few.csv"
    trace.write_text("t_s,rate\n0,1\n60,1\n")
    options = ("--policies", "static", "--slo", "2s", "--bound-time", "1s")
    done = tidegate("backtest", trace, *options, "--rate-per-instance", str(per_instance))
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert ("No policy can be in time: an item takes" in words) == warned


def test_the_command_answers_machines(trace: Path) -> None:
    words = ("--policies", "drs", "--slo", "1s", "--btu", "60s", "--bound-time", "2s", "--json")
    answer = json.loads(tidegate("backtest", trace, *words).stdout)
    assert answer["bound"]["cost"] > 0
    (result,) = answer["results"]
    assert set(result) >= {"policy", "cost", "slo_compliance", "p95_s", "rescales"}
    tuned = json.loads(tidegate("backtest", trace, "--tune", "lag", "--json").stdout)
    assert tuned["policy"] == "lag" and tuned["front"]


def test_a_journal_can_be_backtested(tide: Scenario, tmp_path: Path) -> None:
    policy = create("ds2")
    short = replace(tide, duration_s=600.0)
    with Journal(tmp_path / "run.jsonl") as journal:
        run(
            short.world(policy.style),
            policy,
            duration_s=short.duration_s,
            interval_s=15.0,
            journal=journal,
        )
    again = read_workload(tmp_path / "run.jsonl")
    assert again.rate(300.0) == pytest.approx(tide.workload.rate(300.0), rel=0.25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("t_s,rate\n0,0\n60,0\n", "the trace has no items"),
        ("t_s,rate\n0,1\n60,nan\n", "line 3"),
        ("t_s,rate\n0,1\n60,-4\n", "line 3"),
        ("t_s,rate\n60,1\n0,4\n", "line 3"),
        ("t_s,rate\n0,1\n60,2\n120,2\n600,4\n", "line 5"),
    ],
)
def test_a_bad_trace_is_one_sentence_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = tidegate("backtest", path)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_the_scenario_tells_what_defaults_cannot(tide: Scenario) -> None:
    assert suited_settings("static", tide)["hosts"] == 10
    assert suited_settings("drs", tide)["t_max_s"] == 1.0
    assert suited_settings("sarsa", tide) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--slo", "soon"), "--slo is 'soon'"),
        (("--btu", "0s"), "--btu is '0s'"),
        (("--mode", "exact"), "auto, items or fluid"),
        (("--max-hosts", "0"), "--max-hosts is 0"),
        (("--price", "-1"), "--price is -1"),
        (("--speed", "0"), "--speed is 0"),
        (("--stabilise", "long"), "--stabilise is 'long'"),
        (("--without-guard", "bound"), "--without-guard is 'bound'"),
    ],
)
def test_a_bad_option_is_one_sentence(trace: Path, options: tuple[str, ...], words: str) -> None:
    done = tidegate("backtest", trace, "--policies", "static", *options)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_the_journals_of_an_earlier_run_are_kept(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("tidegate.cli.backtest")
    monkeypatch.setattr(module, "attached", lambda *_: nullcontext())
    monkeypatch.setattr(module, "wait_for_the_end", lambda: None)
    (tmp_path / "out").mkdir()
    live = tmp_path / "out" / "static.jsonl"
    live.write_text("the journal of a live run")
    words = ("backtest", trace, "--policies", "static", "--no-recommend", "--dashboard")
    for folder in ("out-2", "out-3"):
        done = tidegate(*words, "--report", tmp_path / "out.html")
        assert done.returncode == 0, done.stderr
        assert f"journals: {tmp_path / folder}\n" in done.stdout
        assert list(read_journal(tmp_path / folder / "static.jsonl"))
    assert live.read_text() == "the journal of a live run"


def test_a_backtest_refuses_to_continue_or_replace_a_journal(
    tide: Scenario, tmp_path: Path
) -> None:
    (tmp_path / "drs.jsonl").write_text("old")
    with pytest.raises(InputError, match="a journal of another run is not replaced"):
        backtest(tide, ["static", "drs"], journals=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["drs.jsonl"]


def fail(self: object, snapshot: object, memory: object) -> None:
    raise ZeroDivisionError("a policy of one's own")


def test_a_policy_that_fails_leaves_the_results_of_the_others(
    trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy_class("drs"), "decide", fail)
    words = ("backtest", trace, "--mode", "fluid", "--no-recommend", "--json")
    done = tidegate(*words, "--policies", "drs,static", "--processes", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("tidegate: drs failed (0 s: ZeroDivisionError: a policy of ")
    assert "run it alone with --policies drs" in done.stderr and done.stderr.count("\n") == 1
    shown = json.loads(done.stdout)
    assert [one["policy"] for one in shown["results"]] == ["static"]
    assert list(shown["failed"]) == ["drs"]
    assert not caplog.records, "a sentence says it"


def test_the_only_policy_that_fails_shows_where(
    tide: Scenario, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("drs", "static"):
        monkeypatch.setattr(policy_class(name), "decide", fail)
    with pytest.raises(BackendError, match="ZeroDivisionError"):
        backtest(tide, ["drs"], fluid=True, failed={})
    assert caplog.records[0].exc_info
    with pytest.raises(BackendError, match="ZeroDivisionError"):
        backtest(tide, ["drs", "static"], fluid=True)
    with pytest.raises(TidegateError, match=r"drs failed .*; so did static: run it alone"):
        backtest(tide, ["drs", "static"], fluid=True, failed={})
