"""The figures of a run, from its journal alone, whether it was live or simulated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidegate.codec import Value
from tidegate.errors import JournalError
from tidegate.loop.billing import Bill
from tidegate.loop.journal import Turn
from tidegate.model import FirstBatch, Snapshot
from tidegate.report.points import LatencyFigures, Point, latency_figures, points_of
from tidegate.report.queries import (
    FirstBatches,
    QueryFigures,
    first_delay,
    independent,
    query_figures,
)

__all__ = [
    "MOST_INTERVALS",
    "NOT_WATCHED",
    "Decision",
    "LeftOut",
    "LiveSummary",
    "Measured",
    "capacity_of",
    "decisions_of",
    "known_lag",
    "lag_of",
    "latency_points",
    "rate_of",
    "slo_of",
    "summarise",
]

NOT_WATCHED = "not watched"
"""Name of a part of a run in which nobody measured, for example because the driver was down."""
MOST_INTERVALS = 3
"""A snapshot that the next one follows later than this many intervals stands for one interval."""


@dataclass(frozen=True, slots=True)
class Measured(Value):
    """Exact figures of a run from an audit of its output; a journal alone allows estimates only.

    Args:
        items: Items that arrived.
        late: Items not done within the SLO.
        p50_s: Median latency, in seconds.
        p95_s: 95th percentile of the latency, in seconds.
        p99_s: 99th percentile of the latency, in seconds.
        lost: Items missing from the output; None if not compared.
        repeated: Items that the output contains twice; None if not compared.
        set_aside: Bad rows that were set aside; they have no latency and count in no figure.
    """

    items: int
    late: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    lost: int | None = None
    repeated: int | None = None
    set_aside: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut(Value):
    """A part of a run that the figures do not count, with its own figures.

    Args:
        name: What it is, such as ``warm-up``.
        from_s: Its begin on the journal's clock, in seconds.
        until_s: Its end.
        items: Items of that time; None if nobody measured.
        slo_compliance: Share of them within the target; None if not measured.
        p95_s: 95th percentile of their latency, in seconds.
        exact: Whether these were counted; otherwise they are estimated.
    """

    name: str
    from_s: float
    until_s: float
    items: float | None
    slo_compliance: float | None
    p95_s: float | None
    exact: bool = False

    @property
    def duration_s(self) -> float:
        """Its length, in seconds."""
        return self.until_s - self.from_s


@dataclass(frozen=True, slots=True)
class Decision(Value):
    """A turn that changed the executors, or tried to.

    Args:
        number: Number of the turn.
        time_s: Time of its snapshot, in seconds.
        before: Requested executors before the turn.
        wanted: Target of the policy, before the guards.
        after: Requested executors after the turn.
        reason: Reasons of the plan.
        guard: Guards that changed the plan, and why.
        refused: What the backend refused, and why.
    """

    number: int
    time_s: float
    before: int
    wanted: int
    after: int
    reason: str
    guard: str
    refused: str


@dataclass(frozen=True, slots=True)
class LiveSummary(Value):
    """A run in figures. Executors that are starting or draining count, since they are paid for.

    Args:
        policy: Description of the policy and its guards.
        turns: Turns in the journal.
        failed_turns: Turns that failed.
        duration_s: Length of the run, in seconds, without the parts that are left out.
        items: Items processed.
        executor_s: Executor-seconds of all leases in that time.
        static_executor_s: Executor-seconds with the peak number of executors all the time.
        peak_executors: Largest number of executors.
        cost_usd: Cost by started billing unit; see `Bill`.
        static_cost_usd: Cost with the peak number of executors all the time.
        slo_s: Latency target, in seconds.
        slo_compliance: Share of items within the target, or within the SLO of their query.
        p50_s: Median latency, in seconds.
        p95_s: 95th percentile of the latency, in seconds.
        p99_s: 99th percentile of the latency, in seconds.
        rescales: Turns that changed the number of executors.
        scale_up_s: Mean time from a decision until a new executor runs, in seconds.
        decisions: Turns that changed the executors, or tried to.
        exact: Whether items, compliance and percentiles were counted; otherwise they are
            estimated from the percentiles of each turn.
        lost: Items missing from the output; None if not compared.
        repeated: Items that the output contains twice; None if not compared.
        at_most: Whether the share within the target is an upper bound, because some latencies
            are lower bounds.
        at_least: Whether the percentiles are lower bounds, for the same reason.
        without_latency: Items of turns in which no latency was measured; the share and the
            percentiles do not count them. None if they were counted.
        without_latency_s: Length of these turns, in seconds; with `by_query`, the sum over the
            queries.
        shed: Items that were dropped by load shedding; the share does not count them.
        set_aside: Bad rows that were set aside; no figure counts them.
        waiting: Items that still waited at the last snapshot, as far as they were measured; no
            figure counts them. None if none were measured.
        waiting_unknown: Operators whose waiting items are unknown, so that more may have waited.
        left_out: Parts of the run that no figure counts.
        queries: The queries, each judged by its own SLO.
        by_query: Whether `slo_compliance` judges the items of each query by its own SLO, as it does
            for queries that do not depend on each other.
    """

    policy: str
    turns: int
    failed_turns: int
    duration_s: float
    items: float
    executor_s: float
    static_executor_s: float
    peak_executors: int
    cost_usd: float
    static_cost_usd: float
    slo_s: float | None
    slo_compliance: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    rescales: int
    scale_up_s: float | None
    decisions: tuple[Decision, ...]
    exact: bool = False
    lost: int | None = None
    repeated: int | None = None
    at_most: bool = False
    at_least: bool = False
    without_latency: float = 0.0
    without_latency_s: float = 0.0
    shed: float = 0.0
    set_aside: int = 0
    waiting: float | None = None
    left_out: tuple[LeftOut, ...] = ()
    queries: tuple[QueryFigures, ...] = ()
    by_query: bool = False
    waiting_unknown: tuple[str, ...] = ()

    @property
    def mean_executors(self) -> float:
        """Mean number of executors over time."""
        return self.executor_s / self.duration_s if self.duration_s else 0.0

    @property
    def saved(self) -> float:
        """Share of the static executor-seconds that was saved."""
        return 1 - self.executor_s / self.static_executor_s if self.static_executor_s else 0.0


def summarise(
    turns: Sequence[Turn],
    slo_s: float | None = None,
    from_s: float = -math.inf,
    until_s: float = math.inf,
    measured: Measured | None = None,
    before: LeftOut | None = None,
    by_query: Mapping[str, Measured] | None = None,
) -> LiveSummary:
    """Return the figures of a run.

    Whatever is not counted is in `left_out`, with its own figures: `before`, the turns outside
    `from_s` and `until_s`, and every time between two snapshots that is much longer than the
    journal's usual interval. Nobody knows what was processed in time while nobody measured.

    Args:
        turns: Turns of the journal.
        slo_s: Latency target, in seconds; None for the target in the journal. A query with its own
            SLO is judged by that one.
        from_s: Begin of the part that counts, on the journal's clock.
        until_s: Its end.
        measured: Exact figures, if there are any.
        before: What happened before and is not counted, if it was measured; None for the turns
            before `from_s`.
        by_query: Exact figures of queries, where there are any.

    Raises JournalError if no turn in that time has a snapshot.
    """
    inside = [t for t in turns if t.snapshot is None or from_s <= t.snapshot.time_s <= until_s]
    looked = [t for t in inside if t.snapshot is not None]
    seen = [t.snapshot for t in looked if t.snapshot is not None]
    if not seen:
        remedy = "let the application run for longer than an interval"
        raise JournalError("journal", "empty", "a journal with at least one snapshot", remedy)
    policies = list(dict.fromkeys(turn.policy for turn in inside))
    spans = _spans(seen, until_s)
    duration_s = math.fsum(spans)
    peak = max(len(s.hosts) for s in seen)
    gaps = _gaps(seen, spans)
    unwatched = {gap.until_s: gap.from_s for gap in gaps}
    bill = Bill()
    gap_s = gap_usd = 0.0  # what the bill has for the gaps
    for turn in inside:
        time_s = turn.snapshot.time_s if turn.snapshot is not None else None
        gap_from_s = unwatched.get(time_s) if time_s is not None else None
        if gap_from_s is not None:
            gap_s -= bill.host_seconds(gap_from_s)
            gap_usd -= bill.cost_usd(gap_from_s)
        bill.add(turn)
        if gap_from_s is not None:
            gap_s += bill.host_seconds(time_s)
            gap_usd += bill.cost_usd(time_s)
    ended_s = seen[-1].time_s + spans[-1]
    given_s = slo_s
    slo_s = slo_of(looked[-1]) if slo_s is None else slo_s
    items = [_done_per_s(s) * span for s, span in zip(seen, spans, strict=True)]
    firsts, entered = _firsts(turns, from_s, until_s)
    found = latency_figures(
        [
            *((s.latency, count) for s, count in zip(seen, items, strict=True)),
            *((first_delay(first), first.rows) for first in entered),
        ],
        slo_s,
    )
    blind = [
        span
        for s, span, count in zip(seen, spans, items, strict=True)
        if count and not points_of(s.latency, count)
    ]
    decisions = tuple(decisions_of(inside))
    early = [t for t in turns if t.snapshot is not None and t.snapshot.time_s < from_s]
    late = [t for t in turns if t.snapshot is not None and t.snapshot.time_s > until_s]
    if before is None and early:
        before = _left_out("before", early, slo_s, from_s)
    after = _left_out("after", late, slo_s, math.inf) if late else None
    summary = LiveSummary(
        policy=", then ".join(policies),
        turns=len(inside),
        failed_turns=sum(turn.error is not None for turn in inside),
        duration_s=duration_s,
        items=math.fsum([*items, *(first.rows for first in entered)]),
        executor_s=bill.host_seconds(ended_s) - gap_s,
        static_executor_s=peak * duration_s,
        peak_executors=peak,
        cost_usd=bill.cost_usd(ended_s) - gap_usd,
        static_cost_usd=peak * seen[-1].offer.lease(0.0).cost_usd(duration_s),
        slo_s=slo_s,
        slo_compliance=found.in_time,
        p50_s=found.p50_s,
        p95_s=found.p95_s,
        p99_s=found.p99_s,
        rescales=sum(d.after != d.before for d in decisions),
        scale_up_s=_scale_up_s(turns, from_s, until_s),
        decisions=decisions,
        at_most=found.at_most,
        at_least=found.at_least,
        without_latency=found.without,
        without_latency_s=math.fsum(blind),
        shed=math.fsum(_shed_per_s(s) * span for s, span in zip(seen, spans, strict=True)),
        waiting=known_lag(seen[-1])[0],
        waiting_unknown=known_lag(seen[-1])[1],
        left_out=tuple(part for part in (before, *gaps, after) if part is not None),
        queries=tuple(
            _exact(query, (by_query or {}).get(query.name))
            for query in query_figures(looked, spans, given_s, firsts)
        ),
    )
    if measured is None:
        return _by_query(summary) if independent(seen[-1]) else summary
    return replace(
        summary,
        exact=True,
        items=measured.items,
        slo_compliance=1 - measured.late / measured.items if measured.items else None,
        p50_s=measured.p50_s,
        p95_s=measured.p95_s,
        p99_s=measured.p99_s,
        lost=measured.lost,
        repeated=measured.repeated,
        at_most=False,
        at_least=False,
        without_latency=0.0,
        without_latency_s=0.0,
        set_aside=measured.set_aside,
        waiting=0.0,
        waiting_unknown=(),
        by_query=independent(seen[-1]) and len({q.slo_s for q in summary.queries}) > 1,
    )


def _exact(query: QueryFigures, measured: Measured | None) -> QueryFigures:
    """Return the figures of a query with exact ones in place of estimates."""
    if measured is None:
        return query
    delay = LatencyFigures(
        measured.items,
        0.0,
        1 - measured.late / measured.items if measured.items else None,
        False,
        measured.p50_s,
        measured.p95_s,
        measured.p99_s,
    )
    return replace(query, items=float(measured.items), delay=delay, exact=True)


def _share_by_query(queries: Sequence[QueryFigures]) -> tuple[float | None, float]:
    """Return the share of items within the SLO of their query, and the items that were judged."""
    shares = [(q.delay.items, q.delay.in_time) for q in queries]
    total = math.fsum(items for items, share in shares if share is not None)
    in_time = math.fsum(items * share for items, share in shares if share is not None)
    return (in_time / total if total else None), total


def _by_query(summary: LiveSummary) -> LiveSummary:
    """Return the summary with a share in time that judges each query by its own SLO."""
    in_time, total = _share_by_query(summary.queries)
    if not total:
        return summary
    return replace(
        summary,
        slo_compliance=in_time,
        at_most=any(q.delay.at_most for q in summary.queries),
        items=math.fsum(q.items for q in summary.queries),
        without_latency=math.fsum(q.delay.without for q in summary.queries),
        without_latency_s=math.fsum(q.without_s for q in summary.queries),
        by_query=True,
    )


def _firsts(
    turns: Sequence[Turn], from_s: float = -math.inf, until_s: float = math.inf
) -> tuple[list[dict[str, FirstBatch]], list[FirstBatch]]:
    """Return the first batches by query of each turn in a time, and those that read the input."""
    watch = FirstBatches()
    new = [(t.snapshot, watch.new(t.snapshot)) for t in turns if t.snapshot is not None]
    inside = [(s, batches) for s, batches in new if from_s <= s.time_s <= until_s]
    entered = [b[name] for s, b in inside for name in s.topology.entries if name in b]
    return [batches for _, batches in inside], entered


def _left_out(name: str, turns: Sequence[Turn], slo_s: float | None, until_s: float) -> LeftOut:
    """Return the figures of turns that are not counted."""
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    spans = _spans(seen, until_s)
    items = [_done_per_s(s) * span for s, span in zip(seen, spans, strict=True)]
    firsts, entered = _firsts(turns)
    found = latency_figures(
        [
            *((s.latency, count) for s, count in zip(seen, items, strict=True)),
            *((first_delay(first), first.rows) for first in entered),
        ],
        slo_s,
    )
    items += [first.rows for first in entered]
    ended_s = seen[-1].time_s + spans[-1]
    in_time = found.in_time
    if independent(seen[-1]):
        share, _ = _share_by_query(query_figures(turns, spans, slo_s, firsts))
        in_time = in_time if share is None else share
    return LeftOut(name, seen[0].time_s, ended_s, math.fsum(items), in_time, found.p95_s)


def rate_of(snapshot: Snapshot) -> float | None:
    """Return the input from outside in items per second; None if not measured."""
    rates = snapshot.external_rates()
    return math.fsum(rates.values()) if rates is not None else None


def capacity_of(snapshot: Snapshot) -> float | None:
    """Return the input per second that the running executors can process; None if unknown."""
    outside = rate_of(snapshot)
    if not outside:
        return None
    core_s = 0.0  # core-seconds per item from outside
    for operator in snapshot.topology.operators:
        rate = snapshot.reading[operator.name].arrival_rate_per_s
        service_s = snapshot.service_time_s(operator.name)
        if rate is None or service_s is None:
            return None
        core_s += service_s * operator.demand.cpu_cores * rate / outside
    cores = math.fsum(host.capacity.cpu_cores for host in snapshot.running_hosts)
    return cores / core_s if core_s else None


def lag_of(snapshot: Snapshot) -> float | None:
    """Return the items waiting at all operators; None if any is not measured."""
    known, unknown = known_lag(snapshot)
    return None if unknown else known


def known_lag(snapshot: Snapshot) -> tuple[float | None, tuple[str, ...]]:
    """Return the waiting items where they are measured, and the operators where they are not.

    None if no operator's are measured.
    """
    lengths = {name: reading.queue_length for name, reading in snapshot.reading.items()}
    known = [length for length in lengths.values() if length is not None]
    unknown = tuple(name for name, length in lengths.items() if length is None)
    return (math.fsum(known) if known else None), unknown


def decisions_of(turns: Sequence[Turn]) -> list[Decision]:
    """Return the turns that changed the executors or were refused."""
    found = []
    for turn in turns:
        if turn.snapshot is None or turn.plan is None:
            continue
        steps = turn.outcome.steps if turn.outcome else ()
        refused = turn.outcome.refused if turn.outcome else ()
        change = sum((s.kind == "lease") - (s.kind == "release") for s in steps)
        moved = any(step.kind in ("lease", "release") for step in steps)
        if not moved and not refused:
            continue
        before = len(turn.snapshot.requested.hosts)
        found.append(
            Decision(
                turn.number,
                turn.snapshot.time_s,
                before,
                turn.plan.raw_target,
                before + change,
                "; ".join(reason.text for reason in turn.plan.reasons),
                "; ".join(f"{b.guard}: {b.why}" for b in turn.plan.bindings),
                "; ".join(refused),
            )
        )
    return found


def _spans(seen: Sequence[Snapshot], until_s: float) -> list[float]:
    """Return the seconds for which each snapshot stands: to the next one, or for one interval.

    What one snapshot measured says nothing about the hours in which there was no other.
    """
    last = seen[-1].interval_s or 0.0
    ends = [*(s.time_s for s in seen[1:]), min(until_s, seen[-1].time_s + last)]
    spans = [max(0.0, end - s.time_s) for s, end in zip(seen, ends, strict=True)]
    # The interval says how often turns were meant to be, the median how often they were.
    usual_s = statistics.median(spans[:-1]) if len(spans) > 3 else 0.0
    found = []
    for now, span_s in zip(seen, spans, strict=True):
        interval_s = max(now.interval_s or 0.0, usual_s)
        long = interval_s > 0 and span_s > MOST_INTERVALS * interval_s
        found.append(interval_s if long else span_s)
    return found


def _gaps(seen: Sequence[Snapshot], spans: Sequence[float]) -> list[LeftOut]:
    """Return the times for which no snapshot stands."""
    found = []
    for (now, after), span_s in zip(pairwise(seen), spans, strict=False):
        end_s = now.time_s + span_s
        if after.time_s - end_s > span_s:
            found.append(LeftOut(NOT_WATCHED, end_s, after.time_s, None, None, None))
    return found


def _done_per_s(snapshot: Snapshot) -> float:
    """Return the items processed per second; the input rate where that is not measured.

    A query without a rate does not hide the items of the others.
    """
    single = len(snapshot.topology.operators) == 1
    done = snapshot.operators[0].processed_per_s if single and snapshot.operators else None
    rate = rate_of(snapshot) if done is None else done
    if rate is not None:
        return rate
    entries = (snapshot.reading[name] for name in snapshot.topology.entries)
    return math.fsum(reading.arrival_rate_per_s or 0.0 for reading in entries)


def _shed_per_s(snapshot: Snapshot) -> float:
    """Return the items dropped per second at all operators."""
    return math.fsum(reading.dropped_per_s or 0.0 for reading in snapshot.operators)


def slo_of(turn: Turn) -> float | None:
    """Return the latency target; if the journal has none, the largest SLO of an operator."""
    if turn.slo_s is not None or turn.snapshot is None:
        return turn.slo_s
    operators = turn.snapshot.topology.operators
    return max((o.slo_s for o in operators if o.slo_s is not None), default=None)


def latency_points(snapshot: Snapshot, span_s: float) -> list[Point]:
    """Return the end-to-end latency of the items of a turn as points."""
    return points_of(snapshot.latency, _done_per_s(snapshot) * span_s)


def _scale_up_s(turns: Sequence[Turn], from_s: float, until_s: float) -> float | None:
    """Return the mean time from a lease until the first turn in which the host runs."""
    asked: dict[str, float] = {}
    took: list[float] = []
    for turn in turns:
        if turn.snapshot is None or not from_s <= turn.snapshot.time_s <= until_s:
            continue
        for host in turn.snapshot.running_hosts:
            if host.id in asked:
                took.append(turn.snapshot.time_s - asked.pop(host.id))
        for step in turn.outcome.steps if turn.outcome else ():
            if step.kind == "lease":
                asked[step.host] = turn.snapshot.time_s
    return math.fsum(took) / len(took) if took else None
