"""From a live run to the laboratory: the simulated application that a journal describes.

Everything is read off the snapshots: what an item costs, what a batch costs besides, how long an
executor takes to start. What was never seen stays missing, and the fit says on how many turns each
number rests and how well it explains them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pvariance

from tidegate.codec import Value, from_plain, to_plain
from tidegate.config import read_yaml
from tidegate.errors import JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import HostOffer, OperatorReading, Snapshot
from tidegate.model.topology import Topology
from tidegate.simulation import BatchSettings, CloudSettings, RunReport
from tidegate.simulation.scenario import Scenario
from tidegate.simulation.trace_input import read_workload
from tidegate.units import finite
from tidegate.workloads import RateTrace, Workload, peak_per_s

__all__ = [
    "BatchWorld",
    "Calibration",
    "Fit",
    "Summary",
    "batch_scenario",
    "calibrate",
    "calibrated_scenario",
    "compare",
    "has_batches",
    "load_world",
    "save_world",
]

FEWEST_TURNS = 5
"""Steady turns that a batch's overhead must rest on."""


@dataclass(frozen=True, slots=True)
class Fit(Value):
    """One fitted number. value: None where the journal does not tell. turns: that it rests on.

    residual: how far the turns are from it (root mean square), as a share of what was measured.
    """

    name: str
    value: float | None
    unit: str = ""
    residual: float | None = None
    turns: int = 0


@dataclass(frozen=True)
class BatchWorld(Value):
    """A simulated application, as it is written to and read from YAML.

    topology: with fitted service times. interval_s: between decisions; initial_hosts: at the start.
    """

    topology: Topology
    offer: HostOffer
    settings: BatchSettings
    interval_s: float
    initial_hosts: int = 1


@dataclass(frozen=True)
class Calibration(Value):
    """What a journal tells: a world, and the fits that it is made of."""

    world: BatchWorld
    fits: tuple[Fit, ...]
    turns: int


def has_batches(turns: Iterable[Turn]) -> bool:
    """Whether some turn has measured a query's micro-batches."""
    return any(r.batches for t in turns if t.snapshot for r in t.snapshot.operators)


def calibrate(turns: Iterable[Turn], name: str = "journal") -> Calibration:
    """Fit the simulated application to the turns of a journal. name: for error messages.

    Raises JournalError when they do not tell what a batch costs.
    """
    snapshots = [turn.snapshot for turn in turns if turn.snapshot is not None]
    if len(snapshots) < 2:
        remedy = "let the autoscaler run for some minutes; a dry run will do"
        raise JournalError(name, f"{len(snapshots)} snapshots", "at least two", remedy)
    last = snapshots[-1]
    topology = last.topology
    _check(topology, name)
    fits: list[Fit] = []
    overheads: dict[str, float] = {}
    variances: list[float] = []
    triggers: list[float] = []
    operators = []
    for operator in topology.operators:
        readings = [s.reading[operator.name] for s in snapshots]
        service = _service(readings, operator.name, name)
        scv = _mean_of([r.service_scv for r in readings])
        fits += [service, Fit(f"{operator.name}: service variation", scv[0], "", None, scv[1])]
        service_s = service.value or 0.0
        overhead, spread = _overhead(snapshots, operator.name, service_s, name)
        fits += [overhead, Fit(f"{operator.name}: overhead variation", spread)]
        overheads[operator.name] = overhead.value or 0.0
        variances.append(spread or 0.0)
        triggers += [r.batches.trigger_interval_s for r in readings if r.batches]
        operators.append(replace(operator, service_time_s=service_s, service_scv=scv[0] or 0.0))
    trigger_s = Counter(triggers).most_common(1)[0][0]
    startup = _startup(snapshots)
    rates = [s.external_rates() for s in snapshots]
    known = [sum(rate.values()) for rate in rates if rate is not None]
    interval_s = median(b.time_s - a.time_s for a, b in pairwise(snapshots))
    fits += [
        Fit("trigger interval", trigger_s, "s", None, len(triggers)),
        startup,
        Fit("slots of an executor", last.offer.capacity.cpu_cores, "", None, len(snapshots)),
        Fit("price of an executor", last.offer.usd_per_h, "$/h", None, len(snapshots)),
        Fit("input, mean", fmean(known) if known else None, "/s", None, len(known)),
        Fit("input, peak", max(known, default=None), "/s", None, len(known)),
        Fit("time between decisions", interval_s, "s", None, len(snapshots) - 1),
    ]
    startup_s = last.offer.startup_s if startup.value is None else startup.value
    lag = any(r.queue_length is not None for s in snapshots for r in s.operators)
    return Calibration(
        BatchWorld(
            replace(topology, operators=tuple(operators)),
            replace(last.offer, startup_s=startup_s),
            BatchSettings(
                overhead_s=fmean(overheads.values()),
                overheads_s=overheads,
                overhead_scv=fmean(variances),
                trigger_interval_s=trigger_s,
                lag_visible=lag,
            ),
            interval_s,
            max(1, len(snapshots[0].running_hosts)),
        ),
        tuple(fits),
        len(snapshots),
    )


