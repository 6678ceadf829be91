"""The services of one operator in a window, for the kernel of graphs without loops.

A station with k servers that takes items in order of arrival needs no event list: the earliest time
at which a server becomes free *is* the next departure.
"""

from __future__ import annotations

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import finish_roots, service_time
from tidegate.simulation.kernels.line import (
    PLACES,
    empty_line,
    put_back,
    slot_at,
    time_at,
    with_server,
)
from tidegate.simulation.kernels.state import Network
from tidegate.theory.compiled import compiled

__all__ = ["serve"]


@compiled(inline="always")
def serve(net: Network, o: int, stop: float) -> int:
    """Simulate all services of an operator that start or end before `stop`.

    Returns the number of items that left, which stand in `out_f` and `out_root`. While items wait
    and there is nothing special about the servers, quicker code does the same.
    """
    left = 0
    if _alike(net, o):
        if net.ops_i[o, at.LINE_COUNT] == 1:
            left = _serve_one(net, o, stop)
        else:
            left = _serve_alike(net, o, stop)
    return _serve_rest(net, o, stop, left)


@compiled(inside=True, error_model="numpy")
def _serve_rest(net: Network, o: int, stop: float, left: int) -> int:
    """Simulate all services, of which `left` have ended before; returns how many ended in all."""
    mine, takes = net.ops_i[o], net.takes
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
    limit, arrived, started = mine[at.LIMIT], slot_f[at.ARRIVED_S], slot_f[at.STARTED_S]
    busy, pace = slot_f[at.BUSY_S], slot_f[at.PACE]
    holds, alive = slot_i[at.ROOT], slot_i[at.ALIVE]
    done, turn, taken = slot_i[at.DONE], slot_i[at.TURN], mine[at.TAKEN]
    head, tail, state = net.ends[o, at.HEAD], net.ends[o, at.TAIL], net.rng[o]
    drawn = used = 0
    mine[at.LOST] = 0
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
        if used == drawn:
            state, used = net.rng[o], 0
            drawn = _draw_ahead(net, o, tail - head, stop - now)
        busy_s = takes[used] * pace[slot]
        used += 1
        ready = begin + busy_s
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
    if used < drawn:
        _draw(net, o, state, used)
    _close_queue(net, o, head, tail)
    return left


@compiled(inside=True)
def _alike(net: Network, o: int) -> bool:
    """Whether the servers work at the same pace, none is leaving, and any number of items may wait.

    There are also no more than a line has room for, and an item that waits.
    """
    slot_f, slot_i, line_slot, ends = net.slot_f[o], net.slot_i[o], net.line_slot[o], net.ends
    limit, first, count = (
        net.ops_i[o, at.LIMIT],
        net.ops_i[o, at.LINE_FIRST],
        net.ops_i[o, at.LINE_COUNT],
    )
    if limit > 0 or not 0 < count <= PLACES or ends[o, at.HEAD] == ends[o, at.TAIL]:
        return False
    mask = len(line_slot) - 1
    pace = slot_f[at.PACE, line_slot[first & mask]]
    for place in range(first, first + count):
        slot = line_slot[place & mask]
        if slot_i[at.ALIVE, slot] != at.SERVING or slot_f[at.PACE, slot] != pace:
            return False
    return True


@compiled(inside=True, error_model="numpy")
def _serve_one(net: Network, o: int, stop: float) -> int:
    """Like `serve` for a single server, while items wait: it has no line to keep in order."""
    mine = net.ops_i[o]
    queue_time, queue_root = net.buffer_time[o], net.buffer_root[o]
    slot_f, slot_i = net.slot_f[o], net.slot_i[o]
    out_left, out_root = net.out_f[at.OUT_LEFT_S], net.out_root
    out_arrived, out_started = net.out_f[at.OUT_ARRIVED_S], net.out_f[at.OUT_STARTED_S]
    place = mine[at.LINE_FIRST] & (net.line_time.shape[1] - 1)
    now, slot = net.line_time[o, place], net.line_slot[o, place]
    arrived, started = slot_f[at.ARRIVED_S, slot], slot_f[at.STARTED_S, slot]
    busy, pace = slot_f[at.BUSY_S, slot], slot_f[at.PACE, slot]
    root, takes = slot_i[at.ROOT, slot], net.takes
    head, tail = net.ends[o, at.HEAD], net.ends[o, at.TAIL]
    left, begun = 0, 0
    while head < tail and now < stop:
        state, first = net.rng[o], head
        end = head + _draw_ahead(net, o, tail - head, stop - now)
        while head < end and now < stop:
            out_left[left] = now
            out_arrived[left] = arrived
            out_started[left] = started
            out_root[left] = root
            left += root >= 0
            busy_s = takes[head - first] * pace
            arrived = queue_time[head]
            started = max(arrived, now)
            now = started + busy_s
            busy += busy_s
            root = queue_root[head]
            head += 1
        begun += head - first
        if head < end:
            _draw(net, o, state, head - first)
    if begun > 0:
        mine[at.TAKEN] += begun
        slot_i[at.TURN, slot] = mine[at.TAKEN]
    slot_i[at.ROOT, slot] = root
    slot_i[at.DONE, slot] += left
    slot_f[at.ARRIVED_S, slot], slot_f[at.STARTED_S, slot] = arrived, started
    slot_f[at.BUSY_S, slot], net.line_time[o, place] = busy, now
    net.ends[o, at.HEAD] = head
    return left


