"""The application of the storm: one query of `ticks` for each seed, until a file asks it to stop.

    spark-submit job.py FOLDER

A query runs while its folder ``seed-N`` has a file ``go`` and no file ``stop``. After its stop, the
number of queries that are left is in a file ``left``. A query that fails ends the application.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.autoscaler import ticks


def main() -> None:
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.appName("storm").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    running: dict[Path, StreamingQuery] = {}
    while not (folder / "stop").exists():
        for home in (go.parent for go in folder.glob("seed-*/go")):
            stops = (home / "stop").exists()
            if home in running and stops:
                running.pop(home).stop()
                (home / "left").write_text(str(len(spark.streams.active)), encoding="ascii")
            elif home not in running and not stops:
                places = (home / name for name in ("in", "out", "checkpoint"))
                running[home] = ticks.start(spark, *places)
        for query in running.values():
            if not query.isActive:
                sys.exit(f"a query ended, and nobody asked it to: {query.exception()}")
        time.sleep(0.2)
    sys.exit(ticks.ENDED_WELL)


if __name__ == "__main__":
    main()
