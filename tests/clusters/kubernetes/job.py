"""The job of the tests, as a user would submit it: the query of `ticks` until a file says stop.

    tidegate submit --slo 5s … tests/clusters/kubernetes/job.py FOLDER

It knows nothing of Tidegate's autoscaler. A query that fails ends it with an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.autoscaler import ticks


def main(folder: Path) -> None:
    """Read FOLDER/in, write FOLDER/out, and end when there is FOLDER/stop."""
    spark = SparkSession.builder.appName("ticks").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    query = ticks.start(spark, folder / "in", folder / "out", folder / "checkpoint")
    while not (folder / "stop").exists():
        query.awaitTermination(1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
