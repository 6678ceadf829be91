"""``tidegate reproduce``: the papers' experiments, compared with their published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import TaskID

from tidegate.cli.future import FUTURE, answer_questions
from tidegate.cli.output import console, print_json, progress_bar, say, styled, table
from tidegate.errors import InputError
from tidegate.lab.future import QUESTIONS
from tidegate.lab.papers import PAPERS, load_paper
from tidegate.lab.papers.claims import Experiment, claims_page
from tidegate.lab.papers.jobs import running_with
from tidegate.outputs import check_output, write_output
from tidegate.report import Page
from tidegate.units import finite

__all__ = ["reproduce"]

COLUMNS = {
    "id": "id",
    "claim": "claim",
    "published": "published",
    "criterion": "reproduced when",
    "partly_when": "partly when",
    "amended": "amended",
    "measured": "measured",
    "seeds": "seeds",
    "verdict": "verdict",
    "verdict_by_first_criterion": "by the first criterion",
    "elsewhere": "elsewhere",
    "reason": "reason",
}
STYLES = {
    "reproduced": "green",
    "partly": "yellow",
    "not clear": "magenta",
    "not": "red",
    "untestable": "dim",
}


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(PAPERS)} or all; future: questions that the papers left open."
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of an hour.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Runs of each experiment; default 10 (FUGU: 100, VISP: 30), with --quick 3 (FUGU: "
            "1)."
        ),
    ] = None,
    days: Annotated[
        list[Path] | None,
        typer.Option(
            help="With fugu: trace file (t_s,rate) of a day; pass it three times, for days 1 to 3.",
            metavar="FILE",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML report with figures.", metavar="FILE")
    ] = None,
    claims: Annotated[
        Path | None,
        typer.Option(
            help="Write the page of all claims, or renew the rows of one paper in it.",
            metavar="FILE",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Processes that share the runs; default 2, with --quick 1.", min=1),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Keep finished runs here; the same command goes on where it was interrupted.",
            metavar="FOLDER",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"With future: only this question, {', '.join(QUESTIONS)}; repeat for more.",
            metavar="NAME",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="With future: write the page of all answers, or renew the sections that ran.",
            metavar="FILE",
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            help="With future: folder with recorded days, xetra/*_rate.csv; else generated days.",
            metavar="FOLDER",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Repeat the papers' experiments and compare the results with the published figures.

    Each claim gets our measurement, with its spread over seeds, and a verdict: reproduced, partly,
    not clear, not, or untestable here. A claim that does not hold stays, with the reason.

    With `future`, it runs an experiment for each question that the papers left open, and answers.
    """
    if paper not in (*PAPERS, "all", FUTURE):
        raise InputError("paper", paper, "one of " + ", ".join((*PAPERS, "all", FUTURE)))
    if seeds is not None:
        finite(seeds, "--seeds", low=1, high=1000)
    for option, file in (("--report", report), ("--claims", claims), ("--page", page)):
        if file is not None:
            check_output(file, option, inputs=days or ())
    if keep is not None:
        check_output(keep / "runs", "--keep")
    if paper == FUTURE:
        _refuse({"--days": days, "--claims": claims}, "used with papers", "future has questions")
        answer_questions(quick, seeds, only, page, report, traces, as_json)
        return
    _refuse(
        {"--only": only, "--page": page, "--traces": traces}, "used with future", "papers have none"
    )
    more = {"days": _read_days(paper, days)} if days else {}
    with running_with(processes or (1 if quick else 2), keep):
        experiments = _run(PAPERS if paper == "all" else (paper,), quick, seeds, as_json, more)
    if report is not None:
        _write_report(experiments, report)
    if claims is not None:
        words = f"tidegate reproduce {paper}" + (" --quick" if quick else "")
        words += "" if seeds is None else f" --seeds {seeds}"
        before = claims.read_text(encoding="utf-8") if paper != "all" and claims.exists() else ""
        text = claims_page(experiments, f"{words} --claims FILE", before)
        write_output(claims, text, "--claims")
    if as_json:
        print_json([row for experiment in experiments for row in experiment.rows()])
    else:
        _show(experiments)
        for written in (report, claims):
            if written is not None:
                say(f"written: {written}")


def _refuse(given: dict[str, Any], allowed: str, why: str) -> None:
    """Refuse options that do not go with what is repeated."""
    for option, value in given.items():
        if value is not None:
            shown = value[0] if isinstance(value, list) else value
            raise InputError(option, str(shown), allowed, why)


def _read_days(paper: str, files: list[Path]) -> Any:
    read = None if paper == "all" else load_paper(paper).read_days
    if read is None:
        able = ", ".join(name for name in PAPERS if load_paper(name).read_days)
        raise InputError("--days", str(files[0]), f"used with {able}", "no other paper has days")
    return read(files)


def _run(
    papers: tuple[str, ...], quick: bool, seeds: int | None, quiet: bool, more: dict[str, Any]
) -> list[Experiment]:
    done = []
    with progress_bar(quiet, width=50) as bar:
        for paper in papers:
            task = bar.add_task(paper, total=1.0)

            def progress(share: float, what: str, paper: str = paper, task: TaskID = task) -> None:
                bar.update(task, completed=share, description=f"{paper}: {what}")

            done.append(load_paper(paper).run(quick, seeds, progress, **more))
    return done


def _show(experiments: list[Experiment]) -> None:
    out = console()
    counts: dict[str, int] = {}
    for experiment in experiments:
        shown = table("claim", "what", "published", "measured", "verdict")
        for row in experiment.rows():
            style = STYLES[row["verdict"]]
            shown.add_row(
                row["id"],
                row["claim"],
                row["published"],
                row["measured"],
                styled(row["verdict"], style),
            )
            counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
        out.print(f"\n[bold]{experiment.paper.name}[/bold]")
        out.print(shown)
        for row in experiment.rows():
            if row["reason"]:
                out.print(f"{row['id']}: {row['reason']}", style="dim", markup=False)
        for note in experiment.notes:
            out.print(f"· {note}", style="dim", markup=False)
    out.print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _write_report(experiments: list[Experiment], path: Path) -> None:
    rows = [row for experiment in experiments for row in experiment.rows()]
    held = sum(row["verdict"] == "reproduced" for row in rows)
    names = ", ".join(experiment.paper.name for experiment in experiments)
    page = Page(
        f"Do the published results hold? ({names})",
        f"{held} of {len(rows)} claims are reproduced; the others are listed with their reasons.",
    )
    for experiment in experiments:
        page.section(experiment.paper.name)
        for caption, svg in experiment.figures:
            page.picture(svg, caption)
        page.table(
            [*COLUMNS.values()],
            [[row[key] for key in COLUMNS] for row in experiment.rows()],
        )
        for note in experiment.notes:
            page.text(note)
        if experiment.tables:
            page.picture(experiment.tables)
    page.write(path, "--report")
