"""What a run came to, in figures, from its journal alone.

Any journal will do, of a live application or of a simulated one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidegate.codec import Value
from tidegate.errors import JournalError
from tidegate.loop.billing import Bill
from tidegate.loop.journal import Turn
from tidegate.model import Snapshot

__all__ = [
    "Decision",
    "LiveSummary",
    "Measured",
    "capacity_of",
    "decisions_of",
    "lag_of",
    "latency_points",
    "rate_of",
    "slo_of",
    "summarise",
]

POINTS = 50
"""Into so many equal parts a turn's items are cut to tell percentiles over turns."""


@dataclass(frozen=True, slots=True)
class Measured(Value):
    """Exact figures of a run, where somebody kept books; a journal alone allows estimates only.

    items: that came; late: of these, not done within the SLO; p50_s to p99_s: latency in seconds.
    lost, repeated: against a computation of the same input; None when nobody compared.
    """

    items: int
    late: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    lost: int | None = None
    repeated: int | None = None


@dataclass(frozen=True, slots=True)
class Decision(Value):
    """A turn that changed the executors, or wanted to.

    before: executors asked for until then; wanted: by the policy; after: once the guards had spoken
    and the world had done what it could.
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
    """A run in figures. Times in seconds; executors that are starting or draining count, as paid.

    items: done. executor_s: executor-seconds; static_executor_s: had the most executors of the run
    been there all the time. cost_usd, static_cost_usd: by started billing unit.
    slo_compliance: share of items within slo_s. exact: whether items, compliance and percentiles
    were counted; otherwise they are estimated from each turn's percentiles.
    scale_up_s: mean time from a decision until the executor was seen at work.
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

    @property
    def mean_executors(self) -> float:
        """Executors on average over time."""
        return self.executor_s / self.duration_s if self.duration_s else 0.0

    @property
    def saved(self) -> float:
        """Share of the static executor-seconds that were not needed."""
        return 1 - self.executor_s / self.static_executor_s if self.static_executor_s else 0.0


def summarise(
    turns: Sequence[Turn],
    slo_s: float | None = None,
    from_s: float = -math.inf,
    until_s: float = math.inf,
    measured: Measured | None = None,
) -> LiveSummary:
    """The figures of a run.

    slo_s: the latency wanted; None: the journal's own. from_s, until_s: on the journal's clock,
    to leave out a warm-up, say. measured: exact figures, where there are any.
    JournalError when no turn in that time has a snapshot.
    """
    inside = [t for t in turns if t.snapshot is None or from_s <= t.snapshot.time_s <= until_s]
    seen = [t.snapshot for t in inside if t.snapshot is not None]
    if not seen:
        remedy = "let the application run for longer than an interval"
        raise JournalError("journal", "empty", "one with a turn that observed something", remedy)
    policies = list(dict.fromkeys(turn.policy for turn in inside))
    spans = _spans(seen, until_s)
    duration_s = math.fsum(spans)
    peak = max(len(s.hosts) for s in seen)
    bill = Bill()
    for turn in inside:
        bill.add(turn)
    ended_s = seen[-1].time_s + spans[-1]
    slo_s = slo_of([t for t in inside if t.snapshot is not None][-1]) if slo_s is None else slo_s
    points = sorted(p for s, span in zip(seen, spans, strict=True) for p in latency_points(s, span))
    decisions = tuple(decisions_of(inside))
    summary = LiveSummary(
        policy=", then ".join(policies),
        turns=len(inside),
        failed_turns=sum(turn.error is not None for turn in inside),
        duration_s=duration_s,
        items=math.fsum(_done_per_s(s) * span for s, span in zip(seen, spans, strict=True)),
        executor_s=bill.host_seconds(ended_s),
        static_executor_s=peak * duration_s,
        peak_executors=peak,
        cost_usd=bill.cost_usd(ended_s),
        static_cost_usd=peak * seen[-1].offer.lease(0.0).cost_usd(duration_s),
        slo_s=slo_s,
        slo_compliance=None if slo_s is None else _share_within(points, slo_s),
        p50_s=_quantile(points, 0.50),
        p95_s=_quantile(points, 0.95),
        p99_s=_quantile(points, 0.99),
        rescales=sum(d.after != d.before for d in decisions),
        scale_up_s=_scale_up_s(turns, from_s, until_s),
        decisions=decisions,
    )
    if measured is None:
        return summary
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
    )


