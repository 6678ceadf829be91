"""The two jobs of `live.py`, the ways to scale them, and one run of a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.apps.application import Application, application
from tidegate.apps.four_queries import QUERIES, SLO, SLO_S
from tidegate.apps.live import LiveResult, LiveRun, run_live
from tidegate.errors import BackendError
from tidegate.lifecycle import Stop
from tidegate.loop.journal import read_journal
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies.base import Situation
from tidegate.report.summary import summarise
from tidegate.simulation import RunReport
from tidegate.simulation.calibrate import batch_scenario, calibrate
from tidegate.simulation.run import run as simulate
from tidegate.units import duration_s
from tidegate.workloads import RateTrace

METHODS = ("static", "spark", "drs", "tide", "btu")
DEFAULT_METHODS = METHODS[:4]
INTERVAL = "5s"
STABILISE = "10s"
NIGHT_PER_S, PEAK_PER_S = 52.0, 520.0
SPECULATION = {
    # The first tasks of a new executor load classes for seconds: let others overtake them.
    "spark.speculation": "true",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.6",
}


@dataclass(frozen=True)
class Job:
    """A job and its cluster.

    Args:
        name: Name in the results and on the command line.
        application: The application with its input of that many seconds.
        slo: Latency targets, as `Autoscaler` takes them.
        slo_s: Latency target of each query, in seconds.
        source: Source of each query.
        seconds: Duration of the input, in seconds.
        hosts: Executors of the static cluster, and at most of the others.
        slots: Task slots of an executor.
        memory_mb: Heap of an executor.
        trigger_s: Seconds between two batches of queries without their own trigger.
        warm_up_s: Seconds before the input that counts.
    """

    name: str
    application: Application
    slo: str
    slo_s: Mapping[str, float]
    source: Mapping[str, str]
    seconds: float
    hosts: int
    slots: int
    memory_mb: int
    trigger_s: float
    warm_up_s: float


def morning(seconds: float, seed: int, source: str = "ticks") -> RateTrace:
    """From a quiet night to a peak ten times as high; half of the time below a third of it."""
    t_s = np.linspace(0.0, seconds, 181)
    wave = ((1 - np.cos(math.pi * t_s / seconds)) / 2) ** 2
    rates = NIGHT_PER_S + (PEAK_PER_S - NIGHT_PER_S) * wave
    return RateTrace(t_s, rates, interpolation="linear", seed=seed, end_s=seconds, source=source)


def four_queries(seconds: float | None, silence_s: float) -> Job:
    """The job with four queries; see `tidegate.apps.four_queries`."""
    return Job(
        "four-queries",
        application("four-queries", silence_s=silence_s),
        slo=SLO,
        slo_s=SLO_S,
        source=QUERIES,
        seconds=seconds or 80.0 + silence_s,
        hosts=4,
        slots=4,
        memory_mb=768,
        trigger_s=3.0,
        warm_up_s=0.0,
    )


def exchange_morning(seconds: float | None, _: float) -> Job:
    """One query with state and a call for each row, and a load that only rises."""
    hosts, slots = 6, 2
    app = application("exchange-day", enrich_ms=16, partitions=hosts * slots)
    app = replace(app, shape=lambda source, mean, s, seed: morning(s, seed, source))
    return Job(
        "morning", app, "10s", {"bars": 10.0}, {"bars": "ticks"}, seconds or 300.0, hosts, slots,
        memory_mb=512, trigger_s=3.0, warm_up_s=30.0,
    )  # fmt: skip


JOBS: dict[str, Callable[[float | None, float], Job]] = {
    "four-queries": four_queries,
    "morning": exchange_morning,
}


def plan(job: Job, method: str, out: Path, seed: int) -> LiveRun:
    """What to run for a method."""
    by_spark = method == "spark"
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(job.hosts),
    }
    app = job.application
    settings = {**app.settings, **SPECULATION, **(dynamic if by_spark else {})}
    return LiveRun(
        replace(app, settings=settings), out, seconds=job.seconds, warm_up_s=job.warm_up_s,
        slo=job.slo, policy="static" if by_spark else method, parameters=_parameters(job, method),
        interval=INTERVAL, stabilise=STABILISE, max_hosts=job.hosts, slots=job.slots,
        memory_mb=job.memory_mb, trigger_s=job.trigger_s, seed=seed,
        hosts=job.hosts if method in ("static", "spark") else 1, dry_run=by_spark,
        # What counts is executor-seconds, and nobody keeps an executor because a minute is paid.
        price_per_hour=0.0,
    )  # fmt: skip


def _parameters(job: Job, method: str) -> dict[str, Any]:
    return {"hosts": job.hosts} if method == "static" else {}


def live(job: Job, method: str, out: Path, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a job live and return its figures, as JSON knows them.

    Executor-seconds are those from the begin of the input until its last row is processed.
    """
    run = plan(job, method, out, seed)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.jsonl"):
        old.unlink()
    last = [0]

    def turn_ended(turn: Any) -> None:
        if turn.snapshot is not None and len(turn.snapshot.hosts) != last[0]:
            last[0] = len(turn.snapshot.hosts)
            say(f"{last[0]} executors")

    result = run_live(run, say, turn_ended, Stop())
    if result.check is None or not result.check.exact:
        raise BackendError(f"the results of {job.name} by {method} are not those of a batch")
    return _record(job, method, run, result, seed)


