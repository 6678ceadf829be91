"""What both kernels do alike: draw a service time, book a departure, measure the hosts.

They take many items at once: compiled code pays for each array that it hands on.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from tidegate.simulation.kernels.sketch import bucket_middle, bucket_of
from tidegate.simulation.kernels.state import (
    ADAPT_S,
    ADAPTED,
    ALIVE,
    ARRIVED,
    BIRTH,
    BUSY_S,
    CONTENTION_S,
    CORES,
    DURATION_S,
    E2E_SLO_S,
    EPISODE_S,
    FREE_S,
    FROM_S,
    HEAD,
    HOST,
    HOST_CORES,
    HOST_MBPS,
    IN,
    LAST,
    LAST_CONTENTION,
    LAST_LATE_S,
    LAST_MONITOR,
    LATE,
    LATE_1,
    LATE_2,
    LATE_5,
    LATE_SINCE_S,
    LINE_COUNT,
    LINE_FIRST,
    LIVE,
    LOAD_COUNT,
    LOAD_MAX,
    LOAD_MIN,
    LOAD_SUM,
    MARK_S,
    MBPS,
    MONITOR_MARK_S,
    MONITOR_S,
    NEXT_CONTENTION,
    NEXT_MONITOR,
    NO_SERVER,
    OP_ARRIVED,
    OP_INSTANCES,
    OP_LATE,
    OP_PROCESSED,
    OP_QUEUE,
    OUT,
    PACE,
    PROCESSED,
    RECENT,
    ROOT,
    ROW_DROPPED,
    ROW_HOSTS,
    ROW_IN,
    ROW_LATE,
    ROW_LATE_ITEMS,
    ROW_LOAD_MAX,
    ROW_LOAD_MEAN,
    ROW_LOAD_MIN,
    ROW_OPERATORS,
    ROW_OUT,
    ROW_P95_S,
    ROW_PER_OPERATOR,
    ROW_PROCESSED,
    ROW_RUNNING,
    ROW_SOJOURN_S,
    ROW_TIME,
    SAMPLES,
    SERVICE_S,
    SERVICE_SQUARE,
    SERVING,
    SHED,
    SLOW,
    SOJOURN_MAX_S,
    SOJOURN_S,
    SPOILED,
    SPOILT,
    TAIL,
    TURN,
    UNTIL_S,
    Floats,
    Ints,
)

__all__ = ["book_departures", "end_interval", "finish_roots", "line_up", "set_slow_down"]


@numba.njit(cache=True)
def line_up(
    o: int, ops_i: Ints, slot_f: Floats, slot_i: Ints, line_time: Floats, line_slot: Ints
) -> None:
    """Sort the servers of an operator by the time when they are free.

    Ties are in the order in which they began, so that it does not matter when this is done.
    """
    count = 0
    for slot in range(slot_f.shape[2]):
        if slot_i[o, ALIVE, slot] == NO_SERVER:
            continue
        free = slot_f[o, FREE_S, slot]
        place = count
        turn = slot_i[o, TURN, slot]
        while place > 0 and (
            line_time[o, place - 1] > free
            or (line_time[o, place - 1] == free and slot_i[o, TURN, line_slot[o, place - 1]] > turn)
        ):
            line_time[o, place] = line_time[o, place - 1]
            line_slot[o, place] = line_slot[o, place - 1]
            place -= 1
        line_time[o, place], line_slot[o, place] = free, slot
        count += 1
    ops_i[o, LINE_FIRST], ops_i[o, LINE_COUNT] = 0, count


@numba.njit(cache=True)
def book_departures(
    count: int,
    left_s: Floats,
    arrived_s: Floats,
    started_s: Floats,
    slo_s: float,
    every: float,
    quantise: bool,
    tally: Floats,
    recent: Floats,
    sketch: Ints,
) -> None:
    """Book the items that leave an operator after waiting and service.

    left_s, arrived_s, started_s: when; quantise: whether the sender's clock shows whole seconds.
    tally, recent, sketch: the operator's rows.
    """
    done, next_sample = tally[PROCESSED], (tally[SAMPLES] + 1.0) * every
    # In variables, not in `tally`: adding to an array over and over waits for memory each time.
    total_s, late, later, latest = 0.0, 0, 0, 0
    since_s, last_late_s = tally[LATE_SINCE_S], tally[LAST_LATE_S]
    for i in range(count):
        sent = math.floor(arrived_s[i]) if quantise else arrived_s[i]
        duration = left_s[i] - sent
        done += 1.0
        total_s += duration
        sketch[bucket_of(duration)] += 1
        if duration > slo_s:
            late += 1
            if duration > 2.0 * slo_s:
                later += 1
                if duration > 5.0 * slo_s:
                    latest += 1
                    last_late_s = left_s[i]
                    if since_s < 0.0:
                        since_s = left_s[i]
        elif since_s >= 0.0:
            # Adapted: the first item in time after some that took more than five times the SLO.
            tally[ADAPTED] += 1.0
            tally[ADAPT_S] += left_s[i] - last_late_s
            tally[EPISODE_S] += left_s[i] - since_s
            since_s = -1.0
        if done >= next_sample:
            next_sample += every
            service_s = left_s[i] - started_s[i]
            recent[int(tally[SAMPLES]) % RECENT] = duration
            tally[SAMPLES] += 1.0
            tally[SERVICE_S] += service_s
            tally[SERVICE_SQUARE] += service_s * service_s
    tally[PROCESSED] = done
    tally[DURATION_S] += total_s
    tally[LATE_1] += late
    tally[LATE_2] += later
    tally[LATE_5] += latest
    tally[LATE_SINCE_S], tally[LAST_LATE_S] = since_s, last_late_s


@numba.njit(cache=True)
def finish_roots(
    count: int,
    left_s: Floats,
    roots: Ints,
    root_s: Floats,
    root_n: Ints,
    root_free: Ints,
    whole: Floats,
    interval: Ints,
) -> None:
    """Book those source items of which nothing is left: done, or spoilt if a part was dropped.

    left_s: when a part of each was processed, empty when that has been booked already.
    """
    free = root_free[len(root_free) - 1]
    total_s, longest = 0.0, whole[SOJOURN_MAX_S]
    out, late, spoilt, slo_s = 0, 0, 0, whole[E2E_SLO_S]
    for i in range(count):
        root = roots[i]
        if len(left_s) > 0:  # one at a time: a root may be here more than once
            root_n[root, LIVE] -= 1
            root_s[root, LAST] = max(root_s[root, LAST], left_s[i])
        if root_n[root, LIVE] != 0:
            continue
        root_n[root, LIVE] = -1  # once only, should it be in the list twice
        root_free[free] = root
        free += 1
        if root_n[root, SPOILED] != 0:
            spoilt += 1
            continue
        sojourn = root_s[root, LAST] - root_s[root, BIRTH]
        out += 1
        total_s += sojourn
        longest = max(longest, sojourn)
        if sojourn > slo_s:
            late += 1
        interval[bucket_of(sojourn)] += 1
    root_free[len(root_free) - 1] = free
    whole[SPOILT] += spoilt
    whole[OUT] += out
    whole[LATE] += late
    whole[SOJOURN_S] += total_s
    whole[SOJOURN_MAX_S] = longest


@numba.njit(cache=True)
def _load(
    now: float,
    mark: int,
    weight: int,
    ops_f: Floats,
    slot_f: Floats,
    slot_i: Ints,
    load: Floats,
) -> None:
    """Add to `load` what the instances on each host used (weight: of which resource) since then.

    mark: which of two marks says how much had been used before; it is moved to now.
    """
    for o in range(len(slot_f)):
        for s in range(slot_f.shape[2]):
            if slot_i[o, ALIVE, s] != NO_SERVER:
                busy = slot_f[o, BUSY_S, s]
                # Service is booked when it begins: take off what is still to come.
                if slot_i[o, ROOT, s] >= 0 and slot_f[o, FREE_S, s] > now:
                    busy -= slot_f[o, FREE_S, s] - now
                load[slot_i[o, HOST, s]] += (busy - slot_f[o, mark, s]) * ops_f[o, weight]
                if weight == CORES:
                    slot_f[o, mark, s] = busy


@numba.njit(cache=True)
def set_slow_down(
    now: float, ops_f: Floats, slot_f: Floats, slot_i: Ints, hosts: Floats, whole: Floats
) -> None:
    """Slow each host down by the ratio of what its instances wanted lately to what it has."""
    span = now - whole[LAST_CONTENTION]
    whole[LAST_CONTENTION] = now
    whole[NEXT_CONTENTION] = now + whole[CONTENTION_S]
    cores = np.zeros(len(hosts))
    mbps = np.zeros(len(hosts))
    _load(now, MARK_S, MBPS, ops_f, slot_f, slot_i, mbps)
    _load(now, MARK_S, CORES, ops_f, slot_f, slot_i, cores)
    if span <= 0.0:
        return
    for h in range(len(cores)):
        slow = max(1.0, cores[h] / span / hosts[h, HOST_CORES])
        if hosts[h, HOST_MBPS] > 0.0:
            slow = max(slow, mbps[h] / span / hosts[h, HOST_MBPS])
        hosts[h, SLOW] = slow
    for o in range(len(slot_f)):
        for s in range(slot_f.shape[2]):
            slot_f[o, PACE, s] = hosts[slot_i[o, HOST, s], SLOW]


@numba.njit(cache=True)
def end_interval(
    now: float,
    row: Floats,
    before: Floats,
    ops_f: Floats,
    ends: Ints,
    slot_f: Floats,
    slot_i: Ints,
    hosts: Floats,
    tally: Floats,
    whole: Floats,
    sketch: Ints,
) -> None:
    """Write the row of the time series for the monitoring interval that ends now.

    before: cumulative counts when it began, in the layout of a row; brought up to date.
    """
    operators = len(tally)
    span = now - whole[LAST_MONITOR]
    whole[LAST_MONITOR] = now
    whole[NEXT_MONITOR] += whole[MONITOR_S]
    row[:] = 0.0
    row[ROW_TIME] = now
    row[ROW_IN] = whole[IN]
    row[ROW_OUT] = whole[OUT]
    row[ROW_DROPPED] = whole[SHED] + whole[SPOILT]
    row[ROW_SOJOURN_S] = whole[SOJOURN_S]
    row[ROW_LATE] = whole[LATE]
    for o in range(operators):
        column = ROW_OPERATORS + ROW_PER_OPERATOR * o
        row[column + OP_QUEUE] = ends[o, TAIL] - ends[o, HEAD]
        row[column + OP_ARRIVED] = tally[o, ARRIVED]
        row[column + OP_PROCESSED] = tally[o, PROCESSED]
        row[column + OP_LATE] = tally[o, LATE_1]
        row[ROW_PROCESSED] += tally[o, PROCESSED]
        row[ROW_LATE_ITEMS] += tally[o, LATE_1]
        for s in range(slot_f.shape[2]):
            starting = slot_i[o, ROOT, s] < 0 and slot_f[o, FREE_S, s] > now
            if slot_i[o, ALIVE, s] == SERVING and not starting:
                row[column + OP_INSTANCES] += 1.0
    load = np.zeros(len(hosts))
    _load(now, MONITOR_MARK_S, CORES, ops_f, slot_f, slot_i, load)
    _count_hosts(now, span, load, hosts, row, whole)
    fresh = np.floor(whole[OUT]) - np.floor(before[ROW_OUT])
    # From cumulative counts to what happened in the interval.
    for column in range(ROW_IN, ROW_LATE_ITEMS + 1):
        row[column], before[column] = row[column] - before[column], row[column]
    for o in range(operators):
        for item in range(OP_ARRIVED, OP_LATE + 1):
            column = ROW_OPERATORS + ROW_PER_OPERATOR * o + item
            row[column], before[column] = row[column] - before[column], row[column]
    out, seen = int(row[ROW_OUT]), 0
    wanted = max(1.0, np.ceil(0.95 * out)) if out else np.inf
    row[ROW_P95_S] = np.nan
    for bucket in range(sketch.shape[1]):
        if seen >= fresh:  # the rest, usually half of them, is empty
            break
        count = sketch[operators + 1, bucket]
        if count > 0:
            sketch[operators, bucket] += count
            sketch[operators + 1, bucket] = 0
            if seen < wanted <= seen + count:
                row[ROW_P95_S] = bucket_middle(bucket)
            seen += count


@numba.njit(cache=True)
def _count_hosts(
    now: float, span: float, load: Floats, hosts: Floats, row: Floats, whole: Floats
) -> None:
    lowest, highest, total = np.inf, 0.0, 0.0
    for h in range(len(load)):
        if hosts[h, UNTIL_S] >= now:
            row[ROW_HOSTS] += 1.0
            if hosts[h, FROM_S] < now:
                # A host that came up during the interval was there for a part of it.
                there = min(span, now - hosts[h, FROM_S])
                share = load[h] / (hosts[h, HOST_CORES] * there)
                row[ROW_RUNNING] += 1.0
                lowest = min(lowest, share)
                highest = max(highest, share)
                total += share
    running = row[ROW_RUNNING]
    if running > 0:
        row[ROW_LOAD_MIN] = lowest
        row[ROW_LOAD_MEAN] = total / running
        row[ROW_LOAD_MAX] = highest
        whole[LOAD_MIN] = min(whole[LOAD_MIN], lowest)
        whole[LOAD_SUM] += total
        whole[LOAD_MAX] = max(whole[LOAD_MAX], highest)
        whole[LOAD_COUNT] += running
    else:
        row[ROW_LOAD_MIN] = row[ROW_LOAD_MEAN] = row[ROW_LOAD_MAX] = np.nan
