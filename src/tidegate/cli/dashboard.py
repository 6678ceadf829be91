"""``tidegate dashboard``: journals in a browser, live or recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.listening import Certificate, Key, Listen, Port
from tidegate.cli.logs import LogFormatOption, logs_as
from tidegate.cli.output import console
from tidegate.credentials import secret_from
from tidegate.errors import InputError
from tidegate.lifecycle import from_handler, on_signals
from tidegate.units import duration_s

__all__ = ["Dashboard", "attached", "dashboard", "wait_for_the_end"]

PORT = 8080
USUAL = ("tidegate.jsonl", "out/demo/journal.jsonl", "out/fleet/journal.jsonl", "out/backtest")
"""Journals that are shown if none is given."""

Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve the dashboard on 127.0.0.1 while it runs.")
]


def dashboard(
    journals: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Journals, or folders with journals. Default: journals in the usual places.",
            metavar="JOURNAL",
        ),
    ] = None,
    port: Port = PORT,
    host: Listen = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that users have to enter; default: the environment variable "
            "TIDEGATE_DASHBOARD_TOKEN.",
            metavar="FILE",
        ),
    ] = None,
    certificate: Certificate = None,
    key: Key = None,
    slo: Annotated[
        str | None, typer.Option(help="Latency target. Default: the target in each journal.")
    ] = None,
    log_format: LogFormatOption = None,
) -> None:
    """Show runs in a browser: the current state, and every decision with its reasons and effect.

    Works for a run in progress and for old journals; two journals can be compared.
    """
    paths = journals or [Path(name) for name in USUAL if Path(name).exists()]
    if not paths:
        remedy = f"give a journal or start a run; the defaults are {', '.join(USUAL)}"
        raise InputError("JOURNAL", None, "given", remedy)
    for path in paths:
        if not path.exists():
            raise InputError("JOURNAL", str(path), "a file or folder that exists")
    slo_s = None if slo is None else duration_s(slo, "--slo")
    from tidegate.dashboard import serving

    token = secret_from(token_file, "TIDEGATE_DASHBOARD_TOKEN", "--token-file")
    with (
        logs_as(log_format),
        serving(
            paths, port=port, host=host, token=token, slo_s=slo_s, certificate=certificate, key=key
        ) as url,
    ):
        _say(url)
        wait_for_the_end()


@contextmanager
def attached(wanted: bool, journals: list[Path], slo_s: float | None = None) -> Iterator[None]:
    """Serve a dashboard while the block runs, if `wanted`, and print its address.

    It uses the default port, or any free one if that is taken.
    """
    if not wanted:
        yield
        return
    from tidegate.dashboard import serving
    from tidegate.dashboard.serve import is_free

    with serving(journals, port=PORT if is_free(PORT) else 0, slo_s=slo_s) as url:
        _say(url)
        yield


def _say(url: str) -> None:
    console().print(f"dashboard: [bold]{url}[/bold]", soft_wrap=True)


def wait_for_the_end() -> None:
    """Wait for SIGINT (Ctrl-C) or SIGTERM."""
    asked = threading.Event()
    with on_signals(lambda: from_handler(asked.set)):
        console().print("[dim]press Ctrl-C to stop[/dim]")
        asked.wait()
