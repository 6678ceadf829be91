"""``tidegate run``: an application of the papers, live under an autoscaler, beside a reference."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.dashboard import Dashboard, attached
from tidegate.cli.lifecycle import INTERRUPTED, cleared, executors_that_fit, logs_into, signals
from tidegate.cli.live_view import LiveView
from tidegate.cli.output import console, table
from tidegate.cli.report import show_summary
from tidegate.cli.submit import chosen_policy
from tidegate.errors import BackendError, InputError
from tidegate.report.live import live_page
from tidegate.report.summary import summarise
from tidegate.units import duration_s, finite, show_duration

if TYPE_CHECKING:
    from tidegate.apps.application import Application, Outcome
    from tidegate.apps.live import LiveResult, LiveRun
    from tidegate.report.page import Page

__all__ = ["run_command", "the_application"]

AppName = Annotated[
    str, typer.Argument(help="ticks, max-price, factory, logos or patterns.", metavar="APP")
]
Rate = Annotated[float, typer.Option(help="Times the application's own rates.", metavar="FACTOR")]
Seed = Annotated[int, typer.Option(help="Of all that is drawn.")]
Bad = Annotated[
    float, typer.Option(help="Share of bad rows to mix in, to see them set aside.", metavar="SHARE")
]
Replay = Annotated[
    Path | None,
    typer.Option(help="ticks: a recorded day in place of the generator.", metavar="FILE"),
]


def run_command(
    name: AppName,
    policy: Annotated[
        str | None,
        typer.Option(help="Who decides, drs by default; see tidegate policies.", metavar="NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the policy.", metavar="NAME=VALUE"),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="The latency wanted; the application's own by default.")
    ] = None,
    rate: Rate = 1.0,
    minutes: Annotated[float, typer.Option(help="How long the input lasts.")] = 2.0,
    executors: Annotated[int, typer.Option(help="Executors at most, of two slots each.")] = 3,
    topology: Annotated[
        Path | None,
        typer.Option(help="What tidegate profile wrote: known from the start.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, touch nothing, and add up in the end.")
    ] = False,
    full_speed: Annotated[
        bool, typer.Option("--full-speed", help="All executors on a backlog: items a second.")
    ] = False,
    bad: Bad = 0.0,
    replay: Replay = None,
    seed: Seed = 1,
    dashboard: Dashboard = False,
    topics: Annotated[
        str | None,
        typer.Option(
            help="In place of files; see the guide to topics.", metavar="kafka://HOST:PORT"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for all that it writes, out/APP by default; earlier runs go."),
    ] = None,
) -> None:
    """Run an application on a Spark cluster of its own and let a policy scale it.

    [bold]tidegate run max-price --policy adaptive-provisioning --set shed=true[/bold]

    In the end its results are compared, row by row, with a reference computed from the same input.
    Ctrl-C ends everything in order and still compares.
    """
    from tidegate.apps.live import LiveRun, known_times
    from tidegate.spark.streams.locations import check_location

    finite(minutes, "--minutes", above=0, high=24 * 60)
    finite(rate, "--rate", above=0)
    finite(executors, "--executors", low=1)
    finite(bad, "--bad", low=0, high=1)
    if slo is not None:
        duration_s(slo, "--slo")
    app = the_application(name, replay)
    chosen = chosen_policy(policy, settings or [], None)
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
        topics=topics,
    )  # fmt: skip
    if topics is not None:
        check_location(topics)
    cleared(folder)
    if full_speed:
        _at_full_speed(run)
    else:
        with attached(dashboard, [run.journal], run.slo_s):
            _live(run)


def the_application(name: str, replay: Path | None) -> Application:
    """The application of that name, of a recording where one is given."""
    from tidegate.apps.application import application

    if replay is None:
        return application(name)
    if name != "ticks":
        raise InputError("--replay", str(replay), "left out", "only ticks can be replayed")
    return application(name, replay=replay)


def _live(run: LiveRun) -> None:
    from tidegate.apps.live import run_live
    from tidegate.lifecycle import Stop, Stopped

    app = run.application
    out = console()
    rates = ", ".join(f"{source} {rate:.4g}/s" for source, rate in run.rates_per_s.items())
    what = "would scale" if run.dry_run else "scales"
    out.print(
        f"[bold]{app.name}[/bold]: {app.summary} ({app.paper}).\n{rates} for "
        f"{show_duration(run.seconds)}; {run.policy} {what} 1 to {run.max_hosts} executors for a "
        f"latency of {show_duration(run.slo_s)}.\n",
        soft_wrap=True,
    )
    view, stop = LiveView(run.slo_s), Stop()
    result = None
    log, early = run.out / "tidegate.log", (Stopped, KeyboardInterrupt)
    with signals(stop, view.say), logs_into(log), view, contextlib.suppress(*early):
        result = run_live(run, view.say, view.turn, stop)
    if result is None:
        out.print("stopped before there was anything to see")
        raise typer.Exit(INTERRUPTED)
    if view.turns:
        inside = any(
            t.snapshot and result.from_s <= t.snapshot.time_s <= result.until_s for t in view.turns
        )
        from_s = result.from_s if inside else float("-inf")
        summary = summarise(view.turns, run.slo_s, from_s, result.until_s)
        out.print()
        show_summary(summary)
        page = live_page(app.name, view.turns, summary)
        if result.outcome is not None:
            _write_results(page, run, result, result.outcome)
        file = page.write(run.out / "report.html")
    _conclude(run, result)
    if result.account:
        out.print(f"\n{result.account}", soft_wrap=True)
    if view.turns:
        out.print(
            f"\npictures and decisions: {file}\n"
            f"next: tidegate profile {app.name}      # what its operators cost, as a topology\n"
            f"      tidegate dashboard {run.journal}      # every decision, in a browser\n"
            f"      tidegate calibrate {run.journal}      # what the simulator learnt of it\n"
            f"      tidegate replay {run.journal} --policy ds2      # where another would differ",
            soft_wrap=True,
        )
    _exit(run, result)


def _at_full_speed(run: LiveRun) -> None:
    from tidegate.apps.full_speed import full_speed
    from tidegate.lifecycle import Stop, Stopped

    stop, out = Stop(), console()
    with signals(stop, out.print), logs_into(run.out / "tidegate.log"):
        try:
            result = full_speed(run, lambda text: out.print(f"[dim]{text}[/dim]"), stop)
        except (Stopped, KeyboardInterrupt):
            out.print("stopped before there was anything to see")
            raise typer.Exit(INTERRUPTED) from None
    _conclude(run, result)
    _exit(run, result)


def _conclude(run: LiveRun, result: LiveResult) -> None:
    """Throughput, what was set aside and shed, and how the results compare."""
    out = console()
    out.print()
    if result.interrupted:
        out.print("stopped early; until then:")
    per_s = result.items / result.seconds if result.seconds else 0.0
    out.print(f"{result.items} items in {result.seconds:.1f} s: [bold]{per_s:.0f} items/s[/bold]")
    if result.dropped:
        seen = sum(count.seen for count in result.counts.values() if count.dropped)
        out.print(f"{result.dropped} of {seen} items were shed, {result.dropped / seen:.1%}")
    if result.outcome is None:
        out.print("not all of the input was worked off in time: nothing was compared")
        return
    out.print(f"\n[dim]{_ALL_OF_IT}[/dim]")
    _show_table(BOOKS, result.books(run.application.topology))
    if result.outcome.rejected:
        out.print()
        _show_table(ASIDE, _rejected(result.outcome))
    out.print()
    for sentence in run.application.tally(result.outcome.inputs, result.outcome.results):
        out.print(sentence)
    for text, exact in _verdicts(result.outcome):
        out.print(text, style="green" if exact else "red")


BOOKS = ("operator", "came", "= shed", "+ set aside", "+ worked on", "rows out")
ASIDE = ("set aside by", "reason", "rows")
_ALL_OF_IT = "Items by operator, warm-up and closing rows included:"


def _show_table(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    sides = "".join("r" if isinstance(value, int) else " " for value in rows[0])
    shown = table(*columns, numbers=sides)
    for row in rows:
        shown.add_row(*map(str, row))
    console().print(shown)


def _rejected(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [
        (operator, reason, count)
        for operator, reasons in outcome.rejected.items()
        for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])
    ]


def _verdicts(outcome: Outcome) -> list[tuple[str, bool]]:
    """How each result compares with the reference, and whether it is what it should be."""
    if not outcome.compared:
        return [("not compared with the reference: nobody can tell which items were shed", False)]
    found = []
    for name, (lacks, more) in outcome.wrong.items():
        text = "exactly those of the reference"
        if lacks or more:
            text = f"{lacks.total()} missing and {more.total()} too many"
        found.append((f"{name}: {outcome.results[name].num_rows} rows, {text}", not lacks + more))
    return found


def _write_results(page: Page, run: LiveRun, result: LiveResult, outcome: Outcome) -> None:
    """The results, for the report: the same as in the terminal."""
    page.section("Results")
    for text, _ in _verdicts(outcome):
        page.text(f"{text}.")
    for sentence in run.application.tally(outcome.inputs, outcome.results):
        page.text(f"{sentence}.")
    page.text(_ALL_OF_IT)
    page.table(BOOKS, result.books(run.application.topology))
    if outcome.rejected:
        page.section("Set aside", "These rows are in the topics of the operators named here.")
        page.table(ASIDE, _rejected(outcome))


def _exit(run: LiveRun, result: LiveResult) -> None:
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.outcome is None:
        raise BackendError(
            f"the input of {run.application.name} was not worked off in time: give it more "
            "--executors, or less with --rate"
        )
    if result.outcome.compared and not result.outcome.exact:
        raise BackendError(
            f"the results of {run.application.name} differ from the reference: please report this, "
            f"with {run.journal} and {run.driver_log}"
        )


def show_value(value: float | None, text: str = "{:.3g}") -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else text.format(value)
