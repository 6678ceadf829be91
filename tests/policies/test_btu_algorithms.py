"""Algorithms 1 to 3 of the VISP paper, computed by hand."""

from __future__ import annotations

import pytest

from tidegate.model.topology import Resources
from tidegate.policies.btu import (
    Btu,
    BtuMemory,
    BtuTurn,
    host_rank,
    predicted_duration_s,
    release_utility,
    should_scale_up,
)
from tidegate.testing import steady_snapshot


@pytest.mark.parametrize(
    ("durations", "predicted"),
    [
        ([], None),
        ([1.0], None),
        ([1.0, 2.0], 3.0),
        ([2.0, 2.0, 2.0], 2.0),
        ([1.0, 2.0, 4.0], 16 / 3),  # mean 7/3, slope 3/2, two steps beyond the middle
        ([1.0, 0.8, 0.6, 0.4, 0.2], 0.0),
    ],
)
def test_the_trend_is_the_least_squares_line_one_step_ahead(
    durations: list[float], predicted: float | None
) -> None:
    found = predicted_duration_s(durations)
    assert found == (None if predicted is None else pytest.approx(predicted, abs=1e-9))


@pytest.mark.parametrize(
    ("durations", "waiting", "answer"),
    [
        ([1.1], 51, True),  # late now
        ([1.1], 50, False),  # late, but hardly anything waits
        ([1.0], 51, False),  # at the SLO is in time
        ([0.7, 0.8, 0.9, 0.95], 51, True),  # 1.05 comes next
        ([1.5, 1.2, 0.9], 51, False),  # getting better
        ([], 999, False),
    ],
)
def test_algorithm_1_needs_lateness_and_a_queue(
    durations: list[float], waiting: float, answer: bool
) -> None:
    assert should_scale_up(durations, 1.0, waiting) is answer


def test_algorithm_2_by_hand() -> None:
    capacity, free = Resources(4, 8000), Resources(3, 4000)
    # cpu (3−1)/4 = 0.5, memory (4000−1000)/8000 = 0.375, room min(3, 4) = 3
    rank = host_rank(free, capacity, Resources(1, 1000), cached=False)
    assert rank == pytest.approx(0.125 / 3)
    cached = host_rank(free, capacity, Resources(1, 1000), cached=True)
    assert cached == pytest.approx(rank / 100)


@pytest.mark.parametrize("demand", [Resources(3.1, 100), Resources(1, 4001), Resources(1, 100, 11)])
def test_algorithm_2_is_negative_where_there_is_no_room(demand: Resources) -> None:
    assert host_rank(Resources(3, 4000, 10), Resources(4, 8000, 10), demand, cached=True) == -1.0


def test_a_host_that_would_be_exactly_full_can_run_it() -> None:
    full = Resources(3, 4000)
    assert host_rank(full, Resources(4, 8000), full, cached=False) == 0.0
    assert host_rank(full, Resources(4), Resources(0.0), cached=False) == 0.0


@pytest.mark.parametrize("left", [-1.0, 0.0, 1 - 2e-9, 1 - 5e-10, 1.0, 2.5])
def test_a_turn_ranks_a_host_as_algorithm_2_does(left: float) -> None:
    now = steady_snapshot(hosts=2)
    turn = BtuTurn(Btu(), now, BtuMemory())
    demand = now.operator("work").demand
    turn.packing.room("host-1")[0] = left * demand.cpu_cores
    room = Resources(*turn.packing.room("host-1"))
    capacity = now.host["host-1"].capacity
    assert turn.rank(turn.packing, "host-1", "work") == host_rank(room, capacity, demand, False)


def utility(**changes: object) -> float:
    usual: dict[str, object] = {
        "count": 3,
        "counts": [1, 3, 5],
        "duration_s": 0.5,
        "slo_s": 1.0,
        "scalings": 2,
        "all_scalings": 8,
        "queue_length": 7,
    }
    return release_utility(**(usual | changes))  # type: ignore[arg-type]


def test_algorithm_3_by_hand() -> None:
    # 1 + (3−1)/(5−1) − 0.5·1.0001 − 2/8
    assert utility() == pytest.approx(1 + 0.5 - 0.50005 - 0.25)
    assert utility(queue_length=0) == pytest.approx(utility() + 100)
    assert utility(queue_length=0.99) == pytest.approx(utility() + 100)
    assert utility(counts=[0, 1, 3, 5]) == pytest.approx(1 + 0.6 - 0.50005 - 0.25)
    assert utility(penalty=0.01) == pytest.approx(1 + 0.5 - 0.505 - 0.25)
    assert utility(weights=(2, 1, 3, 4)) == pytest.approx(1 + 1.0 - 3 * 0.50005 - 1.0)
    assert utility(queue_length=0, queue_load=10) == pytest.approx(utility() + 10)


def test_algorithm_3_never_divides_by_zero_and_never_gives_the_last_one() -> None:
    assert utility(counts=[3, 3, 3]) == pytest.approx(1 + 0 - 0.50005 - 0.25)
    assert utility(all_scalings=0, scalings=0) == pytest.approx(1 + 0.5 - 0.50005)
    assert utility(slo_s=None) == pytest.approx(1 + 0.5 - 0.25)
    assert utility(count=1, queue_length=0) == -1.0


def test_a_late_operator_can_spare_nothing() -> None:
    assert utility(duration_s=2.0) < 0
