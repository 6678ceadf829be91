"""What a recorded run costs in a month, and what a dry run would have saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tidegate.lab.month import a_month, recorded_run
from tidegate.loop.journal import Journal, read_journal
from tidegate.loop.stack import StackOptions, build_stack, wrapped
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.policies import Situation
from tidegate.simulation.calibrate import BatchWorld, batch_scenario, calibrate
from tidegate.simulation.run import run
from tidegate.workloads import ConstantRate

LIVE = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0" / "live.jsonl"
HOUR = HostOffer(Resources(2), billing_unit_s=3600, price_per_unit_usd=0.5)


@pytest.fixture(scope="module")
def world() -> BatchWorld:
    found = calibrate(read_journal(LIVE)).world
    return replace(found, initial_hosts=3, interval_s=15.0)


def dry_run(world: BatchWorld, path: Path) -> Path:
    """The journal of ten minutes in which `drs` only watched three executors."""
    source = world.topology.sources[0].name
    scenario = batch_scenario(world, ConstantRate(60.0, 600.0, source=source))
    policy = build_stack("drs", Situation(scenario.slo_s), StackOptions(max_hosts=3))
    policy = wrapped(policy, {"dry-run": {}})
    with Journal(path) as journal:
        run(
            scenario.world(policy.style),
            policy,
            duration_s=600.0,
            interval_s=15.0,
            journal=journal,
        )
    return path


def test_a_month_is_billed_by_started_units_only_after_twenty_of_them() -> None:
    long = a_month(cost_usd=12.0, host_s=70_000.0, duration_s=72_000.0, offer=HOUR)
    assert long.usd == pytest.approx(12.0 * 730 / 20)
    assert long.host_h == pytest.approx(70_000 / 3600 * 730 / 20)
    short = a_month(cost_usd=12.0, host_s=1200.0, duration_s=600.0, offer=HOUR)
    assert short.usd == pytest.approx(2 * 0.5 * 730)  # two hosts all the time
    assert a_month(0.0, 0.0, 0.0, HOUR).usd == 0


def test_a_recorded_run_is_read_from_its_journal(world: BatchWorld) -> None:
    turns = list(read_journal(LIVE))
    found = recorded_run(turns, world.offer)
    assert found.policy == "drs" and not found.dry_run
    assert found.month.usd == pytest.approx(found.mean_hosts * 730, rel=0.05)  # $1 an hour
    twice = recorded_run(turns, replace(world.offer, price_per_unit_usd=2 / 60))
    assert twice.month.usd == pytest.approx(2 * found.month.usd)


def test_a_backtest_says_what_a_dry_run_would_have_saved(world: BatchWorld, tmp_path: Path) -> None:
    journal = dry_run(world, tmp_path / "dry.jsonl")
    words = ("backtest", journal, "--policies", "drs,static", "--bound-time", "1s", "--json")
    answer = json.loads(tidegate(*words, "--no-recommend").stdout)
    recorded, drs_saves = answer["in_a_month"]
    was, would = recorded["sentence"], drs_saves["sentence"]
    assert recorded["dry_run"] and drs_saves["policy"] == "drs"
    assert was.startswith("As recorded, a month like these 10 min costs $2,190.00 (dry run of drs")
    assert "3.0 executors on average" in was
    (drs,) = [one for one in answer["results"] if one["policy"] == "drs"]
    assert drs["mean_hosts"] < 3
    assert would.startswith("With drs in control, it would cost $") and " less (" in would
    cost, saved = (float(w.strip("$,").replace(",", "")) for w in would.split() if w[0] == "$")
    assert cost + saved == pytest.approx(2190.0, abs=0.02)
    assert drs_saves["saved"]["usd"] == pytest.approx(saved, abs=0.01)
    priced = json.loads(tidegate(*words, "--no-recommend", "--price", "2").stdout)
    assert "costs $4,380.00" in priced["in_a_month"][0]["sentence"]


def test_without_a_price_a_month_has_hours_of_hosts(world: BatchWorld, tmp_path: Path) -> None:
    free = replace(world, offer=replace(world.offer, price_per_unit_usd=0.0))
    journal = dry_run(free, tmp_path / "free.jsonl")
    words = ("--policies", "drs", "--bound-time", "1s", "--report", tmp_path / "page.html")
    done = tidegate("backtest", journal, *words)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "a month like these 10 min costs 2,190 host-hours" in text
    assert "host-hours less" in text and "As recorded" in (tmp_path / "page.html").read_text()


def test_other_inputs_say_nothing_about_a_month(tmp_path: Path) -> None:
    trace = tmp_path / "flat.csv"
    trace.write_text("t_s,rate\n" + "".join(f"{60 * n},20\n" for n in range(10)))
    words = ("--policies", "static", "--bound-time", "1s", "--no-recommend", "--json")
    assert json.loads(tidegate("backtest", trace, *words).stdout)["in_a_month"] == []


def test_a_share_that_was_not_measured_is_left_out(world: BatchWorld) -> None:
    found = replace(recorded_run(list(read_journal(LIVE)), world.offer), in_time=None)
    assert "in time" not in found.text()
