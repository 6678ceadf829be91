"""The page of the papers' live runs is made from the ledger alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.lab.papers.drs.world import VLD_26

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import papers_live_page as page

COSTS: dict[str, Any] = {
    "overhead_s": dict.fromkeys(page.NAMES, 1.0),
    "overhead_scv": 0.0,
    "fixed_s": dict.fromkeys(page.NAMES, 0.0),
    "trigger_s": {"extract": 12.0, "match": 0.0, "aggregate": 0.0},
    "service_s": {"extract": 5.4 / 26, "match": 5.8 / 26, "aggregate": 0.0005},
    "service_scv": dict.fromkeys(page.NAMES, 0.25),
    "startup_s": 15.0,
}


def rows(seed: int, factor: float = 1.0) -> list[dict[str, Any]]:
    """A run of Fig. 6 that is as the model says, but for a factor."""
    head = {"experiment": "fig6", "seed": seed, "period_s": 12.0}
    parts: list[dict[str, Any]] = []
    for allocation in VLD_26.allocations:
        mean_s = factor * page.chain(COSTS).mean_s(allocation)
        figures = {"mean_s": mean_s, "sd_s": 3.0, "p95_s": 1.4 * mean_s, "frames": 900}
        parts.append({**head, "allocation": list(allocation), "load": 2.0, **figures})
    return [*parts, {**head, "fitted": COSTS}]


def test_the_model_adds_up_along_the_chain() -> None:
    expected = 12 / 2 + 3 * 1.0 + 12 * (5.4 / 10 + 5.8 / 11 + 26 * 0.0005)
    assert page.chain(COSTS).mean_s((10, 11, 1)) == pytest.approx(expected)


def test_a_run_is_compared_with_costs_of_another_and_what_is_left_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "SIMULATED_S", 240.0)
    swamped = [{**row, "left_out": "a swamped machine"} for row in rows(0, factor=9.0)]
    page.write_page([*swamped, *rows(1)])
    assert "| 10:11:1 |" not in (tmp_path / "page.md").read_text(), "there is no other run"
    page.write_page([*swamped, *rows(1), *rows(2)])
    text = (tmp_path / "page.md").read_text()
    (best,) = (line for line in text.splitlines() if line.startswith("| 10:11:1 |"))
    assert [cell.strip() for cell in best.split("|")][2:7] == [
        "2", "22.0 ± 0.0", "3.0 ± 0.0", "22.0", "+0%",
    ]  # fmt: skip
    assert "Lowest mean latency of 2 runs: 10:11:1" in text
    assert "- fig6: a swamped machine." in text


def test_a_run_on_a_busy_machine_is_listed_and_in_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "SIMULATED_S", 240.0)
    busy = [{**row, "load": 40.0} if "load" in row else row for row in rows(9, factor=5.0)]
    page.write_page([*rows(1), *rows(2), *busy])
    text = (tmp_path / "page.md").read_text()
    assert "- fig6, run 9: load 40." in text
    assert "| 10:11:1 | 2 | 22.0" in text, "the busy run is in no table"
    assert "Lowest mean latency of 2 runs: 10:11:1" in text


def test_runs_on_an_idle_machine_replace_those_beside_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "SIMULATED_S", 240.0)
    shared = [*rows(1, factor=2.0), *rows(2, factor=2.0)]
    not_alone = [{**row, "others_cores": 1.2} for row in rows(13, factor=2.0)]
    page.write_page([*shared, *not_alone])
    assert "| 10:11:1 | 3 | 43.9" in (tmp_path / "page.md").read_text(), "there are no others"
    alone = [{**row, "others_cores": 0.1} for seed in (11, 12) for row in rows(seed)]
    page.write_page([*shared, *not_alone, *alone])
    text = (tmp_path / "page.md").read_text()
    assert "| 10:11:1 | 2 | 22.0" in text
    assert "- fig6, runs 1, 2, 13: on a machine shared with other work, and with other fr" in text


def test_the_best_allocation_is_shown_by_differences_within_runs() -> None:
    def measured(seed: int, slower: float) -> list[dict[str, Any]]:
        best = VLD_26.best
        return [
            {"seed": seed, "allocation": a, "mean_s": 10.0 * seed + slower * (a != best)}
            for a in VLD_26.allocations
        ]

    clear = [row for seed in (1, 2, 3) for row in measured(seed, 1.0 + seed / 10)]
    assert "is shown live: 5 of the 5" in page._lowest(clear)
    unclear = [row for seed, by in ((1, 2.0), (2, -1.0), (3, 0.5)) for row in measured(seed, by)]
    assert "is not shown live: 0 of the 5" in page._lowest(unclear)


def test_the_latency_falls_only_if_that_is_more_than_chance() -> None:
    def run(seed: int, after: float) -> dict[str, Any]:
        return {
            "experiment": "fig10", "seed": seed, "load": 2.0, "start": (8, 8, 1), "bound_s": 30.0,
            "changes": [[1.0, [8, 8, 1], 4], [70.0, [10, 11, 1], 5]],
            "before": {"mean_s": 30.0}, "after": {"mean_s": after},
        }  # fmt: skip

    make = page._scheduled("fig10", "")
    good = [run(1, 25.0), run(2, 24.0), run(3, 26.0)]
    text = make(good, good)
    assert "The latency falls: -17 ± 8 % on average of 3 runs" in text
    assert "10:11:1 in 3 of 3, and a machine was added in 3." in text
    unclear = [run(1, 25.0), run(2, 40.0), run(3, 26.0)]
    assert "is not shown to fall" in make(unclear, unclear)
    both = make(good, [*good, run(4, 60.0)])
    assert "With those on a busy machine: The latency is not shown to fall" in both


def test_the_simulator_next_to_a_run_has_the_costs_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "SIMULATED_S", 240.0)
    run = {
        "experiment": "fig10", "seed": 1, "start": (8, 8, 1), "fitted": COSTS,
        "changes": [[1.0, [8, 8, 1], 4], [70.0, [10, 11, 1], 5]],
        "before": {"mean_s": 25.0}, "after": {"mean_s": 22.0},
    }  # fmt: skip
    assert page._beside([run], run) == "– | – | – | –", "there is no other run"
    cells = page._beside([run, {**run, "seed": 2}], run).split(" | ")
    assert float(cells[0]) > float(cells[2]), "more slots take less time"
    assert cells[1].endswith("%")
