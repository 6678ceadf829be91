"""Calibration: fit a simulated application to the journal of a live run.

All figures come from the snapshots: the costs of a batch and of an item (`batch_fits`), the
start-up time of an executor, the trigger, the ceiling and the latency target of each query. Figures
that were never measured stay missing. Each fit states the number of turns behind it and how well it
explains them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from tidegate.codec import Value, from_plain, to_plain
from tidegate.config import read_yaml
from tidegate.errors import InputError, JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import HostOffer, SloByQuery, Snapshot
from tidegate.model.topology import Operator, Topology
from tidegate.outputs import write_output
from tidegate.policies.base import Policy
from tidegate.simulation import BatchSettings, CloudSettings, RunReport
from tidegate.simulation.batch_fits import (
    Fit,
    QueryFit,
    fit_query,
    fit_startup,
    shares_slots,
)
from tidegate.simulation.replay_fits import Replay, fit_shared
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
    "QuerySummary",
    "batch_scenario",
    "calibrate",
    "calibrated_scenario",
    "compare",
    "counterfactual",
    "has_batches",
    "load_world",
    "save_world",
]

Slo = float | Mapping[str, float] | SloByQuery


@dataclass(frozen=True)
class BatchWorld(Value):
    """A simulated application, as YAML files describe it.

    topology: with fitted service times. offer: what can be leased. settings: how it behaves.
    interval_s: time between two decisions, in seconds. initial_hosts: hosts at the start. slo_s:
    recorded latency target, in seconds. If it is given, an operator of the topology has a target
    only if that is another one.
    """

    topology: Topology
    offer: HostOffer
    settings: BatchSettings
    interval_s: float
    initial_hosts: int = 1
    slo_s: float | None = None


@dataclass(frozen=True)
class Calibration(Value):
    """The result of a calibration: a world and the fits behind it. turns: turns in the journal."""

    world: BatchWorld
    fits: tuple[Fit, ...]
    turns: int


def has_batches(turns: Iterable[Turn]) -> bool:
    """Whether any turn has measured the micro-batches of a query."""
    return any(r.batches for t in turns if t.snapshot for r in t.snapshot.operators)


def calibrate(
    turns: Iterable[Turn], name: str = "journal", go_on: Callable[[], bool] = lambda: True
) -> Calibration:
    """Fit the simulated application to the turns of a journal.

    name: for error messages. go_on: asked now and then; if it says no, overheads of queries that
    share slots stay as they were measured. Raises JournalError if the cost of a batch cannot be
    determined.
    """
    turns = [turn for turn in turns if turn.snapshot is not None]
    snapshots = [turn.snapshot for turn in turns if turn.snapshot is not None]
    if len(snapshots) < 2:
        remedy = "let the autoscaler run for some minutes; a dry run will do"
        raise JournalError(name, f"{len(snapshots)} snapshots", "at least two", remedy)
    last = snapshots[-1]
    topology = last.topology
    _check(topology, name)
    shared = shares_slots(snapshots)
    found = {o.name: fit_query(snapshots, o, shared, name) for o in topology.operators}
    working = [fit for fit in found.values() if fit.service_s is not None]
    if not working:
        remedy = "its queries must have processed something while it was recorded"
        names = ", ".join(topology.by_name)
        raise JournalError(name, f"{names} without a service time", "one with it", remedy)
    startup = fit_startup(snapshots)
    interval_s = median(b.time_s - a.time_s for a, b in pairwise(snapshots))
    slo_s = _recorded_slo_s(turns, topology)
    world = BatchWorld(
        replace(
            topology,
            operators=tuple(_fitted(o, found[o.name], working, slo_s) for o in topology.operators),
        ),
        replace(
            last.offer, startup_s=last.offer.startup_s if startup.value is None else startup.value
        ),
        _settings(found, working, snapshots, shared),
        interval_s,
        max(1, len(snapshots[0].running_hosts)),
        slo_s,
    )
    fits = [fit for query in found.values() for fit in query.fits]
    if shared:
        source = topology.sources[0].name if topology.sources else "input"
        workload = recorded(turns, name, source=source)
        replay = Replay(world.offer, snapshots, workload, go_on)
        together = fit_shared(world.topology, world.settings, replay)
        world = replace(world, topology=together.topology, settings=together.settings)
        fits = together.shown(fits)
    return Calibration(
        world,
        (*fits, *_common_fits(world, snapshots, startup, slo_s, topology)),
        len(snapshots),
    )


def _fitted(
    operator: Operator, fit: QueryFit, working: Sequence[QueryFit], slo_s: float | None
) -> Operator:
    """An operator with its fitted costs; an idle one has those of the others."""
    usual_s = median(other.service_s or 0.0 for other in working)
    own_s = None if operator.slo_s == slo_s else operator.slo_s
    service_s = usual_s if fit.service_s is None else fit.service_s
    return replace(operator, service_time_s=service_s, service_scv=fit.service_scv, slo_s=own_s)


def _common_scv(fits: Sequence[QueryFit]) -> float:
    """Squared coefficient of variation of the overheads of queries, which share one.

    It is the sum of their variances over that of their squares. Hardly any overhead has a huge
    coefficient, although it hardly varies: a mean of coefficients would be that of nobody.
    """
    squares = [(fit.overhead_s or 0.0) ** 2 for fit in fits]
    varied = math.fsum(fit.overhead_scv * square for fit, square in zip(fits, squares, strict=True))
    return varied / math.fsum(squares) if any(squares) else 0.0


def _settings(
    found: Mapping[str, QueryFit],
    working: Sequence[QueryFit],
    snapshots: Sequence[Snapshot],
    shared: bool,
) -> BatchSettings:
    triggers = [fit.trigger_s for fit in found.values() if fit.trigger_s is not None]
    trigger_s = Counter(triggers).most_common(1)[0][0] if triggers else 0.0
    overheads = {name: fit.overhead_s for name, fit in found.items() if fit.overhead_s is not None}
    return BatchSettings(
        overhead_s=fmean(overheads.values()),
        overheads_s=overheads,
        overhead_scv=_common_scv(working),
        fixed_works_s={n: fit.fixed_work_s for n, fit in found.items() if fit.fixed_work_s},
        trigger_interval_s=trigger_s,
        trigger_intervals_s={
            n: fit.trigger_s for n, fit in found.items() if fit.trigger_s not in (None, trigger_s)
        },
        max_rows={n: fit.max_rows for n, fit in found.items() if fit.max_rows is not None},
        shared=shared,
        lag_visible=any(r.queue_length is not None for s in snapshots for r in s.operators),
    )


def _common_fits(
    world: BatchWorld,
    snapshots: Sequence[Snapshot],
    startup: Fit,
    slo_s: float | None,
    topology: Topology,
) -> list[Fit]:
    """The fits that concern the whole application, and the latency targets."""
    rates = [s.external_rates() for s in snapshots]
    known = [sum(rate.values()) for rate in rates if rate is not None]
    count, offer = len(snapshots), world.offer
    targets = [
        Fit(f"{o.name}: latency target", o.slo_s, "s", None, count)
        for o in topology.operators
        if o.slo_s not in (None, slo_s)
    ]
    return [
        Fit("trigger interval", world.settings.trigger_interval_s, "s", None, count),
        startup,
        Fit("slots of an executor", offer.capacity.cpu_cores, "", None, count),
        Fit("price of an executor", offer.usd_per_h, "$/h", None, count),
        Fit("latency target", slo_s, "s", None, count if slo_s is not None else 0),
        *targets,
        Fit("input, mean", fmean(known) if known else None, "/s", None, len(known)),
        Fit("input, peak", max(known, default=None), "/s", None, len(known)),
        Fit("time between decisions", world.interval_s, "s", None, count - 1),
    ]


def _recorded_slo_s(turns: Sequence[Turn], topology: Topology) -> float | None:
    """The latency target of the queries without their own one, in seconds."""
    given = [turn.slo_s for turn in turns if turn.slo_s is not None]
    if given:
        return given[-1]
    of_queries = Counter(o.slo_s for o in topology.operators if o.slo_s is not None)
    return of_queries.most_common(1)[0][0] if of_queries else None


def _check(topology: Topology, name: str) -> None:
    several = len(topology.operators) > 1
    if several and all(operator.max_instances == 1 for operator in topology.operators):
        remedy = "record a run with a policy that does not place shards, such as drs or static"
        raise JournalError(name, "shards of a query", "a journal of whole queries", remedy)


# --- files ------------------------------------------------------------------------------------


def save_world(world: BatchWorld, path: str | Path) -> None:
    """Write a world as YAML; creates the folder if needed."""
    import yaml

    text = yaml.safe_dump(to_plain(world), sort_keys=False, allow_unicode=True)
    heading = "# For tidegate backtest --world; written by tidegate calibrate.\n"
    write_output(path, heading + text, "--out")


def load_world(path: str | Path) -> BatchWorld:
    """Read a world that `save_world` wrote."""
    return from_plain(BatchWorld, read_yaml(path))


# --- simulation -------------------------------------------------------------------------------


def batch_scenario(
    world: BatchWorld,
    workload: Workload,
    slo: Slo | None = None,
    penalty_usd: float | None = None,
) -> Scenario:
    """A scenario for backtests in a calibrated world.

    slo: latency target in seconds, for all queries without their own one in the world; or targets
    by query, with ``*`` for all others; None for the recorded ones. penalty_usd: penalty for each
    late item; None for ten times the cost of processing one.
    """
    rest_s, targets = _targets(world, slo)
    cores = world.offer.capacity.cpu_cores
    names = [source.name for source in world.topology.sources]
    if isinstance(workload, RateTrace):
        if len(names) != 1:
            remedy = "backtest the journal itself, which has the input of each query"
            raise InputError("workload", "one source", f"one for each of {names}", remedy)
        workload = replace(workload, source=names[0])
    promised = tuple(replace(o, slo_s=targets[o.name]) for o in world.topology.operators)
    startup_s = world.offer.startup_s
    scenario = Scenario(
        topology=replace(world.topology, operators=promised),
        offer=world.offer,
        workload=workload,
        slo_s=rest_s,
        interval_s=world.interval_s,
        duration_s=workload.duration_s,
        settings=CloudSettings(
            host_startup_s=(startup_s, startup_s),
            end_to_end_slo_s=rest_s,
            decision_s=world.interval_s,
        ),
        initial_hosts=world.initial_hosts,
        batches=replace(world.settings, end_to_end_slo_s=rest_s, decision_s=world.interval_s),
    )
    work_s = scenario.work_s
    if penalty_usd is None:
        penalty_usd = 10 * world.offer.usd_per_h / 3600 * work_s / cores
    peak_hosts = max(1, math.ceil(peak_per_s(workload) * work_s / (0.7 * cores)))
    assert scenario.batches is not None
    return replace(
        scenario,
        settings=replace(scenario.settings, penalty_usd=penalty_usd),
        shards=max(8, 4 * math.floor(cores) * peak_hosts // 3),
        batches=replace(scenario.batches, penalty_usd=penalty_usd),
    )


def _targets(world: BatchWorld, slo: Slo | None) -> tuple[float, dict[str, float]]:
    """The latency target of most queries, and that of each query, in seconds."""
    operators = world.topology.operators
    if isinstance(slo, Mapping | SloByQuery):
        targets = SloByQuery.read(slo)
        if unknown := targets.unknown(world.topology.by_name):
            known = f"a query: {', '.join(world.topology.by_name)}"
            raise InputError("slo of", unknown[0], known)
        return targets.default_s, {o.name: targets.of(o.name) for o in operators}
    chosen_s = world.slo_s if slo is None else slo
    if chosen_s is None:
        raise InputError("slo", None, "given", "the world has no recorded latency target")
    rest_s = finite(chosen_s, "slo", above=0)
    if world.slo_s is None:  # a world of an older version, in which every target is the recorded
        return rest_s, {o.name: rest_s for o in operators}
    return rest_s, {o.name: rest_s if o.slo_s is None else o.slo_s for o in operators}


def calibrated_scenario(
    journal: str | Path,
    slo: Slo | None = None,
    world: BatchWorld | None = None,
    seed: int = 0,
) -> Scenario:
    """The traffic of a journal in the world that it describes, or in `world`.

    slo: as in `batch_scenario`.
    """
    if world is None:
        world = calibrate(read_journal(journal), Path(journal).name).world
    return batch_scenario(world, read_workload(journal, seed=seed), slo)


def counterfactual(
    turns: Sequence[Turn],
    policy: Policy,
    slo: Slo | None = None,
    name: str = "journal",
    seed: int = 0,
    go_on: Callable[[], bool] = lambda: True,
) -> RunReport:
    """Run a policy on the traffic of recorded turns, in a world that was calibrated from them.

    A dry run reports in this way what its policy would have cost and how often it would have been
    late: executors that were never requested cannot be observed, only simulated.

    slo: as in `batch_scenario`. name: for error messages. go_on: as in `run`. Raises JournalError
    if the turns do not contain enough (see `calibrate`).
    """
    world = calibrate(turns, name, go_on).world
    scenario = batch_scenario(world, recorded(turns, name, seed), slo)
    return run(
        scenario.world(policy.style, seed),
        policy,
        duration_s=scenario.duration_s,
        interval_s=scenario.interval_s,
        seed=seed,
        go_on=go_on,
    )


@dataclass(frozen=True, slots=True)
class QuerySummary(Value):
    """Results of one query. p95_s: 95th percentile of its delay. in_time: share within its SLO."""

    p95_s: float | None
    in_time: float | None


@dataclass(frozen=True, slots=True)
class CalibrationSummary(Value):
    """Results of a live or simulated run.

    slo_compliance: share of items within their target. queries: results by query.
    """

    mean_executors: float
    p95_s: float | None
    slo_compliance: float | None
    queries: Mapping[str, QuerySummary] = field(default_factory=dict)

    @staticmethod
    def of(report: RunReport) -> CalibrationSummary:
        """The summary of a simulated run."""
        mean = report.host_seconds / report.duration_s if report.duration_s else 0.0
        queries = {
            o.operator: QuerySummary(o.p95_duration_s, o.in_time)
            for o in report.operators
            if len(report.operators) > 1
        }
        return CalibrationSummary(mean, report.latency_p95_s, report.slo_compliance, queries)


def compare(
    live: CalibrationSummary, simulated: CalibrationSummary | RunReport
) -> dict[str, float | None]:
    """Relative differences of a simulation from the live run; None where unknown.

    Those of a query have its name before them, such as ``alerts: p95_s``.

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
    for query, then in live.queries.items():
        now = other.queries.get(query)
        for name in ("p95_s", "in_time") if now is not None else ():
            was, is_now = getattr(then, name), getattr(now, name)
            gap = None if not was or is_now is None else is_now / was - 1
            gaps[f"{query}: {name}"] = gap
    return gaps
