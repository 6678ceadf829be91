"""Whose slots a chain's slots are, decided again while no executor comes or goes.

The worlds retell what was seen live (docs/measured/papers-live.md, "Left out"): `parse` reads
pictures, and other queries share the slots with it. Each has slots of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tidegate.loop.controller import Controller
from tidegate.loop.journal import Turn
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import (
    BatchCost,
    BatchReading,
    Deployment,
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
from tidegate.policies.base import Policy, Situation
from tidegate.policies.drs.batches import BatchJob, read_job
from tidegate.policies.drs.dividing import _in_time, relieved
from tidegate.policies.tide.need import read_need
from tidegate.simulation import BatchSettings, MicroBatchCloud
from tidegate.simulation.run import simulate
from tidegate.spark.autoscaler.query_topology import filled
from tidegate.workloads import RateTrace, Sum

SLO_S = 30.0
SERVICE_S = {
    "parse": 1.2, "filter": 0.03, "performance": 0.08, "availability": 0.08, "quality": 0.08,
    "oee": 0.005, "inform": 0.005, "report": 0.005,
}  # fmt: skip
EDGES = (
    ("images", "parse"), ("readings", "filter"), ("filter", "inform"), ("parse", "performance"),
    ("parse", "availability"), ("parse", "quality"), ("performance", "oee"),
    ("availability", "oee"), ("quality", "oee"), ("oee", "report"),
)  # fmt: skip
IMAGES_PER_S, READINGS_PER_S = 5.0, 20.0
"""They keep six slots busy with `parse`, and 0.6 with `filter`."""
MINUTE_S = 60.0


def topology(tasks: Mapping[str, int] | None = None) -> Topology:
    return Topology(
        tuple(
            Operator(name, Resources(1), s, 0.0, max_instances=(tasks or {}).get(name))
            for name, s in SERVICE_S.items()
        ),
        (Source("images"), Source("readings")),
        tuple(Edge(*edge) for edge in EDGES),
    )


def trace(rates: Sequence[float], step_s: float, source: str) -> RateTrace:
    """Rates for a step each, as evenly spaced items."""
    times = step_s * np.arange(len(rates), dtype=np.float64)
    return RateTrace(
        times, np.array(rates, np.float64), len(rates) * step_s, source=source, spacing="even"
    )


def steady(minutes: float) -> Sum:
    return Sum(
        (
            trace([IMAGES_PER_S], minutes * MINUTE_S, "images"),
            trace([READINGS_PER_S], minutes * MINUTE_S, "readings"),
        )
    )


def played(
    workload: Sum,
    minutes: float,
    hosts: int,
    policy: str = "tide",
    tasks: Mapping[str, int] | None = None,
) -> list[Turn]:
    """The turns of a policy, every ten seconds, on a fixed number of executors of five slots."""
    queries = topology(tasks)
    names = [f"host-{n}" for n in range(1, hosts + 1)]
    world = MicroBatchCloud(
        queries,
        HostOffer(Resources(5), max_hosts=hosts),
        workload,
        seed=1,
        initial=filled(Deployment(()), queries, names, names, 5),  # as live: shared out evenly
        settings=BatchSettings(
            1.0,
            overheads_s={"parse": 2.0},
            trigger_intervals_s={"parse": 10.0, "filter": 10.0},
            end_to_end_slo_s=SLO_S,
        ),
    )
    options = StackOptions(min_hosts=hosts, max_hosts=hosts)
    stack = build_stack(policy, Situation(SLO_S, micro_batches=True), options)
    turns = simulate(world, Controller(world, stack), end_s=minutes * MINUTE_S, interval_s=10.0)
    return list(turns)


def seen_in(turn: Turn) -> Snapshot:
    assert turn.snapshot is not None
    return turn.snapshot


def slots_of(turn: Turn, name: str) -> int:
    return seen_in(turn).requested.counts[name]


def waiting(turn: Turn, name: str) -> float:
    return seen_in(turn).reading[name].queue_length or 0.0


def divisions(turns: Sequence[Turn]) -> int:
    """Turns that divided the slots on the same executors."""
    return sum(any(r.code == "divided" for r in turn.plan.reasons) for turn in turns if turn.plan)


def longest_s(turn: Turn, name: str) -> float:
    """The longest of the last three batches of a query, in seconds."""
    batches = seen_in(turn).reading[name].batches
    assert batches is not None and batches.recent_durations_s is not None
    return max(batches.recent_durations_s[-3:])


@pytest.mark.parametrize("policy", ["tide", "drs"])
@pytest.mark.parametrize("hosts", [3, 5])
def test_a_query_whose_cost_was_unknown_gets_the_slots_that_its_input_needs(
    policy: str, hosts: int
) -> None:
    """It keeps two of 15 slots until its first batch ends, and six would be busy."""
    seen = played(steady(20), 20, hosts, policy)
    assert slots_of(seen[0], "parse") <= 4
    assert seen_in(seen[1]).reading["parse"].batches is None
    last = seen[-1]
    assert slots_of(last, "parse") >= 7
    assert longest_s(last, "parse") < 15.0
    assert waiting(last, "parse") < 15 * IMAGES_PER_S
    assert (seen_in(last).latency.p95_s or 99) < SLO_S


def two_loads(images: Sequence[float], readings: Sequence[float], step_s: float) -> Sum:
    return Sum((trace(images, step_s, "images"), trace(readings, step_s, "readings")))


def test_slots_follow_the_input_from_one_query_to_another() -> None:
    """First `parse` has most of it, then `filter`: 25 slots are enough for both, one by one."""
    step_s = 10 * MINUTE_S
    seen = played(two_loads([10.0, 0.5, 0.5], [20.0, 400.0, 400.0], step_s), 30, hosts=5)
    assert slots_of(seen[59], "parse") >= 13
    last = seen[-1]
    assert slots_of(last, "filter") >= 13
    assert longest_s(last, "filter") < 15.0
    assert divisions(seen[30:60]) == 0, "what keeps up stays"
    assert divisions(seen[60:]) <= 3


@pytest.mark.parametrize("period_s", [20.0, 40.0, 80.0])
def test_slots_do_not_swing_with_a_load_that_swings(period_s: float) -> None:
    """Most of the input alternates between two queries, about as often as batches end."""
    turns = round(20 * MINUTE_S / period_s * 2)
    images = [6.0 if n % 2 else 3.0 for n in range(turns)]
    readings = [60.0 if n % 2 else 180.0 for n in range(turns)]
    seen = played(two_loads(images, readings, period_s / 2), 20, hosts=5)
    assert divisions(seen) <= 6, "of 120 turns"
    assert longest_s(seen[-1], "parse") < 40.0
    assert longest_s(seen[-1], "filter") < 40.0


def test_a_query_with_a_single_task_takes_no_slots_and_hides_no_other() -> None:
    """Its queue grows whatever it gets; `parse` falls behind as well, and can be helped."""
    seen = played(two_loads([IMAGES_PER_S], [80.0], 20 * MINUTE_S), 20, 3, tasks={"filter": 1})
    last = seen[-1]
    assert waiting(last, "filter") > 1_000
    assert slots_of(last, "filter") == 1
    assert slots_of(last, "parse") >= 7
    assert divisions(seen) <= 3


def test_a_silence_of_ten_minutes_costs_no_query_its_slots() -> None:
    """Images come, then nothing for ten minutes, then a block as large as that of a minute."""
    rates = [IMAGES_PER_S] * 20 + [0.0] * 20 + [10.0] + [IMAGES_PER_S] * 39
    seen = played(two_loads(rates, [READINGS_PER_S] * len(rates), 30.0), 40, hosts=3)
    assert divisions(seen[60:120]) == 0
    assert longest_s(seen[-1], "parse") < 15.0
    assert divisions(seen) <= 4


# --- what a turn says -------------------------------------------------------------------------


IN_TIME = Latency(5.0, p95_s=5.0)


def moment(
    slots: Mapping[str, int],
    arrived: Mapping[str, float | None],
    seconds: Mapping[str, float],
    edges: Sequence[Edge] = (Edge("images", "parse"), Edge("parse", "score")),
    tasks: Mapping[str, int] | None = None,
    heard: Sequence[str] = ("parse", "score"),
    hosts: int = 1,
    late: Sequence[str] = (),
    slo_s: float | None = 20.0,
    counted: bool = True,
    dropped: Mapping[str, float] | None = None,
    most_rows: float | None = None,
    waiting: float | None = 0.0,
    fixed_s: Mapping[str, float] | None = None,
) -> Snapshot:
    """Queries with slots of their own and half a second of overhead each.

    slots, arrived, seconds: slots, items per second and the time of an item, by query. heard: those
    that have had a batch. hosts: executors that have the slots. late: queries with late items.
    counted: whether the ratios of edges were. dropped: items per second that a query drops.
    most_rows: rows that `parse` admits in a second. waiting: items before each query. fixed_s: work
    of each batch, by query.
    """
    batches = BatchReading(0.0, (1.0,), 0.5)
    limited = {"parse": replace(batches, trigger_interval_s=1.0, max_rows=most_rows)}
    each = {name: limited.get(name, batches) if most_rows else batches for name in slots}
    for name, work_s in (fixed_s or {}).items():
        overhead, work, row = (Estimate(v, v, v, True) for v in (0.5, work_s, seconds[name]))
        each[name] = replace(each[name], cost=BatchCost(overhead, work, row))
    capacity = Resources(sum(slots.values()) // hosts)
    owners = [name for name, count in slots.items() for _ in range(count)]
    return Snapshot(
        0.0,
        Topology(
            tuple(
                Operator(name, Resources(1), max_instances=(tasks or {}).get(name), slo_s=slo_s)
                for name in slots
            ),
            (Source("images"),),
            tuple(replace(edge, counted=counted) for edge in edges),
        ),
        HostOffer(capacity, max_hosts=hosts),
        tuple(Host(f"host-{n}", capacity) for n in range(1, hosts + 1)),
        tuple(
            InstanceReading(f"{name}-{n}", name, f"host-{1 + n % hosts}")
            for n, name in enumerate(owners)
        ),
        tuple(
            OperatorReading(
                name,
                arrival_rate_per_s=arrived[name],
                service_time_s=seconds[name],
                dropped_per_s=(dropped or {}).get(name),
                queue_length=waiting,
                batches=each[name] if name in heard else None,
                delay=Latency(99.0, p95_s=99.0) if name in late else IN_TIME,
            )
            for name in slots
        ),
        Latency(),
        batches,
        interval_s=10.0,
        leased_so_far=hosts,
    )


def job_of(snapshot: Snapshot) -> BatchJob:
    job = read_job(snapshot, t_max_s=14.0, catch_up_s=0.0, reserved=0)
    assert job is not None
    return job


EVEN = {"parse": 5, "score": 5}
EQUAL_S = {"parse": 0.1, "score": 0.1}


@pytest.mark.parametrize("came", [0.0, 120.0])
def test_a_query_behind_a_long_batch_is_neither_idle_nor_overloaded(came: float) -> None:
    """Between two turns, all items of a batch have come to it, or none."""
    queries = job_of(moment(EVEN, {"parse": 30.0, "score": came}, EQUAL_S)).queries
    assert [query.arrival_rate_per_s for query in queries] == [30.0, 30.0]
    half = (Edge("images", "parse"), Edge("parse", "score", 0.5))
    queries = job_of(moment(EVEN, {"parse": 30.0, "score": came}, EQUAL_S, half)).queries
    assert [query.arrival_rate_per_s for query in queries] == [30.0, 15.0]


def test_a_query_without_a_batch_counts_by_what_came_to_it() -> None:
    """A declared ratio says little about a query that may never get an item."""
    nothing = moment(EVEN, {"parse": 30.0, "score": 0.0}, EQUAL_S, heard=["parse"])
    assert not job_of(nothing).unknown
    some = moment(EVEN, {"parse": 30.0, "score": 1.0}, EQUAL_S, heard=["parse"])
    assert job_of(some).unknown == ("score",)


def test_without_the_rate_of_an_entry_the_others_are_as_measured() -> None:
    job = job_of(moment(EVEN, {"parse": None, "score": 7.0}, EQUAL_S))
    assert job.unknown == ("parse",)
    assert [query.arrival_rate_per_s for query in job.queries] == [7.0]
    amplifies = (Edge("images", "parse"), Edge("parse", "score", 2.0), Edge("score", "parse"))
    job = job_of(moment(EVEN, {"parse": 30.0, "score": 7.0}, EQUAL_S, amplifies))
    assert [query.arrival_rate_per_s for query in job.queries] == [30.0, 7.0]


def rates_of(snapshot: Snapshot) -> list[float]:
    return [query.arrival_rate_per_s for query in job_of(snapshot).queries]


def test_what_does_not_get_through_does_not_flow_on() -> None:
    came = {"parse": 100.0, "score": 20.0}
    assert rates_of(moment(EVEN, came, EQUAL_S)) == [100.0, 100.0]
    assert rates_of(moment(EVEN, came, EQUAL_S, dropped={"parse": 80.0})) == [100.0, 20.0]
    assert rates_of(moment(EVEN, came, EQUAL_S, most_rows=20)) == [100.0, 20.0]
    assert rates_of(moment(EVEN, came, EQUAL_S, most_rows=200)) == [100.0, 100.0]
    far = (Edge("images", "parse"), Edge("parse", "score"), Edge("score", "exit"))
    three = {"parse": 4, "score": 3, "exit": 3}
    seen = moment(
        three, {**came, "exit": 5.0}, dict.fromkeys(three, 0.1), far, heard=tuple(three),
        dropped={"parse": 80.0},
    )  # fmt: skip
    assert rates_of(seen) == [100.0, 20.0, 5.0], "nor to those after the next one"


def test_who_is_also_fed_by_sources_is_as_measured() -> None:
    """What came from the source is not known: of 100/s, blocks of `parse` may be any part."""
    edges = (Edge("images", "parse"), Edge("images", "score"), Edge("parse", "score"))
    assert rates_of(moment(EVEN, {"parse": 30.0, "score": 100.0}, EQUAL_S, edges)) == [30.0, 100.0]


def test_a_declared_ratio_is_no_measurement() -> None:
    came = {"parse": 100.0, "score": 1.0}
    assert rates_of(moment(EVEN, came, EQUAL_S, counted=False)) == [100.0, 1.0]


@pytest.mark.parametrize("waiting", [None, 0.0, 1000.0])
def test_a_pause_of_the_input_leaves_later_queries_as_measured(waiting: float | None) -> None:
    """The items from before the pause have just come to `score`."""
    seen = moment(EVEN, {"parse": 0.0, "score": 100.0}, EQUAL_S, waiting=waiting)
    assert rates_of(seen)[-1] == 100.0
    assert job_of(seen).counts(1)[-1] == 9


def test_slots_stay_where_nobody_falls_behind() -> None:
    """Although another division would be faster: it would follow the noise of every turn."""
    uneven = {"parse": 8, "score": 2}
    job = job_of(moment(uneven, {"parse": 15.0, "score": 15.0}, EQUAL_S))
    assert relieved(job, uneven, uneven) is None
    assert job.counts(1) == (5, 5)


def test_slots_go_to_the_query_that_falls_behind() -> None:
    uneven = {"parse": 8, "score": 2}
    job = job_of(moment(uneven, {"parse": 25.0, "score": 25.0}, EQUAL_S))
    assert relieved(job, uneven, uneven) == (5, 5)
    shared = replace(job, whole=(False, False))
    assert relieved(shared, uneven, uneven) is None, "who shares slots gets them without a decision"


def test_slots_stay_where_the_fullest_query_would_hardly_be_less_full() -> None:
    """Of 20 slots, each query keeps 9.5 busy: 10 in place of 9 is within the noise of the rates."""
    rates = {"parse": 95.0, "score": 95.0}
    for have, wanted in (({"parse": 9, "score": 11}, None), ({"parse": 7, "score": 13}, (10, 10))):
        assert relieved(job_of(moment(have, rates, EQUAL_S)), have, have) == wanted


def test_slots_are_divided_for_the_rate_that_is_provided_for() -> None:
    """With half as much again, `score` keeps five of the twelve slots busy, and `parse` two."""
    slots = {"parse": 9, "score": 3}
    job = job_of(moment(slots, {"parse": 10.0, "score": 10.0}, {"parse": 0.16, "score": 0.33}))
    assert relieved(job, slots, slots) == (5, 7)
    assert relieved(job, slots, slots, headroom=0.5) == (4, 8)


def test_where_nothing_keeps_up_all_fall_behind_alike() -> None:
    job = job_of(moment({"parse": 8, "score": 2}, {"parse": 60.0, "score": 60.0}, EQUAL_S))
    assert job.counts(1) == (5, 5)
    thirds = {"parse": 0.1, "score": 0.4}
    job = job_of(moment({"parse": 8, "score": 2}, {"parse": 60.0, "score": 60.0}, thirds))
    assert job.counts(1) == (2, 8)


def test_a_query_that_can_never_keep_up_costs_the_others_nothing() -> None:
    """`hot` has one task for a load of two; `sum` has 40 s of work in each batch."""
    edges = (Edge("images", "hot"), Edge("images", "parse"), Edge("parse", "sum"))
    slots = {"hot": 1, "sum": 11, "parse": 3}
    seen = moment(
        slots, dict.fromkeys(slots, 10.0), {"hot": 0.2, "sum": 0.02, "parse": 0.4}, edges,
        tasks={"hot": 1}, heard=tuple(slots), fixed_s={"sum": 40.0}, slo_s=30.0,
    )  # fmt: skip
    job = job_of(seen)
    hot, chain = job.latencies_s(job.counts(1))
    assert hot == math.inf
    assert chain == pytest.approx(17, abs=3)
    assert job.counts(1)[0] == 1
    found = relieved(job, slots, ["hot", "parse"])
    assert found is not None and job.latencies_s(found)[1] < 21.0


def chained(slots: int, loads: Sequence[float], limits: Sequence[float | None]) -> BatchJob:
    """A job of `parse` and `score` with so many slots, with loads and limits of both."""
    seconds = dict(zip(EVEN, (load / 10.0 for load in loads), strict=True))
    job = job_of(moment({"parse": 1, "score": slots - 1}, dict.fromkeys(EVEN, 10.0), seconds))
    pairs = zip(job.queries, limits, strict=True)
    queries = tuple(replace(query, max_processors=limit) for query, limit in pairs)
    return replace(job, queries=queries, light=queries)


def test_a_query_that_can_never_keep_up_gets_what_the_others_do_not_need() -> None:
    job = chained(10, (100.0, 2.5), (8, None))
    parse, score = job.counts(1)
    assert parse + score == 10
    assert score >= 3, "score would fall behind with two"
    assert relieved(job, {"parse": 5, "score": 5}, ["parse"]) == (parse, score)
    assert chained(20, (100.0, 2.5), (8, None)).counts(1) == (8, 12)


def test_queries_that_all_fall_behind_leave_slots_unused() -> None:
    job = chained(15, (4.0, 4.0), (2, 2))
    assert job.counts(1) == (2, 2)
    assert relieved(job, {"parse": 2, "score": 13}, EVEN) is None


@pytest.mark.parametrize(
    ("slots", "loads", "limit", "counts"),
    [(10, (2.2, 3.0), 2.7, (3, 7)), (12, (5.2, 3.0), 5.5, (6, 6)), (12, (6.3, 2.0), 6.9, (7, 5))],
)
def test_a_part_of_a_slot_counts_as_one_where_a_long_task_limits_them(
    slots: int, loads: tuple[float, float], limit: float, counts: tuple[int, int]
) -> None:
    """The load fits into 6.9 slots, and so into seven."""
    assert chained(slots, loads, (limit, None)).counts(1) == counts


def test_nobody_who_keeps_up_falls_behind_for_another() -> None:
    """The paths of both are endless, since `hot` has one task for twice the load."""
    edges = (Edge("images", "hot"), Edge("hot", "parse"), Edge("hot", "score"))
    slots = {"hot": 1, "parse": 2, "score": 4}
    seen = moment(
        slots, dict.fromkeys(slots, 10.0), {"hot": 0.2, "parse": 0.7, "score": 0.35}, edges,
        tasks={"hot": 1}, heard=tuple(slots),
    )  # fmt: skip
    job = job_of(seen)
    assert job.counts(1)[2] < 3.5, "by load, score would fall behind as well"
    assert relieved(job, slots, ["hot", "parse"]) is None


def test_where_nothing_keeps_up_work_of_each_batch_counts_too() -> None:
    """Its items keep no slot busy, and its batches two with a bound of 20 s."""
    seen = moment(
        {"parse": 8, "score": 2}, {"parse": 120.0, "score": 120.0}, {"parse": 0.1, "score": 0.0001},
        fixed_s={"score": 40.0},
    )  # fmt: skip
    assert job_of(seen).counts(1) == (8, 2)


THREE = ("parse", "score", "exit")
APART = (Edge("images", "parse"), Edge("images", "score"), Edge("parse", "exit"))
"""Two paths: `parse` and `exit`, and `score` alone."""


def apart(
    slots: Sequence[int], loads: Sequence[float], **more: Any
) -> tuple[BatchJob, dict[str, int]]:
    """Ten items a second for each of three queries, which keep so many slots busy."""
    counts = dict(zip(THREE, slots, strict=True))
    seconds = {name: load / 10.0 for name, load in zip(THREE, loads, strict=True)}
    seen = moment(counts, dict.fromkeys(THREE, 10.0), seconds, APART, heard=THREE, **more)
    return job_of(seen), counts


def test_nobody_who_is_in_time_pays_for_another() -> None:
    """`parse` would be helped by slots without which `score` would be late."""
    job, have = apart((2, 7, 1), (6.8, 5.6, 0.1))
    assert relieved(job, have, have) is None
    job, have = apart((2, 7, 1), (6.8, 1.0, 0.1))
    assert relieved(job, have, have) is not None


def test_nobody_pays_now_for_a_rate_that_may_come() -> None:
    """With twice the input `score` would be late as well, and it is in time until then."""
    job, have = apart((2, 2, 1), (2.6, 0.97, 0.1))
    assert relieved(job, have, ["parse"], headroom=1.2) is None
    job, have = apart((2, 2, 1), (2.6, 0.5, 0.1))
    assert relieved(job, have, ["parse"]) == (3, 1, 1)


def test_who_is_late_in_any_case_may_become_a_little_slower() -> None:
    """With 15 s of overhead, `score` is beyond 20 s with any number of slots."""
    job, have = apart((2, 7, 1), (3.0, 1.0, 0.1))
    slow = tuple(replace(q, overhead_s=15.0) if q.name == "score" else q for q in job.queries)
    job = replace(job, queries=slow, light=slow)
    assert slow[1].oldest_s(7) > 20.0
    found = relieved(job, have, have)
    assert found is not None and found[0] > 3
    assert found[1] < 7, "and gives slots"


def test_a_full_query_without_further_tasks_is_no_reason_and_hides_nobody() -> None:
    job, have = apart((1, 8, 1), (3.0, 3.0, 0.1), tasks={"parse": 1})
    assert relieved(job, have, have) is None
    job, have = apart((1, 2, 7), (3.0, 2.4, 0.1), tasks={"parse": 1})
    found = relieved(job, have, have)
    assert found is not None and found[1] > 2


def test_who_is_in_time_keeps_up_whatever_the_cost_seems_to_be() -> None:
    """A first batch of one item took two seconds, and most of that it takes in any case."""
    job, have = apart((5, 4, 1), (20.0, 0.5, 0.1))
    assert relieved(job, have, []) is None
    assert relieved(job, have, ["score"]) is None
    found = relieved(job, have, ["parse"])
    assert found is not None and found[0] > 5
    job, have = apart((4, 2, 4), (20.0, 3.0, 0.1))
    found = relieved(job, have, ["score"])
    assert found == (5, 4, 1), "nothing is taken from it, and little given"
    assert _in_time(job.queries[0], 4).load < 4


def test_an_idle_query_gives_its_slots() -> None:
    slots = {"parse": 1, "score": 1, "bad": 8}
    edges = (Edge("images", "parse"), Edge("parse", "score"), Edge("parse", "bad", 0.0))
    rates, seconds = {"parse": 20.0, "score": 20.0, "bad": 0.0}, dict.fromkeys(slots, 0.1)
    need = read_need(moment(slots, rates, seconds, edges, heard=tuple(slots), late=["score"]), 20.0)
    assert need is not None
    found = need.relieved(1.0)
    assert found is not None and found["bad"] == 1
    assert sum(found.values()) == 10


def alone() -> Policy:
    """Tide without guards."""
    options = StackOptions(without=["all"])
    return build_stack("tide", Situation(20.0, micro_batches=True), options)


def divided(plan: Plan) -> list[str]:
    return [reason.text for reason in plan.reasons if reason.code == "divided"]


def test_the_decision_says_whose_queue_grows() -> None:
    slots, rates = {"parse": 8, "score": 2}, {"parse": 25.0, "score": 25.0}
    in_time = moment(slots, rates, EQUAL_S)
    plan, _ = alone().decide(in_time, alone().initial_memory(0))
    assert not divided(plan), "the model alone is no proof"
    seen = moment(slots, rates, EQUAL_S, late=["score"])
    plan, _ = alone().decide(seen, alone().initial_memory(0))
    assert plan.deployment.counts == EVEN
    for late, count in ((["score"], 1), ([], 0)):
        plain = moment(slots, rates, EQUAL_S, late=late, slo_s=None)
        assert len(divided(alone().decide(plain, alone().initial_memory(0))[0])) == count
    plan, _ = alone().decide(seen, alone().initial_memory(0))
    assert divided(plan) == ["score: more slots on the same hosts, since a queue grows without end"]


def test_a_release_divides_the_slots_and_nothing_does_so_again() -> None:
    """`score` falls behind on three executors, and two are enough for all."""
    slots, rates = {"parse": 13, "score": 2}, {"parse": 21.0, "score": 21.0}
    seen = moment(slots, rates, {"parse": 0.01, "score": 0.1}, hosts=3, late=["score"])
    plan, _ = alone().decide(seen, alone().initial_memory(0))
    counts = plan.deployment.counts
    assert len(plan.deployment.hosts) < 3
    assert sum(counts.values()) == 5 * len(plan.deployment.hosts) and counts["score"] > 2
    assert not divided(plan)
