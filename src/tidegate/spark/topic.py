"""What a topology asks of a topic, whatever holds its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.spark.checkpoints import Checkpoint
from tidegate.spark.dials import Counts
from tidegate.spark.manifests import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Topic"]


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

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Rows of this topic that a batch of a consuming query reads."""

    def lag_items(self, consumer: str) -> int:
        """Rows published that the consumer has not finished with."""

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is still to be done."""

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch at once; one that is there already stays as it is."""

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""

    def trim(self, older_than_s: float) -> int:
        """Remove old batches that every consumer has finished with; returns their number."""
