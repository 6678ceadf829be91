"""Every workload keeps the contract, and each has the law that it claims."""

import itertools
import math
import pickle
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from tidegate.errors import InputError
from tidegate.workloads import (
    Bursty,
    ConstantRate,
    EventLog,
    ExchangeDay,
    Predictable,
    RateTrace,
    Scaled,
    Sum,
    VideoFrames,
    VispPattern,
    Workload,
    cervino_ramp,
    cervino_steps,
    drs_tweets,
    protocol,
)
from tidegate.workloads.protocol import FloatArray

STEPS = RateTrace(np.array((0.0, 50.0, 130.0)), np.array((20.0, 0.0, 45.0)), end_s=200.0, seed=3)
LINE = RateTrace(np.array((0.0, 100.0, 150.0)), np.array((0.0, 40.0, 10.0)), interpolation="linear")
LOG = EventLog(np.sort(np.random.default_rng(5).uniform(0, 150, 900)))

WORKLOADS: dict[str, Workload] = {
    "constant": ConstantRate(30, duration_s=150, seed=1),
    "fast": ConstantRate(30_000, duration_s=40),
    "even": ConstantRate(7.3, duration_s=150, spacing="even"),
    "steps": STEPS,
    "line": LINE,
    "even line": RateTrace(LINE.t_s, LINE.rate_per_s, interpolation="linear", spacing="even"),
    "log": LOG,
    "bursty": Bursty(STEPS, dispersion=9, burst_s=0.5, seed=2),
    "bursty minutes": Bursty(ConstantRate(10, 1500), dispersion=20, burst_s=15),
    "sum": Sum((STEPS, ConstantRate(9, 100, seed=4), drs_tweets(90), LOG)),
    "scaled": Scaled(STEPS, rate_factor=1.7, speed=3.3),
    "scaled log": Scaled(LOG, rate_factor=2.5, speed=0.7),
    "repeated": Scaled(VideoFrames(150), rate_factor=1.5, speed=7),
    "visp": VispPattern("random_walk_1"),
    "visp spread": VispPattern("stepwise", spread_s=0.2, phase_s=0.24),
    "video": VideoFrames(duration_s=150.5),
    "exchange": Scaled(ExchangeDay(seed=2), speed=60),
}


@pytest.fixture(params=WORKLOADS, name="workload")
def one_of_them(request: pytest.FixtureRequest) -> Workload:
    return WORKLOADS[request.param]


def all_of(workload: Workload, end_s: float | None = None) -> FloatArray:
    found = workload.arrivals(0, workload.duration_s if end_s is None else end_s)
    return np.sort(np.concatenate(list(found.values())))


def test_contract(workload: Workload) -> None:
    assert isinstance(workload, Workload)
    assert isinstance(workload, Predictable)
    end_s = min(workload.duration_s, 700.0)
    found = workload.arrivals(0, end_s)
    assert found
    for times in found.values():
        assert times.dtype == np.float64
        assert len(times) > 0
        assert (np.diff(times) >= 0).all()
        assert times[0] >= 0
        assert times[-1] < end_s
        times[:] = -1.0  # the caller's own
    again = workload.arrivals(0, end_s)
    assert all(times[0] >= 0 for times in again.values())


def test_silence_outside_and_every_source_named(workload: Workload) -> None:
    sources = set(workload.arrivals(0, 1))
    for start_s, end_s in ((-50.0, 0.0), (3.0, 3.0), (workload.duration_s + 1, 1e7)):
        silent = workload.arrivals(start_s, end_s)
        assert set(silent) == sources
        assert all(len(times) == 0 for times in silent.values())
    assert workload.rate(-1) == 0
    assert workload.rate(workload.duration_s + 1) == 0


def test_cutting_does_not_matter(workload: Workload) -> None:
    end_s = min(workload.duration_s, 200.0)
    whole = workload.arrivals(0, end_s)
    cuts = [0.0, 0.48, 1.0, 15.0, 29.999999, 59.9, 60.0, 60.0, 61.7, 119.52, 120.0, 180.0]
    cuts = [cut for cut in cuts if cut < end_s] + [end_s]
    pieces = [workload.arrivals(a, b) for a, b in itertools.pairwise(cuts)]
    for source, times in whole.items():
        joined = np.concatenate([piece[source] for piece in pieces])
        assert np.array_equal(joined, times)


