"""The command line: one module per command. Errors are one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.allocate import allocate
from tidegate.cli.attach import AttachCommand, attach
from tidegate.cli.backtest import backtest_command
from tidegate.cli.calibrate import calibrate_command
from tidegate.cli.dashboard import dashboard
from tidegate.cli.demo import demo
from tidegate.cli.doctor import DoctorCommand, doctor
from tidegate.cli.fleet import fleet
from tidegate.cli.metrics import metrics_command
from tidegate.cli.output import plain
from tidegate.cli.policies import policies
from tidegate.cli.probe import probe
from tidegate.cli.profile import profile_command
from tidegate.cli.replay import replay
from tidegate.cli.report import report_command
from tidegate.cli.reproduce import reproduce
from tidegate.cli.run import run_command
from tidegate.cli.submit import SubmitCommand, submit
from tidegate.cli.sweep import sweep
from tidegate.cli.traces import traces
from tidegate.errors import LONGEST_SENTENCE, TidegateError

__all__ = ["app", "main"]

app = typer.Typer(
    name="tidegate",
    help="An autoscaler for Spark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(allocate)
app.command()(policies)
app.command()(replay)
app.command("backtest")(backtest_command)
app.command("calibrate")(calibrate_command)
app.command("report")(report_command)
app.command("metrics")(metrics_command)
app.command()(dashboard)
app.command()(demo)
app.command("run")(run_command)
app.command("profile")(profile_command)
app.command()(reproduce)
app.command(cls=SubmitCommand)(submit)
app.command(cls=AttachCommand)(attach)
app.command(cls=DoctorCommand)(doctor)
app.add_typer(fleet)
app.add_typer(traces)
app.add_typer(sweep)
app.add_typer(probe)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read the global options."""


def main() -> None:
    """Run the command line and turn errors into one sentence."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal of Latin-1 has no word for an arrow
            stream.reconfigure(errors="replace")
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        sys.exit(app(standalone_mode=False))
    except TidegateError as error:
        _complain(str(error))
    except typer.Abort:
        sys.exit(130)  # Ctrl-C
    except BrokenPipeError:  # who reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # such as output to a disk that is full
        what = error.filename or "its output"
        _complain(f"{what} cannot be read or written: {error.strerror or error}")
    except Exception as error:  # an option that Typer could not parse
        if not hasattr(error, "format_message"):
            raise
        _complain(f"{error.format_message().rstrip('.')}. See tidegate --help.")


def _complain(sentence: str) -> None:
    """End with a sentence, in which nothing comes from elsewhere that moves the terminal."""
    typer.echo(f"tidegate: {plain(sentence, LONGEST_SENTENCE)}", err=True)
    sys.exit(2)
