"""Topics of files: append-only logs that join streaming queries, exactly once.

A topic is a folder; a batch of a producing query is a folder in it:

::

    ticks/
      _schema.json                      the rows' schema
      _consumers/parse.json             who reads it, and where that query's checkpoint is
      parse-000000000017/               batch 17 of the query `parse`
        part-00000-….parquet
        _manifest.json                  rows by file, totals so far
      .parse-000000000018-5f0c…/        a batch that is being written: nobody sees it

The folder is written under a hidden name and renamed when complete. The rename is atomic, so a
batch is visible wholly or not at all; and the name tells producer and batch, so a batch that is
repeated after a crash finds itself done and changes nothing. The manifest moves with the files, so
counts and data never disagree, whatever was retried.

The folder must be on a file system with atomic renames that driver and executors share (local disk,
NFS): not an object store. It survives the death of processes, not a loss of power.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint, Position
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

__all__ = ["FileTopic", "Manifest"]

# With more folders than this Spark lists them by a job, which waits for a free slot.
_LISTING = ("spark.sql.sources.parallelPartitionDiscovery.threshold", 1_000_000)


class FileTopic:
    """A topic as a folder of Parquet files.

    folder: made when absent. schema: of the rows; may be left out when the topic exists.
    """

    def __init__(self, folder: Path | str, schema: StructType | None = None) -> None:
        self.folder = Path(folder).resolve()
        if set(str(self.folder)) & set("*?[]{}\\"):
            remedy = "choose another folder: Spark takes these for a pattern"
            raise InputError("folder", str(self.folder), "without any of *?[]{}\\", remedy)
        self._lock = threading.RLock()  # of the three caches below
        self._manifests: dict[str, Manifest] = {}
        self._positions: dict[str, Position] = {}
        self._consumed: dict[str, frozenset[Path]] = {}
        self._schema = kept_schema(self.folder, schema)

    @property
    def schema(self) -> StructType:
        """The rows' columns and types, all of them nullable as files are."""
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

        consumer: the query's name; checkpoint: its folder; max_files_per_trigger: bound on a batch.
        Spark ignores files that are seven days older than the newest: a consumer must not fall
        behind as far.
        """
        register(self.folder, consumer, checkpoint)
        reader = spark.readStream.schema(self._schema)
        if max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
        spark.conf.set(*_LISTING)
        # A pattern, not the folder: Spark forgives a batch that is trimmed while it lists only
        # where the batch is a root of the listing. Hidden names do not match.
        return reader.parquet(f"{_uri(self.folder)}/[A-Za-z0-9]*")

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are visible now, as an ordinary DataFrame."""
        files = [_uri(self.folder / m.name / file) for m in self.batches() for file in m.files]
        if not files:
            return spark.createDataFrame([], self._schema)
        return spark.read.schema(self._schema).parquet(*files)

    def consumers(self) -> dict[str, Checkpoint]:
        """The queries that read this topic, by name."""
        return consumers(self.folder)

    def batches(self) -> tuple[Manifest, ...]:
        """All batches that are visible now, by producer and batch."""
        with os.scandir(self.folder) as entries:
            names = {
                entry.name
                for entry in entries
                if BATCH.fullmatch(entry.name) and (Path(entry.path) / "_manifest.json").exists()
            }
        with self._lock:
            self._manifests = {n: m for n, m in self._manifests.items() if n in names}
        found = (self._manifest(name) for name in sorted(names))
        return tuple(manifest for manifest in found if manifest is not None)

    def published(self, producer: str, batch_id: int) -> Manifest | None:
        """A producer's batch, None when it is not there."""
        return self._manifest(f"{producer}-{batch_id:012d}")

    def already(self, manifest: Manifest) -> Manifest | None:
        """The batch as it was published before a restart, None when it is still to be done."""
        refuse_another_query(self.folder.name, self._newest(manifest.producer), manifest)
        return self.published(manifest.producer, manifest.batch_id)

    def totals(self, producer: str) -> Counts:
        """Exact totals of a producer up to its newest batch."""
        newest = self._newest(producer)
        return newest.totals if newest else Counts()

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Rows of this topic that a batch of a consuming query reads, by their manifests."""
        count = 0
        for path in checkpoint.batch_files(batch_id):
            if path.parent.parent == self.folder:
                manifest = self._manifest(path.parent.name)
                if manifest is None:
                    raise BackendError(
                        f"batch {path.parent.name} of topic {self.folder.name} is gone: only "
                        "trim() may remove batches, or rows are lost"
                    )
                count += manifest.files[path.name]
        return count

    def arrived_items(self) -> int:
        """Rows that were ever published, trimmed ones included: it never falls."""
        return rows_written(self.batches())

    def lag_items(self, consumer: str) -> int:
        """Rows published that the consumer has not finished with, exactly; needs no running query.

        A batch that the consumer is working on counts until it is committed.
        """
        checkpoint = consumer_of(self.consumers(), consumer, self.folder.name)
        # First what is consumed, then what is there: the other way a fresh batch could be missed.
        consumed = self._finished(consumer, checkpoint)
        return sum(
            rows
            for manifest in self.batches()
            for file, rows in manifest.files.items()
            if self.folder / manifest.name / file not in consumed
        )

    def _finished(self, consumer: str, checkpoint: Checkpoint) -> frozenset[Path]:
        """Files of this topic that the consumer has committed; reads only what is new."""
        with self._lock:
            after, upto = self._positions.get(consumer, Position()), checkpoint.committed()
            files = checkpoint.files(after, upto)
            consumed = self._consumed.get(consumer, frozenset())
            consumed |= frozenset(f for f in files if f.parent.parent == self.folder)
            self._positions[consumer], self._consumed[consumer] = upto, consumed
            return consumed

    # Writing

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch at once; one that is there already stays as it is.

        manifest: who writes which batch, with what is known of it; files and totals are filled in.
        """
        import pyarrow.parquet as pq

        checked_name(manifest.producer, "producer")
        if (done := self.already(manifest)) is not None:
            return done
        hidden = self._hidden(manifest)
        batch.write.parquet(_uri(hidden))
        # Footers count what is in the files: unlike accumulators they are right after any retry.
        files = {f.name: int(pq.read_metadata(f).num_rows) for f in hidden.glob("*.parquet")}
        for name in [name for name, rows in files.items() if rows == 0]:
            (hidden / name).unlink()
            del files[name]
        return self._publish(hidden, manifest, files) or self.write(batch, manifest)

    def append(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        producer: str = "python",
        batch_id: int | None = None,
    ) -> Manifest:
        """Publish rows as one batch, from Python alone: no Spark, no Java.

        batch_id: give it to make the call repeatable; the producer's next number by default.
        """
        import pyarrow.parquet as pq

        table = as_table(rows, self._schema)
        while True:
            newest = self._newest(checked_name(producer, "producer"))
            number = batch_id if batch_id is not None else newest.batch_id + 1 if newest else 0
            manifest = Manifest(producer, number, counts=Counts(seen=table.num_rows))
            if batch_id is not None and newest is not None and newest.batch_id >= batch_id:
                return self._repeated(producer, batch_id)
            hidden = self._hidden(manifest)
            hidden.mkdir()
            pq.write_table(table, hidden / "part-00000.parquet")
            files = {"part-00000.parquet": table.num_rows}
            published = self._publish(hidden, manifest, files)
            if published is not None:
                return published
            # Another process has taken the number: take the next one.

    def _repeated(self, producer: str, batch_id: int) -> Manifest:
        done = self.published(producer, batch_id)
        if done is None:
            raise not_upwards(producer, batch_id)
        return done

    def trim(self, older_than_s: float) -> int:
        """Remove batches of that age that every consumer has finished with; returns their number.

        Never removed: what a consumer still needs, all of a topic that nobody reads, and the
        newest batch of a producer, which carries its totals.
        """
        readers = self.consumers()
        if not readers:
            return 0
        finished = frozenset.intersection(*(self._finished(n, c) for n, c in readers.items()))
        batches = self.batches()
        newest = {manifest.producer: manifest.name for manifest in batches}
        gone: set[Path] = set()
        removed = 0
        for manifest in batches:
            needed = any(self.folder / manifest.name / f not in finished for f in manifest.files)
            young = time.time() - manifest.written_at_s < older_than_s
            if needed or young or manifest.name == newest[manifest.producer]:
                continue
            # Emptied, not removed: a folder that vanishes while a query lists it ends the query.
            folder = self.folder / manifest.name
            for file in sorted(folder.iterdir(), key=lambda f: f.suffix != ".json"):
                file.unlink()
            with self._lock:
                self._manifests.pop(manifest.name, None)
            gone.update(self.folder / manifest.name / file for file in manifest.files)
            removed += 1
        with self._lock:
            self._consumed = {name: files - gone for name, files in self._consumed.items()}
        return removed

    def sweep(self, producer: str) -> None:
        """Remove what a dead run of the producer has left half written; call it before a start."""
        self.remove_emptied()
        for hidden in self.folder.glob(f".{producer}-{'[0-9]' * 12}-*"):
            shutil.rmtree(hidden, ignore_errors=True)

    def remove_emptied(self) -> None:
        """Remove the folders that `trim` has emptied; only while no query reads the topic."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries if BATCH.fullmatch(entry.name)]
        for name in names:
            with contextlib.suppress(OSError):  # it is not empty
                (self.folder / name).rmdir()

    def _publish(
        self, hidden: Path, manifest: Manifest, files: Mapping[str, int]
    ) -> Manifest | None:
        """Make a hidden batch visible; None when somebody else has published it before."""
        before = self._newest(manifest.producer)
        counts = manifest.counts + Counts(written=sum(files.values()))
        complete = replace(
            manifest,
            files=dict(files),
            counts=counts,
            totals=(before.totals if before else Counts()) + counts,
            written_at_s=time.time(),
        )
        (hidden / "_manifest.json").write_text(complete.json(), encoding="utf-8")
        try:
            hidden.rename(self.folder / manifest.name)
        except OSError:
            if not (self.folder / manifest.name).exists():
                raise
            shutil.rmtree(hidden)
            return None
        return complete

    def _hidden(self, manifest: Manifest) -> Path:
        return self.folder / f".{manifest.name}-{uuid4().hex}"

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
                    text = (self.folder / name / "_manifest.json").read_text(encoding="utf-8")
                except FileNotFoundError:
                    return None
                self._manifests[name] = Manifest.from_json(text)
            return self._manifests[name]


def _uri(path: Path) -> str:
    """The path for Spark, which wants the scheme and, unlike browsers, no per cent signs."""
    return f"file://{path}"
