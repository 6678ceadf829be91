"""Output of the commands: tables that are readable in a terminal and in a log."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["bar", "console", "print_json", "progress_bar", "table"]


def console() -> Console:
    """Return a console as wide as the terminal; 100 columns without one, as in CI."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=100)


def table(*columns: str, numbers: str = "") -> Table:
    """Return a table without lines. numbers: an ``r`` for each right-aligned column."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column, side in zip(columns, numbers.ljust(len(columns)), strict=True):
        made.add_column(column, justify="right" if side == "r" else "left")
    return made


def bar(share: float, width: int = 10) -> str:
    """Return a share between 0 and 1 as a bar.

    >>> bar(0.52)
    '█████░░░░░'
    """
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "░" * (width - filled)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def progress_bar(quiet: bool, width: int = 30) -> Progress:
    """Return a progress bar that disappears at the end.

    quiet: show nothing, such as with ``--json``. width: characters for the description.
    """
    out = console()
    return Progress(
        TextColumn("{task.description:" + str(width) + "}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        console=out,
        transient=True,
        disable=quiet or not out.is_terminal,
    )