def test_pickled_and_backwards(workload: Workload) -> None:
    """Asking late first, or in another process, changes nothing."""
    twin: Workload = pickle.loads(pickle.dumps(workload))
    end_s = min(workload.duration_s, 130.0)
    late, early = twin.arrivals(end_s / 2, end_s), twin.arrivals(0, end_s / 2)
    for source, times in workload.arrivals(0, end_s).items():
        assert np.array_equal(np.concatenate((early[source], late[source])), times)


def test_expected_is_the_integral_of_rate(workload: Workload) -> None:
    assert isinstance(workload, Predictable)
    if isinstance(workload, EventLog | Sum) or "log" in repr(workload).lower():
        pytest.skip("a log's rate is a window's, not an instant's")
    end_s = min(workload.duration_s, 300.0)
    edges = np.linspace(0, end_s, 7)
    grid = (np.arange(60_000) + 0.5) * end_s / 60_000
    rates = np.array([workload.rate(t) for t in grid]).reshape(6, -1).mean(axis=1)
    expected = sum(workload.expected(edges).values()) / (end_s / 6)
    assert expected == pytest.approx(rates, rel=2e-3, abs=0.02)


def test_as_many_as_expected(workload: Workload) -> None:
    """Within seven standard deviations of a process of the largest dispersion used here."""
    assert isinstance(workload, Predictable)
    whole = np.array((0.0, workload.duration_s))
    expected = sum(float(items[0]) for items in workload.expected(whole).values())
    dispersion = 20 if "Bursty" in repr(workload) or "Exchange" in repr(workload) else 5
    assert abs(len(all_of(workload)) - expected) < 7 * math.sqrt(dispersion * expected)


def test_poisson_has_independent_exponential_gaps() -> None:
    gaps = np.diff(all_of(ConstantRate(50, 2000, seed=9)))
    n = len(gaps)
    assert gaps.mean() == pytest.approx(1 / 50, abs=6 / 50 / math.sqrt(n))
    assert gaps.var() * 2500 == pytest.approx(1, abs=6 * math.sqrt(8 / n))
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 6 / math.sqrt(n)


def test_linear_rate_is_exact_in_distribution() -> None:
    """On the clock of expected items the times are uniform (Kolmogorov-Smirnov)."""
    line = RateTrace(np.array((0.0, 100.0)), np.array((0.0, 400.0)), interpolation="linear")
    clock = (all_of(line) / 100) ** 2
    n = len(clock)
    distance = np.abs(clock - (np.arange(n) + 0.5) / n).max()
    assert distance < 2.5 / math.sqrt(n)


def test_even_items_stand_at_equal_distances() -> None:
    times = all_of(ConstantRate(8, 100, spacing="even"))
    assert len(times) == 800
    assert np.diff(times) == pytest.approx(np.full(799, 0.125))


@pytest.mark.parametrize("dispersion", [1, 4, 9])
def test_bursts_have_the_given_dispersion(dispersion: float) -> None:
    bursty = Bursty(ConstantRate(40, 20_000), dispersion, burst_s=0.05, seed=8)
    counts = np.histogram(all_of(bursty), np.arange(0, 20_001, 10))[0]
    # The variance of 2000 near-normal counts is known to about sqrt(2/2000) = 3 %.
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=6 * math.sqrt(2 / 2000))


def test_bursts_are_within_their_length() -> None:
    """Much shorter than a burst, items look alone; much longer, they come together."""
    times = all_of(Bursty(ConstantRate(10, 5000), dispersion=9, burst_s=1.0))
    short, long = (np.histogram(times, np.arange(0, 5000, w))[0] for w in (0.02, 20))
    assert short.var() / short.mean() < 1.5
    assert long.var() / long.mean() > 6


def test_long_bursts_lose_nothing_at_the_borders_of_chunks() -> None:
    times = all_of(Bursty(ConstantRate(50, 6000), dispersion=3, burst_s=6))
    by_second = np.histogram(times % 60, np.arange(0, 61, 6))[0]  # ten parts of a minute
    assert by_second == pytest.approx(np.full(10, 30_000), abs=6 * math.sqrt(3 * 30_000))


