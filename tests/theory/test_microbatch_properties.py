"""Processors for micro-batches, against looking at every allocation there is."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.theory.helpers import compositions
from tidegate.errors import LatencyUnreachable, NotEnoughProcessors
from tidegate.theory.microbatch import BatchQuery, assign, fewest, mean_s, oldest_s


@st.composite
def queries(draw: st.DrawFn, most: int = 3) -> tuple[BatchQuery, ...]:
    """A few queries, some triggered at intervals, some with few tasks."""
    drawn = []
    for n in range(draw(st.integers(1, most))):
        service_s = draw(st.floats(0.001, 0.5))
        load = draw(st.floats(0.01, 4))
        query = BatchQuery(
            f"q{n}",
            load / service_s,
            service_s,
            overhead_s=draw(st.floats(0.01, 2)),
            trigger_interval_s=draw(st.sampled_from([0.0, 0.0, 0.5, 5.0])),
        )
        room = draw(st.none() | st.integers(query.least_processors, 9))
        drawn.append(
            BatchQuery(
                query.name,
                query.arrival_rate_per_s,
                service_s,
                query.overhead_s,
                query.trigger_interval_s,
                room,
            )
        )
    return tuple(drawn)


def allowed(chain: tuple[BatchQuery, ...], counts: tuple[int, ...]) -> bool:
    return all(k <= (q.max_processors or k) for q, k in zip(chain, counts, strict=True))


def best_by_search(chain: tuple[BatchQuery, ...], processors: int) -> float:
    return min(
        (
            oldest_s(chain, counts)
            for counts in compositions(processors, len(chain))
            if allowed(chain, counts)
        ),
        default=math.inf,
    )


@given(queries(most=1))
def test_latency_is_convex_and_decreasing(chain: tuple[BatchQuery, ...]) -> None:
    (query,) = chain
    least = query.least_processors
    for latency in (query.oldest_s, query.mean_s):
        times = [latency(k) for k in range(least, least + 30)]
        gains = [before - after for before, after in pairwise(times)]
        assert all(gain >= -1e-12 for gain in gains)
        assert all(later <= gain * (1 + 1e-9) + 1e-12 for gain, later in pairwise(gains))


@given(queries(), st.integers(0, 6))
def test_assign_finds_what_exhaustive_search_finds(
    chain: tuple[BatchQuery, ...], more: int
) -> None:
    processors = sum(q.least_processors for q in chain) + more
    room = [q.max_processors for q in chain]
    assume(None in room or sum(r or 0 for r in room) >= processors)
    counts = assign(chain, processors)
    assert sum(counts) == processors
    assert allowed(chain, counts)
    assert oldest_s(chain, counts) == pytest.approx(best_by_search(chain, processors), rel=1e-9)


@given(queries(most=2), st.floats(1.01, 4), st.floats(1, 2))
def test_fewest_is_enough_and_one_less_is_not(
    chain: tuple[BatchQuery, ...], loose: float, correction: float
) -> None:
    free_s = (max(q.overhead_s, q.trigger_interval_s) + q.overhead_s for q in chain)
    bound_s = correction * loose * sum(free_s)
    try:
        counts = fewest(chain, bound_s, correction)
    except LatencyUnreachable as error:
        assert error.floor_s * 1.002 > bound_s
        return
    assert correction * oldest_s(chain, counts) <= bound_s
    assert allowed(chain, counts)
    assume(sum(counts) <= 25)
    assert correction * best_by_search(chain, sum(counts) - 1) > bound_s * (1 - 1e-9)


@given(queries(), st.floats(0.1, 0.99))
def test_what_the_overhead_forbids_no_processor_allows(
    chain: tuple[BatchQuery, ...], share: float
) -> None:
    floor_s = sum(q.floor_s for q in chain)
    with pytest.raises(LatencyUnreachable) as caught:
        fewest(chain, share * floor_s)
    assert caught.value.floor_s == pytest.approx(floor_s)


@given(queries())
def test_too_few_processors_are_refused(chain: tuple[BatchQuery, ...]) -> None:
    needed = sum(q.least_processors for q in chain)
    with pytest.raises(NotEnoughProcessors) as caught:
        assign(chain, needed - 1)
    assert caught.value.needed == needed


def test_a_query_without_the_tasks_that_it_needs_is_refused() -> None:
    narrow = BatchQuery("q", 100, 0.05, 0.2, max_processors=4)
    with pytest.raises(NotEnoughProcessors, match="needs at least 6"):
        fewest((narrow,), 5.0)


def test_a_load_that_is_too_much_never_ends() -> None:
    query = BatchQuery("q", 100, 0.02, 0.2)
    assert query.oldest_s(2) == query.mean_s(2) == query.duration_s(2) == math.inf
    assert mean_s((query,), (3,)) == pytest.approx(0.6 / 2 + 0.6)


def test_the_two_regimes_meet() -> None:
    back_to_back = BatchQuery("q", 100, 0.02, 0.5)
    period_s = back_to_back.period_s(4)
    triggered = BatchQuery("q", 100, 0.02, 0.5, trigger_interval_s=period_s)
    assert triggered.duration_s(4) == pytest.approx(period_s)
    assert triggered.oldest_s(4) == pytest.approx(back_to_back.oldest_s(4))
