"""Latency in the reward of the learning policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.lab.backtest import bound_of
from tidegate.lab.future.days import SLO_S, DayResult, day_scenario, exchange_days, run_day
from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.fugu.runs import FORMER, TARGET, Case, Measures, run_case
from tidegate.lab.papers.fugu.world import POINTS
from tidegate.lab.papers.statistics import interval
from tidegate.model import Host, Snapshot
from tidegate.policies.base import setting
from tidegate.policies.sarsa import Pending, Sarsa

__all__ = ["QUESTION", "LatencySarsa", "lateness"]

WEIGHTS = (0.0, 1.0, 4.0)
"""Weights of latency in the reward; 0 is the policy as published."""
PART_OF_DAY = 1 / 3
"""Part of an exchange day that is simulated: with its many shards, a day takes long."""


@dataclass(frozen=True, slots=True)
class LatePending(Pending):
    """A decision with the lateness of its host at that time."""

    lateness: float = 0.0


def lateness(host: str, snapshot: Snapshot, limit_s: float) -> float | None:
    """Mean latency of a host's operators as a share of a limit, each at most 1; None if unknown.

    >>> from tidegate.testing import steady_snapshot
    >>> slow = steady_snapshot(hosts=1, durations_s=(0.1, 0.3))
    >>> round(lateness("host-1", slow, limit_s=2.0), 3)
    0.1
    """
    shares = []
    for instance in snapshot.instances:
        durations = snapshot.reading[instance.operator].recent_durations_s
        if instance.host == host and durations:
            shares.append(min(1.0, math.fsum(durations) / len(durations) / limit_s))
    return math.fsum(shares) / len(shares) if shares else None


@dataclass(frozen=True)
class LatencySarsa(Sarsa):
    """The learning policy, rewarded also for the fall of the latency on its host.

    The reward is that of the paper plus `weight` times the fall of the lateness, which is 0 to 1.

    >>> LatencySarsa(weight=0.5).weight
    0.5
    """

    weight: float = setting(1.0, "weight of the fall of lateness in the reward", low=0)
    limit_s: float = setting(SLO_S, "latency that counts as 1, s", low=1e-6)

    def begun(self, host: Host, state: int, action: int, snapshot: Snapshot) -> Pending:
        """A decision, with the utilisation and the lateness of its host."""
        late = lateness(host.id, snapshot, self.limit_s)
        return LatePending(state, action, host.utilisation or 0.0, lateness=late or 0.0)

    def gained(self, past: Pending, host: Host, snapshot: Snapshot) -> float:
        """The paper's reward, plus what the latency fell by."""
        plain = super().gained(past, host, snapshot)
        late = lateness(host.id, snapshot, self.limit_s)
        if past.cancelled or late is None or not isinstance(past, LatePending):
            return plain
        return plain + self.weight * (past.lateness - late)


def with_latency(weight: float) -> LatencySarsa:
    """The learning policy of FUGU's experiments, with a weight of latency in its reward."""
    return LatencySarsa(**Case("sarsa", **FORMER).settings(), weight=weight)


def run(size: Size, progress: Progress) -> Finding:
    """FUGU's Day 1 and an exchange day, for each weight."""
    fugu: dict[float, list[Measures]] = {weight: [] for weight in WEIGHTS}
    days: dict[float, list[DayResult]] = {weight: [] for weight in WEIGHTS}
    points = max(20, round(POINTS * size.length))
    for n, (seed, workload) in enumerate(exchange_days(size)):
        scenario = day_scenario(workload, PART_OF_DAY * size.length)
        bound = bound_of(scenario).cost_usd
        for m, weight in enumerate(WEIGHTS):
            progress((n + m / len(WEIGHTS)) / size.seeds, f"seed {seed}, weight {weight:g}")
            rewarded = with_latency(weight)
            fugu[weight].append(run_case(seed, Case("sarsa", **FORMER), points, policy=rewarded))
            plain = LatencySarsa(TARGET, weight=weight)
            days[weight].append(run_day(scenario, plain, seed, bound))
    return _finding(fugu, days)


def _finding(
    fugu: Mapping[float, Sequence[Measures]], days: Mapping[float, Sequence[DayResult]]
) -> Finding:
    def ms(what: str, weight: float) -> list[float]:
        return [1000 * float(getattr(one, what)) for one in fugu[weight]]

    worlds = tuple(
        (
            f"{weight:g}" + (" (as published)" if weight == 0 else ""),
            interval(ms("latency_mean_s", weight), 0),
            interval(ms("latency_p90_s", weight), 0),
            interval([m.load_mean for m in fugu[weight]], 3),
            interval([m.hosts for m in fugu[weight]], 2),
            interval([m.moves for m in fugu[weight]], 0),
        )
        for weight in WEIGHTS
    )
    exchange = tuple(
        (
            f"{weight:g}",
            interval([100 * d.in_time for d in days[weight]], 1),
            interval([d.ratio for d in days[weight]], 2),
            interval([d.rescales for d in days[weight]], 0),
        )
        for weight in WEIGHTS
    )
    best = min(WEIGHTS[1:], key=lambda w: sum(ms("latency_mean_s", w)))
    latency = change_text(ms("latency_mean_s", best), ms("latency_mean_s", 0.0))
    hosts = change_text([m.hosts for m in fugu[best]], [m.hosts for m in fugu[0.0]])
    cheapest = min(WEIGHTS[1:], key=lambda w: sum(d.ratio for d in days[w]))
    cost = change_text([d.ratio for d in days[cheapest]], [d.ratio for d in days[0.0]])
    late = change_text([1 - d.in_time for d in days[cheapest]], [1 - d.in_time for d in days[0.0]])
    answer = (
        f"In FUGU's world the best weight, {best:g}, gives {latency} in mean latency and {hosts} "
        f"in hosts, compared with utilisation alone. On exchange days the best weight, "
        f"{cheapest:g}, gives {cost} in cost and {late} in late items."
    )
    return Finding(
        answer,
        (
            Table(
                "FUGU's world, Day 1 of each seed:",
                ("weight", "mean latency, ms", "p90, ms", "utilisation", "hosts", "moves"),
                worlds,
            ),
            Table(
                "Exchange days, with the default guards:",
                ("weight", "in time, %", "cost over the bound", "rescales"),
                exchange,
            ),
        ),
        (
            "The best weight is chosen among the measured ones after the runs, which favours "
            "latency in the reward.",
            "The state of the table stays the utilisation. A longer state would need more visits "
            "than a day has.",
        ),
    )


QUESTION = Question(
    "reward",
    "Does latency in the reward help the learning policy?",
    "FUGU (Heinze et al. 2014), section VI",
    "`sarsa` gets the paper's reward plus a weight times the fall of the latency on its host: the "
    "mean over its operators, as a share of 2 s, each at most 1. It runs through Day 1 of FUGU's "
    "world, and through the first third of an exchange day in the world of `tidegate backtest`.",
    run,
)
