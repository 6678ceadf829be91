"""Sample queries over stock trades, after FUGU's experiment, for examples, tests and benchmarks.

FIRST, MIN, AVG, MAX, LAST(price) WITHIN x SEC GROUP BY comp WHERE sector = y
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tidegate.fleet.queries import ContinuousQuery, template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TICKS", "price_queries", "price_windows", "query_parameters"]

TICKS = "id long, ts double, comp string, sector int, price double"
"""Schema of a trade. The id orders trades of the same time; ts is Unix time in seconds."""


def price_windows(ticks: DataFrame, window_s: int, sector: int, late_s: int = 10) -> DataFrame:
    """One row per company of a sector and window of `window_s` seconds.

    FIRST and LAST follow event time, and the id among trades of the same time, so the result does
    not depend on the order in which rows are read.

    ticks: trades with the schema `TICKS`, as a stream or a batch. late_s: seconds that a stream
    waits for late rows.
    """
    from pyspark.sql import functions as fn

    order = fn.struct("at", "id")
    return (
        ticks.filter(fn.col("sector") == sector)
        .withColumn("at", fn.timestamp_micros((fn.col("ts") * 1_000_000).cast("long")))
        .withWatermark("at", f"{late_s} seconds")
        .groupBy(fn.window("at", f"{window_s} seconds").alias("within"), "comp")
        .agg(
            fn.min_by("price", order).alias("first"),
            fn.min("price").alias("min"),
            # Decimals add up to the same sum in any order, so that batches equal streams exactly.
            fn.avg(fn.col("price").cast("decimal(18,4)")).alias("avg"),
            fn.max("price").alias("max"),
            fn.max_by("price", order).alias("last"),
        )
        .select(fn.col("within.start").alias("start"), "comp", "first", "min", "avg", "max", "last")
    )


def query_parameters(count: int, seed: int = 0, sectors: int = 5) -> list[dict[str, int]]:
    """Draw the parameters of `count` queries: windows of 5 to 60 seconds, and sectors from 0.

    >>> query_parameters(2, seed=1)
    [{'n': 1, 'window_s': 10, 'sector': 4}, {'n': 2, 'window_s': 5, 'sector': 2}]
    """
    rng = random.Random(seed)
    return [
        {"n": n, "window_s": rng.choice((5, 10, 15, 20, 30, 60)), "sector": rng.randrange(sectors)}
        for n in range(1, count + 1)
    ]


def price_queries(
    ticks: str,
    results: str,
    count: int = 35,
    seed: int = 0,
    *,
    sectors: int = 5,
    trigger_s: float = 1.0,
    files_per_batch: int | None = None,
    cpu_cores: float = 0.25,
) -> tuple[ContinuousQuery, ...]:
    """Create the queries over a folder of JSON files with trades.

    Args:
        ticks: Folder of the trades, which every host can reach.
        results: Folder of the results, with a subfolder per query.
        count: Number of queries.
        seed: Random seed of their parameters.
        sectors: Number of sectors.
        trigger_s: Time between batches, in seconds.
        files_per_batch: Largest number of files in a batch; None means no limit.
        cpu_cores: CPU demand of a query until it has been measured.
    """

    @template("prices-{n}", query_parameters(count, seed, sectors), cpu_cores=cpu_cores)
    def prices(session: Any, checkpoint: str, n: int, window_s: int, sector: int) -> Any:
        reader = session.readStream.schema(TICKS)
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        return (
            price_windows(reader.json(ticks), window_s, sector)
            .writeStream.format("json")
            .option("path", f"{results}/prices-{n}")
            .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        )

    return prices
