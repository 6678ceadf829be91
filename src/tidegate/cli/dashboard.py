"""``tidegate dashboard``: journals in a browser, live or recorded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.listening import Certificate, Key, Listen, Port
from tidegate.cli.logs import LogFormatOption, logs_as
from tidegate.cli.output import console
from tidegate.credentials import kept_secret, secret_from
from tidegate.errors import InputError
from tidegate.lifecycle import from_handler, on_signals
from tidegate.listening import is_loopback
from tidegate.units import duration_s

__all__ = ["Dashboard", "attached", "dashboard", "wait_for_the_end"]

PORT = 8080
TOKEN_VARIABLE = "TIDEGATE_DASHBOARD_TOKEN"
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
            f"{TOKEN_VARIABLE}. Without a token, on loopback, everybody may look, and the controls "
            "need a token that is made and kept in a file.",
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

    token = secret_from(token_file, TOKEN_VARIABLE, "--token-file")
    steering = _SteeringToken() if token is None and is_loopback(host) else None
    with (
        logs_as(log_format),
        serving(
            paths,
            port=port,
            host=host,
            token=token,
            steering_token=steering.token if steering else None,
            slo_s=slo_s,
            certificate=certificate,
            key=key,
        ) as url,
    ):
        _say(url, steering)
        wait_for_the_end()


@contextmanager
def attached(wanted: bool, journals: list[Path], slo_s: float | None = None) -> Iterator[None]:
    """Serve a dashboard while the block runs, if `wanted`, and print its address.

    It uses the default port, or any free one if that is taken, and asks for the same tokens as
    ``tidegate dashboard``.
    """
    if not wanted:
        yield
        return
    from tidegate.dashboard import serving
    from tidegate.dashboard.serve import is_free

    token = secret_from(None, TOKEN_VARIABLE, TOKEN_VARIABLE)
    steering = _SteeringToken() if token is None else None
    with serving(
        journals,
        port=PORT if is_free(PORT) else 0,
        token=token,
        steering_token=steering.token if steering else None,
        slo_s=slo_s,
    ) as url:
        _say(url, steering)
        yield


class _SteeringToken:
    """The token for the controls, kept in a file of the user's own.

    token: None if the file cannot be used, for the reason in `why`. new: made just now.
    """

    def __init__(self) -> None:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.file = Path(state) / "tidegate" / "dashboard-token"
        self.token: str | None = None
        self.new, self.why = False, ""
        try:
            self.token, self.new = kept_secret(self.file, "token of the dashboard")
        except InputError as error:
            self.why = str(error)


def _say(url: str, steering: _SteeringToken | None) -> None:
    """Print the address. A new token is shown once, and on a terminal only: output may be kept."""
    out = console()
    out.print(f"dashboard: [bold]{url}[/bold]", soft_wrap=True)
    if steering is None:
        return
    if steering.token is None:
        text = f"its controls are disabled: {steering.why}"
    elif steering.new and out.is_terminal:
        text = f"for its controls, enter {steering.token} (kept in {steering.file})"
    else:
        text = f"for its controls, enter the token in {steering.file}"
    out.print(text, style="dim", markup=False, soft_wrap=True)


def wait_for_the_end() -> None:
    """Wait for SIGINT (Ctrl-C) or SIGTERM."""
    asked = threading.Event()
    with on_signals(lambda: from_handler(asked.set)):
        console().print("[dim]press Ctrl-C to stop[/dim]")
        asked.wait()
