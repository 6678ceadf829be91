"""Rows that arrive while faults happen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.spark.autoscaler import ticks
from tidegate.lifecycle import Closing

QUIET_S = 10.0
"""A file is written after this time in any case, in seconds."""


class Feed(Closing):
    """Writes files of rows while few are unread.

    folder: of the files, which is created. batches: returns how many batches, of one file each,
    were committed.
    """

    def __init__(self, folder: Path, batches: Callable[[], int]) -> None:
        self.folder, self.batches = folder, batches
        self.ahead = 2
        """Files that are to be unread."""
        self.files = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        folder.mkdir()
        self._thread.start()

    def _run(self) -> None:
        wrote_s = time.monotonic()
        while not self._end.wait(0.1):
            # A batch may read two files after a restart, and the count is too low from then on.
            late = time.monotonic() - wrote_s > QUIET_S
            if late or self.files - self.batches() < self.ahead:
                ticks.write_input(self.folder, self.files, 1)
                self.files += 1
                wrote_s = time.monotonic()

    def close(self) -> None:
        """Write no more."""
        self._end.set()
        self._thread.join()


def committed(checkpoint: Path) -> int:
    """Batches that a query has committed."""
    names = (file.name for file in (checkpoint / "commits").glob("[0-9]*"))
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)
