"""Which world agrees with most of what FUGU's paper prints about thresholds.

    python benchmarks/fugu_worlds.py --log out/bench-papers/fugu-worlds.jsonl     # an hour

The paper does not say how long a move pauses, what waits meanwhile, how much is buffered, over what
time the CPU is measured, when thresholds act, for how long hosts rest, how far moves fill them, and
how much sectors fluctuate. The search begins at `STARTS`, changes one setting at a time to the best
value of `SPACE`, in the order there, until nothing is better, with three seeds. The best worlds of
all that were seen are then run with ten. These seeds judge nothing: verdicts begin at seed 21.

A world is judged by what the paper says of local and global thresholds, `STATEMENTS`: each counts
by the share of its parts that hold. With three seeds a part holds if it does so in the mean. With
ten it counts 1 if its 95 % interval is clear, 0.5 if not, and 0 if it is clear of the contrary.
Among equals the nearest to the four printed numbers comes first. **Nothing on learning has a part
in it**, so that all claims on learning are judged in a world that was not chosen by them.

The log knows runs by their settings, not by the code: remove it after a change of the simulation.

Not in the space: n = 1 (the paper lists n violations in a row among what avoids too frequent
decisions), and larger volumes on Days 2 and 3 (they would leave the axis of Fig. 3, which ends at
4500 ticks per second).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.lab.papers.claims import judged
from tidegate.lab.papers.fugu.runs import (
    CONFIGURATIONS,
    FILL,
    GRACE_S,
    VIOLATIONS,
    Case,
    FuguResults,
    Measures,
    run_case,
)
from tidegate.lab.papers.fugu.world import AS_ASSUMED, POINTS, Assumptions
from tidegate.lab.papers.statistics import mean

SPACE: Mapping[str, tuple[Any, ...]] = {
    "violations": (2, 3, 6, 12),
    "fill": (0.6, 0.7, 0.8, 0.0),
    "measured_turns": (1, 2, 3, 6),
    "grace_s": (30.0, 60.0, 120.0),
    "pause_s": (1.0, 3.0, 6.0),
    "one_source": (True, False),
    "buffer_s": (5.0, 10.0, math.inf),
    "filtering": (0.1, 0.25, 0.5),
    "wobble": (1.0, 0.5),
}
"""Values of what the paper leaves open; a fill of 0 is the upper threshold."""
OF_WORLD = ("measured_turns", "pause_s", "one_source", "buffer_s", "filtering", "wobble")
SEEDS = tuple(range(1, 11))
FEW = SEEDS[:3]
World = tuple[Any, ...]
STARTS: tuple[World, ...] = (
    (2, 0.6, 2, 60.0, 3.0, True, 10.0, 0.1, 1.0),
    (12, 0.0, 1, 30.0, 3.0, True, 10.0, 0.25, 1.0),
)
"""The world that decided before, and one far from it; values are in the order of `SPACE`."""
CASES = (
    *(Case(policy, name) for policy in ("local", "global") for name in CONFIGURATIONS),
    *(Case("local", day=day) for day in (2, 3)),
)
LOCAL, GLOBAL = Case("local"), Case("global")
UTILISATION, P90, MOST = "load_mean", "latency_p90_s", "load_max"
Part = tuple[list[float], float, float]
"""Figures by seed and the bounds within which their mean must be."""


def _more(found: FuguResults, case: Case, base: Case, what: str, sign: int = 1) -> Part:
    return [sign * value for value in found.more(case, base, what)], 1e-12, math.inf


def _days(found: FuguResults) -> Part:
    days = [found.of(Case("local", day=day), P90) for day in (1, 2, 3)]
    return [max(two, three) / one for one, two, three in zip(*days, strict=True)], 1.4, math.inf


def _shift(name: str, **signs: int) -> Callable[[FuguResults], list[Part]]:
    """A configuration of local thresholds has more (1) or less (-1) of something."""
    return lambda found: [
        _more(found, Case("local", name), LOCAL, what, sign) for what, sign in signs.items()
    ]


STATEMENTS: Mapping[str, Callable[[FuguResults], list[Part]]] = {
    "F-02": lambda found: [(found.of(LOCAL, UTILISATION), 0.47, 0.57)],
    "F-03": _shift("lower 0.2", load_mean=-1, latency_p90_s=-1),
    "F-04": _shift("lower 0.4", load_mean=1, latency_p90_s=1),
    "F-05": _shift("upper 0.7", latency_p90_s=1, moves=1),
    "F-06": _shift("upper 0.9", latency_p90_s=1, overload=1),
    "F-07": lambda found: [
        (found.of(GLOBAL, UTILISATION), 0.44, 0.54),
        _more(found, GLOBAL, LOCAL, P90),
    ],
    "F-08": lambda found: [
        _more(found, Case("global", name), Case("local", name), P90)
        for name in CONFIGURATIONS
        if name != "default"
    ],
    "F-09": lambda found: [
        *((found.of(Case("global", name), MOST), 0.7, 1.0) for name in CONFIGURATIONS),
        *((found.of(Case("local", name), MOST), 0.0, 0.7) for name in CONFIGURATIONS),
    ],
    "F-13": lambda found: [_days(found)],
    "F-18": lambda found: [_more(found, GLOBAL, LOCAL, "decisions", -1)],
}
"""What the paper says of thresholds, by the claim that judges it with other seeds."""
PRINTED = ((LOCAL, 0.52, 1.85), (GLOBAL, 0.49, 2.34))


class Row(NamedTuple):
    """A world with its score, the distance from the printed numbers, and its runs."""

    score: float
    distance: float
    world: World
    parts: dict[str, float]
    found: FuguResults

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better."""
        return -round(self.score, 6), self.distance


