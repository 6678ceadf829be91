"""FUGU's claims against our runs: one function a claim, by the ledger's criterion and no other.

Every function takes all results, so that a test can hand in made-up ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tidegate.lab.papers.claims import Answer, Verdict
from tidegate.lab.papers.fugu.results import (
    P90,
    UTILISATION,
    Results,
    calm_sectors,
    milliseconds,
    shown,
    slow_moves,
    uncertainty,
    unlearning,
    what_learning_adds,
    where_latency_arises,
)
from tidegate.lab.papers.fugu.runs import CONFIGURATIONS, Case
from tidegate.policies.sarsa import QTable, Sarsa, SarsaMemory
from tidegate.testing import fleet_snapshot

__all__ = ["answers", "table_one"]

PARTLY = {
    **dict.fromkeys(
        ("F-03", "F-04", "F-05", "F-06", "F-07", "F-10", "F-15", "F-16"), "one of its two parts"
    ),
    "F-08": "some of the four",
    "F-09": "some of the ten",
    "F-11": "some of the five",
    "F-17": "some of the three",
}
"""What must hold at least for *partly*; a claim that is not listed has one part only."""
OTHERS = tuple(name for name in CONFIGURATIONS if name != "default")


def _verdict(*holds: bool) -> Verdict:
    """Reproduced when all parts of the criterion hold, partly when some do."""
    return "reproduced" if all(holds) else "partly" if any(holds) else "not"


# --- the claims ---------------------------------------------------------------------------------


def table_one() -> float:
    """Table I through the policy itself: 0.70, no action, then 0.90."""
    rows = list(QTable.from_thresholds(0.3, 0.8).rows)
    rows[14], rows[18] = (0.4, 0.85, 0.8), (0.35, 0.5, 0.9)
    policy, memory = Sarsa(), SarsaMemory({"host-1": QTable(tuple(rows))})
    for cores in (2.8, 3.6):
        _, memory = policy.decide(fleet_snapshot({"host-1": [cores]}), memory)
    return memory.tables["host-1"].rows[14][1]


def f01(_: Results, value: float | None = None) -> Answer:
    value = table_one() if value is None else value
    good = abs(value - 0.8233) < 5e-5
    reason = "The paper rounds both errors before it subtracts them (0.16, 0.5) and prints 0.822."
    return Answer("F-01", f"{value:.4f}", _verdict(good), reason)


def f02(results: Results) -> Answer:
    case = Case("local")
    load = results.of(case, UTILISATION)
    good = abs(float(np.mean(load)) - 0.52) <= 0.05
    measured = f"{shown(load)}; p90 {milliseconds(results.of(case, P90))}"
    reason = (
        "The latency's absolute value depends on the machines; a move pauses one query of 35 for "
        f"about a second here. {where_latency_arises(results, case)}"
    )
    if not good:
        reason = f"Hosts are kept {'fuller' if np.mean(load) > 0.52 else 'emptier'}. {reason}"
        reason += f" {calm_sectors(results)}"
    return Answer("F-02", measured, _verdict(good), reason.strip())


def _shift(results: Results, claim: str, name: str, up: int) -> Answer:
    """Whether a configuration has more (up 1) or less (−1) of both utilisation and latency."""
    case, base = Case("local", name), Case("local")
    load, latency = (results.more(case, base, what) for what in (UTILISATION, P90))
    holds = [up * float(np.mean(values)) > 0 for values in (load, latency)]
    verdict = _verdict(*holds)
    moves = shown(results.more(case, base, "moves"), 0, sign=True)
    reason = f"Moves {moves}. {uncertainty(load, latency)}".strip()
    if verdict != "reproduced":
        wrong = "latency" if holds[0] else "utilisation" if holds[1] else "both"
        reason += f" The direction of {wrong} differs. {where_latency_arises(results, case)}"
    measured = f"utilisation {shown(load, 3, sign=True)}; p90 {milliseconds(latency, sign=True)}"
    return Answer(claim, measured, verdict, reason)


def f03(results: Results) -> Answer:
    return _shift(results, "F-03", "lower 0.2", -1)


def f04(results: Results) -> Answer:
    return _shift(results, "F-04", "lower 0.4", 1)


def _dearer(results: Results, claim: str, name: str, what: str, label: str) -> Answer:
    """Whether a configuration has a greater p90 latency, and more of what is said to cause it."""
    case, base = Case("local", name), Case("local")
    latency, cause = results.more(case, base, P90), results.more(case, base, what)
    holds = [float(np.mean(values)) > 0 for values in (latency, cause)]
    digits = 0 if what == "moves" else 4
    measured = f"p90 {milliseconds(latency, sign=True)}; {label} {shown(cause, digits, sign=True)}"
    reason = uncertainty(latency, cause)
    if not all(holds):
        reason += f" {where_latency_arises(results, case)} {where_latency_arises(results, base)}"
        reason += f" {slow_moves(results)}" if what == "moves" else ""
    return Answer(claim, measured, _verdict(*holds), reason.strip())


def f05(results: Results) -> Answer:
    return _dearer(results, "F-05", "upper 0.7", "moves", "moves")


def f06(results: Results) -> Answer:
    return _dearer(results, "F-06", "upper 0.9", "overload", "overload share")


def f07(results: Results) -> Answer:
    case, base = Case("global"), Case("local")
    load, latency = results.of(case, UTILISATION), results.of(case, P90)
    near = abs(float(np.mean(load)) - 0.49) <= 0.05
    worse = float(np.mean(results.more(case, base, P90))) > 0
    reason = (
        f"Greatest host load {shown(results.of(case, 'load_max'))} while the mean stays between "
        f"the thresholds: {100 * results.mean(case, 'overload'):.0f} % of the host measurements "
        "are overfull and nobody acts."
    )
    measured = (
        f"{shown(load)}; p90 {milliseconds(latency)} (local {milliseconds(results.of(base, P90))})"
    )
    return Answer("F-07", measured, _verdict(near, worse), reason)


def f08(results: Results) -> Answer:
    ratios = {
        name: results.mean(Case("global", name), P90) / results.mean(Case("local", name), P90)
        for name in OTHERS
    }
    holds = [ratio > 1 for ratio in ratios.values()]
    measured = f"{sum(holds)} of 4; p90 " + ", ".join(
        f"{name}: {ratio:.3g} times local's" for name, ratio in ratios.items()
    )
    reason = ""
    if not all(holds):
        reason = where_latency_arises(results, Case("global", OTHERS[holds.index(False)]))
    return Answer("F-08", measured, _verdict(*holds), reason)


def f09(results: Results) -> Answer:
    high = {
        policy: [results.of(Case(policy, name), "load_max") for name in CONFIGURATIONS]
        for policy in ("global", "local")
    }
    above = [float(np.mean(values)) > 0.7 for values in high["global"]]
    below = [float(np.mean(values)) < 0.7 for values in high["local"]]
    measured = f"{sum(above)} of 5; {sum(below)} of 5 (" + "; ".join(
        f"{policy} " + ", ".join(f"{float(np.mean(values)):.2f}" for values in rows)
        for policy, rows in high.items()
    )
    reason = ""
    if not all(below):
        reason = (
            "The fullest of some five hosts, measured over 5 s, is far above the mean even when "
            "placement is good, since sectors jump by a quarter from minute to minute as real ones "
            "do. To stay below 0.7 the paper's loads must have been smoother or averaged longer. "
            f"{calm_sectors(results)} "
        )
    if not all(above):
        names = [name for name, holds in zip(CONFIGURATIONS, above, strict=True) if not holds]
        reason += f"The mean happens to follow the fullest host with global {', '.join(names)}."
    return Answer("F-09", measured + ")", _verdict(*above, *below), reason.strip())


def f10(results: Results) -> Answer:
    load = {
        policy: [results.mean(Case(policy, name), UTILISATION) for name in CONFIGURATIONS]
        for policy in ("sarsa", "local")
    }
    wide = {policy: max(values) - min(values) for policy, values in load.items()}
    latency = [results.mean(Case("sarsa", name), "latency_mean_s") for name in CONFIGURATIONS]
    holds = wide["sarsa"] <= 0.06, wide["sarsa"] < wide["local"]
    measured = (
        f"{min(load['sarsa']):.2f}-{max(load['sarsa']):.2f} (spread {wide['sarsa']:.3f}, local "
        f"{wide['local']:.3f}); mean latency {1000 * min(latency):.0f}-{1000 * max(latency):.0f} ms"
    )
    reason = ""
    if not all(holds):
        low = min(CONFIGURATIONS, key=lambda name: results.mean(Case("sarsa", name), UTILISATION))
        reason = (
            "Each table starts as the thresholds and seldom leaves them, so that they are felt as "
            f"with local thresholds (lowest with {low}); hosts that have unlearnt to scale out "
            "spread the results further. See F-11."
        )
    return Answer("F-10", measured, _verdict(*holds), reason)


def _beats(results: Results, case: Case, base: Case, by: float) -> tuple[bool, bool]:
    """Whether the mean utilisation is better by so much, and at no higher p90 latency."""
    return (
        results.mean(case, UTILISATION) - results.mean(base, UTILISATION) >= by,
        results.mean(case, P90) <= results.mean(base, P90),
    )


def f11(results: Results) -> Answer:
    pairs = [(Case("sarsa", name), Case("local", name)) for name in CONFIGURATIONS]
    holds = [_beats(results, case, base, 0.05) for case, base in pairs]
    both = [all(pair) for pair in holds]
    gains = ", ".join(
        f"{case.configuration}: {shown(results.more(case, base, UTILISATION), 3, sign=True)}"
        for case, base in pairs
    )
    lower = sum(pair[1] for pair in holds)
    measured = f"{sum(both)} of 5 ({gains}; p90 no higher in {lower} of 5)"
    reason = "" if all(both) else what_learning_adds(results)
    return Answer("F-11", measured, _verdict(*both), reason)


def f12(results: Results) -> Answer:
    saved = [-more for more in results.more(Case("sarsa"), Case("local"), "hosts")]
    good = 0.2 <= float(np.mean(saved)) <= 1.0
    hosts = results.mean(Case("local"), "hosts"), results.mean(Case("sarsa"), "hosts")
    measured = f"{shown(saved)} hosts (local {hosts[0]:.2f}, learning {hosts[1]:.2f})"
    gain = shown(results.more(Case("sarsa"), Case("local"), UTILISATION), 3, sign=True)
    unlearnt = 100 * results.mean(Case("sarsa"), "unlearnt")
    reason = f"{uncertainty(saved)} Utilisation {gain}; see F-11.".strip()
    if good and unlearnt > 1:
        reason += (
            f" For the wrong cause: {unlearnt:.0f} % of the overfull measurements are at hosts "
            "that have unlearnt to scale out, and what they do not lease counts as saved."
        )
    return Answer("F-12", measured, _verdict(good), reason)


def _by_day(results: Results, policy: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([results.of(Case(policy, day=day), P90) for day in (1, 2, 3)])


def f13(results: Results) -> Answer:
    days = _by_day(results, "local")
    worst = (days[1:] / days[0]).max(axis=0)
    middle = float(np.median(worst))
    measured = f"{middle:.2f} (median over seeds; {worst.min():.2f} to {worst.max():.2f})"
    reason = (
        "The worse of Days 2 and 3 is compared with Day 1. Generated days are as different in "
        "volume as real ones, and each seed has its own three."
    )
    return Answer("F-13", measured, _verdict(middle > 1.4), reason)


def f14(results: Results) -> Answer:
    spread = {}
    for policy in ("sarsa", "local"):
        days = _by_day(results, policy)
        spread[policy] = list((days.max(axis=0) - days.min(axis=0)) / days.mean(axis=0))
    good = float(np.mean(spread["sarsa"])) < float(np.mean(spread["local"]))
    measured = (
        f"(max − min)/mean over the days: learning {shown(spread['sarsa'])}, "
        f"local {shown(spread['local'])}"
    )
    paired = [a - b for a, b in zip(spread["sarsa"], spread["local"], strict=True)]
    reason = uncertainty(paired)
    if not good:
        lost = ", ".join(
            f"{100 * results.mean(Case('sarsa', day=day), 'unlearnt'):.0f} %" for day in (1, 2, 3)
        )
        reason += (
            " Learning has days with a full host that has unlearnt to scale out (share of overfull "
            f"measurements by day: {lost}); see F-11."
        )
    return Answer("F-14", measured, _verdict(good), reason.strip())


def f15(results: Results) -> Answer:
    case, base = Case("sarsa"), Case("sarsa", learning="none")
    load, latency = (results.more(case, base, what) for what in (UTILISATION, P90))
    holds = float(np.mean(load)) > 0, float(np.mean(latency)) < 0
    measured = (
        f"{results.mean(base, UTILISATION):.3f} to {results.mean(case, UTILISATION):.3f} "
        f"({shown(load, 3, sign=True)}); p90 {milliseconds(results.of(base, P90))} to "
        f"{milliseconds(results.of(case, P90))}"
    )
    reason = uncertainty(load, latency)
    if not all(holds):
        reason += f" {unlearning(results) or 'See F-11'}."
    return Answer("F-15", measured, _verdict(*holds), reason.strip())


def f16(results: Results) -> Answer:
    cases = [Case("sarsa", learning=name) for name in ("default", "dur 160", "imp 0.5")]
    load = [results.mean(case, UTILISATION) for case in cases]
    late = [results.mean(case, P90) for case in cases]
    holds = load[0] > load[1] > load[2], late[0] < late[1] < late[2]
    measured = "default, dur 160, imp 0.5: utilisation " + ", ".join(f"{v:.3f}" for v in load)
    measured += "; p90 " + ", ".join(f"{1000 * v:.0f}" for v in late) + " ms"
    rivals = cases[1:]
    differences = [results.more(c, cases[0], what) for c in rivals for what in (UTILISATION, P90)]
    reason = uncertainty(*differences)
    if not all(holds):
        same = sum(a == b for a, b in zip(*(results.runs[c] for c in cases[:2]), strict=True))
        reason += (
            f" dur 160 gives the very same run as the default with {same} of "
            f"{len(results.runs[cases[0]])} seeds: α differs only after many visits of a state, "
            "and no decision hangs on so little. The rest is chance: whether a host unlearns to "
            "scale out (see F-11)."
        )
    return Answer("F-16", measured, _verdict(*holds), reason.strip())


def f17(results: Results) -> Answer:
    cases = [Case("sarsa", learning=name) for name in ("default", "imp 0.5", "dur 160")]
    pairs = [_beats(results, case, Case("local"), 0.0) for case in cases]
    both = [all(pair) for pair in pairs]
    measured = (
        f"{sum(both)} of 3 (utilisation {sum(p[0] for p in pairs)}, p90 {sum(p[1] for p in pairs)})"
    )
    reason = "" if all(both) else "See F-11."
    return Answer("F-17", measured, _verdict(*both), reason)


def f18(results: Results) -> Answer:
    counts = {policy: results.of(Case(policy), "decisions") for policy in ("global", "local")}
    good = float(np.mean(counts["global"])) < float(np.mean(counts["local"]))
    measured = (
        f"{shown(counts['global'], 0)} against {shown(counts['local'], 0)} decisions in a day"
    )
    moves = [shown(results.of(Case(policy), "moves"), 0) for policy in counts]
    reason = (
        f"A decision is a turn that changes the deployment; moves {moves[0]} against {moves[1]}."
    )
    return Answer("F-18", measured, _verdict(good), reason)


CLAIMS: tuple[Callable[[Results], Answer], ...] = (
    f01, f02, f03, f04, f05, f06, f07, f08, f09, f10, f11, f12, f13, f14, f15, f16, f17, f18,
)  # fmt: skip


def answers(results: Results) -> tuple[Answer, ...]:
    """All answers, in the ledger's order."""
    given = (claim(results) for claim in CLAIMS)
    return tuple(replace(answer, partly=PARTLY.get(answer.claim, "")) for answer in given)
