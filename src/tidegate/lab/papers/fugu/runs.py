"""The runs of FUGU's experiments and their measurements.

As in the paper, a run has about 700 measurement points. At each, the least, mean and greatest host
load are taken, and the mean latency of every query since the point before; the latency of the
point is the mean over the queries. Loads are averaged over the points, of latencies the median,
the 10th and the 90th percentile are taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.fugu.world import (
    AS_ASSUMED,
    POINTS,
    TURN_S,
    Assumptions,
    FuguWorld,
    RecordedDay,
)
from tidegate.lab.papers.jobs import run_jobs
from tidegate.loop.controller import Controller
from tidegate.policies.base import Policy
from tidegate.policies.global_threshold import GlobalThreshold
from tidegate.policies.local_threshold import LocalThreshold
from tidegate.policies.sarsa import QTable, Sarsa, SarsaMemory
from tidegate.simulation.run import simulate

__all__ = [
    "CALM_SECTORS",
    "CONFIGURATIONS",
    "ENDLESS_BUFFERS",
    "FORMER",
    "LEARNING",
    "MORE_HOSTS",
    "QUICK_MOVES",
    "READINGS",
    "VOLUMES",
    "Case",
    "FuguResults",
    "Measures",
    "all_cases",
    "causes",
    "decisive",
    "in_reading",
    "of_volume",
    "run_all",
    "run_case",
    "what_decides",
]

TARGET = 0.6
CONFIGURATIONS = {
    "default": (0.3, 0.8),
    "lower 0.2": (0.2, 0.8),
    "lower 0.4": (0.4, 0.8),
    "upper 0.7": (0.3, 0.7),
    "upper 0.9": (0.3, 0.9),
}
LEARNING = {
    "none": (0.0, 80.0),
    "default": (0.2, 80.0),
    "imp 0.5": (0.5, 80.0),
    "dur 160": (0.2, 160.0),
}
VIOLATIONS, FILL, GRACE_S = 2, TARGET, 60.0
"""Measurements in a row before thresholds act, how far moves fill a host, and for how long affected
hosts are left alone. None is published. All were found by a search, see `ASSUMPTIONS`."""
CALM_SECTORS, QUICK_MOVES = Assumptions(wobble=0.0), Assumptions(pause_s=0.5)
MORE_HOSTS, ENDLESS_BUFFERS = Assumptions(max_hosts=100), Assumptions(buffer_s=math.inf)
OWN_SOURCES, EACH_TURN = Assumptions(one_source=False), Assumptions(measured_turns=1)
SIX_TURNS = Assumptions(measured_turns=6)
FORMER: Mapping[str, Any] = {"assumed": EACH_TURN, "violations": 3, "grace_s": 30.0}
"""What differs in the world that decided before the first search."""
READINGS: Mapping[str, Mapping[str, Any]] = {
    "loads of six turns": {"assumed": SIX_TURNS},
    "loads of one turn, n = 3, grace 30 s": FORMER,
    "n = 1": {"violations": 1},
    "each query its own source": {"assumed": OWN_SOURCES},
    "calm sectors": {"assumed": CALM_SECTORS},
}
"""Other readings of the paper, as changes of a case."""
VOLUMES = (1.0, 1.5, 2.0)
"""Ticks of Day 2 as a multiple of Day 1's, with which F-13 is shown."""
QUICKER = ("lower 0.4", "upper 0.7", "upper 0.9")
"""Configurations that are also run with short pauses, for the causes of F-05, F-06 and F-08."""
DEAR_MOVES = ("lower 0.4", "upper 0.7")
"""Those in which local thresholds are slower than global ones, for F-08: with all seeds."""
FIRST_SEED = 21
CAUSE_SEEDS = 10
"""Most seeds of a run that only looks for a cause."""
RECENT_TURNS = 3
"""Latency within this number of turns, from the turn of a move on, is attributed to the move."""


