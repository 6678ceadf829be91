"""Measured costs of an application's operators: the topology file of `tidegate profile`.

The application runs for a while at a constant rate without scaling. Arrivals and ratios are exact
counts; service times are slot-seconds per item, measured from the jobs of the batches.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.apps.application import Application, settle
from tidegate.apps.live import LiveRun, check_parts, close_windows, start, start_feed
from tidegate.codec import Value
from tidegate.lifecycle import Stop, wait_until
from tidegate.model import HostOffer, OperatorReading, Snapshot
from tidegate.model.topology import Edge, Resources, Source, Topology
from tidegate.spark.autoscaler.executors import executor_manager
from tidegate.spark.autoscaler.in_process import InProcessGateway
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.spark.local.session import session_on
from tidegate.spark.streams.live_settings import Counts
from tidegate.units import duration_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.streams.topology import RunningTopology

__all__ = ["OperatorProfile", "Profile", "profile", "variation"]

FEW_ITEMS = 50
"""Larger batches show only the mean time of an item, not its variation."""


@dataclass(frozen=True, slots=True)
class OperatorProfile(Value):
    """The profile of one operator; None for figures that could not be measured.

    Args:
        name: Of the operator.
        arrives_per_s: λ, items per second.
        service_time_s: 1/μ, slot-seconds per item.
        service_cv: Coefficient of variation of this time from item to item.
        batch_cv: Coefficient of variation of the mean time of an item, from batch to batch.
        ratio: Rows out for each item in.
        overhead_s: Time of a batch in addition to the work on its items.
        batches: Number of batches measured.
        partitions: Of its state; None without state.
    """

    name: str
    arrives_per_s: float
    service_time_s: float | None
    service_cv: float | None
    batch_cv: float | None
    ratio: float
    overhead_s: float | None
    batches: int
    partitions: int | None


@dataclass(frozen=True)
class Profile(Value):
    """The operators in the order of the stream, and the resulting topology.

    rates_per_s: by source. seconds: duration of the measurement.
    """

    application: str
    rates_per_s: dict[str, float]
    seconds: float
    operators: tuple[OperatorProfile, ...]
    topology: Topology


def variation(batches: Sequence[tuple[int, float]]) -> tuple[float | None, float | None]:
    """CV of the time of an item, and CV of the batches' mean times, from (items, slot-seconds).

    The total time of n independent items has n times the variance of one. With many items in a
    batch the noise of the machine hides it, so the first figure is None there.

    >>> variation([(2, 2.2), (2, 1.8), (2, 2.2), (2, 1.8)])
    (0.1632..., 0.1000...)
    >>> variation([(1000, 10.0), (1000, 11.0)])[0] is None, variation([(3, 1.0)])
    (True, (None, None))
    """
    known = [(items, run_s) for items, run_s in batches if items]
    if len(known) < 2:
        return None, None
    mean = sum(run_s for _, run_s in known) / sum(items for items, _ in known)
    total = sum(items for items, _ in known)
    spread = sum(items * (run_s / items - mean) ** 2 for items, run_s in known) / total
    between = math.sqrt(spread) / mean if mean else None
    if statistics.median(items for items, _ in known) > FEW_ITEMS or not mean:
        return None, between
    squares = sum((run_s - mean * items) ** 2 / items for items, run_s in known)
    return math.sqrt(squares / (len(known) - 1)) / mean, between


def profile(run: LiveRun, say: Callable[[str], None], stop: Stop) -> Profile:
    """Run an application in one process and measure its operators.

    run: application, rate and duration; only the slots of one executor are used, and no policy.
    stop: set it to end early, with the measurements so far.
    """
    app = run.application
    interval_s = duration_s(run.interval, "interval")
    with ExitStack() as stack:
        say("starting Spark in one process")
        stop.starting = False
        master, name = f"local[{run.slots}]", f"tidegate profile {app.name}"
        spark = stack.enter_context(session_on(master, run.driver_log, run.settings, name))
        running = start(run, spark, stack, run.slots)
        feed = start_feed(run, running, stack)

        def check() -> None:
            check_parts(running, feed)

        say("the first batches compile the queries")
        entries, counts = running.model().entries, running.live_settings.counts
        wait_until(lambda: all(counts(n).seen for n in entries), 300.0, stop, check)
        stop.check()
        world = _world(spark, running, run.slots, interval_s)
        stack.callback(world.close)
        before = {name: counts(name) for name in running.queries}
        from_s, made = feed.play(run.steady()), dict(feed.made)
        say(f"measuring for {run.seconds:.0f} s")
        while not stop.is_set() and (left_s := from_s + run.seconds - time.time()) > 0:
            wait_until(lambda: False, min(interval_s, left_s), stop, check)
            world.observe()  # record batches before Spark drops them
        seconds = time.time() - from_s
        feed.stop()
        settle(running, 300.0)
        snapshot = world.observe()
        close_windows(app, running)
        after = {name: counts(name) for name in running.queries}
        passed = {
            name: Counts(
                count.seen - before[name].seen,
                count.dropped - before[name].dropped,
                count.written - before[name].written,
            )
            for name, count in after.items()
        }
        batches = {name: world.work_of(name) for name in running.queries}
        rates = {s: (n - made[s]) / seconds for s, n in feed.made.items()}
    return _profile(app, snapshot, passed, batches, rates, seconds)


def _world(
    spark: SparkSession, running: RunningTopology, slots: int, interval_s: float
) -> SparkWorld:
    """The application as an autoscaler sees it."""
    gateway = InProcessGateway(spark, watch_only=True)
    wired = running.for_autoscaler()
    offer = HostOffer(Resources(float(slots)), 3600.0, 0.0)
    world = SparkWorld(
        gateway, executor_manager(gateway, time.time), offer, interval_s=interval_s, **wired
    )
    world.start()
    return world


def _profile(
    app: Application,
    snapshot: Snapshot,
    passed: Mapping[str, Counts],
    batches: Mapping[str, Sequence[tuple[int, float]]],
    rates_per_s: Mapping[str, float],
    seconds: float,
) -> Profile:
    model = app.topology.model()
    ratios = {n: c.written / c.seen if c.seen else 0.0 for n, c in passed.items()}
    cvs = {name: variation(batches[name]) for name in model.by_name}
    operators = []
    for operator in model.operators:
        cv = cvs[operator.name][0]
        reading = snapshot.reading[operator.name]
        made = replace(operator, service_time_s=_service_s(reading, batches[operator.name]))
        operators.append(made if cv is None else replace(made, service_scv=cv**2))
    topology = _one_source(
        Topology(
            tuple(operators),
            tuple(Source(name, rate) for name, rate in rates_per_s.items()),
            tuple(replace(e, ratio=ratios.get(e.origin, e.ratio)) for e in model.edges),
        )
    )
    arrives = topology.arrival_rates()
    rows = []
    for operator in topology.operators:
        name, reading = operator.name, snapshot.reading[operator.name]
        rows.append(
            OperatorProfile(
                name,
                arrives[name],
                operator.service_time_s,
                *cvs[name],
                ratios[name],
                reading.batches.overhead_s if reading.batches else None,
                len(batches[name]),
                operator.max_instances,
            )
        )
    return Profile(app.name, dict(rates_per_s), seconds, tuple(rows), topology)


def _service_s(reading: OperatorReading, batches: Sequence[tuple[int, float]]) -> float | None:
    """Slot-seconds per item: the meter's figure, or total time by total items if it is lower.

    From few batches the meter cannot separate the overhead of a batch from the cost of its items.
    """
    items, run_s = (sum(parts) for parts in zip(*batches, strict=True)) if batches else (0, 0.0)
    known = [reading.service_time_s, run_s / items if items else None]
    return min((time_s for time_s in known if time_s), default=None)


def _one_source(topology: Topology) -> Topology:
    """The same topology with a single source, as for a trace: each edge carries its share."""
    rates = {source.name: source.rate_per_s or 0.0 for source in topology.sources}
    total = sum(rates.values())
    if len(rates) == 1 or not total:
        return topology
    edges = {(("input" if e.origin in rates else e.origin), e.target): 0.0 for e in topology.edges}
    for edge in topology.edges:
        share = rates[edge.origin] / total if edge.origin in rates else 1.0
        edges["input" if edge.origin in rates else edge.origin, edge.target] += share * edge.ratio
    joined = tuple(Edge(origin, target, ratio) for (origin, target), ratio in edges.items())
    return Topology(topology.operators, (Source("input", total),), joined)
