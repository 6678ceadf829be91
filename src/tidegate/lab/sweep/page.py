"""The HTML page of a sweep: summary, Pareto front, leaderboard, heat maps, then each case."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.lab.sweep.figures import CaseFigures, Mean, Standing, SweepFigures
from tidegate.report import Page, heat, scatter
from tidegate.units import show_duration

__all__ = ["front_picture", "sweep_page"]

MOST_ROWS = 100
ROWS_OF_A_CASE = 12
MOST_CASES = 60


def sweep_page(figures: SweepFigures) -> Page:
    """The page of a sweep."""
    page = Page("Which policy, with which settings?", _answer(figures))
    if figures.overall:
        page.section("Cost against service")
        page.picture(
            front_picture(figures.overall),
            "The dashed line connects settings that no other beats in both.",
        )
        page.section("Leaderboard", figures.legend() + ".")
        _table(page, figures.overall[:MOST_ROWS])
        if len(figures.overall) > MOST_ROWS:
            page.text(f"{len(figures.overall) - MOST_ROWS} more settings are not shown.")
    if figures.maps:
        page.section("Cost by two parameters", "Mean cost in dollars; the lowest is framed.")
        for m in figures.maps:
            page.picture(heat(m.columns, m.rows, m.costs, m.policy, m.x, m.y))
    if len(figures.cases) > 1:
        for case in figures.cases[:MOST_CASES]:
            page.section(_title(case))
            page.picture(front_picture(case.standings))
            _table(page, case.standings[:ROWS_OF_A_CASE])
    if figures.failures:
        page.section("Failed cells", f"{figures.failed} cells failed. The first ones:")
        page.table(["policy", "setting", "trace", "seed", "error"], figures.failures)
    page.section("Provenance")
    page.text(
        f"{figures.done} simulations covered {show_duration(figures.simulated_s)} and took "
        f"{show_duration(figures.wall_s)} on one core; tidegate {', '.join(figures.made_by)} "
        "(version and digest of the code)."
    )
    return page


def _answer(figures: SweepFigures) -> str:
    if not figures.overall:
        return f"No cell succeeded; {figures.failed} failed."
    best = figures.overall[0]
    where = f"over {len(figures.cases)} cases" if len(figures.cases) > 1 else "here"
    text = (
        f"{best.name} costs least {where}: ${best.cost.text(2)} including late items, with "
        f"{best.in_time.mean:.1%} of the items in time."
    )
    if len(figures.overall) > 1:
        second = figures.overall[1]
        behind = second.behind
        if behind is not None:
            sure = behind.half is not None and behind.mean > behind.half
            text += f" {second.name} is ${behind.text(2)} behind on the same seeds"
            text += "." if sure else ", which may be chance: run more seeds."
    return text


def _title(case: CaseFigures) -> str:
    return (
        f"{case.trace}, ${case.usd_per_h:g}/h billed by {show_duration(case.billing_unit_s)}, SLO "
        f"{show_duration(case.slo_s)}, decisions every {show_duration(case.interval_s)}, "
        f"{case.mode} mode"
    )


def front_picture(standings: Sequence[Standing]) -> str:
    """Settings by cost and items in time, with their Pareto front."""
    points = [(row.name, row.resource.mean, 100 * row.in_time.mean) for row in standings]
    front = [row.name for row in standings if row.on_front]
    title = "Cost of hosts and items in time"
    labelled = None if len(points) <= 8 else front
    return scatter(points, title, "$", "% in time", front, labelled)


def _whole(value: Mean) -> str:
    return value.text(2).replace(" ", "\u00a0")  # no line break inside


def _table(page: Page, standings: Sequence[Standing]) -> None:
    page.table(
        ["", "policy", "setting", "cost $", "behind the best $", "hosts $", "in time", "p95 s",
         "seeds", "cells"],
        [
            [
                "*" if row.on_front else "",
                row.policy,
                (row.setting or "defaults") + ("" if row.complete else " (incomplete)"),
                _whole(row.cost),
                "–" if row.behind is None else _whole(row.behind),
                _whole(row.resource),
                f"{row.in_time.mean:.2%}",
                row.p95_s,
                row.seeds,
                row.cells,
            ]
            for row in standings
        ],
    )  # fmt: skip
