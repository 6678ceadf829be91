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
    assert "Lowest mean latency: 10:11:1" in text
    assert "- fig6: a swamped machine." in text
