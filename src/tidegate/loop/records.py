"""What a loop keeps on disk: its journal, the memory in it, and the file of controls.

None of it may end or delay what the loop scales. A file that is damaged, locked, full or of a newer
version is a warning, and the loop goes on with another file or without one.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from tidegate.lifecycle import Background, Closing
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal, Turn, last_turns
from tidegate.policies.base import Policy

__all__ = ["LOST", "Patience", "Recorder", "Records", "open_records", "remembered"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Other = TypeVar("Other")
LOST = "before this one could not be written"
"""Part of the note in a turn before which others are missing."""
OPEN_S = 5.0
"""Longest time to wait for the files, in seconds: a network folder may not answer at all."""
WRITE_S = 5.0
"""Longest time that a turn waits for the disk, in seconds."""
MOST_JOURNALS = 9
"""Loops that may write journals of the same name next to each other."""
MOST_TURNS_BACK = 100
"""Turns that are searched for a memory, from the last one."""


class Patience(Generic[T]):
    """Calls that may not return, such as to a disk, none of which is waited for for long.

    While a call has not ended, others fail at once: what waits does not pile up. What the late call
    returned is in `late` as soon as it has ended.

    limit_s: longest time to wait for a call, in seconds; None for `WRITE_S`. too_late: the error of
    a call that takes longer.
    """

    def __init__(
        self, limit_s: float | None = None, too_late: Callable[[], Exception] | None = None
    ) -> None:
        self._limit_s = limit_s
        self._too_late = too_late or _no_answer
        self._abandoned: Background[T] | None = None

    def late(self) -> list[T]:
        """The result of a call that was abandoned and has succeeded since, once; or nothing."""
        if self._abandoned is None or not self._abandoned.ended():
            return []
        found, self._abandoned = self._abandoned.results(), None
        return found

    def call(self, do: Callable[[], T]) -> T:
        """The result of `do`; raises what it raises, and `too_late` if it takes too long."""
        if self._abandoned is not None and not self._abandoned.ended():
            raise self._too_late()
        work = Background(do, "tidegate-patience")
        if not work.ended(WRITE_S if self._limit_s is None else self._limit_s):
            self._abandoned = work
            raise self._too_late()
        return work.result()


def _no_answer() -> OSError:
    return OSError(errno.ETIMEDOUT, "the disk does not answer")


class Recorder:
    """Writes turns, and does what else must not keep a turn from deciding.

    A problem is noted in the turn and logged once until it is over. Turns that could not be written
    are counted, and the next turn that can be written has their number. A disk that hangs delays
    one turn by `WRITE_S` seconds, and no further one until it answers.

    journal: the journal, None for none.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal: Journal | None = None
        self.awaited = False
        """Whether a journal may still come (`begin`), so that turns before it count as lost."""
        self.lost = 0
        """Turns that could not be written since the last one that was."""
        self._why = ""
        self._notes: list[str] = []
        self._failing: set[str] = set()
        self._disk: Patience[None] = Patience()
        self.begin(journal)

    def begin(self, journal: Journal | None) -> None:
        """Write to a journal from now on."""
        self.journal = journal
        if journal is not None and journal.torn_bytes:
            note = f"the journal ended with {journal.torn_bytes} bytes of a torn line: removed"
            self._notes.append(note)
            log.warning("%s: %s", journal.path, note)

    def note(self, text: str) -> None:
        """Note something in the next turn."""
        self._notes.append(text)

    def attempt(self, what: str, do: Callable[[], T], otherwise: Other) -> T | Other:
        """The result of `do`, or `otherwise` if it fails. what: for the note, such as "memory"."""
        try:
            done = do()
        except Exception as problem:
            self._notes.append(f"{what}: {_named(problem)}")
            if what not in self._failing:
                log.warning("%s failed and is left out (%s)", what, _named(problem))
            self._failing.add(what)
            return otherwise
        self._failing.discard(what)
        return done

    def write(self, turn: Turn) -> Turn:
        """Write a turn with all notes since the last one, and return it as written."""
        if self.journal is None and not (self._notes or self.awaited or self.lost):
            return turn
        notes, self._notes = self._notes, []
        if self.journal is None and self.awaited:
            self._notes = notes  # for the first turn that is written
            self.lost, self._why = self.lost + 1, "the journal was not open yet"
            return replace(turn, notes=tuple(notes)) if notes else turn
        self.lost -= len(self._disk.late())  # it is in the journal after all
        if self.lost:
            turns = "1 turn" if self.lost == 1 else f"{self.lost} turns"
            notes.append(f"{turns} {LOST}: {self._why}")
        if notes:
            turn = replace(turn, notes=tuple(notes))
        journal, written = self.journal, turn
        if journal is None:
            return turn
        try:
            self._disk.call(lambda: _write(journal, written))
        except Exception as problem:
            self.lost, self._why = self.lost + 1, _named(problem)
            if self.lost == 1:
                log.warning(
                    "the journal cannot be written (%s); decisions go on and each turn tries again",
                    self._why,
                )
            return turn
        if self.lost:
            log.warning("the journal is written again; it lacks %d turns", self.lost)
        self.lost = 0
        return turn


