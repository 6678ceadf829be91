"""Shared by the kernels: draw a service time, count departures, measure hosts.

Functions take many items at once. Loops stand in place of slices and of NumPy's functions, which
take long to compile.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.random import exponential, normal, uniform
from tidegate.simulation.kernels.sketch import TOGETHER, bucket_middle, bucket_of
from tidegate.simulation.kernels.state import Floats, Ints, Network
from tidegate.theory.compiled import compiled

__all__ = [
    "count_departures",
    "end_interval",
    "finish_roots",
    "line_up",
    "service_time",
    "set_slow_down",
]


@compiled(inline="always")
def service_time(
    kind: int,
    mean_s: float,
    log_mean: float,
    log_sigma: float,
    samples: Floats,
    first: int,
    count: int,
    state: np.uint64,
) -> tuple[float, np.uint64]:
    """Draw a service time at random; returns it and the state of the stream after it.

    Args:
        kind: The distribution, such as `state.EXPONENTIAL`.
        mean_s: Its mean, in seconds.
        log_mean: Mean of the logarithm, for the lognormal distribution.
        log_sigma: Standard deviation of the logarithm, for the lognormal distribution.
        samples: Values that the empirical distribution draws from.
        first: Position of its first sample.
        count: Number of its samples.
        state: State of the random stream.
    """
    if kind == at.EXPONENTIAL:
        draw, state = exponential(state)
        return mean_s * draw, state
    if kind == at.DETERMINISTIC:
        return mean_s, state
    if kind == at.LOGNORMAL:
        draw, state = normal(state)
        return math.exp(log_mean + log_sigma * draw), state
    draw, state = uniform(state)
    return samples[first + int(draw * count)], state


@compiled(inside=True)
def line_up(net: Network, o: int) -> None:
    """Sort the servers of an operator by the time when they are free.

    Ties are in the order in which servers began, so the result does not depend on when this runs.
    """
    slot_f, slot_i, line_time, line_slot = net.slot_f, net.slot_i, net.line_time, net.line_slot
    count = 0
    for slot in range(slot_f.shape[2]):
        if slot_i[o, at.ALIVE, slot] == at.NO_SERVER:
            continue
        free = slot_f[o, at.FREE_S, slot]
        place = count
        turn = slot_i[o, at.TURN, slot]
        while place > 0 and (
            line_time[o, place - 1] > free
            or (
                line_time[o, place - 1] == free
                and slot_i[o, at.TURN, line_slot[o, place - 1]] > turn
            )
        ):
            line_time[o, place] = line_time[o, place - 1]
            line_slot[o, place] = line_slot[o, place - 1]
            place -= 1
        line_time[o, place], line_slot[o, place] = free, slot
        count += 1
    net.ops_i[o, at.LINE_FIRST], net.ops_i[o, at.LINE_COUNT] = 0, count


@compiled(inside=True)
def count_departures(
    net: Network, o: int, count: int, left_s: Floats, arrived_s: Floats, started_s: Floats
) -> None:
    """Count the items that leave an operator after waiting and service.

    Several short loops take less time than one that does all for an item: the first is vectorised,
    and what few items need stands apart.

    Args:
        net: State of the network.
        o: The operator.
        count: Number of items.
        left_s: When each left.
        arrived_s: When each arrived; becomes the time that it took.
        started_s: When its service started.
    """
    tally, recent, sketch, slo_s = (
        net.tally[o],
        net.recent[o],
        net.sketch[o],
        net.ops_f[o, at.SLO_S],
    )
    quantise, late = net.whole[at.QUANTISE] > 0.0, 0
    durations = arrived_s
    for i in range(count):
        sent = math.floor(arrived_s[i]) if quantise else arrived_s[i]
        duration = left_s[i] - sent
        durations[i] = duration
        late += duration > slo_s
    total_s = 0.0
    for i in range(count):
        total_s += durations[i]
        sketch[bucket_of(durations[i])] += 1
    tally[at.DURATION_S] += total_s
    tally[at.LATE_1] += late
    if late > 0 or tally[at.LATE_SINCE_S] >= 0.0:
        _count_late(net, o, count, left_s, durations)
    done, every = tally[at.PROCESSED], net.whole[at.SAMPLE_EVERY]
    tally[at.PROCESSED] += count
    while (tally[at.SAMPLES] + 1.0) * every <= tally[at.PROCESSED]:
        i = math.ceil((tally[at.SAMPLES] + 1.0) * every - done) - 1
        service_s = left_s[i] - started_s[i]
        recent[int(tally[at.SAMPLES]) % at.RECENT] = durations[i]
        tally[at.SAMPLES] += 1.0
        tally[at.SERVICE_S] += service_s
        tally[at.SERVICE_SQUARE] += service_s * service_s


@compiled(inside=True)
def _count_late(net: Network, o: int, count: int, left_s: Floats, durations: Floats) -> None:
    """Count items beyond two and five times the SLO, and how long it takes to adapt to a delay."""
    tally, slo_s = net.tally[o], net.ops_f[o, at.SLO_S]
    later, latest = 0, 0
    since_s, last_late_s = tally[at.LATE_SINCE_S], tally[at.LAST_LATE_S]
    for i in range(count):
        duration = durations[i]
        if duration > slo_s:
            if duration > 2.0 * slo_s:
                later += 1
                if duration > 5.0 * slo_s:
                    latest += 1
                    last_late_s = left_s[i]
                    if since_s < 0.0:
                        since_s = left_s[i]
        elif since_s >= 0.0:
            # Adapted: the first item within the SLO after some beyond five times the SLO.
            tally[at.ADAPTED] += 1.0
            tally[at.ADAPT_S] += left_s[i] - last_late_s
            tally[at.EPISODE_S] += left_s[i] - since_s
            since_s = -1.0
    tally[at.LATE_2] += later
    tally[at.LATE_5] += latest
    tally[at.LATE_SINCE_S], tally[at.LAST_LATE_S] = since_s, last_late_s


@compiled(inside=True)
def finish_roots(net: Network, count: int, roots: Ints, parts: int) -> None:
    """Count source items of which nothing is left: done, or spoilt if a part was dropped.

    roots: the roots to look at. count: how many. parts: NONE or ONE part of each was processed at
    the times in `out_f` and has not been subtracted yet.
    """
    root_s, root_n, root_free, whole = net.root_s, net.root_n, net.root_free, net.whole
    left_s = net.out_f[at.OUT_LEFT_S]
    interval = net.sketch[len(net.sketch) - 1]
    free = root_free[len(root_free) - 1]
    total_s, longest = 0.0, whole[at.SOJOURN_MAX_S]
    out, late, spoilt, slo_s = 0, 0, 0, whole[at.E2E_SLO_S]
    for i in range(count):
        root = roots[i]
        if parts > 0:  # one at a time: a root may occur more than once
            root_n[root, at.LIVE] -= parts
            root_s[root, at.LAST] = max(root_s[root, at.LAST], left_s[i])
        if root_n[root, at.LIVE] != 0:
            continue
        root_n[root, at.LIVE] = -1  # only once, even if it is listed twice
        root_free[free] = root
        free += 1
        if root_n[root, at.SPOILED] != 0:
            spoilt += 1
            continue
        sojourn = root_s[root, at.LAST] - root_s[root, at.BIRTH]
        out += 1
        total_s += sojourn
        longest = max(longest, sojourn)
        if sojourn > slo_s:
            late += 1
        interval[bucket_of(sojourn)] += 1
    root_free[len(root_free) - 1] = free
    whole[at.SPOILT] += spoilt
    whole[at.OUT] += out
    whole[at.LATE] += late
    whole[at.SOJOURN_S] += total_s
    whole[at.SOJOURN_MAX_S] = longest


@compiled(inside=True)
def _load(net: Network, now: float, mark: int, weight: int, load: Floats) -> None:
    """Add up what the instances on each host used since a mark.

    Args:
        net: State of the network.
        now: Current time, in seconds.
        mark: Which mark holds the use so far; it is moved to now.
        weight: Which resource, a column of `ops_f`.
        load: Use by host.
    """
    ops_f, slot_f, slot_i = net.ops_f, net.slot_f, net.slot_i
    for h in range(len(load)):
        load[h] = 0.0
    for o in range(len(slot_f)):
        for s in range(slot_f.shape[2]):
            if slot_i[o, at.ALIVE, s] != at.NO_SERVER:
                busy = slot_f[o, at.BUSY_S, s]
                # Service is counted when it starts: subtract what is still to come.
                if slot_i[o, at.ROOT, s] >= 0 and slot_f[o, at.FREE_S, s] > now:
                    busy -= slot_f[o, at.FREE_S, s] - now
                load[slot_i[o, at.HOST, s]] += (busy - slot_f[o, mark, s]) * ops_f[o, weight]
                if weight == at.CORES:
                    slot_f[o, mark, s] = busy


@compiled(inside=True)
def set_slow_down(net: Network, now: float) -> None:
    """Slow each host down by the ratio of recent demand to capacity."""
    hosts, whole, slot_f, slot_i = net.hosts, net.whole, net.slot_f, net.slot_i
    cores, mbps = net.host_load[0], net.host_load[1]
    span = now - whole[at.LAST_CONTENTION]
    whole[at.LAST_CONTENTION] = now
    whole[at.NEXT_CONTENTION] = now + whole[at.CONTENTION_S]
    _load(net, now, at.MARK_S, at.MBPS, mbps)
    _load(net, now, at.MARK_S, at.CORES, cores)
    if span <= 0.0:
        return
    for h in range(len(cores)):
        slow = max(1.0, cores[h] / span / hosts[h, at.HOST_CORES])
        if hosts[h, at.HOST_MBPS] > 0.0:
            slow = max(slow, mbps[h] / span / hosts[h, at.HOST_MBPS])
        hosts[h, at.SLOW] = slow
    for o in range(len(slot_f)):
        for s in range(slot_f.shape[2]):
            slot_f[o, at.PACE, s] = hosts[slot_i[o, at.HOST, s], at.SLOW]


@compiled
def end_interval(net: Network, now: float, row: Floats) -> None:
    """Write the row of the time series for the monitoring interval that ends now."""
    ends, slot_f, slot_i, tally = net.ends, net.slot_f, net.slot_i, net.tally
    whole, sketch, before = net.whole, net.sketch, net.before
    operators = len(tally)
    span = now - whole[at.LAST_MONITOR]
    whole[at.LAST_MONITOR] = now
    whole[at.NEXT_MONITOR] += whole[at.MONITOR_S]
    for column in range(len(row)):
        row[column] = 0.0
    row[at.ROW_TIME] = now
    row[at.ROW_IN] = whole[at.IN]
    row[at.ROW_OUT] = whole[at.OUT]
    row[at.ROW_DROPPED] = whole[at.SHED] + whole[at.SPOILT]
    row[at.ROW_SOJOURN_S] = whole[at.SOJOURN_S]
    row[at.ROW_LATE] = whole[at.LATE]
    for o in range(operators):
        column = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * o
        row[column + at.OP_QUEUE] = ends[o, at.TAIL] - ends[o, at.HEAD]
        row[column + at.OP_ARRIVED] = tally[o, at.ARRIVED]
        row[column + at.OP_PROCESSED] = tally[o, at.PROCESSED]
        row[column + at.OP_LATE] = tally[o, at.LATE_1]
        row[at.ROW_PROCESSED] += tally[o, at.PROCESSED]
        row[at.ROW_LATE_ITEMS] += tally[o, at.LATE_1]
        for s in range(slot_f.shape[2]):
            starting = slot_i[o, at.ROOT, s] < 0 and slot_f[o, at.FREE_S, s] > now
            if slot_i[o, at.ALIVE, s] == at.SERVING and not starting:
                row[column + at.OP_INSTANCES] += 1.0
    _load(net, now, at.MONITOR_MARK_S, at.CORES, net.host_load[0])
    _count_hosts(net, now, span, row)
    fresh = math.floor(whole[at.OUT]) - math.floor(before[at.ROW_OUT])
    # From cumulative counts to those of the interval.
    for column in range(at.ROW_IN, at.ROW_LATE_ITEMS + 1):
        row[column], before[column] = row[column] - before[column], row[column]
    for o in range(operators):
        for item in range(at.OP_ARRIVED, at.OP_LATE + 1):
            column = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * o + item
            row[column], before[column] = row[column] - before[column], row[column]
    out, seen = int(row[at.ROW_OUT]), 0
    wanted = max(1.0, float(math.ceil(0.95 * out))) if out else np.inf
    row[at.ROW_P95_S] = np.nan
    for first in range(0, sketch.shape[1], TOGETHER):
        if seen >= fresh:  # the remaining buckets, usually half of them, are empty
            break
        filled = 0
        for bucket in range(first, first + TOGETHER):
            filled |= sketch[operators + 1, bucket]
        if filled == 0:
            continue
        for bucket in range(first, first + TOGETHER):
            count = sketch[operators + 1, bucket]
            if count > 0 and seen < fresh:
                sketch[operators, bucket] += count
                sketch[operators + 1, bucket] = 0
                if seen < wanted <= seen + count:
                    row[at.ROW_P95_S] = bucket_middle(bucket)
                seen += count


@compiled(inside=True)
def _count_hosts(net: Network, now: float, span: float, row: Floats) -> None:
    """Count the hosts of an interval and their load, which stands in `host_load`."""
    load, hosts, whole = net.host_load[0], net.hosts, net.whole
    lowest, highest, total = np.inf, 0.0, 0.0
    for h in range(len(load)):
        if hosts[h, at.UNTIL_S] >= now:
            row[at.ROW_HOSTS] += 1.0
            if hosts[h, at.FROM_S] < now:
                # A host that started during the interval was up for a part of it.
                there = min(span, now - hosts[h, at.FROM_S])
                share = load[h] / (hosts[h, at.HOST_CORES] * there)
                row[at.ROW_RUNNING] += 1.0
                lowest = min(lowest, share)
                highest = max(highest, share)
                total += share
    running = row[at.ROW_RUNNING]
    if running > 0:
        row[at.ROW_LOAD_MIN] = lowest
        row[at.ROW_LOAD_MEAN] = total / running
        row[at.ROW_LOAD_MAX] = highest
        whole[at.LOAD_MIN] = min(whole[at.LOAD_MIN], lowest)
        whole[at.LOAD_SUM] += total
        whole[at.LOAD_MAX] = max(whole[at.LOAD_MAX], highest)
        whole[at.LOAD_COUNT] += running
    else:
        row[at.ROW_LOAD_MIN] = row[at.ROW_LOAD_MEAN] = row[at.ROW_LOAD_MAX] = np.nan
