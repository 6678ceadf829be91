"""``tidegate calibrate``: fit the simulator to the journal of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.output import console, print_json, say, shown, table
from tidegate.codec import to_plain
from tidegate.loop.journal import read_journal
from tidegate.loop.tail import parts_of
from tidegate.outputs import check_output
from tidegate.simulation.calibrate import Fit, calibrate, save_world
from tidegate.units import show_duration

__all__ = ["calibrate_command"]


def calibrate_command(
    journal: Annotated[Path, typer.Argument(help="Journal of a live run or a dry run.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the calibrated application, for backtest --world.", metavar="FILE"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit the simulator to a recorded run: costs of items and batches by query, and of a start-up.

    [bold]tidegate calibrate journal.jsonl --out world.yaml[/bold]
    """
    if out is not None:
        check_output(out, "--out", inputs=(journal, *parts_of(journal)))
    found = calibrate(read_journal(journal), journal.name)
    if out is not None:
        save_world(found.world, out)
    if as_json:
        print_json(to_plain(found))
        return
    screen = console()
    said: list[str] = []
    rows = table("quantity", "fitted", "error", "samples", numbers=" rrr")
    for fit in found.fits:
        off = "–" if fit.residual is None else f"{fit.residual:.1%}"
        rows.add_row(fit.name, _value(fit), off, str(fit.turns) if fit.turns else "–")
    screen.print(rows)
    screen.print(
        f"{found.turns} turns; error: deviation of single turns from the fit; samples: turns, or "
        "executors for the start-up; –: not in the journal",
        style="dim",
    )
    if found.world.settings.shared:
        screen.print("the queries share all slots, first in, first out", style="dim")
    for query in (fit.name.partition(": ")[0] for fit in found.fits if not fit.identified):
        if query not in said:
            said.append(query)
            screen.print(
                f"{shown(query)}: few batches, or all of about the same size: fixed work and work "
                "on items cannot be separated, and the split marked ? is one of many that fit",
                style="dim",
            )
    world = f" --world {out}" if out is not None else ""
    target = " --slo 5s" if found.world.slo_s is None else ""
    say(f"next: tidegate backtest {journal}{world}{target}")


def _value(fit: Fit) -> str:
    if fit.value is None:
        return "missing"
    if not fit.identified:
        return f"{show_duration(fit.value)} ?"
    if fit.unit == "s":
        return show_duration(fit.value)
    return f"{fit.value:.4g}{fit.unit and ' ' + fit.unit}"
