"""How long the laboratory takes: the tables of docs/measured/speed.md.

    python benchmarks/speed.py            # prints the tables, some minutes
    python benchmarks/speed.py --write    # and writes them into the page
    python benchmarks/speed.py --only visp,day --again

Each row is kept in out/speed as soon as it is measured. A run that was interrupted goes on where it
was; rows of other code are measured again, and all rows with --again.

Times are processor time of one thread, the best of several rounds, except where *elapsed* is said.
Compilation is excluded, as it is cached on disk, except in the row about it. Where a row names
SimPy, both engines ran in the same process, one after the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from decisions import big_snapshot
from loglog import loglog
from peers import SimPyEngine, tandem_simpy
from rows import Measured, NotMeasurableError, Row, measure, replace_between
from sweep import grid_of, on_spark, one_process

from simulation import OFFER, RUN_S, Stepwise, tandem_cloud, visp_run, visp_topology
from tidegate.codec import to_json
from tidegate.dashboard.journals import WatchedJournal
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

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "measured" / "speed.md"
PICTURE = ROOT / "docs" / "img" / "speed.svg"
KEPT = ROOT / "out" / "speed"
CORES = len(os.sched_getaffinity(0))
SPARK_DAYS, SPARK_ROUNDS = 2400, 3
"""Fluid days of the sweep on Spark, and how often; 10,000 take minutes more, by the same code."""
LONG_DAYS = 55
LONG_SHARE = 20
"""The long trace is measured over this part of its days."""
WEEK_TURNS = 60_480
"""Turns of a week, one every ten seconds."""


def best_s(do: Callable[[], object], rounds: int = 5) -> float:
    """The shortest processor time of several calls, after one that does not count."""
    do()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        do()
        times.append(time.process_time() - start)
    return min(times)


def once_s(do: Callable[[], object]) -> float:
    """The processor time of one call."""
    start = time.process_time()
    do()
    return time.process_time() - start


def elapsed_s(do: Callable[[], object]) -> tuple[float, float]:
    """Seconds that passed during a call, and processor time of this process and its children."""
    start, before = time.perf_counter(), _processor_s()
    do()
    took = time.perf_counter() - start
    while multiprocessing.active_children():  # their time is known when they have ended
        time.sleep(0.05)
    return took, _processor_s() - before


def _processor_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


# --- simulations ---------------------------------------------------------------------------------


def visp_s(kind: type[SimulatedCloud]) -> float:
    return best_s(_visp(kind))


def _visp(kind: type[SimulatedCloud], **more: Any) -> Callable[[], object]:
    settings = CloudSettings(arrival_chunk_s=600.0)
    build = partial(kind, visp_topology(), OFFER, Stepwise(), seed=1, settings=settings, **more)
    return lambda: visp_run(build(), QueueThreshold(), RUN_S)


def visp_items() -> Measured:
    before = visp_s(SimulatedCloud)
    simpy = once_s(_visp(SimulatedCloud, engine=SimPyEngine))
    took = min(before, visp_s(SimulatedCloud))
    return Measured(f"{took * 1e3:.0f} ms, {simpy / took:.0f} × SimPy", took <= 0.040)


def visp_fluid() -> Measured:
    took, items = visp_s(FluidCloud), visp_s(SimulatedCloud)
    return Measured(f"{took * 1e3:.0f} ms, {items / took:.1f} × items", took <= 0.012)


def tandem() -> Measured:
    """Customers a second in the whole simulated cloud, over those of SimPy."""
    many, few = 1_000_000, 100_000
    ours = best_s(partial(tandem_cloud, many, 1), 2) / many
    simpy = once_s(partial(tandem_simpy, few, 1)) / few
    ours = min(ours, best_s(partial(tandem_cloud, many, 1), 2) / many)
    return Measured(f"{simpy / ours:.0f} × SimPy", simpy / ours >= 400)


def fluid_day() -> Measured:
    def day_s(rounds: int, **more: Any) -> float:
        grid = grid_of(400, "fluid", "1s", **more)
        return best_s(lambda: one_process(grid, 24), rounds) / 24

    took, guarded, drawn = day_s(3), day_s(2, guards=True), day_s(2, inflow="drawn")
    shown = (
        f"{took * 1e3:.0f} ms; with the default guards {guarded * 1e3:.0f} ms; "
        f"with the items of each step, 100 a second, {drawn * 1e3:.0f} ms"
    )
    return Measured(shown, took <= 0.012)


@cache
def _swept() -> list[tuple[float, float]]:
    """Fluid days a second on Spark with two cores, and in one process before and after; rounds."""
    from tidegate.lab.sweep.spark_run import jvm_settings
    from tidegate.spark.local.session import session_on

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise NotMeasurableError("Java is not installed")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    quiet |= jvm_settings("local")
    grid, found = grid_of(SPARK_DAYS, "fluid", "1s"), []
    with (
        tempfile.TemporaryDirectory() as folder,
        session_on("local[2]", Path(folder) / "driver.log", quiet, "speed") as spark,
    ):
        on_spark(spark, grid_of(16, "fluid", "1s"))
        alone = one_process(grid, 48)
        for _ in range(SPARK_ROUNDS):
            before, (took_s, cells) = alone, on_spark(spark, grid)
            alone = one_process(grid, 48)
            found.append((cells / took_s, (before + alone) / 2))
    return found


def spark_days() -> Measured:
    took = 10_000 / statistics.fmean(on_two for on_two, _ in _swept())
    return Measured(
        f"{took:.0f} s at the rate of {SPARK_ROUNDS} times {SPARK_DAYS} days", took <= 90
    )


def spark_ratio() -> Measured:
    """The mean of several rounds: single ones differ by a third on a shared machine."""
    ratios = [on_two / alone for on_two, alone in _swept()]
    mean = statistics.fmean(ratios)
    shown = f"{mean:.2f} × ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
    return Measured(shown, mean >= 1.9)


# --- backtests -----------------------------------------------------------------------------------


@cache
def exchange_day() -> Scenario:
    return ScenarioOptions(slo_s=2.0).build(ExchangeDay(seed=1, mean_per_s=10))


def many_days(days: float) -> Scenario:
    """Rates every five minutes, with a peak each day."""
    times = np.arange(0, days * 86_400, 300.0)
    rates = 2 + 8 * np.maximum(0, np.sin(times / 86_400 * 2 * math.pi)) ** 2
    rates *= np.random.default_rng(1).lognormal(0, 0.3, len(times))
    return ScenarioOptions(slo_s=2.0).build(RateTrace(times, rates, seed=1))


def day_backtest() -> Measured:
    day = exchange_day()
    # The processes of the pool find what this compiles in the cache.
    backtest(day, ["static"])

    def whole() -> None:
        backtest(day, list(available()), bound=bound_of(day), processes=CORES)

    took, busy = elapsed_s(whole)
    return Measured(f"{took:.1f} s, {busy:.1f} s of processor time", took <= 6)


def day_bound() -> Measured:
    # A new workload each time, as one keeps the items that it has drawn.
    return Measured(f"{best_s(lambda: bound_of(exchange_day.__wrapped__()), 2):.2f} s")


def long_backtest() -> Measured:
    def run(days: float) -> tuple[float, float]:
        names = list(available())
        return elapsed_s(lambda: backtest(many_days(days), names, fluid=True, processes=CORES))

    backtest(exchange_day(), ["static"], fluid=True)
    # The processes start once, however long the trace is.
    start, part = run(LONG_DAYS / 1_000), run(LONG_DAYS / LONG_SHARE)
    took, busy = (a + LONG_SHARE * (b - a) for a, b in zip(start, part, strict=True))
    shown = f"{took:.0f} s, {busy:.0f} s of processor time"
    return Measured(f"{shown}, {LONG_SHARE} times {LONG_DAYS / LONG_SHARE:g} days", took <= 60)


def long_bound() -> Measured:
    return Measured(f"{best_s(lambda: bound_of(many_days(LONG_DAYS)), 1):.1f} s")


def first_backtest() -> Measured:
    """`tidegate backtest` after `make setup`, which compiles the kernels, and after pip alone.

    The bytecode of all modules is there, as after an installation, also where Python is told not
    to write any.
    """
    code = [sys.executable, "-m", "compileall", "-q", str(ROOT / "src" / "tidegate")]
    subprocess.run(code, check=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "day.csv"
        rates = [f"{60 * minute},{20 + 10 * math.sin(minute / 30):.3f}" for minute in range(120)]
        trace.write_text("\n".join(["t_s,rate", *rates, ""]))
        setup = ["tidegate.simulation.kernels.ahead"]
        backtest = ["tidegate", "backtest", str(trace), "--slo", "2s"]
        backtest += ["--policies", "drs,static", "--json"]

        def run_s(words: Sequence[str], cache: str) -> float:
            environment = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/{cache}"}
            command = [sys.executable, "-m", *words]
            return elapsed_s(
                lambda: subprocess.run(
                    command, env=environment, check=True, stdout=subprocess.DEVNULL
                )
            )[0]

        compiling, first = run_s(setup, "setup"), run_s(backtest, "setup")
        alone, again = run_s(backtest, "pip"), run_s(backtest, "pip")
    shown = (
        f"{first:.1f} s after `make setup`, which compiles for {compiling:.1f} s; "
        f"{alone:.1f} s after pip alone, then {again:.1f} s"
    )
    return Measured(shown, first <= 5)


# --- turns and journals --------------------------------------------------------------------------


def turn_s(hosts: int, instances: int, rounds: int = 4) -> float:
    """A turn of a controller with a journal; the snapshot is new each time, as in a live loop."""
    policy, times, written = create("local-threshold", violations=1), [], 0
    with tempfile.TemporaryDirectory() as folder, Journal(f"{folder}/j.jsonl", None) as journal:
        for _ in range(rounds):
            world = RecordedWorld([big_snapshot(hosts, instances)])
            controller = Controller(world, policy, journal)
            start = time.perf_counter()
            controller.step()
            times.append(time.perf_counter() - start)
            written += 1
            if journal.path.read_bytes().count(b"\n") < written:
                raise NotMeasurableError("this machine is too busy to write the journal in time")
    return min(times)


def turn() -> Measured:
    took = turn_s(1_000, 10_000)
    return Measured(f"{took * 1e3:.0f} ms", took <= 0.025)


def large_turns() -> Measured:
    """In a separate process, so that its memory is that of the turns."""
    command = [sys.executable, __file__, "--turn", "10000"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise NotMeasurableError("its process failed, perhaps since this machine is too busy")
    found = json.loads(done.stdout)
    shown = f"{found['took_s'] * 1e3:.0f} ms, {found['peak_mb'] / 1e3:.1f} GB"
    return Measured(shown, found["took_s"] <= 0.4 and found["peak_mb"] <= 2_000)


def _say_turn(hosts: int) -> None:
    took_s = turn_s(hosts, 10 * hosts, 3)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"took_s": took_s, "peak_mb": peak_mb}))


def journal_line() -> Measured:
    """Bytes of a full turn of 50 executors, and bytes of a line on average."""
    turns = [large_turn(number) for number in range(1, 201)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        with Journal(path) as journal:
            for one in turns:
                journal.write(one)
        start = time.process_time()
        assert list(read_journal(path)) == turns
        read_s = (time.process_time() - start) / len(turns)
        full, line = len(to_json(turns[0], defaults=False)), path.stat().st_size / len(turns)
    shown = f"{line / 1e3:.1f} kB of {full / 1e3:.1f} kB; {read_s * 1e3:.1f} ms to read"
    return Measured(shown, line <= 4_000)


def dashboard_week() -> Measured:
    """First view and complete reading of a journal of a week, in parts of a thousand turns.

    All parts have the same turns, as it takes minutes to write others.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        with Journal(path) as journal:
            for number in range(1, 1_001):
                journal.write(large_turn(number))
        start = time.process_time()
        short = WatchedJournal(path, "short")
        while short.refresh():
            pass
        whole = (time.process_time() - start) * WEEK_TURNS / 1_000
        for part in range(1, WEEK_TURNS // 1_000 + 1):
            shutil.copy(path, f"{path}.{part:06d}")

        def first_view() -> None:
            watched = WatchedJournal(path, "j")
            watched.refresh()
            seen = watched.about(), watched.series(1_500), watched.turn(watched.rows[-1].index)
            assert seen[2]["number"] == 1_000

        took = best_s(first_view, 2)
    shown = f"{took:.1f} s; all of it after {whole:.0f} s, at the rate of 1,000 turns"
    return Measured(shown, took <= 2)


ROWS = [
    Row("visp", "VISP, 120 min, items, with monitoring and a policy", "40 ms", visp_items),
    Row("visp-fluid", "the same, fluid", "12 ms", visp_fluid),
    Row("tandem", "three stations in a row in the simulated cloud", "400 × SimPy", tandem),
    Row("day", "fluid trading day at its expected rate, a decision a minute", "12 ms", fluid_day),
    Row("spark-days", "10,000 such days on Spark, two cores, elapsed", "90 s", spark_days),
    Row("spark-ratio", "sweep on Spark over one process, two cores", "1.9 ×", spark_ratio),
    Row(
        "backtest",
        f"backtest of an exchange day, all policies, with the bound, {CORES} processes, elapsed",
        "6 s",
        day_backtest,
    ),
    Row("bound", "the bound of that day", "", day_bound),
    Row(
        "backtest-long",
        f"backtest of 55 days at five minutes, all policies, fluid, {CORES} processes, elapsed",
        "60 s",
        long_backtest,
    ),
    Row("bound-long", "the bound of those days", "", long_bound),
    Row("first", "first backtest after installation (compilation), elapsed", "5 s", first_backtest),
    Row(
        "turn", "controller turn, journalled: 1,000 hosts and 10,000 instances, elapsed",
        "25 ms", turn,
    ),
    Row(
        "turn-large", "the same, 10,000 hosts and 100,000 instances, and its memory",
        "400 ms, 2 GB", large_turns,
    ),
    Row("journal", "a journal line at 50 executors of 4 slots", "4 kB", journal_line),
    Row(
        "dashboard",
        "dashboard: first view of a journal of a week at that size, a turn every 10 s",
        "2 s", dashboard_week,
    ),
]  # fmt: skip


BEFORE = {
    "visp": "99–113 ms",
    "visp-fluid": "274–289 ms",
    "tandem": "157 × SimPy",
    "day": "64 ms",
    "spark-days": "372 s",
    "spark-ratio": "1.71 ×",
    "backtest": "27 s",
    "backtest-long": "over 15 min",
    "first": "15 s, then 1.5 s",
    "turn": "47–70 ms",
    "journal": "45 kB",
}
"""What was measured when the aims were set."""


# --- how cost grows ------------------------------------------------------------------------------


def items_s(rate: float) -> float:
    # One instance is busy for a third of the time at any rate, so that no backlog is measured.
    work = Operator("work", Resources(0.01), 0.3 / rate)
    topology = Topology((work,), (Source("in"),), (Edge("in", "work"),))

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


GROWTH: list[tuple[str, str, str, Callable[[float], float], tuple[float, ...]]] = [
    (
        "items",
        "items a second, item by item, ten minutes",
        "items/s",
        items_s,
        (30, 300, 3_000, 30_000),
    ),
    ("operators", "operators in a row, fluid, an hour", "operators", operators_s, (1, 4, 16, 64)),
    (
        "hosts",
        "hosts of ten instances, a controller turn",
        "hosts",
        lambda n: turn_s(int(n), int(10 * n), 3),
        (10, 100, 1_000, 10_000),
    ),
    (
        "days",
        "days of five-minute rates, the bound",
        "days",
        lambda n: best_s(lambda: bound_of(many_days(n)), 1),
        (2, 6, 18, 54),
    ),
]


def grown(unit: str, took: Callable[[float], float], sizes: Sequence[float]) -> Measured:
    """Times by size, and the exponent of the growth from the middle to the largest."""
    times = [took(size) for size in sizes]
    exponent = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
    shown = ", ".join(
        f"{size:,g} {unit}: {seconds * 1e3:.3g} ms"
        for size, seconds in zip(sizes, times, strict=True)
    )
    return Measured(f"{shown} | {exponent:.2f}", points=tuple(zip(sizes, times, strict=True)))


GROWTH_ROWS = [
    Row(f"grows-{key}", work, "", partial(grown, unit, took, sizes))
    for key, work, unit, took, sizes in GROWTH
]


def table(found: dict[str, Measured]) -> str:
    """Both tables, with the rows that were measured."""
    marks = {True: "yes", False: "no", None: ""}
    lines = ["| work | before | now | aim | reached |", "|---|---:|---:|---:|---|"]
    for row in ROWS:
        if row.key in found:
            done = found[row.key]
            cells = (row.work, BEFORE.get(row.key, ""), done.shown, row.aim, marks[done.reached])
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| what grows | times | exponent |", "|---|---|---:|"]
    for row in GROWTH_ROWS:
        if row.key in found:
            done = found[row.key]
            lines.append(f"| {row.work} | {done.shown} |{'' if done.points else ' |'}")
    return "\n".join(lines)


def circumstances(found: dict[str, Measured]) -> str:
    """Where it was measured, and what else ran."""
    loads = sorted(done.load for done in found.values())
    text = (
        f"Measured on {CORES} cores with Python {platform.python_version()}, while "
        f"{loads[0]:g} to {loads[-1]:g} processes wanted to run, the measured one among them"
    )
    busy = loads[-1] > CORES + 1
    return f"{text}{': elapsed times are longer than on a quiet machine' if busy else ''}."


def picture(found: dict[str, Measured]) -> str:
    """How cost grows, a line each."""
    lines = [
        (f"{work.partition(',')[0]}", [(x, y * 1e3) for x, y in found[f"grows-{key}"].points])
        for key, work, *_ in GROWTH
        if found[f"grows-{key}"].points
    ]
    return loglog(lines, "size", "milliseconds")


def _code() -> str:
    """A digest of everything that is measured, and of how."""
    digest = hashlib.sha256()
    for folder in (ROOT / "src" / "tidegate", ROOT / "benchmarks"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--write", action="store_true", help="write docs/measured/speed.md")
    reader.add_argument("--only", default="", help="keys of rows, separated by commas")
    reader.add_argument("--again", action="store_true", help="measure rows that are kept, too")
    reader.add_argument("--turn", type=int, help=argparse.SUPPRESS)
    given = reader.parse_args()
    if given.turn:
        _say_turn(given.turn)
        return
    rows = [*ROWS, *GROWTH_ROWS]
    if given.only:
        wanted = given.only.split(",")
        if unknown := set(wanted) - {row.key for row in rows}:
            known = ", ".join(row.key for row in rows)
            reader.error(f"--only: no row {', '.join(sorted(unknown))}; the rows are {known}")
        if given.write:
            reader.error("--write needs all rows: leave out --only; kept rows are not repeated")
        rows = [row for row in rows if row.key in wanted]
    began_s = time.perf_counter()
    say = partial(print, flush=True)
    # Spark leaves threads behind, with which the processes of backtests start less quickly.
    rows.sort(key=lambda row: row.key.startswith("spark"))
    found = measure(rows, KEPT, _code(), given.again, say)
    say(f"{time.perf_counter() - began_s:.0f} s in all\n")
    print(table(found))
    if given.write:
        replace_between(PAGE, "speed", f"{circumstances(found)}\n\n{table(found)}")
        PICTURE.write_text(picture(found))


if __name__ == "__main__":
    main()
