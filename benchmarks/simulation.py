"""Benchmark of the simulation, compared with SimPy and Ciw in one run on one machine.

    python benchmarks/simulation.py            # everything, a few minutes
    python benchmarks/simulation.py --quick    # fewer items for the slow engines, under a minute
    python benchmarks/simulation.py tandem visp fluid memory

Times are processor time of one thread, so the ratios are meaningful even on a shared machine. All
engines do the same work on the same arrivals. Compilation is excluded, as it is cached on disk.
Each fast engine shows the best of several rounds, interleaved with the slow engines. Imported
modules are exempt from garbage collection (`gc.freeze`) for all engines. The models in SimPy and
Ciw are in `peers.py`.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from peers import SERVERS, STATIONS, SimPyEngine, tandem_ciw, tandem_simpy

from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import Policy
from tidegate.policies.btu import Btu
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.simulation import CloudSettings, FluidCloud, Poisson, RunReport, SimulatedCloud
from tidegate.simulation.kernels.stations import simulate_tandem
from tidegate.theory.queueing import sojourn_s

Floats = NDArray[np.float64]

# --- a tandem of three stations, 10:11:1 servers ------------------------------------------------

EVENTS_PER_CUSTOMER = 4


def tandem_cloud(customers: int, seed: int) -> float:
    """The tandem in the whole simulated cloud, with its accounting."""
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
        start = time.process_time()
        means["stations"].append(simulate_tandem(STATIONS, SERVERS, many, seed=seed).mean_s)
        seconds["stations"].append(time.process_time() - start)
        start = time.process_time()
        means["cloud"].append(tandem_cloud(many, seed))
        seconds["cloud"].append(time.process_time() - start)

    rates: dict[str, float] = {}
    for seed in range(3):
        fast_round(seed)
    for name, run in (("SimPy", tandem_simpy), ("Ciw", tandem_ciw)):
        start = time.process_time()
        means[name].append(run(slow[name], 1))
        rates[name] = EVENTS_PER_CUSTOMER * slow[name] / (time.process_time() - start)
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
# this benchmark (the published durations do not say how long an instance is busy).
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
    """The stepwise pattern: all machines send at the same time, every 480 ms."""

    def arrivals(self, start_s: float, end_s: float) -> dict[str, Floats]:
        """Bursts at whole ticks."""
        times, machines = self._bursts(start_s, end_s)
        return {name: np.repeat(times, machines * count) for name, count in ITEMS.items()}

    def expected(self, edges_s: Floats) -> dict[str, Floats]:
        """Number of arrivals between each edge and the next."""
        times, machines = self._bursts(float(edges_s[0]), float(edges_s[-1]))
        bursts = np.histogram(times, edges_s, weights=machines)[0]
        return {name: bursts * count for name, count in ITEMS.items()}

    def _bursts(self, start_s: float, end_s: float) -> tuple[Floats, NDArray[np.int64]]:
        ticks = np.arange(math.ceil(start_s / TICK_S - 1e-9), math.ceil(end_s / TICK_S - 1e-9))
        machines = np.array(MACHINES)[ticks // STEP_TICKS % len(MACHINES)]
        return np.clip(ticks * TICK_S, start_s, np.nextafter(end_s, 0)), machines


def visp_run(world: SimulatedCloud, policy: Policy, until_s: float = RUN_S) -> RunReport:
    memory = policy.initial_memory(0)
    while world.time_s < until_s:
        plan, memory = policy.decide(world.observe(), memory)
        world.apply(plan)
        world.advance(60)
    return world.report()


def visp(quick: bool) -> None:
    for policy in (QueueThreshold(), Btu()):
        visp_with(policy, 1200.0 if quick else RUN_S)


def visp_with(policy: Policy, length: float) -> None:
    topology = visp_topology()
    # Arrivals are fetched ten minutes at a time; this does not change them.
    settings = CloudSettings(arrival_chunk_s=600.0)
    times: dict[str, list[float]] = {"SimPy": [], "items": [], "fluid": []}
    reports: dict[str, RunReport] = {}

    def timed(name: str, build: Callable[[], SimulatedCloud]) -> None:
        start = time.process_time()
        reports[name] = visp_run(build(), policy, length)
        times[name].append(time.process_time() - start)

    def fast_round() -> None:
        for _ in range(5):
            timed("items", partial(SimulatedCloud, *world, seed=1, settings=settings))
            timed("fluid", partial(FluidCloud, *world, seed=1, settings=settings))

    world = (topology, OFFER, Stepwise())
    for kind in (SimulatedCloud, FluidCloud):
        visp_run(kind(*world, seed=0), policy, 300)
    fast_round()
    simpy = partial(SimulatedCloud, *world, seed=1, settings=settings, engine=SimPyEngine)
    timed("SimPy", simpy)
    fast_round()
    items = sum(operator.processed for operator in reports["items"].operators)
    print(f"\nVISP, nine operators, {length / 60:g} min, stepwise, {policy.name} every 60 s, "
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
        start = time.process_time()
        world.advance(hours * 3600)
        spent = time.process_time() - start
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
