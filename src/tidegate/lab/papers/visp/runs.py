"""The runs of the VISP experiment: which readings of the paper are tried, and what is kept of them.

Two readings are laid beside the tables: the algorithms *as published*, and *as coded*, with
everything that the authors' code does and the paper does not say. The others each change one thing
and answer one question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from tidegate.lab.papers.visp.tables import COLUMNS, Cell, Table
from tidegate.lab.papers.visp.world import (
    CONFIGURATIONS,
    MINUTES,
    PATTERNS,
    PENALTY,
    Configuration,
    Run,
    Variant,
    drive,
)
from tidegate.policies.btu import QUIRKS
from tidegate.workloads.papers import Pattern

__all__ = [
    "CODED",
    "EXACT",
    "PUBLISHED_WAY",
    "Job",
    "Results",
    "Summary",
    "jobs",
    "mixed_table",
    "run_all",
]

PUBLISHED_WAY = Variant("as published")
CODED = Variant(
    "as coded",
    quirks=frozenset(QUIRKS),
    thresholds=(250.0, 1250.0, 20.0),
    unacknowledged=True,
    penalty=0.01,
)
EXACT = replace(PUBLISHED_WAY, name="exact clock", whole_seconds=False)
CODED_EXACT = replace(CODED, name="as coded, exact clock", whole_seconds=False)
SLEEPS = replace(PUBLISHED_WAY, name="sleeps only", occupancy="sleeps")
CODE_DEMANDS = replace(CODED, name="as coded, its demands", code_demands=True)
ON_THE_MINUTE = replace(CODED, name="as coded, turns on the minute", turn_delay_s=0.0)
LITERAL = replace(PUBLISHED_WAY, name="window of exactly 5 %", literal_window=True)
BROKER = replace(PUBLISHED_WAY, name="50/250/1, items in work count", unacknowledged=True)
COMMITTED = replace(PUBLISHED_WAY, name="250/1250/20", thresholds=(250.0, 1250.0, 20.0))

RAN = tuple(c for c in CONFIGURATIONS if c.name not in ("THR30", "THR60"))
"""The paper's four: the baseline does not look at the billing unit, so one run prices all three."""
BTU10, THR10 = RAN[0], RAN[3]


@dataclass(frozen=True, slots=True)
class Job:
    """One run to do."""

    variant: Variant
    pattern: Pattern
    configuration: Configuration
    seed: int


@dataclass(frozen=True)
class Summary:
    """What is kept of a run.

    cells: by column (the baseline's three). items: processed, over all operators. operations:
    instances started, stopped and moved. correlation: of instances with volume over time.
    series: minutes, volume in items per second, instances and hosts; only where it is drawn.
    """

    cells: Mapping[str, Cell]
    items: int
    operations: int
    stops: int
    made_way: int
    correlation: float
    mean_hosts: float
    mean_instances: float
    series: tuple[Sequence[float], ...] = ()


@dataclass
class Results:
    """All runs by variant, pattern, column and seed."""

    runs: dict[tuple[str, str, str, int], Summary] = field(default_factory=dict)

    def seeds(self, variant: Variant) -> list[int]:
        """Seeds for which the variant has a full table."""
        return sorted({key[3] for key in self.runs if key[0] == variant.name})

    def table(self, variant: Variant, seed: int | None = None) -> Table:
        """The variant's tables for one seed, or their mean over all."""
        seeds = self.seeds(variant) if seed is None else [seed]
        table: dict[tuple[str, str], Cell] = {}
        for pattern in PATTERNS:
            for column in COLUMNS:
                ran = "THR10" if column.startswith("THR") else column
                found = [self.runs[variant.name, pattern, ran, s].cells[column] for s in seeds]
                table[pattern, column] = mean_cell(found)
        return table

    def mean(
        self,
        variant: Variant,
        pattern: str,
        column: str,
        what: Callable[[Summary], float],
        seed: int | None = None,
    ) -> float:
        """The mean of some figure over the seeds of one kind of run, or that of one seed."""
        seeds = self.seeds(variant) if seed is None else [seed]
        return fmean(what(self.runs[variant.name, pattern, column, s]) for s in seeds)


def mixed_table(results: Results) -> Table:
    """BTU-based as coded beside the baseline as published: nobody knows which thresholds ran."""
    baseline, based = results.table(PUBLISHED_WAY), results.table(CODED)
    return {key: (baseline if key[1].startswith("THR") else based)[key] for key in based}


