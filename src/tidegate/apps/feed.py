"""The feed follows a workload on the wall clock and publishes an application's input in topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from tidegate.units import finite
from tidegate.workloads import Workload

if TYPE_CHECKING:
    from tidegate.apps.application import Application
    from tidegate.spark.streams.topic import Topic

__all__ = ["PublishedBatch", "TopicFeed"]


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """One publication of the feed.

    name: of the batch in the source's topic. event_s: event times of its good rows, Unix seconds.
    """

    source: str
    name: str
    event_s: NDArray[np.float64]


class TopicFeed:
    """Publishes an application's input in its sources' topics, in a thread, until `stop`.

    The event time of an item is its moment in the workload; the item is published at most `every_s`
    later. A feed that was held up catches up at once, and no event time changes. A recording starts
    with its first row whenever another workload is played; a generator continues to count its rows.

    Args:
        application: Generates the rows.
        topics: By source.
        workload: Followed from its beginning.
        bad: Share of bad rows to add.
        seed: Random seed of the rows.
        every_s: Seconds between two publications.
        clock: Returns Unix seconds.
    """

    def __init__(
        self,
        application: Application,
        topics: Mapping[str, Topic],
        workload: Workload,
        *,
        bad: float = 0.0,
        seed: int = 0,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.every_s = finite(every_s, "every_s", above=0)
        self.rows = 0
        """Rows published so far."""
        self.made = dict.fromkeys(topics, 0)
        """Good rows published so far, by source."""
        self.published: list[PublishedBatch] = []
        """All publications so far."""
        self.error: Exception | None = None
        """The error that ended the feed, None while it works."""
        self._application = application
        self._topics = topics
        self._workload = workload
        self._bad = bad
        self._random = np.random.default_rng(seed)
        self._first = dict(self.made)
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s = self._fed_s = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> Self:
        """Begin now; returns at once."""
        self._began_s = self._fed_s = self._clock()
        self._thread.start()
        return self

    def play(self, workload: Workload) -> float:
        """Follow another workload from its beginning; returns when it begins, Unix seconds."""
        with self._lock:
            self._publish_due()
            self._workload, self._began_s = workload, self._fed_s
            if self._application.replays:
                self._first = dict(self.made)
            return self._began_s

    def stop(self) -> None:
        """Publish what is due and end; safe to call twice."""
        if not self._stop.is_set():
            self._stop.set()
            if self._thread.ident is not None:
                self._thread.join()
            if self.error is None:
                with self._lock:
                    self._publish_due()

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stop.is_set():
            due_s = max(due_s + self.every_s, self._clock())
            self._stop.wait(max(0.0, due_s - self._clock()))
            try:
                with self._lock:
                    self._publish_due()
            except Exception as error:  # kept for the thread that looks at `error`
                self.error = error
                return

    def _publish_due(self) -> None:
        now_s, began_s = self._clock(), self._began_s
        moments = self._workload.arrivals(self._fed_s - began_s, now_s - began_s)
        self._fed_s = now_s
        for source, since_s in moments.items():
            if len(since_s):
                self._publish(source, since_s + began_s)

    def _publish(self, source: str, event_s: NDArray[np.float64]) -> None:
        first = self.made[source] - self._first[source]
        table = self._application.generate(source, event_s, first, self._random)
        self.made[source] += len(event_s)
        if self._bad and self._application.spoil is not None:
            table = self._application.spoil(table, self._bad, self._random)
        manifest = self._topics[source].append(table, "feed")
        self.published.append(PublishedBatch(source, manifest.name, event_s))
        self.rows += table.num_rows
