"""The bounded time series, compared with a plain version that takes row after row."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tidegate.simulation.kernels import state as at
from tidegate.simulation.report import ROWS_AT_ONCE, BoundedSeries

Floats = NDArray[np.float64]
OPERATORS = 2
WIDTH = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * OPERATORS
FIRST = [at.ROW_OPERATORS + at.ROW_PER_OPERATOR * o for o in range(OPERATORS)]
AVERAGED = [at.ROW_HOSTS, at.ROW_RUNNING, at.ROW_LOAD_MEAN]
AVERAGED += [first + column for first in FIRST for column in (at.OP_QUEUE, at.OP_INSTANCES)]


def merged(rows: list[Floats]) -> Floats:
    """One row in place of several."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    total[AVERAGED] /= len(rows)
    total[at.ROW_TIME] = rows[-1][at.ROW_TIME]
    total[at.ROW_P95_S] = np.fmax.reduce([row[at.ROW_P95_S] for row in rows])
    total[at.ROW_LOAD_MIN] = np.fmin.reduce([row[at.ROW_LOAD_MIN] for row in rows])
    total[at.ROW_LOAD_MAX] = np.fmax.reduce([row[at.ROW_LOAD_MAX] for row in rows])
    return total


def plain(rows: Floats, limit: int) -> Floats:
    """The series of these rows."""
    kept: list[Floats] = []
    held: list[Floats] = []
    step = 1
    for row in rows:
        held.append(row)
        if len(held) == step and len(kept) == limit:
            pairs = [merged(kept[i : i + 2]) for i in range(0, limit - 1, 2)]
            held = [*kept[2 * len(pairs) :], *held]
            kept, step = pairs, 2 * step
        if len(held) >= step:
            kept.append(merged(held))
            held = []
    return np.array([*kept, merged(held)] if held else kept)


@pytest.mark.parametrize("limit", [2, 7, 64, 3_000])
def test_rows_are_merged_as_if_they_came_one_by_one(limit: int) -> None:
    rng = np.random.default_rng(limit)
    rows = rng.random((4 * ROWS_AT_ONCE + 5, WIDTH))
    rows[:, at.ROW_TIME] = np.arange(1, len(rows) + 1)
    rows[rng.random(len(rows)) < 0.3, at.ROW_P95_S] = np.nan  # nothing was finished
    series, done = BoundedSeries(OPERATORS, limit), 0
    while done < len(rows):
        size = int(rng.integers(0, 40))
        series.append(rows[done : done + size])
        done += size
        if rng.random() < 0.02:  # looking changes nothing
            assert np.array_equal(series.rows, plain(rows[:done], limit), equal_nan=True)
    assert np.array_equal(series.rows, plain(rows, limit), equal_nan=True)


def test_a_series_without_rows_is_empty() -> None:
    assert BoundedSeries(OPERATORS, 8).rows.shape == (0, WIDTH)