@dataclass(frozen=True, order=True)
class Case:
    """One bar of a figure. policy: local, global or sarsa; the others as in the paper.

    To find causes there are also local thresholds that act on a single measurement (hasty), other
    worlds, numbers of violations in a row, fills (0: up to the upper threshold) and graces.
    """

    policy: str
    configuration: str = "default"
    day: int = 1
    learning: str = "default"
    assumed: Assumptions = AS_ASSUMED
    violations: int = VIOLATIONS
    fill: float = FILL
    grace_s: float = GRACE_S

    def settings(self) -> dict[str, Any]:
        """The settings of its policy by name, for one that extends it."""
        built = self.build()
        return {p.name: getattr(built, p.name) for p in built.parameters()}

    def build(self) -> Policy:
        """The policy with its settings."""
        lower, upper = CONFIGURATIONS[self.configuration]
        fill = self.fill or None
        if self.policy in ("local", "hasty"):
            count = 1 if self.policy == "hasty" else self.violations
            return LocalThreshold(
                TARGET, lower, upper, self.grace_s, "affected", fill, violations=count
            )
        if self.policy == "global":
            return GlobalThreshold(
                TARGET, lower, upper, self.grace_s, fill=fill, violations=self.violations
            )
        impact, duration = LEARNING[self.learning]
        return Sarsa(
            TARGET, lower, upper, self.grace_s, "affected", fill, impact=impact, duration=duration
        )


def all_cases() -> tuple[Case, ...]:
    """Every run of one seed: Figs. 4 to 6, then the other days, then the learning settings."""
    cases = [Case(p, c) for p in ("local", "global", "sarsa") for c in CONFIGURATIONS]
    cases += [Case(p, day=day) for p in ("local", "sarsa") for day in (2, 3)]
    cases += [Case("sarsa", learning=name) for name in LEARNING if name != "default"]
    return tuple(cases)


def in_reading(case: Case, changes: Mapping[str, Any]) -> Case:
    """A case in another reading. Learning acts on one measurement, whatever n is."""
    mine = {k: v for k, v in changes.items() if k != "violations" or case.policy != "sarsa"}
    return replace(case, **mine)


def of_volume(volume: float) -> Case:
    """Day 2 with `volume` times the ticks of Day 1."""
    return Case("local", day=2, assumed=Assumptions(volume=volume))


def _of_reading(name: str, policies: Sequence[str]) -> list[Case]:
    """Figs. 4 to 6 in another reading, and the technique that learns nothing."""
    cases = [Case(policy, c) for policy in policies for c in CONFIGURATIONS]
    cases += [Case("sarsa", learning="none")] if "sarsa" in policies else []
    return [in_reading(case, READINGS[name]) for case in cases]


def _days_of_reading(name: str) -> list[Case]:
    """Figs. 7 and 8 in another reading."""
    cases = [Case(policy, day=day) for policy in ("local", "sarsa") for day in (2, 3)]
    return [in_reading(case, READINGS[name]) for case in cases]


def decisive() -> tuple[Case, ...]:
    """Runs in which a cause is shown with all seeds."""
    slower = [Case(p, c, assumed=QUICK_MOVES) for p in ("local", "global") for c in DEAR_MOVES]
    days = [in_reading(Case("local", day=day), READINGS["loads of six turns"]) for day in (1, 2, 3)]
    return (*(of_volume(volume) for volume in VOLUMES), *slower, *days)


def causes() -> tuple[Case, ...]:
    """Runs that change one thing, to find out why a claim does not hold."""
    return (
        Case("hasty"),
        Case("local", assumed=QUICK_MOVES),
        *(Case("local", c, assumed=QUICK_MOVES) for c in CONFIGURATIONS if c in QUICKER),
        *(Case("global", c, assumed=QUICK_MOVES) for c in CONFIGURATIONS if c in QUICKER),
        Case("sarsa", assumed=QUICK_MOVES),
        Case("sarsa", learning="none", assumed=QUICK_MOVES),
        Case("local", assumed=MORE_HOSTS),
        Case("sarsa", assumed=MORE_HOSTS),
        Case("global", assumed=ENDLESS_BUFFERS),
        Case("local", assumed=ENDLESS_BUFFERS),
        *what_decides(),
        *_of_reading("loads of six turns", ("local", "global", "sarsa")),
        *_days_of_reading("loads of six turns"),
        *_of_reading("loads of one turn, n = 3, grace 30 s", ("local", "global", "sarsa")),
        *_of_reading("n = 1", ("local", "global")),
        *_of_reading("each query its own source", ("local", "global", "sarsa")),
        *_of_reading("calm sectors", ("local",)),
    )


