"""A simulated fleet: queries share CPUs, fall behind and move; calibration from its journal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tidegate.errors import InputError, JournalError
from tidegate.lab.fleet_calibration import (
    FleetModel,
    calibrate_fleet,
    match_lengths,
    simulate_fleet,
    summarise,
)
from tidegate.loop.controller import Controller
from tidegate.model import Deployment, HostOffer, Instance, Plan, Snapshot
from tidegate.model.topology import Operator, Resources, Topology
from tidegate.policies import create
from tidegate.simulation import QueryCloud, QueryCost, QuerySettings

NAMES = ("a", "b", "c")


def world(
    cost: QueryCost,
    homes: tuple[str, ...] = ("host-1",) * 3,
    rows: float = 100.0,
    settings: QuerySettings | None = None,
) -> QueryCloud:
    seconds = np.arange(600.0)
    return QueryCloud(
        Topology(tuple(Operator(name, max_instances=1) for name in NAMES)),
        HostOffer(Resources(1), max_hosts=3),
        {name: (seconds, np.full(600, rows)) for name in NAMES},
        dict.fromkeys(NAMES, cost),
        initial=placed(homes),
        settings=settings,
    )


def placed(homes: tuple[str, ...]) -> Deployment:
    instances = (Instance(f"{n}-1", n, h) for n, h in zip(NAMES, homes, strict=True))
    return Deployment(tuple(dict.fromkeys(homes)), tuple(instances))


def after(cloud: QueryCloud, seconds: float) -> Snapshot:
    cloud.advance(seconds - 20)
    cloud.observe()
    cloud.advance(20)
    return cloud.observe()


def test_loads_sum_to_the_host_and_rows_cost_what_they_do() -> None:
    seen = after(world(QueryCost(0.1, 0.001)), 60)
    loads = [i.load.cpu_cores for i in seen.instances if i.load is not None]
    assert sum(loads) == pytest.approx(seen.hosts[0].utilisation, abs=1e-9)
    assert loads == pytest.approx([0.2] * 3, abs=0.01)
    assert seen.reading["a"].processed_per_s == pytest.approx(100, rel=0.05)


def test_a_host_is_measured_from_batch_to_batch_and_a_query_takes_its_past_along() -> None:
    homes = ("host-1", "host-1", "host-2")
    cloud = world(QueryCost(2.0), homes, settings=QuerySettings(trigger_s=20.0, pause_s=0.5))
    seen = []
    for _ in range(16):  # looks of five seconds, one of four with a batch in it
        cloud.advance(5)
        seen.append(cloud.observe())
    assert [s.hosts[0].utilisation for s in seen[4:]] == pytest.approx([0.2] * 12, abs=0.01)
    cloud.apply(Plan(placed(("host-1", "host-2", "host-2"))))
    cloud.advance(5)  # the move itself falls between two batches
    left, came = (host.utilisation for host in cloud.observe().hosts)
    assert left is not None and came is not None and left < came


def test_an_overfull_host_has_longer_batches_and_is_never_more_than_full() -> None:
    alone = after(world(QueryCost(0.6), ("host-1", "host-2", "host-3")), 60)
    crowded = after(world(QueryCost(0.6)), 60)
    assert crowded.hosts[0].utilisation == pytest.approx(1.0, abs=0.02)
    longest = crowded.reading["a"].batches.recent_durations_s[-1]  # type: ignore[union-attr]
    assert longest == pytest.approx(1.8, abs=0.1)
    assert alone.reading["a"].batches.recent_durations_s[-1] == pytest.approx(0.6, abs=0.03)  # type: ignore[union-attr]
    # It keeps up all the same, in fewer and larger batches.
    assert crowded.reading["a"].processed_per_s == pytest.approx(100, rel=0.15)


def test_hosts_of_one_machine_share_it() -> None:
    apart = ("host-1", "host-2", "host-3")
    seen = after(world(QueryCost(0.9), apart, settings=QuerySettings(machine_cores=1.5)), 60)
    assert sum(h.utilisation or 0.0 for h in seen.hosts) == pytest.approx(1.5, abs=0.05)


def test_a_move_waits_for_the_batch_pauses_and_its_first_batch_is_cold() -> None:
    settings = QuerySettings(pause_s=2.0, cold=3.0, host_startup_s=10.0)
    cloud = world(QueryCost(0.3), settings=settings)
    cloud.advance(20)
    cloud.observe()
    plan = Plan(placed(("host-1", "host-1", "host-2")))
    cloud.apply(plan)
    assert cloud.apply(plan).steps == ()
    moving = {i.operator: i for i in cloud.observe().instances}["c"]
    assert (moving.host, moving.status, moving.load) == ("host-2", "starting", None)
    cloud.advance(20)
    seen = cloud.observe()
    durations = seen.reading["c"].batches.recent_durations_s  # type: ignore[union-attr]
    assert max(durations) == pytest.approx(0.9, abs=0.05) and cloud.moves == 1
    assert max(seen.reading["c"].recent_durations_s or ()) > 1.5  # the pause is in its latency
    assert {i.operator: i.host for i in seen.instances}["c"] == "host-2"


def test_a_query_without_files_or_cost_is_refused() -> None:
    topology = Topology((Operator("a", max_instances=1),))
    with pytest.raises(InputError, match="files and a cost"):
        QueryCloud(topology, HostOffer(Resources(1)), {}, {}, initial=Deployment(()))


@pytest.mark.parametrize("name", ["local-threshold", "global-threshold", "sarsa"])
def test_the_techniques_relieve_an_overfull_host(name: str) -> None:
    cloud = world(QueryCost(0.5))
    policy = create(name)
    controller = Controller(cloud, policy)
    for _ in range(24):
        cloud.advance(5)
        assert controller.step().error is None
    assert len(cloud.observe().hosts) > 1 and cloud.moves > 0


def day(count: int = 300) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(200 + 150 * np.sin(np.arange(count) / 40), np.float64)


def model(cost: QueryCost, **settings: float) -> FleetModel:
    cloud = world(cost)
    return FleetModel(
        cloud.topology,
        cloud.offer,
        dict.fromkeys(NAMES, cost),
        {"a": 1.0, "b": 0.5, "c": 0.25},
        QuerySettings(trigger_s=2.0, **settings),
        placed(("host-1", "host-1", "host-2")),
        (),
    )


def test_a_journal_tells_what_batches_and_rows_cost() -> None:
    true = model(QueryCost(0.1, 0.0005, cores=0.5))
    rows, policy = day(), create("local-threshold")
    turns = simulate_fleet(true, policy, rows)
    found = calibrate_fleet(turns, float(rows.mean()))
    cost = found.costs["a"]
    assert cost.batch_cpu_s == pytest.approx(0.1, rel=0.25)
    assert cost.row_cpu_s == pytest.approx(0.0005, rel=0.25)
    assert cost.cores == pytest.approx(0.5, rel=0.25)
    assert found.shares["a"] == pytest.approx(1.0, rel=0.1)
    assert found.settings.trigger_s == pytest.approx(2.0)
    live = summarise(turns, 0, 1000)
    again = summarise(simulate_fleet(found, policy, rows), 0, 1000)
    assert again.utilisation == pytest.approx(live.utilisation, abs=0.05)
    assert again.latency_s == pytest.approx(live.latency_s, rel=0.2)


def test_lengths_are_matched_where_a_batch_takes_longer_than_its_work_explains() -> None:
    slow = model(QueryCost(0.1, 0.0005, cores=0.1))
    rows, policy = day(120), create("local-threshold")
    turns = simulate_fleet(slow, policy, rows)
    fast = replace(slow, costs=dict.fromkeys(NAMES, QueryCost(0.1, 0.0005, cores=1.0)))
    matched = match_lengths(fast, turns, policy, rows)
    assert matched.costs["a"].cores == pytest.approx(0.1, rel=0.15)


def test_each_batch_counts_once_and_only_in_its_time() -> None:
    turns = simulate_fleet(model(QueryCost(0.1, cores=0.5)), create("static", hosts=2), day(60))
    whole = summarise(turns, 0, 1000)
    part = summarise(turns, 20, 40)
    assert (whole.turns, part.turns) == (12, 5)
    assert whole.moves == 0 and whole.hosts == 2
    with pytest.raises(JournalError, match="record a longer run"):
        summarise(turns, 0, 4)
    with pytest.raises(JournalError, match="some minutes"):
        calibrate_fleet(turns[:0], 1.0)


def bounded(cost: QueryCost, memory_mb: float = 0.0, network_mbps: float = 0.0) -> QueryCloud:
    cloud = world(cost)
    capacity = Resources(1, memory_mb, network_mbps)
    return QueryCloud(
        cloud.topology,
        HostOffer(capacity, max_hosts=3),
        {name: (np.arange(600.0), np.full(600, 100.0)) for name in NAMES},
        dict.fromkeys(NAMES, cost),
        initial=placed(("host-1",) * 3),
    )


def test_memory_and_network_of_queries_add_up_to_the_shares_of_their_host() -> None:
    seen = after(bounded(QueryCost(0.01, memory_mb=30, row_mbit=0.02), 100, 10), 60)
    host = seen.hosts[0]
    assert host.limits == {"memory_mb", "network_mbps"}
    assert host.memory_share == pytest.approx(0.9)
    assert host.network_share == pytest.approx(3 * 100 * 0.02 / 10, rel=0.05)
    assert host.tightest == "memory_mb"


def test_without_memory_and_network_of_queries_a_simulated_host_has_no_limits() -> None:
    host = after(bounded(QueryCost(0.01), 100, 10), 60).hosts[0]
    assert (host.limits, host.memory_share, host.network_share) == (frozenset(), None, None)
    host = after(bounded(QueryCost(0.01, memory_mb=30, row_mbit=0.02)), 60).hosts[0]
    assert (host.limits, host.memory_share, host.network_share) == (frozenset(), None, None)


def test_a_simulated_fleet_scales_out_where_memory_binds() -> None:
    policy = create("local-threshold")
    for memory_mb, hosts in ((30.0, 2), (0.0, 1)):
        cloud = bounded(QueryCost(0.01, memory_mb=memory_mb), 100, 10)
        memory, most = policy.initial_memory(), 0
        for _ in range(30):
            cloud.advance(10)
            snapshot = cloud.observe()
            plan, memory = policy.decide(snapshot, memory)
            cloud.apply(plan)
            most = max(most, len(snapshot.hosts))
        assert most == hosts
