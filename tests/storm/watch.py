"""What a journal shows about a fault: its turns as they are written, and sentences about them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from tests.soak.job import ABSURD, IMPOSSIBLE, MISSING
from tidegate.errors import InputError
from tidegate.guards.base import CLOCK
from tidegate.loop.journal import Turn, TurnReader
from tidegate.loop.tail import Tail

Shows = Callable[[Sequence[Turn]], str]
"""Takes the turns since a fault; returns what shows it in them, empty while nothing does."""


class Watch:
    """The turns of a journal, each once, as they are written. journal: the file."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.last: Turn | None = None
        """The last turn that was read."""
        self.turns = 0
        """Turns that were read."""
        self.since: list[Turn] = []
        """Turns that were read since the last `mark`, in whatever call."""
        self._tail = Tail(journal, rotated=True)
        self._reader = TurnReader()

    def mark(self) -> None:
        """Take what is in the journal now as known."""
        self.new()
        self.since = []

    def begin_again(self) -> None:
        """Take what is in the journal now as read. Call it after every change by somebody else."""
        turns = self.turns
        self._tail, self._reader = Tail(self.journal, rotated=True), TurnReader()
        self.last = None
        self.mark()
        self.turns = turns

    def new(self) -> list[Turn]:
        """The turns since the last call; damaged lines are left out."""
        found = []
        for line in self._tail.lines():
            with contextlib.suppress(InputError):
                found.append(self._reader.read(line)[0])
        if found:
            self.last = found[-1]
            self.turns += len(found)
            self.since += found
        return found


def failed(turns: Sequence[Turn]) -> str:
    """A turn that failed."""
    error = next((turn.error for turn in turns if turn.error), "")
    return f"failed turn: {error}"[:100] if error else ""


def begins_again(before: Turn | None) -> Shows:
    """Turn numbers that begin at 1 again. before: the last turn before."""

    def shows(turns: Sequence[Turn]) -> str:
        numbers = ([before.number] if before is not None else []) + [turn.number for turn in turns]
        again = any(b <= a for a, b in pairwise(numbers))
        return "turn 1 again" if again or (before is None and numbers) else ""

    return shows


def either(*ways: Shows) -> Shows:
    """The first of several that shows something."""
    return lambda turns: next((text for way in ways if (text := way(turns))), "")


def noted(part: str) -> Shows:
    """A note with some words."""

    def shows(turns: Sequence[Turn]) -> str:
        found = (note for turn in turns for note in turn.notes if part in note)
        return next((f"note: {note}"[:100] for note in found), "")

    return shows


def gap(before: Turn | None, began_s: float, ended_s: float) -> Shows:
    """No turn between two times of the journal's clock, and turns before and after."""

    def shows(turns: Sequence[Turn]) -> str:
        every = ([before] if before is not None else []) + list(turns)
        times = [turn.snapshot.time_s for turn in every if turn.snapshot is not None]
        for a, b in pairwise(times):
            if a <= began_s + 0.5 and b >= ended_s - 0.2:
                return f"no turn for {b - a:.1f} s"
        return ""

    return shows


def lacks(executor: str) -> Shows:
    """A snapshot without an executor."""

    def shows(turns: Sequence[Turn]) -> str:
        seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
        gone = any(executor not in [h.executor for h in one.hosts] for one in seen)
        return f"the snapshot lacks executor {executor}" if gone else ""

    return shows


def slow_batch(before: Turn | None, pause_s: float) -> Shows:
    """A batch that took at least as long as a pause. before: the last turn before, with others."""

    def shows(turns: Sequence[Turn]) -> str:
        known = Counter(_durations_s(before))
        for turn in turns:
            longest_s = max((Counter(_durations_s(turn)) - known).elements(), default=0.0)
            if longest_s >= pause_s:
                return f"a batch of {longest_s:.1f} s"
        return ""

    return shows


def silent_source(pause_s: float) -> Shows:
    """A query whose source has not answered for at least this time, in seconds."""

    def shows(turns: Sequence[Turn]) -> str:
        seen = (turn.snapshot.operators for turn in turns if turn.snapshot is not None)
        waits_s = [one.source_wait_s or 0.0 for operators in seen for one in operators]
        longest_s = max(waits_s, default=0.0)
        return f"a source silent for {longest_s:.1f} s" if longest_s >= pause_s else ""

    return shows


def _durations_s(turn: Turn | None) -> tuple[float, ...]:
    seen = turn.snapshot if turn is not None else None
    return tuple(seen.batches.recent_durations_s) if seen is not None and seen.batches else ()


def jumped(before: Turn | None, seconds: float) -> Shows:
    """The time of a snapshot that is later, or a plan that says that the clock went back."""

    def shows(turns: Sequence[Turn]) -> str:
        if seconds < 0:
            plans = [turn.plan for turn in turns if turn.plan is not None]
            back = any(reason.code == CLOCK for plan in plans for reason in plan.reasons)
            return "the reason clock" if back else ""
        every = ([before] if before is not None else []) + list(turns)
        times = [turn.snapshot.time_s for turn in every if turn.snapshot is not None]
        steps = [b - a for a, b in pairwise(times)]
        return f"{max(steps):+.0f} s between two turns" if max(steps, default=0) > seconds else ""

    return shows


def moved(before: Turn | None, seconds: float) -> Shows:
    """Two turns between which the journal's time jumps, in either direction."""

    def shows(turns: Sequence[Turn]) -> str:
        every = ([before] if before is not None else []) + list(turns)
        times = [turn.snapshot.time_s for turn in every if turn.snapshot is not None]
        for a, b in pairwise(times):
            if (b - a) / seconds > 0.5:
                return f"{b - a:+.0f} s between two turns"
        return ""

    return shows


def wrong_readings(kind: str) -> Shows:
    """Readings as they were, with a plan; or a failed turn if the model refuses them."""
    if kind in IMPOSSIBLE:
        return failed
    change = (MISSING | ABSURD)[kind]

    def shows(turns: Sequence[Turn]) -> str:
        for turn in turns:
            seen = turn.snapshot.operators if turn.snapshot is not None else ()
            if seen and turn.plan is not None and all(change(one) == one for one in seen):
                return f"readings: {kind}"
        return ""

    return shows


def refused_control(turns: Sequence[Turn]) -> str:
    """A control that was refused."""
    found = (control.refused for turn in turns for control in turn.controls if control.refused)
    return next((f"control: {text}"[:100] for text in found), "")
