"""How long items wait, and how many processors that takes: the model of the DRS paper.

Every operator is a queue with k servers (Erlang), all operators together a Jackson network:
E[T] = (1/λ0) · Σ λ_i E[T_i]. Because λ_i E[T_i] = λ_i/μ_i + Lq_i, the part that processors can
change is just Lq_i, the mean number of waiting items. Working with Lq alone, by the Erlang-B
recursion, is exact for any k; the paper's formulas as printed lose the gain of a processor under
the constant 1/μ from about 72 processors on, and overflow later.

T. Z. J. Fu et al., *DRS: Dynamic Resource Scheduling for Real-Time Analytics over Fast Streams*,
ICDCS 2015.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import islice

from tidegate.codec import Value
from tidegate.errors import LatencyUnreachable, NotEnoughProcessors
from tidegate.units import finite

__all__ = [
    "Station",
    "assign_processors",
    "erlang_b",
    "erlang_c",
    "fewest_processors",
    "machines_for",
    "sojourn_s",
    "waiting_items",
]


@dataclass(frozen=True, slots=True)
class Station(Value):
    """An operator as a queue.

    arrival_rate_per_s: λ, items per second; service_rate_per_s: μ, items per second that *one*
    processor can do. arrival_scv, service_scv: squared coefficients of variation; 1 and 1 is
    M/M/k, anything else the Allen–Cunneen approximation of G/G/k.
    max_processors: more are of no use, None when there is no limit.
    """

    name: str
    arrival_rate_per_s: float
    service_rate_per_s: float
    arrival_scv: float = 1.0
    service_scv: float = 1.0
    max_processors: int | None = None

    def __post_init__(self) -> None:
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

        The paper's ⌈λ/μ⌉ is one short when λ/μ is whole.
        """
        return math.floor(self.load) + 1

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
    if station.load >= servers:
        return math.inf
    return station.variability * _waiting(servers, station.load, erlang_b(servers, station.load))


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
    finite(external_rate_per_s, "external rate", above=0)
    present = sum(s.load + waiting_items(k, s) for s, k in zip(stations, allocation, strict=True))
    return present / external_rate_per_s


def _greedy(stations: Sequence[Station]) -> Iterator[tuple[list[int], float]]:
    """Processors given one at a time, always where they take away most waiting.

    Yields the same, growing list of counts and the waiting items left, first for the least
    allocation. Waiting is convex in k, so each prefix is optimal for its sum (Theorem 1).
    """
    counts = [station.least_processors for station in stations]
    for station, count in zip(stations, counts, strict=True):
        if station.max_processors is not None and count > station.max_processors:
            raise NotEnoughProcessors(needed=count, available=station.max_processors)
    limits = [s.max_processors if s.max_processors is not None else math.inf for s in stations]
    loads = [station.load for station in stations]
    factors = [station.variability for station in stations]
    blocking = [erlang_b(k, a) for k, a in zip(counts, loads, strict=True)]
    waits = [_waiting(k, a, b) for k, a, b in zip(counts, loads, blocking, strict=True)]
    left = [w * f for w, f in zip(waits, factors, strict=True)]
    total = anchor = math.fsum(left)

    # One entry a station: (-gain of its next processor, processors per load, index). The second
    # breaks ties, which appear when gains underflow: then the busiest station comes first.
    queue = []
    for i, a in enumerate(loads):
        k = counts[i] + 1
        b = blocking[i] = a * blocking[i] / (k + a * blocking[i])
        after = _waiting(k, a, b)
        gain = (waits[i] - after) * factors[i]
        waits[i] = after
        full = counts[i] >= limits[i]
        queue.append((math.inf, 0.0, i) if full else (-gain, k / a if a else math.inf, i))
    heapify(queue)

    yield counts, total
    while queue[0][0] != math.inf:
        negative_gain, _, i = queue[0]
        counts[i] = k = counts[i] + 1
        total += negative_gain
        left[i] = waits[i] * factors[i]
        if total < 0.5 * anchor:  # a large part is gone: its rounding error must not stay behind
            total = anchor = math.fsum(left)
        if k >= limits[i]:
            heapreplace(queue, (math.inf, 0.0, i))
        else:
            a, b, before = loads[i], blocking[i], waits[i]
            k += 1
            blocking[i] = b = a * b / (k + a * b)
            spare = k - a
            waits[i] = after = k * b * a / (spare * (spare + a * b))
            heapreplace(queue, ((after - before) * factors[i], k / a if a else math.inf, i))
        yield counts, total


def assign_processors(stations: Sequence[Station], processors: int) -> tuple[int, ...]:
    """AssignProcessors, the paper's Algorithm 1: the distribution with the least E[T].

    processors: how many there are in all (K_max). Raises NotEnoughProcessors when some queue
    would grow without end.

    >>> video = (Station("extract", 13, 5), Station("match", 13, 4.407), Station("agg", 13, 1300))
    >>> assign_processors(video, 22), assign_processors(video, 17)
    ((10, 11, 1), (8, 8, 1))
    """
    needed = sum(station.least_processors for station in stations)
    if needed > processors:
        raise NotEnoughProcessors(needed, processors)
    steps = islice(_greedy(stations), processors - needed + 1)
    counts, _ = deque(steps, maxlen=1)[0]
    return tuple(counts)


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
    finite(t_max_s, "t_max_s", above=0)
    finite(external_rate_per_s, "external rate", above=0)
    finite(correction, "correction", above=0)
    busy = math.fsum(station.load for station in stations)
    allowed = t_max_s * external_rate_per_s / correction - busy
    if allowed < 0:
        raise LatencyUnreachable(t_max_s, correction * busy / external_rate_per_s)
    counts: list[int] = []
    before = math.inf
    for counts, waiting in _greedy(stations):
        if waiting == before:
            break  # what still waits does so at operators that may have no more processors
        before = waiting
        # The running total gathers rounding errors, so its verdict is checked before it counts.
        if waiting <= allowed * (1 + 1e-9) + 1e-12:
            exact = math.fsum(waiting_items(k, s) for k, s in zip(counts, stations, strict=True))
            if exact <= allowed:
                return tuple(counts)
    best_s = correction * sojourn_s(stations, counts, external_rate_per_s)
    raise LatencyUnreachable(t_max_s, best_s)


def machines_for(processors: int, per_machine: int, reserved: int = 0) -> int:
    """Machines that carry so many processors.

    per_machine: processors on each machine; reserved: processors taken by something else in all.

    >>> machines_for(19, per_machine=5, reserved=3), machines_for(17, per_machine=5, reserved=3)
    (5, 4)
    """
    return math.ceil((processors + reserved) / per_machine)
