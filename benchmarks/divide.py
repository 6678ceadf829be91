"""Whether to divide the slots of a chain again pays: two versions of a policy in equal worlds.

    git worktree add ../before COMMIT
    python benchmarks/divide.py ../before                                   # 20 minutes
    python benchmarks/divide.py ../before --chosen --first 1 --seeds 2
    python benchmarks/divide.py ../before --policy drs --worlds factory --loads shift --seeds 3

Queries of a chain have slots of their own. Who has how many is decided where executors come or go,
and by later versions also in between. Both versions drive the same simulated worlds, which were
calibrated on live runs (`docs/measured/papers-live.jsonl`), with the same input. A line has the
means of both and the mean of the paired differences with its 95 % interval over worlds and seeds:
the share in time, where items that were never processed are late; p95 and p99, of those that were;
the items *left* a minute after the end; executors; and *divisions*, the turns that change slots on
the same executors.

The rule was chosen on the worlds `CHOSEN` (`--chosen`) with seeds 1 to 4. That version was worse in
the others with seeds 1 to 10, which showed what it lacked. So only seeds from 11 on, which are the
default, had no part in the choice.

Loads are those of the live runs and, in the factory, all four patterns of VISP; a *steady* one; a
*shift*, where most of the input is for one query and, after half the time, for another; and
*swings*, in which that happens every 40 s. Executors are as many as the live run began with, up to
five (*live*), or a number that never changes.

The factory's runs 1 to 5 were beside other work, and their calibration took the slots for shared.
Then it is of no consequence who has how many, and all versions have equal results. These worlds
are simulated with slots of their own, which is what the application has. Their overheads are those
of a busy machine, with which the latency target is out of reach for some queries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[1]
LEDGER = HERE / "docs/measured/papers-live.jsonl"
OUT = Path("out/divide")
CHOSEN = ("factory-1", "factory-3", "factory-5", "factory-7", "day-1", "bursts-1")
OTHERS = ("factory-2", "factory-4", "factory-9", "factory-10", "factory-11", "factory-12", "day-2",
          "day-3", "bursts-2", "bursts-3")  # fmt: skip
VISP = tuple(f"visp:{p}" for p in ("stepwise", "two_level", "random_walk_1", "random_walk_2"))
LOADS = {"factory": (*VISP, "steady", "shift", "swings"), "day": ("exchange-day", "steady"),
         "bursts": ("video", "steady")}  # fmt: skip
EXECUTORS = ("live", "3", "5")
FIGURES = ("in_time", "p95_s", "p99_s", "left", "hosts", "divisions")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One simulated run. executors: of `EXECUTORS`."""

    world: str
    load: str
    executors: str
    seed: int


def rows() -> dict[str, Row]:
    """The live runs with a calibrated world, by name."""
    every = [json.loads(line) for line in LEDGER.read_text(encoding="utf-8").splitlines()]
    return {
        f"{row['experiment']}-{row['seed']}": row
        for row in every
        if "world" in row and f"{row['experiment']}-{row['seed']}" in (*CHOSEN, *OTHERS)
    }


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for world, row in rows().items():
        if not world.startswith(args.worlds) or (world in CHOSEN) != args.chosen:
            continue
        for load in LOADS[row["experiment"]]:
            for executors in EXECUTORS:
                for seed in range(args.first, args.first + args.seeds):
                    if load.startswith(args.loads) and executors.startswith(args.executors):
                        yield Case(world, load, executors, seed)


# --- one version ------------------------------------------------------------------------------


def workload_of(row: Row, load: str, seed: int) -> Any:
    """The input of a run. The sources' own rates count, times the rate of the live run."""
    from tidegate.apps.application import application
    from tidegate.apps.loads import LOADS as SHAPES
    from tidegate.workloads import RateTrace, Sum

    applications: dict[str, tuple[str, dict[str, Any]]] = {
        "factory": ("factory", {"imitate": True}),
        "day": ("exchange-day", {"rate_per_s": 300.0}),
        "bursts": ("logos", {"imitate": True}),
    }
    name, settings = applications[row["experiment"]]
    app = application(name, **settings)
    seconds = row["input_s"]
    rates = {source: row["rate"] * rate for source, rate in app.rates_per_s.items()}
    if load not in ("shift", "swings"):
        parts = [SHAPES[load](s, rate, seconds, seed) for s, rate in rates.items()]
        return Sum(tuple(parts))
    # The images of S2 cost most, and the readings of S1 as much if there are many more than usual.
    step_s = seconds / 2 if load == "shift" else 40.0
    turns = math.ceil(seconds / step_s)
    high = {"S1": 4.0, "S2": 1.2, "S3": 1.0}
    low = {"S1": 0.4, "S2": 0.2, "S3": 1.0}
    parts = []
    for source, rate in rates.items():
        first = source != "S1"
        factors = [(high if (n % 2 == 0) == first else low)[source] for n in range(turns)]
        trace = RateTrace(
            step_s * np.arange(turns), rate * np.array(factors), seconds, seed=seed, source=source
        )
        parts.append(trace)
    return Sum(tuple(parts))


