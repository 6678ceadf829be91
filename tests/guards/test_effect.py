"""No host without work, and no more of what did not help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.guards import Guard
from tidegate.guards.effect import Effect, EffectMemory
from tidegate.guards.overload import overloaded
from tidegate.guards.useful import UsefulHosts
from tidegate.model import Latency, Plan, Snapshot
from tidegate.testing import steady_snapshot


def narrow(hosts: int, tasks: int | None) -> Snapshot:
    """So many hosts of four slots; the operator has so many tasks."""
    snapshot = steady_snapshot(hosts=hosts, queue_length=0)
    operator = replace(snapshot.topology.operators[0], max_instances=tasks)
    return replace(snapshot, topology=replace(snapshot.topology, operators=(operator,)))


@pytest.mark.parametrize(
    ("hosts", "tasks", "wish", "expected"),
    [
        (1, 5, 4, 2),  # five tasks fill two hosts of four slots
        (1, 8, 4, 2),
        (1, 9, 4, 3),
        (1, 1, 4, 1),
        (1, None, 4, 4),  # no limit known
        (1, 16, 4, 4),
        (3, 4, 5, 3),  # what runs already is the policy's business
        (3, 4, 2, 2),
    ],
)
def test_growth_ends_where_tasks_end(
    hosts: int, tasks: int | None, wish: int, expected: int
) -> None:
    guard = UsefulHosts(FixedTarget(hosts=wish))
    plan, _ = guard.decide(narrow(hosts, tasks), guard.initial_memory())
    assert plan.bounded_target == expected
    if expected < wish:
        assert "repartition" in plan.bindings[0].why


@pytest.mark.parametrize(("cores", "expected"), [(0.25, 2), (1.0, 2), (2.0, 4)])
def test_a_task_fills_a_slot_and_more_if_it_needs_more(cores: float, expected: int) -> None:
    """Eight tasks on hosts of four slots."""
    snapshot = narrow(1, 8)
    (operator,) = snapshot.topology.operators
    demand = replace(operator.demand, cpu_cores=cores)
    topology = replace(snapshot.topology, operators=(replace(operator, demand=demand),))
    guard = UsefulHosts(FixedTarget(hosts=9))
    plan, _ = guard.decide(replace(snapshot, topology=topology), guard.initial_memory())
    assert plan.bounded_target == expected


def test_the_operator_with_the_fewest_tasks_is_named() -> None:
    snapshot = narrow(1, 8)
    (wide,) = snapshot.topology.operators
    operators = (wide, replace(wide, name="slim", max_instances=3))
    guard = UsefulHosts(FixedTarget(hosts=9))
    seen = replace(snapshot, topology=replace(snapshot.topology, operators=operators))
    plan, _ = guard.decide(seen, guard.initial_memory())
    assert plan.bounded_target == 3, "eleven tasks on hosts of four slots"
    assert "slim has 3 tasks per batch" in plan.bindings[0].why


class Story:
    """A guard asked turn after turn."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.memory = guard.initial_memory()

    def turn(self, time_s: float, hosts: int, arrives: float, done: float | None) -> Plan:
        snapshot = replace(narrow(hosts, 2), time_s=time_s)
        reading = replace(snapshot.operators[0], arrival_rate_per_s=arrives, processed_per_s=done)
        changes: dict[str, Any] = {"operators": (reading,), "latency": Latency(p95_s=0.5)}
        plan, self.memory = self.guard.decide(replace(snapshot, **changes), self.memory)
        return plan


def test_growth_that_did_not_help_is_noticed_said_and_not_repeated() -> None:
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30, hold_s=300))
    assert story.turn(0, hosts=1, arrives=500, done=200).bounded_target == 4
    assert story.turn(10, hosts=1, arrives=500, done=200).bounded_target == 4  # still starting
    assert story.turn(20, hosts=3, arrives=500, done=200).bounded_target == 4
    assert story.turn(39, hosts=3, arrives=500, done=205).bounded_target == 4
    plan = story.turn(60, hosts=3, arrives=500, done=205)
    assert (plan.raw_target, plan.bounded_target) == (4, 3)
    assert plan.bindings[0].why == (
        "2 hosts were added and throughput is unchanged (200/s → 205/s): work has 2 tasks per "
        "batch; repartition its input (or its state) for more; next attempt in 5 min"
    )
    assert story.turn(100, hosts=3, arrives=500, done=205).bounded_target == 3
    assert story.turn(359, hosts=3, arrives=500, done=205).bounded_target == 3
    assert story.turn(360, hosts=3, arrives=500, done=205).bounded_target == 4  # tried again


