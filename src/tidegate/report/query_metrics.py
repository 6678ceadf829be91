"""Prometheus metrics of each query: its SLO, delay, event age, backlog, cost of a batch and state.

A delay that is a lower bound counts in the histogram at that value or above, weighted by the rows:
an overload without a watermark is late, not invisible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.loop.journal import Turn
from tidegate.model import BatchCost, BatchReading, OperatorReading, Snapshot
from tidegate.report.points import Point, points_of
from tidegate.report.queries import (
    FirstBatches,
    delay_of,
    first_delay,
    items_per_s,
    judged_of,
    queries_of,
)

__all__ = ["BUCKETS_S", "QUERY_METRICS", "Histogram", "Metric", "QueryMetrics", "Values"]

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
MB = 1e6
Values = dict[tuple[str, ...], float | None]
"""Values by labels; None if not measured."""


class Metric(NamedTuple):
    """Kind, help and labels of a metric."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


_Q = ("query",)
QUERY_METRICS = {
    "tidegate_query_slo_seconds": Metric("gauge", "Latency target of a query.", _Q),
    "tidegate_query_delay_seconds": Metric(
        "histogram",
        "Processing delay of a query's rows, from when they could be read to their commit; lower "
        "bounds count at their value.",
        _Q,
    ),
    "tidegate_query_delay_p95_seconds": Metric(
        "gauge", "95th percentile of the processing delay in the last turn.", _Q
    ),
    "tidegate_query_delay_is_lower_bound": Metric(
        "gauge", "1 if the delay of the last turn is a lower bound, else 0.", _Q
    ),
    "tidegate_query_rows_total": Metric(
        "counter", "Rows of a query whose delay is known, or bounded from below.", _Q
    ),
    "tidegate_query_late_rows_total": Metric(
        "counter", "Those of these rows whose delay exceeds the query's own SLO.", _Q
    ),
    "tidegate_query_unmeasured_rows_total": Metric(
        "counter", "Rows of a query whose delay was not measured.", _Q
    ),
    "tidegate_query_event_age_p95_seconds": Metric(
        "gauge", "95th percentile of the rows' age by their own time stamps at the commit.", _Q
    ),
    "tidegate_query_backlog_seconds": Metric(
        "gauge", "Time in which the waiting rows could be processed at this throughput.", _Q
    ),
    "tidegate_query_input_rows_per_second": Metric("gauge", "Rows that arrive.", _Q),
    "tidegate_query_processed_rows_per_second": Metric("gauge", "Rows that are processed.", _Q),
    "tidegate_query_shed_rows_per_second": Metric(
        "gauge", "Rows that are shed: part of the input, not processed.", _Q
    ),
    "tidegate_query_batch_seconds": Metric("gauge", "Duration of the last micro-batch.", _Q),
    "tidegate_query_source_wait_seconds": Metric(
        "gauge",
        "Time that the sources took to say what there is to read, or have taken by now.",
        _Q,
    ),
    "tidegate_query_batch_overhead_seconds": Metric(
        "gauge", "Part of a batch that no slot shortens.", _Q
    ),
    "tidegate_query_batch_fixed_work_seconds": Metric(
        "gauge", "Slot-seconds of a batch that do not depend on its rows.", _Q
    ),
    "tidegate_query_row_work_seconds": Metric("gauge", "Slot-seconds of a row.", _Q),
    "tidegate_query_batch_skew_seconds": Metric(
        "gauge", "Part of a batch in which it waits for its longest tasks.", _Q
    ),
    "tidegate_query_batch_slots": Metric("gauge", "Task slots that recent batches held.", _Q),
    "tidegate_query_cost_identified": Metric(
        "gauge",
        "1 if the batches so far separate this term of a batch's duration from the others, else 0.",
        ("query", "term"),
    ),
    "tidegate_query_state_bytes": Metric("gauge", "Memory of a query's state.", _Q),
    "tidegate_query_admission_rows": Metric(
        "gauge", "Most rows that the sources admit in a batch; absent without a limit.", _Q
    ),
}
"""The metrics with a label for the query."""


