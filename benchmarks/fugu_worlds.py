"""Which world is nearest to the numbers that FUGU's paper prints without learning.

    python benchmarks/fugu_worlds.py --keep out/bench-papers     # ten minutes

The paper does not say how long a move pauses, what waits meanwhile, how much is buffered, when
thresholds act and how far moves fill a host. Worlds are drawn at random from `SPACE`, in addition
to the one that decided at first, and run with two seeds; the best are run with six. These seeds
judge nothing.

The distance is that from six printed numbers: utilisation and p90 latency of local thresholds
(0.52, 1850 ms), of global thresholds (0.49, 2340 ms) and of the learning technique that learns
nothing (0.55, 2100 ms), all with the default thresholds on Day 1. It is the square root of the mean
of squares, in units of 0.05 and of a factor of 1.25. No other claim has a part in it.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tidegate.lab.papers.fugu.runs import FILL, GRACE_S, VIOLATIONS, Case, Measures, run_case
from tidegate.lab.papers.fugu.world import AS_ASSUMED, POINTS, Assumptions
from tidegate.lab.papers.jobs import run_jobs, running_with
from tidegate.lab.papers.statistics import mean

SPACE: Mapping[str, tuple[Any, ...]] = {
    "one_source": (True, False),
    "pause_s": (1.0, 3.0, 6.0, 12.0),
    "buffer_s": (5.0, 10.0, math.inf),
    "violations": (3, 6, 12),
    "grace_s": (30.0, 60.0, 120.0),
    "fill": (0.6, 0.8),
}
OF_WORLD = ("one_source", "pause_s", "buffer_s")
PRINTED = (
    (Case("local"), 0.52, 1.85),
    (Case("global"), 0.49, 2.34),
    (Case("sarsa", learning="none"), 0.55, 2.10),
)
SEEDS = (1, 2, 3, 4, 5, 6)
World = tuple[Any, ...]
FIRST: World = (True, 3.0, 10.0, 3, 30.0, 0.6)
"""The world that decided until this search."""
Row = tuple[float, World, list[list[Measures]]]


def case_in(case: Case, world: World) -> Case:
    """A case in a world; the values of a world are in the order of `SPACE`."""
    values = dict(zip(SPACE, world, strict=True))
    assumed = Assumptions(**{name: values.pop(name) for name in OF_WORLD})
    return Case(case.policy, learning=case.learning, assumed=assumed, **values)


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

    def done(n: int, job: object) -> None:
        if n % 60 == 0:
            print(f"{n} of {len(jobs)} runs", flush=True)

    results = iter(run_jobs(run_one, jobs, done))
    rows = []
    for world in worlds:
        found = [[next(results) for _ in seeds] for _ in PRINTED]
        rows.append((distance(found), world, found))
    return sorted(rows, key=lambda row: row[0])


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
    reader.add_argument("--worlds", type=int, default=49, help="how many to draw")
    reader.add_argument("--best", type=int, default=8, help="how many to run with more seeds")
    reader.add_argument("--points", type=int, default=POINTS, help="measurement points of a run")
    reader.add_argument("--keep", type=Path, help="folder for finished runs")
    asked = reader.parse_args()
    usual = (*(getattr(AS_ASSUMED, name) for name in OF_WORLD), VIOLATIONS, GRACE_S, FILL)
    drawn = random.Random(1).sample(list(product(*SPACE.values())), asked.worlds)
    with running_with(1, asked.keep):
        first = ranked(list(dict.fromkeys((FIRST, *drawn))), SEEDS[:2], asked.points)
        show(first, usual, 2)
        best = [world for _, world, _ in first[: asked.best]]
        show(ranked(best, SEEDS, asked.points), usual, len(SEEDS))


if __name__ == "__main__":
    main()