def test_rounding_does_not_swap_items() -> None:
    """Items almost at the same instant of a linear rate; found by Hypothesis."""
    table = RateTrace(
        np.array((0.0, 1.0, 14.0, 16.0)), np.array((0.0, 0.0, 2.0, 1.0)), interpolation="linear"
    )
    times = Bursty(table, dispersion=2, burst_s=8.414133936402008e-16).arrivals(0, 150)["input"]
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("cut", [5e-324, math.nextafter(60, 61), math.nextafter(60, 0)])
def test_cuts_a_hair_beside_a_border(cut: float) -> None:
    """Found by Hypothesis: dividing such a time by the chunk's length rounds across the border."""
    visp = VispPattern("stepwise")
    before, after = visp.arrivals(0, cut)["S2"], visp.arrivals(cut, 120)["S2"]
    assert np.array_equal(np.concatenate((before, after)), visp.arrivals(0, 120)["S2"])


def test_seeds_and_sources_are_independent_streams() -> None:
    base = all_of(ConstantRate(50, 100, seed=1))
    assert not np.array_equal(base, all_of(ConstantRate(50, 100, seed=2)))
    assert not np.array_equal(base, all_of(ConstantRate(50, 100, seed=1, source="other")))
    assert np.array_equal(base, all_of(ConstantRate(50, 100, seed=1)))


def test_sum_refuses_the_same_stream_twice() -> None:
    with pytest.raises(InputError, match="give each part a different seed"):
        Sum((ConstantRate(5, 10), Scaled(ConstantRate(7, 10), speed=2)))
    both = Sum((ConstantRate(5, 10), ConstantRate(5, 10, source="other")))
    assert set(both.arrivals(0, 10)) == {"input", "other"}


def test_scaling_a_log_keeps_its_shape() -> None:
    log = EventLog(np.repeat(np.arange(100.0), 10), keys=np.tile(np.arange(10), 100))
    tripled = log.multiplied(3)
    assert len(tripled.times_s) == 3000
    counts = np.histogram(tripled.times_s, np.arange(0, 101))[0]
    assert (counts == 30).all()  # copies stay before the next event
    assert tripled.keys is not None
    assert np.bincount(tripled.keys).tolist() == [300] * 10
    thin = log.multiplied(0.25)
    assert set(thin.times_s) <= set(log.times_s)
    assert abs(len(thin.times_s) - 250) < 6 * math.sqrt(1000 * 0.25 * 0.75)


def test_scaling_by_item_repeats_at_the_same_instant() -> None:
    video = VideoFrames(120)
    assert np.array_equal(all_of(Scaled(video, rate_factor=2)), np.repeat(all_of(video), 2))


def test_speed_keeps_items() -> None:
    fast = Scaled(LOG, speed=10)
    assert fast.duration_s == LOG.duration_s / 10
    assert np.array_equal(all_of(fast), LOG.times_s / 10)


@pytest.mark.parametrize(
    ("pattern", "mean", "levels"),
    [
        ("stepwise", 3.93, {2, 4, 6}),
        ("two_level", 3.87, {2, 6}),
        ("random_walk_1", 4.13, {1, 2, 3, 4, 5, 6, 7}),
        ("random_walk_2", 4.60, {1, 2, 3, 4, 5, 6, 7, 8}),
    ],
)
def test_visp_series(pattern: str, mean: float, levels: set[int]) -> None:
    """Means and ranges as recovered from the authors' data provider."""
    visp = VispPattern(pattern)  # type: ignore[arg-type]
    machines = visp.machines_by_tick
    assert len(machines) == 15_000
    assert round(machines.mean() + 1e-9, 2) == mean
    assert set(machines.tolist()) == levels
    found = visp.arrivals(0, 7200)
    assert [len(found[s]) / machines.sum() for s in ("S1", "S2", "S3")] == [5, 1, 10]


def test_visp_steps_change_at_their_tick() -> None:
    stepwise = VispPattern("stepwise").machines_by_tick
    assert np.flatnonzero(np.diff(stepwise))[:3].tolist() == [500, 1001, 1502]
    two_level = VispPattern("two_level").machines_by_tick
    assert np.flatnonzero(np.diff(two_level))[:2].tolist() == [1000, 2001]


def test_visp_ticks_are_bursts() -> None:
    found = VispPattern("two_level").arrivals(0, 600)["S2"]
    times, counts = np.unique(found, return_counts=True)
    assert np.diff(times) == pytest.approx(np.full(len(times) - 1, 0.48))
    assert counts[:1001].tolist() == [2] * 1001  # the low level lasts 1001 ticks
    assert counts[1001] == 6
    late = VispPattern("random_walk_1", phase_s=0.1).arrivals(180, 180.4)["S2"]
    assert late == pytest.approx([180, 180, 180, 180.1, 180.1])  # 5 machines: 3 and 2


