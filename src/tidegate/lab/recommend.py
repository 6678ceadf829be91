"""What to run on a trace, what each share of items in time costs, and what takes foresight.

A backtest runs every policy with its defaults. Here, policies that promise a share run with several
shares and `static` with several numbers of hosts, and the cheapest that had a share in time is what
this share costs. It is compared with the least that any policy pays for hosts, by the hindsight
bound, and with rules of thumb whose settings are chosen after the fact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from tidegate.lab.backtest import (
    Result,
    fixed_load,
    host_rate_per_s,
    hosts_at_the_peak,
    instances_on_a_host,
    run_policy,
    situation_of,
    stack_for,
)
from tidegate.lab.bound import Bound
from tidegate.lab.parallel import in_processes
from tidegate.lab.rules import WindowRule
from tidegate.lab.share_bound import least_hosts_usd
from tidegate.loop.stack import SHARE, StackOptions, build_stack, suggested
from tidegate.policies import policy_class
from tidegate.policies.base import Policy, Situation
from tidegate.simulation import RunReport
from tidegate.simulation.scenario import Scenario
from tidegate.units import show_duration
from tidegate.workloads import describe

__all__ = ["FAMILIES", "SHARES", "Advice", "Option", "advise", "front", "in_time_between"]

SHARES = (0.95, 0.99, 0.999)
"""Shares of items in time whose price is shown."""
CURVE = tuple(n / 200 for n in range(160, 200))
"""Further shares of the curve of the bound."""
DEFAULT_SHARE = 0.99
"""The share that a recommendation is for, unless a user names one."""
FAMILIES = ("static", "headroom", "window")
"""Rules of thumb: a fixed number of hosts; a headroom above the present rate; the same above the
largest rate of a window."""
MARGINS = (1.1, 1.3, 1.6, 2.0, 3.0)
WINDOWS_S = (300.0, 900.0, 3600.0)
WINDOW_MARGINS = (1.0, 1.3, 1.7)
MOST_STATIC = 8
"""Numbers of hosts that are tried."""
MORE_CARE = 50.0
"""A price of late items, in multiples of the usual one, up to which a promise may be kept."""


@dataclass(frozen=True)
class Option:
    """A policy or rule of thumb with settings, and its run.

    Attributes:
        name: The policy, or one of `FAMILIES`.
        chosen: Settings that a user has to write; the others are defaults, or follow from the
            latency target.
        result: The run.
    """

    name: str
    chosen: Mapping[str, Any]
    result: Result

    @property
    def hosts_usd(self) -> float:
        """Price of the hosts, in dollars."""
        return self.result.report.resource_cost_usd

    @property
    def in_time(self) -> float:
        """Share of all items that were in time."""
        return self.result.slo_compliance

    @property
    def spent(self) -> tuple[float, float]:
        """What is compared: dollars, and host-seconds where hosts have no price."""
        return self.hosts_usd, self.result.report.host_seconds

    def text(self) -> str:
        """Name and settings, such as ``static, hosts=9``."""
        return ", ".join([self.name, *(f"{k}={_number(v)}" for k, v in self.chosen.items())])

    def words(self) -> str:
        """The options of a command that runs it, such as ``--policy tide --share 99%``."""
        words = [f"--policy {self.name}"]
        for key, value in self.chosen.items():
            share = f"--share {100 * value:.6g}%" if key == SHARE else ""
            words.append(share or f"--set {key}={_number(value)}")
        return " ".join(words)


@dataclass(frozen=True)
class Advice:
    """Which policy and settings, and what each share costs.

    Attributes:
        share: The share of items in time that was asked for.
        options: Policies with settings that can be run.
        rules: Rules of thumb; the best settings are known only afterwards.
        bound_usd: No policy costs less, late items included; None without a bound.
        least_usd: Dollars of hosts below which no policy has a share in time, by share; without the
            shares for which this is not known.
    """

    share: float
    options: tuple[Option, ...]
    rules: tuple[Option, ...]
    bound_usd: float | None = None
    least_usd: Mapping[float, float] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares whose price is shown, the one that was asked for among them."""
        return tuple(sorted({*SHARES, self.share}))

    @property
    def best(self) -> Option | None:
        """What to run for the share that was asked for; None if nothing had it in time."""
        return self.cheapest(self.share)

    @property
    def closest(self) -> Option:
        """The policy with most items in time."""
        return min(self.options, key=lambda one: (-one.in_time, one.spent))

    def cheapest(self, share: float, family: str | None = None) -> Option | None:
        """The cheapest hosts with a share in time; None if nothing had it.

        family: a rule of thumb; None for policies that can be run.
        """
        every = self.options if family is None else self.family(family)
        return min((o for o in every if o.in_time >= share), key=lambda o: o.spent, default=None)

    def family(self, name: str) -> list[Option]:
        """A rule of thumb with all settings that were tried."""
        return [one for one in self.rules if one.name == name]

    def in_hindsight(self) -> list[Option]:
        """The best settings of each rule of thumb, by the cost of hosts and late items."""
        families = [self.family(name) for name in FAMILIES]
        return [min(f, key=lambda one: one.result.cost_usd) for f in families if f]

    def on_half(self) -> tuple[Option, float | None] | None:
        """What the first half of the trace would have recommended, and its share in the second.

        None if nothing had the share in time in the first half.
        """
        half_s = self.options[0].result.report.duration_s / 2
        fits = [
            (mean_hosts(o.result.report, 0.0, half_s), n)
            for n, o in enumerate(self.options)
            if (in_time_between(o.result.report, 0.0, half_s) or 0.0) >= self.share
        ]
        if not fits:
            return None
        chosen = self.options[min(fits)[1]]
        return chosen, in_time_between(chosen.result.report, half_s, 2 * half_s)


