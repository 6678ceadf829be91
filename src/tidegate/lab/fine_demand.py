"""The work of a scenario in short slots, for the bound with whole hosts."""

from __future__ import annotations

import math

import numpy as np

from tidegate.lab.bound import Demand
from tidegate.lab.bound.whole import FineDemand
from tidegate.model.topology import Topology
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import Workload
from tidegate.workloads.protocol import FloatArray, Predictable

__all__ = ["fine_demand"]

SLOTS_PER_UNIT = 30
"""Slots in a billing unit at least, so that a slot that is touched in part costs little."""
MOST_SLOTS = 4_000_000
"""Slots at most; a trace of some months has longer ones."""
AT_ONCE = 20_000
"""Slots whose arrivals are drawn at a time."""


def fine_demand(
    scenario: Scenario, topology: Topology, slo_s: float, expected: bool
) -> FineDemand | None:
    """What arrives, by slot; None if nothing does, or nothing can be late.

    Args:
        scenario: What policies are tested against.
        topology: The scenario's operators, with the work that an item of each source brings.
        slo_s: Latency target, in seconds; the longest one where there are several.
        expected: Whether items arrive at their expected rate, as in the fluid world.
    """
    offer, workload = scenario.offer, scenario.workload
    run_s = workload.duration_s
    slot_s = max(min(slo_s, offer.billing_unit_s / SLOTS_PER_UNIT), run_s / MOST_SLOTS)
    # Items that are due after the end of the run are never late.
    slots = math.floor((run_s - slo_s) / slot_s)
    if slots < 1:
        return None
    one = {source.name: [1.0] for source in topology.sources}
    streams = Demand.from_rates(topology, one, period_s=1.0).streams
    per_item_s = {s.name: s.work_core_s[0] / offer.capacity.cpu_cores for s in streams}
    largest_s = max(per_item_s.values())
    if largest_s <= 0:
        return None
    work = np.zeros(slots)
    for first in range(0, slots, AT_ONCE):
        edges = np.arange(first, min(first + AT_ONCE, slots) + 1, dtype=np.float64) * slot_s
        for name, items in _items(workload, edges, expected).items():
            work[first : first + AT_ONCE] += items * per_item_s.get(name, 0.0)
    return FineDemand(
        slot_s,
        work,
        slo_s,
        offer.billing_unit_s,
        offer.price_per_unit_usd,
        scenario.settings.penalty_usd / largest_s,
    )


def _items(workload: Workload, edges: FloatArray, expected: bool) -> dict[str, FloatArray]:
    if expected and isinstance(workload, Predictable):
        return workload.expected(edges)
    found = workload.arrivals(float(edges[0]), float(edges[-1]))
    return {
        name: np.diff(np.searchsorted(times, edges)).astype(np.float64)
        for name, times in found.items()
    }
