"""Esper's benchmark as Cerviño et al. ran it: the highest price of each symbol in each second.

The first stage is partitioned equally over the engines: each of its k_i tasks computes the maxima
of its share of a batch, and k_i is read at each batch. The second stage merges the maxima. When
more tuples arrive than the engines can process, `adaptive-provisioning` with ``shed`` drops a share
of them before any work, and every dropped tuple is counted.

J. Cerviño et al., *Adaptive provisioning of stream processing systems in the cloud*, ICDE
Workshops 2012.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps import records
from tidegate.apps.application import Application, InputCount, columns
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite
from tidegate.workloads import Scaled, Workload
from tidegate.workloads.papers import cervino_steps

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["application", "maxima", "merge"]

SOURCE = "stocks"
RATE_PER_S = 30_000.0
WORDS, NUMBERS = ("symbol",), ("cents",)
CLOSING_SYMBOL = "END"


def application(symbols: int = 1000) -> Application:
    """The application. symbols: number of symbols."""
    finite(symbols, "symbols", low=1)
    return Application(
        name="max-price",
        summary="the highest price of each symbol in each second, in two stages",
        paper="Cerviño et al. 2012, with Esper's benchmark",
        topology=StreamTopology(
            sources={SOURCE: columns(**records.TEXTS)},
            operators=(
                StreamOperator("maxima", (SOURCE,), maxima, ratio=symbols / RATE_PER_S),
                StreamOperator("merge", ("maxima",), merge, state_partitions=2),
            ),
        ),
        rates_per_s={SOURCE: RATE_PER_S},
        generate=partial(_generate, symbols),
        shape=_steps,
        closing=lambda at_s: {SOURCE: records.closing(at_s, symbol=CLOSING_SYMBOL, cents=1)},
        results=("merge",),
        input_count=InputCount("tuples", ("symbol", "second")),
        reference=_reference,
        tally=_tally,
        spoil=records.spoiled,
        slo="10s",
    )


def maxima(rows: DataFrame) -> DataFrame:
    """The first stage: the maximum of each symbol and second of a batch, and each bad row.

    Spark computes partial maxima in each partition before it exchanges anything.
    """
    from pyspark.sql import functions as fn

    good = fn.col("rejected").isNull()
    return (
        records.parsed(rows, WORDS, NUMBERS)
        .groupBy("symbol", fn.expr("at_us DIV 1000000").alias("second"), "value", "rejected")
        .agg(
            fn.max("cents").alias("cents"),
            fn.count("*").alias("tuples"),
            fn.timestamp_micros(fn.max("at_us")).alias("at"),
        )
        # Equal bad rows are in one group, but each of them counts.
        .withColumn(
            "nth", fn.explode(fn.sequence(fn.lit(1), fn.when(good, 1).otherwise(fn.col("tuples"))))
        )
        .select("symbol", "cents", "tuples", "at", "value", "rejected")
    )


def merge(rows: DataFrame) -> DataFrame:
    """The second stage: the maximum over all engines of each symbol and second."""
    from pyspark.sql import functions as fn

    return (
        rows.withWatermark("at", f"{records.LATE_S} seconds")
        .groupBy("symbol", fn.window("at", "1 second").alias("within"))
        .agg(fn.max("cents").alias("cents"), fn.sum("tuples").alias("tuples"))
        .select("symbol", fn.unix_seconds("within.start").alias("second"), "cents", "tuples")
    )


def _generate(
    symbols: int,
    source: str,
    moments: NDArray[np.float64],
    first_id: int,
    random: np.random.Generator,
) -> pa.Table:
    import pyarrow as pa

    names = pa.array([f"S{n:04d}" for n in range(symbols)])
    which = random.integers(0, symbols, len(moments))
    base = 1_000 + which * 7919 % 20_000  # each symbol has its own price level
    cents = base + random.integers(0, 500, len(moments))
    return records.texts(moments, symbol=names.take(which), cents=cents)


def _steps(source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    """The steps of the paper's Fig. 7 compressed into `seconds`, with that mean."""
    steps = cervino_steps(source=source)
    total = float(steps.curve.cumulative(np.array(steps.duration_s)))
    factor = mean_per_s * steps.duration_s / total
    speed = steps.duration_s / seconds
    return Scaled(steps, rate_factor=factor / speed, speed=speed)


def _reference(inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    import pyarrow as pa

    rows = records.good_records(inputs[SOURCE], WORDS, NUMBERS)
    names, which = np.unique(rows["symbol"], return_inverse=True)
    second = rows["at_us"] // 1_000_000
    keys, group = np.unique(np.stack([which, second]), axis=1, return_inverse=True)
    most = np.zeros(keys.shape[1], np.int64)
    np.maximum.at(most, group, rows["cents"])
    out = records.closed((keys[1] + 1) * 1_000_000, rows["at_us"])
    columns = {
        "symbol": names[keys[0]][out].tolist(),
        "second": keys[1][out],
        "cents": most[out],
        "tuples": np.bincount(group, minlength=keys.shape[1])[out],
    }
    return {"merge": pa.table(columns)}


def _tally(inputs: Mapping[str, pa.Table], results: Mapping[str, pa.Table]) -> list[str]:
    import pyarrow.compute as pc

    found = results["merge"]
    if not found.num_rows:
        return ["no second had ended yet"]
    tuples = pc.sum(found["tuples"]).as_py()
    symbols, seconds = (pc.count_distinct(found[n]).as_py() for n in ("symbol", "second"))
    return [f"maxima of {symbols} symbols in {seconds} seconds, of {tuples} tuples"]
