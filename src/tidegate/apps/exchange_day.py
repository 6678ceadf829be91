"""The application of `tidegate demo`: ticks of an exchange day, enriched by a call, as price bars.

The query is that of FUGU: the first, lowest, mean, highest and last price of a symbol in a window.
Each tick is enriched by a call to another system first, so its time is waiting, not computing: a
small machine has room for many such calls at once.

T. Heinze et al., *Auto-scaling techniques for elastic data stream processing*, ICDE Workshops 2014.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Application, InputCount, Tables, columns
from tidegate.apps.market import exchange_day
from tidegate.apps.records import CLOSING_S, LATE_S, closed
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["ENRICH_MS", "application", "bars"]

SOURCE = "ticks"
SYMBOLS = ("ALV", "BAS", "BAYN", "BEI", "BMW", "CBK", "DBK", "DTE", "HEN3", "SAP", "SIE", "VOW3")
CLOSING_SYMBOL = "END"
TICKS = columns(id="long", symbol="string", cents="long", at_us="long")
ENRICH_MS = 8
WINDOW_S = 10
MAX_FILES = 60


def application(
    rate_per_s: float = 250.0, enrich_ms: int = ENRICH_MS, partitions: int = 8
) -> Application:
    """The application.

    rate_per_s: ticks per second, on average over the day. enrich_ms: milliseconds of a call.
    partitions: tasks of a micro-batch and partitions of the state, which limit the useful slots.
    """
    finite(rate_per_s, "rate_per_s", above=0)
    finite(enrich_ms, "enrich_ms", low=0)
    work = partial(bars, enrich_s=enrich_ms / 1000, partitions=partitions)
    return Application(
        name="exchange-day",
        summary=f"price bars of an exchange, each tick enriched by a call of {enrich_ms} ms",
        paper="after FUGU, Heinze et al. 2014",
        topology=StreamTopology(
            sources={SOURCE: TICKS},
            operators=(StreamOperator("bars", (SOURCE,), work, state_partitions=partitions),),
        ),
        rates_per_s={SOURCE: rate_per_s},
        generate=_generate,
        shape=exchange_day,
        closing=_closing,
        results=("bars",),
        reference=_reference,
        input_count=InputCount("ticks", ("symbol", "start_ms")),
        slo="10s",
        # A backlog takes several batches, and each of them reports its progress.
        max_files=MAX_FILES,
        # Batches take seconds: a state task that waits longer for its old executor delays its
        # batch, and a new executor gets nothing to do.
        settings={"spark.locality.wait": "500ms"},
    )


def imitate_call(batch: DataFrame, wait_s: float) -> DataFrame:
    """The same rows, each after a wait in seconds, as if a service had been called for it.

    A waiting task occupies a slot but no processor, so a small machine carries many of them.
    """
    # Spark takes a call by reflection for not deterministic, so it is neither folded into a
    # constant nor left out: a filter has to look. A void method yields the word "null".
    waited = f"java_method('java.lang.Thread', 'sleep', {round(wait_s * 1000)}L)"
    return batch.filter(f"coalesce({waited}, '') <> 'never'")


def bars(ticks: DataFrame, enrich_s: float, partitions: int) -> DataFrame:
    """Price bars by symbol and window.

    ticks: with the columns of `TICKS`. enrich_s: seconds of the call for each tick. partitions:
    tasks of the calls of a batch; more than the slots of one executor, so that an executor that
    starts during a batch gets its share.
    """
    from pyspark.sql.functions import expr, window

    return (
        imitate_call(ticks.repartition(partitions), enrich_s)
        .withColumn("at", expr("timestamp_micros(at_us)"))
        .withWatermark("at", f"{LATE_S} seconds")
        .groupBy("symbol", window("at", f"{WINDOW_S} seconds"))
        .agg(
            expr("min_by(cents, id) AS first"),  # ids are in the order of event times
            expr("min(cents) AS lowest"),
            expr("avg(cents) AS mean"),
            expr("max(cents) AS highest"),
            expr("max_by(cents, id) AS last"),
            expr("count(*) AS ticks"),
            expr("sum(id) AS checksum"),
        )
        .selectExpr(
            "symbol", "unix_millis(window.start) AS start_ms", "first", "lowest", "mean", "highest",
            "last", "ticks", "checksum",
        )
    )  # fmt: skip


def _generate(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    import pyarrow as pa

    which = random.integers(0, len(SYMBOLS), len(moments))
    base = 2_000 + which * 7919 % 18_000  # each symbol has its own price level
    return pa.table(
        {
            "id": first_id + np.arange(len(moments)),
            "symbol": pa.array(SYMBOLS).take(which),
            "cents": base + random.integers(-50, 51, len(moments)),
            "at_us": np.round(moments * 1e6).astype(np.int64),
        }
    )


def _closing(at_s: float) -> Tables:
    import pyarrow as pa

    at_us = round((at_s + CLOSING_S) * 1e6)
    row = {"id": 0, "symbol": CLOSING_SYMBOL, "cents": 0, "at_us": at_us}
    return {SOURCE: pa.Table.from_pylist([row])}


def _reference(inputs: Tables) -> Tables:
    """All bars at once, by Arrow's own grouping."""
    ticks = inputs[SOURCE].sort_by("id")
    at_us = ticks["at_us"].to_numpy()
    start_us = at_us - at_us % (1_000_000 * WINDOW_S)
    ticks = ticks.append_column("start_ms", [start_us // 1000])
    ticks = ticks.filter(closed(start_us + 1_000_000 * WINDOW_S, at_us))
    statistics = {
        "first": "first", "lowest": "min", "mean": "mean", "highest": "max", "last": "last",
        "ticks": "count",
    }  # fmt: skip
    wanted = [("cents", function) for function in statistics.values()]
    key = ["symbol", "start_ms"]
    found = ticks.group_by(key, use_threads=False).aggregate([*wanted, ("id", "sum")])
    made = [f"cents_{function}" for function in statistics.values()]
    renamed = found.select([*key, *made, "id_sum"])
    return {"bars": renamed.rename_columns([*key, *statistics, "checksum"])}
