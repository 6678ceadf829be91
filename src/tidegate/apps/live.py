"""An application, live: cluster, feed, topology, autoscaler, and in the end the reference.

The parts are started in order and ended in the opposite one, whatever happens in between; an early
end still brings the figures of what was seen, and compares what has come out with the reference.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.apps.application import Application, Outcome, settle
from tidegate.apps.feed import PacedFeed, TopicFeed
from tidegate.errors import BackendError, InputError
from tidegate.lifecycle import Stop, wait_until
from tidegate.loop.journal import Turn
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model.topology import Topology
from tidegate.policies.base import Situation
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.session import session
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.locations import within
from tidegate.units import duration_s, finite
from tidegate.workloads import ConstantRate, Sum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.streams.topic import Topic
    from tidegate.spark.streams.topology import RunningTopology, StreamTopology

__all__ = [
    "Attach", "LiveResult", "LiveRun", "check_parts", "close_books", "counts_of", "known_times",
    "run_live", "start", "start_on_cluster",
]  # fmt: skip

Attach = Callable[[Autoscaler], AbstractContextManager[Any]]
"""Something that accompanies the autoscaler of a run, such as a dashboard."""

TRICKLE_PER_S = 10.0
"""At most, and about a tenth of the rate, until the first batches have compiled the queries: no
backlog should come of that."""
SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    # Which batch held which rows is read in the end, of the whole run.
    "spark.sql.streaming.minBatchesToRetain": "100000",
    # As in `ticks.SETTINGS`: a run of minutes ends before a second compiler has paid.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True)
class LiveRun:
    """What to run.

    application; out: folder for journal, logs, results and, in `data`, topics and checkpoints.
    rate: times the application's own rates. seconds: how long; warm_up_s: before, not counted.
    policy, parameters, guards, interval, stabilise, price_per_hour, billing_unit, dry_run: as for
    `Autoscaler`; slo: the application's own by default. topology: with service times that are known
    before anything was measured (`tidegate profile`).
    hosts: at the start, max_hosts: at most, with `slots` task slots and memory_mb of heap each.
    bad: share of bad rows that is mixed in. seed: of everything that is drawn.
    trigger_s: seconds between two batches of an operator, at least.
    topics: ``kafka://host:port[/prefix]``, with topics of this run's own there; None: files.
    """

    application: Application
    out: Path
    rate: float = 1.0
    seconds: float = 120.0
    warm_up_s: float = 15.0
    slo: str | None = None
    policy: str = "drs"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Any] = field(default_factory=dict)
    topology: Topology | None = None
    interval: str = "5s"
    stabilise: str = "20s"
    price_per_hour: float = 1.0
    billing_unit: str = "60s"
    dry_run: bool = False
    hosts: int = 1
    max_hosts: int = 3
    slots: int = 2
    memory_mb: int = 512
    bad: float = 0.0
    seed: int = 1
    trigger_s: float = 1.0
    topics: str | None = None

    def __post_init__(self) -> None:
        finite(self.rate, "rate", above=0)
        finite(self.seconds, "seconds", above=0)
        finite(self.bad, "bad", low=0, high=1)
        if self.bad and self.application.spoil is None:
            remedy = f"{self.application.name} has no bad rows to mix in"
            raise InputError("bad", self.bad, "0", remedy)
        if self.topics is not None:
            within(self.topics, "run")  # complains of what is no address
        # So does this, of wrong settings, long before there is an autoscaler.
        options = StackOptions(
            self.parameters,
            self.guards,
            max_hosts=self.max_hosts,
            stabilise_s=duration_s(self.stabilise, "stabilise"),
        )
        build_stack(self.policy, Situation(self.slo_s), options)

    @property
    def slo_s(self) -> float:
        """The latency wanted, seconds."""
        return duration_s(self.slo or self.application.slo, "slo")

    @property
    def journal(self) -> Path:
        """One line a turn."""
        return self.out / "journal.jsonl"

    @property
    def driver_log(self) -> Path:
        """What Spark's driver says."""
        return self.out / "driver.log"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of its session."""
        wanted = SETTINGS | dict(self.application.settings)
        if self.topics is not None:
            from tidegate.spark.local.kafka_jars import connector_jars

            wanted["spark.jars"] = connector_jars()
        return wanted

    def workload(self) -> Sum:
        """The input of the whole run."""
        shape = self.application.shape
        rates = {s: self.rate * r for s, r in self.application.rates_per_s.items()}
        return Sum(tuple(shape(s, rate, self.seconds, self.seed) for s, rate in rates.items()))

    @property
    def rates_per_s(self) -> dict[str, float]:
        """Items a second of each source over the whole run."""
        counts = self.workload().expected(np.array([0.0, self.seconds]))
        return {source: float(count[0]) / self.seconds for source, count in counts.items()}

    def steady(self, trickle: bool = False) -> Sum:
        """Every source at its mean rate, or a trickle of it, without an end."""
        rates = self.rates_per_s
        if trickle:
            few = {source: max(1.0, min(TRICKLE_PER_S, r / 10)) for source, r in rates.items()}
            rates = {source: min(rate, few[source]) for source, rate in rates.items()}
        return Sum(
            tuple(
                ConstantRate(rate, 1e9, seed=self.seed + 1, source=source)
                for source, rate in rates.items()
            )
        )


@dataclass(frozen=True)
class LiveResult:
    """What came of it.

    from_s, until_s: the time that counts, Unix seconds. counts: by operator, of the whole run.
    items: of all sources that came in that time; seconds: until the last of them was done.
    outcome: beside the reference, None when something was left undone. account: of a dry run.
    """

    from_s: float
    until_s: float
    items: int
    seconds: float
    counts: Mapping[str, Counts]
    outcome: Outcome | None
    account: str = ""
    interrupted: bool = False

    @property
    def dropped(self) -> int:
        """Items that were shed."""
        return sum(count.dropped for count in self.counts.values())

    def books(self, topology: StreamTopology) -> list[tuple[str, int, int, int, int, int]]:
        """By operator: name, items that came, shed, set aside, worked on, and rows sent on.

        What came is what was shed, set aside and worked on. Rows that an operator sets aside are in
        its topic, and have not come to those that read it.
        """
        rejected = self.outcome.rejected if self.outcome is not None else {}
        aside = {name: sum(reasons.values()) for name, reasons in rejected.items()}
        found = []
        for operator in topology.operators:
            count, bad = self.counts[operator.name], aside.get(operator.name, 0)
            came = count.seen - sum(aside.get(origin, 0) for origin in operator.inputs)
            worked_on = came - count.dropped - bad
            found.append((operator.name, came, count.dropped, bad, worked_on, count.written - bad))
        return found


def known_times(model: Topology, known: Topology | None) -> Topology:
    """The model with service times and ratios that are known, such as from a profile."""
    if known is None:
        return model
    missing = sorted(set(model.by_name) ^ set(known.by_name))
    if missing:
        remedy = "make one with tidegate profile"
        raise InputError("topology", missing, "the application's own operators", remedy)
    ratios = {(e.origin, e.target): e.ratio for e in known.edges}
    return replace(
        model,
        operators=tuple(
            replace(
                operator,
                service_time_s=known.by_name[operator.name].service_time_s,
                service_scv=known.by_name[operator.name].service_scv,
            )
            for operator in model.operators
        ),
        edges=tuple(
            replace(e, ratio=ratios.get((e.origin, e.target), e.ratio)) for e in model.edges
        ),
    )


def run_live(
    run: LiveRun,
    say: Callable[[str], None],
    on_turn: Callable[[Turn], None],
    stop: Stop,
    attach: Attach = contextlib.nullcontext,
) -> LiveResult:
    """Run an application under an autoscaler and compare its results with the reference.

    say: told what is being done. on_turn: told each turn. stop: set it to end early; then `Stopped`
    is raised when the run had not begun.
    """
    app = run.application
    with ExitStack() as stack:
        cluster, spark, running = start_on_cluster(run, stack, say, stop)
        feed = TopicFeed(
            app, _sources(running, app), run.steady(trickle=True), bad=run.bad, seed=run.seed
        ).start()
        stack.callback(feed.stop)

        def check() -> None:
            check_parts(running, feed)

        entries = running.model().entries
        # What has gathered while the first batches compiled is no load to scale for.
        caught_up = wait_until(
            lambda: (
                all(running.live_settings.counts(name).seen for name in entries)
                and _waiting(running) < 10 * TRICKLE_PER_S
            ),
            300.0,
            stop,
            check,
        )
        stop.check()
        if not caught_up:
            say(f"{_waiting(running)} items wait after five minutes of a trickle: going on")
        wired = running.for_autoscaler()
        scaler = Autoscaler(
            spark, slo=run.slo_s, policy=run.policy, parameters=run.parameters, guards=run.guards,
            min_executors=1, max_executors=run.max_hosts, interval=run.interval,
            stabilise=run.stabilise, journal=run.journal, price_per_hour=run.price_per_hour,
            billing_unit=run.billing_unit, cluster=None if run.dry_run else cluster,
            dry_run=run.dry_run, seed=run.seed, on_turn=on_turn,
            **wired | {"topology": lambda: known_times(running.model(), run.topology)},
        )  # fmt: skip
        with scaler, attach(scaler):
            if run.warm_up_s:
                say("warming up at the mean rate; not counted")
                feed.play(run.steady())
                wait_until(lambda: False, run.warm_up_s, stop, check)
            stop.check()
            before = feed.rows
            from_s = feed.play(run.workload())
            say(f"{app.name} for {run.seconds:.0f} s")
            wait_until(lambda: False, run.seconds, stop, check)
            interrupted = stop.is_set()
            feed.stop()
            until_s, items = time.time(), feed.rows - before
            say("the input has ended: working off what is left")
            limit_s = 20.0 if interrupted else 120.0
            done = wait_until(lambda: not _waiting(running), limit_s, None, check)
            seconds = time.time() - from_s
        outcome = close_books(run, spark, running, say) if done else None
        counts = counts_of(running)
        return LiveResult(
            from_s, until_s, items, seconds, counts, outcome, scaler.dry_run_report(), interrupted
        )


def start_on_cluster(
    run: LiveRun, stack: ExitStack, say: Callable[[str], None], stop: Stop
) -> tuple[LocalCluster, SparkSession, RunningTopology]:
    """Cluster, session and topology, which end with the stack."""
    app = run.application
    say("starting the cluster: a master and its first hosts, each a process of its own")
    cluster = stack.enter_context(
        LocalCluster(run.slots, run.memory_mb, run.max_hosts).start(hosts=run.hosts)
    )
    say("starting Spark's driver")
    stop.starting = False  # a driver's JVM that is left half-way would stay behind
    spark = stack.enter_context(
        session(cluster, run.driver_log, run.settings, f"tidegate {app.name}")
    )
    running = start(run, spark, stack, run.slots * run.hosts)
    stop.check()
    say(f"started {len(app.topology.operators)} queries; their first batches compile them")
    return cluster, spark, running


def start(run: LiveRun, spark: SparkSession, stack: ExitStack, parallelism: int) -> RunningTopology:
    """The application's topology from its very beginning, which ends with the stack."""
    shutil.rmtree(run.out / "data", ignore_errors=True)
    live_settings = LiveSettings(default_parallelism=parallelism)
    topology = run.application.topology
    where = None if run.topics is None else within(run.topics, f"run{time.time_ns():x}")
    running = topology.start(
        spark, run.out / "data", live_settings, trigger_s=run.trigger_s, topics=where
    )
    stack.callback(_stop, running)
    return running


