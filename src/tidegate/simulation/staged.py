"""The kernel for graphs without loops: operator by operator, a window at a time.

Within a window the operators are served upstream first. A station with k servers that takes items
in order of arrival needs no event list: of the times at which its servers become free, the
smallest *is* the next departure, so its departures come out in order and can feed the next
station as they are. Only what begins before the window ends is begun, so servers may come, go or
fail between two windows, and how the time is cut into windows does not change the result.
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
    CHUNK,
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

__all__ = ["run_staged"]


@numba.njit(cache=True)
def run_staged(
    net: Network,
    times: Floats,
    position: Ints,
    until: Ints,
    end_s: float,
    shed_fraction: float,
    rows: Floats,
    before: Floats,
) -> tuple[int, int, int]:
    """Simulate from the network's clock to `end_s`.

    times: arrivals of all sources; position, until: the part of each source that is still to come
    (position moves on). shed_fraction: share of them to drop. rows: filled with the time series;
    before: cumulative counts at the beginning of the current interval.

    Returns (rows filled, room that lanes need, roots needed); the last two are zero when the end
    was reached, otherwise the caller makes room and calls again.
    """
    for o in range(len(net.kind)):
        _line_up(net, o)
    filled = 0
    while net.clock[NOW] < end_s:
        stop = min(end_s, net.clock[NEXT_MONITOR], net.clock[NEXT_CONTENTION])
        stop = _cut(times, position, until, stop)
        room, roots = _needs(net, times, position, until, stop)
        if room > net.lane_time.shape[1] or roots > net.root_count[0]:
            return filled, room, roots + len(net.root_birth) - net.root_count[0]
        for source in range(len(position)):
            _admit(net, source, times, position, until, stop, shed_fraction)
        for o in net.order:
            _merge(net, o)
            _serve(net, o, stop)
        net.clock[NOW] = stop
        if stop >= net.clock[NEXT_CONTENTION]:
            set_slow_down(net, stop)
        if stop >= net.clock[NEXT_MONITOR]:
            end_interval(net, stop, rows[filled], before)
            filled += 1
    return filled, 0, 0


@numba.njit(cache=True)
def _line_up(net: Network, o: int) -> None:
    """Sort the servers of an operator by the time when they are free; ties by slot."""
    times, slots = net.line_time[o], net.line_slot[o]
    count = 0
    for slot in range(len(times)):
        if net.slot_alive[o, slot] == NO_SERVER:
            continue
        free = net.slot_free[o, slot]
        place = count
        while place > 0 and times[place - 1] > free:
            times[place], slots[place] = times[place - 1], slots[place - 1]
            place -= 1
        times[place], slots[place] = free, slot
        count += 1
    net.line_head[o], net.line_count[o] = 0, count


@numba.njit(cache=True)
def _cut(times: Floats, position: Ints, until: Ints, stop: float) -> float:
    """An earlier end of the window when many items come, so that it fits the cache."""
    for source in range(len(position)):
        if until[source] - position[source] > CHUNK:
            first, later = times[position[source]], times[position[source] + CHUNK]
            if first < later < stop:
                stop = later
    return stop


@numba.njit(cache=True)
def _needs(
    net: Network, times: Floats, position: Ints, until: Ints, stop: float
) -> tuple[int, int]:
    """The most items that a lane may have to hold in this window, and the roots that come."""
    operators = len(net.kind)
    bound = np.zeros(operators + len(position), np.int64)
    coming = np.zeros(operators, np.int64)
    roots = 0
    for source in range(len(position)):
        last = until[source]
        if last > position[source] and times[last - 1] >= stop:
            last = position[source] + np.searchsorted(times[position[source] : last], stop)
        bound[operators + source] = last - position[source]
        roots += last - position[source]
    room = 0
    for rank in range(len(bound)):  # sources first, then operators downstream
        if rank < len(position):
            origin = operators + rank
        else:
            origin = net.order[rank - len(position)]
            waiting = net.lane_tail[origin] - net.lane_head[origin]
            bound[origin] = waiting + net.line_count[origin] + coming[origin]
            room = max(room, waiting + coming[origin])
        for e in range(net.edge_start[origin], net.edge_start[origin + 1]):
            copies = net.edge_whole[e] + (1 if net.edge_part[e] > 0.0 else 0)
            coming[net.edge_target[e]] += bound[origin] * copies
            room = max(room, bound[origin] * copies)
    for o in range(operators):
        if net.lane_head[o] > 0 and net.lane_tail[o] + coming[o] > net.lane_time.shape[1]:
            _compact(net, o)
    return room, roots


@numba.njit(cache=True)
def _compact(net: Network, o: int) -> None:
    head, tail = net.lane_head[o], net.lane_tail[o]
    for i in range(head, tail):
        net.lane_time[o, i - head] = net.lane_time[o, i]
        net.lane_root[o, i - head] = net.lane_root[o, i]
    net.lane_head[o] = 0
    net.lane_tail[o] = tail - head
    net.lane_seen[o] -= head
    net.admitted[o] -= head


@numba.njit(cache=True)
def _admit(
    net: Network,
    source: int,
    times: Floats,
    position: Ints,
    until: Ints,
    stop: float,
    shed_fraction: float,
) -> None:
    """Send the items of a source that come before `stop` on their way."""
    origin = len(net.kind) + source
    route = len(net.kind) + origin
    shedding = len(net.lots) - 1
    edge_from, edge_to = net.edge_start[origin], net.edge_start[origin + 1]
    lane_time, lane_root, lane_tail = net.lane_time, net.lane_root, net.lane_tail
    part, whole, lanes = net.edge_part, net.edge_whole, net.edge_lane
    lots, total, root_free = net.lots, net.total, net.root_free
    interval = net.sketch[len(net.kind) + 1]
    i = position[source]
    while i < until[source] and times[i] < stop:
        now = times[i]
        i += 1
        total[IN] += 1.0
        if shed_fraction > 0.0 and uniform(lots, shedding) < shed_fraction:
            total[SHED] += 1.0
            continue
        net.root_count[0] -= 1
        root = root_free[net.root_count[0]]
        net.root_birth[root] = net.root_last[root] = now
        net.root_spoilt[root] = 0
        live = 0
        for e in range(edge_from, edge_to):
            copies = whole[e]
            if part[e] > 0.0 and uniform(lots, route) < part[e]:
                copies += 1
            tail = lane_tail[lanes[e]]
            for _ in range(copies):
                lane_time[lanes[e], tail] = now
                lane_root[lanes[e], tail] = root
                tail += 1
            lane_tail[lanes[e]] = tail
            live += copies
        net.root_live[root] = live
        if live == 0:
            finish_root(
                root,
                net.root_birth,
                net.root_last,
                net.root_spoilt,
                root_free,
                net.root_count,
                total,
                interval,
                net.knobs[KNOB_E2E_SLO_S],
            )
    position[source] = i


@numba.njit(cache=True)
def _merge(net: Network, o: int) -> None:
    """Bring what several edges sent into one queue, in order of time."""
    first, last = net.in_start[o], net.in_start[o + 1]
    times, roots = net.lane_time[o], net.lane_root[o]
    tail = net.lane_tail[o]
    while True:
        best = -1
        soonest = np.inf
        for i in range(first, last):
            lane = net.in_lane[i]
            if net.lane_head[lane] < net.lane_tail[lane]:
                time = net.lane_time[lane, net.lane_head[lane]]
                if time < soonest:
                    soonest, best = time, lane
        if best < 0:
            break
        times[tail] = soonest
        roots[tail] = net.lane_root[best, net.lane_head[best]]
        net.lane_head[best] += 1
        tail += 1
    for i in range(first, last):
        net.lane_head[net.in_lane[i]] = net.lane_tail[net.in_lane[i]] = 0
    net.lane_tail[o] = tail


@numba.njit(cache=True)
def _is_full(net: Network, o: int, came: float) -> bool:
    """Whether the queue is full when the next undecided item comes.

    Items begin in order, so it is full exactly when the item that came `limit` places before has
    not begun by then.
    """
    limit, ordinal = net.queue_limit[o], net.accepted[o]
    if ordinal < limit:
        return False
    return bool(
        ordinal - limit >= net.begun[o] or net.begun_s[o, ordinal % limit] > came
    )


@numba.njit(cache=True)
def _drop(net: Network, o: int, root: int) -> None:
    net.tally[o, DROPPED] += 1.0
    net.root_spoilt[root] = 1
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


@numba.njit(cache=True)
def _decide_head(net: Network, o: int, head: int, tail: int) -> int:
    """Drop items at the head that found the queue full; returns where the first kept one is."""
    while head < tail and net.admitted[o] == head:
        net.admitted[o] = head + 1
        if not _is_full(net, o, net.lane_time[o, head]):
            net.accepted[o] += 1
            break
        _drop(net, o, net.lane_root[o, head])
        head += 1
    return head


@numba.njit(cache=True)
def _decide_rest(net: Network, o: int, head: int, tail: int) -> int:
    """Drop items that are still waiting but found the queue full; returns the new tail."""
    kept = max(head, net.admitted[o])
    for i in range(kept, tail):
        if _is_full(net, o, net.lane_time[o, i]):
            _drop(net, o, net.lane_root[o, i])
        else:
            net.lane_time[o, kept] = net.lane_time[o, i]
            net.lane_root[o, kept] = net.lane_root[o, i]
            net.accepted[o] += 1
            kept += 1
    return kept


@numba.njit(cache=True)
def _serve(net: Network, o: int, stop: float) -> None:
    """Everything that an operator begins and ends before `stop`."""
    # Views and numbers are taken out of the tuple once; the loop below is the hot one.
    queue_time, queue_root = net.lane_time[o], net.lane_root[o]
    head, tail = net.lane_head[o], net.lane_tail[o]
    line_time, line_slot = net.line_time[o], net.line_slot[o]
    first, count, mask = net.line_head[o], net.line_count[o], len(line_time) - 1
    free, arrived, started = net.slot_free[o], net.slot_arrived[o], net.slot_started[o]
    busy, done, holds = net.slot_busy[o], net.slot_done[o], net.slot_root[o]
    alive, host, slow = net.slot_alive[o], net.slot_host[o], net.host_slow
    tally, recent, sketch = net.tally[o], net.recent[o], net.sketch[o]
    interval, total = net.sketch[len(net.kind) + 1], net.total
    root_last, root_live = net.root_last, net.root_live
    lane_time, lane_root, lane_tail = net.lane_time, net.lane_root, net.lane_tail
    edge_from, edge_to = net.edge_start[o], net.edge_start[o + 1]
    part, whole, lanes = net.edge_part, net.edge_whole, net.edge_lane
    lots, route = net.lots, len(net.kind) + o
    kind, mean_s = net.kind[o], net.mean_s[o]
    log_mean, log_sigma = net.log_mean[o], net.log_sigma[o]
    samples = net.samples[net.sample_start[o] : net.sample_start[o + 1]]
    slo_s, every = net.slo_s[o], net.knobs[KNOB_SAMPLE_EVERY]
    quantise, e2e_slo_s = net.knobs[KNOB_QUANTISE] > 0.0, net.knobs[KNOB_E2E_SLO_S]
    limit = net.queue_limit[o]
    last_arrival, gap_s, gap_square = tally[LAST_ARRIVAL_S], 0.0, 0.0
    taken = 0
    tally[ARRIVED] += tail - net.lane_seen[o]

    place = first  # the server to look at: the first one in line as long as items wait
    while place < first + count:
        now = line_time[place & mask]
        if now >= stop:
            break
        slot = line_slot[place & mask]
        root = holds[slot]
        if root >= 0:
            # The item leaves; its copies go to the lanes, in order of time by themselves.
            holds[slot] = -1
            done[slot] += 1
            sent = math.floor(arrived[slot]) if quantise else arrived[slot]
            book_duration(tally, recent, sketch, slo_s, every, sent, now, now - started[slot])
            change = -1
            for e in range(edge_from, edge_to):
                copies = whole[e]
                if part[e] > 0.0 and uniform(lots, route) < part[e]:
                    copies += 1
                lane = lanes[e]
                end = lane_tail[lane]
                for _ in range(copies):
                    lane_time[lane, end] = now
                    lane_root[lane, end] = root
                    end += 1
                lane_tail[lane] = end
                change += copies
            root_last[root] = max(root_last[root], now)
            root_live[root] += change
            if root_live[root] == 0:
                finish_root(
                    root,
                    net.root_birth,
                    root_last,
                    net.root_spoilt,
                    net.root_free,
                    net.root_count,
                    total,
                    interval,
                    e2e_slo_s,
                )
            if alive[slot] == LEAVING:
                alive[slot] = NO_SERVER
                for p in range(place, first, -1):
                    line_time[p & mask] = line_time[(p - 1) & mask]
                    line_slot[p & mask] = line_slot[(p - 1) & mask]
                first += 1
                count -= 1
                place += 1
                continue
        if limit > 0:
            head = _decide_head(net, o, head, tail)
        if head == tail:
            place += 1
            continue
        came = queue_time[head]
        gap = came - last_arrival
        last_arrival = came
        gap_s += gap
        gap_square += gap * gap
        taken += 1
        begin = max(came, now)
        if limit > 0:
            net.begun_s[o, net.begun[o] % limit] = begin
            net.begun[o] += 1
        service = draw_service(kind, mean_s, log_mean, log_sigma, samples, lots, o)
        service *= slow[host[slot]]
        end_s = begin + service
        holds[slot] = queue_root[head]
        arrived[slot], started[slot], free[slot] = came, begin, end_s
        busy[slot] += service
        head += 1
        first += 1
        place = first + count - 1
        while place > first and line_time[(place - 1) & mask] > end_s:
            line_time[place & mask] = line_time[(place - 1) & mask]
            line_slot[place & mask] = line_slot[(place - 1) & mask]
            place -= 1
        line_time[place & mask] = end_s
        line_slot[place & mask] = slot
        place = first

    if limit > 0:
        tail = _decide_rest(net, o, head, tail)
    if head == tail:
        head = tail = 0
    net.lane_head[o], net.lane_tail[o], net.lane_seen[o] = head, tail, tail
    net.admitted[o] = tail
    net.line_head[o], net.line_count[o] = first, count
    tally[LAST_ARRIVAL_S] = last_arrival
    tally[GAPS] += taken
    tally[GAP_S] += gap_s
    tally[GAP_SQUARE] += gap_square
