"""``tidegate metrics``: what a journal tells, for Prometheus, beside whatever writes it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.dashboard import Listen, Port, wait_for_the_end
from tidegate.cli.output import console
from tidegate.codec import from_json
from tidegate.errors import InputError
from tidegate.loop.journal import Turn
from tidegate.loop.tail import Tail
from tidegate.report.metrics import Metrics, serve_metrics
from tidegate.units import duration_s

__all__ = ["follow", "metrics_command"]

LOOK_S = 1.0


def metrics_command(
    journal: Annotated[Path, typer.Argument(help="A journal that is being written.")],
    port: Port = 9464,
    host: Listen = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            help="What scrapers must send as a bearer; better given by the environment.",
            envvar="TIDEGATE_METRICS_TOKEN",
        ),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="The latency wanted; default: the journal's own.")
    ] = None,
) -> None:
    """Serve a journal's figures for Prometheus, while it grows.

    Works beside any run, of a fleet or of an application that does not serve its own.
    """
    if not journal.is_file():
        raise InputError("JOURNAL", str(journal), "a file", "start a run that writes it first")
    metrics = Metrics(None if slo is None else duration_s(slo, "--slo"))
    ended = threading.Event()
    reader = threading.Thread(target=follow, args=(journal, metrics, ended), daemon=True)
    with serve_metrics(metrics, port, host, token) as address:
        console().print(f"metrics: [bold]{address}[/bold]", soft_wrap=True)
        reader.start()
        wait_for_the_end()
        ended.set()
        reader.join()


def follow(journal: Path, metrics: Metrics, ended: threading.Event) -> None:
    """Feed the turns of a journal as they come; a line that is no turn is passed over."""
    tail = Tail(journal)
    while True:
        for line in tail.lines():
            try:
                turn = from_json(Turn, line)
            except InputError:
                continue
            metrics.observe(turn)
        if ended.wait(LOOK_S):
            return
