"""What a question is, what an experiment answers, and the page of all answers.

The answer is a sentence that the experiment composes from its measurements, so a run with other
seeds or on other days says what it found. The page has a section for each question; a run of one
question renews its section alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.lab.papers.claims import Figure, Progress
from tidegate.lab.papers.statistics import half_width, mean

__all__ = [
    "FIRST_SEED",
    "Finding",
    "Question",
    "Size",
    "Table",
    "change_text",
    "direction",
    "future_page",
    "picture_name",
]

FIRST_SEED = 11
"""First seed that is reported. Settings were chosen on smaller ones."""


@dataclass(frozen=True)
class Size:
    """How much is run.

    Args:
        seeds: Number of seeds.
        length: Length of each run, as a share of the usual one; tests use short ones.
        traces: Folder with recorded days, ``xetra/*_rate.csv``; None for generated days.
    """

    seeds: int = 10
    length: float = 1.0
    traces: Path | None = None

    @property
    def numbers(self) -> range:
        """The seeds."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


@dataclass(frozen=True)
class Table:
    """A table: its caption, the names of its columns and its rows, as text."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
    """The result of an experiment.

    Args:
        answer: The answer in one or two sentences.
        tables: What was measured.
        notes: What was assumed, and what was chosen after a look at results; sentences.
        figures: Charts, at most one for the page.
    """

    answer: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question that a paper left open.

    Args:
        name: The name of its file.
        asks: The question.
        origin: The paper that left it open, and where.
        method: How it is examined here, in sentences.
        run: Runs the experiment and answers.
    """

    name: str
    asks: str
    origin: str
    method: str
    run: Callable[[Size, Progress], Finding]


# --- answers --------------------------------------------------------------------------------------


def direction(differences: Sequence[float]) -> int:
    """1 if a difference is above zero beyond chance, −1 if it is below, 0 if chance explains it.

    Beyond chance means that the 95 % interval of the mean over seeds does not contain zero. One
    seed decides nothing.

    >>> direction([1.0, 1.2, 0.9]), direction([-1.0, 1.2, 0.1]), direction([5.0])
    (1, 0, 0)
    """
    half = half_width(differences)
    if half is None or abs(mean(differences)) <= half:
        return 0
    return 1 if mean(differences) > 0 else -1


def change_text(values: Sequence[float], base: Sequence[float]) -> str:
    """How much larger the mean is than that of a base, in percent, and whether chance explains it.

    values, base: figures by seed, in the same order.

    >>> change_text([9.0, 8.0, 10.0], [10.0, 9.0, 11.0])
    '10 % less'
    >>> change_text([9.0, 11.0, 10.0], [10.0, 9.0, 11.0])
    'no clear change'
    """
    way = direction([a - b for a, b in zip(values, base, strict=True)])
    before = mean(base)
    if way == 0 or before == 0 or not math.isfinite(before):
        return "no clear change"
    share = abs(100 * (mean(values) / before - 1))
    size = f"{mean(values) / before:.1f} times as much" if share > 100 else f"{share:.0f} %"
    return size if share > 100 else f"{size} {'more' if way > 0 else 'less'}"


# --- the page -------------------------------------------------------------------------------------


def picture_name(page: Path, question: str) -> str:
    """The name of the file with the chart of a question, in the folder of the page."""
    return f"{page.stem}-{question}.svg"


HEAD = """# Questions that the papers left open

Written by `tidegate reproduce future`; do not edit. Each section says with which command it was
last renewed. Figures are means over seeds, and ± is half the width of the 95 % interval of the mean
(Student's t). A difference is called clear if the interval of the differences, seed by seed, does
not contain zero. The command has ten seeds, with `--quick` three. A section that was run with
`--seeds 1` calls no difference clear, whatever it is: one seed decides nothing.
"""


def future_page(
    findings: Mapping[Question, Finding],
    command: str,
    pictures: Mapping[str, str],
    names: Sequence[str],
    before: str = "",
) -> str:
    """All questions with their answers as a Markdown page.

    Args:
        findings: The new answers.
        command: The command that found them.
        pictures: Names of files with charts, by question.
        names: All questions, in order.
        before: The page that is renewed, of which the other sections stay.
    """
    found = re.findall(r"<!-- question (\w+) -->\n(.*?)\n<!-- end -->", before, re.S)
    sections = dict(found)
    for question, finding in findings.items():
        picture = pictures.get(question.name)
        sections[question.name] = _section(question, finding, command, picture)
    parts = [
        f"<!-- question {name} -->\n{sections[name]}\n<!-- end -->\n"
        for name in names
        if name in sections
    ]
    return "\n".join([HEAD, *parts])


def _section(question: Question, finding: Finding, command: str, picture: str | None) -> str:
    lines = [
        f"## {question.asks}",
        "",
        f"Left open by {question.origin}. Run with `{command}`.",
        "",
        question.method,
        "",
        f"**Answer.** {finding.answer}",
    ]
    for table in finding.tables:
        lines += ["", f"{table.caption}", "", _row(table.head), "|" + "---|" * len(table.head)]
        lines += [_row(row) for row in table.rows]
    if picture is not None:
        lines += ["", f"![{finding.figures[0][0]}]({picture})"]
    if finding.notes:
        lines += ["", *(f"- {note}" for note in finding.notes)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
