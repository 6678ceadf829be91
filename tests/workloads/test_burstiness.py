"""Statistics of counts against processes whose figures are known, and one way against another."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.workloads.burstiness import (
    block_sums,
    dispersion_by_scale,
    gini,
    hurst_from_variances,
    key_statistics,
    lorenz,
    usable_scales,
    whole_blocks,
)
from tidegate.workloads.describe import hurst

RANDOM = np.random.default_rng(4)
POISSON = RANDOM.poisson(30, 60_000).astype(float)


def of_one(counts: np.ndarray, first: int = 0, step_s: float = 1.0) -> dict[str, float]:
    """The statistics of one key from its moments, as Spark would have summed them."""
    scales = usable_scales(len(counts), first) or [1]
    sums = [[block_sums(counts, m, first).sum() for m in scales]]
    squares = [[(block_sums(counts, m, first) ** 2).sum() for m in scales]]
    events, peak = np.array([counts.sum()]), np.array([counts.max()])
    got = key_statistics(
        len(counts), step_s, first, events, peak, np.array(sums), np.array(squares)
    )
    return {name: float(value[0]) for name, value in got.items()}


def test_a_poisson_process_has_dispersion_1_at_all_scales_and_no_memory() -> None:
    for scale, dispersion in dispersion_by_scale(POISSON).items():
        assert dispersion == pytest.approx(1.0, abs=0.15), scale
    got = of_one(POISSON)
    assert got["dispersion"] == pytest.approx(1.0, abs=0.03)
    assert got["hurst"] == pytest.approx(0.5, abs=0.04)
    assert got["cv"] == pytest.approx(30**-0.5, rel=0.03)


def test_bursts_that_last_disperse_more_the_longer_the_window() -> None:
    busy = np.repeat(RANDOM.random(600) < 0.2, 100)  # states of 100 steps
    counts = RANDOM.poisson(np.where(busy, 50, 5)).astype(float)
    by_scale = list(dispersion_by_scale(counts).values())
    assert by_scale == sorted(by_scale)
    assert by_scale[0] > 10
    assert by_scale[-1] > 20 * by_scale[0]
    assert of_one(counts)["hurst"] > 0.85


def test_an_even_stream_that_alternates_calms_down_faster_than_chance() -> None:
    counts = (np.tile([8, 12], 5000) + RANDOM.integers(0, 2, 10_000)).astype(float)
    assert of_one(counts)["hurst"] < 0.4
    assert dispersion_by_scale(counts)[2] < dispersion_by_scale(counts)[1]


@pytest.mark.parametrize("first", [0, 3, 1021])
def test_moments_give_what_the_counts_themselves_give(first: int) -> None:
    counts = RANDOM.poisson(2, 3000).astype(float)
    got = of_one(counts, first, step_s=0.5)
    assert got["rate_per_s"] == pytest.approx(counts.mean() / 0.5)
    assert got["cv"] == pytest.approx(counts.std() / counts.mean())
    assert got["peak_to_mean"] == pytest.approx(counts.max() / counts.mean())
    scales = usable_scales(len(counts), first)
    variances = np.array([(block_sums(counts, m, first) / m).var() for m in scales])
    assert got["hurst"] == pytest.approx(float(hurst_from_variances(scales, variances)[0]))
    if first == 0:
        assert got["hurst"] == pytest.approx(hurst(counts))


def test_blocks_begin_at_multiples_of_their_scale() -> None:
    counts = np.arange(3.0, 13.0)  # the count of a step is its number
    assert whole_blocks(10, 4, first=3) == (1, 2)
    assert block_sums(counts, 4, first=3).tolist() == [4 + 5 + 6 + 7, 8 + 9 + 10 + 11]
    assert whole_blocks(3, 8, first=1) == (7, 0)


def test_what_cannot_be_told_is_not_a_number() -> None:
    assert usable_scales(63) == []
    assert np.isnan(of_one(np.ones(500))["hurst"])
    assert np.isnan(of_one(POISSON[:20])["hurst"])


def test_gini_and_lorenz_of_keys_by_size() -> None:
    x, y = lorenz(np.array([4.0, 1.0]), np.array([1.0, 4.0]))  # one key has half of the events
    assert x.tolist() == pytest.approx([0, 0.8, 1])
    assert y.tolist() == pytest.approx([0, 0.5, 1])
    assert gini(np.array([4.0, 1.0]), np.array([1.0, 4.0])) == pytest.approx(0.3)
