"""The main job's query: ticks, enriched by a call that takes its time, as bars of prices.

The template is FUGU's (first, least, mean, greatest and last price of a symbol in a window).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.units import finite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SCHEMA", "SETTINGS", "bars", "start_ticks"]

SCHEMA = "id long, symbol string, cents long, at_us long"

SETTINGS = {
    # Cut the state finely enough for the hosts, and no finer: each part is a file a batch.
    "spark.sql.shuffle.partitions": "4",
    # The ledger reads which batch held which file, for the whole run.
    "spark.sql.streaming.minBatchesToRetain": "100000",
    # A run of minutes ends before the second compiler has earned what it costs: thirty batches took
    # 48 s of CPU time without it and 84 s with it (one run each, local[4], on a busy machine).
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Spark settings that the query wants of its session."""


def bars(
    ticks: DataFrame,
    enrich_ms: int = 8,
    partitions: int = 24,
    window_s: int = 10,
    late_s: int = 10,
) -> DataFrame:
    """Bars of prices by symbol and window.

    Each tick is enriched by a call to somewhere else, so its time is waiting and not computing:
    here the JVM's own sleep, of which a small machine has room for many at once.

    ticks: with the columns of `SCHEMA`. enrich_ms: milliseconds of the call.
    partitions: into how many tasks the calls of a batch are cut; more than there are slots, so
    that an executor that comes during a batch gets its share.
    window_s: length of a window; late_s: how late a tick may come, both in seconds.
    """
    from pyspark.sql.functions import expr, window

    finite(enrich_ms, "enrich_ms", low=0)
    finite(partitions, "partitions", low=1)
    return (
        ticks.repartition(partitions)
        .selectExpr(
            "id",
            "symbol",
            "cents",
            "timestamp_micros(at_us) AS at",
            # Counted below: a column that nobody reads would not be computed.
            f"reflect('java.lang.Thread', 'sleep', {int(enrich_ms)}L) AS enriched",
        )
        .withWatermark("at", f"{late_s} seconds")
        .groupBy("symbol", window("at", f"{window_s} seconds"))
        .agg(
            expr("min_by(cents, id) AS first"),  # ids are in the order of event times
            expr("min(cents) AS least"),
            expr("avg(cents) AS mean"),
            expr("max(cents) AS greatest"),
            expr("max_by(cents, id) AS last"),
            expr("count(enriched) AS ticks"),
            expr("sum(id) AS checksum"),
        )
        .selectExpr(
            "symbol",
            "unix_millis(window.start) AS start_ms",
            "unix_millis(window.end) AS end_ms",
            "first",
            "least",
            "mean",
            "greatest",
            "last",
            "ticks",
            "checksum",
        )
    )


def start_ticks(
    spark: SparkSession,
    source: Path,
    sink: Path,
    checkpoint: Path,
    *,
    name: str = "ticks",
    trigger_s: float = 1.0,
    max_files: int = 60,
    enrich_ms: int = 8,
    partitions: int = 24,
    window_s: int = 10,
    late_s: int = 10,
) -> StreamingQuery:
    """Start the query: files of ticks in, files of bars out, each bar exactly once.

    A bar appears when the watermark has passed its window; a tick counts as processed when the
    batch that read it has committed.

    source, sink, checkpoint: folders. name: of the query. trigger_s: seconds between two batches
    at least. max_files: that a batch takes; a backlog is then worked off in several batches, and
    each of them tells how it went. The rest as in `bars`.
    """
    finite(max_files, "max_files", low=1)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", max_files)
    ticks = reader.json(str(source))
    return (
        bars(ticks, enrich_ms, partitions, window_s, late_s)
        .writeStream.format("json")
        .outputMode("append")
        .queryName(name)
        .option("path", str(sink))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{round(1000 * trigger_s)} milliseconds")
        .start()
    )
