"""How the commands show things: tables that look right in a terminal and in a log."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["bar", "console", "print_json", "progress_bar", "table"]


def console() -> Console:
    """A console as wide as the terminal; 100 columns where there is none, such as in CI."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=100)


def table(*columns: str, numbers: str = "") -> Table:
    """A table without lines. numbers: an ``r`` for each column that is set to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column, side in zip(columns, numbers.ljust(len(columns)), strict=True):
        made.add_column(column, justify="right" if side == "r" else "left")
    return made


def bar(share: float, width: int = 10) -> str:
    """A share between 0 and 1 as a bar.

    >>> bar(0.52)
    '█████░░░░░'
    """
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "░" * (width - filled)


def print_json(value: Any) -> None:
    """A value for machines, indented."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def progress_bar(quiet: bool, width: int = 30) -> Progress:
    """A bar for long work, gone when it is done. quiet: none at all, as in a log or for machines.

    width: characters for what is being done.
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
