"""The option for the format of logs, of all commands that run for long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidegate.logs import handled_by, log_format, log_formatter

__all__ = ["LogFormatOption", "logs_as"]

LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="Format of the log on standard error: text, or json with one line for each record; "
        "default: the environment variable TIDEGATE_LOG_FORMAT, else text.",
        metavar="text|json",
    ),
]


@contextmanager
def logs_as(given: str | None) -> Iterator[None]:
    """Write the records of this process as JSON while the block runs, if that is chosen."""
    if log_format(given) == "text":
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter("json"))
    with handled_by(handler):
        yield
