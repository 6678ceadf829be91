"""Calibration: fit a simulated application to the journal of a live run.

All figures come from the snapshots: the cost of an item, the overhead of a batch, the start-up time
of an executor. Figures that were never measured stay missing. Each fit states the number of turns
behind it and how well it explains them.
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
from tidegate.policies.base import Policy
from tidegate.simulation import BatchSettings, CloudSettings, RunReport
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario
from tidegate.simulation.trace_input import read_workload, recorded
from tidegate.units import finite
from tidegate.workloads import RateTrace, Workload, peak_per_s

__all__ = [
    "BatchWorld",
    "Calibration",
    "CalibrationSummary",
    "Fit",
    "batch_scenario",
    "calibrate",
    "calibrated_scenario",
    "compare",
    "counterfactual",
    "has_batches",
    "load_world",
    "save_world",
]

FEWEST_TURNS = 5
"""Fewest steady turns for the overhead of a batch."""


@dataclass(frozen=True, slots=True)
class Fit(Value):
    """One fitted number.

    name, unit: as text. value: None if the journal does not contain it. residual: root mean
    square error over the turns, relative to the measurements. turns: number of turns behind it.
    """

    name: str
    value: float | None
    unit: str = ""
    residual: float | None = None
    turns: int = 0


@dataclass(frozen=True)
class BatchWorld(Value):
    """A simulated application, as YAML files describe it.

    topology: with fitted service times. offer: what can be leased. settings: how it behaves.
    interval_s: time between two decisions, in seconds. initial_hosts: hosts at the start.
    """

    topology: Topology
    offer: HostOffer
    settings: BatchSettings
    interval_s: float
    initial_hosts: int = 1


@dataclass(frozen=True)
class Calibration(Value):
    """The result of a calibration: a world and the fits behind it. turns: turns in the journal."""

    world: BatchWorld
    fits: tuple[Fit, ...]
    turns: int


def has_batches(turns: Iterable[Turn]) -> bool:
    """Whether any turn has measured the micro-batches of a query."""
    return any(r.batches for t in turns if t.snapshot for r in t.snapshot.operators)


def calibrate(turns: Iterable[Turn], name: str = "journal") -> Calibration:
    """Fit the simulated application to the turns of a journal. name: for error messages.

    Raises JournalError if the cost of a batch cannot be determined.
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
    """Slot-seconds of an item: the median over turns, weighted by their items.

    The mean would be wrong: in the first batches a few items bear all compilation by a cold JVM.
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
    """Weighted median. weighted: values with their weights."""
    half, so_far = sum(weight for _, weight in weighted) / 2, 0.0
    for value, weight in sorted(weighted):
        so_far += weight
        if so_far >= half:
            return value
    raise AssertionError("nothing has no median")


@dataclass(frozen=True, slots=True)
class _Steady:
    """A turn without changes: a batch took `took_s` with `each` items for each slot."""

    took_s: float
    each: float
    load: float
    variance: float


def _steady_turns(snapshots: Sequence[Snapshot], operator: str, service_s: float) -> list[_Steady]:
    """Turns with the slots of the previous turn, no backlog and similar batches."""
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
    """Overhead of a batch, and its squared coefficient of variation.

    Durations are linear in items per slot, and the slope is the service time. The overhead is the
    median of the rest. With too few steady turns it is the overhead that the journal measured.
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
    """Time from the request of an executor until it runs, to the middle between two turns."""
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
    """Write a world as YAML; creates the folder if needed."""
    import yaml

    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(to_plain(world), sort_keys=False, allow_unicode=True)
    file.write_text("# For tidegate backtest --world; written by tidegate calibrate.\n" + text)


def load_world(path: str | Path) -> BatchWorld:
    """Read a world that `save_world` wrote."""
    return from_plain(BatchWorld, read_yaml(path))


# --- simulation -------------------------------------------------------------------------------


def batch_scenario(
    world: BatchWorld, workload: Workload, slo_s: float, penalty_usd: float | None = None
) -> Scenario:
    """A scenario for backtests in a calibrated world.

    slo_s: end-to-end latency target, in seconds. penalty_usd: penalty for each late item; None for
    ten times the cost of processing one.
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
    """The traffic of a journal in the world that it describes, or in `world`."""
    if world is None:
        world = calibrate(read_journal(journal), Path(journal).name).world
    return batch_scenario(world, read_workload(journal, seed=seed), slo_s)


def counterfactual(
    turns: Sequence[Turn], policy: Policy, slo_s: float, name: str = "journal", seed: int = 0
) -> RunReport:
    """Run a policy on the traffic of recorded turns, in a world that was calibrated from them.

    A dry run reports in this way what its policy would have cost and how often it would have been
    late: executors that were never requested cannot be observed, only simulated.

    slo_s: end-to-end latency target, in seconds. name: for error messages. Raises JournalError if
    the turns do not contain enough (see `calibrate`).
    """
    scenario = batch_scenario(calibrate(turns, name).world, recorded(turns, name, seed), slo_s)
    return run(
        scenario.world(policy.style, seed),
        policy,
        duration_s=scenario.duration_s,
        interval_s=scenario.interval_s,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class CalibrationSummary(Value):
    """Results of a live or simulated run. slo_compliance: share of items within the target."""

    mean_executors: float
    p95_s: float | None
    slo_compliance: float | None

    @staticmethod
    def of(report: RunReport) -> CalibrationSummary:
        """The summary of a simulated run."""
        mean = report.host_seconds / report.duration_s if report.duration_s else 0.0
        return CalibrationSummary(mean, report.latency_p95_s, report.slo_compliance)


def compare(
    live: CalibrationSummary, simulated: CalibrationSummary | RunReport
) -> dict[str, float | None]:
    """Relative differences of a simulation from the live run; None where unknown.

    >>> live = CalibrationSummary(4.0, 2.0, 0.98)
    >>> simulated = CalibrationSummary(3.8, 2.5, 0.98)
    >>> {name: round(gap, 3) for name, gap in compare(live, simulated).items()}
    {'mean_executors': -0.05, 'p95_s': 0.25, 'slo_compliance': 0.0}
    """
    other = CalibrationSummary.of(simulated) if isinstance(simulated, RunReport) else simulated
    gaps: dict[str, float | None] = {}
    for name in ("mean_executors", "p95_s", "slo_compliance"):
        was, is_now = getattr(live, name), getattr(other, name)
        gaps[name] = None if not was or is_now is None else is_now / was - 1
    return gaps
