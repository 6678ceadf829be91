"""The costs of a query's batches, fitted to the snapshots of a journal.

A batch takes D = o + (W + n·s)/k. The journal has estimates of the three terms in each turn
(`BatchReading.cost`), or only the slot time of an item and durations in journals of older versions.
What a journal does not contain stays missing, and what it cannot separate is marked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pvariance

from tidegate.codec import Value
from tidegate.errors import JournalError
from tidegate.model import BatchCost, BatchReading, OperatorReading, Snapshot
from tidegate.model.topology import Operator

__all__ = [
    "Fit",
    "QueryFit",
    "fit_query",
    "fit_startup",
    "lasting_durations",
    "shares_slots",
    "unsteadiness",
]

FEWEST_TURNS = 5
"""Fewest steady turns for the overhead of a batch."""
FEW_ITEMS = 5
"""Fixed work of no more than this many items is the noise of an estimate of none."""


LITTLE_WORK = 0.05
"""Share of all work below which a query does not show whether slots are shared."""
WAITING = 0.6
"""Least share of its query's slots that a batch holds on average: it waits for its last task."""


@dataclass(frozen=True, slots=True)
class Fit(Value):
    """One fitted number.

    name, unit: as text. value: None if the journal does not contain it. residual: root mean
    square error over the turns, relative to the measurements. turns: number of turns behind it.
    identified: whether the journal separates it from the other terms of a batch; if not, another
    split of the same work would explain the turns as well.
    """

    name: str
    value: float | None
    unit: str = ""
    residual: float | None = None
    turns: int = 0
    identified: bool = True


@dataclass(frozen=True, slots=True)
class QueryFit:
    """What a journal says about one query.

    Attributes:
        service_s: s, slot-seconds of an item; None for a query that never had one.
        service_scv: Squared coefficient of variation of that.
        fixed_work_s: W, slot-seconds of work in each batch.
        overhead_s: o, in seconds; None for a query that never had a batch.
        overhead_scv: Squared coefficient of variation of the overhead.
        trigger_s: Trigger interval in seconds, None if it was never reported.
        max_rows: Most rows that a batch admits, None for no limit.
        fits: The same with the evidence.
    """

    service_s: float | None
    service_scv: float
    fixed_work_s: float
    overhead_s: float | None
    overhead_scv: float
    trigger_s: float | None
    max_rows: int | None
    fits: tuple[Fit, ...]


def fit_query(
    snapshots: Sequence[Snapshot], operator: Operator, shared: bool, name: str
) -> QueryFit:
    """Fit the batches of one query. shared: whether queries share slots. name: of the journal.

    Raises JournalError if a query had items and the cost of its batches cannot be determined.
    """
    readings = [s.reading[operator.name] for s in snapshots if operator.name in s.reading]
    batches = [r.batches for r in readings if r.batches]
    costs = [b.cost for b in batches if b.cost]
    label = f"{operator.name}: "
    triggers = [b.trigger_interval_s for b in batches]
    trigger_s = Counter(triggers).most_common(1)[0][0] if triggers else None
    limits = [b.max_rows for b in batches if b.max_rows is not None]
    max_rows = max(1, round(limits[-1])) if limits else None
    scv, scv_turns = _mean_of(r.service_scv for r in readings)
    if not any(r.service_time_s for r in readings) and not costs:
        if any(r.arrival_rate_per_s or r.processed_per_s or r.queue_length for r in readings):
            remedy = "its queries must have processed something while it was recorded"
            value = f"{operator.name} without a service time"
            raise JournalError(name, value, "one with it", remedy)
        idle = tuple(Fit(label + what, None, "s") for what in ("slot time an item", "fixed work"))
        idle += (Fit(label + "overhead of a batch", None, "s"),)
        return QueryFit(None, 0.0, 0.0, None, 0.0, trigger_s, max_rows, idle)
    fixed, service = _work(readings, costs, operator.name, name)
    fixed_s, service_s = fixed.value or 0.0, service.value or 0.0
    turns = _steady_turns(snapshots, operator, fixed_s, service_s, shared)
    overhead, spread = _overhead(batches, turns, operator.name, name, shared)
    fits = (
        service,
        Fit(label + "service variation", scv, "", None, scv_turns),
        fixed,
        overhead,
        Fit(label + "overhead variation", spread),
        Fit(label + "trigger interval", trigger_s, "s", None, len(triggers)),
        Fit(label + "rows of a batch, at most", max_rows, "", None, len(limits)),
    )
    return QueryFit(
        service_s,
        scv or 0.0,
        fixed_s,
        overhead.value,
        spread or 0.0,
        trigger_s,
        max_rows,
        fits if max_rows is not None else fits[:-1],
    )


