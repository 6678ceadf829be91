"""Small charts as SVG text: no script, no download, sharp in print, readable in dark mode.

A chart is a string to put into a page. Colours come from the style sheet of the page (classes
``c0`` to ``c7``), so that all reports look alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Series", "bars", "heat", "lines", "scatter", "time_unit"]

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 22, 36
SHADE_LABEL = 70
"""Width of the label of a shaded part, in pixels."""
MAX_POINTS = 1500
"""Upper limit for the points of a line; more than there are pixels are of no use."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart.

    step: draw as stairs, such as a number of hosts. dashed: draw dashed, such as a limit.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    step: bool = False
    dashed: bool = False


def lines(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[tuple[float, str]] = (),
    y_from_zero: bool = True,
    shaded: Sequence[tuple[float, float, str]] = (),
) -> str:
    """Return a chart with lines over a common x axis. A missing value (None or NaN) leaves a gap.

    Args:
        series: The lines.
        title: Title of the chart.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        marks: (x, text) of vertical lines, such as decisions.
        y_from_zero: Whether the y axis starts at zero.
        shaded: (from, until, text) of parts of the x axis, such as what is not counted.
    """
    xs = [value for s in series for value in s.x]
    ys = [float(v) for s in series for v in s.y if v is not None and math.isfinite(v)]
    frame = _Frame(title, x_label, y_label, xs, ys, y_from_zero)
    body = []
    for low, high, text in shaded:
        left, right = (min(max(frame.x(x), LEFT), WIDTH - RIGHT) for x in (low, high))
        body.append(
            f'<rect class="shade" x="{left:.1f}" y="{TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{HEIGHT - BOTTOM - TOP}"><title>{escape(text)}</title></rect>'
            f"{_shade_label(left, right)}"
        )
    for x, text in marks:
        at = frame.x(x)
        body.append(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
            f"<title>{escape(text)}</title></line>"
        )
    for number, s in enumerate(series):
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        for path in _paths(frame, s):
            body.append(f'<path class="line c{number % 8}"{dash} d="{path}"/>')
    return frame.svg(body, [(s.name, n) for n, s in enumerate(series)])


def _shade_label(left: float, right: float) -> str:
    """Return the label of a shaded part; at the right edge it ends with the part."""
    if right - left >= SHADE_LABEL or left + SHADE_LABEL < WIDTH - RIGHT:
        place = f'x="{left + 4:.1f}"'
    else:
        place = f'x="{right - 4:.1f}" text-anchor="end"'
    return f'<text class="tick" {place} y="{TOP + 11}">not counted</text>'


def scatter(
    points: Sequence[tuple[str, float, float]],
    title: str,
    x_label: str,
    y_label: str,
    front: Sequence[str] = (),
    labelled: Collection[str] | None = None,
) -> str:
    """Return a chart with named points, such as policies by cost and service level.

    Args:
        points: (name, x, y) of each point.
        title: Title of the chart.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        front: Names of the points that a line joins, such as a Pareto front.
        labelled: Names that are written next to their points; None for all. The others are
            tooltips.
    """
    xs = _widened(min(p[1] for p in points), max(p[1] for p in points), 0.04)
    frame = _Frame(title, x_label, y_label, xs, [p[2] for p in points], False)
    body = []
    chosen = sorted((x, y) for name, x, y in points if name in front)
    if len(chosen) > 1:
        path = "M" + "L".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in chosen)
        body.append(f'<path class="line front" stroke-dasharray="5 4" d="{path}"/>')
    named = [p for p in points if labelled is None or p[0] in labelled]
    by_place = {name: place for place, (name, *_) in enumerate(sorted(named, key=lambda p: p[1:]))}
    for number, (name, x, y) in enumerate(points):
        at, up = frame.x(x), frame.y(y)
        lift = -6 if by_place.get(name, 0) % 2 else 14  # names go above and below in turn
        anchor, shift = ("end", -7) if at > WIDTH * 0.75 else ("start", 7)
        body.append(
            f'<circle class="dot c{number % 8}" cx="{at:.1f}" cy="{up:.1f}" r="4.5">'
            f"<title>{escape(name)}: {_short(x)}, {_short(y)}</title></circle>"
        )
        if name in by_place:
            body.append(
                f'<text class="label" x="{at + shift:.1f}" y="{up + lift:.1f}" '
                f'text-anchor="{anchor}">{escape(name)}</text>'
            )
    return frame.svg(body, [])


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    title: str,
    y_label: str,
) -> str:
    """Return a chart with groups of bars, such as published and measured. None leaves a gap."""
    ys = [v for _, values in series for v in values if v is not None and math.isfinite(v)]
    frame = _Frame(title, "", y_label, [0, len(groups)], ys, True, x_ticks=False)
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    thick = wide * 0.8 / max(1, len(series))
    body = []
    for g, group in enumerate(groups):
        start = LEFT + g * wide + wide * 0.1
        for n, (name, values) in enumerate(series):
            value = values[g]
            if value is None or not math.isfinite(value):
                continue
            top, floor = frame.y(max(value, 0)), frame.y(min(value, 0))
            body.append(
                f'<rect class="bar c{n % 8}" x="{start + n * thick:.1f}" y="{top:.1f}" '
                f'width="{max(1.0, thick - 1):.1f}" height="{max(0.5, floor - top):.1f}">'
                f"<title>{escape(group)}, {escape(name)}: {_short(value)}</title></rect>"
            )
        body.append(
            f'<text class="tick" x="{start + wide * 0.4:.1f}" y="{HEIGHT - BOTTOM + 15}" '
            f'text-anchor="middle">{escape(group)}</text>'
        )
    return frame.svg(body, [(name, n) for n, (name, _) in enumerate(series)])


