"""Turns as lines of a journal: in full, or as what has changed since the last full line.

A turn of 50 executors with four slots each takes 45 kB, of which little changes from turn to turn.
A turn that takes more than `SHORT` bytes is therefore written as its changes (see `changes.py`)
since the last *full* line of the same file, not since the line before it: a damaged line costs no
other turn, and a reader that wants one turn needs two lines. Such a line names the number of the
turn that it is based on and the checksum of its line:

    {"number":8,"version":2,"since":5,"check":2909412453,"changes":{"set":{"snapshot/time_s":70.0}}}

Full lines have the form that they always had. The first line of a file is full, so a part that was
rotated can be read without the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any
from zlib import crc32

from tidegate.codec import to_json
from tidegate.errors import InputError
from tidegate.loop.changes import Known, Unsuited, changed, changes

__all__ = ["MOST_SINCE", "LineReader", "LineWriter", "first_whole", "newest_first"]

SHORT = 8_000
"""Length of a line, in bytes, up to which a turn is written in full."""
MOST_SINCE = 100
"""Lines after a full one until the next full one at the latest."""
VERSION = 2
"""Version of a line with changes. A full line has version 1, also as a default."""
KEPT = 4
"""Full lines that a reader keeps."""
BASED = re.compile(rb'\{"number":\d+,"version":2,"since":\d+,"check":(\d+),')


class LineWriter:
    """Makes the lines of a file. Call `begin_file` for each new file, and `wrote` after writing.

    When the turns have drifted so far from the full line that a new one would have paid for itself,
    the next line is full: the file is at most about twice as long as with the best choice.
    """

    def __init__(self) -> None:
        self.begin_file()

    def begin_file(self) -> None:
        """The next line is full."""
        self._base: Any = None
        self._columns: Known = {}
        self._length = self._check = 0
        self._since = self._least = self._spent = 0

    def line(self, turn: Any) -> bytes:
        """The line of a turn."""
        if self._base is not None and self._since < MOST_SINCE and self._spent < self._length:
            with suppress(Unsuited):
                line = self._based(turn)
                if 2 * len(line) < self._length:
                    return line
        return to_json(turn, defaults=False).encode() + b"\n"

    def _based(self, turn: Any) -> bytes:
        found = changes(self._base, replace(turn, number=self._base.number), self._columns)
        line = {
            "number": turn.number,
            "version": VERSION,
            "since": self._base.number,
            "check": self._check,
            "changes": found,
        }
        return _dumped(line)

    def wrote(self, turn: Any, line: bytes) -> None:
        """Note that the line of a turn is in the file."""
        if _check_of(line) is not None:
            self._since += 1
            self._least = min(self._least or len(line), len(line))
            self._spent += len(line) - self._least
            return
        self.begin_file()
        if len(line) > SHORT:
            # The memory as it was written: a policy might change the object.
            self._base = replace(turn, memory=json.loads(_dumped(turn.memory)))
            self._length, self._check = len(line), crc32(line[:-1])


class LineReader:
    """Reads the lines of a journal in order; keeps the last full lines.

    More than one is kept, since a damaged line looks like a full one.
    """

    def __init__(self) -> None:
        self._full: dict[int, bytes] = {}

    def whole(self, line: bytes) -> bytes | dict[str, Any]:
        """A full line as it is, or the turn of a line with changes as plain values.

        Raises InputError if the line is damaged, or the full line that it is based on is.
        """
        line = line.rstrip(b"\n")
        check = _check_of(line)
        if check is not None:
            return _restored(line, self._full.get(check))
        self.skip(line)
        return line

    def skip(self, line: bytes) -> None:
        """Pass over a line that later ones may be based on."""
        line = line.rstrip(b"\n")
        if len(line) >= SHORT and _check_of(line) is None:
            self._full[crc32(line)] = line
            while len(self._full) > KEPT:
                del self._full[next(iter(self._full))]


def newest_first(lines: Iterable[bytes]) -> Iterator[bytes | dict[str, Any]]:
    """The same for lines that come in reverse order; those that cannot be read are left out.

    Reads no further than the full line that the newest ones are based on.
    """
    waiting: list[bytes] = []
    needed: set[int] = set()
    full: dict[int, bytes] = {}
    for line in lines:
        waiting.append(line)
        check = _check_of(line)
        if check is not None:
            needed.add(check)
        elif len(line) >= SHORT:
            full[crc32(line)] = line
        if needed <= full.keys() or len(waiting) >= KEPT * MOST_SINCE:
            yield from _read(waiting, full)
            waiting, needed, full = [], set(), {}
    yield from _read(waiting, full)


def first_whole(lines: Iterable[bytes]) -> bytes:
    """The first of lines in reverse order, as a full line; reads no further than needed.

    Raises InputError if it is damaged, or the full line that it is based on is.
    """
    newest: bytes | None = None
    check: int | None = None
    for line in islice(lines, KEPT * MOST_SINCE):
        if newest is None:
            newest, check = line, _check_of(line)
            if check is None:
                return line
        elif len(line) > SHORT and crc32(line.rstrip(b"\n")) == check:
            return _dumped(_restored(newest, line))
    return _dumped(_restored(newest or b"", None))


def _read(lines: list[bytes], full: dict[int, bytes]) -> Iterator[bytes | dict[str, Any]]:
    for line in lines:
        check = _check_of(line)
        if check is None:
            yield line
        else:
            with suppress(InputError):
                yield _restored(line, full.get(check))


def _check_of(line: bytes) -> int | None:
    """The checksum of the line that this one is based on, None for a full line."""
    found = BASED.match(line)
    return int(found[1]) if found is not None else None


def _restored(line: bytes, full: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if full is None:
            remedy = "that line is damaged or missing"
            raise InputError("turn", found["number"], f"based on turn {found['since']}", remedy)
        turn = changed(json.loads(full), found["changes"])
        turn["number"] = found["number"]
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise InputError("Turn", "…", "changes to a turn", "the line is damaged") from None
    return turn


def _dumped(plain: Any) -> bytes:
    from pydantic_core import to_json  # on first use: `import tidegate` is instant

    return to_json(plain, inf_nan_mode="null") + b"\n"
