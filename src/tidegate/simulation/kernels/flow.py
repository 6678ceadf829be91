"""The kernel of the fluid world; `tidegate.simulation.fluid` describes its assumptions."""

from __future__ import annotations

import math

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import end_interval, set_slow_down
from tidegate.simulation.kernels.sketch import bucket_of
from tidegate.simulation.kernels.state import Floats, Ints, Network
from tidegate.theory.compiled import compiled

__all__ = ["run_fluid"]

MEMORY_S = 30.0
POINTS = 8
"""Points of the distribution over which the items of a step spread in the sketches."""
_LOGS = np.array([math.log1p(-(point + 0.5) / POINTS) for point in range(POINTS)])


@compiled(inline="always")
def _mean_wait(servers: float, load: float, scv: float, mean_s: float) -> float:
    """Mean wait of M/G/k below capacity, by Erlang C and Allen–Cunneen."""
    whole = max(1, int(servers))
    load = min(whole * 0.999, load)
    blocking = 1.0
    for k in range(1, whole + 1):
        blocking = load * blocking / (k + load * blocking)
    waits = blocking / (1 - load / whole * (1 - blocking))
    return waits * mean_s / (whole - load) * (1 + scv) / 2


@compiled(inline="always")
def _beyond(limit: float, base: float, spread: float) -> float:
    """Share of times beyond a limit; times are `base` plus an exponential of mean `spread`."""
    if limit <= base:
        return 1.0
    # Where exp underflows to zero, the C library is slow.
    if limit - base > 746.0 * spread:
        return 0.0
    return math.exp(-(limit - base) / spread)


