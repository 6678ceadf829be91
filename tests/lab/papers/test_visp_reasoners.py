"""The authors' reasoners, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tidegate.codec import from_json, to_json
from tidegate.lab.papers.visp.reasoners import (
    CODE_NAMES,
    BaselineReasoner,
    BtuReasoner,
    Records,
    java_order,
)
from tidegate.lab.papers.visp.world import CODE_HOST, make_topology
from tidegate.model import Host, HostOffer, InstanceReading, OperatorReading, Plan, Snapshot

TOPOLOGY = make_topology("code", code_demands=True)
OFFER = HostOffer(CODE_HOST, billing_unit_s=600.0)
BUSY, CALM = (60.0, (0.9,) * 5), (5.0, (0.1,) * 5)


def world(
    hosts: Mapping[str, Sequence[str]],
    readings: Mapping[str, tuple[float, tuple[float, ...]]],
    time_s: float = 60.0,
) -> Snapshot:
    """Instances by host; waiting items and durations by operator, calm unless they are given."""
    instances, numbers = [], dict.fromkeys(TOPOLOGY.by_name, 0)
    for host, operators in hosts.items():
        for operator in operators:
            numbers[operator] += 1
            instances.append(InstanceReading(f"{operator}-{numbers[operator]}", operator, host))
    seen = {name: readings.get(name, CALM) for name in TOPOLOGY.by_name}
    return Snapshot(
        time_s,
        TOPOLOGY,
        OFFER,
        tuple(Host(host, CODE_HOST) for host in hosts),
        tuple(instances),
        tuple(
            OperatorReading(name, queue_length=waiting, recent_durations_s=durations)
            for name, (waiting, durations) in seen.items()
        ),
        leased_so_far=len(hosts),
    )


ALL = list(TOPOLOGY.by_name)


def counts(plan: Plan, operator: str) -> int:
    return plan.deployment.counts[operator]


def test_names_come_in_the_order_of_javas_map() -> None:
    """ "AaAa" and "BBBB" have the same hash in Java, and "a" comes before "b"."""
    assert java_order(["b", "a"]) == ["a", "b"]
    assert java_order(["BBBB", "AaAa"]) == ["BBBB", "AaAa"], "as they were put in"
    assert sorted(java_order(list(CODE_NAMES.values()))) == sorted(CODE_NAMES.values())


@pytest.mark.parametrize(
    ("reading", "more"),
    [
        ((49.0, (2.0,) * 5), 0),  # late, but fewer than 50 wait
        ((51.0, (0.7,) * 5), 1),  # the mean is above 0.6 s
        ((51.0, (0.4,) * 5), 1),  # a constant 0.4 s is predicted to double
        ((51.0, (0.2,) * 5), 0),
        ((251.0, (0.7,) * 5), 2),  # late and far behind
        ((251.0, (0.2,) * 5), 1),  # far behind, although in time
    ],
)
def test_algorithm_1_as_coded(reading: tuple[float, tuple[float, ...]], more: int) -> None:
    plan, _ = BtuReasoner().decide(world({"host-1": ALL}, {"O6": reading}), Records())
    assert counts(plan, "O6") == 1 + more


def test_a_stopped_instance_serves_until_the_next_turn() -> None:
    hosts = {"host-1": ALL, "host-2": ["O6"]}
    plan, records = BaselineReasoner().decide(world(hosts, {"O6": (5.0, ())}), Records())
    assert counts(plan, "O6") == 2 and list(records.stopping) == ["O6-2"]
    plan, records = BaselineReasoner().decide(world(hosts, {"O6": (100.0, ())}, 120.0), records)
    assert counts(plan, "O6") == 1 and not records.stopping
    assert plan.deployment.hosts == ("host-1", "host-2") and list(records.marked) == ["host-2"]
    left = {"host-1": ALL, "host-2": []}
    plan, records = BaselineReasoner().decide(world(left, {"O6": (100.0, ())}, 180.0), records)
    assert plan.deployment.hosts == ("host-1",)


@pytest.mark.parametrize(
    ("policy", "stopped"),
    [(BaselineReasoner(), "O6-2"), (BaselineReasoner(stops="newest"), "O6-3")],
    ids=["emptiest", "newest"],
)
def test_the_baseline_stops_the_instance_on_the_emptiest_host_or_the_newest(
    policy: BaselineReasoner, stopped: str
) -> None:
    hosts = {"host-1": ALL, "host-2": ["O6"], "host-3": ["O6", "O1", "O1"]}
    waiting = dict.fromkeys(ALL, (100.0, ())) | {"O6": (5.0, ())}
    _, records = policy.decide(world(hosts, waiting), Records())
    assert list(records.stopping) == [stopped]


def test_a_host_is_leased_although_scaling_down_made_room() -> None:
    hosts = {"host-1": ALL, "host-2": ["O1"] * 4 + ["O6"]}
    seen = world(hosts, {"O1": (0.0, (0.1,) * 5), "O6": BUSY}, 540.0)
    plan, after = BtuReasoner().decide(seen, Records(activities=10))
    assert len(plan.deployment.hosts) == 3
    assert {name.split("-")[0] for name in after.stopping} == {"O1"}


def test_a_young_host_prolongs_one_other_and_ends_the_look() -> None:
    hosts = {"host-1": ALL, "host-2": ["O6"], "host-3": ["O6"]}
    ends = {"host-1": 610.0, "host-2": 610.0, "host-3": 1100.0}
    records = Records(unit_ends_s=ends, started_s=500.0, units=3)
    plan, after = BtuReasoner().decide(world(hosts, {}, 590.0), records)
    assert [reason.subject for reason in plan.reasons] == ["host-1"]
    assert (after.units, after.unit_ends_s["host-2"]) == (4, 610.0)


def test_a_host_whose_instances_can_be_spared_leaves_a_turn_later() -> None:
    hosts = {"host-1": ALL, "host-2": ["O6"]}
    ends = {"host-1": 1100.0, "host-2": 610.0}
    seen = world(hosts, {"O6": (0.0, (0.1,) * 5)}, 590.0)
    plan, records = BtuReasoner().decide(seen, Records(unit_ends_s=ends, started_s=0.0, units=2))
    assert list(records.marked) == ["host-2"] and list(records.stopping) == ["O6-2"]
    assert records.units == 2
    plan, records = BtuReasoner().decide(replace(seen, time_s=650.0), records)
    assert plan.deployment.hosts == ("host-1",) and counts(plan, "O6") == 1


def test_the_last_host_is_neither_released_nor_prolonged() -> None:
    records = Records(unit_ends_s={"host-1": 610.0}, units=1)
    for policy in (BtuReasoner(), BaselineReasoner()):
        plan, after = policy.decide(world({"host-1": ALL}, {}, 700.0), records)
        assert (plan.deployment.hosts, after.units) == (("host-1",), 1)


@pytest.mark.parametrize("policy", [BtuReasoner(), BaselineReasoner()], ids=lambda p: p.name)
def test_a_decision_is_pure_and_the_books_survive_json(
    policy: BtuReasoner | BaselineReasoner,
) -> None:
    hosts = {"host-1": ALL, "host-2": ["O6", "O6"]}
    seen, records = world(hosts, {"O6": BUSY, "O2": (300.0, (2.0,) * 5)}, 590.0), Records(seed=3)
    first, again = policy.decide(seen, records), policy.decide(seen, records)
    assert first == again
    assert from_json(Records, to_json(first[1])) == first[1]
    blind = replace(seen, time_s=300.0, operators=tuple(OperatorReading(name) for name in ALL))
    plan, after = policy.decide(blind, Records())
    assert plan.deployment == blind.requested and not after.stopping
