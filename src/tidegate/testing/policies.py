"""For those who write policies and backends: snapshots by hand, and checks of the contract.

`check_policy` is to a policy what Gymnasium's `check_env` is to an environment. It runs over all
policies of this package in its own tests.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

from tidegate.codec import from_json, to_json
from tidegate.errors import CheckFailed
from tidegate.model import (
    BatchReading,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.steps import diff
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing.feasibility import broken_rules
from tidegate.policies.base import Policy
from tidegate.testing.worlds import ImaginaryWorld

__all__ = [
    "check_policy",
    "engine_snapshot",
    "fleet_snapshot",
    "station_snapshot",
    "steady_snapshot",
]

CLOCKS = frozenset(
    name + unit
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)
DATES = frozenset({"now", "utcnow", "today"})
HOST = Resources(cpu_cores=4, memory_mb=7168, network_mbps=1000)


# --- snapshots by hand ------------------------------------------------------------------------


def steady_snapshot(
    hosts: int = 1,
    queue_length: float | None = None,
    durations_s: Sequence[float] | None = None,
    lease_left_s: float = 300.0,
    batch_durations_s: Sequence[float] | None = None,
    time_s: float = 0.0,
) -> Snapshot:
    """Hosts of four cores that run one operator, ``work``, each half busy.

    queue_length: items that wait; durations_s: the last durations, oldest first; lease_left_s:
    until the paid 600 s end; batch_durations_s: of batches every 10 s.
    """
    lease = Lease(600, 1.0, started_s=time_s - 600 + lease_left_s)
    names = [f"host-{n}" for n in range(1, hosts + 1)]
    demand = Resources(1, 512)
    return Snapshot(
        time_s=time_s,
        topology=Topology(
            (Operator("work", demand, service_time_s=0.2, slo_s=1.0),),
            (Source("input"),),
            (Edge("input", "work"),),
        ),
        offer=HostOffer(HOST, billing_unit_s=600, price_per_unit_usd=1),
        hosts=tuple(Host(name, HOST, utilisation=0.5, lease=lease) for name in names),
        instances=tuple(InstanceReading(f"work-{n}", "work", h) for n, h in enumerate(names, 1)),
        operators=(
            OperatorReading(
                "work",
                arrival_rate_per_s=2.5 * hosts,
                queue_length=queue_length,
                recent_durations_s=None if durations_s is None else tuple(durations_s),
            ),
        ),
        batches=None if batch_durations_s is None else BatchReading(10, tuple(batch_durations_s)),
        leased_so_far=hosts,
    )


def fleet_snapshot(cores: Mapping[str, Sequence[float]], time_s: float = 0.0) -> Snapshot:
    """Operators q1, q2 … on hosts of four cores, each with the cores that it uses."""
    operators: list[Operator] = []
    instances: list[InstanceReading] = []
    hosts: list[Host] = []
    for host, loads in cores.items():
        hosts.append(Host(host, HOST, utilisation=sum(loads) / HOST.cpu_cores))
        for load in loads:
            name = f"q{len(operators) + 1}"
            used = Resources(load, 64)
            operators.append(Operator(name, used, max_instances=1))
            instances.append(InstanceReading(f"{name}-1", name, host, load=used))
    return Snapshot(
        time_s,
        Topology(tuple(operators)),
        HostOffer(HOST),
        tuple(hosts),
        tuple(instances),
        leased_so_far=len(hosts),
    )


def engine_snapshot(arrival_rate_per_s: float, processed_per_s: Sequence[float]) -> Snapshot:
    """Identical engines, one a host, with the tuples per second that each processes."""
    steady = steady_snapshot(hosts=len(processed_per_s))
    instances = zip(steady.instances, processed_per_s, strict=True)
    return replace(
        steady,
        instances=tuple(replace(i, processed_per_s=float(rate)) for i, rate in instances),
        operators=(OperatorReading("work", arrival_rate_per_s=arrival_rate_per_s),),
    )


def station_snapshot(
    rates: Mapping[str, tuple[float, float]],
    allocation: Sequence[int],
    cores_per_host: int = 4,
    reserved: int = 0,
    mean_latency_s: float | None = None,
) -> Snapshot:
    """A chain of operators with (arrival rate, service rate of one instance), packed on hosts.

    allocation: instances of each; reserved: cores taken by something else on all hosts together.
    """
    names = list(rates)
    edges = [Edge("input", names[0])]
    for before, after in pairwise(names):
        edges.append(Edge(before, after, ratio=rates[after][0] / rates[before][0]))
    copies = [(name, n) for name, k in zip(names, allocation, strict=True) for n in range(1, k + 1)]
    hosts = math.ceil((len(copies) + reserved) / cores_per_host)
    capacity = Resources(cores_per_host)
    return Snapshot(
        time_s=0.0,
        topology=Topology(
            tuple(Operator(name, Resources(1), 1 / mu) for name, (_, mu) in rates.items()),
            (Source("input", rates[names[0]][0]),),
            tuple(edges),
        ),
        offer=HostOffer(capacity),
        hosts=tuple(Host(f"host-{n}", capacity) for n in range(1, hosts + 1)),
        instances=tuple(
            InstanceReading(f"{name}-{n}", name, f"host-{1 + slot // cores_per_host}")
            for slot, (name, n) in enumerate(copies)
        ),
        operators=tuple(OperatorReading(n, arrival_rate_per_s=r[0]) for n, r in rates.items()),
        latency=Latency(mean_s=mean_latency_s),
        leased_so_far=hosts,
    )


# --- the contract of a policy -----------------------------------------------------------------


def check_policy(policy: Policy, seed: int = 0, worlds: int = 8, turns: int = 12) -> None:
    """Raise CheckFailed unless the policy keeps its contract in a number of imagined worlds.

    It must be **pure** (inputs untouched; no clock, be it of ``time`` or ``datetime``; no lots from
    the global generators of ``random`` and ``numpy.random`` or from the system) and
    **deterministic**, its plans **feasible** and **idempotent** and **explained**, its memory must
    **round-trip** through JSON, and it must not shrink what it cannot see.

    seed: of the worlds and of the policy's own lots; worlds, turns: how many to try.
    """
    for number in range(worlds):
        world = ImaginaryWorld(seed=seed * 1000 + number, style=policy.style)
        memory = policy.initial_memory(seed)
        for turn in range(turns):
            snapshot = world.observe()
            where = f"{policy.name}, world {number}, turn {turn}"
            plan, after = _pure_decision(policy, snapshot, memory, where)
            _check_round_trip(policy, snapshot, memory, plan, after, where)
            _check_plan(policy, snapshot, plan, where)
            _check_blind(policy, snapshot, memory, where)
            world.apply(plan)
            if left := diff(world.observe().requested, plan):
                _fail("idempotent", where, f"applying the plan leaves {left[0]}")
            world.advance()
            memory = after


def _fail(rule: str, where: str, what: str) -> NoReturn:
    raise CheckFailed(f"not {rule} ({where}): {what}")


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Collects the names of the clocks that are read inside, and of the system's random numbers.

    A profiler is told of every C function that Python code calls, under whatever name that was
    imported; ``datetime`` is written in C and cannot be patched. What C code calls by itself
    (``map(time.time, …)``) stays hidden.
    """
    read: list[str] = []

    def see(_: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if owner is time and name in CLOCKS:
            read.append(f"time.{name}")
        elif isinstance(owner, type) and issubclass(owner, date) and name in DATES:
            read.append(f"{owner.__name__}.{name}")
        elif name == "urandom":
            read.append("os.urandom")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # others' callbacks to collections look at clocks, in the middle of anything
    sys.setprofile(see)
    try:
        yield read
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()


def _global_lots() -> dict[str, Any]:
    """The states of the generators that everybody shares: whoever draws from one changes it."""
    import numpy as np

    state: Any = np.random.get_state(legacy=False)
    key = state["state"]["key"].tobytes()
    rest = state["state"]["pos"], state["has_gauss"], state["gauss"]
    return {"random": random.getstate(), "numpy.random": (key, *rest)}


def _pure_decision(policy: Policy, snapshot: Snapshot, memory: Any, where: str) -> tuple[Plan, Any]:
    seen, known, lots = to_json(snapshot), policy.save_memory(memory), _global_lots()
    plan, after = policy.decide(snapshot, memory)
    with _watched() as read:  # the second time, as compilers that run at the first look at clocks
        again, after_again = policy.decide(snapshot, memory)
    remedy = "take time and lots from the arguments"
    if read:
        _fail("pure", where, f"decide() called {read[0]}; {remedy}")
    for name, state in _global_lots().items():
        if state != lots[name]:
            _fail("pure", where, f"decide() drew from the global generator of {name}; {remedy}")
    if to_json(snapshot) != seen:
        _fail("pure", where, "decide() changed the snapshot")
    if policy.save_memory(memory) != known:
        _fail("pure", where, "decide() changed the memory that it was given")
    if (plan, after) != (again, after_again):
        _fail("deterministic", where, "the same snapshot and memory gave two different answers")
    return plan, after


def _check_round_trip(
    policy: Policy, snapshot: Snapshot, memory: Any, plan: Plan, after: Any, where: str
) -> None:
    if from_json(Plan, to_json(plan)) != plan:
        _fail("round-trip", where, "the plan changes when it is written as JSON and read back")
    if policy.load_memory(policy.save_memory(after)) != after:
        _fail("round-trip", where, "the memory changes when it is saved and loaded")
    twin = policy.load_memory(policy.save_memory(memory))
    if policy.decide(from_json(Snapshot, to_json(snapshot)), twin) != (plan, after):
        _fail("round-trip", where, "a loaded snapshot and memory give another decision")


def _check_plan(policy: Policy, snapshot: Snapshot, plan: Plan, where: str) -> None:
    if broken := broken_rules(snapshot, plan, policy.measure):
        _fail("feasible", where, broken[0])
    if diff(plan.deployment, plan):
        _fail("idempotent", where, "the plan differs from itself")
    if plan.deployment != snapshot.requested and not (plan.reasons or plan.bindings):
        _fail("explained", where, "the plan changes something and gives no reason")


def _check_blind(policy: Policy, snapshot: Snapshot, memory: Any, where: str) -> None:
    """Without any measurement nothing may be released or stopped.

    A guard may still do so, as a bound or a budget does: that is an order and not a guess.
    """
    blind = replace(
        snapshot,
        hosts=tuple(replace(host, utilisation=None) for host in snapshot.hosts),
        instances=tuple(replace(i, load=None, processed_per_s=None) for i in snapshot.instances),
        operators=(),
        latency=Latency(),
        batches=None,
    )
    if policy.name == "static":
        return  # a fixed number needs no measurement
    plan, _ = policy.decide(blind, memory)
    now = snapshot.requested
    if max(plan.raw_target, plan.bounded_target) < len(now.hosts):
        _fail("careful", where, "hosts are released although nothing was measured")
    raw = plan.raw or plan.deployment
    fewer = (now.counts - plan.deployment.counts) & (now.counts - raw.counts)
    if fewer:
        _fail("careful", where, f"{next(iter(fewer))} shrinks although nothing was measured")
