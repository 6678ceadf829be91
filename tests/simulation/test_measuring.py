"""What can be measured of the simulated cloud, when, and how the series of it stays short."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.helpers import OFFER, chain, interval, poisson_world, running
from tidegate.codec import from_json, to_json
from tidegate.errors import SettingError
from tidegate.model import Plan, Snapshot
from tidegate.simulation import CloudSettings


def test_nothing_is_measured_before_anything_happened() -> None:
    snapshot = poisson_world(chain(0.1), 5.0, 1).observe()
    reading = snapshot.operators[0]
    assert reading.arrival_rate_per_s is None
    assert reading.service_time_s is None
    assert reading.recent_durations_s is None
    assert snapshot.hosts[0].utilisation is None
    assert snapshot.latency.mean_s is None


def test_what_is_measured() -> None:
    world = poisson_world(chain(0.1, demand=1.0), 8.0, 2, offer=OFFER)
    world.advance(5_000)
    snapshot = world.observe()
    reading = snapshot.operators[0]
    assert reading.arrival_rate_per_s == pytest.approx(8.0, rel=0.05)
    assert reading.service_time_s == pytest.approx(0.1, rel=0.1)
    assert reading.service_scv == pytest.approx(1.0, rel=0.2)
    assert reading.arrival_scv == pytest.approx(1.0, rel=0.1)
    assert snapshot.hosts[0].utilisation == pytest.approx(0.4, rel=0.05)
    loads = [i.load.cpu_cores for i in snapshot.instances if i.load]
    assert sum(loads) == pytest.approx(0.8, rel=0.05)
    assert sum(i.processed_per_s or 0 for i in snapshot.instances) == pytest.approx(8.0, rel=0.05)
    assert reading.recent_durations_s is not None
    assert len(reading.recent_durations_s) == 16


def test_a_snapshot_asked_late_tells_of_its_own_moment() -> None:
    """Hosts lease, drain and go, instances move, and all counters run on in the meantime."""
    topology = chain(0.1, demand=1.0)

    def snapshots(at_once: bool) -> list[Snapshot]:
        world = poisson_world(topology, 8.0, 2, offer=OFFER)
        found = []
        for count, hosts in ((2, 1), (4, 2), (3, 3), (1, 1), (1, 1)):
            world.advance(40)
            found.append(world.observe())
            if at_once:
                assert found[-1].hosts and found[-1].instances
            world.apply(Plan(running(topology, count, hosts=hosts)))
        return found

    late, prompt = snapshots(at_once=False), snapshots(at_once=True)
    copies = [pickle.loads(pickle.dumps(snapshot)) for snapshot in late]
    texts = [to_json(snapshot) for snapshot in copies]
    assert len({len(snapshot.hosts) for snapshot in prompt}) > 1
    assert late == prompt == copies
    assert [from_json(Snapshot, text) for text in texts] == prompt
    for snapshot in prompt:
        again = from_json(Snapshot, to_json(snapshot))
        assert (again.running, again.capacities) == (snapshot.running, snapshot.capacities)
        assert list(again.capacities) == list(snapshot.capacities)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_world_says_it_knows_is_what_a_snapshot_would_compute(seed: int) -> None:
    """Plans at random, moves, refusals and lost hosts."""
    rng, topology = np.random.default_rng(seed), chain(0.1, 0.05, demand=1.0)
    settings = CloudSettings(host_failures_per_h=40.0, host_startup_s=(5.0, 60.0))
    world = poisson_world(topology, 8.0, 2, 2, offer=OFFER, seed=seed, settings=settings)
    seen: set[int] = set()
    for _ in range(25):
        snapshot = world.observe()
        again = from_json(Snapshot, to_json(snapshot))
        assert (again.requested, again.unrequested) == (snapshot.requested, snapshot.unrequested)
        assert {host.id for host in again.hosts} == set(snapshot.capacities)
        assert (again.rates, again.loads) == (snapshot.rates, snapshot.loads)
        assert again.queues == snapshot.queues
        assert again.hosts_running == snapshot.hosts_running
        assert list(again.utilisations.items()) == list(snapshot.utilisations.items())
        assert again.pressures == snapshot.pressures
        assert (again.batched, again.delayed) == (snapshot.batched, snapshot.delayed) == ((), ())
        assert list(again.rates.arrived) == list(snapshot.rates.arrived)
        seen.add(len(snapshot.hosts))
        counts = rng.integers(1, 6, 2).tolist()
        world.apply(Plan(running(topology, *counts, hosts=int(rng.integers(1, 5)))))
        world.advance(float(rng.integers(1, 90)))
    assert len(seen) > 2


def test_rates_are_known_without_the_readings() -> None:
    """With noise, and with a share of the input that is shed."""
    topology = chain(0.1, 0.05, demand=1.0)
    for shed, noise in ((0.0, 0.0), (0.0, 0.2), (0.3, 0.2)):
        settings = CloudSettings(measurement_noise=noise)
        world = poisson_world(topology, 8.0, 2, 2, offer=OFFER, settings=settings)
        world.apply(Plan(running(topology, 2, 2), shed_fraction=shed))
        world.advance(60)
        world.observe()
        world.advance(60)
        snapshot = world.observe()
        arrived, processed = snapshot.rates
        assert ("operators" in vars(snapshot)) is (shed > 0)  # what was shed is in the readings
        for name, reading in snapshot.reading.items():
            assert (arrived[name], processed[name]) == (
                reading.arrival_rate_per_s,
                reading.processed_per_s,
            )


def test_a_missing_queue_length_is_found_without_the_readings() -> None:
    world = poisson_world(chain(0.1), 8.0, 1)
    world.advance(60)
    snapshot = world.observe()
    assert snapshot.missing(["operator.queue_length"]) == ()
    assert "operators" not in vars(snapshot)


def test_utilisations_are_known_without_listing_the_hosts() -> None:
    world = poisson_world(chain(0.1, demand=1.0), 8.0, 1, offer=OFFER)
    world.advance(60)
    snapshot = world.observe()
    (used,) = snapshot.utilisations.values()
    assert used is not None and 0.1 < used < 0.4  # 0.8 of four cores
    assert snapshot.pressures == snapshot.utilisations
    assert snapshot.missing(["host.utilisation"]) == ()
    assert "hosts" not in vars(snapshot)


def test_hosts_that_run_are_counted_without_listing_them() -> None:
    topology = chain(0.1, demand=1.0)
    world = poisson_world(topology, 8.0, 1, offer=OFFER)
    world.apply(Plan(running(topology, 2, hosts=2)))
    snapshot = world.observe()  # the second host is starting
    assert snapshot.hosts_running == 1
    assert "hosts" not in vars(snapshot)
    assert [host.status for host in snapshot.hosts] == ["running", "starting"]


def test_measurements_can_come_late() -> None:
    settings = CloudSettings(measurement_delay_s=60.0)
    world = poisson_world(chain(0.1), 5.0, 1, settings=settings)
    world.observe()
    world.advance(30)
    assert world.observe().operators[0].queue_length is None
    world.advance(60)
    prompt = poisson_world(chain(0.1), 5.0, 1)
    prompt.observe()
    prompt.advance(30)
    assert world.observe().operators == prompt.observe().operators


def test_whole_seconds_make_items_look_late() -> None:
    """With the original's clock each duration gains half a second on average."""
    gains = []
    for seed in range(10):
        means = []
        for quantise in (False, True):
            settings = CloudSettings(quantise_timestamps=quantise)
            world = poisson_world(chain(0.1), 5.0, 4, seed=seed, settings=settings)
            world.advance(1_000)
            mean = world.report().operators[0].mean_duration_s
            assert mean is not None
            means.append(mean)
        gains.append(means[1] - means[0])
    low, high = interval(gains)
    assert low <= 0.5 <= high


def test_the_series_stays_short() -> None:
    settings = CloudSettings(series_rows=50, monitoring_s=10.0)
    world = poisson_world(chain(0.1), 5.0, 1, settings=settings)
    world.advance(10_000)
    report = world.report()
    series = report.series
    assert len(series.time_s) <= 51
    assert series.time_s[-1] == 10_000
    spans = np.diff([0.0, *(t for t in series.time_s if t is not None)])
    rates = np.array([rate for rate in series.arrival_rate_per_s if rate is not None])
    assert float(spans @ rates) == pytest.approx(report.items_in)


def test_without_rows_a_report_has_no_series_and_is_otherwise_the_same() -> None:
    reports = []
    for rows in (4096, 0):
        settings = CloudSettings(series_rows=rows, monitoring_s=10.0)
        world = poisson_world(chain(0.1), 5.0, 1, settings=settings)
        world.advance(1_000)
        reports.append(world.report())
    whole, bare = reports
    assert len(whole.series.time_s) == 100
    assert bare.series.time_s == bare.series.operators["a"]["queue"] == ()
    assert replace(whole, series=bare.series) == bare
    with pytest.raises(SettingError, match="series_rows"):
        CloudSettings(series_rows=1)
