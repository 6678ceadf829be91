"""The parts of the simulation by themselves: rng, sketch, stations, series, fluid world."""

from __future__ import annotations

import math
from itertools import pairwise

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.simulation.helpers import BIG, chain, drive, interval, running
from tidegate.errors import InputError
from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.simulation import (
    CloudSettings,
    FluidCloud,
    LatencySketch,
    MicroBatchCloud,
    Poisson,
    QueryCloud,
    SimulatedCloud,
    SimulatedWorld,
)
from tidegate.simulation.kernels.random import (
    Words,
    exponential,
    normal,
    streams,
    uniform,
)
from tidegate.simulation.kernels.sketch import RELATIVE_ERROR
from tidegate.simulation.kernels.stations import simulate_tandem
from tidegate.simulation.network import Coming
from tidegate.simulation.scenario import Sharded
from tidegate.theory.queueing import Station, sojourn_s
from tidegate.workloads import ConstantRate

Floats = NDArray[np.float64]


@numba.njit()
def _fill(states: Words, kind: int, out: Floats) -> None:
    state = states[0]
    for i in range(len(out)):
        if kind == 0:
            out[i], state = uniform(state)
        elif kind == 1:
            out[i], state = exponential(state)
        else:
            out[i], state = normal(state)


@pytest.mark.parametrize(("kind", "name"), [(0, "uniform"), (1, "expon"), (2, "norm")])
def test_lots_have_the_distribution_that_they_claim(kind: int, name: str) -> None:
    drawn = np.empty(200_000)
    _fill(streams(7, 1, 1), kind, drawn)
    assert stats.kstest(drawn, name).pvalue > 0.001
    # Neighbours are not correlated: the estimate is normal with deviation 1/√n.
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4 / math.sqrt(len(drawn))


def test_streams_differ_by_seed_and_purpose() -> None:
    states = {int(s) for seed in (1, 2) for purpose in (1, 2) for s in streams(seed, purpose, 3)}
    assert len(states) == 12


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_sketch_is_within_its_relative_error(share: float) -> None:
    values = np.random.default_rng(1).lognormal(-2, 2, 20_000)
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    estimate = LatencySketch().add(values).quantile(share)
    assert estimate is not None
    assert abs(estimate / exact - 1) <= RELATIVE_ERROR < 0.01


def test_merged_sketches_are_the_sketch_of_all() -> None:
    values = np.random.default_rng(2).exponential(1.0, 1_000)
    both = LatencySketch().add(values[:300]).merged(LatencySketch().add(values[300:]))
    whole = LatencySketch().add(values)
    assert np.array_equal(both.counts, whole.counts)
    assert both.mean_s == pytest.approx(whole.mean_s)


def test_empty_sketch_knows_nothing() -> None:
    assert LatencySketch().quantile(0.5) is None
    assert LatencySketch().mean_s is None
    with pytest.raises(InputError, match="between 0 and 1"):
        LatencySketch().quantile(95)


def test_tandem_has_the_jackson_mean_and_distribution() -> None:
    stations = (Station("a", 40, 5.714), Station("b", 40, 5.333), Station("c", 40, 400))
    exact = sojourn_s(stations, (10, 11, 1), 40)
    runs = [simulate_tandem(stations, (10, 11, 1), 200_000, seed=seed) for seed in range(10)]
    low, high = interval([run.mean_s for run in runs])
    assert low <= exact <= high
    # M/M/1: the sojourn time is exponential, so its median is ln 2 times its mean.
    medians = []
    for seed in range(10):
        single = simulate_tandem([Station("a", 0.5, 1.0)], (1,), 100_000, seed=seed)
        medians.append(single.latencies.quantile(0.5) or 0.0)
    low, high = interval(medians)
    slack = 1 + RELATIVE_ERROR
    assert low / slack <= 2 * math.log(2) <= high * slack


def test_tandem_refuses_too_much_load() -> None:
    with pytest.raises(InputError, match="servers of a is 1; it must be a number above 2"):
        simulate_tandem([Station("a", 2.0, 1.0)], (1,), 1_000, seed=0)


def test_fluid_world_has_the_same_steady_state() -> None:
    """Below capacity the fluid world's mean is the formula that the item world converges to."""
    topology = chain(0.1, 0.2)
    exact = sojourn_s([Station("a", 12, 10), Station("b", 12, 5)], [2, 4], 12)
    world = FluidCloud(
        topology, BIG, Poisson({"input": 12.0}), seed=0, initial=running(topology, 2, 4)
    )
    world.advance(20_000)
    report = world.report()
    assert report.items_in == pytest.approx(240_000, rel=0.01)
    assert report.latency_mean_s == pytest.approx(exact, rel=0.1)
    assert abs(report.items_in - report.items_out - report.items_queued) <= 1


