"""One turn in full: what was measured, what was wanted, what held it, and what came of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tidegate.codec import to_plain
from tidegate.dashboard.view import Row, change_of, tables_of, thresholds_of
from tidegate.errors import TidegateError
from tidegate.loop.journal import Turn
from tidegate.model import Plan, Snapshot
from tidegate.theory.microbatch import BatchQuery, mean_s
from tidegate.theory.queueing import Station, waiting_items
from tidegate.units import show_duration

__all__ = ["aftermath", "detail_of"]

ACTIONS = ("scale in", "no action", "scale out")
LOOK_AHEAD = 60
"""Turns after a decision in which its effect is looked for."""


def detail_of(turn: Turn, row: Row, later: Sequence[Row] = ()) -> dict[str, Any]:
    """All that a page shows of a turn, as plain values.

    row: its row; later: the rows after it, to tell what came of it.
    """
    now, plan = turn.snapshot, turn.plan
    change = change_of(turn)
    return {
        "index": row.index,
        "number": turn.number,
        "time_s": row.time_s,
        "policy": turn.policy,
        "text": change.text if change else _quiet(turn),
        "change": change.kind if change else None,
        "hosts": _hosts(now) if now else [],
        "operators": _operators(now) if now else [],
        "edges": [to_plain(edge) for edge in now.topology.edges] if now else [],
        "sources": [source.name for source in now.topology.sources] if now else [],
        "plan": _plan(plan, now) if plan else None,
        "steps": [str(step) for step in turn.outcome.steps] if turn.outcome else [],
        "refused": list(turn.outcome.refused) if turn.outcome else [],
        "controls": list(row.controls),
        "error": turn.error,
        "learning": _learning(turn.memory),
        "aftermath": aftermath(row, later) if change else None,
        "missing": list(now.missing(MEASURED)) if now else [],
    }


MEASURED = ("host.utilisation", "operator.arrival_rate_per_s", "latency.p95_s")


def _quiet(turn: Turn) -> str:
    """A sentence for a turn that changed nothing."""
    if turn.error is not None:
        return f"The turn failed and nothing was changed: {turn.error}"
    plan = turn.plan
    if plan is None:
        return "Nothing was decided."
    why = plan.reasons[0].text.rstrip(".") if plan.reasons else ""
    if plan.bindings and plan.raw_target != plan.bounded_target:
        held = plan.bindings[-1]
        wish = f"The policy wanted {plan.raw_target} hosts; {held.guard} held it: {held.why}."
        return f"{wish} Its reason: {why}." if why else wish
    return f"Nothing changed: {why}." if why else "Nothing changed."


def _hosts(now: Snapshot) -> list[dict[str, Any]]:
    inside: dict[str, list[dict[str, Any]]] = {host.id: [] for host in now.hosts}
    for instance in now.instances:
        inside[instance.host].append(
            {
                "id": instance.id,
                "operator": instance.operator,
                "status": instance.status,
                "cores": instance.load.cpu_cores if instance.load else None,
            }
        )
    found = []
    for host in now.hosts:
        lease = host.lease
        found.append(
            {
                "id": host.id,
                "status": host.status,
                "utilisation": host.utilisation,
                "cores": host.capacity.cpu_cores,
                "memory_mb": host.capacity.memory_mb,
                "lease_left_s": lease.time_left_s(now.time_s) if lease else None,
                "lease_unit_s": lease.billing_unit_s if lease else None,
                "instances": inside[host.id],
            }
        )
    return found


def _operators(now: Snapshot) -> list[dict[str, Any]]:
    running = now.running.counts
    requested = now.requested.counts
    found = []
    for operator in now.topology.operators:
        reading = now.reading[operator.name]
        service_s = now.service_time_s(operator.name)
        count = running[operator.name]
        rate = reading.arrival_rate_per_s
        known = rate is not None and service_s is not None and count > 0
        recent = reading.recent_durations_s
        measured_s = fmean(recent) if recent else None
        if measured_s is None and len(now.topology.operators) == 1:
            measured_s = now.latency.mean_s
        found.append(
            {
                "name": operator.name,
                "arrival_per_s": rate,
                "processed_per_s": reading.processed_per_s,
                "dropped_per_s": reading.dropped_per_s,
                "queue": reading.queue_length,
                "instances": count,
                "requested": requested[operator.name],
                "service_s": service_s,
                "busy": rate * service_s / count if known and rate and service_s else None,
                "measured_s": measured_s,
                "predicted_s": _sojourn_s(now, operator.name, count),
                "overloaded": bool(known and rate and service_s and rate * service_s >= count),
                "slo_s": operator.slo_s,
            }
        )
    busiest = max((o for o in found if o["busy"] is not None), key=_busy, default=None)
    for entry in found:
        entry["bottleneck"] = entry is busiest
    return found


def _busy(operator: dict[str, Any]) -> float:
    return float(operator["busy"])


def _sojourn_s(now: Snapshot, name: str, count: int) -> float | None:
    """Mean time in an operator by the model: a queue with so many servers, or micro-batches."""
    reading, service_s = now.reading[name], now.service_time_s(name)
    rate = reading.arrival_rate_per_s
    if not rate or not service_s or count < 1:
        return None
    try:
        if reading.batches is not None and reading.batches.overhead_s is not None:
            trigger_s = reading.batches.trigger_interval_s
            query = BatchQuery(name, rate, service_s, reading.batches.overhead_s, trigger_s)
            found = mean_s((query,), (count,))
        else:
            station = Station(name, rate, 1 / service_s)
            found = waiting_items(count, station) / rate + service_s
    except TidegateError:
        return None
    return found if math.isfinite(found) else None


def _plan(plan: Plan, now: Snapshot | None) -> dict[str, Any]:
    before = now.requested.counts if now else Counter()
    after = plan.deployment.counts
    names = sorted({*before, *after})
    return {
        "raw_target": plan.raw_target,
        "target": plan.bounded_target,
        "requested": len(now.requested.hosts) if now else None,
        "reasons": [to_plain(reason) for reason in plan.reasons],
        "bindings": [to_plain(binding) for binding in plan.bindings],
        "predicted": to_plain(plan.predicted),
        "unmet": [to_plain(unmet) for unmet in plan.unmet],
        "shed_fraction": plan.shed_fraction,
        "counts": [
            {"operator": name, "before": before[name], "after": after[name]} for name in names
        ],
    }


def _learning(memory: Any) -> dict[str, Any] | None:
    """Tables by host, None when the policy does not learn."""
    tables = tables_of(memory)
    if not tables:
        return None
    shown = []
    for name in sorted(tables, key=_by_number):
        lower, upper = thresholds_of(tables[name])
        shown.append(
            {
                "host": name,
                "rows": tables[name]["rows"],
                "visits": tables[name].get("visits", []),
                "lower": lower,
                "upper": upper,
            }
        )
    return {"actions": ACTIONS, "tables": shown}


def _by_number(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return (int(digits or 0), name)


def aftermath(row: Row, later: Sequence[Row]) -> dict[str, Any]:
    """What came of a decision: from its turn until its hosts ran, or until the next decision.

    A new host counts once it runs; the figures are those of the turn after that, since what was
    measured before belongs to the old size.
    """
    seen = [r for r in later[:LOOK_AHEAD] if r.time_s is not None]
    if not seen or row.time_s is None:
        return {
            "text": "Not known yet: there is no later turn.",
            "before": _figures(row),
            "after": None,
        }
    target = row.change.after if row.change else row.requested
    done = next((n for n, r in enumerate(seen) if r.running == target == r.hosts), None)
    until = next((n for n, r in enumerate(seen) if r.change and r.change.before != r.change.after),
                 len(seen))  # fmt: skip
    after = seen[min(len(seen) - 1, until if done is None else done + 1)]
    passed = show_duration((after.time_s or 0.0) - row.time_s)
    if done is None:
        text = f"The size it asked for was not seen complete; {passed} later:"
    else:
        took = show_duration((seen[done].time_s or 0.0) - row.time_s)
        text = f"All of it ran at the latest {took} later; {passed} after the decision:"
    return {"text": text, "before": _figures(row), "after": _figures(after)}


def _figures(row: Row) -> dict[str, Any]:
    names = ("rate_per_s", "capacity_per_s", "lag", "mean_s", "p95_s", "running", "utilisation")
    return {name: getattr(row, name) for name in (*names, "usd_per_h")}
