"""Build a rate trace and statistics of its keys from an event log of any size, in one scan.

The scan counts events by key and by *octet*, eight consecutive steps in one row. Rates, rejected
rows and burstiness at eight scales follow from these rows by arithmetic. Only bounded results are
collected on the driver: the counts by step, the largest keys, and the number of keys of each size
(n rows have at most √(2n) sizes).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate import __version__
from tidegate.errors import BackendError, InputError
from tidegate.lab.traces.read import REASONS, Log
from tidegate.spark.autoscaler.versions import require_spark_4
from tidegate.workloads import RateTrace, describe
from tidegate.workloads.built import PROVENANCE, REJECTED, BuiltTrace, write_built
from tidegate.workloads.burstiness import (
    gini,
    key_statistics,
    lorenz,
    usable_scales,
    whole_blocks,
)
from tidegate.workloads.describe import MOST_STEPS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["MOST_KEYS", "build_trace", "refuse_to_replace"]

MOST_KEYS = 100_000
"""Most keys with statistics, the largest first; the skew includes all keys."""
_WIDTH = 8
_CELLS = [f"c{i}" for i in range(_WIDTH)]


def build_trace(
    spark: SparkSession,
    log: Log,
    step_s: float,
    out: str | Path,
    *,
    time_zone: str = "UTC",
    overwrite: bool = False,
    table: str = "csv",
    most_keys: int = MOST_KEYS,
    given: str | None = None,
) -> BuiltTrace:
    """Count a log's events by step and key, and write the folder that `read_built` reads.

    Args:
        spark: Session that runs the scan.
        log: The log.
        step_s: Length of a step, in seconds; whole microseconds. Steps begin at multiples of it.
            A step without events within the span counts as zero.
        out: Folder to write. It appears only when it is complete.
        time_zone: Time zone of times without an offset.
        overwrite: Replace an earlier build.
        table: Format of the trace and the keys: csv or parquet.
        most_keys: Most keys with statistics.
        given: The input as the user wrote it, for the provenance.
    """
    require_spark_4(spark.version, "tidegate traces build")
    begun = time.perf_counter()
    step_us = round(step_s * 1e6)
    if step_us < 1 or abs(step_us - step_s * 1e6) > 1e-6:
        raise InputError("--step", step_s, "a whole number of microseconds, at least one")
    with (
        _session_zone(spark, time_zone),
        _in_place_of(Path(out), overwrite) as folder,
        _spark_errors(),
    ):
        rows, unit = log.rows(spark)
        octets = _octets(rows, step_us).persist()
        try:
            counts, first, seen = _by_step(octets, step_us)
            times_s = np.arange(len(counts), dtype=np.float64) * (step_us / 1e6)
            trace = RateTrace(times_s, counts / (step_us / 1e6))
            keys: dict[str, Any] = {}
            skew: dict[str, Any] | None = None
            if log.key is not None:
                keys, skew = _keys(octets, len(counts), first, step_us / 1e6, most_keys)
            if sum(seen["rejected"].values()):
                _write_rejected(octets, folder / REJECTED)
        finally:
            octets.unpersist()
        provenance = {
            "tidegate": __version__,
            "built": datetime.now(UTC).isoformat(timespec="seconds"),
            "input": given or ", ".join(log.paths),
            "files": len(log.paths),
            "bytes": log.size_bytes,
            "format": log.format,
            "time": log.time,
            "unit": unit,
            "time_zone": time_zone,
            "key": log.key,
            "count": log.count,
            **seen,
            "first_step": _clock(first * step_us, unit),
            "step_s": step_us / 1e6,
            "steps": len(counts),
            "span_s": len(counts) * step_us / 1e6,
            "whole": asdict(describe(trace)),
            "skew": skew,
            "seconds": round(time.perf_counter() - begun, 2),
        }
        built = BuiltTrace(trace, keys, provenance, Path(out) / f"trace.{table}")
        write_built(built, folder, table)
    return built


def _octets(rows: DataFrame, step_us: int) -> DataFrame:
    """Events by key and eight steps. A rejected row is a separate key with a reason."""
    from pyspark.sql import functions as fn

    slot = fn.expr(f"(time_us - pmod(time_us, {step_us})) div {step_us}")
    events, place = fn.col("events"), fn.coalesce(fn.pmod("slot", fn.lit(_WIDTH)), fn.lit(0))
    cells = [
        fn.sum(fn.when(place == i, events).otherwise(0)).alias(c) for i, c in enumerate(_CELLS)
    ]
    rows = rows.withColumn("slot", slot)
    grouped = rows.groupBy("key", _octet(fn.col("slot")).alias("octet"), "reason", "file")
    return grouped.agg(*cells, fn.count(fn.lit(1)).alias("rows"))


def _octet(number: Column) -> Column:
    from pyspark.sql import functions as fn

    return fn.floor(number / _WIDTH)


def _by_step(octets: DataFrame, step_us: int) -> tuple[Any, int, dict[str, Any]]:
    """Events in each step of the span, the number of its first step, and totals."""
    from pyspark.sql import functions as fn

    most = MOST_STEPS // _WIDTH + len(REASONS) + 2
    sums = [fn.sum(c).alias(c) for c in (*_CELLS, "rows")]
    found = octets.groupBy("reason", "octet").agg(*sums).limit(most + 1).toArrow().to_pydict()
    reasons = np.array(found["reason"], dtype=object)
    good = np.array([reason is None for reason in reasons], dtype=bool)
    rows = np.array(found["rows"], dtype=np.int64)
    rejected = {reason: int(rows[reasons == reason].sum()) for reason in REASONS}
    rejected = {reason: number for reason, number in rejected.items() if number}
    if not good.any():
        raise _nothing_usable(octets, rejected)
    octet = np.array([n for n in found["octet"] if n is not None], dtype=np.int64)
    cells = np.stack([np.array(found[c], dtype=np.float64)[good] for c in _CELLS], axis=1)
    start, stop = int(octet.min()) * _WIDTH, (int(octet.max()) + 1) * _WIDTH
    if stop - start > MOST_STEPS or len(rows) > most:
        span = f"from {_clock(start * step_us, 'iso')} to {_clock(stop * step_us, 'iso')}"
        raise InputError(
            *("--step", step_us / 1e6, f"long enough for at most {MOST_STEPS:,} steps {span}"),
            "raise it, or remove stray times with --from and --until",
        )
    counts = np.zeros(stop - start)
    counts.reshape(-1, _WIDTH)[octet - octet.min()] = cells
    occupied = np.flatnonzero(counts)
    if len(occupied) == 0 or occupied[0] == occupied[-1]:
        remedy = "all events fall into one step; choose a shorter one"
        raise InputError("--step", step_us / 1e6, "short enough for several steps", remedy)
    counts = counts[occupied[0] : occupied[-1] + 1]
    seen = {
        "rows": int(rows.sum()),
        "rows_used": int(rows[good].sum()),
        "events": int(counts.sum()),
        "rejected": rejected,
    }
    return counts, start + int(occupied[0]), seen


def _nothing_usable(octets: DataFrame, rejected: dict[str, int]) -> InputError:
    if not rejected:
        return InputError("INPUT", 0, "at least one row", "it has none after its header")
    example = octets.select("key").head()
    shown = ", ".join(f"{number:,} x {reason}" for reason, number in rejected.items())
    remedy = f"{shown}; such as {example.key[:120] if example else ''!r}"
    return InputError("usable rows", 0, "at least one", remedy)


def _keys(
    octets: DataFrame, steps: int, first: int, step_s: float, most: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Statistics of the largest keys, and the skew of all keys."""
    from pyspark.sql import functions as fn

    scales = usable_scales(steps, first) or [1]
    moments = _moments(octets.filter("reason IS NULL"), steps, first, scales).persist()
    try:
        largest = moments.orderBy(fn.desc("events"), "key").limit(most).toArrow().to_pydict()
        sizes = moments.groupBy("events").count().toArrow().to_pydict()
    finally:
        moments.unpersist()
    size, number = np.array(sizes["events"]), np.array(sizes["count"], dtype=np.float64)
    events = np.array(largest["events"])
    statistics = key_statistics(
        *(steps, step_s, first, events, np.array(largest["peak"])),
        np.stack([np.array(largest[f"sum{m}"]) for m in scales], axis=1),
        np.stack([np.array(largest[f"square{m}"]) for m in scales], axis=1),
    )
    total = float((size * number).sum())
    statistics["share"] = events / total  # of all events, including keys that are not listed
    grid = np.linspace(0, 1, 101)
    skew = {
        "keys": int(number.sum()),
        "listed": len(events),
        "listed_share": float(events.sum() / total),
        "gini": gini(size, number),
        "top_share": {
            str(n): float(events[:n].sum() / total) for n in (1, 10, 100) if n <= len(events)
        },
        "lorenz": [round(float(y), 6) for y in np.interp(grid, *lorenz(size, number))],
    }
    keys = {"key": largest["key"], "events": [int(n) for n in events], **statistics}
    return keys, skew


