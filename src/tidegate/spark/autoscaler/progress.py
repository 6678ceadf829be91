"""Progress events of streaming queries, read from Spark's JSON into frozen values.

Pure: text in, values out, no PySpark. What a source does not report is missing (None), never zero.

The lag of a source is read by a function that is registered for the beginning of the source's
description (``KafkaV2[Subscribe[ticks]]``, for example). To support a new source, write one:

::

    @register_lag("PulsarSource[")
    def pulsar_lag(source):
        return source["metrics"]["backlog"]  # rows, or None when unknown
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.codec import Value
from tidegate.errors import InputError

__all__ = [
    "EventTime",
    "LagFunction",
    "Progress",
    "SourceLag",
    "lag_of",
    "read_progress",
    "register_lag",
]

ASKS_SOURCES = ("latestOffset", "getOffset")
"""Phases in which a query asks its sources what there is to read; the second one asks old ones."""


@dataclass(frozen=True, slots=True)
class SourceLag(Value):
    """What a query has not read yet, None where its sources do not report it.

    items: rows. files, size_bytes: for sources that count files or bytes instead.
    """

    items: float | None = None
    files: float | None = None
    size_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class EventTime(Value):
    """Event times of a batch's rows, in Unix seconds."""

    min_s: float
    mean_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Progress(Value):
    """One micro-batch of one query.

    Args:
        query: Id of the query, the same after a restart from its checkpoint.
        run: Id of this run of the query.
        name: Name of the query.
        batch: Number of the batch.
        began_s: Time of the trigger, Unix seconds.
        phases_s: Seconds by phase, with Spark's names.
        rows: Rows read from all sources. Rows that ``foreachBatch`` reads again count once, where
            the source's offsets show it.
        lag: What is left to read after the batch.
        event_time: Event times of the rows, None without a watermark or without rows.
        state_rows: Rows in the state, None without state.
        state_mb: Memory of the state in MB, None without state.
        state_partitions: Partitions of the state, which a restart does not change; None without
            state.
        late_rows: Rows that Spark dropped because they arrived after the watermark.
        idle: True for an idle event: there was no batch, because there was no input.
        sink: Description of the sink.
    """

    query: str
    run: str
    name: str
    batch: int
    began_s: float
    phases_s: Mapping[str, float]
    rows: int
    lag: SourceLag = SourceLag()
    event_time: EventTime | None = None
    state_rows: int | None = None
    state_mb: float | None = None
    state_partitions: int | None = None
    late_rows: int = 0
    idle: bool = False
    sink: str = ""

    @property
    def duration_s(self) -> float:
        """From the trigger to the commit, in seconds."""
        return self.phases_s.get("triggerExecution", 0.0)

    @property
    def source_s(self) -> float | None:
        """Time that the sources took to say what there is to read, in seconds; None: unknown."""
        known = [self.phases_s[name] for name in ASKS_SOURCES if name in self.phases_s]
        return math.fsum(known) if known else None

    @property
    def committed_s(self) -> float:
        """When the batch was committed, Unix seconds."""
        return self.began_s + self.duration_s


