"""``tidegate backtest``: every policy on one's own trace, beside the bound in hindsight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.dashboard import Dashboard, attached, wait_for_the_end
from tidegate.cli.output import console, print_json, progress_bar, table
from tidegate.config import load_topology
from tidegate.errors import InputError, TopologyError
from tidegate.lab.backtest import Result, backtest, bound_caveat, bound_of, pareto, suits_fluid
from tidegate.lab.backtest_report import backtest_page
from tidegate.lab.bound import Bound
from tidegate.lab.tune import config_text, tune
from tidegate.loop.journal import read_journal
from tidegate.model.topology import Topology
from tidegate.policies import available, policy_class
from tidegate.simulation.calibrate import (
    BatchWorld,
    batch_scenario,
    calibrate,
    has_batches,
    load_world,
)
from tidegate.simulation.scenario import Scenario, scenario_for, scenario_on
from tidegate.simulation.trace_input import read_workload
from tidegate.units import duration_s, finite, show_duration
from tidegate.workloads import Scaled, Workload, describe, series, sparkline

__all__ = ["backtest_command"]


def backtest_command(
    trace: Annotated[
        Path,
        typer.Argument(
            help="Rates (t_s,rate), counts or events in CSV, .gz or Parquet; or a journal."
        ),
    ],
    slo: Annotated[
        str, typer.Option(help="An item is in time within this, from arrival to done.")
    ] = "2s",
    btu: Annotated[str, typer.Option(help="Billing time unit of a host.")] = "60s",
    policies: Annotated[
        str, typer.Option(help="Comma-separated names, or all.", metavar="NAMES")
    ] = "all",
    price: Annotated[float, typer.Option(help="Price of a host, $/h.")] = 1.0,
    penalty: Annotated[
        float | None,
        typer.Option(help="Price of a late item, $; default: ten times what processing it costs."),
    ] = None,
    rate_per_instance: Annotated[
        float | None,
        typer.Option(
            help="Items per second that one instance can do; default: so that ten hosts carry the "
            "peak at 70 %."
        ),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            help="Your own operators, in YAML; the trace drives the source. Default: one operator.",
            metavar="FILE",
        ),
    ] = None,
    instances_per_host: Annotated[
        int | None,
        typer.Option(
            help="Instances that fit on a host, default 4; with --topology of each operator, "
            "default 1."
        ),
    ] = None,
    startup: Annotated[str, typer.Option(help="Time until a leased host runs.")] = "45s",
    interval: Annotated[str, typer.Option(help="Time between two decisions.")] = "15s",
    max_hosts: Annotated[int | None, typer.Option(help="Hosts at most.")] = None,
    service_scv: Annotated[
        float | None,
        typer.Option(help="Variability of service times: 0 constant (default), 1 exponential."),
    ] = None,
    gaps: Annotated[
        str | None, typer.Option(help="For gaps in a rate trace: error, hold or zero.")
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Play the trace so many times as fast, at the same rates.")
    ] = 1.0,
    stabilise: Annotated[
        str | None,
        typer.Option(
            help="Follow a wish to shrink only when it has lasted so long.", metavar="TIME"
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="items: one by one; fluid: quicker, less exact; auto: by size.")
    ] = "auto",
    world: Annotated[
        Path | None,
        typer.Option(
            help="A Spark application in micro-batches, as tidegate calibrate wrote it; it brings "
            "its own executors, prices and intervals. A journal with batches is calibrated by "
            "itself.",
            metavar="FILE",
        ),
    ] = None,
    tune_policy: Annotated[
        str | None, typer.Option("--tune", help="Search this policy's parameters.", metavar="NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals and service times.")] = 0,
    bound_time: Annotated[str, typer.Option(help="Time for the bound in hindsight.")] = "10s",
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = Path(
        "out/backtest.html"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="For machines; writes no report.")
    ] = False,
    dashboard: Dashboard = False,
) -> None:
    """Try policies on your own traffic: cost, latency and rescales, beside the best in hindsight.

    [bold]tidegate backtest my_trace.csv --slo 2s --btu 60s --policies all[/bold]
    """
    names = list(available()) if policies == "all" else [n.strip() for n in policies.split(",")]
    for name in (*names, *([tune_policy] if tune_policy else [])):
        policy_class(name)
    options: dict[str, Any] = {
        "billing_unit_s": duration_s(btu, "--btu"),
        "usd_per_h": finite(price, "--price", low=0),
        "startup_s": duration_s(startup, "--startup"),
        "interval_s": duration_s(interval, "--interval"),
        "max_hosts": None if max_hosts is None else int(finite(max_hosts, "--max-hosts", low=1)),
        "penalty_usd": None if penalty is None else finite(penalty, "--penalty", low=0),
    }
    if instances_per_host is not None:
        many = int(finite(instances_per_host, "--instances-per-host", low=1))
        options["instances_per_host"] = many
    slo_s = duration_s(slo, "--slo")
    described = _described(trace, world)
    if described is not None:
        if topology is not None:
            remedy = "the world has its own operators"
            raise InputError("--topology", str(topology), "left out with a Spark world", remedy)
        workload = _read(trace, gaps, seed, speed)
        scenario = batch_scenario(described, workload, slo_s, options["penalty_usd"])
    elif topology is None:
        options["rate_per_instance"] = rate_per_instance
        options["service_scv"] = finite(service_scv or 0.0, "--service-scv", low=0)
        scenario = scenario_for(_read(trace, gaps, seed, speed), slo_s, **options)
    else:
        for key, value in (
            ("--rate-per-instance", rate_per_instance),
            ("--service-scv", service_scv),
        ):
            if value is not None:
                remedy = "the topology tells the service times"
                raise InputError(key, value, "left out with --topology", remedy)
        operators, source = _read_topology(topology)
        workload = _read(trace, gaps, seed, speed, source)
        scenario = scenario_on(operators, workload, slo_s, **options)
    if tune_policy is not None:
        _tune(scenario, tune_policy, seed, as_json)
        return
    if mode not in ("auto", "items", "fluid"):
        raise InputError("--mode", mode, "auto, items or fluid")
    fluid = mode == "fluid" or (mode == "auto" and suits_fluid(scenario))
    if not as_json:
        _introduce(trace.name, scenario, fluid)
    bound_s = duration_s(bound_time, "--bound-time")
    guards = {}
    if stabilise is not None:
        guards["stabilisation"] = {"down_s": duration_s(stabilise, "--stabilise")}

    journals = report.with_suffix("") if dashboard else None

    def test(progress: Callable[[str, float], None], bound: Bound) -> list[Result]:
        return backtest(
            scenario, names, bound=bound, guards=guards, seed=seed, fluid=fluid, progress=progress,
            journals=journals,
        )  # fmt: skip

    watched = [] if journals is None else [journals / f"{name}.jsonl" for name in names]
    with attached(dashboard and not as_json, watched, slo_s):
        bound, results = _run(test, lambda: bound_of(scenario, bound_s, fluid), names, as_json)
        if as_json:
            print_json(
                {"bound": _bound_plain(bound, scenario), "results": [_plain(r) for r in results]}
            )
            return
        _leaderboard(results, bound, scenario)
        backtest_page(trace.name, scenario, results, bound).write(report)
        mine = "" if topology is None else f" --topology {topology}"
        console().print(
            f"\npictures: {report}\n"
            f"next: tidegate backtest {trace}{mine} --tune {results[0].policy}",
            soft_wrap=True,
        )
        if dashboard:
            wait_for_the_end()


def _described(trace: Path, world: Path | None) -> BatchWorld | None:
    """The application to simulate: the one given, or the one that a journal describes, if any."""
    if world is not None:
        return load_world(world)
    if trace.suffix == ".jsonl" and has_batches(read_journal(trace)):
        return calibrate(read_journal(trace), trace.name).world
    return None


def _read_topology(path: Path) -> tuple[Topology, str]:
    """A topology and the name of its source, which must be one."""
    topology = load_topology(path)
    sources = [source.name for source in topology.sources]
    if len(sources) != 1:
        remedy = "a trace drives one source: write `sources: [{name: …}]` and an edge from it"
        raise TopologyError(f"{path.name}: sources", ", ".join(sources), "one source", remedy)
    return topology, sources[0]


def _read(
    trace: Path, gaps: str | None, seed: int, speed: float, source: str = "input"
) -> Workload:
    """The trace, at the speed that was asked for."""
    chosen: Any = gaps
    workload = read_workload(trace, chosen, seed, source)
    if finite(speed, "--speed", above=0) == 1:
        return workload
    return Scaled(workload, rate_factor=1 / speed, speed=speed, seed=seed)


def _introduce(name: str, scenario: Scenario, fluid: bool) -> None:
    out = console()
    known = describe(scenario.workload)
    shape = sparkline(series(scenario.workload, max(known.step_s, known.duration_s / 600)), 60)
    out.print(
        f"[bold]{name}[/bold] {shape} {show_duration(known.duration_s)}, mean "
        f"{known.mean_per_s:.4g}/s, peak {known.peak_per_s:.4g}/s"
    )
    operators, rounds = len(scenario.topology.operators), scenario.rounds
    one_does = f"one instance does {1 / scenario.bottleneck_s:.4g}/s, a host has {rounds}"
    if operators > 1:
        one_does = (
            f"{operators} operators; a host of {scenario.offer.capacity.cpu_cores:g} cores runs "
            f"{rounds} instance{'s' if rounds > 1 else ''} of each, which carries "
            f"{rounds / scenario.bottleneck_s:.4g}/s"
        )
    out.print(
        f"{one_does}; a host costs "
        f"${scenario.offer.usd_per_h:g}/h by {show_duration(scenario.offer.billing_unit_s)}; "
        f"a late item costs ${scenario.settings.penalty_usd:.3g}; " + _manner(scenario, fluid),
        style="dim",
    )


def _manner(scenario: Scenario, fluid: bool) -> str:
    if scenario.batches is not None:
        return f"in micro-batches of {show_duration(scenario.batches.overhead_s)} and more\n"
    return "fluid, so approximate: --mode items is exact\n" if fluid else "item by item\n"


def _run(
    test: Callable[[Callable[[str, float], None], Bound], list[Result]],
    find_bound: Callable[[], Bound],
    names: list[str],
    quiet: bool,
) -> tuple[Bound, list[Result]]:
    with progress_bar(quiet) as bar:
        task = bar.add_task("the bound in hindsight", total=len(names) + 1)
        bound = find_bound()
        bar.update(task, completed=1)

        def tell(name: str, share: float) -> None:
            bar.update(task, completed=1 + names.index(name) + share, description=name)

        return bound, test(tell, bound)


def _leaderboard(results: list[Result], bound: Bound, scenario: Scenario) -> None:
    out = console()
    front = pareto(results)
    shown = table(
        "policy", "cost", "hosts $", "in time", "p50", "p95", "p99", "rescales", "hosts",
        "over bound", numbers=" rrrrrrrrr",
    )  # fmt: skip
    for result in results:
        r = result.report
        shown.add_row(
            result.policy + (" *" if result.policy in front else ""),
            f"{result.cost_usd:.2f}",
            f"{r.resource_cost_usd:.2f}",
            f"{result.slo_compliance:.1%}",
            *(_time(value) for value in (r.latency_p50_s, r.latency_p95_s, r.latency_p99_s)),
            str(r.rescales),
            f"{result.mean_hosts:.1f}",
            "–" if result.regret is None else f"{result.regret:+.0%}",
        )
    shown.add_row("[dim]bound in hindsight[/dim]", f"{bound.cost_usd:.2f}", *[""] * 8, style="dim")
    out.print(shown)
    out.print(
        f"in time: within {show_duration(scenario.slo_s)}; *: no other was cheaper and more often "
        "in time; cost: hosts and late items",
        style="dim",
    )
    if caveat := bound_caveat(scenario):
        out.print(f"bound: {caveat}", style="dim")


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else show_duration(seconds)


def _plain(result: Result) -> dict[str, Any]:
    r = result.report
    return {
        "policy": result.policy,
        "settings": result.settings,
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


def _tune(scenario: Scenario, name: str, seed: int, as_json: bool) -> None:
    with progress_bar(as_json) as bar:
        task = bar.add_task(f"tuning {name}", total=1.0)
        front = tune(scenario, name, seed=seed, progress=lambda s: bar.update(task, completed=s))
    if as_json:
        print_json({"policy": name, "front": [_plain(result) for result in front]})
        return
    out = console()
    shown = table("hosts $", "in time", "p95", "rescales", "settings", numbers="rrrr ")
    for result in front:
        shown.add_row(
            f"{result.report.resource_cost_usd:.2f}",
            f"{result.slo_compliance:.2%}",
            _time(result.report.latency_p95_s),
            str(result.report.rescales),
            ", ".join(f"{k}={v}" for k, v in result.settings.items()) or "defaults",
        )
    out.print(shown)
    best = min(front, key=lambda result: result.cost_usd)
    out.print("\n[dim]# the cheapest with late items counted, for --config:[/dim]")
    out.print(config_text(name, best.settings), end="")
