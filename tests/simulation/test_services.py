"""The quick ways to serve, against the plain one: every array of the network, bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from tests.simulation.helpers import chain
from tidegate.simulation import CloudSettings, ServiceTime
from tidegate.simulation.kernels import services
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import line_up
from tidegate.simulation.kernels.line import PLACES
from tidegate.simulation.kernels.state import AHEAD, Network, build_network, grown, with_more_slots

KINDS = {
    "exponential": ServiceTime("exponential", 0.5),
    "deterministic": ServiceTime("deterministic", 0.5, 0.0),
    "lognormal": ServiceTime("lognormal", 0.5, 2.0),
    "empirical": ServiceTime.of_samples((0.0, 0.25, 0.5, 1.25)),
}
SLOTS = 32
OUT = [at.OUT_LEFT_S, at.OUT_ARRIVED_S, at.OUT_STARTED_S]

_lines_up = numba.njit(lambda net: line_up(net, 0))
_served: Callable[..., int] = numba.njit(lambda net, stop: services.serve(net, 0, stop))
_plainly: Callable[..., int] = numba.njit(lambda net, stop: services._serve_rest(net, 0, stop, 0))
_alike: Callable[..., bool] = numba.njit(lambda net: services._alike(net, 0))
_draw: Any = numba.njit(lambda net, state, count: services._draw(net, 0, state, count))


def station(kind: str, servers: int, seed: int = 1) -> Network:
    """One operator with idle servers."""
    settings = CloudSettings(service={"a": KINDS[kind]})
    net = grown(build_network(chain(0.5), settings, seed), 50_000, 0)
    while net.slot_f.shape[2] < SLOTS:
        net = with_more_slots(net)
    net.slot_f[0, at.PACE] = 1.0
    net.slot_i[0, at.ROOT] = -1
    net.slot_i[0, at.ALIVE, :servers] = at.SERVING
    return net


def arrive(net: Network, times: Any) -> None:
    """Items join the queue."""
    head, tail = net.ends[0]
    waiting = tail - head
    for array in (net.buffer_time, net.buffer_root):
        array[0, :waiting] = array[0, head:tail].copy()
    net.buffer_time[0, waiting : waiting + len(times)] = times
    net.buffer_root[0, waiting : waiting + len(times)] = np.arange(len(times)) + 1
    net.ends[0] = 0, waiting + len(times)


def change(net: Network, rng: np.random.Generator, now: float) -> None:
    """Servers start, leave, fail or slow down, as they do between two runs."""
    slot = int(rng.integers(SLOTS))
    mine_f, mine_i = net.slot_f[0, :, slot], net.slot_i[0, :, slot]
    what = rng.integers(5)
    if what == 0 and mine_i[at.ALIVE] == at.NO_SERVER:
        mine_f[:] = 0.0
        mine_i[:] = 0
        mine_f[at.FREE_S], mine_f[at.PACE] = now + rng.integers(3), 1.0
        mine_i[at.ROOT], mine_i[at.ALIVE] = -1, at.SERVING
    elif what == 1 and mine_i[at.ALIVE] == at.SERVING:
        mine_i[at.ALIVE] = at.LEAVING if mine_i[at.ROOT] >= 0 else at.NO_SERVER
    elif what == 2 and (net.slot_i[0, at.ALIVE] == at.SERVING).sum() > 1:
        mine_i[at.ALIVE], mine_i[at.ROOT] = at.NO_SERVER, -1
    elif what == 3:
        net.slot_f[0, at.PACE] = rng.choice([1.0, 1.7])  # all of them
    elif what == 4:
        net.slot_f[0, at.PACE, slot] = 2.5


def assert_equal(quick: Network, plain: Network, left: int) -> None:
    """All that outlives a window, and the items that left."""
    for name in ("ends", "rng", "slot_f", "slot_i", "ops_i", "tally", "root_n", "root_free"):
        mine, others = getattr(quick, name), getattr(plain, name)
        if name == "ops_i":  # where the line begins in its ring is not part of the result
            mine, others = np.delete(mine, at.LINE_FIRST, 1), np.delete(others, at.LINE_FIRST, 1)
        np.testing.assert_array_equal(mine, others, err_msg=name)
    np.testing.assert_array_equal(line_of(quick), line_of(plain))
    np.testing.assert_array_equal(quick.out_f[OUT, :left], plain.out_f[OUT, :left])
    np.testing.assert_array_equal(quick.out_root[:left], plain.out_root[:left])


def line_of(net: Network) -> list[tuple[float, int]]:
    first, count = net.ops_i[0, [at.LINE_FIRST, at.LINE_COUNT]]
    places = (first + np.arange(count)) % SLOTS
    return list(zip(net.line_time[0, places], net.line_slot[0, places], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("servers", [1, 2, 3, 7, PLACES - 1, PLACES, PLACES + 1])
@pytest.mark.parametrize("load", [0.3, 0.95, 1.3])
@pytest.mark.parametrize("changing", [False, True])
def test_the_quick_ways_change_no_bit(kind: str, servers: int, load: float, changing: bool) -> None:
    rng = np.random.default_rng(servers)
    net = station(kind, servers)
    now, quick_windows = 0.0, 0
    for _ in range(25):
        stop = now + float(rng.choice([0.25, 3.0, 2 * AHEAD / servers]))
        times = rng.uniform(now, stop, rng.poisson(load * servers / 0.5 * (stop - now)))
        # Some items come together, and some when a server is just free.
        times[::3] = np.maximum(now, np.floor(4 * times[::3]) / 4)
        arrive(net, np.sort(times))
        if changing:
            change(net, rng, now)
        _lines_up(net)
        plain = copy.deepcopy(net)
        quick_windows += _alike(net)
        left = _served(net, stop)
        assert left == _plainly(plain, stop)
        assert_equal(net, plain, left)
        now = stop
    assert changing or (quick_windows > 10) == (servers <= PLACES)


def test_what_is_special_takes_the_plain_way() -> None:
    def ready(servers: int = 3) -> Network:
        net = station("exponential", servers)
        arrive(net, [0.0, 0.1])
        return net

    def goes(net: Network) -> bool:
        _lines_up(net)
        return bool(_alike(net))

    assert goes(ready()) and goes(ready(1)) and goes(ready(PLACES))
    assert not goes(ready(PLACES + 1)) and not goes(ready(0))
    slower, leaving, finite, empty = ready(), ready(), ready(), ready()
    slower.slot_f[0, at.PACE, 1] = 1.5
    leaving.slot_i[0, at.ALIVE, 2] = at.LEAVING
    finite.ops_i[0, at.LIMIT] = 4
    empty.ends[0] = 0
    assert not any(map(goes, (slower, leaving, finite, empty)))
    same = ready()
    same.slot_f[0, at.PACE] = 1.5
    assert goes(same)


def test_few_service_times_are_drawn_if_few_services_begin() -> None:
    """Those of a long queue would take longer than the services."""
    net = station("exponential", 2)
    arrive(net, np.zeros(AHEAD))
    net.takes[:] = -1.0
    _lines_up(net)
    _served(net, 1.0)
    assert 2 <= (net.takes >= 0.0).sum() <= 10


@pytest.mark.parametrize("kind", KINDS)
def test_service_times_that_are_too_many_are_taken_back(kind: str) -> None:
    net = station(kind, 1)
    begin = net.rng[0]
    _draw(net, begin, 10)
    after_ten, times = net.rng[0], net.takes[:10].copy()
    _draw(net, begin, 4)
    rest = net.rng[0]
    _draw(net, rest, 6)
    assert net.rng[0] == after_ten
    np.testing.assert_array_equal(net.takes[:6], times[4:])
