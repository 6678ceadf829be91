"""A job that is wrong on purpose: ``wrong_job.py FOLDER`` counts words of text files until killed.

It asks for dynamic allocation and for few partitions, reads one file a batch, and keeps its
checkpoint in a local folder. Lines go in through the folder ``in``; ``ready`` is written when
the query runs, with the address of the Spark UI.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.appName("wrong")
        .config("spark.dynamicAllocation.enabled", "true")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    words = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    query = (
        words.groupBy("value")
        .count()
        .writeStream.queryName("words")
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="2 seconds")
        .start()
    )
    ready = folder / "ready.part"
    ready.write_text(str(spark.sparkContext.uiWebUrl))
    ready.rename(folder / "ready")
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
