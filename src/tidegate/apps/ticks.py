"""FUGU's 35 queries over a stream of ticks, as one application.

FIRST, MIN, AVG, MAX, LAST(price) WITHIN x SEC GROUP BY comp WHERE sector = y: x and y of each query
are chosen at random from a seed. Equal queries share their windows, and one stateful operator keeps
windows of all lengths, so that 35 queries cost one batch instead of 35.

T. Heinze et al., *Auto-scaling techniques for elastic data stream processing*, ICDE Workshops 2014.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.apps import records
from tidegate.apps.application import Application, columns
from tidegate.apps.market import COMPANIES, SECTORS, SHARES, Recording, exchange_day, read_recording
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite
from tidegate.workloads import EventLog, Scaled, Workload

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["TickQuery", "application", "draw_queries"]

SOURCE = "ticks"
RATE_PER_S = 1_000.0
WINDOWS_S = (5, 10, 15, 20, 30, 60)
WORDS, NUMBERS = ("comp", "sector"), ("id", "cents")
CLOSING = {"id": 1, "comp": "END", "sector": "NONE", "cents": 1}
TickQuery = tuple[int, str]
"""x, in seconds, and y, a sector."""


def draw_queries(
    count: int = 35, seed: int = 0, sectors: Sequence[str] = SECTORS
) -> tuple[TickQuery, ...]:
    """X and y of `count` queries; query n is the n-th.

    >>> draw_queries(3, seed=1)
    ((15, 'Health Care'), (30, 'Energy'), (5, 'Industrials'))
    """
    random = np.random.default_rng(seed)
    return tuple((int(random.choice(WINDOWS_S)), str(random.choice(sectors))) for _ in range(count))


def application(queries: int = 35, seed: int = 0, replay: Path | None = None) -> Application:
    """The application.

    queries: how many. seed: random seed of their parameters. replay: a recorded day instead of the
    generator, see `read_recording`; the whole day is compressed into the time of the run.
    """
    finite(queries, "queries", low=1)
    recording = None if replay is None else read_recording(replay)
    sectors = SECTORS if recording is None else recording.sectors
    asked = draw_queries(queries, seed, sectors)
    parse = partial(records.parsed, words=WORDS, numbers=NUMBERS)
    return Application(
        name="ticks",
        summary=f"{queries} window queries over the ticks of an exchange",
        paper="FUGU, Heinze et al. 2014",
        topology=StreamTopology(
            sources={SOURCE: columns(**records.TEXTS)},
            operators=(
                StreamOperator("parse", (SOURCE,), parse),
                StreamOperator(
                    "prices", ("parse",), partial(prices, queries=asked), state_partitions=2
                ),
            ),
        ),
        rates_per_s={SOURCE: RATE_PER_S if recording is None else recording.rate_per_s},
        generate=_generate if recording is None else partial(_recorded, recording),
        shape=exchange_day if recording is None else partial(_recorded_day, recording),
        replays=recording is not None,
        closing=lambda at_s: {SOURCE: records.closing(at_s, **CLOSING)},
        results=("prices",),
        reference=partial(_reference, asked),
        tally=partial(_tally, asked),
        spoil=records.spoiled,
        slo="10s",
    )


def prices(rows: DataFrame, queries: Sequence[TickQuery]) -> DataFrame:
    """A row for each query, company and window; FIRST and LAST by event time, then by id."""
    from pyspark.sql import functions as fn

    lengths: dict[str, list[int]] = {}
    asking: dict[str, list[int]] = {}
    for n, (window_s, sector) in enumerate(queries, start=1):
        lengths[sector] = sorted({*lengths.get(sector, []), window_s})
        asking.setdefault(f"{window_s} {sector}", []).append(n)
    order = fn.struct("at_us", "id")
    start_us = fn.expr("at_us - at_us % (1000000L * window_s)")
    end_us = fn.expr("at_us - at_us % (1000000L * window_s) + 1000000L * window_s")
    within = fn.struct(
        fn.timestamp_micros(start_us).alias("start"), fn.timestamp_micros(end_us).alias("end")
    )
    # `window` makes windows of one length only. This mark, which `window` sets as well, tags a
    # struct as a window of the column with the watermark, so that Spark drops it at its end.
    mark = {"spark.watermarkDelayMs": 1000 * records.LATE_S}
    return (
        rows.withColumn("at", fn.timestamp_micros("at_us"))
        .withWatermark("at", f"{records.LATE_S} seconds")
        .withColumn("window_s", fn.explode(_lookup(lengths)[fn.col("sector")]))
        .withColumn("within", within.alias("within", metadata=mark))
        .groupBy("within", "window_s", "sector", "comp")
        .agg(
            fn.min_by("cents", order).alias("first"),
            fn.min("cents").alias("min"),
            fn.avg("cents").alias("avg"),
            fn.max("cents").alias("max"),
            fn.max_by("cents", order).alias("last"),
            fn.count("*").alias("ticks"),
        )
        .withColumn("query", fn.explode(_lookup(asking)[fn.concat_ws(" ", "window_s", "sector")]))
        .selectExpr(
            "query", "comp", "unix_seconds(within.start) AS start", "first", "min", "avg", "max",
            "last", "ticks",
        )
    )  # fmt: skip


def _lookup(lists: Mapping[str, Sequence[int]]) -> Any:
    """A map from words to lists of numbers, as an expression."""
    from pyspark.sql import functions as fn

    pairs = [
        part
        for word, numbers in lists.items()
        for part in (fn.lit(word), fn.array(*map(fn.lit, numbers)))
    ]
    return fn.create_map(*pairs)


def _generate(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    import pyarrow as pa

    which = random.choice(len(SHARES), len(moments), p=SHARES)
    base = 500 + which * 7919 % 15_000  # each company trades around its own price level
    cents = base + np.round(base * random.normal(0, 0.002, len(moments))).astype(np.int64)
    names, sectors = zip(*COMPANIES, strict=True)
    return records.texts(
        moments,
        id=first_id + 1 + np.arange(len(moments)),
        comp=pa.array(names).take(which),
        sector=pa.array(sectors).take(which),
        cents=cents,
    )


def _recorded(
    recording: Recording,
    source: str,
    moments: NDArray[np.float64],
    first_id: int,
    random: np.random.Generator,
) -> pa.Table:
    import pyarrow as pa

    which = (first_id + np.arange(len(moments))) % len(recording.at_s)
    return records.texts(
        moments,
        id=first_id + 1 + np.arange(len(moments)),
        comp=pa.array(recording.comp).take(which),
        sector=pa.array(recording.sector).take(which),
        cents=recording.cents[which],
    )


def _recorded_day(
    recording: Recording, source: str, mean_per_s: float, seconds: float, seed: int
) -> Workload:
    log = EventLog(recording.at_s, source=source)
    return Scaled(log, speed=log.duration_s / seconds)


def _reference(queries: Sequence[TickQuery], inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Query by query, over all ticks at once."""
    import pyarrow as pa

    ticks = records.good_records(inputs[SOURCE], WORDS, NUMBERS)
    order = np.lexsort((ticks["id"], ticks["at_us"]))
    found: list[dict[str, Any]] = []
    for n, (window_s, sector) in enumerate(queries, start=1):
        mine = order[ticks["sector"][order] == sector]
        length_us = 1_000_000 * window_s
        start = ticks["at_us"][mine] // length_us
        out = records.closed((start + 1) * length_us, ticks["at_us"])
        groups: dict[tuple[str, int], list[int]] = {}
        for comp, begin, cents in zip(
            ticks["comp"][mine][out].tolist(),
            (start[out] * window_s).tolist(),
            ticks["cents"][mine][out].tolist(),
            strict=True,
        ):
            groups.setdefault((comp, begin), []).append(cents)
        for (comp, begin), cents in groups.items():
            found.append(
                {
                    "query": n, "comp": comp, "start": begin, "first": cents[0],
                    "min": min(cents), "avg": sum(cents) / len(cents), "max": max(cents),
                    "last": cents[-1], "ticks": len(cents),
                }
            )  # fmt: skip
    names = ("query", "comp", "start", "first", "min", "avg", "max", "last", "ticks")
    return {"prices": pa.table({name: [row[name] for row in found] for name in names})}


def _tally(
    queries: Sequence[TickQuery], inputs: Mapping[str, pa.Table], results: Mapping[str, pa.Table]
) -> list[str]:
    import pyarrow.compute as pc

    counts = sorted(
        (
            (c["counts"], c["values"])
            for c in pc.value_counts(results["prices"]["query"]).to_pylist()
        ),
        reverse=True,
    )
    if not counts:
        return ["no window had closed yet"]
    (rows, busiest), answered = counts[0], len(counts)
    window_s, sector = queries[busiest - 1]
    return [
        f"{answered} of {len(queries)} queries had an answer; the busiest, number {busiest} "
        f"({sector} within {window_s} s), had {rows} rows"
    ]
