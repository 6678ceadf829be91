"""FUGU's window queries over the ticks of an exchange, with parameters from a random seed.

Covers: an application with settings, a workload with the statistics of exchange days, the queries
as one stateful operator, and the reference. ``tidegate run ticks`` runs it live.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.apps.live import SETTINGS
from tidegate.apps.ticks import draw_queries
from tidegate.spark.local.session import session_on

START_S = 1_700_000_040.0
QUERIES, SECONDS = 6, 60.0


def main(spark: SparkSession) -> None:
    app = application("ticks", queries=QUERIES)
    day = app.shape("ticks", 20.0, SECONDS, 1)
    moments = START_S + day.arrivals(0, SECONDS)["ticks"]
    print(f"an exchange day in {SECONDS:.0f} s: {len(moments)} ticks")
    ticks = app.generate("ticks", moments, 0, np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as folder:
        check = app.run_through(spark, Path(folder), {"ticks": [ticks]})
    rows = check.results["prices"].to_pylist()
    for n, (window_s, sector) in enumerate(draw_queries(QUERIES), start=1):
        mine = sorted((r["start"], r["comp"], r) for r in rows if r["query"] == n)
        print(f"query {n}: {sector} within {window_s} s: {len(mine)} rows")
        if mine:
            _, comp, row = mine[0]
            shown = " ".join(f"{k} {row[k]:g}" for k in ("first", "min", "avg", "max", "last"))
            print(f"  {comp}: {shown}")
    print("as the reference" if check.exact else f"wrong: {check.wrong}")


if __name__ == "__main__":
    with session_on("local[2]", Path("out/example.log"), SETTINGS) as spark:
        main(spark)
