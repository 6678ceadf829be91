"""Whether somebody has set this machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.units import show_duration

__all__ = ["SET", "ClockWatch"]

SET = "the clock of this machine was set"
"""How the sentence about it begins."""
SMALLEST_S = 2.0
"""Smallest step that counts, in seconds: clocks are corrected by less all the time."""


class ClockWatch:
    """Notices that the clock of this machine was set, by a clock that nobody can set.

    A machine that was suspended looks the same: the steady clock of Linux stops in that time.

    wall: returns Unix seconds. steady: returns seconds of a monotonic clock.

    >>> wall = iter([1000.0, 1010.0, 4620.0])
    >>> watch = ClockWatch(lambda: next(wall), iter([0.0, 10.0, 20.0]).__next__)
    >>> watch.news()
    ''
    >>> watch.news()
    'the clock of this machine was set forward by 1 h, or it was suspended'
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._ahead_s = wall() - steady()

    def news(self) -> str:
        """That the clock was set since the last call, as a sentence; empty if it was not."""
        before_s, self._ahead_s = self._ahead_s, self._wall() - self._steady()
        step_s = self._ahead_s - before_s
        if abs(step_s) < SMALLEST_S:
            return ""
        size = show_duration(abs(step_s))
        if step_s < 0:
            return f"{SET} back by {size}"
        return f"{SET} forward by {size}, or it was suspended"
