"""Measurements that are wrong by orders of magnitude: a decision is quick and leases little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.model import Latency, Snapshot
from tidegate.packing.packing import MOST_NEW_HOSTS
from tidegate.policies import available, create
from tidegate.testing import fleet_snapshot, station_snapshot, steady_snapshot

ABSURD = (1e7, 1e12, 1e300)


def engines(size: float) -> Snapshot:
    """One host, without a limit on further ones, and an absurd rate and backlog."""
    snapshot = steady_snapshot(
        queue_length=size, durations_s=[size] * 5, batch_durations_s=[size] * 3
    )
    (reading,) = snapshot.operators
    return replace(
        snapshot,
        operators=(replace(reading, arrival_rate_per_s=size, processed_per_s=1.0),),
        instances=tuple(replace(one, processed_per_s=1.0) for one in snapshot.instances),
        latency=Latency(size, size, size),
        interval_s=10.0,
    )


@pytest.mark.parametrize("name", sorted(available()))
@pytest.mark.parametrize("size", ABSURD)
def test_a_policy_wants_a_limited_number_of_hosts(name: str, size: float) -> None:
    policy = create(name)
    snapshot = engines(size)
    if policy.style == "placement":
        load = min(size, 1e15)  # the model refuses larger ones
        snapshot = fleet_snapshot({"host-1": [load, load]})
    memory = policy.initial_memory()
    for turn in range(3):
        plan, memory = policy.decide(replace(snapshot, time_s=1e9 + 60.0 * turn), memory)
        assert 1 <= len(plan.deployment.hosts) <= 1 + MOST_NEW_HOSTS
        assert policy.load_memory(policy.save_memory(memory)) == memory


@pytest.mark.parametrize("size", ABSURD)
def test_a_network_of_queues_has_a_limit_as_well(size: float) -> None:
    snapshot = station_snapshot({"parse": (13.0, 5.0), "match": (13.0, 4.4)}, (3, 4))
    first, second = snapshot.operators
    snapshot = replace(snapshot, operators=(first, replace(second, queue_length=size)))
    drs = create("drs", t_max_s="1s")
    plan, _ = drs.decide(snapshot, drs.initial_memory())
    assert len(plan.deployment.hosts) <= 2 + MOST_NEW_HOSTS
    assert plan.unmet
