"""Simulated worlds for the real controller, policies and guards.

::

    world = SimulatedCloud(topology, offer, workload, seed=1, settings=CloudSettings())
    memory = policy.initial_memory()
    while world.time_s < 7200:
        plan, memory = policy.decide(world.observe(), memory)
        world.apply(plan)
        world.advance(60)
    report = world.report()

- `SimulatedWorld` is the base of all worlds. ``observe() -> Snapshot`` and
  ``apply(plan) -> Outcome`` are the backend protocol; ``advance(seconds)`` lets time pass;
  ``time_s`` is the clock, in seconds from 0.
- `SimulatedCloud` simulates each item. `FluidCloud` has the same interface, with a flow in place
  of items; its cost does not depend on the rate, but it is less exact. Use it for wide sweeps.
- `MicroBatchCloud` with `BatchSettings` is a Spark application whose queries run in micro-batches.
- `QueryCloud` with `QueryCost` and `QuerySettings` is a fleet of queries, each on one host.
- ``report() -> RunReport`` gives the results at any time, with `OperatorReport`, `Compliance` and
  `RunSeries`; ``latencies() -> LatencySketch`` can be merged over runs.
- A workload has ``arrivals(start_s, end_s)``, or the same with a third argument, a NumPy
  generator, and returns sorted arrival times by source; `Poisson` is the simplest. With
  ``expected(edges_s)`` it serves the fluid world without drawing items.
- `CloudSettings`: start-up times, service-time distributions, queue limits, contention,
  migration, failures, measurement and penalties. `ServiceTime`: one distribution.

The same seed gives the same run, and the same arrivals to every policy.
"""

from __future__ import annotations

from tidegate.simulation.arrivals import Arrivals, Poisson, SeededArrivals
from tidegate.simulation.batches import MicroBatchCloud
from tidegate.simulation.fluid import FluidCloud
from tidegate.simulation.items import SimulatedCloud
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.queries import QueryCloud, QueryCost, QuerySettings
from tidegate.simulation.report import Compliance, OperatorReport, RunReport, RunSeries
from tidegate.simulation.settings import (
    BatchSettings,
    CloudSettings,
    ServiceKind,
    ServiceTime,
)
from tidegate.simulation.world import SimulatedWorld

__all__ = [
    "Arrivals",
    "BatchSettings",
    "CloudSettings",
    "Compliance",
    "FluidCloud",
    "LatencySketch",
    "MicroBatchCloud",
    "OperatorReport",
    "Poisson",
    "QueryCloud",
    "QueryCost",
    "QuerySettings",
    "RunReport",
    "RunSeries",
    "SeededArrivals",
    "ServiceKind",
    "ServiceTime",
    "SimulatedCloud",
    "SimulatedWorld",
]
