"""The runs of the DRS paper: fixed allocations (Figs. 6 to 8), then the scheduler (Figs. 9, 10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.drs.algorithm import (
    fewest_is_minimal,
    greedy_is_optimal,
    measuring_ms,
    scheduling_ms,
)
from tidegate.lab.papers.drs.world import (
    FPD,
    FPD_FAN_OUT,
    HOP_S,
    VLD,
    VLD_26,
    VLD_26_POISSON,
    VLD_SCALED,
    VLD_STEADY,
    Allocation,
    App,
    SojournTimes,
    chain,
    measure,
    shape,
)
from tidegate.lab.papers.jobs import run_jobs
from tidegate.lab.papers.statistics import mean, mean_between, ranks
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.policies.base import NoMemory
from tidegate.policies.drs import Drs
from tidegate.simulation import CloudSettings, RunReport, SimulatedCloud

__all__ = [
    "TO_17",
    "TO_22",
    "AllocationTimes",
    "BadStart",
    "Controlled",
    "DrsLengths",
    "DrsResults",
    "MachineRuns",
    "Networks",
    "RestartingCloud",
    "Six",
    "add_or_remove",
    "filled",
    "measure_all",
    "pooled",
    "rebalance",
]

ENABLED_S, SETTLED_S, END_S = 13 * 60.0, 16 * 60.0, 27 * 60.0
TURN_S, ROW_S = 60.0, 2.0
POOLED = 3
"""Turns whose measurements a decision pools: the authors' measurer does so, with 3 to 5 windows in
their sample configurations, and begins again after each change."""
PER_MACHINE, RESERVED, MACHINES = 5, 3, 5


class RestartingCloud(SimulatedCloud):
    """A cloud that rebalances as Storm does: every executor restarts at any change.

    An executor finishes its current item; waiting items wait until the new executors are up.
    """

    def apply(self, plan: Plan) -> Outcome:
        """Replace all instances when the plan changes any."""
        before = self.observe().requested
        if plan.deployment == before:
            return super().apply(plan)
        after = plan.deployment
        used = max(int(i.id.rpartition("-")[2]) for i in (*before.instances, *after.instances))
        fresh = tuple(
            Instance(f"{i.operator}-{used + n}", i.operator, i.host)
            for n, i in enumerate(after.instances, start=1)
        )
        return super().apply(replace(plan, deployment=Deployment(after.hosts, fresh)))


@dataclass(frozen=True)
class Controlled:
    """One run of 27 minutes: mean sojourn time by minute, and the allocations on the way.

    changes: (time, allocation planned, hosts planned) of each turn that changed something;
    pause_s: how long after the first change fewer executors ran than both before and after it.
    """

    minutes_s: tuple[float, ...]
    before_s: float
    after_s: float
    changes: tuple[tuple[float, Allocation, int], ...]
    pause_s: float

    @property
    def last(self) -> tuple[Allocation, int] | None:
        """The last allocation and its machines, None when nothing was changed."""
        return self.changes[-1][1:] if self.changes else None

    @property
    def peak_s(self) -> float:
        """The mean of the minute that begins with the first change, NaN when there is none."""
        return self.minutes_s[int(self.changes[0][0] / 60)] if self.changes else math.nan


def rebalance(app: App, start: Allocation, seed: int, restarting: bool = False) -> Controlled:
    """Fig. 9: 22 executors, badly distributed at first.

    All machines are one pool of 25 executors, 3 of them reserved: their number is not at stake.
    With `min_gain` 0 any better distribution is taken, as the authors' code does.
    """
    policy = Drs(t_max_s=1.0, min_gain=0.0, reserved=RESERVED)
    executors = sum(start) + RESERVED
    offer = HostOffer(Resources(executors), max_hosts=1)
    return _drive(app, policy, offer, start, {"host-1": sum(start)}, seed, restarting)


def add_or_remove(
    app: App,
    t_max_s: float,
    start: Allocation,
    seed: int,
    restarting: bool = False,
    turns: int = POOLED,
) -> Controlled:
    """Fig. 10: machines of five executors; spouts and the scheduler take three executors.

    Args:
        app: The application.
        t_max_s: T_max, the bound on the mean sojourn time, in seconds.
        start: First allocation.
        seed: Random seed.
        restarting: Every executor restarts at any change, as with Storm.
        turns: Turns whose measurements a decision pools.
    """
    policy = Drs(t_max_s=t_max_s, reserved=RESERVED)
    machines = math.ceil((sum(start) + RESERVED) / PER_MACHINE)
    rooms = {f"host-{n}": PER_MACHINE for n in range(1, machines + 1)}
    rooms["host-1"] -= RESERVED
    offer = HostOffer(Resources(PER_MACHINE), max_hosts=MACHINES)
    return _drive(app, policy, offer, start, rooms, seed, restarting, turns)


def filled(app: App, allocation: Allocation, rooms: Mapping[str, int]) -> Deployment:
    """The executors of an allocation, operator by operator, on the machines in their order.

    rooms: executors that each machine takes; together as many as the allocation has.
    """
    names = app.topology.by_name
    wanted = [name for name, k in zip(names, allocation, strict=True) for _ in range(k)]
    places = [host for host, room in rooms.items() for _ in range(room)]
    instances = (
        Instance(f"{name}-{n}", name, host)
        for n, (name, host) in enumerate(zip(wanted, places, strict=True), start=1)
    )
    return Deployment(tuple(rooms), tuple(instances))


def _drive(
    app: App,
    policy: Drs,
    offer: HostOffer,
    start: Allocation,
    rooms: Mapping[str, int],
    seed: int,
    restarting: bool,
    turns: int = POOLED,
) -> Controlled:
    topology = app.topology
    kind = RestartingCloud if restarting else SimulatedCloud
    world = kind(
        topology,
        offer,
        app.workload(END_S, seed),
        seed=seed,
        initial=filled(app, start, rooms),
        settings=CloudSettings(monitoring_s=ROW_S, decision_s=TURN_S),
    )
    # The world is not observed before minute 14, so the first decision rests on all 13 minutes: the
    # authors' scheduler runs passively until then and pools its measurements.
    world.advance(ENABLED_S)
    changes: list[tuple[float, Allocation, int]] = []
    windows: list[tuple[float, Snapshot]] = []
    span_s = ENABLED_S
    while world.time_s < END_S - 1e-9:
        windows.append((span_s, world.observe()))
        plan, _ = policy.decide(pooled(windows[-turns:]), NoMemory())
        world.apply(plan)
        before, after = windows[-1][1].requested, world.observe().requested
        if dict(after.counts) != dict(before.counts) or len(after.hosts) != len(before.hosts):
            counts = tuple(after.counts[name] for name in topology.by_name)
            changes.append((world.time_s, counts, len(after.hosts)))
            windows.clear()
        span_s = min(TURN_S, END_S - world.time_s)
        world.advance(span_s)
    report = world.report()
    return Controlled(
        tuple(mean_between(report, 60.0 * m, 60.0 * (m + 1)) for m in range(round(END_S / 60))),
        mean_between(report, 60.0, ENABLED_S),
        mean_between(report, SETTLED_S, END_S),
        tuple(changes),
        _pause_s(report, start, changes),
    )


def pooled(windows: Sequence[tuple[float, Snapshot]]) -> Snapshot:
    """The last snapshot with the measurements of all.

    windows: snapshots with the length of the time that each measures, in seconds.
    """
    last, whole_s = windows[-1][1], math.fsum(span_s for span_s, _ in windows)
    readings = []
    for reading in last.operators:
        some = [(span_s, seen.reading[reading.operator]) for span_s, seen in windows]
        come = math.fsum(span_s * (each.arrival_rate_per_s or 0.0) for span_s, each in some)
        done = [
            (span_s * (each.processed_per_s or 0.0), each.service_time_s or 0.0)
            for span_s, each in some
        ]
        items, busy_s = math.fsum(n for n, _ in done), math.fsum(n * s for n, s in done)
        readings.append(
            replace(
                reading,
                arrival_rate_per_s=come / whole_s,
                service_time_s=busy_s / items if items else None,
            )
        )
    known = [(span_s, seen.latency.mean_s) for span_s, seen in windows if seen.latency.mean_s]
    times = math.fsum(span_s for span_s, _ in known)
    mean_s = math.fsum(span_s * mean_s for span_s, mean_s in known) / times if known else None
    latency = replace(last.latency, mean_s=mean_s)
    return replace(last, operators=tuple(readings), latency=latency)


def _pause_s(
    report: RunReport, start: Allocation, changes: list[tuple[float, Allocation, int]]
) -> float:
    """How long some operator had fewer executors than both before and after the first change."""
    if not changes:
        return 0.0
    at_s, planned, _ = changes[0]
    rows = report.series
    last = at_s
    until_s = changes[1][0] if len(changes) > 1 else END_S
    for operator, old, new in zip(rows.operators.values(), start, planned, strict=True):
        for time_s, running in zip(rows.time_s, operator["instances"], strict=True):
            if time_s is None or running is None or not at_s < time_s <= until_s:
                continue
            if running < min(old, new):
                last = max(last, time_s)
    return last - at_s


# --- all experiments ------------------------------------------------------------------------------

TO_22, TO_17 = ((10, 11, 1), 5), ((8, 8, 1), 4)
"""Fig. 10: allocation and machines after ExpA and after ExpB."""

HOPS_MS = (0.0, 1000 * HOP_S, 8.0)
"""Costs of a hop with which D-06 is shown."""

CPU_MS = tuple(float(x) for x in np.geomspace(0.567, 309.1, 6))
"""Fig. 8: total CPU time of the six workloads; the ends are published."""

LOGOS = {
    "26 frames/s": VLD_26,
    "26 frames/s, Poisson": VLD_26_POISSON,
    "13 frames/s": VLD,
    "13 frames/s, steady service": VLD_STEADY,
    "scaled": VLD_SCALED,
}
PATTERNS = {"patterns in a loop": FPD, "patterns, two candidates": FPD_FAN_OUT}
FIRST_SEED = 11
"""The primary world was found with seeds 1 to 4."""


def _seeds(count: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + count)


@dataclass(frozen=True)
class AllocationTimes:
    """One allocation: estimate by the model, mean and standard deviation measured by each seed.

    stretches_s: means of ten-minute stretches, all seeds after one another; general_s: estimate by
    the G/G/k model with the measured variability.
    """

    allocation: Allocation
    estimate_s: float
    means_s: tuple[float, ...]
    deviations_s: tuple[float, ...]
    stretches_s: tuple[float, ...] = ()
    general_s: float = math.nan

    @property
    def ratio(self) -> float:
        """Measured over estimated."""
        return mean(self.means_s) / self.estimate_s


@dataclass(frozen=True)
class Six:
    """Six allocations in one world. best: the one that the paper recommends."""

    best: Allocation
    rows: tuple[AllocationTimes, ...]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of estimated with measured."""
        return self.correlation_by(lambda row: row.estimate_s)

    def correlation_by(self, estimate: Callable[[AllocationTimes], float]) -> float:
        """The same for another estimate."""
        a = ranks([estimate(row) for row in self.rows])
        b = ranks([mean(row.means_s) for row in self.rows])
        n = len(self.rows)
        return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (n * (n * n - 1))

    def error_by(self, estimate: Callable[[AllocationTimes], float]) -> float:
        """Mean distance of an estimate from the measured mean, as a share of it."""
        return mean([abs(estimate(row) / mean(row.means_s) - 1) for row in self.rows])

    def lowest(self, figure: Callable[[AllocationTimes], Sequence[float]]) -> list[bool]:
        """Whether the recommended allocation has the lowest figure, by seed."""
        place = [row.allocation for row in self.rows].index(self.best)
        each = zip(*(figure(row) for row in self.rows), strict=True)
        return [values[place] == min(values) for values in each]

    @property
    def ratios_by_seed(self) -> list[float]:
        """Measured over estimated, mean over the allocations, by seed."""
        each = zip(*(row.means_s for row in self.rows), strict=True)
        return [
            mean([m / row.estimate_s for m, row in zip(means, self.rows, strict=True)])
            for means in each
        ]

    @property
    def ratio(self) -> float:
        """Measured over estimated, on average."""
        return mean([row.ratio for row in self.rows])

    def best_and_rival(
        self, figure: Callable[[AllocationTimes], Sequence[float]]
    ) -> tuple[AllocationTimes, AllocationTimes, bool]:
        """The recommended allocation, the best other one, and whether the former is lower."""
        order = sorted(self.rows, key=lambda row: mean(figure(row)))
        mine = next(row for row in order if row.allocation == self.best)
        other = next(row for row in order if row.allocation != self.best)
        return mine, other, order[0] is mine

    def won_stretches(self) -> float:
        """Share of ten-minute stretches in which the recommended allocation has the lowest mean."""
        both = list(zip(*(row.stretches_s for row in self.rows), strict=True))
        place = [row.allocation for row in self.rows].index(self.best)
        return mean([float(stretch[place] == min(stretch)) for stretch in both])


