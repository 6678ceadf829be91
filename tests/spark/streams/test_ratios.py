"""The ratio of items out to items in, as of late."""

from __future__ import annotations

from tidegate.spark.streams.ratios import LEAST_ITEMS, WINDOW_S, RecentRatio


def test_nothing_is_known_before_the_first_item() -> None:
    ratio = RecentRatio()
    assert ratio.update(5.0, 0, 0) is None
    assert ratio.update(9.0, 4, 8) == 2.0


def test_a_filter_that_lets_more_pass_is_followed_after_days() -> None:
    ratio, items, passed = RecentRatio(), 0, 0
    seen = []
    for minute in range(3 * 24 * 60):
        items += 600
        passed += 6 if minute < 3 * 24 * 60 - 15 else 300
        seen.append(ratio.update(60.0 * minute, items, passed))
    assert seen[-16] == 0.01
    assert seen[-1] == 0.5
    assert len(ratio._marks) <= WINDOW_S / 60 + 2, "and memory does not grow"


def test_a_single_item_after_a_silence_does_not_decide() -> None:
    ratio = RecentRatio()
    for minute in range(60):
        ratio.update(60.0 * minute, 100 * (minute + 1), 50 * (minute + 1))
    found = ratio.update(60.0 * 10_000, 6_001, 3_000)
    assert found is not None and abs(found - 0.5) < 1 / LEAST_ITEMS


def test_a_run_that_counts_from_zero_again_has_its_own_ratio() -> None:
    ratio = RecentRatio()
    ratio.update(10.0, 5_000, 5_000)
    assert ratio.update(20.0, 0, 0) is None
    assert ratio.update(30.0, 100, 10) == 0.1
