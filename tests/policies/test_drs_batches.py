"""DRS where the world works in micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegate.model import (
    BatchCost,
    BatchReading,
    Estimate,
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import NoMemory
from tidegate.policies.drs import Drs
from tidegate.policies.drs.batches import read_job


def query_snapshot(
    rate_per_s: float,
    hosts: int,
    *,
    cores: int = 2,
    service_s: float = 0.02,
    overhead_s: float | None = 0.5,
    trigger_s: float = 0.0,
    queue: float | None = None,
    mean_s: float | None = None,
    tasks: int | None = None,
    max_hosts: int | None = None,
) -> Snapshot:
    """A query on executors of two cores that are all its own."""
    capacity = Resources(cores)
    batches = BatchReading(trigger_s, (1.0,), overhead_s)
    slots = min(hosts * cores, tasks or hosts * cores)
    return Snapshot(
        0.0,
        Topology(
            (Operator("q", Resources(1), max_instances=tasks),),
            (Source("in"),),
            (Edge("in", "q"),),
        ),
        HostOffer(capacity, max_hosts=max_hosts),
        tuple(Host(f"host-{n}", capacity) for n in range(1, hosts + 1)),
        tuple(InstanceReading(f"q-{n + 1}", "q", f"host-{1 + n // cores}") for n in range(slots)),
        (
            OperatorReading(
                "q",
                arrival_rate_per_s=rate_per_s,
                service_time_s=service_s,
                queue_length=queue,
                batches=batches,
            ),
        ),
        Latency(mean_s=mean_s),
        batches,
        leased_so_far=hosts,
    )


def decide(snapshot: Snapshot, t_max_s: float = 2.0, **settings: Any) -> Plan:
    plan, _ = Drs(t_max_s=t_max_s, **settings).decide(snapshot, NoMemory())
    return plan


def hosts(rates: Sequence[float], start: int = 1) -> list[int]:
    """Hosts turn by turn, each plan in place at the next turn."""
    seen = [start]
    for rate in rates:
        seen.append(decide(query_snapshot(rate, seen[-1])).bounded_target)
    return seen[1:]


def test_the_oldest_item_is_kept_within_the_bound() -> None:
    # Load 4: the oldest has 2 · 0.5 · k / (k − 4) ≤ 2 s from k = 8 on.
    plan = decide(query_snapshot(200, 1), headroom=0)
    assert plan.bounded_target == 4
    assert plan.deployment.counts["q"] == 8
    assert plan.predicted.sojourn_s == pytest.approx(2.0)
    assert "8 instances on 4 hosts give 2 s" in plan.reasons[0].text


def test_growth_is_for_what_comes_while_an_executor_starts() -> None:
    # A fifth more input is a load of 4.8, for which k = 10 is enough: one host more.
    assert decide(query_snapshot(200, 1), headroom=0.2).bounded_target == 5
    # Where nothing has to grow, nothing does.
    now = query_snapshot(200, 4)
    assert decide(now, headroom=0.2).deployment == now.requested


def test_a_trigger_interval_leaves_less_time_for_the_batch() -> None:
    exact: dict[str, Any] = {"t_max_s": 4.0, "headroom": 0}
    often = decide(query_snapshot(200, 1, overhead_s=0.2), **exact).bounded_target
    rare = decide(query_snapshot(200, 1, overhead_s=0.2, trigger_s=3.0), **exact)
    assert (often, rare.bounded_target) == (3, 8)  # 0.2 + 4 · 3 / k ≤ 1 from k = 15


def test_without_the_overhead_the_queues_decide() -> None:
    settings: dict[str, Any] = {"t_max_s": 2.0, "catch_up_s": 60.0, "reserved": 0}
    assert read_job(query_snapshot(200, 1), **settings) is not None
    assert read_job(query_snapshot(200, 1, overhead_s=None), **settings) is None


def test_noise_moves_nothing() -> None:
    noisy = [200 * factor for factor in (1.0, 0.97, 1.0, 0.9, 0.99, 0.93, 1.0, 0.95)]
    assert hosts(noisy) == [5] * 8


def test_hosts_go_down_to_where_there_is_headroom() -> None:
    # Load 2: three hosts would do; with a fifth more input and the margin, three still do.
    assert hosts([100], start=9) == [3]
    assert decide(query_snapshot(100, 9), headroom=1.0).bounded_target == 5


def test_what_a_period_gathers_is_no_backlog() -> None:
    usual = query_snapshot(200, 4, queue=200 * 1.0)  # a period of a second
    assert decide(usual).deployment == usual.requested
    # 100/s more for a minute
    behind = decide(query_snapshot(200, 4, queue=200 * 31.0), headroom=0)
    assert behind.bounded_target == 6
    assert decide(query_snapshot(200, 4, queue=200 * 31.0), catch_up_s=0).bounded_target == 4


def test_no_more_slots_than_tasks() -> None:
    plan = decide(query_snapshot(200, 1, tasks=6), t_max_s=2.0)
    assert plan.bounded_target == 3
    assert plan.deployment.counts["q"] == 6
    assert "cannot be reached" in plan.unmet[0].why
    few = decide(query_snapshot(200, 1, tasks=3))
    assert few.deployment.counts["q"] == 3
    assert "operator q can use 3 processors at most" in few.unmet[0].why
    assert (
        "queues grow: 3 instances on 2 hosts are the maximum, and still not enough"
        in few.reasons[0].text
    )
    assert "queues grow: 6 instances on 3 hosts give 3 s" in plan.reasons[0].text


def test_slots_that_save_no_round_are_not_bought() -> None:
    # Load 2.6: 0.5 + 2.6 · 3 / k ≤ 1.75 from k = 6.2 on. Twelve tasks take two rounds on 7 to 11
    # slots, as on 6, so that only 12 slots meet it.
    exact: dict[str, Any] = {"t_max_s": 4.75, "headroom": 0}
    few = decide(query_snapshot(130, 3, trigger_s=3.0, tasks=12), **exact)
    assert few.bounded_target == 6
    assert few.reasons[-1].text == "12 tasks take 2 rounds on 3 to 5 hosts, and 1 on 6"
    assert few.predicted.sojourn_s == pytest.approx(3 + 0.5 + 2.6 * 3 / 12)
    many = decide(query_snapshot(130, 3, trigger_s=3.0, tasks=120), **exact)
    assert many.bounded_target == 4 and many.reasons[-1].code != "rounds"
    # On the slots between, nothing is quicker, and the estimate says so.
    between = decide(query_snapshot(100, 5, trigger_s=3.0, tasks=12), **exact)
    assert between.bounded_target == 3, "two hosts too many"


def test_batches_that_hold_a_part_of_a_round_need_the_next_one() -> None:
    # Load 2: 5.3 slots would do, but batches hold four of five. On 7 to 11 slots they hold no more
    # than on 6, so that only 12 help.
    now = query_snapshot(100, 3, trigger_s=3.0, tasks=12)
    cost = BatchCost(
        Estimate(0.5, 0.5, 0.5), Estimate(0, 0, 0), Estimate(0.02, 0.02, 0.02), held_share=0.8
    )
    batches = BatchReading(3.0, (1.0,), 0.5, cost)
    part = replace(now, operators=(replace(now.operators[0], batches=batches),))
    plan = decide(part, t_max_s=4.63, headroom=0)
    assert plan.bounded_target == 6
    assert "estimated 4.75 s" in plan.reasons[0].text  # 3 + 0.5 + 6 / 4.8
    assert plan.predicted.sojourn_s == pytest.approx(3 + 0.5 + 6 / (0.8 * 12))


def test_tasks_of_other_queries_fill_a_round() -> None:
    alone = query_snapshot(130, 3, trigger_s=3.0, tasks=12)
    (query,) = alone.topology.operators
    other = replace(query, name="r", max_instances=None)
    topology = Topology((query, other), (Source("in"),), (Edge("in", "q"), Edge("in", "r")))
    reading = replace(alone.operators[0], operator="r", arrival_rate_per_s=1.0)
    both = replace(alone, topology=topology, operators=(*alone.operators, reading))
    assert decide(both, t_max_s=4.75, headroom=0).bounded_target == 4


def test_a_bound_below_the_overhead_does_not_lease_the_world() -> None:
    plan = decide(query_snapshot(200, 1), t_max_s=0.3, headroom=0)
    assert plan.bounded_target == 10  # a quarter above the best there is
    assert "the best is 1 s" in plan.unmet[0].why
    assert decide(query_snapshot(200, 1, max_hosts=3), t_max_s=0.3).bounded_target == 3


def test_a_chain_shares_the_bound() -> None:
    one = query_snapshot(200, 1)
    capacity = Resources(2)
    names = ("parse", "score")
    chain = replace(
        one,
        topology=Topology(
            tuple(Operator(name, Resources(1)) for name in names),
            (Source("in"),),
            (Edge("in", "parse"), Edge("parse", "score")),
        ),
        hosts=(Host("host-1", capacity),),
        instances=tuple(InstanceReading(f"{n}-1", n, "host-1") for n in names),
        operators=tuple(
            OperatorReading(
                name,
                arrival_rate_per_s=200,
                service_time_s=service_s,
                batches=BatchReading(0.0, (1.0,), 0.2),
            )
            for name, service_s in zip(names, (0.005, 0.02), strict=True)
        ),
    )
    plan = decide(chain)
    counts = plan.deployment.counts
    assert sum(counts.values()) == 2 * plan.bounded_target
    assert counts["score"] > counts["parse"] >= 2
    assert (plan.predicted.sojourn_s or 0) <= 2.0


@pytest.mark.parametrize("start", [(8, 12, 2), (11, 9, 2)])
def test_batches_that_are_passed_on_whole_are_allocated_as_in_the_paper(
    start: tuple[int, ...],
) -> None:
    """DRS' Fig. 9 in micro-batches: only the first operator has a trigger interval."""
    from tidegate.apps.loads import video
    from tidegate.simulation import BatchSettings, MicroBatchCloud
    from tidegate.spark.autoscaler.query_topology import placed

    names = ("extract", "match", "aggregate")
    operators = tuple(
        Operator(name, Resources(1), service_s, 0.25, slo_s=60.0)
        for name, service_s in zip(names, (5.4 / 26, 5.8 / 26, 0.001), strict=True)
    )
    edges = (Edge("frames", "extract"), Edge("extract", "match"), Edge("match", "aggregate"))
    topology = Topology(operators, (Source("frames"),), edges)
    counts = dict(zip(names, start, strict=True))
    hosts = [f"host-{n}" for n in range(1, 6)]
    world = MicroBatchCloud(
        topology,
        HostOffer(Resources(5), max_hosts=5),
        video("frames", 26, 600, 1),
        seed=1,
        initial=placed(counts, topology, hosts, 5),
        settings=BatchSettings(1.0, trigger_intervals_s={"extract": 12.0}, trigger_interval_s=0.0),
    )
    world.advance(240)
    seen = world.observe()
    job = read_job(seen, t_max_s=60.0, catch_up_s=60.0, reserved=3)
    assert job is not None
    assert [query.fed_every_s for query in job.queries] == [0.0, 12.0, 12.0]
    mean_s = sum(q.mean_s(k) for q, k in zip(job.queries, start, strict=True))
    assert mean_s == pytest.approx(world.report().latency_mean_s, rel=0.1), "as it was simulated"
    plan, _ = Drs(t_max_s=20.0, min_gain=0.0, reserved=3).decide(seen, NoMemory())
    assert plan.deployment.counts == dict(zip(names, (10, 11, 1), strict=True))


def test_nothing_is_released_while_a_query_cannot_keep_up() -> None:
    """One task for ten slots of work: more hosts would not help, but fewer are no answer."""
    overloaded = query_snapshot(100.0, 5, service_s=0.1, tasks=1)
    plan, _ = Drs(t_max_s=10.0).decide(overloaded, NoMemory())
    assert plan.bounded_target == 5
    assert "nothing is released" in plan.reasons[0].text
    light = query_snapshot(1.0, 5, service_s=0.1, tasks=1)
    plan, _ = Drs(t_max_s=10.0).decide(light, NoMemory())
    assert plan.bounded_target == 1
