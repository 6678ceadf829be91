"""The algorithm of the DRS paper by itself: its optimality and its running time.

Both optima are compared with a search through all allocations that uses the formulas as they are
printed in the paper, not ours.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from tidegate.policies.drs.networks import read_network
from tidegate.testing import station_snapshot
from tidegate.theory.queueing import Station, assign_processors, fewest_processors, sojourn_s

__all__ = [
    "PAPER_MEASURING_MS",
    "PAPER_MS",
    "fewest_is_minimal",
    "greedy_is_optimal",
    "measuring_ms",
    "scheduling_ms",
]

PAPER_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
"""Table II: scheduling time by K_max, on the authors' hardware."""
PAPER_MEASURING_MS = 0.1
"""Table II: time to process the measurements, the same for each K_max."""


def printed_sojourn_s(station: Station, k: int) -> float:
    """Equations (1) and (2) of the paper, with factorials as printed."""
    a, mu = station.load, station.service_rate_per_s
    if k <= a:
        return math.inf
    empty = 1 / (
        sum(a**n / math.factorial(n) for n in range(k)) + a**k / (math.factorial(k) * (1 - a / k))
    )
    return a**k * empty / (math.factorial(k) * (1 - a / k) ** 2 * mu * k) + 1 / mu


def _whole_s(stations: Sequence[Station], allocation: Sequence[int], external: float) -> float:
    return (
        sum(
            s.arrival_rate_per_s * printed_sojourn_s(s, k)
            for s, k in zip(stations, allocation, strict=True)
        )
        / external
    )


def _allocations(operators: int, total: int) -> list[tuple[int, ...]]:
    """All ways to give `total` processors to operators, each at least one."""
    cuts = itertools.combinations(range(1, total), operators - 1)
    return [tuple(b - a for a, b in itertools.pairwise((0, *cut, total))) for cut in cuts]


def _instance(rng: random.Random) -> tuple[tuple[Station, ...], float]:
    external = 10 ** rng.uniform(-1, 3)
    stations = []
    for n in range(rng.choice((2, 3, 3, 4))):
        rate = external * rng.uniform(0.1, 4)
        stations.append(Station(f"s{n}", rate, rate / rng.uniform(0.05, 4.5)))
    return tuple(stations), external


def greedy_is_optimal(instances: int, seed: int) -> tuple[int, float]:
    """How many random instances Algorithm 1 solves optimally, and its worst excess (a share)."""
    rng = random.Random(seed)
    solved, worst = 0, 0.0
    for _ in range(instances):
        stations, external = _instance(rng)
        total = sum(s.least_processors for s in stations) + rng.randrange(8)
        best = min(_whole_s(stations, a, external) for a in _allocations(len(stations), total))
        excess = _whole_s(stations, assign_processors(stations, total), external) / best - 1
        solved += excess <= 1e-9
        worst = max(worst, excess)
    return solved, worst


def fewest_is_minimal(instances: int, seed: int) -> int:
    """How many random instances of Program (6) are solved with the fewest processors."""
    rng = random.Random(seed)
    solved = 0
    for _ in range(instances):
        stations, external = _instance(rng)
        least = [s.least_processors for s in stations]
        generous = [k + rng.randrange(4) for k in least]
        # A bound that lies strictly between what some allocations reach.
        t_max_s = sojourn_s(stations, generous, external) * rng.uniform(1.0001, 1.2)
        found = fewest_processors(stations, t_max_s, external)
        meets = _whole_s(stations, found, external) <= t_max_s * (1 + 1e-9)
        fewer = sum(found) - 1
        beaten = fewer >= len(stations) and any(
            _whole_s(stations, a, external) <= t_max_s * (1 - 1e-9)
            for a in _allocations(len(stations), fewer)
        )
        solved += meets and not beaten
    return solved


def measuring_ms(rounds: int) -> dict[int, float]:
    """Milliseconds from a snapshot with K instances to the model's network, the best of rounds."""
    best = dict.fromkeys(PAPER_MS, math.inf)
    rates = {"extract": (13.0, 5.0), "match": (13.0, 4.407), "aggregate": (13.0, 1300.0)}
    for processors in PAPER_MS:
        seen = station_snapshot(rates, (processors // 2, processors // 2 - 1, 1))
        for _ in range(rounds):
            fresh = replace(seen)  # nothing that was derived from it before
            start = time.perf_counter()
            read_network(fresh, t_max_s=1.0, catch_up_s=60.0, general=False)
            best[processors] = min(best[processors], (time.perf_counter() - start) * 1000)
    return best


def scheduling_ms(rounds: int) -> dict[int, float]:
    """Milliseconds to assign K processors to logo detection's operators, the best of the rounds."""
    video = (Station("extract", 13, 5), Station("match", 13, 4.407), Station("agg", 13, 1300))
    for processors in PAPER_MS:
        assign_processors(video, processors)  # compile before the measurement
    best = dict.fromkeys(PAPER_MS, math.inf)
    for _ in range(rounds):
        for processors in PAPER_MS:
            start = time.perf_counter()
            assign_processors(video, processors)
            best[processors] = min(best[processors], (time.perf_counter() - start) * 1000)
    return best
