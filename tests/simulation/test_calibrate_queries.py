"""Applications with several queries: from a journal to the simulated application and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tests.simulation.worlds import FOUR_QUERIES_SLO_S, four_queries_scenario
from tidegate.errors import InputError, JournalError
from tidegate.lab.backtest import bound_of, run_policy, stack_for
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import Deployment, Estimate, HostOffer, Instance, SloByQuery, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import create
from tidegate.simulation import BatchSettings, MicroBatchCloud, RunReport
from tidegate.simulation.batch_fits import QueryFit, shares_slots
from tidegate.simulation.calibrate import (
    BatchWorld,
    Calibration,
    CalibrationSummary,
    Fit,
    _common_scv,
    batch_scenario,
    calibrate,
    calibrated_scenario,
    compare,
    counterfactual,
    load_world,
    save_world,
)
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario
from tidegate.spark.autoscaler.query_topology import placed
from tidegate.workloads import ConstantRate, RateTrace, Sum

GRAIN = 10.0


def record(path: Path, scenario: Scenario, policy: str = "drs", seed: int = 0) -> RunReport:
    _, stack = stack_for(policy, scenario)
    return run_policy(scenario, stack, seed=seed, journal=path)


def fit(calibration: Calibration, name: str) -> Fit:
    return next(f for f in calibration.fits if f.name == name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    path = tmp_path_factory.mktemp("live") / "journal.jsonl"
    return path, record(path, four_queries_scenario(seed=1, grain=GRAIN), seed=1)


def test_the_terms_of_each_query_are_recovered(recorded: tuple[Path, RunReport]) -> None:
    found = calibrate(read_journal(recorded[0]))
    settings, operators = found.world.settings, found.world.topology.by_name
    truth = {"totals": (0.8, 6.0, 0.01), "enriched": (0.3, 0.5, 0.1), "limited": (0.5, 0.0, 0.02)}
    for name, (overhead_s, fixed_s, service_s) in truth.items():
        # Over four seeds the fit is 1 to 15 % too high: arrivals that vary within a turn do that.
        assert settings.overheads_s[name] == pytest.approx(overhead_s, rel=0.15)
        assert settings.fixed_works_s.get(name, 0.0) == pytest.approx(fixed_s, rel=0.05, abs=0.02)
        assert operators[name].service_time_s == pytest.approx(service_s, rel=0.03)
    assert settings.shared
    assert settings.trigger_interval_s == 5
    assert settings.trigger_intervals_s == {"enriched": 2}
    assert settings.max_rows == {"limited": 50}
    assert 0 < settings.overhead_scv < 0.15  # arrivals that vary within a turn are part of it
    assert found.world.offer.startup_s == pytest.approx(20, abs=5)
    assert found.world.slo_s == 30
    own = {name: o.slo_s for name, o in operators.items()}
    assert own == {"totals": 20, "enriched": 8, "dead-letters": None, "limited": None}
    assert fit(found, "limited: rows of a batch, at most").value == 50
    assert fit(found, "enriched: latency target").value == 8


def test_an_idle_query_has_no_costs_and_is_in_the_world(recorded: tuple[Path, RunReport]) -> None:
    found = calibrate(read_journal(recorded[0]))
    assert fit(found, "dead-letters: slot time an item").value is None
    assert fit(found, "dead-letters: overhead of a batch").value is None
    assert "dead-letters" in found.world.topology.by_name
    report = run_policy(calibrated_scenario(recorded[0]), create("static", hosts=3))
    assert report.by_operator["dead-letters"].arrived == 0
    assert report.by_operator["totals"].processed > 0


@pytest.mark.parametrize("seed", range(10))
def test_the_world_of_a_journal_gives_the_results_of_its_run(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    live = record(path, four_queries_scenario(seed=seed, grain=GRAIN), seed=seed)
    scenario = calibrated_scenario(path, FOUR_QUERIES_SLO_S)
    _, stack = stack_for("drs", scenario)
    gaps = compare(CalibrationSummary.of(live), run_policy(scenario, stack, seed=seed + 100))
    for name in ("mean_executors", "p95_s", "slo_compliance"):
        assert gaps[name] == pytest.approx(0, abs=0.1), name
    for name in ("totals", "enriched", "limited"):
        assert gaps[f"{name}: in_time"] == pytest.approx(0, abs=0.1), name
        assert gaps[f"{name}: p95_s"] == pytest.approx(0, abs=0.3), name


def test_queries_back_to_back_are_recovered_although_they_wait_for_each_other(
    tmp_path: Path,
) -> None:
    """Without a trigger each query always has a batch, and waits for the other one's tasks."""
    names = ("a", "b")
    world = BatchWorld(
        Topology(
            tuple(Operator(name, Resources(1), 0.02, 0.0, max_instances=32) for name in names),
            tuple(Source(f"to-{name}") for name in names),
            tuple(Edge(f"to-{name}", name) for name in names),
        ),
        HostOffer(Resources(4), startup_s=20, max_hosts=8),
        BatchSettings(overheads_s={"a": 0.6, "b": 1.2}, fixed_work_s=2.0, shared=True),
        interval_s=10.0,
        initial_hosts=3,
    )
    times = np.array([0.0, 300, 600])
    load = Sum(
        tuple(
            RateTrace(times, np.array(rates), source=f"to-{name}", seed=4)
            for name, rates in (("a", [100.0, 200, 100]), ("b", [60.0, 60, 120]))
        )
    )
    path = tmp_path / "journal.jsonl"
    live = record(path, batch_scenario(world, load, 10.0), "static")
    found = calibrate(read_journal(path)).world.settings
    assert found.overheads_s["a"] == pytest.approx(0.6, rel=0.15)
    assert found.overheads_s["b"] == pytest.approx(1.2, rel=0.15)
    scenario = calibrated_scenario(path, 10.0)
    again = run_policy(scenario, stack_for("static", scenario)[1], seed=9)
    for name, gap in compare(CalibrationSummary.of(live), again).items():
        assert gap == pytest.approx(0, abs=0.1), name


