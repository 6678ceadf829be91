"""The kernel for graphs with loops: event by event, in order of time.

Slower than the staged kernel by a factor of three to ten, and exact for any graph. A heap holds
each server once, by the time when it becomes free; equal times are ordered by server, so that a
seed always gives the same run.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from tidegate.simulation.books import (
    book_duration,
    draw_service,
    end_interval,
    finish_root,
    set_slow_down,
)
from tidegate.simulation.lots import uniform
from tidegate.simulation.state import (
    ARRIVED,
    DROPPED,
    GAP_S,
    GAP_SQUARE,
    GAPS,
    IN,
    KNOB_E2E_SLO_S,
    KNOB_QUANTISE,
    KNOB_SAMPLE_EVERY,
    LAST_ARRIVAL_S,
    LEAVING,
    NEXT_CONTENTION,
    NEXT_MONITOR,
    NO_SERVER,
    NOW,
    SHED,
    Floats,
    Ints,
    Network,
)

__all__ = ["run_events"]


@numba.njit(cache=True)
def run_events(
    net: Network,
    times: Floats,
    position: Ints,
    until: Ints,
    end_s: float,
    shed_fraction: float,
    rows: Floats,
    before: Floats,
) -> tuple[int, int, int]:
    """Simulate from the network's clock to `end_s`; the arguments are those of `run_staged`."""
    operators, slots = net.slot_free.shape
    heap_time = np.empty(operators * slots + 1)
    heap_code = np.empty(operators * slots + 1, np.int64)
    size = 0
    # Servers that are free and wait for work, longest idle first, as a ring an operator.
    idle = np.zeros((operators, slots), np.int64)
    idle_head = np.zeros(operators, np.int64)
    idle_count = np.zeros(operators, np.int64)
    for o in range(operators):
        for slot in range(slots):
            if net.slot_alive[o, slot] != NO_SERVER:
                size = _push(heap_time, heap_code, size, net.slot_free[o, slot], o * slots + slot)
    fan_out = _fan_out(net)
    filled = 0
    while net.clock[NOW] < end_s:
        stop = min(end_s, net.clock[NEXT_MONITOR], net.clock[NEXT_CONTENTION])
        while True:
            came, source = np.inf, -1
            for s in range(len(position)):
                if position[s] < until[s] and times[position[s]] < came:
                    came, source = times[position[s]], s
            departs = heap_time[0] if size > 0 else np.inf
            # A server that has been idle for long is in the heap with a time gone by.
            now = max(min(came, departs), net.clock[NOW])
            if now >= stop:
                break
            room = _room(net, fan_out)
            if room > 0 or net.root_count[0] == 0:
                return filled, room, 0 if room > 0 else 2 * len(net.root_birth)
            net.clock[NOW] = now
            if came <= departs:
                position[source] += 1
                root = _enter(net, now, shed_fraction)
                if root >= 0:
                    size = _send(
                        net, operators + source, root, now, 0,
                        heap_time, heap_code, size, idle, idle_head, idle_count,
                    )
                continue
            code = heap_code[0]
            size = _pop(heap_time, heap_code, size)
            o, slot = code // slots, code % slots
            root = net.slot_root[o, slot]
            if root >= 0:
                _leave(net, o, slot, now)
                if net.slot_alive[o, slot] == LEAVING:
                    net.slot_alive[o, slot] = NO_SERVER
            if net.slot_alive[o, slot] != NO_SERVER:
                head = net.lane_head[o]
                if head < net.lane_tail[o]:
                    net.lane_head[o] = head + 1
                    came, waiting = net.lane_time[o, head], net.lane_root[o, head]
                    ends = _begin(net, o, slot, waiting, came, now)
                    size = _push(heap_time, heap_code, size, ends, code)
                else:
                    idle[o, (idle_head[o] + idle_count[o]) % slots] = slot
                    idle_count[o] += 1
            if root >= 0:
                size = _send(
                    net, o, root, now, -1,
                    heap_time, heap_code, size, idle, idle_head, idle_count,
                )
        net.clock[NOW] = stop
        if stop >= net.clock[NEXT_CONTENTION]:
            set_slow_down(net, stop)
        if stop >= net.clock[NEXT_MONITOR]:
            end_interval(net, stop, rows[filled], before)
            filled += 1
    return filled, 0, 0


@numba.njit(cache=True)
def _fan_out(net: Network) -> int:
    """The most items that one event can send to one queue."""
    most = 1
    for origin in range(len(net.edge_start) - 1):
        copies = 0
        for e in range(net.edge_start[origin], net.edge_start[origin + 1]):
            copies += net.edge_whole[e] + 1
        most = max(most, copies)
    return most


@numba.njit(cache=True)
def _room(net: Network, fan_out: int) -> int:
    """Zero when each queue can take what one event sends, else the room that is needed."""
    room = net.lane_time.shape[1]
    for o in range(len(net.kind)):
        if net.lane_tail[o] + fan_out > room:
            head, tail = net.lane_head[o], net.lane_tail[o]
            # Moving pays only when it frees a good part; otherwise it would be done each time.
            if tail - head + fan_out > room // 2:
                return 2 * room
            for i in range(head, tail):
                net.lane_time[o, i - head] = net.lane_time[o, i]
                net.lane_root[o, i - head] = net.lane_root[o, i]
            net.lane_head[o], net.lane_tail[o] = 0, tail - head
    return 0


