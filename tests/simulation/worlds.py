"""Simulated applications that tests of decisions use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import BatchSettings
from tidegate.simulation.calibrate import BatchWorld, batch_scenario
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ConstantRate, RateTrace, Sum

__all__ = [
    "FIXED_WORK",
    "FIXED_WORK_SLO_S",
    "FOUR_QUERIES",
    "FOUR_QUERIES_SLO_S",
    "fixed_work_scenario",
    "four_queries_scenario",
]

FIXED_WORK_SLO_S = 15.0
FIXED_WORK = BatchWorld(
    Topology(
        (Operator("q", Resources(1), service_time_s=0.0005, service_scv=0.0),),
        (Source("events"),),
        (Edge("events", "q"),),
    ),
    HostOffer(Resources(4), billing_unit_s=60, price_per_unit_usd=0.01, startup_s=20, max_hosts=20),
    BatchSettings(overhead_s=0.5, fixed_work_s=20.0, trigger_interval_s=5.0),
    interval_s=10.0,
    initial_hosts=4,
)
"""D = 0.5 + (20 + n · 0.5 ms)/k with a trigger of 5 s, on at most 20 executors of 4 slots."""


def fixed_work_scenario(
    turns: int = 190, rate_per_s: float = 2000.0, initial_hosts: int = 4
) -> Scenario:
    """The world in which most work is the same for every batch: 2,000 rows/s, SLO 15 s.

    Two executors hold the trigger: a batch takes 0.5 + 25/8 = 3.6 s. With one, batches run back to
    back at 7.3 s, and the oldest rows are 14.7 s old, just within the SLO.
    turns: length of the run, in decisions. initial_hosts: executors at first.
    `tidegate.lab.backtest.stack_for("drs", scenario)` is the policy with the guards of a live run,
    and `run_policy` runs it.
    """
    workload = ConstantRate(rate_per_s, turns * FIXED_WORK.interval_s, source="events")
    world = replace(FIXED_WORK, initial_hosts=initial_hosts)
    return batch_scenario(world, workload, FIXED_WORK_SLO_S)


FOUR_QUERIES_SLO_S = {"totals": 20.0, "enriched": 8.0, "*": 30.0}
_NAMES = ("totals", "enriched", "dead-letters", "limited")
FOUR_QUERIES = BatchWorld(
    Topology(
        (
            Operator("totals", Resources(1), 0.001, 0.0, max_instances=64, state_mb=500),
            Operator("enriched", Resources(1), 0.01, 0.0, max_instances=48),
            Operator("dead-letters", Resources(1), 0.001, 0.0),
            Operator("limited", Resources(1), 0.002, 0.0, max_instances=16),
        ),
        tuple(Source(f"to-{name}") for name in _NAMES),
        tuple(Edge(f"to-{name}", name) for name in _NAMES),
    ),
    HostOffer(Resources(4), billing_unit_s=60, price_per_unit_usd=0.01, startup_s=20, max_hosts=12),
    BatchSettings(
        overhead_s=0.5,
        overheads_s={"totals": 0.8, "enriched": 0.3},
        overhead_scv=0.02,
        fixed_works_s={"totals": 6.0, "enriched": 0.5},
        trigger_interval_s=5.0,
        trigger_intervals_s={"enriched": 2.0},
        max_rows={"limited": 500},
        change_s={"totals": 1.0},
        shared=True,
    ),
    interval_s=10.0,
    initial_hosts=3,
)
"""Four queries that share slots: a stateful one, one that waits in its tasks, an idle one, and one
whose source admits at most 100 rows/s."""


def four_queries_scenario(seed: int = 0, grain: float = 1.0) -> Scenario:
    """The four queries under a load that rises tenfold, falls to zero for two minutes, and rises.

    seed: random seed of arrivals. grain: how many rows one simulated item stands for; 10 is ten
    times as fast with about the same results.
    """
    times = np.array([0.0, 120, 420, 540, 570, 690, 750, 900, 1080])
    shape = np.array([0.1, 0.1, 1.0, 1.0, 0.0, 0.0, 0.4, 1.0, 1.0])
    peaks = {"totals": 2000.0, "enriched": 800.0, "limited": 90.0}
    parts = tuple(
        RateTrace(
            times, shape * peak / grain, seed=seed, source=f"to-{name}", interpolation="linear"
        )
        for name, peak in peaks.items()
    )
    operators = tuple(
        replace(o, service_time_s=(o.service_time_s or 0.0) * grain)
        for o in FOUR_QUERIES.topology.operators
    )
    limits = {name: round(rows / grain) for name, rows in FOUR_QUERIES.settings.max_rows.items()}
    world = replace(
        FOUR_QUERIES,
        topology=replace(FOUR_QUERIES.topology, operators=operators),
        settings=replace(FOUR_QUERIES.settings, max_rows=limits),
    )
    return batch_scenario(world, Sum(parts), FOUR_QUERIES_SLO_S)
