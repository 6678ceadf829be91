"""Backtests: policies on the same trace, compared with a lower bound of the cost."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.lab.bound import Bound, Demand, hindsight_bound
from tidegate.lab.bound.whole import FineDemand, whole_host_bound
from tidegate.lab.fine_demand import fine_demand
from tidegate.lab.parallel import in_processes
from tidegate.lifecycle import can_copy_process, usable_cores
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal
from tidegate.loop.stack import StackOptions, build_stack, check_guards, suggested
from tidegate.model.topology import Topology
from tidegate.policies import policy_class
from tidegate.policies.base import Policy, Situation
from tidegate.simulation import RunReport
from tidegate.simulation.kernels.ahead import compile_items
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario
from tidegate.units import show_duration
from tidegate.workloads import Workload, describe, series

__all__ = [
    "Result",
    "backtest",
    "bound_caveat",
    "bound_of",
    "check_guards",
    "check_items",
    "failure_text",
    "fine_demand_of",
    "fixed_load",
    "guards_text",
    "host_rate_per_s",
    "hosts_at_the_peak",
    "instances_on_a_host",
    "journal_file",
    "pareto",
    "run_policy",
    "situation_of",
    "stack_for",
    "suited_processes",
    "suited_settings",
    "suits_fluid",
    "target_text",
]

MOST_SLOTS = 360
"""Most periods of the bound's program: more take minutes and change little."""
WHOLE_SLOTS = 150
"""Most periods for which the bound is an integer program; with more, it is by prices of slots."""
MOST_ITEMS = 2e7
"""Most items that a backtest simulates one by one by default."""
MOST_AT_ALL = 1e10
"""Most items that it simulates one by one with ``--mode items``: they take hours."""
WORTH_TURNS = 30_000
"""Turns for which several processes pay: they take some four seconds, and starting takes two."""
WORTH_ITEMS = 2e7
"""The same in items."""
LONG_TURNS = 50_000
"""Turns of a run from which on the policies that take longest begin first."""
FIRST_TURNS = 200
"""Turns that show how long a policy takes, compared with the others."""
WORTH_COPIES = 10
"""How many times fewer it may be where processes are copies of this one, which begin at once."""


@dataclass(frozen=True)
class Result:
    """One policy's run.

    settings: parameters that differ from the defaults. regret: cost above the bound, as a share
    of the bound; None without a bound. stack: the policy with its guards, as `Policy.describe`
    shows it.
    """

    policy: str
    settings: dict[str, Any]
    report: RunReport
    regret: float | None
    stack: str = ""

    @property
    def cost_usd(self) -> float:
        """Hosts and penalties for late items."""
        return self.report.total_cost_usd

    @property
    def slo_compliance(self) -> float:
        """Share of all arrived items that were done in time."""
        out = self.report.items_out
        in_time = out * (self.report.slo_compliance or 0.0)
        return in_time / self.report.items_in if self.report.items_in else 1.0

    @property
    def mean_hosts(self) -> float:
        """Mean number of leased hosts."""
        return self.report.host_seconds / self.report.duration_s


def suited_settings(name: str, scenario: Scenario) -> dict[str, Any]:
    """The parameters that a policy suggests for a scenario; all others keep their defaults."""
    return suggested(name, situation_of(scenario))


def stack_for(
    name: str, scenario: Scenario, options: StackOptions | None = None
) -> tuple[dict[str, Any], Policy]:
    """A policy with its guards for a scenario, and all parameters that were set.

    The stack is the one that runs live: the default guards, with the scenario's largest number of
    hosts as the upper bound.
    """
    options = options or StackOptions()
    if options.max_hosts is None:
        options = replace(options, max_hosts=scenario.offer.max_hosts)
    situation = situation_of(scenario)
    settings = suggested(name, situation) | dict(options.parameters)
    return settings, build_stack(name, situation, options)


