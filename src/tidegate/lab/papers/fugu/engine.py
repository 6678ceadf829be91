"""What FUGU's hosts do with ticks: a flow through two operators a query.

Every query reads the whole stream of ticks. Its *filter* passes on the ticks of one sector to its
*aggregate*. Either operator uses at most one core, and the operators of an overfull host slow down
alike. Ticks are a flow, since thousands a second pass thirty-five filters and only seconds of
latency matter, but they keep their order: the latency of a result is exactly how long ago its
tick arrived.

While an operator moves, its predecessor is paused, as in the paper. That of an aggregate is its
filter. That of a filter is the stream itself: where one source feeds all queries, all of them
wait.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Resources
from tidegate.theory.compiled import compiled

__all__ = ["STEP_S", "QueryEngine"]

STEP_S = 0.1
"""Step of the flow, in seconds."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class QueryEngine:
    """The queries on their hosts: filters first, then the aggregates in the same order.

    ticks: ticks until each edge of the steps, by sector; sectors: that of each query, by number;
    filter_s, aggregate_s: core-seconds for each tick, by query; one_source: whether a filter that
    moves makes all queries wait; buffers: most ticks that wait at each operator, beyond which the
    oldest are lost.
    """

    def __init__(
        self,
        ticks: Floats,
        sectors: Ints,
        filter_s: Floats,
        aggregate_s: Floats,
        one_source: bool,
        buffers: Floats,
    ) -> None:
        queries = len(sectors)
        self._ticks = np.vstack((ticks, ticks.sum(axis=0)))
        self._sectors, self._queries, self._one_source = sectors, queries, one_source
        self._buffers = buffers
        self._cost_s = np.concatenate((filter_s, aggregate_s))
        self._host = np.zeros(2 * queries, np.int64)
        self._ready_s = np.zeros(2 * queries)
        self._done = np.zeros(2 * queries)
        self._at = np.zeros(2 * queries, np.int64)
        self._passed = np.zeros(queries)
        self._cores = np.zeros(0)
        self.time_s = 0.0
        self.busy_s = np.zeros(2 * queries)
        """Core-seconds that each operator has used."""
        self.used_s, self.wanted_s = np.zeros(0), np.zeros(0)
        """Core-seconds that each host has used, and that its operators wanted."""
        self.results, self.latency_s = np.zeros(queries), np.zeros(queries)
        """Results of each query, and the sum of their latencies in seconds."""

    def run(self, stop_s: float) -> None:
        """Let the ticks flow until then."""
        _flow(
            self.time_s, stop_s, self._ticks, self._sectors, self._cost_s, self._host,
            self._ready_s, self._cores, self._done, self._at, self._passed, self.busy_s,
            self.used_s, self.wanted_s, self.results, self.latency_s, self._buffers,
        )  # fmt: skip
        self.time_s = stop_s

    # --- what `SimulatedHosts` asks for: an operator has one instance, in slot 0 ---------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """Add a host that runs from `ready_s`; returns its number."""
        self._cores = np.append(self._cores, capacity.cpu_cores)
        self.used_s, self.wanted_s = np.append(self.used_s, 0.0), np.append(self.wanted_s, 0.0)
        return len(self._cores) - 1

    def close_host(self, host: int, until_s: float) -> None:
        """Nothing is left on a host that is released."""

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """Let an operator work on a host from `ready_s`."""
        self._host[operator], self._ready_s[operator] = host, ready_s
        return 0

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Queries never end."""
        raise NotImplementedError

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Pause an operator and its predecessor; the operator goes on on another host."""
        resumes = now_s + pause_s
        self._host[operator] = host
        paused = [operator]
        if operator >= self._queries:
            paused.append(operator - self._queries)
        elif self._one_source:
            paused = list(range(self._queries))
        self._ready_s[paused] = np.maximum(self._ready_s[paused], resumes)
        return resumes

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        """Hosts do not fail in this world."""
        raise NotImplementedError

    def fail_host(self, host: int, now_s: float) -> None:
        """Hosts do not fail in this world."""
        raise NotImplementedError

    def idle_from(self, host: int, now_s: float) -> float:
        """Now: in a flow no operator holds a tick."""
        return now_s


@compiled
def _flow(
    now: float,
    stop_s: float,
    ticks: Floats,
    sectors: Ints,
    cost_s: Floats,
    host: Ints,
    ready_s: Floats,
    cores: Floats,
    done: Floats,
    at: Ints,
    passed: Floats,
    busy_s: Floats,
    used_s: Floats,
    wanted_s: Floats,
    results: Floats,
    latency_s: Floats,
    buffers: Floats,
) -> None:
    """Let the ticks flow from `now` until `stop_s`; the arrays are those of `QueryEngine`.

    done: ticks that each operator has finished; at: the step in which the next of them arrived;
    passed: ticks that each filter has passed on; the last row of ticks is the whole stream.
    """
    queries, steps = len(sectors), ticks.shape[1] - 1
    work = np.zeros(2 * queries)
    wanted = np.zeros(len(cores))
    while now < stop_s - 1e-9:
        step = min(int(now / STEP_S + 1e-6), steps - 1)
        end = min(stop_s, (step + 1) * STEP_S) if step < steps - 1 else stop_s
        span, part = end - now, min(1.0, end / STEP_S - step)
        wanted[:] = 0.0
        for o in range(2 * queries):
            row = ticks[len(ticks) - 1]
            come = row[step] + part * (row[step + 1] - row[step])
            if o >= queries:
                come = passed[o - queries]
            if come - done[o] > buffers[o]:
                done[o] = come - buffers[o]
            there = max(0.0, end - max(now, ready_s[o]))
            work[o] = min(there, (come - done[o]) * cost_s[o])
            wanted[host[o]] += work[o]
        for h in range(len(cores)):
            wanted_s[h] += wanted[h]
            used_s[h] += min(wanted[h], cores[h] * span)
        for o in range(2 * queries):
            if work[o] <= 0.0:
                continue
            h = host[o]
            got = work[o] * min(1.0, cores[h] * span / wanted[h])
            busy_s[o] += got
            items = got / cost_s[o]
            q = o % queries
            row = ticks[len(ticks) - 1] if o < queries else ticks[sectors[q]]
            while at[o] < step and row[at[o] + 1] < done[o] - 1e-9:
                at[o] += 1
            began = _arrived(row, done[o], at[o])
            done[o] += items
            while at[o] < step and row[at[o] + 1] < done[o] - 1e-9:
                at[o] += 1
            came = min(end, _arrived(row, done[o], at[o]))
            if o < queries:
                mine = ticks[sectors[q]]
                k = min(int(came / STEP_S + 1e-6), steps - 1)
                share = min(1.0, came / STEP_S - k)
                passed[q] = max(passed[q], mine[k] + share * (mine[k + 1] - mine[k]))
            else:
                results[q] += items
                latency_s[q] += items * max(0.0, (now + end - began - came) / 2)
        now = end


@compiled(inline="always")
def _arrived(row: Floats, count: float, step: int) -> float:
    """When the tick of that number arrived, within a step or at its end."""
    more = row[step + 1] - row[step]
    part = (count - row[step]) / more if more > 0.0 else 1.0
    return STEP_S * (step + min(1.0, max(0.0, part)))
