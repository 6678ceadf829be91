"""How a run is ended early, in order, and how its parts wait for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Stop", "Stopped", "wait_until"]


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """Somebody asked to end, before there was anything to measure."""


class Stop(threading.Event):
    """Set it to have a run end early, in order.

    starting: while this is true the run waits without looking here: who sets it from a signal
    handler should raise `Stopped` there as well.
    """

    starting = True

    def check(self) -> None:
        """Raise `Stopped` when it was set."""
        if self.is_set():
            raise Stopped


def wait_until(
    done: Callable[[], bool],
    at_most_s: float,
    stop: threading.Event | None = None,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until something is done, for so many seconds at most, or until asked to stop.

    check: called now and then, to raise what should end the wait. Returns whether it was done.
    """
    end_s = time.monotonic() + at_most_s
    stop = stop or threading.Event()
    while not stop.is_set():
        if done():
            return True
        check()
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        stop.wait(min(0.5, left_s))
    return False