def case_in(case: Case, world: World) -> Case:
    """A case in a world. Learning acts on one measurement, whatever n is."""
    values = dict(zip(SPACE, world, strict=True))
    assumed = Assumptions(**{name: values.pop(name) for name in OF_WORLD})
    if case.policy == "sarsa":
        values["violations"] = VIOLATIONS
    return replace(case, assumed=assumed, **values)


def holds(part: Part, strict: bool) -> float:
    """Whether a part of a statement holds: in the mean, or by its interval."""
    values, low, high = part
    if not strict:
        return float(low <= mean(values) <= high)
    return {"reproduced": 1.0, "not clear": 0.5}.get(judged(values, low, high), 0.0)


def scores(found: FuguResults, strict: bool) -> dict[str, float]:
    """The share of the parts of each statement that hold."""
    return {
        name: mean([holds(part, strict) for part in parts(found)])
        for name, parts in STATEMENTS.items()
    }


def distance(found: FuguResults) -> float:
    """Root of the mean square from the printed numbers, in units of 0.05 and a factor of 1.25."""
    squares = []
    for case, load, p90_s in PRINTED:
        squares.append(((found.mean(case, UTILISATION) - load) / 0.05) ** 2)
        squares.append((math.log(found.mean(case, P90) / p90_s) / math.log(1.25)) ** 2)
    return math.sqrt(mean(squares))


def run_one(job: tuple[Case, int, int]) -> Measures:
    case, seed, points = job
    return run_case(seed, case, points)