def _measured(job: tuple[App, Allocation, int, float, float]) -> SojournTimes:
    return measure(*job)


def _six(app: App, seeds: int, duration_s: float) -> Six:
    """Figs. 6 and 7: six allocations, all with the same arrivals."""
    rows = []
    for allocation in app.allocations:
        jobs = [(app, allocation, seed, duration_s, HOP_S) for seed in _seeds(seeds)]
        runs = run_jobs(_measured, jobs)
        rows.append(
            AllocationTimes(
                allocation,
                app.estimate_s(allocation),
                tuple(m.mean_s for m in runs),
                tuple(m.deviation_s for m in runs),
                tuple(value for m in runs for value in m.stretches_s),
                mean([app.general_estimate_s(allocation, m.scvs) for m in runs if m.scvs]),
            )
        )
    return Six(app.best, tuple(rows))


@dataclass(frozen=True)
class Networks:
    """Measured over estimated at the best allocation, by cost of a hop in ms, seed by seed."""

    logos: Mapping[float, Sequence[float]] = field(default_factory=dict)
    patterns: Mapping[float, Sequence[float]] = field(default_factory=dict)

    def share(self, hop_ms: float) -> float:
        """The network's share of the sojourn time of frequent patterns."""
        return 1 - mean(self.patterns[0.0]) / mean(self.patterns[hop_ms])

    @property
    def alike_ms(self) -> float:
        """Cost of a hop with which both applications are underestimated alike.

        A wire never makes an item wait for another, so a sojourn time is linear in that cost.
        """
        most = max(self.patterns)
        (far, far_logos), (near, near_logos) = (
            (mean(self.patterns[hop_ms]), mean(self.logos[hop_ms])) for hop_ms in (most, 0.0)
        )
        gained = (far - near) - (far_logos - near_logos)
        return most * (near_logos - near) / gained


