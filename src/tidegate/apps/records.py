"""Records that arrive as JSON text: written, parsed, and set aside when they are bad.

A record is one flat object, with the time when it was sent. A record whose own clock differs too
much from that time is set aside: a single one from the future would close all windows early, and
one from the past belongs to a window that is already closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = [
    "AHEAD_S", "BEHIND_S", "CLOSING_S", "LATE_S", "REASONS", "TEXTS", "closed", "closing",
    "good_records", "parsed", "spoiled", "texts", "with_bad_rows",
]  # fmt: skip

TEXTS = {"value": "string", "sent_us": "long"}
"""Columns. value: the record. sent_us: when it was sent, Unix microseconds."""
BEHIND_S, AHEAD_S = 10, 1
"""Seconds that a record's clock may be behind and ahead of the time at which it was sent."""
LATE_S = BEHIND_S + AHEAD_S + 4
"""Delay of a watermark over good records: none of them is ever late."""
CLOSING_S = 3600.0
"""A record this many seconds ahead of all others closes their windows."""
REASONS = (
    "no text", "malformed JSON", "a field is missing or out of range",
    "the clock is behind", "the clock is ahead",
)  # fmt: skip
"""Why a record is set aside, in the order of the checks."""

_FLAT = r"\s*\{[^{}]*\}\s*"
_WORD = r"[A-Z][A-Za-z0-9 .&_-]*"


def texts(moments: NDArray[np.float64], **columns: Any) -> pa.Table:
    """Records of these columns (words or whole numbers), sent at their own time, Unix seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at_us = np.round(moments * 1e6).astype(np.int64)
    parts: list[Any] = []
    for n, (name, values) in enumerate({**columns, "at_us": at_us}.items()):
        column = pa.array(values)
        mark = '"' if pa.types.is_string(column.type) else ""
        parts += [f'{"," if n else "{"}"{name}":{mark}', column.cast(pa.string()), mark]
    value = pc.binary_join_element_wise(*parts, "}", "")
    return pa.table({"value": value, "sent_us": pa.array(at_us, pa.int64())})


def parsed(rows: DataFrame, words: tuple[str, ...], numbers: tuple[str, ...]) -> DataFrame:
    """The records' fields and `at_us`; `rejected` is the reason why one is bad, `value` its text.

    words: fields that begin with a capital letter; numbers: fields that are positive whole numbers.
    """
    from pyspark.sql import functions as fn

    longs = (*numbers, "at_us")
    fields = ", ".join([*(f"`{w}` string" for w in words), *(f"`{n}` long" for n in longs)])
    options = {"columnNameOfCorruptRecord": "_bad", "allowSingleQuotes": "false"}
    judged = rows.withColumn("record", fn.from_json("value", f"{fields}, _bad string", options))
    well_formed = fn.col("value").rlike(f"^{_FLAT}\\z") & fn.col("record._bad").isNull()
    complete = fn.lit(True)
    for name in words:
        complete &= fn.col(f"record.{name}").rlike(f"^{_WORD}\\z")
    for name in longs:
        complete &= fn.col(f"record.{name}") > 0
    ahead_us = fn.col("record.at_us") - fn.col("sent_us")
    no_text, malformed, incomplete, behind, ahead = REASONS
    why = (
        fn.when(fn.col("value").isNull(), no_text)
        .when(~fn.coalesce(well_formed, fn.lit(False)), malformed)
        .when(~fn.coalesce(complete, fn.lit(False)), incomplete)
        .when(ahead_us < -1_000_000 * BEHIND_S, behind)
        .when(ahead_us > 1_000_000 * AHEAD_S, ahead)
    )
    judged = judged.withColumn("rejected", why)
    is_good = fn.col("rejected").isNull()
    good = [fn.when(is_good, fn.col(f"record.{n}")).alias(n) for n in (*words, *longs)]
    return judged.select(*good, fn.when(~is_good, fn.col("value")).alias("value"), "rejected")


def good_records(
    rows: pa.Table, words: tuple[str, ...], numbers: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """The good records' fields as columns, parsed by Python: for references."""
    names = (*words, *numbers, "at_us")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for chunk in rows.to_batches(65_536):
        sent = chunk.column("sent_us").to_pylist()
        for text, sent_us in zip(chunk.column("value").to_pylist(), sent, strict=True):
            record = _record(text, sent_us, words, names[len(words) :])
            if record is not None:
                for name in names:
                    found[name].append(record[name])
    kinds = {name: np.int64 if name not in words else np.str_ for name in names}
    return {name: np.array(values, dtype=kinds[name]) for name, values in found.items()}


