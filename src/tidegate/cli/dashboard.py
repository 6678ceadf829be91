"""``tidegate dashboard``: a page that shows what a journal tells, live or replayed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.output import console
from tidegate.errors import InputError
from tidegate.units import duration_s

__all__ = ["Dashboard", "Listen", "Port", "attached", "dashboard", "wait_for_the_end"]

PORT = 8080
USUAL = ("tidegate.jsonl", "out/demo/journal.jsonl", "out/fleet/journal.jsonl", "out/backtest")
"""Where journals are looked for when none is named."""

Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Show it live in a browser as well, on 127.0.0.1.")
]
Port = Annotated[int, typer.Option(help="Where to listen; 0: any that is free.")]
Listen = Annotated[
    str, typer.Option("--host", help="On which address; beyond loopback a token is needed.")
]


def dashboard(
    journals: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Journals, or folders with journals in them; default: those in the usual places.",
            metavar="JOURNAL",
        ),
    ] = None,
    port: Port = PORT,
    host: Listen = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            help="What people must enter to look; better given by the environment.",
            envvar="TIDEGATE_DASHBOARD_TOKEN",
        ),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="The latency wanted; default: each journal's own.")
    ] = None,
) -> None:
    """Show runs in a browser: what happens now, every decision with its reason, what came of it.

    Works for a run in progress and for a journal of long ago; with two or more, compare them.
    """
    paths = journals or [Path(name) for name in USUAL if Path(name).exists()]
    if not paths:
        remedy = f"name one, or start a run; looked for are {', '.join(USUAL)}"
        raise InputError("JOURNAL", None, "given", remedy)
    for path in paths:
        if not path.exists():
            raise InputError("JOURNAL", str(path), "a file or folder that exists")
    slo_s = None if slo is None else duration_s(slo, "--slo")
    from tidegate.dashboard import serving

    with serving(paths, port=port, host=host, token=token, slo_s=slo_s) as url:
        _say(url)
        wait_for_the_end()


@contextmanager
def attached(wanted: bool, journals: list[Path], slo_s: float | None = None) -> Iterator[None]:
    """Serve a dashboard beside a run while the block lasts, if it is wanted, and say where.

    On the usual port, or any other when that is taken: the run matters more than its number.
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
    """Wait for Ctrl-C or a kind kill."""
    console().print("[dim]Ctrl-C ends it[/dim]")
    asked = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: asked.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        asked.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