def situation_of(scenario: Scenario) -> Situation:
    """What a scenario reveals before the first turn: latency target, peak load, throughput."""
    return Situation(
        slo_s=scenario.slo_s,
        micro_batches=scenario.batches is not None,
        floor_s=scenario.work_s,
        peak_instances=_busiest(scenario),
        instances_per_host=instances_on_a_host(scenario),
        host_rate_per_s=host_rate_per_s(scenario),
        late_price=_late_price(scenario),
    )


def host_rate_per_s(scenario: Scenario) -> float:
    """Items per second that a full host can process."""
    return instances_on_a_host(scenario) / _busiest_s(scenario)


def _late_price(scenario: Scenario) -> float | None:
    """Price of a late item over that of processing one on a busy host; None if one of them is 0."""
    settings = scenario.settings if scenario.batches is None else scenario.batches
    usd_per_item = scenario.offer.usd_per_h / 3600 / host_rate_per_s(scenario)
    return settings.penalty_usd / usd_per_item if settings.penalty_usd and usd_per_item else None


def hosts_at_the_peak(scenario: Scenario) -> float:
    """Hosts that the items of the fullest minute keep busy, a real number."""
    return _busiest(scenario) / instances_on_a_host(scenario)


def target_text(scenario: Scenario) -> str:
    """The latency target as text; queries may have different ones.

    >>> from tidegate.lab.scenario_options import ScenarioOptions
    >>> from tidegate.workloads import ConstantRate
    >>> target_text(ScenarioOptions(slo_s=2.0).build(ConstantRate(40, duration_s=600)))
    '2 s'
    """
    several = len({operator.slo_s for operator in scenario.topology.operators}) > 1
    if scenario.batches is not None and several:
        return "the latency target of their query"
    return show_duration(scenario.slo_s)


def _busiest_s(scenario: Scenario) -> float:
    """Slot-seconds of an item at the busiest operator; at all of them where these share slots."""
    return scenario.work_s if scenario.shared else scenario.bottleneck_s


def instances_on_a_host(scenario: Scenario) -> int:
    """Instances of each operator on a host; all slots where the operators share them."""
    return int(scenario.offer.capacity.cpu_cores) if scenario.shared else scenario.rounds


def _busiest(scenario: Scenario) -> float:
    """Instances of the busiest operator that the items of the fullest minute keep busy."""
    step_s = max(60.0, scenario.duration_s / 5000)
    rates = series(scenario.workload, min(step_s, scenario.duration_s))
    return float(rates.max()) * _busiest_s(scenario) + fixed_load(scenario)


def fixed_load(scenario: Scenario) -> float:
    """Instances that the fixed work of batches keeps busy; a third of the SLO is a long period."""
    batches = scenario.batches
    if batches is None:
        return 0.0
    works = []
    for operator in scenario.topology.operators:
        name, slo_s = operator.name, operator.slo_s or scenario.slo_s
        trigger_s = batches.trigger_intervals_s.get(name, batches.trigger_interval_s)
        work_s = batches.fixed_works_s.get(name, batches.fixed_work_s)
        works.append(scenario.visits[name] and work_s / max(trigger_s, slo_s / 3))
    return math.fsum(works) if scenario.shared else max(works)


def bound_caveat(scenario: Scenario) -> str:
    """Why the bound is only an estimate in a scenario; empty where it is a strict bound."""
    varying = [o.name for o in scenario.topology.operators if o.service_scv > 0]
    edges = [f"{e.origin} → {e.target}" for e in scenario.topology.edges if e.ratio % 1]
    if not varying and not edges:
        return ""
    why = f"service times vary ({', '.join(varying)})" if varying else ""
    if edges:
        why += (" and " if why else "") + f"items take edges at random ({', '.join(edges)})"
    return (
        f"An estimate, not a strict bound: {why}, and the bound assumes that items in time need "
        "as much work as late ones. A policy whose late items are the large ones may cost less."
    )


