"""``tidegate probe``: what a network path carries, measured with streams of tuples."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tidegate.cli.dashboard import wait_for_the_end
from tidegate.cli.lifecycle import INTERRUPTED
from tidegate.cli.listening import Listen, Port
from tidegate.cli.logs import LogFormatOption, logs_as
from tidegate.cli.output import console, print_json, progress_bar, table
from tidegate.credentials import secret_from
from tidegate.errors import InputError
from tidegate.lifecycle import Stopped, from_handler, on_signals
from tidegate.listening import Listening, read_address
from tidegate.outputs import check_output
from tidegate.units import duration_s, finite, show_duration

if TYPE_CHECKING:
    from tidegate.probe.results import Moment, ProbeResult

__all__ = ["PORT", "probe"]

PORT = 9470
TOKEN_VARIABLE = "TIDEGATE_PROBE_TOKEN"


class _ProbeGroup(TyperGroup):
    """Takes ``tidegate probe HOST`` for ``tidegate probe measure HOST``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["measure", *args]
        return super().parse_args(ctx, args)


probe = typer.Typer(
    name="probe",
    cls=_ProbeGroup,
    help="Measure what a network path carries. [bold]tidegate probe HOST[/bold] is short for "
    "[bold]tidegate probe measure HOST[/bold].",
    no_args_is_help=True,
)

TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the token of the server; default: the environment variable "
        f"{TOKEN_VARIABLE}. The token itself is never sent.",
        metavar="FILE",
    ),
]


@probe.command()
def serve(
    port: Port = PORT,
    host: Listen = "127.0.0.1",
    token_file: TokenFile = None,
    log_format: LogFormatOption = None,
) -> None:
    """Answer probes, at the place where a stream is to be processed.

    Listens on one port for TCP and UDP until Ctrl-C. Packets are answered only for a probe that has
    shown on a TCP connection that it knows the token.
    """
    from tidegate.probe.server import ProbeServer

    token = secret_from(token_file, TOKEN_VARIABLE, "--token-file")
    with logs_as(log_format), ProbeServer(Listening(host, port, token)) as server:
        console().print(f"probe: [bold]{escape(server.describe())}[/bold]", soft_wrap=True)
        wait_for_the_end()


@probe.command()
def measure(
    host: Annotated[
        str,
        typer.Argument(
            help="Where [bold]tidegate probe serve[/bold] runs: HOST or HOST:PORT.",
            metavar="HOST",
        ),
    ],
    rates: Annotated[
        str, typer.Option(help="Rates of the streams, tuples per second.", metavar="RATE,…")
    ] = "100,1000,10000",
    for_: Annotated[
        str, typer.Option("--for", help="Duration of the whole run, such as 10m or 24h.")
    ] = "1m",
    over: Annotated[
        str,
        typer.Option(
            help="udp shows loss and jitter, tcp what a source gets that needs every tuple; "
            "udp,tcp measures both in turn."
        ),
    ] = "udp,tcp",
    tuple_bytes: Annotated[int, typer.Option(help="Size of a tuple, in bytes.")] = 100,
    cpu: Annotated[
        float, typer.Option(help="Share of one core that the sender may use at most.")
    ] = 0.5,
    token_file: TokenFile = None,
    out: Annotated[Path, typer.Option(help="File for the HTML page.")] = Path("out/probe.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and write no page.")] = False,
) -> None:
    """Send streams to a server and report delay, jitter, loss and throughput by rate.

    [bold]tidegate probe 10.0.0.7 --rates 100,1000,10000 --for 10m[/bold]

    Ctrl-C ends the run early and reports what was measured until then.
    """
    from tidegate.probe.measure import ProbePlan, measure
    from tidegate.probe.page import probe_page

    address = _address(host)
    plan = ProbePlan(
        tuple(finite(word, "--rates", above=0) for word in rates.split(",")),
        duration_s(for_, "--for"),
        tuple(over.split(",")),  # type: ignore[arg-type]  # the plan checks it
        tuple_bytes,
        cpu,
    )
    token = secret_from(token_file, TOKEN_VARIABLE, "--token-file")
    if not as_json:
        check_output(out, "--out", inputs=[token_file])  # the run may take a day
    stop = threading.Event()
    heard = False

    def end() -> None:
        nonlocal heard
        if heard:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait for the end of the moment
        heard = True
        from_handler(stop.set)

    with on_signals(end), progress_bar(as_json, width=44) as bar:
        task = bar.add_task("connecting", total=1.0)

        def show(moment: Moment, share: float) -> None:
            bar.update(task, completed=share, description=_progress(moment))

        try:
            result = measure(address, plan, token, stop, show)
        except Stopped:
            console().print("stopped before anything was measured")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        _print_json(result)
        return
    _show(result)
    console().print(f"\nfigures over time: {probe_page(result).write(out, '--out')}")


def _address(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, PORT  # an address of IPv6 alone
    if ":" in text.rpartition("]")[2]:
        return read_address(text, "HOST")
    plain = text.removeprefix("[").removesuffix("]")
    if not plain or plain.startswith("-"):
        raise InputError("HOST", text, "a host or HOST:PORT", "see tidegate probe --help")
    return plain, PORT


def _progress(moment: Moment) -> str:
    stream = f"{moment.rate_per_s:,.10g} tuples/s over {moment.transport.upper()}"
    if moment.figures is None:
        return f"{stream}: no connection"
    delay = moment.figures.delay
    if delay is None or delay.p99_s is None:
        return f"{stream}: lost"
    return f"{stream}: p99 {show_duration(delay.p99_s)}"


def _print_json(result: ProbeResult) -> None:
    from tidegate.codec import to_plain
    from tidegate.probe.verdict import judge, notes, verdict

    plain = to_plain(result)
    for stream, written in zip(result.streams, plain["streams"], strict=True):
        written["limit"] = judge(stream).limit
    print_json({"verdict": verdict(result), "notes": notes(result), **plain})


def _show(result: ProbeResult) -> None:
    from tidegate.probe.page import COLUMNS, stream_rows
    from tidegate.probe.verdict import notes, verdict

    shown = table(*COLUMNS, numbers=" rr    ")
    for row in stream_rows(result):
        shown.add_row(*(escape(cell) for cell in row))
    out = console()
    out.print(shown)
    out.print(f"\n[bold]{escape(verdict(result))}[/bold]")
    for note in notes(result):
        out.print(f"[dim]{escape(note)}[/dim]")
