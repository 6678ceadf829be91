"""Simulated applications that tests of decisions use."""

from __future__ import annotations

from dataclasses import replace

from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import BatchSettings
from tidegate.simulation.calibrate import BatchWorld, batch_scenario
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ConstantRate

__all__ = ["FIXED_WORK", "FIXED_WORK_SLO_S", "fixed_work_scenario"]

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
