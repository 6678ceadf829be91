from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import Deployment, HostOffer, Instance, Snapshot
from tidegate.packing import reshape
from tidegate.packing.reshape import (
    grows,
    shrinks,
    with_hosts,
    without_scale_in,
    without_scale_out,
)
from tidegate.testing import HOST, fleet_snapshot, station_snapshot, steady_snapshot

NOW = steady_snapshot(hosts=3)
CHAIN = {"a": (10.0, 5.0), "b": (10.0, 5.0)}


def deployed(**homes: str) -> Deployment:
    """work_1="host-1" is the instance work-1 on host-1."""
    instances = tuple(
        Instance(name.replace("_", "-"), name.split("_")[0], host) for name, host in homes.items()
    )
    return Deployment(tuple(sorted(set(homes.values()))), instances)


GROWN = deployed(work_1="host-1", work_2="host-2", work_3="host-3", work_4="host-4")
SHRUNK = deployed(work_1="host-1", work_2="host-2")
SWAPPED = Deployment(
    NOW.requested.hosts,
    tuple(replace(i, id=f"work-{n}") for n, i in enumerate(NOW.requested.instances, 7)),
)


@pytest.mark.parametrize(
    ("wanted", "more", "fewer"),
    [(NOW.requested, False, False), (GROWN, True, False), (SHRUNK, False, True)],
)
def test_growing_and_shrinking_are_told_apart(wanted: Deployment, more: bool, fewer: bool) -> None:
    assert (grows(NOW, wanted), shrinks(NOW, wanted)) == (more, fewer)


def test_fewer_instances_on_as_many_hosts_is_shrinking_too() -> None:
    fewer = replace(NOW.requested, instances=NOW.requested.instances[:2])
    assert shrinks(NOW, fewer)
    assert not grows(NOW, fewer)
    assert not grows(NOW, SWAPPED)


# --- without scale-in -------------------------------------------------------------------------


def test_what_would_have_gone_stays_and_what_grows_still_comes() -> None:
    wanted = deployed(work_1="host-1", work_2="host-2", work_7="host-4", work_8="host-4")
    kept = without_scale_in(NOW, wanted, "demand")
    assert kept.hosts == ("host-1", "host-2", "host-3", "host-4")
    assert not shrinks(NOW, kept)
    assert kept.home["work-7"] == "host-4"
    assert without_scale_in(NOW, SHRUNK, "demand") == NOW.requested


def test_what_moved_off_a_host_that_stays_after_all_does_not_move() -> None:
    fleet = fleet_snapshot({"host-1": [1.0], "host-2": [1.0]})
    wanted = deployed(q1_1="host-1", q2_1="host-1")
    assert without_scale_in(fleet, wanted, "load") == fleet.requested


def test_all_stays_as_it_is_where_both_together_find_no_room() -> None:
    full = station_snapshot(CHAIN, (2, 2))  # one host, four of four cores
    swapped = deployed(a_1="host-1", a_3="host-1", a_4="host-1", b_1="host-1")
    assert without_scale_in(full, swapped, "demand") == full.requested


def lost_operator() -> Snapshot:
    """Two operators of which b has lost its last instance, on a host that is full of a."""
    full = station_snapshot(CHAIN, (4, 1))
    return replace(
        full, hosts=full.hosts[:1], instances=tuple(i for i in full.instances if i.operator == "a")
    )


def test_an_operator_that_lost_its_last_instance_gets_one_even_then() -> None:
    wanted = deployed(a_1="host-1", a_2="host-1", a_3="host-1", b_1="host-1")
    kept = without_scale_in(lost_operator(), wanted, "demand")
    assert kept.counts == {"a": 4, "b": 1}
    assert len(kept.hosts) == 2


# --- without scale-out ------------------------------------------------------------------------


def test_new_hosts_and_instances_do_not_come() -> None:
    assert without_scale_out(NOW, GROWN, "demand") == NOW.requested


def test_what_shrinks_still_shrinks() -> None:
    assert without_scale_out(NOW, SHRUNK, "demand") == SHRUNK


def test_what_moves_between_hosts_that_stay_still_moves() -> None:
    fleet = fleet_snapshot({"host-1": [1.0, 1.0], "host-2": [1.0]})
    wanted = deployed(q1_1="host-1", q2_1="host-2", q3_1="host-2")
    assert without_scale_out(fleet, wanted, "load") == wanted


