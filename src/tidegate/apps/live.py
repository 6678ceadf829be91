"""A live run of an application: cluster, feed, topology, autoscaler, and the check of the results.

The parts start in order and end in the opposite order, also after an error. A run that is stopped
early still returns its figures and compares its results with the reference.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tidegate.apps.application import Application, ResultCheck, settle
from tidegate.apps.feed import TopicFeed
from tidegate.apps.latency import Taken, figures, latencies_in, processed_s, together
from tidegate.apps.loads import load
from tidegate.errors import BackendError, InputError
from tidegate.lifecycle import Stop, wait_until
from tidegate.loop.journal import Turn
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import SloByQuery
from tidegate.model.topology import Topology
from tidegate.policies import DEFAULT_POLICY
from tidegate.policies.base import Situation
from tidegate.report.summary import LeftOut, Measured
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.session import session
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.locations import within
from tidegate.units import duration_s, finite
from tidegate.workloads import ConstantRate, Sum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.streams.topology import RunningTopology, StreamTopology

__all__ = [
    "WARM_UP", "LiveResult", "LiveRun", "check_parts", "check_results", "close_windows",
    "counts_of", "known_times", "run_live", "start", "start_feed", "start_on_cluster",
]  # fmt: skip

TRICKLE_PER_S = 10.0
"""Rate until the first batches have compiled the queries, at most; it leaves no backlog."""
OPENING_SHARE = 0.05
"""Share of a run that counts as its opening, whose rate is that of the warm-up."""
CATCH_UP_S = 60.0
"""Seconds that a warm-up may last longer, until its backlog is processed."""
WARM_UP = "warm-up"
"""Name of what happened before the input that counts."""
WARMING = "warming up at the rate of the opening, before the input that counts"
USUAL_BACKLOG_S = 3.0
"""Seconds of input that wait or are being processed in an application that keeps up."""
SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    # Which batch held which rows is read at the end, for the whole run.
    "spark.sql.streaming.minBatchesToRetain": "100000",
    # A run of minutes ends before the second compiler pays off: thirty batches took 48 s of CPU
    # time without it and 84 s with it (one run each, local[4], on a busy machine).
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True)
class LiveRun:
    """What to run.

    Args:
        application: The application.
        out: Folder for journal, logs, results and, in `data`, topics and checkpoints.
        rate: Factor on the application's own rates.
        seconds: Duration of the input, in seconds.
        warm_up_s: Seconds before it, at the rate of the opening. They last up to `CATCH_UP_S`
            longer, until all requested executors run and the backlog is processed. They have their
            own journal and their own figures; everything after them counts.
        slo: Latency target, or targets by operator such as ``alerts=2s,30s``; the application's own
            by default.
        policy: As for `Autoscaler`, like the next two.
        parameters: Of the policy.
        guards: More guards.
        topology: With service times that are known in advance, from `tidegate profile`.
        interval: As for `Autoscaler`, like the next four.
        stabilise: Time for which an executor must be unneeded before it is released.
        price_per_hour: Of an executor.
        billing_unit: Of an executor.
        dry_run: Decide, but change nothing.
        hosts: Executors at the start.
        max_hosts: Executors at most.
        slots: Task slots of an executor.
        memory_mb: Heap of an executor.
        bad: Share of bad rows to mix in.
        seed: Random seed.
        load: Name of a load shape, see `LOADS`; None: the application's own.
        trigger_s: Seconds between two batches of an operator, at least.
        topics: ``kafka://host:port[/prefix]``, where the run makes its own topics; None: files.
        buffer_rows: Most rows of a batch that are processed where they enter; None: all of them.
    """

    application: Application
    out: Path
    rate: float = 1.0
    seconds: float = 120.0
    warm_up_s: float = 15.0
    slo: str | None = None
    policy: str = DEFAULT_POLICY
    parameters: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Any] = field(default_factory=dict)
    topology: Topology | None = None
    interval: str = "5s"
    stabilise: str = "20s"
    price_per_hour: float = 1.0
    billing_unit: str = "1s"
    dry_run: bool = False
    hosts: int = 1
    max_hosts: int = 3
    slots: int = 2
    memory_mb: int = 512
    bad: float = 0.0
    seed: int = 1
    load: str | None = None
    trigger_s: float = 1.0
    topics: str | None = None
    buffer_rows: int | None = None

    def __post_init__(self) -> None:
        finite(self.rate, "rate", above=0)
        finite(self.seconds, "seconds", above=0)
        finite(self.bad, "bad", low=0, high=1)
        if self.bad and self.application.spoil is None:
            remedy = f"{self.application.name} has no bad rows to mix in"
            raise InputError("bad", self.bad, "0", remedy)
        if self.load is not None:
            load(self.load)
        if self.topics is not None:
            within(self.topics, "run")  # raises an error unless it is an address
        # So does this, for wrong settings, before anything starts.
        options = StackOptions(
            self.parameters,
            self.guards,
            max_hosts=self.max_hosts,
            stabilise_s=duration_s(self.stabilise, "stabilise"),
        )
        targets = self.slo_by_query
        build_stack(self.policy, Situation(targets.largest_s), options)
        names = self.application.topology.model().by_name
        for name in targets.unknown(names):
            raise InputError(
                "slo", f"{name}=…", "a target for an operator", f"they are {', '.join(names)}"
            )

    @property
    def slo_by_query(self) -> SloByQuery:
        """Latency targets by operator."""
        return SloByQuery.read(self.slo or self.application.slo)

    @property
    def slo_s(self) -> float:
        """Latency target of operators without a separate one, in seconds."""
        return self.slo_by_query.default_s

    @property
    def journal(self) -> Path:
        """The journal, one line per turn."""
        return self.out / "journal.jsonl"

    @property
    def warm_up_journal(self) -> Path:
        """The journal of the warm-up."""
        return self.out / "warm-up.jsonl"

    @property
    def driver_log(self) -> Path:
        """The log of Spark's driver."""
        return self.out / "driver.log"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of the session."""
        wanted = SETTINGS | dict(self.application.settings)
        if self.topics is not None:
            from tidegate.spark.local.kafka_jars import connector_jars

            wanted["spark.jars"] = connector_jars()
        return wanted

    def workload(self) -> Sum:
        """The input of the whole run."""
        shape = self.application.shape if self.load is None else load(self.load)
        rates = {s: self.rate * r for s, r in self.application.rates_per_s.items()}
        return Sum(tuple(shape(s, rate, self.seconds, self.seed) for s, rate in rates.items()))

    @property
    def rates_per_s(self) -> dict[str, float]:
        """Items per second of each source, over the whole run."""
        return self._mean_rates(self.seconds)

    def _mean_rates(self, until_s: float) -> dict[str, float]:
        counts = self.workload().expected(np.array([0.0, until_s]))
        return {source: float(count[0]) / until_s for source, count in counts.items()}

    def steady(self, pace: Literal["none", "trickle", "opening", "mean"] = "mean") -> Sum:
        """Every source at a constant rate without an end.

        pace: nothing at all, a trickle, the rate of the opening, or the mean rate of the run.
        """
        rates = self.rates_per_s
        if pace == "opening":
            rates = self._mean_rates(OPENING_SHARE * self.seconds)
        elif pace == "none":
            rates = dict.fromkeys(rates, 0.0)
        elif pace == "trickle":
            few = {source: max(1.0, min(TRICKLE_PER_S, r / 10)) for source, r in rates.items()}
            rates = {source: min(rate, few[source]) for source, rate in rates.items()}
        return Sum(
            tuple(
                ConstantRate(rate, 1e9, seed=self.seed + 1, source=source)
                for source, rate in rates.items()
            )
        )

    def usual_backlog(self, pace: Literal["trickle", "opening"], at_least_s: float) -> float:
        """Items that wait while the application keeps up, because batches begin at triggers.

        at_least_s: seconds of input that wait in any case; the operator's own trigger is added.
        """
        arriving = self.steady(pace).expected(np.array([0.0, 1.0]))
        return sum(
            float(arriving[source][0]) * (at_least_s + (operator.trigger_s or 0.0))
            for operator in self.application.topology.operators
            for source in operator.inputs
            if source in arriving
        )

    def slo_by_source(self) -> dict[str, float]:
        """Latency target of each source's rows in seconds: that of the operator that reads them."""
        operators = self.application.topology.operators
        targets = self.slo_by_query
        own = {source: targets.of(o.name) for o in operators for source in o.inputs}
        return {source: own.get(source, self.slo_s) for source in self.application.rates_per_s}


