"""FUGU's experiments: thresholds and learning on three exchange days (Heinze et al. 2014).

Three techniques decide which of 35 queries sits on which of at most ten hosts. Figs. 4 to 6 vary
the thresholds, Figs. 7 and 8 the day, Fig. 9 how much is learnt. `fugu_world` says what is
simulated, `fugu_runs` what is run and measured, `fugu_claims` what counts as reproduced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.lab.papers.claims import Experiment
from tidegate.lab.papers.fugu.claims import answers
from tidegate.lab.papers.fugu.days import DAYS, RecordedDay
from tidegate.lab.papers.fugu.results import Results
from tidegate.lab.papers.fugu.runs import (
    CONFIGURATIONS,
    LEARNING,
    Case,
    all_cases,
    causes,
    run_all,
)
from tidegate.lab.papers.fugu.world import ASSUMPTIONS, POINTS, TURN_S, FuguWorld
from tidegate.report import Series, bars, lines

__all__ = ["experiment", "run"]

# What the paper's text prints, as (mean utilisation, p90 latency in ms); its charts print no more.
PUBLISHED: Mapping[Case, tuple[float, float]] = {
    Case("local"): (0.52, 1850),
    Case("global"): (0.49, 2340),
    Case("sarsa", learning="none"): (0.55, 2100),
    Case("sarsa"): (0.58, 1700),
}
WORKERS = 2


def run(
    quick: bool,
    seeds: int,
    progress: Callable[[float, str], None],
    points: int = POINTS,
    days: tuple[RecordedDay, ...] = (),
) -> Experiment:
    """Run everything.

    quick: one process, and no runs that only look for causes; seeds: runs of each; points:
    measurement points of a run; days: from files, in place of the generator's.
    """
    cases = all_cases() if quick else all_cases() + causes()
    workers = 1 if quick else WORKERS
    return experiment(range(1, seeds + 1), points, workers, progress, cases, days)


def experiment(
    seeds: Sequence[int],
    points: int,
    workers: int,
    progress: Callable[[float, str], None],
    cases: Sequence[Case] | None = None,
    days: tuple[RecordedDay, ...] = (),
) -> Experiment:
    """All claims answered from runs with these seeds and so many measurement points.

    cases: those of the figures by default; with `causes` the reasons say more.
    """
    results = Results(run_all(seeds, cases or all_cases(), points, workers, progress, days))
    run_notes = [
        f"{len(seeds)} seed{'s' if len(seeds) != 1 else ''}, {points} measurement points of "
        f"{TURN_S:g} s each. ± is half the width of the 95 % interval of the mean over seeds; "
        "without it there was one seed only.",
        "Latency comes from queues under CPU contention and from migration pauses in the "
        "item-level simulation. An overfull host is one whose queries want more CPU than it has.",
    ]
    if days:
        run_notes.append(
            "Days from files, the same for all seeds: "
            + ", ".join(f"{day.name} (mean {day.level_per_s:.4g}/s)" for day in days)
            + ". How ticks divide among sectors and cluster within a minute is drawn."
        )
    drawn = figures(results, FuguWorld(seeds[0], points, days=days))
    return Experiment("fugu", answers(results), drawn, (*run_notes, *ASSUMPTIONS))


def figures(results: Results, world: FuguWorld) -> tuple[tuple[str, str], ...]:
    """Figs. 3 to 9, redrawn."""
    drawn = [("Fig. 3: ticks per second on the three days of the first seed.", _days(world))]
    for number, policy, name in (
        (4, "local", "local thresholds"),
        (5, "global", "global thresholds"),
        (6, "sarsa", "reinforcement learning"),
    ):
        cases = {c: Case(policy, c) for c in CONFIGURATIONS}
        more = " Published: utilisation 0.56 to 0.62, mean latency 1300 to 2400 ms."
        drawn += _pair(results, f"Fig. {number}: {name}", cases, more if number == 6 else "")
    for number, policy, name in ((7, "local", "local thresholds"), (8, "sarsa", "learning")):
        cases = {f"Day {day}": Case(policy, day=day) for day in range(1, DAYS + 1)}
        drawn += _pair(results, f"Fig. {number}: {name} by day", cases)
    cases = {
        f"{name} (imp {imp:g}, dur {dur:g})": Case("sarsa", learning=name)
        for name, (imp, dur) in LEARNING.items()
    }
    drawn += _pair(results, "Fig. 9: learning settings", cases)
    return tuple(drawn)


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
    results: Results, title: str, cases: Mapping[str, Case], more: str = ""
) -> list[tuple[str, str]]:
    """A chart of host loads and one of latencies, with what the paper prints beside ours."""
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
