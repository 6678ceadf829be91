"""``tidegate metrics``: the figures of a growing journal, for Prometheus."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.dashboard import wait_for_the_end
from tidegate.cli.listening import Certificate, Key, Listen, Port
from tidegate.cli.logs import LogFormatOption, logs_as
from tidegate.cli.output import console
from tidegate.credentials import secret_from
from tidegate.errors import InputError
from tidegate.loop.journal import TurnReader
from tidegate.loop.tail import Tail
from tidegate.report.metrics import TOKEN_VARIABLE, Metrics, serve_metrics
from tidegate.units import duration_s

__all__ = ["follow", "metrics_command"]

POLL_S = 1.0


def metrics_command(
    journal: Annotated[Path, typer.Argument(help="A journal that is being written.")],
    port: Port = 9464,
    host: Listen = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the bearer token that scrapers must send; default: the environment "
            "variable TIDEGATE_METRICS_TOKEN.",
            metavar="FILE",
        ),
    ] = None,
    certificate: Certificate = None,
    key: Key = None,
    slo: Annotated[
        str | None, typer.Option(help="Latency target. Default: the target in the journal.")
    ] = None,
    log_format: LogFormatOption = None,
) -> None:
    """Serve the figures of a journal for Prometheus while it grows.

    Works with any run that writes a journal, such as a fleet or an application without metrics.
    """
    if not journal.is_file():
        raise InputError("JOURNAL", str(journal), "a file", "start a run that writes it first")
    metrics = Metrics(None if slo is None else duration_s(slo, "--slo"))
    ended = threading.Event()
    reader = threading.Thread(target=follow, args=(journal, metrics, ended), daemon=True)
    token = secret_from(token_file, TOKEN_VARIABLE, "--token-file")
    with (
        logs_as(log_format),
        serve_metrics(metrics, port, host, token, certificate, key, prefix="--") as address,
    ):
        console().print(f"metrics: [bold]{address}[/bold]", soft_wrap=True)
        reader.start()
        wait_for_the_end()
        ended.set()
        reader.join()


def follow(journal: Path, metrics: Metrics, ended: threading.Event) -> None:
    """Feed the turns of a journal as they are written; lines that are not turns are skipped.

    When a journal is read from its start again, because it was replaced or emptied, the figures
    start from zero.
    """
    tail, reader = Tail(journal, rotated=True), TurnReader()
    generation = tail.generation
    while True:
        for line in tail.lines():
            if tail.generation != generation:
                generation = tail.generation
                metrics.begin_again()
            try:
                turn, _ = reader.read(line)
            except InputError:
                continue
            metrics.observe(turn)
        if ended.wait(POLL_S):
            return
