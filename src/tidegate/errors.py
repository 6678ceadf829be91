"""All exceptions that Tidegate raises, in one tree.

::

    TidegateError
    ├── InputError            an argument, file or setting that cannot be used (also a ValueError)
    │   ├── TopologyError     operators and edges that do not fit together
    │   ├── SettingError      a policy's or guard's parameter
    │   ├── UnknownPolicy     no policy has that name
    │   ├── JournalError      a journal that cannot be read
    │   └── TraceError        a recorded workload with a row that cannot be used
    ├── Infeasible            a valid question without a solution
    │   ├── NotEnoughProcessors
    │   └── LatencyUnreachable
    ├── BackendError          a world that could not be observed or changed
    │   └── NothingToScale    no query runs: the run has ended, or has not begun
    └── CheckFailed           a policy or backend that breaks its contract

A user catches `TidegateError`; the command line turns it into one sentence and exit code 2.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any

__all__ = [
    "BackendError",
    "CheckFailed",
    "Infeasible",
    "InputError",
    "JournalError",
    "LatencyUnreachable",
    "NotEnoughProcessors",
    "NothingToScale",
    "SettingError",
    "TidegateError",
    "TopologyError",
    "TraceError",
    "UnknownPolicy",
]


class TidegateError(Exception):
    """The root of all exceptions below. Each message explains the cause and the remedy."""


class InputError(TidegateError, ValueError):
    """An argument that cannot be used. The message names key, value, range and remedy.

    >>> raise InputError("upper", 1.4, "between 0 and 1", "give a share of the host's CPU")
    Traceback (most recent call last):
    tidegate.errors.InputError: upper is 1.4; it must be between 0 and 1: give a share of the
    host's CPU
    """

    def __init__(self, key: str, value: Any, allowed: str, remedy: str = "") -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        self.remedy = remedy
        tail = f": {remedy}" if remedy else ""
        super().__init__(f"{_shortened(key)} is {_shown(value)}; it must be {allowed}{tail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.value, self.allowed, self.remedy)


LONGEST_SENTENCE = 300
"""Characters of a message that a command or a server shows at most."""
LONGEST_VALUE = 160
"""Characters of a key or value that a message shows at most, those in its middle left out."""


def _shown(value: Any) -> str:
    """A value in a message.

    >>> len(_shown("x" * 10_000)), _shown([1] * 10_000)[:12]
    (160, '[1, 1, 1, 1,')
    """
    if isinstance(value, str):  # without writing all of it first
        text = repr(value if len(value) <= LONGEST_VALUE else value[:100] + value[-100:])
    elif isinstance(value, float | int):
        text = _number(value)
    else:
        try:
            text = _LIMITED.repr(value)
        except ValueError:  # it has such a number in it
            text = f"a {type(value).__name__}"
    return _shortened(text)


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_VALUE:
        return text
    tail = LONGEST_VALUE // 2 - 1
    return f"{text[: LONGEST_VALUE - tail - 1]}…{text[-tail:]}"


def _number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not write integers of more than some thousand digits
        return "a very large number"


_LIMITED = Repr()
"""Writes the beginning of what is nested or long: one YAML file can describe gigabytes."""
_LIMITED.maxlevel = 4
for _kind in ("dict", "list", "tuple", "set", "frozenset", "deque", "array"):
    setattr(_LIMITED, f"max{_kind}", 50)
_LIMITED.maxstring = _LIMITED.maxother = LONGEST_VALUE


class TopologyError(InputError):
    """Operators, sources and edges that do not fit together."""


class SettingError(InputError):
    """A parameter of a policy or guard is unknown, of the wrong kind or out of range."""


class UnknownPolicy(InputError):  # noqa: N818 - reads as what it is
    """No installed policy has that name."""


class JournalError(InputError):
    """A journal that cannot be read. An incomplete last line is no error."""


class TraceError(InputError):
    """A recorded workload with a row that cannot be used; the message names file and line.

    Args:
        path: The file.
        line: Number of the line from 1 (of the row in a Parquet file), None for the whole file.
        key: The column.
        value: Its value.
        allowed: The allowed values.
        remedy: What to do.

    >>> raise TraceError("day.csv", 17, "rate", "-3", "a number of at least 0", "correct the row")
    Traceback (most recent call last):
    tidegate.errors.TraceError: day.csv, line 17: rate is '-3'; it must be a number of at least 0:
    correct the row
    """

    def __init__(
        self, path: str, line: int | None, key: str, value: Any, allowed: str, remedy: str = ""
    ) -> None:
        self.path = path
        self.line = line
        self.column = key
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {key}", value, allowed, remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        shown = (self.path, self.line, self.column, self.value, self.allowed, self.remedy)
        return type(self), shown


class Infeasible(TidegateError):  # noqa: N818
    """A valid question without a solution."""


class NotEnoughProcessors(Infeasible):
    """Fewer processors than the load needs, whatever their distribution.

    needed: the fewest processors that keep every queue finite.
    available: the number of processors there are.
    operator: the operator that can use only `available` processors, "" when all are concerned.
    """

    def __init__(self, needed: int, available: int, operator: str = "") -> None:
        self.needed = needed
        self.available = available
        self.operator = operator
        if operator:
            text = (
                f"operator {operator} can use {available} processors at most (its max_instances), "
                f"and its load needs at least {needed}, or its queue grows without end: {_FINER}, "
                "or reduce the load"
            )
        else:
            text = (
                f"{available} processors are not enough: the load needs at least {needed}, "
                "or its queues grow without end: give more processors, or reduce the load"
            )
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.needed, self.available, self.operator)


_FINER = "cut its state into more partitions"


class LatencyUnreachable(Infeasible):
    """A latency bound that no number of processors reaches, such as one below the processing time.

    bound_s: the requested bound; floor_s: the best possible latency.
    operator: the operator that can use no more processors and has the longest queue, or "".
    """

    def __init__(self, bound_s: float, floor_s: float, operator: str = "") -> None:
        self.bound_s = bound_s
        self.floor_s = floor_s
        self.operator = operator
        why = "however many processors there are: raise the bound, or make the operators faster"
        if operator:
            why = (
                f"because operator {operator} can use no more processors (its max_instances): "
                f"{_FINER}, or raise the bound"
            )
        super().__init__(
            f"a latency of {bound_s:g} s cannot be reached: the best is {floor_s:.4g} s, {why}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.bound_s, self.floor_s, self.operator)


class BackendError(TidegateError):
    """A backend could not be observed or changed."""


class NothingToScale(BackendError):  # noqa: N818 - it is no failure
    """No query runs, so there is nothing to observe: the run has ended, or has not begun."""


class CheckFailed(TidegateError, AssertionError):  # noqa: N818
    """A policy or backend that breaks its contract; the message names the rule it broke."""
