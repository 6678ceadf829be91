"""The numbers of the issue and of the paper, and the corners."""

from __future__ import annotations

import math

import pytest

from tidegate.errors import InputError, LatencyUnreachable, NotEnoughProcessors
from tidegate.theory.queueing import (
    Station,
    assign_processors,
    erlang_c,
    fewest_processors,
    machines_for,
    sojourn_s,
    waiting_items,
)

VIDEO = (Station("extract", 13, 5), Station("match", 13, 4.407), Station("agg", 13, 1300))
PATTERNS = (
    Station("generate", 640, 142.2),
    Station("detect", 1920, 178.6),
    Station("report", 640, 336.8),
)
SCALED = (Station("extract", 40, 5.714), Station("match", 40, 5.333), Station("agg", 40, 400))


def test_the_recommended_allocations_of_the_drs_paper() -> None:
    assert assign_processors(VIDEO, 22) == (10, 11, 1)
    assert assign_processors(VIDEO, 17) == (8, 8, 1)
    assert assign_processors(PATTERNS, 22) == (6, 13, 3)
    assert assign_processors(SCALED, 22) == (10, 11, 1)
    assert assign_processors(SCALED, 17) == (8, 8, 1)


def test_their_expected_sojourn_times() -> None:
    assert sojourn_s(VIDEO, (8, 8, 1), 13) == pytest.approx(0.428, abs=1e-3)
    assert sojourn_s(SCALED, (10, 11, 1), 40) == pytest.approx(0.388, abs=1e-3)
    assert sojourn_s(SCALED, (8, 8, 1), 40) == pytest.approx(0.779, abs=1e-3)
    assert sojourn_s(PATTERNS, (6, 13, 3), 640) == pytest.approx(0.033, abs=1e-3)


@pytest.mark.parametrize(("t_max_s", "processors", "machines"), [(0.5, 19, 5), (1.0, 17, 4)])
def test_fig_10_in_machines_of_five_with_three_reserved(
    t_max_s: float, processors: int, machines: int
) -> None:
    fewest = fewest_processors(SCALED, t_max_s, 40)
    assert sum(fewest) == processors
    assert machines_for(processors, per_machine=5, reserved=3) == machines


def test_a_whole_load_needs_one_more_than_its_ceiling() -> None:
    assert Station("s", 10, 5).least_processors == 3
    assert Station("s", 0, 5).least_processors == 1
    assert assign_processors((Station("s", 10, 5),), 3) == (3,)


def test_one_server_waits_as_the_textbook_says() -> None:
    assert waiting_items(1, Station("s", 0.8, 1.0)) == pytest.approx(0.8**2 / 0.2)
    assert sojourn_s((Station("s", 0.8, 1.0),), (1,), 0.8) == pytest.approx(1 / (1 - 0.8))


def test_allen_cunneen_scales_the_waiting_by_the_mean_variability() -> None:
    exponential, steady = Station("s", 3, 1), Station("s", 3, 1, arrival_scv=1, service_scv=0)
    assert waiting_items(4, steady) == pytest.approx(waiting_items(4, exponential) / 2)
    assert waiting_items(4, Station("s", 3, 1, 0, 0)) == 0


def test_a_correction_asks_for_more_processors() -> None:
    plain = fewest_processors(SCALED, 1.0, 40)
    corrected = fewest_processors(SCALED, 1.0, 40, correction=2.0)
    assert sum(corrected) == sum(fewest_processors(SCALED, 0.5, 40)) > sum(plain)


def test_limits_on_processors_can_make_a_bound_unreachable() -> None:
    limited = (Station("s", 2.5, 1.0, max_processors=3),)
    with pytest.raises(LatencyUnreachable) as caught:
        fewest_processors(limited, 1.2, 2.5)
    assert caught.value.floor_s == pytest.approx(sojourn_s(limited, (3,), 2.5))
    with pytest.raises(NotEnoughProcessors, match="needs at least 3"):
        fewest_processors((Station("s", 2.5, 1.0, max_processors=2),), 9.0, 2.5)


def test_a_load_a_hair_below_a_whole_number_needs_no_more_than_a_whole_one() -> None:
    load = math.nextafter(2.0, 0.0)
    assert fewest_processors((Station("s", load, 1.0),), 1.1, 2.0) == (4,)
    whole = fewest_processors((Station("s", 2.0, 1.0),), 1.1, 2.0)
    assert whole == (4,)


def test_very_many_processors_neither_overflow_nor_lose_the_gain() -> None:
    assert erlang_c(2000, 1990.0) == pytest.approx(0.757, abs=0.01)
    busy = (Station("a", 900, 1), Station("b", 900, 1))
    assert assign_processors(busy, 2000) == (1000, 1000)


def test_bad_rates_are_refused_by_the_name_of_the_operator() -> None:
    with pytest.raises(InputError, match="match: service rate is 0"):
        Station("match", 1, 0)
    with pytest.raises(InputError, match="match: arrival rate is nan"):
        Station("match", math.nan, 1)
    with pytest.raises(InputError, match="external rate"):
        sojourn_s(VIDEO, (10, 11, 1), 0)
    with pytest.raises(InputError, match="t_max_s"):
        fewest_processors(VIDEO, 0, 13)
