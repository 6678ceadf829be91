"""What a streaming query has read, from its checkpoint.

Spark writes `offsets/<batch>` before a batch runs and `commits/<batch>` after it has ended. For a
file source the offset is a position in `sources/<i>`, a log of the files that were read; every
tenth entry is a `.compact` one that repeats all entries before it. So the files of any batch, and
those of all committed batches, are known exactly, whether the query runs or not. For a Kafka source
the offset holds the end of the batch for each topic and partition, and `sources/<i>/0` holds where
the first batch begins.

These formats belong to Spark (version v1 of all three logs). Another version is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tidegate.errors import BackendError
from tidegate.units import natural

__all__ = ["Checkpoint", "Offsets", "Position"]


Offsets = Mapping[int, int]
"""Offset after the last record that was read, by partition of a Kafka topic."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has read each of its sources.

    sources: for a file source a position in its log, -1 before the first; for a Kafka source the
        offsets by topic.
    """

    sources: tuple[int | Mapping[str, Offsets], ...] = ()

    def log(self, source: int) -> int:
        """The position in a file source's log."""
        at = self.sources[source] if source < len(self.sources) else -1
        return at if isinstance(at, int) else -1

    def offsets(self, topic: str) -> Offsets:
        """How far a Kafka topic has been read; empty when no source reads it."""
        kafka = (at for at in self.sources if not isinstance(at, int))
        return next((topics[topic] for topics in kafka if topic in topics), {})


class Checkpoint:
    """The checkpoint folder of a query that reads files or Kafka topics."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def committed(self) -> Position:
        """How far the query has read and committed."""
        batches = _numbers(self.folder / "commits")
        return self.position(max(batches)) if batches else Position()

    def position(self, batch_id: int) -> Position:
        """The end of a batch; before the first batch an empty position."""
        if batch_id < 0:
            return Position()
        lines = _read(self.folder / "offsets" / str(batch_id))
        return Position(tuple(map(_offset, lines[1:])))  # the first is metadata

    def kafka_start(self, topic: str) -> Offsets:
        """Where the query began to read a Kafka topic; empty before its first batch."""
        for log in (self.folder / "sources").glob("*/0"):
            at = json.loads((_read(log) or ["{}"])[-1])
            if isinstance(at.get(topic), dict):
                return _partitions(at[topic])
        return {}

    def files(self, after: Position, upto: Position) -> Iterator[Path]:
        """The files between two positions, of all sources."""
        for source in range(len(upto.sources)):
            yield from self._log_files(source, after.log(source), upto.log(source))

    def batch_files(self, batch_id: int) -> Iterator[Path]:
        """The files of a batch, which are known before the batch runs."""
        return self.files(self.position(batch_id - 1), self.position(batch_id))

    def _log_files(self, source: int, after: int, upto: int) -> Iterator[Path]:
        log = self.folder / "sources" / str(source)
        compact = max((n for n in _numbers(log, ".compact") if after < n <= upto), default=None)
        if compact is not None:
            for entry in _entries(log / f"{compact}.compact"):
                if after < entry["batchId"] <= compact:
                    yield _path(entry)
            after = compact
        for n in range(after + 1, upto + 1):
            yield from map(_path, _entries(log / str(n)))


def _numbers(folder: Path, suffix: str = "") -> list[int]:
    if not folder.is_dir():
        return []
    names = (p.name for p in folder.iterdir() if p.name.endswith(suffix))
    stems = (name.removesuffix(suffix) for name in names)
    return [number for number in map(natural, stems) if number is not None]


def _read(path: Path) -> list[str]:
    """The lines of a log file after its version."""
    try:
        version, *lines = path.read_text(encoding="utf-8").lstrip("\0").splitlines()
    except (OSError, ValueError) as error:
        raise BackendError(
            f"{path.name} of checkpoint log {path.parent} cannot be read ({error}): check whether "
            "the checkpoint was removed or copied while its query ran"
        ) from error
    if version != "v1":
        raise BackendError(
            f"checkpoint log {path} has version {version!r}; only v1 is understood: "
            "use a PySpark release that Tidegate was tested with"
        )
    return lines


def _offset(line: str) -> int | dict[str, Offsets]:
    # Spark writes a dash for a source that has had no data yet.
    if line == "-":
        return -1
    offset = json.loads(line)
    if isinstance(offset, dict) and "logOffset" in offset:
        return int(offset["logOffset"])
    if isinstance(offset, dict) and all(isinstance(at, dict) for at in offset.values()):
        return {topic: _partitions(at) for topic, at in offset.items()}
    raise BackendError(
        f"offset {line} is neither that of a file source nor of Kafka: the checkpoints of other "
        "sources cannot be read"
    )


def _partitions(offsets: Mapping[str, int]) -> Offsets:
    return {int(partition): offset for partition, offset in offsets.items()}


def _entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _read(path)]


def _path(entry: dict[str, Any]) -> Path:
    return Path(unquote(urlparse(entry["path"]).path))
