"""Percentiles since the last turn and of an interval, against a plain pass over all buckets.

The kernels look at several buckets at a time, as most are empty.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.simulation.helpers import chain
from tidegate.simulation import CloudSettings
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import end_interval
from tidegate.simulation.kernels.difference import Marks, difference, empty_gauge, empty_marks
from tidegate.simulation.kernels.sketch import BUCKETS, TOGETHER, bucket_middle
from tidegate.simulation.kernels.state import Ints, Network, build_network


def network() -> Network:
    return build_network(chain(0.1, 0.2), CloudSettings(), 1)


def random_counts(rng: np.random.Generator) -> Ints:
    """Latencies in a few buckets, next to each other or far apart, sometimes in the last one."""
    counts = np.zeros(BUCKETS, np.int64)
    near = rng.integers(0, BUCKETS - 40)
    for bucket in (*(near + rng.integers(0, 40, 5)), *rng.integers(0, BUCKETS, 3)):
        counts[bucket] += rng.integers(1, 50)
    counts[-1] += rng.integers(0, 2)
    return counts


def plain_latency(net: Network, marks: Marks) -> list[float]:
    """Mean, 50th, 95th and 99th percentile since the marks, one bucket after the other."""
    out = math.floor(net.whole[at.OUT]) - math.floor(marks.whole[at.OUT])
    found = [math.nan] * 4
    if out > 0:
        found[0] = (net.whole[at.SOJOURN_S] - marks.whole[at.SOJOURN_S]) / out
    seen = 0
    for bucket, count in enumerate(net.sketch[-2] + net.sketch[-1] - marks.sketch):
        seen += count
        for place, share in ((1, 0.5), (2, 0.95), (3, 0.99)):
            if out > 0 and math.isnan(found[place]) and seen >= max(1.0, share * out):
                found[place] = bucket_middle(bucket)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_latencies_since_the_last_turn_are_those_of_a_plain_pass(seed: int) -> None:
    rng, net = np.random.default_rng(seed), network()
    marks, gauge = empty_marks(net), empty_gauge(net)
    for turn in range(5):
        new = random_counts(rng) if turn != 2 else np.zeros(BUCKETS, np.int64)
        net.sketch[-1 - turn % 2] += new
        net.whole[at.OUT] += new.sum() + (0.25 if turn else 0.0)  # a flow has parts of items
        net.whole[at.SOJOURN_S] += 3.0 * new.sum()
        expected = plain_latency(net, marks)
        difference(60.0 * turn, net, marks, gauge)
        np.testing.assert_array_equal(gauge.latency, expected)
        np.testing.assert_array_equal(marks.sketch, net.sketch[-2] + net.sketch[-1])


def plain_p95(counts: Ints) -> float:
    wanted, seen = max(1.0, math.ceil(0.95 * counts.sum())), 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return float(bucket_middle(bucket))
    return math.nan


@pytest.mark.parametrize("seed", range(10))
def test_the_percentile_of_an_interval_is_that_of_a_plain_pass(seed: int) -> None:
    rng, net = np.random.default_rng(seed), network()
    total = np.zeros(BUCKETS, np.int64)
    for number in range(1, 5):
        new = random_counts(rng) if number != 3 else np.zeros(BUCKETS, np.int64)
        row = np.empty_like(net.before)
        net.sketch[-1] += new
        net.whole[at.OUT] += new.sum()
        total += new
        end_interval(net, 15.0 * number, row)
        np.testing.assert_array_equal(row[at.ROW_P95_S], plain_p95(new))
        np.testing.assert_array_equal(net.sketch[-2], total)
        assert not net.sketch[-1].any()


def test_the_buckets_divide_into_groups() -> None:
    assert BUCKETS % TOGETHER == 0
