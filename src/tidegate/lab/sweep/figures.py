"""What a sweep came to, as plain values: means with intervals, fronts and maps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tidegate.codec import Value, to_plain

__all__ = ["CaseFigures", "HeatMap", "Mean", "Standing", "SweepFigures", "t_quantiles"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Mean(Value):
    """A mean over seeds and the half width of its 95 % interval; None for a single seed."""

    mean: float
    half: float | None = None

    def text(self, digits: int) -> str:
        """Both, for people.

        >>> Mean(12.345, 0.678).text(2), Mean(3.0).text(1)
        ('12.35 ± 0.68', '3.0')
        """
        shown = f"{self.mean:.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Standing(Value):
    """One setting of a policy.

    cost: hosts and late items; resource: hosts alone; in_time: share of the items. behind: how much
    more than the best it cost on the same seeds, None for the best. seeds, cells: how many went
    into it; complete: as many as into the others. on_front: none beats it in resource and in_time.
    """

    policy: str
    setting: str
    cost: Mean
    behind: Mean | None
    resource: Mean
    in_time: Mean
    p95_s: float | None
    seeds: int
    cells: int
    complete: bool
    on_front: bool

    @property
    def name(self) -> str:
        """Policy and setting."""
        return f"{self.policy} {self.setting}".strip()


@dataclass(frozen=True, slots=True)
class CaseFigures(Value):
    """The standings on one trace at one price, the cheapest first."""

    trace: str
    billing_unit_s: float
    usd_per_h: float
    slo_s: float
    interval_s: float
    mode: str
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class HeatMap(Value):
    """Mean cost of a policy by two parameters; costs: row by row, None where there is none."""

    policy: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    costs: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class SweepFigures(Value):
    """A whole sweep: over all cases, by case, by two parameters, and what failed.

    failures: the first of them, as policy, setting, trace, seed and error. made_by: versions and
    digests of the code. simulated_s: time that passed in the simulations; wall_s: that they took,
    all cores together.
    """

    overall: tuple[Standing, ...]
    cases: tuple[CaseFigures, ...]
    maps: tuple[HeatMap, ...]
    done: int
    failed: int
    failures: tuple[tuple[str, str, str, int, str], ...]
    made_by: tuple[str, ...]
    simulated_s: float
    wall_s: float

    def plain(self) -> Any:
        """For machines."""
        return to_plain(self)

    def legend(self) -> str:
        """What the columns of a leaderboard mean."""
        many = f", mean over {len(self.cases)} cases" if len(self.cases) > 1 else ""
        return (
            f"cost: hosts and late items{many}; ±: {CONFIDENCE:.0%} interval over seeds; behind "
            "the best: on the same seeds; *: no other setting was cheaper in hosts and more in time"
        )


def t_quantiles(most: int) -> list[tuple[int, float]]:
    """Student's factors for two-sided 95 % intervals, by degrees of freedom from 1 to `most`.

    >>> [(n, round(t, 2)) for n, t in t_quantiles(2)]
    [(1, 12.71), (2, 4.3)]
    """
    from scipy.stats import t

    degrees = range(1, most + 1)
    found = [float(t.ppf((1 + CONFIDENCE) / 2, n)) for n in degrees]
    return [(n, value) for n, value in zip(degrees, found, strict=True) if math.isfinite(value)]
