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
    entries = set(snapshot.topology.entries)
    found = []
    for operator in snapshot.topology.operators:
        reading = snapshot.reading[operator.name]
        arrives, done, p95_s = (
            reading.arrival_rate_per_s,
            reading.processed_per_s,
            reading.delay.p95_s,
        )
        if reading.batches is not None and _beyond_help(reading, operator.slo_s):
            continue
        late = operator.slo_s is not None and p95_s is not None and p95_s > operator.slo_s
        behind = arrives is not None and done is not None and arrives > MORE * done
        if late or (behind and operator.name in entries):
            found.append(operator.name)
    return tuple(found)


def overloaded(snapshot: Snapshot) -> bool:
    """Whether an operator is overloaded (`overloaded_queries`), or the whole application late.

    The latency of the whole application counts, against the largest SLO, where the processing delay
    of an operator is unknown.
    """
    if overloaded_queries(snapshot):
        return True
    slos = {o.name: o.slo_s for o in snapshot.topology.operators if o.slo_s is not None}
    unknown = any(snapshot.reading[name].delay.p95_s is None for name in slos)
    whole_s = snapshot.latency.p95_s
    return unknown and whole_s is not None and whole_s > max(slos.values())


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
