"""The contract of a policy, and snapshots for tests of policies.

`check_policy` is to a policy what Gymnasium's `check_env` is to an environment. The tests of this
package run it over all policies.
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
    """Hosts with four cores, half busy, that run one operator, ``work``.

    Args:
        hosts: Number of hosts.
        queue_length: Items that wait; None if not measured.
        durations_s: The last durations of items in seconds, oldest first.
        lease_left_s: Seconds until the current billing unit of 600 s ends.
        batch_durations_s: Durations of batches with a trigger interval of 10 s.
        time_s: Time of the snapshot, in seconds.
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
    """Operators q1, q2 … on hosts with four cores. cores: the cores that each uses, by host."""
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
    """Identical engines, one per host. processed_per_s: tuples per second of each engine."""
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
    """A chain of operators, packed on hosts.

    rates: (arrival rate, service rate of one instance) by operator, per second. allocation:
    instances of each operator. cores_per_host: cores of a host. reserved: cores in use by something
    else, in total. mean_latency_s: mean latency in seconds; None if not measured.
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
    """Raise CheckFailed unless a policy keeps its contract in a number of random worlds.

    - It is **pure**: it changes no input, reads no clock of ``time`` or ``datetime``, and draws no
      numbers from the global generators of ``random`` and ``numpy.random`` or from the system.
    - It is **deterministic**: the same input gives the same plan.
    - Its plans are **feasible**, **idempotent** and **explained**.
    - Its memory survives a **round-trip** through JSON.
    - It is **careful**: it does not scale in when nothing was measured.

    seed: random seed of the worlds and of the policy. worlds, turns: the number to try.
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
    """Collect the names of the clocks and of the system's random sources that the body uses.

    A profiler sees every C function that Python code calls, under any imported name; ``datetime``
    is written in C and cannot be patched. Calls from C code (``map(time.time, …)``) stay hidden.
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
    gc.disable()  # callbacks of the garbage collector may read clocks at any moment
    sys.setprofile(see)
    try:
        yield read
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()


def _global_generators() -> dict[str, Any]:
    """The states of the shared random generators; a draw changes them."""
    import numpy as np

    state: Any = np.random.get_state(legacy=False)
    key = state["state"]["key"].tobytes()
    rest = state["state"]["pos"], state["has_gauss"], state["gauss"]
    return {"random": random.getstate(), "numpy.random": (key, *rest)}


def _pure_decision(policy: Policy, snapshot: Snapshot, memory: Any, where: str) -> tuple[Plan, Any]:
    seen, known, states = to_json(snapshot), policy.save_memory(memory), _global_generators()
    plan, after = policy.decide(snapshot, memory)
    with _watched() as read:  # the second time; at the first, a compiler may read clocks
        again, after_again = policy.decide(snapshot, memory)
    remedy = "use the time and the random seed in the arguments"
    if read:
        _fail("pure", where, f"decide() called {read[0]}; {remedy}")
    for name, state in _global_generators().items():
        if state != states[name]:
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
    """Without measurements, a policy must not release or stop anything.

    A guard may still do so, as a bound or a budget does.
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
