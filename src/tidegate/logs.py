"""Log records as text or as JSON.

As JSON a record is one line with ``time`` (ISO 8601, UTC), ``level``, ``logger`` and ``message``,
and with what is known of its circumstances, such as ``application``, ``turn`` and ``query``. Those
fields come from `log_fields` and from ``extra=`` of a call::

    with log_fields(turn=12):
        log.warning("query %s failed", name, extra={"query": name})
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal, get_args

from tidegate.errors import InputError

__all__ = [
    "VARIABLE",
    "JsonFormatter",
    "LogFormat",
    "handled_by",
    "log_fields",
    "log_format",
    "log_formatter",
]

LogFormat = Literal["text", "json"]
VARIABLE = "TIDEGATE_LOG_FORMAT"
"""The environment variable with the format, unless an option chooses it."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OWN = frozenset({"time", "level", "logger", "exception"})
_known: ContextVar[Mapping[str, object]] = ContextVar(
    "tidegate_log_fields", default=MappingProxyType({})
)


def log_format(given: str | None = None, option: str = "--log-format") -> LogFormat:
    """The format that an option, else the environment variable chooses; text without both.

    >>> log_format("json")
    'json'
    """
    key = option if given is not None else VARIABLE
    value = given if given is not None else os.environ.get(VARIABLE) or "text"
    for form in get_args(LogFormat):
        if value == form:
            return form  # type: ignore[no-any-return]
    raise InputError(key, value, "text or json")


class log_fields:  # noqa: N801
    """Add fields to all records of this thread while the block runs; None: the field is unknown.

    It is a class because it is entered at every turn, and a generator takes longer.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        known = _known.get()
        self._token = _known.set({**known, **self._fields} if known else self._fields)

    def __exit__(self, *error: object) -> None:
        _known.reset(self._token)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON.

    >>> record = logging.makeLogRecord({"name": "tidegate.loop", "levelname": "WARNING",
    ...                                 "msg": "turn %d failed", "args": (7,), "created": 0.0})
    >>> with log_fields(application="app-1", turn=7):
    ...     print(JsonFormatter().format(record))
    {"time": "1970-01-01T00:00:00.000Z", "level": "WARNING", "logger": "tidegate.loop",
     "message": "turn 7 failed", "application": "app-1", "turn": 7}
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; what JSON cannot express is written as text."""
        extra = {k: v for k, v in vars(record).items() if k not in _STANDARD and k not in _OWN}
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{k: v for k, v in {**_known.get(), **extra}.items() if v is not None},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_formatter(
    form: LogFormat, text: str = "%(message)s", times: str | None = None
) -> logging.Formatter:
    """A formatter. text: the form of a line of text; times: that of its time."""
    return JsonFormatter() if form == "json" else logging.Formatter(text, times)


@contextmanager
def handled_by(handler: logging.Handler, loggers: Sequence[str] = ("",)) -> Iterator[None]:
    """Send the records of loggers to a handler, and only there, while the block runs.

    loggers: their names; the empty one is the root. Text on standard error of others stays.
    """
    chosen = [logging.getLogger(name) for name in loggers]
    before = [logger.propagate for logger in chosen]
    for logger in chosen:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(chosen, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
        handler.close()
