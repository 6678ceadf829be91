"""Whether an application is overloaded, as guards see it."""

from __future__ import annotations

from tidegate.model import OperatorReading, Snapshot

__all__ = ["MORE", "overloaded", "overloaded_queries"]

MORE = 1.05
"""Ratio of two rates from which one counts as higher than the other."""


def overloaded_queries(snapshot: Snapshot) -> tuple[str, ...]:
    """Operators that are beyond their SLO, or at which more arrives than is processed.

    An operator is judged by its own processing delay. More hosts do not help one whose source
    admits no more, or whose SLO is below the best possible latency; such operators do not count.
    """
    found = _overloaded(snapshot)
    return tuple([name for name in snapshot.topology.by_name if name in found]) if found else ()


def _overloaded(snapshot: Snapshot) -> set[str]:
    """The operators of `overloaded_queries`, in any order."""
    arrived, processed = snapshot.rates
    slos = snapshot.topology.slos_s
    found = {
        name
        for name in snapshot.topology.entries
        if (arrives := arrived[name]) is not None
        and (done := processed[name]) is not None
        and arrives > MORE * done
    }
    if snapshot.delayed:
        found |= {r.operator for r in snapshot.delayed if _later(r, slos.get(r.operator))}
    if found:
        found -= {r.operator for r in snapshot.batched if _beyond_help(r, slos.get(r.operator))}
    return found


def overloaded(snapshot: Snapshot) -> bool:
    """Whether an operator is overloaded (`overloaded_queries`), or the whole application late.

    The latency of the whole application counts, against the largest SLO, where the processing delay
    of an operator is unknown.
    """
    if _overloaded(snapshot):
        return True
    slos, whole_s = snapshot.topology.slos_s, snapshot.latency.p95_s
    if whole_s is None or whole_s <= snapshot.topology.largest_slo_s:
        return False
    return not slos.keys() <= {reading.operator for reading in snapshot.delayed}


def _later(reading: OperatorReading, slo_s: float | None) -> bool:
    """Whether the measured delay of an operator is beyond its SLO."""
    p95_s = reading.delay.p95_s
    return slo_s is not None and p95_s is not None and p95_s > slo_s


def _beyond_help(reading: OperatorReading, slo_s: float | None) -> bool:
    """Whether no number of hosts would bring an operator within its SLO."""
    batches, rate = reading.batches, reading.arrival_rate_per_s
    if batches is None:
        return False
    trigger_s = batches.trigger_interval_s
    if batches.max_rows is not None and trigger_s and rate is not None:
        waiting = reading.queue_length or 0.0
        if rate * trigger_s > 0.95 * batches.max_rows or waiting > 2 * batches.max_rows:
            return True
    overhead_s = batches.overhead_s or 0.0
    return slo_s is not None and slo_s < max(trigger_s, overhead_s) + overhead_s
