"""Moving a query: stop it, start it elsewhere from its checkpoint, and never lose track.

What is about to happen is on disk before it happens. A manager that dies in the middle leaves a
log from which the next one knows what was under way; which side is true it asks the hosts.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tidegate.fleet.hosts import FleetHost, HostSilent
from tidegate.fleet.queries import ContinuousQuery
from tidegate.loop.tail import Tail, mend

__all__ = [
    "Intent",
    "Move",
    "MoveLog",
    "MoveRecord",
    "Moved",
    "carry",
    "keeper",
    "pauses_by_state",
    "read_moves",
]

SIZES = (
    (1.0, "below 1 MB"),
    (10.0, "1 to 10 MB"),
    (100.0, "10 to 100 MB"),
    (math.inf, "above 100 MB"),
)
RECORDED = ("time_s", "query", "origin", "host", "pause_s", "state_mb", "state_rows", "error")
Step = Literal["begin", "stopped", "started", "back", "lost"]


@dataclass(frozen=True)
class Move:
    """An intent. number: unique in the log; origin: empty for a query that runs nowhere yet.

    origin_at, host_at: which servers these are. Hosts get new names under a new manager, servers
    do not.
    """

    number: int
    query: str
    origin: str
    host: str
    origin_at: str = ""
    host_at: str = ""


@dataclass(frozen=True)
class Moved:
    """How a move ended.

    where: the host that the query runs on now, empty when on none.
    doubtful: the host that may still run a copy, since it gave no answer.
    pause_s: seconds in which the query ran nowhere. error: why it is not where it should be.
    """

    move: Move
    where: str
    pause_s: float | None = None
    error: str | None = None
    doubtful: str = ""


@dataclass(frozen=True)
class Intent:
    """What the log tells of the last move of a query: from which server to which, and how far."""

    query: str
    origin_at: str
    host_at: str
    step: Step

    @property
    def side(self) -> str:
        """The server that the query is on, as far as the log can know; empty for nowhere."""
        if self.step in ("begin", "back"):
            return self.origin_at
        return self.host_at if self.step in ("stopped", "started") else ""


class MoveLog:
    """The log: one line of JSON a step, on disk before the step is taken.

    path: the file, continued if it exists. clock: Unix seconds, for people who read it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self.intents: dict[str, Intent] = {}
        self.last = 0
        self._read()
        self._file = path.open("a", encoding="utf-8")

    def begin(
        self, query: str, origin: str, host: str, origin_at: str = "", host_at: str = ""
    ) -> Move:
        """Write down that a query is about to go from `origin` to `host`, and where these are."""
        self.last += 1
        move = Move(self.last, query, origin, host, origin_at or origin, host_at or host)
        self.step(move, "begin")
        return move

    def step(self, move: Move, step: Step, **more: Any) -> None:
        """Write down how far a move has come."""
        line = {"time_s": self._clock(), **asdict(move), "step": step, **more}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.intents[move.query] = Intent(move.query, move.origin_at, move.host_at, step)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> None:
        mend(self.path)  # the manager died while it wrote: what it had not written, it had not done
        for line in Tail(self.path).lines():
            plain = json.loads(line)
            self.last = max(self.last, plain["number"])
            self.intents[plain["query"]] = Intent(
                plain["query"], plain["origin_at"], plain["host_at"], plain["step"]
            )