def test_a_dry_run_of_several_queries_tells_what_would_have_been(tmp_path: Path) -> None:
    scenario = replace(four_queries_scenario(seed=2, grain=GRAIN), initial_hosts=6)
    path = tmp_path / "static.jsonl"
    static = run_policy(scenario, create("static", hosts=6), seed=2, journal=path)
    turns = list(read_journal(path))
    drs = stack_for("drs", scenario)[1]
    would = counterfactual(turns, drs, FOUR_QUERIES_SLO_S)
    truth = run_policy(scenario, drs, seed=2)
    assert would.host_seconds < 0.9 * static.host_seconds
    assert would.host_seconds == pytest.approx(truth.host_seconds, rel=0.1)
    assert would.slo_compliance == pytest.approx(truth.slo_compliance or 0.0, abs=0.05)
    by_default = counterfactual(turns, drs, 30.0)  # queries keep the targets of their own
    assert by_default.by_operator["enriched"].slo_s == 8
    assert by_default.by_operator["limited"].slo_s == 30


def test_what_is_not_told_apart_is_said(tmp_path: Path) -> None:
    world = BatchWorld(
        Topology((Operator("q", Resources(1), 0.001, 0.0),), (Source("in"),), (Edge("in", "q"),)),
        HostOffer(Resources(4), startup_s=20),
        BatchSettings(fixed_work_s=8.0, trigger_interval_s=5.0),
        interval_s=10.0,
        initial_hosts=2,
    )
    path = tmp_path / "steady.jsonl"
    steady = ConstantRate(1000, 600, source="in", spacing="even")
    record(path, batch_scenario(world, steady, 20.0), "static")
    found = calibrate(read_journal(path))
    fixed, each = fit(found, "q: fixed work"), fit(found, "q: slot time an item")
    assert not fixed.identified
    assert not each.identified
    # All of it counts as work on items, and batches take as long as they did.
    assert each.value == pytest.approx((8 + 5) / 5000, rel=0.05)
    assert found.world.settings.overheads_s["q"] == pytest.approx(0.5, abs=0.1)
    shown = tidegate("calibrate", str(path)).stdout
    assert "cannot be separated" in " ".join(shown.split())


def test_durations_decide_on_the_split_that_batches_leave_open(
    recorded: tuple[Path, RunReport],
) -> None:
    """Noisy or few batches leave open what is fixed; in the replay, one split fits better."""
    # 1,000 items of 10 ms and 6 slot-seconds of fixed work, which no turn separates.
    work = Estimate(0.0, 0.0, 16.0, identified=False)
    each = Estimate(0.016, 0.0, 0.016, identified=False)
    turns = []
    for turn in read_journal(recorded[0]):
        assert turn.snapshot is not None
        readings = []
        for reading in turn.snapshot.operators:
            batches = reading.batches
            if reading.operator == "totals" and batches is not None and batches.cost is not None:
                cost = replace(batches.cost, fixed_work=work, per_row=each)
                batches = replace(batches, cost=cost)
                reading = replace(reading, batches=batches, service_time_s=0.016)  # noqa: PLW2901
            readings.append(reading)
        turns.append(replace(turn, snapshot=replace(turn.snapshot, operators=tuple(readings))))
    found = calibrate(turns)
    assert not fit(found, "totals: fixed work").identified
    assert found.world.settings.fixed_works_s["totals"] == pytest.approx(8.0)
    assert found.world.topology.by_name["totals"].service_time_s == pytest.approx(0.008)