def _networks(seeds: int, size: DrsLengths) -> Networks:
    """D-06 over networks of several speeds."""

    def ratios(app: App, duration_s: float) -> dict[float, list[float]]:
        estimate_s = app.estimate_s(app.best)
        found = {}
        for hop_ms in HOPS_MS:
            jobs = [(app, app.best, seed, duration_s, hop_ms / 1000) for seed in _seeds(seeds)]
            found[hop_ms] = [run.mean_s / estimate_s for run in run_jobs(_measured, jobs)]
        return found

    return Networks(ratios(VLD_26, size.logo_s), ratios(FPD, size.pattern_s))


def _ratios(seeds: int, items: int) -> dict[float, list[float]]:
    """Fig. 8: measured over estimated, by CPU time in ms."""
    ratios = {}
    for cpu_ms in CPU_MS:
        app = chain(cpu_ms / 1000)
        estimate = app.estimate_s(app.best)
        jobs = [(app, app.best, s, items / app.rate_per_s, HOP_S) for s in _seeds(seeds)]
        ratios[cpu_ms] = [m.mean_s / estimate for m in run_jobs(_measured, jobs)]
    return ratios


@dataclass(frozen=True)
class BadStart:
    """Fig. 9: runs from a bad start, by seed.

    best: the recommended allocation; good: runs that start with it; restarted: runs from the bad
    start in which every executor restarts.
    """

    best: Allocation
    runs: Sequence[Controlled]
    good: Sequence[Controlled]
    restarted: Sequence[Controlled] = ()


