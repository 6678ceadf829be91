"""A recommendation in words and figures, the same in the terminal, the page and JSON."""

from __future__ import annotations

from typing import Any

from tidegate.lab.backtest import hosts_at_the_peak, target_text
from tidegate.lab.month import a_month
from tidegate.lab.recommend import FAMILIES, Advice, Option
from tidegate.simulation.scenario import Scenario
from tidegate.units import show_duration, show_share

__all__ = [
    "COLUMNS",
    "advice_plain",
    "advice_rows",
    "foresight",
    "half_check",
    "notes",
    "recommendation",
    "what_other_shares_cost",
]

COLUMNS = ("to have", "cheapest policy", "price", "in time", "at least", *FAMILIES)
"""The columns of the table of prices."""
LOWEST = "lowest cost"
"""The row of the cheapest policies, late items included, whatever share is in time."""


def recommendation(advice: Advice, scenario: Scenario) -> str:
    """What to run for the share that was asked for, in a sentence or two."""
    within = f"{show_share(advice.share)} of the items within {target_text(scenario)}"
    best = advice.best
    if best is not None:
        return (
            f"To have {within}, use {best.words()}: {show_share(best.in_time)} were in time, "
            f"hosts cost {price(best)}{_month(best, scenario)}."
        )
    close = advice.closest
    return (
        f"No policy had {within}. The closest is {close.words()}: {show_share(close.in_time)} were "
        f"in time, hosts cost {price(close)}{_month(close, scenario)}. {_out_of_reach(scenario)}"
    )


def _out_of_reach(scenario: Scenario) -> str:
    """What is known to keep a share out of reach, or else what often does."""
    offer, busy = scenario.offer, hosts_at_the_peak(scenario)
    if scenario.work_s >= scenario.slo_s:
        return (
            f"Service alone takes {show_duration(scenario.work_s)} for an item, over all "
            "operators: more hosts do not shorten that."
        )
    if offer.max_hosts is not None and busy >= offer.max_hosts:
        return (
            f"The fullest minute keeps {busy:.3g} hosts busy, and the limit is {offer.max_hosts}."
        )
    return (
        f"Where the load rises faster than the start of a host ({show_duration(offer.startup_s)}), "
        "only hosts that wait for it keep items in time."
    )


def what_other_shares_cost(advice: Advice) -> str:
    """The prices of the other shares, in a sentence."""
    parts = []
    for share in advice.shares:
        if share == advice.share:
            continue
        best = advice.cheapest(share)
        found = "no policy had it" if best is None else f"{price(best)} ({best.text()})"
        parts.append(f"{show_share(share)}: {found}")
    return f"Other shares: {'; '.join(parts)}."


def foresight(advice: Advice) -> str:
    """How much foresight saves at most; empty without a bound or a price."""
    rules = advice.in_hindsight()
    # A fixed number of hosts that suits the trace was itself chosen in hindsight.
    own = [one for one in advice.options if one.name not in FAMILIES] or advice.options
    cheapest = min(own, key=lambda one: one.result.cost_usd)
    cost_usd = cheapest.result.cost_usd
    if advice.bound_usd is None or not rules or cost_usd <= 0:
        return ""
    above_usd = cost_usd - advice.bound_usd
    rule = min(rules, key=lambda one: one.result.cost_usd)
    saved_usd = cost_usd - rule.result.cost_usd
    head = (
        f"With late items, {cheapest.text()} costs ${cost_usd:.2f}, ${above_usd:.2f} above the "
        "bound, which knows the whole trace"
    )
    if saved_usd <= 0:
        return (
            f"{head}. No rule of thumb is cheaper, even with settings chosen in hindsight "
            f"({rule.text()}: ${rule.result.cost_usd:.2f}): foresight would save at most what is "
            "left."
        )
    return (
        f"{head}. The best rule of thumb chosen in hindsight ({rule.text()}) would have saved "
        f"${saved_usd:.2f} of that; foresight would save at most the other "
        f"${max(0.0, above_usd - saved_usd):.2f}."
    )


