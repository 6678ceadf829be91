"""Files of lines that one process appends to while others read: journals, move logs, controls.

The last line may be torn: its writer is in the middle of it, or died there. A reader takes whole
lines only (`Tail`); a writer that continues a file first makes its end whole (`mend`). Neither a
writer nor the search for the last turn (`last_lines`) reads more than the end of the file.

A journal is rotated: ``FILE`` becomes ``FILE.000001``, later ``FILE.000002`` and so on, and a new
``FILE`` is begun. A `Tail` of rotated files reads them in order, as if they were one.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from tidegate.errors import InputError

__all__ = ["Tail", "last_lines", "mend", "parts_of"]

CHUNK = 4 << 20
FROM_THE_END = 64 << 10
MOST_FROM_THE_END = 16 << 20
"""Bytes that are read from the end of a file at most; longer lines are not turns."""
MARK = 256
"""Bytes before the position reached that must be unchanged; otherwise it is another file."""


def parts_of(path: Path) -> list[Path]:
    """The rotated parts of a file, oldest first, without the file itself."""
    number = re.compile(re.escape(path.name) + r"\.[0-9]{6,}")
    try:
        found = [file for file in path.parent.iterdir() if number.fullmatch(file.name)]
    except OSError:
        return []
    return sorted(found, key=lambda file: int(file.suffix[1:]))


class _File(NamedTuple):
    """A file as it was listed; it may have another name by now."""

    path: Path
    inode: int
    size: int


class Tail:
    """Whole lines of a file as they appear.

    A file that became shorter or was replaced is read from its start again, and `generation` rises.

    path: the file, which need not exist yet. rotated: also read its rotated parts, before it.
    """

    def __init__(self, path: Path, rotated: bool = False) -> None:
        self.path = path
        self.rotated = rotated
        self.generation = 1
        self.starts = array("q")
        """Offset of each line that is not blank, in bytes, in the file that it is in."""
        self.name = path.name
        """Name of the file that the last line was read from."""
        self.number = 0
        """Number of the line read last in its file, from 1, blank lines included."""
        self.size = 0
        """Size of all files, as of the last look."""
        self.rest = b""
        """What follows the last whole line, as of the last look."""
        self._offset = 0
        self._behind = 0
        """Bytes of the files that were read to their end."""
        self._inode: int | None = None
        self._before = b""
        self._files: list[tuple[int, int]] = []
        """Index of the first line of each file, and its inode."""
        self._heads: list[bytes] = []
        """How each of them begins: the inode of a file that was removed is used again."""

    @property
    def read_to(self) -> int:
        """Bytes that were read, of all files."""
        return self._behind + self._offset

    def lines(self) -> Iterator[bytes]:
        """Yield the new whole lines that are not blank, up to the files' sizes at the call."""
        while not (yield from self._look()):
            pass

    def line(self, index: int) -> bytes:
        """Read one line again, by its index from 0 among those that are not blank.

        Raises InputError if rotation has removed its file.
        """
        at = bisect_right(self._files, index, key=lambda file: file[0]) - 1
        _, inode = self._files[at]
        for listed in self._listed():
            if listed.inode == inode and (file := _open(listed)) is not None:
                with file:
                    head = self._heads[at]
                    if file.read(len(head)) != head:
                        continue
                    file.seek(self.starts[index])
                    return file.readline()
        raise InputError("turn", index, "a later one", "rotation has removed its part")

    def _look(self) -> Generator[bytes, None, bool]:
        """Yield new lines; return False if files were renamed or replaced meanwhile: look again."""
        files = self._listed()
        at = next((n for n, file in enumerate(files) if file.inode == self._inode), None)
        if at is None and self._inode is not None:
            self._begin_again()
        self.rest = b""
        files = files[at or 0 :]
        for n, listed in enumerate(files):
            if (file := _open(listed)) is None:
                if (listed.path, listed.inode) in [file[:2] for file in self._listed()]:
                    continue  # it is there, but cannot be read
                return False
            with file:
                if listed.inode != self._inode:
                    yield from self._turn_to(listed)
                elif not self._is_continued(file):
                    self._begin_again()
                    return False
                self.size = self._behind + sum(ahead.size for ahead in files[n:])
                yield from self._lines_of(file)
        return True

    def _listed(self) -> list[_File]:
        # The file comes last and is looked at first: one that is rotated meanwhile is then a part.
        last = _looked_at(self.path)
        parts = map(_looked_at, parts_of(self.path) if self.rotated else [])
        found = [part for part in parts if part is not None]
        if last is not None and last.inode not in [part.inode for part in found]:
            found.append(last)
        return found

    def _is_continued(self, file: IO[bytes]) -> bool:
        file.seek(self._offset - len(self._before))
        shorter = os.fstat(file.fileno()).st_size < self._offset
        return not shorter and file.read(len(self._before)) == self._before

    def _lines_of(self, file: IO[bytes]) -> Iterator[bytes]:
        size = os.fstat(file.fileno()).st_size
        file.seek(self._offset)
        self.rest = b""
        while (chunk := file.read(CHUNK)) and self._offset < size:
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            for line in whole:
                yield from self._take(line, b"\n")

    def _take(self, line: bytes, end: bytes) -> Iterator[bytes]:
        # All of it before the line is yielded: the caller may never come back.
        start, self._offset = self._offset, self._offset + len(line) + len(end)
        self._before = (line[-MARK:] + end)[-MARK:]
        if start == 0:
            self._heads[-1] = (line[:MARK] + end)[:MARK]
        self.number += 1
        if line.strip():
            self.starts.append(start)
            yield line

    def _turn_to(self, file: _File) -> Iterator[bytes]:
        """Begin with the next file. A rotated one does not grow, so its rest is a line."""
        if self.rest:
            yield from self._take(self.rest, b"")
        self._behind += self._offset
        self._offset = self.number = 0
        self._before = b""
        self._inode, self.name = file.inode, file.path.name
        self._files.append((len(self.starts), file.inode))
        self._heads.append(b"")

    def _begin_again(self) -> None:
        self.generation += 1
        self.starts = array("q")
        self.number = self.size = self._offset = self._behind = 0
        self.rest = self._before = b""
        self._inode, self._files, self._heads = None, [], []