@compiled(error_model="numpy")
def run_fluid(
    net: Network,
    queue: Floats,
    usual: Floats,
    scv: Floats,
    visits: Floats,
    rates: Floats,
    start_s: float,
    step_s: float,
    end_s: float,
    shed_fraction: float,
    rows: Floats,
) -> int:
    """Simulate the flow until `end_s`; returns the number of rows of the time series it filled.

    In each step, all sources send their items, the operators serve what they can in topological
    order, and the longest branch gives the time from end to end. Two things are passed over, and no
    bit of the result changes. A source that sends nothing would only add zeros. An operator that
    only sources feed, with nothing to do in a step, keeps just its usual rate up to date: no item
    of the step takes a path through it, so its duration, which stays that of an earlier step, has
    the weight zero.

    Args:
        net: State of the network.
        queue: Items waiting, by operator.
        usual: Recent arrival rate by operator, for random waiting; one second's rate is too noisy.
        scv: Squared coefficient of variation of service times, by operator.
        visits: Items at each operator for an item of any source.
        rates: Items per second by source and step.
        start_s: Start of the first step, in seconds.
        step_s: Length of a step, in seconds.
        end_s: End of the simulation, in seconds.
        shed_fraction: Share of the inflow to shed.
        rows: Filled with the time series.
    """
    order, edge_start, edges, edge_part = net.order, net.edge_start, net.edges, net.edge_part
    ops_f, ops_i, ends, slot_f, slot_i = net.ops_f, net.ops_i, net.ends, net.slot_f, net.slot_i
    tally, whole, recent, sketch = net.tally, net.whole, net.recent, net.sketch
    operators, slots = len(ops_i), slot_f.shape[2]
    sources = len(rates)
    looped = len(order) == 0
    inflow = np.zeros(operators)
    outflow = np.zeros(operators)
    duration = np.zeros(operators)
    variance = np.zeros(operators)
    path, path_variance = np.zeros(operators + sources), np.zeros(operators + sources)
    behind = np.zeros(operators + sources)
    # The serving instances do not change in a call. All of them serve from `all_up_s` on, and the
    # capacity is then constant as long as no host slows down.
    serving, count = np.empty((operators, slots), np.int64), np.zeros(operators, np.int64)
    all_up_s, full = np.empty(operators), np.empty(operators)
    # Operators that only sources feed.
    by_sources = np.ones(operators, np.bool_)
    for o in range(operators):
        for e in range(edge_start[o], edge_start[o + 1]):
            by_sources[edges[e, at.TARGET]] = False
    for o in range(operators):
        all_up_s[o], full[o] = -np.inf, -1.0
        for s in range(slots):
            if slot_i[o, at.ALIVE, s] == at.SERVING:
                serving[o, count[o]] = s
                count[o] += 1
                all_up_s[o] = max(all_up_s[o], slot_f[o, at.FREE_S, s])
    filled = 0
    while whole[at.NOW] < end_s:
        now = whole[at.NOW]
        column = min(int((now - start_s) / step_s + 1e-9), rates.shape[1] - 1)
        stop = min(end_s, whole[at.NEXT_MONITOR], whole[at.NEXT_CONTENTION])
        stop = min(stop, max(start_s + (column + 1) * step_s, now + 1e-9))
        dt = stop - now
        faded = min(1.0, dt / MEMORY_S)
        came = 0.0
        for o in range(operators):
            inflow[o] = 0.0
        for s in range(sources):
            if rates[s, column] == 0.0:
                continue
            items = rates[s, column] * dt
            whole[at.IN] += items
            whole[at.SHED] += items * shed_fraction
            came += items * (1 - shed_fraction)
            for e in range(edge_start[operators + s], edge_start[operators + s + 1]):
                ratio = edges[e, at.WHOLE] + edge_part[e]
                inflow[edges[e, at.TARGET]] += items * (1 - shed_fraction) * ratio
        if looped:  # the output of the previous step arrives now
            for o in range(operators):
                for e in range(edge_start[o], edge_start[o + 1]):
                    inflow[edges[e, at.TARGET]] += outflow[o] * (edges[e, at.WHOLE] + edge_part[e])
        for rank in range(operators):
            o = rank if looped else order[rank]
            if usual[o] < 0.0:
                usual[o] = inflow[o] / dt
            usual[o] += (inflow[o] / dt - usual[o]) * faded
            if inflow[o] == 0.0 and queue[o] == 0.0 and by_sources[o] and not looped:
                outflow[o] = 0.0
                continue
            servers = full[o]
            if servers < 0.0:
                servers = 0.0
                for place in range(count[o]):
                    s = serving[o, place]
                    if slot_f[o, at.FREE_S, s] < stop:
                        there = (stop - max(now, slot_f[o, at.FREE_S, s])) / dt
                        servers += there / slot_f[o, at.PACE, s]
                if all_up_s[o] <= now:
                    full[o] = servers
            mean_s = ops_f[o, at.MEAN_S]
            capacity = servers / mean_s * dt
            served = min(queue[o] + inflow[o], capacity)
            left = queue[o] + inflow[o] - served
            lost = 0.0
            if ops_i[o, at.LIMIT] > 0 and left > ops_i[o, at.LIMIT]:
                lost = left - ops_i[o, at.LIMIT]
                left = ops_i[o, at.LIMIT]
            # Time of an item: backlog, random waiting, service.
            wait = chance = 0.0
            if capacity > 0.0:
                wait = (queue[o] + left) / 2 / capacity * dt
                if left < 1.0:
                    chance = _mean_wait(servers, usual[o] * mean_s, scv[o], mean_s)
            else:
                wait = dt if left > 0.0 else 0.0
            duration[o] = wait + chance + mean_s
            variance[o] = chance * chance + mean_s * mean_s * scv[o]
            queue[o] = left
            outflow[o] = served
            ends[o, at.HEAD], ends[o, at.TAIL] = 0, int(left + 0.5)
            row = tally[o]
            row[at.ARRIVED] += inflow[o]
            row[at.DROPPED] += lost
            if inflow[o] > 0.0:
                row[at.GAPS] += inflow[o]
                row[at.GAP_S] += dt
                row[at.GAP_SQUARE] += 2 * dt * dt / inflow[o]
            if lost > 0.0 and visits[o] > 0.0:
                whole[at.SPOILT] += min(lost / max(1.0, visits[o]), came)
            if not looped:
                for e in range(edge_start[o], edge_start[o + 1]):
                    inflow[edges[e, at.TARGET]] += served * (edges[e, at.WHOLE] + edge_part[e])
            _count_served(
                served, stop, duration[o], variance[o], mean_s, scv[o], ops_f[o, at.SLO_S],
                whole[at.SAMPLE_EVERY], row, recent[o], sketch[o],
            )  # fmt: skip
            share = served / capacity if capacity > 0.0 else 0.0
            for place in range(count[o] if share > 0.0 else 0):
                s = serving[o, place]
                if slot_f[o, at.FREE_S, s] < stop:
                    there = stop - max(now, slot_f[o, at.FREE_S, s])
                    slot_f[o, at.BUSY_S, s] += share * there
                    slot_f[o, at.STARTED_S, s] += share * there / slot_f[o, at.PACE, s] / mean_s
        # End to end: the longest branch; in a loop, all visits in sequence.
        total, total_variance, backlog = 0.0, 0.0, 0.0
        if looped:
            for o in range(operators):
                total += duration[o] * visits[o]
                total_variance += variance[o] * visits[o]
                backlog += queue[o] / max(visits[o], 1e-12)
        else:
            for rank in range(operators + sources):
                if rank < operators:
                    origin = order[operators - 1 - rank]
                    own, own_variance = duration[origin], variance[origin]
                    waits = 0.0
                    if queue[origin] > 0.0:
                        waits = queue[origin] / max(visits[origin], 1e-12)
                else:
                    origin, own, own_variance, waits = rank, 0.0, 0.0, 0.0
                longest, longest_variance, further = 0.0, 0.0, 0.0
                for e in range(edge_start[origin], edge_start[origin + 1]):
                    chance = min(1.0, edges[e, at.WHOLE] + edge_part[e])
                    target = edges[e, at.TARGET]
                    if chance * path[target] > longest:
                        longest = chance * path[target]
                        longest_variance = chance * path_variance[target]
                    further = max(further, behind[target])
                path[origin] = own + longest
                path_variance[origin] = own_variance + longest_variance
                behind[origin] = waits + further
            for s in range(sources):
                backlog = max(backlog, behind[operators + s])
                if came > 0 and rates[s, column] > 0.0:
                    weight = rates[s, column] * dt * (1 - shed_fraction) / came
                    total += weight * path[operators + s]
                    total_variance += weight * path_variance[operators + s]
        done = whole[at.IN] - whole[at.SHED] - whole[at.SPOILT] - backlog
        if done > whole[at.OUT]:
            _finish(done, total, total_variance, whole, sketch[operators + 1])
        whole[at.NOW] = stop
        if stop >= whole[at.NEXT_CONTENTION]:
            set_slow_down(net, stop)
            for o in range(operators):
                full[o] = -1.0
        if stop >= whole[at.NEXT_MONITOR]:
            end_interval(net, stop, rows[filled])
            filled += 1
    for o in range(operators):
        for place in range(count[o]):
            s = serving[o, place]
            slot_i[o, at.DONE, s] = int(slot_f[o, at.STARTED_S, s])
    return filled


