"""Event logs as a Spark table of keys and times in microseconds.

A row is a line of CSV or JSON, or a row of Parquet. No row is dropped: an unusable row keeps its
text and gets a reason. Everything is done by native expressions in a single scan of the input.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import InputError, TraceError
from tidegate.workloads.read import TIME_NAMES
from tidegate.workloads.table import is_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FORMATS", "REASONS", "UNITS", "Log", "find_log"]

FORMATS = {
    "csv": ("csv", "tsv", "txt"),
    "json": ("json", "jsonl", "ndjson"),
    "parquet": ("parquet", "pq"),
}
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001, "min": 60_000_000}
"""Microseconds in each unit of numeric times."""
_PACKED = ("gz", "bz2", "zst", "zstd", "lz4", "snappy", "deflate")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
_SAMPLE = 1000
REASONS = (
    *("unreadable row", "missing time", "invalid time", "missing key", "invalid count"),
    "outside the span",
)


@dataclass(frozen=True, slots=True)
class Log:
    """Location and format of an event log.

    Args:
        paths: Files, or a remote address that Spark resolves.
        format: csv, json or parquet.
        time: Column of the time.
        key: Column of the key; None: events have no key.
        count: Column of the number of events of a row; None: one event per row.
        unit: Unit of numeric times, one of `UNITS`; "iso" for text; "auto" to detect it.
        columns: Column names, for CSV without a header line.
        start_us: Start of the span, in microseconds; earlier rows are rejected.
        end_us: End of the span, in microseconds, excluded.
        size_bytes: Size of the files; None if unknown.
    """

    paths: tuple[str, ...]
    format: str
    time: str
    key: str | None = None
    count: str | None = None
    unit: str = "auto"
    columns: tuple[str, ...] = ()
    start_us: int | None = None
    end_us: int | None = None
    size_bytes: int | None = field(default=None, compare=False)

    def rows(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The log as (key, time_us, events, reason, file), and the unit of its times.

        For a row with a reason, key is the row's text and time_us is missing.
        """
        from pyspark.sql import functions as fn

        raw = self._parquet(spark) if self.format == "parquet" else self._text(spark)
        unit = self._unit(raw)
        time, kind = fn.col("time"), dict(raw.dtypes)["time"]
        missing = time.isNull() if kind != "string" else time.isNull() | (fn.trim(time) == "")
        raw = raw.withColumn("time_us", _microseconds(time, kind, unit))
        us = fn.col("time_us")
        outside = fn.lit(False)
        if self.start_us is not None:
            outside |= us < self.start_us
        if self.end_us is not None:
            outside |= us >= self.end_us
        no_key = fn.col("key").isNull() | (fn.trim("key") == "")
        wrong = (fn.col("broken"), missing, us.isNull(), no_key, fn.col("events").isNull(), outside)
        reason = fn.lit(None).cast("string")
        for is_wrong, text in zip(reversed(wrong), reversed(REASONS), strict=True):
            reason = fn.when(is_wrong, text).otherwise(reason)
        raw = raw.withColumn("reason", reason)
        bad = fn.col("reason").isNotNull()
        return raw.select(
            fn.when(bad, fn.col("row")).otherwise(fn.col("key")).alias("key"),
            fn.when(~bad, us).alias("time_us"),
            fn.when(bad, 1).otherwise(fn.col("events")).cast("bigint").alias("events"),
            "reason",
            fn.when(bad, fn.col("file")).alias("file"),
        ), unit

    def _text(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as fn

        lines = spark.read.text(list(self.paths))
        head = spark.read.text(self.paths[0]).head(1)
        if not head:
            raise TraceError(self.paths[0], None, "rows", 0, "at least one", "it is empty")
        value = fn.col("value")
        if self.format == "json":
            names: Sequence[str] = [n for n in (self.time, self.key, self.count) if n is not None]
            parsed = fn.from_json(value, _named(dict.fromkeys(names)), _OPTIONS)
            picked = {name: fn.col("parsed").getField(name) for name in names}
        else:
            header = head[0].value.removeprefix("\ufeff")
            separator = max(",;\t|", key=header.count)
            names = self.columns or [
                c.strip() for c in next(csv.reader([header], delimiter=separator))
            ]
            self._check(names)
            if not self.columns:
                lines = lines.filter((value != header) & (value != "\ufeff" + header))
            # By position: a header may repeat a name or leave it empty.
            schema = _named(f"c{i}" for i in range(len(names)))
            parsed = fn.from_csv(value, schema, _OPTIONS | {"sep": separator})
            picked = {name: fn.col("parsed").getField(f"c{i}") for i, name in enumerate(names)}
        file = fn.col("_metadata.file_path")
        read = lines.select(value.alias("row"), file.alias("file"), parsed.alias("parsed"))
        broken = fn.col("parsed").isNull() | fn.col("parsed").getField(_BROKEN).isNotNull()
        return read.select(
            picked[self.time].alias("time"),
            (picked[self.key] if self.key else fn.lit("all")).alias("key"),
            _events(picked[self.count] if self.count else None).alias("events"),
            broken.alias("broken"),
            "row",
            "file",
        )

    def _parquet(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as fn

        table = spark.read.parquet(*self.paths)
        self._check(table.columns)
        used = [fn.col(_quoted(n)) for n in (self.time, self.key, self.count) if n is not None]
        where = fn.col("_metadata.row_index").alias("row_index")
        return table.select(
            fn.col(_quoted(self.time)).alias("time"),
            (fn.col(_quoted(self.key)).cast("string") if self.key else fn.lit("all")).alias("key"),
            _events(fn.col(_quoted(self.count)) if self.count else None).alias("events"),
            fn.lit(False).alias("broken"),
            # Only the columns in use and the row's number, so that Spark reads no others.
            fn.to_json(fn.struct(where, *used), {"ignoreNullFields": "false"}).alias("row"),
            fn.col("_metadata.file_path").alias("file"),
        )

    def _check(self, names: Iterable[str]) -> None:
        known = list(names)
        for option, name in (("--time", self.time), ("--key", self.key), ("--count", self.count)):
            if name is not None and name not in known:
                remedy = "name one of them, or use --columns if the file has no header line"
                raise InputError(option, name, "a column of " + ", ".join(known), remedy)

    def _unit(self, raw: DataFrame) -> str:
        """The unit of times, by the column's type and name, or else by the first rows."""
        kind = dict(raw.dtypes)["time"]
        if kind.startswith(("timestamp", "date")):
            return "iso"
        if self.unit != "auto":
            return self.unit
        seen = [str(row.time) for row in raw.select("time").head(_SAMPLE) if row.time is not None]
        numbers = sorted(float(text) for text in seen if is_number(text))
        if len(numbers) * 2 <= len(seen):
            return "iso"
        named = TIME_NAMES.get(self.time.strip().lower(), 1.0)
        if named != 1.0:
            return next(unit for unit, us in UNITS.items() if us == round(named * 1e6, 3))
        middle = numbers[len(numbers) // 2]
        return (
            "ns" if middle >= 1e17 else "us" if middle >= 1e14 else "ms" if middle >= 1e11 else "s"
        )


_BROKEN = "broken row"
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"{_quoted(name)} STRING" for name in (*names, _BROKEN))


def _events(column: Column | None) -> Column:
    """The number of events of a row; missing unless it is a whole number of at least 0."""
    from pyspark.sql import functions as fn

    if column is None:
        return fn.lit(1)
    number = column.try_cast("bigint")
    return fn.when((number >= 0) & (number == column.try_cast("double")), number)


def _microseconds(time: Column, kind: str, unit: str) -> Column:
    """A time as whole microseconds, so that steps are exact; missing if it is invalid."""
    from pyspark.sql import functions as fn

    if kind.startswith(("timestamp", "date")):
        return fn.unix_micros(time.cast("timestamp"))
    if unit == "iso":  # without an offset, in the session's time zone
        text = fn.trim(time.cast("string"))
        return fn.unix_micros(fn.when(text.like("____-%"), text.try_cast("timestamp")))
    if kind == "string":
        time = fn.trim(time)
        # Java also parses 12d, NaN and Infinity as numbers.
        fraction = fn.when(fn.right(time, fn.lit(1)) <= "9", time.try_cast("double"))
    else:
        fraction = time.try_cast("double")
    scaled = fn.round(fraction * float(UNITS[unit])).try_cast("bigint")
    if kind not in ("string", "tinyint", "smallint", "int", "bigint"):
        return scaled
    whole = time.try_cast("bigint")
    if unit == "ns":
        exact = (whole / 1000).try_cast("bigint")
    else:
        exact = fn.try_multiply(whole, fn.lit(int(UNITS[unit])))
    return fn.coalesce(exact, scaled)


def find_log(given: str, format: str | None, time: str, **options: Any) -> Log:
    """A log by its path: a file, a folder, a pattern with ``*``, or an address such as hdfs://….

    time: column of the time. format: csv, json or parquet; None: by the file names. options: as in
    `Log`.
    """
    if format is not None and format not in FORMATS:
        raise InputError("--format", format, "one of " + ", ".join(FORMATS))
    if re.match(r"\w{2,}://", given):
        format = format or _format([given], given)
        return Log((given,), format, time, **options)
    path = Path(given)
    if path.is_dir():
        found = [f for f in sorted(path.rglob("*")) if not _hidden(f, path)]
    else:
        root = Path(path.anchor)
        found = [path] if path.exists() else sorted(root.glob(str(path.relative_to(root))))
    found = [f for f in found if f.is_file() and f.stat().st_size]
    if not found:
        remedy = "check the path; quote patterns in a shell"
        raise InputError(
            "INPUT", given, "a file that is not empty, a folder of files or a pattern", remedy
        )
    format = format or _format([f.name for f in found], given)
    if format == "csv" and not options.get("columns"):
        _check_headers(found)
    # Escape characters that Hadoop would read as a pattern.
    paths = tuple(re.sub(r"([\[\]{}*?\\])", r"\\\1", str(f.resolve())) for f in found)
    size = sum(f.stat().st_size for f in found)
    return Log(paths, format, time, size_bytes=size, **options)


def _hidden(file: Path, folder: Path) -> bool:
    """Whether Spark ignores the file too, such as its markers and checksums."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _format(names: Sequence[str], given: str) -> str:
    formats = set()
    for name in names:
        parts = name.lower().rstrip("/").split(".")
        ending = parts[-2] if parts[-1] in _PACKED and len(parts) > 2 else parts[-1]
        formats.add(next((f for f, endings in FORMATS.items() if ending in endings), None))
    if len(formats) == 1 and (only := formats.pop()) is not None:
        return only
    remedy = "choose --format csv, json or parquet, or a pattern of one kind of file"
    raise InputError("INPUT", given, "files of one known kind", remedy)


def _check_headers(files: Sequence[Path]) -> None:
    """Refuse CSV files with different headers."""
    first: str | None = None
    for file in files:
        if file.suffix not in (".csv", ".tsv", ".txt", *_OPENERS):
            continue
        try:
            with _OPENERS.get(file.suffix, open)(
                file, "rt", encoding="utf-8-sig", errors="replace"
            ) as text:
                header = text.readline().rstrip("\r\n")
        except (OSError, EOFError) as error:
            raise TraceError(str(file), None, "file", str(error), "readable") from None
        if first is None:
            first = header
        elif header != first and header:
            remedy = "use files with the same columns, or --columns for files without a header"
            raise TraceError(
                str(file), 1, "header", header, f"{first!r} as in {files[0].name}", remedy
            )
