"""Tidegate compared with the usual alternatives, live on a Spark cluster, with the same traffic.

    python benchmarks/live.py                     # all modes, six minutes each
    python benchmarks/live.py static drs --seconds 120

The traffic is a morning in five minutes, from a quiet night to a peak ten times as high. Each row
waits for an enrichment call, so a dozen task slots fit on two cores. *Static* always has enough
executors to hold the SLO at the peak. *Spark* is Spark's own dynamic allocation with its defaults.
The other modes are policies of Tidegate. Executor-seconds count an executor from its request to its
end. Latency is exact, by row; lost and repeated rows are counted against a computation of the same
input. What is not counted (the warm-up before the morning, the executors after its end) is in a
second table, with its own figures.

The last table compares the live run with a simulation of the same traffic and policy. The simulator
is calibrated from the journal of the live run.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.apps.application import application
from tidegate.apps.live import LiveResult, LiveRun, run_live
from tidegate.errors import BackendError
from tidegate.lifecycle import Stop
from tidegate.loop.journal import read_journal
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import Snapshot
from tidegate.policies.base import Situation
from tidegate.report.summary import LiveSummary, summarise
from tidegate.simulation import RunReport
from tidegate.simulation.calibrate import batch_scenario, calibrate
from tidegate.simulation.run import run as simulate
from tidegate.units import duration_s
from tidegate.workloads import RateTrace

SLO = "10s"
HOSTS = 6
SLOTS = 2
ENRICH_MS = 16
TRIGGER_S = 3.0
NIGHT_PER_S, PEAK_PER_S = 52.0, 520.0
INTERVAL = "5s"
STABILISE = "10s"
MODES = ("static", "drs", "spark", "btu")
POLICIES: dict[str, dict[str, Any]] = {"static": {"hosts": HOSTS}}
ALL = {
    # The first tasks of a new executor load classes for seconds: let others overtake them.
    "spark.speculation": "true",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.6",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(HOSTS),
}


def morning(seconds: float, seed: int) -> RateTrace:
    """From a quiet night to a peak ten times as high; half of the time below a third of it."""
    t_s = np.linspace(0.0, seconds, 181)
    wave = ((1 - np.cos(math.pi * t_s / seconds)) / 2) ** 2
    rates = NIGHT_PER_S + (PEAK_PER_S - NIGHT_PER_S) * wave
    return RateTrace(t_s, rates, interpolation="linear", seed=seed, end_s=seconds)


def plan(mode: str, seconds: float, out: Path, seed: int) -> LiveRun:
    """What to run for a mode."""
    watched = mode == "spark"
    app = application("exchange-day", enrich_ms=ENRICH_MS, partitions=HOSTS * SLOTS)
    app = replace(
        app,
        shape=lambda source, mean, seconds, seed: replace(morning(seconds, seed), source=source),
        settings={**app.settings, **ALL, **(DYNAMIC if watched else {})},
    )
    return LiveRun(
        app,
        out / mode,
        seconds=seconds,
        warm_up_s=30.0,
        slo=SLO,
        policy="static" if watched else mode,
        parameters=POLICIES.get(mode, {}),
        interval=INTERVAL,
        stabilise=STABILISE,
        max_hosts=HOSTS,
        slots=SLOTS,
        trigger_s=TRIGGER_S,
        seed=seed,
        hosts=HOSTS if mode in ("static", "spark") else 1,
        dry_run=watched,
    )


def live(mode: str, seconds: float, out: Path, seed: int) -> tuple[LiveSummary, LiveResult]:
    """One mode, live."""
    run = plan(mode, seconds, out, seed)
    run.out.mkdir(parents=True, exist_ok=True)
    run.journal.unlink(missing_ok=True)
    began = time.monotonic()
    result = run_live(
        run, lambda text: print(f"  {mode}: {text}", flush=True), lambda _: None, Stop()
    )
    if result.check is None or not result.check.exact:
        raise BackendError(f"the results of {mode} are not those of the reference")
    turns = list(read_journal(run.journal))
    summary = summarise(
        turns,
        duration_s(SLO, "slo"),
        result.from_s,
        result.until_s,
        result.measured,
        result.warm_up,
    )
    if run.dry_run:  # Spark's own changes are not decisions of Tidegate; count them by size
        sizes = [len(t.snapshot.hosts) for t in turns if t.snapshot and in_day(t.snapshot, result)]
        summary = replace(summary, rescales=sum(a != b for a, b in pairwise(sizes)))
    print(f"  {mode}: done in {time.monotonic() - began:.0f} s", flush=True)
    return summary, result


def in_day(snapshot: Snapshot, result: LiveResult) -> bool:
    """Whether a snapshot is from the time that counts."""
    return result.from_s <= snapshot.time_s <= result.until_s


def table(rows: dict[str, tuple[LiveSummary, LiveResult]]) -> str:
    """The comparison, as Markdown."""
    base = rows.get("static")
    lines = [
        "| scaling | executor-seconds | of static | in time | p50 | p95 | p99 | rescales "
        "| lost | repeated |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for mode, (s, _) in rows.items():
        share = f"{s.executor_s / base[0].executor_s:.0%}" if base else "–"
        lines.append(
            f"| {mode} | {s.executor_s:.0f} | {share} | {s.slo_compliance or 0:.2%} | "
            f"{s.p50_s or 0:.2f} s | {s.p95_s or 0:.2f} s | {s.p99_s or 0:.2f} s | {s.rescales} | "
            f"{s.lost} | {s.repeated} |"
        )
    return "\n".join([*lines, "", *left_out(rows)])


def left_out(rows: dict[str, tuple[LiveSummary, LiveResult]]) -> list[str]:
    """What the table does not count, as Markdown: the warm-up, and the time after the input."""
    lines = [
        "Not counted: the warm-up before the morning, and the executors after its end, while the "
        "last rows are processed (these rows count).",
        "",
        "| scaling | part | length | rows | in time | p95 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for mode, (s, _) in rows.items():
        for part in s.left_out:
            share = "–" if part.slo_compliance is None else f"{part.slo_compliance:.2%}"
            p95 = "–" if part.p95_s is None else f"{part.p95_s:.2f} s"
            lines.append(
                f"| {mode} | {part.name} | {part.duration_s:.0f} s | {part.items:.0f} | {share} | "
                f"{p95} |"
            )
    return lines


def simulated(mode: str, seconds: float, out: Path, seed: int, result: LiveResult) -> RunReport:
    """The same traffic and policy in the simulator, calibrated from the live run's journal."""
    turns = list(read_journal(out / mode / "journal.jsonl"))
    slo_s = duration_s(SLO, "slo")
    world = calibrate(turns, mode).world
    scenario = batch_scenario(world, morning(seconds, seed), slo_s)
    opening = next(t.snapshot for t in turns if t.snapshot and t.snapshot.time_s >= result.from_s)
    scenario = replace(scenario, initial_hosts=max(1, len(opening.hosts)), duration_s=seconds)
    options = StackOptions(
        POLICIES.get(mode) or {}, max_hosts=HOSTS, stabilise_s=duration_s(STABILISE, "stabilise")
    )
    policy = build_stack(mode, Situation(slo_s), options)
    return simulate(
        scenario.world(policy.style, seed),
        policy,
        duration_s=seconds,
        interval_s=duration_s(INTERVAL, "interval"),
        seed=seed,
    )