@compiled(inline="always")
def _count_served(
    served: float,
    now: float,
    duration: float,
    variance: float,
    mean_s: float,
    scv: float,
    slo_s: float,
    every: float,
    row: Floats,
    recent: Floats,
    sketch: Ints,
) -> None:
    """Count what an operator served in a step.

    The parameters are figures of the step and the operator's rows of `Network`.
    """
    if served <= 0.0:
        return
    spread = min(math.sqrt(variance), duration)
    base = duration - spread
    count = int(row[at.PROCESSED] + served) - int(row[at.PROCESSED])
    row[at.PROCESSED] += served
    row[at.DURATION_S] += served * duration
    for point in range(POINTS if count else 0):
        value = base - spread * _LOGS[point]
        sketch[bucket_of(value)] += (count * (point + 1)) // POINTS - (count * point) // POINTS
    if slo_s < np.inf:
        row[at.LATE_1] += served * _beyond(slo_s, base, spread)
        row[at.LATE_2] += served * _beyond(2 * slo_s, base, spread)
        row[at.LATE_5] += served * _beyond(5 * slo_s, base, spread)
        if duration > 5 * slo_s:
            row[at.LAST_LATE_S] = now
            if row[at.LATE_SINCE_S] < 0.0:
                row[at.LATE_SINCE_S] = now
        elif duration <= slo_s and row[at.LATE_SINCE_S] >= 0.0:
            row[at.ADAPTED] += 1.0
            row[at.ADAPT_S] += now - row[at.LAST_LATE_S]
            row[at.EPISODE_S] += now - row[at.LATE_SINCE_S]
            row[at.LATE_SINCE_S] = -1.0
    fresh = int(row[at.PROCESSED] / every) - int(row[at.SAMPLES])
    if fresh > 0:
        for sample in range(min(fresh, at.RECENT)):
            recent[int(row[at.SAMPLES] + sample) % at.RECENT] = duration
        row[at.SAMPLES] += fresh
        row[at.SERVICE_S] += fresh * mean_s
        row[at.SERVICE_SQUARE] += fresh * mean_s * mean_s * (1 + scv)


@compiled(inline="always")
def _finish(done: float, mean: float, variance: float, whole: Floats, sketch: Ints) -> None:
    """Count source items of which nothing is left; done: their total so far."""
    fresh = done - whole[at.OUT]
    count = int(done) - int(whole[at.OUT])
    spread = min(math.sqrt(variance), mean)
    base = mean - spread
    whole[at.OUT] = done
    whole[at.SOJOURN_S] += fresh * mean
    whole[at.LATE] += fresh * _beyond(whole[at.E2E_SLO_S], base, spread)
    whole[at.SOJOURN_MAX_S] = max(whole[at.SOJOURN_MAX_S], mean)
    for point in range(POINTS if count else 0):
        value = base - spread * _LOGS[point]
        sketch[bucket_of(value)] += (count * (point + 1)) // POINTS - (count * point) // POINTS
