"""Topics of files: append-only logs that join streaming queries, exactly once.

A topic is a folder; a batch of a producing query is a folder in it:

::

    ticks/
      _schema.json                      schema of the rows
      _consumers/parse.json             a query that reads the topic, and its checkpoint
      parse-000000000017/               batch 17 of the query `parse`
        part-00000-….parquet
        _manifest.json                  rows by file, totals so far
      .parse-000000000018-5f0c…/        a batch that is being written, invisible to readers

A batch is written to a hidden folder, which is renamed when complete. The rename is atomic, so a
batch is visible as a whole or not at all. The name holds producer and batch number, so a batch that
is repeated after a crash is found published and changes nothing. The manifest moves with the files,
so counts and data always agree, whatever was retried.

The folder must be on a file system with atomic renames that driver and executors share (local disk,
NFS), not on an object store. It survives the death of processes, but not a loss of power.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.checkpoints import Checkpoint, Position
from tidegate.spark.streams.topic import BATCH, Manifest, OwnTopic, as_table, checked_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidegate.spark.streams.topic import Rows

__all__ = ["FileTopic"]

# With more folders than this Spark lists them in a job, which has to wait for a free slot.
_LISTING = ("spark.sql.sources.parallelPartitionDiscovery.threshold", 1_000_000)


class FileTopic(OwnTopic):
    """A topic as a folder of Parquet files.

    Spark ignores files that are seven days older than the newest, so a consumer must not fall that
    far behind.

    folder: created when absent. schema: of the rows; optional when the topic exists.
    """

    def __init__(self, folder: Path | str, schema: StructType | None = None) -> None:
        folder = Path(folder).resolve()
        if set(str(folder)) & set("*?[]{}\\"):
            remedy = "choose another folder: Spark reads these characters as a pattern"
            raise InputError("folder", str(folder), "without any of *?[]{}\\", remedy)
        super().__init__(folder.name, folder)
        self._positions: dict[str, Position] = {}
        self._consumed: dict[str, frozenset[Path]] = {}
        self._schema = self._keep_schema(schema)

    # --- reading ------------------------------------------------------------------------------

    def _stream(self, spark: SparkSession, max_files: int | None) -> DataFrame:
        reader = spark.readStream.schema(self._schema)
        if max_files is not None:
            reader = reader.option("maxFilesPerTrigger", max_files)
        spark.conf.set(*_LISTING)
        # A pattern and not the folder: while Spark lists, it tolerates a batch that is trimmed only
        # if the batch is a root of the listing. Hidden names do not match.
        return reader.parquet(f"{_uri(self.folder)}/[A-Za-z0-9]*")

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows that are visible now, as an ordinary DataFrame."""
        files = [_uri(self.folder / m.name / file) for m in self.batches() for file in m.files]
        if not files:
            return spark.createDataFrame([], self._schema)
        return spark.read.schema(self._schema).parquet(*files)

    def items_in(self, checkpoint: Checkpoint, batch_id: int) -> int:
        """Number of this topic's rows in a batch of a consuming query, by the manifests."""
        count = 0
        for path in checkpoint.batch_files(batch_id):
            if path.parent.parent == self.folder:
                manifest = self._manifest(path.parent.name)
                if manifest is None:
                    raise BackendError(
                        f"batch {path.parent.name} of topic {self.name} is missing and its rows "
                        "are lost: remove batches with trim() only"
                    )
                count += manifest.files[path.name]
        return count

    def lag_items(self, consumer: str) -> int:
        """Number of published rows that the consumer has not committed."""
        # Read what is consumed first: in the other order a fresh batch could be missed.
        consumed = self._committed(consumer, self._checkpoint(consumer))
        return sum(
            rows
            for manifest in self.batches()
            for file, rows in manifest.files.items()
            if self.folder / manifest.name / file not in consumed
        )

    def _committed(self, consumer: str, checkpoint: Checkpoint) -> frozenset[Path]:
        """Files of this topic that the consumer has committed; reads only what is new."""
        with self._lock:
            after, upto = self._positions.get(consumer, Position()), checkpoint.committed()
            files = checkpoint.files(after, upto)
            consumed = self._consumed.get(consumer, frozenset())
            consumed |= frozenset(f for f in files if f.parent.parent == self.folder)
            self._positions[consumer], self._consumed[consumer] = upto, consumed
            return consumed

    # --- writing ------------------------------------------------------------------------------

    def write(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        """Publish a batch atomically; a batch that is published already stays as it is."""
        import pyarrow.parquet as pq

        checked_name(manifest.producer, "producer")
        if (done := self.already(manifest)) is not None:
            return done
        hidden = self._hidden(manifest)
        batch.write.parquet(_uri(hidden))
        # Footers count what is in the files; unlike accumulators they are right after any retry.
        files = {f.name: int(pq.read_metadata(f).num_rows) for f in hidden.glob("*.parquet")}
        for name in [name for name, rows in files.items() if rows == 0]:
            (hidden / name).unlink()
            del files[name]
        return self._publish(hidden, manifest, files) or self.write(batch, manifest)

    def append(self, rows: Rows, producer: str = "python", batch_id: int | None = None) -> Manifest:
        """Publish rows from Python as one batch, without Spark or Java."""
        import pyarrow.parquet as pq

        table = as_table(rows, self._schema)
        while True:
            manifest, done = self._next_batch(producer, batch_id, table.num_rows)
            if done is not None:
                return done
            hidden = self._hidden(manifest)
            hidden.mkdir()
            pq.write_table(table, hidden / "part-00000.parquet")
            files = {"part-00000.parquet": table.num_rows}
            published = self._publish(hidden, manifest, files)
            if published is not None:
                return published
            # Another process has taken the number: try the next one.

    def trim(self, older_than_s: float) -> int:
        """Remove old batches that every consumer has committed; return their number.

        The batches of a topic that nobody reads are kept.
        """
        readers = self.consumers()
        if not readers:
            return 0
        finished = frozenset.intersection(*(self._committed(n, c) for n, c in readers.items()))

        def needed(manifest: Manifest) -> bool:
            return any(self.folder / manifest.name / f not in finished for f in manifest.files)

        removable, _ = self._trimmable(older_than_s, needed)
        gone: set[Path] = set()
        for manifest in removable:
            # Emptied, not removed: a query that lists a folder fails when the folder disappears.
            folder = self.folder / manifest.name
            for file in sorted(folder.iterdir(), key=lambda f: f.suffix != ".json"):
                file.unlink()
            with self._lock:
                self._manifests.pop(manifest.name, None)
            gone.update(folder / file for file in manifest.files)
        with self._lock:
            self._consumed = {name: files - gone for name, files in self._consumed.items()}
        return len(removable)

    def sweep(self, producer: str) -> None:
        """Remove the unfinished batches of a run of the producer that died."""
        self.remove_emptied()
        for hidden in self.folder.glob(f".{producer}-{'[0-9]' * 12}-*"):
            shutil.rmtree(hidden, ignore_errors=True)

    def remove_emptied(self) -> None:
        """Remove the folders that `trim` has emptied; only while no query reads the topic."""
        for name in self._folders():
            with contextlib.suppress(OSError):  # not empty
                (self.folder / name).rmdir()

    def _publish(
        self, hidden: Path, manifest: Manifest, files: Mapping[str, int]
    ) -> Manifest | None:
        """Make a hidden batch visible; None when another process has published it before."""
        complete = self._completed(manifest, files)
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

    def _folders(self) -> list[str]:
        with os.scandir(self.folder) as entries:
            return [entry.name for entry in entries if BATCH.fullmatch(entry.name)]

    def _batch_names(self) -> list[str]:
        return [name for name in self._folders() if self._manifest_path(name).exists()]

    def _manifest_path(self, name: str) -> Path:
        return self.folder / name / "_manifest.json"


def _uri(path: Path) -> str:
    """The path with a scheme, as Spark expects it: without percent encoding."""
    return f"file://{path}"
