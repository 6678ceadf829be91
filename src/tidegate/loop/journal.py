"""The journal: one line of JSON for each turn, for people, for replay and for the laboratory.

A line holds the snapshot, the plan with its reasons and guards, what became of it, and the memory
that the next turn starts from. A process that dies while it writes leaves a torn last line: it is
passed over when reading and cut off when writing goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.codec import Value, from_json, to_json
from tidegate.errors import InputError, JournalError
from tidegate.lifecycle import Closing
from tidegate.loop.backend import Outcome
from tidegate.loop.controls import Control
from tidegate.model import Plan, Snapshot

__all__ = ["Journal", "Turn", "read_journal"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Turn(Value):
    """One turn of the loop.

    number: from 1 on. policy: the stack that decided, for people. snapshot, plan, outcome: None
    where the turn did not get so far. memory: after the turn, as plain values; None where no
    journal is kept. error: what went wrong, in a sentence. controls: what people asked for before
    it, heeded or refused. slo_s: the latency that was promised, in seconds; policies may aim below
    it.
    """

    number: int
    policy: str
    snapshot: Snapshot | None = None
    plan: Plan | None = None
    outcome: Outcome | None = None
    memory: Any = None
    error: str | None = None
    version: int = VERSION
    controls: tuple[Control, ...] = ()
    slo_s: float | None = None


class Journal(Closing):
    """A journal that is written to, line by line; each line is on disk before the next turn.

    path: the file, made with its folder if it is not there, and continued if it is.

    >>> import tempfile
    >>> from tidegate.testing import steady_snapshot
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(f"{folder}/journal.jsonl") as journal:
    ...         journal.write(Turn(1, "static", steady_snapshot()))
    ...     with open(journal.path, "a") as file:
    ...         _ = file.write('{"number": 2, "poli')  # the power goes
    ...     [turn.number for turn in read_journal(journal.path)]
    [1]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.torn_bytes = _cut_torn_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, turn: Turn) -> None:
        """Add a turn."""
        self._file.write(to_json(turn) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; writing ends here."""
        self._file.close()


def _cut_torn_line(path: Path) -> int:
    """Make the file end with a whole line; return how many bytes of a torn one went."""
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with path.open("rb+") as file:
        data = file.read()
        if data.endswith(b"\n"):
            return 0
        start = data.rfind(b"\n") + 1
        try:
            json.loads(data[start:])
        except ValueError:
            file.truncate(start)
            return len(data) - start
        file.write(b"\n")  # only the line's end was missing
    return 0


def read_journal(path: str | os.PathLike[str]) -> Iterator[Turn]:
    """The turns of a journal, in order; a torn last line is passed over.

    Raises JournalError with the line's number for anything else that cannot be read.
    """
    file_path = Path(path)
    try:
        file = file_path.open(encoding="utf-8")
    except OSError as error:
        allowed, why = "a journal that can be read", error.strerror or "unreadable"
        raise JournalError("journal", str(path), allowed, why) from None
    with file:
        lines = enumerate(file, start=1)
        try:
            for number, line in lines:
                if not line.strip():
                    continue
                try:
                    yield from_json(Turn, line)
                except InputError as error:
                    if not line.endswith("\n"):
                        return  # torn: the process died while it wrote
                    raise JournalError(
                        f"{file_path.name} line {number}",
                        line[:40].rstrip() + "…",
                        "a turn written by Tidegate",
                        str(error),
                    ) from None
        except UnicodeDecodeError:
            remedy = "it holds bytes that are no text; is it a journal?"
            raise JournalError("journal", str(path), "a text file", remedy) from None
