"""The three terms of a batch's duration, from batches as they come."""

from __future__ import annotations

import random
import statistics

import pytest

from tidegate.theory.batch_cost import OLDEST, BatchSample, BatchSamples, estimate


def batch(
    rows: float,
    *,
    overhead_s: float = 0.5,
    fixed_s: float = 20.0,
    row_s: float = 0.0005,
    slots: float = 8,
    noise: float = 1.0,
) -> BatchSample:
    """A batch of the model, with a factor on its work."""
    work_s = (fixed_s + rows * row_s) * noise
    return BatchSample(rows, overhead_s + work_s / slots, work_s, slots)


@pytest.mark.parametrize("seed", range(10))
def test_intervals_contain_the_truth(seed: int) -> None:
    """Of ten noisy runs, each interval contains its term, with room for two misses in thirty."""
    rng = random.Random(seed)
    samples = [
        batch(rng.uniform(2_000, 40_000), slots=rng.choice([4, 8, 16]), noise=rng.gauss(1, 0.05))
        for _ in range(30)
    ]
    cost = estimate(samples)
    assert cost is not None
    assert cost.fixed_work.identified and cost.per_row.identified
    assert cost.fixed_work.value == pytest.approx(20, rel=0.15)
    assert cost.per_row.value == pytest.approx(0.0005, rel=0.3)
    assert cost.overhead.value == pytest.approx(0.5, abs=0.01)


def test_intervals_cover_nineteen_of_twenty() -> None:
    """The stated 95 % intervals hold in about 95 % of 400 noisy worlds."""
    hits = []
    for seed in range(400):
        rng = random.Random(seed)
        samples = [batch(rng.uniform(2_000, 40_000), noise=rng.gauss(1, 0.1)) for _ in range(20)]
        cost = estimate(samples)
        assert cost is not None
        hits.append(cost.per_row.low <= 0.0005 <= cost.per_row.high)
    assert statistics.mean(hits) > 0.9


@pytest.mark.parametrize("seed", range(10))
def test_a_constant_rate_identifies_nothing(seed: int) -> None:
    """Batches of one size allow every split of the work, and the estimate says so."""
    rng = random.Random(seed)
    samples = [batch(10_000 + rng.randint(-50, 50), noise=rng.gauss(1, 0.05)) for _ in range(30)]
    cost = estimate(samples)
    assert cost is not None
    assert not cost.fixed_work.identified and not cost.per_row.identified
    assert cost.fixed_work.low == 0 and cost.per_row.low == 0
    assert cost.fixed_work.high == pytest.approx(25, rel=0.1)
    assert cost.per_row.high * 10_000 == pytest.approx(25, rel=0.1)


def test_rows_that_cost_nothing_and_work_that_is_all_rows() -> None:
    """Either term may be zero; neither becomes negative."""
    for fixed_s, row_s in ((20.0, 0.0), (0.0, 0.002)):
        rng = random.Random(1)
        samples = [
            batch(rng.uniform(100, 9_000), fixed_s=fixed_s, row_s=row_s, noise=rng.gauss(1, 0.03))
            for _ in range(40)
        ]
        cost = estimate(samples)
        assert cost is not None
        assert cost.fixed_work.value == pytest.approx(fixed_s, abs=0.5)
        assert cost.per_row.value == pytest.approx(row_s, abs=0.0002)
        assert min(cost.fixed_work.low, cost.per_row.low) >= 0


def test_cold_batches_do_not_poison_the_line() -> None:
    """The first two batches on new executors take four times as long, and the terms stay."""
    rng = random.Random(2)
    samples = [batch(rng.uniform(2_000, 40_000), noise=rng.gauss(1, 0.02)) for _ in range(25)]
    samples += [batch(rng.uniform(2_000, 40_000), slots=16, noise=4.0) for _ in range(2)]
    cost = estimate(samples)
    assert cost is not None
    assert cost.fixed_work.value == pytest.approx(20, rel=0.15)


@pytest.mark.parametrize("factor", [3.0, 0.4])
def test_a_change_of_the_rows_is_followed_within_four_batches(factor: float) -> None:
    """Rows that suddenly cost more or less are not taken for outliers for long."""
    rng = random.Random(3)
    samples = [batch(rng.uniform(2_000, 40_000), noise=rng.gauss(1, 0.05)) for _ in range(24)]
    samples += [batch(20_000, noise=factor * rng.gauss(1, 0.05)) for _ in range(4)]
    cost = estimate(samples)
    assert cost is not None
    work_s = cost.fixed_work.value + 20_000 * cost.per_row.value
    assert work_s == pytest.approx(30 * factor, rel=0.15)


def test_empty_batches_are_fixed_work() -> None:
    """A stateful query without input still commits its state."""
    cost = estimate([batch(0) for _ in range(5)])
    assert cost is not None
    assert cost.fixed_work.value == pytest.approx(20)
    assert cost.fixed_work.identified and not cost.per_row.identified


def test_batches_that_only_close_windows_do_not_make_rows_dear() -> None:
    """Seen live: three batches without rows in a row, and a row seemed to take 57 days."""
    rng = random.Random(4)

    def seen(rows: float) -> BatchSample:
        work_s = (0.9 + rows * 0.002) * rng.gauss(1, 0.2)
        return BatchSample(rows, 0.35 + work_s, work_s, 1)

    for data in range(1, 8):
        samples = [seen(n) for _ in range(data) for n in (310.0, 0.0)] + [seen(0.0)] * 5
        cost = estimate(samples)
        assert cost is not None
        assert cost.per_row.high < 0.02, f"after {data} batches with rows: {cost}"


def test_a_trickle_after_equal_batches_does_not_make_rows_dear() -> None:
    """Batches of one row take nearly as long as large ones: the work is not on the rows."""
    samples = [BatchSample(300, 2.0, 1.6, 1)] * 3 + [BatchSample(1, 1.9, 1.5, 1)] * 4
    for count in range(4, len(samples) + 1):
        cost = estimate(samples[:count])
        assert cost is not None
        assert cost.per_row.high < 0.02, cost


def test_skew_is_told_from_overhead() -> None:
    """Two jobs lose three seconds a batch: one in planning, one in a single long task."""
    planning = [BatchSample(1_000, 3.5 + 8 / 8, 8, 8, 1.0)] * 6
    skewed = [BatchSample(1_000, 0.5 + 4.0, 8, 8, 4.0)] * 6
    first, second = estimate(planning), estimate(skewed)
    assert first is not None and second is not None
    assert first.overhead.value == pytest.approx(3.5) and first.skew_s == 0
    assert first.useful_slots == pytest.approx(8)
    assert second.overhead.value == pytest.approx(3.5) and second.skew_s == pytest.approx(3.0)
    assert second.useful_slots == pytest.approx(2)


def test_old_sizes_are_kept_and_then_forgotten() -> None:
    """The ramp of an hour ago still tells the terms apart; that of the day before does not."""
    samples = BatchSamples()
    for rows in (1_000, 2_000, 4_000, 8_000):
        samples.add(batch(rows))
    for _ in range(500):
        samples.add(batch(16_000))
    cost = estimate(samples.kept())
    assert cost is not None and cost.fixed_work.identified
    for _ in range(OLDEST):
        samples.add(batch(16_000))
    assert {sample.rows for sample in samples.kept()} == {16_000}


def test_nothing_is_known_without_batches() -> None:
    """No batch, or none with work, gives no cost."""
    assert estimate([]) is None
    assert estimate([BatchSample(10, 0.0, 0.0, 4)]) is None
