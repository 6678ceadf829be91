"""A time series that never grows beyond a number of rows: when it is full, each two become one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.simulation.kernels.state import (
    OP_INSTANCES,
    OP_QUEUE,
    ROW_HOSTS,
    ROW_LOAD_MAX,
    ROW_LOAD_MEAN,
    ROW_LOAD_MIN,
    ROW_OPERATORS,
    ROW_P95_S,
    ROW_PER_OPERATOR,
    ROW_RUNNING,
    ROW_TIME,
)

__all__ = ["BoundedSeries"]

Floats = NDArray[np.float64]


class BoundedSeries:
    """Rows as the kernels write them, one each monitoring interval at first.

    limit: rows kept. When two rows become one, counts are added, numbers of hosts, instances and
    waiting items are averaged, the least and greatest load stay such, and the 95th percentile
    becomes the greater of the two.
    """

    def __init__(self, operators: int, limit: int) -> None:
        width = ROW_OPERATORS + ROW_PER_OPERATOR * operators
        self._rows = np.empty((limit, width))
        self._used = 0
        self._step = 1
        self._held: list[Floats] = []
        per_operator = range(ROW_OPERATORS, width, ROW_PER_OPERATOR)
        self._averaged = [ROW_HOSTS, ROW_RUNNING, ROW_LOAD_MEAN]
        self._averaged += [column + OP_QUEUE for column in per_operator]
        self._averaged += [column + OP_INSTANCES for column in per_operator]

    def append(self, rows: Floats) -> None:
        """Add rows of single monitoring intervals."""
        if self._step == 1 and self._used + len(rows) <= len(self._rows):
            self._rows[self._used : self._used + len(rows)] = rows
            self._used += len(rows)
            return
        for row in rows:
            self._held.append(row.copy())
            if len(self._held) < self._step:
                continue
            if self._used == len(self._rows):
                self._halve()
                if len(self._held) < self._step:
                    continue
            self._rows[self._used] = self._merge(np.array(self._held))
            self._held = []
            self._used += 1

    def _halve(self) -> None:
        pairs = self._used // 2
        for i in range(pairs):
            self._rows[i] = self._merge(self._rows[2 * i : 2 * i + 2])
        if self._used % 2:  # an odd one is held back until its partner comes
            self._held = [self._rows[self._used - 1].copy(), *self._held]
        self._used = pairs
        self._step *= 2

    def _merge(self, rows: Floats) -> Floats:
        if len(rows) == 1:
            return np.array(rows[0])
        merged: Floats = np.asarray(rows.sum(axis=0))
        merged[self._averaged] /= len(rows)
        merged[ROW_TIME] = rows[-1, ROW_TIME]
        for column, pick in (
            (ROW_P95_S, np.fmax),
            (ROW_LOAD_MIN, np.fmin),
            (ROW_LOAD_MAX, np.fmax),
        ):
            merged[column] = pick.reduce(rows[:, column])
        return merged

    @property
    def rows(self) -> Floats:
        """What there is, oldest first."""
        held = [self._merge(np.array(self._held))] if self._held else []
        return np.vstack([self._rows[: self._used], *held])
