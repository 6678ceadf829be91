"""What a run costs in a month, and what another policy would have saved.

A month is 730 hours like those of the run. For a run of fewer than 20 billing units, hosts are
counted by the time for which they were leased: by started unit, the ends of the run would count for
more than the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.lab.backtest import Result
from tidegate.loop.journal import Turn
from tidegate.model import HostOffer
from tidegate.report.summary import summarise
from tidegate.units import show_duration, show_share

__all__ = ["MONTH_S", "Month", "Recorded", "Saving", "a_month", "recorded_run", "saving"]

MONTH_S = 730 * 3600.0
"""Seconds in a month."""
LEAST_UNITS = 20
"""Billing units from which on a run is billed by started units."""


@dataclass(frozen=True, slots=True)
class Month:
    """What hosts cost in a month.

    usd: in dollars. host_h: hours of all hosts.
    """

    usd: float
    host_h: float

    def text(self, priced: bool) -> str:
        """Dollars; hours where hosts have no price."""
        return f"${self.usd:,.2f}" if priced else f"{self.host_h:,.0f} host-hours"


def a_month(cost_usd: float, host_s: float, duration_s: float, offer: HostOffer) -> Month:
    """What the hosts of a run cost in a month like it.

    cost_usd: by started billing unit, in dollars. host_s: of all hosts, in seconds. duration_s:
    length of the run, in seconds. offer: its hosts.

    Three hosts for two days at $0.50 an hour, whose last units have just begun:

    >>> from tidegate.model.topology import Resources
    >>> offer = HostOffer(Resources(4), billing_unit_s=3600, price_per_unit_usd=0.5)
    >>> month = a_month(73.5, 3 * 48 * 3600.0, 48 * 3600.0, offer)
    >>> round(month.usd, 2), round(month.host_h)
    (1117.81, 2190)
    """
    if duration_s <= 0:
        return Month(0.0, 0.0)
    many = MONTH_S / duration_s
    if duration_s < LEAST_UNITS * offer.billing_unit_s:
        cost_usd = offer.usd_per_h * host_s / 3600
    return Month(cost_usd * many, host_s * many / 3600)


@dataclass(frozen=True)
class Recorded:
    """What a journal says about the run itself.

    Attributes:
        policy: Name of the policy that decided.
        dry_run: Whether nothing of what it decided was done.
        duration_s: Length of the run, in seconds.
        mean_hosts: Executors on average.
        in_time: Share of items within the latency target; None if not measured.
        month: What its executors cost in a month.
    """

    policy: str
    dry_run: bool
    duration_s: float
    mean_hosts: float
    in_time: float | None
    month: Month

    def text(self) -> str:
        """What the run as it was recorded costs in a month, in one sentence."""
        who = f"dry run of {self.policy}" if self.dry_run else self.policy
        had = "" if self.in_time is None else f", {show_share(self.in_time)} in time"
        return (
            f"As recorded, a month like these {show_duration(self.duration_s)} costs "
            f"{self.month.text(self.month.usd > 0)} ({who}: {self.mean_hosts:.1f} executors on "
            f"average{had})."
        )


def recorded_run(turns: Sequence[Turn], offer: HostOffer, slo_s: float | None = None) -> Recorded:
    """The figures of a recorded run, at the prices of `offer`.

    slo_s: latency target in seconds; None for the recorded one.
    """
    summary = summarise(turns, slo_s)
    last = next(turn for turn in reversed(turns) if turn.snapshot is not None)
    name, *guards = last.policy.split(" → ")
    cost_usd = summary.cost_usd
    if last.snapshot is not None and last.snapshot.offer.usd_per_h > 0:
        cost_usd *= offer.usd_per_h / last.snapshot.offer.usd_per_h
    else:  # the journal has no price: by the time for which executors were leased
        cost_usd = offer.usd_per_h * summary.executor_s / 3600
    return Recorded(
        name,
        any(guard.startswith("dry-run") for guard in guards),
        summary.duration_s,
        summary.mean_executors,
        summary.slo_compliance,
        a_month(cost_usd, summary.executor_s, summary.duration_s, offer),
    )


@dataclass(frozen=True)
class Saving:
    """What a policy in control would have cost, and saved, in a month.

    Attributes:
        policy: The policy, with its settings.
        mean_hosts: Executors on average, simulated.
        in_time: Share of items within the latency target, simulated.
        month: What its executors would cost.
        saved: What that is less than as recorded; negative if it is more.
    """

    policy: str
    mean_hosts: float
    in_time: float
    month: Month
    saved: Month

    def text(self) -> str:
        """The saving in one sentence."""
        priced = self.month.usd > 0
        less = (self.saved.usd if priced else self.saved.host_h) >= 0
        change = Month(abs(self.saved.usd) if priced else 0.0, abs(self.saved.host_h))
        return (
            f"With {self.policy} in control, it would cost {self.month.text(priced)}, "
            f"{change.text(priced)} {'less' if less else 'more'} ({self.mean_hosts:.1f} executors, "
            f"{show_share(self.in_time)} in time, simulated)."
        )


def saving(recorded: Recorded, name: str, result: Result, offer: HostOffer) -> Saving:
    """What a policy would have saved.

    name: the policy, with its settings. result: a simulation of the same time with the policy in
    control. offer: the hosts with their price.
    """
    r = result.report
    would = a_month(r.resource_cost_usd, r.host_seconds, r.duration_s, offer)
    saved = Month(recorded.month.usd - would.usd, recorded.month.host_h - would.host_h)
    return Saving(name, result.mean_hosts, result.slo_compliance, would, saved)
