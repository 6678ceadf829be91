"""FUGU's world: 35 queries over exchange days, on at most ten small hosts.

The paper says which queries ran, not how much CPU they needed. Everything that it leaves open was
chosen from its text, from measured Frankfurt days or as plausible, before any result was seen.
`ASSUMPTIONS` lists these choices, and the report prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tidegate.errors import InputError
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings, SimulatedCloud
from tidegate.theory.placement import Item, first_fit_decreasing
from tidegate.workloads import Bursty, ExchangeDay, RateTrace, read_trace
from tidegate.workloads.papers import MINUTES, exchange_minutes
from tidegate.workloads.protocol import FloatArray, generator, word

__all__ = [
    "ASSUMPTIONS",
    "DAYS",
    "POINTS",
    "TURN_S",
    "FuguWorld",
    "Monitored",
    "RecordedDay",
    "SectorDay",
    "StandingQuery",
    "read_days",
]

DAYS = 3
SHORTEST_S, LONGEST_S = 3600.0, 86_400.0
QUERIES, MAX_HOSTS, POINTS, TURN_S = 35, 10, 700, 5.0
TICKS_PER_S = 1000.0
MEAN_DEMAND_HOSTS = 2.9
WINDOWS_S = (10.0, 300.0)
HOST = Resources(1.0, 3840.0)
QUERY_MB, TICK_KB = 64.0, 0.5
SETTINGS = CloudSettings(
    host_startup_s=(5.0, 10.0),
    instance_startup_s=(1.0, 2.0),
    image_download_s=0.0,
    contention_s=0.5,
    bandwidth_mbps=100.0,
    migration_pause_s=0.5,
    monitoring_s=TURN_S,
    decision_s=TURN_S,
    end_to_end_slo_s=2.0,
)
SLOW_MOVES = replace(SETTINGS, bandwidth_mbps=10.0, migration_pause_s=5.0)

# Share of all trades of mapped stocks, mean of the six Xetra days with symbols (2017 and 2018).
SECTORS = {
    "consumer-discretionary": 0.181,
    "industrials": 0.177,
    "financials": 0.134,
    "materials": 0.121,
    "information-technology": 0.116,
    "health-care": 0.090,
    "communication": 0.059,
    "utilities": 0.047,
    "real-estate": 0.040,
    "consumer-staples": 0.029,
    "energy": 0.005,
}
# The same days: how a sector's share of a minute's trades wanders. The logarithm has a standard
# deviation of 0.25 for the largest sectors, growing as the sector gets smaller; a fifth of the
# deviation is left after a minute, a tenth after ten.
_WOBBLE_SD, _WOBBLE_MOST, _WOBBLE_KEEP = 0.25, 0.5, 0.12
_MOOD_SD, _MOOD_MINUTES = 0.08, 25.0

ASSUMPTIONS = (
    "Hosts have one core and 3.75 GB, as EC2's m1.medium that the paper compares itself with; "
    "at most ten of them.",
    f"Ticks come at {TICKS_PER_S:g} per second on average of Day 1 (the axis of Fig. 3 has four "
    "digits); Days 2 and 3 are larger or smaller as the generated or recorded days are.",
    "A day of 511 minutes is played within the run, so a new rate comes every 7 s. Each seed has "
    "separate days (unless they come from files), queries and service times.",
    "Sectors have the shares of trades, and the minute-to-minute wandering of these shares, that "
    "six real Xetra days have; trades come in bursts (dispersion 9).",
    "35 queries, each one operator with one instance; its sector is drawn uniformly, its window "
    f"from {WINDOWS_S[0]:g} to {WINDOWS_S[1]:g} s. A tick costs a fixed part and as much again in "
    "proportion to the window (equal at the mean window), exponentially distributed.",
    f"Costs are scaled so that Day 1 needs {MEAN_DEMAND_HOSTS:g} full hosts on average: the "
    "paper's 0.5 hosts saved by 0.05 more utilisation at 0.52 mean about 5.6 hosts in use.",
    f"State is the window's ticks at {TICK_KB:g} kB. A migration pauses the query for 0.5 s of "
    "coordination plus the state at 100 Mbit/s (extraction, transfer and replay together).",
    "Hosts come from a pool of running nodes: 5 to 10 s until one is there (the paper: 'within "
    "seconds'), 1 to 2 s until an operator has started.",
    "n = 12 violations for thresholds, a grace period of 30 s, hosts filled up to 0.8 by moves "
    "in all configurations; learning acts on one measurement, as the paper describes it. β = "
    "0.1, penalty −1. n and the fill are not published and were chosen after results had been "
    "seen: the table below shows what they decide.",
    "CPU is measured as a monitor does: a host shows at most 1, an operator what it got; while an "
    "operator moves, its last measured load stands for it.",
    "Each run begins with the queries packed by first fit up to the target at the first minutes' "
    "load.",
)


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """One standing query: an aggregate over a window of a sector's ticks.

    service_s: CPU time per tick; state_mb: what its window holds on average.
    """

    name: str
    sector: str
    window_s: float
    service_s: float
    state_mb: float

    @property
    def load(self) -> float:
        """Cores that it uses at the mean rate of Day 1."""
        return TICKS_PER_S * SECTORS[self.sector] * self.service_s


def draw_queries(seed: int) -> tuple[StandingQuery, ...]:
    """The 35 queries of a seed, scaled to the demand of the paper's cluster.

    >>> queries = draw_queries(1)
    >>> len(queries), round(sum(query.load for query in queries), 6)
    (35, 2.9)
    """
    random = generator(seed, word("fugu queries"))
    names = list(SECTORS)
    sectors = [names[i] for i in random.integers(0, len(names), QUERIES)]
    windows = random.uniform(*WINDOWS_S, QUERIES)
    costs = 1 + windows / (sum(WINDOWS_S) / 2)
    shares = np.array([SECTORS[sector] for sector in sectors])
    scale = MEAN_DEMAND_HOSTS * HOST.cpu_cores / float((TICKS_PER_S * shares * costs).sum())
    return tuple(
        StandingQuery(
            f"q{n + 1}",
            sector,
            float(window),
            float(cost * scale),
            float(TICKS_PER_S * share * window * TICK_KB / 1000),
        )
        for n, (sector, window, cost, share) in enumerate(
            zip(sectors, windows, costs, shares, strict=True)
        )
    )


@dataclass(frozen=True)
class SectorDay:
    """The ticks of a day by sector, an exchange day played in `duration_s` seconds.

    Args:
        seed: Random seed of the day.
        level: Ticks per second on average.
        duration_s: Length of the day, in seconds.
        sectors: Sectors that have a query.
        wobble: How much the shares of the sectors fluctuate, 1 as measured.
        curve: Rate minute by minute as a multiple of the average; random when empty.
    """

    seed: int
    level: float
    duration_s: float = POINTS * TURN_S
    sectors: tuple[str, ...] = tuple(SECTORS)
    wobble: float = 1.0
    curve: tuple[float, ...] = ()

    @cached_property
    def shares(self) -> FloatArray:
        """Each sector's share of the ticks, minute by minute; a minute's shares add up to 1."""
        random = generator(self.seed, word("fugu sectors"))
        rows = []
        for share in SECTORS.values():
            sd = min(_WOBBLE_MOST, _WOBBLE_SD * (0.18 / share) ** 0.5)
            log = _wandering(random, sd, _WOBBLE_KEEP)
            log += _wandering(random, _MOOD_SD, float(np.exp(-1 / _MOOD_MINUTES)))
            rows.append(share * np.exp(self.wobble * log))
        table = np.array(rows)
        return np.asarray(table / table.sum(axis=0))

    @cached_property
    def minutes(self) -> FloatArray:
        """Ticks per second in each minute of the day."""
        curve = np.array(self.curve) if self.curve else exchange_minutes(self.seed)
        return np.asarray(curve * self.level)

    @cached_property
    def streams(self) -> Mapping[str, Bursty]:
        """Bursts of ticks by sector."""
        times = np.arange(MINUTES, dtype=np.float64) * (self.duration_s / MINUTES)
        return {
            sector: Bursty(
                RateTrace(times, self.minutes * shares, source=sector), 9.0, 0.03, self.seed
            )
            for sector, shares in zip(SECTORS, self.shares, strict=True)
            if sector in self.sectors
        }

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times of ticks in [start_s, end_s) by sector."""
        return {s: day.arrivals(start_s, end_s)[s] for s, day in self.streams.items()}

    def rate(self, t_s: float) -> float:
        """Ticks expected per second at `t_s`, of the used sectors."""
        return sum(day.rate(t_s) for day in self.streams.values())


