"""What a topology has let in: the rows of a source without those that were shed.

Which rows a batch has shed follows from their content, the batch's number and the share in its
manifest, so it can be told afterwards, exactly; a reference that is given the rest must come to the
same results as the stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.shedding import ShedLedger
from tidegate.spark.streams.topic import REJECTED, Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["admitted", "rows_of"]


def rows_of(topic: Topic, spark: SparkSession) -> pa.Table:
    """All good rows of a topic; those of a file topic without the detour through the JVM."""
    import pyarrow.compute as pc

    if isinstance(topic, FileTopic):
        table = _read(topic, (topic.folder / m.name / f for m in topic.batches() for f in m.files))
    else:
        table = topic.frame(spark).toArrow()
    if REJECTED not in table.column_names:
        return table
    kept: pa.Table = table.filter(pc.is_null(table[REJECTED])).drop_columns([REJECTED])
    return kept


def admitted(
    spark: SparkSession, source: Topic, checkpoint: Checkpoint, output: Topic, ledger: ShedLedger
) -> pa.Table | None:
    """The rows of a source that its reader has let in, None where that cannot be told.

    checkpoint, output, ledger: of the reader, which reads nothing else.
    """
    import pyarrow as pa

    if not isinstance(source, FileTopic) or not isinstance(output, FileTopic):
        return None
    tables = []
    for manifest in output.batches():
        files = list(checkpoint.batch_files(manifest.batch_id))
        if not manifest.shed_fraction:
            tables.append(_read(source, files))
        elif files:
            names = [f"file://{file}" for file in files]
            batch = spark.read.schema(source.schema).parquet(*names)
            left = ledger.left_of(batch, manifest.batch_id, manifest.shed_fraction)
            tables.append(left.toArrow())
    return pa.concat_tables(tables) if tables else _read(source, [])


def _read(topic: FileTopic, files: Iterable[Path]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(topic.schema)
    tables = [pq.ParquetFile(file).read().select(schema.names).cast(schema) for file in files]
    return pa.concat_tables(tables) if tables else schema.empty_table()