def test_fluid_compliance_is_never_below_zero() -> None:
    """Late items are real numbers there, and are compared with as real a number of items."""
    operator = Operator("work", Resources(1), 10.0, service_scv=0.0, slo_s=1.0)
    topology = Topology((operator,), (Source("input"),), (Edge("input", "work"),))
    settings = CloudSettings(end_to_end_slo_s=1.0)
    world = FluidCloud(topology, BIG, Poisson({"input": 1.0}), seed=0, settings=settings)
    world.advance(127)  # 12.7 items, all of them late
    report = world.report()
    assert report.items_out == report.operators[0].processed == 12
    assert report.slo_compliance == pytest.approx(0.0, abs=1e-12)
    assert report.slo_compliance is not None and report.slo_compliance >= 0
    (work,) = report.operators
    assert work.compliance is not None and work.compliance.real_time >= 0


class Steps:
    """Two levels, five minutes each."""

    def arrivals(self, start_s: float, end_s: float) -> dict[str, Floats]:
        gap = 0.02 if int(start_s // 300) % 2 else 0.1
        return {"input": np.arange(start_s, end_s, gap)}


def test_fluid_and_item_worlds_agree_about_a_policy() -> None:
    """The stated error: within ten points of compliance and a third of the cost (see designs)."""
    operator = Operator("work", Resources(0.5, 256), 0.1, service_scv=0.0, slo_s=1.0)
    topology = Topology((operator,), (Source("input"),), (Edge("input", "work"),))
    offer = HostOffer(Resources(2, 4096), billing_unit_s=300, price_per_unit_usd=1.0)
    reports = []
    for kind in (SimulatedCloud, FluidCloud):
        world = kind(topology, offer, Steps(), seed=1)
        drive(world, QueueThreshold(), 3_600)
        reports.append(world.report())
    items, fluid = reports
    assert items.compliance is not None
    assert fluid.compliance is not None
    assert abs(items.compliance.real_time - fluid.compliance.real_time) < 0.1
    assert abs(items.paid_units - fluid.paid_units) <= items.paid_units / 3
    assert abs(items.items_in - fluid.items_in) <= 1


@pytest.mark.parametrize("world", [SimulatedCloud, FluidCloud, MicroBatchCloud, QueryCloud])
def test_every_world_is_observed_applied_to_and_advanced_alike(world: type) -> None:
    assert issubclass(world, SimulatedWorld)
    for name in ("observe", "advance"):  # no world has a clock or snapshots of another kind
        assert getattr(world, name) is getattr(SimulatedWorld, name)


def test_shards_are_counted_as_they_arrive() -> None:
    shards = Sharded(ConstantRate(20, duration_s=150, seed=3), ("a", "b", "c"))
    even = np.linspace(30.0, 150.0, 49)
    at_items = shards.arrivals(30.0, 150.0)["b"][::10]  # an item on an edge comes after it
    for edges in (even, at_items):
        times = shards.arrivals(edges[0], edges[-1])
        counts = shards.counted(edges)
        assert sum(map(len, times.values())) == sum(one.sum() for one in counts.values()) > 2000
        for name in ("a", "b", "c"):
            assert np.array_equal(counts[name], np.histogram(times[name], edges)[0])
            assert np.all(np.diff(times[name]) >= 0)


def test_the_shard_of_an_item_does_not_depend_on_the_interval_asked_for() -> None:
    shards = Sharded(ConstantRate(20, duration_s=400, seed=3), ("a", "b", "c"))
    whole, cuts = shards.arrivals(0.0, 400.0), (0.0, 7.5, 60.0, 180.0, 181.0, 400.0)
    parts = [shards.arrivals(*bounds) for bounds in pairwise(cuts)]
    for name in ("a", "b", "c"):
        assert np.array_equal(whole[name], np.concatenate([part[name] for part in parts]))


@pytest.mark.parametrize(
    ("arrivals", "good"),
    [
        ({0: [1.0, 2.0], 2: [0.0, 9.9]}, True),  # a source may begin before the last one ended
        ({}, True),
        ({1: [2.0, 1.0]}, False),
        ({0: [5.0, 6.0], 1: [3.0, 2.0]}, False),
        ({0: [1.0], 2: [10.0]}, False),
        ({0: [-0.1], 2: [1.0]}, False),
        ({1: [math.nan]}, False),
    ],
)
def test_arrivals_are_in_order_within_each_source(
    arrivals: dict[int, list[float]], good: bool
) -> None:
    coming = Coming.of({source: np.array(times) for source, times in arrivals.items()}, 3)
    assert coming.in_order(0.0, 10.0) is good
    parts = zip(coming.position, coming.until, strict=True)
    found = {n: list(coming.times[first:last]) for n, (first, last) in enumerate(parts)}
    assert {n: times for n, times in found.items() if times} == {
        n: pytest.approx(times, nan_ok=True) for n, times in arrivals.items()
    }