def gap_table(
    rows: dict[str, tuple[LiveSummary, LiveResult]], seconds: float, out: Path, seed: int
) -> str:
    """How far the simulator is from the live run, as Markdown."""
    lines = [
        "| policy | figure | live | simulated | gap |",
        "|---|---|---:|---:|---:|",
    ]
    for mode, (s, result) in rows.items():
        if mode == "spark":
            continue
        report = simulated(mode, seconds, out, seed, result)
        pairs = [
            ("mean executors", s.mean_executors, report.host_seconds / report.duration_s),
            ("p95 latency, s", s.p95_s or math.nan, report.latency_p95_s or math.nan),
            ("in time", s.slo_compliance or 0.0, report.slo_compliance or 0.0),
        ]
        for name, real, model in pairs:
            gap = (model - real) / real if real else math.nan
            lines.append(f"| {mode} | {name} | {real:.3g} | {model:.3g} | {gap:+.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modes", nargs="*", help=f"of {', '.join(MODES)}; default: all")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    options = parser.parse_args()
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"modes are {', '.join(MODES)}, not {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, tuple[LiveSummary, LiveResult]] = {}
    for mode in options.modes or MODES:
        rows[mode] = live(mode, options.seconds, options.out, options.seed)
        print(table(rows), flush=True)
    page = f"{table(rows)}\n\n{gap_table(rows, options.seconds, options.out, options.seed)}\n"
    (options.out / "table.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
