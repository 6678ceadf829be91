"""Faults of both worlds of the storm: a wrong clock, wrong measurements, garbage controls."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.soak.job import ABSURD, MISSING, Reading
from tests.storm import watch
from tests.storm.feed import Feed
from tests.storm.seed import Happened, effective, put, until
from tests.storm.watch import Shows, Watch
from tidegate.lifecycle import Closing
from tidegate.loop.journal import Turn

JUMPS_S = (90.0, 3600.0, 2 * 86_400.0)
"""Jumps of a clock, in seconds."""


class Senses(Closing):
    """The world of a seed, as far as its loop looks at it through ``wrong.json`` in its folder.

    A subclass sets the attributes. offset_s: by how much the loop's clock is ahead, in seconds.
    """

    folder: Path
    journal: Path
    rng: random.Random
    watch: Watch
    feed: Feed
    offset_s = 0.0

    @staticmethod
    def shows_jump(before: Turn | None, seconds: float) -> Shows:
        """What the journal must say about a jump of the loop's clock by some seconds."""
        return watch.moved(before, seconds)

    def inject(self, kind: str) -> Happened:
        """Let a fault happen, after a change of the load."""
        self.feed.ahead = self.rng.choice((1, 2, 4))
        happen: Callable[[], Happened] = getattr(self, "_" + kind.replace(" ", "_"))
        return happen()

    def _wrong(self, **facts: object) -> None:
        put(self.folder / "wrong.json", json.dumps({"clock_s": self.offset_s, **facts}))

    def _clock(self, seconds: float) -> Happened:
        before, self.offset_s = self.watch.last, self.offset_s + seconds
        self._wrong()
        return Happened(f"{seconds:+.0f} s", self.shows_jump(before, seconds))

    def _clock_back(self) -> Happened:
        return self._clock(-self.rng.choice((*JUMPS_S, 30 * 86_400.0)))

    def _clock_forward(self) -> Happened:
        return self._clock(self.rng.choice(JUMPS_S))

    def _metrics(self, kinds: Mapping[str, Reading]) -> Happened:
        """Wrong measurements, of a kind that changes something."""
        kind = self.rng.choice(effective(kinds, self.watch.last))
        self._wrong(readings=kind)
        return Happened(kind, watch.wrong_readings(kind), self._wrong)

    def _missing_metrics(self) -> Happened:
        return self._metrics(MISSING)

    def _absurd_metrics(self) -> Happened:
        return self._metrics(ABSURD)

    def _garbage_control(self) -> Happened:
        file = self.journal.with_name(self.journal.name + ".controls")
        until(file.exists, lambda: "no file of controls")
        with file.open("ab") as controls:
            garbage = self.rng.randbytes(self.rng.randint(1, 200)).replace(b"\n", b"?")
            controls.write(garbage + b"\n")
        return Happened("controls", watch.refused_control)
