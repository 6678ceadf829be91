"""From turns to what the dashboard shows: one small row per turn, and any turn in full.

Pure: no file, no clock, no server. `RowBuilder` takes turns in order and returns a row for each. It
carries over only the bill and the controls in effect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from tidegate.codec import Value, to_plain
from tidegate.dashboard.queries import QueryTotals, queries_detail
from tidegate.errors import TidegateError
from tidegate.loop.billing import Bill
from tidegate.loop.controls import ControlState
from tidegate.loop.journal import Turn
from tidegate.model import Plan, Snapshot
from tidegate.model.steps import Step
from tidegate.report.queries import independent, judged
from tidegate.report.summary import capacity_of, lag_of, rate_of, slo_of
from tidegate.theory.microbatch import BatchQuery, mean_s
from tidegate.theory.queueing import Station, waiting_items
from tidegate.units import natural, show_duration

__all__ = [
    "Change",
    "Row",
    "RowBuilder",
    "change_of",
    "columns",
    "detail_of",
    "effect_of",
    "tables_of",
    "thinned",
]

MOST_REASONS = 2
GOOD_REASONS = {"out": ("lease", "latency", "overload"), "in": ("spare", "underload", "release")}
"""Codes of the reasons that best explain a change of hosts, where a plan has several."""


@dataclass(frozen=True, slots=True)
class Change(Value):
    """What a turn changed, as text.

    Args:
        kind: ``out`` (more hosts or instances), ``in`` (fewer), ``move`` (the same number
            elsewhere) or ``refused``.
        before: Requested hosts before the turn.
        after: Requested hosts after it.
        what: The steps in words.
        why: The reasons in words.
        held: How a guard limited the policy; empty if none did.
        refused: What the backend refused; empty if nothing.
    """

    kind: str
    before: int
    after: int
    what: str
    why: str
    held: str = ""
    refused: str = ""

    @property
    def text(self) -> str:
        """The whole change in sentences."""
        parts = (f"{self.what}: {self.why}" if self.why else self.what, self.held, self.refused)
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


@dataclass(frozen=True, slots=True)
class Row(Value):
    """A turn in the few values that charts show; None for what was not measured.

    Times are in seconds and rates in items per second.

    Args:
        index: Position in the journal, from 0.
        number: Number of the turn.
        time_s: Time of the snapshot; None for a turn without one.
        rate_per_s: Input from outside.
        capacity_per_s: Input that the running hosts can process.
        shed: Share of the input to drop.
        lag: Items waiting at all operators.
        mean_s: Mean latency.
        p50_s: Median latency.
        p95_s: 95th percentile of the latency.
        p99_s: 99th percentile of the latency.
        at_least: Whether the latency is a lower bound.
        age_p95_s: 95th percentile of the items' age by their own time stamps.
        judged: Queries with an SLO and a measured delay, if they do not depend on each other.
        beyond: How many of them are beyond their own SLO.
        worst: The one that is closest to its SLO or furthest beyond it, as plain values.
        ratio: The 95th percentile of its delay as a share of its SLO.
        slo_s: Latency target.
        hosts: Hosts that are paid for.
        running: Hosts that are running.
        requested: Hosts that are running or starting.
        wanted: Hosts that the policy targets, before the guards.
        planned: Hosts planned after the guards.
        utilisation: Mean utilisation of the running hosts.
        cost_usd: Cost since the first turn of the journal; see `Bill`.
        usd_per_h: Price of the hosts per hour.
        predicted_s: Mean latency that the plan predicts.
        lower: Utilisation up to which a learning policy scales in, mean of its hosts.
        upper: Utilisation from which it scales out.
        guards: Names of the guards that changed the plan.
        change: What the turn changed.
        controls: Controls that were requested before the turn.
        error: Why the turn failed.
    """

    index: int
    number: int
    time_s: float | None
    rate_per_s: float | None = None
    capacity_per_s: float | None = None
    shed: float | None = None
    lag: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    at_least: bool = False
    age_p95_s: float | None = None
    judged: int = 0
    beyond: int = 0
    worst: Any = None
    ratio: float | None = None
    slo_s: float | None = None
    hosts: int | None = None
    running: int | None = None
    requested: int | None = None
    wanted: int | None = None
    planned: int | None = None
    utilisation: float | None = None
    cost_usd: float | None = None
    usd_per_h: float | None = None
    predicted_s: float | None = None
    lower: float | None = None
    upper: float | None = None
    guards: str = ""
    change: Change | None = None
    controls: tuple[str, ...] = ()
    error: str | None = None


class RowBuilder:
    """Makes a row of each turn. slo_s: latency target; None for the target in the journal."""

    def __init__(self, slo_s: float | None = None) -> None:
        self.slo_s = slo_s
        self.bill = Bill()
        self.queries = QueryTotals(slo_s)
        self.in_force = ControlState()
        self.policy = ""
        self.count = 0

    def skip(self, error: str) -> Row:
        """Return the row of a line that cannot be read."""
        index, self.count = self.count, self.count + 1
        return Row(index, 0, None, error=error)

    def add(self, turn: Turn) -> Row:
        """Return the row of the next turn."""
        index, self.count = self.count, self.count + 1
        self.policy = turn.policy
        controls = []
        for control in turn.controls:
            refused = f" (refused: {control.refused})" if control.refused else ""
            controls.append(control.describe() + refused)
            if not control.refused and control.do != "policy":
                # A pause and a dry run change no policy, so none is passed.
                self.in_force, _, _ = self.in_force.after(control, _NO_POLICY, None)
        self.bill.add(turn)
        self.queries.add(turn)
        now, plan = turn.snapshot, turn.plan
        if now is None:
            return Row(index, turn.number, None, controls=tuple(controls), error=turn.error)
        lower, upper = _thresholds(turn.memory)
        slo_s = slo_of(turn) if self.slo_s is None else self.slo_s
        queries = judged(now, slo_s) if independent(now) else []
        worst = queries[0] if queries else None
        busy = [h.utilisation for h in now.running_hosts if h.utilisation is not None]
        return Row(
            index,
            turn.number,
            now.time_s,
            rate_per_s=rate_of(now),
            capacity_per_s=capacity_of(now),
            shed=plan.shed_fraction if plan else None,
            lag=lag_of(now),
            mean_s=now.latency.mean_s,
            p50_s=now.latency.p50_s,
            p95_s=now.latency.p95_s,
            p99_s=now.latency.p99_s,
            at_least=now.latency.at_least,
            age_p95_s=now.event_age.p95_s,
            judged=len(queries),
            beyond=sum(query.late for query in queries),
            worst=to_plain(worst),
            ratio=worst.p95_s / worst.slo_s if worst is not None else None,
            slo_s=slo_s,
            hosts=len(now.hosts),
            running=len(now.running_hosts),
            requested=len(now.requested.hosts),
            wanted=plan.raw_target if plan else None,
            planned=plan.bounded_target if plan else None,
            utilisation=fmean(busy) if busy else None,
            cost_usd=self.bill.cost_usd(),
            usd_per_h=len(now.hosts) * now.offer.usd_per_h,
            predicted_s=plan.predicted.sojourn_s if plan else None,
            lower=lower,
            upper=upper,
            guards=", ".join(dict.fromkeys(b.guard for b in plan.bindings)) if plan else "",
            change=change_of(turn),
            controls=tuple(controls),
            error=turn.error,
        )


_NO_POLICY: Any = None


def change_of(turn: Turn) -> Change | None:
    """Return what a turn changed; None if it changed nothing."""
    now, plan = turn.snapshot, turn.plan
    if now is None or plan is None or turn.outcome is None:
        return None
    steps, refused = turn.outcome.steps, turn.outcome.refused
    if not steps and not refused:
        return None
    kinds = [step.kind for step in steps]
    before = len(now.requested.hosts)
    after = before + kinds.count("lease") - kinds.count("release")
    grew = (after - before) or kinds.count("start") - kinds.count("stop")
    kind = "out" if grew > 0 else "in" if grew < 0 else "move" if steps else "refused"
    held = ""
    if plan.bindings and plan.raw_target != plan.bounded_target:
        last = plan.bindings[-1]
        held = f"The policy targeted {_count(plan.raw_target)}; {last.guard} limited it: {last.why}"
    return Change(
        kind,
        before,
        after,
        _what(steps, before, after) or "Nothing was applied",
        _why(plan, kind),
        held,
        "Refused: " + "; ".join(refused) if refused else "",
    )


def _what(steps: Sequence[Step], before: int, after: int) -> str:
    """Return the steps in words, hosts first."""
    kinds: list[str] = [step.kind for step in steps]
    if after != before:
        verb = "Added" if after > before else "Released"
        return f"{verb} {_count(abs(after - before))} ({before} → {after})"
    if "lease" in kinds:
        return f"Replaced {_count(kinds.count('lease'))} of {before}"
    found = []
    for kind, verb in (("start", "started"), ("stop", "stopped"), ("move", "moved")):
        if many := kinds.count(kind):
            found.append(f"{verb} {many} instance{'' if many == 1 else 's'}")
    return _sentence_case(", ".join(found)) + (f" on {_count(before)}" if found else "")


def _why(plan: Plan, kind: str) -> str:
    """Return the most informative reasons, as part of a sentence."""
    good = [r for code in GOOD_REASONS.get(kind, ()) for r in plan.reasons if r.code == code]
    chosen = (good or list(plan.reasons))[:MOST_REASONS]
    return "; ".join(dict.fromkeys(reason.text.rstrip(".") for reason in chosen))


def _count(count: int) -> str:
    return f"{count} host{'' if count == 1 else 's'}"


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def tables_of(memory: Any) -> dict[str, Any]:
    """Return what a learning policy has learnt, by host; empty for other policies.

    memory: of the whole stack, with the policy inside its guards. A table of another form, as a
    plug-in may have, is left out.

    >>> tables_of({"own": {}, "inner": {"tables": {"host-1": {"rows": []}}}})
    {'host-1': {'rows': []}}
    """
    while isinstance(memory, dict) and "inner" in memory:
        memory = memory["inner"]
    tables = memory.get("tables") if isinstance(memory, dict) else None
    return {k: t for k, t in tables.items() if _is_table(t)} if isinstance(tables, dict) else {}


def _is_table(table: Any) -> bool:
    """Whether it has rows with a number for each action."""
    rows = table.get("rows") if isinstance(table, dict) else None
    return isinstance(rows, list) and all(
        isinstance(row, list)
        and len(row) == len(ACTIONS)
        and all(isinstance(value, int | float) for value in row)
        for row in rows
    )


def thresholds_of(table: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the utilisation up to which a host scales in, and from which it scales out.

    A row stands for the utilisations from its own to that of the next row.
    """
    rows = table.get("rows", [])
    last = max(1, len(rows) - 1)
    best = [max((1, 0, 2), key=lambda action, row=row: row[action]) for row in rows]  # type: ignore[misc]
    shrink = [min(1.0, (n + 1) / last) for n, action in enumerate(best) if action == 0]
    grow = [n / last for n, action in enumerate(best) if action == 2]
    return (round(shrink[-1], 2) if shrink else None, round(grow[0], 2) if grow else None)


