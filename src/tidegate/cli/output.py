"""Output of the commands: tables that are readable in a terminal and in a log.

Names come from files, journals and other people. They must neither be read as the markup of Rich
nor as instructions to the terminal. Cells of a `table` are therefore literal, `shown` makes a name
fit for a sentence with markup, and the console replaces control characters in every text.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.errors import MarkupError
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = [
    "bar",
    "console",
    "plain",
    "print_json",
    "progress_bar",
    "say",
    "shown",
    "styled",
    "table",
]

LONGEST_NAME = 80
"""Characters of a name that are shown at most."""
LONGEST_CELL = 1000
"""The same of a cell, which may hold a sentence."""
DRAW_S = 0.1
"""Time between two drawings of a progress bar without a thread, at least, in seconds."""
_CONTROL = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0xD800, 0xE000)], "�"
)
"""Control characters, those that change the direction of the text, and bytes that are no UTF-8."""
_IN_TEXT = {key: value for key, value in _CONTROL.items() if chr(key) not in "\n\t"}


def plain(name: object, longest: int = LONGEST_NAME) -> str:
    r"""Return a name as it can be shown anywhere: one short line without control characters.

    >>> plain("a\x1b[31m\nb"), len(plain("x" * 1000))
    ('a�[31m�b', 80)
    """
    text = str(name)
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.translate(_CONTROL)


def shown(name: object, longest: int = LONGEST_NAME) -> str:
    r"""Return a name for a sentence with markup, as `plain` does.

    >>> shown("[/x] and [bold]")
    '\\[/x] and \\[bold]'
    """
    return escape(plain(name, longest))


def say(text: str, err: bool = False) -> None:
    """Print a text without markup. err: to the error output."""
    typer.echo(text.translate(_IN_TEXT), err=err)


def styled(text: object, style: str = "") -> Text:
    """Return a literal text with a style, for a cell of a table."""
    return Text(plain(text, LONGEST_CELL), style)


class _Console(Console):
    """Replaces control characters, and shows text that is no valid markup as it is."""

    def render_str(self, text: str, **options: Any) -> Text:
        clean = text.translate(_IN_TEXT)
        try:
            return super().render_str(clean, **options)
        except MarkupError:
            return super().render_str(clean, **{**options, "markup": False})


def console() -> Console:
    """Return a console as wide as the terminal; 100 columns without one, as in CI."""
    found = _Console(highlight=False)
    return found if found.is_terminal else _Console(highlight=False, width=100)


class _Table(Table):
    """A table with literal cells; one with a style is a `Text`."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row."""
        literal = (styled(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*literal, **options)


def table(*columns: str, numbers: str = "") -> Table:
    """Return a table without lines. numbers: an ``r`` for each right-aligned column."""
    made = _Table(box=None, pad_edge=False, header_style="bold")
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
    """Print a value as indented JSON. What JSON has no word for, NaN and infinities, is null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo(text.encode("utf-8", "replace").decode())


def _finite(value: Any) -> Any:
    """The value without numbers that are not finite.

    >>> _finite({"a": [1.5, float("nan")], "b": (float("inf"),)})
    {'a': [1.5, None], 'b': [None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_finite(part) for part in value]
    return value


class _DrawnOnUpdate(Progress):
    """A progress bar without a thread: an update draws it, unless it was drawn just now."""

    _drawn_s = -math.inf

    def update(self, task_id: TaskID, **values: Any) -> None:
        """Change a task, and draw."""
        super().update(task_id, **values)
        if self.disable or time.monotonic() < self._drawn_s + DRAW_S:
            return
        self.refresh()
        self._drawn_s = time.monotonic()


def progress_bar(quiet: bool, width: int = 30, thread: bool = True) -> Progress:
    """Return a progress bar that disappears at the end.

    quiet: show nothing, such as with ``--json``. width: characters for the description. thread:
    whether a thread draws it all the time. Without one, updates draw it, and this process can be
    copied meanwhile (`can_copy_process`).
    """
    out = console()
    return (Progress if thread else _DrawnOnUpdate)(
        TextColumn("{task.description:" + str(width) + "}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        console=out,
        auto_refresh=thread,
        transient=True,
        disable=quiet or not out.is_terminal,
    )