# --- runs -----------------------------------------------------------------------------------------


class _Job(NamedTuple):
    """A run. policy: a policy's name, or a rule of thumb, which has no name that users know."""

    family: str
    policy: str | Policy
    parameters: Mapping[str, Any]
    scenario: Scenario
    options: StackOptions
    seed: int
    fluid: bool


def advise(
    scenario: Scenario,
    results: Sequence[Result],
    *,
    share: float | None = None,
    bound: Bound | None = None,
    options: StackOptions | None = None,
    seed: int = 0,
    fluid: bool = False,
    progress: Callable[[float], None] | None = None,
    processes: int = 1,
) -> Advice:
    """Run more settings, and rules of thumb, and compare them with the results of a backtest.

    Args:
        scenario: What the policies were tested against.
        results: The backtest, with at least one policy. No other policies are recommended.
        share: Share of items in time to recommend a policy for; None: 99 %.
        bound: The hindsight bound, if there is one.
        options: Guards of every policy, as in the backtest.
        seed: Random seed, as in the backtest.
        fluid: Use the faster, approximate world, as in the backtest.
        progress: Called with the completed share.
        processes: Number of processes; the results do not depend on it.
    """
    wanted = DEFAULT_SHARE if share is None else share
    stack = options or StackOptions()
    make = partial(_Job, scenario=scenario, options=stack, seed=seed, fluid=fluid)
    jobs = [make(*one) for one in (*_settings(results, wanted), *_rules(scenario))]
    done: dict[int, Result] = {}
    parts = [0.0] * len(jobs)

    def report(number: int, part: float) -> None:
        parts[number] = part
        if progress is not None:
            progress(math.fsum(parts) / len(jobs))

    if processes > 1 and len(jobs) > 1:
        for number, result in in_processes(_run, jobs, processes, report):
            done[number] = result
    else:
        for number, job in enumerate(jobs):
            done[number] = _run(job, partial(report, number))
    known = [_option(result, scenario) for result in results]
    tried = [(job, done[number]) for number, job in enumerate(jobs)]
    names = {result.policy for result in results}
    for job, result in tried:
        if isinstance(job.policy, str) and job.policy in names:
            known.append(_option(result, scenario))
    rules = tuple(
        Option(job.family, _shown(job), result) for job, result in tried if job.family in FAMILIES
    )
    found = Advice(wanted, tuple(known), rules, None if bound is None else bound.cost_usd)
    items = max(result.report.items_in for result in results)
    shares = sorted({*found.shares, *CURVE})
    return replace(found, least_usd=least_hosts_usd(scenario, shares, items, fluid))


def _settings(
    results: Iterable[Result], share: float
) -> Iterable[tuple[str, str | Policy, dict[str, Any]]]:
    """More settings of the policies that promise a share."""
    for result in results:
        known = {each.name: each for each in policy_class(result.policy).parameters()}
        if SHARE not in known:
            continue
        usual = result.settings.get(SHARE, known[SHARE].default)
        for each in sorted({*SHARES, share}):
            if each != usual:
                yield "", result.policy, {SHARE: each}
            if "most" in known:
                yield "", result.policy, {SHARE: each, "most": MORE_CARE}


