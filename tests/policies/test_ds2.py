"""DS2 with backlog, as Flink's autoscaler has it: 0.7, 30 min, shrink by 0.6 at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegate.model import OperatorReading, Plan, Snapshot
from tidegate.policies.base import NoMemory
from tidegate.policies.ds2 import Ds2
from tidegate.testing import station_snapshot


def scene(rate: float, allocation: Sequence[int], backlog: float | None = None) -> Snapshot:
    """A splitter that makes two of each item, at 5/s, and what follows at 4/s an instance."""
    snapshot = station_snapshot({"split": (rate, 5), "work": (2 * rate, 4)}, allocation)
    first = replace(snapshot.operators[0], queue_length=backlog)
    return replace(snapshot, operators=(first, *snapshot.operators[1:]))


def decide(snapshot: Snapshot, **settings: Any) -> Plan:
    return Ds2(**settings).decide(snapshot, NoMemory())[0]


def counts(plan: Plan) -> tuple[int, int]:
    return plan.deployment.counts["split"], plan.deployment.counts["work"]


def test_all_operators_are_right_after_one_step() -> None:
    # 35 / (5·0.7) = 10 and 70 / (4·0.7) = 25
    assert counts(decide(scene(35, (1, 1)))) == (10, 25)


def test_the_need_comes_from_the_input_and_not_from_behind_a_bottleneck() -> None:
    snapshot = scene(35, (1, 1))
    throttled = OperatorReading("work", arrival_rate_per_s=10)
    assert counts(decide(replace(snapshot, operators=(snapshot.operators[0], throttled)))) == (
        10,
        25,
    )


@pytest.mark.parametrize(("rate", "kept"), [(41, True), (49, True), (39, False), (51, False)])
def test_an_operator_within_the_boundary_is_left_alone(rate: float, kept: bool) -> None:
    # ten instances at 5/s: busy for 0.82, 0.98, 0.78 and 1.02; the goal is 0.9 ± 0.1
    plan = decide(scene(rate, (10, 30)), utilisation=0.9, boundary=0.1, max_shrink=1.0)
    assert (plan.deployment.counts["split"] == 10) is kept


def test_an_overloaded_operator_is_never_left_alone() -> None:
    plan = decide(scene(52, (10, 30)), utilisation=0.9, boundary=0.5)
    assert plan.deployment.counts["split"] == 12


def test_backlog_is_worked_off_in_time_and_carried_through_the_topology() -> None:
    # 63,000 items in 1800 s are 35/s more; each makes two for the next operator
    assert counts(decide(scene(35, (1, 1), backlog=63_000))) == (20, 50)
    assert counts(decide(scene(35, (1, 1), backlog=63_000), catch_up_s=0)) == (10, 25)


def test_an_operator_shrinks_by_a_limited_part_at_once() -> None:
    assert counts(decide(scene(3.5, (20, 20)))) == (8, 8)
    assert counts(decide(scene(3.5, (20, 20)), max_shrink=1.0)) == (1, 3)


def test_parallelism_has_a_limit() -> None:
    assert counts(decide(scene(35, (1, 1)), max_parallelism=12)) == (10, 12)


def test_hosts_follow_the_instances() -> None:
    grown, shrunk = decide(scene(35, (1, 1))), decide(scene(3.5, (20, 20)))
    assert grown.bounded_target == 9  # 35 instances on hosts of four
    assert shrunk.bounded_target == 4
    assert {reason.code for reason in shrunk.reasons} == {"underload", "release"}


def test_an_unknown_input_changes_nothing() -> None:
    snapshot = scene(3.5, (20, 20))
    blind = replace(snapshot, operators=())
    plan = decide(blind)
    assert plan.deployment == snapshot.requested
    assert plan.reasons == ()
