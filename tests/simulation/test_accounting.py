"""What is counted of items that leave, against plain code that takes one item after the other."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest

from tests.simulation.helpers import chain
from tidegate.simulation import CloudSettings
from tidegate.simulation.kernels import accounting, staged
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.random import uniform
from tidegate.simulation.kernels.sketch import bucket_of
from tidegate.simulation.kernels.state import Network, build_network

_counted: Callable[..., None] = numba.njit(
    lambda net, count, out: accounting.count_departures(net, 0, count, out[0], out[1], out[2])
)
_sent: Callable[..., None] = numba.njit(lambda net, count: staged._send(net, 0, count))
_finished: Callable[..., None] = numba.njit(
    lambda net, count: accounting.finish_roots(net, count, net.out_root, at.ONE)
)


def count_one(net: Network, left_s: float, arrived_s: float, started_s: float) -> float:
    """Count an item that leaves the first operator; returns how long it was there."""
    tally, slo_s = net.tally[0], net.ops_f[0, at.SLO_S]
    duration = left_s - (math.floor(arrived_s) if net.whole[at.QUANTISE] else arrived_s)
    tally[at.PROCESSED] += 1
    net.sketch[0, bucket_of(duration)] += 1
    for column, times in ((at.LATE_1, 1), (at.LATE_2, 2), (at.LATE_5, 5)):
        tally[column] += duration > times * slo_s
    if duration > 5 * slo_s:
        tally[at.LAST_LATE_S] = left_s
        if tally[at.LATE_SINCE_S] < 0:
            tally[at.LATE_SINCE_S] = left_s
    elif duration <= slo_s and tally[at.LATE_SINCE_S] >= 0:
        tally[at.ADAPTED] += 1
        tally[at.ADAPT_S] += left_s - tally[at.LAST_LATE_S]
        tally[at.EPISODE_S] += left_s - tally[at.LATE_SINCE_S]
        tally[at.LATE_SINCE_S] = -1.0
    if tally[at.PROCESSED] % net.whole[at.SAMPLE_EVERY] == 0:
        net.recent[0, int(tally[at.SAMPLES]) % at.RECENT] = duration
        tally[at.SAMPLES] += 1
        tally[at.SERVICE_S] += left_s - started_s
        tally[at.SERVICE_SQUARE] += (left_s - started_s) ** 2
    return duration


@pytest.mark.parametrize("slo_s", [None, 0.3])
@pytest.mark.parametrize("every", [1, 7, 10])
@pytest.mark.parametrize("quantised", [False, True])
def test_departures_are_counted_like_one_after_the_other(
    slo_s: float | None, every: int, quantised: bool
) -> None:
    settings = CloudSettings(sample_every=every, quantise_timestamps=quantised)
    net = build_network(chain(0.1, slo_s=slo_s), settings, 1)
    plain, rng, now = copy.deepcopy(net), np.random.default_rng(every), 0.0
    for size in (0, 1, 3, 200, 0, 57, 400):
        left = now + np.cumsum(rng.exponential(0.1, size))
        # Stretches of short and of long times, so that operators fall behind and adapt.
        took = rng.exponential(np.where(np.arange(size) // 40 % 2, 2.0, 0.1))
        if size == 57:
            took[:] = 0.05  # the last ones before were too late, and none of these is
        took[199:200] = 3.0
        out = np.array([left, left - took, left - took / 3])
        net.out_f[:, :size] = out
        total = 0.0
        for item in out.T:
            total += count_one(plain, *item)
        plain.tally[0, at.DURATION_S] += total
        _counted(net, size, net.out_f)
        for name in ("tally", "sketch", "recent"):
            np.testing.assert_array_equal(getattr(net, name), getattr(plain, name), err_msg=name)
        now = left[-1] if size else now
    tally = net.tally[0]
    assert tally[at.SAMPLES] > 50 and (slo_s is None or tally[at.ADAPTED] > 2)


def leaving(part: float, rng: np.random.Generator) -> Network:
    """A network of two operators whose first sends a part of its items on; 300 of them leave it."""
    topology = chain(0.1, 0.1)
    first, second = topology.edges
    topology = replace(topology, edges=(first, replace(second, ratio=part)))
    net = build_network(topology, CloudSettings(), 1)
    net.out_f[at.OUT_LEFT_S, :300] = np.sort(rng.random(300))
    net.out_root[:300] = rng.integers(0, 200, 300)  # some have several items here
    roots, here = np.unique(net.out_root[:300], return_counts=True)
    net.root_n[roots, at.LIVE] = here + rng.integers(0, 2, len(roots))  # or elsewhere
    net.root_n[:, at.SPOILED] = rng.random(len(net.root_n)) < 0.1
    net.root_s[:, at.BIRTH] = net.root_s[:, at.LAST] = -rng.random(len(net.root_s))
    net.root_free[-1] -= 200
    return net


@pytest.mark.parametrize("part", [0.05, 0.4, 0.95])
def test_an_item_is_sent_by_chance_or_ends(part: float) -> None:
    net = leaving(part, np.random.default_rng(int(100 * part)))
    plain: Any = copy.deepcopy(net)
    stream, waiting, ended = len(net.ops_i), 0, 0
    assert net.edge_part[0] == part
    for i in range(300):
        time, root = plain.out_f[at.OUT_LEFT_S, i], plain.out_root[i]
        share, plain.rng[stream] = uniform(plain.rng[stream])
        if share < part:
            plain.buffer_time[1, waiting], plain.buffer_root[1, waiting] = time, root
            waiting += 1
        else:
            plain.out_f[at.OUT_LEFT_S, ended], plain.out_root[ended] = time, root
            ended += 1
    plain.ends[1, at.TAIL] = waiting
    _finished(plain, ended)
    _sent(net, 300)
    for name in ("ends", "rng", "root_n", "root_s", "root_free", "whole", "sketch"):
        np.testing.assert_array_equal(getattr(net, name), getattr(plain, name), err_msg=name)
    for name in ("buffer_time", "buffer_root"):
        mine, others = getattr(net, name), getattr(plain, name)
        np.testing.assert_array_equal(mine[1, :waiting], others[1, :waiting], err_msg=name)
    assert 0 < waiting < 300
