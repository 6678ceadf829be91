"""``tidegate profile``: measured costs of an application's operators, as a topology file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.lifecycle import cleared, stoppable
from tidegate.cli.output import console, print_json, table
from tidegate.cli.run import AppName, Rate, Replay, Seed, show_value, the_application
from tidegate.codec import to_plain
from tidegate.config import save_topology
from tidegate.outputs import check_output
from tidegate.units import finite, show_duration

__all__ = ["profile_command"]


def profile_command(
    name: AppName,
    rate: Rate = 1.0,
    seconds: Annotated[float, typer.Option(help="Duration of the measurement, in seconds.")] = 60.0,
    cores: Annotated[int, typer.Option(help="Task slots of the Spark process.")] = 2,
    replay: Replay = None,
    seed: Seed = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Topology file; out/APP-profile/topology.yaml by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure an application's operators: arrivals, service times, variability, ratios.

    [bold]tidegate profile max-price && tidegate allocate --topology out/… --t-max 2s[/bold]

    Runs it in one Spark process at a constant rate, without scaling, and writes the topology for
    allocate, backtest and run --topology.
    """
    from tidegate.apps.live import LiveRun
    from tidegate.apps.profile import profile
    from tidegate.spark.autoscaler.meter import WARM_UP_S
    from tidegate.spark.local.session import check_java

    finite(rate, "--rate", above=0)
    finite(seconds, "--seconds", above=0)
    finite(cores, "--cores", low=1)
    if out is not None:
        check_output(out, "--out", inputs=[replay])
    app = the_application(name, replay)
    check_java()
    folder = Path("out") / f"{app.name}-profile"
    file = out or folder / "topology.yaml"
    run = LiveRun(app, cleared(folder), rate=rate, seconds=seconds, slots=cores, seed=seed)
    screen = console()

    def say(text: str) -> None:
        if not as_json:
            screen.print(f"[dim]{text}[/dim]")

    with stoppable(run.out / "tidegate.log", say) as stop:
        found = profile(run, say, stop)
    heading = f"{app.name}, measured by tidegate profile for {found.seconds:.0f} s"
    save_topology(found.topology, file, heading)
    if as_json:
        print_json(to_plain(found))
        return
    shown = table(
        "operator", "λ items/s", "μ per slot/s", "per item", "CV", "batches' CV", "rows out",
        "per batch", "limit", numbers=" rrrrrrrr",
    )  # fmt: skip
    for operator in found.operators:
        service_s = operator.service_time_s
        shown.add_row(
            operator.name,
            f"{operator.arrives_per_s:.4g}",
            show_value(1 / service_s if service_s else None, "{:.4g}"),
            "–" if service_s is None else show_duration(service_s),
            show_value(operator.service_cv, "{:.2f}"),
            show_value(operator.batch_cv, "{:.2f}"),
            f"{operator.ratio:.3g}",
            "–" if operator.overhead_s is None else show_duration(operator.overhead_s, 2),
            show_value(operator.partitions, "{}"),
        )
    screen.print(shown)
    screen.print(
        "[dim]CV: variation of the time per item, measurable with small batches only. per batch: "
        "time in addition to the work on its items. limit: partitions of the state. Not counted: "
        f"batches of the first {show_duration(WARM_UP_S)} of a query, as soon as it has later "
        "ones.[/dim]"
    )
    unknown = [o.name for o in found.operators if o.service_time_s is None]
    if unknown:
        screen.print(
            f"no batch of {', '.join(unknown)} had rows: measure longer, or with a higher --rate"
        )
    screen.print(
        f"\ntopology: {file}\n"
        f"next: tidegate allocate --topology {file} --t-max {app.slo}\n"
        f"      tidegate backtest my_trace.csv --topology {file} --slo {app.slo}\n"
        f"      tidegate run {app.name} --topology {file}",
        soft_wrap=True,
    )
