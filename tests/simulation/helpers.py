"""Small worlds, confidence intervals and the contract of a world, for the simulation's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from tidegate.codec import from_json, to_json
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.steps import diff
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import Policy
from tidegate.simulation import (
    CloudSettings,
    MicroBatchCloud,
    Poisson,
    RunReport,
    SimulatedCloud,
)

BIG = HostOffer(Resources(1000, 1e6), billing_unit_s=600, price_per_unit_usd=1.0)
CONFIDENCE = 0.999


def chain(
    *service_s: float, scv: float = 1.0, slo_s: float | None = None, demand: float = 0.01
) -> Topology:
    """Operators a, b, c … one after the other, fed by ``input``."""
    names = [chr(ord("a") + i) for i in range(len(service_s))]
    operators = tuple(
        Operator(name, Resources(demand, 100), mean, service_scv=scv, slo_s=slo_s)
        for name, mean in zip(names, service_s, strict=True)
    )
    ways = zip(["input", *names], names, strict=False)
    return Topology(operators, (Source("input"),), tuple(Edge(a, b) for a, b in ways))


def running(topology: Topology, *counts: int, hosts: int = 1) -> Deployment:
    """A number of instances of each operator, distributed over the hosts in turn."""
    names = [f"host-{n}" for n in range(1, hosts + 1)]
    copies = [
        (operator.name, n)
        for operator, count in zip(topology.operators, counts, strict=True)
        for n in range(1, count + 1)
    ]
    return Deployment(
        tuple(names),
        tuple(
            Instance(f"{name}-{n}", name, names[i % hosts]) for i, (name, n) in enumerate(copies)
        ),
    )


def steady_means(
    build: Callable[[int], SimulatedCloud], warm_up_s: float, length_s: float, runs: int = 10
) -> list[float]:
    """Mean end-to-end latency of items finished after the warm-up, one for each seed."""
    means = []
    for seed in range(runs):
        world = build(seed)
        world.advance(warm_up_s)
        before = world.latencies()
        world.advance(length_s)
        after = world.latencies()
        means.append((after.total_s - before.total_s) / (after.count - before.count))
    return means


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's interval for the mean of independent replications."""
    middle = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return middle - reach, middle + reach


def conserved(report: RunReport) -> bool:
    """Whether nothing was lost or made, for the sources and for each operator."""
    items = report.items_out + report.items_queued + report.items_dropped
    return report.items_in == items and all(
        o.arrived == o.processed + o.queued + o.dropped for o in report.operators
    )


def drive(
    world: SimulatedCloud | MicroBatchCloud, policy: Policy, until_s: float, every_s: float = 60.0
) -> None:
    """The control loop, without guards."""
    memory = policy.initial_memory(0)
    while world.time_s < until_s:
        plan, memory = policy.decide(world.observe(), memory)
        world.apply(plan)
        world.advance(every_s)


def check_world(
    build: Callable[[int], SimulatedCloud | MicroBatchCloud],
    policy: Policy,
    turns: int = 20,
    every_s: float = 30.0,
) -> None:
    """The contract of a world that policies are tried in.

    Observing changes nothing; a snapshot survives JSON; a plan that was applied is requested, and
    applying it again changes nothing; time only passes by `advance`; items are conserved; the
    same seed is the same run.
    """
    world, twin = build(1), build(1)
    memory = policy.initial_memory(0)
    for turn in range(turns):
        snapshot = world.observe()
        assert snapshot == world.observe()
        assert to_json(snapshot) == to_json(twin.observe())
        copy = from_json(Snapshot, to_json(snapshot))
        assert copy == snapshot
        assert copy.requested == snapshot.requested
        assert snapshot.time_s == world.time_s == turn * every_s
        plan, memory = policy.decide(snapshot, memory)
        outcome = world.apply(plan)
        twin.apply(plan)
        if not outcome.refused:
            assert diff(world.observe().requested, plan) == ()
            assert world.apply(plan).steps == ()
        world.advance(every_s)
        twin.advance(every_s)
        report = world.report()
        assert conserved(report)
        assert report == twin.report()
        assert from_json(RunReport, to_json(report)) == report


def keep(world: SimulatedCloud, **changes: float) -> Plan:
    """A plan that changes nothing but what is given, such as the shed fraction."""
    return Plan(world.observe().requested, shed_fraction=changes.get("shed_fraction", 0.0))


def poisson_world(
    topology: Topology,
    rate_per_s: float,
    *counts: int,
    seed: int = 0,
    hosts: int = 1,
    offer: HostOffer = BIG,
    settings: CloudSettings | None = None,
) -> SimulatedCloud:
    """Poisson arrivals at ``input`` and a fixed number of instances to begin with."""
    return SimulatedCloud(
        topology,
        offer,
        Poisson({"input": rate_per_s}),
        seed=seed,
        initial=running(topology, *counts, hosts=hosts),
        settings=settings,
    )


OFFER = HostOffer(Resources(2, 4096), billing_unit_s=600, price_per_unit_usd=2.0)
