"""Which world is nearest to the numbers that FUGU's paper prints without learning.

    python benchmarks/fugu_worlds.py --keep out/bench-papers     # half an hour

The paper does not say how long a move pauses, what waits meanwhile, how much is buffered, over what
time the CPU is measured, when thresholds act, for how long hosts rest and how far moves fill them.
The search goes from two worlds: the one that decided at first, and the nearest with a source for
each query of an earlier search with random draws. It changes one setting at a time to the best
value of `SPACE`, in the order there, until nothing is nearer, with two seeds. The best worlds of
all that were seen are then run with six. These seeds judge nothing. n = 1 is not in the space: the
paper lists n violations in a row among what avoids too frequent decisions.

The distance is that from six printed numbers: utilisation and p90 latency of local thresholds
(0.52, 1850 ms), of global thresholds (0.49, 2340 ms) and of the learning technique that learns
nothing (0.55, 2100 ms), all with the default thresholds on Day 1. It is the square root of the mean
of squares, in units of 0.05 and of a factor of 1.25. No other claim has a part in it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.lab.papers.fugu.runs import FILL, GRACE_S, VIOLATIONS, Case, Measures, run_case
from tidegate.lab.papers.fugu.world import AS_ASSUMED, POINTS, Assumptions
from tidegate.lab.papers.jobs import run_jobs, running_with
from tidegate.lab.papers.statistics import mean

SPACE: Mapping[str, tuple[Any, ...]] = {
    "pause_s": (1.0, 2.0, 3.0, 4.5, 6.0, 9.0, 12.0),
    "measured_turns": (1, 2, 3, 6),
    "violations": (2, 3, 6, 12),
    "grace_s": (30.0, 60.0, 120.0),
    "buffer_s": (5.0, 10.0, math.inf),
    "fill": (0.6, 0.7, 0.8),
    "filtering": (0.1, 0.25, 0.5),
    "one_source": (True, False),
}
OF_WORLD = ("pause_s", "measured_turns", "buffer_s", "filtering", "one_source")
PRINTED = (
    (Case("local"), 0.52, 1.85),
    (Case("global"), 0.49, 2.34),
    (Case("sarsa", learning="none"), 0.55, 2.10),
)
SEEDS = (1, 2, 3, 4, 5, 6)
World = tuple[Any, ...]
STARTS: tuple[World, ...] = (
    (3.0, 1, 3, 30.0, 10.0, 0.6, 0.1, True),
    (12.0, 1, 6, 120.0, 5.0, 0.8, 0.1, False),
)
"""Where the search begins; values are in the order of `SPACE`."""
Row = tuple[float, World, list[list[Measures]]]


def case_in(case: Case, world: World) -> Case:
    """A case in a world. Learning acts on one measurement, whatever n is."""
    values = dict(zip(SPACE, world, strict=True))
    assumed = Assumptions(**{name: values.pop(name) for name in OF_WORLD})
    if case.policy == "sarsa":
        values["violations"] = VIOLATIONS
    return replace(case, assumed=assumed, **values)


def run_one(job: tuple[Case, int, int]) -> Measures:
    case, seed, points = job
    return run_case(seed, case, points)


def distance(found: list[list[Measures]]) -> float:
    """Distance of the runs of the three cases, by case and seed, from the printed numbers."""
    squares = []
    for (_, load, p90_s), runs in zip(PRINTED, found, strict=True):
        squares.append(((mean([run.load_mean for run in runs]) - load) / 0.05) ** 2)
        late = math.log(mean([run.latency_p90_s for run in runs]) / p90_s) / math.log(1.25)
        squares.append(late**2)
    return math.sqrt(mean(squares))


def ranked(worlds: Sequence[World], seeds: Sequence[int], points: int) -> list[Row]:
    """Distance, world and runs by case and seed, the nearest first."""
    jobs = [
        (case_in(case, world), seed, points)
        for world in worlds
        for case, _, _ in PRINTED
        for seed in seeds
    ]

    results = iter(run_jobs(run_one, jobs))
    rows = []
    for world in worlds:
        found = [[next(results) for _ in seeds] for _ in PRINTED]
        rows.append((distance(found), world, found))
    return sorted(rows, key=lambda row: row[0])


def descend(start: World, points: int) -> list[Row]:
    """All worlds that were looked at, from a start down to where no single change is nearer."""
    (best,) = found = ranked([start], SEEDS[:2], points)
    seen = {start}
    changed = True
    while changed:
        changed = False
        for at, name in enumerate(SPACE):
            worlds = [(*best[1][:at], value, *best[1][at + 1 :]) for value in SPACE[name]]
            fresh = ranked([w for w in worlds if w not in seen], SEEDS[:2], points)
            seen.update(worlds)
            found += fresh
            if fresh and fresh[0][0] < best[0]:
                best, changed = fresh[0], True
                print(f"{best[0]:.2f} with {name} {best[1][at]}", flush=True)
    return found


def show(rows: Sequence[Row], usual: World, seeds: int) -> None:
    print(f"{len(rows)} worlds, {seeds} seeds; * is the one that decides on the claims")
    print("distance", *SPACE, "local", "global", "without learning", sep="\t")
    for far, world, found in rows:
        figures = (
            f"{mean([run.load_mean for run in runs]):.2f}/"
            f"{1000 * mean([run.latency_p90_s for run in runs]):.0f} ms"
            for runs in found
        )
        print(f"{far:.2f}{'*' if world == usual else ''}", *world, *figures, sep="\t")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--best", type=int, default=8, help="how many to run with more seeds")
    reader.add_argument("--points", type=int, default=POINTS, help="measurement points of a run")
    reader.add_argument("--keep", type=Path, help="folder for finished runs")
    asked = reader.parse_args()
    values = {"violations": VIOLATIONS, "grace_s": GRACE_S, "fill": FILL}
    usual = tuple(values.get(name) or getattr(AS_ASSUMED, name) for name in SPACE)
    with running_with(1, asked.keep):
        rows = [row for start in STARTS for row in descend(start, asked.points)]
        first = sorted({row[1]: row for row in rows}.values(), key=lambda row: row[0])
        show(first, usual, 2)
        best = [world for _, world, _ in first[: asked.best]]
        best = list(dict.fromkeys((*best, usual, *STARTS)))
        show(ranked(best, SEEDS, asked.points), usual, len(SEEDS))


if __name__ == "__main__":
    main()