class Search:
    """Runs worlds, each run once: what is finished is in a log that the next call reads.

    log: a line of JSON for each run; points: measurement points of a run; processes: at once.
    """

    def __init__(self, log: Path, points: int, processes: int) -> None:
        self._points, self._log, self._known = points, log, dict[str, Measures]()
        if log.exists():
            for line in log.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["run"]] = Measures(**entry["measures"])
        log.parent.mkdir(parents=True, exist_ok=True)
        self._pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
        self.rows: dict[tuple[World, int], Row] = {}

    def run(self, jobs: Iterable[tuple[Case, int]]) -> list[Measures]:
        """The measures of all jobs, cases with their seeds."""
        keys = {repr((*job, self._points)): job for job in jobs}
        todo = {
            self._pool.submit(run_one, (*job, self._points)): key
            for key, job in keys.items()
            if key not in self._known
        }
        with self._log.open("a") as out:
            for done, future in enumerate(as_completed(todo), start=1):
                measures = self._known[todo[future]] = future.result()
                entry = {"run": todo[future], "measures": asdict(measures)}
                print(json.dumps(entry), file=out, flush=True)
                print(f"\r{done} of {len(todo)} runs ", end="", file=sys.stderr, flush=True)
        return [self._known[key] for key in keys]

    def ranked(self, worlds: Sequence[World], seeds: Sequence[int]) -> list[Row]:
        """The worlds, the best first."""
        jobs = [(case_in(c, w), seed) for w in worlds for c in CASES for seed in seeds]
        results = iter(self.run(jobs))
        for world in worlds:
            runs = {case: [next(results) for _ in seeds] for case in CASES}
            found = FuguResults(runs, seeds, self._points)
            parts = scores(found, strict=len(seeds) > len(FEW))
            row = Row(sum(parts.values()), distance(found), world, parts, found)
            self.rows[world, len(seeds)] = row
        return sorted((self.rows[w, len(seeds)] for w in worlds), key=lambda row: row.rank)

    def descend(self, start: World) -> None:
        """From a start to where no single change is better."""
        (best,) = self.ranked([start], FEW)
        print(shown(best), flush=True)
        changed = True
        while changed:
            changed = False
            for at, name in enumerate(SPACE):
                worlds = [(*best.world[:at], v, *best.world[at + 1 :]) for v in SPACE[name]]
                first = self.ranked(worlds, FEW)[0]
                if first.rank < best.rank:
                    best, changed = first, True
                    print(shown(best), flush=True)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


def shown(row: Row) -> str:
    """A row of the table, as Markdown."""
    figures = (
        f"{row.found.mean(case, UTILISATION):.2f} / {1000 * row.found.mean(case, P90):.0f} ms"
        for case, _, _ in PRINTED
    )
    open_ones = ", ".join(f"{n} {v:.2g}" for n, v in row.parts.items() if v < 1)
    cells = (f"{row.score:.2f}", f"{row.distance:.2f}", *row.world, *figures, open_ones)
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def show(rows: Sequence[Row]) -> None:
    names = ("score", "distance", *SPACE, "local", "global", "not whole")
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print(shown(row), flush=True)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--best", type=int, default=6, help="how many to run with ten seeds")
    reader.add_argument("--points", type=int, default=POINTS, help="measurement points of a run")
    reader.add_argument("--processes", type=int, default=2, help="runs at once")
    reader.add_argument("--log", type=Path, default=Path("out/bench-papers/fugu-worlds.jsonl"))
    asked = reader.parse_args()
    values = {"violations": VIOLATIONS, "grace_s": GRACE_S, "fill": FILL}
    usual = tuple(values.get(name) or getattr(AS_ASSUMED, name) for name in SPACE)
    search = Search(asked.log, asked.points, asked.processes)
    for start in STARTS:
        search.descend(start)
    first = sorted((row for (_, n), row in search.rows.items() if n == len(FEW)),
                   key=lambda row: row.rank)  # fmt: skip
    print(f"\n{len(first)} worlds of {math.prod(map(len, SPACE.values()))}, {len(FEW)} seeds\n")
    show(first[: 2 * asked.best])
    best = list(dict.fromkeys((*(row.world for row in first[: asked.best]), usual)))
    print(f"\nThe best and the one that decides ({usual}), {len(SEEDS)} seeds\n")
    show(search.ranked(best, SEEDS))
    search.close()


if __name__ == "__main__":
    main()
