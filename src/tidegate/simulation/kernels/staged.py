"""The kernel for graphs without loops: operator by operator, a window at a time.

Within a window, upstream operators come first. Items leave an operator in order of time and can
feed the next one directly. Only services that start before the window ends are simulated, so
servers may start, stop or fail between two windows, and the choice of windows does not change the
result.
"""

from __future__ import annotations

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import (
    count_departures,
    end_interval,
    finish_roots,
    line_up,
    set_slow_down,
)
from tidegate.simulation.kernels.random import uniform
from tidegate.simulation.kernels.services import serve
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
            left = serve(net, o, stop)
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
    sure, first, last = 0, net.edge_start[origin], net.edge_start[origin + 1]
    if last - first == 1 and edges[first, at.WHOLE] == 0:
        _send_some(net, first, count)
        return
    for e in range(first, last):
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
def _send_some(net: Network, e: int, count: int) -> None:
    """Send each item over the only edge of its origin with a chance below one; the others end.

    What ends is put together at the beginning of `out_f` and `out_root`. Without branches, as
    nobody can guess what chance decides.
    """
    buffer, part, stream = net.edges[e, at.BUFFER], net.edge_part[e], len(net.ops_i) + e
    buffer_time, buffer_root = net.buffer_time[buffer], net.buffer_root[buffer]
    out_time, out_root = net.out_f[at.OUT_LEFT_S], net.out_root
    first, state = net.ends[buffer, at.TAIL], net.rng[stream]
    end = first
    for i in range(count):
        ended = i - (end - first)
        time, root = out_time[i], out_root[i]
        buffer_time[end] = out_time[ended] = time
        buffer_root[end] = out_root[ended] = root
        share, state = uniform(state)
        end += share < part
    net.ends[buffer, at.TAIL], net.rng[stream] = end, state
    finish_roots(net, count - (end - first), out_root, at.ONE)


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
