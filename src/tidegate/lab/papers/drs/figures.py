"""The figures of the DRS paper redrawn from our runs, with what the paper prints beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tidegate.lab.papers.drs.algorithm import PAPER_MS
from tidegate.lab.papers.drs.answers import Six
from tidegate.lab.papers.drs.control_runs import Controlled
from tidegate.lab.papers.drs.world import shape
from tidegate.lab.papers.statistics import mean
from tidegate.report import Series, bars, lines, scatter

__all__ = ["allocations", "cpu_time", "estimates", "machines", "starts", "table_2"]

Figure = tuple[str, str]


def allocations(name: str, six: Six) -> Figure:
    """Fig. 6: mean and standard deviation of the sojourn time."""
    svg = bars(
        [shape(r.allocation) + ("*" if r.allocation == six.best else "") for r in six.rows],
        [
            ("mean", [mean(r.means_s) * 1000 for r in six.rows]),
            ("standard deviation", [mean(r.deviations_s) * 1000 for r in six.rows]),
            ("estimate", [r.estimate_s * 1000 for r in six.rows]),
        ],
        f"Sojourn time by allocation: {name}",
        "ms",
    )
    return f"Fig. 6, {name}. * is recommended; the paper prints no values.", svg


def estimates(name: str, six: Six) -> Figure:
    """Fig. 7: measured against estimated."""
    points = [(shape(r.allocation), r.estimate_s * 1000, mean(r.means_s) * 1000) for r in six.rows]
    svg = scatter(
        points,
        f"Estimated and measured: {name}",
        "estimated, ms",
        "measured, ms",
        front=[point[0] for point in points],
    )
    return f"Fig. 7, {name}. Monotonic where the line only rises.", svg


def cpu_time(ratios: Mapping[float, Sequence[float]]) -> Figure:
    """Fig. 8: measured over estimated by CPU time."""
    points = [(f"{cpu:.4g} ms", math.log10(cpu), mean(r)) for cpu, r in ratios.items()]
    svg = scatter(
        points,
        "Underestimation and CPU time",
        "log10 of the CPU time in ms",
        "measured/estimated",
        front=[point[0] for point in points],
    )
    return "Fig. 8. The paper prints the two ends of the x-axis and the trend.", svg


def starts(runs: Mapping[str, tuple[Sequence[Controlled], Sequence[Controlled]]]) -> list[Figure]:
    """Fig. 9: minute by minute from good and bad starts, first seed."""
    drawn = []
    for name, (bad, good) in runs.items():
        svg = lines(
            [
                _minutes(name, bad[0]),
                _minutes("from the recommended one", good[0], dashed=True),
            ],
            f"Rebalancing after minute 13: {name}",
            "minute",
            "ms",
            marks=[(13.0, "scheduler on")],
        )
        drawn.append((f"Fig. 9, {name}, first seed.", svg))
    return drawn


def machines(name: str, runs: tuple[Sequence[Controlled], Sequence[Controlled]]) -> Figure:
    """Fig. 10: ExpA and ExpB, first seed."""
    svg = lines(
        [
            _minutes("ExpA, 500 ms", runs[0][0]),
            _minutes("ExpB, 1000 ms", runs[1][0]),
            Series("published peak, ExpA", [13.0, 14.0], [4777.0, 4777.0], dashed=True),
            Series("published peak, ExpB", [13.0, 14.0], [1113.0, 1113.0], dashed=True),
        ],
        f"Machines added and removed: rebalancing {name}",
        "minute",
        "ms",
        marks=[(13.0, "scheduler on")],
    )
    return f"Fig. 10, scaled rates, rebalancing {name}, first seed.", svg


def table_2(took_ms: Mapping[int, float]) -> Figure:
    """Table II: scheduling time."""
    svg = bars(
        [f"K = {k}" for k in PAPER_MS],
        [("published", list(PAPER_MS.values())), ("ours", [took_ms[k] for k in PAPER_MS])],
        "Scheduling time",
        "ms",
    )
    return "Table II. Other hardware and another language: not a race.", svg


def _minutes(name: str, run: Controlled, dashed: bool = False) -> Series:
    values = [None if math.isnan(m) else m * 1000 for m in run.minutes_s]
    return Series(name, [n + 1.0 for n in range(len(values))], values, dashed=dashed)
