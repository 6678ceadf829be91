"""What both kernels do alike: draw a service time, book a departure, measure the hosts."""

from __future__ import annotations

import math

import numba
import numpy as np

from tidegate.simulation.lots import exponential, normal, uniform
from tidegate.simulation.sketch import bucket_of, quantile_of
from tidegate.simulation.state import (
    ADAPT_S,
    ADAPTED,
    ARRIVED,
    DETERMINISTIC,
    DURATION_S,
    EPISODE_S,
    EXPONENTIAL,
    IN,
    KNOB_CONTENTION_S,
    KNOB_MONITOR_S,
    LAST_CONTENTION,
    LAST_LATE_S,
    LAST_MONITOR,
    LATE,
    LATE_1,
    LATE_2,
    LATE_5,
    LATE_ALL,
    LATE_SINCE_S,
    LOGNORMAL,
    NEXT_CONTENTION,
    NEXT_MONITOR,
    NO_SERVER,
    OP_ARRIVED,
    OP_INSTANCES,
    OP_LATE,
    OP_PROCESSED,
    OP_QUEUE,
    OUT,
    PROCESSED,
    PROCESSED_ALL,
    RECENT,
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
    SOJOURN_MAX_S,
    SOJOURN_S,
    SPOILT,
    Floats,
    Ints,
    Network,
    Shorts,
    Words,
)

__all__ = ["book_duration", "draw_service", "end_interval", "finish_root", "set_slow_down"]


@numba.njit(cache=True)
def draw_service(
    kind: int,
    mean_s: float,
    log_mean: float,
    log_sigma: float,
    samples: Floats,
    lots: Words,
    which: int,
) -> float:
    """One service time in seconds."""
    if kind == EXPONENTIAL:
        return mean_s * exponential(lots, which)
    if kind == DETERMINISTIC:
        return mean_s
    if kind == LOGNORMAL:
        return math.exp(log_mean + log_sigma * normal(lots, which))
    return float(samples[int(uniform(lots, which) * len(samples))])


@numba.njit(cache=True)
def book_duration(
    tally: Floats,
    recent: Floats,
    sketch: Ints,
    slo_s: float,
    every: float,
    arrived_s: float,
    left_s: float,
    service_s: float,
) -> None:
    """Book an item that leaves an operator after waiting and service.

    tally, recent, sketch: the operator's rows; arrived_s: as the sender's clock shows it.
    """
    duration = left_s - arrived_s
    done = tally[PROCESSED] + 1.0
    tally[PROCESSED] = done
    tally[DURATION_S] += duration
    sketch[bucket_of(duration)] += 1
    if duration > slo_s:
        tally[LATE_1] += 1.0
        if duration > 2.0 * slo_s:
            tally[LATE_2] += 1.0
            if duration > 5.0 * slo_s:
                tally[LATE_5] += 1.0
                tally[LAST_LATE_S] = left_s
                if tally[LATE_SINCE_S] < 0.0:
                    tally[LATE_SINCE_S] = left_s
    elif tally[LATE_SINCE_S] >= 0.0:
        # Adapted: the first item in time after some that took more than five times the SLO.
        tally[ADAPTED] += 1.0
        tally[ADAPT_S] += left_s - tally[LAST_LATE_S]
        tally[EPISODE_S] += left_s - tally[LATE_SINCE_S]
        tally[LATE_SINCE_S] = -1.0
    if done % every == 0.0:
        recent[int(tally[SAMPLES]) % RECENT] = duration
        tally[SAMPLES] += 1.0
        tally[SERVICE_S] += service_s
        tally[SERVICE_SQUARE] += service_s * service_s


@numba.njit(cache=True)
def finish_root(
    root: int,
    root_birth: Floats,
    root_last: Floats,
    root_spoilt: Shorts,
    root_free: Shorts,
    root_count: Ints,
    total: Floats,
    sketch: Ints,
    slo_s: float,
) -> None:
    """Nothing is left of a source item: it is done, or spoilt when a part of it was dropped."""
    root_free[root_count[0]] = root
    root_count[0] += 1
    if root_spoilt[root]:
        total[SPOILT] += 1.0
        return
    sojourn = root_last[root] - root_birth[root]
    total[OUT] += 1.0
    total[SOJOURN_S] += sojourn
    if sojourn > total[SOJOURN_MAX_S]:
        total[SOJOURN_MAX_S] = sojourn
    if sojourn > slo_s:
        total[LATE] += 1.0
    sketch[bucket_of(sojourn)] += 1


@numba.njit(cache=True)
def _busy_by(net: Network, operator: int, slot: int, now: float) -> float:
    """Seconds that a slot has worked until now; service is booked when it begins."""
    busy = net.slot_busy[operator, slot]
    if net.slot_root[operator, slot] >= 0 and net.slot_free[operator, slot] > now:
        busy -= net.slot_free[operator, slot] - now
    return float(busy)


