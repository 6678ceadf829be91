"""Topics in Kafka: `KafkaTopic`, which Tidegate writes, and `KafkaSource`, which others fill.

A topic that Tidegate writes has its rows in Kafka, one JSON record each, and metadata in a folder:

::

    ticks/
      _schema.json, _consumers/parse.json      as for files
      parse-000000000017.json                  manifest: offsets of the batch's rows, and totals
      .parse-000000000018-5f0c….json           an attempt that is not known to be committed yet

A batch is one Kafka transaction that carries the rows and the batch's number, and readers read
committed records only. So a batch is visible as a whole or not at all, and a batch that is repeated
after a crash finds its number taken (designs/012-kafka-topics.md). Nothing else may write to such a
topic, because its rows are counted by the manifests.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint, Offsets
from tidegate.spark.streams.kafka_client import KafkaClient, Publisher, active_session
from tidegate.spark.streams.kafka_security import PLAIN_TEXT, KafkaSecurity
from tidegate.spark.streams.topic import (
    BATCH,
    REJECTED,
    Manifest,
    OwnTopic,
    Topic,
    as_table,
    checked_name,
    nullable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidegate.spark.streams.topic import Rows

__all__ = ["KafkaSource", "KafkaTopic"]

# Spark's default formats keep milliseconds only.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class _KafkaReader(Topic):
    """Reading from Kafka: all committed records from the earliest offset on."""

    servers: str
    _security: KafkaSecurity
    _max_rows: int | None

    @abstractmethod
    def _rows(self, records: DataFrame) -> DataFrame:
        """The rows in Kafka's records."""

    def _stream(self, spark: SparkSession, max_files: int | None) -> DataFrame:
        if max_files is not None:
            remedy = "limit a batch with max_rows_per_batch, a setting of the topic"
            allowed = "left out for a topic in Kafka"
            raise InputError("max_files_per_trigger", max_files, allowed, remedy)
        reader = spark.readStream.format("kafka").options(**self._options())
        if self._max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", self._max_rows)
        return self._rows(reader.load())

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are visible now, as an ordinary DataFrame."""
        return self._rows(spark.read.format("kafka").options(**self._options()).load())

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": self.name,
            "startingOffsets": "earliest",
            **self._security.for_spark(),
        }


class KafkaTopic(_KafkaReader, OwnTopic):
    """A topic in Kafka that only Tidegate writes; topic and folder are created when absent.

    Args:
        servers: Brokers as ``host:port``, separated by commas.
        name: Name of the topic in Kafka.
        folder: Folder for the topic's metadata.
        schema: Schema of the rows; optional when the topic exists.
        partitions: Partitions of a new topic; default: the broker's default.
        retention_s: The broker removes records that are older, in seconds, read or not; default:
            never, and `trim` removes what every consumer has read.
        key: Column whose value becomes the key of the records, so that equal keys keep their order.
        max_rows_per_batch: Limit on the rows that a reading query takes in one batch.
        security: How to connect to the brokers.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        folder: Path | str,
        schema: StructType | None = None,
        *,
        partitions: int | None = None,
        retention_s: float | None = None,
        key: str | None = None,
        max_rows_per_batch: int | None = None,
        security: KafkaSecurity = PLAIN_TEXT,
    ) -> None:
        super().__init__(checked_name(name, "topic"), Path(folder).resolve())
        self.servers, self._security = servers, security
        self._key, self._max_rows = key, max_rows_per_batch
        self._writing = threading.RLock()  # guards the publishers
        self._publishers: dict[str, Publisher] = {}
        self._client = KafkaClient.of(servers, security)
        self._find(partitions, retention_s)
        self._schema = self._keep_schema(schema)
        if key is not None and key not in self._schema.names:
            raise InputError("key", key, f"a column: {', '.join(self._schema.names)}")

    def _find(self, partitions: int | None, retention_s: float | None) -> None:
        """Create the topic, or check that the existing topic belongs to the folder."""
        there = self._client.partitions(self.name)
        known = (self.folder / "_schema.json").exists()
        if there is None and known:
            raise BackendError(
                f"{self.folder} describes a topic {self.name} that is not at {self.servers}: it "
                "was created on another broker or as files, or was removed; remove the folder too, "
                "or choose another"
            )
        if there is None:
            kept_ms = -1 if retention_s is None else round(retention_s * 1000)
            self._client.create(self.name, partitions, {"retention.ms": str(kept_ms)})
            return
        if partitions not in (None, there):
            remedy = "leave the setting out, or use another topic"
            raise InputError("partitions", partitions, f"{there}, as topic {self.name} has", remedy)
        if not known and any(self._client.ends(self.name, committed=False).values()):
            raise BackendError(
                f"topic {self.name} at {self.servers} holds records that {self.folder} does not "
                "describe: somebody else wrote them, or the folder was removed and the topic kept; "
                "remove both or neither, or use another topic"
            )

    # --- reading ------------------------------------------------------------------------------

    def _rows(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        text = fn.col("value").cast("string")
        row = fn.from_json(text, self._schema, {**_JSON, "mode": "FAILFAST"})
        return records.select(row.alias("row")).select("row.*")

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Number of this topic's rows in a batch of a consuming query, by the manifests."""
        before = checkpoint.position(batch_id - 1).offsets(self.name)
        upto = checkpoint.position(batch_id).offsets(self.name)
        return sum(
            max(0, min(end, upto.get(partition, 0)) - max(start, before.get(partition, 0)))
            for manifest in self.batches()
            for partition, start, end in _ranges(manifest)
        )

    def lag_items(self, consumer: str) -> int:
        """Number of published rows that the consumer has not committed."""
        # Read what is consumed first: in the other order a fresh batch could be missed.
        done = self._checkpoint(consumer).committed().offsets(self.name)
        return sum(_unread(manifest, done) for manifest in self.batches())

    # --- writing ------------------------------------------------------------------------------

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is not published yet."""
        self._publisher(manifest.producer)
        return super().already(manifest)

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch atomically; a batch that is published already stays as it is.

        The rows pass through the driver, because one transaction cannot span several processes.
        """
        from pyspark.sql import functions as fn

        with self._writing:
            if (done := self.already(manifest)) is not None:
                return done
            columns = [fn.col(f"`{name}`") for name in self._schema.names]
            key = fn.lit(None) if self._key is None else fn.col(f"`{self._key}`")
            value = fn.to_json(fn.struct(*columns), _JSON)
            rows = batch.select(key.cast("string").alias("key"), value)._jdf.collectAsList()
            attempt = uuid4().hex
            attempted = self._attempt(manifest.name, attempt)
            # Removed first: a publisher that fails is unusable, and its successor starts over.
            publisher = self._publishers.pop(manifest.producer)
            with publisher.batch(manifest.name, manifest.batch_id, attempt, rows):
                # Readers stop before the first record that is not committed, which is ours.
                first = self._client.ends(self.name)
                after = self._client.ends(self.name, committed=False)
                files = {f"{p}@{at}": after[p] - at for p, at in first.items() if after[p] > at}
                if sum(files.values()) != rows.size():
                    raise BackendError(
                        f"another program writes to topic {self.name}, so that the rows of a batch "
                        "cannot be identified: give each topology separate topics"
                    )
                complete = self._completed(manifest, files)
                attempted.write_text(complete.json(), encoding="utf-8")
            self._publishers[manifest.producer] = publisher
            attempted.rename(self._manifest_path(manifest.name))
            self._client.wait_for(self.name, after)
            return complete

    def append(self, rows: Rows, producer: str = "python", batch_id: int | None = None) -> Manifest:
        """Publish rows from Python as one batch, through the Spark session of this process."""
        table = as_table(rows, self._schema)
        with self._writing:
            self._publisher(producer)
            manifest, done = self._next_batch(producer, batch_id, table.num_rows)
            if done is not None:
                return done
            return self.write(active_session().createDataFrame(table, self._schema), manifest)

    def trim(self, older_than_s: float) -> int:
        """Remove old batches that every consumer has committed; return their number.

        The batches of a topic that nobody reads are kept, and so are batches behind one that stays.
        """
        readers = self.consumers()
        if not readers:
            return 0
        done = [checkpoint.committed().offsets(self.name) for checkpoint in readers.values()]
        limits = dict(self._client.ends(self.name))
        removable, staying = self._trimmable(
            older_than_s, lambda manifest: any(_unread(manifest, offsets) for offsets in done)
        )
        for partition, start, _ in (r for manifest in staying for r in _ranges(manifest)):
            limits[partition] = min(start, limits[partition])
        gone = [m for m in removable if all(end <= limits[p] for p, _, end in _ranges(m))]
        ends: dict[int, int] = {}
        for partition, _, end in (r for manifest in gone for r in _ranges(manifest)):
            ends[partition] = max(end, ends.get(partition, 0))
        if ends:
            self._client.delete_before(self.name, ends)
        for manifest in gone:
            self._manifest_path(manifest.name).unlink(missing_ok=True)
        return len(gone)

    def sweep(self, producer: str) -> None:
        """Find out whether the last batch of a run that died was published."""
        with self._writing:
            if (old := self._publishers.pop(producer, None)) is not None:
                old.close()
            self._publisher(producer)

    def _publisher(self, producer: str) -> Publisher:
        """The producer's publisher; a new one fences off the others and settles what they did.

        The manifest of an attempt is written before the commit, under a name that only Kafka can
        confirm.
        """
        with self._writing:
            if producer in self._publishers:
                return self._publishers[producer]
            publisher = self._client.publisher(self.name, checked_name(producer, "producer"))
            committed = self._client.committed(self.name, producer)
            if committed is not None:
                name = Manifest(producer, committed[0]).name
                attempted = self._attempt(name, committed[1])
                if attempted.exists():  # published, but the driver died before it could record it
                    attempted.rename(self._manifest_path(name))
            for attempted in self.folder.glob(f".{producer}-{'[0-9]' * 12}-*.json"):
                attempted.unlink(missing_ok=True)
            self._publishers[producer] = publisher
            return publisher

    def _attempt(self, name: str, attempt: str) -> Path:
        return self.folder / f".{name}-{attempt}.json"

    def _batch_names(self) -> list[str]:
        stems = (path.stem for path in self.folder.glob("[!._]*.json"))
        return [name for name in stems if BATCH.fullmatch(name)]

    def _manifest_path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class KafkaSource(_KafkaReader):
    """A topic in Kafka that others fill with JSON records; it must exist and is only read.

    Rows are counted by their offsets. Records that are not JSON of the schema are set aside with a
    reason (`topic.REJECTED`).

    servers: brokers as ``host:port``, separated by commas. name: the topic's name in Kafka.
    schema: columns of the JSON records; others are ignored, missing ones are null.
    max_rows_per_batch: limit on the rows that a reading query takes in one batch.
    security: how to connect to the brokers.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        schema: StructType | None = None,
        *,
        max_rows_per_batch: int | None = None,
        security: KafkaSecurity = PLAIN_TEXT,
    ) -> None:
        if schema is None:
            remedy = "pass the columns of its JSON records"
            raise InputError("schema", None, "given for a topic that others fill", remedy)
        if REJECTED in schema.names:
            remedy = "this name is reserved for the reason why a record was set aside"
            raise InputError("schema", schema.names, f"without a column {REJECTED}", remedy)
        self.servers, self.name = servers, checked_name(name, "topic")
        self._security = security
        self._schema = nullable(schema).add(REJECTED, "string")
        self._max_rows = max_rows_per_batch
        self._readers: dict[str, Checkpoint] = {}
        self._client = KafkaClient.of(servers, security)
        if self._client.partitions(name) is None:
            remedy = "create it, or correct the name"
            raise InputError("topic", name, f"on the broker at {servers}", remedy)

    def _rows(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        # Spark puts the text of a record that it cannot parse into the column of this name.
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
        """Checkpoints of the queries of this process that read the topic, by query name."""
        return dict(self._readers)

    def _register(self, consumer: str, checkpoint: Path) -> None:
        self._readers[checked_name(consumer, "consumer")] = Checkpoint(checkpoint.resolve())

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Number of records in a batch of a consuming query, by their offsets."""
        before = checkpoint.position(batch_id - 1).offsets(self.name)
        upto = checkpoint.position(batch_id).offsets(self.name)
        return _between(before or checkpoint.kafka_start(self.name), upto)

    def arrived_items(self) -> int:
        """Number of all records ever published, by their offsets."""
        return sum(self._client.ends(self.name).values())

    def lag_items(self, consumer: str) -> int:
        """Distance in offsets from what the consumer has committed to the end of the topic.

        It includes records that compaction has removed, and transaction markers.
        """
        checkpoint = self._checkpoint(consumer)
        done = checkpoint.committed().offsets(self.name) or checkpoint.kafka_start(self.name)
        kept = self._client.starts(self.name)
        begin = {p: max(start, done.get(p, 0)) for p, start in kept.items()}
        return _between(begin, self._client.ends(self.name))


def _ranges(manifest: Manifest) -> Iterator[tuple[int, int, int]]:
    """Where the rows of a batch are: partition, first offset, offset after the last."""
    for place, rows in manifest.files.items():
        partition, start = map(int, place.split("@"))
        yield partition, start, start + rows


def _unread(manifest: Manifest, done: Offsets) -> int:
    """Number of rows of a batch at or after these offsets."""
    return sum(max(0, end - max(start, done.get(p, 0))) for p, start, end in _ranges(manifest))


def _between(start: Offsets, end: Offsets) -> int:
    return sum(max(0, at - start.get(partition, 0)) for partition, at in end.items())