@dataclass(frozen=True)
class LiveResult:
    """The result of a run.

    Args:
        from_s: Begin of the input that counts, after the warm-up, Unix seconds.
        until_s: End of the input, Unix seconds.
        items: Items of all sources that arrived in that time.
        seconds: From then until the last of them was processed.
        counts: By operator, for the whole run.
        check: Comparison with the reference; None: the input was not processed in time.
        measured: Exact latencies and losses by input row; None where they are not known.
        by_source: The same for the rows of each source, judged by its own latency target and
            without losses; empty where they are not known.
        account: The account of a dry run.
        interrupted: Whether the run was stopped early.
        warm_up: The rows before, which do not count, with their own figures; None without any.
    """

    from_s: float
    until_s: float
    items: int
    seconds: float
    counts: Mapping[str, Counts]
    check: ResultCheck | None
    measured: Measured | None = None
    by_source: Mapping[str, Measured] = field(default_factory=dict)
    account: str = ""
    interrupted: bool = False
    warm_up: LeftOut | None = None

    @property
    def ended_s(self) -> float:
        """When the last item was processed, Unix seconds; executors count until then."""
        return self.from_s + self.seconds

    @property
    def dropped(self) -> int:
        """Items that were shed."""
        return sum(count.dropped for count in self.counts.values())

    def by_query(self, topology: StreamTopology) -> dict[str, Measured]:
        """Exact figures of the operators that read one source and send nothing on, by name."""
        read = {origin for operator in topology.operators for origin in operator.inputs}
        return {
            operator.name: self.by_source[operator.inputs[0]]
            for operator in topology.operators
            if len(operator.inputs) == 1
            and operator.inputs[0] in self.by_source
            and operator.name not in read
        }

    def item_counts(self, topology: StreamTopology) -> list[tuple[str, int, int, int, int, int]]:
        """By operator: name, items received, shed, set aside and processed, and rows sent on.

        Items received are the sum of those shed, set aside and processed. Rows that an operator
        sets aside stay in its topic: the operators that read it do not receive them.
        """
        rejected = self.check.rejected if self.check is not None else {}
        aside = {name: sum(reasons.values()) for name, reasons in rejected.items()}
        found = []
        for operator in topology.operators:
            count, bad = self.counts[operator.name], aside.get(operator.name, 0)
            received = count.seen - sum(aside.get(origin, 0) for origin in operator.inputs)
            processed = received - count.dropped - bad
            row = (operator.name, received, count.dropped, bad, processed, count.written - bad)
            found.append(row)
        return found


