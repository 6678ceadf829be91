"""Reading recorded workloads: a table of rates, a table of counts, or a log of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from tidegate.errors import InputError
from tidegate.workloads.events import EventLog
from tidegate.workloads.protocol import FloatArray
from tidegate.workloads.rates import Interpolation, RateTrace
from tidegate.workloads.table import Table, read_table

__all__ = ["read_trace"]

Kind = Literal["auto", "rate", "counts", "events"]
Gaps = Literal["error", "hold", "zero"]

# Usual names of columns; for times with the unit in seconds.
TIME_NAMES = {
    **dict.fromkeys(("t_s", "t", "time_s", "time", "seconds", "second", "secs"), 1.0),
    **dict.fromkeys(("timestamp", "ts", "datetime", "date", "event_time", "timestamp_s"), 1.0),
    **dict.fromkeys(("t_ms", "time_ms", "timestamp_ms", "ts_ms", "ms"), 1e-3),
    **dict.fromkeys(("t_us", "time_us", "timestamp_us", "ts_us"), 1e-6),
    **dict.fromkeys(("t_ns", "time_ns", "timestamp_ns", "ts_ns"), 1e-9),
    **dict.fromkeys(("minute", "minutes", "t_min"), 60.0),
}
RATE_NAMES = (
    *("rate", "rate_per_s", "items_per_s", "events_per_s", "requests_per_s", "tuples_per_s"),
    *("rps", "qps", "tps", "throughput", "value"),
)
COUNT_NAMES = (
    *("count", "counts", "events", "items", "requests", "messages", "tuples", "hits"),
    *("trades", "tweets", "invocations"),
)
KEY_NAMES = ("key", "symbol", "isin", "product", "user", "user_id", "company", "machine", "sensor")
MOST_PER_S = 1e12
"""The largest rate or count of a row. Sums of larger ones lose single items."""
MOST_STEPS = 20_000_000
"""The largest number of steps of a trace, some hundred megabytes."""
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}


def read_trace(
    path: str | Path,
    kind: Kind = "auto",
    *,
    time: str | None = None,
    value: str | None = None,
    key: str | None = None,
    time_unit: str | None = None,
    gaps: Gaps | None = None,
    sort: bool = False,
    interpolation: Interpolation = "step",
    source: str = "input",
    seed: int = 0,
) -> RateTrace | EventLog:
    r"""Read a workload from a file; an error names the line and the remedy.

    The file is CSV (also gzipped; comma, semicolon or tab) or Parquet. It holds rates (``t_s,
    rate``), counts per step (``minute,symbol,trades``: counts at the same time are added, and a
    step without a row counts as zero) or one row for each event (timestamps, optionally with a
    key). Times are numbers or ISO 8601, relative to the first row (events: to its whole second).

    Args:
        path: The file.
        kind: Kind of rows; "auto" decides by the columns: a rate, else a count, else events.
        time: Name of the time column, if it is not a usual one.
        value: Name of the column of rates or counts, if it is not a usual one.
        key: Name of the key column, if it is not a usual one.
        time_unit: s, ms, us, ns or min, if the name of the column does not imply it.
        gaps: How to treat a missing row in a table (a step above 1.5 times the usual one): "error"
            names the line, "hold" keeps the previous rate (also for hand-written tables of steps),
            "zero" means that nothing arrived. Default: "error" for rates, "zero" for counts.
            Events have no gaps.
        sort: Whether to sort the rows instead of refusing an unsorted file.
        interpolation: As in `RateTrace`.
        source: Name of the source.
        seed: Random seed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "day.csv"
    >>> _ = file.write_text("t_s,rate\n0,10\n60,30\n120,20\n")
    >>> read_trace(file).rate(75)
    30.0
    """
    table = read_table(path)
    for name, setting, allowed in (
        ("kind", kind, ("auto", "rate", "counts", "events")),
        ("gaps", gaps, (None, "error", "hold", "zero")),
        ("time_unit", time_unit, (None, *_UNITS)),
    ):
        if setting not in allowed:
            raise InputError(name, setting, "one of " + ", ".join(map(str, allowed)))
    time_column = _pick(table, "time", time, TIME_NAMES, "t_s")
    names = {"rate": RATE_NAMES, "counts": COUNT_NAMES}
    if kind == "auto":
        kind = "events"
        for candidate in ("counts", "rate"):
            if value in table.names or _find(table, names[candidate]):
                kind = candidate
    unit_s = _UNITS[time_unit] if time_unit else TIME_NAMES.get(_plain(time_column), 1.0)
    times_s = table.times(time_column, unit_s)
    if sort:
        order = np.argsort(times_s, kind="stable")
        table, times_s = table.in_order(order), times_s[order]
    _check_times(table, time_column, times_s, distinct=kind == "rate")
    if kind == "events":
        key_column = _find(table, KEY_NAMES) if key is None else _pick(table, "key", key, (), key)
        keys = None if key_column is None else np.array(table.column(key_column))
        return EventLog(times_s - np.floor(times_s[0]), source, keys)
    column = _pick(table, "rate" if kind == "rate" else "count", value, names[kind], "rate")
    values = table.numbers(column)
    remedy = "fill it in, or remove the row and set gaps to hold or zero"
    table.refuse(np.isnan(values), column, "a number", remedy)
    table.refuse(~np.isfinite(values), column, "a finite number", "correct the row")
    table.refuse(values < 0, column, "a number of at least 0", "correct the row")
    table.refuse(values > MOST_PER_S, column, f"at most {MOST_PER_S:g}", "correct the row")
    if len(times_s) < 2 or times_s[0] == times_s[-1]:
        remedy = "one time does not say how long a step is: add rows"
        raise table.error(None, "number of times", 1, "at least 2", remedy)
    build = _from_rates if kind == "rate" else _from_counts
    knots, rates, step_s = build(table, time_column, times_s - times_s[0], values, gaps)
    end_s = None if interpolation == "linear" else float(knots[-1] + step_s)
    return RateTrace(knots, rates, end_s, interpolation, seed, source)


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _find(table: Table, names: Iterable[str] | Mapping[str, float]) -> str | None:
    known = set(names)
    return next((column for column in table.names if _plain(column) in known), None)


def _pick(table: Table, what: str, wanted: str | None, names: Iterable[str], usual: str) -> str:
    """The requested column, or one with a usual name."""
    found = _find(table, names) if wanted is None else wanted if wanted in table.names else None
    if found is not None:
        return found
    allowed = f"a list with a {what} column" + (f" {wanted!r}" if wanted else "")
    argument = {"rate": "value", "count": "value"}.get(what, what)
    remedy = f"call the column {usual} (in Python, {argument}=… takes another name)"
    raise table.error(None, "columns", ", ".join(table.names), allowed, remedy)


def _check_times(table: Table, column: str, times_s: FloatArray, distinct: bool) -> None:
    remedy = "remove the row or write its time"
    table.refuse(~np.isfinite(times_s), column, "a finite time", remedy)
    table.refuse(times_s < 0, column, "a time of at least 0", "count from the start of the trace")
    steps = np.diff(times_s, prepend=-1.0)
    remedy = "sort the file by time (in Python, sort=True does it)"
    table.refuse(steps < 0, column, "not before the line above it", remedy)
    if distinct:
        remedy = "merge the two rows (in Python, kind='counts' adds them up)"
        table.refuse(steps == 0, column, "after the line above it", remedy)


def _gap(table: Table, column: str, row: int, missing_s: float, step_s: float) -> Exception:
    cell = table.column(column)[row]
    allowed = f"about {step_s:g} s after the line above it, not {missing_s:g} s"
    remedy = "fill the gap, or set gaps to hold or zero"
    error: Exception = table.error(row, column, str(cell), allowed, remedy)
    return error


def _from_rates(
    table: Table, column: str, times_s: FloatArray, rates: FloatArray, gaps: Gaps | None
) -> tuple[FloatArray, FloatArray, float]:
    steps = np.diff(times_s)
    step_s = float(np.median(steps))
    wide = steps > 1.5 * step_s
    if wide.any():
        row = int(wide.argmax()) + 1
        if gaps in (None, "error"):
            raise _gap(table, column, row, float(steps[row - 1]), step_s)
        if gaps == "zero":
            after = np.flatnonzero(wide) + 1
            times_s = np.insert(times_s, after, times_s[after - 1] + step_s)
            rates = np.insert(rates, after, 0.0)
    return times_s, rates, step_s


def _from_counts(
    table: Table, column: str, times_s: FloatArray, counts: FloatArray, gaps: Gaps | None
) -> tuple[FloatArray, FloatArray, float]:
    """Counts at the same time added, on a grid of the smallest step that occurs."""
    steps = np.diff(times_s)
    step_s = float(steps[steps > 0].min())
    if times_s[-1] / step_s > MOST_STEPS:
        remedy = "two of its times are very close together: correct one, or count by longer steps"
        raise table.error(
            None, "steps", f"{times_s[-1] / step_s:.3g}", f"at most {MOST_STEPS:,}", remedy
        )
    slot = np.rint(times_s / step_s).astype(np.int64)
    wide = np.diff(slot) > 1
    if wide.any() and gaps == "error":
        row = int(wide.argmax()) + 1
        raise _gap(table, column, row, float(steps[row - 1]), step_s)
    items = np.bincount(slot, weights=counts)
    filled = np.zeros(len(items), dtype=bool)
    filled[slot] = True
    rates = items / step_s
    if gaps == "hold":
        rates = rates[np.maximum.accumulate(np.where(filled, np.arange(len(items)), 0))]
    return np.arange(len(items), dtype=np.float64) * step_s, rates, step_s
