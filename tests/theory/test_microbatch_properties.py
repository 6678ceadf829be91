"""Processors for micro-batches, against looking at every allocation there is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.theory.helpers import compositions
from tidegate.errors import NotEnoughProcessors
from tidegate.theory.microbatch import BatchQuery, PathBound, assign, fewest, mean_s, oldest_s


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
                fixed_work_s=draw(st.sampled_from([0.0, 0.5, 8.0])),
                fed_every_s=draw(st.sampled_from([0.0, 0.0, 3.0])),
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


def chain_bound(chain: tuple[BatchQuery, ...], bound_s: float) -> tuple[PathBound, ...]:
    return (PathBound(tuple(range(len(chain))), bound_s),)


@given(queries(most=2), st.floats(1.01, 4))
def test_fewest_is_enough_and_one_less_is_not(chain: tuple[BatchQuery, ...], loose: float) -> None:
    bound_s = loose * sum(q.floor_s for q in chain)
    found = fewest(chain, chain_bound(chain, bound_s))
    counts = tuple(round(slots) for slots in found.slots)
    assert counts == found.slots
    assert oldest_s(chain, counts) <= bound_s * (1 + 1e-9)
    assert allowed(chain, counts)
    assume(sum(counts) <= 25)
    assert best_by_search(chain, sum(counts) - 1) > bound_s * (1 - 1e-9)


@given(queries(), st.floats(0.1, 0.99))
def test_what_the_overhead_forbids_no_processor_allows(
    chain: tuple[BatchQuery, ...], share: float
) -> None:
    floor_s = sum(q.floor_s for q in chain)
    found = fewest(chain, chain_bound(chain, share * floor_s))
    ((bound, best_s),) = found.floors
    assert bound.bound_s == share * floor_s
    assert best_s == pytest.approx(floor_s)
    assert oldest_s(chain, found.slots) <= 1.25 * floor_s * (1 + 1e-9)


@given(queries(), st.floats(1.3, 4))
def test_shared_slots_need_no_more_than_whole_ones(
    chain: tuple[BatchQuery, ...], loose: float
) -> None:
    bounds = [PathBound((i,), loose * q.floor_s) for i, q in enumerate(chain)]
    whole = fewest(chain, bounds)
    shared = fewest(chain, bounds, [False] * len(chain))
    assert sum(shared.slots) <= sum(whole.slots) + 1e-9
    for query, slots, bound in zip(chain, shared.slots, bounds, strict=True):
        assert query.oldest_s(slots) <= bound.bound_s * (1 + 1e-6)


@given(queries(most=1), st.floats(1.1, 4))
def test_a_query_alone_is_bounded_in_closed_form(
    chain: tuple[BatchQuery, ...], loose: float
) -> None:
    (query,) = chain
    bound_s = loose * query.floor_s
    slots = query.slots_for(bound_s)
    assume(slots > query.load * 1.001)
    assert query.oldest_s(slots) <= bound_s * (1 + 1e-6)
    assume(slots * 0.99 > query.load)
    assert query.oldest_s(slots * 0.99) > bound_s * (1 - 1e-6)


@given(queries())
def test_too_few_processors_are_refused(chain: tuple[BatchQuery, ...]) -> None:
    needed = sum(q.least_processors for q in chain)
    with pytest.raises(NotEnoughProcessors) as caught:
        assign(chain, needed - 1)
    assert caught.value.needed == needed


def test_a_query_without_the_tasks_that_it_needs_gets_all_of_them() -> None:
    narrow = BatchQuery("q", 100, 0.05, 0.2, max_processors=4)
    found = fewest((narrow,), (PathBound((0,), 5.0),))
    assert found.slots == (4,) and found.short == (0,)
    with pytest.raises(NotEnoughProcessors, match="needs at least 6"):
        assign((narrow,), 8)


def test_a_source_that_admits_too_little_needs_no_more_slots() -> None:
    """5,000 rows every five seconds of 1 ms each: one slot works through them, four do no more."""
    query = BatchQuery("q", 4_000, 0.001, 0.5, 5, max_rows=5_000)
    assert query.slots_for(15) == math.inf
    admitted = query.admitted()
    assert admitted.arrival_rate_per_s == 1_000
    assert admitted.slots_for(15) < 2


def test_a_source_without_a_trigger_passes_on_more_with_more_slots() -> None:
    """1,000 rows a batch at 2,000/s: batches must take half a second or less."""
    query = BatchQuery("q", 2_000, 0.001, 0.1, max_rows=1_000)
    assert query.admitted() is query
    slots = query.slots_for(30)
    assert slots == pytest.approx(1.0 / 0.4)
    assert query.oldest_s(slots * 0.98) == math.inf
    assert query.oldest_s(slots * 1.02) < 30


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


def test_blocks_do_not_wait_unless_the_query_is_behind() -> None:
    fed = BatchQuery("q", 26, 0.2, 1.0, fed_every_s=12.0)
    assert fed.oldest_s(10) == pytest.approx(1.0 + 12 * 5.2 / 10)
    behind = fed.period_s(5.5)
    assert behind > 12 and fed.oldest_s(5.5) == pytest.approx(2 * behind - 12)
    for bound_s in (4.0, 8.0, 16.0):
        slots = fed.slots_for(bound_s)
        assert fed.oldest_s(slots) == pytest.approx(bound_s)
    assert replace(fed, trigger_interval_s=2.0).oldest_s(10) == pytest.approx(fed.oldest_s(10) + 2)
    latencies = [fed.oldest_s(k / 4) for k in range(22, 120)]
    gains = [a - b for a, b in pairwise(latencies)]
    assert all(first >= then - 1e-9 >= -1e-9 for first, then in pairwise(gains)), "convex"


def test_what_a_source_admits_is_counted_by_the_blocks_in_which_items_come() -> None:
    """Fifty rows in a batch, of a hundred that come every ten seconds."""
    query = BatchQuery("q", 10, 0.1, 0.5, 1.0, max_rows=50, fed_every_s=10.0)
    assert query.admitted().arrival_rate_per_s == 5.0
    assert math.isfinite(query.admitted().oldest_s(2))
    assert fewest([query], [PathBound((0,), 14.0)]).slots, "and the search for slots ends"


def test_no_queries_get_no_slots() -> None:
    assert assign([], 3) == ()
