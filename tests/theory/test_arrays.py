"""Structures of arrays in compiled code, against the same functions on the NumPy arrays."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from tidegate.theory.arrays import Structure
from tidegate.theory.compiled import compiled, entry_of


@dataclass(frozen=True, eq=False)
class Tables(Structure):
    """Arrays of each kind that the kernels have."""

    counts: NDArray[np.int64]
    grid: NDArray[np.float64]
    cube: NDArray[np.float64]
    words: NDArray[np.uint64]


def tables() -> Tables:
    cube = np.arange(24.0).reshape(2, 3, 4)
    return Tables(np.arange(5), np.ones((3, 2)), cube, np.array([7, 2**63], np.uint64))


def elements(t: Tables, row: int) -> None:
    t.counts[row] += 3
    t.grid[row, 1] = t.counts[row]  # a whole number in an array of floats
    t.cube[1, row, 2] -= 0.5
    t.words[1] = t.words[0]


def rows(t: Tables, row: int) -> None:
    plane = t.cube[1]
    plane[row, 0] = len(plane)
    line = plane[row]
    line[1] = len(line) + 10 * len(t.cube)
    same = t.cube[1, row]
    same[3] = same[1] * 2


def shapes(t: Tables, row: int) -> None:
    t.counts[0] = t.grid.shape[0] * 10 + t.grid.shape[1]
    t.counts[1] = t.cube.shape[2] + t.cube[row].shape[1]


@pytest.mark.parametrize("function", [elements, rows, shapes])
def test_compiled_functions_do_the_same_as_plain_ones(function: Callable[..., None]) -> None:
    plain, fast = tables(), tables()
    function(plain, 1)
    compiled(function)(fast, 1)
    for name in ("counts", "grid", "cube", "words"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), replace]
)
def test_a_copy_has_its_own_table(copied: Callable[[Tables], Tables]) -> None:
    first = tables()
    second = copied(first)
    assert second._address == second._table.ctypes.data != first._address
    assert second._table[0] == second.counts.ctypes.data


def test_other_arrays_come_with_another_table() -> None:
    first = tables()
    second = replace(first, counts=np.zeros(5, np.int64))
    compiled(elements)(second, 1)
    assert first.counts[1] == 1 and second.counts[1] == 3
    with pytest.raises(FrozenInstanceError):
        first.counts = second.counts  # type: ignore[misc]


def test_arrays_whose_elements_are_not_in_order_are_refused() -> None:
    with pytest.raises(ValueError, match="grid is not contiguous"):
        replace(tables(), grid=np.ones((4, 2))[::2])


def no_such_field(t: Any) -> Any:
    return t.nothing


def too_many_indices(t: Any) -> Any:
    return t.counts[0, 0]


def a_row_in_place_of_an_element(t: Any) -> None:
    t.grid[0] = 1.0


@pytest.mark.parametrize(
    "function", [no_such_field, too_many_indices, a_row_in_place_of_an_element]
)
def test_what_such_arrays_do_not_have_is_no_code(function: Callable[..., Any]) -> None:
    with pytest.raises(numba.core.errors.TypingError):
        compiled(function)(tables())


def test_an_entry_refuses_whole_numbers_which_would_cut_off_later_ones() -> None:
    with pytest.raises(TypeError, match="no whole numbers"):
        entry_of(_half, 3)
    assert entry_of(_half, 3.0)(5.0) == 2.5


@compiled
def _half(value: float) -> float:
    return value / 2
