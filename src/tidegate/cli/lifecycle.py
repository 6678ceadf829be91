"""Shared by the commands that run something live: orderly end, logs in files, a clean folder."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidegate.cli.output import console
from tidegate.errors import InputError
from tidegate.logs import handled_by, log_format, log_formatter

if TYPE_CHECKING:
    from tidegate.lifecycle import Stop

__all__ = [
    "INTERRUPTED", "NOTHING_SEEN", "cleared", "executors_that_fit", "logs_into", "signals",
    "stoppable",
]  # fmt: skip

INTERRUPTED = 130
NOTHING_SEEN = "stopped before the run began: there are no figures"


@contextlib.contextmanager
def signals(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run in order; while it starts, they raise `Stopped`."""
    from tidegate.lifecycle import Stopped, from_handler, on_signals

    heard = False

    def end() -> None:
        nonlocal heard
        again, heard = heard, True
        if not again:
            from_handler(stop.set)
            with contextlib.suppress(RuntimeError):  # the signal interrupted a print
                say("stopping in order; this takes some seconds")
            if stop.starting:
                raise Stopped

    with on_signals(end):
        yield


@contextlib.contextmanager
def stoppable(log: Path, say: Callable[[str], None]) -> Iterator[Stop]:
    """Live work that Ctrl-C ends in order, with warnings in a file; exits if it had not begun."""
    from tidegate.lifecycle import Stop, Stopped

    stop = Stop()
    with signals(stop, say), logs_into(log):
        try:
            yield stop
        except (Stopped, KeyboardInterrupt):
            console().print(NOTHING_SEEN)
            raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def logs_into(path: Path) -> Iterator[None]:
    """Write warnings to a file, because they would disturb a live view."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(log_formatter(log_format(), "%(asctime)s %(name)s %(message)s"))
    with handled_by(handler, ("tidegate", "py4j")):
        yield


def cleared(out: Path) -> Path:
    """The folder, created if missing, without the journal, logs and report of an earlier run.

    Raises InputError if its ``data`` does not come from a run, because a run would remove it.
    """
    data = out / "data"
    if data.exists() and not any((data / ours).is_dir() for ours in ("topics", "checkpoints")):
        remedy = f"{data} is not from an earlier run and would be lost: choose another folder"
        raise InputError("--out", str(out), "a folder for runs", remedy)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in ("journal.jsonl", "driver.log", "tidegate.log", "report.html"):
            (out / old).unlink(missing_ok=True)  # a new run must not continue an old journal
    except OSError as error:
        remedy = error.strerror or "choose another"
        raise InputError("--out", str(out), "a writable folder", remedy) from None
    return out


def executors_that_fit(wanted: int, memory_mb: int) -> int:
    """The number of executors that fit on this machine, at most `wanted`; prints if it is lower.

    Raises BackendError if Spark, Java or memory is missing.
    """
    from tidegate.spark.local.processes import spark_home
    from tidegate.spark.local.session import check_java, hosts_that_fit

    spark_home()
    check_java()
    fit = hosts_that_fit(wanted, memory_mb)
    if fit < wanted:
        console().print(f"there is free memory for {fit} of {wanted} executors: using {fit}")
    return fit