def half_check(advice: Advice) -> str:
    """What the first half of the trace would have recommended, and whether it kept its word."""
    found = advice.on_half()
    if found is None:
        return f"In the first half of the trace, no policy had {show_share(advice.share)} in time."
    chosen, share = found
    kept = "nothing was finished" if share is None else f"{show_share(share)} were in time"
    return (
        f"Check: the first half of the trace alone recommends {chosen.text()}; in the second half, "
        f"{kept} with it."
    )


def advice_rows(advice: Advice) -> list[list[str]]:
    """The table of prices: a row for each share, then the lowest costs. See `COLUMNS`."""
    rows = []
    for share in advice.shares:
        best, least = advice.cheapest(share), advice.least_usd.get(share)
        rows.append(
            [
                show_share(share),
                "none" if best is None else best.text(),
                "–" if best is None else price(best),
                "–" if best is None else f"{best.in_time:.2%}",
                "–" if least is None else f"${least:.2f}",
                *(_price(advice.cheapest(share, family)) for family in FAMILIES),
            ]
        )
    cheapest = min(advice.options, key=lambda one: one.result.cost_usd)
    by_family = {one.name: one for one in advice.in_hindsight()}
    if cheapest.result.cost_usd <= 0:  # neither hosts nor late items have a price
        return rows
    rows.append(
        [
            LOWEST,
            cheapest.text(),
            f"${cheapest.result.cost_usd:.2f}",
            f"{cheapest.in_time:.2%}",
            "–" if advice.bound_usd is None else f"${advice.bound_usd:.2f}",
            *(f"${by_family[f].result.cost_usd:.2f}" if f in by_family else "–" for f in FAMILIES),
        ]
    )
    return rows


def notes(advice: Advice) -> str:
    """The meaning of the columns."""
    best = "; ".join(one.text() for one in advice.in_hindsight())
    return (
        f"price: of the hosts, and in the last row of hosts and late items; at least: no policy "
        f"pays less; {', '.join(FAMILIES)}: the cheapest settings of a rule of thumb, chosen in "
        f"hindsight (for the last row: {best})"
    )


def price(option: Option) -> str:
    """The price of the hosts; their hours where they cost nothing."""
    if option.hosts_usd > 0:
        return f"${option.hosts_usd:.2f}"
    return f"{option.result.report.host_seconds / 3600:.1f} host-hours"


def _price(option: Option | None) -> str:
    return "–" if option is None else price(option)


def _month(option: Option, scenario: Scenario) -> str:
    report = option.result.report
    usd = a_month(
        report.resource_cost_usd, report.host_seconds, report.duration_s, scenario.offer
    ).usd
    return f", ${usd:,.2f} in a month like this" if usd > 0 else ""


def advice_plain(advice: Advice, scenario: Scenario) -> dict[str, Any]:
    """A recommendation as plain values, for JSON."""
    best = advice.best
    half = advice.on_half()
    return {
        "share": advice.share,
        "policy": None if best is None else best.name,
        "settings": None if best is None else dict(best.chosen),
        "sentence": recommendation(advice, scenario),
        "by_share": [
            {
                "share": share,
                "cheapest": _plain(advice.cheapest(share)),
                "least_hosts": advice.least_usd.get(share),
                "hindsight": {f: _plain(advice.cheapest(share, f)) for f in FAMILIES},
            }
            for share in advice.shares
        ],
        "lowest_cost_in_hindsight": {one.name: _plain(one) for one in advice.in_hindsight()},
        "foresight": foresight(advice),
        "first_half": None if half is None else _plain(half[0]),
        "second_half_in_time": None if half is None else half[1],
    }


def _plain(option: Option | None) -> dict[str, Any] | None:
    if option is None:
        return None
    return {
        "policy": option.name,
        "settings": dict(option.chosen),
        "resource_cost": option.hosts_usd,
        "cost": option.result.cost_usd,
        "slo_compliance": option.in_time,
        "mean_hosts": option.result.mean_hosts,
    }
