"""Journals as a page needs them: rows at hand, any turn in full on demand, memory bounded."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from tidegate.codec import from_json, to_plain
from tidegate.dashboard.detail import LOOK_AHEAD, detail_of
from tidegate.dashboard.view import Chronicle, Row, columns, thinned
from tidegate.errors import BackendError, InputError
from tidegate.loop.controls import Control, listening, submit
from tidegate.loop.journal import Turn
from tidegate.loop.tail import Tail
from tidegate.policies import available, policy_class

__all__ = ["Book", "Shelf"]

MOST_ROWS = 20_000
"""Rows kept of a journal: beyond, older ones are thinned out. Any turn can still be opened."""
NOBODY = "Nobody listens: this run has ended, is a recording, or was started without controls."
FIRST_WORD = b'{"number":'


class Book:
    """One journal. path: it need not exist yet; name: for people; slo_s: None: the journal's."""

    def __init__(self, path: Path, name: str, slo_s: float | None = None) -> None:
        self.path = path
        self.name = name
        self.slo_s = slo_s
        self.tail = Tail(path)
        self.chronicle = Chronicle(slo_s)
        self.rows: list[Row] = []
        self.controls: list[dict[str, Any]] = []
        """What people asked for, the last of it."""
        self._generation = self.tail.generation
        self._first = 0
        self._lock = threading.RLock()

    # --- reading ------------------------------------------------------------------------------

    def refresh(self, at_most_s: float = 0.2) -> bool:
        """Take in what is new, for about so long; return whether there was anything."""
        end_s = time.monotonic() + at_most_s
        found = False
        with self._lock:
            for line in self.tail.lines():
                if self.tail.generation != self._generation:
                    self._begin_again()
                self._take(line)
                found = True
                if time.monotonic() > end_s:
                    break
            if self.tail.generation != self._generation:
                self._begin_again()
                found = True
            if len(self.rows) > MOST_ROWS:
                half = MOST_ROWS // 2
                self.rows = thinned(self.rows[:-half], half // 2) + self.rows[-half:]
        return found

    def _begin_again(self) -> None:
        self._generation, self._first = self.tail.generation, 0
        self.chronicle, self.rows, self.controls = Chronicle(self.slo_s), [], []

    def _take(self, line: bytes) -> None:
        self._first = self._first or crc32(line)
        try:
            turn = from_json(Turn, line)
        except InputError as error:
            self.rows.append(self.chronicle.skip(f"this line is no turn: {error}"))
            return
        self.rows.append(self.chronicle.add(turn))
        for control in turn.controls:
            said = {"text": control.describe(), "number": turn.number, "index": self.rows[-1].index}
            self.controls.append({**said, **to_plain(control)})
        del self.controls[:-50]

    # --- asking -------------------------------------------------------------------------------

    @property
    def edition(self) -> str:
        """Another word when the file is another one than before, even for another server."""
        return f"{self._generation}x{self._first:08x}"

    def about(self) -> dict[str, Any]:
        """What the journal is, for a list of them."""
        with self._lock:
            steering = self.chronicle.steering
            timed = [row.time_s for row in (*self.rows[:1], *self.rows[-1:]) if row.time_s]
            return {
                "name": self.name,
                "policy": self.chronicle.policy,
                "turns": self.chronicle.count,
                "read": self.tail.read_to / self.tail.size if self.tail.size else 1.0,
                "edition": self.edition,
                "clock": "wall" if timed and timed[-1] > 1e9 else "run",
                "live": listening(self.path) is not None,
                "steering": to_plain(steering),
            }

    def series(self, points: int) -> dict[str, Any]:
        """All of it in about so many rows."""
        with self._lock:
            rows = thinned(self.rows, points)
        return columns(rows)

    def after(self, index: int, at_most: int = 500) -> list[Row]:
        """Rows after the one with that index, the oldest first."""
        with self._lock:
            start = bisect_right(self.rows, index, key=lambda row: row.index)
            return self.rows[start : start + at_most]

    def turn(self, index: int) -> dict[str, Any]:
        """A turn in full; InputError when there is none."""
        turn = from_json(Turn, self.raw(index))
        later = self.after(index, LOOK_AHEAD)
        with self._lock:
            at = bisect_right(self.rows, index, key=lambda row: row.index) - 1
            row = self.rows[at] if at >= 0 else None
        if row is None or row.index != index:  # thinned out: all but the money can be told anew
            row = Chronicle(self.slo_s).add(turn)
        return {**detail_of(turn, row, later), "index": index}

    def raw(self, index: int) -> bytes:
        """A turn as it stands in the journal."""
        with self._lock:
            if not 0 <= index < len(self.tail.starts):
                allowed = f"between 0 and {len(self.tail.starts) - 1}"
                raise InputError("turn", index, allowed, "there is no such turn in the journal")
            return self.tail.line(index)

    # --- controls -----------------------------------------------------------------------------

    def controllable(self) -> dict[str, Any]:
        """Whether wishes are heard, and what can be wished for."""
        who = listening(self.path)
        with self._lock:
            about: dict[str, Any] = {
                "enabled": who is not None,
                "why": "" if who else NOBODY,
                "steering": to_plain(self.chronicle.steering),
                "heard": self.controls[-10:][::-1],
                "policies": [],
            }
            said = list(self.controls)
        if who is None:
            return about
        now = {who.policy: dict(who.parameters)}
        current = who.policy
        for wish in said:
            if wish["do"] == "policy" and not wish["refused"]:
                same = wish["value"] == current
                now = {wish["value"]: {**(now[current] if same else {}), **wish["parameters"]}}
                current = wish["value"]
        style = policy_class(current).style
        for name in available():
            kind = policy_class(name)
            if kind.style == style:
                parameters = [to_plain(p) for p in kind.parameters()]
                values = now.get(name, {})
                for parameter in parameters:
                    parameter["value"] = values.get(parameter["name"], parameter["default"])
                about["policies"].append({"name": name, "parameters": parameters})
        return {**about, "policy": current}

    def ask(self, wish: dict[str, Any], now_s: float) -> Control:
        """Leave a wish for the loop, after a look at whether it makes sense."""
        parameters = wish.get("parameters", {})
        do, value = wish.get("do"), str(wish.get("value"))
        if do not in ("pause", "dry-run", "policy") or not isinstance(parameters, dict):
            raise InputError("do", do, "pause, dry-run or policy")
        control = Control(do, value, parameters, asked_s=now_s)
        if do == "policy":
            policy_class(value).with_settings(dict(parameters))
        submit(self.path, control)
        return control


class Shelf:
    """The journals that a dashboard shows, by number; folders are looked through now and then.

    paths: journals, or folders with journals in them. slo_s: None: each journal's own.
    """

    def __init__(self, paths: Iterable[Path], slo_s: float | None = None) -> None:
        self.paths = list(paths)
        self.slo_s = slo_s
        self.books: list[Book] = []
        self._known: set[Path] = set()
        self.scan()

    def scan(self) -> None:
        """Take in journals that are new."""
        for path in self.paths:
            for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
                if file not in self._known and (file == path or _is_journal(file)):
                    self._known.add(file)
                    self.books.append(Book(file, _name(file, self.paths), self.slo_s))

    def book(self, number: int) -> Book:
        """A journal by its number; InputError when there is none."""
        if not 0 <= number < len(self.books):
            raise InputError("journal", number, "the number of a journal shown here")
        return self.books[number]

    def refresh(self) -> bool:
        """Look for news everywhere; return whether there were any."""
        self.scan()
        found = [book.refresh() for book in self.books]  # all of them, whatever the first says
        return any(found)


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(FIRST_WORD)) == FIRST_WORD
    except OSError:
        raise BackendError(f"{path} cannot be read") from None


def _name(path: Path, every: Sequence[Path]) -> str:
    """A short name: the folder's too where the file is just called journal."""
    general = path.stem == "journal" or sum(p.stem == path.stem for p in every) > 1
    parent = path.resolve().parent.name
    return f"{parent}/{path.stem}" if general and parent else path.stem