def test_queries_with_slots_of_their_own_are_recognised(tmp_path: Path) -> None:
    chain = Topology(
        (Operator("a", Resources(1), 0.01, 0.0), Operator("b", Resources(1), 0.02, 0.0)),
        (Source("in"),),
        (Edge("in", "a"), Edge("a", "b")),
    )
    offer = HostOffer(Resources(4), startup_s=20)
    world = BatchWorld(chain, offer, BatchSettings(overhead_s=0.4), 10.0, initial_hosts=2)
    scenario = batch_scenario(world, ConstantRate(100, 600, source="in"), 10.0)
    path = tmp_path / "chain.jsonl"
    record(path, scenario, "static")
    assert not calibrate(read_journal(path)).world.settings.shared
    record(tmp_path / "both.jsonl", replace(scenario, batches=BatchSettings(shared=True)), "static")
    assert calibrate(read_journal(tmp_path / "both.jsonl")).world.settings.shared


def test_a_journal_without_measured_terms_still_serves(recorded: tuple[Path, RunReport]) -> None:
    """Journals of older versions have the slot time of an item and durations only."""
    turns = [_older(turn) for turn in read_journal(recorded[0])]
    found = calibrate(turns)
    assert fit(found, "totals: fixed work").value is None
    assert found.world.topology.by_name["enriched"].service_time_s == pytest.approx(0.1, rel=0.2)
    report = counterfactual(turns, create("static", hosts=4), 10.0)
    assert report.items_out > 0.9 * report.items_in


def _older(turn: Turn) -> Turn:
    snapshot = turn.snapshot
    assert snapshot is not None
    readings = tuple(
        replace(r, batches=r.batches and replace(r.batches, cost=None)) for r in snapshot.operators
    )
    return replace(turn, snapshot=replace(snapshot, operators=readings))


def test_a_query_that_had_rows_and_no_cost_is_an_error(recorded: tuple[Path, RunReport]) -> None:
    turns = []
    for turn in read_journal(recorded[0]):
        assert turn.snapshot is not None
        readings = tuple(
            replace(r, batches=None, service_time_s=None) if r.operator == "totals" else r
            for r in turn.snapshot.operators
        )
        turns.append(replace(turn, snapshot=replace(turn.snapshot, operators=readings)))
    with pytest.raises(JournalError, match="totals without a service time"):
        calibrate(turns)


def test_targets_by_query(recorded: tuple[Path, RunReport], tmp_path: Path) -> None:
    world = calibrate(read_journal(recorded[0])).world
    save_world(world, tmp_path / "world.yaml")
    assert load_world(tmp_path / "world.yaml") == world
    load = four_queries_scenario(grain=GRAIN).workload

    def targets(scenario: Scenario) -> list[float | None]:
        return [o.slo_s for o in scenario.topology.operators]

    assert targets(batch_scenario(world, load)) == [20, 8, 30, 30]
    assert targets(batch_scenario(world, load, 10.0)) == [20, 8, 10, 10]
    assert targets(batch_scenario(world, load, {"totals": 5.0, "*": 7.0})) == [5, 7, 7, 7]
    assert targets(batch_scenario(world, load, SloByQuery(9.0))) == [9, 9, 9, 9]
    assert targets(batch_scenario(replace(world, slo_s=None), load, 10.0)) == [10, 10, 10, 10]
    with pytest.raises(InputError, match="alerts"):
        batch_scenario(world, load, {"alerts": 5.0, "*": 7.0})
    with pytest.raises(InputError, match="no recorded latency target"):
        batch_scenario(replace(world, slo_s=None), load)
    with pytest.raises(InputError, match="the journal itself"):
        batch_scenario(world, RateTrace(np.array([0.0, 60.0]), np.array([1.0, 1.0])), 10.0)


def test_the_bound_counts_the_work_of_every_source(recorded: tuple[Path, RunReport]) -> None:
    scenario = four_queries_scenario(seed=1, grain=GRAIN)
    bound = bound_of(scenario, time_limit_s=0.5)
    assert 0 < bound.cost_usd <= recorded[1].total_cost_usd


