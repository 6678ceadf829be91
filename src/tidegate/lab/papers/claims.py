"""Published claims, the results of repeated experiments, and the verdicts on the claims.

A paper declares each of its claims once, with the function that judges it:

    @claim("X-01", "Table 2", "latency falls", published="falls", criterion="p90 falls")
    def latency_falls(results: Results) -> Answer:
        ...

The criteria were fixed before anything was measured. Where one turned out to be too strict or too
lax it is amended in the open: both criteria are judged and shown. The page of all claims is
generated from the answers and never written by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, get_args

from tidegate.lab.papers.statistics import half_width

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
    "in_all",
    "join",
    "judged",
    "overall",
    "split",
    "together",
]

Verdict = Literal["reproduced", "partly", "not clear", "not", "untestable"]
Progress = Callable[[float, str], None]
"""Called with the share of the work that is done, 0 to 1, and the name of the current step."""
Figure = tuple[str, str]
"""A caption and an SVG chart."""
R = TypeVar("R")


@dataclass(frozen=True)
class Answer:
    """The verdict on a claim.

    Args:
        measured: Our figures, with their spread over seeds if there are several.
        verdict: The verdict in the paper's primary world, by the amended criterion if there is one.
        reason: Why the claim is not reproduced, or what the verdict rests on.
        elsewhere: What other readings of the paper give.
        first: The verdict by the first criterion, where that was amended.
        seeds: Runs of each experiment that it rests on, None for as many as the others have.
    """

    measured: str
    verdict: Verdict
    reason: str = ""
    elsewhere: str = ""
    first: Verdict | None = None
    seeds: int | None = None


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
        amended: The criterion that decides in place of the first one, and why; empty if none does.
    """

    id: str
    where: str
    statement: str
    published: str
    criterion: str
    partly: str
    judge: Callable[[R], Answer]
    amended: str = ""

    def __call__(self, results: R) -> Answer:
        """Judge the claim."""
        return self.judge(results)


def claim(
    id: str,
    where: str,
    statement: str,
    *,
    published: str,
    criterion: str,
    partly: str = "",
    amended: str = "",
) -> Callable[[Callable[[R], Answer]], Claim[R]]:
    """Declare a claim above the function that judges it. For the parameters see `Claim`."""

    def declare(judge: Callable[[R], Answer]) -> Claim[R]:
        return Claim(id, where, statement, published, criterion, partly, judge, amended)

    return declare


