"""Why claims of FUGU do not hold: sentences that are composed of measurements.

Each looks at runs that change one thing, at where latency arises, or at what learning changes. A
sentence whose runs are missing is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.lab.papers.claims import Verdict, judged
from tidegate.lab.papers.fugu.runs import (
    CALM_SECTORS,
    CONFIGURATIONS,
    ENDLESS_BUFFERS,
    MORE_HOSTS,
    QUICK_MOVES,
    READINGS,
    VIOLATIONS,
    Case,
    FuguResults,
    in_reading,
)
from tidegate.lab.papers.fugu.world import MEASURED_TURNS
from tidegate.lab.papers.statistics import half_width, interval

__all__ = [
    "P90",
    "UTILISATION",
    "calm_sectors",
    "dear_haste",
    "endless_buffers",
    "in_ms",
    "longer_loads",
    "no_sooner",
    "quick_comparison",
    "quick_moves",
    "seldom_moved",
    "supposed",
    "uncertainty",
    "unlearning",
    "what_learning_adds",
    "where_latency_arises",
]

UTILISATION, P90 = "load_mean", "latency_p90_s"


def in_ms(seconds: Sequence[float], sign: bool = False) -> str:
    """Seconds by seed as milliseconds with their interval."""
    return interval([1000 * value for value in seconds], 0, sign) + " ms"


def supposed(cause: str, parts: Sequence[Verdict]) -> str:
    """A cause as far as its figures show it: nothing of one that they contradict.

    >>> supposed("Moves are dear.", ["reproduced"]), supposed("Moves are dear.", ["not clear"])
    ('Moves are dear.', 'A guess: moves are dear.')
    >>> supposed("Moves are dear.", ["reproduced", "not"])
    ''
    """
    if "not" in parts:
        return ""
    if all(part == "reproduced" for part in parts):
        return cause
    return f"A guess: {cause[0].lower()}{cause[1:]}"


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


def where_latency_arises(results: FuguResults, case: Case) -> str:
    """Shares of a case's latency by what happened around it."""
    over, moved, rest = (
        100 * results.mean(case, f"from_{name}") for name in ("overload", "moves", "rest")
    )
    return (
        f"Of the latency of {case.policy} thresholds ({case.configuration}) {over:.0f} % arises at "
        f"points with an overfull host, {moved:.0f} % after moves alone, {rest:.0f} % elsewhere."
    )


def quick_moves(results: FuguResults, name: str) -> str:
    """What a configuration does where moves pause for half a second, if that was run."""
    case, base = (Case("local", c, assumed=QUICK_MOVES) for c in (name, "default"))
    if case not in results.runs:
        return ""
    latency, moves = results.more(case, base, P90), results.more(case, base, "moves")
    return (
        f"With pauses of half a second, {name} has p90 {in_ms(latency, sign=True)} and "
        f"{interval(moves, 0, sign=True)} moves ({len(moves)} seeds)."
    )


def quick_comparison(results: FuguResults, names: Sequence[str]) -> tuple[str, bool]:
    """Global against local thresholds where moves pause for half a second, if that was run.

    Returns a sentence, and whether global thresholds are slower there with all these names.
    """
    parts, slower = [], []
    for name in names:
        case, base = (Case(policy, name, assumed=QUICK_MOVES) for policy in ("global", "local"))
        if case in results.runs and base in results.runs:
            times = results.mean(case, P90) / results.mean(base, P90)
            more = results.more(case, base, P90)
            parts.append(f"{times:.3g} times local's with {name} ({in_ms(more, sign=True)})")
            slower.append(judged(more, low=0.0) == "reproduced")
    if not parts:
        return "", False
    return f"Where a move pauses for half a second, p90 is {', '.join(parts)}.", all(slower)


def endless_buffers(results: FuguResults) -> str:
    """What bounds the latency of global thresholds, if that was run."""
    case, base = (Case(policy, assumed=ENDLESS_BUFFERS) for policy in ("global", "local"))
    if case not in results.runs:
        return ""
    return (
        f"With endless buffers, p90 is {in_ms(results.of(case, P90))} (local "
        f"{in_ms(results.of(base, P90))})."
    )


def calm_sectors(results: FuguResults) -> str:
    """What the sectors' own fluctuation does to local thresholds, if that was run."""
    cases = {name: Case("local", name, assumed=CALM_SECTORS) for name in CONFIGURATIONS}
    if not all(case in results.runs for case in cases.values()):
        return ""
    greatest = ", ".join(
        f"{interval(results.of(case, 'load_max'))} ({name})" for name, case in cases.items()
    )
    default = cases["default"]
    return (
        f"If the sectors' shares never changed, the greatest load would be {greatest}, and the "
        f"default would have a mean load of {interval(results.of(default, UTILISATION))} and p90 "
        f"{in_ms(results.of(default, P90))}."
    )


