"""Stations in sequence with a fixed number of servers: the fastest way to a mean sojourn time.

If nothing scales, moves or fails, a customer is only a time that increases at each station. Two
small loops remain, which the compiler vectorises: a few hundred times the speed of an event list in
Python. DRS compares such static allocations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.simulation.kernels.random import Words, exponential, streams
from tidegate.simulation.kernels.sketch import BUCKETS, LatencySketch, bucket_of
from tidegate.theory.compiled import compiled
from tidegate.theory.queueing import Station
from tidegate.units import finite

__all__ = ["TandemRun", "simulate_tandem"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 4096
BATCHES = 20
TANDEM_STREAMS = 41


@dataclass(frozen=True)
class TandemRun:
    """Sojourn times of customers who passed all stations.

    mean_s: their mean; half_width_s: half of its 95 % confidence interval, from batch means;
    latencies: all of them.
    """

    customers: int
    mean_s: float
    half_width_s: float
    latencies: LatencySketch


def simulate_tandem(
    stations: Sequence[Station],
    allocation: Sequence[int],
    customers: int,
    *,
    seed: int,
    warm_up: int = 10_000,
) -> TandemRun:
    """Poisson arrivals at the first station's rate, exponential service, first come first served.

    stations: in the order of the customers' way. allocation: servers of each. customers: number of
    measured customers, after `warm_up` others. seed: random seed.

    >>> run = simulate_tandem([Station("work", 0.8, 1.0)], [1], 200_000, seed=1)
    >>> abs(run.mean_s - 5.0) < 2 * run.half_width_s  # M/M/1: 1 / (1 - 0.8)
    True
    """
    finite(customers, "customers", low=BATCHES)
    if len(stations) != len(allocation) or not stations:
        raise InputError("allocation", tuple(allocation), "one number for each station")
    for station, servers in zip(stations, allocation, strict=True):
        finite(servers, f"servers of {station.name}", above=station.load)
    starts = np.cumsum([0, *(servers + 1 for servers in allocation)], dtype=np.int64)
    free = np.zeros(int(starts[-1]))
    free[starts[1:] - 1] = np.inf  # a sentinel after the last server of each station
    means = np.array([1 / station.service_rate_per_s for station in stations])
    batch_s = np.zeros(BATCHES)
    counts = np.zeros(BUCKETS, np.int64)
    rng = streams(seed, TANDEM_STREAMS, len(stations) + 1)
    _run(stations[0].arrival_rate_per_s, means, starts, free, rng, warm_up, customers, batch_s,
         counts)  # fmt: skip
    sizes = np.diff(np.arange(BATCHES + 1) * customers // BATCHES)
    spread = float(np.std(batch_s / sizes, ddof=1)) / math.sqrt(BATCHES)
    total = float(batch_s.sum())
    # 2.093: Student's 97.5 % quantile with 19 degrees of freedom.
    return TandemRun(customers, total / customers, 2.093 * spread, LatencySketch(counts, total))


@compiled(error_model="numpy")
def _run(
    rate: float,
    means: Floats,
    starts: Ints,
    free: Floats,
    rng: Words,
    warm_up: int,
    customers: int,
    batch_s: Floats,
    counts: Ints,
) -> None:
    births = np.empty(CHUNK)
    times = np.empty(CHUNK)
    draws = np.empty(CHUNK)
    born = np.zeros(len(free))
    now = 0.0
    done = -warm_up
    while done < customers:
        size = min(CHUNK, customers - done)
        _draw(rng, 0, 1.0 / rate, size, draws)
        for i in range(size):
            now += draws[i]
            births[i] = now
            times[i] = now
        for station in range(len(means)):
            _draw(rng, station + 1, means[station], size, draws)
            first, last = starts[station], starts[station + 1]
            _pass(size, last - first - 1, free[first:last], born[first:last], draws, times,
                  births)  # fmt: skip
        for i in range(max(0, -done), size):
            sojourn = times[i] - births[i]
            batch_s[(done + i) * len(batch_s) // customers] += sojourn
            counts[bucket_of(sojourn)] += 1
        done += size


@compiled
def _draw(rng: Words, which: int, mean: float, size: int, draws: Floats) -> None:
    state = rng[which]
    for i in range(size):
        draw, state = exponential(state)
        draws[i] = mean * draw
    rng[which] = state


@compiled(inside=True)
def _pass(
    size: int, servers: int, free: Floats, born: Floats, service: Floats, times: Floats,
    births: Floats,
) -> None:  # fmt: skip
    """Take customers through a station; `times` become departures, in order, and so `births`.

    The earliest time in `free` is the next departure. It is removed, and the new one is inserted by
    comparing each entry with the next, without branches. The departures of the last customers of k
    servers come with the next k arrivals; the first k departures are empty, at time 0.

    Args:
        size: Number of customers.
        servers: Number of servers.
        free: When each server is free, increasing, with infinity after the last.
        born: Births of the customers at the servers.
        service: Service times, in seconds.
        times: Arrival times; become departure times.
        births: Births of the customers; reordered like `times`.
    """
    if servers == 1:
        last = free[0]
        for i in range(size):
            last = max(last, times[i]) + service[i]
            times[i] = last
        free[0] = last
        return
    for i in range(size):
        leaves, birth = free[0], born[0]
        ends, own = max(leaves, times[i]) + service[i], births[i]
        for j in range(servers):
            here, after = free[j], free[j + 1]
            kept = born[j] if here > ends else own
            born[j] = born[j + 1] if after <= ends else kept
            free[j] = max(here, min(after, ends))
        times[i], births[i] = leaves, birth
