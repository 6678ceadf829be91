"""All backends that need no JVM, held to one contract; `tests/spark` holds the live one to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.test_manager import Fleet as FakeFleet
from tests.simulation.test_queries import world as queries
from tidegate.loop.backend import Backend
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.packing import Style
from tidegate.simulation import QueryCost
from tidegate.spark.autoscaler import world as world_module
from tidegate.spark.autoscaler.executors import ExecutorHosts, WorkerHosts
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.testing.backends import check_backend
from tidegate.testing.spark import FakeCluster, FakeGateway
from tidegate.testing.worlds import ImaginaryWorld

STYLES: tuple[Style, ...] = ("engines", "instances", "placement")
TURNS = 30


def until(advance: Callable[[], None]) -> Callable[[Callable[[], bool]], None]:
    def wait(true: Callable[[], bool]) -> None:
        for _ in range(TURNS):
            if true():
                return
            advance()
        raise AssertionError(f"it did not come true in {TURNS} turns")

    return wait


@pytest.mark.parametrize("style", STYLES)
def test_the_imagined_world(style: Style) -> None:
    world = ImaginaryWorld(3, style)
    check_backend(world, until(world.advance))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("embedded", [False, True])
def test_spark_behind_a_fake_gateway(
    style: Style, embedded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 0.05)
    gateway = FakeGateway(2)
    gateway.query("ticks")
    cluster = FakeCluster(gateway, 2)
    hosts = (
        WorkerHosts(gateway, gateway.clock, cluster)
        if embedded
        else ExecutorHosts(gateway, gateway.clock)
    )
    offer = HostOffer(Resources(2), max_hosts=6)
    world: Backend = SparkWorld(gateway, hosts, offer, style=style, clock=gateway.clock)

    def advance() -> None:
        gateway.advance(2)
        cluster.settle()

    check_backend(world, until(advance))


def test_the_simulated_fleet() -> None:
    world = queries(QueryCost(0.1))
    world.advance(5)
    check_backend(world, until(lambda: world.advance(5)))


def test_a_fleet_of_fake_hosts(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.5})
    fleet.turns(2)
    fleet.provider.slow = True

    def advance() -> None:
        fleet.provider.starting.clear()
        fleet.clock.now_s += 5
        fleet.world.look()
        fleet.world.reconcile()

    check_backend(fleet.world, until(advance))