def close_books(
    run: LiveRun, spark: SparkSession, running: RunningTopology, say: Callable[[str], None]
) -> Outcome:
    """Close the last windows, end the queries, compare, and keep the results."""
    import pyarrow.parquet as pq

    say("closing the last windows, then the reference of the same input")
    for source, table in run.application.closing(time.time()).items():
        running.topics[source].append(table, "closing")
    settle(running, 120.0)
    running.stop()
    outcome = run.application.outcome_of(spark, running)
    for name, table in outcome.results.items():
        (run.out / "results").mkdir(exist_ok=True)
        pq.write_table(table, run.out / "results" / f"{name}.parquet")
    return outcome


def _sources(running: RunningTopology, app: Application) -> dict[str, Topic]:
    return {source: running.topics[source] for source in app.topology.sources}


def counts_of(running: RunningTopology) -> dict[str, Counts]:
    """Exact counts of every operator so far."""
    return {name: running.live_settings.counts(name) for name in running.queries}


def _waiting(running: RunningTopology) -> int:
    return sum(running.lag_items().values())


def check_parts(running: RunningTopology, feed: PacedFeed) -> None:
    """BackendError when an operator or the feed has failed."""
    running.check()
    if feed.error is not None:
        raise BackendError(f"the feed has failed: {feed.error}") from feed.error


def _stop(running: RunningTopology) -> None:
    with contextlib.suppress(Exception):  # it may have ended, and its JVM with it
        running.stop(timeout_s=20.0)
