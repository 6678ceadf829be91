"""``tidegate backtest``: simulate policies on a trace and compare them with the hindsight bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.autoscaler_options import Share, WithoutGuard
from tidegate.cli.dashboard import Dashboard, attached, wait_for_the_end
from tidegate.cli.output import console, print_json, progress_bar, shown, table
from tidegate.config import load_topology
from tidegate.errors import InputError, TidegateError
from tidegate.lab.advice_text import (
    COLUMNS,
    advice_plain,
    advice_rows,
    foresight,
    half_check,
    notes,
    recommendation,
    what_other_shares_cost,
)
from tidegate.lab.backtest import (
    Result,
    backtest,
    bound_caveat,
    bound_of,
    check_guards,
    check_items,
    failure_text,
    guards_text,
    journal_file,
    pareto,
    suited_processes,
    suits_fluid,
    target_text,
)
from tidegate.lab.backtest_report import backtest_page
from tidegate.lab.bound import Bound
from tidegate.lab.month import Recorded, Saving, recorded_run, saving
from tidegate.lab.recommend import Advice, advise
from tidegate.lab.scenario_options import ScenarioOptions, read_scenario, recorded_world
from tidegate.lab.tune import config_text, tune
from tidegate.loop.journal import read_journal
from tidegate.loop.stack import SHARE, StackOptions, with_share
from tidegate.loop.tail import parts_of
from tidegate.model import HostOffer, SloByQuery
from tidegate.outputs import check_output
from tidegate.policies import available, policy_class
from tidegate.simulation.calibrate import BatchWorld, load_world
from tidegate.simulation.kernels.ahead import compile_items
from tidegate.simulation.scenario import Scenario
from tidegate.units import duration_s, finite, show_duration
from tidegate.workloads import describe, series, sparkline

__all__ = ["WithoutGuard", "backtest_command"]

NAMES = {
    "slo_s": "--slo",
    "billing_unit_s": "--btu",
    "usd_per_h": "--price",
    "startup_s": "--startup",
    "interval_s": "--interval",
    "max_hosts": "--max-hosts",
    "penalty_usd": "--penalty",
    "instances_per_host": "--instances-per-host",
    "rate_per_instance": "--rate-per-instance",
    "service_scv": "--service-scv",
    "topology": "--topology",
    "world": "--world",
}
"""The fields of `ScenarioOptions` as they are written on the command line."""
MORE_RUNS = 27
"""Runs of a recommendation, about: what decides on the number of processes."""


def backtest_command(
    trace: Annotated[
        Path,
        typer.Argument(
            help="Rates (t_s,rate), counts or events in CSV, .gz or Parquet; or a journal."
        ),
    ],
    slo: Annotated[
        str | None,
        typer.Option(
            help="Latency target, arrival to completion; for a Spark application also by query: "
            "alerts=2s,30s. Default: the recorded one of a journal, otherwise 2s."
        ),
    ] = None,
    share: Share = None,
    btu: Annotated[str, typer.Option(help="Billing time unit of a host.")] = "60s",
    policies: Annotated[
        str, typer.Option(help="Comma-separated names, or all.", metavar="NAMES")
    ] = "all",
    price: Annotated[
        float | None,
        typer.Option(help="Price of a host, $/h; default: 1, or what a Spark application has."),
    ] = None,
    penalty: Annotated[
        float | None,
        typer.Option(help="Cost of a late item, $; default: ten times the cost of processing it."),
    ] = None,
    rate_per_instance: Annotated[
        float | None,
        typer.Option(
            help="Items per second that one instance processes; default: ten hosts process the "
            "peak at 70 % utilisation."
        ),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            help="Operators in YAML; the trace drives the source. Default: one operator.",
            metavar="FILE",
        ),
    ] = None,
    instances_per_host: Annotated[
        int | None,
        typer.Option(
            help="Instances that fit on a host, default 4; with --topology, of each operator, "
            "default 1."
        ),
    ] = None,
    startup: Annotated[str, typer.Option(help="Time until a leased host runs.")] = "45s",
    interval: Annotated[str, typer.Option(help="Time between two decisions.")] = "15s",
    max_hosts: Annotated[int | None, typer.Option(help="Maximum number of hosts.")] = None,
    service_scv: Annotated[
        float | None,
        typer.Option(help="Variability of service times: 0 constant (default), 1 exponential."),
    ] = None,
    gaps: Annotated[
        str | None, typer.Option(help="What to do about gaps in a rate trace: error, hold or zero.")
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Play the trace this many times as fast, at the same rates.")
    ] = 1.0,
    stabilise: Annotated[
        str | None,
        typer.Option(
            help="Scale in only when the policy has asked for it this long.", metavar="TIME"
        ),
    ] = None,
    without_guard: WithoutGuard = None,
    mode: Annotated[
        str,
        typer.Option(help="items: every item; fluid: faster, approximate; auto: by trace size."),
    ] = "auto",
    world: Annotated[
        Path | None,
        typer.Option(
            help="A Spark application written by tidegate calibrate, with its own executors, "
            "prices and interval. A journal with micro-batches is calibrated automatically.",
            metavar="FILE",
        ),
    ] = None,
    tune_policy: Annotated[
        str | None, typer.Option("--tune", help="Search this policy's parameters.", metavar="NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    bound_time: Annotated[
        str, typer.Option(help="Time limit for computing the hindsight bound.")
    ] = "10s",
    processes: Annotated[
        int | None,
        typer.Option(help="Processes that run policies; default: one per core for long traces."),
    ] = None,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend/--no-recommend",
            help="Say what each share of items in time costs; this takes some thirty more runs.",
        ),
    ] = True,
    report: Annotated[Path, typer.Option(help="HTML report to write.")] = Path("out/backtest.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; write no report.")] = False,
    dashboard: Dashboard = False,
) -> None:
    """Simulate policies on your traffic and compare cost, latency and rescales.

    The last row is the hindsight bound: no policy can cost less.

    [bold]tidegate backtest my_trace.csv --slo 2s --btu 60s --policies all[/bold]
    """
    names = list(available()) if policies == "all" else [n.strip() for n in policies.split(",")]
    for name in (*names, *([tune_policy] if tune_policy else [])):
        policy_class(name)
    without = check_guards(without_guard or (), "--without-guard")
    promised = _promised(names, share, tune_policy)
    application = recorded_world(trace) if world is None else load_world(world)
    if application is not None and price is not None:
        application = replace(application, offer=_priced(application.offer, price))
    own_slo, slo = slo, _usual_slo(application) if slo is None else slo
    options = ScenarioOptions.read(
        {
            "slo_s": slo,
            "billing_unit_s": btu,
            "usd_per_h": 1.0 if price is None else price,
            "startup_s": startup,
            "interval_s": interval,
            "max_hosts": max_hosts,
            "penalty_usd": penalty,
            "instances_per_host": instances_per_host,
            "rate_per_instance": rate_per_instance,
            "service_scv": service_scv or 0.0,
            "topology": None if topology is None else load_topology(topology),
            "world": application,
        },
        NAMES,
    )
    chosen: Any = gaps
    scenario = read_scenario(trace, options, chosen, finite(speed, "--speed", above=0), seed)
    if tune_policy is not None:
        _tune(scenario, tune_policy, StackOptions(without=without), seed, as_json)
        return
    fluid = _is_fluid(mode, scenario)
    bound_s = duration_s(bound_time, "--bound-time")
    finite(1 if processes is None else processes, "--processes", low=1)
    stack = StackOptions(without=without)
    if stabilise is not None:
        stack = replace(stack, stabilise_s=duration_s(stabilise, "--stabilise"))
    if not as_json:
        check_output(report, "--report", inputs=(trace, *parts_of(trace), topology, world))
        _introduce(trace.name, scenario, fluid)
    journals = _new_folder(report.with_suffix(""), names) if dashboard else None
    watched = [] if journals is None else [journal_file(journals, name) for name in names]
    if not fluid and scenario.batches is None:
        compile_items()  # before the thread of the progress bar
    with _failures() as failed, attached(dashboard and not as_json, watched, scenario.slo_s):
        bound = _bound_with_bar(scenario, bound_s, fluid, as_json)
        # Without a thread: processes that simulate are then copies of this one.
        with progress_bar(as_json, thread=False) as bar:
            task = bar.add_task(names[0], total=len(names) * (1 + recommend))
            shares = dict.fromkeys(names, 0.0)

            def show(name: str, share: float) -> None:
                shares[name] = share
                bar.update(task, completed=sum(shares.values()), description=name)

            results = backtest(
                scenario,
                names,
                bound=bound,
                options=stack,
                parameters=promised,
                seed=seed,
                fluid=fluid,
                progress=show,
                journals=journals,
                processes=processes or suited_processes(scenario, len(names)),
                failed=failed,
            )
            advice = None
            if recommend:
                advice = advise(
                    scenario,
                    results,
                    share=next((float(p[SHARE]) for p in promised.values()), None),
                    bound=bound,
                    options=stack,
                    seed=seed,
                    fluid=fluid,
                    progress=lambda part: bar.update(
                        task, completed=len(names) * (1 + part), description="more settings"
                    ),
                    processes=processes or suited_processes(scenario, MORE_RUNS),
                )
        savings = _savings(_recorded(trace, scenario, own_slo), results, advice, scenario)
        if as_json:
            print_json(_answer(scenario, results, bound, advice, savings) | {"failed": failed})
            return
        _show(scenario, results, bound, advice, savings)
        said = [one.text() for one in savings]
        backtest_page(trace.name, scenario, results, bound, advice, said).write(report, "--report")
        with_topology = "" if topology is None else f" --topology {topology}"
        console().print(
            f"\n{_written(report, journals)}"
            f"next: tidegate backtest {trace}{with_topology} --tune {results[0].policy}",
            soft_wrap=True,
            markup=False,
        )
        if dashboard:
            wait_for_the_end()


@contextmanager
def _failures() -> Iterator[dict[str, str]]:
    """Collects the errors of policies; raises a sentence on them when the others were shown."""
    failed: dict[str, str] = {}
    yield failed
    if failed:
        raise TidegateError(failure_text(failed))


def _new_folder(folder: Path, names: list[str]) -> Path:
    """The folder, or with a number from 2 on if it already has the journal of one of the policies.

    The journals of an earlier backtest, or of a live run, stay as they are.
    """
    tried, number = folder, 1
    while any(journal_file(tried, name).exists() for name in names):
        number += 1
        tried = folder.with_name(f"{folder.name}-{number}")
    return tried


def _written(report: Path, journals: Path | None) -> str:
    """Lines that name the files of a backtest."""
    return f"report: {report}\n" + ("" if journals is None else f"journals: {journals}\n")


def _usual_slo(application: BatchWorld | None) -> str:
    """The latency target of a Spark application, otherwise 2 s."""
    recorded_s = application.slo_s if application is not None else None
    return "2s" if recorded_s is None else f"{recorded_s:g}s"


def _promised(names: list[str], share: str | None, tuned: str | None) -> dict[str, dict[str, Any]]:
    """The parameters of the policies that promise a share; InputError if none of them does."""
    if share is None:
        return {}
    if tuned is not None:
        raise InputError("--share", share, "left out with --tune", "the search varies the share")
    able = [n for n in names if SHARE in {p.name for p in policy_class(n).parameters()}]
    if not able:
        remedy = "none of these policies promises a share: add tide to --policies"
        raise InputError("--share", share, f"left out with {', '.join(names)}", remedy)
    return {name: with_share(name, {}, share, "--share") for name in able}


def _priced(offer: HostOffer, usd_per_h: float) -> HostOffer:
    finite(usd_per_h, "--price", low=0)
    return replace(offer, price_per_unit_usd=usd_per_h * offer.billing_unit_s / 3600)


def _recorded(trace: Path, scenario: Scenario, slo: str | None) -> Recorded | None:
    """The recorded run of a Spark application; None for another input."""
    if trace.suffix != ".jsonl" or scenario.batches is None:
        return None
    slo_s = None if slo is None else SloByQuery.read(slo, "--slo").default_s
    return recorded_run(list(read_journal(trace)), scenario.offer, slo_s)


def _savings(
    recorded: Recorded | None, results: list[Result], advice: Advice | None, scenario: Scenario
) -> list[Recorded | Saving]:
    """What the recorded run costs in a month, then what policies would have saved."""
    if recorded is None:
        return []
    found = [(r.policy, r) for r in results if r.policy == recorded.policy]
    best = None if advice is None else advice.best
    if best is not None and best.result not in [result for _, result in found]:
        found.append((best.text(), best.result))
    return [recorded, *(saving(recorded, name, run, scenario.offer) for name, run in found)]


def _show(
    scenario: Scenario,
    results: list[Result],
    bound: Bound,
    advice: Advice | None,
    savings: list[Recorded | Saving],
) -> None:
    """Print tables and sentences."""
    _leaderboard(results, bound, scenario)
    if advice is not None:
        _recommend(advice, scenario)
    for one in savings:
        console().print(one.text(), markup=False)


def _answer(
    scenario: Scenario,
    results: list[Result],
    bound: Bound,
    advice: Advice | None,
    savings: list[Recorded | Saving],
) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "bound": _bound_plain(bound, scenario),
        "results": [_plain(result) for result in results],
        "recommendation": None if advice is None else advice_plain(advice, scenario),
        "in_a_month": [asdict(one) | {"sentence": one.text()} for one in savings],
    }


def _recommend(advice: Advice, scenario: Scenario) -> None:
    """The table of prices, and the sentences that a person needs."""
    out = console()
    rows = table(*COLUMNS, numbers="r rrrrrr")
    for row in advice_rows(advice):
        rows.add_row(*row)
    out.print()
    out.print(rows)
    out.print(notes(advice), style="dim", markup=False)
    out.print(f"\n{recommendation(advice, scenario)}", style="bold", markup=False)
    for sentence in (what_other_shares_cost(advice), foresight(advice), half_check(advice)):
        if sentence:
            out.print(sentence, markup=False)


def _introduce(name: str, scenario: Scenario, fluid: bool) -> None:
    out = console()
    known = describe(scenario.workload)
    shape = sparkline(series(scenario.workload, max(known.step_s, known.duration_s / 600)), 60)
    out.print(
        f"[bold]{shown(name)}[/bold] {shape} {show_duration(known.duration_s)}, mean "
        f"{known.mean_per_s:.4g}/s, peak {known.peak_per_s:.4g}/s"
    )
    operators, rounds = len(scenario.topology.operators), scenario.rounds
    capacity = f"one instance processes {1 / scenario.bottleneck_s:.4g}/s, a host has {rounds}"
    if operators > 1:
        capacity = (
            f"{operators} operators; a host of {scenario.offer.capacity.cpu_cores:g} cores runs "
            f"{rounds} instance{'s' if rounds > 1 else ''} of each, which process "
            f"{rounds / scenario.bottleneck_s:.4g}/s"
        )
    if scenario.shared:
        slots = scenario.offer.capacity.cpu_cores
        capacity = (
            f"{operators} queries share the {slots:g} slots of each host, on which "
            f"{slots / scenario.work_s:.4g}/s keep all slots busy"
        )
    offer = scenario.offer
    out.print(
        f"{capacity}; a host costs "
        f"${offer.usd_per_h:g}/h, billed by {show_duration(offer.billing_unit_s)}; "
        f"a late item costs ${scenario.settings.penalty_usd:.3g}; " + _simulation(scenario, fluid),
        style="dim",
    )
    if operators == 1 and not scenario.shared and scenario.bottleneck_s >= scenario.slo_s:
        out.print(
            f"[yellow]No policy can be in time: an item takes "
            f"{show_duration(scenario.bottleneck_s)} on an idle instance, and the SLO is "
            f"{show_duration(scenario.slo_s)}. Give --rate-per-instance or a longer --slo."
            "[/yellow]\n"
        )


def _is_fluid(mode: str, scenario: Scenario) -> bool:
    """Whether the simulation is fluid; InputError if it can be neither that nor item by item."""
    if mode not in ("auto", "items", "fluid"):
        raise InputError("--mode", mode, "auto, items or fluid")
    if mode == "fluid" or (mode == "auto" and suits_fluid(scenario)):
        return True
    check_items(scenario)
    return False


def _simulation(scenario: Scenario, fluid: bool) -> str:
    if scenario.batches is not None:
        return f"micro-batches of at least {show_duration(scenario.batches.overhead_s)}\n"
    return "fluid simulation, approximate; --mode items is exact\n" if fluid else "item by item\n"


def _leaderboard(results: list[Result], bound: Bound, scenario: Scenario) -> None:
    out = console()
    front = pareto(results)
    rows = table(
        "policy", "cost", "hosts $", "in time", "p50", "p95", "p99", "rescales", "hosts",
        "over bound", numbers=" rrrrrrrrr",
    )  # fmt: skip
    for result in results:
        r = result.report
        rows.add_row(
            result.policy + (" *" if result.policy in front else ""),
            f"{result.cost_usd:.2f}",
            f"{r.resource_cost_usd:.2f}",
            f"{result.slo_compliance:.1%}",
            *(_time(value) for value in (r.latency_p50_s, r.latency_p95_s, r.latency_p99_s)),
            str(r.rescales),
            f"{result.mean_hosts:.1f}",
            "–" if result.regret is None else f"{result.regret:+.0%}",
        )
    rows.add_row("hindsight bound", f"{bound.cost_usd:.2f}", *[""] * 8, style="dim")
    out.print(rows)
    if scenario.batches is not None and len(scenario.topology.operators) > 1:
        _by_query(results)
    out.print(
        f"cost: hosts and late items; in time: within {target_text(scenario)}; *: no other "
        "policy has both cheaper hosts and more items in time\n"
        f"guards: {guards_text(result.stack for result in results)}",
        style="dim",
    )
    if caveat := bound_caveat(scenario):
        out.print(f"bound: {caveat}", style="dim")


def _by_query(results: list[Result]) -> None:
    """The results of each query, by its own latency target."""
    rows = table("policy", "query", "target", "in time", "p50", "p95", "p99", numbers="  rrrrr")
    for result in results:
        for n, o in enumerate(result.report.operators):
            rows.add_row(
                "" if n else result.policy,
                o.operator,
                _time(o.slo_s),
                "–" if o.in_time is None else f"{o.in_time:.1%}",
                *(_time(v) for v in (o.p50_duration_s, o.p95_duration_s, o.p99_duration_s)),
            )
    console().print(rows)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else show_duration(seconds)


def _plain(result: Result) -> dict[str, Any]:
    r = result.report
    return {
        "policy": result.policy,
        "settings": result.settings,
        "stack": result.stack,
        "cost": result.cost_usd,
        "resource_cost": r.resource_cost_usd,
        "slo_compliance": result.slo_compliance,
        "p50_s": r.latency_p50_s,
        "p95_s": r.latency_p95_s,
        "p99_s": r.latency_p99_s,
        "rescales": r.rescales,
        "mean_hosts": result.mean_hosts,
        "dropped": r.items_dropped,
        "regret": result.regret,
        "queries": [
            {
                "query": o.operator,
                "slo_s": o.slo_s,
                "in_time": o.in_time,
                "p50_s": o.p50_duration_s,
                "p95_s": o.p95_duration_s,
                "p99_s": o.p99_duration_s,
            }
            for o in r.operators
            if len(r.operators) > 1
        ],
    }


def _bound_plain(bound: Bound, scenario: Scenario) -> dict[str, Any]:
    caveat = bound_caveat(scenario)
    return {
        "cost": bound.cost_usd,
        "method": bound.method,
        "gap": bound.gap,
        "strict": not caveat,
        "note": caveat,
    }


def _bound_with_bar(scenario: Scenario, limit_s: float, fluid: bool, quiet: bool) -> Bound:
    with progress_bar(quiet) as bar:
        bar.add_task("hindsight bound", total=None)
        return bound_of(scenario, limit_s, fluid)


def _tune(scenario: Scenario, name: str, options: StackOptions, seed: int, as_json: bool) -> None:
    with progress_bar(as_json) as bar:
        task = bar.add_task(f"tuning {name}", total=1.0)
        front = tune(
            scenario,
            name,
            options=options,
            seed=seed,
            progress=lambda s: bar.update(task, completed=s),
        )
    if as_json:
        print_json({"policy": name, "front": [_plain(result) for result in front]})
        return
    out = console()
    rows = table("hosts $", "in time", "p95", "rescales", "settings", numbers="rrrr ")
    for result in front:
        rows.add_row(
            f"{result.report.resource_cost_usd:.2f}",
            f"{result.slo_compliance:.2%}",
            _time(result.report.latency_p95_s),
            str(result.report.rescales),
            ", ".join(f"{k}={v}" for k, v in result.settings.items()) or "defaults",
        )
    out.print(rows)
    best = min(front, key=lambda result: result.cost_usd)
    out.print("\n[dim]# lowest total cost, including late items; for --config:[/dim]")
    out.print(config_text(name, best.settings), end="")
