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

from tidegate.simulation.kernels.accounting import (
    book_departures,
    end_interval,
    finish_roots,
    line_up,
    set_slow_down,
)
from tidegate.simulation.kernels.random import exponential, normal, uniform
from tidegate.simulation.kernels.routing import admit, cut, merge, needs, send
from tidegate.simulation.kernels.state import (
    ACCEPTED,
    ADMITTED,
    ALIVE,
    ARRIVED,
    ARRIVED_S,
    BEGUN,
    BUSY_S,
    DETERMINISTIC,
    DONE,
    DROPPED,
    EXPONENTIAL,
    FREE_S,
    GAP_S,
    GAP_SQUARE,
    GAPS,
    HEAD,
    KIND,
    LAST_ARRIVAL_S,
    LEAVING,
    LIMIT,
    LINE_COUNT,
    LINE_FIRST,
    LIVE,
    LOG_MEAN,
    LOG_SIGMA,
    LOGNORMAL,
    LOST,
    MEAN_S,
    NEXT_CONTENTION,
    NEXT_MONITOR,
    NO_SERVER,
    NOW,
    OUT_ARRIVED_S,
    OUT_LEFT_S,
    OUT_STARTED_S,
    PACE,
    QUANTISE,
    ROOT,
    SAMPLE_EVERY,
    SAMPLE_FROM,
    SAMPLE_TO,
    SEEN,
    SLO_S,
    SPOILED,
    STARTED_S,
    TAIL,
    TAKEN,
    TURN,
    Floats,
    Ints,
    Network,
)

__all__ = ["run_staged"]


