"""The claims ledger: what the four papers say, what we measure, and whether it holds.

``claims.csv`` beside this file lists every published claim with what counts as reproduced; it was
agreed on before anything was measured. An experiment answers claims by their ids; the ledger page
is written from those answers and never by hand.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

from tidegate.codec import Value

__all__ = ["Answer", "Claim", "Experiment", "claims", "ledger"]

Verdict = Literal["reproduced", "partly", "not", "untestable"]
PAPERS = ("fugu", "cervino", "visp", "drs")


@dataclass(frozen=True, slots=True)
class Claim(Value):
    """A published claim. where: in the paper; criterion: what counts as reproduced."""

    id: str
    paper: str
    where: str
    kind: str
    claim: str
    published: str
    criterion: str


@dataclass(frozen=True, slots=True)
class Answer(Value):
    """What came out for a claim.

    measured: our figure, with its spread over seeds where there are any; reason: why the verdict is
    not plain "reproduced", or what it rests on; partly: when the verdict is "partly" by the
    experiment's rule, empty where there is nothing between holding and not.
    """

    claim: str
    measured: str
    verdict: Verdict
    reason: str = ""
    partly: str = ""


@dataclass(frozen=True)
class Experiment:
    """The answers of one paper's experiments, with its figures redrawn.

    figures: (caption, SVG chart) pairs for the report; notes: what was assumed, in sentences.
    """

    paper: str
    answers: tuple[Answer, ...]
    figures: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())

    def rows(self) -> list[dict[str, str]]:
        """The answers beside the published claims, for people and machines."""
        found = []
        for answer in self.answers:
            claim = claims()[answer.claim]
            found.append(
                {
                    "paper": self.paper,
                    "id": claim.id,
                    "claim": claim.claim,
                    "published": claim.published,
                    "criterion": claim.criterion,
                    "partly_when": answer.partly,
                    "measured": answer.measured,
                    "verdict": answer.verdict,
                    "reason": answer.reason,
                }
            )
        return found


@cache
def claims() -> dict[str, Claim]:
    """All published claims by id.

    >>> claims()["F-01"].published
    '0.822'
    """
    text = files("tidegate.lab.papers").joinpath("claims.csv").read_text(encoding="utf-8")
    return {row["id"]: Claim(**row) for row in csv.DictReader(text.splitlines())}


def ledger(experiments: Iterable[Experiment], command: str) -> str:
    """The ledger as a Markdown page. command: the one that wrote it."""
    answers = {answer.claim: answer for e in experiments for answer in e.answers}
    counts = dict.fromkeys(("reproduced", "partly", "not", "untestable"), 0)
    for answer in answers.values():
        counts[answer.verdict] += 1
    summary = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    missing = len(claims()) - len(answers)
    lines = [
        "# Claims ledger",
        "",
        f"Written by `{command}`; do not edit. {len(claims())} published claims: {summary}"
        + (f", {missing} not yet measured." if missing else "."),
        "",
        "*Reproduced when* was agreed on before anything was measured. *Partly when* is the rule "
        "of the experiment, if there is anything between holding and not; a *world* is one reading "
        "of what a paper leaves open.",
        "",
        "| id | where | claim | published | reproduced when | partly when | measured | verdict "
        "| reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for claim in claims().values():
        found = answers.get(claim.id)
        row: Sequence[str] = (
            claim.id,
            f"{claim.paper}, {claim.where}",
            claim.claim,
            claim.published,
            claim.criterion,
            (found.partly if found else "") or "–",
            found.measured if found else "–",
            found.verdict if found else "not yet measured",
            found.reason if found else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"
