"""FUGU's results over the seeds, and what they say about causes.

Figures are means over the seeds, and ± is half the width of the mean's 95 % interval (Student's
t). Reasons are put together from measurements: where latency arises, what learning adds, and what
happens in runs that change one thing only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tidegate.lab.papers.fugu.runs import Case, Measures

__all__ = [
    "P90",
    "UTILISATION",
    "Results",
    "calm_sectors",
    "half_width",
    "milliseconds",
    "shown",
    "slow_moves",
    "uncertainty",
    "unlearning",
    "what_learning_adds",
    "where_latency_arises",
]

UTILISATION, P90 = "load_mean", "latency_p90_s"


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of the mean, None for a single value."""
    if len(values) < 2:
        return None
    spread = float(np.std(values, ddof=1)) / float(np.sqrt(len(values)))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def shown(values: Sequence[float], digits: int = 2, sign: bool = False) -> str:
    """The mean with its interval.

    >>> shown([0.5, 0.52, 0.54]), shown([0.5])
    ('0.52 ± 0.05', '0.50')
    """
    mean = f"{float(np.mean(values)):{'+' if sign else ''}.{digits}f}"
    half = half_width(values)
    return mean if half is None else f"{mean} ± {half:.{digits}f}"


def milliseconds(values: Sequence[float], sign: bool = False) -> str:
    """Seconds, shown in milliseconds."""
    return shown([1000 * value for value in values], 0, sign) + " ms"


@dataclass(frozen=True)
class Results:
    """Measures of all seeds by case; the seeds stand in the same order everywhere."""

    runs: Mapping[Case, Sequence[Measures]]

    def of(self, case: Case, what: str) -> list[float]:
        """One figure of a case, by seed."""
        return [float(getattr(run, what)) for run in self.runs[case]]

    def mean(self, case: Case, what: str) -> float:
        """One figure of a case, mean over the seeds."""
        return float(np.mean(self.of(case, what)))

    def more(self, case: Case, base: Case, what: str) -> list[float]:
        """How much more a case has than another, by seed."""
        return [a - b for a, b in zip(self.of(case, what), self.of(base, what), strict=True)]


def uncertainty(*differences: Sequence[float]) -> str:
    """A sentence when a difference is not clear of zero."""
    unclear = 0
    for values in differences:
        half = half_width(values)
        unclear += half is None or abs(float(np.mean(values))) <= half
    if not unclear:
        return ""
    if all(len(values) < 2 for values in differences):
        return "One seed only: no interval."
    return f"Not clear of zero: {unclear} of {len(differences)} differences."


def where_latency_arises(results: Results, case: Case) -> str:
    """Shares of a case's latency by what happened around it."""
    over, moved, rest = (
        100 * results.mean(case, f"from_{name}") for name in ("overload", "moves", "rest")
    )
    return (
        f"Of the latency of {case.policy} thresholds ({case.configuration}) {over:.0f} % arises at "
        f"points with an overfull host, {moved:.0f} % after moves alone, {rest:.0f} % elsewhere."
    )


def slow_moves(results: Results) -> str:
    """What an upper threshold of 0.7 does where moves are ten times as slow, if that was run."""
    case, base = (Case("local", c, variant="slow-moves") for c in ("upper 0.7", "default"))
    if case not in results.runs:
        return ""
    latency, moves = results.more(case, base, P90), results.more(case, base, "moves")
    return (
        "With moves ten times as slow, upper 0.7 has p90 "
        f"{milliseconds(latency, sign=True)} and {shown(moves, 0, sign=True)} moves."
    )


def calm_sectors(results: Results) -> str:
    """What the sectors' own fluctuation does to local thresholds, if that was run."""
    case = Case("local", variant="calm-sectors")
    if case not in results.runs:
        return ""
    return (
        "If the sectors' shares never changed, the default would have a mean load of "
        f"{shown(results.of(case, UTILISATION))}, a greatest of "
        f"{shown(results.of(case, 'load_max'))} and p90 {milliseconds(results.of(case, P90))}."
    )


def what_learning_adds(results: Results) -> str:
    """What sets learning apart from local thresholds, piece by piece."""
    local, none, default = Case("local"), Case("sarsa", learning="none"), Case("sarsa")
    sentences = [
        "Before it learns anything, the technique differs from local thresholds by "
        f"{shown(results.more(none, local, UTILISATION), 3, sign=True)} utilisation and "
        f"{shown(results.more(none, local, 'moves'), 0, sign=True)} moves, since it acts on one "
        "measurement and not on n = 3 in a row"
    ]
    if Case("hasty") in results.runs:
        hasty = results.more(Case("hasty"), local, UTILISATION)
        sentences[0] += f" (local thresholds with n = 1: {shown(hasty, 3, sign=True)})"
    sentences.append(
        f"Learning adds {shown(results.more(default, none, UTILISATION), 3, sign=True)}. It takes "
        "the best action always and never tries another, whose value so stays what it was, while "
        "that of the action taken tends to r + βQ, about 1.1: the lower threshold differs from the "
        f"first one in {100 * results.mean(default, 'lower_moved'):.0f} % of the tables' time, the "
        f"upper in {100 * results.mean(default, 'upper_moved'):.0f} %"
    )
    sentences.append(unlearning(results))
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def unlearning(results: Results) -> str:
    """How much of the overload is at hosts that have learnt never to scale out, and why."""
    mine = [case for case in results.runs if case.policy == "sarsa"]
    lost = max(results.mean(case, "unlearnt") for case in mine)
    if lost <= 0.005:
        return ""
    text = (
        "A scale-out that finds no room is cancelled and penalised, after which a full host "
        f"prefers to do nothing: up to {100 * lost:.0f} % of the overfull measurements of a "
        "case are at hosts that have unlearnt to scale out"
    )
    case, local = (Case(policy, variant="more-hosts") for policy in ("sarsa", "local"))
    if case in results.runs:
        late, base = (milliseconds(results.of(c, P90)) for c in (case, local))
        text += (
            f"; without a limit of ten hosts it is {100 * results.mean(case, 'unlearnt'):.0f} %, "
            f"p90 {late} (local {base}) and the utilisation "
            f"{shown(results.more(case, local, UTILISATION), 3, sign=True)} against local"
        )
    return text
