"""A small run of every paper's quick experiments, compared with the files in tests/golden.

It is ``tidegate reproduce PAPER --quick --seeds 1 --json`` with shorter runs: verdicts say nothing
about the papers here, but every kernel, policy and criterion leaves its trace in the figures.
Words, verdicts, counts ("3 of 4") and allocations must be equal. Other figures may differ by one in
the last digit that is printed, since processors and C libraries do not agree on the last bit of a
logarithm.

To accept new results, run ``python -m tests.lab.papers.test_golden_experiments``, with the names of
papers to limit it to these. Read ``git diff tests/golden`` and give the reason in the commit.
"""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tidegate.lab.papers import PAPERS, load_paper
from tidegate.lab.papers.cervino.experiment import CervinoLengths
from tidegate.lab.papers.drs import runs as drs

GOLDEN = Path(__file__).parents[2] / "golden"
SIZES: dict[str, dict[str, Any]] = {
    "fugu": {"points": 20},
    "cervino": {"lengths": CervinoLengths(scale=100.0, ramp_step_s=10.0, hold_s=20.0)},
    "visp": {"minutes": 12.0},
    "drs": {
        "lengths": drs.DrsLengths(
            logo_s=1800.0, pattern_s=20.0, chain_items=5000, pattern_seeds=0, instances=30, rounds=1
        )
    },
}
KEYS = ("paper", "id", "claim", "published", "measured", "verdict", "reason")
TIMES_MS = {12: 0.01, 24: 0.02, 48: 0.03, 96: 0.05, 192: 0.02}
"""Stand for the times that DRS's Table II takes on this machine (D-13)."""
NUMBER = re.compile(
    r"(?<![\w.:])(?<!of )"  # neither in a word nor the whole of a count or a part of 10:11:1
    r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    r"(?!\.?\d|:| of )"
)


def small_run(paper: str) -> list[dict[str, str]]:
    """The rows that ``--json`` prints, without what is not compared."""
    with (
        mock.patch.object(drs, "scheduling_ms", lambda rounds: TIMES_MS),
        mock.patch.object(drs, "measuring_ms", lambda rounds: TIMES_MS),
    ):
        done = load_paper(paper).run(True, 1, lambda share, what: None, **SIZES[paper])
    return [{key: row[key] for key in KEYS} for row in done.rows()]


def golden(paper: str) -> Path:
    return GOLDEN / f"reproduce_{paper}.json"


def same(one: str, other: str) -> bool:
    """Whether two texts are alike but for one in the last printed digit of measured figures."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(_near(Decimal(a), Decimal(b)) for a, b in pairs)


def _near(a: Decimal, b: Decimal) -> bool:
    unit = Decimal(10) ** max(*(int(value.as_tuple().exponent) for value in (a, b)), -9)
    return abs(a - b) <= unit


@pytest.mark.parametrize("paper", PAPERS)
def test_a_small_quick_experiment_gives_what_it_gave_before(paper: str) -> None:
    found, known = small_run(paper), json.loads(golden(paper).read_text())
    assert [row["id"] for row in found] == [row["id"] for row in known]
    changed = [
        {"id": new["id"], "key": key, "was": old[key], "is": new[key]}
        for new, old in zip(found, known, strict=True)
        for key in KEYS
        if not same(new[key], old[key])
    ]
    assert changed == []


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("p90 -12 ms (17 of 35)", "p90 -12 ms (17 of 35)", True),
        ("p90 -12 ms", "p90 -13 ms", True),
        ("p90 -12 ms", "p90 -14 ms", False),
        ("0.52 ± 0.05", "0.53 ± 0.05", True),
        ("0.52 ± 0.05", "0.54 ± 0.05", False),
        ("5.59e+03 ms", "5.60e+03 ms", True),
        ("5.59e+03 ms", "5.61e+03 ms", False),
        ("1.02", "1.021", True),
        ("0.999", "1", True),
        ("1 ± 4.26e-15", "1 ± 0", True),
        ("ends at 0.05.", "ends at 0.06.", True),
        ("0.55-0.62", "0.55-0.63", True),
        ("0.55-0.62", "0.55-0.64", False),
        ("3 of 4", "2 of 4", False),
        ("to 10:11:1 in 5", "to 10:12:1 in 5", False),
        ("in 5", "in 5 of 5", False),
        ("reproduced", "partly", False),
    ],
)
def test_figures_may_differ_in_their_last_digit_only(one: str, other: str, alike: bool) -> None:
    assert same(one, other) is same(other, one) is alike


if __name__ == "__main__":
    for each in sys.argv[1:] or PAPERS:
        rows = json.dumps(small_run(each), indent=1, ensure_ascii=False)
        golden(each).write_text(rows + "\n", encoding="utf-8")
