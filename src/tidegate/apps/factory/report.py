"""The report of O9: one page of PDF with the OEE of every machine over a span of time."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["report_figure", "report_name", "write_report"]

_BLUE, _GREY = "#1f6f8b", "#9aa5ab"


def report_name(start_ms: int) -> str:
    """The file of the report on the span that begins at `start_ms`.

    >>> report_name(1_700_000_000_000)
    'oee-20231114T221320Z.pdf'
    """
    return f"oee-{_moment(start_ms):%Y%m%dT%H%M%SZ}.pdf"


def write_report(
    folder: Path, start_ms: int, end_ms: int, values: Iterable[tuple[int, int, float]]
) -> Path:
    """Draw the report of a span and publish it atomically; a repeated call writes the same bytes.

    start_ms, end_ms: the span in Unix milliseconds. values: machine, Unix milliseconds and OEE.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / report_name(start_ms)
    hidden = path.with_name(f".{path.name}-{os.getpid()}")
    about = {"Title": f"OEE from {_moment(start_ms).isoformat()}", "CreationDate": None}
    report_figure(start_ms, end_ms, values).savefig(hidden, format="pdf", metadata=about)
    hidden.replace(path)
    return path


def report_figure(start_ms: int, end_ms: int, values: Iterable[tuple[int, int, float]]) -> Figure:
    """The page of a report as a matplotlib figure; see `write_report`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    by_machine: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for machine, at_ms, oee in sorted(values):
        by_machine[machine].append((at_ms, oee))
    means = {m: sum(oee for _, oee in v) / len(v) for m, v in by_machine.items()}
    count = sum(map(len, by_machine.values()))

    figure = Figure(figsize=(8.27, 5.85), layout="constrained")  # half of A4, upright
    mean = sum(oee for v in by_machine.values() for _, oee in v) / count
    figure.suptitle(
        f"Overall equipment effectiveness, {_moment(start_ms):%d %B %Y, %H:%M:%S} to "
        f"{_moment(end_ms):%H:%M:%S} UTC\n{count} values of {len(means)} machines, mean {mean:.1%}",
        fontsize=11,
    )
    bars, lines = figure.subplots(1, 2, width_ratios=(2, 3))
    places = range(len(means))
    drawn = bars.barh(places, list(means.values()), color=_BLUE, height=0.6)
    bars.bar_label(drawn, labels=[f"{value:.1%}" for value in means.values()], padding=3)
    bars.set_yticks(places, [f"machine {machine}" for machine in means])
    bars.invert_yaxis()
    bars.set_xlim(0, 1.15 * max(1.0, *means.values()))
    bars.set_title("mean", fontsize=10)
    bars.xaxis.set_major_formatter(PercentFormatter(1))
    for machine, series in by_machine.items():
        seconds = [(at_ms - start_ms) / 1000 for at_ms, _ in series]
        lines.plot(seconds, [oee for _, oee in series], label=f"machine {machine}", linewidth=1.2)
    lines.axhline(mean, color=_GREY, linestyle=":", linewidth=1)
    lines.set_ylim(bottom=0)
    lines.set_xlim(0, (end_ms - start_ms) / 1000)
    lines.set_xlabel("seconds since the beginning")
    lines.set_title("course", fontsize=10)
    lines.yaxis.set_major_formatter(PercentFormatter(1))
    lines.legend(fontsize=8, ncols=2)
    for axes in (bars, lines):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)