def _moments(octets: DataFrame, steps: int, first: int, scales: list[int]) -> DataFrame:
    """Sums of events and of their squares by key, in whole blocks of 1, 2, 4 … steps.

    A row of eight cells gives three scales. Then eight rows become the cells of one row.
    """
    from pyspark.sql import functions as fn

    carried: list[str] = []
    level, base = octets.select("key", "octet", *[fn.col(c).cast("double") for c in _CELLS]), 1
    while True:
        cells = [fn.col(c) for c in _CELLS]
        new: dict[str, Column] = {}
        for size in (size for size in (1, 2, 4) if size * base in scales):
            begin, number = whole_blocks(steps, size * base, first)
            low = (first + begin) // (size * base)
            blocks = []
            for i in range(0, _WIDTH, size):
                index = fn.col("octet") * (_WIDTH // size) + i // size
                inside = (index >= low) & (index < low + number)
                blocks.append(fn.when(inside, _total(cells[i : i + size])).otherwise(0.0))
            new[f"sum{size * base}"] = _total(blocks)
            new[f"square{size * base}"] = _total([block * block for block in blocks])
        if base == 1:
            new["peak"] = fn.greatest(*cells)
        level = level.select(
            "key",
            "octet",
            _total(cells).alias("events"),
            *carried,
            *(c.alias(n) for n, c in new.items()),
        )
        carried += new
        sums = [(fn.max if n == "peak" else fn.sum)(n).alias(n) for n in carried]
        base *= _WIDTH
        if base > scales[-1]:
            return level.groupBy("key").agg(fn.sum("events").alias("events"), *sums)
        place = fn.pmod("octet", fn.lit(_WIDTH))
        into = [
            fn.sum(fn.when(place == i, fn.col("events")).otherwise(0.0)).alias(c)
            for i, c in enumerate(_CELLS)
        ]
        level = level.groupBy("key", _octet(fn.col("octet")).alias("octet")).agg(*into, *sums)


def _total(columns: list[Column]) -> Column:
    total = columns[0]
    for column in columns[1:]:
        total = total + column
    return total


def _write_rejected(octets: DataFrame, folder: Path) -> None:
    from pyspark.sql import functions as fn

    rows = octets.filter("reason IS NOT NULL")
    kept = rows.select("reason", "file", fn.col("key").alias("row"), fn.col("rows").alias("times"))
    marks = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    kept.write.option(marks, "false").json(str(folder))
    for checksum in folder.glob(".*.crc"):
        checksum.unlink()


def _clock(us: int, unit: str) -> str | float:
    """A time as ISO 8601; as seconds if times do not count from 1970."""
    if unit != "iso" and us < 86_400e6 * 366:
        return us / 1e6
    try:
        return datetime.fromtimestamp(us / 1e6, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return us / 1e6


@contextlib.contextmanager
def _session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    spark.conf.set(key, zone)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # an interrupted session may be gone
            spark.conf.set(key, before or "UTC")


def refuse_to_replace(out: Path, overwrite: bool) -> None:
    """Raise InputError if `out` exists without `overwrite`, or is not an earlier build."""
    if out.exists() and not overwrite:
        remedy = "choose another folder, or replace it with --overwrite"
        raise InputError("--out", str(out), "a folder that does not exist", remedy)
    foreign = out.exists() and not (out / PROVENANCE).is_file()
    if foreign and (not out.is_dir() or any(out.iterdir())):
        remedy = "it holds other files, which are not deleted: choose another folder"
        raise InputError("--out", str(out), "new, or a folder of an earlier build", remedy)


@contextlib.contextmanager
def _in_place_of(out: Path, overwrite: bool) -> Iterator[Path]:
    """A hidden folder that becomes `out` at the end of the block; removed on failure."""
    refuse_to_replace(out, overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent.resolve()))
    except OSError as error:
        remedy = error.strerror or "choose another folder"
        raise InputError("--out", str(out), "a folder that can be written", remedy) from None
    new, old = hidden / "new", hidden / "old"
    new.mkdir()
    try:
        yield new
        if out.exists():
            out.rename(old)
        new.rename(out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's errors into a BackendError of one sentence."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if line.startswith("Caused by:")), lines[0])
        raise BackendError(f"Spark could not read the log: {cause[:300]}") from error
