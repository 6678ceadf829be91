"""The kernel of the fluid world; `tidegate.simulation.fluid` describes its assumptions.

A service that begins at some time ends one service time later. So the items that have ended by a
moment are those that had begun by a service time before it, and both are numbers that grow over
time: `Flow` keeps how many items each operator had begun at the ends of the last steps, and reads
between them. Where service times vary, a quarter of the items takes each of four times. In a step,
as many items begin as wait and as there are servers for, those included that become free in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.accounting import end_interval, set_slow_down
from tidegate.simulation.kernels.sketch import bucket_of
from tidegate.simulation.kernels.state import Floats, Ints, Network
from tidegate.theory.arrays import Structure
from tidegate.theory.compiled import compiled

__all__ = ["Flow", "empty_flow", "run_fluid"]

MEMORY_S = 30.0
GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, without their whole parts, are spread evenly however many there are."""
NEARLY_FULL = 0.98
"""Load of the servers from which a queue of drawn items is taken for a backlog."""
POINTS = 8
"""Points of the distribution over which the items of a step spread in the sketches."""
NEGLIGIBLE = 40.0
"""Shares of exp(-40), 4e-18, and less are taken for zero, as to compute them takes time."""
MOST_STEPS = 4096
"""Steps for which it is kept what began in them; longer services end after about as many."""
_LOGS = np.array([math.log1p(-(point + 0.5) / POINTS) for point in range(POINTS)])


# Columns of `Flow.items`, and of `Flow.places`: the entry of the ring that was written last, and
# then, for each part of the items, the entry up to which they have ended.
BEGUN, ENDED, QUEUE, USUAL, SCV, VISITS = range(6)
LAST, PART = 0, 1


@dataclass(frozen=True, eq=False)
class Flow(Structure):
    """The state of a flow that a network of single items does not have.

    items: by operator, items that have begun and ended so far, items waiting, the usual rate of
    arrivals (one second's is too noisy for random waiting), the squared coefficient of variation
    of service times, and visits for an item of any source. origins: share of each source in the
    items that came last; those that end in a step may have come long before it. lags_s: service
    times by operator, each of an equal part of the items. past_s, past_begun: a ring of moments,
    and of the items that had begun by then. places: where each operator is in its ring.
    """

    items: Floats
    origins: Floats
    lags_s: Floats
    past_s: Floats
    past_begun: Floats
    places: Ints


def empty_flow(
    lags_s: Sequence[Sequence[float]],
    scv: Sequence[float],
    visits: Sequence[float],
    sources: int,
    step_s: float,
) -> Flow:
    """A flow without items.

    lags_s: service times by operator, each of an equal part of the items. scv: their squared
    coefficient of variation. visits: items at each operator for an item of any source. sources:
    number of sources. step_s: usual length of a step, in seconds.
    """
    operators = len(lags_s)
    # Hosts and measurements end steps early, so that there are more than the usual number.
    steps = 64 + 2 * min(MOST_STEPS, math.ceil(max(map(max, lags_s)) / step_s))
    ring = 1 << steps.bit_length()
    items = np.zeros((operators, 6))
    items[:, USUAL], items[:, SCV], items[:, VISITS] = -1.0, scv, visits
    return Flow(
        items,
        np.zeros(sources),
        np.array(lags_s, np.float64),
        np.zeros((operators, ring)),
        np.zeros((operators, ring)),
        np.zeros((operators, PART + len(lags_s[0])), np.int64),
    )


@compiled(inline="always")
def _mean_wait(servers: float, load: float, scv: float, mean_s: float) -> float:
    """Mean wait of M/G/k below capacity, by Erlang C and Allen–Cunneen.

    1 / B is the sum of n! / (n - j)! / load**j, j from 0 to n servers, in place of the recursion of
    Erlang's B, whose divisions wait for each other. All parts are positive, so that both differ by
    rounding alone.
    """
    if load <= 0.0:
        return 0.0
    whole = max(1, int(servers))
    load = min(whole * 0.999, load)
    each, part, inverse = 1.0 / load, 1.0, 1.0
    for k in range(whole, 0, -1):
        part *= k * each
        inverse += part
    blocking = 1.0 / inverse
    waits = blocking / (1 - load / whole * (1 - blocking))
    return waits * mean_s / (whole - load) * (1 + scv) / 2


