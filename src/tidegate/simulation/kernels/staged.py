"""The kernel for graphs without loops: operator by operator, a window at a time.

Within a window, upstream operators come first. A station with k servers that takes items in order
of arrival needs no event list: the earliest time at which a server becomes free *is* the next
departure. Departures are therefore in order and can feed the next station directly. Only services
that start before the window ends are simulated, so servers may start, stop or fail between two
windows, and the choice of windows does not change the result.
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

__all__ = ["run_staged"]


@compiled(error_model="numpy")
def run_staged(
    net: Network,
    times: Floats,
    position: Ints,
    until: Ints,
    end_s: float,
    shed_fraction: float,
    rows: Floats,
) -> tuple[int, int, int]:
    """Simulate from the network's clock to `end_s`.

    Returns (rows filled, room that buffers need, total of roots needed). The last two are zero if
    the end was reached; otherwise the caller makes room and calls again.

    Args:
        net: State of the network.
        times: Arrival times of all sources.
        position: Position of each source's next arrival in `times`; moves on.
        until: End of each source's arrivals in `times`.
        end_s: End of the simulation, in seconds.
        shed_fraction: Share of arrivals to shed.
        rows: Filled with the time series.
    """
    whole, root_free, operators = net.whole, net.root_free, len(net.ops_i)
    for o in range(operators):
        line_up(net, o)
    filled = 0
    while whole[at.NOW] < end_s:
        stop = min(end_s, whole[at.NEXT_MONITOR], whole[at.NEXT_CONTENTION])
        stop = _cut(times, position, until, stop)
        room, roots = _needs(net, times, position, until, stop)
        free = root_free[len(root_free) - 1]
        if room > net.buffer_time.shape[1] or roots > free:
            return filled, room, roots + len(net.root_s) - free
        for source in range(len(position)):
            if position[source] == until[source] or times[position[source]] >= stop:
                continue
            came = _admit(net, source, times, position, until, stop, shed_fraction)
            _send(net, operators + source, came)
        for rank in range(operators):
            o = net.order[rank]
            if _nothing_to_do(net, o, stop):
                continue
            _merge(net, o)
            _count_arrivals(net, o)
            left = _serve(net, o, stop)
            count_departures(
                net, o, left, net.out_f[at.OUT_LEFT_S], net.out_f[at.OUT_ARRIVED_S],
                net.out_f[at.OUT_STARTED_S],
            )  # fmt: skip
            _send(net, o, left)
        whole[at.NOW] = stop
        if stop >= whole[at.NEXT_CONTENTION]:
            set_slow_down(net, stop)
        if stop >= whole[at.NEXT_MONITOR]:
            end_interval(net, stop, rows[filled])
            filled += 1
    return filled, 0, 0


@compiled(inside=True)
def _nothing_to_do(net: Network, o: int, stop: float) -> bool:
    """Whether no item waits for an operator, and none leaves it before `stop`.

    This is so for most operators of a large graph with few items, whose windows are short where
    hosts are slowed down.
    """
    ops_i, in_buffer, ends, line_time = net.ops_i, net.in_buffer, net.ends, net.line_time
    if ends[o, at.TAIL] != 0:
        return False
    for i in range(ops_i[o, at.IN_FROM], ops_i[o, at.IN_TO]):
        if ends[in_buffer[i], at.TAIL] != 0:
            return False
    first, mask = ops_i[o, at.LINE_FIRST], line_time.shape[1] - 1
    for place in range(first, first + ops_i[o, at.LINE_COUNT]):
        if line_time[o, place & mask] >= stop:
            return True
        if net.slot_i[o, at.ROOT, net.line_slot[o, place & mask]] >= 0:
            return False
    return True


@compiled(inside=True)
def _count_arrivals(net: Network, o: int) -> None:
    """Count the items that have arrived in a queue, and the gaps between them."""
    times, tally, first, last = (
        net.buffer_time[o],
        net.tally[o],
        net.ops_i[o, at.SEEN],
        net.ends[o, at.TAIL],
    )
    before, gap_s, gap_square = tally[at.LAST_ARRIVAL_S], 0.0, 0.0
    for i in range(first, last):
        gap = times[i] - before
        before = times[i]
        gap_s += gap
        gap_square += gap * gap
    tally[at.LAST_ARRIVAL_S] = before
    tally[at.ARRIVED] += last - first
    tally[at.GAPS] += last - first
    tally[at.GAP_S] += gap_s
    tally[at.GAP_SQUARE] += gap_square


@compiled(inside=True)
def _keep(net: Network, o: int, first: int, last: int, most: int) -> tuple[int, int]:
    """Drop the items in queue places `first` to `last` that found the finite queue full.

    Services start in order, so the queue is full exactly if the service of the item that was
    accepted LIMIT places before has not started. most: keep ONE item, which stays where it is, or
    ALL, which move to the start of the examined places. Returns the number of items examined and
    the number kept.
    """
    mine, begun_s, root_n = net.ops_i[o], net.begun_s[o], net.root_n
    queue_time, queue_root = net.buffer_time[o], net.buffer_root[o]
    limit = mine[at.LIMIT]
    kept = 0
    for i in range(first, last):
        ordinal = mine[at.ACCEPTED]
        full = ordinal >= limit and (
            ordinal - limit >= mine[at.BEGUN] or begun_s[ordinal % limit] > queue_time[i]
        )
        if full:
            root = queue_root[i]
            root_n[root, at.SPOILED] = 1
            root_n[root, at.LIVE] -= 1
            net.lost_root[mine[at.LOST]] = root
            mine[at.LOST] += 1
            continue
        mine[at.ACCEPTED] += 1
        kept += 1
        if most == at.ONE:
            return i + 1 - first, 1
        queue_time[first + kept - 1] = queue_time[i]
        queue_root[first + kept - 1] = queue_root[i]
    return last - first, kept


@compiled(inside=True, error_model="numpy")
def _serve(net: Network, o: int, stop: float) -> int:
    """Simulate all services of an operator that start or end before `stop`.

    Returns the number of items that left, which stand in `out_f` and `out_root`.
    """
    mine, service, samples = net.ops_i[o], net.ops_f[o], net.samples
    queue_time, queue_root, begun_s = net.buffer_time[o], net.buffer_root[o], net.begun_s[o]
    line_time, line_slot, slot_f, slot_i = (
        net.line_time[o],
        net.line_slot[o],
        net.slot_f[o],
        net.slot_i[o],
    )
    out_left, out_root = net.out_f[at.OUT_LEFT_S], net.out_root
    out_arrived, out_started = net.out_f[at.OUT_ARRIVED_S], net.out_f[at.OUT_STARTED_S]
    first, count, mask = mine[at.LINE_FIRST], mine[at.LINE_COUNT], len(line_time) - 1
    kind, limit = mine[at.KIND], mine[at.LIMIT]
    first_sample, sample_count = mine[at.SAMPLE_FROM], mine[at.SAMPLE_TO] - mine[at.SAMPLE_FROM]
    mean_s, log_mean, log_sigma = service[at.MEAN_S], service[at.LOG_MEAN], service[at.LOG_SIGMA]
    arrived, started = slot_f[at.ARRIVED_S], slot_f[at.STARTED_S]
    busy, pace = slot_f[at.BUSY_S], slot_f[at.PACE]
    holds, alive = slot_i[at.ROOT], slot_i[at.ALIVE]
    done, turn, taken = slot_i[at.DONE], slot_i[at.TURN], mine[at.TAKEN]
    head, tail, state = net.ends[o, at.HEAD], net.ends[o, at.TAIL], net.rng[o]
    mine[at.LOST] = 0
    # A service time is drawn one service early: the processor draws while it waits for the queue.
    undrawn = state
    takes, state = service_time(
        kind, mean_s, log_mean, log_sigma, samples, first_sample, sample_count, state
    )
    left = 0
    place = first  # the server to examine: the first in line while items wait
    while place < first + count:
        now = line_time[place & mask]
        if now >= stop:
            break
        slot = line_slot[place & mask]
        root = holds[slot]
        if root >= 0:
            out_left[left] = now
            out_arrived[left] = arrived[slot]
            out_started[left] = started[slot]
            out_root[left] = root
            left += 1
            done[slot] += 1
            if alive[slot] == at.LEAVING:
                holds[slot] = -1
                alive[slot] = at.NO_SERVER
                for p in range(place, first, -1):
                    line_time[p & mask] = line_time[(p - 1) & mask]
                    line_slot[p & mask] = line_slot[(p - 1) & mask]
                first += 1
                count -= 1
                place += 1
                continue
        if limit > 0 and head < tail and mine[at.ADMITTED] == head:
            seen, kept = _keep(net, o, head, tail, at.ONE)
            head += seen - kept
            mine[at.ADMITTED] = head + kept
        if head == tail:
            holds[slot] = -1
            place += 1
            continue
        came = queue_time[head]
        begin = max(came, now)
        if limit > 0:
            begun_s[mine[at.BEGUN] % limit] = begin
            mine[at.BEGUN] += 1
        busy_s = takes * pace[slot]
        ready = begin + busy_s
        undrawn = state
        takes, state = service_time(
            kind, mean_s, log_mean, log_sigma, samples, first_sample, sample_count, state
        )
        holds[slot] = queue_root[head]
        taken += 1
        turn[slot] = taken
        arrived[slot] = came
        started[slot] = begin
        busy[slot] += busy_s
        head += 1
        first += 1
        place = first + count - 1
        while place > first and line_time[(place - 1) & mask] > ready:
            line_time[place & mask] = line_time[(place - 1) & mask]
            line_slot[place & mask] = line_slot[(place - 1) & mask]
            place -= 1
        line_time[place & mask] = ready
        line_slot[place & mask] = slot
        place = first
    for place in range(first, first + count):
        slot_f[at.FREE_S, line_slot[place & mask]] = line_time[place & mask]
    mine[at.LINE_FIRST], mine[at.LINE_COUNT], mine[at.TAKEN] = first, count, taken
    net.rng[o] = undrawn
    _close_queue(net, o, head, tail)
    return left


@compiled(inside=True)
def _close_queue(net: Network, o: int, head: int, tail: int) -> None:
    """Drop items of a finite queue that found it full, and note where the queue is now."""
    mine = net.ops_i[o]
    if mine[at.LIMIT] > 0:
        undecided = max(head, mine[at.ADMITTED])
        tail = undecided + _keep(net, o, undecided, tail, at.ALL)[1]
        net.tally[o, at.DROPPED] += mine[at.LOST]
        finish_roots(net, mine[at.LOST], net.lost_root, at.NONE)
    if head == tail:
        head = tail = 0
    net.ends[o, at.HEAD], net.ends[o, at.TAIL] = head, tail
    mine[at.SEEN] = mine[at.ADMITTED] = tail


# --- routing ----------------------------------------------------------------------------------


@compiled(inside=True)
def _cut(times: Floats, position: Ints, until: Ints, stop: float) -> float:
    """An earlier end of the window if many items arrive, so that it fits the cache."""
    for source in range(len(position)):
        if until[source] - position[source] > at.CHUNK:
            first, later = times[position[source]], times[position[source] + at.CHUNK]
            if first < later < stop:
                stop = later
    return stop


@compiled(inside=True)
def _first_from(times: Floats, low: int, high: int, moment: float) -> int:
    """The first place in sorted times, from `low` to before `high`, that is not before a moment.

    The same as `np.searchsorted`, which takes a second to compile.
    """
    while low < high:
        middle = (low + high) // 2
        if times[middle] < moment:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(inside=True)
def _needs(
    net: Network, times: Floats, position: Ints, until: Ints, stop: float
) -> tuple[int, int]:
    """Most items that a buffer may have to hold in this window, and the number of new roots."""
    edge_start, edges, edge_part, ops_i = net.edge_start, net.edges, net.edge_part, net.ops_i
    ends, buffer_time, buffer_root = net.ends, net.buffer_time, net.buffer_root
    bound, coming = net.needs[0], net.needs[1]
    operators = len(ops_i)
    for origin in range(len(bound)):
        bound[origin] = coming[origin] = 0
    room = 0
    roots = 0
    for rank in range(len(bound)):  # sources first, then operators downstream
        if rank < len(position):
            origin = operators + rank
            last = until[rank]
            if last > position[rank] and times[last - 1] >= stop:
                last = _first_from(times, position[rank], last, stop)
            bound[origin] = last - position[rank]
            roots += bound[origin]
        else:
            origin = net.order[rank - len(position)]
            waiting = ends[origin, at.TAIL] - ends[origin, at.HEAD]
            bound[origin] = waiting + ops_i[origin, at.LINE_COUNT] + coming[origin]
            room = max(room, bound[origin])
        for e in range(edge_start[origin], edge_start[origin + 1]):
            copies = edges[e, at.WHOLE] + (1 if edge_part[e] > 0.0 else 0)
            coming[edges[e, at.TARGET]] += bound[origin] * copies
            room = max(room, bound[origin] * copies)
    for o in range(operators):
        head, tail = ends[o, at.HEAD], ends[o, at.TAIL]
        if head > 0 and tail + coming[o] > buffer_time.shape[1]:
            for i in range(head, tail):
                buffer_time[o, i - head] = buffer_time[o, i]
                buffer_root[o, i - head] = buffer_root[o, i]
            ends[o, at.HEAD], ends[o, at.TAIL] = 0, tail - head
            ops_i[o, at.SEEN] -= head
            ops_i[o, at.ADMITTED] -= head
    return room, roots


@compiled(inside=True)
def _admit(
    net: Network,
    source: int,
    times: Floats,
    position: Ints,
    until: Ints,
    stop: float,
    shed_fraction: float,
) -> int:
    """Give roots to the items of a source that arrive before `stop`; returns their number."""
    root_s, root_n, root_free, whole = net.root_s, net.root_n, net.root_free, net.whole
    out_time, out_root, rng = net.out_f[at.OUT_LEFT_S], net.out_root, net.rng
    free = root_free[len(root_free) - 1]
    which = len(rng) - len(position) + source
    state = rng[which]
    i = position[source]
    count = 0
    while i < until[source] and times[i] < stop:
        now = times[i]
        i += 1
        if shed_fraction > 0.0:
            share, state = uniform(state)
            if share < shed_fraction:
                whole[at.SHED] += 1.0
                continue
        free -= 1
        root = root_free[free]
        root_s[root, at.BIRTH] = root_s[root, at.LAST] = now
        root_n[root, at.SPOILED] = 0
        root_n[root, at.LIVE] = 1
        out_time[count] = now
        out_root[count] = root
        count += 1
    root_free[len(root_free) - 1] = free
    rng[which] = state
    whole[at.IN] += i - position[source]
    position[source] = i
    return count


@compiled(inside=True)
def _send(net: Network, origin: int, count: int) -> None:
    """Send copies of the items that left an origin over its edges, and count them at their roots.

    Where no copy is sure, items may have been the last of their roots. They are then subtracted;
    otherwise a copy takes the place of each.
    """
    edges, buffer_time, buffer_root, ends = net.edges, net.buffer_time, net.buffer_root, net.ends
    out_time, out_root, root_n = net.out_f[at.OUT_LEFT_S], net.out_root, net.root_n
    sure = 0
    for e in range(net.edge_start[origin], net.edge_start[origin + 1]):
        buffer, whole_copies, part = edges[e, at.BUFFER], edges[e, at.WHOLE], net.edge_part[e]
        sure += whole_copies
        end = ends[buffer, at.TAIL]
        if part == 0.0 and whole_copies == 1:
            for i in range(count):
                buffer_time[buffer, end + i] = out_time[i]
                buffer_root[buffer, end + i] = out_root[i]
            ends[buffer, at.TAIL] = end + count
            continue
        stream = len(net.ops_i) + e
        state = net.rng[stream]
        for i in range(count):
            copies = whole_copies
            if part > 0.0:
                share, state = uniform(state)
                if share < part:
                    copies += 1
                    root_n[out_root[i], at.LIVE] += 1
            for _ in range(copies):
                buffer_time[buffer, end] = out_time[i]
                buffer_root[buffer, end] = out_root[i]
                end += 1
        ends[buffer, at.TAIL] = end
        net.rng[stream] = state
    if sure > 1:
        for i in range(count):
            root_n[out_root[i], at.LIVE] += sure - 1
    if sure == 0:
        finish_roots(net, count, out_root, at.ONE)


@compiled(inside=True)
def _merge(net: Network, o: int) -> None:
    """Merge the items of several edges into one queue, in order of time."""
    in_buffer, ends, buffer_time, buffer_root = (
        net.in_buffer,
        net.ends,
        net.buffer_time,
        net.buffer_root,
    )
    first, last = net.ops_i[o, at.IN_FROM], net.ops_i[o, at.IN_TO]
    if first == last:
        return
    tail = ends[o, at.TAIL]
    while True:
        best, soonest, limit = -1, np.inf, np.inf
        for i in range(first, last):
            buffer = in_buffer[i]
            if ends[buffer, at.HEAD] < ends[buffer, at.TAIL]:
                time = buffer_time[buffer, ends[buffer, at.HEAD]]
                if time < soonest:
                    best, soonest, limit = buffer, time, soonest
                elif time < limit:
                    limit = time
        if best < 0:
            break
        # All items that arrive before the first item of any other buffer.
        head, end = ends[best, at.HEAD], ends[best, at.TAIL]
        buffer_time[o, tail] = soonest
        buffer_root[o, tail] = buffer_root[best, head]
        head += 1
        tail += 1
        while head < end and buffer_time[best, head] < limit:
            buffer_time[o, tail] = buffer_time[best, head]
            buffer_root[o, tail] = buffer_root[best, head]
            head += 1
            tail += 1
        ends[best, at.HEAD] = head
    for i in range(first, last):
        ends[in_buffer[i], at.HEAD] = ends[in_buffer[i], at.TAIL] = 0
    ends[o, at.TAIL] = tail
