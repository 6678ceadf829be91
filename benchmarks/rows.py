"""Rows of a table of measurements, each kept in a file as soon as it is measured.

A run that is interrupted goes on with the first row that is missing. A row is measured again when
the code has changed since, or on request. A row that cannot be measured, for example without Java,
says why and does not keep the others from being measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

__all__ = ["Measured", "NotMeasurableError", "Row", "measure", "replace_between"]


class NotMeasurableError(Exception):
    """A row that this machine cannot measure; the text says why."""


@dataclass(frozen=True)
class Measured:
    """What was measured. shown: text for the table. reached: whether the aim is reached, or None.

    took_s: how long the measurement took, in seconds; code: digest of the code that was measured.
    points: sizes and seconds, for a picture. load: processes that wanted to run meanwhile, on
    average, the measured one among them.
    """

    shown: str
    reached: bool | None = None
    took_s: float = 0.0
    code: str = ""
    points: tuple[tuple[float, float], ...] = ()
    load: float = 0.0


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
    before = {row.key: _read(folder / f"{row.key}.json") for row in rows}
    for number, row in enumerate(rows, 1):
        file, kept = folder / f"{row.key}.json", before[row.key]
        place = f"{_bar(number - 1, len(rows))} [{number}/{len(rows)}] {row.work}"
        if kept is not None and kept.code == code and not again:
            found[row.key] = kept
            say(f"{place}: {kept.shown} (kept)")
            continue
        ahead = [known.took_s if (known := before[r.key]) else 0.0 for r in rows[number - 1 :]]
        say(f"{place} … (about {max(1, round(sum(ahead) / 60))} min left)" if all(ahead) else place)
        began_s = time.perf_counter()
        try:
            new = row.do()
        except NotMeasurableError as why:
            say(f"    not measured: {why}")
            found[row.key] = Measured(f"not measured: {why}")
            continue
        took_s = time.perf_counter() - began_s
        load = round(os.getloadavg()[0], 1)
        found[row.key] = replace(new, took_s=round(took_s, 1), code=code, load=load)
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps(asdict(found[row.key])))
        partial.replace(file)
        say(f"    {new.shown} (took {took_s:.0f} s)")
    return found


def _bar(done: int, total: int, width: int = 12) -> str:
    full = round(width * done / total)
    return "█" * full + "░" * (width - full)


def _read(file: Path) -> Measured | None:
    try:
        known = Measured(**json.loads(file.read_text()))
        return replace(known, points=tuple((x, y) for x, y in known.points))
    except (OSError, ValueError, TypeError):  # missing, torn, or of an older version
        return None


def replace_between(page: Path, mark: str, text: str) -> None:
    """Replace what is between ``<!-- mark -->`` and the next ``<!-- end -->`` in a page."""
    before, begin, rest = page.read_text().partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table {mark}")
    page.write_text(f"{before}{begin}{text}\n{end}{after}")
