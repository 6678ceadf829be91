"""The kernel for graphs with loops: event by event, in order of time.

It is slower than the staged kernel, and exact for any graph. The busy servers of an operator are
sorted by the time when they will be free, so the next event is the earliest among the first servers
of all operators and the next arrival. Equal times are ordered by source, then operator, then slot,
so a seed always gives the same run.
"""

from __future__ import annotations

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import (
    count_departures,
    end_interval,
    finish_roots,
    line_up,
    service_time,
    set_slow_down,
)
from tidegate.simulation.kernels.random import uniform
from tidegate.simulation.kernels.state import Floats, Ints, Network
from tidegate.theory.compiled import compiled

__all__ = ["run_events"]


@compiled(error_model="numpy")
def run_events(
    net: Network,
    times: Floats,
    position: Ints,
    until: Ints,
    end_s: float,
    shed_fraction: float,
    rows: Floats,
) -> tuple[int, int, int]:
    """Simulate from the network's clock to `end_s`; the parameters are those of `run_staged`."""
    edge_start, edges, edge_part, ops_i, ends = (
        net.edge_start, net.edges, net.edge_part, net.ops_i, net.ends,
    )  # fmt: skip
    buffer_time, buffer_root, slot_f, slot_i = (
        net.buffer_time, net.buffer_root, net.slot_f, net.slot_i,
    )  # fmt: skip
    line_time, line_slot, rng, tally, whole = (
        net.line_time, net.line_slot, net.rng, net.tally, net.whole,
    )  # fmt: skip
    root_s, root_n, root_free = net.root_s, net.root_n, net.root_free
    operators, slots = len(ops_i), slot_f.shape[2]
    sources, mask = len(position), slots - 1
    # Departures are counted in bulk; idle servers wait in a ring, longest idle first.
    left = np.zeros(operators, np.int64)
    out = np.empty((operators, 3, at.CHUNK))
    ended, ended_root = 0, np.empty(2 * at.CHUNK, np.int64)
    idle = np.zeros((operators, slots), np.int64)
    idle_first, idle_count = np.zeros(operators, np.int64), np.zeros(operators, np.int64)
    first, count = np.zeros(operators, np.int64), np.zeros(operators, np.int64)
    next_s = np.full(operators, np.inf)
    copies_max = 1
    for origin in range(operators + sources):
        copies = 0
        for e in range(edge_start[origin], edge_start[origin + 1]):
            copies += edges[e, at.WHOLE] + 1
        copies_max = max(copies_max, copies)
    for o in range(operators):
        line_up(net, o)
        nobody_waits = ends[o, at.HEAD] == ends[o, at.TAIL]
        for place in range(ops_i[o, at.LINE_COUNT]):
            slot, free = line_slot[o, place], line_time[o, place]
            if nobody_waits and slot_i[o, at.ROOT, slot] < 0 and free <= whole[at.NOW]:
                idle[o, idle_count[o]] = slot
                idle_count[o] += 1
            else:
                line_slot[o, count[o]] = slot
                line_time[o, count[o]] = max(free, whole[at.NOW])
                count[o] += 1
        if count[o] > 0:
            next_s[o] = line_time[o, 0]

    filled, room_needed, roots_needed = 0, 0, 0
    budget = 0  # events that are sure to find room
    while whole[at.NOW] < end_s and room_needed == 0 and roots_needed == 0:
        stop = min(end_s, whole[at.NEXT_MONITOR], whole[at.NEXT_CONTENTION])
        while True:
            now, best = stop, -1
            for s in range(sources):
                if position[s] < until[s] and times[position[s]] < now:
                    now, best = times[position[s]], operators + s
            for o in range(operators):
                if next_s[o] < now:
                    now, best = next_s[o], o
            if best < 0:
                break
            if budget == 0:
                finish_roots(net, ended, ended_root, at.NONE)
                ended = 0
                budget = min(at.CHUNK, root_free[len(root_free) - 1])
                if budget == 0:
                    roots_needed = 2 * len(root_s)
                    break
                room = _room(net, copies_max)
                if room == 0:
                    room_needed = 2 * buffer_time.shape[1]
                    budget = 0
                    break
                budget = min(budget, room)
            budget -= 1
            root = -1
            if best >= operators:
                source = best - operators
                position[source] += 1
                whole[at.IN] += 1.0
                if shed_fraction > 0.0:
                    which = len(rng) - sources + source
                    share, rng[which] = uniform(rng[which])
                    if share < shed_fraction:
                        whole[at.SHED] += 1.0
                        continue
                free = root_free[len(root_free) - 1] - 1
                root_free[len(root_free) - 1] = free
                root = root_free[free]
                root_s[root, at.BIRTH] = now
                root_n[root, at.SPOILED], root_n[root, at.LIVE] = 0, 1
            else:
                o = best
                slot = line_slot[o, first[o] & mask]
                first[o] += 1
                count[o] -= 1
                root = slot_i[o, at.ROOT, slot]
                if root >= 0:
                    out[o, 0, left[o]] = now
                    out[o, 1, left[o]] = slot_f[o, at.ARRIVED_S, slot]
                    out[o, 2, left[o]] = slot_f[o, at.STARTED_S, slot]
                    left[o] += 1
                    if left[o] == at.CHUNK:
                        count_departures(net, o, at.CHUNK, out[o, 0], out[o, 1], out[o, 2])
                        left[o] = 0
                    slot_i[o, at.ROOT, slot] = -1
                    slot_i[o, at.DONE, slot] += 1
                    if slot_i[o, at.ALIVE, slot] == at.LEAVING:
                        slot_i[o, at.ALIVE, slot] = at.NO_SERVER
                if slot_i[o, at.ALIVE, slot] != at.NO_SERVER:
                    idle[o, (idle_first[o] + idle_count[o]) & mask] = slot
                    idle_count[o] += 1
            if root >= 0:
                root_s[root, at.LAST] = now
                root_n[root, at.LIVE] -= 1
                for e in range(edge_start[best], edge_start[best + 1]):
                    copies = edges[e, at.WHOLE]
                    if edge_part[e] > 0.0:
                        share, rng[operators + e] = uniform(rng[operators + e])
                        if share < edge_part[e]:
                            copies += 1
                    o = edges[e, at.TARGET]
                    for _ in range(copies):
                        gap = now - tally[o, at.LAST_ARRIVAL_S]
                        tally[o, at.LAST_ARRIVAL_S] = now
                        tally[o, at.ARRIVED] += 1.0
                        tally[o, at.GAPS] += 1.0
                        tally[o, at.GAP_S] += gap
                        tally[o, at.GAP_SQUARE] += gap * gap
                        waiting = ends[o, at.TAIL] - ends[o, at.HEAD]
                        if 0 < ops_i[o, at.LIMIT] <= waiting and idle_count[o] == 0:
                            tally[o, at.DROPPED] += 1.0
                            root_n[root, at.SPOILED] = 1
                            continue
                        root_n[root, at.LIVE] += 1
                        buffer_time[o, ends[o, at.TAIL]] = now
                        buffer_root[o, ends[o, at.TAIL]] = root
                        ends[o, at.TAIL] += 1
                        if idle_count[o] > 0 and waiting == 0:
                            _begin(net, o, now, idle, idle_first, idle_count, first, count, next_s)
                if root_n[root, at.LIVE] == 0:
                    ended_root[ended] = root
                    ended += 1
            if best < operators:
                next_s[best] = line_time[best, first[best] & mask] if count[best] > 0 else np.inf
                if idle_count[best] > 0 and ends[best, at.HEAD] < ends[best, at.TAIL]:
                    _begin(net, best, now, idle, idle_first, idle_count, first, count, next_s)
        for o in range(operators):
            count_departures(net, o, left[o], out[o, 0], out[o, 1], out[o, 2])
            left[o] = 0
        finish_roots(net, ended, ended_root, at.NONE)
        ended = 0
        whole[at.NOW] = now
        if room_needed == 0 and roots_needed == 0:
            if stop >= whole[at.NEXT_CONTENTION]:
                set_slow_down(net, stop)
            if stop >= whole[at.NEXT_MONITOR]:
                end_interval(net, stop, rows[filled])
                filled += 1
    return filled, room_needed, roots_needed