def rate_of(snapshot: Snapshot) -> float | None:
    """Items a second from outside, None when it was not measured."""
    rates = snapshot.external_rates()
    return math.fsum(rates.values()) if rates is not None else None


def capacity_of(snapshot: Snapshot) -> float | None:
    """Items a second from outside that the running executors could do, None when unknown."""
    outside = rate_of(snapshot)
    if not outside:
        return None
    core_s = 0.0  # of processor, for one item from outside
    for operator in snapshot.topology.operators:
        rate = snapshot.reading[operator.name].arrival_rate_per_s
        service_s = snapshot.service_time_s(operator.name)
        if rate is None or service_s is None:
            return None
        core_s += service_s * operator.demand.cpu_cores * rate / outside
    cores = math.fsum(host.capacity.cpu_cores for host in snapshot.running_hosts)
    return cores / core_s if core_s else None


def lag_of(snapshot: Snapshot) -> float | None:
    """Items waiting at all operators, None when any does not know."""
    lengths = [reading.queue_length for reading in snapshot.reading.values()]
    known = [length for length in lengths if length is not None]
    return math.fsum(known) if len(known) == len(lengths) else None


def decisions_of(turns: Sequence[Turn]) -> list[Decision]:
    """The turns that changed the executors, or were refused to."""
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
    """Seconds for which each snapshot stands: until the next one."""
    last = seen[-1].interval_s or 0.0
    ends = [*(s.time_s for s in seen[1:]), min(until_s, seen[-1].time_s + last)]
    return [max(0.0, end - s.time_s) for s, end in zip(seen, ends, strict=True)]


def _done_per_s(snapshot: Snapshot) -> float:
    """Items from outside that were done a second; what came where that is all that is known."""
    single = len(snapshot.topology.operators) == 1
    done = snapshot.operators[0].processed_per_s if single and snapshot.operators else None
    return done if done is not None else rate_of(snapshot) or 0.0


def slo_of(turn: Turn) -> float | None:
    """The latency promised; where nobody said, the longest that an operator may take an item."""
    if turn.slo_s is not None or turn.snapshot is None:
        return turn.slo_s
    operators = turn.snapshot.topology.operators
    return max((o.slo_s for o in operators if o.slo_s is not None), default=None)


def latency_points(snapshot: Snapshot, span_s: float) -> list[tuple[float, float]]:
    """(latency, weight) of a turn's items in equal parts, between the percentiles it has."""
    at = snapshot.latency
    if at.p50_s is None or at.p95_s is None or at.p99_s is None:
        return []
    corners = [(0.0, 0.0), (0.5, at.p50_s), (0.95, at.p95_s), (0.99, at.p99_s), (1.0, at.p99_s)]
    weight = _done_per_s(snapshot) * span_s / POINTS
    found = []
    for n in range(POINTS):
        share = (n + 0.5) / POINTS
        for (low, a), (high, b) in pairwise(corners):
            if low <= share <= high:
                found.append((a + (b - a) * (share - low) / (high - low), weight))
                break
    return found


def _share_within(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    total = math.fsum(weight for _, weight in points)
    return math.fsum(w for value, w in points if value <= limit) / total if total else None


def _quantile(points: Sequence[tuple[float, float]], share: float) -> float | None:
    total = math.fsum(weight for _, weight in points)
    reached = 0.0
    for value, weight in points:
        reached += weight
        if total and reached >= share * total - 1e-9 * total:
            return value
    return None


def _scale_up_s(turns: Sequence[Turn], from_s: float, until_s: float) -> float | None:
    """Mean time from a lease until the first turn that saw the host running."""
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
