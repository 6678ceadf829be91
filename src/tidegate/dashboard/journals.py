"""Journals as the dashboard needs them: rows in memory, any turn in full on demand."""

from __future__ import annotations

import logging
import stat
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from tidegate.codec import to_plain
from tidegate.dashboard.view import LOOK_AHEAD, Row, RowBuilder, columns, detail_of, thinned
from tidegate.errors import InputError
from tidegate.loop.controls import Control, listener_of, submit
from tidegate.loop.journal import FIRST_BYTES, TurnReader
from tidegate.loop.lines import first_whole
from tidegate.loop.tail import Tail
from tidegate.policies import available, policy_class

__all__ = ["JournalList", "WatchedJournal"]

log = logging.getLogger(__name__)

MOST_ROWS = 20_000
"""Rows kept per journal; older ones are thinned out above this. Any turn can still be opened."""
DISABLED = "Controls are disabled: the run has ended, is a recording, or has no controls."


class WatchedJournal:
    """One journal that may still grow.

    path: the file, which need not exist yet. name: as shown. slo_s: latency target; None for the
    target in the journal.
    """

    def __init__(self, path: Path, name: str, slo_s: float | None = None) -> None:
        self.path = path
        self.name = name
        self.slo_s = slo_s
        self.tail = Tail(path, rotated=True)
        self.builder = RowBuilder(slo_s)
        self._reader = TurnReader()
        self.rows: list[Row] = []
        self.controls: list[dict[str, Any]] = []
        """The last controls that were requested."""
        self._generation = self.tail.generation
        self._first = 0
        self._lock = threading.RLock()

    # --- reading ------------------------------------------------------------------------------

    def refresh(self, at_most_s: float = 0.2) -> bool:
        """Read new lines for about `at_most_s` seconds; return whether there were any."""
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
        self.builder, self.rows, self.controls = RowBuilder(self.slo_s), [], []

    def _take(self, line: bytes) -> None:
        self._first = self._first or crc32(line)
        try:
            turn, _ = self._reader.read(line)
        except InputError as error:
            self.rows.append(self.builder.skip(f"this line is not a turn: {error}"))
            return
        self.rows.append(self.builder.add(turn))
        for control in turn.controls:
            shown = {"text": control.describe(), "number": turn.number}
            self.controls.append({**shown, "index": self.rows[-1].index, **to_plain(control)})
        del self.controls[:-50]

    # --- asking -------------------------------------------------------------------------------

    @property
    def edition(self) -> str:
        """An identifier that changes when the file is replaced, even across servers."""
        return f"{self._generation}x{self._first:08x}"

    def about(self) -> dict[str, Any]:
        """Return what the list of journals shows."""
        with self._lock:
            steering = self.builder.in_force
            timed = [row.time_s for row in (*self.rows[:1], *self.rows[-1:]) if row.time_s]
            return {
                "name": self.name,
                "policy": self.builder.policy,
                "turns": self.builder.count,
                "read": self.tail.read_to / self.tail.size if self.tail.size else 1.0,
                "edition": self.edition,
                "clock": "wall" if timed and timed[-1] > 1e9 else "run",
                "live": listener_of(self.path) is not None,
                "steering": to_plain(steering),
            }

    def series(self, points: int) -> dict[str, Any]:
        """Return the whole journal in about `points` rows."""
        with self._lock:
            rows = thinned(self.rows, points)
        return columns(rows)

    def after(self, index: int, at_most: int = 500) -> list[Row]:
        """Return the rows after the one with that index, oldest first."""
        with self._lock:
            start = bisect_right(self.rows, index, key=lambda row: row.index)
            return self.rows[start : start + at_most]

    def turn(self, index: int) -> dict[str, Any]:
        """Return a turn in full; raises InputError if there is none.

        Its totals by query are those of the whole journal so far.
        """
        turn, _ = TurnReader().read(self.raw(index))
        later = self.after(index, LOOK_AHEAD)
        with self._lock:
            at = bisect_right(self.rows, index, key=lambda row: row.index) - 1
            row = self.rows[at] if at >= 0 else None
            totals = self.builder.queries.plain()
        if row is None or row.index != index:  # thinned out: all but the cost can be rebuilt
            row = RowBuilder(self.slo_s).add(turn)
        detail = detail_of(turn, row, later, self.slo_s)
        return {**detail, "index": index, "totals": totals}

    def raw(self, index: int) -> bytes:
        """Return a turn as a full line, also where the journal only has what has changed."""
        with self._lock:
            if not 0 <= index < len(self.tail.starts):
                allowed = f"between 0 and {len(self.tail.starts) - 1}"
                raise InputError("turn", index, allowed, "the journal has no such turn")
            return first_whole(self.tail.line(n) for n in range(index, -1, -1))

    # --- controls -----------------------------------------------------------------------------

    def controllable(self) -> dict[str, Any]:
        """Return whether the loop accepts controls, and which policies it can switch to."""
        loop = listener_of(self.path)
        with self._lock:
            about: dict[str, Any] = {
                "enabled": loop is not None,
                "why": "" if loop else DISABLED,
                "steering": to_plain(self.builder.in_force),
                "heard": self.controls[-10:][::-1],
                "policies": [],
            }
            requested = list(self.controls)
        if loop is None:
            return about
        current, parameters = loop.policy, dict(loop.parameters)
        for control in requested:
            if control["do"] == "policy" and not control["refused"]:
                kept = parameters if control["value"] == current else {}
                current, parameters = control["value"], {**kept, **control["parameters"]}
        style = policy_class(current).style
        for name in available():
            kind = policy_class(name)
            if kind.style == style:
                values = parameters if name == current else {}
                shown = [to_plain(parameter) for parameter in kind.parameters()]
                for entry in shown:
                    entry["value"] = values.get(entry["name"], entry["default"])
                about["policies"].append({"name": name, "parameters": shown})
        return {**about, "policy": current}

    def request(self, plain: dict[str, Any], now_s: float) -> Control:
        """Check a control and submit it to the loop."""
        parameters = plain.get("parameters", {})
        do, value = plain.get("do"), str(plain.get("value"))
        if do not in ("pause", "dry-run", "policy") or not isinstance(parameters, dict):
            raise InputError("do", do, "pause, dry-run or policy")
        control = Control(do, value, parameters, asked_s=now_s)
        if do == "policy":
            policy_class(value).with_settings(dict(parameters))
        submit(self.path, control)
        return control