def heat(
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float | None]],
    title: str,
    x_label: str,
    y_label: str,
) -> str:
    """Return a heat map; higher values are darker and the lowest is framed. None leaves a gap.

    Args:
        columns: Names of the columns.
        rows: Names of the rows.
        values: Values, row by row.
        title: Title of the chart.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
    """
    known = [v for row in values for v in row if v is not None and math.isfinite(v)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    left, top, tall = LEFT + 30, TOP + 6, 26
    wide = (WIDTH - left - RIGHT) / max(1, len(columns))
    height = top + tall * len(rows) + BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{LEFT}" y="13">{escape(title)}</text>',
    ]
    for r, row in enumerate(rows):
        up = top + r * tall
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{up + 17}" text-anchor="end">'
            f"{escape(row)}</text>"
        )
        for c, value in enumerate(values[r]):
            if value is None or not math.isfinite(value):
                continue
            share = (value - low) / (high - low) if high > low else 0.0
            frame = ' stroke="var(--ink)" stroke-width="1.5"' if value == low else ""
            at = left + c * wide
            parts.append(
                f'<rect class="bar c0" fill-opacity="{0.06 + 0.6 * share:.2f}"{frame} x="{at:.1f}" '
                f'y="{up}" width="{wide - 2:.1f}" height="{tall - 2}"/><text class="label" '
                f'x="{at + wide / 2 - 1:.1f}" y="{up + 16}" text-anchor="middle">'
                f"{_short(value)}</text>"
            )
    base = top + tall * len(rows) + 13
    for c, column in enumerate(columns):
        parts.append(
            f'<text class="tick" x="{left + (c + 0.5) * wide:.1f}" y="{base}" '
            f'text-anchor="middle">{escape(column)}</text>'
        )
    parts.append(
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{height - 5}" text-anchor="end">'
        f"{escape(x_label)}</text>"
        f'<text class="axis" transform="rotate(-90)" x="{-top}" y="12" text-anchor="end">'
        f"{escape(y_label)}</text>"
    )
    return "".join((*parts, "</svg>"))


class _Frame:
    """Axes, ticks and the mapping from values to pixels."""

    def __init__(
        self,
        title: str,
        x_label: str,
        y_label: str,
        xs: Iterable[float],
        ys: Iterable[float],
        y_from_zero: bool,
        x_ticks: bool = True,
    ) -> None:
        self.title, self.x_label, self.y_label, self._x_ticks = title, x_label, y_label, x_ticks
        xs, ys = list(xs) or [0.0, 1.0], list(ys) or [0.0, 1.0]
        self.x_low, self.x_high = _widened(min(xs), max(xs), 0.0)
        low = min(0.0, *ys) if y_from_zero else min(ys)
        self.y_low, self.y_high = _widened(low, max(ys), 0.06)
        if y_from_zero and low >= 0:
            self.y_low = 0.0

    def x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def svg(self, body: Sequence[str], legend: Sequence[tuple[str, int]]) -> str:
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">',
            f'<text class="title" x="{LEFT}" y="13">{escape(self.title)}</text>',
        ]
        for value in _ticks(self.y_low, self.y_high):
            up = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>'
                f'<text class="tick" x="{LEFT - 6}" y="{up + 3:.1f}" text-anchor="end">'
                f"{_short(value)}</text>"
            )
        if self._x_ticks:
            for value in _ticks(self.x_low, self.x_high):
                parts.append(
                    f'<text class="tick" x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" '
                    f'text-anchor="middle">{_short(value)}</text>'
                )
        parts.append(
            f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">'
            f"{escape(self.x_label)}</text>"
            f'<text class="axis" transform="rotate(-90)" x="{-TOP}" y="12" text-anchor="end">'
            f"{escape(self.y_label)}</text>"
        )
        parts += body
        right = float(WIDTH - RIGHT)
        for name, number in reversed(legend):
            right -= 6.2 * len(name) + 22
            parts.append(
                f'<rect class="bar c{number % 8}" x="{right:.1f}" y="5" width="10" height="9"/>'
                f'<text class="label" x="{right + 14:.1f}" y="13">{escape(name)}</text>'
            )
        return "".join((*parts, "</svg>"))


def _paths(frame: _Frame, series: Series) -> list[str]:
    """Return a line as SVG paths, one for each part without missing values."""
    points = list(zip(series.x, series.y, strict=True))
    points = points[:: max(1, math.ceil(len(points) / MAX_POINTS))]
    stretches: list[list[str]] = [[]]
    before: float | None = None
    for x, y in points:
        if y is None or not math.isfinite(y):
            before = None
            stretches.append([])
            continue
        at, up = frame.x(x), frame.y(y)
        if series.step and before is not None:
            stretches[-1].append(f"{at:.1f},{before:.1f}")
        stretches[-1].append(f"{at:.1f},{up:.1f}")
        before = up
    return ["M" + "L".join(stretch) for stretch in stretches if stretch]


def time_unit(duration_s: float) -> tuple[float, str]:
    """Return the unit for a time axis of that length: its seconds and its name."""
    if duration_s < 600:
        return 1.0, "s"
    return (60.0, "min") if duration_s < 36_000 else (3600.0, "h")


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    if high <= low:
        return low - (abs(low) or 1.0) * 0.5, high + (abs(high) or 1.0) * 0.5
    return low - share * (high - low), high + share * (high - low)


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two values.

    >>> _ticks(0, 9.7)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    """Return a number as the text of a tick.

    >>> _short(125000), _short(0.25), _short(3.0)
    ('125k', '0.25', '3')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == "k" else limit
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}"