def test_walks_move_by_one_machine() -> None:
    for pattern in ("random_walk_1", "random_walk_2"):
        minutes = VispPattern(pattern).machines_by_tick[::125]
        assert minutes[0] == 2  # both jobs start with one machine
        assert np.abs(np.diff(minutes[1:])).max() == 1


def test_papers() -> None:
    assert len(all_of(cervino_ramp(step_s=1))) == sum(range(100_000, 200_001, 10_000))
    steps = cervino_steps((100, 300), step_s=20)
    assert (steps.rate(19.9), steps.rate(20), steps.duration_s) == (100, 300, 40)
    assert drs_tweets(60).arrivals(0, 60).keys() == {"tweets"}
    frames = np.histogram(all_of(VideoFrames(6000)), np.arange(6001))[0]
    assert (frames.min(), frames.max()) == (1, 25)
    assert frames.mean() == pytest.approx(13, abs=6 * math.sqrt(52 / 6000))
    assert (all_of(VideoFrames(600)) % 1).max() < 0.2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ConstantRate(-1, 10), "rate_per_s is -1"),
        (lambda: ConstantRate(1, 0), "duration_s is 0"),
        (lambda: ConstantRate(1, 10, seed=-1), "seed is -1"),
        (lambda: ConstantRate(1, 10, spacing="odd"), "spacing is 'odd'"),  # type: ignore[arg-type]
        (lambda: RateTrace(np.array((0.0, 1.0)), np.array((1.0, -2.0))), r"rate_per_s\[1\] is -2"),
        (lambda: RateTrace(np.array((0.0, 1.0)), np.array((1.0, np.nan))), r"rate_per_s\[1\]"),
        (lambda: RateTrace(np.array((0.0, 0.0)), np.array((1.0, 1.0))), r"t_s\[1\] is 0"),
        (lambda: RateTrace(np.array((5.0, 9.0)), np.array((1.0, 1.0))), r"t_s\[0\] is 5"),
        (lambda: RateTrace(np.array((0.0,)), np.array((1.0,))), "end_s is None"),
        (lambda: EventLog(np.array((1.0, 0.5))), r"times_s\[1\] is 0.5"),
        (lambda: EventLog(np.empty(0)), "at least one time"),
        (lambda: Bursty(ConstantRate(1, 1), 0.5, 1), "dispersion is 0.5"),
        (lambda: Bursty(LOG, 2, 1), "base is 'EventLog'"),  # type: ignore[arg-type]
        (lambda: Scaled(LOG, speed=0), "speed is 0"),
        (lambda: Sum(()), "parts is"),
        (lambda: VispPattern("zigzag"), "pattern is 'zigzag'"),  # type: ignore[arg-type]
        (lambda: VispPattern(spread_s=0.3, phase_s=0.3), "spread_s"),
        (lambda: LOG.arrivals(5, 3), "interval is"),
        (lambda: ConstantRate(1, 10).arrivals(0, math.nan), "interval is"),
    ],
)
def test_nonsense_is_refused(make: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()  # type: ignore[operator]


def test_importing_needs_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, tidegate.workloads; "
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'scipy', 'numba'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_was_drawn_last_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    class Counted(ConstantRate):
        def _draw_all(self, chunks: Sequence[int]) -> list[dict[str, FloatArray]]:
            drawn.extend(chunks)
            return super()._draw_all(chunks)

    monkeypatch.setattr(protocol, "_MOST_KEPT", 2 * (600 + 20))
    steady = Counted(10, duration_s=240, spacing="even")  # 600 items in each of four chunks
    whole = steady.arrivals(0, 240)["input"]
    assert drawn == [0, 1, 2, 3]
    steady.arrivals(120, 240)["input"][:] = 0.0  # a caller may change what it gets
    assert drawn == [0, 1, 2, 3]
    assert np.array_equal(steady.arrivals(0, 240)["input"], whole)
    assert drawn == [0, 1, 2, 3, 0, 1]  # the oldest had made room for those that came later
    steady.arrivals(120, 240)
    assert drawn == [0, 1, 2, 3, 0, 1, 2, 3]  # and the other way round
