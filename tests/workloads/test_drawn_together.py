"""Chunks that are drawn together are, bit for bit, those that are drawn one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.workloads import ConstantRate, RateTrace
from tidegate.workloads.protocol import Chunked
from tidegate.workloads.rates import Curve

TIMES = np.array([0.0, 70.0, 333.0, 1000.0, 1777.0])
RATES = np.array([0.0, 40.0, 3.0, 0.0, 9.0])


@pytest.mark.parametrize(
    "workload",
    [
        RateTrace(TIMES, RATES, seed=3),
        RateTrace(TIMES, RATES, seed=3, interpolation="linear"),
        RateTrace(TIMES, RATES, spacing="even"),
        RateTrace(TIMES, RATES, spacing="even", interpolation="linear"),
        ConstantRate(0.002, duration_s=4000),
        ConstantRate(0, duration_s=4000),
        ConstantRate(2000, duration_s=200),  # more than are drawn at once
    ],
    ids=lambda workload: type(workload).__name__,
)
def test_chunks_drawn_together_are_those_drawn_one_by_one(workload: Chunked) -> None:
    count = -(-int(workload.duration_s) // int(workload.chunk_s))
    together = workload._draw_all(range(count))
    apart = [workload._draw(chunk) for chunk in range(count)]
    assert len(together) == count
    for one, other in zip(together, apart, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[source], other[source]) for source in one)
    whole = workload.arrivals(0, workload.duration_s)
    for source, times in whole.items():
        assert np.array_equal(times, np.concatenate([one[source] for one in apart]))
        assert (np.diff(times) >= 0).all()


def test_rates_in_steps_need_no_square_root() -> None:
    random = np.random.default_rng(4)
    rates = random.lognormal(0, 3, 200) * (random.random(200) < 0.9)
    curve = Curve(np.append(0.0, np.cumsum(random.lognormal(3, 1, 200))), rates, np.zeros(200))
    items = np.sort(random.random(20_000)) * curve.items[-1] * (1 - 1e-12)
    assert curve._steps
    quick = curve.inverse(items)
    curve._steps = False
    assert np.array_equal(quick, curve.inverse(items))
    assert not Curve(np.array([0.0, 1.0]), np.array([1e-200]), np.zeros(1))._steps
