"""What the commands that run something live share: an end in order, quiet logs, a clean folder."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.output import console
from tidegate.errors import InputError

if TYPE_CHECKING:
    from tidegate.lifecycle import Stop

__all__ = ["INTERRUPTED", "cleared", "executors_that_fit", "logs_into", "signals"]

INTERRUPTED = 130


@contextlib.contextmanager
def signals(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and a kind kill end the run in order; while it starts, by an exception."""
    from tidegate.lifecycle import Stopped

    def end(number: int, frame: Any) -> None:
        again = stop.is_set()
        stop.set()
        if not again:
            with contextlib.suppress(RuntimeError):  # it came in the middle of a print
                say("asked to stop: ending in order, which takes some seconds")
            if stop.starting:
                raise Stopped

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def logs_into(path: Path) -> Iterator[None]:
    """Warnings go to a file: in the middle of a live view they would only be torn."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("tidegate", "py4j")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        handler.close()


def cleared(out: Path) -> Path:
    """The folder, made where it is missing, without an earlier run's journal, logs and report.

    InputError when it has somebody else's ``data``, which a run would remove.
    """
    data = out / "data"
    if data.exists() and not any((data / ours).is_dir() for ours in ("topics", "checkpoints")):
        remedy = f"{data} is no earlier run's and would be lost: choose another folder"
        raise InputError("--out", str(out), "a folder for runs", remedy)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in ("journal.jsonl", "driver.log", "tidegate.log", "report.html"):
            (out / old).unlink(missing_ok=True)  # a journal would be continued, and this is new
    except OSError as error:
        remedy = error.strerror or "choose another"
        raise InputError("--out", str(out), "a folder that can be written", remedy) from None
    return out


def executors_that_fit(wanted: int, memory_mb: int) -> int:
    """Of so many executors, those that this machine carries; says so when they are fewer.

    BackendError when there is no Spark, no Java or no memory here.
    """
    from tidegate.spark.local.processes import spark_home
    from tidegate.spark.local.session import check_java, hosts_that_fit

    spark_home()
    check_java()
    fit = hosts_that_fit(wanted, memory_mb)
    if fit < wanted:
        console().print(f"memory for {fit} of {wanted} executors is free: going on with {fit}")
    return fit
