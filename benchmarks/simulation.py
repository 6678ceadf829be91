"""How fast the simulation is, side by side with SimPy and Ciw in one run on one machine.

    python benchmarks/simulation.py            # everything, a few minutes
    python benchmarks/simulation.py --quick    # fewer items for the slow ones, under a minute
    python benchmarks/simulation.py tandem visp fluid memory

Absolute times depend on the machine and on who else uses it: look at the ratios. All engines do
the same work on the same arrivals, compilation is excluded (it is cached on disk), and each fast
engine shows the best of several rounds that are interleaved with each other. What the imports left
in memory is hidden from the garbage collector (`gc.freeze`) for all engines alike.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import resource
import statistics
import time
from collections import deque
from collections.abc import Generator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.model import HostOffer
from tidegate.policies.base import Policy
from tidegate.policies.btu import Btu
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.queueing import Station, sojourn_s
from tidegate.simulation import CloudSettings, FluidCloud, Poisson, RunReport, SimulatedCloud
from tidegate.simulation import state as book
from tidegate.simulation.engine import ItemEngine
from tidegate.simulation.sketch import bucket_of
from tidegate.simulation.stations import simulate_tandem
from tidegate.topology import Edge, Operator, Resources, Source, Topology

Floats = NDArray[np.float64]

# --- a tandem of three stations, 10:11:1 servers ------------------------------------------------

STATIONS = (Station("a", 40, 5.714), Station("b", 40, 5.333), Station("c", 40, 400))
SERVERS = (10, 11, 1)
EVENTS_PER_CUSTOMER = 4


def tandem_simpy(customers: int, seed: int) -> float:
    import simpy

    lots = random.Random(seed)
    env = simpy.Environment()
    stations = [simpy.Resource(env, capacity=k) for k in SERVERS]
    total = 0.0

    def customer() -> Generator[Any, Any, None]:
        nonlocal total
        born = env.now
        for resource_, station in zip(stations, STATIONS, strict=True):
            with resource_.request() as turn:
                yield turn
                yield env.timeout(lots.expovariate(station.service_rate_per_s))
        total += env.now - born

    def source() -> Generator[Any, Any, None]:
        for _ in range(customers):
            yield env.timeout(lots.expovariate(40))
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


def tandem_cloud(customers: int, seed: int) -> float:
    """The same through the whole simulated cloud, with its books."""
    names = [station.name for station in STATIONS]
    topology = Topology(
        tuple(Operator(s.name, Resources(0.1), 1 / s.service_rate_per_s) for s in STATIONS),
        (Source("input"),),
        tuple(Edge(a, b) for a, b in zip(["input", *names], names, strict=False)),
    )
    from tidegate.model import Deployment, Instance

    instances = tuple(
        Instance(f"{name}-{i}", name, "host-1")
        for name, k in zip(names, SERVERS, strict=True)
        for i in range(k)
    )
    world = SimulatedCloud(
        topology,
        HostOffer(Resources(100)),
        Poisson({"input": 40.0}),
        seed=seed,
        initial=Deployment(("host-1",), instances),
        settings=CloudSettings(arrival_chunk_s=600.0),
    )
    world.advance(customers / 40)
    return world.report().latency_mean_s or math.nan


def tandem(quick: bool) -> None:
    many = 1_000_000
    slow = {"SimPy": 100_000, "Ciw": 30_000} if quick else {"SimPy": many, "Ciw": many // 5}
    exact = sojourn_s(STATIONS, SERVERS, 40)
    print(f"\nTandem of three stations, {SERVERS} servers; exact mean sojourn {exact:.5f} s")
    simulate_tandem(STATIONS, SERVERS, 1000, seed=0)
    tandem_cloud(1000, 0)
    seconds: dict[str, list[float]] = {"stations": [], "cloud": []}
    means: dict[str, list[float]] = {"stations": [], "cloud": [], "SimPy": [], "Ciw": []}

    def fast_round(seed: int) -> None:
        start = time.perf_counter()
        means["stations"].append(simulate_tandem(STATIONS, SERVERS, many, seed=seed).mean_s)
        seconds["stations"].append(time.perf_counter() - start)
        start = time.perf_counter()
        means["cloud"].append(tandem_cloud(many, seed))
        seconds["cloud"].append(time.perf_counter() - start)

    rates: dict[str, float] = {}
    for seed in range(3):
        fast_round(seed)
    for name, run in (("SimPy", tandem_simpy), ("Ciw", tandem_ciw)):
        start = time.perf_counter()
        means[name].append(run(slow[name], 1))
        rates[name] = EVENTS_PER_CUSTOMER * slow[name] / (time.perf_counter() - start)
        for seed in range(3, 6):
            fast_round(seed)
    for name, values in seconds.items():
        rates[name] = EVENTS_PER_CUSTOMER * many / min(values)
    print(
        f"{'engine':<12}{'customers':>12}{'events/s':>14}{'x SimPy':>10}{'error of the mean':>20}"
    )
    for name in ("SimPy", "Ciw", "cloud", "stations"):
        error = statistics.fmean(means[name]) / exact - 1
        count = f"{len(means[name])} x {slow.get(name, many)}"
        ratio = rates[name] / rates["SimPy"]
        print(f"{name:<12}{count:>12}{rates[name]:>14,.0f}{ratio:>10.2f}{error:>19.2%}")


# --- VISP: nine operators, 120 minutes ----------------------------------------------------------

# cores and megabytes from the authors' code, SLO from the paper; service times are assumptions of
# this benchmark (how much of a published duration occupies an instance is not known).
OPERATORS = (
    ("O1", 0.9, 554, 0.4, 1.5),
    ("O2", 0.4, 629, 0.1, 0.6),
    ("O3", 0.4, 534, 0.2, 0.75),
    ("O4", 0.56, 417, 0.2, 0.75),
    ("O5", 0.42, 527, 0.2, 0.75),
    ("O6", 0.25, 515, 0.05, 0.6),
    ("O7", 0.4, 513, 0.05, 0.7),
    ("O8", 0.14, 509, 0.02, 0.5),
    ("O9", 0.3, 425, 0.1, 1.3),
)
EDGES = (
    ("S1", "O2", 1.0), ("S2", "O1", 1.0), ("S3", "O6", 1.0), ("O1", "O3", 1.0), ("O1", "O4", 1.0),
    ("O1", "O5", 1.0), ("O3", "O7", 1.0), ("O4", "O7", 1.0), ("O5", "O7", 1.0),
    ("O7", "O9", 1 / 3), ("O2", "O8", 0.98), ("O6", "O8", 1 / 102), ("O9", "O8", 1 / 300),
)  # fmt: skip
TICK_S, STEP_TICKS = 0.48, 501
MACHINES = (2, 4, 6, 4)
ITEMS = {"S1": 5, "S2": 1, "S3": 10}
RUN_S = 7200.0


def visp_topology() -> Topology:
    return Topology(
        tuple(
            Operator(name, Resources(cores, mb), service, service_scv=0.0, slo_s=slo)
            for name, cores, mb, service, slo in OPERATORS
        ),
        tuple(Source(name) for name in ITEMS),
        tuple(Edge(*edge) for edge in EDGES),
    )


OFFER = HostOffer(Resources(4, 6451), billing_unit_s=600, price_per_unit_usd=1.0)


class Stepwise:
    """The stepwise pattern: all machines send at the same moment, every 480 ms."""

    def arrivals(self, start_s: float, end_s: float) -> dict[str, Floats]:
        """Bursts at whole ticks."""
        ticks = np.arange(math.ceil(start_s / TICK_S - 1e-9), math.ceil(end_s / TICK_S - 1e-9))
        machines = np.array(MACHINES)[ticks // STEP_TICKS % len(MACHINES)]
        times = np.clip(ticks * TICK_S, start_s, np.nextafter(end_s, 0))
        return {name: np.repeat(times, machines * count) for name, count in ITEMS.items()}

    def expected(self, edges_s: Floats) -> dict[str, Floats]:
        """The same, counted."""
        counts = self.arrivals(float(edges_s[0]), float(edges_s[-1]))
        return {name: np.histogram(times, edges_s)[0] for name, times in counts.items()}


class SimPyEngine(ItemEngine):
    """The same network with SimPy moving the items, written to be as quick as SimPy allows.

    A queue is a deque, and an idle server waits for an event of its own, so an item costs about
    two SimPy events. Fleet, meter, policy and report are those of the simulated cloud.
    """

    def __init__(self, topology: Topology, settings: CloudSettings, seed: int) -> None:
        import simpy

        super().__init__(topology, settings, seed)
        self.env = simpy.Environment()
        self.lots = random.Random(seed)
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
        self.sums = [[0.0, 0.0] for _ in range(n)]  # durations, services
        self.done, self.sojourn = 0, 0.0
        self.came = 0

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """As the engine's own, with a process that serves."""
        slot = super().start(operator, host, ready_s)
        self.env.process(self._server(operator, slot, ready_s))
        return slot

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """The server leaves after the item in hand."""
        super().stop(operator, slot, now_s)
        self.alive[operator, slot] = False
        return now_s

    def _server(self, o: int, slot: int, ready_s: float) -> Generator[Any, Any, None]:
        env, queue, idle = self.env, self.queues[o], self.idle[o]
        self.alive[o, slot] = True
        mean = float(self.net.ops_f[o, book.MEAN_S])
        busy, holds = self.net.slot_f[o, book.BUSY_S], self.net.slot_i[o, book.ROOT]
        done, free = self.net.slot_i[o, book.DONE], self.net.slot_f[o, book.FREE_S]
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

    def _put(self, o: int, root: list[float]) -> None:
        self.counts[o][0] += 1
        self.queues[o].append((self.env.now, root))
        if self.idle[o]:
            self.idle[o].popleft().succeed()

    def _leave(self, o: int, came: float, root: list[float], service: float) -> None:
        now = self.env.now
        duration, counts, slo = now - came, self.counts[o], self.slo[o]
        counts[1] += 1
        self.sums[o][0] += duration
        self.net.sketch[o, bucket_of(duration)] += 1
        if duration > slo:
            counts[2] += 1
            counts[3] += duration > 2 * slo
            counts[4] += duration > 5 * slo
        if counts[1] % 10 == 0:
            self.net.recent[o, counts[5] % book.RECENT] = duration
            counts[5] += 1
            self.sums[o][1] += service
        root[1] -= 1
        self._send(self.out[o], root)

    def _send(self, edges: list[tuple[int, float]], root: list[float]) -> None:
        for target, ratio in edges:
            copies = int(ratio)
            if ratio > copies and self.lots.random() < ratio - copies:
                copies += 1
            for _ in repeat(None, copies):
                root[1] += 1
                self._put(target, root)
        if root[1] == 0:
            sojourn = self.env.now - root[0]
            self.done += 1
            self.sojourn += sojourn
            self.net.sketch[len(self.slo) + 1, bucket_of(sojourn)] += 1

    def _source(self, source: int, times: list[float]) -> Generator[Any, Any, None]:
        for moment in times:
            if moment > self.env.now:
                yield self.env.timeout(moment - self.env.now)
            self.came += 1
            root = [self.env.now, 0.0]
            self._send(self.into[source], root)

    def run(self, arrivals: Mapping[int, Floats], end_s: float, shed_fraction: float) -> Floats:
        """Let SimPy run, and bring the books up to date at each monitoring interval."""
        for source, times in arrivals.items():
            self.env.process(self._source(source, times.tolist()))
        rows = self._empty_rows(end_s)
        filled = 0
        net = self.net
        while net.whole[book.NOW] < end_s:
            stop = min(end_s, float(net.whole[book.NEXT_MONITOR]))
            self.env.run(until=stop)
            for o, (counts, sums) in enumerate(zip(self.counts, self.sums, strict=True)):
                columns = (book.ARRIVED, book.PROCESSED, book.LATE_1, book.LATE_2, book.LATE_5)
                net.tally[o, [*columns, book.SAMPLES]] = counts
                net.tally[o, [book.DURATION_S, book.SERVICE_S]] = sums
                net.ends[o] = 0, len(self.queues[o])
            net.whole[[book.IN, book.OUT, book.SOJOURN_S]] = self.came, self.done, self.sojourn
            net.whole[book.NOW] = stop
            if stop >= net.whole[book.NEXT_MONITOR]:
                from tidegate.simulation.books import end_interval

                end_interval(
                    stop, rows[filled], self._before, net.ops_f, net.ends, net.slot_f,
                    net.slot_i, net.hosts, net.tally, net.whole, net.sketch,
                )  # fmt: skip
                filled += 1
        return rows[:filled]


