"""The highest price of each symbol in each second: a complete run of an application, checked.

Covers: an application by name, its generator, its topology on Spark with two tasks per batch, bad
records that are set aside, and the reference that the results must equal. ``tidegate run
max-price`` runs it live, on a cluster, under an autoscaler.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.apps.live import SETTINGS
from tidegate.apps.records import spoiled
from tidegate.spark.local.session import session_on

START_S = 1_700_000_000.0
SYMBOLS, TUPLES, SECONDS = 4, 2_000, 3
BAD_SHARE = 0.01


def main(spark: SparkSession) -> None:
    app = application("max-price", symbols=SYMBOLS)
    random = np.random.default_rng(7)
    moments = START_S + np.sort(random.random(TUPLES)) * SECONDS
    tuples = spoiled(app.generate("stocks", moments, 0, random), BAD_SHARE, random)
    print(tuples["value"][0])
    with tempfile.TemporaryDirectory() as folder:
        check = app.run_through(spark, Path(folder), {"stocks": [tuples]}, parallelism=2)
    for row in sorted(check.results["merge"].to_pylist(), key=lambda row: (*row.values(),)):
        print(f"{row['symbol']} {row['second']} {row['cents']:6d} of {row['tuples']}")
    for reason, count in sorted(check.rejected["maxima"].items()):
        print(f"set aside: {count} x {reason}")
    print("as the reference" if check.exact else f"wrong: {check.wrong}")


if __name__ == "__main__":
    with session_on("local[2]", Path("out/example.log"), SETTINGS) as spark:
        main(spark)