@compiled(inside=True)
def _rest_of_wait(
    servers: float, load: float, scv: float, mean_s: float, dt: float, wait: float
) -> float:
    """Mean random wait that is not in the wait of the flow, where that gets the items of each step.

    Of the wait by random arrivals, a flow has all if services are longer than a step. Very short
    ones make a random walk, whose steps are the items that come less those that can be served. The
    mean of its maximum, next to that of a walk without steps, is a function of one number: the room
    for more items over the standard deviation of those that come (Spitzer's identity; the exponents
    are fitted to simulated walks). Of the wait by random services, a flow has nothing.

    A wait that chance does not explain is due to a backlog. No server is idle meanwhile, and so
    nothing is added.
    """
    if load >= NEARLY_FULL * servers:
        return 0.0
    whole = _mean_wait(servers, load, scv, mean_s)
    if wait > 3 * whole:
        return 0.0
    short = 1 - mean_s / dt
    missing = 0.0
    if short > 0.0 and load > 0.0:
        room = (servers - load) * math.sqrt(dt / (mean_s * load))
        steep = (1.05 + 0.21 * room) * room
        missing = short * (1 - math.exp(-steep)) if steep < NEGLIGIBLE else short
    return whole * (missing + scv) / (1 + scv)


@compiled(inside=True)
def _note(flow: Flow, o: int, moment: float, begun: float) -> None:
    """Write into the ring how many items have begun by a moment."""
    flow.places[o, LAST] += 1
    place = flow.places[o, LAST] & (flow.past_s.shape[1] - 1)
    flow.past_s[o, place] = moment
    flow.past_begun[o, place] = begun


@compiled(inside=True)
def _begun_by(flow: Flow, o: int, part: int, moment: float) -> float:
    """How many items had begun by a moment in the past, later than that of the last call."""
    past_s, past_begun, places = flow.past_s[o], flow.past_begun[o], flow.places[o]
    last, mask = places[LAST], len(past_s) - 1
    i = max(places[PART + part], last - mask)
    while i < last and past_s[(i + 1) & mask] <= moment:
        i += 1
    places[PART + part] = i
    before, after = i & mask, (i + 1) & mask
    begun: float = past_begun[before]
    if i < last and moment > past_s[before]:
        share = (moment - past_s[before]) / (past_s[after] - past_s[before])
        begun += share * (past_begun[after] - begun)
    return begun


@compiled(inside=True)
def _serve(
    flow: Flow, o: int, came: float, servers: float, now: float, stop: float
) -> tuple[float, float, float]:
    """Let items of an operator begin and end in a step.

    Returns how many wait at its end, how many ended, and the mean number in service.
    """
    items, lags_s = flow.items[o], flow.lags_s[o]
    dt, begun, ended = stop - now, items[BEGUN], items[ENDED]
    if flow.past_s[o, flow.places[o, LAST] & (flow.past_s.shape[1] - 1)] < now:
        _note(flow, o, now, begun)  # nothing began in the steps that were passed over
    # What ends by the end of the step: of the items that have begun, and the share of those that
    # begin in it.
    ends, share, parts = 0.0, 0.0, len(lags_s)
    if lags_s[0] == lags_s[parts - 1]:
        parts = 1
    for part in range(parts):
        moment = stop - lags_s[part]
        if moment >= now:
            ends += begun
            share += (moment - now) / dt
        else:
            ends += _begun_by(flow, o, part, moment)
    if parts > 1:
        ends /= parts
        share /= parts
    room = max(0.0, servers - (begun - ends)) / (1.0 - share)
    began = min(items[QUEUE] + came, room)
    left = ends + share * began - ended
    items[BEGUN] += began
    items[ENDED] += left
    _note(flow, o, stop, items[BEGUN])
    work = (begun - ended + items[BEGUN] - items[ENDED]) / 2
    return items[QUEUE] + came - began, left, work