def _looked_at(path: Path) -> _File | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _File(path, status.st_ino, status.st_size)


def _open(listed: _File) -> IO[bytes] | None:
    """Open a file that was listed; None if it has gone, cannot be read or is another one now."""
    try:
        file = listed.path.open("rb")
    except OSError:
        return None
    if os.fstat(file.fileno()).st_ino == listed.inode:
        return file
    file.close()
    return None


def last_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file that are not blank, the last one first, even if it is torn.

    Reads no more than needed. A line that begins before the last `MOST_FROM_THE_END` bytes is not
    read.
    """
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        floor, step, rest = max(0, at - MOST_FROM_THE_END), FROM_THE_END, b""
        while at > floor:
            step = min(step, at - floor)
            at -= step
            file.seek(at)
            rest, *lines = (file.read(step) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line.strip())
            step = FROM_THE_END if lines else 2 * step  # so that a long line is not read n² times
        if at == 0 and rest.strip():
            yield rest


def mend(path: Path) -> int:
    """Make a file of JSON lines end with a whole line; return the bytes of a torn one removed."""
    try:
        file = path.open("rb+")
    except FileNotFoundError:
        return 0
    with file:
        at = end = file.seek(0, os.SEEK_END)
        floor, step, rest = max(0, end - MOST_FROM_THE_END), FROM_THE_END, b""
        while at > floor and b"\n" not in rest:
            at = max(floor, at - step)
            step *= 2
            file.seek(at)
            rest = file.read(end - at)
        whole = at == 0 or b"\n" in rest
        rest = rest[rest.rfind(b"\n") + 1 :]
        if not rest:
            return 0
        try:
            json.loads(rest)
        except (ValueError, RecursionError):
            if whole:  # otherwise it is no line of ours: keep it, and begin a new line after it
                file.truncate(end - len(rest))
                return len(rest)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")  # only the end of the line was missing
    return 0
