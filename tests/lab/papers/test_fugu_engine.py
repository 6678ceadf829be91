"""FUGU's hosts: how long ticks take through filters and aggregates, and what a move stops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tidegate.lab.papers.fugu.engine import STEP_S, QueryEngine
from tidegate.model.topology import Resources


def engine(
    seconds: float,
    rate_per_s: float = 100.0,
    cost_s: float = 0.001,
    one_source: bool = True,
    buffer: float = math.inf,
    cores: float = 1.0,
) -> QueryEngine:
    """Two queries over one sector that has all ticks, everything on the first of two hosts."""
    ticks = np.linspace(0.0, rate_per_s * seconds, round(seconds / STEP_S) + 1)[None, :]
    costs, buffers = np.full(2, cost_s), np.full(4, buffer)
    made = QueryEngine(ticks, np.zeros(2, np.int64), costs, costs, one_source, buffers)
    for _ in range(2):
        made.open_host(Resources(cores), 0.0)
    for operator in range(4):
        made.start(operator, 0, 0.0)
    return made


def mean_latency(made: QueryEngine, query: int) -> float:
    return float(made.latency_s[query] / made.results[query])


def test_without_contention_a_tick_takes_a_step_and_costs_what_it_costs() -> None:
    made = engine(20.0)
    made.run(20.0)
    assert mean_latency(made, 0) == pytest.approx(STEP_S, rel=0.01)
    assert made.results == pytest.approx([2000.0, 2000.0], rel=0.01)
    assert made.used_s == pytest.approx([4 * 20 * 100 * 0.001, 0.0], rel=0.01)
    assert made.busy_s.sum() == pytest.approx(made.used_s.sum())


def test_an_overfull_host_serves_its_share_and_the_rest_waits() -> None:
    made = engine(100.0, cost_s=0.005)  # wants two cores of one
    made.run(100.0)
    assert made.used_s[0] == pytest.approx(100.0, rel=0.01)
    assert made.wanted_s[0] > 150.0
    # The tick that is served last arrived when half of the time had passed, or later.
    assert 10.0 < mean_latency(made, 0) < 35.0


def test_a_move_pauses_its_query_for_its_length() -> None:
    made = engine(20.0, one_source=False)
    made.run(10.0)
    before = made.latency_s.copy()
    assert made.move(0, 0, 1, pause_s=4.0, now_s=10.0) == 14.0
    made.run(20.0)
    # Ticks of four seconds wait two on average, and those behind them while the backlog is done.
    extra = (made.latency_s - before)[0] - made.results[0] / 2 * STEP_S
    assert extra == pytest.approx(400 * 2.0 / (1 - 0.1), rel=0.1)
    assert mean_latency(made, 1) == pytest.approx(STEP_S, rel=0.03)
    assert made.used_s[1] > 0


@pytest.mark.parametrize("one_source", [True, False])
def test_a_filter_that_moves_stops_all_queries_of_its_source(one_source: bool) -> None:
    made = engine(20.0, one_source=one_source)
    made.run(10.0)
    made.move(0, 0, 1, pause_s=4.0, now_s=10.0)
    made.run(20.0)
    assert (mean_latency(made, 1) > 0.3) == one_source


def test_an_aggregate_that_moves_stops_its_filter() -> None:
    made = engine(20.0)
    made.run(10.0)
    made.move(2, 0, 1, pause_s=4.0, now_s=10.0)
    busy = made.busy_s.copy()
    made.run(13.9)
    assert (made.busy_s - busy)[[0, 2]] == pytest.approx([0.0, 0.0])
    assert (made.busy_s - busy)[1] > 0.3  # the other query goes on


def test_a_full_buffer_loses_the_oldest_ticks() -> None:
    bounded, endless = engine(200.0, cost_s=0.01, buffer=500.0), engine(200.0, cost_s=0.01)
    for made in (bounded, endless):
        made.run(200.0)
    assert mean_latency(bounded, 0) < 2 * 500 / 100 + 1 < mean_latency(endless, 0)
