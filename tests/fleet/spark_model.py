"""A copy of a streaming query as a sequence of accesses to files, in the order of Spark.

Spark writes the offsets of a batch, runs it, adds its files to the log of the file sink, and
commits it. A file of a log appears by an exclusive rename, which on a local file system is a check
and a rename, two steps. Hadoop creates missing folders on the way to a new file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Span = tuple[int, int]


class Concurrent(Exception):  # noqa: N818 - reads as what it is
    """Spark has found the file of another copy."""


@dataclass
class Sinks:
    """A file sink with its log, and a sink outside that keeps everything it is given.

    folder: of the file sink. outside: (batch, span) of each write to the other sink, as
    ``foreachBatch`` or Kafka would see them.
    """

    folder: Path
    outside: list[tuple[int, Span]] = field(default_factory=list)

    def rows(self) -> list[int]:
        """The rows that a reader of the file sink sees."""
        spans = [_span(file) for file in sorted((self.folder / "_spark_metadata").glob("[0-9]*"))]
        return [row for start, end in spans for row in range(start, end)]


def _span(file: Path) -> Span:
    start, end = file.read_text().split()
    return int(start), int(end)


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _create(file: Path, span: Span, label: str) -> Iterator[None]:
    """Create a file of a log, step by step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{label}")
    part.write_text(f"{span[0]} {span[1]}")
    yield
    if file.exists():
        raise Concurrent(file.name)
    yield
    part.rename(file)
    yield


def copy(checkpoint: Path, sinks: Sinks, rows: int, size: int, label: str) -> Iterator[None]:
    """A copy of a query; each step is at most one access to a file. It ends when all rows are read.

    rows: of the source. size: rows of a batch, which differ from copy to copy, as the rows that
    have arrived do. label: names its temporary files.
    """
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    checkpoint.mkdir(parents=True, exist_ok=True)
    yield
    known = _numbers(offsets)
    yield
    batch = known[-1] if known else -1
    span = _span(offsets / str(batch)) if known else (0, 0)
    yield
    if batch in _numbers(commits) or batch < 0:
        batch, span = batch + 1, (span[1], min(rows, span[1] + size))
        fresh = True
    else:
        fresh = False  # a batch without a commit runs again, with the offsets in the log
    yield
    while span[0] < span[1]:
        if fresh:
            yield from _create(offsets / str(batch), span, label)
        sinks.outside.append((batch, span))
        yield
        log = sinks.folder / "_spark_metadata"
        if batch > (_numbers(log) or [-1])[-1]:
            yield from _create(log / str(batch), span, label)
        yield from _create(commits / str(batch), span, label)
        batch, span, fresh = batch + 1, (span[1], min(rows, span[1] + size)), True
