"""The figures of each query of a run: every query is judged by its own SLO.

Processing delay and event age are two figures. The delay is the time from when an item could be
read until its result was committed, and the SLO is judged by it. The event age starts at the item's
own time stamp: data that arrives late is old however fast it is processed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.codec import Value
from tidegate.loop.journal import Turn
from tidegate.model import BatchCost, FirstBatch, Latency, OperatorReading, Snapshot
from tidegate.report.points import LatencyFigures, latency_figures, points_of

__all__ = [
    "FirstBatches",
    "QueryFigures",
    "QueryNow",
    "batch_parts",
    "delay_of",
    "first_delay",
    "independent",
    "items_per_s",
    "judged",
    "judged_of",
    "limit_of",
    "queries_of",
    "query_figures",
]

BINDING = 0.95
"""Share of the admitted rows from which an admission limit counts as reached."""
LARGEST = 0.5
"""Share of a batch's duration from which a part of it is named as what limits the query."""


@dataclass(frozen=True, slots=True)
class QueryFigures(Value):
    """One query of a run in figures.

    Args:
        name: Its name.
        slo_s: Its own SLO, in seconds.
        items: Items processed.
        delay: Processing delay; `in_time` is judged by the query's own SLO.
        event_age: Age of the items by their own time stamps.
        mean_rate_per_s: Items that arrived per second, on average; None if not measured.
        peak_backlog_s: Longest backlog, in seconds of work at the throughput of that time.
        peak_state_mb: Largest state, in MB.
        cost: Last known cost of its batches.
        admission: What limits the rows of a batch; empty without a limit.
        limited_s: Time during which that limit was reached, in seconds.
        measured_s: Time for which the query was seen, in seconds.
        by_age: Whether its SLO is about the event age; `delay.in_time` is then judged by that.
        without_s: Time in which items were processed and no latency was measured, in seconds.
        exact: Whether items and delay were counted by row, from the creation of the row; otherwise
            they are estimated from the percentiles of each turn.
    """

    name: str
    slo_s: float | None
    items: float
    delay: LatencyFigures
    event_age: LatencyFigures
    mean_rate_per_s: float | None = None
    peak_backlog_s: float | None = None
    peak_state_mb: float | None = None
    cost: BatchCost | None = None
    admission: str = ""
    limited_s: float = 0.0
    measured_s: float = 0.0
    by_age: bool = False
    exact: bool = False
    without_s: float = 0.0


def queries_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the operators that are streaming queries, in the topology's order.

    These are operators with micro-batches or with a processing delay. The operators of a task
    queue have neither and only an end-to-end latency.
    """
    return tuple(name for name, reading in snapshot.reading.items() if _is_query(reading))


def _is_query(reading: OperatorReading) -> bool:
    return (
        reading.batches is not None
        or reading.delay != Latency()
        or reading.event_age != Latency()
        or reading.backlog_s is not None
        or reading.first_batch is not None
    )


def delay_of(snapshot: Snapshot, name: str) -> Latency:
    """Return the processing delay of a query.

    Journals of 0.1.0 have only one latency for the whole application: it stands for the delay where
    there is a single query.
    """
    delay = snapshot.reading[name].delay
    if delay == Latency() and len(snapshot.topology.operators) == 1:
        return snapshot.latency
    return delay


def by_age(snapshot: Snapshot) -> bool:
    """Whether the SLO is about the event age: its figures are then the end-to-end latency."""
    return snapshot.event_age != Latency() and snapshot.latency == snapshot.event_age


def judged_of(snapshot: Snapshot, name: str) -> Latency:
    """Return the latency by which a query is judged: its processing delay, or its event age."""
    if by_age(snapshot):
        return snapshot.reading[name].event_age
    return delay_of(snapshot, name)


@dataclass(frozen=True, slots=True)
class QueryNow(Value):
    """A query with an SLO and a latency to judge. p95_s: of that; at_least: a lower bound."""

    name: str
    p95_s: float
    slo_s: float
    at_least: bool = False

    @property
    def late(self) -> bool:
        """Whether the delay exceeds the SLO."""
        return self.p95_s > self.slo_s


def judged(snapshot: Snapshot, slo_s: float | None = None) -> list[QueryNow]:
    """Return the queries that can be judged now, the worst first. slo_s: of those without one."""
    found = []
    for name in queries_of(snapshot):
        delay, own_s = judged_of(snapshot, name), snapshot.operator(name).slo_s
        limit_s = slo_s if own_s is None else own_s
        if delay.p95_s is not None and limit_s is not None:
            found.append(QueryNow(name, delay.p95_s, limit_s, delay.at_least))
    return sorted(found, key=lambda query: -query.p95_s / query.slo_s)


def independent(snapshot: Snapshot) -> bool:
    """Whether there are several queries and none reads what another one writes."""
    names = snapshot.topology.by_name
    chained = any(e.origin in names and e.target in names for e in snapshot.topology.edges)
    return len(names) > 1 and not chained


def items_per_s(reading: OperatorReading) -> float | None:
    """Return the items processed per second; the arrivals where that is not measured."""
    done = reading.processed_per_s
    return reading.arrival_rate_per_s if done is None else done


class FirstBatches:
    """Finds the first batch of each run of each query, once; rates do not count their rows."""

    def __init__(self) -> None:
        self._seen: dict[str, FirstBatch] = {}
        self._begun = False

    def new(self, now: Snapshot) -> dict[str, FirstBatch]:
        """Return those that no earlier snapshot had, by query. now: the next snapshot.

        What was committed more than an interval before the first snapshot is none of its items.
        """
        found = {}
        for name, reading in now.reading.items():
            first = reading.first_batch
            if first is None or self._seen.get(name) == first:
                continue
            self._seen[name] = first
            if self._begun or now.time_s - first.committed_s <= (now.interval_s or 0.0):
                found[name] = first
        self._begun = True
        return found


def first_delay(first: FirstBatch) -> Latency:
    """Return the delay of a first batch's rows: they waited at least until its end."""
    least_s = first.duration_s
    return Latency(least_s, least_s, least_s, least_s, at_least=True)


