"""A journal that grows, read from where one left off.

Only whole lines count: the last one may be half written. A file that has become shorter, or is
another one by the same name, is begun again; who looks on is told by a new *generation*.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Tail"]

CHUNK = 4 << 20
MARK = 256
"""So many bytes before the place reached must be the same as before: else it is another file."""


class Tail:
    """Whole lines of a file as they come. path: it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 1
        self.starts = array("q")
        """Where each line begins, in bytes: any of them can be read again at once."""
        self.read_to = 0
        self.size = 0
        self._inode: int | None = None
        self._before = b""

    def lines(self) -> Iterator[bytes]:
        """The lines that are new and whole; looks once, and reads no more than there was then."""
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
            rest = b""
            while (chunk := file.read(CHUNK)) and self.read_to < self.size:
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    start, self.read_to = self.read_to, self.read_to + len(line) + 1
                    self._before = (line + b"\n")[-MARK:]
                    if line.strip():
                        self.starts.append(start)
                        yield line

    def line(self, index: int) -> bytes:
        """One line again, by its number from 0."""
        with self.path.open("rb") as file:
            file.seek(self.starts[index])
            return file.readline()

    def _begin_again(self) -> None:
        self.generation += 1
        self.starts = array("q")
        self.read_to = self.size = 0
        self._inode, self._before = None, b""
