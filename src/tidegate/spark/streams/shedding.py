"""Load shedding: a given share of the items is dropped before any work, and counted exactly.

A hash of each row's content and the batch number decides which rows are dropped, so a batch that is
repeated after a crash drops the same rows. The share may change from batch to batch. It is written
to the *shed log*, with the counts, before the batch does anything, and a repeated batch reads it
from there.

Counting reads the batch a second time, and only while shedding is on. It is a separate job and not
an accumulator, because accumulators count work twice that Spark repeats after losing an executor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import BackendError
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.topic import REJECTED, Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["ShedDecision", "ShedLog", "admitted", "beyond", "query_id", "rows_of", "shedding"]

_STEPS = 1_000_000  # a share is rounded to a millionth


@dataclass(frozen=True)
class ShedDecision:
    """What is shed of one batch.

    Args:
        batch_id: Number of the batch.
        fraction: Share of the items to drop, 0 to 1.
        seen: Items of this batch, 0 when it sheds nothing.
        dropped: Items of this batch that are dropped.
        total_seen: Sum of `seen` since the first batch.
        total_dropped: Sum of `dropped` since the first batch.
        query: Spark's id of the query.
    """

    batch_id: int
    fraction: float
    seen: int = 0
    dropped: int = 0
    total_seen: int = 0
    total_dropped: int = 0
    query: str = ""


class ShedLog:
    """The decisions of one query in a folder: one small file for each of the last batches.

    by: columns whose hash decides; default: all columns and the batch number.
    """

    def __init__(self, folder: Path, by: Sequence[str] = ()) -> None:
        self.folder = folder
        self.by = tuple(by)
        folder.mkdir(parents=True, exist_ok=True)

    def settle(
        self, batch: DataFrame, batch_id: int, fraction: float
    ) -> tuple[DataFrame, ShedDecision]:
        """The rows of the batch that remain, and the decision.

        fraction: share of the items to drop, 0 to 1. A decision that was logged before a restart
        takes precedence.
        """
        query = query_id(batch)
        if any(_read(path).query != query for path in self.folder.glob("[0-9]*.json")):
            raise BackendError(
                f"{self.folder} is the shed log of another query: the checkpoint was removed and "
                "the log kept; remove both or neither"
            )
        decision = self._logged(batch_id) or self._decide(batch, batch_id, fraction, query)
        return self.remaining(batch, batch_id, decision.fraction), decision

    def remaining(self, batch: DataFrame, batch_id: int, fraction: float) -> DataFrame:
        """The rows of a batch that remain at that share: the same rows at each call."""
        return batch.filter(~self._dropped(batch, batch_id, fraction)) if fraction else batch

    def _decide(self, batch: DataFrame, batch_id: int, fraction: float, query: str) -> ShedDecision:
        from pyspark.sql import functions as fn

        seen = dropped = 0
        if fraction > 0:
            counted = batch.agg(
                fn.count("*").alias("seen"),
                fn.count_if(self._dropped(batch, batch_id, fraction)).alias("dropped"),
            ).first()
            assert counted is not None  # an aggregate without groups has one row
            seen, dropped = counted["seen"], counted["dropped"]
        before = self._logged(batch_id - 1) or ShedDecision(batch_id - 1, 0.0)
        decision = ShedDecision(
            batch_id,
            fraction,
            seen,
            dropped,
            before.total_seen + seen,
            before.total_dropped + dropped,
            query,
        )
        path = self._path(batch_id)
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(asdict(decision)), encoding="utf-8")
        hidden.rename(path)
        # Spark repeats the last batch only; the one before it carries the totals.
        self._path(batch_id - 2).unlink(missing_ok=True)
        return decision

    def _dropped(self, batch: DataFrame, batch_id: int, fraction: float) -> Column:
        from pyspark.sql import functions as fn

        by = [fn.col(f"`{name}`") for name in self.by or batch.columns]
        salt = [] if self.by else [fn.lit(batch_id)]
        position = fn.pmod(fn.xxhash64(*salt, *by), fn.lit(_STEPS))
        return position < round(fraction * _STEPS)

    def _logged(self, batch_id: int) -> ShedDecision | None:
        path = self._path(batch_id)
        return _read(path) if path.exists() else None

    def _path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id:012d}.json"


def _read(path: Path) -> ShedDecision:
    return ShedDecision(**json.loads(path.read_text(encoding="utf-8")))


def shedding(
    function: Callable[[DataFrame, int], None],
    live_settings: LiveSettings,
    folder: Path,
    *,
    name: str,
    by: Sequence[str] = (),
) -> Callable[[DataFrame, int], None]:
    """A `foreachBatch` function that sheds `live_settings.shed_fraction` before it calls yours.

    function: yours, called with the remaining rows and the batch number.
    folder: for the shed log; keep it next to the query's checkpoint, and remove both or neither.
    name: `live_settings.counts(name)` returns the items seen and dropped *in batches that shed*.
        While shedding is off nothing is counted, because that would read the batch a second time.
        `live_settings.buffer_rows`, if set, limits the rows of a batch; then each is counted.
    by: columns whose hash decides, so that all rows of a key are treated alike; default: each row
        is decided separately.

    ::

        sink = shedding(write, live_settings, Path("out/shed"), name="ticks")
        stream.writeStream.foreachBatch(sink).option("checkpointLocation", "out/checkpoint").start()
    """
    shed_log = ShedLog(folder, by)

    def shed_then_call(batch: DataFrame, batch_id: int) -> None:
        share = live_settings.shed_fraction
        if live_settings.buffer_rows is not None:
            share = max(share, beyond(live_settings.buffer_rows, batch.count()))
        left, decision = shed_log.settle(batch, batch_id, share)
        live_settings.record(name, Counts(decision.total_seen, decision.total_dropped))
        live_settings.record_shed(name, batch_id, decision.dropped)
        function(left, batch_id)

    return shed_then_call


def beyond(buffer_rows: int, rows: int) -> float:
    """The share of a batch that a buffer of `buffer_rows` has no room for.

    >>> beyond(500, 2000), beyond(500, 400)
    (0.75, 0.0)
    """
    return max(0.0, 1 - buffer_rows / rows) if rows else 0.0


def query_id(batch: DataFrame) -> str:
    """Spark's id of the query that a batch belongs to, the same after a restart."""
    # Spark runs a batch in the query's thread, which carries this property.
    context = batch.sparkSession.sparkContext
    return context.getLocalProperty("sql.streaming.queryId") or ""


