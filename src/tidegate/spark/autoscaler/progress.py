"""What Spark says of a streaming query's micro-batches, as frozen values.

Pure: text in, values out, no PySpark. What a source does not report is missing, never zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.codec import Value
from tidegate.errors import InputError

__all__ = ["EventTime", "Lag", "Progress", "lag_of", "read_progress"]


@dataclass(frozen=True, slots=True)
class Lag(Value):
    """What a query has still to read, None where its sources do not say.

    items: rows; files and size_bytes: where the source counts these instead.
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

    query: the id that survives a restart; run: the id of this run; name: what people call it.
    began_s: when it was triggered, Unix seconds; phases_s: seconds by phase, as Spark names them.
    rows: rows read from all sources. lag: what is left to read after it.
    event_time: None without a watermark or rows. state_rows, state_mb: what the state holds;
    state_partitions: into how many tasks it is cut, which no restart changes. None without state.
    late_rows: rows that came after the watermark and were dropped by Spark.
    idle: no batch, only the word that nothing came.
    """

    query: str
    run: str
    name: str
    batch: int
    began_s: float
    phases_s: Mapping[str, float]
    rows: int
    lag: Lag = Lag()
    event_time: EventTime | None = None
    state_rows: int | None = None
    state_mb: float | None = None
    state_partitions: int | None = None
    late_rows: int = 0
    idle: bool = False

    @property
    def duration_s(self) -> float:
        """From the trigger to the commit, in seconds."""
        return self.phases_s.get("triggerExecution", 0.0)

    @property
    def committed_s(self) -> float:
        """When its results were there, Unix seconds."""
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
        if "batchId" not in plain:  # an idle event has ids and a time, that is all
            return Progress(str(plain["id"]), run, "", -1, began_s, {}, 0, idle=True)
        states = plain.get("stateOperators") or ()
        return Progress(
            query=str(plain["id"]),
            run=run,
            name=plain.get("name") or str(plain["id"])[:8],
            batch=int(plain["batchId"]),
            began_s=began_s,
            phases_s={k: v / 1000 for k, v in (plain.get("durationMs") or {}).items()},
            rows=int(plain.get("numInputRows") or 0),
            lag=lag_of(plain.get("sources") or ()),
            event_time=_event_time(plain.get("eventTime") or {}),
            state_rows=_total(states, "numRowsTotal"),
            state_mb=_in_mb(_total(states, "memoryUsedBytes")),
            state_partitions=_most(states, "numShufflePartitions"),
            late_rows=_total(states, "numRowsDroppedByWatermark") or 0,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        allowed = "a progress event of Spark's streaming query listener"
        raise InputError("progress", text[:60] + "…", allowed, repr(error)) from None


def lag_of(sources: Any) -> Lag:
    """What all sources together have left; missing in one is missing in all.

    Kafka tells the latest offset of each partition beside the one read. Spark's own file and rate
    sources tell nothing, with or without a limit; some vendors' count files and bytes outstanding.
    """
    items: list[float | None] = []
    files: list[float | None] = []
    sizes: list[float | None] = []
    for source in sources:
        metrics = source.get("metrics") or {}
        items.append(_offsets_behind(source.get("endOffset"), source.get("latestOffset")))
        files.append(_number(metrics.get("numFilesOutstanding")))
        behind = metrics.get("numBytesOutstanding", metrics.get("estimatedTotalBytesBehindLatest"))
        sizes.append(_number(behind))
    return Lag(_sum(items), _sum(files), _sum(sizes))


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
            # A partition that was not read at all yet begins at an offset that nobody told.
            if partition not in read:
                return None
            behind += max(0, offset - read[partition])
    return behind


def _number(value: Any) -> float | None:
    """A number from the text that Spark writes metrics as."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _moment_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()


def _event_time(plain: Mapping[str, str]) -> EventTime | None:
    if not all(key in plain for key in ("min", "avg", "max")):
        return None
    return EventTime(*(_moment_s(plain[key]) for key in ("min", "avg", "max")))


def _total(states: Any, key: str) -> int | None:
    values = [int(state[key]) for state in states if key in state]
    return sum(values) if values else None


def _most(states: Any, key: str) -> int | None:
    values = [int(state[key]) for state in states if key in state]
    return max(values) if values else None


def _in_mb(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 2**20
