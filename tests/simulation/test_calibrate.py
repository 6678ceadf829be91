"""From a journal to the simulated application and back, with constants that are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.codec import to_json
from tidegate.errors import InputError, JournalError
from tidegate.lab.backtest import backtest, run_policy
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import create
from tidegate.simulation import BatchSettings
from tidegate.simulation.calibrate import (
    BatchWorld,
    Calibration,
    CalibrationSummary,
    Fit,
    batch_scenario,
    calibrate,
    calibrated_scenario,
    compare,
    counterfactual,
    load_world,
    save_world,
)
from tidegate.simulation.run import run
from tidegate.spark.autoscaler.autoscaler import DryRunAccount
from tidegate.workloads import RateTrace

SLO_S = 4.0
TRUTH = BatchWorld(
    Topology(
        (Operator("q", Resources(1), service_time_s=0.02, service_scv=0.5, max_instances=480),),
        (Source("events"),),
        (Edge("events", "q"),),
    ),
    HostOffer(Resources(2), billing_unit_s=60, price_per_unit_usd=0.01, startup_s=25, max_hosts=12),
    BatchSettings(overhead_s=0.6, overhead_scv=0.04),
    interval_s=10.0,
)
TRACE = RateTrace(
    np.array([0.0, 300, 600, 900, 1200]), np.array([100.0, 250, 400, 150, 100]), source="events"
)


def record(path: Path, world: BatchWorld = TRUTH, until_s: float = 1500.0) -> CalibrationSummary:
    scenario = batch_scenario(world, TRACE, SLO_S)
    with Journal(path) as journal:
        report = run(
            scenario.world("instances", seed=3),
            create("drs", t_max_s=0.9 * SLO_S),
            duration_s=until_s,
            interval_s=world.interval_s,
            journal=journal,
        )
    return CalibrationSummary.of(report)


def fit(calibration: Calibration, name: str) -> Fit:
    return next(f for f in calibration.fits if f.name == name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CalibrationSummary]:
    path = tmp_path_factory.mktemp("live") / "journal.jsonl"
    return path, record(path)


def test_the_constants_are_recovered(recorded: tuple[Path, CalibrationSummary]) -> None:
    found = calibrate(read_journal(recorded[0]))
    world = found.world
    (query,) = world.topology.operators
    assert query.service_time_s == pytest.approx(0.02, rel=0.02)
    assert query.max_instances == 480
    assert world.settings.overheads_s["q"] == pytest.approx(0.6, rel=0.05)
    assert world.settings.overhead_scv == pytest.approx(0.04, abs=0.02)
    assert world.settings.trigger_interval_s == 0
    assert world.offer.startup_s == pytest.approx(25, abs=5)  # seen every ten seconds
    assert world.offer.price_per_unit_usd == 0.01
    assert world.interval_s == 10
    assert world.initial_hosts == 1
    assert world.settings.lag_visible
    overhead = fit(found, "q: overhead of a batch")
    assert overhead.turns > 50
    assert overhead.residual is not None
    assert overhead.residual < 0.2
    assert fit(found, "input, peak").value == pytest.approx(400, rel=0.1)
    assert fit(found, "q: service variation").value is None  # missing stays missing


def test_cold_first_batches_do_not_spoil_the_fit(recorded: tuple[Path, CalibrationSummary]) -> None:
    turns = list(read_journal(recorded[0]))
    for n, turn in enumerate(turns[:4]):
        snapshot = turn.snapshot
        assert snapshot is not None
        cold = tuple(replace(r, service_time_s=20.0) for r in snapshot.operators)
        turns[n] = replace(turn, snapshot=replace(snapshot, operators=cold))
    found = calibrate(turns)
    assert found.world.topology.operators[0].service_time_s == pytest.approx(0.02, rel=0.05)
    residual = fit(found, "q: slot time an item").residual
    assert residual is not None and residual < 0.2


def test_a_trigger_interval_is_recovered(tmp_path: Path) -> None:
    truth = replace(
        TRUTH, settings=BatchSettings(overhead_s=0.4, trigger_interval_s=2.0, lag_visible=False)
    )
    record(tmp_path / "j.jsonl", truth)
    world = calibrate(read_journal(tmp_path / "j.jsonl")).world
    assert world.settings.trigger_interval_s == 2
    assert world.settings.overheads_s["q"] == pytest.approx(0.4, rel=0.05)
    assert not world.settings.lag_visible


def test_the_replay_is_near_to_what_was_recorded(recorded: tuple[Path, CalibrationSummary]) -> None:
    path, live = recorded
    scenario = calibrated_scenario(path, SLO_S, seed=8)
    report = run_policy(scenario, create("drs", t_max_s=0.9 * SLO_S), seed=5)
    gaps = compare(live, report)
    assert gaps["mean_executors"] == pytest.approx(0, abs=0.15)
    assert gaps["p95_s"] == pytest.approx(0, abs=0.15)
    assert gaps["slo_compliance"] == pytest.approx(0, abs=0.15)


def test_other_policies_are_tried_on_it(recorded: tuple[Path, CalibrationSummary]) -> None:
    scenario = calibrated_scenario(recorded[0], SLO_S)
    results = backtest(scenario, ["static", "drs", "btu", "local-threshold"])
    assert {r.policy for r in results} == {"static", "drs", "btu", "local-threshold"}
    for result in results:
        assert result.report.items_out > 0.9 * result.report.items_in
    by_name = {result.policy: result for result in results}
    assert by_name["drs"].mean_hosts < by_name["static"].mean_hosts
    assert by_name["drs"].slo_compliance > 0.8


def test_a_world_survives_its_file(tmp_path: Path) -> None:
    save_world(TRUTH, tmp_path / "deep" / "world.yaml")
    assert load_world(tmp_path / "deep" / "world.yaml") == TRUTH
    (tmp_path / "bad.yaml").write_text("topology: {operators: []}\n")
    with pytest.raises(InputError):
        load_world(tmp_path / "bad.yaml")


def test_too_little_says_so(recorded: tuple[Path, CalibrationSummary]) -> None:
    turns = list(read_journal(recorded[0]))
    with pytest.raises(JournalError, match="let the autoscaler run"):
        calibrate(turns[:1])
    with pytest.raises(JournalError, match="without a service time"):
        calibrate([turns[0], replace(turns[0], number=2)])
    with pytest.raises(JournalError, match=r"at least 5.*record for longer"):
        calibrate(turns[:4])


def test_the_measured_overhead_stands_in_where_few_turns_were_steady(
    recorded: tuple[Path, CalibrationSummary],
) -> None:
    found = calibrate(list(read_journal(recorded[0]))[:9])
    overhead = fit(found, "q: overhead of a batch")
    assert overhead.value == pytest.approx(0.6, rel=0.2)


def test_the_gap_of_what_is_unknown_is_unknown() -> None:
    gaps = compare(CalibrationSummary(2.0, None, 1.0), CalibrationSummary(2.2, 3.0, None))
    assert gaps == {"mean_executors": pytest.approx(0.1), "p95_s": None, "slo_compliance": None}


def test_the_commands(recorded: tuple[Path, CalibrationSummary], tmp_path: Path) -> None:
    path = str(recorded[0])
    world = str(tmp_path / "world.yaml")
    done = tidegate("calibrate", path, "--out", world)
    assert done.returncode == 0, done.stderr
    assert "q: overhead of a batch" in done.stdout
    assert "missing" in done.stdout
    shown = json.loads(tidegate("calibrate", path, "--json").stdout)
    assert shown["world"]["interval_s"] == 10
    common = ("--slo", "4s", "--policies", "drs", "--bound-time", "500ms", "--json")
    given = tidegate("backtest", path, "--world", world, *common)
    assert given.returncode == 0, given.stderr
    by_itself = tidegate("backtest", path, *common)
    (one,), (other,) = (json.loads(d.stdout)["results"] for d in (given, by_itself))
    assert one["cost"] == other["cost"]  # a journal with batches is calibrated by itself
    assert one["slo_compliance"] > 0.8


def test_a_journal_that_tells_too_little_ends_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text(to_json(Turn(1, "static")) + "\n")
    done = tidegate("calibrate", str(path))
    assert done.returncode == 2
    assert "at least two" in done.stderr


def test_a_dry_run_tells_what_would_have_been(tmp_path: Path) -> None:
    # Recorded with four executors all the time; nobody ever saw fewer or more.
    path = tmp_path / "static.jsonl"
    scenario = replace(batch_scenario(TRUTH, TRACE, SLO_S), initial_hosts=6)
    books = DryRunAccount()
    with Journal(path) as journal:
        static = run(
            scenario.world("instances", seed=3),
            create("static", hosts=6),
            duration_s=1500.0,
            interval_s=10.0,
            journal=journal,
        )
    turns = list(read_journal(path))
    for turn in turns:
        books.add(turn)
    drs = create("drs", t_max_s=0.7 * SLO_S)
    would = counterfactual(turns, drs, SLO_S)
    # The start-up delay was never seen, so that of the offer counts.
    truth = run(
        replace(scenario, initial_hosts=6).world("instances", seed=3),
        drs,
        duration_s=1500.0,
        interval_s=10.0,
    )
    assert would.host_seconds < 0.9 * static.host_seconds
    assert would.host_seconds == pytest.approx(truth.host_seconds, rel=0.1)
    assert would.slo_compliance == pytest.approx(truth.slo_compliance or 0.0, abs=0.05)
    told = books.estimate(drs, SLO_S)
    assert "of the items within 4 s" in told and "rescales" in told
    assert "simulated, in a world calibrated" in told and "backtest" not in told
    short = books.estimate(drs, SLO_S, at_most_s=0.0)
    assert "simulated 10 s of it, in a world calibrated" in short and "backtest" in short
    assert "too few measurements" in DryRunAccount().estimate(drs, SLO_S)


def test_one_query_without_fixed_work_has_the_figures_of_the_first_version() -> None:
    """Random numbers are drawn in the same order; measured at 0.1.0."""
    scenario = batch_scenario(TRUTH, TRACE, SLO_S)
    world = scenario.world("instances", seed=1)
    report = run(world, create("static", hosts=6), duration_s=1500, interval_s=10)
    assert report.items_out == 299_984
    assert report.latency_mean_s == pytest.approx(1.9351852936482075, rel=1e-12)
    assert report.latency_p95_s == 3.453125
    assert report.latency_max_s == pytest.approx(11.582969138787849, rel=1e-12)
    assert report.slo_compliance == pytest.approx(0.9879326897434529, rel=1e-12)
    assert report.host_load_mean == pytest.approx(0.27025982951801275, rel=1e-12)