def _rebalanced(job: tuple[App, Allocation, int, bool]) -> Controlled:
    return rebalance(*job)


def _bad_starts(name: str, app: App, seeds: int) -> dict[str, BadStart]:
    some = _seeds(seeds)
    if not some:
        return {}
    good = run_jobs(_rebalanced, [(app, app.best, seed, False) for seed in some])
    return {
        f"{name} from {shape(start)}": BadStart(
            app.best,
            run_jobs(_rebalanced, [(app, start, seed, False) for seed in some]),
            good,
            run_jobs(_rebalanced, [(app, start, seed, True) for seed in some]),
        )
        for start in app.printed
    }


@dataclass(frozen=True)
class MachineRuns:
    """Fig. 10: ExpA, which adds a machine, and ExpB, which removes one, by seed."""

    adding: Sequence[Controlled] = ()
    removing: Sequence[Controlled] = ()


def _changed(job: tuple[App, float, Allocation, int, bool, int]) -> Controlled:
    return add_or_remove(*job)


def _machines(app: App, seeds: int, restarting: bool = False, turns: int = POOLED) -> MachineRuns:
    some = _seeds(seeds)
    return MachineRuns(
        *(
            run_jobs(_changed, [(app, t_max_s, start, seed, restarting, turns) for seed in some])
            for t_max_s, start in ((0.5, TO_17[0]), (1.0, TO_22[0]))
        )
    )


