from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.model import Deployment, Host, HostOffer, Instance, Plan, Unmet
from tidegate.model.topology import Resources
from tidegate.packing.feasibility import broken_rules
from tidegate.testing import HOST, fleet_snapshot, steady_snapshot

NOW = replace(
    steady_snapshot(hosts=2),
    offer=HostOffer(HOST, max_hosts=3),
    hosts=(*steady_snapshot(hosts=2).hosts, Host("leaving", HOST, "draining")),
)
ONE, TWO = Instance("work-1", "work", "host-1"), Instance("work-2", "work", "host-2")


def planned(hosts: tuple[str, ...], *instances: Instance) -> Plan:
    return Plan(Deployment(hosts, instances))


def test_nothing_is_wrong_with_what_is_there() -> None:
    assert broken_rules(NOW, Plan(NOW.requested)) == []


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (planned(("host-1", "host-1"), ONE), "planned twice"),
        (planned(("host-1", "host-2"), ONE, replace(TWO, id="work-1")), "have one id"),
        (planned(("host-1", "leaving"), ONE), "is draining"),
        (planned(("host-2",), ONE), "on host-1, which is not"),
        (planned(("host-1",), ONE, Instance("x-1", "x", "host-1")), "which the topology lacks"),
        (planned(("host-1",)), "work is left without any instance"),
        (
            planned(("host-1", "host-2", "host-3", "host-4"), ONE),
            "4 hosts are planned, but the offer has 3",
        ),
    ],
)
def test_each_rule_is_noticed_when_broken(plan: Plan, words: str) -> None:
    assert any(words in sentence for sentence in broken_rules(NOW, plan))


def test_an_operator_may_be_without_instance_if_the_plan_says_that_it_is_unmet() -> None:
    plan = replace(planned(("host-1",)), unmet=(Unmet("work", 1, "no room"),))
    assert broken_rules(NOW, plan) == []


def test_more_instances_than_an_operator_can_use_are_noticed() -> None:
    fleet = fleet_snapshot({"host-1": [1.0]})
    now = fleet.requested
    twice = Deployment(now.hosts, (*now.instances, Instance("q1-2", "q1", "host-1")))
    assert broken_rules(fleet, Plan(twice)) == ["q1 gets 2 instances, but can use 1"]


def test_a_host_that_is_too_full_may_stay_so_but_gets_nothing_more() -> None:
    full = fleet_snapshot({"host-1": [3.0, 2.0], "host-2": [0.5]})
    assert broken_rules(full, Plan(full.requested)) == []
    moved = Deployment(
        full.requested.hosts,
        tuple(replace(i, host="host-1") for i in full.requested.instances),
    )
    assert "host-1 receives an instance" in broken_rules(full, Plan(moved))[0]


def test_alone_on_a_host_anything_goes() -> None:
    large = fleet_snapshot({"host-1": [5.0], "host-2": []})
    moved = Deployment(("host-1", "host-2"), (Instance("q1-1", "q1", "host-2"),))
    assert broken_rules(large, Plan(moved)) == []


def test_room_is_judged_by_load_or_by_demand_as_the_policy_measures() -> None:
    light = fleet_snapshot({"host-1": [3.0], "host-2": [3.0]})
    light = replace(
        light, instances=tuple(replace(i, load=Resources(1.0)) for i in light.instances)
    )
    together = Deployment(
        ("host-1",), tuple(replace(i, host="host-1") for i in light.requested.instances)
    )
    assert broken_rules(light, Plan(together), "load") == []
    assert len(broken_rules(light, Plan(together), "demand")) == 1
