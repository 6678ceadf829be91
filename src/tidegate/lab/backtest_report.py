"""The HTML page of a backtest: summary, Pareto front, prices of shares, then rate and latency."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.lab.advice_text import (
    COLUMNS,
    advice_rows,
    foresight,
    half_check,
    notes,
    recommendation,
)
from tidegate.lab.backtest import Result, bound_caveat, host_rate_per_s, pareto, target_text
from tidegate.lab.bound import Bound
from tidegate.lab.recommend import FAMILIES, Advice, Option, front
from tidegate.report import Page, Series, lines, scatter
from tidegate.simulation.scenario import Scenario

__all__ = ["backtest_page"]


LOWEST_SHOWN = 0.8
"""Shares in time below this are left out of the curves."""


def backtest_page(
    name: str,
    scenario: Scenario,
    results: Sequence[Result],
    bound: Bound | None,
    advice: Advice | None = None,
    savings: Sequence[str] = (),
) -> Page:
    """The page of one backtest.

    Args:
        name: Name of the trace.
        scenario: What the policies were tested against.
        results: Their runs, the cheapest first.
        bound: The hindsight bound, if there is one.
        advice: What to run, and what each share costs; None to leave it out.
        savings: Sentences about what a recorded run costs in a month.
    """
    best = results[0]
    over = f", {best.regret:.0%} above the hindsight bound" if best.regret is not None else ""
    page = Page(
        f"Which policy for {name}?",
        f"{best.policy} costs ${best.cost_usd:.2f} including late items{over}, and completes "
        f"{best.slo_compliance:.1%} of the items within {target_text(scenario)}.",
    )
    page.section("Cost against service")
    points = [(r.policy, r.report.resource_cost_usd, 100 * r.slo_compliance) for r in results]
    page.picture(
        scatter(points, "Cost of hosts and items in time", "$", "% in time", pareto(results)),
        "The dashed line connects policies that no other beats in both.",
    )
    page.table(
        ["policy", "cost $", "hosts $", "in time", "p50 s", "p95 s", "p99 s", "rescales", "hosts",
         "over bound"],
        [
            [
                r.policy,
                r.cost_usd,
                r.report.resource_cost_usd,
                f"{r.slo_compliance:.2%}",
                r.report.latency_p50_s,
                r.report.latency_p95_s,
                r.report.latency_p99_s,
                r.report.rescales,
                r.mean_hosts,
                "–" if r.regret is None else f"{r.regret:.0%}",
            ]
            for r in results
        ],
    )  # fmt: skip
    if scenario.batches is not None and len(scenario.topology.operators) > 1:
        page.table(
            ["policy", "query", "target s", "in time", "p50 s", "p95 s", "p99 s"],
            [
                [
                    r.policy,
                    o.operator,
                    o.slo_s,
                    "–" if o.in_time is None else f"{o.in_time:.2%}",
                    o.p50_duration_s,
                    o.p95_duration_s,
                    o.p99_duration_s,
                ]
                for r in results
                for o in r.report.operators
            ],
        )
    if bound is not None:
        gap = "" if bound.gap is None else f", within {bound.gap:.1%} of an ideal plan"
        caveat = bound_caveat(scenario)
        page.text(
            f"No policy can cost less than ${bound.cost_usd:.2f} here, even if it knows the whole "
            f"trace in advance ({bound.method}{gap})."
            if not caveat
            else f"Hindsight bound: ${bound.cost_usd:.2f} ({bound.method}{gap}). {caveat}"
        )
    if advice is not None:
        _prices(page, scenario, advice)
    if savings:
        page.section("In a month")
        for sentence in savings:
            page.text(sentence)
    per_host = host_rate_per_s(scenario)
    for result in results:
        s = result.report.series
        hours = [(t or 0.0) / 3600 for t in s.time_s]
        page.section(result.policy, _settings(result))
        capacity = [None if n is None else n * per_host for n in s.hosts_running]
        page.picture(
            lines(
                [
                    Series("rate", hours, s.arrival_rate_per_s),
                    Series("capacity", hours, capacity, True),
                ],
                "Rate and capacity",
                "hours",
                "items/s",
            )
        )
        slo = Series("SLO", [hours[0], hours[-1]], [scenario.slo_s] * 2, dashed=True)
        page.picture(lines([Series("p95", hours, s.latency_p95_s), slo], "Latency", "hours", "s"))
    return page


def _prices(page: Page, scenario: Scenario, advice: Advice) -> None:
    """The section about the price of each share: the sentence, the curves and the table."""
    page.section("What each share costs", recommendation(advice, scenario))
    curves = [_curve("policies", advice.options)]
    curves += [_curve(family, advice.family(family)) for family in FAMILIES]
    known = sorted(advice.least_usd.items(), key=lambda pair: pair[1])
    if len(known) > 1:
        shares = [100 * share for share, _ in known]
        curves.append(Series("at least", [usd for _, usd in known], shares, dashed=True))
    curves = [curve for curve in curves if curve.x]
    if any(max(curve.x) > 0 for curve in curves):
        page.picture(
            lines(curves, "Price of hosts and items in time", "$", "% in time", y_from_zero=False),
            "Each step is a setting with more in time than every cheaper one. Those of rules of "
            "thumb are chosen in hindsight. No policy is to the left of the dashed line.",
        )
    page.table(COLUMNS, advice_rows(advice))
    page.text(notes(advice))
    for sentence in (foresight(advice), half_check(advice)):
        if sentence:
            page.text(sentence)


def _curve(name: str, options: Sequence[Option]) -> Series:
    shown = [one for one in front(options) if one.in_time >= LOWEST_SHOWN]
    money, shares = [one.hosts_usd for one in shown], [100 * one.in_time for one in shown]
    return Series(name, money, shares, step=True)


def _settings(result: Result) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in result.settings.items())
    return f"Settings: {shown or 'defaults'}; {result.report.rescales} rescales."
