"""The factory whose operators wait for as long as those of the authors' code occupy an instance.

It forwards what the authors' code forwards and what the reproduction of the paper's tables assumes:
98 of 100 messages of S1 are defects and reach O8, where the paper says one in fifty. There are no
images and no reports as PDF, and only numbers come out. See `lab/papers/visp/world.py` for what the
waits consist of.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Tables, columns
from tidegate.spark.streams.topology import StreamOperator, StreamTopology

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["FORWARDED", "RESULTS", "WAITS_S", "messages", "reference", "topology"]

WAITS_S = {
    "O1-parse": 1.267, "O2-filter": 0.0466, "O3-performance": 0.077, "O4-availability": 0.079,
    "O5-quality": 0.079, "O6-temperature": 0.0272, "O7-oee": 0.0059, "O8-inform": 0.0069,
    "O9-report": 0.0071,
}  # fmt: skip
"""Time for which an item occupies a slot, in seconds."""
FORWARDED = {
    "O1-parse": 1.0, "O2-filter": 0.98, "O3-performance": 1.0, "O4-availability": 1.0,
    "O5-quality": 1.0, "O6-temperature": 1 / 102, "O7-oee": 1 / 3, "O8-inform": 1.0,
    "O9-report": 1 / 300,
}  # fmt: skip
"""Rows that leave an operator for each that enters it. Each of O3, O4 and O5 reads all of O1's. The
rows of O8 and O9 leave the topology."""
RESULTS = ("O8-inform", "O9-report")
MESSAGES = columns(id="long", at_us="long", part="integer")
PARTS = ("O3-performance", "O4-availability", "O5-quality")
# Which rows leave: an expression over the number of a row in its source.
_KEPT = {
    "O2-filter": "id % 100 < 98",
    "O6-temperature": "id % 102 = 0",
    "O7-oee": "part = 0",
    "O9-report": "id % 300 = 0",
}


def topology(trigger_s: float) -> StreamTopology:
    """The nine operators.

    trigger_s: seconds between two batches of those that read a sensor; the others work on each of
    their batches at once.
    """
    inputs = {
        "O1-parse": ("S2",), "O2-filter": ("S1",), "O6-temperature": ("S3",),
        **dict.fromkeys(PARTS, ("O1-parse",)),
        "O7-oee": PARTS, "O9-report": ("O7-oee",), "O8-inform": ("O2-filter", "O6-temperature"),
    }  # fmt: skip
    return StreamTopology(
        sources=dict.fromkeys(("S1", "S2", "S3"), MESSAGES),
        operators=tuple(
            StreamOperator(
                name,
                origins,
                partial(_work, name=name),
                ratio=FORWARDED[name],
                service_time_s=WAITS_S[name],
                trigger_s=trigger_s if origins[0].startswith("S") else 0.0,
            )
            for name, origins in inputs.items()
        ),
    )


def _work(rows: DataFrame, name: str) -> DataFrame:
    # Milliseconds and the rest of them, in nanoseconds.
    whole_ms, rest_ns = divmod(round(1e9 * WAITS_S[name]), 1_000_000)
    slept = f"java_method('java.lang.Thread', 'sleep', {whole_ms}L, {rest_ns})"
    waited = rows.filter(f"coalesce({slept}, '') <> 'never'")
    part = f"{PARTS.index(name)} AS part" if name in PARTS else "part"
    return waited.filter(_KEPT.get(name, "true")).selectExpr("id", "at_us", part)


def messages(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    """Messages that arrive at these moments; see `Application.generate`."""
    import pyarrow as pa

    count = len(moments)
    return pa.table(
        {
            "id": first_id + np.arange(count),
            "at_us": np.round(moments * 1e6).astype(np.int64),
            "part": pa.array(np.zeros(count, np.int32)),
        }
    )


def reference(inputs: Tables) -> Tables:
    """What reaches O8, and what O9 reports."""
    import pyarrow as pa

    defects = inputs["S1"].filter(np.asarray(inputs["S1"]["id"]) % 100 < 98)
    hot = inputs["S3"].filter(np.asarray(inputs["S3"]["id"]) % 102 == 0)
    reports = inputs["S2"].filter(np.asarray(inputs["S2"]["id"]) % 300 == 0)
    return {"O8-inform": pa.concat_tables([defects, hot]), "O9-report": reports}
