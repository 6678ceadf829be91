"""``tidegate demo``: a compressed exchange day on a live Spark cluster, in about three minutes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.autoscaler_options import Share, chosen_policy
from tidegate.cli.dashboard import Dashboard, attached
from tidegate.cli.lifecycle import cleared, executors_that_fit
from tidegate.cli.output import console
from tidegate.cli.run import run_and_report
from tidegate.policies import DEFAULT_POLICY, policy_class
from tidegate.units import duration_s, finite, show_duration

__all__ = ["demo"]

USED = 0.7
"""Share of the slots that the opening may use."""


def demo(
    seconds: Annotated[float, typer.Option(help="Seconds for the exchange day.")] = 150.0,
    policy: Annotated[
        str, typer.Option(help="Policy that scales; see tidegate policies.", metavar="NAME")
    ] = DEFAULT_POLICY,
    slo: Annotated[str, typer.Option(help="Latency target of a tick, event to commit.")] = "10s",
    share: Share = None,
    rate: Annotated[float, typer.Option(help="Ticks per second, on average.")] = 250.0,
    executors: Annotated[int, typer.Option(help="Maximum number of executors.")] = 4,
    out: Annotated[
        Path,
        typer.Option(help="Folder for journal, report, data and logs; replaces an earlier run."),
    ] = Path("out/demo"),
    dashboard: Dashboard = False,
) -> None:
    """Watch an autoscaler hold a latency target: a real Spark cluster, a compressed exchange day.

    Starts a standalone cluster on this machine, sends ticks to it, and lets the policy lease and
    release executors. Ctrl-C stops everything in order and still prints the figures so far.
    """
    from tidegate.apps.application import application
    from tidegate.apps.exchange_day import ENRICH_MS
    from tidegate.apps.live import LiveRun

    finite(seconds, "--seconds", low=1, high=86_400)
    finite(rate, "--rate", above=0)
    finite(executors, "--executors", low=1)
    duration_s(slo, "--slo")
    policy_class(policy)
    chosen = chosen_policy(policy, [], None, share)
    fit = executors_that_fit(executors, LiveRun.memory_mb)
    app = application("exchange-day", rate_per_s=rate, partitions=max(8, fit * LiveRun.slots))
    run = LiveRun(
        app, cleared(out), seconds=seconds, warm_up_s=min(20.0, seconds / 4), slo=slo,
        **chosen, max_hosts=fit, trigger_s=2.0,
    )  # fmt: skip
    # The day begins with its busiest minutes; executors for them are there before it begins.
    busy_slots = run.steady("opening").rate(0.0) * ENRICH_MS / 1000
    run = replace(run, hosts=min(fit, max(1, math.ceil(busy_slots / (USED * run.slots)))))
    console().print(
        f"An exchange day in {show_duration(seconds)} on a Spark cluster of 1 to {fit} executors; "
        f"{policy} is to process ticks within {slo}.\n"
        f"[dim]Each tick waits {ENRICH_MS} ms for an enrichment call and computes next to nothing, "
        f"so {fit} executors with {run.slots} slots each fit on a small machine. It begins with "
        f"{run.hosts}, warm.[/dim]\n"
    )
    following = (
        f"tidegate dashboard {run.journal}      # every decision, in a browser",
        f"tidegate backtest {run.journal} --slo {slo}      # other policies on this day",
        f"tidegate calibrate {run.journal}      # fit the simulator to this run",
        f"tidegate replay {run.journal} --policy ds2      # where another policy would differ",
    )
    with attached(dashboard, [run.journal, run.warm_up_journal], run.slo_s):
        run_and_report(run, "the exchange day", following)