def measured(case: Case, row: Row, policy: str) -> Row:
    """One run: its share in time, p95, hosts on average, and divisions."""
    from tidegate.codec import from_plain
    from tidegate.loop.controller import Controller
    from tidegate.loop.stack import StackOptions, build_stack
    from tidegate.policies.base import Situation
    from tidegate.simulation.calibrate import BatchWorld, batch_scenario
    from tidegate.simulation.run import simulate

    fixed = None if case.executors == "live" else int(case.executors)
    most = fixed or 5
    world = from_plain(BatchWorld, row["world"])
    own = replace(world.settings, shared=False)
    world = replace(world, offer=replace(world.offer, max_hosts=most), settings=own)
    scenario = batch_scenario(world, workload_of(row, case.load, case.seed), row["slo_s"])
    scenario = replace(scenario, initial_hosts=fixed or row["first"])
    options = StackOptions(min_hosts=fixed or 1, max_hosts=most, stabilise_s=20.0)
    stack = build_stack(policy, Situation(row["slo_s"], micro_batches=True), options)
    simulated = scenario.world(stack.style, case.seed)
    controller = Controller(simulated, stack, seed=case.seed)
    end_s = row["input_s"] + 60.0
    seen = [
        turn.snapshot.requested
        for turn in simulate(simulated, controller, end_s=end_s, interval_s=10.0)
        if turn.snapshot is not None
    ]
    report = simulated.report()
    divisions = sum(
        set(a.hosts) == set(b.hosts) and dict(a.counts) != dict(b.counts) for a, b in pairwise(seen)
    )
    arrived = report.items_in
    late = 0.0 if report.slo_compliance is None else (1 - report.slo_compliance) * report.items_out
    left = arrived - report.items_out
    return {
        "case": [case.world, case.load, case.executors, case.seed],
        # Items that were never processed are late as well.
        "in_time": 1 - (late + left) / arrived if arrived else 1.0,
        "p95_s": report.latency_p95_s,
        "p99_s": report.latency_p99_s,
        "left": left,
        "hosts": report.host_seconds / report.duration_s,
        "divisions": divisions,
    }


def run_version(args: argparse.Namespace) -> None:
    """Print a line for each run of this version."""
    known = rows()
    for case in cases(args):
        print(json.dumps(measured(case, known[case.world], args.policy)), flush=True)


# --- both -------------------------------------------------------------------------------------


def of_version(folder: Path, name: str, args: argparse.Namespace) -> dict[tuple[Any, ...], Row]:
    """The runs of the version in a folder, by case."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}-{args.policy}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        command = [sys.executable, __file__, "--policy", args.policy, "--seeds", str(args.seeds)]
        command += ["--first", str(args.first)]
        command += ["--chosen"] * args.chosen
        command += ["--worlds", args.worlds, "--loads", args.loads, "--executors", args.executors]
        source = {"PYTHONPATH": str((folder / "src").resolve())}
        subprocess.run(command, stdout=file, check=True, env={**os.environ, **source})
    lines = path.read_text(encoding="utf-8").splitlines()
    return {tuple(row["case"]): row for row in map(json.loads, lines)}


def interval(values: Sequence[float], digits: int) -> str:
    """Mean and half the width of its 95 % interval."""
    from scipy import stats

    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def table(before: Mapping[tuple[Any, ...], Row], after: Mapping[tuple[Any, ...], Row]) -> str:
    """A line for each set of worlds, executors and loads: means before, after, and difference."""
    lines = [
        f"| worlds | executors | load | runs | {' | '.join(FIGURES)} |",
        "|---|---|---|---:|" + "---:|" * len(FIGURES),
    ]
    groups: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for key in before.keys() & after.keys():
        world, load, executors, _ = key
        part = world.partition("-")[0]
        sets = [
            (part, executors, load), (part, "all", load), (part, executors, "all"),
            (world, "all", "all"), ("all", executors, "all"), ("all", "all", "all"),
        ]  # fmt: skip
        if load in VISP:
            sets += [(part, "all", "VISP's"), (part, executors, "VISP's")]
        for group in sets:
            groups.setdefault(group, []).append(key)
    for group, keys in sorted(groups.items()):
        cells = []
        for figure in FIGURES:
            pairs = [
                (before[k][figure], after[k][figure])
                for k in sorted(keys)
                if before[k][figure] is not None and after[k][figure] is not None
            ]
            old, new = (statistics.fmean(values) for values in zip(*pairs, strict=True))
            digits = 0 if old >= 100 else 1 if old >= 10 else 3
            paired = interval([b - a for a, b in pairs], digits)
            cells.append(f"{old:.{digits}f}, {new:.{digits}f}: {paired}")
        lines.append(f"| {' | '.join(group)} | {len(keys)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", type=Path, help="folder of the other version")
    parser.add_argument("--policy", default="tide")
    parser.add_argument("--seeds", type=int, default=10, help="their number")
    parser.add_argument("--first", type=int, default=11, help="the first seed")
    parser.add_argument("--chosen", action="store_true", help="the worlds of the choice")
    parser.add_argument("--worlds", default="", help="beginning of their names")
    parser.add_argument("--loads", default="", help="beginning of their names")
    parser.add_argument("--executors", default="", help=f"one of {', '.join(EXECUTORS)}")
    args = parser.parse_args()
    if args.before is None:
        run_version(args)
        return
    found = [of_version(f, n, args) for f, n in ((args.before, "before"), (HERE, "after"))]
    print(table(*found))


if __name__ == "__main__":
    main()
