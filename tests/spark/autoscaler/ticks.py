"""The application of the live tests: every value of a folder of files, each exactly once.

    python ticks.py INPUT OUTPUT CHECKPOINT FILES

Each value is in two files; the query keeps what it has seen as state and writes a value when it
comes first. So a state that is lost, or a batch that counts twice, shows in the output. It reads a
file at a time, for many batches, and a row waits a little, so that they can be hit in the middle.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROWS = 20
FIRST_S = 1_700_000_000
ENDED_WELL = 7
"""An exit code that nothing else gives."""


def write_input(folder: Path, first: int, files: int) -> None:
    """So many files, from a number on, each with new values and those of the file before."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        values = range(max(0, number - 1) * ROWS, (number + 1) * ROWS)
        new = folder / f".{number:04}"
        new.write_text("".join(json.dumps({"v": value}) + "\n" for value in values))
        os.utime(new, (FIRST_S + number, FIRST_S + number))  # Spark reads the oldest first
        new.rename(folder / f"{number:04}.json")


def batch_result(folder: Path) -> Counter[int]:
    """What a batch computation over the same files gives: every value once."""
    lines = (line for file in folder.glob("*.json") for line in file.read_text().splitlines())
    return Counter({json.loads(line)["v"] for line in lines})


def start(spark: SparkSession, source: Path, sink: Path, checkpoint: Path) -> StreamingQuery:
    """The query, started or continued."""
    rows = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1).json(str(source))
    return write(rows, sink, checkpoint)


def write(rows: DataFrame, sink: Path, checkpoint: Path) -> StreamingQuery:
    """The same with rows from elsewhere, in a column ``v``."""
    slow = rows.repartition(4).selectExpr("v", "reflect('java.lang.Thread', 'sleep', 20L) as w")
    writer = slow.dropDuplicates(["v"]).writeStream.format("json").option("path", str(sink))
    return writer.queryName("ticks").option("checkpointLocation", str(checkpoint)).start()


def written(sink: Path) -> Counter[int]:
    """How often each value is in the sink, by the sink's own log of the files that count."""
    log = sink / "_spark_metadata"
    names: set[str] = set()
    for batch in log.iterdir() if log.is_dir() else ():
        if batch.name.isdecimal() or batch.name.endswith(".compact"):
            lines = batch.read_text(encoding="utf-8").splitlines()[1:]
            names |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
    found: Counter[int] = Counter()
    for name in names:
        lines = (sink / name).read_text(encoding="utf-8").splitlines()
        found.update(json.loads(line)["v"] for line in lines)
    return found


def main() -> None:
    source, sink, checkpoint = (Path(word) for word in sys.argv[1:4])
    spark = SparkSession.builder.appName("ticks").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = start(spark, source, sink, checkpoint)
    print("ticks: started", flush=True)
    while len(written(sink)) < int(sys.argv[4]) * ROWS and not query.awaitTermination(1):
        pass
    query.stop()
    print("ticks: done", flush=True)
    sys.exit(ENDED_WELL)


if __name__ == "__main__":
    main()