def bound_of(scenario: Scenario, time_limit_s: float = 20.0, fluid: bool = False) -> Bound:
    """The lowest cost that any policy can reach in a scenario.

    It is a strict bound if all items need the same work; otherwise see `bound_caveat`.
    time_limit_s: for the solver, in seconds. fluid: for the fluid world, where items may arrive at
    their expected rate instead of at random (`CloudSettings.fluid_inflow`).
    """
    period_s = max(scenario.interval_s, scenario.duration_s / MOST_SLOTS)
    names = [source.name for source in scenario.topology.sources]
    caveat = bound_caveat(scenario)
    topology, longest_s = _judged(scenario)
    expected = fluid and _is_expected(scenario)
    fine = None if caveat else fine_demand(scenario, topology, longest_s, expected)
    rates = series(scenario.workload, period_s)
    limit = scenario.offer.max_hosts
    if fine is not None and len(rates) > WHOLE_SLOTS and (limit is None or fine.fits(limit)):
        return Bound.by_prices(whole_host_bound(fine), fine.slot_s)
    if expected:
        by_source = {names[0]: [float(rate) for rate in rates]}
    else:
        by_source = _arrived_per_s(scenario.workload, period_s, len(rates), names)
    confidence = 0.99 if caveat else None
    demand = Demand.from_rates(topology, by_source, period_s=period_s, confidence=confidence)
    if len(names) > 1:
        streams = tuple(replace(stream, slo_s=longest_s) for stream in demand.streams)
        demand = replace(demand, streams=streams)
    bound = hindsight_bound(
        demand,
        scenario.offer,
        scenario.slo_s,
        scenario.settings.penalty_usd,
        run_s=scenario.duration_s,
        initial_hosts=scenario.initial_hosts,
        whole_hosts=len(rates) <= WHOLE_SLOTS,
        time_limit_s=time_limit_s,
    )
    if fine is None:
        return bound
    found = Bound.by_prices(whole_host_bound(fine), fine.slot_s)
    return max(bound, found, key=lambda one: one.cost_usd)


def fine_demand_of(scenario: Scenario, fluid: bool = False) -> FineDemand | None:
    """The work of a scenario in short slots; None if nothing arrives, or nothing can be late.

    fluid: for the fluid world, as in `bound_of`.
    """
    return fine_demand(scenario, *_judged(scenario), fluid and _is_expected(scenario))


def _is_expected(scenario: Scenario) -> bool:
    """Whether a fluid world has the expected number of items as its inflow."""
    return scenario.settings.fluid_inflow == "expected" and len(scenario.topology.sources) == 1


def _judged(scenario: Scenario) -> tuple[Topology, float]:
    """The operators as a bound counts their work, and the latency target that it judges by."""
    topology, longest_s = scenario.topology, scenario.slo_s
    if scenario.shared:  # an instance may be a share of a slot; the work of an item is a whole one
        whole = tuple(
            replace(o, demand=replace(o.demand, cpu_cores=1.0)) for o in topology.operators
        )
        topology = replace(topology, operators=whole)
    if len(topology.sources) > 1:  # no query is judged by a stricter target than its own
        longest_s = max(o.slo_s or scenario.slo_s for o in topology.operators)
    return topology, longest_s


def _arrived_per_s(
    workload: Workload, period_s: float, periods: int, names: Sequence[str]
) -> dict[str, list[float]]:
    """Items per second that actually arrive in each period, by source."""
    found = [workload.arrivals(n * period_s, (n + 1) * period_s) for n in range(periods)]
    return {name: [len(times.get(name, ())) / period_s for times in found] for name in names}


def suits_fluid(scenario: Scenario) -> bool:
    """Whether the scenario has too many items to simulate them one by one."""
    return scenario.batches is None and describe(scenario.workload).items > MOST_ITEMS


def check_items(scenario: Scenario) -> None:
    """Raise InputError for a scenario with more items than can ever be simulated one by one."""
    items = describe(scenario.workload).items
    if items > MOST_AT_ALL:
        remedy = "use --mode fluid without micro-batches, or a trace with lower rates"
        allowed = f"at most {MOST_AT_ALL:.3g} one by one"
        raise InputError("items of the trace", f"{items:.3g}", allowed, remedy)


