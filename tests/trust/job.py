"""The job of `faults.py`, as a user would submit it: four queries until a file says stop.

    tidegate submit --slo 20s … tests/trust/job.py FOLDER

It knows nothing of Tidegate's autoscaler. FOLDER/application has the id of the running application.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.spark.streams.live_settings import LiveSettings

SETTINGS = {"enrich_ms": 40, "enrich_per_s": 200.0, "totals_per_s": 200.0}
SLOTS = 12


def main(folder: Path) -> None:
    """Start the queries, or continue those of a job that died, and wait for the end."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (folder / "application").write_text(spark.sparkContext.applicationId, encoding="ascii")
    topology = application("four-queries", **SETTINGS).topology
    with topology.start(spark, folder, LiveSettings(SLOTS)) as running:
        while not (folder / "stop").exists():
            running.check()
            time.sleep(0.2)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
