from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.model import OperatorReading
from tidegate.policies.adaptive_provisioning import (
    AdaptiveProvisioning,
    AdaptiveProvisioningMemory,
    engines_needed,
)
from tidegate.testing import engine_snapshot


@pytest.mark.parametrize(
    ("total", "rates", "known", "answer"),
    [
        (30_000, [10_000, 10_000], None, (3, 10_000)),  # missing 10,000: one engine's work
        (30_001, [10_000, 10_000], None, (3, 10_000)),  # ⌊15000.5⌋: the floor forgives one tuple
        (30_002, [10_000, 10_000], None, (4, 10_000)),  # 10,002 missing: ⌈1.0002⌉ is two
        (25_000, [10_000, 9_999], None, (3, 9_999)),  # the capacity is floored too
        (12_000, [4_500] * 3, 10_000, (2, 10_000)),  # ⌈12/10⌉
        (9_999, [5_000] * 3, 10_000, (1, 10_000)),
        (100, [5_000] * 3, 10_000, (1, 10_000)),  # one at least
        (12_000, [4_500] * 3, None, (3, None)),  # no overload seen yet: nothing is released
        (20_000, [10_000, 10_000], 10_000, (2, 10_000)),  # exactly balanced
        (0, [0.0, 0.0], 10_000, (2, 10_000)),  # nothing arrives, nothing is done: balanced
        (500, [0.0], None, (2, None)),  # nobody has processed anything: try one more
        (500, [0.0, 0.0], 9_000, (3, 9_000)),
        (500, [], None, (1, None)),  # no engine at all
        (30_000, [8_000, 8_000], 10_000, (4, 8_000)),  # the newest overload is remembered
    ],
)
def test_algorithm_1_by_hand(
    total: float, rates: list[float], known: float | None, answer: tuple[int, float | None]
) -> None:
    assert engines_needed(total, rates, known) == answer


def test_the_capacity_of_an_overload_is_remembered_until_it_is_needed() -> None:
    policy = AdaptiveProvisioning()
    plan, memory = policy.decide(engine_snapshot(30_000, [10_000] * 2), policy.initial_memory())
    assert plan.bounded_target == 3
    assert plan.reasons[0].code == "overload"
    assert memory == AdaptiveProvisioningMemory(10_000)
    assert plan.predicted.capacity_per_s == 30_000
    plan, memory = policy.decide(engine_snapshot(12_000, [4_500] * 3), memory)
    assert plan.bounded_target == 2
    assert plan.reasons[0].code == "underload"
    assert memory == AdaptiveProvisioningMemory(10_000)


def test_the_first_call_never_releases_anything() -> None:
    policy = AdaptiveProvisioning()
    plan, memory = policy.decide(engine_snapshot(10, [5_000] * 4), policy.initial_memory())
    assert plan.bounded_target == 4
    assert plan.reasons == ()
    assert memory.max_rate_per_s is None


@pytest.mark.parametrize("blind", ["arrival", "processed"])
def test_a_missing_rate_changes_nothing(blind: str) -> None:
    snapshot = engine_snapshot(30_000, [10_000] * 2)
    if blind == "arrival":
        snapshot = replace(snapshot, operators=(OperatorReading("work"),))
    else:
        lost = replace(snapshot.instances[0], processed_per_s=None)
        snapshot = replace(snapshot, instances=(lost, snapshot.instances[1]))
    memory = AdaptiveProvisioningMemory(5_000)
    plan, after = AdaptiveProvisioning().decide(snapshot, memory)
    assert plan.deployment == snapshot.requested
    assert after == memory


def test_shedding_is_off_unless_switched_on_and_ends_with_the_overload() -> None:
    busy, calm = engine_snapshot(30_000, [10_000] * 2), engine_snapshot(5_000, [2_500] * 2)
    memory = AdaptiveProvisioningMemory()
    assert AdaptiveProvisioning().decide(busy, memory)[0].shed_fraction == 0
    shedding = AdaptiveProvisioning(shed=True)
    assert shedding.decide(busy, memory)[0].shed_fraction == pytest.approx(1 / 3)
    assert shedding.decide(calm, memory)[0].shed_fraction == 0


