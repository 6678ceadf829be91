"""Sweeps on a real Spark: what is done stays done, whatever dies, and the figures are right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from scipy.stats import t as student

from tests.spark.autoscaler.live import LIMIT_S, until
from tidegate.codec import to_json
from tidegate.errors import InputError
from tidegate.lab.sweep.cell import ROW, run_cells
from tidegate.lab.sweep.figures import parse_heat, sweep_figures
from tidegate.lab.sweep.grid import SweepTrace, grid_from
from tidegate.lab.sweep.spark_run import Sweep, failed_cells, sweep_state, write_rows
from tidegate.spark import LocalCluster
from tidegate.spark.local.shipping import code_finder, write_zip

SHORT = {"workload": "constant", "options": {"rate_per_s": 40.0, "duration_s": 600.0}}
CROSSING = {"name": "global-threshold", "parameters": {"lower": 0.9, "upper": 0.8}}
MADE_THERE = ("host", "finished_s", "wall_s")


def plain(**changes: Any) -> dict[str, Any]:
    return {"policies": ["ds2", "drs"], "traces": [SHORT], "seeds": [1, 2]} | changes


def rows_in(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for file in (out / "cells").glob("*.parquet"):
        rows += pq.read_table(file).to_pylist()
    return rows


def here(grid: dict[str, Any], code: str) -> dict[str, dict[str, Any]]:
    """The rows of a grid by cell, computed in this process, without when and where."""
    made = grid_from(grid)
    traces = {name: trace.read() for name, trace in made.trace.items()}
    rows = run_cells([to_json(cell) for cell in made.cells()], traces.__getitem__, code)
    return without_places(rows)


def without_places(rows: Any) -> dict[str, dict[str, Any]]:
    return {row["cell"]: {k: v for k, v in row.items() if k not in MADE_THERE} for row in rows}


def test_rows_are_those_of_one_process_and_are_made_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    grid = plain(policies=["ds2", CROSSING])
    state = sweep_state(grid_from(grid), tmp_path)
    calls: list[tuple[int, int]] = []
    Sweep(spark, grid_from(grid), tmp_path, chunk=1).run(
        state, lambda done, failed: calls.append((done, failed))
    )
    assert calls[-1] == (4, 2)
    assert without_places(rows_in(tmp_path)) == here(grid, state.code)
    failed = failed_cells(tmp_path, state.code)
    assert {row["error"].split(":")[0] for row in failed} == {"SettingError"}
    # The same again: nothing to do. A larger grid: only what is new. Other code: everything.
    after = sweep_state(grid_from(grid), tmp_path)
    assert (len(after.todo), after.finished, after.failed) == (0, 4, 2)
    assert len(sweep_state(grid_from(grid), tmp_path, again=True).todo) == 2
    larger = sweep_state(grid_from(plain(policies=["ds2", "drs"], seeds=[2, 3])), tmp_path)
    assert (len(larger.todo), larger.finished) == (3, 1)
    for file in (tmp_path / "cells").glob("*.parquet"):
        rows = [row | {"code": "old"} for row in pq.read_table(file).to_pylist()]
        file.unlink()
        write_rows(tmp_path / "cells", rows)
    old = sweep_state(grid_from(grid), tmp_path)
    assert (len(old.todo), old.outdated) == (4, 4)
    assert not sweep_state(grid_from(grid), tmp_path, any_code=True).todo


@dataclass(frozen=True)
class Deadly:
    """A process that unpickles it dies."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (13,)