def test_hosts_have_their_whole_time_to_show_an_effect_from_when_they_run() -> None:
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30, hold_s=300))
    for time_s in (0, 10, 20):
        assert story.turn(time_s, hosts=1, arrives=500, done=200).bounded_target == 4
    assert story.turn(49, hosts=3, arrives=500, done=200).bounded_target == 4
    assert story.turn(50, hosts=3, arrives=500, done=200).bounded_target == 3


@pytest.mark.parametrize(("done", "helped"), [(299, False), (300, True), (400, True)])
def test_an_effect_is_a_rise_by_the_least_gain(done: float, helped: bool) -> None:
    story = Story(Effect(FixedTarget(hosts=4), min_gain=0.5, settle_s=30))
    story.turn(0, hosts=1, arrives=500, done=200)
    story.turn(30, hosts=3, arrives=500, done=done)
    plan = story.turn(60, hosts=3, arrives=500, done=done)
    assert plan.bounded_target == (4 if helped else 3)


@pytest.mark.parametrize(
    ("arrives", "done"),
    [
        (500, 300),  # it has an effect after all
        (200, 200),  # it is over
    ],
)
def test_growth_is_tried_again_once_it_helps_or_the_overload_is_over(
    arrives: float, done: float
) -> None:
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30))
    story.turn(0, hosts=1, arrives=500, done=200)
    assert story.turn(60, hosts=3, arrives=500, done=200).bounded_target == 3
    assert story.turn(70, hosts=3, arrives=arrives, done=done).bounded_target == 4


def test_a_release_is_not_held_back() -> None:
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30))
    story.turn(0, hosts=1, arrives=500, done=200)
    assert story.turn(60, hosts=3, arrives=500, done=200).bounded_target == 3
    assert story.turn(70, hosts=6, arrives=500, done=200).bounded_target == 4


def late_as_a_whole(time_s: float, hosts: int, done: float) -> Snapshot:
    """No query is known to be overloaded, but the application is late."""
    seen = narrow(hosts, 8)
    reading = replace(seen.operators[0], arrival_rate_per_s=done, processed_per_s=done)
    return replace(seen, time_s=time_s, operators=(reading,), latency=Latency(p95_s=9.0))


@pytest.mark.parametrize(("done", "helped"), [(200, False), (299, False), (300, True)])
def test_the_total_counts_where_no_query_is_known_to_be_overloaded(
    done: float, helped: bool
) -> None:
    guard = Effect(FixedTarget(hosts=4), min_gain=0.5, settle_s=30)
    _, memory = guard.decide(late_as_a_whole(0, 1, 200), guard.initial_memory())
    plan, _ = guard.decide(late_as_a_whole(60, 3, done), memory)
    assert plan.bounded_target == (4 if helped else 3)


def test_a_limit_elsewhere_is_said_to_be_elsewhere() -> None:
    guard = Effect(FixedTarget(hosts=4), settle_s=30)
    free = replace(narrow(1, None).topology.operators[0], max_instances=None)

    def seen(time_s: float, hosts: int) -> Snapshot:
        now = late_as_a_whole(time_s, hosts, 200)
        return replace(now, topology=replace(now.topology, operators=(free,)))

    _, memory = guard.decide(seen(0, 1), guard.initial_memory())
    plan, _ = guard.decide(seen(60, 3), memory)
    assert "the limit is elsewhere, perhaps in a source or sink" in plan.bindings[0].why


def two_queries(time_s: float, hosts: int, a: float | None, b: float | None) -> Snapshot:
    """Queries that 500 rows/s arrive at; a, b: rows per second that they process."""
    seen = narrow(hosts, 8)
    operators = tuple(replace(seen.topology.operators[0], name=name) for name in "ab")
    edges = tuple(replace(seen.topology.edges[0], target=name) for name in "ab")
    readings = tuple(
        replace(seen.operators[0], operator=name, arrival_rate_per_s=500, processed_per_s=done)
        for name, done in (("a", a), ("b", b))
    )
    topology = replace(seen.topology, operators=operators, edges=edges)
    instances = tuple(
        replace(one, id=f"{name}-{one.id}", operator=name)
        for one in seen.instances
        for name in "ab"
    )
    return replace(seen, time_s=time_s, topology=topology, operators=readings, instances=instances)


