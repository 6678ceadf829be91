"""What a topology asks of a topic, whatever holds its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.manifests import Manifest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["REJECTED", "Topic", "accepted"]

REJECTED = "rejected"
"""A column of this name tells why a row was set aside, null for good rows.

Bad rows stay in their operator's topic, where they can be counted and looked at, and no operator
after it gets to see them.
"""


def accepted(rows: DataFrame) -> DataFrame:
    """The good rows, without the column `REJECTED`."""
    if REJECTED not in rows.columns:
        return rows
    return rows.filter(f"{REJECTED} IS NULL").drop(REJECTED)


class Topic(Protocol):
    """What a topology needs of the log between two operators."""

    @property
    def schema(self) -> StructType:
        """The rows' columns and types."""

    def read(
        self,
        spark: SparkSession,
        consumer: str,
        checkpoint: Path,
        max_files_per_trigger: int | None = None,
    ) -> DataFrame:
        """A streaming DataFrame of all rows, for the query `consumer` with that checkpoint."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are there now, as an ordinary DataFrame."""

    def append(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        producer: str = "python",
        batch_id: int | None = None,
    ) -> Manifest:
        """Publish rows as one batch, from Python alone; repeatable when `batch_id` is given."""

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Rows of this topic that a batch of a consuming query reads."""

    def arrived_items(self) -> int:
        """Rows that were ever published, trimmed ones included: it never falls."""

    def lag_items(self, consumer: str) -> int:
        """Rows published that the consumer has not finished with."""

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is still to be done."""

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch at once; one that is there already stays as it is."""

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""

    def sweep(self, producer: str) -> None:
        """Settle what a dead run of the producer has left behind; call it before a start."""

    def trim(self, older_than_s: float) -> int:
        """Remove old batches that every consumer has finished with; returns their number."""
