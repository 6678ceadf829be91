"""What to run on a trace, what each share costs, and what the bound says about it."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.lab.advice_text import (
    advice_plain,
    advice_rows,
    foresight,
    half_check,
    recommendation,
    what_other_shares_cost,
)
from tidegate.lab.backtest import Result, backtest, bound_of, run_policy
from tidegate.lab.backtest_report import backtest_page
from tidegate.lab.recommend import (
    FAMILIES,
    SHARES,
    Advice,
    Option,
    advise,
    front,
    in_time_between,
    mean_hosts,
)
from tidegate.lab.rules import RuleMemory, WindowRule
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.lab.share_bound import least_hosts_usd
from tidegate.policies import create
from tidegate.simulation.scenario import Scenario
from tidegate.testing import check_policy, station_snapshot
from tidegate.workloads import ConstantRate, RateTrace

MINUTES = np.arange(0.0, 1200.0, 60.0)
RATES = 50 + 40 * np.sin(2 * math.pi * MINUTES / 1200)


@pytest.fixture(scope="module")
def wave() -> Scenario:
    return ScenarioOptions(slo_s=2.0).build(RateTrace(MINUTES, RATES, seed=5))


@pytest.fixture(scope="module")
def results(wave: Scenario) -> list[Result]:
    return backtest(wave, ["drs", "tide", "static"])


@pytest.fixture(scope="module")
def advice(wave: Scenario, results: list[Result]) -> Advice:
    return advise(wave, results, bound=bound_of(wave, time_limit_s=5))


def option(like: Option, hosts_usd: float, in_time: float, late_usd: float = 0.0) -> Option:
    """An option with other figures."""
    report = replace(
        like.result.report,
        resource_cost_usd=hosts_usd,
        penalty_cost_usd=late_usd,
        items_in=1000,
        items_out=1000,
        slo_compliance=in_time,
    )
    return replace(like, result=replace(like.result, report=report))


# --- prices of shares -------------------------------------------------------------------------


def test_the_cheapest_that_had_a_share_is_what_the_share_costs(advice: Advice) -> None:
    prices = []
    for share in advice.shares:
        best = advice.cheapest(share)
        assert best is not None and best.in_time >= share
        assert all(o.hosts_usd >= best.hosts_usd for o in advice.options if o.in_time >= share)
        prices.append(best.hosts_usd)
    assert prices == sorted(prices)
    assert advice.share == 0.99 and advice.best == advice.cheapest(0.99)


def test_nobody_pays_less_than_the_bound_of_a_share(wave: Scenario, advice: Advice) -> None:
    every = [*advice.options, *advice.rules]
    shares = sorted({one.in_time for one in every})
    least = least_hosts_usd(wave, shares, every[0].result.report.items_in)
    assert set(least) == set(shares)
    for one in every:
        assert least[one.in_time] <= one.hosts_usd, one.text()
    assert list(least.values()) == sorted(least.values())
    assert 0 < advice.least_usd[0.95] <= advice.least_usd[0.999]


def test_the_bound_of_a_share_is_tight_for_a_constant_load() -> None:
    options = ScenarioOptions(slo_s=2.0, rate_per_instance=10.0, instances_per_host=1)
    steady = options.build(ConstantRate(29.0, duration_s=3600))
    items = 29 * 3600
    least = least_hosts_usd(steady, [0.5, 0.999], items, fluid=True)
    assert 2.7 < least[0.999] <= 3.0  # three hosts for an hour at $1
    assert 1.2 < least[0.5] <= 1.5


def test_a_bound_that_is_an_estimate_says_nothing_about_shares(wave: Scenario) -> None:
    vague = ScenarioOptions(slo_s=2.0, service_scv=1.0).build(wave.workload)
    assert least_hosts_usd(vague, [0.99], 1000) == {}
    free = ScenarioOptions(slo_s=2.0, usd_per_h=0.0).build(wave.workload)
    assert least_hosts_usd(free, [0.99], 1000) == {}


def test_only_policies_of_the_backtest_are_recommended_with_settings_that_can_be_written(
    wave: Scenario, advice: Advice
) -> None:
    assert {one.name for one in advice.options} == {"drs", "tide", "static"}
    shares = {one.chosen.get("share") for one in advice.options if one.name == "tide"}
    assert shares == set(SHARES)
    for one in advice.options:
        create(one.name, **one.chosen)
        words = one.words().split()
        assert words[:2] == ["--policy", one.name]
        assert words.count("--share") == (one.name == "tide")
    fixed = [one.chosen["hosts"] for one in advice.options if one.name == "static"]
    assert len(fixed) > 3 and all(isinstance(hosts, int) for hosts in fixed)


def test_rules_of_thumb_are_chosen_in_hindsight(advice: Advice) -> None:
    best = advice.in_hindsight()
    assert [one.name for one in best] == list(FAMILIES)
    for one in best:
        family = advice.family(one.name)
        assert len(family) > 3
        assert one.result.cost_usd == min(other.result.cost_usd for other in family)
    fixed = sorted(advice.family("static"), key=lambda one: one.chosen["hosts"])
    assert [one.in_time for one in fixed] == sorted(one.in_time for one in fixed)
    assert fixed[-1].in_time > 0.999, "the largest number of hosts is enough for the peak"


def test_a_front_has_more_in_time_for_more_money(advice: Advice) -> None:
    found = front(advice.rules)
    assert len(found) > 2
    for cheaper, dearer in pairwise(found):
        assert cheaper.spent < dearer.spent and cheaper.in_time < dearer.in_time
    for one in advice.rules:
        assert any(o.spent <= one.spent and o.in_time >= one.in_time for o in found)


def test_jobs_can_be_sent_to_another_process() -> None:
    rule = WindowRule(window_s=60.0)
    assert pickle.loads(pickle.dumps(rule)) == rule


# --- words ------------------------------------------------------------------------------------


def test_the_sentence_names_what_to_run_and_its_price(wave: Scenario, advice: Advice) -> None:
    best = advice.best
    assert best is not None
    text = recommendation(advice, wave)
    assert text.startswith(f"To have 99 % of the items within 2 s, use {best.words()}: ")
    assert f"hosts cost ${best.hosts_usd:.2f}, $" in text and "in a month like this" in text
    others = what_other_shares_cost(advice)
    assert "95 %: $" in others and "99.9 %: $" in others and "99 %:" not in others


def test_a_share_that_nothing_had_is_said(wave: Scenario, advice: Advice) -> None:
    low = tuple(option(one, 10.0 + n, 0.9 + n / 1e4) for n, one in enumerate(advice.options))
    poor = replace(advice, options=low)
    text = recommendation(poor, wave)
    assert text.startswith("No policy had 99 % of the items within 2 s. The closest is ")
    assert low[-1].words() in text and "the start of a host (45 s)" in text
    few = replace(wave, offer=replace(wave.offer, max_hosts=2))
    said = recommendation(poor, few)
    assert said.endswith(" The fullest minute keeps 7 hosts busy, and the limit is 2.")
    slow = recommendation(poor, replace(wave, slo_s=wave.work_s / 2))
    assert "Service alone takes" in slow and "start of a host" not in slow
    assert "no policy had it" in what_other_shares_cost(poor)
    assert advice_rows(poor)[1][:4] == ["99 %", "none", "–", "–"]
    assert advice_plain(poor, wave)["policy"] is None


def test_foresight_is_what_no_choice_of_settings_saves(advice: Advice) -> None:
    mine = option(advice.options[0], 10.0, 0.99, late_usd=2.0)
    rule = option(advice.rules[0], 9.0, 0.99)
    made = Advice(0.99, (mine,), (rule,), bound_usd=4.0)
    text = foresight(made)
    assert "costs $12.00, $8.00 above the bound" in text
    assert "would have saved $3.00 of that; foresight would save at most the other $5.00." in text
    worse = replace(made, rules=(option(rule, 20.0, 0.99),))
    assert "No rule of thumb is cheaper" in foresight(worse)
    assert foresight(replace(made, bound_usd=None)) == ""


def test_the_first_half_chooses_and_the_second_judges(wave: Scenario, advice: Advice) -> None:
    found = advice.on_half()
    assert found is not None
    chosen, later = found
    half_s = wave.duration_s / 2
    report = chosen.result.report
    assert (in_time_between(report, 0.0, half_s) or 0.0) >= 0.99
    assert later == in_time_between(report, half_s, wave.duration_s)
    assert chosen.text() in half_check(advice)
    whole = mean_hosts(report, 0.0, wave.duration_s)
    parts = (mean_hosts(report, 0.0, half_s), mean_hosts(report, half_s, wave.duration_s))
    assert min(parts) <= whole <= max(parts)
    assert "no policy had" in half_check(replace(advice, share=1.01))


def test_the_page_has_the_curve_and_the_table(
    wave: Scenario, results: list[Result], advice: Advice
) -> None:
    plain = backtest_page("wave", wave, results, None).html()
    page = backtest_page("wave", wave, results, None, advice, ["It costs $1."]).html()
    assert page.count("<svg") == plain.count("<svg") + 1
    for part in ("What each share costs", "policies", *FAMILIES, "at least", "It costs $1."):
        assert part in page
    assert "What each share costs" not in plain


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "wave.csv"
    rows = "\n".join(f"{t:g},{rate:.3f}" for t, rate in zip(MINUTES[:10], RATES, strict=False))
    path.write_text(f"t_s,rate\n{rows}\n")
    return path


def test_the_command_recommends_for_the_share_that_was_asked_for(
    trace: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    words = ("--policies", "tide,drs", "--share", "90%", "--bound-time", "2s", "--report", page)
    done = tidegate("backtest", trace, *words)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "To have 90 % of the items within 2 s, use --policy " in text
    first = [line.split()[0] for line in done.stdout.splitlines() if line.split()[1:2] == ["%"]]
    assert first == ["90", "95", "99", "99.9"]
    assert "lowest cost" in done.stdout and "What each share costs" in page.read_text()


def test_the_command_recommends_to_machines_and_can_leave_it(trace: Path) -> None:
    words = ("backtest", trace, "--policies", "static", "--bound-time", "2s", "--json")
    found = json.loads(tidegate(*words).stdout)["recommendation"]
    assert found["share"] == 0.99 and found["policy"] == "static"
    assert [one["share"] for one in found["by_share"]] == list(SHARES)
    assert set(found["by_share"][0]["hindsight"]) == set(FAMILIES)
    assert json.loads(tidegate(*words, "--no-recommend").stdout)["recommendation"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--policies", "drs,static", "--share", "99%"), "left out with drs, static"),
        (("--policies", "tide", "--share", "most"), "--share is 'most'"),
        (("--policies", "tide", "--share", "10%"), "--share is 0.1; it must be a number between"),
        (("--tune", "tide", "--share", "99%"), "left out with --tune"),
    ],
)
def test_a_share_that_cannot_be_kept_is_one_sentence(
    trace: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = tidegate("backtest", trace, *words)
    assert done.returncode == 2
    assert sentence in done.stderr and done.stderr.count("\n") == 1


# --- the rule of thumb ------------------------------------------------------------------------


def test_the_rule_of_thumb_is_a_policy() -> None:
    check_policy(WindowRule(window_s=60.0, margin=1.3, host_rate_per_s=20.0))


def test_the_window_keeps_the_largest_rate_until_it_is_over() -> None:
    rule = WindowRule(window_s=30.0, margin=1.0, host_rate_per_s=10.0)
    memory, hosts = RuleMemory(), []
    for turn, rate in enumerate((20.0, 50.0, 30.0, 10.0, 10.0)):
        now = station_snapshot({"work": (rate, 5)}, allocation=(4,), cores_per_host=4)
        plan, memory = rule.decide(replace(now, time_s=15.0 * turn), memory)
        hosts.append(plan.bounded_target)
    assert hosts == [2, 5, 5, 5, 3]
    assert memory.rates == ((30.0, 30.0), (60.0, 10.0))


def test_more_headroom_costs_more_and_is_in_time_more_often(wave: Scenario) -> None:
    rate = 10.0
    lean, rich = (
        run_policy(wave, WindowRule(margin=margin, host_rate_per_s=rate)) for margin in (0.5, 2.0)
    )
    assert lean.resource_cost_usd < rich.resource_cost_usd
    assert (lean.slo_compliance or 0.0) < (rich.slo_compliance or 0.0)
