"""AssignProcessors and the fewest processors, against looking at every allocation there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import stations
from tests.theory.helpers import compositions
from tidegate.errors import LatencyUnreachable, NotEnoughProcessors
from tidegate.theory.queueing import Station, assign_processors, fewest_processors, sojourn_s


def best_by_search(queues: Sequence[Station], processors: int) -> float:
    return min(
        (
            sojourn_s(queues, allocation, 1.0)
            for allocation in compositions(processors, len(queues))
        ),
        default=math.inf,
    )


@given(stations(most=3), st.integers(0, 8))
def test_assign_processors_finds_what_exhaustive_search_finds(
    queues: tuple[Station, ...], more: int
) -> None:
    processors = sum(s.least_processors for s in queues) + more
    allocation = assign_processors(queues, processors)
    assert sum(allocation) == processors
    found = sojourn_s(queues, allocation, 1.0)
    assert found == pytest.approx(best_by_search(queues, processors), rel=1e-9)


@given(stations(most=3), st.integers(0, 8), st.lists(st.floats(0.1, 4), min_size=6, max_size=6))
def test_assign_processors_is_optimal_for_general_streams_too(
    queues: tuple[Station, ...], more: int, variations: list[float]
) -> None:
    general = tuple(
        replace(s, arrival_scv=variations[n], service_scv=variations[n + 3])
        for n, s in enumerate(queues)
    )
    processors = sum(s.least_processors for s in general) + more
    found = sojourn_s(general, assign_processors(general, processors), 1.0)
    assert found == pytest.approx(best_by_search(general, processors), rel=1e-9)


@given(stations(), st.integers(1, 5))
def test_one_processor_too_few_is_a_clear_error(queues: tuple[Station, ...], short: int) -> None:
    needed = sum(s.least_processors for s in queues)
    with pytest.raises(NotEnoughProcessors) as caught:
        assign_processors(queues, needed - short)
    assert (caught.value.needed, caught.value.available) == (needed, needed - short)
    assert best_by_search(queues, needed - 1) == math.inf


@given(stations(most=3, heaviest=4), st.floats(1.001, 3.0))
def test_fewest_processors_finds_what_exhaustive_search_finds(
    queues: tuple[Station, ...], slack: float
) -> None:
    busy = sum(s.load for s in queues)
    bound_s = busy * slack
    allocation = fewest_processors(queues, bound_s, 1.0)
    total = sum(allocation)
    assume(total <= 30)
    assert sojourn_s(queues, allocation, 1.0) <= bound_s * (1 + 1e-12)
    fewer = best_by_search(queues, total - 1)
    assert fewer > bound_s * (1 - 1e-12)


@given(stations(), st.floats(0.1, 0.99))
def test_a_bound_below_the_processing_time_is_refused_with_the_best_that_can_be_had(
    queues: tuple[Station, ...], share: float
) -> None:
    busy = sum(s.load for s in queues)
    with pytest.raises(LatencyUnreachable) as caught:
        fewest_processors(queues, busy * share, 1.0)
    assert caught.value.floor_s == pytest.approx(busy)


@given(stations(), st.integers(0, 30), st.integers(-8, 8))
def test_allocations_do_not_depend_on_the_unit_of_time(
    queues: tuple[Station, ...], more: int, power: int
) -> None:
    scale = 2.0**power  # exact, so that the loads stay the same to the last bit
    scaled = tuple(
        replace(
            s,
            arrival_rate_per_s=s.arrival_rate_per_s * scale,
            service_rate_per_s=s.service_rate_per_s * scale,
        )
        for s in queues
    )
    processors = sum(s.least_processors for s in queues) + more
    assert assign_processors(scaled, processors) == assign_processors(queues, processors)
    bound_s = 1.2 * sum(s.load for s in queues)
    slow = fewest_processors(queues, bound_s, 1.0)
    assert fewest_processors(scaled, bound_s / scale, scale) == slow


@given(stations(), st.integers(0, 12), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_no_station_gets_more_processors_than_it_can_use(
    queues: tuple[Station, ...], more: int, slack: list[int]
) -> None:
    limited = tuple(
        replace(s, max_processors=s.least_processors + slack[n]) for n, s in enumerate(queues)
    )
    processors = sum(s.least_processors for s in limited) + more
    allocation = assign_processors(limited, processors)
    limits = [s.max_processors or 0 for s in limited]
    assert all(k <= limit for k, limit in zip(allocation, limits, strict=True))
    assert sum(allocation) == min(processors, sum(limits))


@given(
    load=st.floats(0, 300),
    service_per_s=st.floats(1e-3, 1e3),
    variations=st.tuples(st.floats(0, 9), st.floats(0, 9)),
    spare=st.none() | st.integers(-1, 4),
    bound=st.floats(0.2, 20),
    correction=st.sampled_from([1.0, 1.7, 3.0]),
)
def test_a_single_operator_gets_what_it_gets_next_to_an_idle_one(
    load: float,
    service_per_s: float,
    variations: tuple[float, float],
    spare: int | None,
    bound: float,
    correction: float,
) -> None:
    """With two operators there is a heap, and an idle one never gets another processor."""
    rate = load * service_per_s
    assume(rate > 0)
    most = None if spare is None else max(1, math.floor(load) + 1 + spare)
    one = Station("one", rate, service_per_s, *variations, most)
    found: list[object] = []
    for queues in ((one,), (one, Station("idle", 0.0, 1.0))):
        try:
            counts = fewest_processors(queues, bound / service_per_s, rate, correction)
            found.append(counts[0])
        except (LatencyUnreachable, NotEnoughProcessors) as error:
            found.append(str(error))
    assert found[0] == found[1]
