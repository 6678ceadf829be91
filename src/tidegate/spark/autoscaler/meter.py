"""From the last micro-batches of a query to the readings of a policy. Pure: no Spark, no clock."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.model import BatchReading, Latency, OperatorReading
from tidegate.spark.autoscaler.gateway import JobWork
from tidegate.spark.autoscaler.progress import Progress

__all__ = ["WARM_UP_S", "QueryMeter", "SourceCount", "latency_of"]

KEPT = 200
RECENT = 10
WARM_UP_S = 15.0
"""Time that a query needs after its start to compile code and load classes, in seconds."""
POINTS = 20
"""Number of equal parts of a batch's rows, to compute percentiles over several batches."""


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Row counts of a query's source, for sources whose lag Spark does not report.

    waiting: rows that no batch has read yet; arrived: all rows that ever arrived; None: unknown.
    """

    waiting: float | None = None
    arrived: float | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """Resources that one batch used.

    Args:
        run_s: Slot-seconds of all its jobs.
        longest_s: Slot-seconds of its longest job.
        tasks: Tasks of its longest job.
        slots: Task slots of the application at that time.
        read_rows: Rows read from files.
        read_bytes: Bytes read from files.
    """

    run_s: float = 0.0
    longest_s: float = 0.0
    tasks: int = 0
    slots: int = 1
    read_rows: int = 0
    read_bytes: int = 0


class QueryMeter:
    """The last micro-batches of one streaming query.

    window_s: rates and latencies cover the batches of this time, in seconds, or the last batch when
        it took longer.
    warm_up_s: batches that begin within this time after the query's start, in seconds, count for
        its service time only while there are no others, and the very first one never.
    """

    def __init__(self, window_s: float = 20.0, warm_up_s: float = WARM_UP_S) -> None:
        self.window_s = window_s
        self.warm_up_s = warm_up_s
        self._batches: deque[Progress] = deque(maxlen=KEPT)
        self._counts: deque[tuple[float, float]] = deque(maxlen=2)
        self._work: dict[int, _Work] = {}
        self._warm_s = -math.inf
        self.last_job = -1

    def add(self, progress: Progress, fresh: bool = False) -> None:
        """Add a batch or an idle event. A new run of the query clears what was before.

        fresh: the start of the query was observed, so its next batches are cold.
        """
        if not self._batches or self._batches[-1].run != progress.run:
            self._warm_s = progress.began_s + self.warm_up_s if fresh else -math.inf
            self._batches.clear()  # the pause of a restart is not an idle source
            self._work.clear()
            self.last_job = -1
        self._batches.append(progress)

    def add_work(self, work: JobWork, slots: int) -> None:
        """Add the resources of a job. slots: task slots of the application at that time."""
        self.last_job = max(self.last_job, work.job)
        if work.batch is None:
            return
        before = self._work.get(work.batch, _Work())
        longest = work.run_s >= before.longest_s
        self._work[work.batch] = _Work(
            before.run_s + work.run_s,
            max(before.longest_s, work.run_s),
            work.tasks if longest else before.tasks,
            slots,
            before.read_rows + work.read_rows,
            before.read_bytes + work.read_bytes,
        )
        while len(self._work) > KEPT:
            del self._work[next(iter(self._work))]

    def counted(
        self, reading: OperatorReading, count: SourceCount, now_s: float
    ) -> OperatorReading:
        """A reading with the source's own counts in place of Spark's figures."""
        arrived = reading.arrival_rate_per_s
        if count.arrived is not None:
            self._counts.append((now_s, count.arrived))  # exact, so one interval is enough
            (then_s, before), (_, after) = self._counts[0], self._counts[-1]
            arrived = (after - before) / (now_s - then_s) if now_s > then_s else arrived
        return replace(reading, arrival_rate_per_s=arrived, queue_length=count.waiting)

    @property
    def run(self) -> str | None:
        """The run of the last batch, None before the first."""
        return self._batches[-1].run if self._batches else None

    @property
    def period_s(self) -> float | None:
        """Median time between the starts of two successive batches in seconds, None before two.

        While batches keep up, this is the trigger interval, which Spark does not report.
        """
        begins = [batch.began_s for batch in self._batches if not batch.idle][-RECENT:]
        gaps = [later - sooner for sooner, later in itertools.pairwise(begins) if later > sooner]
        return statistics.median(gaps) if gaps else None

    @property
    def ceiling(self) -> int | None:
        """Maximum of tasks in the longest stage of a recent batch: more slots are of no use."""
        recent = [w.tasks for w in list(self._work.values())[-RECENT:] if w.tasks]
        return max(recent) if recent else None

    @property
    def state_partitions(self) -> int | None:
        """Partitions of the query's state, None without state."""
        last = next((b for b in reversed(self._batches) if not b.idle), None)
        return last.state_partitions if last else None

    def reading(self, operator: str, now_s: float, trigger_s: float | None) -> OperatorReading:
        """The operator's reading from the batches; what they do not contain is missing.

        now_s: Unix seconds; trigger_s: the query's trigger interval in seconds, None if unknown.
        """
        window = self._window(now_s)
        recent = [b for b in self._batches if not b.idle][-RECENT:]
        delays = [mean for batch in recent if (mean := self._mean_latency_s(batch)) is not None]
        batches = None
        if recent and trigger_s is not None:
            took = tuple(batch.duration_s for batch in recent)
            batches = BatchReading(trigger_s, took, self._overhead_s())
        arrived, done = _rates(window)
        return OperatorReading(
            operator,
            arrival_rate_per_s=arrived,
            processed_per_s=done,
            service_time_s=self._service_time_s(),
            queue_length=self._waiting(),
            recent_durations_s=tuple(delays) or None,
            batches=batches,
        )

    def latencies(self, now_s: float) -> list[tuple[float, float]]:
        """(seconds from event to commit, rows) of the window's batches, in equal parts."""
        found: list[tuple[float, float]] = []
        for batch in self._window(now_s)[1:]:
            spread = self._spread(batch)
            if spread and batch.rows:
                found += [(value, batch.rows / POINTS) for value in _parts(*spread)]
        return found

    def batch_work(self) -> list[tuple[int, float]]:
        """Rows and slot-seconds of the recent batches that had rows, warm ones if there are any."""
        return [(b.rows, self._work[b.batch].run_s) for b in self._recent() if b.rows]

    def _window(self, now_s: float) -> list[Progress]:
        """The batches of the window and the one before, whose start is where the window begins."""
        batches = list(self._batches)
        inside = [b for b in batches if b.committed_s > now_s - self.window_s]
        count = max(2, len(inside) + 1)
        return batches[-count:] if len(batches) >= 2 else []

    def _service_time_s(self) -> float | None:
        """Slot-seconds that one more row takes, from the recent batches.

        Tasks cost something even without rows. If batches differ enough in size, this cost is left
        to the overhead. The median of all slopes between two batches is robust against the slow
        first batches of a new executor.
        """
        known = self.batch_work()
        if not known:
            return None
        share = statistics.median(run_s / rows for rows, run_s in known)
        slopes = [
            (y - b) / (x - a)
            for (a, b), (x, y) in itertools.combinations(known, 2)
            if abs(x - a) > 0.2 * max(x, a)
        ]
        if len(slopes) < RECENT:
            return share or None
        return min(share, max(statistics.median(slopes), share / 4)) or None

    def _recent(self) -> list[Progress]:
        """The last batches whose resources are known; cold ones only if there are no others."""
        known = [b for b in self._batches if b.batch in self._work]
        warm = [b for b in known if b.began_s >= self._warm_s]
        return warm[-2 * RECENT :] or known[1:]

    def _overhead_s(self) -> float | None:
        """Median part of a batch's duration that the work on its rows does not explain."""
        service_s = self._service_time_s()
        parts = []
        for batch in self._recent()[-RECENT:]:
            work = self._work[batch.batch]
            if work.tasks and batch.rows and service_s is not None:
                parallel_s = batch.rows * service_s / min(work.slots, work.tasks)
                parts.append(max(0.0, batch.duration_s - parallel_s))
        return statistics.median(parts) if parts else None

    def _waiting(self) -> float | None:
        """Rows that the source still had after the last batch.

        For a source that counts bytes only, the mean size of a row so far is used.
        """
        last = next((b for b in reversed(self._batches) if not b.idle), None)
        if last is None:
            return None
        if self._batches[-1].idle:
            return 0.0  # an idle event: there was nothing to read
        if last.lag.items is not None or last.lag.size_bytes is None:
            return last.lag.items
        if last.lag.size_bytes == 0:
            return 0.0
        rows = sum(work.read_rows for work in self._work.values())
        size = sum(work.read_bytes for work in self._work.values())
        return last.lag.size_bytes * rows / size if size else None

    def _spread(self, batch: Progress) -> tuple[float, float, float] | None:
        """Least, mean and greatest latency of a batch's rows, in seconds.

        With a watermark, by event time. Otherwise from the time when the rows could first be read,
        after the start of the batch before; unknown when that batch left rows over.
        """
        end_s = batch.committed_s
        if batch.event_time is not None:
            seen = batch.event_time
            least, mean, most = end_s - seen.max_s, end_s - seen.mean_s, end_s - seen.min_s
            return max(0.0, least), max(0.0, mean), max(0.0, most)
        before = self._before(batch)
        if before is None or before.lag.items or before.lag.size_bytes:
            return None
        least, most = batch.duration_s, end_s - before.began_s
        return least, (least + most) / 2, most

    def _before(self, batch: Progress) -> Progress | None:
        before = None
        for other in self._batches:
            if other is batch:
                return before
            before = other
        return None

    def _mean_latency_s(self, batch: Progress) -> float | None:
        spread = self._spread(batch) if batch.rows else None
        return spread[1] if spread else None