def run_policy(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    fluid: bool = False,
    journal: Path | None = None,
) -> RunReport:
    """Run a policy in a scenario.

    Args:
        scenario: What the policy is tested against.
        policy: The policy, with its guards.
        seed: Random seed of service times and start-up times.
        progress: Called with the completed share of the run.
        fluid: Use the faster, approximate world.
        journal: File to write the turns to.
    """
    with nullcontext() if journal is None else Journal(journal, rotation=None) as file:
        return run(
            scenario.world(policy.style, seed, fluid),
            policy,
            duration_s=scenario.duration_s,
            interval_s=scenario.interval_s,
            journal=file,
            seed=seed,
            progress=progress,
        )


def backtest(
    scenario: Scenario,
    names: Sequence[str],
    *,
    bound: Bound | None = None,
    options: StackOptions | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    fluid: bool = False,
    progress: Callable[[str, float], None] | None = None,
    journals: Path | None = None,
    processes: int = 1,
    failed: dict[str, str] | None = None,
) -> list[Result]:
    """Run policies on one scenario, the cheapest first.

    Args:
        scenario: What the policies are tested against.
        names: Policies; each gets the parameters that the scenario suggests.
        bound: Lower bound of the cost that results are compared with.
        options: Guards of every policy; the default ones if None.
        parameters: More parameters of some policies, by the policy's name.
        seed: Random seed of service times and start-up times.
        fluid: Use the faster, approximate world.
        progress: Called with the policy's name and the completed share of its run.
        journals: Folder for the journal of each run, see `journal_file`. InputError if one of
            them is already there.
        processes: Processes that run policies; the results do not depend on it. With more than
            one, a script must call this under ``if __name__ == "__main__":``.
        failed: Gets the error of each policy that fails, by its name, and the others go on;
            TidegateError if none is left. None, or a single policy: its error is raised.
    """
    for name in names:
        policy_class(name)  # refuse an unknown policy before hours of work
        if journals is not None and (file := journal_file(journals, name)).exists():
            remedy = "a journal of another run is not replaced: choose another folder, or remove it"
            raise InputError("journals", str(file), "a new file", remedy)

    def report_progress(number: int, share: float) -> None:
        if progress is not None:
            progress(names[number], share)

    chosen = options or StackOptions()
    more = {name: {**chosen.parameters, **(parameters or {}).get(name, {})} for name in names}
    goes_on = failed is not None and len(names) > 1
    jobs = [
        _Job(scenario, name, replace(chosen, parameters=more[name]), seed, fluid, journals, goes_on)
        for name in names
    ]
    if not fluid and scenario.batches is None:
        compile_items()
    found: Iterable[tuple[int, Result | str]]
    if processes > 1 and len(jobs) > 1:
        found = in_processes(_result, jobs, processes, report_progress, _longest_first(jobs))
    else:
        found = ((n, _result(job, partial(report_progress, n))) for n, job in enumerate(jobs))
    results: dict[int, Result] = {}
    for number, result in found:
        if isinstance(result, str):
            assert failed is not None
            failed[names[number]] = result
            continue
        regret = bound.regret(result.cost_usd) if bound else None
        results[number] = replace(result, regret=regret)
        report_progress(number, 1.0)
    if failed and not results:
        raise TidegateError(failure_text(failed))
    return sorted((results[n] for n in sorted(results)), key=lambda result: result.cost_usd)


def failure_text(failed: Mapping[str, str]) -> str:
    """A sentence on policies that failed in a backtest. failed: errors by policy.

    >>> print(failure_text({"mine": "15 s: KeyError: 'a'"}))
    mine failed (15 s: KeyError: 'a') and is not in the results: run it alone with --policies
    mine, and report what it shows, or leave it out
    """
    name, error = next(iter(failed.items()))
    more = f"; so did {', '.join(list(failed)[1:])}" if len(failed) > 1 else ""
    return (
        f"{name} failed ({error[:80]}) and is not in the results{more}: run it alone with "
        f"--policies {name}, and report what it shows, or leave it out"
    )


def journal_file(folder: Path, name: str) -> Path:
    """The journal of a policy in the folder of a backtest's journals. name: of the policy."""
    return folder / f"{name}.jsonl"


class _Job(NamedTuple):
    """One run; see `backtest`."""

    scenario: Scenario
    name: str
    options: StackOptions | None
    seed: int
    fluid: bool
    journals: Path | None
    others_go_on: bool


