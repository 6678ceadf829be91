"""A picture of lines over two logarithmic axes, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tidegate.report.page import standalone

__all__ = ["loglog"]

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 190, 22, 36
"""Margins in pixels; the names of the lines stand at the right of their ends."""


def loglog(lines: Sequence[tuple[str, Sequence[tuple[float, float]]]], x: str, y: str) -> str:
    """Draw lines as a separate SVG file, with a tick for each power of ten.

    lines: name and points (size, value above zero) of each line. x, y: labels of the axes.
    """
    points = [point for _, line in lines for point in line]
    low_x, high_x = _decades([at for at, _ in points])
    low_y, high_y = _decades([value for _, value in points])

    def place(at: float, value: float) -> tuple[float, float]:
        right = (math.log10(at) - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)
        up = (math.log10(value) - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)
        return LEFT + right, HEIGHT - BOTTOM - up

    title = escape(f"{y} by {x}")
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">']
    for power in range(low_x, high_x + 1):
        at, _ = place(10.0**power, 10.0**low_y)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">'
            f"{10.0**power:,g}</text>"
        )
    for power in range(low_y, high_y + 1):
        _, up = place(10.0**low_x, 10.0**power)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{up + 3:.1f}" text-anchor="end">'
            f"{10.0**power:,g}</text>"
        )
    parts.append(
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">{escape(x)}'
        f'</text><text class="axis" x="6" y="13">{escape(y)}</text>'
    )
    used: list[float] = []
    for number, (name, line) in enumerate(lines):
        places = [place(*point) for point in line]
        path = "M" + "L".join(f"{at:.1f},{up:.1f}" for at, up in places)
        parts.append(f'<path class="line c{number}" d="{path}"/>')
        parts += [
            f'<circle class="dot c{number}" cx="{at:.1f}" cy="{up:.1f}" r="3"/>'
            for at, up in places
        ]
        at, up = places[-1]
        while any(abs(up - other) < 13 for other in used):  # names do not cover each other
            up += 4
        used.append(up)
        parts.append(f'<text class="label" x="{at + 8:.1f}" y="{up + 4:.1f}">{escape(name)}</text>')
    return standalone("".join((*parts, "</svg>")))


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around positive values; at least one decade."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