def test_a_cell_that_takes_its_process_with_it_stops_nothing_else(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SweepTrace.read
    monkeypatch.setattr(SweepTrace, "read", lambda t: Deadly() if t.name == "deadly" else read(t))
    grid = grid_from(plain(policies=["ds2"], traces=[SHORT, SHORT | {"name": "deadly"}], seeds=3))
    Sweep(spark, grid, tmp_path, chunk=2).run(sweep_state(grid, tmp_path))
    rows = rows_in(tmp_path)
    assert len(rows) == 6
    assert Counter((row["trace"], row["status"]) for row in rows) == {
        ("constant", "done"): 3, ("deadly", "failed"): 3
    }  # fmt: skip
    assert all("its process died" in row["error"] for row in rows if row["status"] == "failed")


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from tidegate.cli import main; main()", *words]


def test_a_killed_sweep_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    days = {"traces": ["exchange-day"], "policies": ["ds2"]}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(plain(**days, seeds=500)))
    words = ("sweep", str(tmp_path / "grid.yaml"), "--out", str(tmp_path), "--chunk", "1")
    driver = subprocess.Popen(
        command(*words, "--master", "local[2]"), start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        cells = tmp_path / "cells"
        until("two results are there", lambda: len(list(cells.glob("*.parquet"))) >= 2)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    before = {row["cell"]: row for row in rows_in(tmp_path)}
    assert 2 <= len(before) < 500
    seeds = {row["seed"] for row in before.values()}
    more = sorted(set(range(1, 501)) - seeds)[:2]
    grid = grid_from(plain(**days, seeds=[*seeds, *more]))
    state = sweep_state(grid, tmp_path)
    assert (len(state.todo), state.finished) == (2, len(before))
    Sweep(spark, grid, tmp_path).run(state)
    after = rows_in(tmp_path)
    assert len(after) == len({row["cell"] for row in after}) == len(before) + 2
    assert [before[row["cell"]] for row in after if row["cell"] in before] == [
        row for row in after if row["cell"] in before
    ]


@pytest.mark.java
def test_a_cluster_gets_the_code_by_itself(tmp_path: Path) -> None:
    grid = plain(policies=["ds2", {"name": "static", "parameters": {"hosts": [2, 3]}}])
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    with LocalCluster(cores=2, memory_mb=512, max_hosts=1).start(hosts=1) as cluster:
        words = ["sweep", str(tmp_path / "grid.yaml"), "--out", str(tmp_path)]
        words += ["--master", cluster.url]
        for key, value in cluster.conf().items():
            words += ["--conf", f"{key}={value}"]
        env = os.environ | cluster.environment() | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command(*words), env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        unpacked = list(cluster.folder.rglob("tidegate-code/tidegate/lab/sweep/cell.py"))
    assert len(unpacked) == 1, "the executor worked with what it was sent"
    assert "6 of 6 cells" in done.stdout
    rows = rows_in(tmp_path)
    assert without_places(rows) == here(grid, rows[0]["code"])


def test_the_code_arrives_with_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zip(tmp_path)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    code_finder(local=False)()
    code_finder(local=False)()
    assert sys.path[0] == str(tmp_path / "tidegate-code") != sys.path[1]
    source = Path(sys.modules["tidegate.lab.sweep.cell"].__file__ or "")
    sent = tmp_path / "tidegate-code" / "tidegate" / "lab" / "sweep" / "cell.py"
    assert sent.read_bytes() == source.read_bytes()
    assert sent.stat().st_mtime_ns == source.stat().st_mtime_ns
    (points,) = (tmp_path / "tidegate-code").glob("*.dist-info/entry_points.txt")
    assert "drs = tidegate.policies.drs:Drs" in points.read_text()


def invented(seed: int, case: str, policy: str, setting: str, rng: Any) -> dict[str, Any]:
    x, y = setting.split(",")
    return dict.fromkeys(ROW) | {
        "cell": f"{seed} {case} {policy} {setting}", "case": case, "policy": policy,
        "setting": setting, "parameters": json.dumps({"x": float(x), "y": y}), "trace": case,
        "seed": seed, "billing_unit_s": 60.0, "usd_per_h": 1.0, "mode": "fluid", "slo_s": 2.0,
        "interval_s": 60.0, "version": "0.1.0", "code": "c", "status": "done", "error": None,
        "finished_s": time.time(), "wall_s": 1.0, "duration_s": 60.0,
        "cost_usd": float(rng.gamma(9.0) + float(x)), "resource_cost_usd": float(rng.gamma(5.0)),
        "slo_compliance": float(rng.beta(20, 1)), "latency_p95_s": float(rng.gamma(2.0)),
    }  # fmt: skip


def test_the_figures_are_those_of_numpy(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    settings = [("lag", f"{x},{y}") for x in (1, 2) for y in ("a", "b")] + [("drs", "3,a")]
    rows = [
        invented(seed, case, *setting, rng)
        for seed in range(7) for case in ("monday", "tuesday") for setting in settings
    ]  # fmt: skip
    old = rows[0] | {"cost_usd": 1e9, "finished_s": 1.0}
    failed = rows[1] | {"cell": "x", "policy": "bad", "status": "failed", "error": "E: no"}
    (tmp_path / "cells").mkdir()
    write_rows(tmp_path / "cells", [old, failed, *rows])
    figures = sweep_figures(spark, tmp_path / "cells")
    assert (figures.done, figures.failed) == (len(rows), 1)
    assert figures.failures == (("bad", rows[1]["setting"], rows[1]["trace"], 0, "E: no"),)

    def by_seed(name: str, policy: str, setting: str, cases: tuple[str, ...]) -> Any:
        return np.array([
            np.mean([r[name] for r in rows if (r["policy"], r["setting"]) == (policy, setting)
                     and r["seed"] == seed and r["case"] in cases])
            for seed in range(7)
        ])  # fmt: skip

    def half(values: Any) -> float:
        return float(student.ppf(0.975, 6) * values.std(ddof=1) / np.sqrt(7))

    boards: list[tuple[Any, tuple[str, ...]]] = [(figures.overall, ("monday", "tuesday"))]
    boards += [(case.standings, (case.trace,)) for case in figures.cases]
    assert [cases for _, cases in boards[1:]] == [("monday",), ("tuesday",)]
    for standings, cases in boards:
        costs = {s: by_seed("cost_usd", *s, cases) for s in settings}
        points = {
            s: (by_seed("resource_cost_usd", *s, cases).mean(),
                -by_seed("slo_compliance", *s, cases).mean())
            for s in settings
        }  # fmt: skip
        order = sorted(settings, key=lambda s: float(costs[s].mean()))
        assert [(row.policy, row.setting) for row in standings] == order
        for row in standings:
            mine = row.policy, row.setting
            assert row.cost.mean == pytest.approx(costs[mine].mean(), rel=1e-12)
            assert row.cost.half == pytest.approx(half(costs[mine]), rel=1e-9)
            assert row.complete and row.seeds == 7 and row.cells == 7 * len(cases)
            if mine != order[0]:
                gap = costs[mine] - costs[order[0]]
                assert row.behind is not None
                assert row.behind.mean == pytest.approx(gap.mean(), rel=1e-9)
                assert row.behind.half == pytest.approx(half(gap), rel=1e-9)
            beaten = any(
                np.all(np.array(points[s]) <= points[mine]) and points[s] != points[mine]
                for s in settings
            )
            assert row.on_front is not beaten
    (heat,) = figures.maps
    assert (heat.policy, heat.columns, heat.rows) == ("lag", ("1", "2"), ("a", "b"))
    for y, line in zip(heat.rows, heat.costs, strict=True):
        for x, cost in zip(heat.columns, line, strict=True):
            some = [r["cost_usd"] for r in rows if r["setting"] == f"{x},{y}"]
            assert cost == pytest.approx(np.mean(some), rel=1e-12)
    with pytest.raises(InputError, match="the sweep must vary both"):
        sweep_figures(spark, tmp_path / "cells", [("lag", "x", "z")])
    with pytest.raises(InputError, match="--heat is 'lag'; it must be POLICY:X,Y"):
        parse_heat("lag")
