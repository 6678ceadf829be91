"""Benchmark of sweeps: Spark compared with one process, fluid and item by item.

    python benchmarks/sweep.py                                  # 10,000 fluid days (minutes)
    python benchmarks/sweep.py --days 200 --sample 40 --item-days 4     # small
    python benchmarks/sweep.py --workers        # processor time of a day here and in the workers

A cell is a trading day of 511 minutes with one decision per minute, on hosts of one instance each,
for one of four policies without guards. A sample with the default guards shows what these cost.
Goals on two cores: 10,000 fluid days in under three minutes, and at least
1.8 times the rate of one process. That rate is measured on a sample of the same cells, before and
after Spark. The ratios are meaningful even on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tidegate.codec import to_json
from tidegate.lab.sweep.cell import run_cells
from tidegate.lab.sweep.grid import SweepGrid, grid_from
from tidegate.lab.sweep.spark_run import Sweep, jvm_settings, sweep_state
from tidegate.spark.local.session import session_on

POLICIES = ("static", "ds2", "drs", "adaptive-provisioning")
AIM_DAYS, AIM_S, AIM_RATIO = 10_000, 180.0, 1.8


def grid_of(
    days: int, mode: str, fluid_step: str, guards: bool = False, inflow: str = "expected"
) -> SweepGrid:
    plain: dict[str, Any] = {
        "policies": list(POLICIES),
        "traces": [{"workload": "exchange-day", "options": {"mean_per_s": 100}}],
        "seeds": max(1, days // len(POLICIES)),
        "mode": mode,
        "interval": "60s",
        "slo": "10s",
        "instances_per_host": 1,
        "fluid_step": fluid_step,
        "fluid_inflow": inflow,
        "without_guards": [] if guards else ["all"],
    }
    return grid_from(plain)


def one_process(grid: SweepGrid, sample: int) -> float:
    """Cells per second of this process alone."""
    traces = {name: trace.read() for name, trace in grid.trace.items()}.__getitem__
    cells = [to_json(cell) for _, cell in zip(range(sample), grid.cells(), strict=False)]
    began_s = time.perf_counter()
    failed = [row["error"] for row in run_cells(cells, traces, "") if row["status"] != "done"]
    assert not failed, failed[0]
    return len(cells) / (time.perf_counter() - began_s)


def on_spark(spark: Any, grid: SweepGrid) -> tuple[float, int]:
    """Seconds for the whole grid, and its number of cells."""
    with tempfile.TemporaryDirectory() as folder:
        state = sweep_state(grid, Path(folder))
        began_s = time.perf_counter()
        Sweep(spark, grid, Path(folder)).run(state)
        took_s = time.perf_counter() - began_s
        after = sweep_state(grid, Path(folder))
    assert not after.todo and not after.failed, f"{after.failed} cells failed"
    return took_s, len(state.todo)


def compare(spark: Any, name: str, grid: SweepGrid, sample: int) -> None:
    before, java_s = one_process(grid, sample), jvm_s(spark)
    took_s, cells = on_spark(spark, grid)
    java_ms = (jvm_s(spark) - java_s) / cells * 1e3
    after = one_process(grid, sample)
    alone = (before + after) / 2
    rate = cells / took_s
    print(
        f"{name:12} {cells:6} days in {took_s:7.1f} s: {rate:6.1f}/s on Spark, {alone:6.1f}/s in "
        f"one process ({before:.1f} before, {after:.1f} after): {rate / alone:.2f} times; "
        f"{java_ms:.1f} ms of processor time of the JVM for a day",
        flush=True,
    )
    if name == "fluid":
        print(
            f"{'':12} {AIM_DAYS} days take {AIM_DAYS / rate:.0f} s at that rate; the goals on two "
            f"cores are {AIM_S:.0f} s and {AIM_RATIO} times",
            flush=True,
        )


def jvm_s(spark: Any) -> float:
    """Processor time of the driver's JVM so far, in seconds, as Linux counts it."""
    fields = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat").read_text().rpartition(")")
    user, system = fields[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def day_ms(cells: list[str], traces: dict[str, Any]) -> float:
    """Processor time of a cell in this process, in milliseconds."""
    start = time.process_time()
    rows = list(run_cells(cells, traces.__getitem__, ""))
    assert all(row["status"] == "done" for row in rows)
    return (time.process_time() - start) / len(cells) * 1e3


def compare_workers(spark: Any, fluid_step: str, rounds: int = 4, days: int = 12) -> None:
    """The same cells in this process and in each worker, task after task."""
    grid = grid_of(400, "fluid", fluid_step)
    traces = {name: trace.read() for name, trace in grid.trace.items()}
    cells = [to_json(cell) for _, cell in zip(range(days), grid.cells(), strict=False)]
    cores = spark.sparkContext.defaultParallelism

    def timed(parts: Any) -> Any:
        return (day_ms(part, traces) for part in parts)

    day_ms(cells, traces)
    for task in range(1, rounds + 1):
        here = day_ms(cells, traces)
        found = (
            spark.sparkContext.parallelize([cells] * cores, cores).mapPartitions(timed).collect()
        )
        shown = ", ".join(f"{ms:.1f}" for ms in found)
        print(f"task {task}: {here:.1f} ms a day here, {shown} ms in the workers", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--days", type=int, default=AIM_DAYS, help="fluid days")
    parser.add_argument("--item-days", type=int, default=40, help="days item by item")
    parser.add_argument("--sample", type=int, default=400, help="fluid days in one process")
    parser.add_argument("--fluid-step", default="1s", help="time step of the fluid mode")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--usual-jvm", action="store_true", help="a JVM with Spark's own options")
    parser.add_argument("--workers", action="store_true", help="only compare the workers")
    args = parser.parse_args()
    print(f"{args.master} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if not args.usual_jvm:
        settings |= jvm_settings(args.master)
    began_s = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        session_on(args.master, Path(folder) / "driver.log", settings, "sweep benchmark") as spark,
    ):
        print(f"Spark started after {time.perf_counter() - began_s:.1f} s")
        if args.workers:
            spark.sparkContext.pythonExec = sys.executable
            compare_workers(spark, args.fluid_step)
            return
        warm = grid_of(8 * spark.sparkContext.defaultParallelism, "fluid", args.fluid_step)
        took_s, _ = on_spark(spark, warm)
        print(f"the first cells, imports included, took {took_s:.1f} s")
        compare(spark, "fluid", grid_of(args.days, "fluid", args.fluid_step), args.sample)
        sample = max(8, args.sample // 4)
        bare = one_process(grid_of(args.days, "fluid", args.fluid_step), sample)
        full = one_process(grid_of(args.days, "fluid", args.fluid_step, guards=True), sample)
        print(f"{'':12} with the default guards, a day takes {bare / full:.2f} times as long")
        if args.item_days:
            grid = grid_of(args.item_days, "item", args.fluid_step)
            compare(spark, "item", grid, min(args.item_days, 8))


if __name__ == "__main__":
    main()
