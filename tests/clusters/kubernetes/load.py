"""A job whose load a test chooses: a heavy query until FOLDER/calm, a light one until FOLDER/stop.

    tidegate submit --slo 10s … tests/clusters/kubernetes/load.py FOLDER

A row of either query takes 12 ms. The heavy one has 200 rows a second, which is more than one
executor of two slots can process; the light one has 5.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROW_MS = 12
HEAVY_PER_S, LIGHT_PER_S = 200, 5


def start(spark: SparkSession, folder: Path, name: str, rows_per_s: int) -> StreamingQuery:
    """A query of so many rows a second."""
    source = spark.readStream.format("rate").option("rowsPerSecond", rows_per_s)
    rows = source.option("numPartitions", 8).load()
    slow = rows.selectExpr("value", f"reflect('java.lang.Thread', 'sleep', {ROW_MS}L) as w")
    writer = slow.writeStream.format("noop").queryName(name).trigger(processingTime="1 second")
    return writer.option("checkpointLocation", str(folder / "checkpoints" / name)).start()


def main(folder: Path) -> None:
    """Run until FOLDER/stop."""
    spark = SparkSession.builder.appName("load").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    light = start(spark, folder, "light", LIGHT_PER_S)
    heavy = start(spark, folder, "heavy", HEAVY_PER_S)
    while not (folder / "stop").exists():
        if heavy.isActive and (folder / "calm").exists():
            heavy.stop()
        for query in (light, heavy):
            if (error := query.exception()) is not None:
                raise error
        time.sleep(0.2)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
