"""What the clock does is of no consequence: every policy and every guard, with jumps both ways.

A small world answers to the plans: its hosts are those that were planned last. Once the clock goes
evenly again, a policy must come to the same size as one whose clock always did, within as many
turns. A wait that ends at a date of the future would keep it from that for hours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guards.helpers import FixedTarget
from tidegate.guards import GUARDS, Guard
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import Deployment, Instance, InstanceReading, Latency, Lease, Snapshot
from tidegate.policies import available, create, policy_class
from tidegate.policies.base import Policy, Situation
from tidegate.policies.trend import Trend
from tidegate.testing import fleet_snapshot, steady_snapshot

INTERVAL_S = 10.0
LEASE = Lease(200.0, 1.0, started_s=0.0)
FIRST, REST = 5, 36
"""Turns with jumps, and turns after them: six minutes, longer than any wait."""
MOST = 6
JUMPS = st.lists(
    st.tuples(
        st.integers(1, FIRST - 1), st.sampled_from([-1e7, -3600.0, -75.0, -1.0, 75.0, 3600.0, 1e7])
    ),
    min_size=1,
    max_size=2,
)
EXAMPLES = 2 * max(1, int(os.environ.get("TIDEGATE_FUZZ", "0")) // 100)
"""Of each policy; ``make fuzz`` tries more."""
BUSY, IDLE = 300.0, 2.0
"""Items a second: more than all hosts can process, and fewer than one can."""


def engines(now: Deployment, time_s: float, rate: float) -> Snapshot:
    """Hosts whose instances process five items a second each."""
    count = len(now.instances)
    late = rate > 5 * count
    snapshot = steady_snapshot(
        queue_length=500.0 if late else 0.0,
        durations_s=[9.0 if late else 0.2] * 5,
        batch_durations_s=[14.0 if late else 1.0] * 3,
        time_s=time_s,
    )
    (host,), (reading,) = snapshot.hosts, snapshot.operators
    busy = min(1.0, rate / (5 * count)) if rate > IDLE else 0.0
    return replace(
        snapshot,
        interval_s=INTERVAL_S,
        offer=replace(snapshot.offer, max_hosts=MOST),
        hosts=tuple(replace(host, id=name, utilisation=busy, lease=LEASE) for name in now.hosts),
        instances=tuple(
            InstanceReading(one.id, one.operator, one.host, processed_per_s=min(5.0, rate / count))
            for one in now.instances
        ),
        operators=(
            replace(reading, arrival_rate_per_s=rate, processed_per_s=min(rate, 5.0 * count)),
        ),
        latency=Latency(9.0, 9.0, 9.0) if late else Latency(0.2, 0.2, 0.3),
        leased_so_far=999,
    )


def fleet(placed: dict[str, list[float]], time_s: float) -> Snapshot:
    """Queries on hosts with four cores."""
    snapshot = fleet_snapshot(placed, time_s)
    return replace(snapshot, interval_s=INTERVAL_S, offer=replace(snapshot.offer, max_hosts=MOST))


def times(jumps: Sequence[tuple[int, float]]) -> list[float]:
    """When the turns take place: every ten seconds, but for the jumps."""
    found, now = [], 2e9
    for turn in range(FIRST + REST):
        now += INTERVAL_S + sum(by for at, by in jumps if at == turn)
        found.append(now)
    return found


def sizes(policy: Policy, busy: bool, clock: Sequence[float]) -> list[int]:
    """The number of hosts after each turn."""
    memory: Any = policy.initial_memory()
    if policy.style == "placement":
        return _placed(policy, memory, busy, clock)
    names = [f"host-{n}" for n in range(1, (1 if busy else MOST) + 1)]
    now = Deployment(
        tuple(names), tuple(Instance(f"work-{n}", "work", h) for n, h in enumerate(names, 1))
    )
    found = []
    for time_s in clock:
        plan, memory = policy.decide(engines(now, time_s, BUSY if busy else IDLE), memory)
        now = plan.deployment
        found.append(len(now.hosts))
    _round_trip(policy, memory)
    return found


def _placed(policy: Policy, memory: Any, busy: bool, clock: Sequence[float]) -> list[int]:
    load = 0.9 if busy else 0.1
    home = {f"q{n + 1}": f"host-{1 if busy else n // 2 + 1}" for n in range(8)}
    deployment: Deployment | None = None
    found = []
    for time_s in clock:
        placed: dict[str, list[float]] = {}
        for query in sorted(home):
            placed.setdefault(home[query], []).append(load)
        snapshot = _named(fleet(placed, time_s), home)
        if deployment is not None:
            empty = tuple(h for h in deployment.hosts if h not in placed)
            hosts = tuple(replace(snapshot.hosts[0], id=h, utilisation=0.0) for h in empty)
            snapshot = replace(snapshot, hosts=(*snapshot.hosts, *hosts), leased_so_far=99)
        plan, memory = policy.decide(snapshot, memory)
        deployment = plan.deployment
        home = {one.operator: one.host for one in deployment.instances}
        found.append(len(deployment.hosts))
    _round_trip(policy, memory)
    return found


def _named(snapshot: Snapshot, home: dict[str, str]) -> Snapshot:
    """The snapshot with the queries where they are, since `fleet_snapshot` numbers them anew."""
    order = [query for host in dict.fromkeys(i.host for i in snapshot.instances)
             for query in sorted(home) if home[query] == host]  # fmt: skip
    operators = tuple(
        replace(operator, name=query)
        for operator, query in zip(snapshot.topology.operators, order, strict=True)
    )
    instances = tuple(
        replace(instance, id=f"{query}-1", operator=query)
        for instance, query in zip(snapshot.instances, order, strict=True)
    )
    topology = replace(snapshot.topology, operators=operators)
    return replace(snapshot, topology=topology, instances=instances)


def _round_trip(policy: Policy, memory: Any) -> None:
    assert policy.load_memory(policy.save_memory(memory)) == memory


def bare(name: str) -> Policy:
    return create(name, t_max_s=1.0) if name == "drs" else create(name)


def stacked(name: str) -> Policy:
    options, situation = StackOptions(max_hosts=MOST), Situation(slo_s=1.0)
    if policy_class(name).style == "placement":
        return build_stack(name, situation, options, kind="fleet")
    return build_stack(name, situation, options)


def guarded(guard: type[Guard]) -> Callable[[bool], Policy]:
    """A guard around a policy that wants as many hosts as there may be, or one."""
    return lambda busy: guard.around(FixedTarget(MOST if busy else 1), {})


USUAL: dict[str, list[int]] = {}


def holds(make: Callable[[bool], Policy], jumps: Sequence[tuple[int, float]]) -> None:
    for busy in (True, False):
        policy = make(busy)
        key = f"{policy.describe()} {busy}"
        if key not in USUAL:
            USUAL[key] = sizes(policy, busy, times(()))
        usual = USUAL[key]
        jumped = sizes(make(busy), busy, times(jumps))
        if busy:
            assert jumped[-1] >= usual[-1], (usual, jumped)
            assert jumped == sorted(jumped), "under load nothing is released"
        else:
            # A policy that waits for the end of paid time may miss one such moment.
            last = -1 - round(LEASE.billing_unit_s / INTERVAL_S) if policy.picks_its_moment else -1
            assert jumped[-1] <= usual[last], (usual, jumped)


@pytest.mark.parametrize("name", sorted(available()))
@given(jumps=JUMPS)
@settings(max_examples=EXAMPLES)
def test_a_policy_is_not_held_up(name: str, jumps: list[tuple[int, float]]) -> None:
    holds(lambda busy: bare(name), jumps)


@pytest.mark.parametrize("name", sorted(available()))
@given(jumps=JUMPS)
@settings(max_examples=EXAMPLES // 2)
def test_nor_is_one_with_its_guards(name: str, jumps: list[tuple[int, float]]) -> None:
    holds(lambda busy: stacked(name), jumps)


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.name for guard in GUARDS])
@given(jumps=JUMPS)
@settings(max_examples=EXAMPLES // 2)
def test_a_guard_is_not_held_up(guard: type[Guard], jumps: list[tuple[int, float]]) -> None:
    holds(guarded(guard), jumps)


@given(jumps=JUMPS)
@settings(max_examples=EXAMPLES)
def test_nor_is_a_forecast(jumps: list[tuple[int, float]]) -> None:
    holds(lambda busy: Trend(inner=bare("ds2")), jumps)


def test_the_world_of_these_tests_moves_policies() -> None:
    grown = {name for name in available() if sizes(bare(name), True, times(()))[-1] > 1}
    assert grown == {*available()} - {"static"}
    shrunk = {name for name in available() if sizes(bare(name), False, times(()))[-1] < MOST}
    assert shrunk >= {*available()} - {"static", "adaptive-provisioning"}