def mean_cell(cells: Sequence[Cell]) -> Cell:
    """The mean of cells, figure by figure."""

    def mean_of(triples: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
        first, second, third = (fmean(values) for values in zip(*triples, strict=True))
        return first, second, third

    return Cell(
        mean_of(cell.in_time for cell in cells),
        fmean(cell.resource for cell in cells),
        mean_of(cell.total for cell in cells),
    )


def summarise(run: Run, configuration: Configuration, keep_series: bool) -> Summary:
    """The figures of a run."""
    report = run.report
    if report.compliance is None:
        raise ValueError("nothing was processed, so nothing can be said about compliance")
    shares = report.compliance
    in_time = (shares.real_time, shares.near_real_time, shares.relaxed)
    items = sum(operator.processed for operator in report.operators)
    late = [items * (1 - share) for share in in_time]
    costs = {configuration.name: report.resource_cost_usd}
    if not configuration.btu:
        costs |= {f"THR{minutes}": run.cost_at(minutes) for minutes in (30, 60)}
    cells = {
        column: Cell(
            (100 * in_time[0], 100 * in_time[1], 100 * in_time[2]),
            cost,
            (cost + PENALTY * late[0], cost + PENALTY * late[1], cost + PENALTY * late[2]),
        )
        for column, cost in costs.items()
    }
    columns = report.series
    volume = _floats(columns.arrival_rate_per_s)
    hosts = _floats(columns.hosts)
    instances = np.sum([_floats(o["instances"]) for o in columns.operators.values()], axis=0)
    moving = instances.std() > 0 and volume.std() > 0
    series: tuple[Sequence[float], ...] = ()
    if keep_series:
        minutes = _floats(columns.time_s) / 60
        series = tuple(values[::2].tolist() for values in (minutes, volume, instances, hosts))
    return Summary(
        cells,
        items,
        operations=sum(report.steps[kind] for kind in ("start", "stop", "move")),
        stops=report.steps["stop"],
        made_way=run.reasons.get("make-way", 0),
        correlation=float(np.corrcoef(volume, instances)[0, 1]) if moving else 0.0,
        mean_hosts=float(hosts.mean()),
        mean_instances=float(instances.mean()),
        series=series,
    )


def _floats(values: Iterable[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([0.0 if value is None else value for value in values])


def jobs(quick: bool, seeds: int) -> list[Job]:
    """Every run of the experiment; quick: the exact clock with one seed, no quirks one by one."""
    chosen = range(1, seeds + 1)
    few = range(1, 2) if quick else chosen
    found = [
        Job(variant, pattern, configuration, seed)
        for variant, some in ((PUBLISHED_WAY, chosen), (CODED, chosen), (EXACT, few))
        for pattern in PATTERNS
        for configuration in RAN
        for seed in some
    ]
    found += [Job(LITERAL, "stepwise", BTU10, 1)]
    found += [Job(ON_THE_MINUTE, "stepwise", configuration, 1) for configuration in RAN[:3]]
    for variant in (SLEEPS, CODED_EXACT):
        found += [Job(variant, "stepwise", configuration, 1) for configuration in RAN]
    found += [Job(variant, "stepwise", THR10, 1) for variant in (BROKER, COMMITTED)]
    if not quick:
        found.append(Job(CODE_DEMANDS, "stepwise", BTU10, 1))
        found += [Job(alone(quirk), "stepwise", BTU10, 1) for quirk in QUIRKS]
    return found


def alone(quirk: str) -> Variant:
    """The algorithms as published, but for one thing that the code does."""
    return replace(PUBLISHED_WAY, name=f"with {quirk}", quirks=frozenset({quirk}))


def run_all(
    todo: Sequence[Job], progress: Callable[[float, str], None], minutes: float = MINUTES
) -> Results:
    """Do all runs one after the other."""
    results = Results()
    for n, job in enumerate(todo):
        progress(n / len(todo), f"{job.variant.name}, {job.pattern}, {job.configuration.name}")
        run = drive(job.pattern, job.configuration, job.variant, job.seed, minutes)
        drawn = job.seed == 1 and job.variant in (PUBLISHED_WAY, CODED)
        key = (job.variant.name, job.pattern, job.configuration.name, job.seed)
        results.runs[key] = summarise(run, job.configuration, drawn)
    return results