def what_decides() -> tuple[Case, ...]:
    """Thresholds over n, bounds and fills, and learning over bounds and fills: for the reader."""
    fills = (FILL, 0.8)
    found = [
        Case("local", name, violations=n, fill=fill)
        for fill in fills
        for n in (2, 3, 6, 12)
        for name in CONFIGURATIONS
    ]
    found += [Case("sarsa", name, fill=0.8) for name in CONFIGURATIONS]
    found += [Case("global", violations=12), Case("global", fill=0.8)]
    return tuple(case for case in found if case not in all_cases())


@dataclass(frozen=True)
class Measures:
    """The measurements of a run. Loads are shares of a host, latencies are in seconds.

    Args:
        load_min: Load of the least loaded host, mean over the points.
        load_mean: Mean load of the hosts, mean over the points.
        load_max: Load of the most loaded host, mean over the points.
        latency_p10_s: 10th percentile of the latency.
        latency_p50_s: Median of the latency.
        latency_p90_s: 90th percentile of the latency.
        latency_mean_s: Mean latency.
        hosts: Number of hosts, mean over the points.
        decisions: Number of turns that changed the deployment.
        moves: Number of moved operators.
        overload: Share of host measurements with more demand than the host has.
        from_overload: Share of all latency at points with an overload.
        from_moves: Share of all latency at other points shortly after a move.
        from_rest: Share of all latency at the remaining points.
        unlearnt: Share of the overload at hosts that have learnt never to scale out.
        lower_moved: Share of tables, turn by turn, whose lower threshold has changed.
        upper_moved: The same for the upper threshold.
    """

    load_min: float
    load_mean: float
    load_max: float
    latency_p10_s: float
    latency_p50_s: float
    latency_p90_s: float
    latency_mean_s: float
    hosts: float
    decisions: float
    moves: float
    overload: float
    from_overload: float
    from_moves: float
    from_rest: float
    unlearnt: float = 0.0
    lower_moved: float = 0.0
    upper_moved: float = 0.0


def run_case(
    seed: int,
    case: Case,
    points: int,
    days: tuple[RecordedDay, ...] = (),
    policy: Policy | None = None,
) -> Measures:
    """Let the policy drive the world of a seed through a day, and measure.

    points: measurement points; days: from files, in place of the generator's; policy: in place of
    that of the case.
    """
    world = FuguWorld(seed, points, case.assumed, days)
    cloud = world.simulation(case.day, TARGET)
    controller = Controller(cloud, policy or case.build(), seed=seed)
    loads: list[tuple[float, float, float]] = []
    latency: list[float] = []
    hosts: list[int] = []
    wanted: list[float] = []
    overloaded: list[bool] = []
    moves: list[int] = []
    decisions = overfull = unlearnt = 0
    begun_with = QTable.from_thresholds(*CONFIGURATIONS[case.configuration]).thresholds
    moved: list[tuple[bool, bool]] = [(False, False)]
    before = cloud.durations()
    for turn in simulate(cloud, controller, end_s=points * TURN_S, interval_s=TURN_S):
        steps = turn.outcome.steps if turn.outcome else ()
        decisions += bool(steps)
        moves.append(sum(step.kind == "move" for step in steps))
        now = cloud.durations()
        latency.append(_mean_latency(before, now))
        before = now
        snapshot = cloud.observe()
        seen = [h.utilisation for h in snapshot.running_hosts if h.utilisation is not None]
        loads.append((min(seen), sum(seen) / len(seen), max(seen)))
        hosts.append(len(snapshot.hosts))
        wanted += cloud.wanted.values()
        full = [host for host, value in cloud.wanted.items() if value > 1]
        overloaded.append(bool(full))
        overfull += len(full)
        if isinstance(controller.memory, SarsaMemory):
            tables = (controller.memory.tables.get(host) for host in full)
            unlearnt += sum(table is not None and table.thresholds[1] is None for table in tables)
            for learnt in (table.thresholds for table in controller.memory.tables.values()):
                moved.append((learnt[0] != begun_with[0], learnt[1] != begun_with[1]))
    found = _measures(loads, latency, hosts, wanted, overloaded, moves, decisions)
    low, high = np.mean(moved, axis=0).tolist()
    return replace(found, unlearnt=unlearnt / max(1, overfull), lower_moved=low, upper_moved=high)


