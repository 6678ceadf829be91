"""Waiting times in queues, and the processors that a latency bound needs: the model of DRS.

Every operator is a queue with k servers (Erlang), and all operators form a Jackson network:
E[T] = (1/λ0) · Σ λ_i E[T_i]. Because λ_i E[T_i] = λ_i/μ_i + Lq_i, the part that processors can
change is Lq_i, the mean number of waiting items. Computing Lq alone, by the Erlang-B recursion, is
exact for any k. The formulas as printed lose the gain of a processor to rounding from about 72
processors on, and overflow later.

T. Z. J. Fu et al., *DRS: Dynamic Resource Scheduling for Real-Time Analytics over Fast Streams*,
ICDCS 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.errors import LatencyUnreachable, NotEnoughProcessors
from tidegate.theory.greedy import Entry, Greedy
from tidegate.units import finite

__all__ = [
    "MOST_PROCESSORS",
    "Station",
    "assign_processors",
    "erlang_b",
    "erlang_c",
    "fewest_processors",
    "machines_for",
    "sojourn_s",
    "waiting_items",
]


MOST_PROCESSORS = 100_000
"""The largest number of processors that is computed with. It bounds the time of a decision."""


@dataclass(frozen=True, slots=True)
class Station(Value):
    """An operator as a queue.

    With both coefficients of variation at 1 it is M/M/k, otherwise the Allen–Cunneen approximation
    of G/G/k.

    Attributes:
        name: The operator.
        arrival_rate_per_s: λ, items per second.
        service_rate_per_s: μ, items per second that *one* processor can process.
        arrival_scv: Squared coefficient of variation of the times between arrivals.
        service_scv: Squared coefficient of variation of the service times.
        max_processors: Largest useful number of processors, None for no limit.
    """

    name: str
    arrival_rate_per_s: float
    service_rate_per_s: float
    arrival_scv: float = 1.0
    service_scv: float = 1.0
    max_processors: int | None = None

    def __post_init__(self) -> None:
        # Asked here first: the names for the messages are not free, and this runs each turn.
        if not (
            0 <= self.arrival_rate_per_s < math.inf
            and 0 < self.service_rate_per_s < math.inf
            and 0 <= self.arrival_scv < math.inf
            and 0 <= self.service_scv < math.inf
        ):
            finite(self.arrival_rate_per_s, f"{self.name}: arrival rate", low=0)
            finite(self.service_rate_per_s, f"{self.name}: service rate", above=0)
            finite(self.arrival_scv, f"{self.name}: arrival scv", low=0)
            finite(self.service_scv, f"{self.name}: service scv", low=0)

    @property
    def load(self) -> float:
        """λ/μ: processors that are busy on average."""
        return self.arrival_rate_per_s / self.service_rate_per_s

    @property
    def least_processors(self) -> int:
        """The fewest processors that keep the queue finite (and one for an idle operator).

        The paper's ⌈λ/μ⌉ is one short when λ/μ is whole. Raises NotEnoughProcessors for more than
        `MOST_PROCESSORS`.
        """
        load = self.load
        if load >= MOST_PROCESSORS:
            raise NotEnoughProcessors(_many(load), MOST_PROCESSORS)
        return math.floor(load) + 1

    @property
    def variability(self) -> float:
        """Allen–Cunneen: waiting is that of M/M/k times this."""
        return (self.arrival_scv + self.service_scv) / 2


def erlang_b(servers: int, load: float) -> float:
    """Share of items lost when nobody may wait (M/M/k/k), by the stable recursion.

    >>> round(erlang_b(3, 2.0), 4)
    0.2105
    """
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    return blocking


def erlang_c(servers: int, load: float) -> float:
    """Share of items that must wait (M/M/k); 1 when the load is too much.

    >>> round(erlang_c(3, 2.0), 4)
    0.4444
    """
    if load >= servers:
        return 1.0
    blocking = erlang_b(servers, load)
    return servers * blocking / (servers - load * (1 - blocking))


def _waiting(servers: int, load: float, blocking: float) -> float:
    """Lq of M/M/k from its Erlang-B value, for load < servers."""
    spare = servers - load
    return servers * blocking * load / (spare * (spare + load * blocking))


def waiting_items(servers: int, station: Station) -> float:
    """Mean number of items that wait at a station, infinite when the load is too much."""
    load = station.load
    if load >= servers:
        return math.inf
    return station.variability * _waiting(servers, load, erlang_b(servers, load))


def sojourn_s(
    stations: Sequence[Station], allocation: Sequence[int], external_rate_per_s: float
) -> float:
    """E[T]: mean seconds from an item's arrival until all that came of it is processed.

    allocation: processors of each station; external_rate_per_s: λ0, items from outside.

    The paper's logo detection, with service rates that fit its figures:

    >>> video = (Station("extract", 13, 5), Station("match", 13, 4.407), Station("agg", 13, 1300))
    >>> round(sojourn_s(video, (10, 11, 1), external_rate_per_s=13), 3)
    0.428
    """
    if not 0 < external_rate_per_s < math.inf:
        finite(external_rate_per_s, "external rate", above=0)
    present = sum(s.load + waiting_items(k, s) for s, k in zip(stations, allocation, strict=True))
    return present / external_rate_per_s


def _greedy(stations: Sequence[Station]) -> Greedy:
    """Give processors where they reduce the number of waiting items most."""
    greedy = Greedy((_entry(i, station) for i, station in enumerate(stations)), _step)
    greedy.objective = _recount(greedy)
    return greedy


def _least(station: Station) -> int:
    """The fewest processors of a station; raises NotEnoughProcessors if it may not have them."""
    k, most = station.least_processors, station.max_processors
    if most is not None and k > most:
        raise NotEnoughProcessors(k, most, station.name)
    return k


def _entry(index: int, station: Station) -> Entry:
    """The entry of a station; its state is its load, 1/B and waiting items at k + 1, and so on.

    (…, load, inverse of Erlang B and waiting items at k + 1, variability, limit of k)
    """
    k, a, factor = _least(station), station.load, station.variability
    most = math.inf if station.max_processors is None else station.max_processors
    b = erlang_b(k, a)
    inverse = 1 + (k + 1) / (a * b) if a * b > 0 else math.inf
    after = _waiting(k + 1, a, 1 / inverse)
    change = math.inf if k >= most else (after - _waiting(k, a, b)) * factor
    return change, 0.0, index, k, a, inverse, after, factor, most


def _step(entry: Entry) -> Entry:
    """The entry after one more processor."""
    _, _, index, k, a, inverse, before, factor, most = entry
    k += 1
    following = k + 1
    # 1/B(k) = 1 + k/a · 1/B(k−1): the Erlang-B recursion for the inverse. Where B would underflow,
    # its inverse becomes infinite and the number of waiting items zero.
    inverse = 1 + following * inverse / a if a else math.inf
    spare = following - a
    after = following * a / (spare * (spare * inverse + a))
    change = (after - before) * factor if k < most else math.inf
    # Ties appear when changes underflow: the station with the most load per processor comes first.
    tie = 0.0 if change else -a / k
    return change, tie, index, k, a, inverse, after, factor, most


def _recount(greedy: Greedy) -> float:
    """Waiting items at all stations, without the rounding errors of a running sum."""
    return math.fsum(map(_counted, greedy.queue))


def _counted(entry: Entry) -> float:
    """Waiting items at the station of an entry."""
    _, _, _, k, a, inverse, _, factor, _ = entry
    here = (inverse - 1) * a / (k + 1)  # one step of the recursion back, from k + 1 to k
    spare = k - a
    wait: float = factor * k * a / (spare * (spare * here + a)) if a else 0.0
    return wait


def assign_processors(stations: Sequence[Station], processors: int) -> tuple[int, ...]:
    """AssignProcessors, the paper's Algorithm 1: the distribution with the least E[T].

    processors: the total number (K_max). Raises NotEnoughProcessors when a queue would grow without
    limit.

    >>> video = (Station("extract", 13, 5), Station("match", 13, 4.407), Station("agg", 13, 1300))
    >>> assign_processors(video, 22), assign_processors(video, 17)
    ((10, 11, 1), (8, 8, 1))
    """
    finite(processors, "processors", high=MOST_PROCESSORS)
    needed = sum(station.least_processors for station in stations)
    if needed > processors:
        raise NotEnoughProcessors(needed, processors)
    if len(stations) == 1:  # it gets as many as it may have
        _least(stations[0])
        most = stations[0].max_processors
        return (processors if most is None else min(processors, most),)
    if processors - needed >= _COMPILED_FROM:
        return _assign_compiled(stations, processors - needed)
    greedy = _greedy(stations)
    greedy.give(processors - needed)
    return tuple(greedy.counts)


_COMPILED_FROM = 128
"""Spare processors from which the compiled loop is used (loading it takes half a second)."""


def _assign_compiled(stations: Sequence[Station], spare: int) -> tuple[int, ...]:
    """The same as `Greedy.give`, compiled; a property test holds the two equal."""
    import numpy as np

    from tidegate.theory._greedy import greedy_kernel

    for s in stations:
        if s.max_processors is not None and s.least_processors > s.max_processors:
            raise NotEnoughProcessors(s.least_processors, s.max_processors, s.name)
    least = [s.least_processors for s in stations]
    loads = [s.load for s in stations]
    blocking = [erlang_b(k, a) for k, a in zip(least, loads, strict=True)]
    waits = [_waiting(k, a, b) for k, a, b in zip(least, loads, blocking, strict=True)]
    counts = greedy_kernel(
        np.array(least, dtype=np.int64),
        np.array(loads),
        np.array([s.variability for s in stations]),
        np.array([-1 if s.max_processors is None else s.max_processors for s in stations]),
        np.array(blocking),
        np.array(waits),
        spare,
    )
    return tuple(counts.tolist())


def fewest_processors(
    stations: Sequence[Station],
    t_max_s: float,
    external_rate_per_s: float,
    correction: float = 1.0,
) -> tuple[int, ...]:
    """The smallest allocation whose E[T] stays within a bound (the paper's Program 6).

    t_max_s: the bound on E[T] in seconds; external_rate_per_s: λ0.
    correction: measured over estimated sojourn time, by which the estimate is multiplied.
    Raises LatencyUnreachable when processing alone, with no waiting, takes longer.

    >>> scaled = (Station("see", 40, 5.714), Station("match", 40, 5.333), Station("agg", 40, 400))
    >>> sum(fewest_processors(scaled, 0.5, 40)), sum(fewest_processors(scaled, 1.0, 40))
    (19, 17)
    """
    if not (
        0 < t_max_s < math.inf and 0 < external_rate_per_s < math.inf and 0 < correction < math.inf
    ):
        finite(t_max_s, "t_max_s", above=0)
        finite(external_rate_per_s, "external rate", above=0)
        finite(correction, "correction", above=0)
    busy = math.fsum([station.load for station in stations])
    allowed = t_max_s * external_rate_per_s / correction - busy
    # A bound that leaves no time to wait needs infinitely many processors.
    if allowed < 0:
        for station in stations:
            _least(station)
        raise LatencyUnreachable(t_max_s, correction * busy / external_rate_per_s)
    if len(stations) == 1:
        entry = _entry(0, stations[0])
        waits = _counted(entry)
        if allowed < 1e-12 * min(busy, waits):
            raise LatencyUnreachable(t_max_s, correction * busy / external_rate_per_s)
        entry, waits = _enough(entry, waits, allowed)
        if waits > allowed:
            best_s = correction * (busy + waits) / external_rate_per_s
            raise LatencyUnreachable(t_max_s, best_s, stations[0].name)
        return (entry[3],)
    greedy = _greedy(stations)
    if allowed < 1e-12 * min(busy, greedy.objective):
        raise LatencyUnreachable(t_max_s, correction * busy / external_rate_per_s)
    while greedy.objective > allowed:
        # In halves, since a running sum that starts at a million loses small differences.
        if not greedy.give(_MANY, until=max(allowed, greedy.objective / 2)):
            # The remaining items wait at operators that may not have more processors.
            best_s = correction * (busy + greedy.objective) / external_rate_per_s
            waiting = {
                s.name: waiting_items(k, s) for s, k in zip(stations, greedy.counts, strict=True)
            }
            raise LatencyUnreachable(t_max_s, best_s, max(waiting, key=waiting.__getitem__))
        greedy.objective = _recount(greedy)
    return tuple(greedy.counts)


def _enough(entry: Entry, waits: float, allowed: float) -> tuple[Entry, float]:
    """A single station with the fewest processors at which no more items wait than is allowed.

    It does what the loop of `fewest_processors` does, without a heap; a property test holds the two
    equal. Returns its entry and its waiting items, of which there may be more if it may not have
    more processors. waits: its waiting items at first.
    """
    while waits > allowed and entry[0] < 0:
        until = max(allowed, waits / 2)
        while waits > until and entry[0] < 0:
            waits += entry[0]
            entry = _step(entry)
        waits = _counted(entry)
    return entry, waits


_MANY = 10**9
"""More processors than any cluster has."""


def _many(load: float) -> int:
    return int(min(load, _MANY))


def machines_for(processors: int, per_machine: int, reserved: int = 0) -> int:
    """The number of machines for a number of processors.

    per_machine: processors of each machine; reserved: processors that other programs use, in total.

    >>> machines_for(19, per_machine=5, reserved=3), machines_for(17, per_machine=5, reserved=3)
    (5, 4)
    """
    return math.ceil((processors + reserved) / per_machine)