def visp_run(world: SimulatedCloud, policy: Policy, until_s: float = RUN_S) -> RunReport:
    memory = policy.initial_memory(0)
    while world.time_s < until_s:
        plan, memory = policy.decide(world.observe(), memory)
        world.apply(plan)
        world.advance(60)
    return world.report()


def visp(quick: bool) -> None:
    topology, policy = visp_topology(), QueueThreshold()
    length = 1200.0 if quick else RUN_S
    visp_run(SimulatedCloud(topology, OFFER, Stepwise(), seed=0), policy, 300)
    visp_run(FluidCloud(topology, OFFER, Stepwise(), seed=0), policy, 300)
    times: dict[str, list[float]] = {"SimPy": [], "items": [], "fluid": []}
    reports: dict[str, RunReport] = {}

    def fast_round() -> None:
        for name, kind in (("items", SimulatedCloud), ("fluid", FluidCloud)):
            for _ in range(5):
                start = time.perf_counter()
                world = kind(topology, OFFER, Stepwise(), seed=1)
                reports[name] = visp_run(world, policy, length)
                times[name].append(time.perf_counter() - start)

    fast_round()
    start = time.perf_counter()
    slow = SimulatedCloud(topology, OFFER, Stepwise(), seed=1, engine=SimPyEngine)
    reports["SimPy"] = visp_run(slow, policy, length)
    times["SimPy"].append(time.perf_counter() - start)
    fast_round()
    items = sum(operator.processed for operator in reports["items"].operators)
    print(f"\nVISP, nine operators, {length / 60:g} min, stepwise, queue-threshold every 60 s, "
          f"monitoring every 15 s; {items:,} operator-items")  # fmt: skip
    print(
        f"{'engine':<10}{'per run':>12}{'x SimPy':>10}{'real-time':>12}{'BTUs':>7}{'rescales':>10}"
    )
    for name, values in times.items():
        report, best = reports[name], min(values)
        share = report.compliance.real_time if report.compliance else math.nan
        print(f"{name:<10}{best * 1e3:>9.1f} ms{min(times['SimPy']) / best:>10.0f}{share:>12.4f}"
              f"{report.paid_units:>7}{report.rescales:>10}")  # fmt: skip


