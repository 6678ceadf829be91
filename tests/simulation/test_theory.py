"""The simulated world against what queueing theory knows exactly or bounds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.simulation.helpers import BIG, chain, interval, poisson_world, running, steady_means
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings, ServiceTime, SimulatedCloud
from tidegate.theory.queueing import Station, erlang_c, sojourn_s, waiting_items


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (3, 0.7), (10, 0.9), (25, 0.6)])
def test_mmk(servers: int, load: float) -> None:
    topology = chain(1.0)
    rate = servers * load
    exact = sojourn_s([Station("a", rate, 1.0)], [servers], rate)
    means = steady_means(
        lambda seed: poisson_world(topology, rate, servers, seed=seed), 2_000, 40_000
    )
    low, high = interval(means)
    assert low <= exact <= high


def test_jackson_tandem_with_a_loop() -> None:
    """A third of what b has processed goes back to a: a product-form network."""
    topology = Topology(
        (Operator("a", Resources(0.01), 0.3), Operator("b", Resources(0.01), 0.2)),
        (Source("input"),),
        (Edge("input", "a"), Edge("a", "b"), Edge("b", "a", 1 / 3)),
    )
    rates = topology.arrival_rates({"input": 4.0})
    stations = [Station("a", rates["a"], 1 / 0.3), Station("b", rates["b"], 1 / 0.2)]
    exact = sojourn_s(stations, [3, 2], 4.0)
    means = steady_means(lambda seed: poisson_world(topology, 4.0, 3, 2, seed=seed), 1_000, 20_000)
    low, high = interval(means)
    assert low <= exact <= high


def test_split_and_join_counts_follow_the_traffic_equations() -> None:
    topology = Topology(
        tuple(Operator(name, Resources(0.01), 0.001) for name in "abcd"),
        (Source("input"),),
        (
            Edge("input", "a"),
            Edge("a", "b", 2.5),
            Edge("a", "c", 0.3),
            Edge("b", "d"),
            Edge("c", "d", 0.5),
        ),
    )
    rates = topology.arrival_rates({"input": 10.0})
    shares: dict[str, list[float]] = {name: [] for name in "bcd"}
    for seed in range(10):
        world = poisson_world(topology, 10.0, 1, 1, 1, 1, seed=seed)
        world.advance(2_000)
        report = world.report()
        for operator in report.operators[1:]:
            shares[operator.operator].append(operator.arrived / report.items_in)
    for name, values in shares.items():
        low, high = interval(values)
        assert low <= rates[name] / 10.0 <= high, name


def test_end_to_end_is_the_last_of_two_branches() -> None:
    """Both branches at once, constant times: the slower one counts."""
    topology = Topology(
        (
            Operator("fast", Resources(0.01), 0.1, service_scv=0.0),
            Operator("slow", Resources(0.01), 0.7, service_scv=0.0),
        ),
        (Source("input"),),
        (Edge("input", "fast"), Edge("input", "slow")),
    )
    world = poisson_world(topology, 0.01, 5, 5)
    world.advance(10_000)
    report = world.report()
    assert report.latency_max_s == pytest.approx(0.7, abs=1e-9)
    assert report.latency_mean_s == pytest.approx(0.7, abs=1e-9)


@pytest.mark.parametrize("scv", [0.0, 0.25, 4.0])
def test_mg1_follows_pollaczek_khinchine(scv: float) -> None:
    topology = chain(1.0, scv=scv)
    rate = 0.7
    exact = 1.0 + rate * (1 + scv) / (2 * (1 - rate))
    means = steady_means(lambda seed: poisson_world(topology, rate, 1, seed=seed), 4_000, 60_000)
    low, high = interval(means)
    assert low <= exact <= high


def test_empirical_service_times_are_those_given() -> None:
    topology = chain(1.0)
    service = ServiceTime.of_samples((0.2, 0.2, 2.0))
    settings = CloudSettings(service={"a": service})
    rate = 0.6
    exact = 0.8 + rate * 0.8**2 * (1 + service.scv) / (2 * (1 - rate * 0.8))
    means = steady_means(
        lambda seed: poisson_world(topology, rate, 1, seed=seed, settings=settings), 2_000, 40_000
    )
    low, high = interval(means)
    assert low <= exact <= high


class Erlang:
    """Gaps that are sums of four exponentials: squared coefficient of variation 1/4."""

    def __init__(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s

    def arrivals(
        self, start_s: float, end_s: float, rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        count = int(3 * self.rate_per_s * (end_s - start_s)) + 50
        times = start_s + np.cumsum(rng.gamma(4, 1 / (4 * self.rate_per_s), count))
        return {"input": times[times < end_s]}


@pytest.mark.parametrize(("servers", "scv"), [(1, 0.5), (4, 0.5)])
def test_ggk_stays_within_known_bounds(servers: int, scv: float) -> None:
    """The mean wait of G/G/k is at most λ(σa² + σs²/k + (k-1)/k² · E[S]²) / (2(1-ρ)).

    Kingman's bound for k = 1, and its extension to k servers (Kingman 1970, Brumelle 1971). From
    below: nobody is faster than the service itself.
    """
    load, gap_scv = 0.8, 0.25
    rate = servers * load
    topology = chain(1.0, scv=scv)
    settings = CloudSettings(arrival_chunk_s=10_000)
    means = steady_means(
        lambda seed: SimulatedCloud(
            topology,
            BIG,
            Erlang(rate),
            seed=seed,
            initial=running(topology, servers),
            settings=settings,
        ),
        10_000,
        50_000,
    )
    low, high = interval(means)
    spread = gap_scv / rate**2 + scv / servers + (servers - 1) / servers**2
    above = rate * spread / (2 * (1 - load))
    assert high >= 1.0
    assert low - 1.0 <= above
    assert low > 1.0, "at 80 % load somebody waits"


def test_littles_law() -> None:
    """Items seen waiting, at regular moments, against the rate times their mean wait."""
    topology = chain(1.0)
    rate, servers = 2.4, 3
    settings = CloudSettings(monitoring_s=5.0, series_rows=100_000)
    seen, through = [], []
    for seed in range(10):
        world = poisson_world(topology, rate, servers, seed=seed, settings=settings)
        world.advance(40_000)
        report = world.report()
        queue = [value for value in report.series.operators["a"]["queue"] if value is not None]
        seen.append(float(np.mean(queue)))
        assert report.latency_mean_s is not None
        through.append(report.items_out / report.duration_s * (report.latency_mean_s - 1.0))
    low, high = interval([a - b for a, b in zip(seen, through, strict=True)])
    assert low <= 0 <= high
    exact = waiting_items(servers, Station("a", rate, 1.0))
    low, high = interval(seen)
    assert low <= exact <= high


def test_share_that_waits_is_erlang_c() -> None:
    """Constant service of 1 s cannot show it; exponential can: P(T > t) of M/M/k is known."""
    topology = chain(1.0, slo_s=2.0)
    rate, servers = 2.0, 3
    waits = erlang_c(servers, rate)
    # P(T > t) = e^-t (1 + C (1 - e^-(k - 1 - a)t) / (k - 1 - a)), and here k - 1 - a = 0.
    t = 2.0
    exact = 1 - np.exp(-t) * (1 + waits * t)
    shares = []
    for seed in range(10):
        world = poisson_world(topology, rate, servers, seed=seed)
        world.advance(30_000)
        compliance = world.report().compliance
        assert compliance is not None
        shares.append(compliance.real_time)
    low, high = interval(shares)
    assert low <= exact <= high
