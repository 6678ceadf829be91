"""Latencies of many items from the percentiles of each turn, as weighted points.

A journal holds percentiles, not items. The items of a turn are divided into equal parts, and each
part gets a latency between the percentiles. A latency that is a lower bound stays one: percentiles
over such points are lower bounds too, and a share in time is an upper bound as long as a lower
bound lies within the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tidegate.codec import Value
from tidegate.model import Latency

__all__ = ["LatencyFigures", "Point", "latency_figures", "points_of"]

PARTS = 50
"""Equal parts into which the items of a turn are divided."""


class Point(NamedTuple):
    """Some items and their latency; at_least: whether it is a lower bound."""

    seconds: float
    items: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class LatencyFigures(Value):
    """The latency of many items in figures.

    Args:
        items: Items with a latency.
        without: Items of turns in which no latency was measured. No other figure counts them.
        in_time: Share of the items within the target; None without a target or items.
        at_most: Whether that share is an upper bound, because some lower bounds are within the
            target.
        p50_s: Median, in seconds.
        p95_s: 95th percentile, in seconds.
        p99_s: 99th percentile, in seconds.
        at_least: Whether the percentiles are lower bounds, because some latencies are.
    """

    items: float = 0.0
    without: float = 0.0
    in_time: float | None = None
    at_most: bool = False
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    at_least: bool = False


def points_of(latency: Latency, items: float) -> list[Point]:
    """Return the items of a turn as points; none if their latency was not measured.

    A lower bound counts for all items to which it applies: every part of a turn whose median is at
    least 12 s counts with 12 s or more.

    >>> [point.seconds for point in points_of(Latency(p50_s=12.0, at_least=True), 100)][:2]
    [12.0, 12.0]
    """
    p50_s, p95_s, p99_s = latency.p50_s, latency.p95_s, latency.p99_s
    low_s = 0.0
    if latency.at_least:
        known = [s for s in (latency.mean_s, p50_s, p95_s, p99_s) if s is not None]
        if not known:
            return []
        # What is not known is at least what a smaller percentile is; the mean stands in for all.
        p50_s = min(known) if p50_s is None else p50_s
        p95_s = p50_s if p95_s is None else p95_s
        p99_s = p95_s if p99_s is None else p99_s
        low_s = p50_s
    if p50_s is None or p95_s is None or p99_s is None:
        return []
    corners = [(0.0, low_s), (0.5, p50_s), (0.95, p95_s), (0.99, p99_s), (1.0, p99_s)]
    found = []
    for n in range(PARTS):
        share = (n + 0.5) / PARTS
        for (low, a), (high, b) in pairwise(corners):
            if low <= share <= high:
                seconds = a + (b - a) * (share - low) / (high - low)
                found.append(Point(seconds, items / PARTS, latency.at_least))
                break
    return found


def latency_figures(
    readings: Iterable[tuple[Latency, float]], slo_s: float | None = None
) -> LatencyFigures:
    """Return the figures of many turns. readings: latency and items of each turn."""
    points: list[Point] = []
    without = 0.0
    for latency, items in readings:
        found = points_of(latency, items)
        points += found
        without += 0.0 if found else items
    points.sort()
    total = math.fsum(point.items for point in points)
    if not total:
        return LatencyFigures(without=without)
    in_time = None
    if slo_s is not None:
        in_time = math.fsum(p.items for p in points if p.seconds <= slo_s) / total
    return LatencyFigures(
        total,
        without,
        in_time,
        slo_s is not None and any(p.at_least and p.items and p.seconds <= slo_s for p in points),
        _quantile(points, 0.50, total),
        _quantile(points, 0.95, total),
        _quantile(points, 0.99, total),
        any(p.at_least and p.items for p in points),
    )


def _quantile(points: list[Point], share: float, total: float) -> float | None:
    reached = 0.0
    for point in points:
        reached += point.items
        if reached >= share * total - 1e-9 * total:
            return point.seconds
    return None
