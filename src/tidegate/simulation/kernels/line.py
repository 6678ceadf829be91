"""Servers in order of the time when they are free, in the registers of the processor.

For each item, the first server of a sorted line goes back to the place of its next time. Where that
is depends on chance. A loop that looks for it ends where the processor does not expect it, for most
items, which costs as much as dozens of instructions. Here all places are computed at once and
without a branch: after the first has left and x was put in, place i of a sorted line a has the
middle one of a[i], a[i + 1] and x.

A `Line` is a value like a number, with the times in vector registers and the slots of the servers
in another. The first server stands apart from these, since the next item waits for its time, and
vectors take longer. Without Numba, a line is a tuple of (time, slot).
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

__all__ = ["PLACES", "Line", "empty_line", "put_back", "slot_at", "time_at", "with_server"]

PLACES = 17
"""Servers that a line has room for."""

Line = tuple[tuple[float, int], ...]


def empty_line() -> Line:
    """A line without servers: each place is free at infinity."""
    return ((math.inf, 0),) * PLACES


def with_server(line: Line, place: int, time: float, slot: int) -> Line:
    """The line with another server at a place; the caller keeps the order."""
    return (*line[:place], (time, slot), *line[place + 1 :])


def time_at(line: Line, place: int) -> float:
    """When the server at a place is free."""
    return line[place][0]


def slot_at(line: Line, place: int) -> int:
    """The slot of the server at a place."""
    return line[place][1]


def put_back(line: Line, time: float) -> Line:
    """The line after the first server has got a new time, which is not before its old one.

    It comes after all with the same time.
    """
    (_, slot), *rest = line
    place = sum(other <= time for other, _ in rest)
    return (*rest[:place], (time, slot), *rest[place:])


# --- compiled -------------------------------------------------------------------------------------

_REST = PLACES - 1
_FLOAT, _INT, _SHORT = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_TIMES, _SLOTS = ir.VectorType(_FLOAT, _REST), ir.VectorType(_SHORT, _REST)
_PARTS = ir.LiteralStructType([_FLOAT, _INT, _TIMES, _SLOTS])
"""Time and slot of the first server, then those of the others."""


class _LineType(types.Type):
    def __init__(self) -> None:
        super().__init__("Line")


@register_model(_LineType)
class _LineModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _LineType) -> None:
        super().__init__(manager, kind, _PARTS)


_LINE = _LineType()


def _compiled_as(function: Any, result: Any, *arguments: Any) -> Any:
    """Decorator for what writes the code of a function, with its types."""

    @infer_global(function)
    class _Typed(AbstractTemplate):
        def generic(self, given: Any, _named: Any) -> Any:
            return signature(result, *arguments) if len(given) == len(arguments) else None

    return lower_builtin(function, *arguments)


@_compiled_as(empty_line, _LINE)
def _empty_line(_context: Any, _builder: Any, _sig: Any, _arguments: Any) -> Any:
    return ir.Constant(_PARTS, [math.inf, 0, [math.inf] * _REST, [0] * _REST])


@_compiled_as(with_server, _LINE, _LINE, types.int64, types.float64, types.int64)
def _with_server(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
    line, place, time, slot = arguments
    first, behind = _place(builder, place)
    times, slots = builder.extract_value(line, 2), builder.extract_value(line, 3)
    short = builder.trunc(slot, _SHORT)
    new = [time, slot, builder.insert_element(times, time, behind),
           builder.insert_element(slots, short, behind)]  # fmt: skip
    for n, value in enumerate(new):
        old = builder.extract_value(line, n)
        chosen = builder.select(first, value, old) if n < 2 else builder.select(first, old, value)
        line = builder.insert_value(line, chosen, n)
    return line


@_compiled_as(time_at, types.float64, _LINE, types.int64)
def _time_at(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
    line, place = arguments
    first, behind = _place(builder, place)
    time = builder.extract_element(builder.extract_value(line, 2), behind)
    return builder.select(first, builder.extract_value(line, 0), time)


@_compiled_as(slot_at, types.int64, _LINE, types.int64)
def _slot_at(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
    line, place = arguments
    first, behind = _place(builder, place)
    slot = builder.extract_element(builder.extract_value(line, 3), behind)
    return builder.select(first, builder.extract_value(line, 1), builder.sext(slot, _INT))


@_compiled_as(put_back, _LINE, _LINE, types.float64)
def _put_back(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
    line, time = arguments
    _, slot, times, slots = (builder.extract_value(line, n) for n in range(4))
    second = builder.extract_element(times, _INT(0))
    second_slot = builder.sext(builder.extract_element(slots, _INT(0)), _INT)
    new_time = _lower(builder, second, time)
    new_slot = builder.select(builder.fcmp_ordered("<=", second, time), second_slot, slot)
    # The rest, of which the first leaves too if it became the first of all, and else stays.
    x, own = _everywhere(builder, time), _everywhere(builder, builder.trunc(slot, _SHORT))
    next_times, next_slots = _moved_up(builder, times, math.inf), _moved_up(builder, slots, 0)
    ahead = builder.fcmp_ordered("<=", times, x)
    next_ahead = builder.fcmp_ordered("<=", next_times, x)
    slots = builder.select(next_ahead, next_slots, builder.select(ahead, own, slots))
    # Times are the same choice. Minimum and maximum have instructions that are quicker.
    middle = _lower(builder, next_times, x)
    times = builder.select(builder.fcmp_ordered(">", middle, times), middle, times)
    for n, value in enumerate((new_time, new_slot, times, slots)):
        line = builder.insert_value(line, value, n)
    return line


def _place(builder: Any, place: Any) -> tuple[Any, Any]:
    """Whether a place is that of the first, and which one of the others it is, if it is not."""
    first = builder.icmp_signed("==", place, _INT(0))
    return first, builder.select(first, _INT(0), builder.sub(place, _INT(1)))


def _lower(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def _everywhere(builder: Any, value: Any) -> Any:
    """A vector with the same value at all places."""
    none = ir.Constant(ir.VectorType(value.type, _REST), ir.Undefined)
    places = ir.Constant(ir.VectorType(_SHORT, _REST), [0] * _REST)
    return builder.shuffle_vector(builder.insert_element(none, value, _INT(0)), none, places)


def _moved_up(builder: Any, values: Any, last: Any) -> Any:
    """Each value in the place before its own, and another in the last place."""
    after = ir.Constant(values.type, [last] * _REST)
    places = ir.Constant(ir.VectorType(_SHORT, _REST), list(range(1, _REST + 1)))
    return builder.shuffle_vector(values, after, places)