def _wandering(random: np.random.Generator, sd: float, keep: float) -> FloatArray:
    steps = random.normal(0, sd * (1 - keep**2) ** 0.5, MINUTES)
    steps[0] /= (1 - keep**2) ** 0.5
    for i in range(1, MINUTES):
        steps[i] += keep * steps[i - 1]
    return np.asarray(steps)


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """A day from a file.

    name: of the file; level_per_s: ticks per second on average; curve: the rate in each of 511
    equal parts of the day, as a multiple of the average.
    """

    name: str
    level_per_s: float
    curve: tuple[float, ...]


def read_days(paths: Sequence[str | Path]) -> tuple[RecordedDay, ...]:
    """Days 1, 2 and 3 from three trace files, in any form that `read_trace` knows.

    A file gives the ticks of the whole exchange over a day. Its shape and its volume relative to
    Day 1 are used; the cluster stays sized for Day 1. How ticks divide among sectors and cluster
    within a minute is still random, since the files do not say.
    """
    if len(paths) != DAYS:
        remedy = "give Days 1, 2 and 3 by --days FILE --days FILE --days FILE"
        raise InputError("--days", len(paths), f"{DAYS} files", remedy)
    return tuple(_read(Path(path)) for path in paths)


def _read(path: Path) -> RecordedDay:
    trace = read_trace(path)
    if not SHORTEST_S <= trace.duration_s <= LONGEST_S:
        allowed = f"{SHORTEST_S:g} to {LONGEST_S:g} s, one day of trading"
        remedy = "cut the file to one day, and check the unit of its times"
        raise InputError(f"--days {path.name}: duration", trace.duration_s, allowed, remedy)
    edges = np.linspace(0.0, trace.duration_s, MINUTES + 1)
    (ticks,) = trace.expected(edges).values()
    level = float(ticks.sum()) / trace.duration_s
    if level <= 0:
        remedy = "its rates are all zero: choose another day or column"
        raise InputError(f"--days {path.name}: mean rate", level, "above 0", remedy)
    return RecordedDay(path.name, level, tuple((ticks / ticks.mean()).tolist()))


