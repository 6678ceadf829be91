"""How long the laboratory takes: the table of docs/measured/speed.md.

    python benchmarks/speed.py            # prints the tables, some minutes
    python benchmarks/speed.py --write    # and writes them into the page

Times are processor time of one thread, the best of several rounds, except where *elapsed* is said.
Compilation is excluded, as it is cached on disk.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from decisions import big_snapshot
from sweep import grid_of, one_process

from simulation import OFFER, RUN_S, Stepwise, visp_run, visp_topology
from tidegate.codec import to_json
from tidegate.lab.backtest import backtest, bound_of
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal, read_journal
from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import available, create
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.simulation import CloudSettings, FluidCloud, Poisson, SimulatedCloud
from tidegate.simulation.scenario import Scenario
from tidegate.testing.turns import large_turn
from tidegate.testing.worlds import RecordedWorld
from tidegate.workloads import ExchangeDay, RateTrace

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "speed.md"


def best_s(do: Callable[[], object], rounds: int = 5) -> float:
    """The shortest processor time of several calls, after one that does not count."""
    do()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        do()
        times.append(time.process_time() - start)
    return min(times)


def elapsed_s(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


# --- what is measured ----------------------------------------------------------------------------


def visp_s(kind: type[SimulatedCloud]) -> float:
    settings = CloudSettings(arrival_chunk_s=600.0)
    build = partial(kind, visp_topology(), OFFER, Stepwise(), seed=1, settings=settings)
    return best_s(lambda: visp_run(build(), QueueThreshold(), RUN_S))


def exchange_day() -> Scenario:
    return ScenarioOptions(slo_s=2.0).build(ExchangeDay(seed=1, mean_per_s=10))


def many_days(days: float) -> Scenario:
    """Rates every five minutes, with a peak each day."""
    times = np.arange(0, days * 86_400, 300.0)
    rates = 2 + 8 * np.maximum(0, np.sin(times / 86_400 * 2 * math.pi)) ** 2
    rates *= np.random.default_rng(1).lognormal(0, 0.3, len(times))
    return ScenarioOptions(slo_s=2.0).build(RateTrace(times, rates, seed=1))


def turn_s(hosts: int, instances: int, rounds: int = 4) -> float:
    """A turn of a controller with a journal; the snapshot is new each time, as in a live loop."""
    policy, times = create("local-threshold", violations=1), []
    with tempfile.TemporaryDirectory() as folder, Journal(f"{folder}/j.jsonl") as journal:
        for _ in range(rounds):
            world = RecordedWorld([big_snapshot(hosts, instances)])
            controller = Controller(world, policy, journal)
            start = time.perf_counter()
            controller.step()
            times.append(time.perf_counter() - start)
    return min(times)


def journal_line() -> tuple[int, float, float]:
    """Bytes of a full turn of 50 executors, bytes of a line on average, and seconds to read one."""
    turns = [large_turn(number) for number in range(1, 201)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        with Journal(path) as journal:
            for turn in turns:
                journal.write(turn)
        start = time.process_time()
        assert list(read_journal(path)) == turns
        took = (time.process_time() - start) / len(turns)
        return len(to_json(turns[0], defaults=False)), path.stat().st_size / len(turns), took


def rows() -> list[tuple[str, str, str]]:
    """What, measured, aim."""
    cores = len(os.sched_getaffinity(0))
    day, names = exchange_day(), list(available())
    backtest(day, names, fluid=False)  # compiles
    bound_s = best_s(lambda: bound_of(day), 2)
    apart_s = elapsed_s(lambda: backtest(day, names, processes=cores))
    full, line, read_s = journal_line()
    return [
        (
            "VISP, 120 min, items, with monitoring and the real controller",
            f"{visp_s(SimulatedCloud) * 1e3:.0f} ms",
            "40 ms",
        ),
        ("the same, fluid", f"{visp_s(FluidCloud) * 1e3:.0f} ms", "12 ms"),
        (
            "fluid trading day, a decision a minute",
            f"{1e3 / one_process(grid_of(400, 'fluid', '1s'), 48):.0f} ms",
            "12 ms",
        ),
        (
            f"backtest of a simulated exchange day, {len(names)} policies with guards, "
            f"{cores} processes, elapsed",
            f"{apart_s:.1f} s",
            "6 s, with the bound",
        ),
        ("the bound of that day", f"{bound_s:.2f} s", ""),
        (
            "the bound of 55 days of five-minute rates",
            f"{best_s(lambda: bound_of(many_days(55)), 1):.1f} s",
            "",
        ),
        (
            "controller turn, journalled: 1,000 hosts and 10,000 instances, elapsed",
            f"{turn_s(1_000, 10_000) * 1e3:.0f} ms",
            "25 ms",
        ),
        (
            "the same, 10,000 hosts and 100,000 instances",
            f"{turn_s(10_000, 100_000, 3) * 1e3:.0f} ms",
            "400 ms",
        ),
        (
            "a journal line at 50 executors of 4 slots, in full / on average",
            f"{full / 1e3:.1f} / {line / 1e3:.1f} kB",
            "4 kB",
        ),
        ("reading such a line", f"{read_s * 1e3:.1f} ms", ""),
    ]


# --- how cost grows ------------------------------------------------------------------------------


def items_s(rate: float) -> float:
    topology = Topology(
        (Operator("work", Resources(0.01), 0.001),), (Source("in"),), (Edge("in", "work"),)
    )

    def run() -> None:
        world = SimulatedCloud(topology, HostOffer(Resources(100)), Poisson({"in": rate}), seed=1)
        visp_run(world, QueueThreshold(), 600.0)

    return best_s(run, 3)


def operators_s(count: float) -> float:
    names = [f"o{n}" for n in range(int(count))]
    topology = Topology(
        tuple(Operator(name, Resources(0.1), 0.01) for name in names),
        (Source("in"),),
        tuple(Edge(a, b) for a, b in zip(["in", *names], names, strict=False)),
    )

    def run() -> None:
        world = FluidCloud(topology, HostOffer(Resources(100)), Poisson({"in": 50.0}), seed=1)
        visp_run(world, QueueThreshold(), 3600.0)

    return best_s(run, 3)


GROWTH: list[tuple[str, str, Callable[[float], float], tuple[float, ...]]] = [
    ("items a second, item by item, ten minutes", "items/s", items_s, (100, 1_000, 10_000)),
    ("operators in a row, fluid, an hour", "operators", operators_s, (1, 8, 64)),
    (
        "hosts of ten instances, a controller turn",
        "hosts",
        lambda n: turn_s(int(n), int(10 * n), 3),
        (10, 100, 1_000),
    ),
    (
        "days of five-minute rates, the bound",
        "days",
        lambda n: best_s(lambda: bound_of(many_days(n)), 1),
        (2, 10, 50),
    ),
]


def growth() -> list[tuple[str, str, str]]:
    """What grows, times, and the exponent of the growth from the middle to the largest."""
    found = []
    for what, unit, measure, sizes in GROWTH:
        times = [measure(size) for size in sizes]
        exponent = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
        shown = ", ".join(
            f"{size:,g} {unit}: {took * 1e3:.3g} ms"
            for size, took in zip(sizes, times, strict=True)
        )
        found.append((what, shown, f"{exponent:.2f}"))
    return found


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--write", action="store_true", help="write docs/measured/speed.md")
    given = reader.parse_args()
    lines = ["| work | measured | aim |", "|---|---:|---:|"]
    lines += [f"| {what} | {took} | {aim} |" for what, took, aim in rows()]
    lines += ["", "| what grows | times | exponent |", "|---|---|---:|"]
    lines += [f"| {what} | {shown} | {exponent} |" for what, shown, exponent in growth()]
    table = "\n".join(lines)
    print(table)
    if given.write:
        before, _, rest = PAGE.read_text().partition("<!-- speed -->\n")
        _, _, after = rest.partition("<!-- end -->")
        PAGE.write_text(f"{before}<!-- speed -->\n{table}\n<!-- end -->{after}")


if __name__ == "__main__":
    main()
