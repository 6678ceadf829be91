"""The small files that a topic keeps beside its rows: its schema, and who reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.errors import InputError
from tidegate.spark.streams.checkpoints import Checkpoint

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "BATCH",
    "as_table",
    "checked_name",
    "consumer_of",
    "consumers",
    "kept_schema",
    "nullable",
    "register",
    "write_whole",
]

BATCH = re.compile(r"(?P<producer>[A-Za-z0-9][\w.-]*)-(?P<batch_id>[0-9]{12})")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def checked_name(name: str, key: str) -> str:
    """A name that can be that of a file, of a Kafka topic and of a query."""
    if not _NAME.fullmatch(name):
        raise InputError(key, name, "letters, digits, dots, dashes and underscores, a letter first")
    return name


def kept_schema(folder: Path, schema: StructType | None) -> StructType:
    """The schema of the topic in that folder: kept by the first call, the same ever after."""
    from pyspark.sql.types import StructType

    kept = folder / "_schema.json"
    known = StructType.fromJson(json.loads(kept.read_text())) if kept.exists() else None
    given = nullable(schema) if schema is not None else known
    if given is None:
        remedy = f"pass the schema of {folder.name}"
        raise InputError("schema", None, "given for a new topic", remedy)
    if known is not None and known != given:
        raise InputError(
            f"schema of topic {folder.name}",
            given.simpleString(),
            f"{known.simpleString()}, as when the topic was made",
            "write to a new topic, or remove the old one",
        )
    folder.mkdir(parents=True, exist_ok=True)
    if known is None:
        write_whole(kept, given.json())
    return given


def nullable(schema: StructType) -> StructType:
    """The schema as files and messages give it back: every column may be null."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, True) for f in schema.fields])


def as_table(rows: pa.Table | Iterable[Mapping[str, Any]], schema: StructType) -> pa.Table:
    """Rows from Python as a table of just these columns and types."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(schema)
    if isinstance(rows, pa.Table):
        return rows.select(columns.names).cast(columns)
    return pa.Table.from_pylist(list(rows), schema=columns)


def register(folder: Path, consumer: str, checkpoint: Path) -> None:
    """Note who reads the topic, and where that query's checkpoint is."""
    name = checked_name(consumer, "consumer")
    (folder / "_consumers").mkdir(exist_ok=True)
    entry = {"checkpoint": str(checkpoint.resolve())}
    write_whole(folder / "_consumers" / f"{name}.json", json.dumps(entry))


def consumers(folder: Path) -> dict[str, Checkpoint]:
    """The queries that read the topic, by name."""
    files = sorted((folder / "_consumers").glob("*.json"))
    return {f.stem: Checkpoint(Path(json.loads(f.read_text())["checkpoint"])) for f in files}


def consumer_of(known: dict[str, Checkpoint], consumer: str, topic: str) -> Checkpoint:
    """The checkpoint of a consumer; InputError when it is none."""
    if consumer not in known:
        remedy = "known are " + ", ".join(known) if known else "nobody reads it yet"
        raise InputError("consumer", consumer, f"a reader of {topic}", remedy)
    return known[consumer]


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or none."""
    hidden = path.with_name(f".{path.name}-{uuid4().hex}")
    hidden.write_text(text, encoding="utf-8")
    hidden.rename(path)