@dataclass(frozen=True)
class FuguWorld:
    """Queries, days and hosts of one seed; a fresh simulation of any day is made from it.

    points: measurement points of a run, in which the whole day is played. variant: ``as-assumed``,
    or a world in which one assumption is changed, to find a cause: ``calm-sectors`` (their shares
    never change), ``slow-moves`` (every pause ten times as long), ``more-hosts`` (no limit of ten).
    days: three days from files, generated ones when there are none.
    """

    seed: int
    points: int = POINTS
    variant: str = "as-assumed"
    days: tuple[RecordedDay, ...] = ()

    @cached_property
    def queries(self) -> tuple[StandingQuery, ...]:
        """The standing queries."""
        return draw_queries(self.seed)

    @cached_property
    def topology(self) -> Topology:
        """Each query one operator, fed by its sector."""
        sectors = [s for s in SECTORS if any(q.sector == s for q in self.queries)]
        return Topology(
            tuple(
                Operator(
                    query.name,
                    Resources(1.0, QUERY_MB + query.state_mb),
                    query.service_s,
                    state_mb=query.state_mb,
                    image="query",
                    max_instances=1,
                )
                for query in self.queries
            ),
            tuple(Source(sector) for sector in sectors),
            tuple(Edge(query.sector, query.name) for query in self.queries),
        )

    def day(self, number: int) -> SectorDay:
        """Day 1, 2 or 3. Day 1 has the rate that the cluster was sized for."""
        first, seed = DAYS * (self.seed - 1) + 1, DAYS * (self.seed - 1) + number
        curve: tuple[float, ...] = ()
        if self.days:
            ratio = self.days[number - 1].level_per_s / self.days[0].level_per_s
            curve = self.days[number - 1].curve
        else:
            ratio = ExchangeDay(seed).level_per_s / ExchangeDay(first).level_per_s
        used = tuple(source.name for source in self.topology.sources)
        wobble = 0.0 if self.variant == "calm-sectors" else 1.0
        return SectorDay(seed, TICKS_PER_S * ratio, self.points * TURN_S, used, wobble, curve)

    def initial(self, day: SectorDay, target: float) -> Deployment:
        """The queries packed up to the target at the load of the first ten minutes."""
        factor = float(day.minutes[:10].mean()) / TICKS_PER_S
        items = [Item(q.name, q.name, Resources(q.load * factor)) for q in self.queries]
        free = [[HOST.cpu_cores * target, HOST.memory_mb, 0.0] for _ in range(MAX_HOSTS)]
        found = first_fit_decreasing(items, free, {}, {})
        spare = 0
        homes: list[int] = []
        for at in found:  # queries too large for the target are spread round-robin
            homes.append(at if at >= 0 else spare % MAX_HOSTS)
            spare += at < 0
        hosts = tuple(f"host-{n + 1}" for n in range(max(homes) + 1))
        return Deployment(
            hosts,
            tuple(
                Instance(f"{q.name}-1", q.name, hosts[home])
                for q, home in zip(self.queries, homes, strict=True)
            ),
        )

    def simulation(self, day: int, target: float) -> SimulatedCloud:
        """A fresh cloud with the queries running, at the beginning of a day."""
        ticks = self.day(day)
        settings = SLOW_MOVES if self.variant == "slow-moves" else SETTINGS
        return SimulatedCloud(
            self.topology,
            HostOffer(HOST, max_hosts=None if self.variant == "more-hosts" else MAX_HOSTS),
            ticks,
            seed=self.seed,
            initial=self.initial(ticks, target),
            settings=settings,
        )


