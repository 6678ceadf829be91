"""The numbers that describe a workload, against workloads whose numbers are known."""

import math

import numpy as np
import pytest

from tidegate.errors import InputError
from tidegate.workloads import (
    Bursty,
    ConstantRate,
    EventLog,
    ExchangeDay,
    RateTrace,
    VispPattern,
    describe,
    series,
    sparkline,
)
from tidegate.workloads.protocol import FloatArray


def logged(workload: ConstantRate | Bursty) -> EventLog:
    return EventLog(workload.arrivals(0, workload.duration_s)["input"], end_s=workload.duration_s)


def test_poisson_has_dispersion_one_and_no_memory() -> None:
    seen = describe(logged(ConstantRate(20, 8192)), step_s=1)
    assert seen.mean_per_s == pytest.approx(20, abs=6 * math.sqrt(20 / 8192))
    assert seen.dispersion == pytest.approx(1, abs=6 * math.sqrt(2 / 8192))
    assert seen.cv == pytest.approx(1 / math.sqrt(20), rel=0.06)
    assert abs(seen.autocorrelation[1]) < 6 / math.sqrt(8192)
    assert seen.hurst == pytest.approx(0.5, abs=0.1)


def test_bursts_show() -> None:
    bursty = logged(Bursty(ConstantRate(20, 8192), dispersion=9, burst_s=0.02))
    assert describe(bursty, step_s=1).dispersion == pytest.approx(9, rel=0.25)


def test_a_table_by_hand() -> None:
    rates = np.array((2.0, 4.0, 10.0, 8.0))
    seen = describe(RateTrace(np.array((0.0, 60.0, 120.0, 180.0)), rates))
    assert (seen.step_s, seen.duration_s, seen.items) == (60, 240, 1440)
    assert (seen.mean_per_s, seen.peak_per_s, seen.max_rise) == (6, 10, 1)
    assert seen.cv == pytest.approx(math.sqrt(10) / 6)
    assert seen.dispersion == pytest.approx(10 * 60 / 6)
    assert seen.autocorrelation == {1: pytest.approx(8 / 40)}
    assert seen.hurst is None


def test_trends_have_long_memory() -> None:
    trend = RateTrace(np.arange(512.0), np.arange(512.0))
    seen = describe(trend)
    assert seen.hurst is not None
    assert seen.hurst > 0.95
    assert seen.autocorrelation[60] > 0.6


def test_constants_and_silence_do_not_divide_by_zero() -> None:
    flat = describe(RateTrace(np.arange(100.0), np.full(100, 3.0)))
    assert (flat.cv, flat.dispersion, flat.hurst, flat.autocorrelation) == (0, 0, None, {})
    silent = describe(RateTrace(np.arange(100.0), np.zeros(100)))
    assert silent.mean_per_s == 0
    assert math.isnan(silent.cv)
    assert math.isnan(silent.peak_to_mean)


def test_series_of_a_foreign_workload_is_counted() -> None:
    class Foreign:
        duration_s = 10.0

        def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
            times = np.arange(0.0, 10.0, 0.5)
            return {"x": times[(times >= start_s) & (times < end_s)]}

        def rate(self, t_s: float) -> float:
            return 2.0

    assert series(Foreign(), 5).tolist() == [2.0, 2.0]
    with pytest.raises(InputError, match="step_s is 11"):
        series(Foreign(), 11)


def test_visp_series() -> None:
    minutes = series(VispPattern("random_walk_1"), 60)
    assert (minutes * 0.48 / 16).tolist()[:5] == pytest.approx([2, 4, 4, 5, 6])


class TestExchangeDay:
    """Forty generated days against the ranges of 28 real ones (designs/006-exchange-days.md)."""

    @pytest.fixture(name="days")
    def many(self) -> list[ExchangeDay]:
        return [ExchangeDay(seed, mean_per_s=100) for seed in range(40)]

    def test_statistics_of_the_minutes(self, days: list[ExchangeDay]) -> None:
        seen = [describe(day, step_s=60) for day in days]
        assert [round(one.mean_per_s, 6) for one in seen] == [100] * 40
        # name: (measured on real days: median), tolerance of the median over 40 days
        for name, median, tolerance in (
            ("cv", 0.51, 0.06),
            ("peak_to_mean", 4.76, 0.9),
            ("max_rise", 2.65, 0.9),
            ("hurst", 0.845, 0.05),
        ):
            found = float(np.median([getattr(one, name) for one in seen]))
            assert found == pytest.approx(median, abs=tolerance), name
        for lag, median in ((1, 0.61), (15, 0.33), (60, 0.18)):
            found = float(np.median([one.autocorrelation[lag] for one in seen]))
            assert found == pytest.approx(median, abs=0.09), lag

    def test_shape(self, days: list[ExchangeDay]) -> None:
        shape = np.median([series(day, 60) / 100 for day in days], axis=0)
        opening, noon, us_open, close = shape[2:8], shape[240:320], shape[390:397], shape[509]
        assert opening.mean() > 1.7
        assert noon.mean() < 0.7
        assert us_open.mean() > 1.4 * shape[380:390].mean()
        assert close > 3

    def test_days_differ(self, days: list[ExchangeDay]) -> None:
        one, two = (series(day, 60) for day in days[:2])
        assert np.abs(one - two).mean() > 10
        levels = [ExchangeDay(seed).level_per_s for seed in range(40)]
        assert 9 < np.median(levels) < 13.5
        assert 0.12 < np.std(np.log(levels)) < 0.28

    def test_bursts_inside_a_minute(self) -> None:
        day = ExchangeDay(3, mean_per_s=12)
        times = day.arrivals(200 * 60, 300 * 60)["ticks"]
        counts = np.histogram(times, np.arange(200 * 60, 300 * 60 + 1))[0].reshape(100, 60)
        within = counts.var(axis=1, ddof=1).sum() / counts.mean(axis=1).sum()
        assert within == pytest.approx(9, abs=1.5)


def test_sparkline() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([5]) == "█"
    assert sparkline([1, math.nan, 2]) == "▅ █"
    assert sparkline([0, 9, 0, 0, 0, 0], width=3) == "█▁▁"  # a peak is not averaged away
    assert sparkline([-3, 1]) == "▁█"
    with pytest.raises(InputError, match="width is 0"):
        sparkline([1], width=0)
