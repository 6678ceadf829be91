"""The nine operators of the factory as functions on rows.

Images are read and reports are drawn in Python; everything else is a native expression, with state
in Spark's state store. Every function sets unusable rows aside, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from tidegate.apps.application import columns
from tidegate.apps.factory.display import ReaderName, Unreadable, read
from tidegate.apps.factory.plant import STATUSES

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


_ENVELOPE = {"machine": "integer", "number": "long", "received_ms": "long"}
READINGS = columns(id="long", **_ENVELOPE, body="string")
IMAGES = columns(id="long", **_ENVELOPE, image="binary")
_SHOWN = ("total_ms", "planned_ms", "defect_ms", "made", "bad")
_DISPLAYS = columns(
    **_ENVELOPE, shown="integer", at_ms="long", **dict.fromkeys(_SHOWN, "long"), why="string"
)

TOLERANCE_MS = 5000
"""Maximum difference between the clocks of a machine and the gateway."""
TOO_HOT = 100.0
"""Temperature of a warning, in degrees Celsius."""
SPAN_MS = 600_000
"""A predecessor counts if it is from the same span of this length, or the span before."""
_KEPT = "30 minutes"
_JOIN_WITHIN = "6 hours"
"""Maximum distance in event time between the three parts of an OEE."""

NO_ENVELOPE = "no machine, number or time in the envelope"
CLOCK_OFF = f"clock more than {TOLERANCE_MS // 1000} s off the gateway's"
BACKWARDS = "clock went backwards"
ANOTHERS = "another machine's message"


def _first_reason(*cases: tuple[Column, str]) -> Column:
    """The reason of the first case that holds; null if none holds."""
    return fn.coalesce(*(fn.when(case, fn.lit(reason)) for case, reason in cases))


def _envelope_faults(at_ms: Column, machine: Column) -> tuple[tuple[Column, str], ...]:
    no_envelope = fn.greatest(*(fn.col(name).isNull() for name in _ENVELOPE))
    return (
        (no_envelope, NO_ENVELOPE),
        (machine != fn.col("machine"), ANOTHERS),
        (fn.abs(at_ms - fn.col("received_ms")) > TOLERANCE_MS, CLOCK_OFF),
    )


def with_predecessor(messages: DataFrame, time: str) -> DataFrame:
    """Columns machine, number, here, before: each message with its machine's previous message.

    Whether a defect is new, how long a reporting cycle was and whether a clock went backwards
    depends on a message and its predecessor. Micro-batches do not keep the order of messages, but
    the gateway has numbered them: a message waits in the state store for its predecessor. So the
    result depends on the messages alone, not on batches, instances or restarts. It is an
    aggregation, because native state is much cheaper than a Python processor
    (`transformWithState`), which starts a process with each query and uses a socket.

    messages: with the columns machine and number, which counts from 0 on each connection. All other
    columns are gathered in `here`, and those of the predecessor in `before`, which is null for
    number 0. A message whose predecessor is lost is left out; one without machine or number is
    passed on alone.
    time: column with Unix milliseconds; it only decides when state is dropped.
    """
    others = [name for name in messages.columns if name not in ("machine", "number")]
    message = fn.struct(*others)
    nothing = fn.lit(None).cast(messages.select(message.alias("m")).schema["m"].dataType)
    number, span = fn.col("number"), fn.floor(fn.col(time) / SPAN_MS)
    alone = fn.col("machine").isNull() | number.isNull()

    # A message has its own role, and that of predecessor of the next one, in this span or the next.
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


# O1: parse and distribute data


def parse_images(rows: DataFrame, reader: ReaderName) -> DataFrame:
    """O1: the numbers of the displays, one row per image; O3, O4 and O5 each read all of them."""

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
        except Exception as error:  # one bad record must not stop the stream
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
    """O6: a warning each time a machine becomes too hot."""
    sensible = fn.col("said.celsius").between(-273.15, 2000)  # NaN is greater than all numbers
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
    """Alarming readings whose predecessor is not alarming, and readings that are set aside.

    A reading that is set aside does not count as alarming: a repeated warning is better than none.
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
    """O3, equation 2: goods of the last reporting cycle relative to the ideal number.

    The cycle is the time since the previous report, or since the production began for its first
    report. ideal_s: ideal production time of one good.
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
    """O4, equation 3: the share of the production time that was not downtime."""
    total = fn.col("total_ms")
    up = total - fn.col("planned_ms") - fn.col("defect_ms")
    return _part(rows, "availability", up / total)


def calculate_quality(rows: DataFrame) -> DataFrame:
    """O5, equation 4: the share of goods that are not bad; 1 if there are none."""
    made = fn.col("made")
    return _part(rows, "quality", fn.when(made == 0, 1.0).otherwise((made - fn.col("bad")) / made))


def _part(rows: DataFrame, kind: str, value: Column) -> DataFrame:
    return rows.select(
        "machine", "number", "at_ms", fn.lit(kind).alias("kind"), value.alias("value")
    )


def calculate_oee(rows: DataFrame) -> DataFrame:
    """O7, equation 5: the product of the three parts that have the same initial timestamp.

    It is sent when its last part arrives. The watermark only drops parts that stay incomplete; it
    moves once an hour, so that it rarely causes an extra batch.
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


# O8 and O9: reports and messages


def generate_report(rows: DataFrame, folder: Path, span_ms: int) -> DataFrame:
    """O9: a PDF report on each span of time, when its values are complete.

    That is when a value of the next span but one has arrived: values may be late by a whole span.
    folder: for the reports, shared by all executors. span_ms: length of a span.
    """

    def write(start_ms: int, values: list[Any]) -> tuple[str | None, str | None]:
        from tidegate.apps.factory.report import write_report

        try:
            plain = [(v.machine, v.at_ms, v.oee) for v in values]
            return write_report(folder, start_ms, start_ms + span_ms, plain).name, None
        except Exception as error:  # a missing report must not stop the stream
            return None, f"report not written: {type(error).__name__}"

    start_ms = (fn.floor(fn.col("at_ms") / span_ms) * span_ms).cast("long")
    write.__annotations__.clear()  # Spark would interpret them and warn
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
    """O8: a sentence for the supervisor about each warning and each report."""
    text = (
        fn.when(fn.col("kind") == "report", fn.concat(fn.lit("new report: "), fn.col("about")))
        .when(
            fn.col("kind") == "temperature",
            fn.format_string("machine %d is too hot: %s degrees", "machine", "value"),
        )
        .otherwise(fn.format_string("machine %d has a defect", "machine"))
    )
    return rows.select("machine", "at_ms", "kind", text.alias("text"))
