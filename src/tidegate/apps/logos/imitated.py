"""Logo detection whose operators wait for as long as the paper's operators work.

The paper has 22 executors, each on a separate core. A task that waits occupies a slot but no
processor, so that a small machine has room for 22 of them, and slots are what is scarce. A frame
carries the time that it takes in each operator, drawn like the service times of the reproduction.
There are no pictures, and nothing is detected: the results are the frames' numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Tables, columns
from tidegate.spark.streams.topology import StreamOperator, StreamTopology

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["EXTRACT_S", "FRAMES_PER_S", "MATCH_S", "frames", "reference", "topology"]

FRAMES_PER_S = 26.0
"""Two videos of 13 frames/s, the smallest multiple of the stated rate that Fig. 10 allows."""
EXTRACT_S, MATCH_S = 5.4 / FRAMES_PER_S, 5.8 / FRAMES_PER_S
"""Mean time for a frame in seconds: the loads of the reproduction, `lab/papers/drs/world.py`."""
SERVICE_SCV = 0.25
"""Squared coefficient of variation of these times."""
FRAMES = columns(id="long", at_us="long", extract_ms="long", match_ms="long")
FORGET = "10 minutes"


def topology(state_partitions: int, trigger_s: float) -> StreamTopology:
    """The three operators.

    state_partitions: of the last one, whose tasks follow its parallelism. trigger_s: seconds
    between two batches of the first operator; the others work on each of its batches at once.
    """
    return StreamTopology(
        sources={"frames": FRAMES},
        operators=(
            StreamOperator(
                "extract", ("frames",), _extract, service_time_s=EXTRACT_S, trigger_s=trigger_s
            ),
            StreamOperator("match", ("extract",), _match, service_time_s=MATCH_S, trigger_s=0.0),
            StreamOperator(
                "aggregate",
                ("match",),
                _aggregate,
                state_partitions=state_partitions,
                rebalances=True,
                output_mode="update",
                trigger_s=0.0,
            ),
        ),
    )


def _extract(rows: DataFrame) -> DataFrame:
    stamp = "unix_micros(current_timestamp()) AS stamp_us"
    return waited(rows, "extract_ms").selectExpr("id AS frame", "at_us", "match_ms", stamp)


def _match(rows: DataFrame) -> DataFrame:
    return waited(rows, "match_ms").select("frame", "at_us", "stamp_us")


def _aggregate(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    return (
        rows.withColumn("stamp", fn.timestamp_micros("stamp_us"))
        .withWatermark("stamp", FORGET)
        .groupBy("stamp", "frame")
        .agg(fn.max("at_us").alias("at_us"), fn.count("*").alias("parts"))
        .select("frame", "at_us", "parts")
    )


def waited(rows: DataFrame, column: str) -> DataFrame:
    """The same rows, each after a wait of as many milliseconds as a column says."""
    # As in `imitate_call`: a filter that Spark can neither leave out nor move.
    slept = f"java_method('java.lang.Thread', 'sleep', {column})"
    return rows.filter(f"coalesce({slept}, '') <> 'never'")


def frames(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    """Frames that arrive at these moments; see `Application.generate`."""
    import pyarrow as pa

    def drawn_ms(mean_s: float) -> NDArray[np.int64]:
        drawn = random.gamma(1 / SERVICE_SCV, 1000 * mean_s * SERVICE_SCV, len(moments))
        return np.round(drawn).astype(np.int64)

    return pa.table(
        {
            "id": first_id + np.arange(len(moments)),
            "at_us": np.round(moments * 1e6).astype(np.int64),
            "extract_ms": drawn_ms(EXTRACT_S),
            "match_ms": drawn_ms(MATCH_S),
        }
    )


def reference(inputs: Tables) -> Tables:
    """Each frame once."""
    import pyarrow as pa

    given = inputs["frames"]
    parts = pa.array(np.ones(given.num_rows, np.int64))
    return {"aggregate": pa.table({"frame": given["id"], "at_us": given["at_us"], "parts": parts})}