def test_what_was_to_move_to_a_new_host_stays_at_home() -> None:
    fleet = fleet_snapshot({"host-1": [2.0, 1.9]})
    wanted = deployed(q1_1="host-1", q2_1="host-2")
    assert without_scale_out(fleet, wanted, "load") == fleet.requested


def test_no_half_measures_where_the_old_host_goes_and_the_new_one_may_not_come() -> None:
    fleet = fleet_snapshot({"host-1": [1.0], "host-2": [1.0]})
    wanted = deployed(q1_1="host-1", q2_1="host-3")
    assert without_scale_out(fleet, wanted, "load") == fleet.requested


def test_a_lost_operator_is_revived_on_the_host_that_it_needs() -> None:
    wanted = deployed(a_1="host-1", a_2="host-1", a_3="host-1", a_4="host-1", b_1="host-2")
    assert without_scale_out(lost_operator(), wanted, "demand") == wanted


# --- with so many hosts -----------------------------------------------------------------------


def test_hosts_that_were_to_be_released_stay_first_with_what_is_on_them() -> None:
    assert with_hosts(NOW, SHRUNK, 3, "engines", "demand") == (NOW.requested, ())


def test_then_new_ones_come_as_engines_or_empty() -> None:
    engines = with_hosts(NOW, NOW.requested, 5, "engines", "demand").deployment
    assert engines.counts == {"work": 5}
    empty = with_hosts(NOW, NOW.requested, 5, "instances", "demand").deployment
    assert len(empty.hosts) == 5
    assert empty.counts == {"work": 3}


def test_hosts_still_to_come_go_first_and_their_instances_find_another_place() -> None:
    reshaped = with_hosts(NOW, GROWN, 3, "engines", "demand")
    assert reshaped.deployment.hosts == ("host-1", "host-2", "host-3")
    assert reshaped.deployment.counts == {"work": 4}
    assert reshaped.unmet == ()


def test_what_finds_no_place_is_unmet() -> None:
    full = station_snapshot(CHAIN, (4, 4))
    reshaped = with_hosts(full, full.requested, 1, "instances", "demand")
    assert len(reshaped.deployment.hosts) == 1
    assert reshaped.deployment.counts == {"a": 1, "b": 3}  # one b made way for the last a
    assert sorted(unmet.operator for unmet in reshaped.unmet) == ["a", "a", "a", "b"]


def test_the_last_instance_of_an_operator_is_crowded_rather_than_gone() -> None:
    fleet = fleet_snapshot({"host-1": [3.0], "host-2": [3.0]})
    reshaped = with_hosts(fleet, fleet.requested, 1, "placement", "load")
    assert reshaped.deployment.counts == {"q1": 1, "q2": 1}
    assert len(reshaped.deployment.hosts) == 1
    assert [unmet.operator for unmet in reshaped.unmet] == ["q1"]


def test_an_offer_that_ends_is_not_exceeded() -> None:
    limited = replace(NOW, offer=HostOffer(HOST, max_hosts=4))
    assert len(with_hosts(limited, NOW.requested, 9, "engines", "demand").deployment.hosts) == 4


def test_one_host_always_stays() -> None:
    assert len(with_hosts(NOW, NOW.requested, 0, "engines", "demand").deployment.hosts) == 1


@given(st.data())
def test_a_plan_that_only_releases_is_held_as_packing_it_anew_would(data: st.DataObject) -> None:
    """Hosts go, instances move, stop and start at random; what is left must be the same."""
    now = fleet_snapshot({"host-1": [0.5, 0.5], "host-2": [1.0], "host-3": [0.5, 1.0, 0.5]})
    requested = now.requested
    kept = data.draw(st.lists(st.sampled_from(requested.hosts), min_size=1, unique=True))
    instances = [
        replace(one, host=one.host if one.host in kept else data.draw(st.sampled_from(kept)))
        for one in requested.instances
    ]
    change = data.draw(st.sampled_from(("none", "move", "stop", "start")))
    if change == "move":
        instances[0] = replace(instances[0], host=data.draw(st.sampled_from(kept)))
    elif change == "stop":
        del instances[0]
    elif change == "start":
        instances.append(replace(instances[0], id=f"{instances[0].operator}-99"))
    wanted = Deployment(tuple(kept), tuple(instances))

    def held() -> Deployment:
        return with_hosts(now, wanted, len(requested.hosts), "placement", "load").deployment

    quick = held()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reshape, "_only_releases", lambda now, wanted: False)
        assert quick == held()
    if change == "none" and len(kept) < 3:
        assert quick is requested