@compiled(inside=True, error_model="numpy")
def _serve_alike(net: Network, o: int, stop: float) -> int:
    """Like `serve` for servers that are alike, while items wait, with a `Line`."""
    mine = net.ops_i[o]
    queue_time, queue_root = net.buffer_time[o], net.buffer_root[o]
    line_time, line_slot, slot_f, slot_i = (
        net.line_time[o],
        net.line_slot[o],
        net.slot_f[o],
        net.slot_i[o],
    )
    out_left, out_root = net.out_f[at.OUT_LEFT_S], net.out_root
    out_arrived, out_started = net.out_f[at.OUT_ARRIVED_S], net.out_f[at.OUT_STARTED_S]
    first, count, mask = mine[at.LINE_FIRST], mine[at.LINE_COUNT], len(line_time) - 1
    arrived, started = slot_f[at.ARRIVED_S], slot_f[at.STARTED_S]
    busy, pace = slot_f[at.BUSY_S], slot_f[at.PACE, line_slot[first & mask]]
    holds, done, turn, taken = slot_i[at.ROOT], slot_i[at.DONE], slot_i[at.TURN], mine[at.TAKEN]
    head, tail, takes = net.ends[o, at.HEAD], net.ends[o, at.TAIL], net.takes
    line = empty_line()
    for n in range(count):
        place = (first + n) & mask
        line = with_server(line, n, line_time[place], line_slot[place])
    left = 0
    while head < tail and time_at(line, 0) < stop:
        state, start = net.rng[o], head
        end = head + _draw_ahead(net, o, tail - head, stop - time_at(line, 0))
        while head < end and time_at(line, 0) < stop:
            now, slot = time_at(line, 0), slot_at(line, 0)
            root = holds[slot]
            out_left[left] = now
            out_arrived[left] = arrived[slot]
            out_started[left] = started[slot]
            out_root[left] = root
            left += root >= 0
            done[slot] += root >= 0
            busy_s = takes[head - start] * pace
            came = queue_time[head]
            begin = max(came, now)
            line = put_back(line, begin + busy_s)
            holds[slot] = queue_root[head]
            taken += 1
            turn[slot] = taken
            arrived[slot] = came
            started[slot] = begin
            busy[slot] += busy_s
            head += 1
        if head < end:
            _draw(net, o, state, head - start)
    for n in range(count):
        line_time[n], line_slot[n] = time_at(line, n), slot_at(line, n)
    mine[at.LINE_FIRST], mine[at.TAKEN], net.ends[o, at.HEAD] = 0, taken, head
    return left


@compiled(inside=True, error_model="numpy")
def _draw_ahead(net: Network, o: int, waiting: int, span: float) -> int:
    """Draw about as many service times as services begin within a span; returns how many."""
    expected = net.ops_i[o, at.LINE_COUNT] * (2.0 + span / net.ops_f[o, at.MEAN_S])
    count = min(waiting, len(net.takes))
    if expected < count:
        count = int(expected)
    _draw(net, o, net.rng[o], count)
    return count


@compiled(inside=True)
def _draw(net: Network, o: int, state: np.uint64, count: int) -> None:
    """Draw service times of an operator into `takes`; its stream goes on after them.

    state: of the stream before. Drawing fewer again from there takes back those that are too many.
    """
    mine, service, samples, takes = net.ops_i[o], net.ops_f[o], net.samples, net.takes
    kind, first_sample = mine[at.KIND], mine[at.SAMPLE_FROM]
    sample_count = mine[at.SAMPLE_TO] - first_sample
    mean_s, log_mean, log_sigma = service[at.MEAN_S], service[at.LOG_MEAN], service[at.LOG_SIGMA]
    for i in range(count):
        takes[i], state = service_time(
            kind, mean_s, log_mean, log_sigma, samples, first_sample, sample_count, state
        )
    net.rng[o] = state


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
