"""Whatever a policy wants: the outermost guard has the last word, and says so."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.guards import Bounds, DryRun, Guard, Pause, StepLimit
from tidegate.model import Plan, Snapshot
from tidegate.packing.reshape import grows, shrinks
from tidegate.policies import create
from tidegate.testing.worlds import ImaginaryWorld

inner_names = st.sampled_from(["queue-threshold", "ds2", "drs", "lag", "btu"])
seeds = st.integers(0, 10_000)


def decisions(guard: Guard, seed: int, turns: int = 6) -> Iterator[tuple[Snapshot, Plan]]:
    world = ImaginaryWorld(seed, guard.style)
    memory = guard.initial_memory(seed)
    for _ in range(turns):
        snapshot = world.observe()
        plan, memory = guard.decide(snapshot, memory)
        yield snapshot, plan
        world.apply(plan)
        world.advance()


@settings(max_examples=25)
@given(inner_names, seeds, st.integers(1, 4), st.integers(0, 3))
def test_bounds_always_hold_and_raw_shows_what_was_wanted(
    name: str, seed: int, low: int, span: int
) -> None:
    guard = Bounds(create(name), min_hosts=low, max_hosts=low + span)
    for snapshot, plan in decisions(guard, seed):
        had = snapshot.offer.max_hosts
        assert plan.bounded_target <= low + span
        if had is None:
            assert plan.bounded_target >= low
        if plan.bindings:
            assert plan.bindings[0].before == plan.raw_target
            assert plan.bindings[-1].after == plan.bounded_target
        else:
            assert plan.raw is None


@settings(max_examples=20)
@given(inner_names, seeds, st.integers(1, 2))
def test_a_step_limit_bounds_each_turn(name: str, seed: int, limit: int) -> None:
    for snapshot, plan in decisions(StepLimit(create(name), up=limit, down=limit), seed):
        now = len(snapshot.requested.hosts)
        assert now - limit <= plan.bounded_target <= now + limit


@settings(max_examples=20)
@given(inner_names, seeds)
def test_a_pause_lets_nothing_through_in_its_direction(name: str, seed: int) -> None:
    for snapshot, plan in decisions(Pause(create(name), direction="in"), seed):
        assert not shrinks(snapshot, plan.deployment)
    for snapshot, plan in decisions(Pause(create(name), direction="out"), seed):
        lost = [o for o in snapshot.topology.by_name if not snapshot.requested.counts[o]]
        if not lost:  # what lost its last instance still gets one
            assert not grows(snapshot, plan.deployment)


@settings(max_examples=15)
@given(inner_names, seeds)
def test_a_dry_run_changes_nothing_and_keeps_the_wish(name: str, seed: int) -> None:
    bare = create(name)
    guard = DryRun(bare)
    memory = guard.initial_memory(seed)
    snapshot = ImaginaryWorld(seed, guard.style).observe()
    plan, _ = guard.decide(snapshot, memory)
    wish, _ = bare.decide(snapshot, memory.inner)
    assert plan.deployment == snapshot.requested
    assert (plan.raw or plan.deployment) == wish.deployment