class Monitored:
    """A world as FUGU's monitoring shows it: the CPU that was used, not the CPU that was needed.

    The simulator reports how long instances were busy. On an overloaded host this adds up to more
    than the host has. The monitor of a host shows at most 1, that of an operator the CPU that it
    got. `wanted` keeps the uncapped figures of the last observation for the measurements.
    """

    def __init__(self, cloud: SimulatedCloud) -> None:
        self.cloud = cloud
        self.wanted: dict[str, float] = {}
        self._known: dict[str, Resources] = {}
        self._seen: Snapshot | None = None
        self._shown: Snapshot

    def observe(self) -> Snapshot:
        """What the monitor shows now."""
        seen = self.cloud.observe()
        if seen is self._seen:
            return self._shown
        self.wanted = {
            host.id: host.utilisation for host in seen.running_hosts if host.utilisation is not None
        }
        hosts = tuple(
            replace(host, utilisation=1.0) if self.wanted.get(host.id, 0.0) > 1 else host
            for host in seen.hosts
        )
        changed = any(value > 1 for value in self.wanted.values())
        readings = []
        for reading in seen.instances:
            load, wanted = reading.load, self.wanted.get(reading.host, 0.0)
            if load is None:
                load = self._known.get(reading.id)
                changed |= load is not None
            elif wanted > 1:
                load = Resources(load.cpu_cores / wanted, load.memory_mb, load.network_mbps)
            if load is not None:
                self._known[reading.id] = load
            readings.append(reading if load is reading.load else replace(reading, load=load))
        self._seen = seen
        self._shown = replace(seen, hosts=hosts, instances=tuple(readings)) if changed else seen
        return self._shown

    def apply(self, plan: Plan) -> Outcome:
        """Apply the plan to the world."""
        return self.cloud.apply(plan)
