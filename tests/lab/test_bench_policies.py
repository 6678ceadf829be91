"""What `benchmarks/policies.py` keeps, resumes and compares, on traces of half an hour."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("policies")
    sys.modules.pop("policies", None)


@pytest.fixture
def given(tmp_path: Path) -> argparse.Namespace:
    """Two real-looking traces, one of which is derived, and one that is too short."""
    for name, minutes in (("xetra_2018-02-01", 60), ("day_step15m", 60), ("short", 5)):
        path = tmp_path / "traces" / "family" / f"{name}_rate.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"{60 * m},{10 + 5 * (m % 3)}" for m in range(minutes)]
        path.write_text("\n".join(["t_s,rate", *rows]) + "\n")
    return argparse.Namespace(
        folder=tmp_path / "traces",
        world="queues",
        only="xetra",
        policies="static,tide",
        shares="0.95,0.99",
        days=1800 / 86_400,
        out=tmp_path / "out" / "runs.jsonl",
        again=(),
        seeds=1,
    )


def test_runs_are_kept_and_not_repeated(
    bench: Any, given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.run_all(given)
    assert [run.policy for run in first] == ["static", "tide 95%", "tide 99%"]
    assert {run.trace for run in first} == {"xetra_2018-02-01"}
    assert all(run.ratio >= 1 and 0 < run.in_time <= 1 for run in first)
    assert all(run.days == pytest.approx(1800 / 86_400, abs=1e-4) for run in first)

    def never(*_: Any) -> Any:
        raise AssertionError("it ran again")

    monkeypatch.setattr(bench, "run_one", never)
    assert bench.run_all(given) == first
    with pytest.raises(AssertionError, match="it ran again"):
        bench.run_all(argparse.Namespace(**{**vars(given), "again": ["tide"]}))
    kept = given.out.read_text().splitlines()
    assert len(kept) == 1 and '"static"' in kept[0]


def test_the_trained_policy_is_one_more_row(
    bench: Any, given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = bench.bound_of  # a short limit: the bound is not what this test is about
    monkeypatch.setattr(bench, "bound_of", lambda scenario, _, fluid: quick(scenario, 0.5, fluid))
    (found,) = bench.run_all(argparse.Namespace(**{**vars(given), "policies": "trained"}))
    assert found.policy == "trained" and found.ratio >= 1 and 0 < found.in_time <= 1
    assert "| trained | " in bench.tables([found], "queues")


def test_short_and_derived_traces_are_left_out(bench: Any, given: argparse.Namespace) -> None:
    names = [name for name, _ in bench.workloads(given.folder, 1.0, "")]
    assert names == ["xetra_2018-02-01", *(f"generated-{seed}" for seed in range(1, 11))]


def test_tables_separate_what_settings_were_chosen_on(bench: Any) -> None:
    cheap = bench.Run("queues", "xetra_2018-02-01", 0.5, "tide 99%", 0.99, 0.995, 2.0, 2.0, 1.0, 7)
    dear = replace(cheap, policy="drs", cost_usd=3.0, in_time=0.9)
    safe = replace(cheap, policy="static", cost_usd=5.0, in_time=1.0)
    runs = [cheap, dear, safe]
    assert [bench.dominated(run, runs) for run in runs] == [False, True, False]
    seen = [replace(run, trace="xetra_2017-07-03") for run in runs]
    text = bench.tables([*runs, *seen], "queues")
    reported, chosen = text.split("### ")[1:]
    assert reported.startswith("queues: 1 traces (reported)")
    assert chosen.startswith("queues: 1 traces (settings were chosen on)")
    assert "| tide 99% | 2.00 | 99.0% | 99.5% | 1 of 1 | – | 14 | 1 of 1 |" in reported
    assert "| drs | 3.00 | 90.0% | 99.5% | – | – | 14 | 0 of 1 |" in reported
    assert "| 3.00, 90.0% (99.5%) | 2.00, 99.0% (99.5%) | static 5.00, 100.0% (99.5%) |" in reported


@pytest.mark.parametrize(("later", "kept"), [(0.986, "1 of 1"), (0.984, "0 of 1")])
def test_half_a_point_below_the_promise_is_kept(bench: Any, later: float, kept: str) -> None:
    run = bench.Run("queues", "xetra_2018-02-01", 0.5, "tide 99%", 0.9, later, 2.0, 2.0, 1.0, 7)
    assert f"| {later:.1%} | {kept} |" in bench.tables([run], "queues")


def test_a_surge_is_what_nobody_could_know_when_hosts_for_it_had_to_be_leased(bench: Any) -> None:
    lead, turn_s = 4, 15.0
    steady, slow = bench.np.full(480, 10.0), bench.np.geomspace(10.0, 100.0, 480)
    assert (
        not bench.surges(steady, lead, turn_s).any() and not bench.surges(slow, lead, turn_s).any()
    )
    jump = bench.np.where(bench.np.arange(480) >= 300, 16.0, 10.0)
    found = bench.surges(jump, lead, turn_s)
    # Until turn 304 nobody could know of it; the last of these turns has eight of its own.
    assert bench.np.flatnonzero(found).tolist() == list(range(300, 304 + 8))
    assert not bench.surges(bench.np.minimum(jump, 14.9), lead, turn_s).any()


def test_late_items_of_a_surge_are_counted_apart(bench: Any, given: argparse.Namespace) -> None:
    path = given.folder / "family" / "xetra_2018-02-03_rate.csv"
    rows = [f"{60 * m},{400 if m in (300, 301) else 20}" for m in range(420)]
    path.write_text("\n".join(["t_s,rate", *rows]) + "\n")
    chosen = {"days": 1.0, "only": "2018-02-03", "policies": "tide", "shares": "0.99", "seeds": 2}
    runs = bench.run_all(argparse.Namespace(**{**vars(given), **chosen}))
    assert [run.seed for run in runs] == [0, 1] and runs[0] != replace(runs[1], seed=0)
    for run in runs:
        assert run.in_time_later < 0.95 and run.in_time_apart > 0.99
    (line,) = [x for x in bench.tables(runs, "queues").splitlines() if x.startswith("| tide 99%")]
    assert " ± " in line and "| 0 of 1 | 1 of 1 |" in line


def test_a_page_gets_the_tables_of_one_world_between_its_marks(bench: Any) -> None:
    page = "a\n<!-- queues -->\nold\n<!-- end -->\n<!-- hourly -->\nkept\n<!-- end -->\n"
    renewed = bench.renewed(page, "queues", "new\n")
    assert renewed == page.replace("old", "new")
    with pytest.raises(SystemExit, match="no marks <!-- batches -->"):
        bench.renewed(page, "batches", "new\n")


@pytest.mark.parametrize("world", ["batches", "hourly"])
def test_other_worlds_are_compared_with_their_own_bound(
    bench: Any, given: argparse.Namespace, world: str
) -> None:
    chosen = argparse.Namespace(**{**vars(given), "world": world, "policies": "static"})
    (found,) = bench.run_all(chosen)
    assert found.world == world and found.ratio >= 1 and found.in_time > 0.9
    assert bench.run_all(chosen) == [found], "it is kept, apart from those of other worlds"


def test_the_world_of_micro_batches_is_a_recorded_application_scaled_to_the_trace(
    bench: Any, given: argparse.Namespace
) -> None:
    ((_, trace),) = [w for w in bench.workloads(given.folder, 1.0, "xetra") if "xetra" in w[0]]
    recorded, scenario = bench.recorded_application(), bench.batches(trace)
    assert scenario.batches is not None and scenario.batches.overhead_s > 1
    assert scenario.batches.overhead_s == recorded.settings.overhead_s
    assert scenario.offer.startup_s == recorded.offer.startup_s
    assert (scenario.slo_s, scenario.offer.max_hosts) == (bench.BATCH_SLO_S, None)
    busy = bench.peak_per_s(trace) * scenario.work_s / scenario.offer.capacity.cpu_cores
    assert busy == pytest.approx(7.0)
    generated = bench.batches(bench.ExchangeDay(seed=1))
    assert generated.topology.sources[0].name in generated.workload.arrivals(0.0, 1.0)


def test_a_turn_is_timed(bench: Any) -> None:
    assert bench.turn_ms(turns=50) > 0
