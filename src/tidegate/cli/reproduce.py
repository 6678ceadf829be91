"""``tidegate reproduce``: the papers' experiments beside their published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from tidegate.cli.show import console, print_json, progress_bar, table
from tidegate.errors import InputError
from tidegate.lab.claims import Experiment, claims, ledger
from tidegate.lab.reproduce import PAPERS, run_paper
from tidegate.report import Page
from tidegate.units import finite

__all__ = ["reproduce"]

STYLES = {"reproduced": "green", "partly": "yellow", "not": "red", "untestable": "dim"}


def reproduce(
    paper: Annotated[str, typer.Argument(help="fugu, cervino, visp, drs or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of an hour.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each experiment; default 5, 3 with --quick.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML report with figures.", metavar="FILE")
    ] = None,
    ledger_file: Annotated[
        Path | None,
        typer.Option("--ledger", help="Write the claims ledger (with all).", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Repeat the papers' experiments and lay the results beside the published figures.

    Each claim gets our measurement, with its spread over seeds, and a verdict: reproduced, partly,
    not, or untestable here. A claim that does not hold stays, with the reason.
    """
    if paper not in (*PAPERS, "all"):
        raise InputError("paper", paper, "one of " + ", ".join((*PAPERS, "all")))
    runs = (3 if quick else 5) if seeds is None else int(finite(seeds, "--seeds", low=1, high=1000))
    if ledger_file is not None and paper != "all":
        raise InputError(
            "--ledger", str(ledger_file), "used with all", "the ledger holds all papers"
        )
    chosen = PAPERS if paper == "all" else (paper,)
    experiments = _run(chosen, quick, runs, quiet=as_json)
    if report is not None:
        _write_report(experiments, report)
    if ledger_file is not None:
        words = "tidegate reproduce all" + (" --quick" if quick else "") + f" --seeds {runs}"
        ledger_file.write_text(ledger(experiments, f"{words} --ledger FILE"), encoding="utf-8")
    if as_json:
        print_json([row for experiment in experiments for row in _rows(experiment)])
    else:
        _show(experiments)
        for written in (report, ledger_file):
            if written is not None:
                console().print(f"written: {written}")


def _run(papers: tuple[str, ...], quick: bool, seeds: int, quiet: bool) -> list[Experiment]:
    done = []
    with progress_bar(quiet, width=50) as bar:
        for paper in papers:
            task = bar.add_task(paper, total=1.0)

            def progress(share: float, what: str, paper: str = paper, task: TaskID = task) -> None:
                bar.update(task, completed=share, description=f"{paper}: {what}")

            done.append(run_paper(paper, quick, seeds, progress))
            bar.update(task, completed=1.0)
    return done


def _rows(experiment: Experiment) -> list[dict[str, str]]:
    rows = []
    for answer in experiment.answers:
        claim = claims()[answer.claim]
        rows.append(
            {
                "paper": experiment.paper,
                "id": claim.id,
                "claim": claim.claim,
                "published": claim.published,
                "measured": answer.measured,
                "verdict": answer.verdict,
                "reason": answer.reason,
            }
        )
    return rows


def _show(experiments: list[Experiment]) -> None:
    out = console()
    counts: dict[str, int] = {}
    for experiment in experiments:
        shown = table("claim", "what", "published", "measured", "verdict")
        for row in _rows(experiment):
            style = STYLES[row["verdict"]]
            shown.add_row(
                row["id"],
                row["claim"],
                row["published"],
                row["measured"],
                f"[{style}]{row['verdict']}[/{style}]",
            )
            counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
        out.print(f"\n[bold]{experiment.paper}[/bold]")
        out.print(shown)
        for row in _rows(experiment):
            if row["reason"]:
                out.print(f"[dim]{row['id']}: {row['reason']}[/dim]")
        for note in experiment.notes:
            out.print(f"[dim]· {note}[/dim]")
    out.print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _write_report(experiments: list[Experiment], path: Path) -> None:
    rows = [row for experiment in experiments for row in _rows(experiment)]
    held = sum(row["verdict"] == "reproduced" for row in rows)
    names = ", ".join(experiment.paper for experiment in experiments)
    page = Page(
        f"Do the published results hold? ({names})",
        f"{held} of {len(rows)} claims are reproduced; the others stand below with their reasons.",
    )
    for experiment in experiments:
        page.section(experiment.paper)
        for caption, svg in experiment.figures:
            page.picture(svg, caption)
        page.table(
            ["id", "claim", "published", "measured", "verdict", "reason"],
            [
                [r["id"], r["claim"], r["published"], r["measured"], r["verdict"], r["reason"]]
                for r in _rows(experiment)
            ],
        )
        for note in experiment.notes:
            page.text(note)
    page.write(path)
