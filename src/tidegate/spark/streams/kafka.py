"""Topics in Kafka: one record a row, JSON, and each batch published whole.

A topic of our own has its rows in Kafka and its *notes* in a folder, as a topic of files has:

::

    ticks/
      _schema.json, _consumers/parse.json      as for files
      parse-000000000017.json                  manifest: where the batch's rows lie, and totals
      .parse-000000000018-5f0c….json           of an attempt that was not known to succeed yet

A batch is one transaction of Kafka that carries the rows and the batch's number, and readers read
committed records only. So a batch is visible wholly or not at all, and one that is repeated after a
crash finds its number taken (designs/012-kafka-topics.md).

The topic is ours alone: its rows are counted by what the manifests say, so that another writer is
an error. For topics that others fill see `kafka_source.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint, Offsets
from tidegate.spark.streams.kafka_client import KafkaClient, Publisher, active_session
from tidegate.spark.streams.kafka_source import kafka_stream, reading
from tidegate.spark.streams.live_settings import Counts
from tidegate.spark.streams.manifests import (
    Manifest,
    not_upwards,
    refuse_another_query,
    rows_written,
)
from tidegate.spark.streams.topic_files import (
    BATCH,
    as_table,
    checked_name,
    consumer_of,
    consumers,
    kept_schema,
    register,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["KafkaTopic"]

# Spark's own formats keep milliseconds only.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class KafkaTopic:
    """A topic of our own in Kafka.

    servers: ``host:port``, several with commas. name: Kafka's name of the topic.
    schema: of the rows; may be left out when the topic exists.
    notes: folder for what is known of the topic; topic and folder are made when absent.
    partitions: of a new topic; None: as the broker likes. retention_s: the broker removes what is
        older, read or not; None: never, and `trim` removes what everybody has read.
    key: column whose value is the records' key, so that equal ones keep their order.
    max_rows_per_batch: bound on what a reading query takes up at once.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        notes: Path | str,
        schema: StructType | None = None,
        *,
        partitions: int | None = None,
        retention_s: float | None = None,
        key: str | None = None,
        max_rows_per_batch: int | None = None,
    ) -> None:
        self.servers, self.name = servers, checked_name(name, "topic")
        self.notes = Path(notes).resolve()
        self._key, self._max_rows = key, max_rows_per_batch
        self._lock = threading.RLock()  # of the manifests
        self._manifests: dict[str, Manifest] = {}
        self._writing = threading.RLock()  # of the publishers
        self._publishers: dict[str, Publisher] = {}
        self._client = KafkaClient.of(servers)
        self._find(partitions, retention_s)
        self._schema = kept_schema(self.notes, schema)
        if key is not None and key not in self._schema.names:
            raise InputError("key", key, f"a column: {', '.join(self._schema.names)}")

    def _find(self, partitions: int | None, retention_s: float | None) -> None:
        """Make the topic, or see that it is the one that was made."""
        there = self._client.partitions(self.name)
        known = (self.notes / "_schema.json").exists()
        if there is None and known:
            raise BackendError(
                f"{self.notes} knows a topic {self.name} that is not at {self.servers}: it was "
                "made on another broker or as files, or was removed; remove the folder too, or "
                "choose another"
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
                f"topic {self.name} at {self.servers} holds records that {self.notes} knows "
                "nothing of: they are somebody else's, or the folder was removed and the topic "
                "kept; remove both or neither, or use another topic"
            )

    @property
    def schema(self) -> StructType:
        """The rows' columns and types, all of them nullable as messages are."""
        return self._schema

    # Reading

    def read(
        self,
        spark: SparkSession,
        consumer: str,
        checkpoint: Path,
        max_files_per_trigger: int | None = None,
    ) -> DataFrame:
        """A streaming DataFrame of all rows; from now on the consumer's lag is known.

        consumer: the query's name; checkpoint: its folder. A batch is bounded by the topic's
        `max_rows_per_batch`: Kafka has no files.
        """
        register(self.notes, consumer, checkpoint)
        return self._rows(
            kafka_stream(spark, self.servers, self.name, self._max_rows, max_files_per_trigger)
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are visible now, as an ordinary DataFrame."""
        options = reading(self.servers, self.name)
        return self._rows(spark.read.format("kafka").options(**options).load())

    def _rows(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        text = fn.col("value").cast("string")
        row = fn.from_json(text, self._schema, {**_JSON, "mode": "FAILFAST"})
        return records.select(row.alias("row")).select("row.*")

    def consumers(self) -> dict[str, Checkpoint]:
        """The queries that read this topic, by name."""
        return consumers(self.notes)

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Rows of this topic that a batch of a consuming query reads."""
        before = checkpoint.position(batch_id - 1).offsets(self.name)
        upto = checkpoint.position(batch_id).offsets(self.name)
        return sum(
            max(0, min(end, upto.get(partition, 0)) - max(start, before.get(partition, 0)))
            for manifest in self.batches()
            for partition, start, end in _ranges(manifest)
        )

    def arrived_items(self) -> int:
        """Rows that were ever published, trimmed ones included: it never falls."""
        return rows_written(self.batches())

    def lag_items(self, consumer: str) -> int:
        """Rows published that the consumer has not finished with, exactly; needs no running query.

        A batch that the consumer is working on counts until it is committed.
        """
        checkpoint = consumer_of(self.consumers(), consumer, self.name)
        # First what is consumed, then what is there: the other way a fresh batch could be missed.
        done = checkpoint.committed().offsets(self.name)
        return sum(_left(manifest, done) for manifest in self.batches())

    # Writing

    def batches(self) -> tuple[Manifest, ...]:
        """All batches that were published and not trimmed, by producer and batch."""
        names = sorted(path.stem for path in self.notes.glob("[!._]*.json"))
        with self._lock:
            self._manifests = {n: m for n, m in self._manifests.items() if n in names}
        return tuple(found for name in names if (found := self._manifest(name)) is not None)

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is still to be done."""
        self._publisher(manifest.producer)
        refuse_another_query(self.name, self._newest(manifest.producer), manifest)
        return self._manifest(manifest.name)

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""
        newest = self._newest(producer)
        return newest.totals if newest else Counts()

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch at once; one that is there already stays as it is.

        The rows pass through the driver, which alone can make them one transaction.
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
            noted = self._attempt(manifest.name, attempt)
            # Taken out: one that fails is of no more use, and its successor has to look around.
            publisher = self._publishers.pop(manifest.producer)
            with publisher.batch(manifest.name, manifest.batch_id, attempt, rows):
                # Readers are held before the first record that is not committed, which is ours.
                first = self._client.ends(self.name)
                after = self._client.ends(self.name, committed=False)
                files = {f"{p}@{at}": after[p] - at for p, at in first.items() if after[p] > at}
                complete = self._complete(manifest, files, int(rows.size()))
                noted.write_text(complete.json(), encoding="utf-8")
            self._publishers[manifest.producer] = publisher
            noted.rename(self.notes / f"{manifest.name}.json")
            self._client.wait_for(self.name, after)
            return complete

    def append(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        producer: str = "python",
        batch_id: int | None = None,
    ) -> Manifest:
        """Publish rows as one batch, from Python; through the Spark session of this process.

        batch_id: give it to make the call repeatable; the producer's next number by default.
        """
        table = as_table(rows, self._schema)
        with self._writing:
            self._publisher(producer)
            newest = self._newest(producer)
            number = batch_id if batch_id is not None else newest.batch_id + 1 if newest else 0
            manifest = Manifest(producer, number, counts=Counts(seen=table.num_rows))
            if newest is not None and newest.batch_id >= number:
                done = self._manifest(manifest.name)
                if done is None:
                    raise not_upwards(producer, batch_id)
                return done
            return self.write(active_session().createDataFrame(table, self._schema), manifest)

    def trim(self, older_than_s: float) -> int:
        """Remove batches of that age that every consumer has finished with; returns their number.

        Never removed: what a consumer still needs, all of a topic that nobody reads, the newest
        batch of a producer, and what lies behind a batch that stays.
        """
        readers = self.consumers()
        if not readers:
            return 0
        done = [checkpoint.committed().offsets(self.name) for checkpoint in readers.values()]
        batches = self.batches()
        newest = {manifest.producer: manifest.name for manifest in batches}
        limits = self._client.ends(self.name)
        gone = []
        for manifest in sorted(batches, key=lambda m: m.written_at_s):
            needed = any(_left(manifest, offsets) for offsets in done)
            young = time.time() - manifest.written_at_s < older_than_s
            if needed or young or manifest.name == newest[manifest.producer]:
                limits = {**limits, **_first(limits, manifest)}
            else:
                gone.append(manifest)
        gone = [m for m in gone if all(end <= limits[p] for p, _, end in _ranges(m))]
        ends: dict[int, int] = {}
        for partition, _, end in (r for manifest in gone for r in _ranges(manifest)):
            ends[partition] = max(end, ends.get(partition, 0))
        if ends:
            self._client.delete_before(self.name, ends)
        for manifest in gone:
            (self.notes / f"{manifest.name}.json").unlink(missing_ok=True)
        return len(gone)

    def sweep(self, producer: str) -> None:
        """Find out what became of a dead run's last batch; call it before a start."""
        with self._writing:
            if (old := self._publishers.pop(producer, None)) is not None:
                old.close()
            self._publisher(producer)

    def _publisher(self, producer: str) -> Publisher:
        """Whoever publishes for the producer; made, it is the only one, and what was done is known.

        An attempt is noted before it is committed, under a name that only Kafka can confirm.
        """
        with self._writing:
            if producer in self._publishers:
                return self._publishers[producer]
            publisher = self._client.publisher(self.name, checked_name(producer, "producer"))
            committed = self._client.committed(self.name, producer)
            if committed is not None:
                name = Manifest(producer, committed[0]).name
                noted = self._attempt(name, committed[1])
                if noted.exists():  # it was published, and its driver died before it could say so
                    noted.rename(self.notes / f"{name}.json")
            for noted in self.notes.glob(f".{producer}-{'[0-9]' * 12}-*.json"):
                noted.unlink(missing_ok=True)
            self._publishers[producer] = publisher
            return publisher

    def _complete(self, manifest: Manifest, files: Mapping[str, int], rows: int) -> Manifest:
        if sum(files.values()) != rows:
            raise BackendError(
                f"somebody else writes to topic {self.name}, so that the batch's rows cannot be "
                "told from theirs: give each topology topics of its own"
            )
        before = self._newest(manifest.producer)
        counts = manifest.counts + Counts(written=rows)
        totals = (before.totals if before else Counts()) + counts
        return replace(
            manifest, files=dict(files), counts=counts, totals=totals, written_at_s=time.time()
        )

    def _attempt(self, name: str, attempt: str) -> Path:
        return self.notes / f".{name}-{attempt}.json"

    def _newest(self, producer: str) -> Manifest | None:
        return max(
            (manifest for manifest in self.batches() if manifest.producer == producer),
            key=lambda manifest: manifest.batch_id,
            default=None,
        )

    def _manifest(self, name: str) -> Manifest | None:
        with self._lock:
            if name not in self._manifests:
                path = self.notes / f"{name}.json"
                if not BATCH.fullmatch(name) or not path.exists():
                    return None
                self._manifests[name] = Manifest.from_json(path.read_text(encoding="utf-8"))
            return self._manifests[name]


def _ranges(manifest: Manifest) -> Iterator[tuple[int, int, int]]:
    """Where the rows of a batch lie: partition, first offset, offset after the last."""
    for place, rows in manifest.files.items():
        partition, start = map(int, place.split("@"))
        yield partition, start, start + rows


def _left(manifest: Manifest, done: Offsets) -> int:
    """Rows of a batch that lie behind these offsets."""
    return sum(max(0, end - max(start, done.get(p, 0))) for p, start, end in _ranges(manifest))


def _first(limits: Offsets, manifest: Manifest) -> dict[int, int]:
    return {p: min(start, limits[p]) for p, start, _ in _ranges(manifest)}
