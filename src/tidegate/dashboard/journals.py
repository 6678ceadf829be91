"""Journals as the dashboard needs them: rows in memory, any turn in full on demand."""

from __future__ import annotations

import logging
import stat
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from tidegate.codec import to_plain
from tidegate.dashboard.view import LOOK_AHEAD, Row, RowBuilder, columns, detail_of, thinned
from tidegate.errors import InputError
from tidegate.loop.controls import Control, listener_of, submit
from tidegate.loop.journal import FIRST_BYTES, TurnReader
from tidegate.loop.lines import MOST_SINCE, first_whole
from tidegate.loop.tail import Tail, parts_of
from tidegate.policies import available, policy_class

__all__ = ["JournalList", "NotFoundError", "WatchedJournal"]

log = logging.getLogger(__name__)

MOST_ROWS = 20_000
"""Rows kept per journal; older ones are thinned out above this. Any turn can still be opened."""
LONG_MB = 8.0
"""Size of a journal, in MB, from which its last turns are read first."""
RECENT_TURNS = 200
"""The last turns of a long journal, which are read first."""
DISABLED = "Controls are disabled: the run has ended, is a recording, or has no controls."


class NotFoundError(InputError):
    """There is no journal or no turn with this number."""


class _Reading:
    """Rows of a journal, from its first line on or from a later one.

    path: the file. slo_s: latency target; None for the target in the journal.
    """

    def __init__(self, path: Path, slo_s: float | None) -> None:
        self.slo_s = slo_s
        self.tail = Tail(path, rotated=True)
        self.begin_again()

    def begin_again(self) -> None:
        """Forget everything: the file was replaced."""
        self.generation, self.first = self.tail.generation, 0
        self.reader, self.builder = TurnReader(), RowBuilder(self.slo_s)
        self.rows: list[Row] = []
        self.controls: list[dict[str, Any]] = []
        """The last controls that were requested."""

    def skip(self) -> None:
        """Pass over all lines but the last ones."""
        last = deque[bytes](maxlen=MOST_SINCE + RECENT_TURNS)
        for line in self.tail.lines():
            if self.tail.generation != self.generation:
                self.begin_again()
                last.clear()
            last.append(line)
        while len(last) > RECENT_TURNS:
            self.reader.skip(last.popleft())
        self.builder.count = len(self.tail.starts) - len(last)
        for line in last:
            self._take(line)

    def refresh(self, end_s: float) -> bool:
        """Read new lines until about `end_s` on the monotonic clock; return if there were any."""
        found = False
        for line in self.tail.lines():
            if self.tail.generation != self.generation:
                self.begin_again()
            self._take(line)
            found = True
            if time.monotonic() > end_s:
                break
        if self.tail.generation != self.generation:
            self.begin_again()
            found = True
        if len(self.rows) > MOST_ROWS:
            half = MOST_ROWS // 2
            self.rows = thinned(self.rows[:-half], half // 2) + self.rows[-half:]
        return found

    def _take(self, line: bytes) -> None:
        self.first = self.first or crc32(line)
        try:
            turn, _ = self.reader.read(line)
        except InputError as error:
            self.rows.append(self.builder.skip(f"this line is not a turn: {error}"))
            return
        self.rows.append(self.builder.add(turn))
        for control in turn.controls:
            shown = {"text": control.describe(), "number": turn.number}
            self.controls.append({**shown, "index": self.rows[-1].index, **to_plain(control)})
        del self.controls[:-50]


class WatchedJournal:
    """One journal that may still grow.

    The whole of a long journal takes minutes to read. Until then, its last turns are shown, with
    costs and totals of these turns alone; then the journal has another `edition`.

    path: the file, which need not exist yet. name: as shown. slo_s: latency target; None for the
    target in the journal.
    """

    def __init__(self, path: Path, name: str, slo_s: float | None = None) -> None:
        self.path = path
        self.name = name
        self.slo_s = slo_s
        self._whole = _Reading(path, slo_s)
        self._recent: _Reading | None = None
        """The last turns, while the journal is long and has not been read to its end."""
        self._looked = False
        self._lock = threading.RLock()

    # --- reading ------------------------------------------------------------------------------

    def refresh(self, at_most_s: float = 0.2) -> bool:
        """Read new lines for about `at_most_s` seconds; return whether there were any.

        The first call passes over a long journal to its last turns, which may take longer.
        """
        end_s = time.monotonic() + at_most_s
        with self._lock:
            if not self._looked:
                self._looked = True
                if _size(self.path) > LONG_MB * 1e6:
                    self._recent = _Reading(self.path, self.slo_s)
                    self._recent.skip()
                    return True
            new = self._recent is not None and self._recent.refresh(end_s)
            found = self._whole.refresh(end_s)
            if len(self._whole.tail.starts) >= len(self.tail.starts):
                self._recent = None
            return new or found

    @property
    def _shown(self) -> _Reading:
        return self._recent or self._whole

    @property
    def tail(self) -> Tail:
        """The lines of the journal that are shown."""
        return self._shown.tail

    @property
    def builder(self) -> RowBuilder:
        """What was summed up over the turns that are shown."""
        return self._shown.builder

    @property
    def rows(self) -> list[Row]:
        """The rows that are shown."""
        return self._shown.rows

    @property
    def controls(self) -> list[dict[str, Any]]:
        """The last controls that were requested."""
        return self._shown.controls

    # --- asking -------------------------------------------------------------------------------

    @property
    def edition(self) -> str:
        """An identifier that changes when other rows are shown, even across servers."""
        return f"{self._shown.generation}x{self._shown.first:08x}"

    def about(self) -> dict[str, Any]:
        """Return what the list of journals shows."""
        with self._lock:
            steering = self.builder.in_force
            whole = self._whole.tail
            timed = [row.time_s for row in (*self.rows[:1], *self.rows[-1:]) if row.time_s]
            return {
                "name": self.name,
                "policy": self.builder.policy,
                "turns": self.builder.count,
                "read": whole.read_to / whole.size if whole.size else float(not self._recent),
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
        """Return a turn in full; raises NotFoundError if there is none.

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
                raise NotFoundError("turn", index, allowed, "the journal has no such turn")
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
        control = Control.requested(plain, now_s)
        if control.do == "policy":
            policy_class(control.value).with_settings(dict(control.parameters))
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
        """Return a journal by its number; raises NotFoundError if there is none."""
        if not 0 <= number < len(self.journals):
            raise NotFoundError("journal", number, "the number of a journal in the list")
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


def _size(path: Path) -> int:
    """Bytes of a journal with its rotated parts; 0 for what cannot be looked at."""
    size = 0
    for file in (*parts_of(path), path):
        with suppress(OSError):
            size += file.stat().st_size
    return size


def _name(path: Path, every: Sequence[Path]) -> str:
    """Return a short name, with the folder if the file is just called ``journal``."""
    general = path.stem == "journal" or sum(p.stem == path.stem for p in every) > 1
    parent = path.resolve().parent.name
    return f"{parent}/{path.stem}" if general and parent else path.stem
