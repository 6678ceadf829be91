"""The fluid kernel passes over what has nothing to do, and no bit of the result changes."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.model import Deployment, HostOffer, Instance, Plan
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings, FluidCloud
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.state import Floats

SHARDS = 5
DEMAND = Resources(1, 64)
OFFER = HostOffer(Resources(8, 4096), startup_s=7.0)


class Seldom:
    """Items come to few shards in most seconds, and then so many that a queue forms."""

    duration_s = 600.0

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        shape = (SHARDS, int(self.duration_s))
        self.items = np.where(random.random(shape) < 0.1, random.poisson(6, shape), 0.0)
        self.items[:, 200:260] = 0.0  # nobody sends anything
        self.items[0, 300:] = 0.0

    def expected(self, edges_s: Floats) -> dict[str, Floats]:
        whole = np.concatenate((np.zeros((SHARDS, 1)), np.cumsum(self.items, axis=1)), axis=1)
        seconds = np.arange(whole.shape[1])
        return {f"s{n}": np.diff(np.interp(edges_s, seconds, whole[n])) for n in range(SHARDS)}

    def arrivals(self, start_s: float, end_s: float) -> dict[str, Floats]:
        raise AssertionError("a flow needs no single items")


def ran(seed: int, in_full: bool) -> FluidCloud:
    """A world after ten minutes, in which an instance starts and another moves.

    in_full: whether every step of every shard is computed in full. This is so where an operator
    feeds the shards, even one that never has an item: then none is passed over.
    """
    operators = [Operator(f"o{n}", DEMAND, 0.2, slo_s=0.5, service_scv=0.5) for n in range(SHARDS)]
    edges = [Edge(f"s{n}", f"o{n}") for n in range(SHARDS)]
    if in_full:
        operators.append(Operator("silent", DEMAND, 0.2))
        edges += [Edge("silent", f"o{n}") for n in range(SHARDS)]
    sources = tuple(Source(f"s{n}") for n in range(SHARDS))
    topology, hosts = Topology(tuple(operators), sources, tuple(edges)), ("host-1", "host-2")
    first = tuple(Instance(f"{o.name}-1", o.name, "host-1") for o in operators)
    settings = CloudSettings(fluid_inflow="expected")
    begin = Deployment(hosts, first)
    world = FluidCloud(topology, OFFER, Seldom(seed), seed=1, initial=begin, settings=settings)
    more = (*first, Instance("o1-2", "o1", "host-2"))
    moved = tuple(Instance(i.id, i.operator, "host-2") if i.id == "o2-1" else i for i in more)
    for turn in range(40):
        if turn in (5, 12):
            world.apply(Plan(Deployment(hosts, more if turn == 5 else moved)))
        world.advance(15.0)
    return world


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_passing_over_idle_shards_changes_no_bit(seed: int) -> None:
    quick, full = (ran(seed, in_full)._engine.net for in_full in (False, True))
    assert np.array_equal(quick.tally, full.tally[:SHARDS])
    assert np.array_equal(quick.slot_f, full.slot_f[:SHARDS])
    assert np.array_equal(quick.sketch[:SHARDS], full.sketch[:SHARDS])
    assert np.array_equal(quick.sketch[SHARDS:], full.sketch[SHARDS + 1 :])
    assert np.array_equal(quick.whole, full.whole)
    assert quick.whole[at.OUT] > 500 and quick.whole[at.LATE] >= 0
