"""Decisions about jobs as Spark runs them: fixed work, several queries, silence, ceilings.

Each test is a finding of a review of the first autoscaler, which failed it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.policies.batch_world import BatchWorld, Query, changes
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import HostOffer, Latency, Plan
from tidegate.model.topology import Resources
from tidegate.policies.base import NoMemory, Policy, Situation
from tidegate.policies.drs import Drs
from tidegate.theory.batch_cost import BatchSample


def stack(slo_s: float, most: int = 20) -> Policy:
    """What runs live by default."""
    return build_stack("drs", Situation(slo_s), StackOptions(max_hosts=most))


def constant(rate_per_s: float) -> Callable[[float], float]:
    """The same rate at all times."""
    return lambda _: rate_per_s


def planned(world: BatchWorld, t_max_s: float) -> Plan:
    """What DRS alone decides now, without guards."""
    plan, _ = Drs(t_max_s=t_max_s).decide(world.snapshot(10), NoMemory())
    return plan


def after_batches(query: Query, hosts: int, slots: int, most: int) -> BatchWorld:
    """A query that has run for half a minute. hosts, slots, most: as of `BatchWorld`."""
    world = BatchWorld([query], hosts, slots, most)
    world.run_batches(30)
    return world


@pytest.mark.parametrize("start", [1, 2, 5, 20])
def test_fixed_parallel_work_does_not_swing(start: int) -> None:
    """D = 0.5 + (20 + n·s)/k: the first autoscaler swung between 1 and 20 executors."""
    query = Query("q", constant(2_000), 15, fixed_work_s=20)
    world = BatchWorld([query], start, 4, 20)
    history = world.run(stack(15), 192)
    settle = 10 if start <= 5 else 12  # a job is never halved in one turn
    assert changes(history[settle - 1 :]) <= 2, history
    assert history[-1] == 2
    assert not world.late


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_a_fifth_does_not_swing_either(seed: int) -> None:
    """The same world with batches that differ by a fifth, one standard deviation."""
    query = Query("q", constant(2_000), 15, fixed_work_s=20, noise=random.Random(seed))
    world = BatchWorld([query], 1, 4, 20)
    history = world.run(stack(15), 100)
    assert changes(history[9:]) <= 2, history
    assert not [late for late in world.late if late[0] > 60]  # it begins with too few


def test_the_load_follows_its_day_with_fixed_work() -> None:
    """A rate that rises fourfold and falls again is followed both ways, without swinging."""
    query = Query("q", lambda t: 6_000 + 5_000 * math.sin(t / 300), 15, fixed_work_s=20)
    world = BatchWorld([query], 2, 4, 20)
    history = world.run(stack(15), 360)
    assert max(history) > min(history[10:])
    turning = 3_600 / (math.pi * 300)  # number of half waves
    assert changes(history) <= 4 * turning
    late = [late for late in world.late if late[0] > 100]
    assert len(late) <= 2, late


def test_an_idle_query_does_not_freeze_the_others() -> None:
    """Finding 1: light load shrinks and heavy load grows beside a query that never had a row."""
    for rate, expected in ((60, 1), (40_000, 8)):
        alone = [Query("busy", constant(rate), 30)]
        beside = [Query("busy", constant(rate), 30), Query("dead-letters", constant(0), 30)]
        ended = [
            BatchWorld(queries, 4, 4, 16).run(stack(30, 16), 40)[-1] for queries in (alone, beside)
        ]
        assert ended[0] == ended[1]
        assert ended[1] <= expected if rate == 60 else ended[1] >= 5


def test_zero_input_shrinks_to_the_minimum() -> None:
    """Finding 2: 12 hosts without input become one, step by step."""
    query = Query("q", lambda t: 5_000 if t < 100 else 0.0, 15, fixed_work_s=20)
    world = BatchWorld([query], 12, 4, 20)
    history = world.run(stack(15), 60)
    assert history[-1] == 1
    for before, after in pairwise(history):
        assert after > before / 2 or after == 1
    query.rate_per_s = constant(8_000)
    assert world.run(stack(15), 30)[-1] >= 2


def test_independent_queries_do_not_add_up() -> None:
    """Finding 3: three queries with a trigger of 10 s and an SLO of 30 s need two slots each."""
    queries = [Query(f"q{n}", constant(1_000), 30, trigger_s=10, service_s=0.001) for n in range(3)]
    world = BatchWorld(queries, 6, 2, 12)
    history = world.run(stack(30, 12), 60)
    assert history[-1] <= 3  # six slots
    assert not world.late
    assert not any("cannot be reached" in reason for reason in world.reasons)


def test_a_ceiling_of_the_source_is_said_and_nothing_is_bought() -> None:
    """Finding 8: 5,000 rows a trigger are admitted and 4,000/s arrive."""
    query = Query("q", constant(4_000), 30, max_rows=5_000)
    world = BatchWorld([query], 2, 4, 20)
    history = world.run(stack(30), 60)
    assert max(history) <= 2 and history[-1] == 1
    said = [r for r in world.reasons if "admits at most 5,000 rows" in r]
    assert said and "more executors do not help" in said[0]
    assert "maxOffsetsPerTrigger=5000" in said[0]


def test_a_strict_query_beside_a_lax_one() -> None:
    """Each query is bounded by its own SLO: the lax one alone would need far less."""
    lax = Query("report", constant(4_000), 60, trigger_s=20)
    strict = Query("alerts", constant(500), 2.5, trigger_s=0, overhead_s=0.3, service_s=0.008)
    lone = BatchWorld([Query("report", constant(4_000), 60, trigger_s=20)], 4, 2, 20)
    both = BatchWorld([lax, strict], 4, 2, 20)
    alone, together = lone.run(stack(60), 60)[-1], both.run(stack(60), 60)[-1]
    assert together > alone
    assert not [late for late in both.late if late[0] > 100]
    relaxed = Query("alerts", constant(500), 60, trigger_s=0, overhead_s=0.3, service_s=0.008)
    free = BatchWorld([Query("report", constant(4_000), 60, trigger_s=20), relaxed], 4, 2, 20)
    assert free.run(stack(60), 60)[-1] < together


def test_twenty_small_queries_do_not_need_twenty_slots() -> None:
    """Queries that share slots count with what they cost, not with a slot each."""
    queries = [
        Query(f"q{n:02}", constant(5), 60, trigger_s=10, fixed_work_s=0.2) for n in range(20)
    ]
    world = BatchWorld(queries, 6, 4, 20)
    assert world.run(stack(60), 40)[-1] == 1
    assert not world.late


def test_a_query_of_which_nothing_is_heard_holds_releases_only() -> None:
    """An unknown query may cost anything: nothing is released, and growth goes on."""
    calm = [Query("busy", constant(60), 30), Query("new", constant(0), 30, heard=False)]
    assert BatchWorld(calm, 3, 4, 16).run(stack(30, 16), 30)[-1] == 3
    loaded = [Query("busy", constant(60_000), 30), Query("new", constant(0), 30, heard=False)]
    assert BatchWorld(loaded, 3, 4, 16).run(stack(30, 16), 30)[-1] > 5


def test_what_rows_cost_is_found_out_where_that_is_safe() -> None:
    """At a constant rate, batches back to back never show it; one host less does."""
    query = Query("q", constant(3), 10, trigger_s=0, fixed_work_s=12, service_s=0.001)
    world = BatchWorld([query], 6, 4, 20)
    history = world.run(stack(10), 60)
    assert history[-1] <= 2
    assert changes(history[30:]) <= 1
    assert not world.late


def test_rows_that_become_dearer_are_followed() -> None:
    """Rows cost four times as much from one minute to the next, at the same rate."""
    query = Query("q", constant(4_000), 30, service_s=0.001)
    world = BatchWorld([query], 2, 4, 20)
    before = world.run(stack(30), 30)[-1]
    query.service_s = 0.004
    after = world.run(stack(30), 30)
    assert after[-1] > before
    assert changes(after[40:]) <= 2
    assert after[33] > before  # within four turns
    late = [late for late in world.late if late[0] > 300 + 240]
    assert not late


def test_rows_that_cost_nothing_do_not_hold_releases() -> None:
    """All work is fixed, so no service time is measured; the cost of a batch is known."""
    query = Query("q", lambda t: 500 + 400 * math.sin(t / 50), 30, fixed_work_s=6, service_s=0.0)
    world = BatchWorld([query], 6, 4, 20)
    assert world.run(stack(30), 60)[-1] == 1


def test_slots_that_batches_do_not_take_up_are_not_bought_without_end() -> None:
    """The driver launches tasks so slowly that a batch never holds more than five slots."""
    query = Query("q", constant(6_000), 15, fixed_work_s=20, held_at_most=5)
    world = BatchWorld([query], 2, 4, 10_000)
    assert max(world.run(stack(15, 10_000), 100)) <= 4


def test_nothing_is_released_while_a_batch_runs_beyond_the_slo() -> None:
    """The readings are of the time before; only the delay shows that a batch does not end."""
    query = Query("q", constant(500), 15)
    world = BatchWorld([query], 6, 4, 20)
    world.run_batches(200)
    now = world.snapshot(10)
    late = Latency(400.0, 400.0, 400.0, 400.0, at_least=True)
    policy = Drs(t_max_s=10.5)
    calm, _ = policy.decide(now, NoMemory())
    busy, _ = policy.decide(
        replace(now, operators=(replace(now.operators[0], delay=late),)), NoMemory()
    )
    assert calm.bounded_target == 1
    assert busy.bounded_target == 6
    assert "beyond the SLO already" in busy.reasons[0].text


def test_hosts_of_other_sizes_count_with_what_they_have() -> None:
    """Three large hosts and a small one, which is the size of the next ones."""
    query = Query("q", constant(4_000), 15, fixed_work_s=20)
    world = BatchWorld([query], 4, 8, 20)
    world.run_batches(200)
    now = world.snapshot(10)
    small = Resources(2)
    mixed = replace(
        now,
        offer=HostOffer(small, max_hosts=20),
        hosts=(*now.hosts[:3], replace(now.hosts[3], capacity=small)),
    )
    plan, _ = Drs(t_max_s=10.5).decide(mixed, NoMemory())
    assert plan.bounded_target == 2, plan.reasons


@pytest.mark.parametrize("seed", range(10))
def test_an_slo_close_to_the_best_latency_does_not_swing(seed: int) -> None:
    """Two overheads take 0.9 s, the SLO is 1 s, and batches differ by a fifth."""
    query = Query(
        "q", constant(2_000), 1.0, trigger_s=0, overhead_s=0.45, noise=random.Random(seed)
    )
    world = BatchWorld([query], 4, 4, 40)
    assert changes(world.run(stack(1.0, 40), 100)) <= 10


def rising(t: float) -> float:
    """From 100/s to 2,000/s in twenty minutes."""
    return 100 + min(t, 1_200) * 1.6


def test_a_limited_neighbour_does_not_keep_a_heavy_query_from_growing() -> None:
    """Many rows behind a limit drown the throughput of a query with few, heavy rows."""
    for limit in (None, 50_000.0):
        small = Query("small", rising, 30, service_s=0.02)
        crowd = Query("crowd", constant(10_000), 30, service_s=0.00001, max_rows=limit)
        world = BatchWorld([small, crowd], 2, 4, 30)
        history = world.run(stack(30, 30), 150)
        assert history[-1] >= 8, (limit, history)
        assert not [late for late in world.late if late[1] == "small"]


def test_a_light_query_that_rises_does_not_inflate_a_heavy_one() -> None:
    """The forecast of the input is for the queries whose own input rises."""

    def run(*without: str) -> int:
        heavy = Query("heavy", constant(4_000), 30, service_s=0.003)
        light = Query("light", lambda t: 100 * t, 30, service_s=1e-7)
        policy = build_stack("drs", Situation(30), StackOptions(max_hosts=30, without=without))
        return max(BatchWorld([heavy, light], 6, 4, 30).run(policy, 90, interval_s=5.0)[20:])

    assert run() == run("trend")


def test_more_queries_than_slots_get_the_hosts_that_their_tasks_fill() -> None:
    """An instance is a quarter of a slot here, and a query has at most four of them."""
    queries = [
        Query(name, constant(2_000), 6, 0.3, service_s=0.001, trigger_s=0, tasks=4)
        for name in "abcd"
    ]
    world = BatchWorld(queries, 2, 1, 20)
    assert world.run(stack(6), 40)[-1] > 8
    assert not [late for late in world.late if late[0] > 150]


@pytest.mark.parametrize("policy", ["drs", "tide"])
def test_a_query_has_its_own_bound_when_the_one_with_the_largest_slo_is_gone(policy: str) -> None:
    """`slo={"alerts": "2s", "*": "30s"}`, and only alerts runs."""
    alerts = Query("alerts", constant(2_700), 2, 0.3, service_s=0.001, trigger_s=0)
    world = BatchWorld([alerts], 3, 1, 20)
    world.run(build_stack(policy, Situation(30.0), StackOptions(max_hosts=20)), 60)
    assert not [late for late in world.late if late[0] > 100]


def test_hosts_that_save_no_round_are_not_requested_at_the_maximum() -> None:
    """Twelve tasks take two rounds on six slots as on eight, and there are no more than eight."""
    query = Query("q", constant(4_000), 4, 0.5, service_s=0.001, trigger_s=0, tasks=12)
    plan = planned(after_batches(query, 6, 1, 8), t_max_s=2.0)
    assert len(plan.deployment.hosts) == 6
    assert "at most 8 hosts" in plan.unmet[0].why


def test_a_job_that_falls_behind_gets_all_hosts_up_to_the_maximum() -> None:
    """Eight equal tasks take two rounds on six slots as on four, but are never quite equal."""
    query = Query("q", constant(9_000), 6, 0.5, service_s=0.001, trigger_s=0, tasks=8)
    plan = planned(after_batches(query, 2, 2, 3), t_max_s=4.2)
    assert len(plan.deployment.hosts) == 3


def test_a_bound_that_the_plan_meets_is_not_called_out_of_reach() -> None:
    """With the headroom of a scale-out it could not be met, but that is a margin only."""
    query = Query("q", constant(3_000), 6, 0.5, service_s=0.001, trigger_s=0, tasks=4)
    plan = planned(after_batches(query, 2, 1, 8), t_max_s=4.2)
    assert len(plan.deployment.hosts) == 4
    assert not plan.unmet


def test_the_empty_part_of_a_round_is_not_held_by_several_queries_either() -> None:
    """Twelve equal tasks hold six of eight slots, and the other query needs next to none."""
    heavy = Query("heavy", constant(5_000), 4, service_s=0.001, trigger_s=0, tasks=12)
    light = Query("light", constant(5), 4, trigger_s=0)
    world = BatchWorld([heavy, light], 4, 2, 20)
    for rows in (3_000.0, 6_000.0, 9_000.0, 12_000.0):
        work_s = rows * heavy.service_s
        heavy.samples.add(BatchSample(rows, 0.5 + work_s / 6, work_s, 6.0, available=6.0))
    heavy.durations_s, heavy.delays_s = [2.5], [5.0]
    light.samples.add(BatchSample(5, 0.5, 0.01, 1.0, available=1.0))
    light.durations_s, light.delays_s = [0.5], [5.5]
    plan = planned(world, t_max_s=3.2)
    assert len(plan.deployment.hosts) > 4


@pytest.mark.parametrize(("rate", "said"), [(400, False), (1_000, True)])
def test_tide_buys_nothing_for_what_the_source_does_not_admit(rate: float, said: bool) -> None:
    """500 rows/s are admitted; a backlog beyond them needs no host, and neither do new rows."""
    most = []
    for backlog in (0, 2_000_000):
        query = Query("q", constant(rate), 30, service_s=0.01, trigger_s=10, max_rows=5_000)
        query.queue = backlog
        world = BatchWorld([query], 1, 4, 20)
        policy = build_stack("tide", Situation(30.0), StackOptions(max_hosts=20))
        most.append(max(world.run(policy, 30)))
        assert any("admits at most" in reason for reason in world.reasons) == said
    assert most[0] == most[1]


def test_tide_follows_a_query_beside_one_of_which_nothing_is_heard() -> None:
    busy = Query("busy", constant(9_000), 12, service_s=0.001)
    first = Query("first", constant(0), 12, heard=False)
    world = BatchWorld([busy, first], 2, 2, 20)
    policy = build_stack("tide", Situation(12.0), StackOptions(max_hosts=20))
    assert world.run(policy, 30)[-1] >= 5