@compiled(inline="always")
def _beyond(limit: float, base: float, spread: float) -> float:
    """Share of times beyond a limit; times are `base` plus an exponential of mean `spread`."""
    if limit <= base:
        return 1.0
    if limit - base > NEGLIGIBLE * spread:
        return 0.0
    return math.exp(-(limit - base) / spread)


@compiled(error_model="numpy")
def run_fluid(
    net: Network,
    flow: Flow,
    rates: Floats,
    drawn: bool,
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
    only sources feed, with nothing to do in a step, keeps just its usual rate up to date, and an
    item would take its service time in it.

    Args:
        net: State of the network.
        flow: State of the flow.
        rates: Items per second by source and step.
        drawn: Whether these are of single items, and so vary at random from step to step.
        start_s: Start of the first step, in seconds.
        step_s: Length of a step, in seconds.
        end_s: End of the simulation, in seconds.
        shed_fraction: Share of the inflow to shed.
        rows: Filled with the time series.
    """
    order, edge_start, edges, edge_part = net.order, net.edge_start, net.edges, net.edge_part
    ops_f, ops_i, ends, slot_f, slot_i = net.ops_f, net.ops_i, net.ends, net.slot_f, net.slot_i
    tally, whole, recent, sketch = net.tally, net.whole, net.recent, net.sketch
    items, origins = flow.items, flow.origins
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
    pace = np.empty(operators)
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
        for s in range(sources):
            if rates[s, column] == 0.0:
                continue
            coming = rates[s, column] * dt
            whole[at.IN] += coming
            whole[at.SHED] += coming * shed_fraction
            came += coming * (1 - shed_fraction)
            for e in range(edge_start[operators + s], edge_start[operators + s + 1]):
                ratio = edges[e, at.WHOLE] + edge_part[e]
                inflow[edges[e, at.TARGET]] += coming * (1 - shed_fraction) * ratio
        if looped:  # the output of the previous step arrives now
            for o in range(operators):
                for e in range(edge_start[o], edge_start[o + 1]):
                    inflow[edges[e, at.TARGET]] += outflow[o] * (edges[e, at.WHOLE] + edge_part[e])
        for rank in range(operators):
            o = rank if looped else order[rank]
            mine, arrived = items[o], inflow[o]
            inflow[o] = 0.0  # for the next step
            if mine[USUAL] < 0.0:
                mine[USUAL] = arrived / dt
            mine[USUAL] += (arrived / dt - mine[USUAL]) * faded
            idle = arrived == 0.0 and mine[QUEUE] == 0.0 and mine[BEGUN] == mine[ENDED]
            if idle and by_sources[o] and not looped:
                outflow[o] = 0.0
                duration[o] = ops_f[o, at.MEAN_S]
                variance[o] = ops_f[o, at.MEAN_S] * ops_f[o, at.MEAN_S] * mine[SCV]
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
                    full[o], pace[o] = servers, 1.0
                    for place in range(count[o]):
                        if slot_f[o, at.PACE, serving[o, place]] != 1.0:
                            pace[o] = 0.0
            mean_s, scv, before = ops_f[o, at.MEAN_S], mine[SCV], mine[QUEUE]
            left, served, work = _serve(flow, o, arrived, servers, now, stop)
            lost = 0.0
            if ops_i[o, at.LIMIT] > 0 and left > ops_i[o, at.LIMIT]:
                lost = left - ops_i[o, at.LIMIT]
                left = ops_i[o, at.LIMIT]
            # Time of an item: backlog, random waiting, service.
            wait = chance = 0.0
            if servers > 0.0:
                wait = (before + left) / 2 * mean_s / servers
                if drawn and not idle:
                    chance = _rest_of_wait(servers, mine[USUAL] * mean_s, scv, mean_s, dt, wait)
                elif left < 1.0 and not idle:
                    chance = _mean_wait(servers, mine[USUAL] * mean_s, scv, mean_s)
            else:
                wait = dt if left > 0.0 else 0.0
            duration[o] = wait + chance + mean_s
            variance[o] = chance * chance + mean_s * mean_s * scv
            mine[QUEUE] = left
            outflow[o] = served
            ends[o, at.HEAD], ends[o, at.TAIL] = 0, int(left + 0.5)
            row = tally[o]
            row[at.ARRIVED] += arrived
            row[at.DROPPED] += lost
            if arrived > 0.0:
                row[at.GAPS] += arrived
                row[at.GAP_S] += dt
                row[at.GAP_SQUARE] += 2 * dt * dt / arrived
            if lost > 0.0 and mine[VISITS] > 0.0:
                whole[at.SPOILT] += min(lost / max(1.0, mine[VISITS]), came)
            if not looped:
                for e in range(edge_start[o], edge_start[o + 1]):
                    inflow[edges[e, at.TARGET]] += served * (edges[e, at.WHOLE] + edge_part[e])
            _count_served(
                served, stop, duration[o], variance[o], mean_s, scv, ops_f[o, at.SLO_S],
                whole[at.SAMPLE_EVERY], row, recent[o], sketch[o],
            )  # fmt: skip
            # A service shorter than a step begins and ends in it.
            work = served * mean_s / dt if mean_s < dt else work
            share = min(1.0, work / servers) if servers > 0.0 else 0.0
            if full[o] >= 0.0 and pace[o] == 1.0:
                busy_s, begun = share * dt, share * dt / mean_s
                for place in range(count[o] if share > 0.0 else 0):
                    s = serving[o, place]
                    slot_f[o, at.BUSY_S, s] += busy_s
                    slot_f[o, at.STARTED_S, s] += begun
                continue
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
                mine = items[o]
                total += duration[o] * mine[VISITS]
                total_variance += variance[o] * mine[VISITS]
                inside = mine[QUEUE] + mine[BEGUN] - mine[ENDED]
                backlog += inside / max(mine[VISITS], 1e-12)
        else:
            for rank in range(operators + sources):
                if rank < operators:
                    origin = order[operators - 1 - rank]
                    own, own_variance = duration[origin], variance[origin]
                    mine = items[origin]
                    inside = mine[QUEUE] + mine[BEGUN] - mine[ENDED]
                    waits = inside / max(mine[VISITS], 1e-12) if inside > 0.0 else 0.0
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
            # Visits are those of an item that may be of any source, with the same chance.
            for s in range(sources):
                backlog += behind[operators + s] / sources
            # Items that end while none come are those of sources that left some behind.
            for s in range(sources):
                weight = origins[s]
                if came > 0.0:
                    weight = origins[s] = rates[s, column] * dt * (1 - shed_fraction) / came
                elif backlog > 0.0:
                    weight = behind[operators + s] / (backlog * sources)
                if weight > 0.0:
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
    # Instances that work alike finish their whole items one after the other, not all at once.
    for o in range(operators):
        for place in range(count[o]):
            s = serving[o, place]
            slot_i[o, at.DONE, s] = int(slot_f[o, at.STARTED_S, s] + s * GOLDEN % 1.0)
    return filled


@compiled(inline="always")
def _into_sketch(sketch: Ints, count: int, base: float, spread: float) -> None:
    """Add times of `count` items: `base` plus an exponential of mean `spread`."""
    if spread == 0.0:
        sketch[bucket_of(base)] += count
        return
    for point in range(POINTS):
        value = base - spread * _LOGS[point]
        sketch[bucket_of(value)] += (count * (point + 1)) // POINTS - (count * point) // POINTS


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
    if count > 0:
        _into_sketch(sketch, count, base, spread)
    if slo_s < np.inf:
        late = _beyond(slo_s, base, spread)
        if late > 0.0:
            row[at.LATE_1] += served * late
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
    if count > 0:
        _into_sketch(sketch, count, base, spread)