@compiled(inside=True)
def _room(net: Network, copies_max: int) -> int:
    """Number of events with sure room in each queue; moves queues to the start of their buffers."""
    buffer_time, buffer_root, ends = net.buffer_time, net.buffer_root, net.ends
    room = buffer_time.shape[1]
    events = room
    for o in range(len(net.ops_i)):
        head, tail = ends[o, at.HEAD], ends[o, at.TAIL]
        if head > 0 and tail > room // 2:
            for i in range(head, tail):
                buffer_time[o, i - head] = buffer_time[o, i]
                buffer_root[o, i - head] = buffer_root[o, i]
            ends[o, at.HEAD], ends[o, at.TAIL] = 0, tail - head
        events = min(events, (room - ends[o, at.TAIL]) // copies_max)
    # Room for only a few events would mean moving the queues each time.
    return events if events * copies_max * 4 > room else 0


@compiled(inside=True, error_model="numpy")
def _begin(
    net: Network,
    o: int,
    now: float,
    idle: Ints,
    idle_first: Ints,
    idle_count: Ints,
    first: Ints,
    count: Ints,
    next_s: Floats,
) -> None:
    """Let the server that has been idle longest take the first item in the queue.

    The arrays are local variables of `run_events`.
    """
    ops_f, ops_i, ends, slot_f, slot_i = net.ops_f, net.ops_i, net.ends, net.slot_f, net.slot_i
    line_time, line_slot, mask = net.line_time, net.line_slot, net.line_time.shape[1] - 1
    slot = idle[o, idle_first[o] & mask]
    idle_first[o] += 1
    idle_count[o] -= 1
    head = ends[o, at.HEAD]
    ends[o, at.HEAD] = head + 1
    kind, state = ops_i[o, at.KIND], net.rng[o]
    first_sample = ops_i[o, at.SAMPLE_FROM]
    takes, state = service_time(
        kind, ops_f[o, at.MEAN_S], ops_f[o, at.LOG_MEAN], ops_f[o, at.LOG_SIGMA], net.samples,
        first_sample, ops_i[o, at.SAMPLE_TO] - first_sample, state,
    )  # fmt: skip
    net.rng[o] = state
    takes *= slot_f[o, at.PACE, slot]
    ready = now + takes
    slot_i[o, at.ROOT, slot] = net.buffer_root[o, head]
    ops_i[o, at.TAKEN] += 1
    slot_i[o, at.TURN, slot] = ops_i[o, at.TAKEN]
    slot_f[o, at.ARRIVED_S, slot] = net.buffer_time[o, head]
    slot_f[o, at.STARTED_S, slot] = now
    slot_f[o, at.FREE_S, slot] = ready
    slot_f[o, at.BUSY_S, slot] += takes
    place = first[o] + count[o]
    count[o] += 1
    while place > first[o] and line_time[o, (place - 1) & mask] > ready:
        line_time[o, place & mask] = line_time[o, (place - 1) & mask]
        line_slot[o, place & mask] = line_slot[o, (place - 1) & mask]
        place -= 1
    line_time[o, place & mask] = ready
    line_slot[o, place & mask] = slot
    next_s[o] = line_time[o, first[o] & mask]
