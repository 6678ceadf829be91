"""Journals of an application with several queries, as a live run writes them: made, not measured.

The four queries are a stateless one with a tight SLO, a stateful aggregation that is overloaded in
the middle of the run, one that never gets a row, and one whose source admits few rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Journal, Turn
from tidegate.model import (
    BatchCost,
    BatchReading,
    Deployment,
    Estimate,
    Host,
    HostOffer,
    Latency,
    OperatorReading,
    Plan,
    Reason,
    Snapshot,
)
from tidegate.model.leases import Lease
from tidegate.model.steps import Step
from tidegate.model.topology import Operator, Resources, Source, Topology

NAMES = ("alerts", "sessions", "dead-letter", "audit")
SLOS_S = {"alerts": 2.0, "sessions": 30.0, "dead-letter": 30.0, "audit": 60.0}
INTERVAL_S = 10.0
HOST = Resources(4, 4096)


def estimate(value: float, spread: float = 0.2, identified: bool = True) -> Estimate:
    return Estimate(value, value * (1 - spread), value * (1 + spread), identified)


def reading(kind: str, name: str, load: float, overloaded: bool) -> OperatorReading:
    """A query of one of the four kinds at a load from 0 to 1."""
    if kind == "dead-letter":
        return OperatorReading(
            name, 0.0, 0.0, queue_length=0.0, batches=BatchReading(5.0, ()), backlog_s=0.0
        )
    if kind == "alerts":
        rate, p95_s = 400 * load, 0.8 + 0.6 * load
        cost = BatchCost(estimate(0.15), estimate(0.1), estimate(0.0004), slots=4.0)
        return OperatorReading(
            name, rate, rate, service_time_s=0.0004, queue_length=rate / 2,
            batches=BatchReading(1.0, (0.3, 0.35), 0.15, cost),
            delay=Latency(p95_s / 2, p95_s / 2, p95_s, 1.2 * p95_s),
            event_age=Latency(45.0, 40.0, 90.0, 120.0),  # late by design
            backlog_s=0.2,
        )  # fmt: skip
    if kind == "audit":
        cost = BatchCost(estimate(0.4), estimate(0.2), estimate(0.001, 0.9, False), slots=2.0)
        return OperatorReading(
            name, 800 * load, min(500.0, 800 * load), service_time_s=0.001,
            queue_length=20_000 * load,
            batches=BatchReading(10.0, (3.0, 3.1), 0.4, cost, 5000.0, "maxOffsetsPerTrigger=5000"),
            delay=Latency(30.0, 28.0, 45.0, 55.0),
            backlog_s=40 * load,
        )  # fmt: skip
    rate = 2000 * load
    cost = BatchCost(estimate(0.5), estimate(20.0), estimate(0.0005), 0.1, 12.0)
    found = OperatorReading(
        name, rate, rate, service_time_s=0.0005, queue_length=5 * rate,
        batches=BatchReading(5.0, (2.4, 2.6), 0.5, cost),
        delay=Latency(6.0, 5.5, 9.0, 11.0),
        event_age=Latency(9.0, 8.0, 14.0, 18.0),
        backlog_s=2.5,
        state_mb=640.0,
    )  # fmt: skip
    if overloaded:  # rows are left over and there is no watermark: only a lower bound is known
        found = replace(
            found, processed_per_s=rate / 2, delay=Latency(44.0, 44.0, 44.0, 44.0, at_least=True),
            event_age=Latency(), backlog_s=44.0, queue_length=22 * rate,
        )  # fmt: skip
    return found


def many_queries(count: int = 4, turns: int = 60, from_s: float = 1_790_000_000.0) -> list[Turn]:
    """The turns of such an application. count: of queries; after four, the kinds repeat."""
    kinds = {
        NAMES[n % 4] + (f"-{n // 4 + 1}" if n >= 4 else ""): NAMES[n % 4] for n in range(count)
    }
    topology = Topology(
        tuple(
            Operator(name, Resources(1, 512), slo_s=SLOS_S[kind]) for name, kind in kinds.items()
        ),
        (Source("input"),),
    )
    found, hosts = [], 2
    for n in range(turns):
        load = (1 - math.cos(2 * math.pi * n / turns)) / 2
        overloaded = turns // 3 <= n < turns // 2
        wanted = 2 + round(6 * load)
        readings = tuple(reading(kind, name, load, overloaded) for name, kind in kinds.items())
        slow = max((r.delay for r in readings), key=lambda d: d.p95_s or 0.0)
        ages = max((r.event_age for r in readings), key=lambda d: d.p95_s or 0.0)
        names = tuple(f"host-{k}" for k in range(1, hosts + 1))
        lease = Lease(60.0, 0.1, started_s=from_s)
        snapshot = Snapshot(
            from_s + n * INTERVAL_S,
            topology,
            HostOffer(HOST, 60.0, 0.1, max_hosts=8),
            tuple(Host(name, HOST, utilisation=0.3 + 0.6 * load, lease=lease) for name in names),
            operators=readings,
            latency=slow,
            interval_s=INTERVAL_S,
            leased_so_far=hosts,
            event_age=ages,
        )
        after = tuple(f"host-{k}" for k in range(1, wanted + 1))
        steps = tuple(Step("lease", host=name) for name in after[hosts:])
        steps += tuple(Step("release", host=name) for name in names[wanted:])
        reasons = [Reason("latency", f"sessions would take {9 + 10 * load:.0f} s with {hosts}")]
        if count > 3:
            reasons.append(
                Reason(
                    "ceiling",
                    "audit: the source admits at most 5,000 rows a trigger: "
                    "more executors do not help",
                )
            )
        plan = Plan(Deployment(after), tuple(reasons), raw=Deployment(after))
        policy = "drs(t_max_s=15) → bounds(max_hosts=8)"
        found.append(Turn(n + 1, policy, snapshot, plan, Outcome(steps), slo_s=30.0))
        hosts = wanted
    return found


def write_many(path: Path, count: int = 4, until: int = 60) -> Path:
    """The same as a journal. until: number of the last turn; the overload is from 20 to 30."""
    with Journal(path) as journal:
        for turn in many_queries(count)[:until]:
            journal.write(turn)
    return path
