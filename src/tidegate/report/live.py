"""The report of a run, live or simulated: summary, figures, charts and decisions."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.loop.journal import Turn
from tidegate.model import BatchCost, Estimate, Snapshot
from tidegate.report.charts import Series, lines, time_unit
from tidegate.report.page import Page
from tidegate.report.points import LatencyFigures
from tidegate.report.queries import QueryFigures, delay_of
from tidegate.report.summary import (
    NOT_WATCHED,
    LeftOut,
    LiveSummary,
    capacity_of,
    decisions_of,
    known_lag,
    rate_of,
)
from tidegate.units import show_duration

__all__ = ["figures", "left_out_text", "live_page", "query_rows"]

DRAWN = 8
"""Queries in a chart at most; there are as many colours."""
Axis = tuple[Sequence[float], str, Sequence[tuple[float, float, str]]]
"""Times of the snapshots, their unit, and the parts that are not counted."""
NAMED = 4
"""Queries in a sentence at most."""


def live_page(
    name: str, turns: Sequence[Turn], summary: LiveSummary, not_read: Sequence[str] = ()
) -> Page:
    """Return the page of a run.

    name: of the run. turns: as given to `summarise`. not_read: sentences on what the journal lacks.
    """
    page = Page(f"How did {name} go?", _answer(summary))
    page.section("Figures", "" if summary.exact else "Latencies are estimated from the journal.")
    page.table(["figure", "value"], figures(summary))
    if summary.left_out:
        page.text("What is not counted is shaded in the charts, or lies before their begin.")
    for sentence in not_read:
        page.text(f"Not in these figures: {sentence}.")
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    begun_s = seen[0].time_s
    scale, unit = time_unit(seen[-1].time_s - begun_s)
    x = [(s.time_s - begun_s) / scale for s in seen]
    every = decisions_of(turns)
    marks = [((d.time_s - begun_s) / scale, f"{d.before} → {d.after}: {d.reason}") for d in every]
    shaded = [
        (
            (part.from_s - begun_s) / scale,
            (part.until_s - begun_s) / scale,
            f"{part.name}, not counted: {left_out_text(part, summary)}",
        )
        for part in summary.left_out
        if part.until_s > begun_s
    ]
    if summary.queries:
        _write_queries(page, seen, (x, unit, shaded), summary)
    page.section("Load")
    page.picture(
        lines(
            [
                Series("rate", x, [rate_of(s) for s in seen]),
                Series("capacity", x, [capacity_of(s) for s in seen], step=True),
            ],
            "Rate and capacity",
            unit,
            "items/s",
            marks,
            shaded=shaded,
        ),
        "Capacity: what the running executors can process, by the measured service time. "
        "A vertical line is a decision; point at it for the reason.",
    )
    lag = [known_lag(s)[0] for s in seen]
    if any(items is not None for items in lag):
        unknown = tuple(dict.fromkeys(name for s in seen for name in known_lag(s)[1]))
        page.picture(
            lines([Series("lag", x, lag)], "Backlog", unit, "items", shaded=shaded),
            f"Without {_some(unknown)} wherever it was not measured." if unknown else "",
        )
    else:
        page.text("The backlog was not measured: the source does not report it.")
    page.section("Latency")
    latency = [
        Series("p50", x, [s.latency.p50_s for s in seen]),
        Series("p95", x, [s.latency.p95_s for s in seen]),
    ]
    if summary.slo_s is not None and not summary.by_query:
        ends = [x[0], x[-1]]
        latency.append(Series("SLO", ends, [summary.slo_s] * 2, dashed=True))
    age = [s.event_age.p95_s for s in seen]
    if any(value is not None for value in age):
        latency.append(Series("event age p95", x, age))
    page.picture(
        lines(latency, "Latency, from arrival to commit", unit, "s", marks, shaded=shaded),
        _latency_caption(seen),
    )
    page.section("Executors")
    page.picture(
        lines(
            [
                Series("requested", x, [float(len(s.requested.hosts)) for s in seen], step=True),
                Series("running", x, [float(len(s.running_hosts)) for s in seen], step=True),
                Series("paid", x, [float(len(s.hosts)) for s in seen], step=True, dashed=True),
            ],
            "Executors",
            unit,
            "executors",
            marks,
            shaded=shaded,
        ),
        "Requested but not running: starting. Paid but not requested: draining.",
    )
    page.section("Decisions", f"Decided by {summary.policy}.")
    page.table(
        ["turn", f"time, {unit}", "executors", "target", "reason", "guard", "refused"],
        [
            [
                d.number,
                round((d.time_s - begun_s) / scale, 1),
                f"{d.before} → {d.after}",
                d.wanted,
                d.reason,
                d.guard,
                d.refused,
            ]
            for d in every
        ],
    )
    failed = [[t.number, t.error] for t in turns if t.error is not None]
    if failed:
        page.section("Failed turns", "The application continued without them.")
        page.table(["turn", "error"], failed)
    notes = [
        [t.number, note]
        for t in turns
        for note in (*(t.outcome.notes if t.outcome else ()), *t.notes)
    ]
    if notes:
        page.section("Notes", "What a release cost, and what could not be read or recorded.")
        page.table(["turn", "note"], notes)
    return page


def _latency_caption(seen: Sequence[Snapshot]) -> str:
    bounds = [s for s in seen if s.latency.at_least]
    caption = "Latency is the processing delay: from when an item could be read to its result."
    if any(s.event_age.p95_s is not None for s in seen):
        caption += " The event age starts at the item's own time stamp; it is not judged."
    if bounds:
        caption += f" In {len(bounds)} of {len(seen)} turns it is a lower bound."
    return caption


def figures(summary: LiveSummary) -> list[tuple[str, str]]:
    """Return the figures as text, most important first, and all that they do not count."""
    s = summary
    about = "" if s.exact else "about "
    most = "at most " if s.at_most else about
    least = "at least " if s.at_least else about
    rows = [
        ("time", show_duration(s.duration_s)),
        ("items", f"{about}{s.items:.0f}"),
    ]
    if s.slo_s is not None and s.slo_compliance is not None:
        target = "within its SLO" if s.by_query else f"within {show_duration(s.slo_s)}"
        rows.append((target, f"{most}{s.slo_compliance:.1%}"))
    if s.p50_s is not None and s.p95_s is not None and s.p99_s is not None:
        shown = " · ".join(show_duration(v) for v in (s.p50_s, s.p95_s, s.p99_s))
        rows.append(("latency p50 · p95 · p99", least + shown))
    rows += _not_counted(s)
    rows += [
        (
            "executor-seconds",
            f"{s.executor_s:.0f}, {s.saved:.0%} less than {s.static_executor_s:.0f} with "
            f"{s.peak_executors} all the time",
        ),
        ("executors", f"{s.mean_executors:.2f} on average, {s.peak_executors} at most"),
    ]
    if s.static_cost_usd:
        rows.append(
            ("cost", f"${s.cost_usd:.3f}; with the peak all the time: ${s.static_cost_usd:.3f}")
        )
    rows.append(("rescales", str(s.rescales)))
    if s.scale_up_s is not None:
        rows.append(("start-up of an executor", show_duration(s.scale_up_s)))
    if s.lost is not None and s.repeated is not None:
        rows.append(("lost · repeated", f"{s.lost} · {s.repeated}"))
    if s.failed_turns:
        rows.append(("failed turns", f"{s.failed_turns} of {s.turns}"))
    return rows


def _not_counted(s: LiveSummary) -> list[tuple[str, str]]:
    """Return what the share in time and the percentiles do not count."""
    rows = []
    if s.without_latency >= 1:
        share = s.without_latency / s.items if s.items else 1.0
        length = f" of {show_duration(s.without_latency_s)}" if s.without_latency_s else ""
        if length and s.by_query and len(s.queries) > 1:
            length += ", added up over the queries"
        rows.append(
            (
                "without a latency",
                f"about {s.without_latency:.0f} items ({share:.1%}){length}: not in the share, "
                "not in the percentiles",
            )
        )
    if s.shed:
        rows.append(("shed", f"about {s.shed:.0f} items: not in the share in time"))
    if s.set_aside:
        rows.append(("set aside", f"{s.set_aside} bad rows: not in the share in time"))
    waits = s.waiting is not None and s.waiting >= 1
    if waits or s.waiting_unknown:
        known = f"{s.waiting:.0f} items: not in the share in time" if waits else ""
        names = f"unknown for {_some(s.waiting_unknown)}" if s.waiting_unknown else ""
        rows.append(("waiting at the end", "; ".join(text for text in (known, names) if text)))
    rows += [(f"not counted: {name}", text) for name, text in _left_out_texts(s)]
    return rows


def _some(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    left = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {left} more" if left > 0 else "")


def _left_out_texts(s: LiveSummary) -> list[tuple[str, str]]:
    """Return name and text of what is not counted; the times that nobody watched are one."""
    gaps = [part for part in s.left_out if part.name == NOT_WATCHED]
    found = [(p.name, left_out_text(p, s)) for p in s.left_out if p.name != NOT_WATCHED]
    if len(gaps) == 1:
        found.append((NOT_WATCHED, left_out_text(gaps[0], s)))
    elif gaps:
        length = show_duration(sum(part.duration_s for part in gaps))
        found.append((NOT_WATCHED, f"{length} in {len(gaps)} parts, items unknown"))
    return found


def left_out_text(part: LeftOut, summary: LiveSummary) -> str:
    """Return the figures of a part that is not counted, as text."""
    about = "" if part.exact else "about "
    length = show_duration(part.duration_s)
    if part.items is None:
        return f"{length}, items unknown"
    text = f"{length}, {about}{part.items:.0f} items"
    if part.slo_compliance is not None and summary.slo_s is not None:
        target = "the SLO of their query" if summary.by_query else show_duration(summary.slo_s)
        text += f", {about}{part.slo_compliance:.1%} within {target}"
    if part.p95_s is not None:
        text += f", p95 {show_duration(part.p95_s)}"
    elif part.items:
        text += ", no latency measured"
    return text


def _answer(s: LiveSummary) -> str:
    held = ""
    if s.slo_compliance is not None and s.slo_s is not None:
        about = "at most " if s.at_most else "" if s.exact else "about "
        held = f"{about}{s.slo_compliance:.1%} of the items were done within "
        target = "the SLO of their query" if s.by_query else show_duration(s.slo_s)
        held += f"{target}, with "
    text = (
        f"{held}{s.mean_executors:.1f} executors on average and {s.peak_executors} at the peak: "
        f"{s.saved:.0%} fewer executor-seconds than a cluster sized for the peak."
    )
    text = text[0].upper() + text[1:]
    if len(s.queries) > 1:
        text += f" {_worst(s.queries)}"
    for name, part in _left_out_texts(s):
        text += f" Not counted: {name}, {part}."
    return text


# --- by query ---------------------------------------------------------------------------------


def _worst(queries: Sequence[QueryFigures]) -> str:
    """Return a sentence about the queries with the lowest shares in time."""
    judged = sorted(
        (q for q in queries if q.delay.in_time is not None), key=lambda q: q.delay.in_time or 0.0
    )
    if not judged:
        return "No query has a measured delay and an SLO."
    named = [
        f"{q.name} {_share(q.delay)} within {show_duration(q.slo_s or 0.0)}" for q in judged[:NAMED]
    ]
    text = "By query, each with its own SLO: " + ", ".join(named)
    if len(judged) > NAMED:
        text += f", the other {len(judged) - NAMED} at least as well"
    if len(queries) > len(judged):
        text += f"; {len(queries) - len(judged)} without a judgement"
    return text + "."


def _share(found: LatencyFigures) -> str:
    if found.in_time is None:
        return "–"
    return f"{'at most ' if found.at_most else ''}{found.in_time:.1%}"


def _seconds(value: float | None, at_least: bool = False) -> str:
    if value is None:
        return "–"
    return f"{'at least ' if at_least else ''}{show_duration(value)}"


QUERY_COLUMNS = (
    "query", "SLO", "items", "in time", "delay p50 · p95 · p99", "event age p95", "rate, 1/s",
    "longest backlog", "largest state, MB",
)  # fmt: skip


def query_rows(queries: Sequence[QueryFigures]) -> list[list[object]]:
    """Return a row of text for each query; the columns are `QUERY_COLUMNS`."""
    rows: list[list[object]] = []
    for q in queries:
        percentiles = (q.delay.p50_s, q.delay.p95_s, q.delay.p99_s)
        known = all(value is not None for value in percentiles)
        delay = " · ".join(_seconds(value) for value in percentiles) if known else "–"
        if known and q.delay.at_least:
            delay = f"at least {delay}"
        share = _share(q.delay)
        if q.delay.without and q.items:
            share += f" (of {1 - q.delay.without / q.items:.0%} measured)"
        rows.append(
            [
                q.name,
                _seconds(q.slo_s),
                f"{q.items:.0f}",
                share if q.items else "no items",
                delay,
                _seconds(q.event_age.p95_s, q.event_age.at_least),
                None if q.mean_rate_per_s is None else float(f"{q.mean_rate_per_s:.4g}"),
                _seconds(q.peak_backlog_s),
                None if q.peak_state_mb is None else float(f"{q.peak_state_mb:.4g}"),
            ]
        )
    return rows


def _write_queries(page: Page, seen: Sequence[Snapshot], axis: Axis, summary: LiveSummary) -> None:
    """Add the section by query. axis: of its chart."""
    x, unit, shaded = axis
    queries = summary.queries
    how = "Both are estimated from the percentiles of each turn, weighted by the items."
    if all(q.exact or not q.items for q in queries):
        how = "Shares and delays are exact, by row; event ages are estimated."
    judge = "event age" if any(q.by_age for q in queries) else "processing delay"
    page.section(
        "Queries",
        f"Each query is judged by its own SLO, and by its {judge}. The delay is the time from when "
        "an item could be read to the commit of its result. The event age starts at the item's own "
        f"time stamp. {how}",
    )
    page.table(QUERY_COLUMNS, query_rows(queries))
    if any(q.delay.at_least for q in queries):
        page.text(
            "At least: rows were left over without a watermark, so the delay is a lower bound from "
            "the backlog and the throughput. A share in time with such delays is an upper bound."
        )
    costs = [(q, q.cost) for q in queries if q.cost is not None]
    if costs:
        page.text(
            "A batch of n rows on k slots takes overhead + (fixed work + n · work of a row) / k. "
            "In brackets: the interval of the estimate. A question mark: the batches so far do not "
            "separate this term from the others."
        )
        page.table(
            ["query", "overhead", "fixed work", "work of a row", "due to skew", "slots", "limit"],
            [[q.name, *_cost(cost), _limit(q)] for q, cost in costs],
        )
    limits = [[q.name, _limit(q)] for q in queries if q.cost is None and q.admission]
    if limits:
        page.table(["query", "limit"], limits)
    worst = sorted(queries, key=lambda q: 1.0 if q.delay.in_time is None else q.delay.in_time)
    drawn = [q for q in worst if q.delay.items][:DRAWN]
    if len(drawn) > 1:
        left = sum(bool(q.delay.items) for q in queries) - len(drawn)
        page.picture(
            lines(
                [Series(q.name, x, [_p95(s, q.name) for s in seen]) for q in drawn],
                "Processing delay by query, p95",
                unit,
                "s",
                shaded=shaded,
            ),
            f"The {len(drawn)} queries with the lowest share in time; {left} are not drawn."
            if left
            else "",
        )


def _p95(snapshot: Snapshot, name: str) -> float | None:
    return delay_of(snapshot, name).p95_s if name in snapshot.topology.by_name else None


def _cost(cost: BatchCost) -> list[object]:
    return [
        _estimate(cost.overhead),
        _estimate(cost.fixed_work),
        _estimate(cost.per_row),
        _seconds(cost.skew_s),
        None if cost.slots is None else float(f"{cost.slots:.3g}"),
    ]


def _estimate(found: Estimate) -> str:
    ends = f"{show_duration(found.low, 2)} to {show_duration(found.high, 2)}"
    return f"{show_duration(found.value, 2)} ({ends}){'' if found.identified else ' ?'}"


def _limit(q: QueryFigures) -> str:
    if not q.admission:
        return ""
    reached = f"reached for {show_duration(q.limited_s)}" if q.limited_s else "never reached"
    return f"{q.admission}, {reached}"