def known_times(model: Topology, known: Topology | None) -> Topology:
    """The model with service times and ratios that are known in advance, from a profile."""
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
            e if e.counted else replace(e, ratio=ratios.get((e.origin, e.target), e.ratio))
            for e in model.edges
        ),
    )


def run_live(
    run: LiveRun,
    say: Callable[[str], None],
    on_turn: Callable[[Turn], None],
    stop: Stop,
) -> LiveResult:
    """Run an application under an autoscaler and compare its results with the reference.

    say: called with a line at each phase. on_turn: called after each turn. stop: set it to end
    early; `Stopped` is raised if the run had not begun by then.
    """
    app = run.application
    with ExitStack() as stack:
        cluster, spark, running = start_on_cluster(run, stack, say, stop)
        feed = start_feed(run, running, stack)

        def check() -> None:
            check_parts(running, feed)

        # An operator whose sources send nothing never has a first batch.
        sending = {source for source, rate in run.rates_per_s.items() if rate}
        entries = [o.name for o in app.topology.operators if sending.intersection(o.inputs)]
        # An operator with its own rate limit may be behind as long as there is input.
        limited = {o.name for o in app.topology.operators if o.max_files is not None}
        unlimited = [name for name in running.queries if name not in limited]

        def waiting(names: Iterable[str]) -> int:
            lag = running.lag_items()
            return sum(lag[name] for name in names)

        # Input that gathers while the first batches compile is not a load to scale for.
        caught_up = wait_until(
            lambda: (
                all(running.live_settings.counts(name).seen for name in entries)
                and waiting(unlimited) <= max(run.usual_backlog("trickle", 10.0), 10.0)
            ),
            300.0,
            stop,
            check,
        )
        stop.check()
        if not caught_up:
            say(f"{waiting(running.queries)} items wait after five minutes of a trickle: going on")
        wired = running.for_autoscaler()

        def scaler(journal: Path, on_turn: Callable[[Turn], None]) -> Autoscaler:
            return Autoscaler(
                spark, slo=run.slo_by_query, policy=run.policy, parameters=run.parameters,
                guards=run.guards, min_executors=1, max_executors=run.max_hosts,
                interval=run.interval, stabilise=run.stabilise, journal=journal,
                price_per_hour=run.price_per_hour, billing_unit=run.billing_unit,
                cluster=None if run.dry_run else cluster, dry_run=run.dry_run, seed=run.seed,
                on_turn=on_turn,
                **wired | {"topology": lambda: known_times(running.model(), run.topology)},
            )  # fmt: skip

        if run.warm_up_s:
            opening = run.steady("opening")
            usual = run.usual_backlog("opening", USUAL_BACKLOG_S)

            def tell(turn: Turn) -> None:
                hosts = len(turn.snapshot.running_hosts) if turn.snapshot is not None else 0
                executors = f"{hosts} executor{'' if hosts == 1 else 's'}"
                say(f"{WARMING}: {executors}, {waiting(entries)} items wait")

            say(WARMING)
            with scaler(run.warm_up_journal, tell) as warming:
                feed.play(opening)
                wait_until(lambda: False, run.warm_up_s, stop, check)
                wait_until(
                    lambda: _settled(warming.last) and waiting(unlimited) <= usual,
                    CATCH_UP_S,
                    stop,
                    check,
                )
            # The input that counts meets executors that are warm and no backlog.
            feed.play(run.steady("none"))
            if not wait_until(lambda: not waiting(running.queries), CATCH_UP_S, stop, check):
                say(f"{waiting(running.queries)} items of the warm-up still wait: going on")
        stop.check()
        with scaler(run.journal, on_turn) as scaling:
            from_s = feed.play(run.workload())
            before = feed.rows
            say(f"{app.name} for {run.seconds:.0f} s")
            wait_until(lambda: False, run.seconds, stop, check)
            interrupted = stop.is_set()
            feed.stop()
            until_s, items = time.time(), feed.rows - before
            say("the input has ended: processing the rest")
            limit_s = 20.0 if interrupted else 120.0
            done = wait_until(lambda: not waiting(running.queries), limit_s, None, check)
            seconds = time.time() - from_s
        checked = check_results(run, spark, running, say) if done else None
        result = LiveResult(
            from_s, until_s, items, seconds, counts_of(running), checked,
            account=scaling.dry_run_report(), interrupted=interrupted,
        )  # fmt: skip
        return replace(
            result,
            **_measured(run, running, feed, result),
            warm_up=_warm_up(run, running, feed, from_s),
        )


