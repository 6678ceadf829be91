"""``tidegate report``: a summary of a recorded run, with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.output import console, print_json, say, shown, styled, table
from tidegate.codec import to_plain
from tidegate.loop.journal import read_journal
from tidegate.loop.records import LOST
from tidegate.loop.tail import parts_of
from tidegate.outputs import check_output
from tidegate.report.live import figures, live_page, query_rows
from tidegate.report.summary import LiveSummary, summarise
from tidegate.units import duration_s

__all__ = ["report_command", "show_summary"]


def report_command(
    journal: Annotated[Path, typer.Argument(help="A journal that Tidegate wrote.")],
    out: Annotated[Path, typer.Option(help="File for the HTML report.")] = Path("out/report.html"),
    slo: Annotated[
        str | None, typer.Option(help="Latency target. Default: the target in the journal.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON and write no report.")
    ] = False,
) -> None:
    """Summarise a run: latency, executors, cost, and every decision with its reason.

    Latencies are estimated from the percentiles of each turn.
    """
    slo_s = None if slo is None else duration_s(slo, "--slo")
    if not as_json:
        check_output(out, "--out", inputs=(journal, *parts_of(journal)))
    not_read: list[str] = []
    turns = list(read_journal(journal, not_read))
    not_read += [f"turn {t.number}: {note}" for t in turns for note in t.notes if LOST in note]
    summary = summarise(turns, slo_s)
    for sentence in not_read:
        say(f"tidegate: not in these figures: {sentence}", err=True)
    if as_json:
        print_json(to_plain(summary) | {"not_read": not_read})
        return
    show_summary(summary)
    page = live_page(journal.stem, turns, summary, not_read)
    say(f"\ncharts and decisions: {page.write(out, '--out')}")


def show_summary(summary: LiveSummary) -> None:
    """Print the figures of a run as a table, and those of its queries where there are several."""
    rows = table("", "")
    rows.show_header = False
    for name, value in figures(summary):
        rows.add_row(name, styled(value, "bold"))
    out = console()
    out.print(f"[dim]{shown(summary.policy, 1000)}[/dim]")
    out.print(rows)
    if len(summary.queries) > 1:
        out.print("\n[dim]By query, each judged by its own SLO:[/dim]")
        columns = ("query", "SLO", "items", "in time", "delay p50 · p95 · p99", "event age p95")
        by_query = table(*columns, numbers=" rr   ")
        for row in query_rows(summary.queries):
            by_query.add_row(*map(str, row[: len(columns)]))
        out.print(by_query)
