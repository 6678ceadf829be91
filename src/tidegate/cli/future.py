"""``tidegate reproduce future``: experiments for the questions that the papers left open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidegate.cli.output import console, print_json, progress_bar, say, table
from tidegate.errors import InputError
from tidegate.lab.future import QUESTIONS, load_question
from tidegate.lab.future.questions import Finding, Question, Size, future_page, picture_name
from tidegate.lab.parallel import in_processes
from tidegate.lifecycle import usable_cores
from tidegate.outputs import write_output
from tidegate.report import Page
from tidegate.report.page import standalone

__all__ = ["FUTURE", "answer_questions"]

FUTURE = "future"
SEEDS, QUICK_SEEDS = 10, 3


def answer_questions(
    quick: bool,
    seeds: int | None,
    only: list[str] | None,
    page: Path | None,
    report: Path | None,
    traces: Path | None,
    as_json: bool,
) -> None:
    """Run the experiments and show, or write, the answers.

    Args:
        quick: Three seeds instead of ten.
        seeds: Number of seeds, None for the default.
        only: Names of questions, None for all.
        page: Markdown page to write or renew, with its pictures next to it.
        report: HTML report to write.
        traces: Folder with recorded days.
        as_json: Print JSON instead of tables.
    """
    for name in only or ():
        if name not in QUESTIONS:
            raise InputError("--only", name, "one of " + ", ".join(QUESTIONS))
    if traces is not None and not traces.is_dir():
        raise InputError("--traces", str(traces), "a folder", "leave it out for generated days")
    names = tuple(name for name in QUESTIONS if not only or name in only)
    size = Size(seeds or (QUICK_SEEDS if quick else SEEDS), traces=traces)
    findings = _run(names, size, quiet=as_json)
    if page is not None:
        _write_page(page, findings, _command(quick, seeds, traces))
    if report is not None:
        _write_report(report, findings)
    if as_json:
        print_json([_plain(question, finding) for question, finding in findings.items()])
        return
    _show(findings)
    for written in (page, report):
        if written is not None:
            say(f"written: {written}")


class _Job(NamedTuple):
    name: str
    size: Size


def _answer(job: _Job, progress: Callable[[float], None]) -> Finding:
    return load_question(job.name).run(job.size, lambda share, _: progress(share))


def _run(names: tuple[str, ...], size: Size, quiet: bool) -> dict[Question, Finding]:
    """The answers in order; several questions run at the same time where there are cores."""
    jobs = [_Job(name, size) for name in names]
    done: dict[int, Finding] = {}
    with progress_bar(quiet, width=20) as bar:
        tasks = [bar.add_task(name, total=1.0) for name in names]

        def report(number: int, share: float) -> None:
            bar.update(tasks[number], completed=share)

        found: Iterable[tuple[int, Finding]]
        if len(jobs) > 1 and usable_cores() > 1:
            found = in_processes(_answer, jobs, usable_cores(), report)
        else:
            found = ((n, _answer(job, partial(report, n))) for n, job in enumerate(jobs))
        for number, finding in found:
            done[number] = finding
            report(number, 1.0)
    return {load_question(name): done[number] for number, name in enumerate(names)}


def _command(quick: bool, seeds: int | None, traces: Path | None) -> str:
    words = f"tidegate reproduce {FUTURE}" + (" --quick" if quick else "")
    words += "" if seeds is None else f" --seeds {seeds}"
    return words + ("" if traces is None else " --traces FOLDER")


def _write_page(page: Path, findings: dict[Question, Finding], command: str) -> None:
    pictures = {}
    for question, finding in findings.items():
        if finding.figures:
            pictures[question.name] = name = picture_name(page, question.name)
            write_output(page.with_name(name), standalone(finding.figures[0][1]), "--page")
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    write_output(page, future_page(findings, command, pictures, QUESTIONS, before), "--page")


def _write_report(path: Path, findings: dict[Question, Finding]) -> None:
    made = Page("Questions that the papers left open", "Each is answered by an experiment.")
    for question, finding in findings.items():
        made.section(question.asks, question.method)
        made.text(finding.answer)
        for shown in finding.tables:
            made.text(shown.caption)
            made.table(shown.head, shown.rows)
        for caption, svg in finding.figures:
            made.picture(svg, caption)
        for note in finding.notes:
            made.text(note)
    made.write(path, "--report")


def _plain(question: Question, finding: Finding) -> dict[str, object]:
    tables = [
        {
            "caption": shown.caption,
            "rows": [dict(zip(shown.head, row, strict=True)) for row in shown.rows],
        }
        for shown in finding.tables
    ]
    return {
        "question": question.name,
        "asks": question.asks,
        "origin": question.origin,
        "answer": finding.answer,
        "tables": tables,
        "notes": list(finding.notes),
    }


def _show(findings: dict[Question, Finding]) -> None:
    out = console()
    for question, finding in findings.items():
        out.print(f"\n[bold]{question.name}[/bold]: {question.asks}")
        out.print(finding.answer, markup=False)
        for shown in finding.tables:
            out.print(f"\n{shown.caption}", markup=False)
            made = table(*shown.head, numbers=" " + "r" * (len(shown.head) - 1))
            for row in shown.rows:
                made.add_row(*row)
            out.print(made)
        for note in finding.notes:
            out.print(f"· {note}", style="dim", markup=False)
