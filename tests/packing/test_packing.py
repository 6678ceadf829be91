from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import Deployment, Host, HostOffer, Instance, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Topology
from tidegate.packing import Measure, Packing
from tidegate.testing import HOST, fleet_snapshot, steady_snapshot

FLEET = fleet_snapshot({"host-1": [2.0, 1.0], "host-2": [1.0], "host-3": [3.5]})


def test_it_begins_with_what_is_requested_and_the_room_left() -> None:
    packing = Packing(FLEET, "load", fill=0.8)
    assert packing.deployment == FLEET.requested
    assert [round(left[0], 6) for left in packing.free.values()] == [0.2, 2.2, -0.3]
    assert packing.free["host-1"][1] == 7168 - 128  # the share is one of the CPU only


def test_it_does_not_matter_when_the_room_left_is_asked_for() -> None:
    asked, unasked = Packing(FLEET, "load"), Packing(FLEET, "load")
    assert asked.free
    for packing in (asked, unasked):
        new = packing.lease()
        assert new is not None
        packing.release(new)
        packing.release("host-2")
        packing.start("q1", "host-1")
    assert unasked.free == asked.free
    assert unasked.sizes == asked.sizes
    alone = Packing(Snapshot(0, FLEET.topology, FLEET.offer), deployment=Deployment(("host-9",)))
    alone.release("host-9")  # empty, so that nothing has asked for its room before
    assert alone.free == {}


def test_the_room_on_hosts_that_may_be_full_is_known_without_listing_them() -> None:
    def never() -> tuple[Host, ...]:
        raise AssertionError("nobody needs the hosts")

    known = {name: value for name, value in vars(FLEET).items() if name != "hosts"}
    known |= {"requested": FLEET.requested, "capacities": FLEET.capacities}
    unlisted = Snapshot.unchecked(**known, hosts_later=never)
    assert Packing(unlisted).free == Packing(FLEET).free


def test_a_decision_that_changes_nothing_lists_no_hosts() -> None:
    packing = Packing(FLEET)
    assert packing.host_count == 3
    plan = packing.plan()
    assert plan.deployment is FLEET.requested
    assert packing.has("host-2") and not packing.has("host-4")
    assert "hosts" not in vars(packing)
    assert packing.host_count == len(packing.hosts) == 3
    packing.release("host-2")
    assert packing.lease() == "host-4"
    assert packing.has("host-4") and not packing.has("host-2")
    packing.lease()
    assert packing.host_count == len(packing.hosts) == 4
    asked = Packing(FLEET)
    assert asked.hosts
    assert asked.plan() == plan


def test_an_instance_that_returns_has_not_moved() -> None:
    packing = Packing(FLEET)
    packing.move("q1-1", "host-2")
    assert packing.deployment.home["q1-1"] == "host-2"
    packing.move("q1-1", "host-1")
    assert packing.deployment is FLEET.requested
    started = packing.start("q1", "host-2")
    packing.stop("q2-1")
    expected = {**FLEET.requested.home, started.id: "host-2"}
    del expected["q2-1"]
    assert packing.deployment.home == expected


def test_a_packing_leaves_the_deployment_as_it_is() -> None:
    snapshot = fleet_snapshot({"host-1": [1.0, 0.8], "host-2": [1.2], "host-3": []})
    now = snapshot.requested
    before = repr((now.by_host, now.home, now.counts))
    packing = Packing(snapshot)
    packing.move("q1-1", "host-3")
    packing.stop("q2-1")
    packing.start("q2", "host-2")
    packing.release("host-3")
    assert repr((now.by_host, now.home, now.counts)) == before


@given(st.lists(st.tuples(st.sampled_from(["move", "start", "stop"]), st.integers(0, 99))))
def test_the_planned_deployment_has_all_instances_in_order(tries: list[tuple[str, int]]) -> None:
    packing = Packing(FLEET)
    for kind, n in tries:
        host, names = f"host-{n % 3 + 1}", sorted(packing.home)
        if kind == "start":
            packing.start(f"q{n % 2 + 1}", host)
        elif names and kind == "move":
            packing.move(names[n % len(names)], host)
        elif names:
            packing.stop(names[n % len(names)])
    every = [i for placed in packing.hosts.values() for i in placed.values()]
    assert repr(packing.deployment) == repr(Deployment(tuple(packing.hosts), tuple(every)))


@pytest.mark.parametrize("missing", [0, 1, 7])
def test_sizes_and_room_are_those_of_a_plain_sum(missing: int) -> None:
    cores = {f"host-{h}": [0.1 * h + 0.01 * n for n in range(9)] for h in (1, 2, 3)}
    snapshot = fleet_snapshot(cores)
    seen = [replace(i, load=None) for i in snapshot.instances[:missing]]
    snapshot = replace(snapshot, instances=(*seen, *snapshot.instances[missing:]))
    packing = Packing(snapshot, "load", fill=0.7)
    load = {i.id: i.load or snapshot.operator(i.operator).demand for i in snapshot.instances}
    assert packing.sizes == load
    assert list(packing.sizes) == sorted(load)
    for host in snapshot.hosts:
        left = host.capacity.cpu_cores * 0.7
        for name in sorted(load):
            if snapshot.requested.home[name] == host.id:
                left -= load[name].cpu_cores
        assert packing.free[host.id][0] == left


