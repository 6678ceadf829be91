"""What is heard and read of the streaming queries of an application, turn by turn."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from tidegate.errors import InputError
from tidegate.model import OperatorReading
from tidegate.spark.autoscaler.attribution import Attribution
from tidegate.spark.autoscaler.delays import bounded
from tidegate.spark.autoscaler.gateway import Gateway, QueryStatus, Trigger
from tidegate.spark.autoscaler.meter import QueryMeter, SourceCount
from tidegate.spark.autoscaler.progress import Progress, read_progress
from tidegate.spark.scalability.query_checks import LOCALITY_WAITS, UNSCALABLE
from tidegate.units import duration_s, show_duration

__all__ = ["QueryWatch"]

log = logging.getLogger(__name__)

MOST_HEARD = 10_000
"""Events that wait to be read; more come only if the loop hangs."""


class QueryWatch:
    """The meters of all running queries.

    Args:
        gateway: The application.
        window_s: Time that rates and latencies cover, in seconds.
        warm_up_s: Batches of the first seconds of a query do not count for its cost.
    """

    def __init__(self, gateway: Gateway, window_s: float, warm_up_s: float) -> None:
        self.gateway = gateway
        self.window_s = window_s
        self.warm_up_s = warm_up_s
        self.meters: dict[str, QueryMeter] = {}
        self.errors: dict[str, str] = {}
        """Errors that ended a query, by its name."""
        self.active: dict[str, str] = {}
        """Names of the queries that ran at the last look, by id; no two have the same name."""
        self._names: dict[str, str] = {}
        """Names of all queries that were seen, by id."""
        self._triggers: dict[str, Trigger] = {}
        self._status: dict[str, QueryStatus] = {}
        self._heard: deque[tuple[str, str]] = deque(maxlen=MOST_HEARD)
        self._dropped = 0  # events that were dropped since the last look
        self._fresh: set[str] = set()  # runs whose start was observed
        self._executors: set[str] | None = None
        self._attribution = Attribution()
        self._last_job = -1
        self._running_jobs: set[int] = set()
        self._warned: set[tuple[str, str]] = set()

    def hear(self, kind: str, text: str) -> None:
        """Queue an event of `Gateway.listen`; it may be called in any thread.

        The oldest event is dropped when nobody has read them for very long.
        """
        self._dropped += len(self._heard) == self._heard.maxlen
        self._heard.append((kind, text))

    def look(self, now_s: float, slots: int, executors: Mapping[str, float]) -> None:
        """Read the queued events and all that Spark reports of the queries.

        now_s: Unix seconds; slots: task slots of the application; executors: when each executor
        registered, Unix seconds by id.
        """
        self.active = self._named(self.gateway.active_queries())
        self._names.update(self.active)
        self._digest()
        for name in set(self._triggers) - set(self.active.values()):
            del self._triggers[name]
        for query, name in self.active.items():
            if name not in self._triggers:
                self._triggers[name] = self.gateway.trigger_of(query)
            self._look_at(query, name, now_s)
        if self._executors is not None:
            for executor in executors.keys() - self._executors:
                for meter in self.meters.values():
                    meter.executor_joined(executors[executor])
        self._executors = set(executors)
        jobs, self._last_job, self._running_jobs = self.gateway.finished_jobs(
            self._last_job, self._running_jobs
        )
        heard = {name for name, meter in self.meters.items() if meter.last is not None}
        unheard = not heard.issuperset(self.active.values())
        self._attribution.add(jobs, max(1, slots), self.meters, now_s, unheard)
        self._warn_of_locality(len(executors))

    def refused(self) -> str:
        """Why the application cannot be scaled at present, in a sentence; empty if it can be.

        The tasks of a continuous or real-time query never end. What they need is not measured, and
        a released executor would end them, so nothing is changed while such a query runs.
        """
        for name in sorted(self.active.values()):
            kind = UNSCALABLE.get(self._triggers.get(name, Trigger()).kind)
            if kind is not None:
                return (
                    f"query {name} has {kind}, which cannot be scaled: executors stay as they are "
                    "while it runs; use a trigger with micro-batches (processingTime), or run it "
                    "in another application"
                )
        return ""

    def reading(self, name: str, now_s: float, count: SourceCount | None) -> OperatorReading:
        """The reading of a query; missing while nothing was heard of it.

        now_s: Unix seconds; count: the source's own counts, None when there are none.
        """
        meter, status = self.meters.get(name), self._status.get(name, QueryStatus())
        asks_s = None if status.asked_s is None else max(0.0, now_s - status.asked_s)
        if meter is None:
            # Its first batch may run for long.
            age_s = None if status.began_s is None else now_s - status.began_s
            nothing = OperatorReading(name, source_wait_s=asks_s)
            return replace(nothing, delay=bounded(nothing.delay, age_s))
        reading = meter.reading(name, now_s, self._triggers.get(name, Trigger()).interval_s)
        if count is not None:
            reading = meter.counted(reading, count, now_s)
        pending, running = self.gateway.tasks_of(meter.run) if meter.run else (None, None)
        waits = [wait_s for wait_s in (reading.source_wait_s, asks_s) if wait_s is not None]
        return replace(
            reading,
            pending_tasks=pending,
            running_tasks=running,
            source_wait_s=max(waits, default=None),
        )

    # --- one look -----------------------------------------------------------------------------

    def _named(self, queries: Mapping[str, str]) -> dict[str, str]:
        """Running queries with unique names: Spark's are unique within a session only.

        A query keeps its name while it runs. queries: Spark's names by id.
        """
        found = {query: self.active[query] for query in queries if query in self.active}
        for query in sorted(queries.keys() - found.keys()):
            given = name = queries[query]
            for number in itertools.count(2):
                if name not in found.values():
                    break
                name = f"{given} ({number})"
            found[query] = name
            if name != given:
                self._warn_once(
                    name,
                    "name",
                    "several sessions run a query named %s; one of them is called %s here, and a "
                    "latency target for %s does not apply to it: give each query its own name",
                    given,
                    name,
                    given,
                )
        return {query: found[query] for query in queries}

    def _holder(self, name: str) -> str | None:
        """Id of the running query that has a name, None when none has it."""
        return next((query for query, held in self.active.items() if held == name), None)

    def _digest(self) -> None:
        """Read the queued events."""
        dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning(
                "%d events of queries were not read in time: measuring starts again", dropped
            )
            self.meters.clear()  # batches are missing, so that rates and delays would be wrong
        while True:
            try:
                kind, text = self._heard.popleft()
            except IndexError:
                return
            if kind == "started":
                self._fresh.add(text)
            elif kind == "ended":
                run, _, error = text.partition("\n")
                self._fresh.discard(run)
                self._ended(run, error)
            elif kind in ("progress", "idle"):
                progress = read_progress(text)
                # An idle event does not contain the query's name.
                name = self._names.setdefault(progress.query, progress.name or progress.query[:8])
                if self._holder(name) not in (None, progress.query):
                    continue  # of a query that has ended, whose name another one has now
                meter = self.meters.setdefault(name, QueryMeter(self.window_s, self.warm_up_s))
                meter.add(progress, fresh=progress.run in self._fresh)
                self.errors.pop(name, None)

    def _ended(self, run: str, error: str) -> None:
        for name, meter in list(self.meters.items()):
            if meter.run == run:
                del self.meters[name]
                self._triggers.pop(name, None)
                self._status.pop(name, None)
                if error:
                    self.errors[name] = error.strip().splitlines()[0]
                    log.warning(
                        "query %s failed: %s", name, self.errors[name], extra={"query": name}
                    )

    def _look_at(self, query: str, name: str, now_s: float) -> None:
        """Read what a query does now, and what its sources admit."""
        status = self._status[name] = self.gateway.status_of(query)
        meter = self.meters.get(name)
        if meter is None and status.idle:
            meter = self.meters[name] = QueryMeter(self.window_s, self.warm_up_s)
            meter.add(Progress(query, status.run, name, -1, now_s, {}, 0, idle=True))
        elif meter is None:
            return
        elif status.idle:
            # It looked at its sources within the last trigger interval.
            meter.idle(now_s - (self._triggers[name].interval_s or 0.0))
        meter.in_flight_s = status.began_s
        if meter.limits is None:
            meter.limits = self.gateway.read_limits(query)
        if any(limit.kind == "files" for limits in meter.limits or () for limit in limits):
            files = self.gateway.files_read(query)
            if files is not None:
                meter.count_files(*files)

    def _warn_of_locality(self, executors: int) -> None:
        """Warn when Spark keeps the tasks of short stateful batches from new executors."""
        if executors < 2:
            return
        try:
            text = self.gateway.setting("spark.locality.wait", "3s").strip()
            wait_s = duration_s(f"{text}ms" if text.isdecimal() else text)
        except InputError:  # zero, or in a unit of Spark that is not known here
            return
        for name, meter in self.meters.items():
            took_s = meter.duration_s
            if meter.state_partitions and took_s is not None and took_s < LOCALITY_WAITS * wait_s:
                self._warn_once(
                    name,
                    "locality",
                    "query %s has state, and its batches take %s. Spark holds back each of its "
                    "tasks for up to %s (spark.locality.wait) for the executor that has its state, "
                    "so that new executors get little to do: set spark.locality.wait=0",
                    name,
                    show_duration(took_s),
                    show_duration(wait_s),
                )

    def _warn_once(self, name: str, about: str, text: str, *given: object) -> None:
        if (name, about) not in self._warned:
            self._warned.add((name, about))
            log.warning(text, *given, extra={"query": name})