def _check(topology: Topology, name: str) -> None:
    several = len(topology.operators) > 1
    if several and all(operator.max_instances == 1 for operator in topology.operators):
        remedy = "record a run with a policy that does not place shards, such as drs or static"
        raise JournalError(name, "shards of a query", "a journal of whole queries", remedy)
    if len(topology.sources) != 1:
        value = f"{len(topology.sources)} sources"
        raise JournalError(name, value, "a journal of one source", "record one query at a time")


def _mean_of(values: Iterable[float | None]) -> tuple[float | None, int]:
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None), len(known)


def _service(readings: Sequence[OperatorReading], operator: str, name: str) -> Fit:
    """Slot-seconds an item: the median over turns, each by the items that it saw.

    Not the mean: in the first batches a few items carry all that a cold JVM has to compile.
    """
    seen = [
        (r.service_time_s, r.processed_per_s if r.processed_per_s is not None else 1.0)
        for r in readings
        if r.service_time_s
    ]
    weight = sum(items for _, items in seen)
    if not seen or weight <= 0:
        remedy = "its queries must have processed something while it was recorded"
        raise JournalError(name, f"{operator} without a service time", "one with it", remedy)
    service_s = _median(seen)
    residual = _median([(abs(value / service_s - 1), items) for value, items in seen])
    return Fit(f"{operator}: slot time an item", service_s, "s", residual, len(seen))


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """The value below and above which lies half of the weight. weighted: values with theirs."""
    half, so_far = sum(weight for _, weight in weighted) / 2, 0.0
    for value, weight in sorted(weighted):
        so_far += weight
        if so_far >= half:
            return value
    raise AssertionError("nothing has no median")


@dataclass(frozen=True, slots=True)
class _Steady:
    """A turn in which nothing changed: a batch took `took_s` with `each` items for each slot."""

    took_s: float
    each: float
    load: float
    variance: float


def _steady_turns(snapshots: Sequence[Snapshot], operator: str, service_s: float) -> list[_Steady]:
    """Turns with the slots of the turn before, no backlog, and batches that are alike."""
    found = []
    for before, now in pairwise(snapshots):
        reading, earlier = now.reading[operator], before.reading[operator]
        slots = now.running.counts[operator]
        rates = [r for r in (earlier.arrival_rate_per_s, reading.arrival_rate_per_s) if r]
        batches = reading.batches
        if not rates or not slots or batches is None or not batches.recent_durations_s:
            continue
        if before.running != now.running or before.requested != now.requested:
            continue
        durations = batches.recent_durations_s
        period_s = max(batches.trigger_interval_s, median(durations))
        recent = durations[-max(1, math.floor((now.time_s - before.time_s) / period_s)) :]
        took_s, rate = fmean(recent), fmean(rates)
        load = rate * service_s / slots
        period_s = max(batches.trigger_interval_s, took_s)
        backlog = (reading.queue_length or 0.0) > 2 * rate * period_s
        if load >= 1 or backlog or max(durations) > 2 * median(durations):
            continue
        found.append(_Steady(took_s, rate * period_s / slots, load, pvariance(durations)))
    return found


def _overhead(
    snapshots: Sequence[Snapshot], operator: str, service_s: float, name: str
) -> tuple[Fit, float | None]:
    """What a batch takes beyond its items, and the squared coefficient of variation of that.

    A line through (items a slot, duration) whose slope is known, the service time: its height is
    the median of what is left. Where too few turns were steady, what the journal itself measured.
    """
    turns = _steady_turns(snapshots, operator, service_s)
    label = f"{operator}: overhead of a batch"
    if len(turns) < FEWEST_TURNS:
        batches = [s.reading[operator].batches for s in snapshots]
        measured, count = _mean_of(b.overhead_s if b else None for b in batches)
        if measured is None or count < FEWEST_TURNS:
            value = f"{len(turns)} steady turns of {operator}"
            allowed = f"at least {FEWEST_TURNS}, or as many with a measured overhead"
            remedy = "record for longer, with input and some turns between two changes"
            raise JournalError(name, value, allowed, remedy)
        return Fit(label, measured, "s", None, count), None
    left = [turn.took_s - service_s * turn.each for turn in turns]
    overhead = max(0.0, median(left))
    error = math.sqrt(fmean((value - overhead) ** 2 for value in left))
    residual = error / fmean(turn.took_s for turn in turns)
    # Back to back, a long batch makes the next one longer: D' = o + load · D widens the spread.
    spread = fmean(turn.variance * (1 - turn.load**2) for turn in turns)
    scv = spread / overhead**2 if overhead > 0 else None
    return Fit(label, overhead, "s", residual, len(turns)), scv


