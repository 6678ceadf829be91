"""The report of a run, live or simulated: summary, figures, charts and decisions."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.loop.journal import Turn
from tidegate.report.charts import Series, lines, time_unit
from tidegate.report.page import Page
from tidegate.report.summary import LiveSummary, capacity_of, decisions_of, lag_of, rate_of
from tidegate.units import show_duration

__all__ = ["figures", "live_page"]


def live_page(name: str, turns: Sequence[Turn], summary: LiveSummary) -> Page:
    """Return the page of a run. name: of the run; turns: as given to `summarise`."""
    page = Page(f"How did {name} go?", _answer(summary))
    page.section("Figures", "" if summary.exact else "Latencies are estimated from the journal.")
    page.table(["figure", "value"], figures(summary))
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    begun_s = seen[0].time_s
    scale, unit = time_unit(seen[-1].time_s - begun_s)
    x = [(s.time_s - begun_s) / scale for s in seen]
    every = decisions_of(turns)
    marks = [((d.time_s - begun_s) / scale, f"{d.before} → {d.after}: {d.reason}") for d in every]
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
        ),
        "Capacity: what the running executors can process, by the measured service time. "
        "A vertical line is a decision; point at it for the reason.",
    )
    lag = [lag_of(s) for s in seen]
    if any(items is not None for items in lag):
        page.picture(lines([Series("lag", x, lag)], "Backlog", unit, "items"))
    else:
        page.text("The backlog was not measured: the source does not report it.")
    page.section("Latency")
    latency = [
        Series("p50", x, [s.latency.p50_s for s in seen]),
        Series("p95", x, [s.latency.p95_s for s in seen]),
    ]
    if summary.slo_s is not None:
        ends = [x[0], x[-1]]
        latency.append(Series("SLO", ends, [summary.slo_s] * 2, dashed=True))
    page.picture(lines(latency, "Latency, from event to commit", unit, "s", marks))
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
    return page


def figures(summary: LiveSummary) -> list[tuple[str, str]]:
    """Return the figures as text, most important first."""
    s = summary
    about = "" if s.exact else "about "
    rows = [
        ("time", show_duration(s.duration_s)),
        ("items", f"{about}{s.items:.0f}"),
    ]
    if s.slo_s is not None and s.slo_compliance is not None:
        rows.append((f"within {show_duration(s.slo_s)}", f"{about}{s.slo_compliance:.1%}"))
    if s.p50_s is not None and s.p95_s is not None and s.p99_s is not None:
        shown = " · ".join(show_duration(v) for v in (s.p50_s, s.p95_s, s.p99_s))
        rows.append(("latency p50 · p95 · p99", about + shown))
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


def _answer(s: LiveSummary) -> str:
    held = ""
    if s.slo_compliance is not None and s.slo_s is not None:
        about = "" if s.exact else "about "
        held = f"{about}{s.slo_compliance:.1%} of the items were done within "
        held += f"{show_duration(s.slo_s)}, with "
    text = (
        f"{held}{s.mean_executors:.1f} executors on average and {s.peak_executors} at the peak: "
        f"{s.saved:.0%} fewer executor-seconds than a cluster sized for the peak."
    )
    return text[0].upper() + text[1:]
