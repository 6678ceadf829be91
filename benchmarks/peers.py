"""The models of `simulation.py` in SimPy and Ciw, for comparison.

The SimPy model is as fast as SimPy allows: a deque per queue and a separate event for each idle
server.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from collections.abc import Generator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Topology
from tidegate.simulation import CloudSettings
from tidegate.simulation.kernels import state
from tidegate.simulation.kernels.accounting import end_interval
from tidegate.simulation.kernels.sketch import bucket_of
from tidegate.simulation.network import Coming, ItemEngine
from tidegate.theory.queueing import Station

__all__ = ["SERVERS", "STATIONS", "SimPyEngine", "tandem_ciw", "tandem_simpy"]

Floats = NDArray[np.float64]

# A tandem of three stations, 10:11:1 servers.
STATIONS = (Station("a", 40, 5.714), Station("b", 40, 5.333), Station("c", 40, 400))
SERVERS = (10, 11, 1)


def tandem_simpy(customers: int, seed: int) -> float:
    import simpy

    rng = random.Random(seed)
    env = simpy.Environment()
    stations = [simpy.Resource(env, capacity=k) for k in SERVERS]
    total = 0.0

    def customer() -> Generator[Any, Any, None]:
        nonlocal total
        born = env.now
        for resource_, station in zip(stations, STATIONS, strict=True):
            with resource_.request() as turn:
                yield turn
                yield env.timeout(rng.expovariate(station.service_rate_per_s))
        total += env.now - born

    def source() -> Generator[Any, Any, None]:
        for _ in range(customers):
            yield env.timeout(rng.expovariate(40))
            env.process(customer())

    env.process(source())
    env.run()
    return total / customers


def tandem_ciw(customers: int, seed: int) -> float:
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(40), None, None],
        service_distributions=[ciw.dists.Exponential(s.service_rate_per_s) for s in STATIONS],
        routing=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
        number_of_servers=list(SERVERS),
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(customers, method="Finish")
    born: dict[int, float] = {}
    left: dict[int, float] = {}
    for record in simulation.get_all_records():
        born[record.id_number] = min(record.arrival_date, born.get(record.id_number, math.inf))
        left[record.id_number] = max(record.exit_date, left.get(record.id_number, 0.0))
    return statistics.fmean(left[i] - born[i] for i in born)


_COUNTS = [state.ARRIVED, state.PROCESSED, state.LATE_1, state.LATE_2, state.LATE_5, state.SAMPLES]
_SUMS = [state.DURATION_S, state.SERVICE_S, state.SERVICE_SQUARE]
_GAPS = [state.GAP_S, state.GAP_SQUARE, state.LAST_ARRIVAL_S]
_ADAPT = [state.ADAPTED, state.ADAPT_S, state.EPISODE_S, state.LATE_SINCE_S, state.LAST_LATE_S]
_WHOLE = [state.IN, state.OUT, state.SOJOURN_S, state.SOJOURN_MAX_S]


class SimPyEngine(ItemEngine):
    """The same network with SimPy moving the items, as fast as SimPy allows.

    A queue is a deque, and each idle server waits for a separate event, so an item costs about two
    SimPy events. Hosts, meter, policy and report are those of the simulated cloud, with the same
    accounting of each item.
    """

    def __init__(self, topology: Topology, settings: CloudSettings, seed: int) -> None:
        import simpy

        super().__init__(topology, settings, seed)
        self.env = simpy.Environment()
        self.rng = random.Random(seed)
        n = len(topology.operators)
        self.queues: list[deque[tuple[float, list[float]]]] = [deque() for _ in range(n)]
        self.idle: list[deque[Any]] = [deque() for _ in range(n)]
        self.alive: dict[tuple[int, int], bool] = {}
        self.index = {name: i for i, name in enumerate(topology.by_name)}
        self.slo = [operator.slo_s or math.inf for operator in topology.operators]
        self.out: list[list[tuple[int, float]]] = [
            [(self.index[e.target], e.ratio) for e in topology.edges if e.origin == o.name]
            for o in topology.operators
        ]
        self.into = [
            [(self.index[e.target], e.ratio) for e in topology.edges if e.origin == s.name]
            for s in topology.sources
        ]
        self.counts = [[0] * 6 for _ in range(n)]  # arrived, processed, late x 3, sampled
        self.sums = [[0.0] * 3 for _ in range(n)]  # durations, services, their squares
        self.gaps = [[0.0] * 3 for _ in range(n)]  # sum, squares, last arrival
        self.adapt = [[0.0, 0.0, 0.0, -1.0, 0.0] for _ in range(n)]  # as in `tally`
        self.done, self.sojourn, self.longest = 0, 0.0, 0.0
        self.came = 0

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """Start an instance and its server process."""
        slot = super().start(operator, host, ready_s)
        self.env.process(self._server(operator, slot, ready_s))
        return slot

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Stop an instance; its server stops after the current item."""
        super().stop(operator, slot, now_s)
        self.alive[operator, slot] = False
        return now_s

    def _server(self, o: int, slot: int, ready_s: float) -> Generator[Any, Any, None]:
        env, queue, idle = self.env, self.queues[o], self.idle[o]
        self.alive[o, slot] = True
        mean = float(self.net.ops_f[o, state.MEAN_S])
        busy, holds = self.net.slot_f[o, state.BUSY_S], self.net.slot_i[o, state.ROOT]
        done, free = self.net.slot_i[o, state.DONE], self.net.slot_f[o, state.FREE_S]
        if ready_s > env.now:
            yield env.timeout(ready_s - env.now)
        while self.alive[o, slot]:
            if not queue:
                wake = env.event()
                idle.append(wake)
                yield wake
                continue
            came, root = queue.popleft()
            holds[slot], free[slot] = 0, env.now + mean
            busy[slot] += mean
            yield env.timeout(mean)
            holds[slot] = -1
            done[slot] += 1
            self._leave(o, came, root, mean)
        if queue and idle:  # woken for an item but stopped: another server takes it
            idle.popleft().succeed()

    def _put(self, o: int, root: list[float]) -> None:
        now, gaps = self.env.now, self.gaps[o]
        gap = now - gaps[2]
        gaps[0] += gap
        gaps[1] += gap * gap
        gaps[2] = now
        self.counts[o][0] += 1
        self.queues[o].append((now, root))
        if self.idle[o]:
            self.idle[o].popleft().succeed()

    def _leave(self, o: int, came: float, root: list[float], service: float) -> None:
        now = self.env.now
        duration, counts, slo = now - came, self.counts[o], self.slo[o]
        counts[1] += 1
        self.sums[o][0] += duration
        self.net.sketch[o, bucket_of(duration)] += 1
        adapt = self.adapt[o]
        if duration > slo:
            counts[2] += 1
            counts[3] += duration > 2 * slo
            if duration > 5 * slo:
                counts[4] += 1
                adapt[4] = now
                if adapt[3] < 0:
                    adapt[3] = now
        elif adapt[3] >= 0:
            adapt[0] += 1
            adapt[1] += now - adapt[4]
            adapt[2] += now - adapt[3]
            adapt[3] = -1.0
        if counts[1] % 10 == 0:
            self.net.recent[o, counts[5] % state.RECENT] = duration
            counts[5] += 1
            self.sums[o][1] += service
            self.sums[o][2] += service * service
        root[1] -= 1
        self._send(self.out[o], root)

    def _send(self, edges: list[tuple[int, float]], root: list[float]) -> None:
        for target, ratio in edges:
            copies = int(ratio)
            if ratio > copies and self.rng.random() < ratio - copies:
                copies += 1
            for _ in repeat(None, copies):
                root[1] += 1
                self._put(target, root)
        if root[1] == 0:
            sojourn = self.env.now - root[0]
            self.done += 1
            self.sojourn += sojourn
            self.longest = max(self.longest, sojourn)
            self.net.sketch[len(self.slo) + 1, bucket_of(sojourn)] += 1

    def _source(self, source: int, times: list[float]) -> Generator[Any, Any, None]:
        for moment in times:
            if moment > self.env.now:
                yield self.env.timeout(moment - self.env.now)
            self.came += 1
            root = [self.env.now, 0.0]
            self._send(self.into[source], root)

    def run(self, coming: Coming, end_s: float, shed_fraction: float) -> Floats:
        """Run SimPy and update the accounting at each monitoring interval."""
        for source, (first, last) in enumerate(zip(coming.position, coming.until, strict=True)):
            times = coming.times[first:last]
            times = times[: np.searchsorted(times, end_s)]
            coming.position[source] += len(times)
            self.env.process(self._source(source, times.tolist()))
        rows = self._empty_rows(end_s)
        filled = 0
        net = self.net
        while net.whole[state.NOW] < end_s:
            stop = min(end_s, float(net.whole[state.NEXT_MONITOR]))
            self.env.run(until=stop)
            net.tally[:, _COUNTS] = self.counts
            net.tally[:, _SUMS] = self.sums
            net.tally[:, state.GAPS] = net.tally[:, state.ARRIVED]
            net.tally[:, _GAPS] = self.gaps
            net.tally[:, _ADAPT] = self.adapt
            for o, queue in enumerate(self.queues):
                net.ends[o] = 0, len(queue)
            net.whole[_WHOLE] = self.came, self.done, self.sojourn, self.longest
            net.whole[state.NOW] = stop
            if stop >= net.whole[state.NEXT_MONITOR]:
                end_interval(net, stop, rows[filled])
                filled += 1
        return rows[:filled]
