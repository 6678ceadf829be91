"""``tidegate demo``: the main job, live, on a cluster of its own, in about three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.dashboard import Dashboard, attached
from tidegate.cli.lifecycle import INTERRUPTED, cleared, executors_that_fit, logs_into, signals
from tidegate.cli.live_view import LiveView
from tidegate.cli.output import console
from tidegate.cli.report import show_summary
from tidegate.errors import BackendError
from tidegate.loop.journal import Turn
from tidegate.policies import policy_class
from tidegate.report.live import live_page
from tidegate.report.summary import LiveSummary, summarise
from tidegate.units import duration_s, finite, show_duration

if TYPE_CHECKING:
    from tidegate.apps.demo import DayRun, RunResult

__all__ = ["demo"]


def demo(
    seconds: Annotated[float, typer.Option(help="Seconds for the exchange day.")] = 150.0,
    policy: Annotated[
        str, typer.Option(help="Who decides; see tidegate policies.", metavar="NAME")
    ] = "drs",
    slo: Annotated[str, typer.Option(help="A tick is in time within this.")] = "10s",
    rate: Annotated[float, typer.Option(help="Ticks per second, on average.")] = 250.0,
    executors: Annotated[int, typer.Option(help="Executors at most.")] = 4,
    out: Annotated[
        Path, typer.Option(help="Folder for journal, report and logs; earlier ones go.")
    ] = Path("out/demo"),
    dashboard: Dashboard = False,
) -> None:
    """Watch an autoscaler hold a latency: a real Spark cluster, a compressed exchange day.

    Starts a standalone cluster on this machine, feeds it ticks, and lets the policy lease and give
    back hosts. Ctrl-C ends everything in order and still prints what was seen.
    """
    finite(seconds, "--seconds", low=1, high=86_400)
    finite(rate, "--rate", above=0)
    finite(executors, "--executors", low=1)
    slo_s = duration_s(slo, "--slo")
    policy_class(policy)
    run = _prepared(seconds, policy, slo, rate, executors, out)
    _introduce(run)
    view = LiveView(slo_s)
    with attached(dashboard, [run.journal], slo_s):
        result = _run(run, view)
    if result is None and not view.turns:
        console().print("stopped before there was anything to see")
        raise typer.Exit(INTERRUPTED)
    summary = _summary(view.turns, slo_s, result)
    page = live_page("the exchange day", view.turns, summary).write(out / "report.html")
    _conclude(summary, result, run, page)
    if result is None or result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if summary.lost or summary.repeated or result.wrong_bars:
        raise BackendError(
            f"{summary.lost} ticks lost, {summary.repeated} repeated, {result.wrong_bars} bars "
            f"wrong: please report this, with {run.journal} and {run.driver_log}"
        )


def _prepared(
    seconds: float, policy: str, slo: str, rate: float, executors: int, out: Path
) -> DayRun:
    """The run, after a look at what this machine has."""
    from tidegate.apps.demo import DayRun

    fit = executors_that_fit(executors, DayRun.memory_mb)
    cleared(out)
    return DayRun(
        journal=out / "journal.jsonl",
        driver_log=out / "driver.log",
        seconds=seconds,
        warm_up_s=min(20.0, seconds / 4),
        slo=slo,
        policy=policy,
        mean_per_s=rate,
        max_hosts=fit,
    )


def _introduce(run: DayRun) -> None:
    console().print(
        f"An exchange day in {show_duration(run.seconds)} on a Spark cluster of 1 to "
        f"{run.max_hosts} executors; {run.policy} is to keep ticks within {run.slo}.\n"
        f"[dim]Each tick waits {run.enrich_ms} ms for an enrichment call and computes next to "
        f"nothing, which is why {run.max_hosts} executors with {run.slots} slots each fit on a "
        "small machine.[/dim]\n"
    )


def _run(run: DayRun, view: LiveView) -> RunResult | None:
    """Run it in view; None when it was stopped before the day began."""
    from tidegate.apps.demo import run_day
    from tidegate.lifecycle import Stop, Stopped

    stop = Stop()
    with signals(stop, view.say), logs_into(run.journal.with_name("tidegate.log")), view:
        try:
            return run_day(run, view.say, view.turn, stop)
        except (Stopped, KeyboardInterrupt):
            return None


def _summary(turns: list[Turn], slo_s: float, result: RunResult | None) -> LiveSummary:
    if result is None:
        return summarise(turns, slo_s)
    measured, from_s, until_s = result.measured, result.from_s, result.until_s
    if not any(t.snapshot and from_s <= t.snapshot.time_s <= until_s for t in turns):
        from_s = float("-inf")  # a day shorter than a turn: then the warm-up has to do
    return summarise(turns, slo_s, from_s, until_s, measured)


def _conclude(summary: LiveSummary, result: RunResult | None, run: DayRun, page: Path) -> None:
    out = console()
    out.print()
    if result is None:
        out.print("stopped while warming up; of that:")
    elif result.interrupted:
        out.print("stopped early; until then:")
    show_summary(summary)
    if result is not None:
        wrong = f"{result.wrong_bars} wrong" if result.wrong_bars else "all right"
        compared = f"{result.bars} bars compared with a computation of the same input, {wrong}"
        none = "no window had closed yet: no bar to compare"
        out.print(f"[dim]{compared if result.bars else none}[/dim]")
    out.print(
        f"\npictures and decisions: {page}\n"
        f"again, turn by turn: tidegate dashboard {run.journal} --slo {run.slo}\n"
        f"next: tidegate backtest {run.journal} --slo {run.slo}      # other policies on this day\n"
        f"      tidegate calibrate {run.journal}                # what the simulator learnt of it\n"
        f"      tidegate replay {run.journal} --policy ds2      # where another would differ",
        soft_wrap=True,
    )
