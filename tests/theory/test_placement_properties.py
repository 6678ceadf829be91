"""First fit and subset sum: what they promise, and that the compiled kernel promises the same."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import OPERATORS, bins, items, loads, neighbourhoods, resources
from tidegate.model.topology import Resources
from tidegate.theory.placement import (
    Item,
    _place,
    _place_compiled,
    first_fit_decreasing,
    select_to_move,
)

Bins = list[tuple[float, float, float]]
Located = dict[str, list[int]]

located_anywhere = st.dictionaries(
    st.sampled_from(OPERATORS), st.lists(st.integers(0, 5), max_size=4), max_size=4
)


def inside(located: Located, free: Bins) -> Located:
    return {name: [j for j in held if j < len(free)] for name, held in located.items()}


def left_over(things: list[Item], free: Bins, found: list[int]) -> list[Resources]:
    left = [Resources(*room) for room in free]
    for item, j in zip(things, found, strict=True):
        if j >= 0:
            left[j] = left[j] - item.size
    return left


@given(items(), bins(), neighbourhoods(), located_anywhere)
def test_no_bin_is_ever_filled_beyond_its_room(
    things: list[Item], free: Bins, near: dict[str, frozenset[str]], located: Located
) -> None:
    found = first_fit_decreasing(things, free, near, inside(located, free))
    assert all(Resources(0).fits(left) for left in left_over(things, free, found))


@given(items(), bins(), neighbourhoods(), located_anywhere)
def test_an_item_left_over_fits_no_bin_at_the_end(
    things: list[Item], free: Bins, near: dict[str, frozenset[str]], located: Located
) -> None:
    found = first_fit_decreasing(things, free, near, inside(located, free))
    left = left_over(things, free, found)
    for item, j in zip(things, found, strict=True):
        if j < 0:
            assert not any(item.size.fits(room) for room in left)


@given(items(), bins(), neighbourhoods(), located_anywhere)
def test_nothing_is_touched_that_was_not_given(
    things: list[Item], free: Bins, near: dict[str, frozenset[str]], located: Located
) -> None:
    held = inside(located, free)
    given_free, given_held = list(free), {name: list(js) for name, js in held.items()}
    found = first_fit_decreasing(things, free, near, held)
    assert (free, held) == (given_free, given_held)
    assert len(found) == len(things)
    assert all(-1 <= j < len(free) for j in found)


@given(items(most=30), bins(most=6), neighbourhoods(), located_anywhere)
def test_the_compiled_kernel_places_as_the_plain_one_does(
    things: list[Item], free: Bins, near: dict[str, frozenset[str]], located: Located
) -> None:
    held = inside(located, free)
    assert _place_compiled(things, free, near, held) == _place(things, free, near, held)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=30), st.lists(st.floats(0, 5), min_size=1))
def test_the_compiled_kernel_agrees_on_awkward_floating_point_sizes(
    cores: list[float], room: list[float]
) -> None:
    things = [Item(f"i{n}", "a", Resources(c)) for n, c in enumerate(cores)]
    free = [(r, 0.0, 0.0) for r in room]
    assert _place_compiled(things, free, {}, {}) == _place(things, free, {}, {})


@given(bins())
def test_without_neighbours_a_single_item_goes_into_the_first_bin_with_room(free: Bins) -> None:
    size = Resources(1, 128, 10)
    fitting = [j for j, room in enumerate(free) if size.fits(Resources(*room))]
    assert first_fit_decreasing([Item("i", "a", size)], free) == [fitting[0] if fitting else -1]


@given(bins(), st.integers(0, 5), resources(most=1))
def test_a_bin_with_a_neighbour_and_room_comes_before_all_others(
    free: Bins, near: int, size: Resources
) -> None:
    j = near % len(free)
    found = first_fit_decreasing([Item("i", "a", size)], free, {"a": frozenset("b")}, {"b": [j]})
    if size.fits(Resources(*free[j])):
        assert found == [j]


def test_many_items_go_through_the_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    things = [Item(f"i{n}", "a", Resources(1)) for n in range(200)]
    free = [(2.0, 0.0, 0.0)] * 100
    calls: list[int] = []

    def compiled(*arguments: object) -> list[int]:
        calls.append(len(arguments))
        return [7]

    monkeypatch.setattr("tidegate.theory.placement._place_compiled", compiled)
    assert first_fit_decreasing(things, free) == [7]
    assert first_fit_decreasing(things[:199], free) == [n // 2 for n in range(199)]
    assert calls == [4]


@given(loads(), st.integers(-200, 6000))
def test_select_to_move_finds_the_smallest_load_that_is_enough(
    by_name: dict[str, float], thousandths: int
) -> None:
    needed = thousandths / 1000
    chosen = select_to_move(by_name, needed)
    whole = {name: round(load * 1000) for name, load in by_name.items()}
    enough = [
        sum(whole[name] for name in subset)
        for size in range(len(whole) + 1)
        for subset in combinations(whole, size)
        if sum(whole[name] for name in subset) >= thousandths
    ]
    if enough:
        assert sum(whole[name] for name in chosen) == min(enough)
    else:
        assert set(chosen) == {name for name, load in by_name.items() if load > 0}
    assert list(chosen) == [name for name in by_name if name in chosen]


@given(st.dictionaries(st.sampled_from("pqrstu"), st.floats(0.002, 2)), st.floats(0.001, 8))
def test_what_is_selected_is_enough_whenever_the_rounded_loads_could_be(
    by_name: dict[str, float], needed: float
) -> None:
    chosen = select_to_move(by_name, needed)
    moved = sum(by_name[name] for name in chosen)
    if chosen and len(chosen) < len(by_name):
        assert moved >= needed - 1e-8
