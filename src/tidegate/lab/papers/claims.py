"""Published claims, the results of repeated experiments, and the verdicts on the claims.

A paper declares each of its claims once, with the function that judges it:

    @claim("X-01", "Table 2", "latency falls", published="falls", criterion="p90 falls")
    def latency_falls(results: Results) -> Answer:
        ...

The criteria were fixed before anything was measured. The page of all claims is generated from the
answers and never written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, get_args

__all__ = [
    "SOMEWHERE",
    "WORLDS",
    "Answer",
    "Claim",
    "Experiment",
    "Figure",
    "Paper",
    "Progress",
    "Verdict",
    "because",
    "claim",
    "claims_page",
    "failing",
    "join",
    "overall",
]

Verdict = Literal["reproduced", "partly", "not", "untestable"]
Progress = Callable[[float, str], None]
"""Called with the share of the work that is done, 0 to 1, and the name of the current step."""
Figure = tuple[str, str]
"""A caption and an SVG chart."""
R = TypeVar("R")


@dataclass(frozen=True)
class Answer:
    """The verdict on a claim.

    measured: our figures, with their spread over seeds if there are several; reason: why the claim
    is not reproduced everywhere, or what the verdict rests on.
    """

    measured: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Claim(Generic[R]):
    """A published claim, and the function that judges it from the results of the experiments.

    Args:
        id: Identifier, such as ``F-01``.
        where: Place in the paper.
        statement: The claim.
        published: Published value.
        criterion: When the claim counts as reproduced.
        partly: When it counts as partly reproduced; empty when there is nothing in between.
        judge: Returns the verdict and its reason.
    """

    id: str
    where: str
    statement: str
    published: str
    criterion: str
    partly: str
    judge: Callable[[R], Answer]

    def __call__(self, results: R) -> Answer:
        """Judge the claim."""
        return self.judge(results)


def claim(
    id: str, where: str, statement: str, *, published: str, criterion: str, partly: str = ""
) -> Callable[[Callable[[R], Answer]], Claim[R]]:
    """Declare a claim above the function that judges it. For the parameters see `Claim`."""

    def declare(judge: Callable[[R], Answer]) -> Claim[R]:
        return Claim(id, where, statement, published, criterion, partly, judge)

    return declare


@dataclass(frozen=True)
class Experiment:
    """The answers to the claims of one paper, with its figures redrawn.

    notes: assumptions and findings, in sentences.
    """

    paper: Paper[Any]
    answers: Mapping[Claim[Any], Answer]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()

    def rows(self) -> list[dict[str, str]]:
        """The claims with their answers, one row each."""
        return [
            {
                "paper": self.paper.name,
                "id": claim.id,
                "claim": claim.statement,
                "published": claim.published,
                "criterion": claim.criterion,
                "partly_when": claim.partly,
                "measured": answer.measured,
                "verdict": answer.verdict,
                "reason": answer.reason,
            }
            for claim, answer in self.answers.items()
        ]


@dataclass(frozen=True)
class Paper(Generic[R]):
    """A paper whose experiments can be repeated.

    Args:
        title: Short name of the paper.
        claims_module: The module that declares its claims.
        measure: Runs the experiments. It takes ``quick`` (minutes at most), ``seeds`` (runs of
            each experiment), ``progress`` and the paper's own parameters.
        figures: Redraws the figures from the results.
        notes: Returns assumptions and findings, in sentences.
        seeds: Default number of runs of each experiment.
        quick_seeds: The same for a quick run.
        read_days: Reads days from trace files for the parameter ``days`` of `measure`; None when
            the experiments have no days.
    """

    title: str
    claims_module: ModuleType
    measure: Callable[..., R]
    figures: Callable[[R], Iterable[Figure]]
    notes: Callable[[R], Iterable[str]]
    seeds: int = 5
    quick_seeds: int = 3
    read_days: Callable[[Sequence[Any]], Any] | None = None

    @property
    def name(self) -> str:
        """The name of the paper's folder."""
        return self.claims_module.__name__.split(".")[-2]

    @property
    def claims(self) -> tuple[Claim[R], ...]:
        """The declared claims, in order."""
        return tuple(v for v in vars(self.claims_module).values() if isinstance(v, Claim))

    def run(
        self, quick: bool, seeds: int | None, progress: Progress, **parameters: Any
    ) -> Experiment:
        """Run the experiments. seeds: None for the default; parameters: of `measure`."""
        if seeds is None:
            seeds = self.quick_seeds if quick else self.seeds
        results = self.measure(quick, seeds, progress, **parameters)
        progress(1.0, "done")
        return self.judge(results)

    def judge(self, results: R) -> Experiment:
        """Judge every claim and redraw the figures."""
        answers = {claim: claim(results) for claim in self.claims}
        figures, notes = tuple(self.figures(results)), tuple(self.notes(results))
        return Experiment(self, answers, figures, notes)


# --- verdicts -------------------------------------------------------------------------------------

# Where a paper leaves something open, more than one world is run. A claim is *reproduced* when its
# criterion holds in all of them, *partly* when in some, and *not* when in none.

SOMEWHERE, WORLDS = "in some worlds or seeds", "in some worlds"
"""When `overall` returns partly; the latter where the criterion is on means over seeds."""


def overall(holds: Mapping[str, Sequence[bool]]) -> Verdict:
    """The verdict from whether a criterion holds, by world and seed.

    >>> overall({"a": [True], "b": [True, False]}), overall({"a": [False]})
    ('partly', 'not')
    """
    every = [value for values in holds.values() for value in values]
    if every and all(every):
        return "reproduced"
    return "partly" if any(every) else "not"


def failing(holds: Mapping[str, Sequence[bool]]) -> str:
    """Where a criterion does not hold, as a sentence; empty when it holds everywhere.

    >>> failing({"one": [True], "two": [False, True]})
    'Does not hold in: two (1 of 2).'
    """
    found = [
        name + (f" ({list(values).count(False)} of {len(values)})" if len(values) > 1 else "")
        for name, values in holds.items()
        if not all(values)
    ]
    return "Does not hold in: " + "; ".join(found) + "." if found else ""


def join(*sentences: str) -> str:
    """Sentences one after the other, without the empty ones."""
    return " ".join(sentence for sentence in sentences if sentence)


def because(holds: Mapping[str, Sequence[bool]], why: str = "") -> str:
    """Where a criterion does not hold and why; empty when it holds everywhere."""
    where = failing(holds)
    return join(where, why) if where else ""


# --- the page -------------------------------------------------------------------------------------


def claims_page(experiments: Sequence[Experiment], command: str) -> str:
    """All claims with their answers as a Markdown page. command: the one that wrote it."""
    verdicts = [answer.verdict for e in experiments for answer in e.answers.values()]
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    summary = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    lines = [
        "# Claims of the papers",
        "",
        f"Written by `{command}`; do not edit. {len(verdicts)} published claims: {summary}.",
        "",
        "*Reproduced when* was agreed on before anything was measured. *Partly when* is the rule "
        "of the experiment, if there is anything between holding and not; a *world* is one reading "
        "of what a paper leaves open.",
        "",
        "| id | where | claim | published | reproduced when | partly when | measured | verdict "
        "| reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for experiment in experiments:
        for claim, answer in experiment.answers.items():
            row: Sequence[str] = (
                claim.id,
                f"{experiment.paper.title}, {claim.where}",
                claim.statement,
                claim.published,
                claim.criterion,
                claim.partly or "–",
                answer.measured,
                answer.verdict,
                answer.reason,
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"