def test_what_was_shed_on_request_is_not_missing_at_the_engines() -> None:
    """Three engines get 18,000 of 30,000: that each processes 6,000 is not all that it can do."""
    seen = engine_snapshot(30_000, [6_000] * 3)
    shed = replace(seen, operators=(replace(seen.operators[0], shed_per_s=12_000.0),))
    memory = AdaptiveProvisioningMemory(10_000)
    plan, after = AdaptiveProvisioning(shed=True).decide(shed, memory)
    assert (plan.bounded_target, plan.shed_fraction, after) == (3, 0.0, memory)
    plan, after = AdaptiveProvisioning(shed=True).decide(seen, memory)
    assert (plan.bounded_target, after.max_rate_per_s) == (5, 6_000), "unless nothing was shed"


def test_less_than_the_tolerance_is_not_shed() -> None:
    memory = AdaptiveProvisioningMemory(10_000)
    for offered, share in ((20_100, 0.0), (21_000, 1 / 21)):
        seen = engine_snapshot(offered, [10_000] * 2)
        plan, _ = AdaptiveProvisioning(shed=True).decide(seen, memory)
        assert plan.shed_fraction == pytest.approx(share)


def test_the_rates_of_the_last_second_are_used_where_there_are_any() -> None:
    """The period began before the rise, so that its mean would teach too low a capacity."""
    seen = engine_snapshot(20_000, [8_000])
    reading = replace(seen.operators[0], latest_arrival_per_s=30_000.0)
    (engine,) = seen.instances
    latest = replace(
        seen, operators=(reading,), instances=(replace(engine, latest_processed_per_s=10_000.0),)
    )
    policy = AdaptiveProvisioning()
    plan, memory = policy.decide(latest, policy.initial_memory())
    assert (plan.bounded_target, memory.max_rate_per_s) == (3, 10_000)
    unknown = replace(latest, instances=(engine,))
    plan, memory = policy.decide(unknown, policy.initial_memory())
    assert (plan.bounded_target, memory.max_rate_per_s) == (3, 8_000), "all of them or none"
    means = AdaptiveProvisioning(last_second=False)
    assert means.decide(latest, means.initial_memory())[1].max_rate_per_s == 8_000


def test_an_engine_that_is_still_starting_is_neither_measured_nor_ordered_again() -> None:
    snapshot = engine_snapshot(30_000, [10_000, 10_000, 0])
    hosts = (*snapshot.hosts[:2], replace(snapshot.hosts[2], status="starting"))
    coming = replace(snapshot.instances[2], status="starting", processed_per_s=None)
    snapshot = replace(snapshot, hosts=hosts, instances=(*snapshot.instances[:2], coming))
    plan, _ = AdaptiveProvisioning().decide(snapshot, AdaptiveProvisioningMemory())
    assert plan.deployment == snapshot.requested
    flood = replace(snapshot, operators=(OperatorReading("work", arrival_rate_per_s=50_000),))
    plan, _ = AdaptiveProvisioning().decide(flood, AdaptiveProvisioningMemory())
    assert plan.bounded_target == 5  # the two that run lack 30,000, which is three more


def test_a_tuple_under_way_is_no_overload_and_teaches_no_capacity() -> None:
    snapshot = engine_snapshot(750, [749.97])
    memory = AdaptiveProvisioningMemory(2_400)
    plan, after = AdaptiveProvisioning().decide(snapshot, memory)
    assert (plan.bounded_target, after.max_rate_per_s) == (1, 2_400)
    plan, after = AdaptiveProvisioning(tolerance=0.0).decide(snapshot, memory)
    assert (plan.bounded_target, after.max_rate_per_s) == (2, 749)


def test_beyond_the_tolerance_is_overload() -> None:
    policy = AdaptiveProvisioning(tolerance=0.01)
    for processed, engines in ((9_901, 1), (9_899, 2)):
        plan, _ = policy.decide(engine_snapshot(10_000, [processed]), policy.initial_memory())
        assert plan.bounded_target == engines