def _mean_latency(
    before: Mapping[str, tuple[float, float]], now: Mapping[str, tuple[float, float]]
) -> float:
    """Mean over the queries of their mean latency since `before`; NaN without any result."""
    means = [
        (seconds - before[query][1]) / (count - before[query][0])
        for query, (count, seconds) in now.items()
        if count > before[query][0]
    ]
    return sum(means) / len(means) if means else float("nan")


def _measures(
    loads: Sequence[tuple[float, float, float]],
    latency: Sequence[float],
    hosts: Sequence[int],
    wanted: Sequence[float],
    overloaded: Sequence[bool],
    moves: Sequence[int],
    decisions: int,
) -> Measures:
    low, mean, high = (float(np.mean(column)) for column in zip(*loads, strict=True))
    seconds = np.array(latency)
    over = np.array(overloaded)
    over[1:] |= over[:-1]  # what has piled up is worked off in the next turn
    recent = np.convolve(moves, np.ones(RECENT_TURNS))[: len(moves)] > 0
    total = float(np.nansum(seconds)) or 1.0
    p10, p50, p90 = (float(np.nanquantile(seconds, share)) for share in (0.1, 0.5, 0.9))
    return Measures(
        low,
        mean,
        high,
        p10,
        p50,
        p90,
        float(np.nanmean(seconds)),
        float(np.mean(hosts)),
        float(decisions),
        float(sum(moves)),
        float(np.mean(np.array(wanted) > 1)),
        float(np.nansum(seconds[over])) / total,
        float(np.nansum(seconds[~over & recent])) / total,
        float(np.nansum(seconds[~over & ~recent])) / total,
    )


def _job(job: tuple[int, Case, int, tuple[RecordedDay, ...]]) -> Measures:
    return run_case(*job)


@dataclass(frozen=True)
class FuguResults:
    """Measures of all seeds by case, with the seeds in the same order everywhere.

    points: measurement points of a run; days: from files, in place of the generator's.
    """

    runs: Mapping[Case, Sequence[Measures]]
    seeds: Sequence[int] = (1,)
    points: int = POINTS
    days: tuple[RecordedDay, ...] = ()

    def of(self, case: Case, what: str) -> list[float]:
        """One figure of a case, by seed."""
        return [float(getattr(run, what)) for run in self.runs[case]]

    def mean(self, case: Case, what: str) -> float:
        """One figure of a case, mean over the seeds."""
        return float(np.mean(self.of(case, what)))

    def more(self, case: Case, base: Case, what: str) -> list[float]:
        """How much more a case has than another, by seed; causes have the first seeds only."""
        return [a - b for a, b in zip(self.of(case, what), self.of(base, what), strict=False)]

    def elsewhere(self, changes: Mapping[str, Any]) -> FuguResults:
        """The runs of another reading under the names of the usual ones."""
        pairs = ((case, in_reading(case, changes)) for case in all_cases())
        runs = {case: self.runs[other] for case, other in pairs if other in self.runs}
        count = min((len(some) for some in runs.values()), default=0)
        return replace(self, runs={case: some[:count] for case, some in runs.items()})


def run_all(
    seeds: Sequence[int],
    cases: Sequence[Case],
    points: int,
    progress: Progress,
    days: tuple[RecordedDay, ...] = (),
) -> FuguResults:
    """Run all cases with all seeds.

    Args:
        seeds: Random seeds.
        cases: The runs of one seed.
        points: Measurement points of a run.
        progress: Called after each run.
        days: Days from files, in place of the generator's.
    """
    rare = set(causes()) - set(all_cases()) - set(decisive())
    few = seeds[:CAUSE_SEEDS]
    cases = list(dict.fromkeys(cases))
    jobs = [
        (seed, case, points, days)
        for seed in seeds
        for case in cases
        if seed in few or case not in rare
    ]
    found: dict[Case, list[Measures]] = {case: [] for case in cases}

    def done(n: int, job: tuple[int, Case, int, tuple[RecordedDay, ...]]) -> None:
        progress(n / len(jobs), f"seed {job[0]}, {job[1].policy}, {job[1].configuration}")

    for (_, case, *_), measures in zip(jobs, run_jobs(_job, jobs, done), strict=True):
        found[case].append(measures)
    return FuguResults(found, seeds, points, days)
