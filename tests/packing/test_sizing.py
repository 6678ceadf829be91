from __future__ import annotations

from dataclasses import replace

from tidegate.model import HostOffer, Snapshot
from tidegate.packing import Packing
from tidegate.packing.packing import MOST_NEW_HOSTS
from tidegate.packing.sizing import (
    consolidate,
    fill_engine,
    release_empty,
    set_counts,
    set_engines,
    start_somewhere,
)
from tidegate.testing import HOST, fleet_snapshot, station_snapshot, steady_snapshot

CHAIN = {"first": (10.0, 5.0), "second": (10.0, 5.0)}


def limited(snapshot: Snapshot, hosts: int) -> Snapshot:
    return replace(snapshot, offer=replace(snapshot.offer, max_hosts=hosts))


def test_counts_are_reached_upwards_on_new_hosts_where_needed() -> None:
    packing = Packing(station_snapshot(CHAIN, (2, 2)))
    set_counts(packing, {"first": 4, "second": 3})
    assert packing.counts == {"first": 4, "second": 3}
    assert [len(placed) for placed in packing.hosts.values()] == [4, 3]


def test_counts_are_reached_downwards_where_fewest_are_left_and_never_below_one() -> None:
    packing = Packing(station_snapshot(CHAIN, (4, 2)))  # four on host-1, two on host-2
    set_counts(packing, {"second": 0})
    assert packing.counts == {"first": 4, "second": 1}
    mixed = Packing(station_snapshot({"only": (10.0, 5.0)}, (5,)))
    set_counts(mixed, {"only": 4})
    assert {host: len(placed) for host, placed in mixed.hosts.items()} == {"host-1": 4, "host-2": 0}


def test_what_finds_no_room_is_unmet() -> None:
    packing = Packing(limited(station_snapshot(CHAIN, (2, 2)), hosts=1))
    set_counts(packing, {"first": 4})
    assert packing.counts["first"] == 2
    assert [(u.operator, u.instances) for u in packing.unmet] == [("first", 1), ("first", 1)]


def test_an_operator_gets_no_more_instances_than_it_can_use() -> None:
    packing = Packing(fleet_snapshot({"host-1": [1.0]}))
    set_counts(packing, {"q1": 5})
    assert packing.counts == {"q1": 1}


def test_starting_somewhere_prefers_a_host_that_is_there() -> None:
    packing = Packing(steady_snapshot(hosts=2))
    first = start_somewhere(packing, "work")
    assert first is not None
    assert first.host == "host-1"
    full = Packing(station_snapshot(CHAIN, (2, 2)))
    assert start_somewhere(full, "first", lease=False) is None
    assert len(full.unmet) == 1


def test_instances_stop_on_the_emptiest_hosts_and_of_these_on_the_youngest() -> None:
    now = steady_snapshot(hosts=4)
    (name,) = now.topology.by_name
    packing = Packing(now)
    for host in ("host-1", "host-4"):
        packing.start(name, host)
    left = []
    for count in (5, 4, 3):
        set_counts(packing, {name: count})
        left.append([len(placed) for placed in packing.hosts.values()])
    assert left == [[2, 1, 0, 2], [2, 0, 0, 2], [2, 0, 0, 1]]


def test_empty_hosts_are_released_youngest_first_and_some_are_kept() -> None:
    packing = Packing(steady_snapshot(hosts=4))
    for number in (2, 3, 4):
        packing.stop(f"work-{number}")
    release_empty(packing, keep=2)
    assert list(packing.hosts) == ["host-1", "host-2"]
    assert [reason.subject for reason in packing.reasons] == ["host-4", "host-3"]


def test_a_host_with_an_instance_is_never_released_as_empty() -> None:
    packing = Packing(steady_snapshot(hosts=2))
    release_empty(packing)
    assert len(packing.hosts) == 2


def test_consolidation_empties_hosts_whose_instances_fit_elsewhere() -> None:
    packing = Packing(steady_snapshot(hosts=4))
    consolidate(packing, at_least=2)
    assert len(packing.hosts) == 2
    assert packing.counts == {"work": 4}
    consolidate(packing)
    assert len(packing.hosts) == 1


def test_engines_come_with_an_instance_of_each_operator() -> None:
    packing = Packing(station_snapshot(CHAIN, (1, 1)))
    set_engines(packing, 3)
    assert packing.counts == {"first": 3, "second": 3}
    assert [len(placed) for placed in packing.hosts.values()] == [2, 2, 2]


def test_engines_go_youngest_first_unless_others_are_named() -> None:
    packing = Packing(steady_snapshot(hosts=4))
    set_engines(packing, 3)
    assert "host-4" not in packing.hosts
    set_engines(packing, 2, victims=["host-1"])
    assert list(packing.hosts) == ["host-2", "host-3"]


def test_the_last_engine_stays_and_so_does_the_last_instance_of_an_operator() -> None:
    packing = Packing(fleet_snapshot({"host-1": [1.0], "host-2": [1.0]}))
    set_engines(packing, 0)
    assert list(packing.hosts) == ["host-1"]
    assert packing.counts == {"q1": 1, "q2": 1}


def test_a_host_with_an_operator_that_fits_nowhere_else_is_kept_and_the_plan_says_why() -> None:
    packing = Packing(fleet_snapshot({"host-1": [3.0], "host-2": [3.0]}))
    set_engines(packing, 1)
    assert len(packing.hosts) == 2
    assert {reason.code for reason in packing.reasons} == {"keep"}


def test_an_exhausted_offer_is_unmet_demand() -> None:
    packing = Packing(limited(steady_snapshot(hosts=2), hosts=3))
    set_engines(packing, 5)
    assert len(packing.hosts) == 3
    assert [unmet.instances for unmet in packing.unmet] == [2]


def test_an_engine_takes_only_what_it_has_room_for() -> None:
    big = fleet_snapshot({"host-1": [3.0], "host-2": [3.0]})
    free = tuple(replace(o, max_instances=None) for o in big.topology.operators)
    snapshot = replace(big, topology=replace(big.topology, operators=free), offer=HostOffer(HOST))
    packing = Packing(snapshot)
    host = packing.lease()
    assert host is not None
    fill_engine(packing, host)
    assert [i.operator for i in packing.hosts[host].values()] == ["q1"]


def test_one_decision_leases_a_limited_number_of_hosts_and_says_so() -> None:
    engines = Packing(steady_snapshot(hosts=2))
    set_engines(engines, 10**9)
    assert len(engines.hosts) == 2 + MOST_NEW_HOSTS
    (unmet,) = engines.unmet
    assert unmet.instances == 10**9 - 2 - MOST_NEW_HOSTS
    assert unmet.why == "one decision leases 1000 hosts at most"

    packing = Packing(station_snapshot(CHAIN, (2, 2)))  # four fit on a host
    set_counts(packing, {"first": 10**9, "second": 3})
    assert len(packing.hosts) == 1 + MOST_NEW_HOSTS
    room = 4 * (1 + MOST_NEW_HOSTS)
    assert packing.counts == {"first": room - 2, "second": 2}
    assert [(one.operator, one.instances) for one in packing.unmet] == [
        ("first", 10**9 - room + 2),
        ("second", 1),
    ]
