"""A query that fits nowhere runs on a crowded host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.guards.helpers import FixedTarget
from tidegate.guards import EveryQueryRuns
from tidegate.model import Deployment, Instance, Plan, Snapshot
from tidegate.model.topology import Operator, Resources
from tidegate.testing import steady_snapshot


def decided(hosts: tuple[str, ...], *instances: tuple[str, str]) -> Plan:
    """The plan for queries of 3, 2 and 1 cores, of which some run. instances: query and host."""
    steady = steady_snapshot(hosts=2)
    sizes = {"large": 3.0, "middle": 2.0, "small": 1.0}
    operators = tuple(Operator(name, Resources(cores)) for name, cores in sizes.items())
    topology = replace(steady.topology, operators=operators, edges=())
    snapshot = replace(steady, topology=topology, operators=(), instances=())
    wanted = Deployment(hosts, tuple(Instance(f"{n}-1", n, host) for n, host in instances))

    @dataclass(frozen=True)
    class Planned(FixedTarget):
        def decide(self, snapshot: Snapshot, memory: int) -> tuple[Plan, int]:
            return Plan(wanted), memory

    guard = EveryQueryRuns(Planned())
    return guard.decide(snapshot, guard.initial_memory())[0]


def test_missing_queries_go_where_most_room_is_left() -> None:
    plan = decided(("a", "b"), ("large", "a"))
    homes = {i.operator: (i.id, i.host) for i in plan.deployment.instances}
    assert homes == {
        "large": ("large-1", "a"),
        "middle": ("middle-1", "b"),
        "small": ("small-1", "b"),
    }
    (binding,) = plan.bindings
    assert binding.why == "middle, small would not run"
    assert plan.deployment.hosts == ("a", "b")


def test_what_it_has_placed_itself_takes_room_too() -> None:
    plan = decided(("a", "b"), ("small", "a"))
    homes = {i.operator: i.host for i in plan.deployment.instances}
    assert homes == {"small": "a", "large": "b", "middle": "a"}


def test_nothing_is_added_to_a_plan_in_which_all_run_nor_to_one_without_hosts() -> None:
    whole = decided(("a",), ("large", "a"), ("middle", "a"), ("small", "a"))
    assert not whole.bindings and len(whole.deployment.instances) == 3
    empty = decided(())
    assert not empty.bindings and empty.deployment.instances == ()
