"""Four independent queries in one Spark application, each with its own latency target.

Most jobs in production look like this: queries that differ in what they cost share the executors.
`totals` keeps state in 64 partitions on RocksDB, so that every batch costs something however few
rows it has. `enrich` waits for a call for each row, which occupies a slot but no processor.
`alarms` reads a folder in which nothing ever arrives. `archive` reads a limited number of files a
batch, so that it falls behind under load whatever is bought for it. The load rises tenfold, falls
to zero and rises again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Application, InputCount, Tables, columns
from tidegate.apps.exchange_day import imitate_call
from tidegate.apps.records import CLOSING_S, LATE_S, closed
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite
from tidegate.workloads import ConstantRate, RateTrace, Workload

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["QUERIES", "SLO", "SLO_S", "application", "silence"]

QUERIES = {"totals": "payments", "enrich": "orders", "alarms": "faults", "archive": "events"}
"""The source of each query."""
SLO_S = {"totals": 60.0, "enrich": 30.0, "alarms": 5.0, "archive": 60.0}
"""The latency target of each query, in seconds."""
SLO = ",".join([*(f"{name}={slo_s:.0f}s" for name, slo_s in SLO_S.items()), "60s"])
"""The same as `Autoscaler` and ``tidegate submit`` take it."""
TRIGGER_S = {"totals": 15.0, "enrich": 5.0, "alarms": 5.0, "archive": 5.0}
"""Seconds between two batches of each query."""
ROWS = columns(id="long", account="string", cents="long", at_us="long")
ACCOUNTS = 200
CLOSING_ACCOUNT = "END"
WINDOW_S = 30
LOW = 0.1
"""The rate before each rise, as a share of the highest."""
HILLS = ((0.0, LOW), (0.2, LOW), (0.475, 1.0), (0.625, 1.0))
"""The first rise, as shares of the time with input and of the highest rate."""
SECOND = ((0.625, LOW), (0.875, 1.0), (1.0, 1.0))
"""The rise after the silence."""
ARCHIVED_FILES = 8
"""Files of one batch of `archive`. The feed writes ten in the time of its trigger."""
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Batches take seconds: a state task that waits longer for its old executor delays its batch.
    "spark.locality.wait": "500ms",
}


def application(
    enrich_ms: int = 24,
    enrich_per_s: float = 375.0,
    totals_per_s: float = 1000.0,
    archive_per_s: float = 200.0,
    silence_s: float = 120.0,
    partitions: int = 16,
    state_partitions: int = 64,
) -> Application:
    """The application.

    Args:
        enrich_ms: Milliseconds of a call of `enrich`.
        enrich_per_s: Highest rate of `enrich`, rows per second; it starts with a tenth of it.
        totals_per_s: Highest rate of `totals`, rows per second.
        archive_per_s: Highest rate of `archive`, rows per second.
        silence_s: Seconds without any input between the two rises.
        partitions: Tasks of a batch of `enrich`, which limit the useful slots.
        state_partitions: Partitions of the state of `totals`.
    """
    finite(enrich_ms, "enrich_ms", low=0)
    finite(silence_s, "silence_s", low=0)
    functions: dict[str, Callable[[DataFrame], DataFrame]] = {
        "totals": totals,
        "enrich": partial(enrich, enrich_s=enrich_ms / 1000, partitions=partitions),
        "alarms": kept,
        "archive": kept,
    }
    peaks = {"payments": totals_per_s, "orders": enrich_per_s, "faults": 0.0}
    return Application(
        name="four-queries",
        summary="four independent queries: state, calls that wait, an empty folder, a rate limit",
        paper="made for Tidegate",
        topology=StreamTopology(
            sources=dict.fromkeys(QUERIES.values(), ROWS),
            operators=tuple(
                StreamOperator(
                    name,
                    (source,),
                    functions[name],
                    state_partitions=state_partitions if name == "totals" else None,
                    trigger_s=TRIGGER_S[name],
                    max_files=ARCHIVED_FILES if name == "archive" else None,
                )
                for name, source in QUERIES.items()
            ),
        ),
        rates_per_s={**peaks, "events": archive_per_s},
        generate=_generate,
        shape=partial(_hills, silence_s),
        closing=_closing,
        results=tuple(QUERIES),
        reference=_reference,
        input_count={
            "totals": InputCount("payments", ("account", "start_ms")),
            **dict.fromkeys(("enrich", "alarms", "archive"), InputCount(None, ("id",))),
        },
        slo=SLO,
        settings=SETTINGS,
    )


def totals(rows: DataFrame) -> DataFrame:
    """Payments by account and window, with state."""
    from pyspark.sql.functions import expr, window

    return (
        rows.withColumn("at", expr("timestamp_micros(at_us)"))
        .withWatermark("at", f"{LATE_S} seconds")
        .groupBy("account", window("at", f"{WINDOW_S} seconds"))
        .agg(
            expr("sum(cents) AS cents"),
            expr("count(*) AS payments"),
            expr("sum(id) AS checksum"),
        )
        .selectExpr(
            "account", "unix_millis(window.start) AS start_ms", "cents", "payments", "checksum"
        )
    )


def enrich(rows: DataFrame, enrich_s: float, partitions: int) -> DataFrame:
    """Orders with a score, each after a call of `enrich_s` seconds, in `partitions` tasks."""
    waited = imitate_call(rows.repartition(partitions), enrich_s)
    return waited.selectExpr("id", "account", "cents * 3 + id % 7 AS score")


def kept(rows: DataFrame) -> DataFrame:
    """The rows as they are."""
    return rows.select("id", "account", "cents")


def silence(seconds: float, silence_s: float) -> tuple[float, float]:
    """Begin and end of the silence of a run of that length, in seconds from its start."""
    begin_s = HILLS[-1][0] * (seconds - silence_s)
    return begin_s, begin_s + silence_s


def _hills(
    silence_s: float, source: str, highest_per_s: float, seconds: float, seed: int
) -> Workload:
    """A rise to the highest rate, a silence, and a faster rise."""
    if not highest_per_s:
        return ConstantRate(0.0, seconds, source=source)
    finite(seconds, "seconds", above=silence_s, remedy="the silence is a part of it")
    input_s = seconds - silence_s
    begin_s, end_s = silence(seconds, silence_s)
    points = [(share * input_s, rate) for share, rate in HILLS]
    if silence_s:
        points += [(begin_s + 0.01, 0.0), (end_s - 0.01, 0.0)]
    points += [(share * input_s + silence_s, rate) for share, rate in SECOND[not silence_s :]]
    t_s, rates = zip(*points, strict=True)
    return RateTrace(
        np.array(t_s),
        highest_per_s * np.array(rates),
        interpolation="linear",
        seed=seed,
        source=source,
    )


def _generate(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    import pyarrow as pa

    which = random.integers(0, ACCOUNTS, len(moments))
    return pa.table(
        {
            "id": first_id + np.arange(len(moments)),
            "account": pa.array([f"A{n:03d}" for n in range(ACCOUNTS)]).take(which),
            "cents": random.integers(1, 10_000, len(moments)),
            "at_us": np.round(moments * 1e6).astype(np.int64),
        }
    )


def _closing(at_s: float) -> Tables:
    import pyarrow as pa

    at_us = round((at_s + CLOSING_S) * 1e6)
    row = {"id": 0, "account": CLOSING_ACCOUNT, "cents": 0, "at_us": at_us}
    return {QUERIES["totals"]: pa.Table.from_pylist([row])}


def _reference(inputs: Tables) -> Tables:
    """All results at once, by Arrow's own functions."""
    import pyarrow as pa

    found = {
        name: inputs[source].select(["id", "account", "cents"]) for name, source in QUERIES.items()
    }
    orders = found["enrich"]
    score = orders["cents"].to_numpy() * 3 + orders["id"].to_numpy() % 7
    found["enrich"] = orders.drop_columns(["cents"]).append_column("score", pa.array(score))
    payments = inputs[QUERIES["totals"]]
    at_us = payments["at_us"].to_numpy()
    start_us = at_us - at_us % (1_000_000 * WINDOW_S)
    payments = payments.append_column("start_ms", [start_us // 1000])
    payments = payments.filter(closed(start_us + 1_000_000 * WINDOW_S, at_us))
    sums = payments.group_by(["account", "start_ms"], use_threads=False).aggregate(
        [("cents", "sum"), ("cents", "count"), ("id", "sum")]
    )
    made = sums.select(["account", "start_ms", "cents_sum", "cents_count", "id_sum"])
    names = ["account", "start_ms", "cents", "payments", "checksum"]
    found["totals"] = made.rename_columns(names)
    return found
