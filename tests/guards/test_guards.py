"""Each guard binds and says so, and leaves alone what it should."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.errors import SettingError
from tidegate.guards import (
    GUARDS,
    Bounds,
    Budget,
    DryRun,
    Guard,
    MissingMetrics,
    Pause,
    ReleaseLimit,
    StepLimit,
)
from tidegate.model import Latency, Plan
from tidegate.policies.base import NoMemory
from tidegate.policies.wrapper import WrapperMemory
from tidegate.testing import steady_snapshot


def decide(guard: Guard, hosts: int = 3, **changes: Any) -> Plan:
    """What becomes of the wish when so many hosts run, each for 6 $/h."""
    snapshot = replace(steady_snapshot(hosts=hosts, queue_length=0), **changes)
    return guard.decide(snapshot, guard.initial_memory())[0]


def bound(plan: Plan) -> tuple[int, int, list[str]]:
    return plan.raw_target, plan.bounded_target, [binding.guard for binding in plan.bindings]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [(1, (1, 2, ["bounds"])), (2, (2, 2, [])), (5, (5, 5, [])), (9, (9, 5, ["bounds"]))],
)
def test_bounds_clamp_and_say_so(wish: int, expected: tuple[int, int, list[str]]) -> None:
    assert bound(decide(Bounds(FixedTarget(wish), min_hosts=2, max_hosts=5))) == expected


def test_a_binding_tells_before_after_and_why_and_keeps_the_reasons() -> None:
    plan = decide(Bounds(FixedTarget(9), max_hosts=5))
    (binding,) = plan.bindings
    assert (binding.before, binding.after) == (9, 5)
    assert binding.why == "the maximum is 5 hosts"
    assert plan.reasons[0].text == "9 hosts are wanted"
    assert plan.raw is not None
    assert plan.raw.counts["work"] == 9


def test_a_guard_that_does_not_bind_leaves_the_plan_as_it_is() -> None:
    snapshot = steady_snapshot(hosts=3, queue_length=0)
    guard = Bounds(FixedTarget(4), max_hosts=5)
    assert (
        guard.decide(snapshot, guard.initial_memory())[0] == FixedTarget(4).decide(snapshot, 0)[0]
    )


@pytest.mark.parametrize("kind", [g for g in GUARDS if g.limits_changes_only], ids=lambda g: g.name)
def test_a_guard_that_skips_plans_without_a_change_would_not_limit_them(kind: type[Guard]) -> None:
    now = steady_snapshot(hosts=3)
    plan = Plan(now.requested)
    guard = kind.around(FixedTarget(hosts=3), {})
    memory = guard.initial_memory()
    assert kind.own_memory is NoMemory
    allowed, _, own = guard.limit(now, plan, memory.own)
    assert allowed.deployment is plan.deployment
    assert own == memory.own


def test_guards_skip_plans_without_a_change() -> None:
    assert {g.name for g in GUARDS if g.limits_changes_only} == {
        "missing-metrics", "release-limit", "step-limit", "useful-hosts",
    }  # fmt: skip
    limit = ReleaseLimit(FixedTarget(hosts=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseLimit, "limit", None)
        plan, memory = limit.decide(steady_snapshot(hosts=3), limit.initial_memory())
    assert (plan.bounded_target, memory) == (3, WrapperMemory(NoMemory(), 1))


def test_bounds_keep_what_runs_rather_than_start_anew() -> None:
    plan = decide(Bounds(FixedTarget(1), min_hosts=3), hosts=3)
    assert plan.deployment == steady_snapshot(hosts=3).requested


def test_bounds_may_meet() -> None:
    assert decide(Bounds(FixedTarget(9), min_hosts=4, max_hosts=4)).bounded_target == 4
    equal = Budget(FixedTarget(9), soft_usd_per_h=24, hard_usd_per_h=24)
    assert decide(equal).bounded_target == 4


def test_bounds_must_not_cross() -> None:
    with pytest.raises(SettingError, match="at least min_hosts"):
        Bounds(FixedTarget(), min_hosts=4, max_hosts=3)


@pytest.mark.parametrize(
    ("running", "wish", "target"),
    [(12, 1, 7), (12, 7, 7), (12, 6, 7), (12, 20, 20), (4, 1, 3), (3, 1, 2), (2, 1, 1), (1, 1, 1)],
)
def test_a_release_never_halves_a_running_job(running: int, wish: int, target: int) -> None:
    plan = decide(ReleaseLimit(FixedTarget(wish)), hosts=running)
    assert plan.bounded_target == target
    assert [b.guard for b in plan.bindings] == ([] if target == wish else ["release-limit"])


def test_a_release_limit_has_a_share_and_a_reason() -> None:
    plan = decide(ReleaseLimit(FixedTarget(1), share=0.25), hosts=12)
    assert plan.bounded_target == 10
    assert plan.bindings[0].why == "less than 25% of 12 hosts are released in one turn"
    assert decide(ReleaseLimit(FixedTarget(1), share=1), hosts=12).bounded_target == 1
    assert decide(ReleaseLimit(FixedTarget(1), share=0), hosts=12).bounded_target == 11


@pytest.mark.parametrize(
    ("wish", "target", "binds"), [(9, 5, True), (5, 5, False), (1, 2, True), (2, 2, False)]
)
def test_a_step_limit_clamps_the_change(wish: int, target: int, binds: bool) -> None:
    plan = decide(StepLimit(FixedTarget(wish), up=2, down=1))
    assert plan.bounded_target == target
    assert [b.guard for b in plan.bindings] == (["step-limit"] if binds else [])


def test_a_step_limit_in_one_direction_leaves_the_other_alone() -> None:
    assert decide(StepLimit(FixedTarget(9), down=1)).bounded_target == 9
    assert decide(StepLimit(FixedTarget(1), up=1)).bounded_target == 1


# --- money ------------------------------------------------------------------------------------

LATE, IN_TIME, UNKNOWN = Latency(p95_s=2.0), Latency(p95_s=1.0), Latency()


@pytest.mark.parametrize(
    ("wish", "latency", "target", "kind"),
    [
        (4, IN_TIME, 4, ""),
        (5, IN_TIME, 4, "soft"),
        (5, UNKNOWN, 4, "soft"),
        (5, LATE, 5, ""),
        (9, LATE, 6, "hard"),
        (9, IN_TIME, 4, "soft"),
    ],
)
def test_the_soft_budget_gives_way_while_late_and_the_hard_one_never(
    wish: int, latency: Latency, target: int, kind: str
) -> None:
    budget = Budget(FixedTarget(wish), soft_usd_per_h=24, hard_usd_per_h=36, slo_s=1.0)
    plan = decide(budget, latency=latency)
    assert plan.bounded_target == target
    assert [b.why for b in plan.bindings] == (
        [f"the {kind} budget of ${24 if kind == 'soft' else 36}/h pays for {target} hosts"]
        if kind
        else []
    )


def test_a_hard_budget_alone_holds_and_pays_for_one_host_at_least() -> None:
    assert decide(Budget(FixedTarget(9), hard_usd_per_h=35)).bounded_target == 5
    assert decide(Budget(FixedTarget(9), hard_usd_per_h=1)).bounded_target == 1


def test_a_budget_holds_for_cheap_hosts_too() -> None:
    cheap = replace(steady_snapshot().offer, price_per_unit_usd=0.05)
    pays_for = math.floor(1.0 / cheap.usd_per_h)
    assert cheap.usd_per_h < 1.0 and pays_for > 1
    plan = decide(Budget(FixedTarget(pays_for + 3), hard_usd_per_h=1.0), offer=cheap)
    assert plan.bounded_target == pays_for


def test_where_nobody_counts_there_is_no_budget() -> None:
    free = replace(steady_snapshot().offer, price_per_unit_usd=0.0)
    assert decide(Budget(FixedTarget(9), hard_usd_per_h=1), offer=free).bounded_target == 9


def test_budgets_must_not_cross() -> None:
    with pytest.raises(SettingError, match="at most hard_usd_per_h"):
        Budget(FixedTarget(), soft_usd_per_h=5, hard_usd_per_h=4)


# --- missing metrics, pause, dry run ----------------------------------------------------------


def test_nothing_is_released_while_a_needed_measurement_is_missing() -> None:
    plan = decide(MissingMetrics(FixedTarget(1)), operators=())
    assert bound(plan) == (1, 3, ["missing-metrics"])
    assert plan.bindings[0].why == "nothing is released while work.queue_length is missing"
    assert plan.deployment == steady_snapshot(hosts=3).requested


def test_missing_measurements_do_not_stop_growth_nor_known_ones_a_release() -> None:
    assert bound(decide(MissingMetrics(FixedTarget(5)), operators=())) == (5, 5, [])
    assert bound(decide(MissingMetrics(FixedTarget(1)))) == (1, 1, [])


@pytest.mark.parametrize(
    ("direction", "wish", "target"),
    [("in", 1, 3), ("in", 5, 5), ("out", 5, 3), ("out", 1, 1), ("both", 5, 3), ("both", 1, 3)],
)
def test_a_pause_stops_its_direction_only(
    direction: Literal["in", "out", "both"], wish: int, target: int
) -> None:
    plan = decide(Pause(FixedTarget(wish), direction=direction))
    assert plan.bounded_target == target
    assert [b.guard for b in plan.bindings] == ([] if wish == target else ["pause"])


@pytest.mark.parametrize("wish", [1, 5])
def test_a_dry_run_changes_nothing_and_keeps_the_raw_wish(wish: int) -> None:
    plan = decide(DryRun(FixedTarget(wish)))
    assert plan.deployment == steady_snapshot(hosts=3).requested
    assert bound(plan) == (wish, 3, ["dry-run"])


def test_a_guard_that_holds_reports_an_operator_without_instance_as_unmet() -> None:
    plan = decide(DryRun(FixedTarget(3)), instances=())
    assert plan.deployment.instances == ()
    assert [(u.operator, u.instances) for u in plan.unmet] == [("work", 1)]


# --- stacking ---------------------------------------------------------------------------------


def test_the_outermost_guard_has_the_last_word() -> None:
    inner_bounds = StepLimit(Bounds(FixedTarget(9), max_hosts=6), up=1)
    outer_bounds = Bounds(StepLimit(FixedTarget(9), up=1), min_hosts=6)
    assert bound(decide(inner_bounds)) == (9, 4, ["bounds", "step-limit"])
    assert bound(decide(outer_bounds)) == (9, 6, ["step-limit", "bounds"])


def test_the_raw_target_is_that_of_the_policy_through_all_guards() -> None:
    plan = decide(DryRun(Bounds(StepLimit(FixedTarget(9), up=4), max_hosts=5)))
    assert [(b.guard, b.before, b.after) for b in plan.bindings] == [
        ("step-limit", 9, 7),
        ("bounds", 7, 5),
        ("dry-run", 5, 3),
    ]
    assert (plan.raw_target, plan.bounded_target) == (9, 3)


def test_the_inner_memory_goes_on_behind_a_guard_that_holds() -> None:
    guard = DryRun(Pause(FixedTarget(5)))
    memory = guard.initial_memory()
    for _ in range(3):
        _, memory = guard.decide(steady_snapshot(hosts=3, queue_length=0), memory)
    assert memory == WrapperMemory(NoMemory(), WrapperMemory(NoMemory(), 3))
    saved = guard.save_memory(memory)
    assert saved == {"own": {}, "inner": {"own": {}, "inner": 3}}
    assert guard.load_memory(saved) == memory


def test_a_stack_takes_style_needs_and_measure_from_the_policy() -> None:
    guard = Bounds(DryRun(FixedTarget()))
    assert (guard.style, guard.needs, guard.measure) == ("engines", FixedTarget.needs, "demand")


def test_a_stack_describes_itself_from_the_inside_out() -> None:
    guard = DryRun(Bounds(StepLimit(FixedTarget(4), up=2), max_hosts=9))
    assert guard.describe() == "fixed → step-limit(up=2) → bounds(max_hosts=9) → dry-run()"
