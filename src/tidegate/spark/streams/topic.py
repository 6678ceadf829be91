"""Topics: the logs that join the operators of a topology, and the batches they consist of.

`Topic` is what a topology needs of a log, wherever the rows are stored. `OwnTopic` is a topic that
Tidegate writes. It keeps small files in a folder: the schema, the consumers, and for each batch a
manifest with exact counts.
"""

from __future__ import annotations

import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from uuid import uuid4

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.live_settings import Counts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Rows: TypeAlias = pa.Table | Iterable[Mapping[str, Any]]

__all__ = [
    "BATCH",
    "REJECTED",
    "Manifest",
    "OwnTopic",
    "Topic",
    "accepted",
    "as_table",
    "checked_name",
    "nullable",
]

REJECTED = "rejected"
"""Name of the column that gives the reason why a row was set aside; null for good rows.

Rejected rows stay in the topic of their operator, where they can be counted and inspected. The
operators after it do not read them.
"""
BATCH = re.compile(r"(?P<producer>[A-Za-z0-9][\w.-]*)-(?P<batch_id>[0-9]{12})")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def accepted(rows: DataFrame) -> DataFrame:
    """The good rows, without the column `REJECTED`."""
    if REJECTED not in rows.columns:
        return rows
    return rows.filter(f"{REJECTED} IS NULL").drop(REJECTED)


def checked_name(name: str, key: str) -> str:
    """A name that is valid for a file, a Kafka topic and a query; InputError otherwise."""
    if not _NAME.fullmatch(name):
        raise InputError(key, name, "letters, digits, dots, dashes and underscores, a letter first")
    return name


def nullable(schema: StructType) -> StructType:
    """The schema with all columns nullable, as files and messages return them."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, True) for f in schema.fields])


def as_table(rows: Rows, schema: StructType) -> pa.Table:
    """Rows from Python as a table with exactly these columns and types."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(schema)
    if isinstance(rows, pa.Table):
        return rows.select(columns.names).cast(columns)
    return pa.Table.from_pylist(list(rows), schema=columns)


