"""Items are counted by step as they arrive, and where they are many, by one draw for all steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tidegate.simulation.scenario import Sharded
from tidegate.workloads import Bursty, ConstantRate, ExchangeDay, RateTrace
from tidegate.workloads.counting import MOST_DRAWN, Counts, count_drawn, counted
from tidegate.workloads.protocol import FloatArray

FEW, MANY = MOST_DRAWN / 60 / 2, MOST_DRAWN / 60 * 2
SECONDS = np.linspace(0.0, 600.0, 601)


def one(counts: Mapping[str, Counts]) -> Counts:
    (found,) = counts.values()
    return found


@pytest.mark.parametrize("edges", [SECONDS, np.linspace(31.5, 157.25, 64), np.array([5.0, 300.0])])
@pytest.mark.parametrize(
    "workload",
    [
        ConstantRate(FEW, duration_s=600, seed=1),
        ConstantRate(MANY, duration_s=600, seed=1, spacing="even"),
        Bursty(ConstantRate(FEW, duration_s=600, seed=1), dispersion=5, burst_s=0.03),
        ExchangeDay(mean_per_s=20, seed=1),
        Sharded(ConstantRate(FEW, duration_s=600, seed=1), ("a", "b")),
    ],
)
def test_few_items_are_those_that_arrive(workload: ConstantRate, edges: FloatArray) -> None:
    arrived = count_drawn(workload.arrivals(edges[0], edges[-1]), edges)
    found = counted(workload, edges)
    assert found.keys() == arrived.keys()
    for source, numbers in found.items():
        assert numbers.sum() > 0
        assert np.array_equal(numbers, arrived[source])


def test_a_workload_that_counts_nothing_is_asked_for_its_items() -> None:
    class Foreign:
        def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
            return {"in": np.array([t for t in (0.5, 1.0, 1.5, 7.0) if start_s <= t < end_s])}

    assert one(counted(Foreign(), np.array([0.0, 1.0, 2.0, 3.0]))).tolist() == [1, 2, 0]


def rising(seed: int, per_s: float) -> RateTrace:
    rates = np.array([per_s, 3 * per_s])
    return RateTrace(np.array([0.0, 120.0]), rates, end_s=240, seed=seed)


def test_many_items_are_as_many_and_as_random_as_expected() -> None:
    edges = np.linspace(0.0, 240.0, 241)
    counts = np.array([one(rising(seed, MANY).counted(edges)) for seed in range(200)])
    (expected,) = rising(0, MANY).expected(edges).values()
    # A Poisson number in each second, independent of the next: 240 means of 200 numbers each.
    assert np.abs((counts.mean(0) - expected) / np.sqrt(expected / 200)).max() < 4.5
    assert counts.var(0).mean() == pytest.approx(expected.mean(), rel=0.03)
    together = [np.corrcoef(counts[:, i], counts[:, i + 1])[0, 1] for i in range(239)]
    assert abs(np.mean(together)) < 0.02


@pytest.mark.parametrize("dispersion", [5, 50])
def test_many_bursts_are_as_large_as_those_that_are_drawn(dispersion: float) -> None:
    edges = np.linspace(0.0, 600.0, 21)  # steps of 30 s, many times as long as a burst

    def spread(counts: Sequence[Counts]) -> float:
        return float(np.var(counts) / np.mean(counts))

    def bursts(seed: int) -> Bursty:
        base = ConstantRate(MANY, duration_s=600)
        return Bursty(base, dispersion=dispersion, burst_s=0.03, seed=seed)

    divided = [one(bursts(seed).counted(edges)) for seed in range(60)]
    drawn = [one(count_drawn(bursts(seed).arrivals(0, 600), edges)) for seed in range(60)]
    assert np.mean(divided) == pytest.approx(np.mean(drawn), rel=0.01)
    assert spread(divided) == pytest.approx(dispersion, rel=0.15)
    assert spread(drawn) == pytest.approx(dispersion, rel=0.15)


def test_few_and_many_items_follow_each_other() -> None:
    """Minutes with many items stand between minutes with few, and edges lie anywhere."""
    times, rates = np.arange(0.0, 600.0, 120.0), np.array([FEW, MANY, FEW, MANY, FEW])
    trace = RateTrace(times, rates, end_s=600, seed=3)
    edges = np.linspace(17.3, 590.0, 111)
    found, arrived = one(trace.counted(edges)), one(count_drawn(trace.arrivals(17.3, 590), edges))
    few = np.array([np.interp(low, times, range(5)) % 2 for low in edges[:-1]])
    assert found.sum() == pytest.approx(sum(map(np.sum, trace.expected(edges).values())), rel=0.01)
    assert len(found) == len(arrived) == len(few) == 110
    same = (found == arrived).mean()
    assert 0.3 < same < 0.8  # what is drawn one by one agrees, and what is divided does not


def test_nothing_is_counted_outside_of_the_workload() -> None:
    trace = ConstantRate(MANY, duration_s=90, seed=1)
    found = one(trace.counted(np.array([-30.0, 0.0, 60.0, 90.0, 300.0])))
    assert found[0] == found[3] == 0 < found[2] < found[1]
    assert one(trace.counted(np.array([200.0, 300.0]))).tolist() == [0]


def test_shards_of_many_items_share_their_number() -> None:
    shards = Sharded(ConstantRate(MANY, duration_s=600, seed=1), ("a", "b", "c"))
    edges = np.linspace(30.0, 570.0, 271)
    found = shards.counted(edges)
    every = sum(numbers.sum() for numbers in found.values())
    assert every == pytest.approx(540 * MANY, rel=0.01)
    for numbers in found.values():
        assert numbers.sum() == pytest.approx(every / 3, rel=0.02)
        assert numbers.var() == pytest.approx(numbers.mean(), rel=0.25)