def _write(journal: Journal, turn: Turn) -> None:
    try:
        journal.write(turn)
    except OSError:
        raise
    except Exception as problem:  # a plug-in's memory, or a control, that is no JSON
        note = f"written without memory and controls: {_named(problem)}"
        journal.write(replace(turn, memory=None, controls=(), notes=(*turn.notes, note)))


def _named(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return f"{type(problem).__name__}: {str(problem)[:300]}"


# --- opening --------------------------------------------------------------------------------------


@dataclass
class Records(Closing):
    """The open files of a loop.

    memory: what an earlier run left, None for a fresh start. opening: the files, if they take so
    long to open that the loop begins without them.
    """

    journal: Journal | None = None
    controls: ControlFile | None = None
    memory: Any = None
    opening: Background[Records] | None = None
    _closed: bool = False

    def opened_late(self) -> bool:
        """Whether the files have opened after all; True once, and they are here from then on."""
        if self.opening is None or not self.opening.ended():
            return False
        found, self.opening = self.opening.results(), None
        for late in found:
            self.journal, self.controls = late.journal, late.controls
        return bool(found) and self.journal is not None

    def close(self) -> None:
        """Close the files; a problem is of no consequence any more."""
        self._closed = True
        late = self.opening.results() if self.opening is not None else []
        for file in (self.controls, self.journal, *late):
            if file is not None:
                with suppress(Exception):
                    file.close()


def open_records(path: str | os.PathLike[str] | None, policy: Policy) -> Records:
    """Open the journal of a loop and what belongs to it; never raises or waits long, but warns.

    A journal that cannot be used, for example because another application writes to it, is left
    alone: ``tidegate-2.jsonl`` next to it is used in place of ``tidegate.jsonl``, and so on up to
    ``tidegate-9.jsonl``. If none can be used, the loop runs without a journal and without controls.
    A disk that does not answer for a while is waited for in the background.

    path: the journal, None for none. policy: the policy of the loop.
    """
    if path is None:
        return Records()
    records = Records()

    def open_them() -> Records:
        found = _opened(Path(path), policy)
        if records._closed:  # nobody waits for it any more, and it holds locks
            found.close()
        return found

    work = Background(open_them)
    if work.ended(OPEN_S):
        return work.result()
    log.warning("%s did not open in %g s: this run begins without journal", path, OPEN_S)
    records.opening = work
    return records


def _opened(path: Path, policy: Policy) -> Records:
    journal = _first_usable(path)
    if journal is None:
        return Records()
    opening = Recorder()
    controls = opening.attempt("controls", lambda: ControlFile(journal.path, policy), None)
    memory = opening.attempt("memory", lambda: remembered(journal.path, policy), None)
    return Records(journal, controls, memory)


def _first_usable(path: Path) -> Journal | None:
    why: Exception | None = None
    for number in range(1, MOST_JOURNALS + 1):
        name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            journal = Journal(name)
        except Exception as problem:
            why = why or problem
            continue
        if why is not None:
            log.warning("this run writes its journal to %s: %s", name, why)
        return journal
    log.warning("this run writes no journal and has no controls: %s", why)
    return None


def remembered(journal: str | os.PathLike[str] | None, policy: Policy) -> Any:
    """The memory after a journal's last readable turn, None if there is none that `policy` can use.

    Only the end of the journal is read.
    """
    if journal is None:
        return None
    last = None
    for count, turn in enumerate(last_turns(journal)):
        if (last is not None and turn.policy != last.policy) or count >= MOST_TURNS_BACK:
            break
        last = turn
        if turn.memory is not None:
            break
    if last is None or (last.memory is None and last.policy == policy.describe()):
        return None
    if last.policy != policy.describe():
        log.warning("the journal was written by %s: starting without memory", last.policy)
        return None
    try:
        memory = policy.load_memory(last.memory)
    except Exception as error:  # whatever a plug-in makes of the memory of its older version
        log.warning("the journal's memory cannot be read (%s): starting without memory", error)
        return None
    log.info("continuing after turn %d of %s", last.number, journal)
    return memory
