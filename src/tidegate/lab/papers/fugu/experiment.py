"""FUGU's experiments: thresholds and learning on three exchange days (Heinze et al. 2014).

Three techniques decide on which of at most ten hosts each of 35 queries runs. Figs. 4 to 6 vary
the thresholds, Figs. 7 and 8 the day, Fig. 9 how much is learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidegate.lab.papers.claims import Figure, Paper, Progress
from tidegate.lab.papers.fugu import claims
from tidegate.lab.papers.fugu.runs import (
    CONFIGURATIONS,
    FILL,
    FIRST_SEED,
    LEARNING,
    READINGS,
    VIOLATIONS,
    Case,
    FuguResults,
    all_cases,
    causes,
    decisive,
    run_all,
    what_decides,
)
from tidegate.lab.papers.fugu.world import (
    ASSUMPTIONS,
    DAYS,
    POINTS,
    TURN_S,
    FuguWorld,
    RecordedDay,
    read_days,
)
from tidegate.lab.papers.statistics import interval
from tidegate.report import Series, bars, lines

__all__ = ["PAPER"]

# What the paper's text prints, as (mean utilisation, p90 latency in ms); its charts print no more.
PUBLISHED: Mapping[Case, tuple[float, float]] = {
    Case("local"): (0.52, 1850),
    Case("global"): (0.49, 2340),
    Case("sarsa", learning="none"): (0.55, 2100),
    Case("sarsa"): (0.58, 1700),
}


def measure(
    quick: bool,
    seeds: int,
    progress: Progress,
    points: int = POINTS,
    days: tuple[RecordedDay, ...] = (),
) -> FuguResults:
    """Run all experiments.

    quick: no runs that only look for causes; seeds: runs of each; points: measurement points of a
    run; days: from files, in place of the generator's.
    """
    cases = all_cases() if quick else all_cases() + decisive() + causes()
    some = range(FIRST_SEED, FIRST_SEED + seeds)
    return run_all(some, cases, points, progress, days)


def notes(results: FuguResults) -> Iterator[str]:
    """What was run and what was assumed."""
    seeds = len(results.seeds)
    yield (
        f"{seeds} seed{'s' if seeds != 1 else ''}, {results.points} measurement points of "
        f"{TURN_S:g} s each. ± is half the width of the 95 % interval of the mean over seeds; "
        "without it there was one seed only."
    )
    yield (
        "Latency comes from queues under CPU contention and from migration pauses. An "
        "overfull host is one whose operators want more CPU than it has."
    )
    if results.days:
        yield (
            "Days from files, the same for all seeds: "
            + ", ".join(f"{day.name} (mean {day.level_per_s:.4g}/s)" for day in results.days)
            + ". How ticks divide among sectors and cluster within a minute is random."
        )
    yield from ASSUMPTIONS


def figures(results: FuguResults) -> Iterator[Figure]:
    """Figs. 3 to 9, redrawn."""
    world = FuguWorld(results.seeds[0], results.points, days=results.days)
    yield "Fig. 3: ticks per second on the three days of the first seed.", _days(world)
    for number, policy, name in (
        (4, "local", "local thresholds"),
        (5, "global", "global thresholds"),
        (6, "sarsa", "reinforcement learning"),
    ):
        cases = {c: Case(policy, c) for c in CONFIGURATIONS}
        more = " Published: utilisation 0.56 to 0.62, mean latency 1300 to 2400 ms."
        yield from _pair(results, f"Fig. {number}: {name}", cases, more if number == 6 else "")
    for number, policy, name in ((7, "local", "local thresholds"), (8, "sarsa", "learning")):
        cases = {f"Day {day}": Case(policy, day=day) for day in range(1, DAYS + 1)}
        yield from _pair(results, f"Fig. {number}: {name} by day", cases)
    cases = {
        f"{name} (imp {imp:g}, dur {dur:g})": Case("sarsa", learning=name)
        for name, (imp, dur) in LEARNING.items()
    }
    yield from _pair(results, "Fig. 9: learning settings", cases)


def _days(world: FuguWorld) -> str:
    """Ticks per second, minute by minute, over the measurement points of the run."""
    series = []
    for day in range(1, DAYS + 1):
        rates = world.day(day).minutes
        step = world.points / len(rates)
        points = [minute * step for minute in range(len(rates))]
        series.append(Series(f"Day {day}", points, rates.tolist()))
    return lines(series, "Workload", "measurement point", "ticks/s")


def _pair(
    results: FuguResults, title: str, cases: Mapping[str, Case], more: str = ""
) -> list[Figure]:
    """A chart of host loads and one of latencies, compared with those of the paper."""
    groups = list(cases)

    def column(what: str, factor: float = 1.0) -> list[float | None]:
        return [factor * results.mean(case, what) for case in cases.values()]

    def published(which: int) -> list[float | None]:
        return [PUBLISHED[c][which] if c in PUBLISHED else None for c in cases.values()]

    loads = [(name, column(f"load_{name}")) for name in ("min", "mean", "max")]
    late = [(name, column(f"latency_{name}_s", 1000)) for name in ("p10", "p50", "p90")]
    if any(case in PUBLISHED for case in cases.values()):
        loads.append(("mean, published", published(0)))
        late.append(("p90, published", published(1)))
    return [
        (f"{title}: host load.{more}", bars(groups, loads, f"{title}: host load", "share")),
        (f"{title}: latency.{more}", bars(groups, late, f"{title}: latency", "ms")),
    ]


def tables(results: FuguResults) -> str:
    """The claims in other readings, and what decides the comparison of the techniques, as HTML."""
    parts = (_verdicts(results), _what_decides(results))
    return "\n".join(part for part in parts if part)


COLOURS = {"reproduced": "#c8e6c9", "partly": "#fff9c4", "not clear": "#fff9c4", "not": "#ffcdd2"}


def _verdicts(results: FuguResults) -> str:
    """Verdicts by claim and reading; empty when no other reading was run."""
    usual = "the world that decides"
    worlds = {usual: results, **{n: results.elsewhere(c) for n, c in READINGS.items()}}
    worlds = {name: some for name, some in worlds.items() if Case("local") in some.runs}
    if len(worlds) == 1:
        return ""
    counts = [f"{name}, {len(some.runs[Case('local')])} seeds" for name, some in worlds.items()]
    rows = [_row(("claim", *counts), "th")]
    for claim in PAPER.claims[1:]:  # Table I has no world
        cells = [f"<td>{claim.id}, {claim.statement}</td>"]
        for some in worlds.values():
            try:
                verdict = claim(some).verdict
            except KeyError:  # not all of its runs are part of that reading
                cells.append("<td>–</td>")
            else:
                cells.append(f'<td style="background:{COLOURS[verdict]}">{verdict}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return _table("FUGU: the claims in other readings", rows)


def _row(cells: Sequence[str], kind: str = "td") -> str:
    return "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in cells) + "</tr>"


def _table(title: str, rows: Sequence[str]) -> str:
    head, *body = rows
    return "\n".join(
        (f"<h3>{title}</h3>", f"<table><thead>{head}</thead><tbody>", *body, "</tbody></table>")
    )


def _what_decides(results: FuguResults) -> str:
    """Techniques by thresholds, n and fill."""
    cases = {
        **{f"local, {c}": Case("local", c) for c in CONFIGURATIONS},
        **{f"learning, {c}": Case("sarsa", c) for c in CONFIGURATIONS},
        "acting at once without learning": Case("sarsa", learning="none"),
        "local, acting at once": Case("hasty"),
    }
    for case in what_decides():
        name = "learning" if case.policy == "sarsa" else case.policy
        cases[
            f"{name}, {case.configuration}, n = {case.violations}, fill {case.fill or 'upper'}"
        ] = case
    rows = [_row(("technique", "utilisation", "p90, ms", "hosts", "moves", "overfull, %"), "th")]
    for name, case in cases.items():
        if case not in results.runs:
            continue
        cells = (
            interval(results.of(case, "load_mean"), 3),
            interval([1000 * x for x in results.of(case, "latency_p90_s")], 0),
            interval(results.of(case, "hosts"), 2),
            interval(results.of(case, "moves"), 0),
            interval([100 * x for x in results.of(case, "overload")], 1),
        )
        rows.append(_row((name, *cells)))
    title = f"FUGU: what decides (n = {VIOLATIONS} and fill {FILL:g} unless named)"
    return _table(title, rows)


SEEDS = 100
"""Differences of latency vary so much that ten seeds left five claims unclear, see designs/022."""

PAPER = Paper(
    "FUGU", claims, measure, figures, notes, SEEDS, quick_seeds=1, read_days=read_days,
    tables=tables,
)  # fmt: skip
