"""The main job from beginning to end: cluster, feed, query, autoscaler, and exact books.

An exchange day is compressed into minutes. The parts are started in order and ended in the
opposite one, whatever happens in between; an early end still brings the figures of what was seen.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.apps.audit import Ledger, audit
from tidegate.apps.demo_ticks import SETTINGS, start_ticks
from tidegate.apps.feed import Feed
from tidegate.errors import BackendError
from tidegate.lifecycle import Stop, wait_until
from tidegate.loop.journal import Turn
from tidegate.report.summary import Measured
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.session import session
from tidegate.units import duration_s, finite
from tidegate.workloads import ConstantRate, ExchangeDay, Scaled, Workload

__all__ = ["DayRun", "RunResult", "exchange_day", "run_day"]

QUERY = "ticks"
WINDOW_S = 10
DAY_S = 511 * 60.0
OPENING_SHARE = 0.05
TRICKLE_PER_S = 10.0
"""Until the first batches have compiled the query: no backlog should come of that."""
SETTLED = 10 * TRICKLE_PER_S
CATCH_UP_S = 60.0
"""How much longer a warm-up may take to work off what piled up in it."""


@dataclass(frozen=True)
class DayRun:
    """What to run.

    seconds: for the whole exchange day. warm_up_s: before it, at the rate of the opening, not
    counted; it goes on, for a minute at most, until what piled up is worked off. slo, policy,
    parameters, interval, stabilise, price_per_hour, billing_unit: as for `Autoscaler`. max_hosts:
    hosts at most, with `slots` task slots and memory_mb of heap each. mean_per_s: ticks a second
    over the day. enrich_ms, partitions, trigger_s: as for `start_ticks`.
    journal: where the turns are written; driver_log: where Spark's driver says what it says.
    seed: which day. settings: Spark settings. workload: in place of the exchange day.
    hosts: at the start. watch_only: leave the executors alone (Spark's own allocation may not).
    """

    journal: Path
    driver_log: Path
    seconds: float = 150.0
    warm_up_s: float = 20.0
    slo: str = "10s"
    policy: str = "drs"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    interval: str = "5s"
    stabilise: str = "20s"
    price_per_hour: float = 1.0
    billing_unit: str = "60s"
    max_hosts: int = 4
    slots: int = 2
    memory_mb: int = 512
    mean_per_s: float = 250.0
    enrich_ms: int = 8
    partitions: int = 8
    trigger_s: float = 2.0
    seed: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    workload: Workload | None = None
    hosts: int = 1
    watch_only: bool = False

    def __post_init__(self) -> None:
        finite(self.seconds, "seconds", above=0)
        finite(self.mean_per_s, "mean_per_s", above=0)
        duration_s(self.slo, "slo")


@dataclass(frozen=True)
class RunResult:
    """What came of it.

    from_s, until_s: the time that counts, Unix seconds. measured: exact figures of its ticks.
    bars, wrong_bars: results in all and those that differ from a computation of the same input.
    interrupted: whether it ended early.
    """

    from_s: float
    until_s: float
    measured: Measured
    bars: int
    wrong_bars: int
    interrupted: bool


def exchange_day(mean_per_s: float, seconds: float, seed: int = 1) -> Workload:
    """An exchange day in so many seconds, with so many ticks a second on average."""
    speed = DAY_S / seconds
    day = ExchangeDay(seed=seed, mean_per_s=mean_per_s)
    return Scaled(day, rate_factor=1 / speed, speed=speed)


def run_day(
    run: DayRun,
    say: Callable[[str], None],
    on_turn: Callable[[Turn], None],
    stop: Stop,
) -> RunResult:
    """Run a day and close the books.

    say: told what is being done. on_turn: told each turn of the autoscaler. stop: set it to end
    early; then `Stopped` is raised when the day had not begun.
    """
    day = run.workload or exchange_day(run.mean_per_s, run.seconds, run.seed)
    moments = np.linspace(0, OPENING_SHARE * run.seconds, 20)
    opening = ConstantRate(float(np.mean([day.rate(t) for t in moments])), 1e9, run.seed + 1)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-day-")))
        source, sink, checkpoint = folder / "ticks", folder / "bars", folder / "checkpoint"
        say("starting the cluster: a master and its first hosts, each a process of its own")
        cluster = stack.enter_context(
            LocalCluster(run.slots, run.memory_mb, run.max_hosts).start(hosts=run.hosts)
        )
        say("starting Spark's driver")
        stop.starting = False  # a driver's JVM that is left half-way would stay behind
        spark = stack.enter_context(
            session(cluster, run.driver_log, SETTINGS | dict(run.settings), "tidegate demo")
        )
        stop.check()
        feed = Feed(source, ConstantRate(TRICKLE_PER_S, 1e9, run.seed), seed=run.seed)
        ledger = Ledger(feed, checkpoint)
        say("starting the query; its first batch compiles it")
        feed.start()
        stack.callback(feed.stop)
        query = start_ticks(
            spark, source, sink, checkpoint, name=QUERY, enrich_ms=run.enrich_ms,
            partitions=run.partitions, window_s=WINDOW_S, trigger_s=run.trigger_s,
        )  # fmt: skip
        stack.callback(_stop_query, query)

        def failed() -> None:
            _complain(query, run.driver_log)

        # What has gathered while the first batch compiled is no load to scale for.
        wait_until(lambda: ledger.batches >= 2 and ledger.lag() < SETTLED, 300.0, stop, failed)
        stop.check()
        scaler = Autoscaler(
            spark, slo=run.slo, policy=run.policy, parameters=run.parameters, min_executors=1,
            max_executors=run.max_hosts, interval=run.interval, stabilise=run.stabilise,
            journal=run.journal, price_per_hour=run.price_per_hour, billing_unit=run.billing_unit,
            cluster=None if run.watch_only else cluster, dry_run=run.watch_only,
            sources={QUERY: ledger.count}, seed=run.seed, on_turn=on_turn,
        )  # fmt: skip
        with scaler:
            say("warming up at the rate of the opening; not counted")
            feed.play(opening)
            wait_until(lambda: False, run.warm_up_s, stop, failed)
            # What piled up while the first hosts started is not the day's either.
            usual = opening.rate(0.0) * run.trigger_s
            wait_until(lambda: ledger.lag() <= usual, CATCH_UP_S, stop, failed)
            stop.check()
            from_s = feed.play(day)
            what = "an exchange day" if run.workload is None else "the traffic"
            say(f"{what} in {run.seconds:.0f} s")
            wait_until(lambda: False, run.seconds, stop, failed)
            interrupted = stop.is_set()
            feed.stop()
            until_s = time.time()
            say("the market has closed: working off what is left")
            wait_until(lambda: ledger.lag() == 0, 20.0 if interrupted else 120.0, None, failed)
        if not interrupted:
            say("closing the books: the last windows, then a computation of the same input")
            # Two batches: one reads the closing tick, the next lets out what it has closed.
            feed.close_windows()
            end_s = ledger.watermark_s
            wait_until(lambda: _watermark(ledger) > end_s + 600, 60.0, stop, failed)
        _stop_query(query)
        return _result(run, ledger, source, sink, from_s, until_s, interrupted)


def _result(
    run: DayRun,
    ledger: Ledger,
    source: Path,
    sink: Path,
    from_s: float,
    until_s: float,
    interrupted: bool,
) -> RunResult:
    slo_s = duration_s(run.slo, "slo")
    latencies, waiting = ledger.latencies(from_s, until_s)
    checked = audit(source, sink, ledger, WINDOW_S)
    p50_s, p95_s, p99_s = (
        (float(value) for value in np.percentile(latencies, [50, 95, 99]))
        if len(latencies)
        else (None, None, None)
    )
    measured = Measured(
        items=len(latencies) + waiting,
        # What was not done at all by the end is late as well.
        late=int(np.count_nonzero(latencies > slo_s)) + waiting,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        # Without a window that has closed there was nothing to compare.
        lost=checked.lost if checked.bars else None,
        repeated=checked.repeated if checked.bars else None,
    )
    return RunResult(from_s, until_s, measured, checked.bars, checked.wrong_bars, interrupted)


def _watermark(ledger: Ledger) -> float:
    ledger.update()
    return ledger.watermark_s


def _complain(query: Any, log: Path) -> None:
    """BackendError when the query has failed."""
    error = query.exception()
    if error is not None:
        lines = str(error).strip().splitlines()
        raise BackendError(f"the query has failed: {lines[0]}; see {log}")


def _stop_query(query: Any) -> None:
    with contextlib.suppress(Exception):  # it may have ended, and its JVM with it
        query.stop()
