"""Queries that share all slots: durations to the event, fixed work, ceilings, changes, reports."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.helpers import check_world, conserved
from tidegate.errors import SettingError
from tidegate.model import BatchReading, Deployment, HostOffer, Instance, Plan
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies import create
from tidegate.simulation import BatchSettings, MicroBatchCloud
from tidegate.simulation.shared_slots import SharedBatch
from tidegate.theory.microbatch import BatchQuery
from tidegate.workloads import ConstantRate, EventLog, RateTrace, Sum, Workload

OFFER = HostOffer(Resources(4), billing_unit_s=60, price_per_unit_usd=1.0, startup_s=20)


def queries(*service_s: float, tasks: int | None = None, slo_s: float = 5.0) -> Topology:
    """Independent queries a, b, c …, each with its own source."""
    names = [chr(ord("a") + n) for n in range(len(service_s))]
    return Topology(
        tuple(
            Operator(name, Resources(1), s, 0.0, slo_s, max_instances=tasks)
            for name, s in zip(names, service_s, strict=True)
        ),
        tuple(Source(f"to-{name}") for name in names),
        tuple(Edge(f"to-{name}", name) for name in names),
    )


def events(**times: list[float]) -> Sum:
    """Items at fixed times by query."""
    return Sum(tuple(EventLog(np.array(at), f"to-{name}") for name, at in times.items()))


def hosts(count: int, *names: str) -> Deployment:
    """Executors of which each query has one instance."""
    every = tuple(f"host-{n}" for n in range(1, count + 1))
    placed = tuple(
        Instance(f"{name}-{n}", name, host) for n, host in enumerate(every, 1) for name in names
    )
    return Deployment(every, placed)


def batches(world: MicroBatchCloud, query: str) -> BatchReading:
    found = world.observe().reading[query].batches
    assert found is not None
    return found


def durations(world: MicroBatchCloud, query: str) -> list[float]:
    return list(batches(world, query).recent_durations_s)


def world(
    topology: Topology, workload: Workload, settings: BatchSettings | None = None, count: int = 1
) -> MicroBatchCloud:
    """Shared slots of `count` executors, four on each."""
    return MicroBatchCloud(
        topology,
        OFFER,
        workload,
        seed=0,
        initial=hosts(count, *topology.by_name),
        settings=replace(settings or BatchSettings(), shared=True),
    )


def sized(cloud: MicroBatchCloud, count: int) -> Plan:
    packing = Packing(cloud.observe())
    set_engines(packing, count)
    return packing.plan()


def even(rate: float, name: str = "a") -> ConstantRate:
    return ConstantRate(rate, 3600, source=f"to-{name}", spacing="even")


# --- the three terms --------------------------------------------------------------------------


def test_a_batch_takes_its_three_terms() -> None:
    own = Deployment(("host-1",), tuple(Instance(f"a-{n}", "a", "host-1") for n in range(4)))
    settings = BatchSettings(overhead_s=0.5, fixed_work_s=8.0, trigger_interval_s=5.0)
    cloud = MicroBatchCloud(
        queries(0.001), OFFER, even(1000), seed=0, initial=own, settings=settings
    )
    cloud.advance(100)
    assert durations(cloud, "a")[-3:] == pytest.approx([0.5 + (8 + 5) / 4] * 3, rel=0.01)


def test_fixed_work_uses_all_slots_even_without_many_items() -> None:
    settings = BatchSettings(overhead_s=0.5, fixed_works_s={"a": 8.0})
    cloud = world(queries(0.001, 0.001), events(a=[1.0], b=[50.0]), settings)
    cloud.advance(30)
    assert durations(cloud, "a") == pytest.approx([0.5 + 8.001 / 4])


def test_the_terms_are_estimated_from_the_batches() -> None:
    settings = BatchSettings(overhead_s=0.5, fixed_work_s=8.0, trigger_interval_s=5.0)
    rising = RateTrace(np.array([0.0, 100.0]), np.array([500.0, 2000.0]), source="to-a")
    cloud = world(queries(0.001, 0.001), Sum((rising, even(0.001, "b"))), settings)
    cloud.advance(200)
    cost = batches(cloud, "a").cost
    assert cost is not None
    assert cost.overhead.value == pytest.approx(0.5, abs=0.01)
    assert cost.fixed_work.identified
    assert cost.fixed_work.value == pytest.approx(8, rel=0.05)
    assert cost.per_row.value == pytest.approx(0.001, rel=0.05)
    assert cost.slots == pytest.approx(4)
    assert cloud.observe().reading["a"].service_time_s == pytest.approx(0.001, rel=0.05)


def test_an_idle_query_is_measured_as_idle() -> None:
    cloud = world(queries(0.001, 0.001), even(100))
    cloud.advance(60)
    cloud.observe()
    cloud.advance(20)
    reading = cloud.observe().reading["b"]
    assert reading.arrival_rate_per_s == reading.processed_per_s == 0.0
    assert reading.queue_length == reading.backlog_s == 0.0
    assert reading.delay.p95_s is None
    assert cloud.observe().external_rates() == {"a": pytest.approx(100), "b": 0.0}


# --- shared slots -----------------------------------------------------------------------------


def test_the_first_batch_has_all_slots_and_the_next_one_waits() -> None:
    cloud = world(queries(1.0, 1.0), events(a=[0.0] * 8, b=[0.1] * 4))
    cloud.advance(60)
    assert durations(cloud, "a") == [0.5 + 8 / 4]
    assert durations(cloud, "b") == pytest.approx([0.4 + 8 / 4 + 4 / 4])  # until 2.5 it has none
    cost = batches(cloud, "b").cost
    assert cost is not None
    assert cost.overhead.value == pytest.approx(0.5)  # the wait is one for slots
    assert cost.slots == pytest.approx(4 / (3.5 - 0.6))
    assert cost.held_share == pytest.approx(1 / (3.5 - 0.6))


def test_slots_that_the_first_batch_has_no_tasks_for_go_to_the_next() -> None:
    topology = queries(1.0, 1.0)
    first = replace(topology.operators[0], max_instances=3)
    topology = replace(topology, operators=(first, topology.operators[1]))
    cloud = world(topology, events(a=[0.0] * 9, b=[0.1] * 8))
    cloud.advance(60)
    assert durations(cloud, "a") == [0.5 + 9 / 3]
    # One slot from 0.6 to 3.5, then all four.
    assert durations(cloud, "b") == pytest.approx([3.4 + (8 - 2.9) / 4])
    cost = batches(cloud, "b").cost
    assert cost is not None
    assert cost.slots == pytest.approx(8 / (2.9 + 5.1 / 4))


def test_a_query_alone_has_every_slot() -> None:
    cloud = world(queries(0.01, 0.01), Sum((even(300), even(0.01, "b"))), count=2)
    cloud.advance(300)
    model = BatchQuery("a", 300, 0.01, 0.5)
    assert cloud.report().operators[0].mean_duration_s == pytest.approx(model.mean_s(8), rel=0.03)


def test_a_new_executor_takes_tasks_of_the_batch_that_runs() -> None:
    cloud = world(queries(1.0, 1.0), events(a=[0.0] * 160, b=[90.0]))
    cloud.apply(sized(cloud, 2))
    cloud.advance(80)
    # Four slots until 20 s, then eight.
    assert durations(cloud, "a") == pytest.approx([20 + (160 - 19.5 * 4) / 8])


def test_it_takes_them_after_its_warm_up() -> None:
    settings = BatchSettings(warm_up_s=5)
    cloud = world(queries(1.0, 1.0), events(a=[0.0] * 160, b=[90.0]), settings)
    cloud.apply(sized(cloud, 2))
    cloud.advance(80)
    assert durations(cloud, "a") == pytest.approx([25 + (160 - 24.5 * 4) / 8])


def test_a_released_executor_runs_what_it_has_begun() -> None:
    cloud = world(queries(1.0, 1.0), events(a=[0.0] * 80, b=[5.0] * 8), count=2)
    cloud.advance(1)
    cloud.apply(sized(cloud, 1))
    assert cloud.observe().host["host-2"].status == "draining"
    cloud.advance(60)
    assert durations(cloud, "a") == pytest.approx([0.5 + 80 / 8])
    assert durations(cloud, "b") == pytest.approx([10.5 - 5 + 8 / 4])  # not on the released one
    assert cloud.report().host_seconds == pytest.approx(61 + 10.5)


def test_an_idle_executor_leaves_at_once() -> None:
    cloud = world(queries(1.0, 1.0), events(a=[50.0], b=[50.0]), count=2)
    cloud.advance(10)
    cloud.apply(sized(cloud, 1))
    cloud.advance(10)
    assert cloud.report().host_seconds == pytest.approx(30)


def test_all_work_is_done_somewhere() -> None:
    load = Sum((even(150), even(100, "b"), even(10, "c")))
    cloud = world(queries(0.01, 0.02, 0.05), load, count=2)
    cloud.advance(600)
    report = cloud.report()
    assert conserved(report)
    busy = 150 * 0.01 + 100 * 0.02 + 10 * 0.05
    assert report.host_load_mean == pytest.approx(busy / 8, rel=0.02)
    cloud.observe()
    cloud.advance(60)
    used = [host.utilisation or 0.0 for host in cloud.observe().hosts]
    assert sum(used) * 4 == pytest.approx(busy, rel=0.1)
    assert used[0] == pytest.approx(used[1])


def test_a_chain_shares_too() -> None:
    two = queries(0.01, 0.02)
    two = replace(two, sources=two.sources[:1], edges=(Edge("to-a", "a"), Edge("a", "b")))
    cloud = world(two, even(100), count=2)
    cloud.advance(600)
    report = cloud.report()
    assert conserved(report)
    assert report.items_out > 0.99 * report.items_in
    assert (report.latency_mean_s or 0) > (report.operators[0].mean_duration_s or 0)


@pytest.mark.parametrize("name", ["btu", "lag", "ds2"])
def test_it_keeps_the_contract_of_a_world(name: str) -> None:
    def build(seed: int) -> MicroBatchCloud:
        parts = (ConstantRate(150, 900, source="to-a"), ConstantRate(40, 900, source="to-b"))
        return MicroBatchCloud(
            queries(0.02, 0.02, 0.01, tasks=16),
            replace(OFFER, max_hosts=6),
            Sum(parts),
            seed=seed,
            initial=hosts(1, "a", "b", "c"),
            settings=BatchSettings(
                overhead_scv=0.1, fixed_work_s=0.4, shared=True, change_s={"a": 1.0}
            ),
        )

    check_world(build, create(name))


@pytest.mark.parametrize("seed", range(6))
def test_work_is_conserved_whatever_comes_and_goes(seed: int) -> None:
    """Each batch gets the slot-seconds that it needs, and no executor more than its slots."""
    chance = random.Random(seed)
    names = "abcd"[: chance.randint(2, 4)]
    load = Sum(
        tuple(
            ConstantRate(chance.choice([5, 40, 100]), 900, source=f"to-{name}", seed=n)
            for n, name in enumerate(names)
        )
    )
    settings = BatchSettings(
        overhead_s=chance.choice([0.0, 0.5]),
        overhead_scv=0.3,
        fixed_work_s=chance.choice([0.0, 0.5, 3.0]),
        trigger_interval_s=chance.choice([0.0, 2.0, 5.0]),
        max_rows={"a": 50} if chance.random() < 0.5 else {},
        warm_up_s=chance.choice([0.0, 3.0]),
        host_startup_s=(0.0, 20.0),
    )
    topology = queries(*[chance.choice([0.005, 0.05]) for _ in names], tasks=chance.choice([2, 16]))
    cloud = world(topology, load, settings, count=2)
    done: dict[int, SharedBatch] = {}
    while cloud.time_s < 200:
        cloud.advance(chance.choice([0.3, 1.0, 7.0]))
        for query in cloud._engine.queries:
            done |= {id(b): b for b in query.recent if isinstance(b, SharedBatch)}
        if chance.random() < 0.3:
            cloud.apply(sized(cloud, chance.randint(1, 5)))
    assert conserved(cloud.report())
    assert done
    for batch in done.values():
        assert batch.busy_between(0, math.inf) == pytest.approx(batch.work_s, rel=1e-6)
    for second in range(0, 190, 5):
        used: dict[int, float] = {}
        for batch in done.values():
            for host, busy in batch.busy_by_host(second, second + 1).items():
                used[host] = used.get(host, 0.0) + busy
        assert max(used.values(), default=0.0) <= 4 + 1e-6


# --- ceilings and changes ---------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_rows_beyond_the_ceiling_wait(shared: bool) -> None:
    settings = BatchSettings(trigger_interval_s=5, max_rows={"a": 300})
    cloud = MicroBatchCloud(
        queries(0.001, 0.001),
        OFFER,
        Sum((even(100), even(100, "b"))),
        seed=0,
        initial=hosts(1, "a", "b"),
        settings=replace(settings, shared=shared),
    )
    cloud.advance(600)
    reading = cloud.observe().reading["a"]
    assert reading.queue_length == pytest.approx((100 - 300 / 5) * 600, rel=0.05)
    assert reading.batches is not None
    assert reading.batches.max_rows == 300
    assert reading.batches.admission == "maxOffsetsPerTrigger=300"
    assert reading.backlog_s == pytest.approx((reading.queue_length or 0) / 60, rel=0.05)
    assert conserved(cloud.report())
    limited, free = cloud.report().operators
    assert (limited.p95_duration_s or 0) > 200 > (free.p95_duration_s or 0)
    assert cloud.observe().reading["b"].batches.max_rows is None  # type: ignore[union-attr]


def test_the_oldest_items_go_first() -> None:
    """Items of two sources lie in two blocks; a ceiling takes by age across them."""
    both = queries(0.001, 0.001)
    both = replace(both, edges=(Edge("to-a", "a"), Edge("to-b", "a")))
    settings = BatchSettings(overhead_s=1.0, trigger_interval_s=10, max_rows={"a": 4})
    late = [0.5, 1.5, 2.5, 3.5]
    cloud = world(both, events(a=[1.0, 2.0, 3.0, 4.0], b=late), settings)
    cloud.advance(15)
    waiting = sorted(t for block in cloud._engine.queries[0].waiting for t in block.arrived_s)
    assert waiting == [2.5, 3.0, 3.5, 4.0]


def test_every_query_has_its_own_trigger() -> None:
    settings = BatchSettings(trigger_interval_s=2, trigger_intervals_s={"b": 10})
    cloud = world(queries(0.001, 0.001), Sum((even(50), even(50, "b"))), settings)
    cloud.advance(120)
    assert batches(cloud, "a").trigger_interval_s == 2
    assert batches(cloud, "b").trigger_interval_s == 10
    first, second = cloud.report().operators
    assert first.mean_duration_s == pytest.approx(1 + 0.5, abs=0.1)
    assert second.mean_duration_s == pytest.approx(5 + 0.6, abs=0.2)


@pytest.mark.parametrize("shared", [False, True])
def test_the_first_batch_after_a_change_takes_longer(shared: bool) -> None:
    settings = BatchSettings(trigger_interval_s=5, change_s={"a": 3.0}, shared=shared)
    load = Sum((even(50), even(50, "b")))
    cloud = MicroBatchCloud(
        queries(0.001, 0.001), OFFER, load, seed=0, initial=hosts(1, "a", "b"), settings=settings
    )
    cloud.advance(31)
    cloud.apply(sized(cloud, 2))
    cloud.advance(39)
    took, other = durations(cloud, "a"), durations(cloud, "b")
    assert [took > 3 for took in took].count(True) == 1
    assert max(other) < 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="fixed work of a"):
        BatchSettings(fixed_works_s={"a": -1})
    with pytest.raises(SettingError, match="max_rows of a"):
        BatchSettings(max_rows={"a": 0})
    with pytest.raises(SettingError, match="trigger interval of a"):
        BatchSettings(trigger_intervals_s={"a": float("nan")})


def test_a_delay_is_a_lower_bound_while_nothing_ends() -> None:
    cloud = world(queries(1.0, 1.0), events(a=[0.0] * 400, b=[200.0]))
    cloud.advance(10)
    cloud.observe()
    cloud.advance(10)
    delay = cloud.observe().reading["a"].delay
    assert delay.at_least
    assert delay.p95_s == pytest.approx(20)
    cloud.advance(90)
    delay = cloud.observe().reading["a"].delay
    assert not delay.at_least
    assert delay.p95_s == pytest.approx(100.5)


# --- reports ----------------------------------------------------------------------------------


def test_every_query_is_judged_by_its_own_target() -> None:
    topology = queries(0.001, 0.001)
    strict, loose = (replace(o, slo_s=s) for o, s in zip(topology.operators, (2, 30), strict=True))
    topology = replace(topology, operators=(strict, loose))
    settings = BatchSettings(overhead_s=1.0, trigger_interval_s=5.0, end_to_end_slo_s=30.0)
    cloud = world(topology, Sum((even(100), even(300, "b"))), settings)
    cloud.advance(603)
    report = cloud.report()
    first, second = report.by_operator["a"], report.by_operator["b"]
    assert (first.slo_s, second.slo_s) == (2, 30)
    # Latencies are spread evenly between a batch and a period more: 1.1 s to 6.1 s.
    assert first.in_time == pytest.approx((2 - 1.125) / 5, abs=0.02)
    assert second.in_time == 1.0
    assert first.p50_duration_s == pytest.approx(1.125 + 2.5, abs=0.1)
    assert (first.p99_duration_s or 0) > (first.p95_duration_s or 0) > (first.p50_duration_s or 0)
    shares = (first.in_time or 0) / 4 + 3 / 4
    assert report.slo_compliance == pytest.approx(shares, abs=0.01)
    assert report.late_items == pytest.approx((1 - shares) * report.items_out, rel=0.01)
    series = report.series.operators["a"]
    assert series["latency_p95_s"][-1] == pytest.approx(6.0, abs=0.3)
    assert report.series.compliance[-1] == pytest.approx(shares, abs=0.01)


def test_a_chain_is_judged_from_end_to_end() -> None:
    two = queries(0.01, 0.02)
    two = replace(two, sources=two.sources[:1], edges=(Edge("to-a", "a"), Edge("a", "b")))
    cloud = world(two, even(100), BatchSettings(end_to_end_slo_s=2.0), count=2)
    cloud.advance(300)
    report = cloud.report()
    assert report.slo_compliance is not None
    assert report.slo_compliance < min(o.in_time or 0 for o in report.operators)