def test_the_commands_serve_several_queries(
    recorded: tuple[Path, RunReport], tmp_path: Path
) -> None:
    path = str(recorded[0])
    shown = tidegate("calibrate", path, "--out", str(tmp_path / "world.yaml"))
    assert shown.returncode == 0, shown.stderr
    assert "share all slots" in shown.stdout
    common = ("--policies", "drs", "--bound-time", "500ms")
    plain = tidegate("backtest", path, *common, "--report", str(tmp_path / "report.html"))
    assert plain.returncode == 0, plain.stderr
    assert "enriched" in plain.stdout
    assert "the latency target of their query" in " ".join(plain.stdout.split())
    done = tidegate("backtest", path, *common, "--slo", "enriched=4s,12s", "--json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    by_query = {query["query"]: query for query in result["queries"]}
    assert by_query["enriched"]["slo_s"] == 4
    assert by_query["totals"]["slo_s"] == 12
    assert by_query["dead-letters"]["in_time"] is None
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,rate\n0,5\n60,5\n")
    refused = tidegate("backtest", str(trace), "--world", str(tmp_path / "world.yaml"))
    assert refused.returncode == 2
    assert "several queries" in " ".join(refused.stderr.split())
    refused = tidegate("backtest", str(trace), "--slo", "alerts=2s,30s")
    assert refused.returncode == 2
    assert "one target for all" in " ".join(refused.stderr.split())


def test_initial_hosts_have_instances_of_all_queries() -> None:
    """With more queries than slots an instance is a share of a slot, as in a live application."""
    scenario = four_queries_scenario()
    small = replace(scenario, offer=replace(scenario.offer, capacity=Resources(2)))
    shares = tuple(replace(o, demand=Resources(0.5)) for o in small.topology.operators)
    topology = replace(small.topology, operators=shares)
    placed = replace(small, topology=topology, initial_hosts=1).initial(topology)
    assert dict(placed.counts) == dict.fromkeys(topology.by_name, 1)
    report = run(
        replace(small, topology=topology).world("engines"),
        create("static", hosts=3),
        duration_s=60,
        interval_s=10,
    )
    assert report.refused == 0
    assert isinstance(placed, Deployment)
    assert all(isinstance(i, Instance) for i in placed.instances)


def test_journals_say_whether_queries_have_their_own_slots_and_older_ones_show_it() -> None:
    names, own = ("extract", "match", "aggregate"), (8, 8, 1)
    operators = tuple(
        Operator(name, Resources(1), service_s, 0.25)
        for name, service_s in zip(names, (0.2, 0.22, 0.001), strict=True)
    )
    edges = (Edge("frames", "extract"), Edge("extract", "match"), Edge("match", "aggregate"))
    topology = Topology(operators, (Source("frames"),), edges)
    counts = dict(zip(names, own, strict=True))
    world = MicroBatchCloud(
        topology,
        HostOffer(Resources(5)),
        ConstantRate(26, 400, source="frames"),
        seed=1,
        initial=placed(counts, topology, [f"host-{n}" for n in range(1, 6)], 5),
        settings=BatchSettings(0.5, trigger_intervals_s={"extract": 12.0}),
    )

    def held(snapshot: Snapshot, shares: dict[str, float]) -> Snapshot:
        """The snapshot of queries whose batches held such shares of their slots."""
        readings = []
        for reading in snapshot.operators:
            batches = reading.batches
            if batches is not None and batches.cost is not None:
                slots = shares[reading.operator] * counts[reading.operator]
                batches = replace(batches, cost=replace(batches.cost, slots=slots))
            readings.append(replace(reading, batches=batches))
        return replace(snapshot, operators=tuple(readings))

    seen = []
    for _ in range(10):
        world.advance(36)
        seen.append(world.observe())
    # Few rows leave most slots of a query unused, and yet they are its own.
    idle = {"extract": 0.3, "match": 0.3, "aggregate": 3.0}
    assert all(snapshot.own_slots for snapshot in seen)
    assert not shares_slots([held(snapshot, idle) for snapshot in seen])
    seen = [replace(snapshot, own_slots=None) for snapshot in seen]  # as older versions wrote them
    # The longest task is waited for, and the tasks of the small query that read follow the files.
    apart = {"extract": 0.85, "match": 0.8, "aggregate": 3.0}
    assert not shares_slots([held(snapshot, apart) for snapshot in seen])
    for together in ({**apart, "match": 1.6}, {**apart, "extract": 0.3}):
        assert shares_slots([held(snapshot, together) for snapshot in seen])


def test_a_query_with_hardly_any_overhead_does_not_make_that_of_the_others_vary() -> None:
    """Ten milliseconds that vary by 30 are a coefficient of nine, beside five seconds with 0.1."""

    def fit(overhead_s: float | None, scv: float) -> QueryFit:
        return QueryFit(0.1, 0.0, 0.0, overhead_s, scv, None, None, ())

    assert _common_scv([fit(5.0, 0.1), fit(0.01, 9.0)]) == pytest.approx(0.1, rel=1e-3)
    assert _common_scv([fit(2.0, 0.3), fit(2.0, 0.1)]) == pytest.approx(0.2)
    assert _common_scv([fit(0.0, 0.0), fit(None, 0.0)]) == 0.0
