"""Calibration of a simulated fleet from the journal of a live one.

`summarise` reads live and simulated journals, so that the two can be compared. `calibrate_fleet`
estimates from a live journal what batches, rows and moves cost, and reports the number of turns
behind each estimate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.errors import JournalError
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Turn
from tidegate.model import Deployment, HostOffer, Snapshot
from tidegate.model.topology import Topology
from tidegate.policies.base import Policy
from tidegate.simulation import QueryCloud, QueryCost, QuerySettings
from tidegate.simulation.calibrate import Fit
from tidegate.simulation.run import simulate

__all__ = [
    "FleetModel",
    "FleetSummary",
    "calibrate_fleet",
    "latencies",
    "match_lengths",
    "simulate_fleet",
    "summarise",
]

Floats = NDArray[np.float64]
FEWEST = 5
ROUNDS, CLOSE, MOST_CORES = 6, 0.03, 8.0
"""Matching of batch lengths: most trials, tolerance as a share, most cores of a batch."""


@dataclass(frozen=True, slots=True)
class FleetSummary(Value):
    """The results of a run.

    utilisation: lowest, mean and highest utilisation of the hosts, averaged over the turns.
    latency_s: 10th percentile, median and 90th percentile over the batches of all queries.
    hosts: mean number of leased hosts. moves: number of decided moves. turns: number of turns.
    """

    utilisation: tuple[float, float, float]
    latency_s: tuple[float, float, float]
    hosts: float
    moves: int
    turns: int


def summarise(turns: Iterable[Turn], from_s: float, until_s: float) -> FleetSummary:
    """Summarise the turns between two times of the journal, in seconds."""
    seen = [t.snapshot for t in turns if t.snapshot and from_s <= t.snapshot.time_s <= until_s]
    busy = []
    for snapshot in seen:
        used = [h.utilisation for h in snapshot.running_hosts if h.utilisation is not None]
        if used:
            busy.append((min(used), statistics.fmean(used), max(used)))
    delays = sorted(_fresh_of(seen))
    if not busy or len(delays) < FEWEST:
        remedy = "record a longer run"
        raise JournalError("journal", f"{len(delays)} batches", f"at least {FEWEST}", remedy)
    low, mean, high = (statistics.fmean(column) for column in zip(*busy, strict=True))
    tenths = statistics.quantiles(delays, n=10)
    return FleetSummary(
        (low, mean, high),
        (tenths[0], tenths[4], tenths[8]),
        statistics.fmean(len(snapshot.hosts) for snapshot in seen),
        sum(_moved(before, after) for before, after in pairwise(seen)),
        len(seen),
    )


def latencies(turns: Iterable[Turn], from_s: float, until_s: float) -> list[float]:
    """The latency of each batch between two times of the journal, in seconds."""
    return _fresh_of(
        [t.snapshot for t in turns if t.snapshot and from_s <= t.snapshot.time_s <= until_s]
    )


def _fresh_of(seen: Sequence[Snapshot]) -> list[float]:
    """The latency of each batch, without those before the first snapshot."""
    known: dict[str, tuple[float, ...]] = {}
    found: list[float] = []
    for snapshot in seen:
        for reading in snapshot.operators:
            recent = reading.recent_durations_s or ()
            if reading.operator in known:
                found += _fresh(known[reading.operator], recent)
            known[reading.operator] = recent
    return found


def _fresh(before: Sequence[float], after: Sequence[float]) -> Sequence[float]:
    """The new values of `after`, where both are the last values of one growing list.

    >>> _fresh((1.0, 2.0, 3.0), (2.0, 3.0, 5.0))
    (5.0,)
    """
    for start in range(len(before)):
        if before[start:] == after[: len(before) - start]:
            return after[len(before) - start :]
    return after


def _moved(before: Snapshot, after: Snapshot) -> int:
    homes = {instance.operator: instance.host for instance in before.instances}
    return sum(homes.get(i.operator, i.host) != i.host for i in after.instances)


@dataclass(frozen=True)
class FleetModel(Value):
    """A simulated fleet that is calibrated from a journal.

    Args:
        topology: Queries.
        offer: Hosts that can be leased.
        costs: Costs of each query's batches and rows.
        shares: Rows that each query reads per row that arrives.
        settings: Behaviour of the simulated fleet.
        initial: Deployment at the start.
        fits: The estimates and the turns that they rest on.
    """

    topology: Topology
    offer: HostOffer
    costs: Mapping[str, QueryCost]
    shares: Mapping[str, float]
    settings: QuerySettings
    initial: Deployment
    fits: tuple[Fit, ...]


def calibrate_fleet(
    turns: Iterable[Turn],
    rows_per_s: float,
    *,
    pauses_s: Sequence[float] = (),
    machine_cores: float | None = None,
) -> FleetModel:
    """Fit the simulated fleet to the turns of a live one.

    The costs of a batch and of a row are fitted to all queries together, and each query gets its
    own factor.

    rows_per_s: mean input rate, of which each query reads a share. pauses_s: pauses of moves, from
    their log, in seconds. machine_cores: cores that all hosts share if they are processes of one
    machine.
    """
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    points = [point for snapshot in seen for point in _points(snapshot)]
    if len(points) < FEWEST:
        remedy = "it must contain batches of running queries; let the fleet run for some minutes"
        raise JournalError("journal", f"{len(points)} measurements", f"at least {FEWEST}", remedy)
    first, last = seen[0], seen[-1]
    batch_s, row_s, residual = _work(points)
    # The median: after a move, two batches are closer together than the trigger interval.
    trigger_s = statistics.median(point.period_s for point in points)
    took = {name: _durations(seen, name) for name in last.topology.by_name}
    costs, shares, usual_s = {}, {}, {}
    for name in last.topology.by_name:
        own = [point for point in points if point.query == name] or points
        modelled = sum(batch_s / p.period_s + row_s * p.rows_per_s for p in own)
        factor = sum(p.cores for p in own) / modelled if modelled else 1.0
        rate = statistics.fmean(p.rows_per_s for p in own)
        per_batch_s = factor * (
            batch_s + row_s * statistics.fmean(p.rows_per_s * p.period_s for p in own)
        )
        usual_s[name], scv = _usual(took[name] or [d for many in took.values() for d in many])
        cores = max(0.05, per_batch_s / usual_s[name])
        rows = sum(p.rows_per_s for p in own)
        costs[name] = QueryCost(
            factor * batch_s,
            factor * row_s,
            cores,
            scv,
            statistics.fmean(p.memory_mb for p in own),
            sum(p.network_mbps for p in own) / rows if rows else 0.0,
        )
        shares[name] = rate / rows_per_s if rows_per_s > 0 else 0.0
    cold, moves = _cold(seen, usual_s)
    startup_s, starts = _startup(seen)
    widest = _quantile(
        [h.utilisation for s in seen for h in s.running_hosts if h.utilisation is not None], 0.95
    )
    capacity = last.offer.capacity.cpu_cores
    pause_s = statistics.fmean(pauses_s) if pauses_s else 1.0
    settings = QuerySettings(
        trigger_s=trigger_s,
        interval_s=last.interval_s or 5.0,
        pause_s=pause_s,
        cold=cold,
        host_startup_s=last.offer.startup_s if startup_s is None else startup_s,
        host_cores=capacity * max(1.0, widest or 1.0),
        machine_cores=machine_cores,
    )
    fits = (
        Fit("a batch", batch_s, "CPU s", residual, len(points)),
        Fit("a row", row_s * 1e6, "CPU µs", None, len(points)),
        Fit("usual length of a batch", statistics.median(usual_s.values()), "s"),
        Fit("a first batch after a move, times the usual", cold, "", None, moves),
        Fit("pause of a move", pause_s if pauses_s else None, "s", None, len(pauses_s)),
        Fit("start-up of a host", startup_s, "s", None, starts),
    )
    return FleetModel(last.topology, last.offer, costs, shares, settings, first.requested, fits)


def simulate_fleet(
    model: FleetModel, policy: Policy, rows: Floats, step_s: float = 1.0, seed: int = 0
) -> list[Turn]:
    """The turns of a policy in the simulated fleet. rows: arrivals in each `step_s` seconds.

    Two trigger intervals precede them, with the first rows and without decisions, because a fleet
    that has just started appears idle.
    """
    interval_s = model.settings.interval_s
    settling = math.ceil(2 * model.settings.trigger_s / interval_s)
    before_s = settling * interval_s
    early = rows[: max(1, round(before_s / step_s))].mean()
    rows = np.concatenate([np.full(round(before_s / step_s), early), rows])
    came_s: Floats = np.arange(len(rows), dtype=np.float64) * step_s
    world = QueryCloud(
        model.topology,
        model.offer,
        {name: (came_s, rows * share) for name, share in model.shares.items()},
        model.costs,
        initial=model.initial,
        settings=model.settings,
        seed=seed,
    )
    for _ in range(settling):
        world.advance(interval_s)
        world.observe()
    controller = Controller(world, policy, seed=seed)
    end_s = math.ceil(len(rows) * step_s / interval_s) * interval_s
    world.advance(interval_s)
    turns = []
    for turn in simulate(world, controller, end_s=end_s, interval_s=interval_s, decide_at_end=True):
        assert turn.snapshot is not None
        seen = replace(turn.snapshot, time_s=turn.snapshot.time_s - before_s)
        turns.append(replace(turn, snapshot=seen))
    return turns


def match_lengths(
    model: FleetModel, turns: Iterable[Turn], policy: Policy, rows: Floats, step_s: float = 1.0
) -> FleetModel:
    """The model with the median batch length of the live turns.

    A crowded host does not show how long a batch takes on an empty one. The length is therefore
    found by trial: simulate, compare, correct.
    """
    live_s = _median_length([turn.snapshot for turn in turns if turn.snapshot])
    for seed in range(ROUNDS):
        tried = simulate_fleet(model, policy, rows, step_s, seed)
        found_s = _median_length([turn.snapshot for turn in tried if turn.snapshot])
        if not live_s or not found_s or abs(found_s / live_s - 1) < CLOSE:
            break
        costs = {
            name: replace(cost, cores=min(MOST_CORES, cost.cores * found_s / live_s))
            for name, cost in model.costs.items()
        }
        model = replace(model, costs=costs)
    return model


def _median_length(seen: Sequence[Snapshot]) -> float | None:
    names = seen[-1].topology.by_name if seen else ()
    return _quantile([took_s for name in names for took_s in _durations(seen, name)], 0.5)


# --- fitting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Point:
    """A query in a turn: seconds between two batches, rows per second, and resources in use."""

    query: str
    period_s: float
    rows_per_s: float
    cores: float
    memory_mb: float
    network_mbps: float


def _points(snapshot: Snapshot) -> list[_Point]:
    found = []
    for instance in snapshot.instances:
        reading = snapshot.reading[instance.operator]
        rate, batches = reading.processed_per_s, reading.batches
        if instance.status == "running" and instance.load and rate is not None and batches:
            period_s = max(batches.trigger_interval_s, 1e-3)
            load = instance.load
            found.append(
                _Point(
                    instance.operator,
                    period_s,
                    rate,
                    load.cpu_cores,
                    load.memory_mb,
                    load.network_mbps,
                )
            )
    return found


def _work(points: Sequence[_Point]) -> tuple[float, float, float]:
    """CPU seconds of a batch and of a row, neither negative, and the relative residual."""
    table = np.array([(1 / p.period_s, p.rows_per_s) for p in points])
    cores = np.array([p.cores for p in points])
    best = np.zeros(2)
    least = math.inf
    for columns in ([0, 1], [0], [1]):  # both costs, or one if the other is negative
        found, *_ = np.linalg.lstsq(table[:, columns], cores, rcond=None)
        error = float(((table[:, columns] @ found - cores) ** 2).sum())
        if (found >= 0).all() and error < least:
            best, least = np.zeros(2), error
            best[columns] = found
    mean = float(cores.mean())
    residual = math.sqrt(least / len(points)) / mean if mean > 0 and least < math.inf else 0.0
    return float(best[0]), float(best[1]), residual


def _durations(seen: Sequence[Snapshot], name: str) -> list[float]:
    readings = [s.reading[name].batches for s in seen if name in s.reading]
    return [took_s for batches in readings if batches for took_s in batches.recent_durations_s]


def _usual(durations_s: Sequence[float]) -> tuple[float, float]:
    """The length of an undisturbed batch, and the squared coefficient of variation of its work.

    Estimated by quartiles, because waiting for others only makes batches longer.
    """
    low, middle = _quantile(durations_s, 0.25) or 1.0, _quantile(durations_s, 0.5) or 1.0
    return low, min(1.0, (2 * (middle - low) / 1.35 / middle) ** 2)


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def _cold(seen: Sequence[Snapshot], usual_s: Mapping[str, float]) -> tuple[float, int]:
    """Length of the first batch after a move, as a multiple of the usual; and number of moves."""
    ratios = []
    for name, alone_s in usual_s.items():
        moved = False
        for before, after in pairwise(seen):
            homes = [
                {i.operator: i.host for i in snapshot.instances}.get(name)
                for snapshot in (before, after)
            ]
            moved |= None not in homes and homes[0] != homes[1]
            batches = after.reading[name].batches if name in after.reading else None
            if moved and batches and len(batches.recent_durations_s) < FEWEST:
                ratios.append(batches.recent_durations_s[0] / alone_s)
                moved = False
    return max(1.0, statistics.median(ratios)) if ratios else 1.0, len(ratios)


def _startup(seen: Sequence[Snapshot]) -> tuple[float | None, int]:
    """Seconds from a host's lease until it runs, to the nearest turn; and number of hosts."""
    leased: dict[str, float] = {}
    took = []
    for snapshot in seen:
        for host in snapshot.hosts:
            if host.status == "starting":
                leased.setdefault(host.id, snapshot.time_s)
            elif host.id in leased:
                took.append(snapshot.time_s - leased.pop(host.id))
    return (statistics.fmean(took) if took else None), len(took)