@pytest.mark.parametrize(
    ("before", "after", "helped"),
    [
        ((200, 900), (200, 200), False),  # b was not overloaded, and a is as it was
        ((200, 200), (200, 300), True),  # one of both is enough
        ((200, 200), (200, 200), False),
        ((200, 400), (221, 300), True),  # fewer in total, but a gained more than a tenth
        ((200, None), (200, None), True),  # the total is unknown: nobody is blamed
    ],
)
def test_one_overloaded_query_that_gains_is_an_effect(
    before: tuple[float, float | None], after: tuple[float, float | None], helped: bool
) -> None:
    guard = Effect(FixedTarget(hosts=4), settle_s=30)
    _, memory = guard.decide(two_queries(0, 1, *before), guard.initial_memory())
    plan, _ = guard.decide(two_queries(60, 3, *after), memory)
    assert plan.bounded_target == (4 if helped else 3)


@pytest.mark.parametrize(
    ("arrives", "done"),
    [
        (500, 400),  # it helped
        (203, 203),  # all that comes is done: nothing more was asked for
        (500, None),  # nobody knows
    ],
)
def test_growth_is_not_blamed_without_proof(arrives: float, done: float | None) -> None:
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30))
    story.turn(0, hosts=1, arrives=500, done=200)
    story.turn(10, hosts=1, arrives=500, done=200)
    for time_s in (20, 60, 120):
        plan = story.turn(time_s, hosts=3, arrives=arrives, done=done)
        assert plan.bounded_target == 4
        assert not plan.bindings


def test_hosts_that_never_come_are_not_judged() -> None:
    story = Story(Effect(FixedTarget(hosts=2), settle_s=30, hold_s=50))
    for time_s in range(0, 400, 10):
        assert story.turn(time_s, hosts=1, arrives=500, done=200).bounded_target == 2


def test_the_memory_survives_being_saved() -> None:
    guard = Effect(FixedTarget(hosts=4))
    memory = replace(guard.initial_memory(), own=EffectMemory(1, 200.0, 0.0, 60.0))
    assert guard.load_memory(guard.save_memory(memory)) == memory


def test_a_finding_of_the_future_is_forgotten() -> None:
    """The clock went back by an hour: growth is not refused for an hour."""
    story = Story(Effect(FixedTarget(hosts=4), settle_s=30, hold_s=300))
    story.turn(10_000, 2, arrives=100, done=50)
    story.turn(10_010, 3, arrives=100, done=50)
    assert story.turn(10_050, 3, arrives=100, done=50).bounded_target == 3
    plan = story.turn(6_450, 3, arrives=100, done=50)
    assert plan.bounded_target == 4
    assert [reason.code for reason in plan.reasons] == ["fixed", "clock"]


def test_every_query_is_judged_by_its_own_slo() -> None:
    """A late query with a short SLO is overload, however slow the others may be."""
    seen = narrow(2, 4)
    slow, fast = (replace(seen.topology.operators[0], name=name) for name in ("slow", "fast"))
    operators = (replace(slow, slo_s=60.0), replace(fast, slo_s=2.0))
    topology = replace(seen.topology, operators=operators, edges=())

    def late(slow_s: float | None, fast_s: float | None, whole_s: float | None = None) -> bool:
        readings = tuple(
            replace(seen.operators[0], operator=name, delay=Latency(p95_s=p95_s))
            for name, p95_s in (("slow", slow_s), ("fast", fast_s))
        )
        return overloaded(
            replace(
                seen,
                topology=topology,
                operators=readings,
                latency=Latency(p95_s=whole_s),
                instances=(),
            )
        )

    assert late(30.0, 3.0) and not late(30.0, 1.0) and late(61.0, 1.0)
    assert late(None, 1.0, whole_s=61.0) and not late(None, 1.0, whole_s=59.0)


def test_a_plan_that_asks_for_no_more_hosts_is_not_watched_for_an_effect() -> None:
    story = Story(Effect(FixedTarget(hosts=2)))
    for time_s in (0.0, 60.0, 120.0):
        story.turn(time_s, hosts=2, arrives=100.0, done=50.0)
        assert story.memory.own.grew_s is None
    story.guard = Effect(FixedTarget(hosts=3))
    story.turn(180.0, hosts=2, arrives=100.0, done=50.0)
    assert story.memory.own.grew_s == 180.0
