"""The simulated Spark application: against the model, and by scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.helpers import check_world, conserved, drive
from tidegate.errors import InputError, SettingError
from tidegate.model import Deployment, HostOffer, Instance, Plan
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology, sharded_topology
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies import create
from tidegate.simulation import BatchSettings, MicroBatchCloud, Poisson
from tidegate.theory.microbatch import BatchQuery
from tidegate.workloads import ConstantRate

OFFER = HostOffer(Resources(2), billing_unit_s=60, price_per_unit_usd=1.0, startup_s=20)


def topology(*service_s: float, scv: float = 0.0, tasks: int | None = None) -> Topology:
    names = [chr(ord("a") + i) for i in range(len(service_s))]
    ways = zip(["input", *names], names, strict=False)
    return Topology(
        tuple(
            Operator(n, Resources(1), s, scv, slo_s=5.0, max_instances=tasks)
            for n, s in zip(names, service_s, strict=True)
        ),
        (Source("input"),),
        tuple(Edge(a, b) for a, b in ways),
    )


def executors(count: int, cores: int = 2, name: str = "a") -> Deployment:
    hosts = tuple(f"host-{n}" for n in range(1, count + 1))
    slots = [host for host in hosts for _ in range(cores)]
    return Deployment(
        hosts, tuple(Instance(f"{name}-{n}", name, host) for n, host in enumerate(slots, 1))
    )


def even(rate: float = 100.0, duration_s: float = 3600.0) -> ConstantRate:
    return ConstantRate(rate, duration_s, source="input", spacing="even")


def world(
    rate: float = 100.0, hosts: int = 2, settings: BatchSettings | None = None, seed: int = 0
) -> MicroBatchCloud:
    return MicroBatchCloud(
        topology(0.02),
        OFFER,
        even(rate),
        seed=seed,
        initial=executors(hosts),
        settings=settings or BatchSettings(overhead_s=0.5, end_to_end_slo_s=3.0),
    )


def grown(cloud: MicroBatchCloud, hosts: int) -> Plan:
    packing = Packing(cloud.observe())
    set_engines(packing, hosts)
    return packing.plan()


@pytest.mark.parametrize("trigger_s", [0.0, 3.0, 0.5])
def test_steady_batches_are_those_of_the_model(trigger_s: float) -> None:
    cloud = world(settings=BatchSettings(overhead_s=0.5, trigger_interval_s=trigger_s))
    cloud.advance(600)
    model = BatchQuery("a", 100, 0.02, 0.5, trigger_s)
    report = cloud.report()
    assert report.latency_mean_s == pytest.approx(model.mean_s(4), rel=0.03)
    assert report.latency_max_s == pytest.approx(model.oldest_s(4), rel=0.03)
    batches = cloud.observe().batches
    assert batches is not None
    assert np.mean(batches.recent_durations_s) == pytest.approx(model.duration_s(4), rel=0.03)
    assert batches.overhead_s == 0.5
    assert batches.trigger_interval_s == trigger_s


def test_what_is_measured_is_what_was_put_in() -> None:
    cloud = world()
    cloud.advance(300)
    cloud.observe()
    cloud.advance(60)
    snapshot = cloud.observe()
    reading = snapshot.reading["a"]
    assert reading.arrival_rate_per_s == pytest.approx(100, rel=0.01)
    assert reading.service_time_s == pytest.approx(0.02)
    assert reading.processed_per_s == pytest.approx(100, rel=0.05)
    assert [h.utilisation for h in snapshot.hosts] == pytest.approx([0.5, 0.5], rel=0.05)
    assert sum(i.load.cpu_cores for i in snapshot.instances if i.load) == pytest.approx(2, rel=0.05)
    assert snapshot.latency.mean_s == pytest.approx(1.5, rel=0.05)
    assert reading.recent_durations_s is not None


def test_nothing_is_measured_before_anything_happened() -> None:
    first = world().observe()
    assert first.reading["a"].arrival_rate_per_s is None
    assert first.batches is None
    assert first.hosts[0].utilisation is None


def test_new_executors_come_late_and_join_at_the_next_batch() -> None:
    cloud = world(rate=150, hosts=1)
    cloud.advance(30)
    outcome = cloud.apply(grown(cloud, 3))
    assert [s.kind for s in outcome.steps].count("lease") == 2
    cloud.advance(19)
    assert [h.status for h in cloud.observe().hosts] == ["running", "starting", "starting"]
    cloud.advance(2)
    assert [h.status for h in cloud.observe().hosts] == ["running"] * 3
    overloaded = cloud.report().latency_p50_s
    cloud.advance(600)
    recent = cloud.observe().batches
    assert recent is not None
    assert recent.recent_durations_s[-1] == pytest.approx(1.0, rel=0.1)
    assert overloaded is not None


def test_warming_up_takes_time_after_the_start() -> None:
    cloud = world(hosts=1, settings=BatchSettings(warm_up_s=10))
    cloud.apply(grown(cloud, 2))
    cloud.advance(25)
    snapshot = cloud.observe()
    assert snapshot.host["host-2"].status == "running"
    assert [i.status for i in snapshot.instances].count("starting") == 2
    cloud.advance(10)
    assert {i.status for i in cloud.observe().instances} == {"running"}


def test_a_released_executor_leaves_at_the_end_of_its_batch() -> None:
    cloud = world(settings=BatchSettings(overhead_s=0.5, trigger_interval_s=10))
    cloud.advance(62)  # a batch began at 60 and takes 0.5 + 1000 · 0.02 / 4 = 5.5 s
    cloud.apply(grown(cloud, 1))
    cloud.advance(3)
    assert cloud.observe().host["host-2"].status == "draining"
    cloud.advance(1)
    assert "host-2" not in cloud.observe().host
    assert cloud.report().host_seconds == pytest.approx(66 + 65.5, abs=0.1)
    assert cloud.report().paid_units == 4  # two minutes begun on each of the two executors


def test_shedding_is_exact() -> None:
    cloud = world()
    cloud.apply(replace(Plan(cloud.observe().requested), shed_fraction=0.25))
    for _ in range(40):
        cloud.advance(2.5)
    report = cloud.report()
    assert report.items_in == 10_000
    assert report.items_shed == 2500
    seen = cloud.observe().reading["a"]
    assert seen.dropped_per_s == seen.shed_per_s == pytest.approx(25)
    assert seen.arrival_rate_per_s == pytest.approx(100), "shed items were offered"
    assert conserved(report)


def test_a_bounded_buffer_bounds_the_backlog_and_drops_the_rest() -> None:
    """100 items/s of 0.1 s on four slots: 40/s are processed, and 60/s find no room."""

    def run(buffer_rows: dict[str, int]) -> MicroBatchCloud:
        settings = BatchSettings(overhead_s=0.0, buffer_rows=buffer_rows)
        cloud = MicroBatchCloud(
            topology(0.1), OFFER, even(), seed=0, initial=executors(2), settings=settings
        )
        cloud.advance(300)
        cloud.observe()
        cloud.advance(300)
        return cloud

    cloud = run({"a": 200})
    report, seen = cloud.report(), cloud.observe().reading["a"]
    assert conserved(report)
    assert (report.items_shed, report.operators[0].dropped) == (0, report.items_dropped)
    assert report.items_dropped / report.items_in == pytest.approx(0.6, abs=0.02)
    assert report.latency_max_s == pytest.approx(10, abs=0.5), "two batches of 200 items"
    assert seen.dropped_per_s == pytest.approx(60, rel=0.05)
    assert seen.shed_per_s == 0.0 and seen.processed_per_s == pytest.approx(40, rel=0.05)
    free = run({}).report()
    assert free.items_dropped == 0 and (free.latency_max_s or 0) > 200


def test_a_lag_that_the_source_hides_is_missing() -> None:
    hidden = world(settings=BatchSettings(lag_visible=False))
    hidden.advance(30)
    assert hidden.observe().reading["a"].queue_length is None
    seen = world(rate=400)  # far too much for four slots
    seen.advance(300)
    assert (seen.observe().reading["a"].queue_length or 0) > 10_000


def test_no_more_slots_work_than_there_are_tasks() -> None:
    few = MicroBatchCloud(topology(0.02, tasks=3), OFFER, even(), seed=0, initial=executors(2))
    few.advance(600)
    model = BatchQuery("a", 100, 0.02, 0.5)
    assert few.report().latency_mean_s == pytest.approx(model.mean_s(3), rel=0.05)


def chain_world(seed: int = 0, ratio: float = 1.0) -> MicroBatchCloud:
    two = topology(0.01, 0.02)
    two = replace(two, edges=(Edge("input", "a"), Edge("a", "b", ratio)))
    initial = Deployment(
        ("host-1", "host-2", "host-3"),
        tuple(
            Instance(f"{name}-{n}", name, host)
            for name, n, host in [
                ("a", 1, "host-1"), ("a", 2, "host-1"), ("b", 1, "host-2"), ("b", 2, "host-2"),
                ("b", 3, "host-3"), ("b", 4, "host-3"),
            ]
        ),
    )  # fmt: skip
    settings = BatchSettings(overhead_s=0.4, overheads_s={"b": 0.3}, end_to_end_slo_s=5)
    return MicroBatchCloud(two, OFFER, even(), seed=seed, initial=initial, settings=settings)


def test_a_chain_adds_up() -> None:
    cloud = chain_world()
    cloud.advance(900)
    report = cloud.report()
    assert conserved(report)
    a, b = BatchQuery("a", 100, 0.01, 0.4), BatchQuery("b", 100, 0.02, 0.3)
    # What a commits comes to b all at once, so b waits less regularly: within a period of b.
    expected = a.mean_s(2) + b.mean_s(4)
    assert abs((report.latency_mean_s or 0) - expected) < b.period_s(4)
    assert (report.latency_max_s or 0) < a.oldest_s(2) + b.oldest_s(4) + 1.0


@pytest.mark.parametrize("ratio", [0.3, 2.5])
def test_a_chain_with_ratios_loses_nothing(ratio: float) -> None:
    cloud = chain_world(ratio=ratio)
    cloud.advance(300)
    report = cloud.report()
    assert conserved(report)
    first, second = report.operators
    assert second.arrived == pytest.approx(ratio * first.processed, rel=0.03)
    assert report.items_out <= first.processed


def test_shards_have_every_slot_between_them() -> None:
    sharded = sharded_topology(topology(0.02), 10)
    hosts = ("host-1", "host-2")
    placed = tuple(
        Instance(f"{o.name}-1", o.name, hosts[n % 2]) for n, o in enumerate(sharded.operators)
    )
    cloud = MicroBatchCloud(
        sharded, OFFER, even(), seed=0, initial=Deployment(hosts, placed), pooled=True
    )
    cloud.advance(600)
    model = BatchQuery("a", 100, 0.02, 0.5)
    assert cloud.report().latency_mean_s == pytest.approx(model.mean_s(4), rel=0.05)
    snapshot = cloud.observe()
    assert sum(r.arrival_rate_per_s or 0 for r in snapshot.operators) == pytest.approx(
        100, rel=0.01
    )
    assert sum(i.load.cpu_cores for i in snapshot.instances if i.load) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("name", ["drs", "btu", "adaptive-provisioning", "lag", "ds2"])
def test_it_keeps_the_contract_of_a_world(name: str) -> None:
    def build(seed: int) -> MicroBatchCloud:
        return MicroBatchCloud(
            topology(0.02, scv=1.0, tasks=12),
            replace(OFFER, max_hosts=6),
            Poisson({"input": 150.0}),
            seed=seed,
            initial=executors(1),
            settings=BatchSettings(overhead_scv=0.1, end_to_end_slo_s=5),
        )

    settings = {"t_max_s": 3.0} if name == "drs" else {}
    check_world(build, create(name, **settings))


@pytest.mark.parametrize("name", ["local-threshold", "global-threshold", "sarsa"])
def test_it_keeps_the_contract_with_shards(name: str) -> None:
    sharded = sharded_topology(topology(0.02), 10)
    placed = tuple(Instance(f"{o.name}-1", o.name, "host-1") for o in sharded.operators)

    def build(seed: int) -> MicroBatchCloud:
        initial = Deployment(("host-1",), placed)
        return MicroBatchCloud(
            sharded, replace(OFFER, max_hosts=6), even(), seed=seed, initial=initial, pooled=True
        )

    check_world(build, create(name))


def test_drs_holds_the_bound_with_few_rescales() -> None:
    cloud = world(rate=200, hosts=1, settings=BatchSettings(overhead_s=0.5, overhead_scv=0.05))
    drive(cloud, create("drs", t_max_s=3.0), until_s=1800, every_s=10)
    report = cloud.report()
    # Three would do, just so: oldest = 2 · 0.5 · 6 / (6 − 4) = 3 s; the backlog asks for a fourth.
    assert len(cloud.observe().hosts) == 4
    assert report.rescales <= 2  # the first batches do not tell the terms apart
    assert (cloud.observe().latency.p99_s or 9) < 3.3


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(SettingError, match="overhead_s is -1"):
        BatchSettings(overhead_s=-1)
    unknown = Topology((Operator("a"),), (Source("input"),), (Edge("input", "a"),))
    with pytest.raises(SettingError, match="slot-seconds"):
        MicroBatchCloud(unknown, OFFER, even(), seed=0)
    with pytest.raises(InputError, match="source of the topology"):
        MicroBatchCloud(topology(0.1), OFFER, Poisson({"nobody": 1.0}), seed=0).advance(1)


def test_slots_that_save_no_round_of_tasks_shorten_no_batch() -> None:
    def lasts_s(hosts: int) -> float:
        settings = BatchSettings(overhead_s=0.5, trigger_interval_s=3.0)
        cloud = MicroBatchCloud(
            topology(0.02, tasks=12),
            OFFER,
            even(100.0),
            seed=0,
            initial=executors(hosts),
            settings=settings,
        )
        cloud.advance(300)
        return cloud.batch_durations_s(since_s=60.0)["a"][-1]

    three, four, five, six = map(lasts_s, (3, 4, 5, 6))
    assert three == four == five == pytest.approx(0.5 + 300 * 0.02 / 6)
    assert six == pytest.approx(0.5 + 300 * 0.02 / 12)