def longer_loads(results: FuguResults) -> str:
    """How the days differ where the CPU is measured over six turns, if that was run."""
    changes = READINGS["loads of six turns"]
    cases = [in_reading(Case("local", day=day), changes) for day in (1, 2, 3)]
    if not all(case in results.runs for case in cases):
        return ""
    first, *others = (np.array(results.of(case, P90)) for case in cases)
    ratios = (np.maximum(*others) / first).tolist()
    verdict = judged(ratios, low=1.4)
    decides = {"reproduced": "decides", "not": "does not decide"}.get(verdict, "may decide")
    return (
        f"Over what time the CPU is measured {decides}, which the paper does not print: over six "
        f"turns in place of {MEASURED_TURNS}, the ratio is {interval(ratios)}."
    )


def what_learning_adds(results: FuguResults) -> str:
    """What sets learning apart from local thresholds, piece by piece."""
    local, none, default = Case("local"), Case("sarsa", learning="none"), Case("sarsa")
    gain = interval(results.more(default, none, UTILISATION), 3, sign=True)
    sentences = [
        f"Learning itself adds {gain} utilisation: {_moved(results)}",
        "The value of an action that is not tried stays what it was, while that of the action "
        "taken tends to r + βQ, about 1.1",
        "Before it learns anything, the technique differs from local thresholds by "
        f"{interval(results.more(none, local, UTILISATION), 3, sign=True)} utilisation and "
        f"{interval(results.more(none, local, 'moves'), 0, sign=True)} moves, since it acts on one "
        f"measurement and not on n = {VIOLATIONS} in a row",
    ]
    if Case("hasty") in results.runs:
        hasty = results.more(Case("hasty"), local, UTILISATION)
        sentences[2] += f" (local thresholds with n = 1: {interval(hasty, 3, sign=True)})"
    sentences += [_quick_learning(results), unlearning(results)]
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def _moved(results: FuguResults) -> str:
    """How seldom a table's thresholds are others than at first."""
    low, high = (100 * results.mean(Case("sarsa"), f"{end}_moved") for end in ("lower", "upper"))
    return (
        f"the lower threshold differs from the first one in {low:.0f} % of the tables' time, the "
        f"upper in {high:.0f} %"
    )


def seldom_moved(results: FuguResults) -> str:
    """Why learning changes so little."""
    return f"What is learnt seldom changes a decision: {_moved(results)} (see F-11)."


def no_sooner(results: FuguResults) -> str:
    """Why learning and local thresholds use nearly as many hosts."""
    gain = results.more(Case("sarsa"), Case("sarsa", learning="none"), UTILISATION)
    early = results.more(Case("sarsa", learning="none"), Case("local"), UTILISATION)
    return (
        f"Learning itself adds {interval(gain, 3, sign=True)} utilisation, and acting on one "
        f"measurement in place of {VIOLATIONS} in a row {interval(early, 3, sign=True)}."
    )


def dear_haste(results: FuguResults) -> str:
    """What acting on one measurement costs, with learning."""
    moves, late = (results.more(Case("sarsa"), Case("local"), w) for w in ("moves", P90))
    return (
        "Acting on one measurement has its price, and learning does not make up for it: "
        f"{interval(moves, 0, sign=True)} moves and p90 {in_ms(late, sign=True)} against local "
        "thresholds (see F-11)."
    )


def _quick_learning(results: FuguResults) -> str:
    """Whether learning pays where its many moves cost little, if that was run."""
    case, base, none = (
        Case("sarsa", assumed=QUICK_MOVES),
        Case("local", assumed=QUICK_MOVES),
        Case("sarsa", learning="none", assumed=QUICK_MOVES),
    )
    if case not in results.runs:
        return ""
    return (
        "Where a move pauses for half a second, the technique has "
        f"{interval(results.more(case, base, UTILISATION), 3, sign=True)} utilisation and p90 "
        f"{in_ms(results.more(case, base, P90), sign=True)} against local, of which learning adds "
        f"{interval(results.more(case, none, UTILISATION), 3, sign=True)} and "
        f"{in_ms(results.more(case, none, P90), sign=True)}"
    )


def unlearning(results: FuguResults) -> str:
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
    case, local = (Case(policy, assumed=MORE_HOSTS) for policy in ("sarsa", "local"))
    if case in results.runs:
        late, base = (in_ms(results.of(c, P90)) for c in (case, local))
        text += (
            f"; without a limit of ten hosts it is {100 * results.mean(case, 'unlearnt'):.0f} %, "
            f"p90 {late} (local {base}) and the utilisation "
            f"{interval(results.more(case, local, UTILISATION), 3, sign=True)} against local"
        )
    return text
