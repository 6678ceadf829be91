"""The highest price of each symbol in each second: the stream against numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.apps.application import application, settle
from tidegate.apps.records import REASONS, good_records, parsed, spoiled
from tidegate.spark.streams.live_settings import LiveSettings

START_S = 1_700_000_000.0
NAME = "stocks"


def batches(count: int = 3, rows: int = 2_000, symbols: int = 20) -> list[pa.Table]:
    app, random = application("max-price", symbols=symbols), np.random.default_rng(1)
    return [
        app.generate(NAME, START_S + 2 * n + np.sort(random.random(rows)) * 2, n * rows, random)
        for n in range(count)
    ]


def test_results_equal_the_reference_and_bad_tuples_are_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, random = application("max-price", symbols=20), np.random.default_rng(2)
    good = batches()
    bad = [spoiled(table, 0.02, random) for table in good]
    check = app.run_through(spark, tmp_path, {NAME: bad}, parallelism=3)
    assert check.exact, check.wrong
    results = check.results["merge"]
    assert results.num_rows == 20 * 6
    assert sum(results["tuples"].to_pylist()) == sum(t.num_rows for t in good)
    added = sum(t.num_rows for t in bad) - sum(t.num_rows for t in good)
    assert set(check.rejected["maxima"]) == set(REASONS)
    assert sum(check.rejected["maxima"].values()) == added > 50
    # One row by hand.
    row = results.to_pylist()[0]
    ticks = [json.loads(text) for table in good for text in table["value"].to_pylist()]
    ticks = [t for t in ticks if t["symbol"] == row["symbol"]]
    cents = [t["cents"] for t in ticks if t["at_us"] // 1_000_000 == row["second"]]
    assert (row["cents"], row["tuples"]) == (max(cents), len(cents))


def test_what_is_shed_is_counted_and_the_rest_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    app = application("max-price", symbols=20)
    live_settings = LiveSettings(default_parallelism=2)
    with app.topology.start(spark, tmp_path, live_settings) as running:
        tables = batches()
        for n, table in enumerate(tables):
            live_settings.shed_fraction = (0.0, 0.3, 0.6)[n]
            running.topics[NAME].append(table)
            settle(running, 120)
        live_settings.shed_fraction = 0.0
        running.topics[NAME].append(app.closing(START_S + 60)[NAME])
        settle(running, 120)
    check = app.compare(spark, running)
    assert check.exact, check.wrong
    counts = live_settings.counts("maxima")
    assert counts.seen == 6_001 and 1_500 < counts.dropped < 2_100
    assert sum(check.results["merge"]["tuples"].to_pylist()) == 6_000 - counts.dropped
    assert check.inputs[NAME].num_rows == counts.seen - counts.dropped


TICK: dict[str, Any] = {"symbol": "S0001", "cents": 5, "at_us": 1_700_000_000_000_000}


NO_NUMBERS: list[Any] = [0, -1, 2.5, "5", None, True, 2**63, [5], {}]
NO_WORDS: list[Any] = [7, None, "", "s", "É", ["S"], "S\n"]
BAD = (
    [None, "", " ", "null", "1", "{", "{}", "[]", '{"symbol":"S1"', json.dumps(TICK) * 2]
    + [json.dumps(TICK).replace('"', "'"), json.dumps([TICK]), json.dumps(TICK) + "x"]
    + [json.dumps(TICK | {"cents": cents}) for cents in NO_NUMBERS]
    + [json.dumps(TICK | {"symbol": symbol}) for symbol in NO_WORDS]
)


def test_the_reference_rejects_what_the_stream_rejects(spark: SparkSession) -> None:
    texts = [*BAD, json.dumps(TICK)]
    table = pa.table({"value": texts, "sent_us": [TICK["at_us"]] * len(texts)})
    rows = parsed(spark.createDataFrame(table), ("symbol",), ("cents",)).collect()
    bad, good = rows[:-1], rows[-1]
    assert [row["value"] for row in bad if row["rejected"] in REASONS] == BAD
    assert good["rejected"] is None and good["symbol"] == "S0001"
    assert len(good_records(table, ("symbol",), ("cents",))["cents"]) == 1
