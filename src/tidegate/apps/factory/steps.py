"""The nine operators of the factory as functions on rows.

Images are read and reports drawn in Python; all the rest are native expressions, with state in
Spark's state store. Every function sets aside what it cannot use, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidegate.apps.factory.plant import STATUSES
from tidegate.apps.factory.reader import ReaderName, Unreadable, read
from tidegate.apps.factory.succession import with_predecessor

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = [
    "IMAGES",
    "READINGS",
    "TOLERANCE_MS",
    "TOO_HOT",
    "calculate_availability",
    "calculate_oee",
    "calculate_performance",
    "calculate_quality",
    "filter_availability",
    "generate_report",
    "inform_user",
    "monitor_temperature",
    "parse_images",
]


def _schema(**types: str) -> StructType:
    schema = StructType()
    for name, kind in types.items():
        schema = schema.add(name, kind)
    return schema


_ENVELOPE = {"machine": "integer", "number": "long", "received_ms": "long"}
READINGS = _schema(id="long", **_ENVELOPE, body="string")
IMAGES = _schema(id="long", **_ENVELOPE, image="binary")
_SHOWN = ("total_ms", "planned_ms", "defect_ms", "made", "bad")
_DISPLAYS = _schema(
    **_ENVELOPE, shown="integer", at_ms="long", **dict.fromkeys(_SHOWN, "long"), why="string"
)

TOLERANCE_MS = 5000
"""How far a machine's clock may be off the gateway's."""
TOO_HOT = 100.0
"""Degrees Celsius above which a warning is due."""
_JOIN_WITHIN = "6 hours"
"""How far in event time the three parts of an OEE may come apart before they are forgotten."""

NO_ENVELOPE = "no machine, number or time in the envelope"
CLOCK_OFF = f"clock more than {TOLERANCE_MS // 1000} s off the gateway's"
BACKWARDS = "clock went backwards"
ANOTHERS = "another machine's message"


def _first_reason(*cases: tuple[Column, str]) -> Column:
    """The reason of the first case that holds, null when none does."""
    return fn.coalesce(*(fn.when(case, fn.lit(reason)) for case, reason in cases))


def _envelope_faults(at_ms: Column, machine: Column) -> tuple[tuple[Column, str], ...]:
    no_envelope = fn.greatest(*(fn.col(name).isNull() for name in _ENVELOPE))
    return (
        (no_envelope, NO_ENVELOPE),
        (machine != fn.col("machine"), ANOTHERS),
        (fn.abs(at_ms - fn.col("received_ms")) > TOLERANCE_MS, CLOCK_OFF),
    )


# O1: parse and distribute data


def parse_images(rows: DataFrame, reader: ReaderName) -> DataFrame:
    """O1: what the displays show, one row an image; O3, O4 and O5 each read all of them."""

    def readings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(_DISPLAYS)
        for batch in batches:
            yield _read_all(batch, reader, schema)

    read_rows = rows.select(*_ENVELOPE, "image").mapInArrow(readings, _DISPLAYS)
    faults = (
        *_envelope_faults(fn.col("at_ms"), fn.col("shown")),
        (fn.col("total_ms") == 0, "production has not begun"),
    )
    rejected = fn.coalesce(fn.col("why"), _first_reason(*faults)).alias("rejected")
    return read_rows.select("machine", "number", "at_ms", *_SHOWN, rejected)


def _read_all(batch: pa.RecordBatch, reader: ReaderName, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    names = ("shown", "at_ms", *_SHOWN, "why")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for image in batch.column("image").to_pylist():
        display, why = None, None
        try:
            display = read(image, reader)
        except Unreadable as reason:
            why = str(reason)
        except Exception as error:  # whatever one record does, the stream goes on
            why = f"poison: {type(error).__name__}"
        for name, value in zip(names, (*(display or [None] * 7), why), strict=True):
            columns[name].append(value)
    envelope = {name: batch.column(name) for name in _ENVELOPE}
    return pa.RecordBatch.from_pydict({**envelope, **columns}, schema=schema)


# O2 and O6: warnings from readings


def filter_availability(rows: DataFrame) -> DataFrame:
    """O2: a warning for each new defect; everything else is filtered out."""
    known = fn.col("said.status").isin(*STATUSES)
    return _warnings(
        rows,
        ("status", "string"),
        senseless=(fn.coalesce(~known, fn.lit(True)), "unknown status"),
        alarming=lambda which: fn.col(f"{which}.status") == "DEFECT",
        kind="defect",
        value=fn.lit(None).cast("double"),
    )


def monitor_temperature(rows: DataFrame) -> DataFrame:
    """O6: a warning each time that a machine has become too hot."""
    sensible = fn.col("said.celsius").between(-273.15, 2000)  # not a number is above all numbers
    return _warnings(
        rows,
        ("celsius", "double"),
        senseless=(fn.coalesce(~sensible, fn.lit(True)), "temperature makes no sense"),
        alarming=lambda which: fn.col(f"{which}.celsius") > TOO_HOT,
        kind="temperature",
        value=fn.col("here.celsius"),
    )


def _warnings(
    rows: DataFrame,
    field: tuple[str, str],
    *,
    senseless: tuple[Column, str],
    alarming: Any,
    kind: str,
    value: Column,
) -> DataFrame:
    """Readings that alarm where the one before them did not, and those that are set aside.

    A reading that was set aside is not known to have alarmed: better a warning twice than none.
    """
    name, kind_of = field
    fields = f"machine int, at_ms long, {name} {kind_of}, broken string"
    options = {"columnNameOfCorruptRecord": "broken"}
    said = rows.withColumn("said", fn.from_json("body", fields, options))
    broken = fn.col("said.broken").isNotNull() | fn.col("said.at_ms").isNull()
    faults = (
        (fn.col("body").isNull() | broken, "malformed JSON"),
        *_envelope_faults(fn.col("said.at_ms"), fn.col("said.machine")),
        senseless,
    )
    fault = _first_reason(*faults).alias("fault")
    readings = said.select("id", *_ENVELOPE, "said.at_ms", f"said.{name}", fault)
    pairs = with_predecessor(readings, "received_ms")
    good_before = fn.col("before").isNotNull() & fn.col("before.fault").isNull()
    back = good_before & (fn.col("here.at_ms") < fn.col("before.at_ms"))
    rejected = fn.coalesce(fn.col("here.fault"), _first_reason((back, BACKWARDS)))
    new = alarming("here") & ~(good_before & alarming("before"))
    return (
        pairs.withColumn("rejected", rejected)
        .filter(fn.col("rejected").isNotNull() | fn.coalesce(new, fn.lit(False)))
        .select(
            "machine",
            "number",
            "here.at_ms",
            fn.lit(kind).alias("kind"),
            value.alias("value"),
            fn.lit(None).cast("string").alias("about"),
            "rejected",
        )
    )


# O3, O4, O5 and O7: overall equipment effectiveness


def calculate_performance(rows: DataFrame, ideal_s: float) -> DataFrame:
    """O3, equation 2: goods of the last reporting cycle against what is ideally possible.

    The cycle is the time since the report before, or since the production began when this is the
    first report of it. ideal_s: ideal production time of one good.
    """
    needed = rows.select("machine", "number", "at_ms", "total_ms", "made")
    pairs = with_predecessor(needed, "at_ms")
    first = fn.col("before").isNull() | (fn.col("here.total_ms") < fn.col("before.total_ms"))
    cycle_ms = fn.when(first, fn.col("here.total_ms")).otherwise(
        fn.col("here.at_ms") - fn.col("before.at_ms")
    )
    made = fn.col("here.made") - fn.when(first, 0).otherwise(fn.col("before.made"))
    back = fn.col("here.at_ms") <= fn.col("before.at_ms")
    rejected = _first_reason((back, BACKWARDS))
    value = fn.when(rejected.isNull(), made * (1000 * ideal_s) / cycle_ms)
    return pairs.select(
        "machine",
        "number",
        "here.at_ms",
        fn.lit("performance").alias("kind"),
        value.alias("value"),
        rejected.alias("rejected"),
    )


def calculate_availability(rows: DataFrame) -> DataFrame:
    """O4, equation 3: the share of the time since the production began that was not downtime."""
    total = fn.col("total_ms")
    up = total - fn.col("planned_ms") - fn.col("defect_ms")
    return _part(rows, "availability", up / total)


def calculate_quality(rows: DataFrame) -> DataFrame:
    """O5, equation 4: the share of all goods that are good; of no goods, none is bad."""
    made = fn.col("made")
    return _part(rows, "quality", fn.when(made == 0, 1.0).otherwise((made - fn.col("bad")) / made))


def _part(rows: DataFrame, kind: str, value: Column) -> DataFrame:
    return rows.select(
        "machine", "number", "at_ms", fn.lit(kind).alias("kind"), value.alias("value")
    )


def calculate_oee(rows: DataFrame) -> DataFrame:
    """O7, equation 5: the product of the three parts that have the same initial timestamp.

    It is sent when its last part comes, not when a watermark has passed: that only forgets parts
    whose siblings never came. It moves once an hour, so that it seldom asks for a batch of its own.
    """

    def part(kind: str) -> Column:
        return fn.max(fn.when(fn.col("kind") == kind, fn.col("value"))).alias(kind)

    kinds = ("availability", "performance", "quality")
    hour = fn.date_trunc("hour", fn.timestamp_millis("at_ms"))
    return (
        rows.withColumn("hour", hour)
        .withWatermark("hour", _JOIN_WITHIN)
        .groupBy("hour", "machine", "number", "at_ms")
        .agg(*map(part, kinds))
        .dropna(subset=list(kinds))
        .selectExpr(
            "machine",
            "number",
            "at_ms",
            *kinds,
            "availability * performance * quality AS oee",
        )
    )


# O8 and O9: people


def generate_report(rows: DataFrame, folder: Path, span_ms: int) -> DataFrame:
    """O9: a PDF report on each span of time, once no value of it is to be expected any more.

    That is when a value of the next span but one has come: values may be late by a whole span.
    folder: for the reports, shared by all executors. span_ms: length of a span.
    """

    def write(start_ms: int, values: list[Any]) -> tuple[str | None, str | None]:
        from tidegate.apps.factory.report import write_report

        try:
            plain = [(v.machine, v.at_ms, v.oee) for v in values]
            return write_report(folder, start_ms, start_ms + span_ms, plain).name, None
        except Exception as error:  # a report less, and the stream goes on
            return None, f"report not written: {type(error).__name__}"

    start_ms = (fn.floor(fn.col("at_ms") / span_ms) * span_ms).cast("long")
    write.__annotations__.clear()  # Spark would try to understand them, and warn
    written = fn.udf(write, "about string, rejected string")
    return (
        rows.withColumn("span", fn.timestamp_millis(start_ms))
        .withWatermark("span", f"{2 * span_ms} milliseconds")
        .groupBy("span")
        .agg(
            fn.collect_list(fn.struct("machine", "at_ms", "oee")).alias("of"),
            fn.avg("oee").alias("value"),
        )
        .withColumn("at_ms", fn.unix_millis("span"))
        .withColumn("written", written("at_ms", "of"))
        .selectExpr(
            "CAST(NULL AS int) AS machine",
            "CAST(NULL AS long) AS number",
            "at_ms",
            "'report' AS kind",
            "value",
            "written.about AS about",
            "written.rejected AS rejected",
        )
    )


def inform_user(rows: DataFrame) -> DataFrame:
    """O8: a sentence for the supervisor, of each warning and each report."""
    text = (
        fn.when(fn.col("kind") == "report", fn.concat(fn.lit("new report: "), fn.col("about")))
        .when(
            fn.col("kind") == "temperature",
            fn.format_string("machine %d is too hot: %s degrees", "machine", "value"),
        )
        .otherwise(fn.format_string("machine %d has a defect", "machine"))
    )
    return rows.select("machine", "at_ms", "kind", text.alias("text"))
