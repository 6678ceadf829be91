"""The line of servers: in vectors, as a plain tuple, and as a list that is sorted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from tidegate.simulation.kernels.line import (
    PLACES,
    empty_line,
    put_back,
    slot_at,
    time_at,
    with_server,
)

Servers = list[tuple[float, int]]


def lined_up(times: Any, slots: Any, steps: Any) -> tuple[Servers, Servers]:
    """The first server before each step, and the line after all of them."""
    line = empty_line()
    for place in range(len(times)):
        line = with_server(line, place, times[place], slots[place])
    firsts = []
    for step in steps:
        firsts.append((time_at(line, 0), slot_at(line, 0)))
        line = put_back(line, time_at(line, 0) + step)
    return firsts, [(time_at(line, place), slot_at(line, place)) for place in range(len(times))]


in_vectors: Callable[..., tuple[Servers, Servers]] = numba.njit(lined_up)


def sorted_list(times: Any, slots: Any, steps: Any) -> tuple[Servers, Servers]:
    """The same; `sort` leaves equal times in their order."""
    line = list(zip(times, slots, strict=True))
    firsts = []
    for step in steps:
        time, slot = line.pop(0)
        firsts.append((time, slot))
        line.append((time + step, slot))
        line.sort(key=lambda server: server[0])
    return firsts, line


@pytest.mark.parametrize("servers", range(1, PLACES + 1))
@pytest.mark.parametrize("equal_times", [False, True])
def test_the_first_server_goes_back_to_the_place_of_its_new_time(
    servers: int, equal_times: bool
) -> None:
    rng = np.random.default_rng(servers)
    times, steps = np.sort(5 * rng.random(servers)), rng.exponential(3.0, 500)
    if equal_times:
        times, steps = np.floor(times), np.floor(steps)
    slots = rng.permutation(40)[:servers]
    expected = sorted_list(times, slots, steps)
    assert lined_up(times, slots, steps) == expected
    assert in_vectors(times, slots, steps) == expected


def last_places() -> tuple[float, float]:
    line = put_back(with_server(empty_line(), 0, 1.0, 3), 2.0)
    return time_at(line, 1), time_at(line, PLACES - 1)


def test_unused_places_are_free_at_infinity() -> None:
    compiled: Any = numba.njit(last_places)
    assert compiled() == last_places() == (math.inf, math.inf)
