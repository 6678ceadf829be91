"""From the last micro-batches of a query to the readings of a policy. Pure: no Spark, no clock."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.model import BatchCost, BatchReading, FirstBatch, OperatorReading
from tidegate.spark.autoscaler.admission import SourceLimit, admission
from tidegate.spark.autoscaler.delays import (
    POINTS,
    BatchDelay,
    bounded,
    delays_of,
    event_ages,
    latency_of,
)
from tidegate.spark.autoscaler.jobs import (
    JobWork,
    StageWork,
    available_slots,
    held_slots,
    useful_tasks,
)
from tidegate.spark.autoscaler.progress import Progress
from tidegate.theory.batch_cost import BatchSample, BatchSamples, estimate

__all__ = ["WARM_UP_S", "QueryMeter", "SourceCount", "latency_of"]

KEPT = 200
RECENT = 10
SETTLED = 3
"""The work of a batch is complete when this many later batches have ended."""
WARM_UP_S = 15.0
"""Time that a query needs after its start to compile code and load classes, in seconds."""
AT_LIMIT = 0.95
"""A batch with this share of the rows that its sources admit may have left rows over."""


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Row counts of a query's source, for sources whose lag Spark does not report.

    waiting: rows that no batch has read yet; arrived: all rows that ever arrived; None: unknown.
    """

    waiting: float | None = None
    arrived: float | None = None


@dataclass(slots=True)
class _Work:
    """Resources that one batch used.

    Args:
        run_s: Slot-seconds of all its jobs.
        longest_s: Slot-seconds of its longest stage (of its longest job if stages are unknown).
        tasks: Tasks of that stage.
        slots: Task slots of the application at that time.
        read_rows: Rows read from files.
        read_bytes: Bytes read from files.
        stages: Its stages.
        elastic: Whether more slots would give that stage more tasks.
    """

    run_s: float = 0.0
    longest_s: float = 0.0
    tasks: int = 0
    slots: int = 1
    read_rows: int = 0
    read_bytes: int = 0
    stages: tuple[StageWork, ...] = ()
    elastic: bool = False

    def add(self, work: JobWork, slots: int) -> None:
        self.run_s += work.run_s
        self.slots = slots
        self.read_rows += work.read_rows
        self.read_bytes += work.read_bytes
        self.stages += work.stages
        parts = [(s.run_s, s.tasks, s.reads_files) for s in work.stages]
        for run_s, tasks, reads in parts or [(work.run_s, work.tasks, False)]:
            if run_s >= self.longest_s:
                self.longest_s, self.tasks = run_s, tasks
                # Spark cuts files into as many tasks as there are slots.
                self.elastic = reads and tasks >= slots


