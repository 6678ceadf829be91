"""Fits of queries that share slots: the recorded input is played on the recorded executors.

Queries that share slots wait for each other, and tasks follow each other with gaps. No formula says
how long. The simulated batches are therefore compared with the recorded ones, and what the journal
leaves open is chosen so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median

from tidegate.model import HostOffer, Plan, Snapshot
from tidegate.model.topology import Topology
from tidegate.simulation import BatchSettings, MicroBatchCloud
from tidegate.simulation.batch_fits import (
    FEWEST_TURNS,
    Fit,
    lasting_durations,
    unsteadiness,
)
from tidegate.workloads import Workload
from tidegate.workloads.protocol import FloatArray

__all__ = ["Replay", "SharedFit", "fit_shared"]

ROUNDS = 4
"""Times that a journal is played again to fit the overheads."""
MOST_ITEMS = 1e6
"""Most items that are played at a time."""
ENOUGH = 0.01
"""Durations that agree up to this share need no further round."""
FIXED_SHARES = (0.5, 0.8, 0.95)
"""Shares of fixed work that are tried where batches do not separate it from work on items."""
BETTER = 0.9
"""A share is taken if it leaves at most this part of the error without it."""
LEAST_OVERHEAD = 0.5
"""Smallest fitted overhead, as a share of the measured one."""


@dataclass(frozen=True, slots=True)
class _Match:
    """Mean durations and variances of the batches of a turn, simulated and recorded."""

    simulated_s: float
    recorded_s: float
    simulated_var: float
    recorded_var: float
    steady: bool


@dataclass(frozen=True)
class Replay:
    """A journal that can be played in a simulated application.

    offer: what was leased. snapshots: those of the journal. workload: its input. go_on: asked now
    and then; if it says no, the replay ends.
    """

    offer: HostOffer
    snapshots: Sequence[Snapshot]
    workload: Workload
    go_on: Callable[[], bool]

    def matches(self, topology: Topology, settings: BatchSettings) -> dict[str, list[_Match]]:
        """The turns of the journal and the same turns in a simulation, by query."""
        first = self._first()
        start = self.snapshots[first]
        cloud = MicroBatchCloud(
            topology,
            replace(self.offer, startup_s=0.0, max_hosts=None),
            _From(self.workload, start.time_s - self.snapshots[0].time_s),
            seed=0,
            initial=start.running,
            settings=settings,
        )
        found: dict[str, list[_Match]] = {name: [] for name in topology.by_name}
        for before, now in pairwise(self.snapshots[first:]):
            if not self.go_on():
                break
            then_s = cloud.time_s
            cloud.advance(now.time_s - before.time_s)
            simulated, every = cloud.batch_durations_s(then_s), cloud.batch_durations_s()
            for name, matches in found.items():
                recorded = lasting_durations(now, before, name)
                if not simulated[name] or not recorded:
                    continue
                durations = _recent(now, name)
                matches.append(
                    _Match(
                        fmean(simulated[name]),
                        fmean(recorded),
                        unsteadiness(every[name]),
                        unsteadiness(durations),
                        max(durations) <= 2 * median(durations),
                    )
                )
            if now.running.hosts:
                cloud.apply(Plan(now.running))
        return found

    def _first(self) -> int:
        """The first turn that is played, so that there are not too many items."""
        first, items = len(self.snapshots) - 2, 0.0
        while first > 0 and items < MOST_ITEMS:
            now, then = self.snapshots[first + 1], self.snapshots[first]
            rate = self.workload.rate(then.time_s - self.snapshots[0].time_s)
            items += rate * (now.time_s - then.time_s)
            first -= 1
        return first


def _recent(snapshot: Snapshot, query: str) -> Sequence[float]:
    batches = snapshot.reading[query].batches
    return batches.recent_durations_s if batches is not None else ()


@dataclass(frozen=True)
class _From:
    """A workload from a later moment on."""

    base: Workload
    start_s: float

    @property
    def duration_s(self) -> float:
        return self.base.duration_s - self.start_s

    def rate(self, t_s: float) -> float:
        return self.base.rate(t_s + self.start_s)

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        found = self.base.arrivals(start_s + self.start_s, end_s + self.start_s)
        return {source: times - self.start_s for source, times in found.items()}


@dataclass(frozen=True)
class SharedFit:
    """Queries that share slots, as they fit a journal.

    topology, settings: with the fitted values. off: relative error of the durations by query.
    scvs: variation of the overhead by query. turns: turns that were compared, by query.
    """

    topology: Topology
    settings: BatchSettings
    off: Mapping[str, float] = field(default_factory=dict)
    scvs: Mapping[str, float] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)

    def shown(self, fits: Sequence[Fit]) -> list[Fit]:
        """The fits of the queries with the values that the replay has changed."""
        found = []
        for fit in fits:
            query, _, what = fit.name.rpartition(": ")
            turns = self.turns.get(query, 0)
            if what == "overhead of a batch" and query in self.off:
                value = self.settings.overheads_s[query]
                found.append(Fit(fit.name, value, "s", abs(self.off[query]), turns))
            elif what == "overhead variation" and query in self.scvs:
                found.append(replace(fit, value=self.scvs[query], turns=turns))
            elif what == "fixed work" and not fit.identified:
                value = self.settings.fixed_works_s.get(query, 0.0)
                found.append(replace(fit, value=value))
            elif what == "slot time an item" and not fit.identified:
                value = self.topology.by_name[query].service_time_s or 0.0
                found.append(replace(fit, value=value))
            else:
                found.append(fit)
        return found


def fit_shared(topology: Topology, settings: BatchSettings, replay: Replay) -> SharedFit:
    """Fit what a journal leaves open, so that batches take as long as those in it.

    Where batches do not separate fixed work from work on items, the split is the one with which the
    durations agree best. Then the overhead takes up the difference that is left. The variation of
    durations beyond that of the simulated ones is that of the overhead.
    """
    topology, settings = _split(topology, settings, replay)
    measured = settings.overheads_s
    best, found, off = settings, dict[str, list[_Match]](), dict[str, float]()
    for _ in range(ROUNDS):
        matches = replay.matches(topology, settings)
        names = [name for name in measured if matches[name]]
        if not replay.go_on() or not names:
            break
        gaps = {n: median(m.recorded_s - m.simulated_s for m in matches[n]) for n in names}
        now_off = {n: gaps[n] / fmean(m.recorded_s for m in matches[n]) for n in names}
        if off and sum(map(abs, now_off.values())) >= sum(map(abs, off.values())):
            break
        best, found, off = settings, matches, now_off
        if all(abs(share) <= ENOUGH for share in off.values()):
            break
        overheads = {
            n: max(LEAST_OVERHEAD * measured[n], value + 0.8 * gaps.get(n, 0.0))
            for n, value in settings.overheads_s.items()
        }
        settings = replace(settings, overhead_s=fmean(overheads.values()), overheads_s=overheads)
    scvs: dict[str, float] = {}
    for name in off:
        overhead_s = best.overheads_s[name]
        extra = [m.recorded_var - m.simulated_var for m in found[name] if m.steady]
        if overhead_s > 0 and len(extra) >= FEWEST_TURNS:
            scvs[name] = min(1.0, max(0.0, median(extra)) / overhead_s**2)
    turns = {name: len(found[name]) for name in off}
    weight = sum(turns[name] for name in scvs)
    scv = sum(value * turns[name] for name, value in scvs.items()) / weight if weight else 0.0
    best = replace(best, overhead_scv=scv)
    return SharedFit(topology, best, off, scvs, turns)


def _split(
    topology: Topology, settings: BatchSettings, replay: Replay
) -> tuple[Topology, BatchSettings]:
    """The shares of fixed work with which durations agree best, where batches leave them open."""
    for name in topology.by_name:
        usual = _unsplit(replay.snapshots, name)
        if usual is None or not replay.go_on():
            continue
        work_s, service_s = usual
        error = _error(replay.matches(topology, settings)[name])
        for share in FIXED_SHARES:
            operators = tuple(
                replace(o, service_time_s=max(1e-9, service_s * (1 - share)))
                if o.name == name
                else o
                for o in topology.operators
            )
            other = replace(topology, operators=operators)
            works = {**settings.fixed_works_s, name: work_s * share}
            changed = replace(settings, fixed_works_s=works)
            tried = _error(replay.matches(other, changed)[name])
            if error is not None and tried is not None and tried < BETTER * error:
                topology, settings, error = other, changed, tried
    return topology, settings


def _unsplit(snapshots: Sequence[Snapshot], query: str) -> tuple[float, float] | None:
    """Slot-seconds of a usual batch and of its items, if no turn separates fixed work from them."""
    costs = [
        r.batches.cost
        for s in snapshots
        if query in s.reading and (r := s.reading[query]).batches and r.batches.cost
    ]
    if not costs or any(c.fixed_work.identified or c.per_row.identified for c in costs):
        return None
    return costs[-1].fixed_work.high, costs[-1].per_row.value


def _error(matches: Sequence[_Match]) -> float | None:
    """Median relative error of the durations, None without any."""
    if not matches:
        return None
    return median(abs(m.recorded_s - m.simulated_s) / m.recorded_s for m in matches)
