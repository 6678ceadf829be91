"""Grids become cells, cells become rows: the part of sweeps that needs no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.sweep import _effective
from tidegate.codec import from_json, to_json
from tidegate.config import read_yaml
from tidegate.errors import InputError
from tidegate.lab.backtest import backtest
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.lab.sweep.cell import ROW, code_digest, run_cells
from tidegate.lab.sweep.figures import (
    CaseFigures,
    HeatMap,
    Mean,
    Standing,
    SweepFigures,
)
from tidegate.lab.sweep.grid import PolicyGrid, SweepCell, grid_from, load_grid
from tidegate.lab.sweep.page import sweep_page
from tidegate.lab.sweep.spark_run import task_sizes
from tidegate.workloads import read_trace

EXAMPLE = Path(__file__).parents[3] / "examples" / "sweep.yaml"
SHORT = {"workload": "constant", "options": {"rate_per_s": 40.0, "duration_s": 600.0}}


def small(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"policies": ["ds2"], "traces": [SHORT], "seeds": 2}
    return plain | changes


def rows_of(plain: dict[str, Any], folder: Path = Path()) -> list[dict[str, Any]]:
    grid = grid_from(plain, folder)
    traces = {name: trace.read() for name, trace in grid.trace.items()}
    cells = [to_json(cell) for cell in grid.cells()]
    return list(run_cells(cells, traces.__getitem__, "code"))


def test_a_grid_is_the_product_of_its_lists() -> None:
    plain = small(
        policies=[
            "drs",
            {"name": "static", "parameters": {"hosts": [2, 4, 8]}},
            {
                "name": "lag",
                "parameters": {
                    "threshold": {"from": 10, "to": 1000, "steps": 3, "scale": "log"},
                    "down_window_s": ["1m", "5m"],
                },
            },
        ],
        seeds=[3, 5],
        prices=[{"billing_unit": "60s"}, {"billing_unit": "1h", "usd_per_h": 0.8}],
        slo=["1s", "2s"],
    )
    cells = list(grid_from(plain).cells())
    assert len(cells) == (1 + 3 + 3 * 2) * 2 * 2 * 2
    assert len({cell.id for cell in cells}) == len(cells)
    lag = {(c.parameters["threshold"], c.parameters["down_window_s"]) for c in cells
           if c.policy == "lag"}  # fmt: skip
    assert lag == {(t, w) for t in (10.0, 100.0, 1000.0) for w in (60.0, 300.0)}
    assert {c.billing_unit_s for c in cells} == {60.0, 3600.0}
    days = [(c.trace, c.seed) for c in cells]
    assert sum(a != b for a, b in pairwise(days)) == 1, "days are kept"


def test_ranges_are_linear_or_in_equal_ratios() -> None:
    steps = {"from": 1, "to": 9, "steps": 3}
    assert PolicyGrid("static", {"hosts": steps}).settings() == [
        {"hosts": 1}, {"hosts": 5}, {"hosts": 9}
    ]  # fmt: skip
    ratios = {"from": 1, "to": 9, "steps": 3, "scale": "log"}
    assert [s["hosts"] for s in PolicyGrid("static", {"hosts": ratios}).settings()] == [1, 3, 9]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sede": 3}, "SweepGrid.sede is 3; it must be left out: no such key is known"),
        ({"policies": ["dsr"]}, "policy is 'dsr'; it must be the name of an installed policy"),
        ({"policies": [{"name": "static", "parameters": {"hosts": [3, -1]}}]},
         "static: hosts is -1; it must be a number of at least 1"),
        ({"policies": [{"name": "static", "parameters": {"host": 3}}]},
         "static: host is 3; it must be a parameter of this policy: it takes hosts"),
        ({"policies": [{"name": "ds2", "guards": {"bound": {}}}]}, "guards is 'bound'"),
        ({"traces": [{"workload": "exchange"}]}, "traces: workload is 'exchange'; it must be one"),
        ({"traces": [SHORT | {"options": {"rate": 3}}]}, "traces: options: rate is 3; it must be"),
        ({"traces": ["constant"]}, "traces: options is {}; it must be complete"),
        ({"traces": [SHORT, SHORT]}, "traces: name is 'constant'; it must be different"),
        ({"traces": [{"name": "x"}]}, "traces is 'x'; it must be either a file or a workload"),
        ({"mode": "items"}, "SweepGrid.mode is 'items'; it must be 'item' or 'fluid'"),
        ({"slo": "soon"}, "slo is 'soon'; it must be a positive duration"),
        ({"without_guards": ["bound"]}, "without_guards is 'bound'; it must be a default guard"),
        ({"max_hosts": 0}, "max_hosts is 0; it must be a number of at least 1"),
        ({"prices": [{"billing_unit": "often"}]}, "prices: billing_unit is 'often'; it must be a"),
        ({"seeds": 10**9}, "seeds is 1000000000; it must be a number between 1 and 100000"),
        ({"seeds": 0}, "seeds is 0; it must be a number between 1 and 100000"),
        ({"prices": []}, "prices is []; it must be a list of at least one"),
        ({"prices": [{"usd_per_h": -1}]}, "prices: usd_per_h is -1.0; it must be a number between"),
        ({"policies": [{"name": "drs", "parameters": {"t_max_s": {"from": 1}}}]},
         "drs: t_max_s is {'from': 1}; it must be a range"),
    ],
)  # fmt: skip
def test_a_bad_grid_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        grid_from(small(**changes))
    assert str(caught.value).startswith(sentence)


def test_the_example_is_a_grid() -> None:
    assert len(list(load_grid(EXAMPLE).cells())) == 110


def test_a_cell_is_known_by_all_that_its_result_depends_on() -> None:
    (one, _), (other, _) = (list(grid_from(small(slo=s)).cells()) for s in ("1s", "2s"))
    assert one.id != other.id and one.case != other.case
    assert from_json(SweepCell, to_json(one)) == one
    again, next_seed = grid_from(small(slo="1s")).cells()
    assert again.id == one.id and next_seed.case == one.case
    assert code_digest(["ds2"]) == code_digest(["drs"]) != ""


def test_results_of_0_1_0_without_default_guards_do_not_count() -> None:
    cell = next(iter(grid_from(small(policies=["drs"], seeds=1)).cells()))
    assert cell.id != "2c5d8ceeaf0fefdf"  # the same cell in 0.1.0, which ran it without guards
    assert (cell.id, cell.case) == ("eddd0188c26e7b9e", "a426eba9cee37884")
    bare = next(iter(grid_from(small(seeds=1, without_guards=["bounds"])).cells()))
    assert bare.setting == "without bounds" and bare.id != cell.id and bare.case == cell.case
    assert from_json(SweepCell, to_json(bare)) == bare


def test_the_code_digest_leaves_out_only_what_simulations_do_not_import() -> None:
    code = (
        "import sys, tidegate.lab.sweep.cell as cell; "
        "print([m for m in sys.modules if m.startswith('tidegate.') "
        "and m.split('.')[1] in cell._UNUSED])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_trace_file_is_known_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    digests = []
    for rate in (10, 20):
        file.write_text(f"t_s,rate\n0,{rate}\n60,30\n")
        (cell,) = grid_from(small(traces=[{"file": "day.csv"}], seeds=1), tmp_path).cells()
        digests.append(cell.trace_digest)
    assert digests[0] != digests[1] and cell.trace == "day"
    file.unlink()
    with pytest.raises(InputError, match="readable: No such file"):
        list(grid_from(small(traces=[{"file": "day.csv"}]), tmp_path).cells())


@pytest.mark.parametrize("mode", ["fluid", "item"])
def test_a_row_has_a_backtests_result_to_the_last_bit(tmp_path: Path, mode: str) -> None:
    (tmp_path / "day.csv").write_text("t_s,rate\n0,40\n300,90\n600,30\n")
    plain = small(policies=["drs", "ds2"], traces=[{"file": "day.csv"}], mode=mode, slo="1s")
    rows = rows_of(plain, tmp_path)
    assert [set(row) for row in rows] == [set(ROW)] * 4
    for row in rows:
        workload = read_trace(tmp_path / "day.csv", seed=row["seed"])
        scenario = ScenarioOptions(1.0, interval_s=60.0).build(workload)
        (known,) = backtest(scenario, [row["policy"]], seed=row["seed"], fluid=mode == "fluid")
        report = known.report
        assert row["status"] == "done" and row["mode"] == mode
        assert json.loads(row["settings"]) == known.settings
        assert (row["cost_usd"], row["slo_compliance"], row["mean_hosts"]) == (
            known.cost_usd, known.slo_compliance, known.mean_hosts
        )  # fmt: skip
        for name in ("latency_mean_s", "latency_p99_s", "items_in", "items_out", "rescales"):
            assert row[name] == getattr(report, name), name


def test_seeds_draw_other_items_and_the_same_for_every_policy() -> None:
    rows = rows_of(small(policies=["ds2", "drs"], mode="item"))
    items = {(row["policy"], row["seed"]): row["items_in"] for row in rows}
    assert items["ds2", 1] == items["drs", 1] != items["ds2", 2] == items["drs", 2]


@pytest.mark.parametrize(("cells", "cores"), [(0, 2), (1, 8), (600, 2), (10_000, 2), (500, 64)])
def test_tasks_become_smaller_towards_the_end(cells: int, cores: int) -> None:
    sizes = task_sizes(cells, cores, most=32)
    assert sum(sizes) == cells
    assert sizes == sorted(sizes, reverse=True)
    assert all(1 <= size <= 32 for size in sizes)
    left = cells
    for size in sizes:  # no core has to wait long for another one
        assert size <= max(1, left / (2 * cores))
        left -= size


def test_a_cell_that_fails_is_a_row_with_its_error() -> None:
    crossing = {"name": "global-threshold", "parameters": {"lower": [0.2, 0.9], "upper": 0.8}}
    rows = rows_of(small(policies=[crossing], seeds=1))
    assert [row["status"] for row in rows] == ["done", "failed"]
    assert rows[1]["error"].startswith("SettingError: ") and rows[1]["cost_usd"] is None
    assert rows[1]["policy"] == "global-threshold" and "lower=0.9" in rows[1]["setting"]


def test_the_page_has_the_answer_first_and_says_what_chance_may_have_done() -> None:
    def standing(name: str, cost: float, behind: Mean | None) -> Standing:
        return Standing(
            name, "hosts=<4>", Mean(cost, 1.0), behind, Mean(cost - 1), Mean(0.97), 1.5, 5, 10,
            True, behind is None,
        )  # fmt: skip

    best, second = standing("drs", 10.0, None), standing("ds2", 11.0, Mean(1.0, 1.2))
    case = CaseFigures("day", 60.0, 1.0, 2.0, 60.0, "fluid", (best, second))
    heat = HeatMap("lag", "a", "b", ("1", "2"), ("x",), ((3.0, None),))
    page = sweep_page(
        SweepFigures(
            (best, second), (case, case), (heat,),
            20, 1, (("lag", "a=1", "day", 3, "SettingError: no"),), ("0.1.0 abc",), 3600.0, 2.0,
        )
    ).html()  # fmt: skip
    answer = page.index("drs hosts=&lt;4&gt; costs least over 2 cases: $10.00 ± 1.00")
    assert answer < page.index("<svg") and "which may be chance" in page
    assert "SettingError: no" in page and "<script" not in page and "http" not in page
    assert len(page) < 2_000_000


def test_the_grid_that_is_kept_names_the_guards_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(EXAMPLE.read_text())
    grid = load_grid(EXAMPLE)
    assert _effective(file, grid) == file.read_text()
    file.write_text(_effective(file, replace(grid, without_guards=("trend", "effect"))))
    assert read_yaml(file)["without_guards"] == ["trend", "effect"]