def carry(
    move: Move,
    query: ContinuousQuery,
    checkpoint: str,
    origin: FleetHost | None,
    target: FleetHost,
    log: MoveLog,
    limit_s: float,
    details: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Moved:
    """Carry out a move that has begun in the log; what fails is rolled back to the old host.

    origin: None when the query runs nowhere. limit_s: seconds for each of stopping and starting.
    details: written to the log beside the pause, such as the size of the state.
    """
    stopped_s = clock()
    if origin is not None:
        try:
            origin.stop(query.name, limit_s)
        except Exception as error:
            # It may or may not have stopped. Nothing was started, so there is one copy at most.
            log.step(move, "back", error=_line(error))
            return Moved(move, move.origin, None, f"{move.origin} did not stop it: {_line(error)}")
        stopped_s = clock()
        log.step(move, "stopped")
    try:
        target.start(query, checkpoint, limit_s)
    except Exception as error:
        return _roll_back(move, query, checkpoint, origin, target, log, limit_s, error)
    pause_s = clock() - stopped_s
    log.step(move, "started", pause_s=round(pause_s, 3), **(details or {}))
    return Moved(move, move.host, pause_s)


def _roll_back(
    move: Move,
    query: ContinuousQuery,
    checkpoint: str,
    origin: FleetHost | None,
    target: FleetHost,
    log: MoveLog,
    limit_s: float,
    problem: Exception,
) -> Moved:
    why = f"{move.host} did not start it: {_line(problem)}"
    try:
        target.stop(query.name, limit_s)  # a start that was too slow may have happened after all
    except HostSilent:
        log.step(move, "lost", error=why)
        return Moved(move, "", None, why, doubtful=move.host)
    except Exception as error:
        if target.alive:
            log.step(move, "lost", error=why)
            return Moved(move, "", None, f"{why}; {_line(error)}", doubtful=move.host)
    doubtful = ""
    if origin is not None:
        try:
            origin.start(query, checkpoint, limit_s)
        except Exception as error:
            why += f", and neither did {move.origin}: {_line(error)}"
            doubtful = move.origin if isinstance(error, HostSilent) else ""
        else:
            log.step(move, "back", error=why)
            return Moved(move, move.origin, None, why)
    log.step(move, "lost", error=why)
    return Moved(move, "", None, why, doubtful)


def keeper(copies: Mapping[str, str], intent: Intent | None) -> str:
    """Which of several running copies of a query is the true one: the one that the log says.

    copies: servers by the names of their hosts, in the order of leases.

    >>> keeper({"host-1": "sc://a", "host-2": "sc://b"}, Intent("q", "sc://a", "sc://b", "stopped"))
    'host-2'
    """
    side = intent.side if intent is not None else ""
    return next((name for name, place in copies.items() if place == side), next(iter(copies)))


@dataclass(frozen=True)
class MoveRecord:
    """A move that has ended, as the log tells it. outcome: ``moved``, ``back`` or ``lost``.

    pause_s, state_mb, state_rows: None where they were not measured; error: of one that failed.
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
    """The moves from host to host that a log tells of, oldest first; none where there is no log."""
    found = []
    for line in Tail(path).lines():
        plain = json.loads(line)
        if plain["origin"] and plain["step"] in ("started", "back", "lost"):
            outcome = "moved" if plain["step"] == "started" else plain["step"]
            keys = (
                "time_s",
                "query",
                "origin",
                "host",
                "pause_s",
                "state_mb",
                "state_rows",
                "error",
            )
            found.append(MoveRecord(outcome=outcome, **{key: plain.get(key) for key in keys}))
    return found


def pauses_by_state(moves: Iterable[MoveRecord]) -> list[tuple[str, int, float, float]]:
    """(size of the state, moves, mean pause, longest pause in seconds), smallest first.

    >>> moves = [MoveRecord(0, "q", "a", "b", "moved", pause, 0.4) for pause in (0.5, 1.5)]
    >>> pauses_by_state(moves)
    [('below 1 MB', 2, 1.0, 1.5)]
    """
    found: dict[str, list[float]] = {label: [] for _, label in (*SIZES, (0.0, "not told"))}
    for move in moves:
        if move.pause_s is not None:
            size = move.state_mb
            label = next((n for limit, n in SIZES if size is not None and size < limit), "not told")
            found[label].append(move.pause_s)
    return [(k, len(v), sum(v) / len(v), max(v)) for k, v in found.items() if v]


def _line(error: Exception) -> str:
    """An error in one line, without Java's stack."""
    text = str(error).split("JVM stacktrace")[0].strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
