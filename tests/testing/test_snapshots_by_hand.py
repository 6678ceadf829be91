"""The helpers of tidegate.testing that make snapshots."""

from __future__ import annotations

import pytest

from tidegate.testing import engine_snapshot, fleet_snapshot, station_snapshot, steady_snapshot


def test_a_steady_snapshot_has_the_paid_time_left_that_was_asked_for() -> None:
    snapshot = steady_snapshot(hosts=2, lease_left_s=45, time_s=1234.0)
    for host in snapshot.hosts:
        assert host.lease is not None
        assert host.lease.time_left_s(1234.0) == pytest.approx(45)
    assert snapshot.requested.counts == {"work": 2}


def test_a_fleet_has_one_operator_for_each_load() -> None:
    fleet = fleet_snapshot({"host-1": [1.0, 2.0], "host-2": [0.5]})
    assert [host.utilisation for host in fleet.hosts] == [0.75, 0.125]
    assert fleet.requested.home == {"q1-1": "host-1", "q2-1": "host-1", "q3-1": "host-2"}


def test_engines_process_what_they_were_told_to() -> None:
    snapshot = engine_snapshot(100, [30, 40])
    assert [i.processed_per_s for i in snapshot.instances] == [30, 40]
    assert snapshot.external_rates() == {"work": 100}


def test_stations_are_a_chain_whose_rates_come_out_of_the_traffic_equations() -> None:
    rates = {"a": (10.0, 5.0), "b": (30.0, 5.0), "c": (3.0, 5.0)}
    snapshot = station_snapshot(rates, (3, 7, 1), cores_per_host=5, reserved=3)
    assert snapshot.topology.arrival_rates() == pytest.approx({"a": 10.0, "b": 30.0, "c": 3.0})
    assert snapshot.requested.counts == {"a": 3, "b": 7, "c": 1}
    assert len(snapshot.hosts) == 3
    assert snapshot.service_time_s("a") == 0.2
