"""Moves: a query stops on one host and starts on another from its checkpoint.

Every step is written to a log on disk before it is taken. If a manager dies during a move, the next
one learns from the log what was under way, and from the hosts which copy runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from tidegate.codec import Value, from_newer_json
from tidegate.errors import BackendError, InputError
from tidegate.fleet.fence import Fence
from tidegate.fleet.hosts import FleetHost, HostSilent
from tidegate.fleet.queries import ContinuousQuery
from tidegate.loop.tail import Tail, mend
from tidegate.units import finite

__all__ = [
    "Move",
    "MoveLog",
    "MoveRecord",
    "MoveResult",
    "carry_out",
    "copy_to_keep",
    "pauses_by_state",
    "read_moves",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
SIZES = (
    (1.0, "below 1 MB"),
    (10.0, "1 to 10 MB"),
    (100.0, "10 to 100 MB"),
    (math.inf, "above 100 MB"),
)
UNKNOWN_SIZE = "unknown"
Step = Literal["begin", "stopped", "started", "back", "lost"]


@dataclass(frozen=True)
class Move:
    """A move, as far as it has come.

    Args:
        number: Unique in the log.
        query: Name of the query.
        origin: The host that it leaves; empty for a query that runs nowhere.
        host: The host that it goes to.
        origin_at: The address of the origin. A new manager gives hosts new names, but the
            addresses of servers stay.
        host_at: The address of the new host.
        step: The last step in the log.
    """

    number: int
    query: str
    origin: str
    host: str
    origin_at: str = ""
    host_at: str = ""
    step: Step = "begin"

    @property
    def side(self) -> str:
        """The address that the query is on, as far as the log knows; empty for none."""
        if self.step in ("begin", "back"):
            return self.origin_at
        return self.host_at if self.step in ("stopped", "started") else ""


@dataclass(frozen=True)
class MoveResult:
    """The result of a move.

    move: the move. where: the host that the query runs on now; empty for none. pause_s: seconds
    in which the query ran nowhere. error: why the move failed. doubtful: a host that may still run
    a copy, since it did not answer.
    """

    move: Move
    where: str
    pause_s: float | None = None
    error: str | None = None
    doubtful: str = ""


MOST = 1e15
"""No number of a line is larger: a time, the number of a move, bytes and rows of a state."""


@dataclass(frozen=True, slots=True)
class _Line(Value):
    """A line of the log: a move at a step, with what was measured of it."""

    number: int
    query: str
    origin: str
    host: str
    step: Step
    time_s: float
    origin_at: str = ""
    host_at: str = ""
    pause_s: float | None = None
    state_mb: float | None = None
    state_rows: int | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        for key in ("number", "time_s", "pause_s", "state_mb", "state_rows"):
            if (value := getattr(self, key)) is not None:
                finite(value, key, low=-MOST, high=MOST)

    def part(self, kind: type[T], **more: Any) -> T:
        """The fields that another class has as well, with others."""
        names = {f.name for f in fields(cast(Any, kind))}
        return kind(**{k: v for k, v in asdict(self).items() if k in names}, **more)


def _lines(path: Path) -> Iterator[_Line]:
    """The steps in a log, in order. A damaged line is left out with a warning."""
    tail = Tail(path)
    for line in tail.lines():
        try:
            found, _ = from_newer_json(_Line, line)
        except InputError:
            log.warning("line %d of %s is damaged and left out", tail.number, path)
        else:
            yield found


class MoveLog:
    """The log of moves: one line of JSON per step, on disk before the step is taken.

    path: the file, which is continued if it exists. clock: Unix time in seconds, for the lines.
    `moves` has the last move of each query.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self.moves: dict[str, Move] = {}
        self.last = 0
        mend(path)  # a torn line belongs to a step that was never taken
        for line in _lines(path):
            move = line.part(Move)
            self.last = max(self.last, move.number)
            self.moves[move.query] = move
        # Without a buffer: what a full disk refused must not be written later, or at the end.
        self._file = path.open("ab", buffering=0)
        self._torn = False
        self._writing = threading.Lock()

    def begin(
        self, query: str, origin: str, host: str, origin_at: str = "", host_at: str = ""
    ) -> Move:
        """Record that a query is about to move from `origin` to `host`, with their addresses."""
        self.last += 1
        move = Move(self.last, query, origin, host, origin_at or origin, host_at or host)
        self.step(move, "begin")
        return move

    def step(self, move: Move, step: Step, **more: Any) -> None:
        """Record a step of a move; OSError if it cannot be written, and it is not recorded."""
        move = replace(move, step=step)
        line = {"time_s": self._clock(), **asdict(move), **more}
        with self._writing:  # moves are carried out in several threads
            if self._torn:
                mend(self.path)
            self._torn = True
            rest = memoryview(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
            self._torn = False
            self.moves[move.query] = move

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def carry_out(
    move: Move,
    query: ContinuousQuery,
    checkpoint: str,
    origin: FleetHost | None,
    target: FleetHost,
    log: MoveLog,
    limit_s: float,
    details: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    fence: Fence | None = None,
) -> MoveResult:
    """Carry out a move; if the new host fails, the query returns to the old one.

    With a fence, every start has a new epoch. A start that failed or got no answer has no effect
    if it happens late, since its epoch is over before anything else is done.

    Args:
        move: The move, already in the log.
        query: The query.
        checkpoint: Its checkpoint folder.
        origin: The old host; None if the query runs nowhere.
        target: The new host.
        log: The log of moves.
        limit_s: Timeout for stopping and for starting, in seconds each.
        details: More values for the log, such as the size of the state.
        clock: Seconds of a monotonic clock.
        fence: Of the checkpoint; None if a host does not share its folder with the manager.
    """

    def start_on(host: FleetHost) -> None:
        host.start(query, checkpoint if fence is None else fence.claim(), limit_s)

    def ended(step: Step, where: str, why: str, doubtful: str = "") -> MoveResult:
        log.step(move, step, error=why)
        return MoveResult(move, where, None, why, doubtful)

    stopped_s = clock()
    if origin is not None:
        try:
            origin.stop(query.name, limit_s)
        except Exception as error:
            # It may or may not have stopped. Nothing was started, so there is at most one copy.
            return ended("back", move.origin, f"{move.origin} did not stop it: {_line(error)}")
        stopped_s = clock()
        log.step(move, "stopped")
    try:
        start_on(target)
    except Exception as error:
        why = f"{move.host} did not start it: {_line(error)}"
    else:
        pause_s = clock() - stopped_s
        log.step(move, "started", pause_s=round(pause_s, 3), **(details or {}))
        return MoveResult(move, move.host, pause_s)
    try:
        if fence is not None:
            with contextlib.suppress(BackendError):  # then the next claim fails as well
                fence.revoke()
        target.stop(query.name, limit_s)  # a start that timed out may have succeeded after all
    except Exception as error:
        if isinstance(error, HostSilent) or target.alive:
            return ended("lost", "", f"{why}, and did not stop it: {_line(error)}", move.host)
    if origin is None:
        return ended("lost", "", why)
    try:
        start_on(origin)
    except Exception as error:
        why += f", and neither did {move.origin}: {_line(error)}"
        return ended("lost", "", why, move.origin if isinstance(error, HostSilent) else "")
    return ended("back", move.origin, why)


def copy_to_keep(copies: Mapping[str, str], last: Move | None) -> str:
    """Choose which of several running copies of a query stays: the one that the log names.

    copies: addresses by host, in the order of their leases. last: the last move of the query.

    >>> last = Move(1, "q", "host-1", "host-2", "sc://a", "sc://b", "stopped")
    >>> copy_to_keep({"host-1": "sc://a", "host-2": "sc://b"}, last)
    'host-2'
    """
    side = last.side if last is not None else ""
    return next((name for name, place in copies.items() if place == side), next(iter(copies)))


@dataclass(frozen=True)
class MoveRecord:
    """A completed move in the log.

    Args:
        time_s: When it ended, Unix time in seconds.
        query: Name of the query.
        origin: The old host.
        host: The new host.
        outcome: ``moved``, ``back`` (rolled back) or ``lost``.
        pause_s: Seconds in which the query ran nowhere; None if not measured.
        state_mb: Size of the state in megabytes; None if not measured.
        state_rows: Rows in the state; None if not measured.
        error: Why the move failed.
    """

    time_s: float
    query: str
    origin: str
    host: str
    outcome: str
    pause_s: float | None = None
    state_mb: float | None = None
    state_rows: int | None = None
    error: str | None = None


def read_moves(path: Path) -> list[MoveRecord]:
    """Read the completed moves from host to host, oldest first; empty if there is no log."""
    return [
        line.part(MoveRecord, outcome="moved" if line.step == "started" else line.step)
        for line in _lines(path)
        if line.origin and line.step in ("started", "back", "lost")
    ]


def pauses_by_state(moves: Iterable[MoveRecord]) -> list[tuple[str, int, float, float]]:
    """(size of the state, moves, mean pause, longest pause in seconds), smallest size first.

    >>> moves = [MoveRecord(0, "q", "a", "b", "moved", pause, 0.4) for pause in (0.5, 1.5)]
    >>> pauses_by_state(moves)
    [('below 1 MB', 2, 1.0, 1.5)]
    """
    found: dict[str, list[float]] = {label: [] for _, label in (*SIZES, (0.0, UNKNOWN_SIZE))}
    for move in moves:
        if move.pause_s is not None:
            size = math.inf if move.state_mb is None else move.state_mb
            label = next((name for limit, name in SIZES if size < limit), UNKNOWN_SIZE)
            found[label].append(move.pause_s)
    return [(k, len(v), sum(v) / len(v), max(v)) for k, v in found.items() if v]


def _line(error: Exception) -> str:
    """An error in one line, without Java's stack trace."""
    text = str(error).split("JVM stacktrace")[0].strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
