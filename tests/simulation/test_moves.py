"""What hosts are seen to use while operators move between them."""

from __future__ import annotations

import pytest

from tidegate.model import Deployment, HostOffer, Instance, Plan
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings, Poisson, SimulatedCloud

TURN_S = 5.0


def _world(startup_s: float) -> SimulatedCloud:
    """Two operators, each half busy, both on the first of two hosts with one core."""
    names = ("a", "b")
    topology = Topology(
        tuple(Operator(n, Resources(1.0), 0.005, service_scv=0.0, max_instances=1) for n in names),
        tuple(Source(f"to-{n}") for n in names),
        tuple(Edge(f"to-{n}", n) for n in names),
    )
    start = Deployment(("host-1", "host-2"), tuple(Instance(f"{n}-1", n, "host-1") for n in names))
    return SimulatedCloud(
        topology,
        HostOffer(Resources(1.0), max_hosts=2),
        Poisson({f"to-{n}": 80.0 for n in names}),
        seed=1,
        initial=start,
        settings=CloudSettings(
            instance_startup_s=(startup_s, startup_s), image_download_s=0.0, migration_pause_s=0.1
        ),
    )


@pytest.mark.parametrize("startup_s", [2.0, 7.0, 12.0])
def test_a_move_shows_each_host_what_it_did_and_no_more(startup_s: float) -> None:
    world = _world(startup_s)
    for _ in range(20):
        world.advance(TURN_S)
        world.observe()
    there = Deployment(
        ("host-1", "host-2"), (Instance("a-1", "a", "host-1"), Instance("b-1", "b", "host-2"))
    )
    world.apply(Plan(there))
    for turn in range(1, 6):
        world.advance(TURN_S)
        seen = world.observe()
        first, second = (seen.host[name].utilisation or 0.0 for name in ("host-1", "host-2"))
        away = min(1.0, max(0.0, (turn * TURN_S - startup_s) / TURN_S))  # share of the turn
        assert first == pytest.approx(0.8 - 0.4 * away, abs=0.12)
        assert second == pytest.approx(0.4 * away, abs=0.12)
        moved = next(i for i in seen.instances if i.id == "b-1")
        if moved.load is not None:
            assert moved.load.cpu_cores == pytest.approx(0.4, abs=0.2)
            assert moved.processed_per_s == pytest.approx(80, abs=40)
