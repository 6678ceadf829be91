"""Files of lines that one process appends to while others read: journals, move logs, controls.

The last line may be torn: its writer is in the middle of it, or died there. A reader takes whole
lines only (`Tail`); a writer that continues a file first makes its end whole (`mend`).
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Tail", "mend"]

CHUNK = 4 << 20
MARK = 256
"""Bytes before the position reached that must be unchanged; otherwise it is another file."""


class Tail:
    """Whole lines of a file as they appear.

    A file that became shorter or was replaced is read from its start again, and `generation` rises.

    path: the file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 1
        self.starts = array("q")
        """Offset of each line that is not blank, in bytes."""
        self.number = 0
        """Number of the line read last, from 1, blank lines included."""
        self.read_to = 0
        self.size = 0
        self.rest = b""
        """What follows the last whole line, as of the last look."""
        self._inode: int | None = None
        self._before = b""

    def lines(self) -> Iterator[bytes]:
        """Yield the new whole lines that are not blank, up to the file's size at the call."""
        try:
            file = self.path.open("rb")
        except OSError:
            if self._inode is not None:
                self._begin_again()
            return
        with file:
            status = os.fstat(file.fileno())
            file.seek(self.read_to - len(self._before))
            replaced = self._inode not in (None, status.st_ino)
            if (
                replaced
                or status.st_size < self.read_to
                or file.read(len(self._before)) != self._before
            ):
                self._begin_again()
            self._inode, self.size = status.st_ino, status.st_size
            file.seek(self.read_to)
            self.rest = b""
            while (chunk := file.read(CHUNK)) and self.read_to < self.size:
                *whole, self.rest = (self.rest + chunk).split(b"\n")
                for line in whole:
                    start, self.read_to = self.read_to, self.read_to + len(line) + 1
                    self.number += 1
                    self._before = (line + b"\n")[-MARK:]
                    if line.strip():
                        self.starts.append(start)
                        yield line

    def line(self, index: int) -> bytes:
        """Read one line again, by its index from 0 among those that are not blank."""
        with self.path.open("rb") as file:
            file.seek(self.starts[index])
            return file.readline()

    def _begin_again(self) -> None:
        self.generation += 1
        self.starts = array("q")
        self.number = self.read_to = self.size = 0
        self._inode, self._before = None, b""


def mend(path: Path) -> int:
    """Make a file of JSON lines end with a whole line; return the bytes of a torn one removed."""
    tail = Tail(path)
    for _ in tail.lines():
        pass
    if not tail.rest:
        return 0
    with path.open("rb+") as file:
        file.seek(tail.read_to)
        try:
            json.loads(tail.rest)
        except ValueError:
            file.truncate()
            return len(tail.rest)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")  # only the end of the line was missing
    return 0
