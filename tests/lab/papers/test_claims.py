from __future__ import annotations

import re
from pathlib import Path

from tidegate.lab.papers.claims import Answer, Experiment, claims, ledger

ROOT = Path(__file__).parents[3]


def test_there_are_54_claims_of_four_papers() -> None:
    assert len(claims()) == 54
    assert {claim.paper for claim in claims().values()} == {"FUGU", "Cervino", "VISP", "DRS"}


def test_the_ledger_has_a_row_for_each_claim_and_says_what_is_missing() -> None:
    answer = Answer("F-01", "0.8233", "reproduced", "the paper | rounds", "half of it")
    page = ledger([Experiment("fugu", (answer,))], "some command")
    rows = [line for line in page.splitlines() if re.match(r"\| [FCVD]-\d\d ", line)]
    assert len(rows) == 54
    assert "| half of it | 0.8233 | reproduced | the paper \\| rounds |" in rows[0]
    for row, claim in zip(rows, claims().values(), strict=True):
        assert f"| {claim.published} | {claim.criterion} |" in row
    assert sum("not yet measured" in row for row in rows) == 53
    assert "1 reproduced, 53 not yet measured" in page and "`some command`" in page


def test_the_ledger_in_the_documentation_answers_every_claim() -> None:
    page = (ROOT / "docs" / "measured" / "claims.md").read_text()
    rows = dict(re.findall(r"^\| ([FCVD]-\d\d) (.*)$", page, flags=re.M))
    assert set(rows) == set(claims())
    for name, row in rows.items():
        verdict = re.search(r"\| (reproduced|partly|not|untestable) \|", row)
        assert verdict, name
        _, _, _, criterion, partly = row.split(" | ")[:5]
        assert criterion == claims()[name].criterion
        assert verdict[1] != "partly" or partly != "–", name
