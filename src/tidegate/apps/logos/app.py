"""logos: which of 16 logos are in each frame of a video, and where (DRS, VLD).

::

    frames ──► extract ──► match ──► aggregate

`extract` finds the SIFT features of a frame and sends them in packets: a detailed frame makes more
work for the next operator than an empty one. `match` compares a packet with the features of all
logos. `aggregate` collects all packets of a frame in Spark's state store, and returns one row per
frame with the logos that have enough consistent matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.types import ArrayType, IntegerType, StructType

from tidegate.apps.application import Application, InputCount, Tables, columns
from tidegate.apps.loads import video
from tidegate.apps.logos import imitated
from tidegate.apps.logos.frames import frames, spoiled
from tidegate.apps.logos.vision import (
    DESCRIPTOR,
    Features,
    features,
    matches,
    read_picture,
    verdict,
)
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

__all__ = ["PACKET", "application"]

PACKET = 96
"""Features of a packet, at most."""
FRAMES = columns(id="long", at_us="long", picture="binary", planted=ArrayType(IntegerType()))
HEAD = {
    "frame": "long", "at_us": "long", "stamp_us": "long", "features": "integer",
    "packet": "integer", "packets": "integer",
}  # fmt: skip
PACKETS = columns(**HEAD, points="binary", descriptors="binary", rejected="string")
MATCHES = columns(**HEAD, matches="binary")
FOUND = columns(logo="integer", matches="integer", corners=ArrayType(IntegerType()))
VERDICTS = columns(frame="long", at_us="long", features="integer", found=ArrayType(FOUND))
FORGET = "10 minutes"
"""A frame with a lost packet is dropped when frames this much younger have arrived."""


def application(
    state_partitions: int = 2, imitate: bool = False, trigger_s: float = 5.0
) -> Application:
    """The application.

    state_partitions: of the operator that collects packets. imitate: operators wait for the times
    of the paper and compute nothing, see `imitated`. trigger_s: with it, seconds between two
    batches of the first operator.
    """
    if imitate:
        return Application(
            name="logos",
            summary="waits as long as the detection of logos takes in the paper",
            paper="DRS (Fu et al.), video logo detection",
            topology=imitated.topology(state_partitions, finite(trigger_s, "trigger_s", above=0)),
            rates_per_s={"frames": imitated.FRAMES_PER_S},
            generate=imitated.frames,
            shape=video,
            results=("aggregate",),
            reference=imitated.reference,
            input_count=InputCount(None, ("frame",)),
            slo="20s",
        )
    topology = StreamTopology(
        sources={"frames": FRAMES},
        operators=(
            StreamOperator("extract", ("frames",), _extract, ratio=4, service_time_s=0.03),
            StreamOperator("match", ("extract",), _match, service_time_s=0.002),
            StreamOperator(
                "aggregate",
                ("match",),
                _aggregate,
                state_partitions=state_partitions,
                output_mode="update",
                ratio=0.25,
            ),
        ),
    )
    return Application(
        name="logos",
        summary="which of 16 logos are in each frame of a video, and where",
        paper="DRS (Fu et al.), video logo detection",
        topology=topology,
        rates_per_s={"frames": 13.0},
        generate=frames,
        spoil=spoiled,
        results=("aggregate",),
        reference=_reference,
        tally=_tally,
    )


def _extract(rows: DataFrame) -> DataFrame:
    """Packets of features of each frame; bad frames are set aside."""
    # The driver's clock, which only drops old state: the clock of a frame may be wrong.
    stamped = rows.selectExpr(
        "id", "at_us", "picture", "unix_micros(current_timestamp()) AS stamp_us"
    )
    return stamped.mapInArrow(_each(_packets, PACKETS), PACKETS)


def _packets(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {"frame": row["id"], "at_us": row["at_us"], "stamp_us": row["stamp_us"]}
    picture, why = read_picture(row["picture"])
    if row["id"] is None:
        why = "no number"
    if picture is None or why is not None:
        yield {**head, "rejected": why}
        return
    found = features(picture)
    cuts = range(0, max(1, len(found.points)), PACKET)
    for n, first in enumerate(cuts):
        part = slice(first, first + PACKET)
        yield {
            **head,
            "features": len(found.points),
            "packet": n,
            "packets": len(cuts),
            "points": found.points[part].tobytes(),
            "descriptors": found.descriptors[part].tobytes(),
        }


def _match(rows: DataFrame) -> DataFrame:
    """The pairs of similar features of each packet and the logos."""
    return rows.mapInArrow(_each(_matched, MATCHES), MATCHES)


def _matched(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    points = np.frombuffer(row.pop("points"), np.float32).reshape(-1, 2)
    descriptors = np.frombuffer(row.pop("descriptors"), np.uint8).reshape(-1, DESCRIPTOR)
    yield {**row, "matches": matches(Features(points, descriptors)).tobytes()}


def _aggregate(rows: DataFrame) -> DataFrame:
    """One row for each frame, in the batch with its last packet."""
    from pyspark.sql import functions as fn

    gathered = (
        rows.withColumn("stamp", fn.timestamp_micros("stamp_us"))
        .withWatermark("stamp", FORGET)
        .groupBy("stamp", "frame")
        .agg(
            *(fn.max(name).alias(name) for name in ("at_us", "features", "packets")),
            fn.collect_list(fn.struct("packet", "matches")).alias("parts"),
        )
    )
    whole = gathered.filter("size(parts) >= packets").drop("stamp", "packets")
    return whole.mapInArrow(_each(_judged, VERDICTS), VERDICTS)


def _judged(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    # In the order of the packets, each once: a frame may have been sent twice.
    parts = {part["packet"]: part["matches"] for part in row.pop("parts")}
    yield {**row, "found": _found(_pairs(b"".join(parts[n] for n in sorted(parts))))}


def _pairs(packed: bytes) -> NDArray[np.float32]:
    return np.frombuffer(packed, np.float32).reshape(-1, 5)


def _found(pairs: NDArray[np.float32]) -> list[dict[str, Any]]:
    return [asdict(found) | {"corners": list(found.corners)} for found in verdict(pairs)]


def _each(
    function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function of rows as a function of Arrow batches; columns missing in a row are null."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(schema)
        for batch in batches:
            made = [row for given in batch.to_pylist() for row in function(given)]
            yield pa.RecordBatch.from_pylist(made, schema=arrow)

    return work


def _reference(inputs: Tables) -> Tables:
    """The same detection, frame by frame in one loop."""
    import pyarrow as pa

    rows = []
    for row in inputs["frames"].to_pylist():
        picture, _ = read_picture(row["picture"])
        if picture is not None and row["id"] is not None:
            seen = features(picture)
            head = {"frame": row["id"], "at_us": row["at_us"], "features": len(seen.points)}
            rows.append({**head, "found": _found(matches(seen))})
    return {"aggregate": pa.Table.from_pylist(rows)}


def _tally(inputs: Tables, results: Tables) -> list[str]:
    """Precision and recall relative to the planted logos, an independent check."""
    planted = {
        (row["id"], number)
        for row in inputs["frames"].select(["id", "planted"]).to_pylist()
        for number in row["planted"] or ()
    }
    found = {
        (row["frame"], each["logo"])
        for row in results["aggregate"].to_pylist()
        for each in row["found"]
    }
    right = len(planted & found)
    return [
        f"{results['aggregate'].num_rows} frames, {len(planted)} logos planted, {len(found)} found",
        f"precision {_share(right, len(found))}, recall {_share(right, len(planted))}",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else "not defined (none)"
