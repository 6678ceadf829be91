"""Each message together with the one before it, as soon as both have come, in whatever order.

Whether a defect is new, how long a reporting cycle was and whether a clock went backwards are
questions about a message and its predecessor. A stream of batches keeps no order among a machine's
messages, but the gateway has numbered them: so a message waits in the state store until the one
before it is there. What comes out depends on the messages alone, not on batches, instances or
restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["with_predecessor"]

KEPT = 10_000
"""Messages of one machine that wait at most, for neighbours that may never come; oldest go first."""


def with_predecessor(messages: DataFrame) -> DataFrame:
    """Columns machine, number, here, before: a message and its machine's message before it.

    messages: with the columns machine and number, numbered from 0 for each machine; all others are
    gathered in `here`, and for the predecessor in `before`, which is null for number 0. A message
    whose predecessor never comes stays away; one without a number passes at once. A number that
    comes twice counts once, as long as its successor has not come.
    """
    from pyspark.sql import functions as fn

    others = [name for name in messages.columns if name not in ("machine", "number")]
    packed = messages.select("machine", "number", fn.struct(*others).alias("here"))
    kind = packed.schema["here"].dataType
    assert isinstance(kind, StructType)
    result = StructType(
        [*packed.schema.fields[:2], StructField("here", kind), StructField("before", kind)]
    )
    return packed.groupBy("machine").transformWithState(
        _Succession(kind), result, outputMode="Update", timeMode="None"
    )


class _Succession(StatefulProcessor):
    """The waiting messages of one machine, in one value: it is read and written once a batch."""

    def __init__(self, kind: StructType) -> None:
        entry = StructType(
            [
                StructField("number", LongType()),
                StructField("sent", BooleanType()),
                StructField("message", kind),
            ]
        )
        self._schema = StructType([StructField("waiting", ArrayType(entry))])

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._waiting = handle.getValueState("waiting", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from pyspark.sql import Row

        (machine,) = key
        kept = self._waiting.get()
        waiting = {entry[0]: (entry[1], entry[2]) for entry in (kept[0] if kept else ())}
        for row in rows:
            if row.number is None:
                yield Row(machine=machine, number=None, here=row.here, before=None)
            else:
                waiting.setdefault(row.number, (False, row.here))
        for number in sorted(waiting):
            sent, here = waiting[number]
            if not sent and (number == 0 or number - 1 in waiting):
                before = waiting[number - 1][1] if number else None
                yield Row(machine=machine, number=number, here=here, before=before)
                waiting[number] = True, here
        needed = [n for n, (sent, _) in waiting.items() if not sent or n + 1 not in waiting]
        entries = [(n, *waiting[n]) for n in sorted(needed)[-KEPT:]]
        self._waiting.update((entries,))
