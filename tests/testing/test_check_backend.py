"""Every world that needs no JVM keeps the contract of backends; `tests/spark` checks the live one.

And the checker itself: every rule has a world that breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from tidegate.errors import CheckFailed
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing import Style
from tidegate.simulation import (
    FluidCloud,
    MicroBatchCloud,
    Poisson,
    QueryCloud,
    QueryCost,
    SimulatedCloud,
)
from tidegate.spark.autoscaler import world as spark_world
from tidegate.spark.autoscaler.executors import ExecutorHosts, WorkerHosts
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.testing import (
    FakeCluster,
    FakeFleet,
    FakeGateway,
    ImaginaryWorld,
    RecordedWorld,
    check_backend,
    steady_snapshot,
)

STYLES: tuple[Style, ...] = ("engines", "instances", "placement")
CHAIN = Topology(
    (Operator("a", Resources(1, 100), 0.05), Operator("b", Resources(1, 100), 0.05)),
    (Source("input"),),
    (Edge("input", "a"), Edge("a", "b")),
)
OFFER = HostOffer(Resources(4, 4096), startup_s=30.0, max_hosts=5)


def test_a_recording() -> None:
    world = RecordedWorld(repeat(steady_snapshot(hosts=2)))
    check_backend(world, lambda: None, read_only=True)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_imaginary_world(style: Style, seed: int) -> None:
    world = ImaginaryWorld(seed, style)
    check_backend(world, world.advance)


@pytest.mark.parametrize("kind", [SimulatedCloud, FluidCloud, MicroBatchCloud])
def test_the_simulated_clouds(
    kind: type[SimulatedCloud] | type[FluidCloud] | type[MicroBatchCloud],
) -> None:
    world = kind(CHAIN, OFFER, Poisson({"input": 10.0}), seed=1)
    world.advance(60)
    check_backend(world, lambda: world.advance(10))


def test_the_simulated_fleet() -> None:
    names, seconds = ("a", "b", "c"), np.arange(900.0)
    world = QueryCloud(
        Topology(tuple(Operator(name, max_instances=1) for name in names)),
        HostOffer(Resources(1), max_hosts=3),
        {name: (seconds, np.full(900, 100.0)) for name in names},
        dict.fromkeys(names, QueryCost(0.1)),
        initial=Deployment(("host-1",), tuple(Instance(f"{n}-1", n, "host-1") for n in names)),
    )
    world.advance(5)
    check_backend(world, lambda: world.advance(5))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("embedded", [False, True])
def test_spark_behind_a_fake_gateway(
    style: Style, embedded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_world, "BOUNDARY_WAIT_S", 0.05)
    gateway = FakeGateway(2)
    gateway.query("ticks")
    cluster = FakeCluster(gateway, 2, room=6)
    hosts = (
        WorkerHosts(gateway, gateway.clock, cluster)
        if embedded
        else ExecutorHosts(gateway, gateway.clock)
    )
    offer = HostOffer(Resources(2), max_hosts=6)
    world = SparkWorld(gateway, hosts, offer, style=style, clock=gateway.clock)

    def advance() -> None:
        gateway.advance(2)
        cluster.settle()

    check_backend(world, advance)


def test_a_fleet_of_fake_hosts(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.5})
    fleet.turns(2)
    fleet.provider.slow = True

    def advance() -> None:
        fleet.provider.starting.clear()
        fleet.clock.now_s += 5

    check_backend(fleet.world, advance)


# --- the checker itself -----------------------------------------------------------------------


class BrokenWorld:
    """A world that keeps the contract. The others break one rule each."""

    def __init__(self) -> None:
        self.inner = ImaginaryWorld(3)
        self.looks = 0

    def observe(self) -> Snapshot:
        self.looks += 1
        return self.inner.observe()

    def apply(self, plan: Plan) -> Outcome:
        return self.inner.apply(plan)


class MovesWhenObserved(BrokenWorld):
    def observe(self) -> Snapshot:
        snapshot = super().observe()
        return replace(snapshot, hosts=(), instances=()) if self.looks == 2 else snapshot


class TurnsBackTime(BrokenWorld):
    def observe(self) -> Snapshot:
        snapshot = super().observe()
        return replace(snapshot, time_s=snapshot.time_s - self.looks)


class ReusesNames(BrokenWorld):
    def observe(self) -> Snapshot:
        return replace(super().observe(), leased_so_far=50 - self.looks)


class MeasuresWhatIsNotThere(BrokenWorld):
    def observe(self) -> Snapshot:
        snapshot = super().observe()
        return replace(snapshot, hosts=tuple(replace(h, utilisation=0.0) for h in snapshot.hosts))


class HasNaN(BrokenWorld):
    def observe(self) -> Snapshot:
        snapshot = super().observe()
        return replace(snapshot, latency=replace(snapshot.latency, mean_s=float("nan")))


class IgnoresPlans(BrokenWorld):
    def apply(self, plan: Plan) -> Outcome:
        return Outcome()


class HidesItsSteps(BrokenWorld):
    def apply(self, plan: Plan) -> Outcome:
        self.inner.apply(plan)
        return Outcome()


class RepeatsItself(BrokenWorld):
    first: Outcome | None = None

    def apply(self, plan: Plan) -> Outcome:
        outcome = self.inner.apply(plan)
        self.first = self.first or outcome
        return self.first


class RefusesWhatItOffers(BrokenWorld):
    def apply(self, plan: Plan) -> Outcome:
        return replace(self.inner.apply(plan), refused=("not today",))


def test_a_world_with_nothing_wrong_passes() -> None:
    world = BrokenWorld()
    check_backend(world, world.inner.advance)


@pytest.mark.parametrize(
    "broken, rule",
    [
        (MovesWhenObserved, "observing changes nothing"),
        (TurnsBackTime, "time never goes backwards"),
        (ReusesNames, "the number of leases never falls"),
        (MeasuresWhatIsNotThere, "a starting host has no utilisation"),
        (HasNaN, "a snapshot survives a journal"),
        (IgnoresPlans, "what is planned is requested"),
        (HidesItsSteps, "the outcome lists exactly the steps"),
        (RepeatsItself, "applying the same plan again begins nothing"),
        (RefusesWhatItOffers, "within the offer is not refused"),
    ],
)
def test_a_world_that_breaks_one_rule_fails_by_that_rule(
    broken: Callable[[], BrokenWorld], rule: str
) -> None:
    world = broken()
    with pytest.raises(CheckFailed, match=rule):
        check_backend(world, world.inner.advance)


def test_a_host_that_never_starts_fails() -> None:
    with pytest.raises(CheckFailed, match="a leased host runs; not in 30 turns"):
        check_backend(BrokenWorld(), lambda: None)


def test_a_read_only_world_that_acts_fails() -> None:
    with pytest.raises(CheckFailed, match="read-only world begins and refuses nothing"):
        check_backend(BrokenWorld(), lambda: None, read_only=True)
