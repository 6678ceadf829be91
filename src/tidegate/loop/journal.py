"""The journal: one line of JSON per turn, for reports, replay and simulation.

A line holds the snapshot, the plan with its reasons and guards, its outcome, and the memory that
the next turn starts from. A process that dies while it writes leaves a torn last line, which
readers skip and the next writer removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.codec import Value, from_json, to_json
from tidegate.errors import InputError, JournalError
from tidegate.lifecycle import Closing
from tidegate.loop.backend import Outcome
from tidegate.loop.controls import Control
from tidegate.loop.tail import Tail, mend
from tidegate.model import Plan, Snapshot

__all__ = ["Journal", "Turn", "read_journal"]

VERSION = 1


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
        version: Version of the format.
        controls: Controls requested before the turn, applied or refused.
        slo_s: Latency target, in seconds; policies may aim below it.
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
    """A journal to write to; each line is flushed before the next turn.

    path: the file; it is created with its folder, or continued if it exists.

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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.torn_bytes = mend(self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, turn: Turn) -> None:
        """Append a turn."""
        self._file.write(to_json(turn) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: str | os.PathLike[str]) -> Iterator[Turn]:
    """Yield the turns of a journal in order; a torn last line is skipped.

    Raises JournalError with the number of any other line that cannot be read.
    """
    file_path = Path(path)
    try:
        file_path.open("rb").close()
    except OSError as error:
        allowed, why = "a journal that can be read", error.strerror or "unreadable"
        raise JournalError("journal", str(path), allowed, why) from None
    tail = Tail(file_path)
    for line in tail.lines():
        try:
            yield from_json(Turn, line)
        except InputError as error:
            raise JournalError(
                f"{file_path.name} line {tail.number}",
                line[:40].decode("utf-8", "replace").rstrip() + "…",
                "a turn written by Tidegate",
                str(error),
            ) from None
    with suppress(InputError):  # torn, unless only the end of the line is missing
        if tail.rest.strip():
            yield from_json(Turn, tail.rest)
