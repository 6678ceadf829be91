"""Every value comes back from JSON as it went in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import deployments, plans, snapshots, topologies
from tidegate.codec import from_json, from_plain, to_json, to_plain
from tidegate.model import Deployment, Plan, Snapshot
from tidegate.model.steps import Step, diff
from tidegate.model.topology import Topology
from tidegate.policies import available, create
from tidegate.testing.worlds import ImaginaryWorld


def returns_unchanged(kind: type, value: Any) -> bool:
    by_text: Any = from_json(kind, to_json(value))
    by_values: Any = from_plain(kind, to_plain(value))
    return bool(by_text == value and by_values == value and to_json(by_text) == to_json(value))


@given(topologies())
def test_a_topology_returns_unchanged(topology: Topology) -> None:
    assert returns_unchanged(Topology, topology)


@given(snapshots())
def test_a_snapshot_returns_with_the_missing_still_missing(snapshot: Snapshot) -> None:
    again = from_json(Snapshot, to_json(snapshot))
    assert again == snapshot
    assert from_plain(Snapshot, to_plain(snapshot)) == snapshot
    needs = ("host.utilisation", "instance.load", "operator.queue_length", "latency.mean_s")
    assert again.missing(needs) == snapshot.missing(needs)


@given(plans())
def test_a_plan_returns_unchanged(plan: Plan) -> None:
    assert returns_unchanged(Plan, plan)


@given(deployments(), deployments())
def test_every_step_between_two_deployments_returns_unchanged(
    before: Deployment, after: Deployment
) -> None:
    assert all(returns_unchanged(Step, step) for step in diff(before, after))


@pytest.mark.parametrize("name", available())
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_the_memory_of_each_policy_returns_unchanged_after_some_turns(name: str, seed: int) -> None:
    policy = create(name)
    world = ImaginaryWorld(seed, policy.style)
    memory = policy.initial_memory(seed)
    for _ in range(4):
        plan, memory = policy.decide(world.observe(), memory)
        world.apply(plan)
        world.advance()
        saved = policy.save_memory(memory)
        assert policy.load_memory(saved) == memory
        assert from_json(type(memory), to_json(memory)) == memory
