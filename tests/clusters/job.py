"""The job of the tests on clusters, as a user would submit it: rows that wait, until told to stop.

    tidegate submit --slo 5s … tests/clusters/job.py FOLDER

It reads the files of FOLDER/in. Each row keeps a slot busy for some milliseconds. It knows nothing
of Tidegate. FOLDER/application has the id of the running application; FOLDER/stop ends it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

ROW_MS = 12


def main(folder: Path) -> None:
    """Run one query until there is a file named stop."""
    spark = SparkSession.builder.appName("rows that wait").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    rows = spark.readStream.text(str(folder / "in")).repartition(8)
    waiting = rows.selectExpr(f"reflect('java.lang.Thread', 'sleep', {ROW_MS}L) as waited")
    writer = waiting.writeStream.format("noop").queryName("rows").trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    made = folder / ".application"
    made.write_text(spark.sparkContext.applicationId, encoding="ascii")
    made.rename(folder / "application")
    while not (folder / "stop").exists() and query.isActive:
        time.sleep(0.2)
    if query.exception() is not None:
        sys.exit(f"the query failed: {query.exception()}")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
