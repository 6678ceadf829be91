"""A Kafka topic that somebody else fills: JSON records, read as the source of a topology.

Nothing is written to it and nothing noted about it. Its rows are counted by their offsets, and
records that are not JSON of the schema are set aside with a reason (`topic.REJECTED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.errors import InputError
from tidegate.spark.streams.checkpoints import Checkpoint, Offsets
from tidegate.spark.streams.kafka_client import KafkaClient
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.manifests import Manifest
from tidegate.spark.streams.topic import REJECTED
from tidegate.spark.streams.topic_files import checked_name, consumer_of, nullable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["KafkaSource", "kafka_stream", "reading"]


class KafkaSource:
    """Somebody else's topic, which must exist.

    servers: ``host:port``, several with commas. name: Kafka's name of the topic.
    schema: the columns that the JSON records have; others are ignored, missing ones are null.
    max_rows_per_batch: bound on what a reading query takes up at once.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        schema: StructType | None = None,
        *,
        max_rows_per_batch: int | None = None,
    ) -> None:
        if schema is None:
            remedy = "pass the columns that its JSON records have"
            raise InputError("schema", None, "given for somebody else's topic", remedy)
        if REJECTED in schema.names:
            remedy = "this name is kept for the reason why a record was set aside"
            raise InputError("schema", schema.names, f"without a column {REJECTED}", remedy)
        self.servers, self.name = servers, checked_name(name, "topic")
        self._schema = nullable(schema).add(REJECTED, "string")
        self._max_rows = max_rows_per_batch
        self._readers: dict[str, Checkpoint] = {}
        self._client = KafkaClient.of(servers)
        if self._client.partitions(name) is None:
            remedy = "create it, or correct the name"
            raise InputError("topic", name, f"on the broker at {servers}", remedy)

    @property
    def schema(self) -> StructType:
        """The rows' columns and types, and the column `rejected`."""
        return self._schema

    def read(
        self,
        spark: SparkSession,
        consumer: str,
        checkpoint: Path,
        max_files_per_trigger: int | None = None,
    ) -> DataFrame:
        """A streaming DataFrame of all records; this process knows the consumer's lag from now on.

        consumer: the query's name; checkpoint: its folder. A batch is bounded by the topic's
        `max_rows_per_batch`: Kafka has no files.
        """
        self._readers[checked_name(consumer, "consumer")] = Checkpoint(checkpoint.resolve())
        return self._rows(
            kafka_stream(spark, self.servers, self.name, self._max_rows, max_files_per_trigger)
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """All records that are there now, as an ordinary DataFrame."""
        options = reading(self.servers, self.name)
        return self._rows(spark.read.format("kafka").options(**options).load())

    def _rows(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        # Spark puts the text of a record that it cannot read in the column of that name.
        options = {"columnNameOfCorruptRecord": REJECTED}
        row = fn.from_json(fn.col("value").cast("string"), self._schema, options)
        why = (
            fn.when(fn.col("value").isNull(), "no value")
            .when(fn.col("row").isNull(), "not JSON of the schema")
            .when(fn.col(f"row.{REJECTED}").isNotNull(), "not JSON of the schema")
        )
        return records.select("value", row.alias("row")).select(
            *(f"row.`{name}`" for name in self._schema.names if name != REJECTED),
            why.alias(REJECTED),
        )

    def consumers(self) -> dict[str, Checkpoint]:
        """The queries of this process that read the topic, by name."""
        return dict(self._readers)

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Records that a batch of a consuming query reads, by their offsets."""
        before = checkpoint.position(batch_id - 1).offsets(self.name)
        upto = checkpoint.position(batch_id).offsets(self.name)
        return _between(before or checkpoint.kafka_start(self.name), upto)

    def arrived_items(self) -> int:
        """Records that ever came, by their offsets."""
        return sum(self._client.ends(self.name).values())

    def lag_items(self, consumer: str) -> int:
        """Records that the consumer has not finished with; needs no running query.

        It is the distance in offsets, which also counts what the owner has removed by compaction
        and the marks of transactions.
        """
        checkpoint = consumer_of(self.consumers(), consumer, self.name)
        done = checkpoint.committed().offsets(self.name) or checkpoint.kafka_start(self.name)
        kept = self._client.starts(self.name)
        begin = {p: max(start, done.get(p, 0)) for p, start in kept.items()}
        return _between(begin, self._client.ends(self.name))

    def totals(self, producer: str) -> Counts:
        """Nothing: whoever fills the topic keeps no counts that we know of."""
        return Counts()

    def trim(self, older_than_s: float) -> int:
        """Nothing: its owner decides what is kept."""
        return 0

    def already(self, manifest: Manifest) -> Manifest | None:
        """An error: it is not ours to write to."""
        self._refuse()

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """An error: it is not ours to write to."""
        self._refuse()

    def append(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        producer: str = "python",
        batch_id: int | None = None,
    ) -> Manifest:
        """An error: it is not ours to write to."""
        self._refuse()

    def sweep(self, producer: str) -> None:
        """An error: it is not ours to write to."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        remedy = "it was opened without a folder for notes, as somebody else's, and is only read"
        raise InputError("topic", self.name, "one of our own to be written to", remedy)


def reading(servers: str, name: str) -> dict[str, str]:
    """Spark's options to read a topic: all of it, and only what was committed."""
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": name,
        "startingOffsets": "earliest",
    }


def kafka_stream(
    spark: SparkSession, servers: str, name: str, max_rows: int | None, max_files: int | None
) -> DataFrame:
    """The records of a topic as Spark's connector streams them."""
    if max_files is not None:
        remedy = "bound a batch of Kafka's by max_rows_per_batch, a setting of the topic"
        allowed = "left out for a topic in Kafka"
        raise InputError("max_files_per_trigger", max_files, allowed, remedy)
    reader = spark.readStream.format("kafka").options(**reading(servers, name))
    if max_rows is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_rows)
    return reader.load()


def _between(start: Offsets, end: Offsets) -> int:
    return sum(max(0, at - start.get(partition, 0)) for partition, at in end.items())