@dataclass(frozen=True)
class Experiment:
    """The answers to the claims of one paper, with its figures redrawn.

    notes: assumptions and findings, in sentences. tables: published and measured figures, as HTML.
    seeds: runs of each experiment, 0 if unknown.
    """

    paper: Paper[Any]
    answers: Mapping[Claim[Any], Answer]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    tables: str = ""
    seeds: int = 0

    def seeds_of(self, answer: Answer) -> str:
        """Runs of each experiment that an answer rests on, – if unknown."""
        return str(answer.seeds or self.seeds or "–")

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
                "amended": claim.amended,
                "measured": answer.measured,
                "seeds": self.seeds_of(answer),
                "verdict": answer.verdict,
                "verdict_by_first_criterion": answer.first or answer.verdict,
                "elsewhere": answer.elsewhere,
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
        tables: Published and measured figures side by side, as HTML; None when there are none.
    """

    title: str
    claims_module: ModuleType
    measure: Callable[..., R]
    figures: Callable[[R], Iterable[Figure]]
    notes: Callable[[R], Iterable[str]]
    seeds: int = 10
    quick_seeds: int = 3
    read_days: Callable[[Sequence[Any]], Any] | None = None
    tables: Callable[[R], str] | None = None

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
        return self.judge(results, seeds)

    def judge(self, results: R, seeds: int = 0) -> Experiment:
        """Judge every claim and redraw the figures. seeds: runs of each experiment."""
        answers = {claim: claim(results) for claim in self.claims}
        figures, notes = tuple(self.figures(results)), tuple(self.notes(results))
        tables = self.tables(results) if self.tables is not None else ""
        return Experiment(self, answers, figures, notes, tables, seeds)


# --- verdicts -------------------------------------------------------------------------------------

# Where a paper leaves something open, more than one world is run. The *primary* world of a paper
# decides: the one that is consistent with most of the numbers that the paper prints. What holds
# elsewhere is shown next to it. A verdict is *not clear* when chance could have decided it.


def judged(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Verdict:
    """The verdict on a mean over seeds that must lie between two bounds.

    It is not clear if the 95 % interval of the mean contains a bound.

    >>> judged([0.50, 0.52, 0.54], low=0.4), judged([0.1, 0.9, 0.5], low=0.4)
    ('reproduced', 'not clear')
    >>> judged([0.1, 0.11, 0.12], low=0.4), judged([0.5], low=0.4)
    ('not', 'reproduced')
    """
    middle, half = math.fsum(values) / len(values), half_width(values) or 0.0
    if low <= middle - half and middle + half <= high:
        return "reproduced"
    if middle + half < low or middle - half > high:
        return "not"
    return "not clear"


def in_all(holds: Sequence[bool]) -> Verdict:
    """The verdict on a criterion that each seed meets or does not.

    >>> in_all([True, True]), in_all([True, False]), in_all([False])
    ('reproduced', 'not clear', 'not')
    """
    if all(holds):
        return "reproduced"
    return "not clear" if any(holds) else "not"


def split(
    holds: Mapping[str, Sequence[bool]],
    parts: Mapping[str, str],
    primary: Sequence[str],
    why: str = "",
) -> Answer:
    """The answer of the primary worlds, with that of the others next to it.

    holds: whether the criterion holds, by world and seed; parts: the figures by world; primary: the
    worlds that decide, all of them if none of these was run; why: the reason if it does not hold.

    >>> split({"a": [True], "b": [False, True]}, {"a": "1 ms", "b": "2 ms"}, ["a"]).elsewhere
    'b: 2 ms (holds in 1 of 2)'
    """
    chosen = {name: values for name, values in holds.items() if name in primary} or holds
    others = [
        f"{name}: {parts[name]} (holds in {sum(values)} of {len(values)})"
        for name, values in holds.items()
        if name not in chosen
    ]
    return Answer(
        "; ".join(f"{name}: {parts[name]}" for name in chosen),
        in_all([value for values in chosen.values() for value in values]),
        because(chosen, why),
        "; ".join(others),
    )


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim with several parts: partly when some of them do not hold.

    >>> together(["reproduced", "not"]), together(["reproduced", "not clear"]), together(["not"])
    ('partly', 'not clear', 'not')
    """
    if all(verdict == "reproduced" for verdict in verdicts):
        return "reproduced"
    if "not" not in verdicts:
        return "not clear"
    return "not" if all(verdict == "not" for verdict in verdicts) else "partly"


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


WHERE = "Does not hold in"


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
    return f"{WHERE}: " + "; ".join(found) + "." if found else ""


def join(*sentences: str) -> str:
    """Sentences one after the other, without the empty ones."""
    return " ".join(sentence for sentence in sentences if sentence)


def because(holds: Mapping[str, Sequence[bool]], why: str = "") -> str:
    """Why a criterion does not hold and where; empty when it holds everywhere."""
    where = failing(holds)
    return join(why, where) if where else ""


# --- the page -------------------------------------------------------------------------------------


HEAD = (
    "id", "where", "claim", "published", "reproduced when", "partly when", "amended", "measured",
    "seeds", "verdict", "by the first criterion", "elsewhere", "reason",
)  # fmt: skip
SEEDS, VERDICT, FIRST = (
    HEAD.index("seeds"),
    HEAD.index("verdict"),
    HEAD.index("by the first criterion"),
)


