"""Whether one world fits both of VISP's algorithms: a joint search on Table 3 alone.

    python benchmarks/visp_joint.py --keep FOLDER     # resumable; --minutes limits the search

Eight things that neither the paper nor the code settles are searched together. From the world that
decides on the claims, and from the one in which the newest instance stops, one setting at a time is
changed to whatever lowers the distance most, until nothing does. The distance is that of
`visp_worlds.py`: 12 compliances and 6 costs of hosts of Table 3, both algorithms, seeds 1 to 3.

Tables 4 to 6 and other seeds (11 to 20) have no part in the search. They judge its winner against
the world that decides today, by the same distance, by the numbers of cells that are met and by the
verdicts on all claims.

A last descent asks something else: whether any world brings the hosts of both algorithms to their
published cost. It goes down by the largest of the six errors of cost alone, and decides on nothing.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from visp_worlds import Cells, distance, errors

from tidegate.lab.papers.jobs import run_jobs, running_with
from tidegate.lab.papers.visp import claims
from tidegate.lab.papers.visp.claims import SAMPLES, VispClaim, verdict
from tidegate.lab.papers.visp.runs import (
    COLUMNS,
    NEWEST,
    PUBLISHED,
    RAN,
    RETOLD,
    RunSummary,
    VispResults,
    mean_cell,
    summarise,
)
from tidegate.lab.papers.visp.world import PATTERNS, Configuration, Variant, drive
from tidegate.workloads.papers import Pattern

SPACE: dict[str, tuple[Any, ...]] = {
    "ocr_s": (0.6, 0.8, 1.0, 1.2, 1.4, 1.6),
    "service_scv": (0.1, 0.5, 1.0, 2.0),
    "thresholds": ((250.0, 1250.0, 20.0), (200.0, 1000.0, 5.0), (50.0, 250.0, 1.0)),
    "image_download_s": (10.0, 20.0, 40.0),
    "connection_s": (0.01, 0.02, 0.03, 0.04),
    "turn_delay_s": (5.0, 15.0, 30.0),
    "stops": ("emptiest", "newest"),
    "spread_s": (0.1, 0.3, 0.45),
}
"""Settings and their values; the time for an image is the same for both algorithms."""
SEEDS, JUDGING = range(1, 4), range(11, 21)
FITTED: Pattern = "stepwise"
Job = tuple[Variant, Pattern, Configuration, int]


def run_one(job: Job) -> RunSummary:
    variant, pattern, configuration, seed = job
    return summarise(drive(pattern, configuration, variant, seed), configuration, False)


def runs_of(variant: Variant, patterns: Sequence[Pattern], seeds: Sequence[int]) -> VispResults:
    """Runs of a world, kept as if it were the primary one."""
    # What concerns the baseline alone makes no new BTU-based runs.
    shared = replace(variant, thresholds=RETOLD.thresholds, stops=RETOLD.stops)
    jobs: list[Job] = [
        (shared if c.btu else variant, p, c, s) for p in patterns for c in RAN for s in seeds
    ]
    return VispResults(
        {
            (RETOLD.name, pattern, c.name, seed): summary
            for (_, pattern, c, seed), summary in zip(jobs, run_jobs(run_one, jobs), strict=True)
        }
    )


def table_of(variant: Variant, patterns: Sequence[Pattern], seeds: Sequence[int]) -> Cells:
    """Mean cells by pattern and column."""
    found = runs_of(variant, patterns, seeds).runs
    return {
        (p, column): mean_cell([found[RETOLD.name, p, ran, s].cells[column] for s in seeds])
        for p in patterns
        for column in COLUMNS
        for ran in ["THR10" if column.startswith("THR") else column]
    }


def verdicts(variant: Variant) -> str:
    """What holds of each claim with the judging seeds, and the verdict."""
    results = runs_of(variant, PATTERNS, JUDGING)
    whole, draw = results.reading(RETOLD), random.Random(1)
    readings = [
        results.reading(RETOLD, draw.choices(JUDGING, k=len(JUDGING))) for _ in range(SAMPLES)
    ]
    lines = []
    for claim in vars(claims).values():
        if isinstance(claim, VispClaim):
            found = claim.find(whole)
            said = verdict(found, [claim.find(reading) for reading in readings])
            lines.append(f"  {claim.id} {said}: {found.measured}")
    return "\n".join(lines)


def changed(variant: Variant, name: str, value: object) -> Variant:
    """The world with one setting changed; the name is kept, so that equal worlds are equal."""
    settings: dict[str, Any] = {name: value}
    if name == "ocr_s":
        settings["baseline_ocr_s"] = value
    return replace(variant, name=RETOLD.name, **settings)


def shown(variant: Variant) -> str:
    return (
        ", ".join(
            f"{name} {value}"
            for name in SPACE
            for value in [getattr(variant, name)]
            if value != getattr(RETOLD, name)
        )
        or "as it is"
    )


def hosts_off(table: Cells, pattern: Pattern) -> str:
    """The cost of hosts against the published one, by column, in percent."""
    return "/".join(
        f"{100 * (table[pattern, c].resource / PUBLISHED[pattern, c].resource - 1):+.0f}"
        for c in COLUMNS
    )


def worst_cost(table: Cells) -> float:
    """The largest error of a cost of hosts, in units of 10 %."""
    return max(abs(x) for x in errors(table)[1])


def descend(
    start: Variant, until: float, measure: Callable[[Cells], float] = distance
) -> tuple[float, Variant]:
    """Go down from a world, the best change of one setting at a time."""
    here = replace(start, name=RETOLD.name)
    table = table_of(here, (FITTED,), SEEDS)
    far = measure(table)
    print(f"start {far:.3f}: {shown(here)}; hosts {hosts_off(table, FITTED)} %", flush=True)
    while True:
        best = far, here
        for name, values in SPACE.items():
            for value in values:
                if time.monotonic() > until:
                    print("stopped by --minutes", flush=True)
                    return best
                if value == getattr(here, name):
                    continue
                there = changed(here, name, value)
                table = table_of(there, (FITTED,), SEEDS)
                found = measure(table)
                print(
                    f"  {found:.3f}: {name} {value}; hosts {hosts_off(table, FITTED)} %", flush=True
                )
                if found < best[0]:
                    best = found, there
        if best[0] >= far:
            return best
        far, here = best
        print(f"step {far:.3f}: {shown(here)}", flush=True)


def judge(variant: Variant) -> str:
    """Distances and cells met, on the fitted table and on the others, with other seeds."""
    table = table_of(variant, PATTERNS, JUDGING)
    parts = []
    for name, of_fitted in (("Table 3", True), ("Tables 4-6", False)):
        some = {key: cell for key, cell in table.items() if (key[0] == FITTED) == of_fitted}
        points, costs = errors(some)
        totals = [
            abs(t / p - 1) <= 0.1
            for key, cell in some.items()
            for t, p in zip(cell.total, PUBLISHED[key].total, strict=True)
        ]
        met = [sum(abs(x) <= 1 for x in kind) for kind in (points, costs)]
        parts.append(
            f"{name}: distance {distance(some):.3f}, {met[0]} of {len(points)} compliances, "
            f"{met[1]} of {len(costs)} costs, {sum(totals)} of {len(totals)} totals"
        )
    off = "; ".join(
        f"{c} "
        + "/".join(
            f"{100 * (table[p, c].resource / PUBLISHED[p, c].resource - 1):+.0f}" for p in PATTERNS
        )
        for c in COLUMNS
    )
    return f"{'. '.join(parts)}. Hosts, %: {off}"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--keep", type=Path, help="folder for finished runs")
    reader.add_argument("--minutes", type=float, default=60.0, help="limit of each descent")
    reader.add_argument("--processes", type=int, default=1)
    asked = reader.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    with running_with(asked.processes, asked.keep):
        limit_s = 60 * asked.minutes
        ends = [descend(start, time.monotonic() + limit_s) for start in (RETOLD, NEWEST)]
        far, winner = min(ends, key=lambda end: end[0])
        print(f"winner {far:.3f}: {shown(winner)}")
        for name, variant in (("winner", winner), ("today", RETOLD)):
            print(f"{name}, seeds 11 to 20. {judge(variant)}\n{verdicts(variant)}", flush=True)
        print("by the largest error of a cost, in units of 10 %")
        far, nearest = descend(RETOLD, time.monotonic() + limit_s, worst_cost)
        print(f"nearest {far:.3f}: {shown(nearest)}")
        print(f"nearest, seeds 11 to 20. {judge(nearest)}\n{verdicts(nearest)}", flush=True)


if __name__ == "__main__":
    main()