def _rules(scenario: Scenario) -> Iterable[tuple[str, str | Policy, dict[str, Any]]]:
    """The rules of thumb, with all settings to try."""
    peak, rate = hosts_at_the_peak(scenario), host_rate_per_s(scenario)
    fixed = fixed_load(scenario) / instances_on_a_host(scenario)
    low = max(1, math.ceil(describe(scenario.workload).mean_per_s / rate + fixed))
    most = scenario.offer.max_hosts
    high = max(low, math.ceil(1.2 * peak / 0.7))
    if most is not None:
        low, high = min(low, most), min(high, most)
    steps = min(MOST_STATIC, high - low + 1)
    for hosts in sorted({round(low + n * (high - low) / max(1, steps - 1)) for n in range(steps)}):
        yield "static", "static", {"hosts": hosts}
    rule = WindowRule(host_rate_per_s=rate, fixed_hosts=fixed)
    for margin in MARGINS:
        yield "headroom", replace(rule, margin=margin), {}
    for window_s in WINDOWS_S:
        for margin in WINDOW_MARGINS:
            yield "window", replace(rule, window_s=window_s, margin=margin), {}


def _run(job: _Job, progress: Callable[[float], None]) -> Result:
    if isinstance(job.policy, str):
        options = replace(job.options, parameters=job.parameters)
        settings, policy = stack_for(job.policy, job.scenario, options)
        name = job.policy
    else:
        most = job.options.max_hosts or job.scenario.offer.max_hosts
        options = replace(job.options, parameters={}, max_hosts=most)
        policy = build_stack(job.policy, situation_of(job.scenario), options)
        settings, name = {}, job.family
    report = run_policy(job.scenario, policy, job.seed, progress, job.fluid)
    return Result(name, settings, report, None, policy.describe())


def _option(result: Result, scenario: Scenario) -> Option:
    """A result with the settings that differ from what the policy has live without them."""
    usual = {p.name: p.default for p in policy_class(result.policy).parameters()}
    usual |= suggested(result.policy, Situation(scenario.slo_s))
    chosen = {k: v for k, v in result.settings.items() if usual.get(k) != v}
    if SHARE in usual and SHARE not in chosen:
        chosen = {SHARE: result.settings.get(SHARE, usual[SHARE]), **chosen}
    return Option(result.policy, chosen, result)


def _shown(job: _Job) -> dict[str, Any]:
    """The settings of a rule of thumb that are worth showing."""
    if isinstance(job.policy, WindowRule):
        window = {"window": show_duration(job.policy.window_s)} if job.policy.window_s else {}
        return {**window, "margin": job.policy.margin}
    return dict(job.parameters)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# --- figures --------------------------------------------------------------------------------------


def front(options: Iterable[Option]) -> list[Option]:
    """The options with more in time than every cheaper one, the cheapest first."""
    found: list[Option] = []
    for one in sorted(options, key=lambda o: (o.spent, -o.in_time)):
        if not found or one.in_time > found[-1].in_time:
            found.append(one)
    return found


def in_time_between(report: RunReport, from_s: float, until_s: float) -> float | None:
    """Share of the items finished in a part of a run that were in time; None without items.

    A part begins and ends with intervals of the run's series.
    """
    good = total = 0.0
    for begin_s, end_s, number in _intervals(report, from_s, until_s):
        per_s, share = report.series.finished_per_s[number], report.series.compliance[number]
        if per_s is not None and share is not None:
            total += per_s * (end_s - begin_s)
            good += per_s * (end_s - begin_s) * share
    return good / total if total else None


def mean_hosts(report: RunReport, from_s: float, until_s: float) -> float:
    """Mean number of leased hosts in a part of a run."""
    parts = list(_intervals(report, from_s, until_s))
    seconds = math.fsum((report.series.hosts[n] or 0.0) * (end - begin) for begin, end, n in parts)
    return seconds / (math.fsum(end - begin for begin, end, _ in parts) or 1.0)


def _intervals(
    report: RunReport, from_s: float, until_s: float
) -> Iterable[tuple[float, float, int]]:
    """Begin, end and number of the intervals that end within a part of a run."""
    begin_s = 0.0
    for number, time_s in enumerate(report.series.time_s):
        end_s = time_s or 0.0
        if from_s < end_s <= until_s + 1e-9:
            yield begin_s, end_s, number
        begin_s = end_s