def _thresholds(memory: Any) -> tuple[float | None, float | None]:
    """Return the mean thresholds over the hosts of a learning policy."""
    pairs = [thresholds_of(table) for table in tables_of(memory).values()]
    low = [pair[0] for pair in pairs if pair[0] is not None]
    high = [pair[1] for pair in pairs if pair[1] is not None]
    return (fmean(low) if low else None, fmean(high) if high else None)


def thinned(rows: Sequence[Row], points: int) -> list[Row]:
    """Return about `points` rows: the worst latency of each group of neighbours, and the last row.

    Decisions, controls and errors are kept as long as they are at most half of the points.
    """
    if len(rows) <= points:
        return list(rows)
    events = [row for row in rows if row.change or row.controls or row.error]
    marks = events[:: max(1, math.ceil(len(events) / max(1, points // 2)))]
    room = max(1, points - len(marks) - 1)
    step = len(rows) / room
    kept = {row.index: row for row in (*marks, rows[0], rows[-1])}
    for n in range(room):
        part = rows[int(n * step) : int((n + 1) * step)]
        worst = max(part, key=lambda row: row.p95_s or 0.0)
        kept[worst.index] = worst
    return [kept[index] for index in sorted(kept)]


NAMES = tuple(f.name for f in fields(Row))


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Return rows as columns, which are a third of the size in JSON."""
    every = list(rows)
    found = {name: [getattr(row, name) for row in every] for name in NAMES}
    found["change"] = [_plain(row.change) for row in every]
    return found


def _plain(change: Change | None) -> Any:
    if change is None:
        return None
    return {f.name: getattr(change, f.name) for f in fields(change)} | {"text": change.text}


# --- one turn in full -------------------------------------------------------------------------

ACTIONS = ("scale in", "no action", "scale out")
LOOK_AHEAD = 60
"""Turns after a decision in which its effect is measured."""


def detail_of(
    turn: Turn, row: Row, later: Sequence[Row] = (), slo_s: float | None = None
) -> dict[str, Any]:
    """Return all that the dashboard shows of a turn, as plain values.

    row: the row of the turn; later: the rows after it, for the effect of the turn. slo_s: target of
    queries without their own; None for the target in the journal.
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
        "queries": queries_detail(turn, now, slo_s) if now else [],
        "edges": [to_plain(edge) for edge in now.topology.edges] if now else [],
        "sources": [source.name for source in now.topology.sources] if now else [],
        "plan": _plan(plan, now) if plan else None,
        "steps": [str(step) for step in turn.outcome.steps] if turn.outcome else [],
        "refused": list(turn.outcome.refused) if turn.outcome else [],
        "notes": [*(turn.outcome.notes if turn.outcome else ()), *turn.notes],
        "controls": list(row.controls),
        "error": turn.error,
        "learning": _learning(turn.memory),
        "effect": effect_of(row, later) if change else None,
        "missing": list(now.missing(MEASURED)) if now else [],
    }


MEASURED = ("host.utilisation", "operator.arrival_rate_per_s", "latency.p95_s")


def _quiet(turn: Turn) -> str:
    """Return a sentence about a turn that changed nothing."""
    if turn.error is not None:
        return f"The turn failed and changed nothing: {turn.error}"
    plan = turn.plan
    if plan is None:
        return "Nothing was decided."
    why = plan.reasons[0].text.rstrip(".") if plan.reasons else ""
    if plan.bindings and plan.raw_target != plan.bounded_target:
        held = plan.bindings[-1]
        text = (
            f"The policy targeted {_count(plan.raw_target)}; {held.guard} limited it: {held.why}."
        )
        return f"{text} Reason of the policy: {why}." if why else text
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
                "executor": host.executor,
                "place": host.pod or host.container or host.address,
                "excluded": host.excluded,
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
    """Return the mean time in an operator by the queueing or micro-batch model.

    count: running instances. None where the model has no steady state or values are missing.
    """
    reading, service_s = now.reading[name], now.service_time_s(name)
    rate = reading.arrival_rate_per_s
    if not rate or not service_s or count < 1:
        return None
    try:
        if reading.batches is not None and reading.batches.overhead_s is not None:
            trigger_s = reading.batches.trigger_interval_s
            cost = reading.batches.cost
            fixed_s = cost.fixed_work.value if cost is not None else 0.0
            # The slots that its batches hold, where they share them with other queries.
            slots = cost.slots if cost is not None and cost.slots else float(count)
            query = BatchQuery(
                name, rate, service_s, reading.batches.overhead_s, trigger_s, fixed_work_s=fixed_s
            )
            found = mean_s((query,), (slots,))
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
    """Return the tables by host; None if the policy does not learn."""
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
    digits = "".join(c for c in name if c in "0123456789")
    return (natural(digits) or 0, name)


def effect_of(row: Row, later: Sequence[Row]) -> dict[str, Any]:
    """Return the effect of a decision: figures before it, and after its hosts run.

    The figures after it are those of the turn after all new hosts run, since earlier measurements
    belong to the old size; if they never all run, those of the turn before the next decision.
    """
    seen = [r for r in later[:LOOK_AHEAD] if r.time_s is not None]
    if not seen or row.time_s is None:
        return {
            "text": "Not known yet: there are no later turns.",
            "before": _figures(row),
            "after": None,
        }
    target = row.change.after if row.change else row.requested
    done = next((n for n, r in enumerate(seen) if r.running == target == r.hosts), None)
    rescales = (n for n, r in enumerate(seen) if r.change and r.change.before != r.change.after)
    until = next(rescales, len(seen))
    after = seen[min(len(seen) - 1, until if done is None else done + 1)]
    passed = show_duration((after.time_s or 0.0) - row.time_s)
    if done is None:
        text = f"The requested size was never reached; {passed} later:"
    else:
        took = show_duration((seen[done].time_s or 0.0) - row.time_s)
        text = f"All hosts ran after {took} at most; {passed} after the decision:"
    return {"text": text, "before": _figures(row), "after": _figures(after)}


def _figures(row: Row) -> dict[str, Any]:
    names = ("rate_per_s", "capacity_per_s", "lag", "mean_s", "p95_s", "running", "utilisation")
    return {name: getattr(row, name) for name in (*names, "usd_per_h")}