def _result(job: _Job, progress: Callable[[float], None]) -> Result | str:
    """The result of a run, or its error where the other runs go on without it."""
    if not job.others_go_on:
        return _finished(job, progress)
    loop = logging.getLogger(Controller.__module__)
    level = loop.level
    loop.setLevel(logging.ERROR)  # it warns of a failed turn with all its calls
    try:
        return _finished(job, progress)
    except BackendError as error:  # "STACK failed at TIME: ERROR"
        return str(error).partition(" failed at ")[2] or str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        loop.setLevel(level)


def _finished(job: _Job, progress: Callable[[float], None]) -> Result:
    settings, policy = stack_for(job.name, job.scenario, job.options)
    journal = None if job.journals is None else journal_file(job.journals, job.name)
    report = run_policy(job.scenario, policy, job.seed, progress, job.fluid, journal)
    return Result(job.name, settings, report, None, policy.describe())


def _longest_first(jobs: Sequence[_Job]) -> Sequence[int]:
    """The numbers of the jobs, those that take longest first, so that all processes end together.

    The first turns of a long run show it. A short one keeps its place: it would take too long to
    find out.
    """
    scenario = jobs[0].scenario
    if scenario.duration_s < LONG_TURNS * scenario.interval_s:
        return range(len(jobs))
    _first_turns_s(jobs[0])  # the first run of all loads the kernels
    taken_s = [_first_turns_s(job) for job in jobs]
    return sorted(range(len(jobs)), key=lambda n: -taken_s[n])


def _first_turns_s(job: _Job) -> float:
    """Processor time of the first turns of a run, in seconds."""
    _, policy = stack_for(job.name, job.scenario, job.options)
    world = job.scenario.world(policy.style, job.seed, job.fluid)
    interval_s, start_s = job.scenario.interval_s, time.process_time()
    with suppress(Exception):  # it comes again in the whole run, which says so
        run(
            world, policy, duration_s=FIRST_TURNS * interval_s, interval_s=interval_s, seed=job.seed
        )
    return time.process_time() - start_s


def suited_processes(scenario: Scenario, policies: int) -> int:
    """Processes for a backtest: one per core where that pays for starting them, otherwise one."""
    turns = scenario.duration_s / scenario.interval_s
    items = min(MOST_ITEMS, describe(scenario.workload).items)
    worth = policies * (turns / WORTH_TURNS + items / WORTH_ITEMS)
    if worth * (WORTH_COPIES if can_copy_process() else 1) < 1:
        return 1
    return max(1, min(usable_cores(), policies))


def pareto(results: Sequence[Result]) -> list[str]:
    """The policies that no other beats in both resource cost and compliance."""
    front = []
    for mine in results:
        beaten = any(
            other.report.resource_cost_usd <= mine.report.resource_cost_usd
            and other.slo_compliance >= mine.slo_compliance
            and (
                other.report.resource_cost_usd < mine.report.resource_cost_usd
                or other.slo_compliance > mine.slo_compliance
            )
            for other in results
        )
        if not beaten:
            front.append(mine.policy)
    return front


def guards_text(stacks: Iterable[str]) -> str:
    """The guards of policy stacks in one line: the longest list, and where policies differ.

    stacks: what `Policy.describe` returns.

    >>> guards_text(["drs → trend() → bounds(max_hosts=8)", "btu → bounds(max_hosts=8)"])
    'trend(), bounds(max_hosts=8); btu without trend()'
    >>> guards_text(["drs", "ds2"])
    'none'
    """
    split = [stack.split(" → ") for stack in dict.fromkeys(stacks)]
    longest = max((guards for _, *guards in split), key=len, default=[])
    text = [", ".join(longest) or "none"]
    for policy, *guards in split:
        if missing := [guard for guard in longest if guard not in guards]:
            text.append(f"{policy} without {', '.join(missing)}")
        if more := [guard for guard in guards if guard not in longest]:
            text.append(f"{policy} with {', '.join(more)}")
    return "; ".join(text)