# --- the fluid world's error --------------------------------------------------------------------


def fluid(quick: bool) -> None:
    topology = visp_topology()
    print("\nFluid against item-level world, VISP stepwise: differences (fluid - items)")
    print(
        f"{'policy':<18}{'real-time':>12}{'relaxed':>10}{'BTUs':>7}{'rescales':>10}{'mean s':>18}"
    )
    for policy in (QueueThreshold(), Btu()):
        for seed in range(1 if quick else 3):
            a, b = (
                visp_run(kind(topology, OFFER, Stepwise(), seed=seed), policy)
                for kind in (SimulatedCloud, FluidCloud)
            )
            assert a.compliance
            assert b.compliance
            real = 100 * (b.compliance.real_time - a.compliance.real_time)
            relaxed = 100 * (b.compliance.relaxed - a.compliance.relaxed)
            print(f"{policy.name:<18}{real:>+9.1f} pt{relaxed:>+7.1f} pt"
                  f"{b.paid_units - a.paid_units:>+7}{b.rescales - a.rescales:>+10}"
                  f"{a.latency_mean_s:>8.1f} → {b.latency_mean_s:.1f}")  # fmt: skip


# --- memory and linearity -----------------------------------------------------------------------


def memory(quick: bool) -> None:
    print("\nCost and memory over simulated time (M/M/3 at 75 %, 30 items/s)")
    topology = Topology(
        (Operator("work", Resources(1), 0.075),), (Source("input"),), (Edge("input", "work"),)
    )
    from tidegate.model import Deployment, Instance

    instances = tuple(Instance(f"work-{i}", "work", "host-1") for i in range(3))
    for hours in (1, 10, 100) if quick else (1, 10, 100, 1000):
        world = SimulatedCloud(
            topology,
            HostOffer(Resources(4)),
            Poisson({"input": 30.0}),
            seed=1,
            initial=Deployment(("host-1",), instances),
        )
        start = time.perf_counter()
        world.advance(hours * 3600)
        spent = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        items = world.report().items_in
        print(f"{hours:>6} h {items:>12,} items {spent * 1e9 / items:>7.0f} ns/item "
              f"peak {peak:>6.0f} MB")  # fmt: skip


def main() -> None:
    parts = {"tandem": tandem, "visp": visp, "fluid": fluid, "memory": memory}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="all by default")
    parser.add_argument("--quick", action="store_true", help="fewer items for the slow engines")
    chosen = parser.parse_args()
    gc.collect()
    gc.freeze()
    for name in chosen.part or parts:
        parts[name](chosen.quick)


if __name__ == "__main__":
    main()
