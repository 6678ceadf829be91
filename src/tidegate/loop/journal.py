"""The journal: one line of JSON per turn, for reports, replay and simulation.

A line holds the snapshot, the plan with its reasons and guards, its outcome, and the memory that
the next turn starts from; a long line only what has changed (see `lines.py`). A process that dies
while it writes leaves a torn last line, which readers skip and the next writer removes.

One process writes to a journal at a time; a lock keeps others away. A journal that has become
large or old is rotated: its file is renamed and a new one is begun (see `tail.py`). A file that
somebody else has renamed, removed or emptied meanwhile is begun again with a full line. Readers
read all parts in order, skip lines that are damaged, and say so. They pass over fields that a newer
version wrote.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.codec import Value, from_newer_json, from_newer_plain
from tidegate.errors import InputError, JournalError
from tidegate.lifecycle import Closing
from tidegate.loop.backend import Outcome
from tidegate.loop.controls import Control
from tidegate.loop.lines import LineReader, LineWriter, newest_first
from tidegate.loop.lock import WriterLock
from tidegate.loop.tail import Tail, last_lines, mend, parts_of
from tidegate.model import Plan, Snapshot

__all__ = ["Journal", "Rotation", "Turn", "TurnReader", "last_turns", "read_journal"]

log = logging.getLogger(__name__)

FIRST_BYTES = b'{"number":'
"""The first bytes of every turn."""
FIRST_TIME = re.compile(rb'"snapshot":\{"time_s":([0-9.eE+-]+)')


@dataclass(frozen=True, slots=True)
class Turn(Value):
    """One turn of the loop.

    Args:
        number: Number of the turn, from 1.
        policy: Description of the policy and its guards.
        snapshot: What was measured; None if observing failed.
        plan: What was decided; None if the turn failed before.
        outcome: What was applied; None if the turn failed before.
        memory: Memory after the turn, as plain values; None without a journal.
        error: Why the turn failed, in a sentence.
        version: Version of the format. A line without it has version 1.
        controls: Controls requested before the turn, applied or refused.
        slo_s: Latency target, in seconds; policies may aim below it.
        notes: What could not be read or recorded, such as earlier turns that the disk had no room
            for; the turn was decided all the same.
    """

    number: int
    policy: str
    snapshot: Snapshot | None = None
    plan: Plan | None = None
    outcome: Outcome | None = None
    memory: Any = None
    error: str | None = None
    version: int = 1
    controls: tuple[Control, ...] = ()
    slo_s: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a journal begins a new file, and how many it keeps.

    max_mb: size of a file in MB. max_age_s: time from a file's first turn, in seconds. keep: number
    of rotated files; the oldest is removed when there are more. With the defaults a journal takes
    960 MB at most.
    """

    max_mb: float = 64.0
    max_age_s: float = 86_400.0
    keep: int = 14


DAILY = Rotation()


class Journal(Closing):
    """A journal to write to. A turn is in the file when `write` returns.

    Raises JournalError if the file cannot be written to, is no journal, or has another writer.

    path: the file; it is created with its folder, or continued if it exists. rotation: when to
    begin a new file; None for never.

    >>> import tempfile
    >>> from tidegate.testing import steady_snapshot
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(f"{folder}/journal.jsonl") as journal:
    ...         journal.write(Turn(1, "static", steady_snapshot()))
    ...     with open(journal.path, "a") as file:
    ...         _ = file.write('{"number": 2, "poli')  # the process dies
    ...     [turn.number for turn in read_journal(journal.path)]
    [1]
    """

    def __init__(self, path: str | os.PathLike[str], rotation: Rotation | None = DAILY) -> None:
        self.path = Path(path)
        self.rotation = rotation
        self._torn = self._closed = self._growing = False
        self._began_s: float | None = None
        self._lines = LineWriter()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(self.path)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            _check_file(self.path)
            self.torn_bytes = mend(self.path)
            self._open()
        except OSError as error:
            self._lock.close()
            raise _unwritable(path, error) from None
        except JournalError:
            self._lock.close()
            raise

    def write(self, turn: Turn) -> None:
        """Append a turn.

        Raises OSError if it cannot be written. What is left of it is removed before the next one is
        written, so a later call succeeds as soon as there is room.
        """
        if self._closed:
            raise ValueError("the journal is closed")
        line = self._lines.line(turn)
        time_s = turn.snapshot.time_s if turn.snapshot is not None else None
        if self._make_ready(len(line), time_s):
            line = self._lines.line(turn)  # the first one of another file
        self._torn = True
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._torn = False
        self._end = self._file.tell()
        self._lines.wrote(turn, line)
        self._began_s = time_s if self._began_s is None else self._began_s

    def close(self) -> None:
        """Close the file and let others write to it."""
        self._closed = True
        self._file.close()
        self._lock.close()

    def _open(self) -> None:
        self._lines.begin_file()
        self._file = self.path.open("ab", buffering=0)
        self._end = os.fstat(self._file.fileno()).st_size
        with self.path.open("rb") as file:
            first = FIRST_TIME.search(file.read(1 << 16))
        self._began_s = None
        if first is not None:
            with suppress(ValueError):  # it is damaged
                self._began_s = float(first[1])

    def _make_ready(self, more: int, time_s: float | None) -> bool:
        """Make the file whole, present, and not too large or old; return whether it is another."""
        before = self._file
        if self._torn:
            mend(self.path)
        cut = _is_shorter(self._file, self._end)
        if cut:  # emptied by somebody else, as `logrotate` does, or cut in the middle of a line
            mend(self.path)
        if cut or not _is_open(self._file, self.path):  # or removed or renamed
            self._file.close()
            self._open()
        size = os.fstat(self._file.fileno()).st_size
        if self.rotation is None or not size:
            return self._file is not before
        age_s = 0.0
        if self._began_s is not None and time_s is not None:
            self._began_s = min(self._began_s, time_s)  # later than now: the clock went back
            age_s = time_s - self._began_s
        if size + more > self.rotation.max_mb * 1e6 or age_s >= self.rotation.max_age_s:
            self._rotate(self.rotation.keep)
        return self._file is not before

    def _rotate(self, keep: int) -> None:
        parts = parts_of(self.path)
        number = int(parts[-1].suffix[1:]) + 1 if parts else 1
        try:
            self.path.rename(self.path.with_name(f"{self.path.name}.{number:06d}"))
        except OSError as error:
            if not self._growing:  # every write tries again
                log.warning(
                    "%s cannot be rotated at present and grows: %s", self.path, error.strerror
                )
            self._growing = True
            return
        self._growing = False
        self._file.close()
        self._open()
        for part in parts[: max(0, len(parts) + 1 - keep)]:
            with suppress(OSError):
                part.unlink()