class JournalList:
    """The journals that a dashboard shows, by number; folders are scanned at each refresh.

    paths: journals, or folders with journals in them. slo_s: latency target; None for the target
    in each journal.
    """

    def __init__(self, paths: Iterable[Path], slo_s: float | None = None) -> None:
        self.paths = list(paths)
        self.slo_s = slo_s
        self.journals: list[WatchedJournal] = []
        self._known: set[Path] = set()
        self._unreadable: set[Path] = set()
        self.scan()

    def scan(self) -> None:
        """Add journals that are new; a file in a folder that cannot be read is left out."""
        for path in self.paths:
            for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
                if file not in self._known and (file == path or self._is_journal(file)):
                    self._known.add(file)
                    name = _name(file, self.paths)
                    self.journals.append(WatchedJournal(file, name, self.slo_s))

    def journal(self, number: int) -> WatchedJournal:
        """Return a journal by its number; raises InputError if there is none."""
        if not 0 <= number < len(self.journals):
            raise InputError("journal", number, "the number of a journal in the list")
        return self.journals[number]

    def refresh(self) -> bool:
        """Read all journals on; return whether any has grown."""
        self.scan()
        found = [journal.refresh() for journal in self.journals]
        return any(found)

    def _is_journal(self, path: Path) -> bool:
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for its writer
                return False
            with path.open("rb") as file:
                return file.read(len(FIRST_BYTES)) == FIRST_BYTES
        except OSError as error:
            if path not in self._unreadable:  # it is tried again at each scan
                log.warning("%s is left out: %s", path, error.strerror or "it cannot be read")
            self._unreadable.add(path)
            return False


def _name(path: Path, every: Sequence[Path]) -> str:
    """Return a short name, with the folder if the file is just called ``journal``."""
    general = path.stem == "journal" or sum(p.stem == path.stem for p in every) > 1
    parent = path.resolve().parent.name
    return f"{parent}/{path.stem}" if general and parent else path.stem