def _startup(snapshots: Sequence[Snapshot]) -> Fit:
    """From the request of an executor until it runs: halfway between two turns that bracket it."""
    asked: dict[str, float] = {}
    waiting: dict[str, float] = {}
    delays = []
    for snapshot in snapshots:
        for host in snapshot.hosts:
            if host.status == "starting":
                started = host.lease.started_s if host.lease else snapshot.time_s
                asked.setdefault(host.id, started)
                waiting[host.id] = snapshot.time_s
            elif host.status == "running" and host.id in waiting:
                middle = (waiting.pop(host.id) + snapshot.time_s) / 2
                delays.append(middle - asked[host.id])
    if not delays:
        return Fit("start-up of an executor", None, "s")
    mean = fmean(delays)
    residual = math.sqrt(pvariance(delays)) / mean if mean > 0 else None
    return Fit("start-up of an executor", mean, "s", residual, len(delays))


# --- files ------------------------------------------------------------------------------------


def save_world(world: BatchWorld, path: str | Path) -> None:
    """Write a world as YAML, with its folder."""
    import yaml

    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(to_plain(world), sort_keys=False, allow_unicode=True)
    file.write_text("# For tidegate backtest --world; written by tidegate calibrate.\n" + text)


def load_world(path: str | Path) -> BatchWorld:
    """Read a world that `save_world` wrote."""
    return from_plain(BatchWorld, read_yaml(path))


# --- back to the laboratory -------------------------------------------------------------------


def batch_scenario(
    world: BatchWorld, workload: Workload, slo_s: float, penalty_usd: float | None = None
) -> Scenario:
    """The world as a scenario that policies are tried on.

    slo_s: end to end, in seconds. penalty_usd: for each late item; None: ten times what it costs
    to process one.
    """
    finite(slo_s, "slo_s", above=0)
    operators, cores = world.topology.operators, world.offer.capacity.cpu_cores
    work_s = sum(operator.service_time_s or 0.0 for operator in operators)
    if penalty_usd is None:
        penalty_usd = 10 * world.offer.usd_per_h / 3600 * work_s / cores
    (source,) = world.topology.sources
    if isinstance(workload, RateTrace):
        workload = replace(workload, source=source.name)
    peak_hosts = max(1, math.ceil(peak_per_s(workload) * work_s / (0.7 * cores)))
    promised = tuple(replace(o, slo_s=slo_s) for o in operators)  # as the live world has it
    startup_s = world.offer.startup_s
    return Scenario(
        topology=replace(world.topology, operators=promised),
        offer=world.offer,
        workload=workload,
        slo_s=slo_s,
        interval_s=world.interval_s,
        duration_s=workload.duration_s,
        settings=CloudSettings(
            host_startup_s=(startup_s, startup_s),
            end_to_end_slo_s=slo_s,
            penalty_usd=penalty_usd,
            decision_s=world.interval_s,
        ),
        initial_hosts=world.initial_hosts,
        shards=max(8, 4 * math.floor(cores) * peak_hosts // 3),
        batches=replace(
            world.settings,
            end_to_end_slo_s=slo_s,
            penalty_usd=penalty_usd,
            decision_s=world.interval_s,
        ),
    )


def calibrated_scenario(
    journal: str | Path, slo_s: float, world: BatchWorld | None = None, seed: int = 0
) -> Scenario:
    """A journal's traffic in the world that it describes, or in the one given."""
    if world is None:
        world = calibrate(read_journal(journal), Path(journal).name).world
    return batch_scenario(world, read_workload(journal, seed=seed), slo_s)


@dataclass(frozen=True, slots=True)
class Summary(Value):
    """What a run came to, live or simulated. slo_compliance: share of the items in time."""

    mean_executors: float
    p95_s: float | None
    slo_compliance: float | None

    @staticmethod
    def of(report: RunReport) -> Summary:
        """The summary of a simulated run."""
        mean = report.host_seconds / report.duration_s if report.duration_s else 0.0
        return Summary(mean, report.latency_p95_s, report.slo_compliance)


def compare(live: Summary, simulated: Summary | RunReport) -> dict[str, float | None]:
    """How far a simulation is from the live run, as shares of the live one; None where unknown.

    >>> live, simulated = Summary(4.0, 2.0, 0.98), Summary(3.8, 2.5, 0.98)
    >>> {name: round(gap, 3) for name, gap in compare(live, simulated).items()}
    {'mean_executors': -0.05, 'p95_s': 0.25, 'slo_compliance': 0.0}
    """
    other = Summary.of(simulated) if isinstance(simulated, RunReport) else simulated
    gaps: dict[str, float | None] = {}
    for name in ("mean_executors", "p95_s", "slo_compliance"):
        was, is_now = getattr(live, name), getattr(other, name)
        gaps[name] = None if not was or is_now is None else is_now / was - 1
    return gaps
