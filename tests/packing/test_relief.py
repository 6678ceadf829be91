from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.model import Host, HostOffer
from tidegate.packing import Packing
from tidegate.packing.relief import excess_of, relieve
from tidegate.testing import HOST, fleet_snapshot

HOT = fleet_snapshot({"host-1": [1.0, 0.8, 0.7, 0.6, 0.5], "host-2": [1.2]})


def test_the_excess_is_what_is_above_the_target_in_cores() -> None:
    assert excess_of(Host("h", HOST, utilisation=0.9), 0.6) == pytest.approx(1.2)
    assert excess_of(Host("h", HOST), 0.6) < 0


def test_the_excess_is_in_the_unit_of_the_tightest_resource() -> None:
    host = Host("h", HOST, utilisation=0.2, memory_share=0.9, network_share=0.7)
    assert excess_of(host, 0.6) == pytest.approx(0.3 * HOST.memory_mb)
    host = replace(host, network_share=0.95)
    assert excess_of(host, 0.6) == pytest.approx(0.35 * HOST.network_mbps)


def test_the_smallest_sufficient_load_leaves_and_the_rest_stays() -> None:
    packing = Packing(HOT, "load", fill=0.8)
    assert relieve(packing, {"host-1": 1.2}) == {"host-1": 2}
    left = sum(packing.sizes[name].cpu_cores for name in packing.hosts["host-1"])
    assert left == pytest.approx(2.4)
    assert packing.home["q6-1"] == "host-2"


def test_an_operator_alone_on_its_host_is_left_alone() -> None:
    packing = Packing(fleet_snapshot({"host-1": [3.9], "host-2": [0.1]}), "load", fill=0.8)
    assert relieve(packing, {"host-1": 1.5}) == {"host-1": 0}
    assert [reason.code for reason in packing.reasons] == ["stuck"]


def test_the_largest_stays_when_even_everything_is_too_little() -> None:
    packing = Packing(fleet_snapshot({"host-1": [2.0, 1.0]}), "load", fill=0.8)
    assert relieve(packing, {"host-1": 9.0}) == {"host-1": 1}
    assert list(packing.hosts["host-1"]) == ["q1-1"]
    assert packing.home["q2-1"] == "host-2"


def test_overloaded_hosts_do_not_give_to_each_other() -> None:
    pair = fleet_snapshot({"host-1": [1.0, 1.0], "host-2": [1.0, 1.0]})
    packing = Packing(pair, "load")
    assert relieve(packing, {"host-1": 1.0, "host-2": 1.0}) == {"host-1": 1, "host-2": 1}
    assert packing.home["q2-1"] == packing.home["q4-1"] == "host-3"


def test_what_finds_no_host_stays_and_is_unmet() -> None:
    full = replace(HOT, offer=HostOffer(HOST, max_hosts=2))
    packing = Packing(full, "load", fill=0.4)
    assert relieve(packing, {"host-1": 1.2}) == {"host-1": 0}
    assert packing.deployment == HOT.requested
    assert len(packing.unmet) == 2