TRIES = st.lists(
    st.tuples(
        st.sampled_from(["move", "start", "stop", "lease", "release", "ask", "ask all", "copy"]),
        st.integers(0, 99),
    ),
    max_size=12,
)


@given(st.sampled_from(["load", "demand"]), TRIES)
def test_the_room_on_a_host_is_what_its_instances_leave(
    measure: Measure, tries: list[tuple[str, int]]
) -> None:
    packing = Packing(FLEET, measure)
    for kind, n in tries:
        hosts, names = list(packing.hosts), sorted(packing.home)
        host = hosts[n % len(hosts)]
        if kind == "move" and names:
            packing.move(names[n % len(names)], host)
        elif kind == "start":
            packing.start(f"q{n % 2 + 1}", host)
        elif kind == "stop" and names:
            packing.stop(names[n % len(names)])
        elif kind == "lease":
            packing.lease()
        elif kind == "release" and len(hosts) > 1:
            packing.release(host)
        elif kind == "ask":
            assert packing.room(host)
        elif kind == "ask all":
            assert packing.free
        elif kind == "copy":
            twin = packing.copy()
            twin.start("q1", host)
            twin.release(host)
    assert list(packing.free) == list(packing.hosts)
    for host, placed in packing.hosts.items():
        sizes = [packing.size(one) for one in placed.values()]
        left = (
            HOST.cpu_cores - sum(size.cpu_cores for size in sizes),
            HOST.memory_mb - sum(size.memory_mb for size in sizes),
            HOST.network_mbps - sum(size.network_mbps for size in sizes),
        )
        assert packing.room(host) == pytest.approx(left)
        assert packing.free[host] == packing.room(host)


def test_an_instance_takes_its_load_and_one_that_is_kept_or_started_its_demand() -> None:
    demand = replace(FLEET.operator("q1"), demand=Resources(2.0, 512))
    fleet = replace(FLEET, topology=Topology((demand, *FLEET.topology.operators[1:])))
    (one,) = (i for i in fleet.requested.instances if i.operator == "q1")
    packing = Packing(fleet, "load")
    assert packing.size(one) == fleet.loads[one.id]
    assert packing.size(packing.start("q1", "host-2")) == demand.demand
    without = Deployment(
        FLEET.requested.hosts, tuple(i for i in FLEET.requested.instances if i != one)
    )
    packing = Packing(fleet, "load", deployment=without)
    before = packing.room("host-1")[0]
    packing.keep(one)
    assert packing.size(one) == demand.demand
    assert packing.room("host-1")[0] == before - 2.0


def test_a_release_asks_for_no_room() -> None:
    packing = Packing(FLEET, "load")
    packing.release("host-1")
    assert packing.home == {"q3-1": "host-2", "q4-1": "host-3"}
    assert not packing._rooms
    assert packing.counts == {"q1": 0, "q2": 0, "q3": 1, "q4": 1}


def test_a_copy_shares_nothing_with_the_original() -> None:
    packing = Packing(FLEET)
    before = packing.deployment
    twin = packing.copy()
    twin.move("q1-1", "host-2")
    twin.stop("q2-1")
    twin.start("q2", "host-3")
    twin.because("x", "y")
    twin.release("host-1")
    twin.lease()
    assert packing.deployment == before
    assert packing.reasons == []
    assert packing.free == Packing(FLEET).free
    assert packing.start("q2", "host-2").id == "q2-2"


def test_evacuating_a_host_moves_everything_or_nothing() -> None:
    packing = Packing(FLEET, "load")
    assert packing.evacuate("host-1") is True
    assert packing.home == {"q1-1": "host-2", "q2-1": "host-2", "q3-1": "host-2", "q4-1": "host-3"}
    untouched = packing.copy()
    assert packing.evacuate("host-3") is False
    assert packing.deployment == untouched.deployment
    assert packing.free == untouched.free


def test_an_evacuation_that_fails_halfway_brings_everything_back() -> None:
    tight = fleet_snapshot({"host-1": [3.0, 0.4, 0.3], "host-2": [3.3]})
    packing = Packing(tight, "load")
    assert packing.evacuate("host-1") is False
    assert packing.deployment == tight.requested
    assert packing.free["host-2"][0] == pytest.approx(0.7)


def test_hosts_to_avoid_get_nothing() -> None:
    packing = Packing(FLEET, "load")
    assert packing.evacuate("host-1", avoid={"host-2"}) is False


def test_placing_may_lease_and_leaves_what_is_too_large_where_it_was() -> None:
    packing = Packing(FLEET, "load", fill=0.5)
    assert packing.place(["q1-1", "q2-1"], avoid={"host-1", "host-2"}, lease=False) == [
        "q1-1",
        "q2-1",
    ]
    assert packing.place(["q1-1", "q2-1"], avoid={"host-1", "host-2"}, lease=True) == []
    assert packing.home["q1-1"] == "host-4"


