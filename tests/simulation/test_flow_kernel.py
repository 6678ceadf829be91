"""Parts of the fluid kernel that are written for speed, next to the plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.simulation.helpers import chain, running
from tidegate.model import Deployment, HostOffer, Plan
from tidegate.model.topology import Resources
from tidegate.simulation import CloudSettings, FluidCloud, Poisson
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.flow import _beyond, _mean_wait

ROUNDING = 2.0**-53


def plain_wait(servers: float, load: float, scv: float, mean_s: float) -> float:
    """Erlang's B by its recursion, Erlang C and Allen–Cunneen."""
    whole = max(1, int(servers))
    load = min(whole * 0.999, load)
    blocking = 1.0
    for k in range(1, whole + 1):
        blocking = load * blocking / (k + load * blocking)
    waits = blocking / (1 - load / whole * (1 - blocking))
    return waits * mean_s / (whole - load) * (1 + scv) / 2


@pytest.mark.parametrize("servers", [0.3, 1, 2.9, 3, 11, 64, 300])
@pytest.mark.parametrize("share", [0.0, 1e-9, 0.01, 0.3, 0.9, 0.998, 2.0])
def test_the_mean_wait_is_that_of_erlangs_recursion(servers: float, share: float) -> None:
    """Up to rounding.

    Each of n servers adds three to four roundings to 1 / B, of positive numbers, and as many to the
    recursion. The share that waits has a divisor of 0.001 or more, as the load is at most 0.999 of
    the servers, and three roundings of numbers up to 1 in it.
    """
    load = share * servers
    tolerance = (8 * 2 * servers + 2 * 3 / 0.001 + 20) * ROUNDING
    found = _mean_wait(servers, load, 0.5, 0.1)
    assert found == pytest.approx(plain_wait(servers, load, 0.5, 0.1), rel=tolerance, abs=1e-300)


def test_shares_beyond_a_limit_are_those_of_the_exponential_or_negligible() -> None:
    for limit in np.linspace(0.1, 50.0, 500):
        exact = math.exp(-max(0.0, limit - 1.0) / 0.25)
        assert _beyond(limit, 1.0, 0.25) == pytest.approx(exact, rel=1e-15, abs=math.exp(-40.0))
    assert _beyond(1.1, 1.0, 0.0) == 0.0


@pytest.mark.parametrize("cores", [100.0, 1.5])
def test_instances_share_the_work_and_empty_slots_have_none(cores: float) -> None:
    """On a host that is too small for three busy instances, these are slower and begin fewer."""
    topology = chain(0.1, scv=0.0, demand=1.0)
    begin = running(topology, 3)
    world = FluidCloud(
        topology,
        HostOffer(Resources(cores, 1e6)),
        Poisson({"input": 40.0}),
        seed=1,
        initial=begin,
        settings=CloudSettings(fluid_inflow="expected"),
    )
    left = tuple(one for one in begin.instances if one.id != "a-2")
    for deployment, count in ((begin, 3), (Deployment(begin.hosts, left), 2)):
        world.apply(Plan(deployment))
        net = world._engine.net
        before, served = net.slot_f[0].copy(), float(net.tally[0, at.PROCESSED])
        world.advance(60.0)
        serving = net.slot_i[0, at.ALIVE] == at.SERVING
        assert serving.sum() == count
        busy_s, begun = (net.slot_f[0, row] - before[row] for row in (at.BUSY_S, at.STARTED_S))
        assert not busy_s[~serving].any() and not begun[~serving].any()
        assert np.ptp(busy_s[serving]) == np.ptp(begun[serving]) == 0.0
        served = float(net.tally[0, at.PROCESSED]) - served
        assert begun.sum() == pytest.approx(served, rel=0.01)
        slower = busy_s.sum() / (0.1 * begun.sum())
        assert slower == pytest.approx(1.0 if cores > 3 else count / cores, rel=0.05)


def test_hosts_are_slowed_down_while_their_instances_can_demand_more_than_they_have() -> None:
    topology = chain(0.1, scv=0.0, demand=1.0)
    full = running(topology, 3)
    less = Deployment(full.hosts, full.instances[:1])
    world = FluidCloud(
        topology, HostOffer(Resources(1.5, 1e6)), Poisson({"input": 30.0}), seed=1, initial=full
    )
    for deployment in (full, less, full, less):
        world.apply(Plan(deployment))
        world.advance(60.0)
        net = world._engine.net
        paces = net.slot_f[0, at.PACE][net.slot_i[0, at.ALIVE] == at.SERVING]
        assert len(paces) == len(deployment.instances)
        if deployment is full:
            assert (paces > 1.5).all() and net.whole[at.NEXT_CONTENTION] <= world.time_s + 1.0
        else:
            assert (paces == 1.0).all() and net.whole[at.NEXT_CONTENTION] == np.inf
