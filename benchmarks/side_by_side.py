"""Two versions of the code in turn on the same machine: what a change for speed gains.

    git worktree add ../before COMMIT
    python benchmarks/side_by_side.py ../before                         # minutes
    python benchmarks/side_by_side.py ../before --cases day,drs --rounds 20 --hours 3

Each version has a process of its own. They take turns, so that both meet the same machine. A line
has the least processor time of each version, their ratio, and the median of the ratios of all
rounds, which is robust where other programs run. The cases are

    visp, visp-fluid  the runs of VISP in `speed.py`
    day, day-guarded  a fluid trading day without and with the default guards, mean of 4 policies
    bound             the bound of six days of rates every five minutes
    a policy          some hours of these rates as a fluid, with the default guards, which is a part
                      of the backtest of 55 days: that has more items than are kept, so that each
                      run draws its own
    turn-1000         a journalled turn of a controller with as many hosts, of ten instances each;
                      all turns see equal snapshots, as in `speed.py`
    moving-1000       the same with other loads in every turn, and an instance that has moved
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.model import Snapshot

HERE = Path(__file__).parents[1]
Work = Callable[[], object]


def snapshots_of(hosts: int, moving: bool) -> Callable[[], Snapshot]:
    """A function that makes the snapshot of each turn, with ten instances for each host.

    moving: whether every snapshot has other loads, and another instance on another host.
    """
    from decisions import big_snapshot

    from tidegate.model.topology import Resources

    numbers = count()

    def seen() -> Snapshot:
        snapshot = big_snapshot(hosts, 10 * hosts)
        if not moving:
            return snapshot
        turn, found = next(numbers), list(snapshot.instances)
        for n, one in enumerate(found):
            cores = one.load.cpu_cores if one.load is not None else 0.0
            found[n] = replace(one, load=Resources(cores * (1 + turn / 1e4), 100, 1))
        found[turn] = replace(found[turn], host=f"host-{(turn + 1) % hosts}")
        return replace(snapshot, instances=tuple(found))

    return seen


def turns_of(hosts: int, moving: bool) -> Callable[[], Work]:
    """A function that prepares a turn of a controller that sees the next of `snapshots_of`."""
    from tidegate.loop.controller import Controller
    from tidegate.loop.journal import Journal
    from tidegate.policies import create
    from tidegate.testing.worlds import RecordedWorld

    seen = snapshots_of(hosts, moving)
    folder = tempfile.TemporaryDirectory()
    journal = Journal(f"{folder.name}/j.jsonl", None)
    policy = create("local-threshold", violations=1)

    def prepared() -> Work:
        assert folder.name  # it is removed with this function
        controller = Controller(RecordedWorld([seen()]), policy, journal)

        def turn() -> None:
            controller.step()
            # A write that is waited for in vain goes on in the next round, and counts there.
            assert not controller._recorder.lost, "this machine is too busy to write the journal"

        return turn

    return prepared


def work_of(case: str, hours: float) -> tuple[Callable[[], Work], int]:
    """A function that prepares what a case does, and how many runs that are.

    hours: of the rates, for a policy.
    """
    kind, _, hosts = case.partition("-")
    if kind in ("turn", "moving"):
        return turns_of(int(hosts), kind == "moving"), 1
    do, runs = runs_of(case, hours)
    return lambda: do, runs


def runs_of(case: str, hours: float) -> tuple[Work, int]:
    """What a case does, and how many runs that are. hours: of the rates, for a policy."""
    from speed import _visp, many_days
    from sweep import POLICIES, grid_of, one_process

    from tidegate.lab.backtest import bound_of, run_policy, stack_for
    from tidegate.simulation import FluidCloud, SimulatedCloud

    if case.startswith("visp"):
        return _visp(FluidCloud if case == "visp-fluid" else SimulatedCloud), 1
    if case.startswith("day"):
        grid = grid_of(400, "fluid", "1s", guards=case == "day-guarded")
        return lambda: one_process(grid, len(POLICIES)), len(POLICIES)
    if case == "bound":
        return lambda: bound_of(many_days(6.0)), 1
    _, policy = stack_for(case, many_days(hours / 24))
    return lambda: run_policy(many_days(hours / 24), policy, fluid=True), 1


def serve(hours: float) -> None:
    """Answer each case on standard input with the processor time of one run, in milliseconds."""
    known: dict[str, tuple[Callable[[], Work], int]] = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in known:
            known[case] = work_of(case, hours)
            known[case][0]()()  # the first time compiles and imports
        prepare, runs = known[case]
        do = prepare()
        start = time.process_time()
        do()
        print((time.process_time() - start) / runs * 1e3, flush=True)


class Version:
    """A process with the code of a work tree."""

    def __init__(self, tree: Path, hours: float) -> None:
        paths = os.pathsep.join(str(tree / name) for name in ("src", "", "benchmarks"))
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "--serve", "--hours", str(hours)],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ms(self, case: str) -> float:
        """Processor time of a run, in milliseconds."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("before", nargs="?", type=Path, help="work tree of the other version")
    reader.add_argument("--cases", help="separated by commas; all by default")
    reader.add_argument("--rounds", type=int, default=8)
    reader.add_argument("--hours", type=float, default=1.0, help="hours of the rates, by policy")
    reader.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = reader.parse_args()
    if given.serve:
        serve(given.hours)
        return
    if given.before is None:
        reader.error("the work tree of the other version is missing")
    from tidegate.policies import available

    runs = ["visp", "visp-fluid", "day", "day-guarded", "bound", "turn-1000", "moving-1000"]
    cases = given.cases.split(",") if given.cases else [*runs, *available()]
    versions = Version(given.before.resolve(), given.hours), Version(HERE, given.hours)
    total = [0.0, 0.0]
    print("| case | before | after | ratio | median ratio |\n|---|---:|---:|---:|---:|")
    for case in cases:
        rounds = [[version.ms(case) for version in versions] for _ in range(given.rounds)]
        before, after = (min(times) for times in zip(*rounds, strict=True))
        median = statistics.median(new / old for old, new in rounds)
        print(
            f"| {case} | {before:.1f} ms | {after:.1f} ms | {after / before:.2f} | {median:.2f} |",
            flush=True,
        )
        if case in available():
            total = [total[0] + before, total[1] + after]
    if total[0]:
        sums = f"{total[0]:.0f} ms | {total[1]:.0f} ms | {total[1] / total[0]:.2f}"
        print(f"| these policies together | {sums} | |")


if __name__ == "__main__":
    main()