@dataclass(frozen=True)
class Manifest:
    """One batch of a topic.

    Args:
        producer: Name of the query or program that wrote the batch.
        batch_id: Number of the batch; each producer counts upwards.
        files: Rows by file, or by ``partition@offset`` in Kafka.
        counts: Items of this batch.
        totals: Items of the producer up to and including this batch.
        parallelism: Tasks that computed the batch, None for a stateful operator.
        shed_fraction: Share of the input that was to be shed, 0 to 1.
        written_at_s: When the batch was written, Unix seconds.
        query: Spark's id of the query, the same after a restart from its checkpoint.
    """

    producer: str
    batch_id: int
    files: Mapping[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    totals: Counts = field(default_factory=Counts)
    parallelism: int | None = None
    shed_fraction: float = 0.0
    written_at_s: float = 0.0
    query: str = ""

    @property
    def name(self) -> str:
        """Name of the batch, unique in its topic."""
        return f"{self.producer}-{self.batch_id:012d}"

    def json(self) -> str:
        """The text of the manifest's file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `json` wrote."""
        fields = json.loads(text)
        counts, totals = Counts(**fields.pop("counts")), Counts(**fields.pop("totals"))
        return cls(**fields, counts=counts, totals=totals)


class Topic(ABC):
    """A log of rows. This base class refuses to write: it suits a topic that others fill.

    name: of the topic, for messages.
    """

    name: str
    _schema: StructType

    @property
    def schema(self) -> StructType:
        """Columns and types of the rows; all columns are nullable."""
        return self._schema

    # --- reading ------------------------------------------------------------------------------

    def read(
        self,
        spark: SparkSession,
        consumer: str,
        checkpoint: Path,
        max_files_per_trigger: int | None = None,
    ) -> DataFrame:
        """A streaming DataFrame of all rows; registers the consumer, so that its lag is known.

        consumer: name of the reading query; checkpoint: folder of its checkpoint;
        max_files_per_trigger: limit on the files of one batch, for topics of files only.
        """
        stream = self._stream(spark, max_files_per_trigger)
        self._register(consumer, checkpoint)
        return stream

    @abstractmethod
    def _stream(self, spark: SparkSession, max_files: int | None) -> DataFrame:
        """A streaming DataFrame of all rows."""

    @abstractmethod
    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are visible now, as an ordinary DataFrame."""

    @abstractmethod
    def consumers(self) -> dict[str, Checkpoint]:
        """Checkpoints of the queries that read this topic, by query name."""

    @abstractmethod
    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Number of this topic's rows in a batch of a consuming query."""

    @abstractmethod
    def arrived_items(self) -> int:
        """Number of all rows ever published, trimmed ones included; it never decreases."""

    @abstractmethod
    def lag_items(self, consumer: str) -> int:
        """Number of published rows that the consumer has not committed; needs no running query.

        A batch that the consumer is processing counts until it is committed.
        """

    @abstractmethod
    def _register(self, consumer: str, checkpoint: Path) -> None:
        """Remember a consumer and the folder of its checkpoint."""

    def _checkpoint(self, consumer: str) -> Checkpoint:
        known = self.consumers()
        if consumer not in known:
            remedy = f"known are {', '.join(known)}" if known else "it has no readers yet"
            raise InputError("consumer", consumer, f"a reader of {self.name}", remedy)
        return known[consumer]

    # --- writing ------------------------------------------------------------------------------

    def append(self, rows: Rows, producer: str = "python", batch_id: int | None = None) -> Manifest:
        """Publish rows from Python as one batch.

        batch_id: makes the call repeatable; default: the producer's next number.
        """
        self._refuse()

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is not published yet."""
        self._refuse()

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch atomically; a batch that is published already stays as it is.

        manifest: producer and number of the batch, and what is known of it; files and totals are
        filled in.
        """
        self._refuse()

    def sweep(self, producer: str) -> None:
        """Clean up after a run of the producer that died; call it before a start."""
        self._refuse()

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""
        return Counts()

    def trim(self, older_than_s: float) -> int:
        """Remove old batches that every consumer has committed; return their number."""
        return 0

    def _refuse(self) -> NoReturn:
        remedy = "it was opened without a metadata folder, so that it is only read"
        raise InputError("topic", self.name, "a topic that Tidegate writes", remedy)


class OwnTopic(Topic):
    """A topic that Tidegate writes, with a manifest for each batch.

    name: of the topic. folder: for the schema, the consumers and the manifests.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._lock = threading.RLock()  # guards the caches
        self._manifests: dict[str, Manifest] = {}

    @abstractmethod
    def _batch_names(self) -> Iterable[str]:
        """Names of all batches that are visible now."""

    @abstractmethod
    def _manifest_path(self, name: str) -> Path:
        """The file of a batch's manifest."""

    def batches(self) -> tuple[Manifest, ...]:
        """All batches that are visible now, by producer and number."""
        names = set(self._batch_names())
        with self._lock:
            self._manifests = {n: m for n, m in self._manifests.items() if n in names}
        found = (self._manifest(name) for name in sorted(names))
        return tuple(manifest for manifest in found if manifest is not None)

    def published(self, producer: str, batch_id: int) -> Manifest | None:
        """A producer's batch, None when it is not there."""
        return self._manifest(Manifest(producer, batch_id).name)

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is not published yet.

        Raises BackendError when the producer's batches were written by another query.
        """
        newest = self._newest(manifest.producer)
        if newest is not None and newest.query != manifest.query:
            raise BackendError(
                f"topic {self.name} holds batches of {newest.query or 'no query'}, not of "
                f"{manifest.query or 'no query'}: the checkpoint of {manifest.producer} was "
                "removed and its output kept, so that old batches would hide new ones; remove both "
                "or neither"
            )
        return self._manifest(manifest.name)

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""
        newest = self._newest(producer)
        return newest.totals if newest else Counts()

    def arrived_items(self) -> int:
        """Number of all rows ever published: the totals of each producer's newest batch."""
        newest = {manifest.producer: manifest for manifest in self.batches()}
        return sum(manifest.totals.written for manifest in newest.values())

    def consumers(self) -> dict[str, Checkpoint]:
        """Checkpoints of the queries that read this topic, by query name."""
        files = sorted((self.folder / "_consumers").glob("*.json"))
        return {f.stem: Checkpoint(Path(json.loads(f.read_text())["checkpoint"])) for f in files}

    def _register(self, consumer: str, checkpoint: Path) -> None:
        name = checked_name(consumer, "consumer")
        (self.folder / "_consumers").mkdir(exist_ok=True)
        entry = {"checkpoint": str(checkpoint.resolve())}
        _write_whole(self.folder / "_consumers" / f"{name}.json", json.dumps(entry))

    def _keep_schema(self, schema: StructType | None) -> StructType:
        """The topic's schema: written by the first call, and the same ever after."""
        from pyspark.sql.types import StructType

        file = self.folder / "_schema.json"
        known = StructType.fromJson(json.loads(file.read_text())) if file.exists() else None
        given = nullable(schema) if schema is not None else known
        if given is None:
            remedy = f"pass the schema of {self.name}"
            raise InputError("schema", None, "given for a new topic", remedy)
        if known is not None and known != given:
            raise InputError(
                f"schema of topic {self.name}",
                given.simpleString(),
                f"{known.simpleString()}, as when the topic was created",
                "write to a new topic, or remove the old one",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if known is None:
            _write_whole(file, given.json())
        return given

    def _next_batch(
        self, producer: str, batch_id: int | None, rows: int
    ) -> tuple[Manifest, Manifest | None]:
        """The batch that `append` is to publish, and the same batch if it is published already."""
        newest = self._newest(checked_name(producer, "producer"))
        number = batch_id if batch_id is not None else newest.batch_id + 1 if newest else 0
        manifest = Manifest(producer, number, counts=Counts(seen=rows))
        if newest is None or newest.batch_id < number:
            return manifest, None
        done = self._manifest(manifest.name)
        if done is None:
            raise InputError(
                "batch_id",
                batch_id,
                f"above that of the newest batch of {producer}, or that of a batch still there",
                "number batches upwards; this batch was left out, or has been trimmed",
            )
        return manifest, done

    def _completed(self, manifest: Manifest, files: Mapping[str, int]) -> Manifest:
        """The manifest with files, counts, totals and time."""
        counts = manifest.counts + Counts(written=sum(files.values()))
        return replace(
            manifest,
            files=dict(files),
            counts=counts,
            totals=self.totals(manifest.producer) + counts,
            written_at_s=time.time(),
        )

    def _trimmable(
        self, older_than_s: float, needed: Callable[[Manifest], bool]
    ) -> tuple[list[Manifest], list[Manifest]]:
        """Batches that may be removed, and batches that stay.

        A batch stays when a consumer still needs it, when it is younger than `older_than_s`, or
        when it is the newest of its producer, which carries the totals.
        """
        batches = self.batches()
        newest = {manifest.producer: manifest.name for manifest in batches}
        removable: list[Manifest] = []
        staying: list[Manifest] = []
        for manifest in batches:
            young = time.time() - manifest.written_at_s < older_than_s
            stays = young or manifest.name == newest[manifest.producer] or needed(manifest)
            (staying if stays else removable).append(manifest)
        return removable, staying

    def _newest(self, producer: str) -> Manifest | None:
        return max(
            (manifest for manifest in self.batches() if manifest.producer == producer),
            key=lambda manifest: manifest.batch_id,
            default=None,
        )

    def _manifest(self, name: str) -> Manifest | None:
        with self._lock:
            if name not in self._manifests:
                try:
                    text = self._manifest_path(name).read_text(encoding="utf-8")
                except FileNotFoundError:
                    return None
                self._manifests[name] = Manifest.from_json(text)
            return self._manifests[name]


def _write_whole(path: Path, text: str) -> None:
    """Write a small file atomically."""
    hidden = path.with_name(f".{path.name}-{uuid4().hex}")
    hidden.write_text(text, encoding="utf-8")
    hidden.rename(path)
