"""The job of the soak: a simulated Spark application whose clock and measurements can go wrong.

Below is the simulator's application, with its batches and executors. The time of its snapshots is
that of a wall clock which jumps, its measurements go missing or are absurd, its driver does not
answer, and its executors die. Leases keep the date that the clock showed when they began, as live
ones do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate.errors import BackendError
from tidegate.loop.backend import Outcome
from tidegate.model import HostOffer, Latency, LeaseEnd, OperatorReading, Plan, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import MicroBatchCloud
from tidegate.simulation.settings import BatchSettings

DAY_S = 86_400.0
EPOCH_S = 1.7e9
"""What the wall clock shows at the beginning, in Unix seconds."""
MOST = 12
"""Executors at most."""
SLO_S = 20.0

TOPOLOGY = Topology(
    (
        Operator("trades", Resources(1), service_time_s=0.05, slo_s=SLO_S),
        Operator("quotes", Resources(1), service_time_s=0.1, slo_s=30.0),
    ),
    (Source("exchange"), Source("brokers")),
    (Edge("exchange", "trades"), Edge("brokers", "quotes")),
)
OFFER = HostOffer(Resources(4), 3600.0, 1.0, startup_s=45.0, max_hosts=MOST)
MEAN_PER_S = {"exchange": 60.0, "brokers": 20.0}

Reading = Callable[[OperatorReading], OperatorReading]


@dataclass(frozen=True)
class Days:
    """Arrivals that follow the time of day, with hours of twice the load. seed: which hours."""

    seed: int

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Sorted arrival times in [start_s, end_s) by source."""
        hour = random.Random(f"{self.seed}/{start_s // 3600}")
        factor = (1 + 0.8 * math.sin(2 * math.pi * start_s / DAY_S)) * hour.choice([1, 1, 1, 2])
        found = {}
        for source, mean in MEAN_PER_S.items():
            count = rng.poisson(mean * factor * (end_s - start_s))
            found[source] = np.sort(rng.uniform(start_s, end_s, count))
        return found


def without(**fields: Any) -> Reading:
    """A reading in which fields have other values, such as None."""
    return lambda reading: replace(reading, **fields)


NOTHING = without(
    arrival_rate_per_s=None,
    processed_per_s=None,
    service_time_s=None,
    queue_length=None,
    recent_durations_s=None,
    batches=None,
    delay=Latency(),
    backlog_s=None,
)
MISSING: dict[str, Reading] = {
    "no readings": NOTHING,
    "no rates": without(arrival_rate_per_s=None, processed_per_s=None),
    "no costs": without(service_time_s=None, batches=None),
    "no lag": without(queue_length=None, backlog_s=None),
    "no delays": without(recent_durations_s=None, delay=Latency()),
}
ABSURD: dict[str, Reading] = {
    "10¹² rows a second": without(arrival_rate_per_s=1e12),
    "10³⁰⁰ rows a second": without(arrival_rate_per_s=1e300),
    "10¹² rows waiting": without(queue_length=1e12, backlog_s=1e12),
    "31 years a row": without(service_time_s=1e9),
    "a delay of 10³⁰⁰ s": without(
        delay=Latency(1e300, 1e300, 1e300), recent_durations_s=(1e300,) * 5
    ),
    "-5 rows a second": without(arrival_rate_per_s=-5.0),
    "NaN rows waiting": without(queue_length=math.nan),
}
IMPOSSIBLE = ("-5 rows a second", "NaN rows waiting")
"""Readings that the model refuses, so that the turn fails."""


class Job:
    """A backend with a clock, for one seed; it can be pickled.

    interval_s: time between two decisions, in seconds.
    """

    def __init__(self, seed: int, interval_s: float) -> None:
        settings = BatchSettings(
            overhead_s=1.0,
            overhead_scv=0.1,
            trigger_interval_s=5.0,
            decision_s=interval_s,
            monitoring_s=3600.0,
        )
        self.world = MicroBatchCloud(TOPOLOGY, OFFER, Days(seed), seed=seed, settings=settings)
        self.ahead_s = 0.0
        """By how much the wall clock is ahead of where it began, jumps only."""
        self.wrong = ""
        """Key of `MISSING` or `ABSURD`, empty while measurements are right."""
        self.silent = False
        """Whether the driver does not answer when it is observed."""
        self.refusing = ""
        """Whether requests fail: ``before`` they have an effect, or ``after``; empty if not."""
        self._dated: dict[str, float] = {}

    # --- the clock ------------------------------------------------------------------------------

    def clock(self) -> float:
        """The monotonic clock of the machine, in seconds."""
        return self.world.time_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.advance(seconds)
        # The simulator keeps what it measured, for a report of the whole run that nobody needs.
        series = self.world._series
        for rows in (series._rows, *series._by_query.values()):
            del rows[:-1]

    @property
    def wall_s(self) -> float:
        """What the wall clock shows."""
        return EPOCH_S + self.ahead_s + self.world.time_s

    # --- the backend ----------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What can be measured, as far as it can."""
        if self.silent:
            raise BackendError("the driver does not answer")
        seen = self.world.observe()
        shift_s = EPOCH_S + self.ahead_s
        self._dated = {h.id: self._dated.get(h.id, shift_s) for h in seen.hosts}
        hosts = []
        for host in seen.hosts:
            lease = host.lease
            if lease is not None:
                lease = replace(lease, started_s=lease.started_s + self._dated[host.id])
            hosts.append(replace(host, lease=lease))
        readings = seen.operators
        if self.wrong:
            change = MISSING.get(self.wrong) or ABSURD[self.wrong]
            readings = tuple(change(reading) for reading in readings)
        return replace(
            seen,
            time_s=seen.time_s + shift_s,
            hosts=tuple(hosts),
            operators=readings,
            ended=tuple(LeaseEnd(end.host, end.time_s + shift_s) for end in seen.ended),
        )

    def apply(self, plan: Plan) -> Outcome:
        """Do as planned, unless requests fail."""
        if self.refusing == "before":
            raise BackendError("the master refused the request")
        outcome = self.world.apply(plan)
        if self.refusing == "after":
            raise BackendError("no answer to the request")
        return outcome

    def lose_an_executor(self, choice: random.Random) -> str:
        """Kill an executor, and return its name. It may be the only one."""
        hosts = self.world._hosts
        name = choice.choice(list(hosts.hosts))
        hosts._fail(name, self.world.time_s)
        self.world._snapshot = None
        return name