class QueryMeter:
    """The last micro-batches of one streaming query.

    window_s: rates and latencies cover the batches of this time, in seconds, or the last batch when
        it took longer.
    warm_up_s: batches that begin within this time after the query's start, in seconds, count for
        its cost only while there are no others, and the very first one never. The same holds for
        the first batch on a new executor.
    """

    def __init__(self, window_s: float = 20.0, warm_up_s: float = WARM_UP_S) -> None:
        self.window_s = window_s
        self.warm_up_s = warm_up_s
        self.limits: tuple[tuple[SourceLimit, ...], ...] | None = None
        """Limits of each source, None when they could not be read."""
        self.in_flight_s: float | None = None
        """Start of the batch with rows that runs now, Unix seconds; None when none runs."""
        self.shed: Mapping[int, int] = {}
        """Rows that recent batches dropped before any work, by the number of the batch."""
        self._batches: deque[Progress] = deque(maxlen=KEPT)
        self._counts: deque[tuple[float, float]] = deque(maxlen=2)
        self._files: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._joined: deque[float] = deque(maxlen=RECENT)
        self._restart()

    def _restart(self) -> None:
        self._batches.clear()  # the pause of a restart is not an idle source
        self._work: dict[int, _Work] = {}
        self._incomplete: set[int] = set()
        self._warm, self._cold = BatchSamples(), BatchSamples()
        self._pending: deque[tuple[Progress, bool]] = deque()
        self._first: int | None = None
        self._first_batch: FirstBatch | None = None
        self._warm_s = -math.inf
        self.in_flight_s = None

    # --- what happened ------------------------------------------------------------------------

    def add(self, progress: Progress, fresh: bool = False) -> None:
        """Add a batch or an idle event. A new run of the query clears what was before.

        fresh: the start of the query was observed, so its next batches are cold.
        """
        last = self._batches[-1] if self._batches else None
        if last is None or last.run != progress.run:
            self._restart()
            last = None
            if progress.rows:
                self._first_batch = FirstBatch(
                    float(progress.rows), progress.duration_s, progress.committed_s
                )
        if (
            progress.idle
            and all(b.idle for b in list(self._batches)[-2:])
            and len(self._batches) > 1
        ):
            self._batches.pop()  # of a quiet time the begin and the end are enough
        if not progress.idle:
            if fresh and self._first is None:
                self._first, self._warm_s = progress.batch, progress.began_s + self.warm_up_s
            cold = progress.began_s < self._warm_s or self._on_new_executor(progress)
            self._pending.append((progress, cold))
            while len(self._pending) > SETTLED:
                self._settle(*self._pending.popleft())
        self._batches.append(progress)

    def idle(self, at_s: float) -> None:
        """Note that the query found nothing to read at a time, in Unix seconds."""
        last = self._batches[-1] if self._batches else None
        if last is not None and at_s > last.committed_s:
            self.add(Progress(last.query, last.run, last.name, -1, at_s, {}, 0, idle=True))

    def executor_joined(self, at_s: float) -> None:
        """Note that a new executor registered, at a time in Unix seconds."""
        self._joined.append(at_s)

    def add_work(self, work: JobWork, slots: int) -> None:
        """Add the resources of a job. slots: task slots of the application at that time."""
        if work.batch is None:
            return
        self._work.setdefault(work.batch, _Work()).add(work, slots)
        while len(self._work) > KEPT:
            del self._work[next(iter(self._work))]

    def incomplete(self, batch: int) -> None:
        """Note that part of a batch's work is unknown, so that its cost is not used."""
        self._incomplete.add(batch)
        while len(self._incomplete) > KEPT:  # batches that old have settled
            self._incomplete.remove(min(self._incomplete))

    def count_files(self, files: float, rows: float) -> None:
        """Note the files and rows that a batch read; ignored unless such a batch has ended."""
        ended = itertools.islice(reversed(self._batches), RECENT)
        if files > 0 and rows > 0 and any(batch.rows == rows for batch in ended):
            self._files.append((files, rows))

    def _on_new_executor(self, batch: Progress) -> bool:
        """Whether an executor joined in the batch or after the start of the one before."""
        before = next((b for b in reversed(self._batches) if not b.idle), None)
        since_s = before.began_s if before is not None else batch.began_s
        return any(since_s < at_s < batch.committed_s for at_s in self._joined)

    def _settle(self, batch: Progress, cold: bool) -> None:
        sample = self._sample(batch)
        if sample is not None and batch.batch != self._first:
            (self._cold if cold else self._warm).add(sample)

    # --- what follows from it -----------------------------------------------------------------

    @property
    def run(self) -> str | None:
        """The run of the last batch, None before the first."""
        return self._batches[-1].run if self._batches else None

    @property
    def last(self) -> Progress | None:
        """The last batch that was not an idle event, None before the first."""
        return next((b for b in reversed(self._batches) if not b.idle), None)

    @property
    def uses_foreach_batch(self) -> bool:
        """Whether the query's sink is a function of the user, which may start any job."""
        return self.last is not None and self.last.sink.startswith("ForeachBatch")

    @property
    def period_s(self) -> float | None:
        """Median time between the starts of two successive batches in seconds, None before two.

        While batches keep up, this is the trigger interval, which Spark does not report.
        """
        begins = [batch.began_s for batch in self._batches if not batch.idle][-RECENT:]
        gaps = [later - sooner for sooner, later in itertools.pairwise(begins) if later > sooner]
        return statistics.median(gaps) if gaps else None

    @property
    def duration_s(self) -> float | None:
        """Median duration of the recent batches in seconds, None before the first."""
        recent = [b.duration_s for b in self._batches if not b.idle][-RECENT:]
        return statistics.median(recent) if recent else None

    @property
    def ceiling(self) -> int | None:
        """Maximum of useful tasks of a recent batch: more slots are of no use.

        These are the tasks of its longest stage, and of those that run at the same time. None also
        when Spark would make more tasks if there were more slots. Batches without rows do not
        count.
        """
        empty = {b.batch for b in self._batches if not b.rows}
        works = [w for number, w in self._work.items() if w.tasks and number not in empty][-RECENT:]
        if not works or any(work.elastic for work in works):
            return None
        return max(useful_tasks(w.stages) if w.stages else w.tasks for w in works)

    @property
    def state_partitions(self) -> int | None:
        """Partitions of the query's state, None without state."""
        return self.last.state_partitions if self.last else None

    def batch_at(self, at_s: float) -> Progress | None:
        """The batch that ran at a time in Unix seconds, None when no known batch did."""
        for batch in reversed(self._batches):
            if not batch.idle and batch.began_s <= at_s <= batch.committed_s:
                return batch
        return None

    def heard_until_s(self) -> float:
        """End of the last batch that is known, Unix seconds; events of later ones may be late."""
        return self.last.committed_s if self.last is not None else -math.inf

    def batch_work(self) -> list[tuple[int, float]]:
        """Rows and slot-seconds of recent batches with rows, warm ones if there are any.

        Batches of which a part is unknown do not count.
        """
        known = [
            batch
            for batch in self._batches
            if batch.batch in self._work and batch.batch not in self._incomplete and not batch.idle
        ]
        warm = [b for b in known if b.began_s >= self._warm_s]
        recent = warm[-2 * RECENT :] or known[1:]
        return [(self._kept(b), self._work[b.batch].run_s) for b in recent if b.rows]

    def cost(self) -> BatchCost | None:
        """The three terms of a batch's duration, None while no batch's work is known."""
        pending = [
            (sample, cold)
            for batch, cold in self._pending
            if batch.batch != self._first and (sample := self._sample(batch)) is not None
        ]
        warm = [*self._warm.kept(), *(sample for sample, cold in pending if not cold)]
        cold = [*self._cold.kept(), *(sample for sample, cold in pending if cold)]
        return estimate(warm if any(sample.rows for sample in warm) else [*cold, *warm])

    def reading(self, operator: str, now_s: float, trigger_s: float | None) -> OperatorReading:
        """The operator's reading from the batches; what they do not contain is missing.

        now_s: Unix seconds; trigger_s: the query's trigger interval in seconds, None if unknown.
        """
        recent = [b for b in self._batches if not b.idle][-RECENT:]
        cost = self.cost()
        batches = None
        if recent and trigger_s is not None:
            most, words = self._admission()
            batches = BatchReading(
                trigger_s,
                tuple(batch.duration_s for batch in recent),
                cost.overhead.value if cost is not None else None,
                cost,
                most,
                words,
            )
        arrived, done, shed = self._rates(now_s, trigger_s)
        waiting = self._waiting()
        backlog_s = _over(waiting, done)
        means = [delay.mean_s for delay in self._delays().values()][-RECENT:]
        unsure = any(delay.at_least for _, delay in self._recent_delays(now_s))
        found = latency_of(self.latencies(now_s), unsure)
        ages = latency_of(self.event_ages(now_s))  # at least the delay: events come before arrivals
        least_s = self.least_delay_s(now_s, backlog_s)
        last = self.last
        return OperatorReading(
            operator,
            arrival_rate_per_s=arrived,
            processed_per_s=done,
            dropped_per_s=shed if self.shed else None,
            # Batches without rows do not show what a row takes.
            service_time_s=(cost.per_row.value or None) if cost is not None else None,
            queue_length=waiting,
            recent_durations_s=tuple(means) or None,
            batches=batches,
            delay=bounded(found, least_s),
            event_age=bounded(ages, None if ages.p95_s is None else least_s),
            backlog_s=backlog_s,
            state_mb=last.state_mb if last is not None else None,
            first_batch=self._first_batch,
            shed_per_s=shed if self.shed else None,
            source_wait_s=last.source_s if last is not None else None,
        )

    def counted(
        self, reading: OperatorReading, count: SourceCount, now_s: float
    ) -> OperatorReading:
        """A reading with the source's own counts in place of Spark's figures."""
        arrived = reading.arrival_rate_per_s
        if count.arrived is not None:
            self._counts.append((now_s, count.arrived))  # exact, so one interval is enough
            (then_s, before), (_, after) = self._counts[0], self._counts[-1]
            arrived = (after - before) / (now_s - then_s) if now_s > then_s else arrived
        delay, last = reading.delay, self.last
        if count.waiting is not None and last is not None:
            # What arrived since the start of the last batch waits for the next one in any case.
            rest = count.waiting - (arrived or 0.0) * max(0.0, now_s - last.began_s)
            left_s = _over(max(0.0, rest), reading.processed_per_s)
            delay = bounded(delay, self.least_delay_s(now_s, left_s))
        return replace(
            reading,
            arrival_rate_per_s=arrived,
            queue_length=count.waiting,
            backlog_s=_over(count.waiting, reading.processed_per_s),
            delay=delay,
        )

    def latencies(self, now_s: float) -> list[tuple[float, float]]:
        """(processing delay in seconds, rows) of the window's batches, in equal parts."""
        delays = self._recent_delays(now_s)
        return [(s, self._kept(batch) / POINTS) for batch, delay in delays for s in delay.parts_s]

    def least_delay_s(self, now_s: float, backlog_s: float | None) -> float | None:
        """Time that rows wait at least which are not processed yet, in seconds; None: unknown.

        A row that arrives now waits for the rows that were left over, and for a batch. The rows of
        a batch that runs have waited since its start. backlog_s: time in which the rows that were
        left over can be processed, in seconds.
        """
        known = []
        if backlog_s and self.last is not None:
            known.append(backlog_s + self.last.duration_s)
        if self.in_flight_s is not None:
            known.append(now_s - self.in_flight_s)
        return max(known, default=None)

    def event_ages(self, now_s: float) -> list[tuple[float, float]]:
        """(event age in seconds, rows) of the window's batches, in equal parts."""
        window = self._window(now_s)[1:]
        return [(age_s, self._kept(b) / POINTS) for b in window for age_s in event_ages(b)]

    # --- rates --------------------------------------------------------------------------------

    def _window(self, now_s: float) -> list[Progress]:
        """The batches of the window and the one before, whose start is where the window begins."""
        batches = list(self._batches)
        inside = [b for b in batches if b.committed_s > now_s - self.window_s]
        count = max(2, len(inside) + 1)
        return batches[-count:] if len(batches) >= 2 else []

    def _kept(self, batch: Progress) -> int:
        """Rows of a batch that were processed: without those that it shed."""
        return max(0, batch.rows - self.shed.get(batch.batch, 0))

    def _rates(
        self, now_s: float, trigger_s: float | None
    ) -> tuple[float | None, float | None, float | None]:
        """Rows per second that were offered at the source, that were processed, and that were shed.

        The rows of a batch arrived after the start of the batch before. An increase of the lag
        arrived as well. Shed rows are offered, but not processed.
        """
        window = self._after_quiet(self._window(now_s), trigger_s)
        if len(window) < 2:
            only = self._batches[-1] if self._batches else None
            nothing = only is not None and not only.rows
            return (0.0, 0.0, 0.0) if nothing else (None, None, None)
        first, last = window[0], window[-1]
        rows = sum(batch.rows for batch in window[1:])
        kept = sum(self._kept(batch) for batch in window[1:])
        arrived_s, done_s = last.began_s - first.began_s, last.committed_s - first.committed_s
        lag, before = _lag(last), _lag(first)
        more = lag - before if lag is not None and before is not None else 0.0
        arrived = max(0.0, rows + more) / arrived_s if arrived_s > 0 else None
        if done_s <= 0:
            return arrived, None, None
        return arrived, kept / done_s, (rows - kept) / done_s

    def _after_quiet(self, window: list[Progress], trigger_s: float | None) -> list[Progress]:
        """The window without a long quiet time at its start, so that rates rise at once.

        The first batch after it has the rows of one trigger interval: before, there were none.
        """
        quiet = next((n for n in reversed(range(len(window) - 1)) if window[n].idle), None)
        if quiet is None or window[-1].idle:
            return window
        since_s = -math.inf
        for batch in self._batches:
            if batch is window[quiet]:
                break
            if batch.rows:
                since_s = batch.committed_s
        if window[quiet].began_s - since_s < self.window_s:
            return window
        first, after = window[quiet], window[quiet + 1]
        arrived_s = after.began_s - max(trigger_s or 0.0, after.duration_s)
        return [replace(first, began_s=max(first.began_s, arrived_s)), *window[quiet + 1 :]]

    # --- what waits, and for how long ---------------------------------------------------------

    def _rows_per_byte(self) -> float | None:
        rows = sum(work.read_rows for work in self._work.values())
        size = sum(work.read_bytes for work in self._work.values())
        return rows / size if size else None

    def _admission(self) -> tuple[float | None, str]:
        files = sum(files for files, _ in self._files)
        per_file = sum(rows for _, rows in self._files) / files if files else None
        return admission(self.limits, per_file, self._rows_per_byte())

    def _left(self, batch: Progress, most: float | None) -> float | None:
        """Rows that could be read at the start of a batch and were left over; None: unknown.

        most: rows that the sources admit. A source that counts bytes only has rows of the mean size
        so far.
        """
        if batch.idle or (not batch.rows and batch.lag.items is None):
            return 0.0  # there was nothing to read
        if batch.lag.items is not None:
            return batch.lag.items
        if batch.lag.size_bytes is not None:
            per_byte = self._rows_per_byte() if batch.lag.size_bytes else 0.0
            return None if per_byte is None else batch.lag.size_bytes * per_byte
        if self.limits is None:
            return None
        if not any(self.limits):
            return 0.0  # its sources admit everything
        return 0.0 if most is not None and batch.rows < AT_LIMIT * most else None

    def _waiting(self) -> float | None:
        """Rows that the source still had after the last batch."""
        if not self._batches:
            return None
        return self._left(self._batches[-1], self._admission()[0])

    def _delays(self) -> dict[int, BatchDelay]:
        """Processing delays of the recent batches, by their position."""
        most = self._admission()[0]
        left = [self._left(batch, most) for batch in self._batches]
        if self.limits is None:  # as far as is known, nothing was left over
            known = [b.lag.items is not None or b.lag.size_bytes is not None for b in self._batches]
            left = [x if sure else x or 0.0 for x, sure in zip(left, known, strict=True)]
        return delays_of(self._batches, left, since=len(left) - 3 * RECENT)

    def _recent_delays(self, now_s: float) -> list[tuple[Progress, BatchDelay]]:
        """The window's batches with their delays; the last batch unless the query is idle."""
        batches = list(self._batches)
        every = [(batches[n], delay) for n, delay in self._delays().items()]
        inside = [pair for pair in every if pair[0].committed_s > now_s - self.window_s]
        return inside or ([] if not batches or batches[-1].idle else every[-1:])

    # --- cost ---------------------------------------------------------------------------------

    def _sample(self, batch: Progress) -> BatchSample | None:
        """What a batch took and used, None while its work is unknown."""
        work = self._work.get(batch.batch)
        if work is None or batch.batch in self._incomplete or not batch.duration_s:
            return None
        if not work.stages:
            slots = float(min(work.slots, work.tasks or 1))
            return BatchSample(self._kept(batch), batch.duration_s, work.run_s, slots)
        slots = held_slots(work.stages, work.slots) or 1.0
        return BatchSample(
            self._kept(batch),
            batch.duration_s,
            work.run_s,
            slots,
            math.fsum(stage.longest_s for stage in work.stages),
            available_slots(work.stages, work.slots),
        )


def _lag(batch: Progress) -> float | None:
    return 0.0 if batch.idle else batch.lag.items


def _over(rows: float | None, rate: float | None) -> float | None:
    """Time in seconds in which rows are processed at a rate per second, None when unknown."""
    if rows is None or rows <= 0:
        return rows
    return rows / rate if rate else None