def _check_file(path: Path) -> None:
    """Raise JournalError for what exists and is no journal: nothing must be appended to it."""
    if not path.exists():
        return
    if not path.is_file():
        raise JournalError("journal", str(path), "a file")
    with path.open("rb") as file:
        first = file.read(len(FIRST_BYTES))
    if FIRST_BYTES.startswith(first):  # also one that is empty, or torn within its first bytes
        return
    if next(_turns_from_the_end(path), None) is None:
        raise JournalError("journal", str(path), "a journal of Tidegate, or a new file")


def _unwritable(path: object, error: OSError) -> JournalError:
    if isinstance(error, BlockingIOError):
        allowed, remedy = "a file that no other process writes to", "choose another name"
        return JournalError("journal", str(path), allowed, remedy)
    why = error.strerror or "it cannot be opened"
    return JournalError("journal", str(path), "a file to write to", why)


def _is_open(file: Any, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (OSError, ValueError):  # it is gone, or the file is closed
        return False


def _is_shorter(file: Any, size: int) -> bool:
    try:
        return os.fstat(file.fileno()).st_size < size
    except (OSError, ValueError):  # the file is closed, since it could not be opened again
        return False


# --- reading --------------------------------------------------------------------------------------


class TurnReader:
    """Reads the lines of a journal as turns, in the order of the lines.

    A line may have only what has changed since an earlier one, so the reader must have seen that.
    """

    def __init__(self) -> None:
        self._lines = LineReader()

    def read(self, line: bytes) -> tuple[Turn, tuple[str, ...]]:
        """A turn from its line, and the fields of a newer version that were passed over.

        Raises InputError if the line is damaged.
        """
        return _turn_of(self._lines.whole(line))

    def skip(self, line: bytes) -> None:
        """Pass over a line that later ones may be based on."""
        self._lines.skip(line)


def _turn_of(whole: bytes | dict[str, Any]) -> tuple[Turn, tuple[str, ...]]:
    if isinstance(whole, dict):
        return from_newer_plain(Turn, whole)
    return from_newer_json(Turn, whole)


def read_journal(path: str | os.PathLike[str], left_out: list[str] | None = None) -> Iterator[Turn]:
    """Yield the turns of a journal in order, from its oldest part; a torn last line is skipped.

    Damaged lines and fields of a newer version are passed over. At the end a sentence for each of
    the two says so: it is appended to `left_out`, or logged as a warning when that is None.

    Raises JournalError if the file cannot be read, or if no line of it is a turn.
    """
    file_path = Path(path)
    parts = parts_of(file_path)
    try:
        (file_path if file_path.exists() or not parts else parts[0]).open("rb").close()
    except OSError as error:
        allowed, why = "a journal that can be read", error.strerror or "unreadable"
        raise JournalError("journal", str(path), allowed, why) from None
    tail, reader = Tail(file_path, rotated=True), TurnReader()
    turns, damaged = 0, 0
    first: JournalError | None = None
    unknown: set[str] = set()
    for line in tail.lines():
        try:
            turn, ignored = reader.read(line)
        except InputError as error:
            damaged += 1
            first = first or _damaged(tail, line, error)
            continue
        unknown.update(ignored)
        turns += 1
        yield turn
    with suppress(InputError):  # torn, unless only the end of the line is missing
        if tail.rest.strip():
            yield reader.read(tail.rest)[0]
            turns += 1
    if first is not None and not turns:
        raise first
    said = []
    if first is not None:
        lines = "1 line is" if damaged == 1 else f"{damaged} lines are"
        said.append(f"{lines} damaged and left out of {file_path.name}; the first: {first}")
    if unknown:
        said.append(
            f"{file_path.name} was written by a newer version, whose fields are left out: "
            + ", ".join(sorted(unknown))
        )
    if left_out is not None:
        left_out += said
    else:
        for sentence in said:
            log.warning("%s", sentence)


def _damaged(tail: Tail, line: bytes, error: InputError) -> JournalError:
    return JournalError(
        f"{tail.name} line {tail.number}",
        line[:40].decode("utf-8", "replace").rstrip() + "…",
        "a turn written by Tidegate",
        str(error),
    )


def last_turns(path: str | os.PathLike[str]) -> Iterator[Turn]:
    """Yield the readable turns of a journal, the last one first; reads its files from their end.

    Raises OSError if a file cannot be read.
    """
    file = Path(path)
    for part in [*([file] if file.exists() else []), *reversed(parts_of(file))]:
        yield from _turns_from_the_end(part)


def _turns_from_the_end(path: Path) -> Iterator[Turn]:
    for whole in newest_first(last_lines(path)):
        with suppress(InputError):
            yield _turn_of(whole)[0]