@numba.njit(cache=True)
def set_slow_down(net: Network, now: float) -> None:
    """Slow each host down by the ratio of what its instances wanted lately to what it has."""
    span = now - net.clock[LAST_CONTENTION]
    net.clock[LAST_CONTENTION] = now
    net.clock[NEXT_CONTENTION] = now + net.knobs[KNOB_CONTENTION_S]
    if span <= 0.0:
        return
    cores = np.zeros(len(net.host_slow))
    mbps = np.zeros(len(net.host_slow))
    for o in range(len(net.kind)):
        for s in range(net.slot_free.shape[1]):
            if net.slot_alive[o, s] != NO_SERVER:
                busy = _busy_by(net, o, s, now)
                share = (busy - net.slot_mark[o, s]) / span
                net.slot_mark[o, s] = busy
                cores[net.slot_host[o, s]] += share * net.cores[o]
                mbps[net.slot_host[o, s]] += share * net.mbps[o]
    for h in range(len(cores)):
        slow = max(1.0, cores[h] / net.host_cores[h])
        if net.host_mbps[h] > 0.0:
            slow = max(slow, mbps[h] / net.host_mbps[h])
        net.host_slow[h] = slow


@numba.njit(cache=True)
def end_interval(net: Network, now: float, row: Floats, before: Floats) -> None:
    """Write the row of the time series for the monitoring interval that ends now.

    before: cumulative counts when it began, in the layout of a row; brought up to date.
    """
    operators = len(net.kind)
    span = now - net.clock[LAST_MONITOR]
    net.clock[LAST_MONITOR] = now
    net.clock[NEXT_MONITOR] += net.knobs[KNOB_MONITOR_S]
    row[:] = 0.0
    row[ROW_TIME] = now
    load = np.zeros(len(net.host_slow))
    dropped = net.total[SHED] + net.total[SPOILT]
    processed = 0.0
    late = 0.0
    for o in range(operators):
        column = ROW_OPERATORS + ROW_PER_OPERATOR * o
        row[column + OP_QUEUE] = net.lane_tail[o] - net.lane_head[o]
        row[column + OP_ARRIVED] = net.tally[o, ARRIVED]
        row[column + OP_PROCESSED] = net.tally[o, PROCESSED]
        row[column + OP_LATE] = net.tally[o, LATE_1]
        processed += net.tally[o, PROCESSED]
        late += net.tally[o, LATE_1]
        for s in range(net.slot_free.shape[1]):
            if net.slot_alive[o, s] != NO_SERVER:
                busy = _busy_by(net, o, s, now)
                load[net.slot_host[o, s]] += (busy - net.slot_mark_monitor[o, s]) * net.cores[o]
                net.slot_mark_monitor[o, s] = busy
                idle_until = net.slot_root[o, s] < 0 and net.slot_free[o, s] > now
                if net.slot_alive[o, s] == SERVING and not idle_until:
                    row[column + OP_INSTANCES] += 1.0
    net.total[PROCESSED_ALL] = processed
    net.total[LATE_ALL] = late
    row[ROW_IN] = net.total[IN]
    row[ROW_OUT] = net.total[OUT]
    row[ROW_DROPPED] = dropped
    row[ROW_SOJOURN_S] = net.total[SOJOURN_S]
    row[ROW_LATE] = net.total[LATE]
    row[ROW_PROCESSED] = processed
    row[ROW_LATE_ITEMS] = late
    _count_hosts(net, now, span, load, row)
    _difference(row, before, operators)
    interval, whole = net.sketch[operators + 1], net.sketch[operators]
    row[ROW_P95_S] = quantile_of(interval, int(interval.sum()), 0.95)
    whole += interval
    interval[:] = 0


@numba.njit(cache=True)
def _count_hosts(net: Network, now: float, span: float, load: Floats, row: Floats) -> None:
    lowest, highest, total = np.inf, 0.0, 0.0
    for h in range(len(load)):
        if net.host_until[h] >= now:
            row[ROW_HOSTS] += 1.0
            if net.host_from[h] < now:
                # A host that came up during the interval was there for a part of it.
                there = min(span, now - net.host_from[h])
                share = load[h] / (net.host_cores[h] * there)
                row[ROW_RUNNING] += 1.0
                lowest = min(lowest, share)
                highest = max(highest, share)
                total += share
    running = row[ROW_RUNNING]
    if running > 0:
        row[ROW_LOAD_MIN] = lowest
        row[ROW_LOAD_MEAN] = total / running
        row[ROW_LOAD_MAX] = highest
        net.load_books[0] = min(net.load_books[0], lowest)
        net.load_books[1] += total
        net.load_books[2] = max(net.load_books[2], highest)
        net.load_books[3] += running
    else:
        row[ROW_LOAD_MIN] = row[ROW_LOAD_MEAN] = row[ROW_LOAD_MAX] = np.nan


@numba.njit(cache=True)
def _difference(row: Floats, before: Floats, operators: int) -> None:
    """Turn cumulative counts into what happened in the interval."""
    for column in range(ROW_IN, ROW_SOJOURN_S + 1):
        row[column], before[column] = row[column] - before[column], row[column]
    for column in range(ROW_LATE, ROW_LATE_ITEMS + 1):
        row[column], before[column] = row[column] - before[column], row[column]
    for o in range(operators):
        for item in range(OP_ARRIVED, OP_LATE + 1):
            column = ROW_OPERATORS + ROW_PER_OPERATOR * o + item
            row[column], before[column] = row[column] - before[column], row[column]