@dataclass(frozen=True)
class DrsLengths:
    """How much is simulated.

    Args:
        logo_s: Length of a run of logo detection (Fig. 6), in seconds.
        pattern_s: Length of a run of frequent patterns (Fig. 6), in seconds.
        chain_items: Number of items of a run of Fig. 8.
        pattern_seeds: Greatest number of seeds for frequent patterns in Fig. 9, which takes long.
        instances: Number of random instances for the optimality of the algorithm.
        rounds: Number of rounds for the scheduling time.
    """

    logo_s: float
    pattern_s: float
    chain_items: int
    pattern_seeds: int
    instances: int
    rounds: int


QUICK = DrsLengths(2 * 3600.0, 120.0, 50_000, 1, 150, 100)
FULL = DrsLengths(6 * 3600.0, 1800.0, 200_000, 10**6, 1500, 1000)


@dataclass(frozen=True)
class DrsResults:
    """All runs.

    Args:
        logos: Fig. 6 for logo detection, by world.
        patterns: Fig. 6 for frequent patterns, by world.
        networks: Fig. 7 at the best allocations, over networks of several speeds.
        ratios: Fig. 8: measured over estimated by CPU time in ms, by seed.
        starts: Fig. 9 by bad start.
        machines: Fig. 10 by world.
        storm: Fig. 10 where every executor restarts, 26 frames/s.
        took_ms: Table II: scheduling time by number of processors.
        measuring_ms: Table II: time to process the measurements, by number of processors.
        instances: Number of random instances.
        optimal: Instances for which Algorithm 1 is optimal, and its worst excess.
        minimal: Instances for which the fewest processors are found.
    """

    logos: Mapping[str, Six] = field(default_factory=dict)
    patterns: Mapping[str, Six] = field(default_factory=dict)
    networks: Networks = Networks()
    ratios: Mapping[float, Sequence[float]] = field(default_factory=dict)
    starts: Mapping[str, BadStart] = field(default_factory=dict)
    machines: Mapping[str, MachineRuns] = field(default_factory=dict)
    storm: MachineRuns = MachineRuns()
    took_ms: Mapping[int, float] = field(default_factory=dict)
    measuring_ms: Mapping[int, float] = field(default_factory=dict)
    instances: int = 0
    optimal: tuple[int, float] = (0, 0.0)
    minimal: int = 0

    @property
    def six(self) -> dict[str, Six]:
        """Fig. 6 for both applications, by world."""
        return {**{f"logos, {name}": six for name, six in self.logos.items()}, **self.patterns}


def measure_all(
    quick: bool, seeds: int, progress: Progress, lengths: DrsLengths | None = None
) -> DrsResults:
    """Run all experiments.

    quick: under a minute; seeds: runs of each experiment; lengths: in place of the usual ones.
    """
    size = lengths or (QUICK if quick else FULL)
    logos, patterns = {}, {}
    for n, (name, app) in enumerate(LOGOS.items()):
        progress(0.05 * n, f"Fig. 6: {app.name}")
        logos[name] = _six(app, seeds, size.logo_s)
    for n, (name, app) in enumerate(PATTERNS.items()):
        progress(0.15 + 0.2 * n, f"Fig. 6: {app.name}")
        patterns[name] = _six(app, seeds, size.pattern_s)
    progress(0.55, "Fig. 8: CPU time")
    ratios = _ratios(seeds, size.chain_items)
    progress(0.6, "Fig. 9: rebalancing")
    starts = _bad_starts("logos", VLD_26, seeds)
    starts |= _bad_starts("patterns", FPD, min(seeds, size.pattern_seeds))
    progress(0.8, "Fig. 10: machines")
    machines = {
        name: _machines(LOGOS[name], seeds)
        for name in ("26 frames/s", "26 frames/s, Poisson", "scaled", "13 frames/s")
    }
    storm = _machines(VLD_26, seeds, restarting=True)
    for turns, name in ((1, "decided on single minutes"), (5, "decided on five minutes")):
        machines[f"26 frames/s, {name}"] = _machines(VLD_26, seeds, turns=turns)
    progress(0.95, "Table II and optimality")
    return DrsResults(
        logos,
        patterns,
        _networks(seeds, size),
        ratios,
        starts,
        machines,
        storm,
        scheduling_ms(size.rounds),
        measuring_ms(size.rounds),
        size.instances,
        greedy_is_optimal(size.instances, seed=1),
        fewest_is_minimal(size.instances, seed=2),
    )
