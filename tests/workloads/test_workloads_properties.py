"""What holds for every workload, however it is made and asked."""

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import TraceError
from tidegate.workloads import (
    Bursty,
    ConstantRate,
    EventLog,
    Predictable,
    RateTrace,
    Scaled,
    Sum,
    VideoFrames,
    VispPattern,
    read_trace,
)

seeds = st.integers(0, 2**40)
rates = st.floats(0, 60)


@st.composite
def tables(draw: st.DrawFn) -> RateTrace:
    steps = draw(st.lists(st.floats(0.1, 70), min_size=2, max_size=6))
    times = np.concatenate(([0.0], np.cumsum(steps)))
    levels = np.array(draw(st.lists(rates, min_size=len(times), max_size=len(times))))
    return RateTrace(
        times,
        levels,
        interpolation=draw(st.sampled_from(("step", "linear"))),
        spacing=draw(st.sampled_from(("poisson", "even"))),
        seed=draw(seeds),
    )


constants = st.builds(ConstantRate, rate_per_s=rates, duration_s=st.floats(1, 200), seed=seeds)
logs = st.lists(st.floats(0, 200), min_size=1, max_size=80).map(lambda t: EventLog(np.sort(t)))
simple = st.one_of(
    constants,
    tables(),
    logs,
    st.builds(
        Bursty,
        base=st.one_of(constants, tables()),
        dispersion=st.floats(1, 30),
        burst_s=st.floats(0, 20),
        seed=seeds,
    ),
    st.builds(VideoFrames, duration_s=st.floats(1, 200), seed=seeds),
    st.builds(
        VispPattern,
        pattern=st.sampled_from(("stepwise", "random_walk_2")),
        spread_s=st.floats(0, 0.24),
        phase_s=st.floats(0, 0.24),
        seed=seeds,
    ),
)
scaled = st.builds(
    Scaled, base=simple, rate_factor=st.floats(0.1, 3), speed=st.floats(0.2, 20), seed=seeds
)
sums = st.tuples(constants, constants).filter(lambda p: p[0].seed != p[1].seed).map(Sum)
workloads = st.one_of(simple, scaled, sums)


@given(workloads, st.lists(st.floats(0, 150), max_size=8))
@settings(deadline=None)
def test_cutting_differently_gives_the_same_arrivals(
    workload: Predictable, cuts: list[float]
) -> None:
    edges = sorted({0.0, 150.0, *cuts})
    whole = workload.arrivals(0, 150)
    pieces = [workload.arrivals(a, b) for a, b in itertools.pairwise(edges)]
    for source, times in whole.items():
        assert np.array_equal(np.concatenate([piece[source] for piece in pieces]), times)
        assert (np.diff(times) >= 0).all()
        for piece, a, b in zip(pieces, edges, edges[1:], strict=False):
            assert ((piece[source] >= a) & (piece[source] < b)).all()


@given(st.one_of(constants, tables()), st.floats(1, 12))
@settings(deadline=None)
def test_mean_rate_is_within_its_confidence_interval(
    base: ConstantRate | RateTrace, dispersion: float
) -> None:
    """Counts have variance = dispersion x mean; eight standard deviations and a few bursts."""
    workload = Bursty(base, dispersion, burst_s=0.1, seed=base.seed)
    expected = workload.expected(np.array((0.0, workload.duration_s)))["input"][0]
    for one, spread in ((workload, dispersion), (base, 1.0)):
        found = len(one.arrivals(0, one.duration_s)["input"])
        assert abs(found - expected) <= 8 * math.sqrt(spread * expected) + 12 * spread


@given(constants, tables(), logs)
@settings(deadline=None)
def test_sums_add(a: ConstantRate, b: RateTrace, c: EventLog) -> None:
    if a.seed == b.seed:
        return
    together = Sum((a, b, c))
    found = together.arrivals(3, 140)["input"]
    apart = [part.arrivals(3, 140)["input"] for part in (a, b, c)]
    assert np.array_equal(found, np.sort(np.concatenate(apart)))
    assert together.rate(50) == pytest.approx(sum(part.rate(50) for part in (a, b, c)))
    edges = np.array((0.0, 20.0, 150.0))
    expected = sum(part.expected(edges)["input"] for part in (a, b, c))
    assert together.expected(edges)["input"] == pytest.approx(expected)


@given(tables(), st.floats(0.2, 5), st.floats(0.2, 5))
def test_scaling_scales_what_is_expected(table: RateTrace, factor: float, speed: float) -> None:
    scaled_table = Scaled(table, factor, speed)
    edges = np.linspace(0, table.duration_s, 5)
    before = table.expected(edges)["input"] * factor
    assert scaled_table.expected(edges / speed)["input"] == pytest.approx(before, abs=1e-6)


@given(tables())
@settings(deadline=None)
def test_clock_and_inverse_agree(table: RateTrace) -> None:
    total = float(table.curve.items[-1])
    if total < 1e-6:
        return
    clock = np.linspace(0, total, 50)[:-1]
    back = table.curve.cumulative(table.curve.inverse(clock))
    assert back == pytest.approx(clock, abs=1e-7 * (1 + total))


BROKEN = {"nan": "nan", "minus": "-1.5", "word": "x7", "nothing": "", "two": "1,2", "inf": "inf"}


@given(st.integers(2, 40), st.data())
@settings(deadline=None)
def test_a_broken_cell_is_found_on_its_line(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, rows - 1))
    kind = data.draw(st.sampled_from(sorted(BROKEN)))
    blank = data.draw(st.integers(0, rows))
    lines = [f"{5 * i},{i % 7}" for i in range(rows)]
    lines[bad] = f"{5 * bad},{BROKEN[kind]}"
    lines.insert(blank, "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        path.write_text("\n".join(["t_s,rate", *lines]) + "\n")
        with pytest.raises(TraceError) as caught:
            read_trace(path)
    assert caught.value.line == 2 + bad + (blank <= bad)


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 1e6)), min_size=2, max_size=30))
@settings(deadline=None)
def test_what_was_written_is_read(rows: list[tuple[float, float]]) -> None:
    times = np.cumsum([step for step, _ in rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        text = "".join(f"{t!r},{r!r}\n" for t, (_, r) in zip(times.tolist(), rows, strict=True))
        path.write_text("t_s,rate\n" + text)
        trace = read_trace(path, gaps="hold")
    assert isinstance(trace, RateTrace)
    assert np.array_equal(trace.t_s, times - times[0])
    assert trace.rate_per_s.tolist() == [rate for _, rate in rows]