@dataclass
class Histogram:
    """Counts by bucket of `BUCKETS_S`, and the sum."""

    counts: list[float] = field(default_factory=lambda: [0.0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, points: list[Point]) -> None:
        """Add items with their latencies."""
        for seconds, items, _ in points:
            self.counts[bisect_left(BUCKETS_S, seconds)] += items
            self.total_s += seconds * items

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper edges and the items up to them, as Prometheus expects."""
        so_far = [sum(self.counts[: n + 1]) for n in range(len(self.counts))]
        return list(zip([*map(str, BUCKETS_S), "+Inf"], so_far, strict=True))

    def copy(self) -> Histogram:
        """Return a copy that later items do not change."""
        return Histogram(list(self.counts), self.total_s)


class QueryMetrics:
    """What is counted by query; one thread at a time."""

    def __init__(self) -> None:
        self.delays: dict[str, Histogram] = defaultdict(Histogram)
        self.rows: dict[str, float] = defaultdict(float)
        self.late: dict[str, float] = defaultdict(float)
        self.unmeasured: dict[str, float] = defaultdict(float)
        self._firsts = FirstBatches()

    def add(self, turn: Turn, span_s: float, slo_s: float | None) -> None:
        """Count the rows of a turn. span_s: its length. slo_s: of queries without their own.

        The rows of a first batch are in no rate; they count with its duration as a lower bound.
        """
        now = turn.snapshot
        if now is None:
            return
        firsts = self._firsts.new(now)
        for name in queries_of(now):
            rows = (items_per_s(now.reading[name]) or 0.0) * max(0.0, span_s)
            self.delays[name].add(points_of(delay_of(now, name), rows))
            points = points_of(judged_of(now, name), rows)
            self.unmeasured[name] += 0.0 if points else rows
            if (first := firsts.get(name)) is not None:
                bound = points_of(first_delay(first), first.rows)
                self.delays[name].add(bound)
                points = [*points, *bound]
            limit_s = _slo_s(now, name, slo_s)
            self.rows[name] += sum(point.items for point in points)
            if limit_s is not None:
                self.late[name] += sum(p.items for p in points if p.seconds > limit_s)

    def values(self, now: Snapshot | None, slo_s: float | None) -> dict[str, Values]:
        """Return values by metric, without its prefix. now: the last snapshot."""
        found: dict[str, Values] = {
            "query_rows_total": {(name,): rows for name, rows in self.rows.items()},
            "query_late_rows_total": {(name,): self.late[name] for name in self.rows},
            "query_unmeasured_rows_total": {(name,): n for name, n in self.unmeasured.items()},
        }
        if now is None:
            return found
        names = queries_of(now)
        readings = {name: now.reading[name] for name in names}
        found["query_slo_seconds"] = {(name,): _slo_s(now, name, slo_s) for name in names}
        found["query_delay_p95_seconds"] = {(name,): delay_of(now, name).p95_s for name in names}
        found["query_delay_is_lower_bound"] = {
            (name,): float(delay.at_least)
            for name in names
            if points_of(delay := delay_of(now, name), 1.0)
        }
        for metric, value in _READINGS.items():
            found[metric] = {(name,): value(reading) for name, reading in readings.items()}
        for name, reading in readings.items():
            cost = reading.batches.cost if reading.batches is not None else None
            for metric, term in _COSTS.items():
                found.setdefault(metric, {})[name,] = None if cost is None else term(cost)
            if cost is not None:
                terms = {
                    "overhead": cost.overhead,
                    "fixed_work": cost.fixed_work,
                    "per_row": cost.per_row,
                }
                found.setdefault("query_cost_identified", {}).update(
                    {(name, term): float(e.identified) for term, e in terms.items()}
                )
        return found


def _slo_s(now: Snapshot, name: str, default_s: float | None) -> float | None:
    own_s = now.operator(name).slo_s
    return default_s if own_s is None else own_s


def _batch(
    value: Callable[[BatchReading], float | None],
) -> Callable[[OperatorReading], float | None]:
    return lambda reading: None if reading.batches is None else value(reading.batches)


_READINGS: dict[str, Callable[[OperatorReading], float | None]] = {
    "query_event_age_p95_seconds": lambda r: r.event_age.p95_s,
    "query_backlog_seconds": lambda r: r.backlog_s,
    "query_input_rows_per_second": lambda r: r.arrival_rate_per_s,
    "query_processed_rows_per_second": lambda r: r.processed_per_s,
    "query_shed_rows_per_second": lambda r: r.shed_per_s,
    "query_state_bytes": lambda r: None if r.state_mb is None else r.state_mb * MB,
    "query_batch_seconds": _batch(
        lambda b: b.recent_durations_s[-1] if b.recent_durations_s else None
    ),
    "query_source_wait_seconds": lambda r: r.source_wait_s,
    "query_admission_rows": _batch(lambda b: b.max_rows),
}
_COSTS: dict[str, Callable[[BatchCost], float | None]] = {
    "query_batch_overhead_seconds": lambda c: c.overhead.value,
    "query_batch_fixed_work_seconds": lambda c: c.fixed_work.value,
    "query_row_work_seconds": lambda c: c.per_row.value,
    "query_batch_skew_seconds": lambda c: c.skew_s,
    "query_batch_slots": lambda c: c.slots,
}
