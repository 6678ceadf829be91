"""Benchmark of decisions: ``make bench``.

Each figure is the best of several rounds, since the machine may be shared. Each line ends with the
goal and whether it was reached.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal
from tidegate.model import Host, HostOffer, InstanceReading, Snapshot
from tidegate.model.topology import Operator, Resources, Topology
from tidegate.policies import create
from tidegate.testing.worlds import RecordedWorld
from tidegate.theory.placement import Item, first_fit_decreasing, select_to_move
from tidegate.theory.queueing import Station, assign_processors

PAPER_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
"""DRS, Table II: scheduling time by K_max on the authors' hardware."""


def best_ms(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def straightforward(stations: Sequence[Station], processors: int) -> list[int]:
    """Algorithm 1 with equations (1) and (2) as they are printed in the paper."""

    def sojourn(station: Station, k: int) -> float:
        a, mu = station.load, station.service_rate_per_s
        if k <= a:
            return math.inf
        empty = 1 / (
            sum(a**n / math.factorial(n) for n in range(k))
            + a**k / (math.factorial(k) * (1 - a / k))
        )
        return a**k * empty / (math.factorial(k) * (1 - a / k) ** 2 * mu * k) + 1 / mu

    counts = [station.least_processors for station in stations]
    while sum(counts) < processors:
        gains = [
            s.arrival_rate_per_s * (sojourn(s, k) - sojourn(s, k + 1))
            for s, k in zip(stations, counts, strict=True)
        ]
        counts[gains.index(max(gains))] += 1
    return counts


def bench_assign(rows: Table) -> None:
    video = (Station("extract", 3.3, 1), Station("match", 3.8, 1), Station("aggregate", 0.05, 1))
    for processors, paper_ms in PAPER_MS.items():
        plain = min(best_ms(lambda: straightforward(video, processors), 3) for _ in range(2))  # noqa: B023
        ours = min(best_ms(lambda: assign_processors(video, processors), 50) for _ in range(2))  # noqa: B023
        ratio = plain / ours
        goal = "≥ 200x" if processors == 192 else ""
        verdict = ("reached" if ratio >= 200 else "MISSED") if goal else ""
        rows.add_row(
            f"AssignProcessors, K = {processors}",
            f"{ours:.4f} ms",
            f"{ratio:.0f}x the formulas as printed ({plain:.3g} ms); paper {paper_ms} ms",
            goal,
            verdict,
        )
    rng = random.Random(1)
    many = [Station(f"op{n}", rng.uniform(10, 80), 1.0) for n in range(1000)]
    took = best_ms(lambda: assign_processors(many, 100_000), 5)
    add_goal(rows, "AssignProcessors, 100,000 processors, 1,000 operators", took, 100)


def bench_placement(rows: Table) -> None:
    rng = random.Random(2)
    items = [
        Item(f"i{n}", f"o{n}", Resources(rng.uniform(0.05, 0.6), rng.uniform(50, 500), 5))
        for n in range(10_000)
    ]
    room = [(4.0, 7168.0, 1000.0)] * 1000
    placed = first_fit_decreasing(items, room)  # compiles
    assert sum(j >= 0 for j in placed) > 9_000
    took = best_ms(lambda: first_fit_decreasing(items, room), 10)
    add_goal(rows, "first fit, 10,000 operators on 1,000 hosts", took, 50)
    loads = {f"i{n}": rng.uniform(0.001, 0.02) for n in range(1000)}
    took = best_ms(lambda: select_to_move(loads, 2.5), 50)
    add_goal(rows, "subset sum among 1,000 operators", took, 1)


def big_snapshot(hosts: int = 1000, instances: int = 10_000) -> Snapshot:
    """A fleet in which every tenth host is overloaded."""
    rng = random.Random(3)
    capacity = Resources(4, 7168, 1000)
    operators = tuple(
        Operator(f"q{n}", Resources(0.2, 100, 1), max_instances=1) for n in range(instances)
    )
    readings = []
    used = [0.0] * hosts
    for n in range(instances):
        host = n % hosts
        cores = rng.uniform(0.28, 0.4) if host % 10 == 0 else rng.uniform(0.1, 0.3)
        used[host] += cores
        readings.append(
            InstanceReading(f"q{n}-1", f"q{n}", f"host-{host}", load=Resources(cores, 100, 1))
        )
    return Snapshot(
        0.0,
        Topology(operators),
        HostOffer(capacity),
        tuple(Host(f"host-{h}", capacity, utilisation=used[h] / 4) for h in range(hosts)),
        tuple(readings),
        leased_so_far=hosts,
    )


def bench_turn(rows: Table) -> None:
    for name in ("local-threshold", "sarsa"):
        settings = {"violations": 1} if name == "local-threshold" else {}
        policy = create(name, **settings)
        times = []
        moved = 0
        with tempfile.TemporaryDirectory() as folder, Journal(f"{folder}/journal.jsonl") as journal:
            for _ in range(4):
                snapshot = big_snapshot()  # new: nothing is cached yet
                controller = Controller(RecordedWorld([snapshot]), policy, journal)
                start = time.perf_counter()
                turn = controller.step()
                times.append((time.perf_counter() - start) * 1000)
                assert turn.plan is not None, turn.error
                moved = len(turn.plan.reasons)
        what = f"controller turn, 1,000 hosts, 10,000 instances, {name}"
        add_goal(rows, what, min(times), 200, extra=f"{moved} hosts relieved, with journal")


def bench_import(rows: Table) -> None:
    def run(code: str) -> float:
        return best_ms(lambda: subprocess.run([sys.executable, "-c", code], check=True), 7)

    bare = run("pass")
    add_goal(rows, "import tidegate, more than bare Python", run("import tidegate") - bare, 150)


def add_goal(rows: Table, what: str, took_ms: float, goal_ms: float, extra: str = "") -> None:
    verdict = "reached" if took_ms <= goal_ms else "MISSED"
    rows.add_row(what, f"{took_ms:.3g} ms", extra, f"≤ {goal_ms:g} ms", verdict)


def main() -> None:
    rows = Table("what", "best", "compared with", "goal", "", box=None)
    for bench in (bench_assign, bench_placement, bench_turn, bench_import):
        bench(rows)
    Console(width=150).print(rows)


if __name__ == "__main__":
    main()