def query_figures(
    turns: Sequence[Turn],
    spans: Sequence[float],
    slo_s: float | None = None,
    firsts: Sequence[Mapping[str, FirstBatch]] = (),
) -> tuple[QueryFigures, ...]:
    """Return the figures of each query, in the order in which they appeared.

    turns: with snapshots. spans: seconds for which the snapshot of each turn stands. slo_s: target
    of queries that have no other than the journal's default, in seconds; None for that default.
    firsts: first batches, which the rates do not count.
    """
    names: dict[str, None] = {}
    for turn in turns:
        if turn.snapshot is not None:
            names.update(dict.fromkeys(queries_of(turn.snapshot)))
    return tuple(
        _one(name, turns, spans, slo_s, [each[name] for each in firsts if name in each])
        for name in names
    )


def _one(
    name: str,
    turns: Sequence[Turn],
    spans: Sequence[float],
    default_s: float | None,
    firsts: Sequence[FirstBatch],
) -> QueryFigures:
    delays = [(first_delay(first), first.rows) for first in firsts]
    ages: list[tuple[Latency, float]] = []
    items = math.fsum(first.rows for first in firsts)
    seen_s = limited_s = arrived = arrived_s = without_s = 0.0
    slo_s, cost, admission, aged = default_s, None, "", False
    backlogs: list[float] = []
    states: list[float] = []
    for turn, span_s in zip(turns, spans, strict=True):
        now = turn.snapshot
        if now is None or name not in now.topology.by_name:
            continue
        reading = now.reading[name]
        own_s = now.operator(name).slo_s
        if own_s is None:
            own_s = turn.slo_s
        if own_s is not None and (default_s is None or own_s != turn.slo_s):
            slo_s = own_s
        seen_s += span_s
        done = (items_per_s(reading) or 0.0) * span_s
        items += done
        delays.append((delay_of(now, name), done))
        without_s += span_s if done and not points_of(delay_of(now, name), done) else 0.0
        ages.append((reading.event_age, done))
        aged = aged or by_age(now)
        if reading.arrival_rate_per_s is not None:
            arrived += reading.arrival_rate_per_s * span_s
            arrived_s += span_s
        backlogs += [reading.backlog_s] if reading.backlog_s is not None else []
        states += [reading.state_mb] if reading.state_mb is not None else []
        if reading.batches is not None:
            cost = reading.batches.cost or cost
            admission = reading.batches.admission or admission
            limited_s += span_s if _binds(reading) else 0.0
    if aged:  # events come before arrivals, so that they are at least as old
        ages += [(first_delay(first), first.rows) for first in firsts]
    delay, age = latency_figures(delays, slo_s), latency_figures(ages, slo_s)
    if aged:
        delay = replace(delay, in_time=age.in_time, at_most=age.at_most)
    return QueryFigures(
        name,
        slo_s,
        items,
        delay,
        replace(age, in_time=None, at_most=False),
        arrived / arrived_s if arrived_s else None,
        max(backlogs, default=None),
        max(states, default=None),
        cost,
        admission,
        limited_s,
        seen_s,
        aged,
        without_s=without_s,
    )


def batch_parts(reading: OperatorReading) -> tuple[float, float, float] | None:
    """Return the usual batch of a query in seconds: overhead, fixed work and rows.

    The rows are those that arrive in a period at the present throughput. None where the three terms
    or the slots of a batch are not known.
    """
    batches = reading.batches
    if batches is None or batches.cost is None or not batches.cost.slots:
        return None
    rate = items_per_s(reading)
    if rate is None:
        return None
    cost, slots = batches.cost, batches.cost.slots
    return (
        cost.overhead.value,
        cost.fixed_work.value / slots,
        rate * _period_s(reading) * cost.per_row.value / slots,
    )


def _period_s(reading: OperatorReading) -> float:
    """Return the seconds from the start of one batch to the start of the next."""
    batches = reading.batches
    if batches is None:
        return math.nan
    recent = batches.recent_durations_s[-1:]
    return max(batches.trigger_interval_s, *recent, 0.0)


def _binds(reading: OperatorReading) -> bool:
    """Whether the sources admit no more rows than the query takes already."""
    batches, done = reading.batches, reading.processed_per_s
    if batches is None or not batches.max_rows or done is None:
        return False
    return done * _period_s(reading) >= BINDING * batches.max_rows


def limit_of(reading: OperatorReading) -> str:
    """Return in a sentence what limits a query now; empty if nothing is known to limit it."""
    batches = reading.batches
    if batches is None:
        return ""
    admitted = ""
    if batches.max_rows:
        by = f" ({batches.admission})" if batches.admission else ""
        admitted = f"the source admits at most {batches.max_rows:,.0f} rows a batch{by}"
        if _binds(reading):
            return f"{admitted}: more executors do not help"
    cost, parts = batches.cost, batch_parts(reading)
    total = math.fsum(parts or ())
    if cost is None or parts is None or not total:
        return admitted
    if cost.skew_s is not None and cost.skew_s >= LARGEST * total:
        return "one task takes longer than the others: more executors do not help"
    if parts[0] >= LARGEST * total:
        return "most of a batch is overhead, which no executor shortens"
    if parts[1] >= LARGEST * total:
        return "most of a batch is fixed work: a longer trigger saves more than executors"
    return admitted
