"""From turns to what a page shows of each: one small row a turn, and a sentence for decisions.

Pure: no file, no clock, no server. A `Chronicle` takes turns in order and gives a row for each; the
only things it carries on are the money spent and what people have set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from tidegate.codec import Value
from tidegate.loop.billing import Bill
from tidegate.loop.controls import Steering
from tidegate.loop.journal import Turn
from tidegate.model import Plan
from tidegate.model.steps import Step
from tidegate.report.summary import capacity_of, lag_of, rate_of, slo_of

__all__ = ["Change", "Chronicle", "Row", "change_of", "columns", "tables_of", "thinned"]

MOST_REASONS = 2
GOOD_REASONS = {"out": ("lease", "latency", "overload"), "in": ("spare", "underload", "release")}
"""Codes of reasons that explain a change of hosts best, where a plan has many."""


@dataclass(frozen=True, slots=True)
class Change(Value):
    """What a turn changed, for people.

    kind: ``out`` (more hosts or instances), ``in`` (fewer), ``move`` (as many, elsewhere) or
    ``refused``. before, after: hosts asked for. what, why: in words; held: what a guard kept the
    policy from, refused: what the world did, both empty when there is nothing to say.
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
        """All of it in sentences."""
        parts = (f"{self.what}: {self.why}" if self.why else self.what, self.held, self.refused)
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


@dataclass(frozen=True, slots=True)
class Row(Value):
    """A turn in the few values that lines are drawn of; what was not measured is None.

    hosts: paid for; running: at work; requested: asked for; wanted: by the policy; planned: after
    the guards. shed: share of the input to drop. utilisation: mean of the hosts. cost_usd: since
    the first turn of the journal.
    lower, upper: thresholds that a learning policy has come to, mean of its hosts.
    controls: what people asked for before the turn.
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


class Chronicle:
    """Turns in order, a row for each. slo_s: the latency wanted; None: the journal's own."""

    def __init__(self, slo_s: float | None = None) -> None:
        self.slo_s = slo_s
        self.bill = Bill()
        self.steering = Steering()
        self.policy = ""
        self.count = 0

    def skip(self, error: str) -> Row:
        """The row of a line that cannot be read."""
        index, self.count = self.count, self.count + 1
        return Row(index, 0, None, error=error)

    def add(self, turn: Turn) -> Row:
        """The row of the next turn."""
        index, self.count = self.count, self.count + 1
        self.policy = turn.policy
        said = []
        for control in turn.controls:
            refused = f" (refused: {control.refused})" if control.refused else ""
            said.append(control.describe() + refused)
            if not control.refused and control.do != "policy":
                # A pause and a dry run need no policy to be heeded.
                self.steering, _, _ = self.steering.heed(control, _NOBODY, None)
        self.bill.add(turn)
        now, plan = turn.snapshot, turn.plan
        if now is None:
            return Row(index, turn.number, None, controls=tuple(said), error=turn.error)
        lower, upper = _thresholds(turn.memory)
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
            slo_s=slo_of(turn) if self.slo_s is None else self.slo_s,
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
            controls=tuple(said),
            error=turn.error,
        )


_NOBODY: Any = None


def change_of(turn: Turn) -> Change | None:
    """What a turn changed; None when it left all as it was."""
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
        held = f"The policy wanted {_hosts(plan.raw_target)}; {last.guard} held it: {last.why}"
    return Change(
        kind,
        before,
        after,
        _what(steps, before, after) or "Nothing could be done",
        _why(plan, kind),
        held,
        "Refused: " + "; ".join(refused) if refused else "",
    )


def _what(steps: Sequence[Step], before: int, after: int) -> str:
    """The steps in words, the hosts first."""
    kinds: list[str] = [step.kind for step in steps]
    if after != before:
        verb = "Added" if after > before else "Released"
        return f"{verb} {_hosts(abs(after - before))} ({before} → {after})"
    if "lease" in kinds:
        return f"Exchanged {_hosts(kinds.count('lease'))} of {before}"
    found = []
    for kind, verb in (("start", "started"), ("stop", "stopped"), ("move", "moved")):
        if many := kinds.count(kind):
            found.append(f"{verb} {many} instance{'' if many == 1 else 's'}")
    return _sentence_case(", ".join(found)) + (f" on {_hosts(before)}" if found else "")


def _why(plan: Plan, kind: str) -> str:
    """The reasons that say most, as part of a sentence."""
    good = [r for code in GOOD_REASONS.get(kind, ()) for r in plan.reasons if r.code == code]
    chosen = (good or list(plan.reasons))[:MOST_REASONS]
    return "; ".join(dict.fromkeys(reason.text.rstrip(".") for reason in chosen))


def _hosts(count: int) -> str:
    return f"{count} host{'' if count == 1 else 's'}"


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def tables_of(memory: Any) -> dict[str, Any]:
    """What a learning policy has learnt, by host, out of the memory of its guards; empty if none.

    >>> tables_of({"own": {}, "inner": {"tables": {"host-1": {"rows": []}}}})
    {'host-1': {'rows': []}}
    """
    while isinstance(memory, dict) and "inner" in memory:
        memory = memory["inner"]
    tables = memory.get("tables") if isinstance(memory, dict) else None
    return tables if isinstance(tables, dict) else {}


def thresholds_of(table: dict[str, Any]) -> tuple[float | None, float | None]:
    """The utilisations up to which a host scales in and from which it scales out."""
    rows = table.get("rows", [])
    last = max(1, len(rows) - 1)
    best = [max((1, 0, 2), key=lambda action, row=row: row[action]) for row in rows]  # type: ignore[misc]
    shrink = [n / last for n, action in enumerate(best) if action == 0]
    grow = [n / last for n, action in enumerate(best) if action == 2]
    return (round(shrink[-1], 2) if shrink else None, round(grow[0], 2) if grow else None)


def _thresholds(memory: Any) -> tuple[float | None, float | None]:
    """The mean over the hosts of a learning policy."""
    pairs = [thresholds_of(table) for table in tables_of(memory).values()]
    low = [pair[0] for pair in pairs if pair[0] is not None]
    high = [pair[1] for pair in pairs if pair[1] is not None]
    return (fmean(low) if low else None, fmean(high) if high else None)


def thinned(rows: Sequence[Row], points: int) -> list[Row]:
    """About so many rows: of neighbours the one with the worst latency, and the last of all.

    Decisions, wishes of people and errors stay while they are not more than half of the points:
    they are what one looks for.
    """
    if len(rows) <= points:
        return list(rows)
    told = [row for row in rows if row.change or row.controls or row.error]
    marks = told[:: max(1, math.ceil(len(told) / max(1, points // 2)))]
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
    """Rows as columns, which take a third of the room on the wire."""
    every = list(rows)
    found = {name: [getattr(row, name) for row in every] for name in NAMES}
    found["change"] = [_plain(row.change) for row in every]
    return found


def _plain(change: Change | None) -> Any:
    if change is None:
        return None
    return {f.name: getattr(change, f.name) for f in fields(change)} | {"text": change.text}