def _mean_of(values: Iterable[float | None]) -> tuple[float | None, int]:
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None), len(known)


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Weighted median. weighted: values with their weights."""
    half, so_far = sum(weight for _, weight in weighted) / 2, 0.0
    for value, weight in sorted(weighted):
        so_far += weight
        if so_far >= half:
            return value
    raise AssertionError("nothing has no median")


# --- the work of a batch ----------------------------------------------------------------------


def _work(
    readings: Sequence[OperatorReading], costs: Sequence[BatchCost], operator: str, name: str
) -> tuple[Fit, Fit]:
    """Fixed work of a batch, and slot time of an item.

    Estimates with a narrow interval count more. Where no turn separates the two, all work is put on
    the items.
    """
    labels = f"{operator}: fixed work", f"{operator}: slot time an item"
    known = [c for c in costs if c.fixed_work.identified or c.per_row.identified]
    if known:
        fits = []
        for label, terms in zip(
            labels, ([c.fixed_work for c in known], [c.per_row for c in known]), strict=True
        ):
            scale = max(term.value for term in terms) or 1.0
            weighted = [(t.value, 1 / (0.01 * scale + t.high - t.low)) for t in terms]
            value = _median(weighted)
            off = _median([(abs(v / value - 1), w) for v, w in weighted]) if value else None
            fits.append(Fit(label, value, "s", off, len(known)))
        fixed, service = fits
        if not service.value:
            service = Fit(labels[1], 1e-9, "s", None, len(known))  # rows make no difference
        if (fixed.value or 0.0) < FEW_ITEMS * (service.value or 0.0):
            fixed = Fit(labels[0], 0.0, "s", None, len(known))
        return fixed, service
    service = _service(readings, operator, name)
    alike = bool(costs)  # measured, but all batches had about the same size
    fixed = Fit(labels[0], 0.0 if alike else None, "s", None, len(costs), identified=not alike)
    return fixed, Fit(
        labels[1], service.value, "s", service.residual, service.turns, identified=not alike
    )


def _service(readings: Sequence[OperatorReading], operator: str, name: str) -> Fit:
    """Slot-seconds of an item: the median over turns, weighted by their items.

    The mean would be wrong: in the first batches a few items bear all compilation by a cold JVM.
    """
    seen = [
        (r.service_time_s, r.processed_per_s if r.processed_per_s is not None else 1.0)
        for r in readings
        if r.service_time_s
    ]
    weight = sum(items for _, items in seen)
    if not seen or weight <= 0:
        remedy = "its queries must have processed something while it was recorded"
        raise JournalError(name, f"{operator} without a service time", "one with it", remedy)
    service_s = _median(seen)
    residual = _median([(abs(value / service_s - 1), items) for value, items in seen])
    return Fit(f"{operator}: slot time an item", service_s, "s", residual, len(seen))


# --- the overhead of a batch ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Steady:
    """A turn without changes: a batch took `took_s`, of which `worked_s` was work on its slots."""

    took_s: float
    worked_s: float
    load: float
    variance: float


def lasting_durations(now: Snapshot, before: Snapshot, operator: str) -> Sequence[float]:
    """Durations of the batches between two turns, as far as the later one has them."""
    batches = now.reading[operator].batches if operator in now.reading else None
    if batches is None or not batches.recent_durations_s:
        return ()
    durations = batches.recent_durations_s
    period_s = max(batches.trigger_interval_s, median(durations))
    if period_s <= 0:
        return durations
    return durations[-max(1, math.floor((now.time_s - before.time_s) / period_s)) :]


def _steady_turns(
    snapshots: Sequence[Snapshot],
    operator: Operator,
    fixed_s: float,
    service_s: float,
    shared: bool,
) -> list[_Steady]:
    """Turns with the slots of the previous turn, no backlog and similar batches."""
    found = []
    for before, now in pairwise(snapshots):
        name = operator.name
        if name not in now.reading or name not in before.reading:
            continue
        reading, earlier = now.reading[name], before.reading[name]
        batches = reading.batches
        slots = _slots(now, operator, batches, shared)
        rates = [r for r in (earlier.arrival_rate_per_s, reading.arrival_rate_per_s) if r]
        if not rates or not slots or batches is None or not batches.recent_durations_s:
            continue
        if before.running != now.running or before.requested != now.requested:
            continue
        durations = batches.recent_durations_s
        recent = lasting_durations(now, before, name)
        took_s, rate = fmean(recent), fmean(rates)
        period_s = max(batches.trigger_interval_s, took_s)
        rows = rate * period_s
        if batches.max_rows is not None:
            rows = min(rows, batches.max_rows)
        worked_s = (fixed_s + rows * service_s) / slots
        load = (fixed_s / period_s + rate * service_s) / slots
        backlog = (reading.queue_length or 0.0) > 2 * rate * period_s
        limited = batches.max_rows is not None and rows >= batches.max_rows
        if load >= 1 or (backlog and not limited) or max(durations) > 2 * median(durations):
            continue
        # Items that arrive at random make batches differ; that part is not of the overhead.
        noise = (service_s / slots) ** 2 * rows
        # Back to back, a long batch makes the next one longer: D' = o + load · D.
        variance = max(0.0, unsteadiness(durations) * (1 + load) - noise)
        found.append(_Steady(took_s, worked_s, load, variance))
    return found


def _slots(
    now: Snapshot, operator: Operator, batches: BatchReading | None, shared: bool
) -> float | None:
    """Slots that a batch of a query works on."""
    if shared:
        return batches.cost.slots if batches is not None and batches.cost is not None else None
    return now.running.counts[operator.name]


def unsteadiness(durations: Sequence[float]) -> float:
    """Variance of durations, from their differences, which do not contain the trend."""
    if len(durations) < 2:
        return 0.0
    return fmean((b - a) ** 2 for a, b in pairwise(durations)) / 2


def _overhead(
    batches: Sequence[BatchReading],
    turns: Sequence[_Steady],
    operator: str,
    name: str,
    shared: bool,
) -> tuple[Fit, float | None]:
    """Overhead of a batch, and its squared coefficient of variation.

    It is what the work on the slots leaves of the durations. With too few steady turns, and where
    queries wait for each other, it is the overhead that the journal measured.
    """
    label = f"{operator}: overhead of a batch"
    measured = [b.cost.overhead.value if b.cost else b.overhead_s for b in batches]
    known = [value for value in measured if value is not None]
    if shared and known:
        middle = median(known)
        off = median(abs(value - middle) for value in known) / middle if middle > 0 else None
        return Fit(label, middle, "s", off, len(known)), None
    if len(turns) < FEWEST_TURNS:
        if len(known) < FEWEST_TURNS:
            value = f"{len(turns)} steady turns of {operator}"
            allowed = f"at least {FEWEST_TURNS}, or as many with a measured overhead"
            remedy = "record for longer, with input and some turns between two changes"
            raise JournalError(name, value, allowed, remedy)
        return Fit(label, median(known), "s", None, len(known)), None
    left = [turn.took_s - turn.worked_s for turn in turns]
    overhead = max(0.0, median(left))
    error = math.sqrt(fmean((value - overhead) ** 2 for value in left))
    residual = error / fmean(turn.took_s for turn in turns)
    scv = median(turn.variance for turn in turns) / overhead**2 if overhead > 0 else None
    return Fit(label, overhead, "s", residual, len(turns)), scv


# --- executors --------------------------------------------------------------------------------


def fit_startup(snapshots: Sequence[Snapshot]) -> Fit:
    """Time from the request of an executor until it runs, to the middle between two turns."""
    asked: dict[str, float] = {}
    waiting: dict[str, float] = {}
    delays = []
    for snapshot in snapshots:
        for host in snapshot.hosts:
            if host.status == "starting":
                started = host.lease.started_s if host.lease else snapshot.time_s
                asked.setdefault(host.id, started)
                waiting[host.id] = snapshot.time_s
            elif host.status == "running" and host.id in waiting:
                middle = (waiting.pop(host.id) + snapshot.time_s) / 2
                delays.append(middle - asked[host.id])
    if not delays:
        return Fit("start-up of an executor", None, "s")
    mean = fmean(delays)
    residual = math.sqrt(pvariance(delays)) / mean if mean > 0 else None
    return Fit("start-up of an executor", mean, "s", residual, len(delays))


def _work_done(snapshots: Sequence[Snapshot], name: str) -> float:
    """Slot-seconds a second of a query, on average over the snapshots that know it."""
    readings = [s.reading[name] for s in snapshots if name in s.reading]
    rates = [r.processed_per_s * r.service_time_s for r in readings
             if r.processed_per_s is not None and r.service_time_s is not None]  # fmt: skip
    return fmean(rates) if rates else 0.0


def shares_slots(snapshots: Sequence[Snapshot]) -> bool:
    """Whether the queries of a journal share all slots, as they do without live settings.

    Snapshots say so. Those of older versions do not, and show it by what the batches held: each
    query has its own slots only if the batches of all queries held about as many as their query's
    instances, and none held more although there were more. They hold some fewer on average where
    the last task of a batch is waited for. Queries with little work do not count: the tasks that
    only read follow the files.
    """
    if len(snapshots[-1].topology.operators) < 2:
        return False
    if (own_slots := snapshots[-1].own_slots) is not None:
        return not own_slots
    apart = 0
    works = {name: _work_done(snapshots, name) for name in snapshots[-1].topology.by_name}
    least = LITTLE_WORK * sum(works.values())
    for name, work in works.items():
        if work < least:
            continue
        held, own, every = [], [], []
        for snapshot in snapshots:
            batches = snapshot.reading[name].batches if name in snapshot.reading else None
            if batches is not None and batches.cost is not None and batches.cost.slots:
                held.append(batches.cost.slots)
                own.append(snapshot.running.counts[name])
                every.append(sum(host.capacity.cpu_cores for host in snapshot.running_hosts))
        if not held:
            continue
        share = median(held) / max(1, median(own))
        if not WAITING <= share <= 1.05 or median(every) < 1.5 * median(own):
            return True
        apart += 1
    return apart < 2
