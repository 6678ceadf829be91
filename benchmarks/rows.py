"""Rows of a table of measurements, each kept in a file as soon as it is measured.

A run that is interrupted goes on with the first row that is missing. A row is measured again when
the code has changed since, or on request. A row that cannot be measured, for example without Java,
says why and does not keep the others from being measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Measured", "NotMeasurableError", "Row", "measure", "replace_between"]


class NotMeasurableError(Exception):
    """A row that this machine cannot measure; the text says why."""


@dataclass(frozen=True)
class Measured:
    """What was measured. shown: text for the table. reached: whether the aim is reached, or None.

    took_s: how long the measurement took, in seconds; code: digest of the code that was measured.
    """

    shown: str
    reached: bool | None = None
    took_s: float = 0.0
    code: str = ""


@dataclass(frozen=True)
class Row:
    """A row: `key` names its file, `work` is what the table says, `aim` what is aimed at."""

    key: str
    work: str
    aim: str
    do: Callable[[], Measured]


def measure(
    rows: Sequence[Row],
    folder: Path,
    code: str,
    again: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Measured]:
    """Measure the rows that are not kept yet; returns all rows by key.

    Args:
        rows: What to measure.
        folder: Where rows are kept, as one JSON file each.
        code: Digest of the code; rows of other code are measured again.
        again: Measure all rows, kept or not.
        say: Where progress goes, a line at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Measured] = {}
    for number, row in enumerate(rows, 1):
        file, place = folder / f"{row.key}.json", f"[{number}/{len(rows)}] {row.work}"
        kept = None if again else _read(file)
        if kept is not None and kept.code == code:
            found[row.key] = kept
            say(f"{place}: {kept.shown} (kept)")
            continue
        say(f"{place} …")
        began_s = time.perf_counter()
        try:
            new = row.do()
        except NotMeasurableError as why:
            say(f"    not measured: {why}")
            found[row.key] = Measured(f"not measured: {why}")
            continue
        took_s = time.perf_counter() - began_s
        found[row.key] = Measured(new.shown, new.reached, round(took_s, 1), code)
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps(asdict(found[row.key])))
        partial.replace(file)
        say(f"    {new.shown} (took {took_s:.0f} s)")
    return found


def _read(file: Path) -> Measured | None:
    try:
        return Measured(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):  # missing, torn, or of an older version
        return None


def replace_between(page: Path, mark: str, text: str) -> None:
    """Replace what is between ``<!-- mark -->`` and the next ``<!-- end -->`` in a page."""
    before, begin, rest = page.read_text().partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table {mark}")
    page.write_text(f"{before}{begin}{text}\n{end}{after}")
