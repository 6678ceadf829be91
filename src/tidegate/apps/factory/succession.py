"""Each message together with the one before it, as soon as both have come, in whatever order.

Whether a defect is new, how long a reporting cycle was and whether a clock went backwards are
questions about a message and its predecessor. A stream of batches keeps no order among a machine's
messages, but the gateway has numbered them: a message waits in the state store until the one before
it is there. What comes out depends on the messages alone, not on batches, instances or restarts.

It is an aggregation, since native state is much cheaper than a Python processor
(`transformWithState`), which starts a process with each query and talks to it over a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SPAN_MS", "with_predecessor"]

SPAN_MS = 600_000
"""A predecessor counts if it is from the same span of so many milliseconds, or the one before."""
_KEPT = "30 minutes"


def with_predecessor(messages: DataFrame, time: str) -> DataFrame:
    """Columns machine, number, here, before: a message and its machine's message before it.

    messages: with the columns machine and number, which counts from 0 on each connection; all
    others are gathered in `here`, and for the predecessor in `before`, which is null for number 0.
    A message whose predecessor never comes stays away; one without machine or number passes alone.
    time: the column with its time in Unix milliseconds; only what is to be forgotten depends on it.
    """
    others = [name for name in messages.columns if name not in ("machine", "number")]
    message = fn.struct(*others)
    nothing = fn.lit(None).cast(messages.select(message.alias("m")).schema["m"].dataType)
    number, span = fn.col("number"), fn.floor(fn.col(time) / SPAN_MS)
    alone = fn.col("machine").isNull() | number.isNull()

    # A message is one's own, and the predecessor of the next one, in this span or the following.
    roles = fn.array(
        *(
            fn.struct(
                (number + later).alias("of"),
                (span + ahead).alias("span"),
                (message if not later else nothing).alias("here"),
                (message if later else nothing).alias("before"),
            )
            for later, ahead in ((0, 0), (1, 0), (1, 1))
        )
    )
    return (
        messages.select(
            "machine",
            fn.when(alone, fn.xxhash64(message)).alias("alone"),
            fn.explode(fn.when(alone, fn.slice(roles, 1, 1)).otherwise(roles)).alias("role"),
        )
        .select("machine", "alone", "role.*")
        .withColumn("span", fn.timestamp_millis(fn.col("span") * SPAN_MS))
        .withWatermark("span", _KEPT)
        .groupBy("span", "machine", fn.col("of").alias("number"), "alone")
        .agg(fn.max("here").alias("here"), fn.max("before").alias("before"))
        .filter("here IS NOT NULL AND (before IS NOT NULL OR number = 0 OR alone IS NOT NULL)")
        .select("machine", "number", "here", "before")
    )
