"""What `benchmarks/live.py` keeps, resumes and writes, without running anything."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
METHODS = ("static", "spark", "drs")


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("live")
    for name in ("live", "live_jobs"):
        sys.modules.pop(name, None)


def record(method: str, seed: int, executor_s: float, in_time: float) -> dict[str, Any]:
    """The figures of a run."""
    query = {"items": 10, "in_time": in_time, "p50_s": 2.0, "p95_s": 4.0, "p99_s": 5.0}
    return {
        "job": "four-queries", "method": method, "seed": seed, "seconds": 200.0,
        "executor_s": executor_s, "in_time": in_time, "p95_s": 4.0, "rescales": 2, "lost": 0,
        "repeated": 0, "queries": {"enrich": query},
        "left_out": {"seconds": 30.0, "items": 200, "in_time": 0.9, "p95_s": 9.0},
    }  # fmt: skip


def test_runs_are_kept_one_by_one_and_an_interrupted_benchmark_continues(
    live: Any, tmp_path: Path
) -> None:
    job = live.JOBS["four-queries"](None, 120.0)
    results = live.Results(tmp_path / "out" / "results.json")
    results.add(record("drs", 2, 400.0, 1.0))
    results.add(record("drs", 1, 410.0, 1.0))
    again = live.Results(tmp_path / "out" / "results.json")
    assert [r["seed"] for r in again.of(job, "drs")] == [1, 2] and not again.of(job, "static")
    shorter = live.JOBS["four-queries"](150.0, 120.0)
    assert not again.of(shorter, "drs"), "runs of another length are other runs"
    again.forget(job, "drs")
    assert not live.Results(tmp_path / "out" / "results.json").records


def test_the_tables_have_intervals_what_is_left_out_and_a_verdict(live: Any) -> None:
    job = live.JOBS["four-queries"](None, 120.0)
    figures = {"static": (800.0, 1.0), "spark": (700.0, 0.9), "drs": (400.0, 0.995)}
    rows = {
        method: [record(method, seed, executor_s + seed, in_time) for seed in (1, 2, 3)]
        for method, (executor_s, in_time) in figures.items()
    }
    table = live.comparison(job, rows)
    assert "| drs | 3 | 402 ± 2 | 50 % ± 0 % | 99.50 % ± 0.00 % |" in table
    assert "| enrich | 30 s | spark | 90.00 % ± 0.00 % |" in table
    assert "30 to 30 s before the input" in live.left_out(rows)
    assert live.verdict(rows).count("met") == 4 and "not met" not in live.verdict(rows)
    rows["drs"] = [record("drs", seed, 750.0, 0.8) for seed in (1, 2, 3)]
    assert live.verdict(rows).count("not met") == 4
    assert live.verdict({"drs": rows["drs"]}) == ""
    assert "| drs | 1 | 750 | – |" in live.comparison(job, {"drs": rows["drs"][:1]})


def test_a_page_gets_its_tables_between_two_comments(live: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- morning -->\nold\n<!-- end -->\nafter\n<!-- x -->\n")
    live.write(page, "morning", "| new |")
    expected = "before\n<!-- morning -->\n| new |\n<!-- end -->\nafter\n<!-- x -->\n"
    assert page.read_text() == expected
    with pytest.raises(SystemExit, match="has no comment <!-- other -->"):
        live.write(page, "other", "")


def test_the_page_of_measurements_has_all_comments() -> None:
    text = (ROOT / "docs" / "measured" / "live.md").read_text(encoding="utf-8")
    names = ["overhead", *(f"{job}{more}" for job in ("four-queries", "morning")
                           for more in ("", " simulated"))]  # fmt: skip
    for name in names:
        assert text.count(f"<!-- {name} -->\n") == 1
    assert text.count("<!-- end -->") == len(names)
