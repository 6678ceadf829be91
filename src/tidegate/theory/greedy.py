"""The greedy allocator: give processors one at a time, always where they help most.

The objective is a sum of one convex, decreasing function per queue, such as the number of waiting
items or the latency. For such a sum every state on the way is optimal for its total (Theorem 1 of
the DRS paper).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from heapq import heapify, heapreplace
from typing import Any

__all__ = ["Entry", "Greedy"]

Entry = tuple[Any, ...]
"""(change of the objective by the next processor, tie break, index, processors, state…).

The change is infinite when the queue may not have more processors. A flat tuple is all that the
loop touches, since it runs once per processor.
"""


class Greedy:
    """Processors by queue, and the value of the objective with them.

    entries: the queues with their smallest numbers of processors. step: an entry after one more
    processor. objective: its value at the start.
    """

    def __init__(
        self, entries: Iterable[Entry], step: Callable[[Entry], Entry], objective: float = 0.0
    ) -> None:
        self.queue = list(entries)
        heapify(self.queue)
        self._step = step
        self.objective = objective

    @property
    def counts(self) -> list[int]:
        """Processors by queue."""
        counts = [0] * len(self.queue)
        for entry in self.queue:
            counts[entry[2]] = entry[3]
        return counts

    def give(self, processors: int, until: float | None = None) -> int:
        """Give processors, and return how many were given.

        until: stop when the objective has fallen to this value, or when another processor would
        not change it. Without it, stop only when no queue may have more.
        """
        queue, step, objective = self.queue, self._step, self.objective
        enough = -math.inf if until is None else until
        useless = math.inf if until is None else 0.0
        given = 0
        while given < processors and objective > enough:
            entry = queue[0]
            if entry[0] >= useless:
                break
            given += 1
            objective += entry[0]
            heapreplace(queue, step(entry))
        self.objective = objective
        return given