def read_progress(text: str) -> Progress:
    """A progress or idle event from Spark's JSON.

    >>> seen = read_progress(
    ...     '{"id": "q", "runId": "r", "name": "ticks", "batchId": 7, "numInputRows": 120,'
    ...     '"timestamp": "2026-01-05T09:00:00.250Z", "durationMs": {"triggerExecution": 1500},'
    ...     '"sources": [{"endOffset": {"t": {"0": 5, "1": 4}},'
    ...     '"latestOffset": {"t": {"0": 9, "1": 4}}}]}')
    >>> seen.rows, seen.duration_s, seen.lag.items
    (120, 1.5, 4.0)
    """
    try:
        plain = json.loads(text)
        began_s = _moment_s(plain["timestamp"])
        run = str(plain["runId"])
        if "batchId" not in plain:  # an idle event has ids and a time only
            return Progress(str(plain["id"]), run, "", -1, began_s, {}, 0, idle=True)
        states = plain.get("stateOperators") or ()
        state_bytes = _total(states, "memoryUsedBytes")
        return Progress(
            query=str(plain["id"]),
            run=run,
            name=plain.get("name") or str(plain["id"])[:8],
            batch=int(plain["batchId"]),
            began_s=began_s,
            phases_s={k: v / 1000 for k, v in (plain.get("durationMs") or {}).items()},
            rows=_rows(plain),
            lag=lag_of(plain.get("sources") or ()),
            event_time=_event_time(plain.get("eventTime") or {}),
            state_rows=_total(states, "numRowsTotal"),
            state_mb=None if state_bytes is None else state_bytes / 2**20,
            state_partitions=_total(states, "numShufflePartitions", max),
            late_rows=_total(states, "numRowsDroppedByWatermark") or 0,
            sink=str((plain.get("sink") or {}).get("description") or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        allowed = "a progress event of Spark's streaming query listener"
        raise InputError("progress", text[:60] + "…", allowed, repr(error)) from None


LagFunction = Callable[[Mapping[str, Any]], "SourceLag | float | None"]
"""From a source in a progress event (Spark's JSON as a dictionary) to its lag.

The result is a number of rows, a `SourceLag`, or None when the source does not report it.
"""

_LAGS: dict[str, LagFunction] = {}


def register_lag(prefix: str) -> Callable[[LagFunction], LagFunction]:
    """Register the decorated function for sources whose description starts with `prefix`.

    The longest prefix that matches wins, and a new function replaces one with the same prefix.
    """

    def register(function: LagFunction) -> LagFunction:
        _LAGS[prefix] = function
        return function

    return register


def lag_of(sources: Iterable[Mapping[str, Any]]) -> SourceLag:
    """The lag of all sources together; a figure that one source does not report is missing."""
    lags = [_lag(source) for source in sources]
    return SourceLag(
        _sum(lag.items for lag in lags),
        _sum(lag.files for lag in lags),
        _sum(lag.size_bytes for lag in lags),
    )


def _lag(source: Mapping[str, Any]) -> SourceLag:
    description = str(source.get("description") or "")
    matching = (prefix for prefix in _LAGS if description.startswith(prefix))
    lag = _LAGS[max(matching, key=len)](source)
    return lag if isinstance(lag, SourceLag) else SourceLag(lag)


@register_lag("Kafka")
def _kafka_lag(source: Mapping[str, Any]) -> SourceLag:
    """Rows between the offsets that were read and the latest ones, by partition."""
    items = _offsets_behind(source.get("endOffset"), source.get("latestOffset"))
    return SourceLag(items, size_bytes=_metric(source, "estimatedTotalBytesBehindLatest"))


@register_lag("")
def _reported_lag(source: Mapping[str, Any]) -> SourceLag:
    """Any other source: offsets in the form of Kafka's, or files and bytes outstanding.

    Spark's file and rate sources report neither; some vendors' sources do.
    """
    return SourceLag(
        _offsets_behind(source.get("endOffset"), source.get("latestOffset")),
        _metric(source, "numFilesOutstanding"),
        _metric(source, "numBytesOutstanding", "estimatedTotalBytesBehindLatest"),
    )


def _offsets_behind(end: Any, latest: Any) -> float | None:
    """Offsets between two of Kafka's maps ``{topic: {partition: offset}}``."""
    if not isinstance(end, dict) or not isinstance(latest, dict) or not latest:
        return None
    behind = 0.0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict) or not isinstance(end.get(topic, {}), dict):
            return None
        read = end.get(topic, {})
        for partition, offset in partitions.items():
            # Where a partition begins that was never read is unknown.
            if partition not in read:
                return None
            behind += max(0, offset - read[partition])
    return behind


def _rows(plain: Mapping[str, Any]) -> int:
    """Rows that a batch read.

    Spark counts a row again whenever ``foreachBatch`` computes the batch again. Offsets, where they
    count rows, show how many there are.
    """
    rows = int(plain.get("numInputRows") or 0)
    more = 0
    for source in plain.get("sources") or ():
        counted = source.get("numInputRows")
        read = _offsets_behind(source.get("startOffset"), source.get("endOffset"))
        if counted is not None and read is not None and 0 < read < counted:
            more += int(counted - read)
    return max(0, rows - more)


def _metric(source: Mapping[str, Any], *names: str) -> float | None:
    """The first of these metrics that the source reports; Spark writes metrics as text."""
    metrics = source.get("metrics") or {}
    text = next((metrics[name] for name in names if name in metrics), None)
    try:
        number = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    known = [value for value in every if value is not None]
    return math.fsum(known) if known and len(known) == len(every) else None


def _moment_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()


def _event_time(plain: Mapping[str, str]) -> EventTime | None:
    if not all(key in plain for key in ("min", "avg", "max")):
        return None
    return EventTime(*(_moment_s(plain[key]) for key in ("min", "avg", "max")))


def _total(states: Any, key: str, together: Callable[[list[int]], int] = sum) -> int | None:
    values = [int(state[key]) for state in states if key in state]
    return together(values) if values else None
