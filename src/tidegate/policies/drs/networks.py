"""The models of DRS: operators as queues, or as queries that work in micro-batches.

Both models have the same interface, so that the policy does not depend on which one it uses:

- ``bounded_s``: the latency that must stay within the bound; ``cautious_s``: the same with a
  margin, for the release of hosts; ``mean_s``: the mean latency that should be measured now;
- ``tempered``: the part of a correction (measured over estimated mean) that is applied;
- ``fewest``, ``assign``: the processors for a bound, or the best distribution of a number of them;
- ``near_best``: the multiple of the best latency that replaces a bound that cannot be met;
- ``fine``: whether hosts are released one by one down to where the bound holds with its margin;
  otherwise all surplus hosts are released, or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import ClassVar

from tidegate.model import BatchReading, Snapshot
from tidegate.theory import microbatch, queueing
from tidegate.theory.microbatch import BatchQuery
from tidegate.theory.queueing import Station

__all__ = ["BatchNetwork", "JacksonNetwork", "Network", "read_network"]


@dataclass(frozen=True)
class JacksonNetwork:
    """The paper's model: each operator is an Erlang queue, and all form a Jackson network.

    external_per_s: items per second from outside.
    """

    stations: tuple[Station, ...]
    external_per_s: float
    # A decision needs the same counts more than once: what runs, what is requested and what is
    # planned are mostly the same.
    _sojourn_s: dict[tuple[int, ...], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _best: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    near_best: ClassVar[float] = 1.05
    fine: ClassVar[bool] = False

    @property
    def names(self) -> tuple[str, ...]:
        """The operators."""
        return tuple(station.name for station in self.stations)

    @property
    def loads(self) -> tuple[float, ...]:
        """Processors that each operator keeps busy."""
        return tuple(station.load for station in self.stations)

    @property
    def limits(self) -> tuple[int | None, ...]:
        """Largest number of processors of each operator."""
        return tuple(station.max_processors for station in self.stations)

    def bounded_s(self, counts: Sequence[int]) -> float:
        """The mean sojourn time."""
        known, asked = self._sojourn_s, tuple(counts)
        if asked not in known:
            known[asked] = queueing.sojourn_s(self.stations, asked, self.external_per_s)
        return known[asked]

    cautious_s = bounded_s
    mean_s = bounded_s

    def tempered(self, correction: float, bound_s: float) -> float:
        """The whole correction."""
        return correction

    def ahead(self) -> JacksonNetwork:
        """The same network: the paper plans for the measured load."""
        return self

    def fewest(self, bound_s: float, correction: float) -> tuple[int, ...]:
        """The paper's Program 6."""
        counts = queueing.fewest_processors(self.stations, bound_s, self.external_per_s, correction)
        self._best[sum(counts)] = counts  # Theorem 1: no other distribution is better
        return counts

    def assign(self, processors: int) -> tuple[int, ...]:
        """The paper's Algorithm 1."""
        found = self._best.get(processors)
        return found or queueing.assign_processors(self.stations, processors)