def _record(
    text: str | None, sent_us: int, words: tuple[str, ...], longs: tuple[str, ...]
) -> dict[str, Any] | None:
    if text is None or not re.fullmatch(_FLAT, text):
        return None
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    for name in words:
        if not isinstance(word := record.get(name), str) or not re.fullmatch(_WORD, word):
            return None
    for name in longs:
        if type(number := record.get(name)) is not int or not 0 < number < 2**63:
            return None
    ahead_us = record["at_us"] - sent_us
    return record if -1_000_000 * BEHIND_S <= ahead_us <= 1_000_000 * AHEAD_S else None


def closing(at_s: float, **columns: Any) -> pa.Table:
    """A record so far ahead of `at_s` (Unix seconds) that all windows before it close."""
    moments = np.array([at_s + CLOSING_S])
    return texts(moments, **{name: [value] for name, value in columns.items()})


def closed(ends_us: NDArray[np.int64], at_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which windows the watermark over these records has closed, by the ends of the windows."""
    return np.asarray(ends_us <= at_us.max(initial=0) - 1_000_000 * LATE_S)


def with_bad_rows(
    table: pa.Table,
    share: float,
    random: np.random.Generator,
    faults: Sequence[Callable[[dict[str, Any]], None]],
    in_turn: bool = True,
) -> pa.Table:
    """The table with about that share of bad rows added.

    They are added and replace no good row, so the results stay the same.

    faults: change a copy of a good row in place. in_turn: each fault in turn, or at random.
    """
    import pyarrow as pa

    count = int(random.binomial(table.num_rows, min(1.0, share)))
    if not count:
        return table
    kinds = np.arange(count) if in_turn else random.integers(0, len(faults), count)
    rows = table.take(random.integers(0, table.num_rows, count)).to_pylist()
    for kind, row in zip(kinds, rows, strict=True):
        faults[kind % len(faults)](row)
    return pa.concat_tables([table, pa.Table.from_pylist(rows, schema=table.schema)])


def spoiled(table: pa.Table, share: float, random: np.random.Generator) -> pa.Table:
    """The records with about that share of bad ones added, of every kind."""
    return with_bad_rows(table, share, random, _FAULTS, in_turn=False)


def _text(change: Callable[[str], str | None]) -> Callable[[dict[str, Any]], None]:
    return lambda row: row.update(value=change(row["value"]))


_FAULTS: tuple[Callable[[dict[str, Any]], None], ...] = (
    _text(lambda text: None),
    _text(lambda text: text[: len(text) // 2]),  # torn in the middle
    _text(lambda text: text + text),  # two in one line
    _text(lambda text: "\x00\ufffd" * 50),  # a poison record
    _text(lambda text: "[]"),
    _text(lambda text: re.sub(r"\d+", "1e999", text)),
    _text(lambda text: text.replace('"at_us"', '"at"')),  # a renamed field
    _text(lambda text: re.sub(r":(\d)", r":-\1", text, count=1)),
    lambda row: row.update(sent_us=row["sent_us"] + 3_600_000_000),  # the clock is an hour behind
    lambda row: row.update(sent_us=row["sent_us"] - 3_600_000_000),  # and ahead
)