def _settled(turn: Turn | None) -> bool:
    """Whether all executors run that are paid for."""
    if turn is None or turn.snapshot is None:
        return False
    return all(host.status == "running" for host in turn.snapshot.hosts)


def _measured(
    run: LiveRun, running: RunningTopology, feed: TopicFeed, result: LiveResult
) -> dict[str, Any]:
    """Exact figures by input row; nothing where rows were shed or topics are not files."""
    known = None if result.dropped else _taken(run, running, feed, result.from_s, result.until_s)
    if known is None:
        return {}
    lost, repeated = run.application.lost_and_repeated(result.check)
    rejected = result.check.rejected if result.check is not None else {}
    aside = sum(sum(reasons.values()) for reasons in rejected.values())
    of_all = figures(*together(known))
    return {
        "measured": replace(of_all, lost=lost, repeated=repeated, set_aside=aside),
        "by_source": {source: figures(*each) for source, each in known.items()},
    }


def _taken(
    run: LiveRun, running: RunningTopology, feed: TopicFeed, from_s: float, until_s: float
) -> dict[str, Taken] | None:
    """What the rows of each source took, None where topics are not files.

    A row is judged by its own source's latency target. A row that was not processed is late, too.
    """
    done = processed_s(running)
    if done is None:
        return None
    found = {}
    for source, slo_s in run.slo_by_source().items():
        published = [batch for batch in feed.published if batch.source == source]
        taken_s, waiting = latencies_in(done, published, from_s, until_s)
        found[source] = (taken_s, waiting, int(np.count_nonzero(taken_s > slo_s)) + waiting)
    return found