def _record(job: Job, method: str, run: LiveRun, result: LiveResult, seed: int) -> dict[str, Any]:
    turns = list(read_journal(run.journal))
    ended_s = result.from_s + result.seconds
    summary = summarise(turns, run.slo_s, result.from_s, ended_s, result.measured)
    sizes = [
        len(t.snapshot.hosts)
        for t in turns
        if t.snapshot and result.from_s <= t.snapshot.time_s <= ended_s
    ]
    assert result.measured is not None
    queries = {}
    for query, source in job.source.items():
        measured = result.by_source[source]
        if measured.items:
            queries[query] = {
                "items": measured.items,
                "in_time": 1 - measured.late / measured.items,
                "p50_s": measured.p50_s,
                "p95_s": measured.p95_s,
                "p99_s": measured.p99_s,
            }
    return {
        "job": job.name,
        "method": method,
        "seed": seed,
        "seconds": job.seconds,
        "journal": str(run.journal),
        "took_s": result.seconds,
        "executor_s": summary.executor_s,
        "mean_executors": summary.mean_executors,
        "least_executors": min(sizes),
        "most_executors": max(sizes),
        "first_executors": sizes[0],
        # Changes that were seen, since Spark's own are no decisions of Tidegate.
        "rescales": sum(a != b for a, b in pairwise(sizes)),
        "in_time": 1 - result.measured.late / result.measured.items,
        "p50_s": result.measured.p50_s,
        "p95_s": result.measured.p95_s,
        "p99_s": result.measured.p99_s,
        "lost": result.measured.lost,
        "repeated": result.measured.repeated,
        "queries": queries,
        "left_out": None
        if result.warm_up is None
        else {
            "seconds": result.warm_up.duration_s,
            "items": result.warm_up.items,
            "in_time": result.warm_up.slo_compliance,
            "p95_s": result.warm_up.p95_s,
        },
    }


def simulated(job: Job, fitted: Mapping[str, Any], other: Mapping[str, Any]) -> RunReport:
    """The traffic of another run in the simulator that is calibrated from this run's journal.

    It lasts as long as the other run, whose last rows were processed after the end of the input.
    """
    turns = list(read_journal(Path(fitted["journal"])))
    method, seed = other["method"], other["seed"]
    run = plan(job, method, Path("unused"), seed)
    slo = run.slo_by_query
    targets: Any = {**slo.by_name, "*": slo.default_s} if slo.by_name else slo.default_s
    scenario = batch_scenario(calibrate(turns, method).world, run.workload(), targets)
    scenario = replace(scenario, initial_hosts=other["first_executors"], duration_s=other["took_s"])
    options = StackOptions(
        _parameters(job, method),
        max_hosts=job.hosts,
        stabilise_s=duration_s(STABILISE, "stabilise"),
    )
    policy = build_stack(method, Situation(slo.largest_s), options)
    return simulate(
        scenario.world(policy.style, seed),
        policy,
        duration_s=other["took_s"],
        interval_s=duration_s(INTERVAL, "interval"),
        seed=seed,
    )
