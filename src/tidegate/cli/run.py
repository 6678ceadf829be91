"""``tidegate run``: an application live under an autoscaler, compared with its reference."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.apps import APPLICATIONS
from tidegate.cli.autoscaler_options import Share, chosen_policy
from tidegate.cli.dashboard import Dashboard, attached
from tidegate.cli.lifecycle import (
    INTERRUPTED,
    NOTHING_SEEN,
    cleared,
    executors_that_fit,
    logs_into,
    signals,
    stoppable,
)
from tidegate.cli.live_view import LiveView
from tidegate.cli.output import console, table
from tidegate.cli.report import show_summary
from tidegate.errors import BackendError, InputError
from tidegate.model import SloByQuery
from tidegate.report.live import live_page
from tidegate.report.summary import summarise
from tidegate.units import finite, show_duration

if TYPE_CHECKING:
    from tidegate.apps.application import Application, ResultCheck
    from tidegate.apps.live import LiveResult, LiveRun
    from tidegate.report.page import Page

__all__ = ["run_and_report", "run_command", "show_value", "the_application"]

AppName = Annotated[str, typer.Argument(help=f"One of {', '.join(APPLICATIONS)}.", metavar="APP")]
Rate = Annotated[
    float, typer.Option(help="Factor on the application's own rates.", metavar="FACTOR")
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Bad = Annotated[
    float, typer.Option(help="Share of bad rows to mix in; they are set aside.", metavar="SHARE")
]
Replay = Annotated[
    Path | None,
    typer.Option(help="ticks: a recorded day instead of the generator.", metavar="FILE"),
]
Load = Annotated[
    str | None,
    typer.Option(
        help="Load shape of a paper instead of the application's own: steady, exchange-day, video, "
        "visp:stepwise, visp:two_level, visp:random_walk_1 or visp:random_walk_2.",
        metavar="NAME",
    ),
]


def run_command(
    name: AppName,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy, tide by default; see tidegate policies.", metavar="NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the policy.", metavar="NAME=VALUE"),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            help="Latency target, or by operator: alerts=2s,30s; default: the application's own."
        ),
    ] = None,
    share: Share = None,
    rate: Rate = 1.0,
    load: Load = None,
    minutes: Annotated[float, typer.Option(help="Duration of the input, in minutes.")] = 2.0,
    executors: Annotated[
        int, typer.Option(help="Maximum number of executors, with two slots each.")
    ] = 3,
    topology: Annotated[
        Path | None,
        typer.Option(help="Service times known in advance, from tidegate profile.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Decide but change nothing; report what would have happened."
        ),
    ] = False,
    full_speed: Annotated[
        bool,
        typer.Option("--full-speed", help="Measure items per second: all executors, a backlog."),
    ] = False,
    bad: Bad = 0.0,
    buffer: Annotated[
        int | None,
        typer.Option(
            help="Most rows of a batch to process where they enter; the rest is shed.",
            metavar="ROWS",
        ),
    ] = None,
    replay: Replay = None,
    imitate: Annotated[
        bool,
        typer.Option(
            "--imitate",
            help="logos and factory: wait for the paper's service times instead of computing.",
        ),
    ] = False,
    seed: Seed = 1,
    dashboard: Dashboard = False,
    topics: Annotated[
        str | None,
        typer.Option(
            help="Kafka instead of files; settings, SASL and TLS: see the guide to topics.",
            metavar="kafka://HOST:PORT",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder, out/APP by default; replaces an earlier run."),
    ] = None,
) -> None:
    """Run an application on a dedicated local Spark cluster and let a policy scale it.

    [bold]tidegate run max-price --policy adaptive-provisioning --set shed=true[/bold]

    At the end, the results are compared row by row with a reference computed from the same input.
    Ctrl-C stops everything in order and still compares.
    """
    from tidegate.apps.live import LiveRun, known_times
    from tidegate.spark.streams.locations import check_location

    finite(minutes, "--minutes", above=0, high=24 * 60)
    finite(rate, "--rate", above=0)
    finite(executors, "--executors", low=1)
    finite(bad, "--bad", low=0, high=1)
    if buffer is not None:
        finite(buffer, "--buffer", low=1)
    if slo is not None:
        SloByQuery.read(slo, "--slo")
    app = the_application(name, replay, imitate)
    chosen = chosen_policy(policy, settings or [], None, share)
    known = None
    if topology is not None:
        from tidegate.config import load_topology

        known = load_topology(topology)
        known_times(app.topology.model(), known)
    fit = executors_that_fit(executors, LiveRun.memory_mb)
    folder = out or Path("out") / app.name
    run = LiveRun(
        app, folder, rate=rate, seconds=60 * minutes, warm_up_s=min(15.0, 15 * minutes),
        slo=slo, **chosen, topology=known, dry_run=dry_run, max_hosts=fit, bad=bad, seed=seed,
        load=load, topics=topics, buffer_rows=buffer,
    )  # fmt: skip
    if topics is not None:
        check_location(topics)
    cleared(folder)
    if full_speed:
        _at_full_speed(run)
    else:
        with attached(dashboard, [run.journal, run.warm_up_journal], run.slo_s):
            _introduce(run)
            following = (
                f"tidegate profile {app.name}      # what its operators cost, as a topology",
                f"tidegate dashboard {run.journal}      # every decision, in a browser",
                f"tidegate calibrate {run.journal}      # fit the simulator to this run",
                f"tidegate replay {run.journal} --policy ds2      # where another would differ",
            )
            run_and_report(run, app.name, following)


def the_application(name: str, replay: Path | None, imitate: bool = False) -> Application:
    """The application of that name, fed from a recording or imitated if that is wanted."""
    from tidegate.apps.application import application, has_setting

    settings: dict[str, Any] = {}
    if replay is not None:
        if not has_setting(name, "replay"):
            raise InputError("--replay", str(replay), "left out", f"{name} replays no recordings")
        settings["replay"] = replay
    if imitate:
        if not has_setting(name, "imitate"):
            raise InputError("--imitate", True, "left out", f"{name} cannot be imitated")
        settings["imitate"] = True
    return application(name, **settings)


def _introduce(run: LiveRun) -> None:
    app = run.application
    rates = ", ".join(f"{source} {rate:.4g}/s" for source, rate in run.rates_per_s.items())
    what = "would scale" if run.dry_run else "scales"
    console().print(
        f"[bold]{app.name}[/bold]: {app.summary} ({app.paper}).\n{rates} for "
        f"{show_duration(run.seconds)}; {run.policy} {what} 1 to {run.max_hosts} executors for a "
        f"latency target of {show_duration(run.slo_s)}.\n",
        soft_wrap=True,
    )


def run_and_report(run: LiveRun, name: str, following: Sequence[str]) -> None:
    """Run an application in view, then print and write the report.

    Exits with an error when the results are wrong, and with code 130 when it was stopped early.

    name: title of the report. following: commands to suggest at the end.
    """
    from tidegate.apps.live import run_live
    from tidegate.lifecycle import Stop, Stopped

    out, view, stop = console(), LiveView(run.slo_s), Stop()
    result = None
    log, early = run.out / "tidegate.log", (Stopped, KeyboardInterrupt)
    with signals(stop, view.say), logs_into(log), view, contextlib.suppress(*early):
        result = run_live(run, view.say, view.turn, stop)
    if result is None and not view.turns:
        out.print(NOTHING_SEEN)
        raise typer.Exit(INTERRUPTED)
    out.print()
    if result is None or result.interrupted:
        out.print("stopped early; until then:")
    if view.turns:
        file = _report(run, name, view, result)
    if result is not None:
        _conclude(run, result)
        if result.account:
            out.print(f"\n{result.account}", soft_wrap=True)
    if view.turns:
        commands = "\n      ".join(following)
        out.print(f"\ncharts and decisions: {file}\nnext: {commands}", soft_wrap=True)
    if result is None:
        raise typer.Exit(INTERRUPTED)
    _exit(run, result)


def _report(run: LiveRun, name: str, view: LiveView, result: LiveResult | None) -> Path:
    """Print the summary of the turns and write the report; returns its file."""
    if result is None:
        summary = summarise(view.turns, run.slo_s)
    else:
        # Executors count until the last item is processed, and so does all that happened until
        # then; the journal begins with the input that counts.
        summary = summarise(
            view.turns,
            run.slo_s,
            measured=result.measured,
            before=result.warm_up,
            by_query=result.by_query(run.application.topology),
        )
    show_summary(summary)
    page = live_page(name, view.turns, summary)
    if result is not None and result.check is not None:
        _write_results(page, run, result, result.check)
    return page.write(run.out / "report.html")


def _at_full_speed(run: LiveRun) -> None:
    from tidegate.apps.full_speed import full_speed

    out = console()
    with stoppable(run.out / "tidegate.log", out.print) as stop:
        result = full_speed(run, lambda text: out.print(f"[dim]{text}[/dim]"), stop)
    _conclude(run, result)
    if result.warm_up is not None:
        early = result.warm_up
        out.print(
            f"not counted: a first batch that compiles the queries, {early.items:.0f} items in "
            f"{show_duration(early.duration_s)}"
        )
    _exit(run, result)


def _conclude(run: LiveRun, result: LiveResult) -> None:
    """Print throughput, rows set aside and shed, and how the results compare."""
    out = console()
    out.print()
    per_s = result.items / result.seconds if result.seconds else 0.0
    out.print(f"{result.items} items in {result.seconds:.1f} s: [bold]{per_s:.0f} items/s[/bold]")
    if result.dropped:
        seen = sum(count.seen for count in result.counts.values() if count.dropped)
        out.print(f"{result.dropped} of {seen} items were shed, {result.dropped / seen:.1%}")
    if result.check is None:
        out.print("not all of the input was processed in time: nothing was compared")
        return
    out.print(f"\n[dim]{ITEMS}[/dim]")
    _show_table(ITEM_COLUMNS, result.item_counts(run.application.topology))
    if result.check.rejected:
        out.print()
        _show_table(ASIDE_COLUMNS, _rejected(result.check))
    out.print()
    for sentence in run.application.tally(result.check.inputs, result.check.results):
        out.print(sentence, markup=False)
    for text, exact in _verdicts(result.check):
        out.print(text, style="green" if exact else "red", markup=False)


ITEM_COLUMNS = ("operator", "received", "= shed", "+ set aside", "+ processed", "rows out")
ASIDE_COLUMNS = ("set aside by", "reason", "rows")
ITEMS = "Items by operator, including warm-up and closing rows:"


def _show_table(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    sides = "".join("r" if isinstance(value, int) else " " for value in rows[0])
    shown = table(*columns, numbers=sides)
    for row in rows:
        shown.add_row(*map(str, row))
    console().print(shown)


def _rejected(check: ResultCheck) -> list[tuple[str, str, int]]:
    return [
        (operator, reason, count)
        for operator, reasons in check.rejected.items()
        for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])
    ]


def _verdicts(check: ResultCheck) -> list[tuple[str, bool]]:
    """How each result compares with the reference, and whether it is right."""
    if check.wrong is None:
        return [("not compared with the reference: it is unknown which items were shed", False)]
    found = []
    for name, (missing, extra) in check.wrong.items():
        text = "exactly those of the reference"
        if missing or extra:
            text = f"{missing.total()} missing and {extra.total()} too many"
        found.append((f"{name}: {check.results[name].num_rows} rows, {text}", not missing + extra))
    return found


def _write_results(page: Page, run: LiveRun, result: LiveResult, check: ResultCheck) -> None:
    """Add the results to the report, as they are printed in the terminal."""
    page.section("Results")
    for text, _ in _verdicts(check):
        page.text(f"{text}.")
    for sentence in run.application.tally(check.inputs, check.results):
        page.text(f"{sentence}.")
    page.text(ITEMS)
    page.table(ITEM_COLUMNS, result.item_counts(run.application.topology))
    if check.rejected:
        page.section("Set aside", "These rows are in the topics of the operators named here.")
        page.table(ASIDE_COLUMNS, _rejected(check))


def _exit(run: LiveRun, result: LiveResult) -> None:
    name, check = run.application.name, result.check
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if check is None:
        raise BackendError(
            f"the input of {name} was not processed in time: allow more --executors, or reduce the "
            "--rate"
        )
    if check.wrong is not None and not check.exact:
        measured, rows = result.measured, ""
        if measured is not None and measured.lost is not None:
            rows = f" ({measured.lost} input rows lost, {measured.repeated} repeated)"
        raise BackendError(
            f"the results of {name} differ from the reference{rows}: please report this, with "
            f"{run.journal} and {run.driver_log}"
        )


def show_value(value: float | None, text: str = "{:.3g}") -> str:
    """A figure, or a dash if it is unknown."""
    return "–" if value is None else text.format(value)