def _warm_up(
    run: LiveRun, running: RunningTopology, feed: TopicFeed, from_s: float
) -> LeftOut | None:
    """The rows before the input that counts, with their figures where these can be known."""
    early = [b.event_s[b.event_s < from_s] for b in feed.published]
    events = np.concatenate([np.empty(0), *early])
    if not len(events):
        return None
    began_s = float(events.min())
    known = _taken(run, running, feed, 0.0, from_s)
    if known is None:
        return LeftOut(WARM_UP, began_s, from_s, len(events), None, None)
    taken_s, waiting, late = together(known)
    p95_s = float(np.percentile(taken_s, 95)) if len(taken_s) else None
    in_time = 1 - late / (len(taken_s) + waiting)
    return LeftOut(WARM_UP, began_s, from_s, len(events), in_time, p95_s, exact=True)


def start_on_cluster(
    run: LiveRun, stack: ExitStack, say: Callable[[str], None], stop: Stop
) -> tuple[LocalCluster, SparkSession, RunningTopology]:
    """Start a cluster, a session and the topology; all end with the stack."""
    app = run.application
    say("starting the cluster: a master and its first executors, each in a separate process")
    cluster = stack.enter_context(
        LocalCluster(run.slots, run.memory_mb, run.max_hosts).start(hosts=run.hosts)
    )
    say("starting Spark's driver")
    stop.starting = False  # an interrupted start would leave the driver's JVM behind
    spark = stack.enter_context(
        session(cluster, run.driver_log, run.settings, f"tidegate {app.name}")
    )
    running = start(run, spark, stack, run.slots * run.hosts)
    stop.check()
    say("started the streaming queries; their first batches compile them")
    return cluster, spark, running


def start(run: LiveRun, spark: SparkSession, stack: ExitStack, parallelism: int) -> RunningTopology:
    """Start the application's topology without data of earlier runs; it ends with the stack."""
    shutil.rmtree(run.out / "data", ignore_errors=True)
    live_settings = LiveSettings(parallelism, run.buffer_rows)
    topology = run.application.topology
    where = None if run.topics is None else within(run.topics, f"run{time.time_ns():x}")
    running = topology.start(
        spark, run.out / "data", live_settings, trigger_s=run.trigger_s,
        max_files_per_trigger=run.application.max_files, topics=where,
    )  # fmt: skip
    stack.callback(_stop, running)
    return running


def start_feed(run: LiveRun, running: RunningTopology, stack: ExitStack) -> TopicFeed:
    """Start the feed with a trickle; it ends with the stack."""
    topics = {source: running.topics[source] for source in run.application.topology.sources}
    trickle = run.steady("trickle")
    feed = TopicFeed(run.application, topics, trickle, bad=run.bad, seed=run.seed).start()
    stack.callback(feed.stop)
    return feed


def close_windows(app: Application, running: RunningTopology) -> None:
    """Publish the rows that close the last windows, and wait until they are processed."""
    for source, table in app.closing(time.time()).items():
        running.topics[source].append(table, "closing")
    settle(running, 120.0)


def check_results(
    run: LiveRun, spark: SparkSession, running: RunningTopology, say: Callable[[str], None]
) -> ResultCheck:
    """Close the last windows, end the queries, compare the results and write them to files."""
    import pyarrow.parquet as pq

    say("closing the last windows, then comparing the results with the reference")
    close_windows(run.application, running)
    running.stop()
    found = run.application.compare(spark, running)
    for name, table in found.results.items():
        (run.out / "results").mkdir(exist_ok=True)
        pq.write_table(table, run.out / "results" / f"{name}.parquet")
    return found


def counts_of(running: RunningTopology) -> dict[str, Counts]:
    """Exact counts of every operator so far."""
    return {name: running.live_settings.counts(name) for name in running.queries}


def check_parts(running: RunningTopology, feed: TopicFeed) -> None:
    """BackendError when an operator or the feed has failed."""
    running.check()
    if feed.error is not None:
        raise BackendError(f"the feed has failed: {feed.error}") from feed.error


def _stop(running: RunningTopology) -> None:
    with contextlib.suppress(Exception):  # it may have ended already, together with its JVM
        running.stop(timeout_s=20.0)