@numba.njit(cache=True, error_model="numpy")
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

    Returns (rows filled, room that lanes need, roots needed in all); the last two are zero when
    the end was reached, otherwise the caller makes room and calls again.
    """
    (
        order, edge_start, edges, edge_part, in_lane, ops_f, ops_i, samples, lane_time, lane_root,
        ends, out_f, out_root, lost_root, begun_s, slot_f, slot_i, line_time, line_slot, root_s,
        root_n, root_free, hosts, lots, tally, whole, recent, sketch,
    ) = net  # fmt: skip
    operators = len(ops_i)
    interval = sketch[operators + 1]
    left_s, arrived_s, started_s = out_f[OUT_LEFT_S], out_f[OUT_ARRIVED_S], out_f[OUT_STARTED_S]
    no_times = left_s[:0]
    every, quantise = whole[SAMPLE_EVERY], whole[QUANTISE] > 0.0
    for o in range(operators):
        line_up(o, ops_i, slot_f, slot_i, line_time, line_slot)
    filled = 0
    while whole[NOW] < end_s:
        stop = min(end_s, whole[NEXT_MONITOR], whole[NEXT_CONTENTION])
        stop = cut(times, position, until, stop)
        room, roots = needs(
            times, position, until, stop, order, edge_start, edges, edge_part, ops_i, ends,
            lane_time, lane_root,
        )  # fmt: skip
        free = root_free[len(root_free) - 1]
        if room > lane_time.shape[1] or roots > free:
            return filled, room, roots + len(root_s) - free
        for source in range(len(position)):
            came = admit(
                source, times, position, until, stop, shed_fraction, lots, left_s, out_root,
                root_s, root_n, root_free, whole,
            )  # fmt: skip
            origin = operators + source
            if send(
                came, edge_start[origin], edge_start[origin + 1], operators, edges, edge_part,
                left_s, out_root, lane_time, lane_root, ends, root_n, lots,
            ):  # fmt: skip
                finish_roots(came, left_s, out_root, root_s, root_n, root_free, whole, interval)
        for o in order:
            merge(o, ops_i, in_lane, lane_time, lane_root, ends)
            mine, tail = ops_i[o], ends[o, TAIL]
            _count_arrivals(mine[SEEN], tail, lane_time[o], tally[o])
            mine[LOST] = 0
            left, head, lots[o] = _serve(
                stop, ends[o, HEAD], tail, mine, ops_f[o],
                samples[mine[SAMPLE_FROM] : mine[SAMPLE_TO]], lots[o], lane_time[o], lane_root[o],
                begun_s[o], slot_f[o], slot_i[o], line_time[o], line_slot[o], root_n, lost_root,
                left_s, arrived_s, started_s, out_root,
            )  # fmt: skip
            if mine[LIMIT] > 0:
                undecided = max(head, mine[ADMITTED])
                _, kept = _keep(
                    undecided, tail, False, mine, begun_s[o], lane_time[o], lane_root[o], root_n,
                    lost_root,
                )  # fmt: skip
                tail = undecided + kept
                tally[o, DROPPED] += mine[LOST]
                finish_roots(
                    mine[LOST], no_times, lost_root, root_s, root_n, root_free, whole, interval
                )
            if head == tail:
                head = tail = 0
            ends[o, HEAD], ends[o, TAIL] = head, tail
            mine[SEEN] = mine[ADMITTED] = tail
            book_departures(
                left, left_s, arrived_s, started_s, ops_f[o, SLO_S], every, quantise, tally[o],
                recent[o], sketch[o],
            )  # fmt: skip
            if send(
                left, edge_start[o], edge_start[o + 1], operators, edges, edge_part, left_s,
                out_root, lane_time, lane_root, ends, root_n, lots,
            ):  # fmt: skip
                finish_roots(left, left_s, out_root, root_s, root_n, root_free, whole, interval)
        whole[NOW] = stop
        if stop >= whole[NEXT_CONTENTION]:
            set_slow_down(stop, ops_f, slot_f, slot_i, hosts, whole)
        if stop >= whole[NEXT_MONITOR]:
            end_interval(
                stop, rows[filled], before, ops_f, ends, slot_f, slot_i, hosts, tally, whole, sketch
            )
            filled += 1
    return filled, 0, 0


@numba.njit(cache=True)
def _count_arrivals(first: int, last: int, times: Floats, tally: Floats) -> None:
    """Book the items that have come into a queue, and how far apart they were."""
    before, gap_s, gap_square = tally[LAST_ARRIVAL_S], 0.0, 0.0
    for i in range(first, last):
        gap = times[i] - before
        before = times[i]
        gap_s += gap
        gap_square += gap * gap
    tally[LAST_ARRIVAL_S] = before
    tally[ARRIVED] += last - first
    tally[GAPS] += last - first
    tally[GAP_S] += gap_s
    tally[GAP_SQUARE] += gap_square


@numba.njit(cache=True)
def _keep(
    first: int,
    last: int,
    only_one: bool,
    mine: Ints,
    begun_s: Floats,
    queue_time: Floats,
    queue_root: Ints,
    root_n: Ints,
    lost_root: Ints,
) -> tuple[int, int]:
    """Drop the items in queue places `first` to `last` that found the finite queue full.

    Items begin in order, so the queue is full exactly when the item that was accepted LIMIT
    places before has not begun yet. only_one: stop at the first item that is kept. Returns how
    many were looked at, and how many of them were kept: these are moved to the end of the stretch
    looked at for `only_one`, else to its beginning.
    """
    limit = mine[LIMIT]
    kept = 0
    for i in range(first, last):
        ordinal = mine[ACCEPTED]
        full = ordinal >= limit and (
            ordinal - limit >= mine[BEGUN] or begun_s[ordinal % limit] > queue_time[i]
        )
        if full:
            root = queue_root[i]
            root_n[root, SPOILED] = 1
            root_n[root, LIVE] -= 1
            lost_root[mine[LOST]] = root
            mine[LOST] += 1
            continue
        mine[ACCEPTED] += 1
        kept += 1
        if only_one:
            return i + 1 - first, 1
        queue_time[first + kept - 1] = queue_time[i]
        queue_root[first + kept - 1] = queue_root[i]
    return last - first, kept


@numba.njit(cache=True, error_model="numpy")
def _serve(
    stop: float,
    head: int,
    tail: int,
    mine: Ints,
    service: Floats,
    samples: Floats,
    state: np.uint64,
    queue_time: Floats,
    queue_root: Ints,
    begun_s: Floats,
    slot_f: Floats,
    slot_i: Ints,
    line_time: Floats,
    line_slot: Ints,
    root_n: Ints,
    lost_root: Ints,
    out_left: Floats,
    out_arrived: Floats,
    out_started: Floats,
    out_root: Ints,
) -> tuple[int, int, np.uint64]:
    """Everything that an operator begins and ends before `stop`.

    mine, service: its rows of `ops_i` and `ops_f`; slot_f, slot_i: its slots, one row a kind of
    fact. Returns how many items left, where the queue's head is now, and the state of the lots.
    """
    first, count, mask = mine[LINE_FIRST], mine[LINE_COUNT], len(line_time) - 1
    kind, limit = mine[KIND], mine[LIMIT]
    mean_s, log_mean, log_sigma = service[MEAN_S], service[LOG_MEAN], service[LOG_SIGMA]
    arrived, started = slot_f[ARRIVED_S], slot_f[STARTED_S]
    busy, pace = slot_f[BUSY_S], slot_f[PACE]
    holds, alive = slot_i[ROOT], slot_i[ALIVE]
    done, turn, taken = slot_i[DONE], slot_i[TURN], mine[TAKEN]
    left = 0
    place = first  # the server to look at: the first one in line as long as items wait
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
            holds[slot] = -1
            done[slot] += 1
            if alive[slot] == LEAVING:
                alive[slot] = NO_SERVER
                for p in range(place, first, -1):
                    line_time[p & mask] = line_time[(p - 1) & mask]
                    line_slot[p & mask] = line_slot[(p - 1) & mask]
                first += 1
                count -= 1
                place += 1
                continue
        if limit > 0 and head < tail and mine[ADMITTED] == head:
            seen, kept = _keep(
                head, tail, True, mine, begun_s, queue_time, queue_root, root_n, lost_root
            )
            head += seen - kept
            mine[ADMITTED] = head + kept
        if head == tail:
            place += 1
            continue
        came = queue_time[head]
        begin = max(came, now)
        if limit > 0:
            begun_s[mine[BEGUN] % limit] = begin
            mine[BEGUN] += 1
        if kind == EXPONENTIAL:
            lot, state = exponential(state)
            takes = mean_s * lot
        elif kind == DETERMINISTIC:
            takes = mean_s
        elif kind == LOGNORMAL:
            lot, state = normal(state)
            takes = math.exp(log_mean + log_sigma * lot)
        else:
            lot, state = uniform(state)
            takes = samples[int(lot * len(samples))]
        takes *= pace[slot]
        ready = begin + takes
        holds[slot] = queue_root[head]
        taken += 1
        turn[slot] = taken
        arrived[slot] = came
        started[slot] = begin
        busy[slot] += takes
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
        slot_f[FREE_S, line_slot[place & mask]] = line_time[place & mask]
    mine[LINE_FIRST], mine[LINE_COUNT], mine[TAKEN] = first, count, taken
    return left, head, state