# --- the rows that were not shed --------------------------------------------------------------


def rows_of(topic: Topic, spark: SparkSession) -> pa.Table:
    """All good rows of a topic; those of a file topic are read without the JVM."""
    import pyarrow.compute as pc

    if isinstance(topic, FileTopic):
        files = (topic.folder / m.name / f for m in topic.batches() for f in m.files)
        table = _read_files(topic, files)
    else:
        table = topic.frame(spark).toArrow()
    if REJECTED not in table.column_names:
        return table
    kept: pa.Table = table.filter(pc.is_null(table[REJECTED])).drop_columns([REJECTED])
    return kept


def admitted(
    spark: SparkSession, source: Topic, checkpoint: Checkpoint, output: Topic, shed_log: ShedLog
) -> pa.Table | None:
    """The rows of a source that its reader did not shed, None where that is unknown.

    They follow exactly from the rows' content, the batch numbers and the shares in the manifests.
    A reference that is given these rows must come to the same results as the stream.

    checkpoint, output, shed_log: of the reader, which reads no other source.
    """
    import pyarrow as pa

    if not isinstance(source, FileTopic) or not isinstance(output, FileTopic):
        return None
    tables = []
    for manifest in output.batches():
        files = list(checkpoint.batch_files(manifest.batch_id))
        if not manifest.shed_fraction:
            tables.append(_read_files(source, files))
        elif files:
            names = [f"file://{file}" for file in files]
            batch = spark.read.schema(source.schema).parquet(*names)
            left = shed_log.remaining(batch, manifest.batch_id, manifest.shed_fraction)
            tables.append(left.toArrow())
    return pa.concat_tables(tables) if tables else _read_files(source, [])


def _read_files(topic: FileTopic, files: Iterable[Path]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(topic.schema)
    tables = [pq.ParquetFile(file).read().select(schema.names).cast(schema) for file in files]
    return pa.concat_tables(tables) if tables else schema.empty_table()
