"""How many items an operator sends on for each one that it processes, as of late.

A filter may begin to let more pass. A ratio since the start follows that ever more slowly, the
longer a job has run. Totals grow by whole batches, so that the difference of any two has an exact
ratio.
"""

from __future__ import annotations

from collections import deque

__all__ = ["RecentRatio"]

WINDOW_S = 600.0
LEAST_ITEMS = 1000
"""A window has at least that many items, unless there are fewer: after a silence, the last batch
alone may hold a single one."""


class RecentRatio:
    """The ratio over the last ten minutes, or over the last 1,000 items if that is longer.

    A filter that let a tenth pass lets half pass after the first minute:

    >>> ratio = RecentRatio()
    >>> ratio.update(60.0, processed=5_000, written=500)
    0.1
    >>> [ratio.update(60.0 + s, 5_000 + 10 * s, 500 + 5 * s) for s in (300, 600, 900)]
    [0.25, 0.5, 0.5]
    """

    def __init__(self) -> None:
        self._marks = deque([(0.0, 0, 0)])

    def update(self, now_s: float, processed: int, written: int) -> float | None:
        """The ratio with the present totals; None before the first item was processed.

        now_s: time on any clock that never goes back, in seconds. processed, written: totals since
        the start.
        """
        marks = self._marks
        if processed < marks[-1][1]:  # a new run counts from zero
            marks.clear()
            marks.append((now_s, 0, 0))
        if processed > marks[-1][1]:
            marks.append((now_s, processed, written))
        _, last, last_written = marks[-1]
        while (
            len(marks) > 2 and marks[1][0] <= now_s - WINDOW_S and last - marks[1][1] >= LEAST_ITEMS
        ):
            marks.popleft()
        _, first, first_written = marks[0]
        return (last_written - first_written) / (last - first) if last > first else None
