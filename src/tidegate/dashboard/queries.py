"""What the dashboard shows of each query: one turn in full, and totals since the journal began."""

from __future__ import annotations

from collections import deque
from typing import Any

from tidegate.codec import to_plain
from tidegate.loop.journal import Turn
from tidegate.model import BatchCost, OperatorReading, Snapshot
from tidegate.report.queries import batch_parts, delay_of, judged_of, limit_of, queries_of
from tidegate.report.query_metrics import QueryMetrics
from tidegate.report.summary import slo_of

__all__ = ["QueryTotals", "queries_detail"]

RECENT = 40
"""Turns in the small line of a query."""


class QueryTotals:
    """Rows by query since the journal began: in time, late and without a measured delay.

    slo_s: target of queries without their own; None for the target in the journal.
    """

    def __init__(self, slo_s: float | None = None) -> None:
        self.slo_s = slo_s
        self._counts = QueryMetrics()
        self._recent: dict[str, deque[float | None]] = {}
        self._last_s: float | None = None

    def add(self, turn: Turn) -> None:
        """Add the next turn."""
        now = turn.snapshot
        if now is None:
            return
        slo_s = slo_of(turn) if self.slo_s is None else self.slo_s
        span_s = (now.interval_s or 0.0) if self._last_s is None else now.time_s - self._last_s
        self._counts.add(turn, max(0.0, span_s), slo_s)
        self._last_s = now.time_s
        for name in queries_of(now):
            self._recent.setdefault(name, deque(maxlen=RECENT)).append(judged_of(now, name).p95_s)

    def plain(self) -> dict[str, Any]:
        """Return the totals by query, as plain values."""
        return {
            name: {
                "rows": self._counts.rows[name],
                "late": self._counts.late[name],
                "unmeasured": self._counts.unmeasured[name],
                "recent": list(recent),
            }
            for name, recent in self._recent.items()
        }


def queries_detail(turn: Turn, now: Snapshot, slo_s: float | None = None) -> list[dict[str, Any]]:
    """Return the queries of a turn, as plain values. slo_s: of queries without their own."""
    default_s = slo_of(turn) if slo_s is None else slo_s
    return [_one(now, name, now.reading[name], default_s) for name in queries_of(now)]


def _one(
    now: Snapshot, name: str, reading: OperatorReading, default_s: float | None
) -> dict[str, Any]:
    own_s = now.operator(name).slo_s
    batches = reading.batches
    cost = batches.cost if batches is not None else None
    parts = batch_parts(reading)
    recent = batches.recent_durations_s if batches is not None else ()
    return {
        "name": name,
        "slo_s": default_s if own_s is None else own_s,
        "delay": to_plain(delay_of(now, name)),
        "event_age": to_plain(reading.event_age),
        "judged": to_plain(judged_of(now, name)),
        "backlog_s": reading.backlog_s,
        "queue": reading.queue_length,
        "arrival_per_s": reading.arrival_rate_per_s,
        "processed_per_s": reading.processed_per_s,
        "state_mb": reading.state_mb,
        "batch_s": recent[-1] if recent else None,
        "trigger_s": batches.trigger_interval_s if batches is not None else None,
        "parts_s": None if parts is None else list(parts),
        "unclear": [] if cost is None else _unclear(cost),
        "slots": cost.slots if cost is not None else None,
        "skew_s": cost.skew_s if cost is not None else None,
        "limit": limit_of(reading),
    }


def _unclear(cost: BatchCost) -> list[str]:
    """Return the terms of a batch's cost that the batches so far do not separate."""
    terms = {"overhead": cost.overhead, "fixed work": cost.fixed_work, "rows": cost.per_row}
    return [name for name, estimate in terms.items() if not estimate.identified]