@numba.njit(cache=True)
def _enter(net: Network, now: float, shed_fraction: float) -> int:
    """A source item comes in: its root, or -1 when it is shed."""
    net.total[IN] += 1.0
    if shed_fraction > 0.0 and uniform(net.lots, len(net.lots) - 1) < shed_fraction:
        net.total[SHED] += 1.0
        return -1
    net.root_count[0] -= 1
    root = net.root_free[net.root_count[0]]
    net.root_birth[root] = net.root_last[root] = now
    net.root_spoilt[root] = 0
    net.root_live[root] = 0
    return int(root)


@numba.njit(cache=True)
def _leave(net: Network, o: int, slot: int, now: float) -> None:
    """An item has been served; its copies are sent afterwards."""
    root = net.slot_root[o, slot]
    net.slot_root[o, slot] = -1
    net.slot_done[o, slot] += 1
    sent = net.slot_arrived[o, slot]
    if net.knobs[KNOB_QUANTISE] > 0.0:
        sent = math.floor(sent)
    book_duration(
        net.tally[o],
        net.recent[o],
        net.sketch[o],
        net.slo_s[o],
        net.knobs[KNOB_SAMPLE_EVERY],
        sent,
        now,
        now - net.slot_started[o, slot],
    )
    net.root_last[root] = max(net.root_last[root], now)


@numba.njit(cache=True)
def _begin(net: Network, o: int, slot: int, root: int, came: float, now: float) -> float:
    """A server takes an item; returns when it will be done."""
    samples = net.samples[net.sample_start[o] : net.sample_start[o + 1]]
    service = draw_service(
        net.kind[o], net.mean_s[o], net.log_mean[o], net.log_sigma[o], samples, net.lots, o
    )
    service *= net.host_slow[net.slot_host[o, slot]]
    net.slot_root[o, slot] = root
    net.slot_arrived[o, slot] = came
    net.slot_started[o, slot] = now
    net.slot_free[o, slot] = now + service
    net.slot_busy[o, slot] += service
    return float(now + service)


@numba.njit(cache=True)
def _send(
    net: Network,
    origin: int,
    root: int,
    now: float,
    change: int,
    heap_time: Floats,
    heap_code: Ints,
    size: int,
    idle: Ints,
    idle_head: Ints,
    idle_count: Ints,
) -> int:
    """Send the copies of an item over its edges; returns the size of the heap."""
    slots = net.slot_free.shape[1]
    route = len(net.kind) + origin
    # Counted in before any is served or dropped, so that the root cannot finish too early.
    net.root_live[root] += change + 1
    for e in range(net.edge_start[origin], net.edge_start[origin + 1]):
        copies = net.edge_whole[e]
        if net.edge_part[e] > 0.0 and uniform(net.lots, route) < net.edge_part[e]:
            copies += 1
        o = net.edge_target[e]
        for _ in range(copies):
            net.tally[o, ARRIVED] += 1.0
            gap = now - net.tally[o, LAST_ARRIVAL_S]
            net.tally[o, LAST_ARRIVAL_S] = now
            net.tally[o, GAPS] += 1.0
            net.tally[o, GAP_S] += gap
            net.tally[o, GAP_SQUARE] += gap * gap
            if idle_count[o] > 0:
                slot = idle[o, idle_head[o]]
                idle_head[o] = (idle_head[o] + 1) % slots
                idle_count[o] -= 1
                ends = _begin(net, o, slot, root, now, now)
                size = _push(heap_time, heap_code, size, ends, o * slots + slot)
            elif 0 < net.queue_limit[o] <= net.lane_tail[o] - net.lane_head[o]:
                net.tally[o, DROPPED] += 1.0
                net.root_spoilt[root] = 1
                continue
            else:
                net.lane_time[o, net.lane_tail[o]] = now
                net.lane_root[o, net.lane_tail[o]] = root
                net.lane_tail[o] += 1
            net.root_live[root] += 1
    net.root_live[root] -= 1
    if net.root_live[root] == 0:
        finish_root(
            root,
            net.root_birth,
            net.root_last,
            net.root_spoilt,
            net.root_free,
            net.root_count,
            net.total,
            net.sketch[len(net.kind) + 1],
            net.knobs[KNOB_E2E_SLO_S],
        )
    return size


@numba.njit(cache=True)
def _push(heap_time: Floats, heap_code: Ints, size: int, time: float, code: int) -> int:
    place = size
    while place > 0:
        above = (place - 1) >> 1
        later = heap_time[above] > time
        if not later and not (heap_time[above] == time and heap_code[above] > code):
            break
        heap_time[place], heap_code[place] = heap_time[above], heap_code[above]
        place = above
    heap_time[place], heap_code[place] = time, code
    return size + 1


@numba.njit(cache=True)
def _pop(heap_time: Floats, heap_code: Ints, size: int) -> int:
    size -= 1
    time, code = heap_time[size], heap_code[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        other = below + 1
        if other < size and (
            heap_time[other] < heap_time[below]
            or (heap_time[other] == heap_time[below] and heap_code[other] < heap_code[below])
        ):
            below = other
        if heap_time[below] > time or (heap_time[below] == time and heap_code[below] >= code):
            break
        heap_time[place], heap_code[place] = heap_time[below], heap_code[below]
        place = below
    heap_time[place], heap_code[place] = time, code
    return size
