"""Hosts, leases, images, migration, failure and shedding of the simulated cloud."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.simulation.helpers import (
    BIG,
    OFFER,
    chain,
    check_world,
    conserved,
    drive,
    interval,
    keep,
    poisson_world,
    running,
)
from tidegate.errors import InputError, SettingError
from tidegate.model import Deployment, Instance, Plan
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import Policy
from tidegate.policies.btu import Btu
from tidegate.policies.drs import Drs
from tidegate.policies.local_threshold import LocalThreshold
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.policies.static import Static
from tidegate.simulation import CloudSettings, FluidCloud, Poisson, SimulatedCloud
from tidegate.workloads import ConstantRate, RateTrace

EXACT = CloudSettings(
    host_startup_s=(40.0, 40.0), instance_startup_s=(5.0, 5.0), image_download_s=20.0
)
LOOP = Topology(
    (
        Operator("a", Resources(0.5, 256), 0.1, slo_s=0.5),
        Operator("b", Resources(0.5, 256), 0.1, slo_s=0.5),
    ),
    (Source("input"),),
    (Edge("input", "a"), Edge("a", "b"), Edge("b", "a", 0.25), Edge("a", "b", 0.5)),
)
GRAPH = Topology(
    (
        Operator("a", Resources(0.5, 256), 0.1, slo_s=0.5),
        Operator("b", Resources(0.5, 256), 0.2, 0.0, slo_s=0.5),
        Operator("c", Resources(0.25, 256), 0.05, 2.0, slo_s=0.5, state_mb=100),
    ),
    (Source("input"), Source("other")),
    (
        Edge("input", "a"),
        Edge("input", "b", 0.5),
        Edge("other", "b"),
        Edge("a", "c", 1.5),
        Edge("b", "c"),
    ),
)


class Waves:
    """A rate that goes up and down, with bursts of ten at a time."""

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        high = 30.0 if int(start_s // 300) % 2 else 4.0
        moments = np.sort(rng.uniform(start_s, end_s, rng.poisson(high * (end_s - start_s) / 10)))
        return {"input": np.repeat(moments, 10), "other": moments[::7]}


class WavesAtInput(Waves):
    """The same for topologies with a single source."""

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        return {"input": super().arrivals(start_s, end_s, rng)["input"]}


TROUBLE = CloudSettings(
    host_failures_s=(400.0, 800.0),
    host_failures_per_h=2.0,
    queue_limits={"b": 40, "a": 300},
    measurement_noise=0.1,
    end_to_end_slo_s=2.0,
)


@pytest.mark.parametrize("topology", [GRAPH, LOOP], ids=["graph", "loop"])
@pytest.mark.parametrize(
    "policy", [QueueThreshold(), Btu(), Drs(), LocalThreshold(), Static(hosts=3)],
    ids=lambda policy: policy.name,
)  # fmt: skip
@pytest.mark.parametrize("settings", [CloudSettings(), TROUBLE], ids=["calm", "trouble"])
def test_contract_of_a_world(topology: Topology, policy: Policy, settings: CloudSettings) -> None:
    workload = Waves() if topology is GRAPH else WavesAtInput()
    check_world(
        lambda seed: SimulatedCloud(topology, OFFER, workload, seed=seed, settings=settings),
        policy,
        turns=40,
    )


def test_arrivals_are_the_same_whatever_the_policy_does() -> None:
    worlds = [
        SimulatedCloud(GRAPH, OFFER, Waves(), seed=5, settings=settings)
        for settings in (CloudSettings(), replace(TROUBLE, measurement_delay_s=30))
    ]
    drive(worlds[0], QueueThreshold(), 1_800)
    drive(worlds[1], Static(hosts=1), 1_800, every_s=45)
    seen = [world.report().items_in for world in worlds]
    assert seen[0] == seen[1] > 0
    assert (
        worlds[0].report().series.arrival_rate_per_s == worlds[1].report().series.arrival_rate_per_s
    )


def test_another_seed_is_another_run() -> None:
    reports = []
    for seed in (1, 2):
        world = poisson_world(chain(0.1), 5.0, 1, seed=seed)
        world.advance(600)
        reports.append(world.report())
    assert reports[0].items_in != reports[1].items_in


def test_windows_do_not_change_the_result() -> None:
    """One long stretch or many short ones: the same items at the same times."""
    means = []
    for step in (1800.0, 60.0, 7.3):
        world = SimulatedCloud(GRAPH, BIG, Waves(), seed=3, initial=running(GRAPH, 3, 5, 4))
        while world.time_s < 1_800 - 1e-9:
            world.advance(min(step, 1_800 - world.time_s))
        means.append((world.latencies().count, world.latencies().total_s))
    assert means[0] == pytest.approx(means[1], rel=1e-12)
    assert means[0] == pytest.approx(means[2], rel=1e-12)


# --- time and money ---------------------------------------------------------------------------


def test_start_up_takes_host_image_and_instance() -> None:
    topology = chain(0.1, demand=1.0)
    world = poisson_world(topology, 1.0, 1, offer=OFFER, settings=EXACT)
    wanted = Deployment(
        ("host-1", "host-2"),
        (
            Instance("a-1", "a", "host-1"),
            Instance("a-2", "a", "host-1"),
            Instance("a-3", "a", "host-2"),
        ),
    )
    world.advance(60)
    world.apply(Plan(wanted))
    status = {i.id: i.status for i in world.observe().instances}
    assert status == {"a-1": "running", "a-2": "starting", "a-3": "starting"}
    world.advance(5)  # the image is on host-1, so only the instance has to start
    assert {i.id for i in world.observe().running.instances} == {"a-1", "a-2"}
    assert [h.status for h in world.observe().hosts] == ["running", "starting"]
    world.advance(35)
    assert [h.status for h in world.observe().hosts] == ["running", "running"]
    world.advance(24.9)  # 40 s of host, 20 s of image, 5 s of instance
    assert "a-3" not in {i.id for i in world.observe().running.instances}
    world.advance(0.1 + 1e-6)
    assert "a-3" in {i.id for i in world.observe().running.instances}
    assert [h.images for h in world.observe().hosts] == [frozenset({"a"})] * 2


@pytest.mark.parametrize(("kept_s", "units"), [(1, 1), (600, 1), (601, 2), (1800, 3)])
def test_leases_are_paid_by_begun_unit(kept_s: float, units: int) -> None:
    topology = chain(0.1, demand=1.0)
    world = poisson_world(topology, 0.001, 1, offer=OFFER, settings=EXACT)
    first = world.observe().requested
    world.apply(Plan(Deployment(("host-1", "host-2"), first.instances)))
    world.advance(kept_s)
    world.apply(Plan(first))
    world.advance(7_200 - kept_s)
    report = world.report()
    assert report.paid_units == 12 + units
    assert report.resource_cost_usd == 2.0 * (12 + units)
    assert report.host_seconds == pytest.approx(7_200 + kept_s)
    assert report.steps == {"lease": 1, "release": 1, "start": 0, "stop": 0, "move": 0}
    assert report.rescales == 2


def test_a_host_is_kept_until_its_last_item_is_done() -> None:
    topology = chain(50.0, scv=0.0, demand=1.0)
    deployment = Deployment(
        ("host-1", "host-2"), (Instance("a-1", "a", "host-1"), Instance("a-2", "a", "host-2"))
    )
    world = SimulatedCloud(
        topology, OFFER, Poisson({"input": 10.0}), seed=0, initial=deployment, settings=EXACT
    )
    world.advance(10)
    world.apply(Plan(Deployment(("host-1",), (Instance("a-1", "a", "host-1"),))))
    assert [h.status for h in world.observe().hosts] == ["running", "draining"]
    world.advance(60)
    assert [h.id for h in world.observe().hosts] == ["host-1"]
    done = {o.operator: o.processed for o in world.report().operators}
    assert done["a"] == 2  # each finished the item it had
    assert world.report().host_seconds > 70 + 50


def test_more_hosts_than_the_offer_has_are_refused() -> None:
    topology = chain(0.1, demand=1.0)
    world = poisson_world(topology, 1.0, 1, offer=replace(OFFER, max_hosts=1))
    first = world.observe().requested
    outcome = world.apply(Plan(Deployment(("host-1", "host-2"), first.instances)))
    assert outcome.steps == ()
    assert "the limit of 1 hosts is reached" in outcome.refused[0]
    assert world.observe().requested == first


def test_memory_cannot_be_overbooked() -> None:
    topology = Topology(
        (Operator("a", Resources(0.1, 3000), 0.1),), (Source("input"),), (Edge("input", "a"),)
    )
    world = poisson_world(topology, 1.0, 1, offer=OFFER)
    two = (Instance("a-1", "a", "host-1"), Instance("a-2", "a", "host-1"))
    outcome = world.apply(Plan(Deployment(("host-1",), two)))
    assert "needs 3000 MB" in outcome.refused[0]


# --- trouble ----------------------------------------------------------------------------------


def test_moving_makes_items_wait_and_loses_none() -> None:
    operator = Operator("a", Resources(1, 256), 0.01, service_scv=0.0, state_mb=1250)
    topology = Topology((operator,), (Source("input"),), (Edge("input", "a"),))
    settings = replace(EXACT, bandwidth_mbps=1000.0, migration_pause_s=2.0)
    world = SimulatedCloud(
        topology,
        OFFER,
        Poisson({"input": 20.0}),
        seed=0,
        initial=Deployment(("host-1", "host-2"), (Instance("a-1", "a", "host-1"),)),
        settings=settings,
    )
    world.advance(60)
    calm = world.report().latency_max_s
    world.apply(Plan(Deployment(("host-2",), (Instance("a-1", "a", "host-2"),))))
    world.advance(120)
    report = world.report()
    assert report.migrations == 1
    assert conserved(report)
    assert report.items_dropped == 0
    assert calm is not None
    assert report.latency_max_s is not None
    # 1250 MB over 1000 Mbit/s are 10 s, and 2 s on top; the queue then drains.
    assert 11.5 < report.latency_max_s - calm < 12.5
    assert [h.id for h in world.observe().hosts] == ["host-2"]


def test_a_failed_host_replays_what_it_worked_on() -> None:
    topology = chain(10.0, scv=0.0, demand=1.0)
    settings = replace(EXACT, host_failures_s=(12.0,))
    world = SimulatedCloud(
        topology,
        OFFER,
        Poisson({"input": 5.0}),
        seed=4,
        initial=running(topology, 2, hosts=2),
        settings=settings,
    )
    world.advance(11.5)
    before = world.report()
    world.advance(1.0)
    after = world.report()
    assert after.failures == 1
    assert conserved(after)
    assert after.operators[0].processed == before.operators[0].processed
    assert len(world.observe().hosts) == 1
    assert world.observe().requested.counts["a"] == 1
    world.advance(100)
    assert conserved(world.report())
    assert world.report().items_dropped == 0


def test_shedding_drops_the_share_that_was_asked_for() -> None:
    shares = []
    for seed in range(10):
        world = poisson_world(chain(0.01), 50.0, 1, seed=seed)
        world.apply(keep(world, shed_fraction=0.3))
        world.advance(200)
        report = world.report()
        assert conserved(report)
        assert report.items_dropped == report.items_shed > 0
        shares.append(report.items_shed / report.items_in)
    low, high = interval(shares)
    assert low <= 0.3 <= high


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("kind", [SimulatedCloud, FluidCloud])
def test_offered_shed_and_processed_are_three_figures(
    kind: type[SimulatedCloud], share: float
) -> None:
    topology = chain(0.01, 0.001)
    world = kind(topology, BIG, ConstantRate(50.0, 600.0, source="input"), seed=1)
    world.advance(60)
    before = world.observe().reading["a"]
    assert (before.shed_per_s, before.dropped_per_s) == (None, 0.0)
    world.apply(keep(world, shed_fraction=share))
    world.advance(300)
    first, second = (world.observe().reading[name] for name in ("a", "b"))
    assert first.arrival_rate_per_s == pytest.approx(50, rel=0.02)
    assert first.shed_per_s == first.dropped_per_s == pytest.approx(50 * share, rel=0.1)
    # An item may have been in service when shedding began.
    assert first.processed_per_s == pytest.approx(50 * (1 - share), rel=0.05, abs=1 / 300)
    assert second.arrival_rate_per_s == pytest.approx(50 * (1 - share), rel=0.05, abs=1 / 300)
    assert second.shed_per_s is None and second.dropped_per_s == 0.0


def test_the_last_second_is_known_where_seconds_are_counted() -> None:
    """A rise just before the look is seen in the last second and not in the mean of the turn."""
    rates = {}
    for every_s in (1.0, 15.0):
        steps = RateTrace(
            np.array([0.0, 58.0]), np.array([10.0, 100.0]), end_s=120.0, source="input"
        )
        settings = CloudSettings(monitoring_s=every_s)
        world = SimulatedCloud(chain(0.005), BIG, steps, seed=1, settings=settings)
        world.advance(60)
        seen = world.observe()
        (instance,) = seen.instances
        rates[every_s] = seen.reading["a"].latest_arrival_per_s, instance.latest_processed_per_s
        assert seen.reading["a"].arrival_rate_per_s == pytest.approx(13, abs=3)
    assert rates[1.0][0] == pytest.approx(100, abs=30)
    assert rates[1.0][1] == pytest.approx(100, abs=30)
    assert rates[15.0] == (None, None)


@pytest.mark.parametrize("loop", [False, True], ids=["graph", "loop"])
def test_finite_queue_loses_what_theory_says(loop: bool) -> None:
    """M/M/1 with room for four to wait: the share lost is ρ⁵(1-ρ)/(1-ρ⁶)."""
    topology = chain(1.0, 0.001)
    if loop:  # never taken, but the event kernel has to run
        topology = replace(topology, edges=(*topology.edges, Edge("b", "a", 1e-12)))
    load = 0.9
    settings = CloudSettings(queue_limits={"a": 4})
    exact = load**5 * (1 - load) / (1 - load**6)
    shares = []
    for seed in range(10):
        world = poisson_world(topology, load, 1, 1, seed=seed, settings=settings)
        world.advance(30_000)
        report = world.report()
        assert conserved(report)
        assert report.items_dropped == report.operators[0].dropped
        shares.append(report.items_dropped / report.items_in)
    low, high = interval(shares)
    assert low <= exact <= high


def test_an_overfull_host_is_slow() -> None:
    """Four busy instances of one core on two cores: each item takes twice as long."""
    topology = chain(1.0, scv=0.0, demand=1.0)
    world = poisson_world(topology, 10.0, 4, offer=replace(OFFER, capacity=Resources(2)))
    world.advance(1_000)
    report = world.report()
    assert report.operators[0].processed == pytest.approx(1_000 * 4 / 2, rel=0.02)
    host = world.observe().hosts[0]
    assert host.utilisation == pytest.approx(2.0, rel=0.02)  # wants twice what there is


# --- mistakes ---------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    with pytest.raises(SettingError, match="service_time_s is None; it must be given"):
        poisson_world(Topology((Operator("a"),), (Source("input"),), (Edge("input", "a"),)), 1.0, 1)
    with pytest.raises(SettingError, match="instance_startup_s"):
        CloudSettings(instance_startup_s=(10.0, 5.0))
    world = SimulatedCloud(chain(0.1), BIG, Poisson({"inptu": 1.0}), seed=0)
    with pytest.raises(InputError, match="a source of the topology: input"):
        world.advance(60)


def test_unsorted_arrivals_are_refused() -> None:
    class Backwards:
        def arrivals(
            self, start_s: float, end_s: float, rng: np.random.Generator
        ) -> dict[str, NDArray[np.float64]]:
            return {"input": np.array([start_s + 2.0, start_s + 1.0])}

    world = SimulatedCloud(chain(0.1), BIG, Backwards(), seed=0)
    with pytest.raises(InputError, match="sorted and within"):
        world.advance(60)
