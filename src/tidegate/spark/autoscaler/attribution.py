"""Which batch a job belongs to, where Spark does not report it. Pure.

Spark describes the jobs of a batch. Code in ``foreachBatch`` may start jobs that Spark does not
describe: from a thread, for example. Such a job is attributed by time, if it ran within a batch of
exactly one query that has a ``foreachBatch``. Otherwise the cost of the batches in question is
unknown. Whether a query has one is known when its first batch has ended, so until then jobs wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.spark.autoscaler.jobs import JobWork
from tidegate.spark.autoscaler.meter import QueryMeter
from tidegate.spark.autoscaler.progress import Progress

__all__ = ["Attribution"]

log = logging.getLogger(__name__)

HELD = 1000
HELD_S = 600.0
"""A job waits for the end of its batch for at most this time, in seconds."""
CLOCK_S = 0.2
"""A job ends at most this time after its batch, in seconds: the two are noted one after another."""


class Attribution:
    """Gives finished jobs to the meters of the queries whose batches started them."""

    def __init__(self) -> None:
        self._held: list[tuple[JobWork, int]] = []
        self._warned: set[str] = set()

    def add(
        self,
        jobs: Iterable[JobWork],
        slots: int,
        meters: Mapping[str, QueryMeter],
        now_s: float,
        unheard: bool = False,
    ) -> None:
        """Attribute jobs, and those of earlier calls whose batch had not ended then.

        Args:
            jobs: Jobs that have ended.
            slots: Task slots of the application.
            meters: Meters by query name.
            now_s: Unix seconds.
            unheard: Whether a query runs whose first batch has not ended.
        """
        self._held += [(job, slots) for job in jobs]
        runs = {meter.run: name for name, meter in meters.items()}
        waiting: list[tuple[JobWork, int]] = []
        for job, slots_then in self._held:
            owner = runs.get(job.run) if job.run else None
            if owner is not None and job.batch is not None:
                meters[owner].add_work(job, slots_then)
                if not job.complete:
                    meters[owner].incomplete(job.batch)
                continue
            if not job.run and job.began_s is None:
                continue
            waits_since_s = now_s if job.ended_s is None else job.ended_s
            if now_s - waits_since_s > HELD_S:
                continue
            # A run without a meter is that of a query whose first batch has not ended.
            if (job.run and owner is None) or not self._by_time(
                job, slots_then, owner, meters, unheard
            ):
                waiting.append((job, slots_then))
        self._held = waiting[-HELD:]

    def _by_time(
        self,
        job: JobWork,
        slots: int,
        owner: str | None,
        meters: Mapping[str, QueryMeter],
        unheard: bool,
    ) -> bool:
        """Attribute a job to the batch that ran then; False when a batch may still be running."""
        names = [owner] if owner else [n for n, m in meters.items() if m.uses_foreach_batch]
        if job.began_s is None:
            return True
        around: list[tuple[str, Progress]] = []
        for name in names:
            meter = meters[name]
            batch = meter.batch_at(job.began_s)
            if batch is not None:
                around.append((name, batch))
            elif meter.heard_until_s() < job.began_s:
                return False
        if not around and unheard:  # it may be of the batch that nobody has heard of yet
            return False
        if len(around) == 1:
            name, batch = around[0]
            if job.ended_s is not None and job.ended_s <= batch.committed_s + CLOCK_S:
                run = meters[name].run or ""
                meters[name].add_work(replace(job, run=run, batch=batch.batch), slots)
                if not job.complete:
                    meters[name].incomplete(batch.batch)
                return True
        for name, batch in around:
            meters[name].incomplete(batch.batch)
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "query %s: part of the work of its batches cannot be attributed, because its "
                    "foreachBatch starts jobs in other threads while other queries do the same or "
                    "does not wait for them: the cost of such batches is unknown",
                    name,
                    extra={"query": name},
                )
        return True
