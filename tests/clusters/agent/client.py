"""A client of a Spark Connect server with one streaming query: rows that wait, until told to stop.

    python tests/clusters/agent/client.py sc://127.0.0.1:15002 NAME FOLDER

It reads the files of FOLDER/in, as tests/clusters/job.py does, and knows nothing of Tidegate.
FOLDER/started says that the query runs; FOLDER/stop ends it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

ROW_MS = 12


def main(url: str, name: str, folder: Path) -> None:
    """Run one query until there is a file named stop."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    rows = spark.readStream.text(str(folder / "in")).repartition(4)
    waiting = rows.selectExpr(f"reflect('java.lang.Thread', 'sleep', {ROW_MS}L) as waited")
    writer = waiting.writeStream.format("noop").queryName(name).trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    (folder / "started").touch()
    while not (folder / "stop").exists() and query.isActive:
        time.sleep(0.2)
    if query.exception() is not None:
        sys.exit(f"the query failed: {query.exception()}")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
