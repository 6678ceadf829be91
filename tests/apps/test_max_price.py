"""The highest price of each symbol in each second: the stream against numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.application import application
from tidegate.pipelines.texts import REASONS, records, spoiled

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
    outcome = app.run_through(spark, tmp_path, {NAME: bad}, parallelism=3)
    assert outcome.exact, outcome.wrong
    results = outcome.results["merge"]
    assert results.num_rows == 20 * 6
    assert sum(results["tuples"].to_pylist()) == sum(t.num_rows for t in good)
    added = sum(t.num_rows for t in bad) - sum(t.num_rows for t in good)
    assert set(outcome.rejected["maxima"]) == set(REASONS)
    assert sum(outcome.rejected["maxima"].values()) == added > 50
    # The reference alone, computed by hand for one symbol and second.
    ticks = [json.loads(text) for table in good for text in table["value"].to_pylist()]
    first = min(ticks, key=lambda tick: tick["at_us"])
    second = first["at_us"] // 1_000_000
    alike = [t for t in ticks if (t["symbol"], t["at_us"] // 1_000_000) == (first["symbol"], second)]
    row = next(r for r in results.to_pylist() if (r["symbol"], r["second"]) == (first["symbol"], second))
    assert (row["cents"], row["tuples"]) == (max(t["cents"] for t in alike), len(alike))
