"""Lanes: how items come in from the sources, go on over the edges and meet in a queue.

A part of the staged kernel; see there, and `tidegate.simulation.kernels.state` for the words.
"""

from __future__ import annotations

import numba
import numpy as np

from tidegate.simulation.kernels.random import uniform
from tidegate.simulation.kernels.state import (
    ADMITTED,
    BIRTH,
    CHUNK,
    HEAD,
    IN,
    IN_FROM,
    IN_TO,
    LANE,
    LAST,
    LINE_COUNT,
    LIVE,
    SEEN,
    SHED,
    SPOILED,
    TAIL,
    TARGET,
    WHOLE,
    Floats,
    Ints,
    Words,
)

__all__ = ["admit", "cut", "merge", "needs", "send"]


@numba.njit(cache=True)
def cut(times: Floats, position: Ints, until: Ints, stop: float) -> float:
    """An earlier end of the window when many items come, so that it fits the cache."""
    for source in range(len(position)):
        if until[source] - position[source] > CHUNK:
            first, later = times[position[source]], times[position[source] + CHUNK]
            if first < later < stop:
                stop = later
    return stop


@numba.njit(cache=True)
def needs(
    times: Floats,
    position: Ints,
    until: Ints,
    stop: float,
    order: Ints,
    edge_start: Ints,
    edges: Ints,
    edge_part: Floats,
    ops_i: Ints,
    ends: Ints,
    lane_time: Floats,
    lane_root: Ints,
) -> tuple[int, int]:
    """The most items that a lane may have to hold in this window, and the roots that come."""
    operators = len(ops_i)
    bound = np.zeros(operators + len(position), np.int64)
    coming = np.zeros(operators, np.int64)
    room = 0
    roots = 0
    for rank in range(len(bound)):  # sources first, then operators downstream
        if rank < len(position):
            origin = operators + rank
            last = until[rank]
            if last > position[rank] and times[last - 1] >= stop:
                last = position[rank] + np.searchsorted(times[position[rank] : last], stop)
            bound[origin] = last - position[rank]
            roots += bound[origin]
        else:
            origin = order[rank - len(position)]
            waiting = ends[origin, TAIL] - ends[origin, HEAD]
            bound[origin] = waiting + ops_i[origin, LINE_COUNT] + coming[origin]
            room = max(room, bound[origin])
        for e in range(edge_start[origin], edge_start[origin + 1]):
            copies = edges[e, WHOLE] + (1 if edge_part[e] > 0.0 else 0)
            coming[edges[e, TARGET]] += bound[origin] * copies
            room = max(room, bound[origin] * copies)
    for o in range(operators):
        head, tail = ends[o, HEAD], ends[o, TAIL]
        if head > 0 and tail + coming[o] > lane_time.shape[1]:
            for i in range(head, tail):
                lane_time[o, i - head] = lane_time[o, i]
                lane_root[o, i - head] = lane_root[o, i]
            ends[o, HEAD], ends[o, TAIL] = 0, tail - head
            ops_i[o, SEEN] -= head
            ops_i[o, ADMITTED] -= head
    return room, roots


@numba.njit(cache=True)
def admit(
    source: int,
    times: Floats,
    position: Ints,
    until: Ints,
    stop: float,
    shed_fraction: float,
    lots: Words,
    out_time: Floats,
    out_root: Ints,
    root_s: Floats,
    root_n: Ints,
    root_free: Ints,
    whole: Floats,
) -> int:
    """Give the items of a source that come before `stop` their roots; returns how many."""
    free = root_free[len(root_free) - 1]
    which = len(lots) - len(position) + source
    state = lots[which]
    i = position[source]
    count = 0
    while i < until[source] and times[i] < stop:
        now = times[i]
        i += 1
        if shed_fraction > 0.0:
            share, state = uniform(state)
            if share < shed_fraction:
                whole[SHED] += 1.0
                continue
        free -= 1
        root = root_free[free]
        root_s[root, BIRTH] = root_s[root, LAST] = now
        root_n[root, SPOILED] = 0
        root_n[root, LIVE] = 1
        out_time[count] = now
        out_root[count] = root
        count += 1
    root_free[len(root_free) - 1] = free
    lots[which] = state
    whole[IN] += i - position[source]
    position[source] = i
    return count


@numba.njit(cache=True)
def send(
    count: int,
    edge_from: int,
    edge_to: int,
    operators: int,
    edges: Ints,
    edge_part: Floats,
    out_time: Floats,
    out_root: Ints,
    lane_time: Floats,
    lane_root: Ints,
    ends: Ints,
    root_n: Ints,
    lots: Words,
) -> bool:
    """Send copies of the items that left over all edges, and count them at their roots.

    Returns whether some of them may have been the last of their roots; then the items themselves
    are still to be taken off. Not so where each sends one on for sure, which takes its place.
    """
    sure = 0
    for e in range(edge_from, edge_to):
        lane, whole_copies, part = edges[e, LANE], edges[e, WHOLE], edge_part[e]
        sure += whole_copies
        end = ends[lane, TAIL]
        if part == 0.0 and whole_copies == 1:
            for i in range(count):
                lane_time[lane, end + i] = out_time[i]
                lane_root[lane, end + i] = out_root[i]
            ends[lane, TAIL] = end + count
            continue
        state = lots[operators + e]
        for i in range(count):
            copies = whole_copies
            if part > 0.0:
                share, state = uniform(state)
                if share < part:
                    copies += 1
                    root_n[out_root[i], LIVE] += 1
            for _ in range(copies):
                lane_time[lane, end] = out_time[i]
                lane_root[lane, end] = out_root[i]
                end += 1
        ends[lane, TAIL] = end
        lots[operators + e] = state
    if sure > 1:
        for i in range(count):
            root_n[out_root[i], LIVE] += sure - 1
    return sure == 0


@numba.njit(cache=True)
def merge(
    o: int, ops_i: Ints, in_lane: Ints, lane_time: Floats, lane_root: Ints, ends: Ints
) -> None:
    """Bring what several edges sent into one queue, in order of time."""
    first, last = ops_i[o, IN_FROM], ops_i[o, IN_TO]
    if first == last:
        return
    tail = ends[o, TAIL]
    while True:
        best, soonest, limit = -1, np.inf, np.inf
        for i in range(first, last):
            lane = in_lane[i]
            if ends[lane, HEAD] < ends[lane, TAIL]:
                time = lane_time[lane, ends[lane, HEAD]]
                if time < soonest:
                    best, soonest, limit = lane, time, soonest
                elif time < limit:
                    limit = time
        if best < 0:
            break
        # The whole run that comes before any other lane's first item.
        head, end = ends[best, HEAD], ends[best, TAIL]
        lane_time[o, tail] = soonest
        lane_root[o, tail] = lane_root[best, head]
        head += 1
        tail += 1
        while head < end and lane_time[best, head] < limit:
            lane_time[o, tail] = lane_time[best, head]
            lane_root[o, tail] = lane_root[best, head]
            head += 1
            tail += 1
        ends[best, HEAD] = head
    for i in range(first, last):
        ends[in_lane[i], HEAD] = ends[in_lane[i], TAIL] = 0
    ends[o, TAIL] = tail
