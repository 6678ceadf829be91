"""Whether an application is overloaded, as guards see it."""

from __future__ import annotations

from tidegate.model import Snapshot

__all__ = ["MORE", "overloaded"]

MORE = 1.05
"""Ratio of two rates from which one counts as higher than the other."""


def overloaded(snapshot: Snapshot) -> bool:
    """Whether more arrives than is processed, or a query's latency is above its SLO.

    A query is judged by its own processing delay. Where that is unknown, the latency of the whole
    application counts, against the largest SLO.
    """
    slos = {o.name: o.slo_s for o in snapshot.topology.operators if o.slo_s is not None}
    unknown = False
    for name, slo_s in slos.items():
        p95_s = snapshot.reading[name].delay.p95_s
        unknown = unknown or p95_s is None
        if p95_s is not None and p95_s > slo_s:
            return True
    whole_s = snapshot.latency.p95_s
    if unknown and whole_s is not None and whole_s > max(slos.values()):
        return True
    for name in snapshot.topology.entries:
        arrives = snapshot.reading[name].arrival_rate_per_s
        done = snapshot.reading[name].processed_per_s
        if arrives is not None and done is not None and arrives > MORE * done:
            return True
    return False