def _rates(window: Sequence[Progress]) -> tuple[float | None, float | None]:
    """Rows per second that arrived at the source, and that were processed.

    The rows of a batch arrived after the start of the batch before. An increase of the lag arrived
    as well.
    """
    if len(window) < 2:
        return None, None
    first, last = window[0], window[-1]
    rows = sum(batch.rows for batch in window[1:])
    arrived_s, done_s = last.began_s - first.began_s, last.committed_s - first.committed_s
    known = first.lag.items is not None and last.lag.items is not None
    more = (last.lag.items or 0.0) - (first.lag.items or 0.0) if known else 0.0
    arrived = max(0.0, rows + more) / arrived_s if arrived_s > 0 else None
    return arrived, rows / done_s if done_s > 0 else None


def _parts(least: float, mean: float, most: float) -> list[float]:
    """Midpoints of equal parts of a distribution that is uniform on each side of its mean."""
    below = (most - mean) / (most - least) if most > least else 0.5
    found = []
    for n in range(POINTS):
        share = (n + 0.5) / POINTS
        if share < below:
            found.append(least + (mean - least) * share / below)
        else:
            found.append(mean + (most - mean) * (share - below) / (1 - below))
    return found


def latency_of(weighted: Iterable[tuple[float, float]]) -> Latency:
    """Mean and percentiles of pairs (seconds, weight); all missing without any pairs.

    >>> latency_of([(1.0, 1.0), (3.0, 1.0)]).mean_s, latency_of([]).p95_s
    (2.0, None)
    """
    points = sorted(weighted)
    total = math.fsum(weight for _, weight in points)
    if not total:
        return Latency()
    found: list[float] = []
    reached = 0.0
    wanted = [0.5 * total, 0.95 * total, 0.99 * total]
    for value, weight in points:
        reached += weight
        while len(found) < 3 and reached >= wanted[len(found)] - 1e-9 * total:
            found.append(value)
    mean_s = math.fsum(value * weight for value, weight in points) / total
    return replace(Latency(mean_s), p50_s=found[0], p95_s=found[1], p99_s=found[2])