def test_what_is_larger_than_the_share_sits_alone_on_a_new_host() -> None:
    packing = Packing(FLEET, "load", fill=0.5)
    assert packing.place(["q4-1"], avoid={"host-3"}, lease=True) == []
    assert packing.home["q4-1"] == "host-4"
    assert list(packing.hosts["host-4"]) == ["q4-1"]


def test_new_hosts_get_names_that_nobody_had() -> None:
    packing = Packing(replace(FLEET, leased_so_far=7))
    assert packing.lease() == "host-8"
    assert Packing(replace(FLEET, leased_so_far=0)).lease() == "host-4"


def test_new_instances_get_names_that_nobody_had() -> None:
    assert Packing(steady_snapshot(hosts=3)).start("work", "host-1").id == "work-4"


def test_names_of_instances_that_stop_are_not_used_again() -> None:
    going = replace(FLEET.instances[0], id="q1-7", status="stopping")
    snapshot = replace(FLEET, instances=(*FLEET.instances, going))
    assert [instance.id for instance in snapshot.unrequested] == ["q1-7"]
    assert FLEET.unrequested == ()
    assert Packing(snapshot).start("q1", "host-1").id == "q1-8"
    other = Deployment(("host-1",), (Instance("q1-9", "q1", "host-1"),))
    assert Packing(snapshot, deployment=other).start("q1", "host-1").id == "q1-10"


def test_the_offer_ends_where_it_ends_and_draining_hosts_count() -> None:
    offer = HostOffer(HOST, max_hosts=4)
    packing = Packing(replace(FLEET, offer=offer))
    assert packing.lease() == "host-4"
    assert packing.lease() is None
    leaving = (*FLEET.hosts, Host("host-9", HOST, "draining"))
    assert Packing(replace(FLEET, offer=offer, hosts=leaving)).lease() is None


def test_an_operator_without_instance_gets_one_at_once_and_the_plan_says_so() -> None:
    dead = replace(FLEET, instances=FLEET.instances[1:])
    packing = Packing(dead)
    assert packing.home["q1-1"] == "host-1"
    assert [reason.code for reason in packing.reasons] == ["revive"]
    assert Packing(dead, deployment=dead.requested).counts["q1"] == 0


def test_an_operator_that_fits_nowhere_is_unmet_demand() -> None:
    huge = Topology((*FLEET.topology.operators, Operator("huge", Resources(5))))
    packing = Packing(replace(FLEET, topology=huge))
    assert [(u.operator, u.instances) for u in packing.plan().unmet] == [("huge", 1)]
    assert packing.counts["huge"] == 0


def test_the_measured_load_counts_when_asked_for_and_the_demand_otherwise() -> None:
    lighter = replace(FLEET.instances[0], load=Resources(0.5))
    unmeasured = replace(FLEET.instances[1], load=None)
    mixed = replace(FLEET, instances=(lighter, unmeasured, *FLEET.instances[2:]))
    assert Packing(mixed, "load").free["host-1"][0] == 4 - 0.5 - 1.0
    assert Packing(mixed, "demand").free["host-1"][0] == 4 - 2.0 - 1.0


def test_a_host_received_something_only_if_it_was_not_there_before() -> None:
    packing = Packing(FLEET)
    assert not packing.received("host-2")
    packing.move("q2-1", "host-2")
    assert packing.received("host-2")
    packing.move("q2-1", "host-1")
    assert not packing.received("host-1")


def test_the_plan_prices_its_hosts() -> None:
    snapshot = steady_snapshot(hosts=2)  # 1 $ for 600 s
    assert Packing(snapshot).plan().predicted.cost_usd_per_h == 12.0


def test_it_can_begin_from_another_deployment() -> None:
    other = Deployment(("host-2", "host-9"), (Instance("q1-1", "q1", "host-9"),))
    packing = Packing(FLEET, deployment=other)
    assert packing.deployment == other
    assert packing.free["host-9"][0] == 2.0
    assert packing.lease() == "host-10"


def test_limits_on_instances_are_known() -> None:
    packing = Packing(FLEET)
    assert not packing.may_start("q1")
    assert Packing(steady_snapshot()).may_start("work", more=100)


def test_what_has_no_instance_starts_beside_its_neighbours_where_there_is_room() -> None:
    hosts = tuple(Host(f"host-{n}", Resources(4, 7168, 1000)) for n in (1, 2))
    names = {"big": 3.0, "other": 3.0, "reads-other": 0.5, "reads-big": 1.5}
    edges = (Edge("other", "reads-other"), Edge("big", "reads-big"))
    topology = Topology(
        tuple(Operator(n, Resources(c), max_instances=1) for n, c in names.items()), edges=edges
    )
    packing = Packing(Snapshot(0.0, topology, HostOffer(Resources(4, 7168, 1000)), hosts))
    homes = {i.operator: i.host for i in packing.deployment.instances}
    assert homes["big"] == "host-1" and homes["other"] == "host-2"
    assert homes["reads-other"] == "host-2"  # the first with room would be host-1
    assert homes["reads-big"] == "host-3"  # no room beside it
