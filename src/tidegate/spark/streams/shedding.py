"""Load shedding: a declared share of the items is dropped before any work, and counted exactly.

Which items go is decided by a hash of their content and the batch's number, so a batch that is
repeated after a crash drops the same rows. The share itself may change from batch to batch: the one
used is kept in a *ledger*, with the counts, before the batch does anything, and a repeated batch
takes it from there.

Counting reads the batch a second time, and only while shedding is on. It is a job of its own and
not an accumulator, because accumulators count twice what a lost executor makes Spark repeat.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import BackendError
from tidegate.spark.streams.live_settings import Counts, Dials

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Decision", "ShedLedger", "shedding"]

_STEPS = 1_000_000  # a share is rounded to a millionth


@dataclass(frozen=True)
class Decision:
    """What is shed of one batch.

    fraction: the share, 0 to 1. seen, dropped: items of this batch, 0 when it sheds nothing.
    total_seen, total_dropped: the same since the first batch. query: Spark's id of the query.
    """

    batch_id: int
    fraction: float
    seen: int = 0
    dropped: int = 0
    total_seen: int = 0
    total_dropped: int = 0
    query: str = ""


class ShedLedger:
    """The decisions of one query, kept in a folder: one small file for each of the last batches.

    by: columns whose hash decides; none: all columns and the batch's number.
    """

    def __init__(self, folder: Path, by: Sequence[str] = ()) -> None:
        self.folder = folder
        self.by = tuple(by)
        folder.mkdir(parents=True, exist_ok=True)

    def settle(self, batch: DataFrame, batch_id: int, wanted: float) -> tuple[DataFrame, Decision]:
        """What is left of the batch, and the decision: the one on file, else `wanted` put on file.

        wanted: share of the items to drop, 0 to 1.
        """
        query = query_id(batch)
        if any(_read(path).query != query for path in self.folder.glob("[0-9]*.json")):
            raise BackendError(
                f"{self.folder} is the ledger of another query: the checkpoint was removed and "
                "the ledger kept; remove both or neither"
            )
        decision = self._on_file(batch_id) or self._decide(batch, batch_id, wanted, query)
        return self.left_of(batch, batch_id, decision.fraction), decision

    def left_of(self, batch: DataFrame, batch_id: int, fraction: float) -> DataFrame:
        """What is left of a batch when that share of it is dropped: always the same rows."""
        return batch.filter(~self._unlucky(batch, batch_id, fraction)) if fraction else batch

    def _decide(self, batch: DataFrame, batch_id: int, wanted: float, query: str) -> Decision:
        from pyspark.sql import functions as fn

        seen = dropped = 0
        if wanted > 0:
            counted = batch.agg(
                fn.count("*").alias("seen"),
                fn.count_if(self._unlucky(batch, batch_id, wanted)).alias("dropped"),
            ).first()
            assert counted is not None  # an aggregate without groups has one row
            seen, dropped = counted["seen"], counted["dropped"]
        before = self._on_file(batch_id - 1) or Decision(batch_id - 1, 0.0)
        decision = Decision(
            batch_id,
            wanted,
            seen,
            dropped,
            before.total_seen + seen,
            before.total_dropped + dropped,
            query,
        )
        path = self._path(batch_id)
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(asdict(decision)), encoding="utf-8")
        hidden.rename(path)
        # Spark repeats no batch but the last; the one before carries the totals.
        self._path(batch_id - 2).unlink(missing_ok=True)
        return decision

    def _unlucky(self, batch: DataFrame, batch_id: int, fraction: float) -> Column:
        from pyspark.sql import functions as fn

        by = [fn.col(f"`{name}`") for name in self.by or batch.columns]
        salt = [] if self.by else [fn.lit(batch_id)]
        position = fn.pmod(fn.xxhash64(*salt, *by), fn.lit(_STEPS))
        return position < round(fraction * _STEPS)

    def _on_file(self, batch_id: int) -> Decision | None:
        path = self._path(batch_id)
        return _read(path) if path.exists() else None

    def _path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id:012d}.json"


def _read(path: Path) -> Decision:
    return Decision(**json.loads(path.read_text(encoding="utf-8")))


def shedding(
    function: Callable[[DataFrame, int], None],
    dials: Dials,
    folder: Path,
    *,
    name: str,
    by: Sequence[str] = (),
) -> Callable[[DataFrame, int], None]:
    """A `foreachBatch` function that sheds `dials.shed_fraction` before it calls yours.

    function: yours, called with what is left and the batch's number.
    folder: for the ledger; keep it beside the query's checkpoint, and remove both or neither.
    name: under which `dials.counts(name)` tells the items seen and dropped *in batches that shed*:
    with shedding off nothing is counted, because counting would read the batch a second time.
    by: columns whose hash decides (all rows of a key share a fate); none: each row by itself.

    ::

        sink = shedding(write, dials, Path("out/shed"), name="ticks")
        stream.writeStream.foreachBatch(sink).option("checkpointLocation", "out/checkpoint").start()
    """
    ledger = ShedLedger(folder, by)

    def shed_then_call(batch: DataFrame, batch_id: int) -> None:
        left, decision = ledger.settle(batch, batch_id, dials.shed_fraction)
        dials.record(name, Counts(decision.total_seen, decision.total_dropped))
        function(left, batch_id)

    return shed_then_call


def query_id(batch: DataFrame) -> str:
    """Spark's id of the query that a batch belongs to: the same after a restart."""
    # Spark runs a batch in the query's own thread, which carries this property.
    context = batch.sparkSession.sparkContext
    return context.getLocalProperty("sql.streaming.queryId") or ""