def claims_page(experiments: Sequence[Experiment], command: str, before: str = "") -> str:
    """All claims with their answers as a Markdown page.

    command: the one that wrote it; before: the page that is renewed, of which the rows of other
    papers stay.
    """
    rows = {
        cells[0]: cells
        for line in before.splitlines()
        if re.match(r"\| [A-Z]-\d\d \|", line) and len(cells := _cells(line)) == len(HEAD)
    }
    for experiment in experiments:
        for claim, answer in experiment.answers.items():
            cells = [
                claim.id,
                f"{experiment.paper.title}, {claim.where}",
                claim.statement,
                claim.published,
                claim.criterion,
                claim.partly or "–",
                claim.amended or "–",
                answer.measured,
                experiment.seeds_of(answer),
                answer.verdict,
                answer.first or answer.verdict,
                answer.elsewhere or "–",
                answer.reason or "–",
            ]
            rows[claim.id] = [cell.replace("|", "\\|") for cell in cells]
    ordered = [cells for _, cells in sorted(rows.items(), key=_place)]
    lines = [
        "# Claims of the papers",
        "",
        f"{len(rows)} published claims: {_counted(ordered, VERDICT)}. By the first criteria: "
        f"{_counted(ordered, FIRST)}.",
        "",
        *_summary(ordered),
        "",
        "The verdict is that of the paper's primary world, the reading that is consistent with "
        "most of its printed numbers. *Not clear*: chance could have decided it.",
        *_causes(ordered),
        "",
        "## All claims",
        "",
        f"Written by `tidegate reproduce`, last by `{command}`, which renews only the rows of its "
        "papers; do not edit.",
        "",
        "*Reproduced when* was agreed on before anything was measured; *amended* is what decides "
        "in its place, and why. *Partly when* is the rule of the experiment, if there is "
        "anything between holding and not. *Elsewhere* is what other readings give. *Seeds*: runs "
        "of each experiment, – for a quick run of an earlier version.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *("| " + " | ".join(cells) + " |" for cells in ordered),
    ]
    sections = dict(re.findall(r"<!-- tables of (\w+) -->\n(.*?)\n<!-- end -->", before, re.S))
    sections |= {e.paper.name: e.tables for e in experiments if e.tables}
    for name, tables in sorted(sections.items()):
        lines += ["", f"<!-- tables of {name} -->", tables, "<!-- end -->"]
    return "\n".join(lines) + "\n"


def _summary(rows: Sequence[Sequence[str]]) -> list[str]:
    """How many claims of each paper have which verdict."""
    papers: dict[str, list[str]] = {}
    for row in rows:
        papers.setdefault(_title(row), []).append(row[VERDICT])
    verdicts = get_args(Verdict)
    return [
        f"| paper | claims | {' | '.join(verdicts)} |",
        "|---|" + "---:|" * (1 + len(verdicts)),
        *(
            f"| {title} | {len(found)} | {' | '.join(str(found.count(v)) for v in verdicts)} |"
            for title, found in papers.items()
        ),
    ]


def _causes(rows: Sequence[Sequence[str]]) -> list[str]:
    """The claims that are not reproduced: the cause of each, and the command for its figures.

    The first sentence of a reason that does not just say where is the cause, the others are the
    figures behind it.
    """
    missed = [row for row in rows if row[VERDICT] not in ("reproduced", "untestable")]
    if not missed:
        return []
    lines = [
        "",
        "## Not reproduced, and why",
        "",
        "The figures behind each sentence are in the last column of the table below; the command "
        "measures them again. A cause whose figures are not clear is a guess.",
        "",
    ]
    for row in missed:
        paper, seeds = _title(row).lower(), row[SEEDS]
        command = f"tidegate reproduce {paper}" + ("" if seeds == "–" else f" --seeds {seeds}")
        sentences = re.split(r"(?<=\.) (?=[A-Z])", row[-1])
        cause = next((x for x in sentences if not x.startswith(WHERE)), sentences[0])
        lines.append(f"- **{row[0]}**, {row[2]} (*{row[VERDICT]}*): {cause} Figures: `{command}`.")
    return lines


def _title(row: Sequence[str]) -> str:
    """The title of a claim's paper."""
    return row[1].split(",")[0]


def _cells(line: str) -> list[str]:
    """The cells of a row; pages had no column for seeds at first."""
    cells = re.split(r" (?<!\\)\| ", line.strip("| "))
    return [*cells[:SEEDS], "–", *cells[SEEDS:]] if len(cells) == len(HEAD) - 1 else cells


def _place(row: tuple[str, Sequence[str]]) -> tuple[str, str]:
    """Claims in the order of the papers' titles."""
    return _title(row[1]).lower(), row[0]


def _counted(rows: Iterable[Sequence[str]], column: int) -> str:
    found = [row[column] for row in rows]
    counts = {verdict: found.count(verdict) for verdict in get_args(Verdict)}
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