@dataclass(frozen=True)
class BatchNetwork:
    """Each operator is a query in micro-batches; the bound is on the oldest items.

    backlogs: items of each query beyond those that usually arrive in a period. catch_up_s: time
    over which the backlog counts as arrivals, in seconds; 0 to ignore it. headroom: share by which
    the input may grow after hosts were released, or while new ones start. steady: whether recent
    batches were alike. If not, the measured latency belongs to an earlier load or number of slots
    and cannot be compared with the model.
    """

    queries: tuple[BatchQuery, ...]
    backlogs: tuple[float, ...]
    catch_up_s: float
    headroom: float
    steady: bool = True
    near_best: ClassVar[float] = 1.25  # the gain falls with 1/k only: the last part costs too much
    fine: ClassVar[bool] = True

    def _busier(self, share: float = 0.0) -> tuple[BatchQuery, ...]:
        """The queries with their backlog as arrivals, and with `share` more input."""
        extra = (b / self.catch_up_s if self.catch_up_s else 0.0 for b in self.backlogs)
        return tuple(
            replace(q, arrival_rate_per_s=q.arrival_rate_per_s * (1 + share) + more)
            for q, more in zip(self.queries, extra, strict=True)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The operators."""
        return tuple(query.name for query in self.queries)

    @property
    def loads(self) -> tuple[float, ...]:
        """Processors that each operator keeps busy."""
        return tuple(query.load for query in self._busier())

    @property
    def limits(self) -> tuple[int | None, ...]:
        """Largest number of processors of each operator."""
        return tuple(query.max_processors for query in self.queries)

    def bounded_s(self, counts: Sequence[int]) -> float:
        """The latency of the oldest items."""
        return microbatch.oldest_s(self._busier(), counts)

    def cautious_s(self, counts: Sequence[int]) -> float:
        """The latency of the oldest items with headroom."""
        return microbatch.oldest_s(self._busier(self.headroom), counts)

    def mean_s(self, counts: Sequence[int]) -> float:
        """The mean latency, backlog included; infinite while batches are not steady."""
        if not self.steady:
            return math.inf
        waits = (
            backlog * query.service_time_s / max(1, k)
            for query, backlog, k in zip(self.queries, self.backlogs, counts, strict=True)
        )
        return microbatch.mean_s(self.queries, counts) + sum(waits)

    def tempered(self, correction: float, bound_s: float) -> float:
        """The part of the correction with which the bound can still be reached at a fair cost.

        A correction also multiplies the overhead, which no processor shortens.
        """
        floor_s = self.near_best * sum(query.floor_s for query in self.queries)
        return min(correction, max(1.0, bound_s / floor_s)) if floor_s > 0 else correction

    def ahead(self) -> BatchNetwork:
        """The network with the headroom as input, which may rise while an executor starts."""
        more = tuple(
            replace(q, arrival_rate_per_s=q.arrival_rate_per_s * (1 + self.headroom))
            for q in self.queries
        )
        return replace(self, queries=more)

    def fewest(self, bound_s: float, correction: float) -> tuple[int, ...]:
        """The fewest processors with which even the oldest items are in time."""
        return microbatch.fewest(self._busier(), bound_s, correction)

    def assign(self, processors: int) -> tuple[int, ...]:
        """The distribution with the lowest latency of the oldest items."""
        return microbatch.assign(self._busier(), processors)


Network = JacksonNetwork | BatchNetwork


def read_network(
    snapshot: Snapshot, *, t_max_s: float, catch_up_s: float, headroom: float, general: bool
) -> Network | None:
    """The network that a snapshot describes, None when a measurement is missing.

    It consists of micro-batches where all operators have measured batches with their overhead, and
    of queues otherwise. t_max_s: the bound, in seconds. catch_up_s: time in which to process a
    backlog, in seconds. headroom: see `BatchNetwork`. general: whether queues have the measured
    variability.
    """
    readings = [snapshot.reading[name] for name in snapshot.topology.by_name]
    if any(
        r.arrival_rate_per_s is None or not snapshot.service_time_s(r.operator) for r in readings
    ):
        return None
    external = sum((snapshot.external_rates() or {}).values())
    if external <= 0:
        return None
    batches = [r.batches for r in readings if r.batches and r.batches.overhead_s is not None]
    if len(batches) == len(readings):
        return _batches(snapshot, batches, t_max_s, catch_up_s, headroom)
    return _queues(snapshot, external, t_max_s, catch_up_s, general)


def _queues(
    snapshot: Snapshot, external: float, t_max_s: float, catch_up_s: float, general: bool
) -> JacksonNetwork:
    stations = []
    for operator in snapshot.topology.operators:
        reading = snapshot.reading[operator.name]
        rate = reading.arrival_rate_per_s or 0.0
        service_scv = operator.service_scv if reading.service_scv is None else reading.service_scv
        arrival_scv = 1.0 if reading.arrival_scv is None else reading.arrival_scv
        # The model describes a steady state; items beyond its usual queue are a backlog.
        backlog = max(0.0, (reading.queue_length or 0.0) - rate * t_max_s)
        extra = backlog / catch_up_s if catch_up_s else 0.0
        stations.append(
            Station(
                operator.name,
                rate + extra,
                1 / (snapshot.service_time_s(operator.name) or 1.0),
                arrival_scv if general else 1.0,
                service_scv if general else 1.0,
                operator.max_instances,
            )
        )
    return JacksonNetwork(tuple(stations), external)


def _batches(
    snapshot: Snapshot,
    batches: Sequence[BatchReading],
    t_max_s: float,
    catch_up_s: float,
    headroom: float,
) -> BatchNetwork:
    queries, backlogs = [], []
    running = snapshot.running.counts
    for operator, batch in zip(snapshot.topology.operators, batches, strict=True):
        reading = snapshot.reading[operator.name]
        query = BatchQuery(
            operator.name,
            reading.arrival_rate_per_s or 0.0,
            snapshot.service_time_s(operator.name) or 0.0,
            batch.overhead_s or 0.0,
            batch.trigger_interval_s,
            operator.max_instances,
        )
        # Items that arrive in a period wait until its end; a period never exceeds the bound.
        usual = query.arrival_rate_per_s * min(query.period_s(running[operator.name]), t_max_s)
        queries.append(query)
        backlogs.append(max(0.0, (reading.queue_length or 0.0) - usual))
    steady = all(_steady(batch.recent_durations_s) for batch in batches)
    return BatchNetwork(tuple(queries), tuple(backlogs), catch_up_s, headroom, steady)


def _steady(durations_s: Sequence[float]) -> bool:
    """Whether no batch took more than twice as long as the median."""
    return not durations_s or max(durations_s) <= 2 * median(durations_s)
