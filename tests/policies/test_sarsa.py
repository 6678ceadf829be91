"""FUGU IV-C by scenario, and the arithmetic of its Table I."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import Plan, Snapshot
from tidegate.policies.sarsa import (
    ACTIONS,
    NO_ACTION,
    SCALE_IN,
    SCALE_OUT,
    STATES,
    Pending,
    QTable,
    Sarsa,
    SarsaMemory,
    learning_rate,
    reward,
    state_of,
    updated,
)
from tidegate.testing import fleet_snapshot

START = QTable.from_thresholds(0.3, 0.8)


def play(
    policy: Sarsa,
    scenes: Sequence[tuple[float, Mapping[str, Sequence[float]]]],
    memory: SarsaMemory | None = None,
) -> tuple[list[Plan], SarsaMemory]:
    memory = memory or policy.initial_memory()
    plans = []
    for time_s, cores in scenes:
        plan, memory = policy.decide(fleet_snapshot(cores, time_s), memory)
        plans.append(plan)
    return plans, memory


def test_table_one_comes_out_exactly() -> None:
    immediate = reward(before=0.7, after=0.9, target=0.6)
    assert immediate == pytest.approx(1 + 1 / 6 - 1 / 2)
    value = updated(0.85, immediate, future=0.5, alpha=0.2, beta=0.1)
    assert value == pytest.approx(0.8 * 0.85 + 0.2 * (2 / 3 + 0.05))
    assert round(value, 4) == 0.8233


@pytest.mark.parametrize(("bootstrap", "future"), [("same-action", 0.5), ("next-action", 0.9)])
def test_the_future_is_that_of_the_same_action_or_of_the_next_one(
    bootstrap: str, future: float
) -> None:
    policy = Sarsa.with_settings({"bootstrap": bootstrap})
    assert isinstance(policy, Sarsa)
    scenes = [(0.0, {"host-1": [2.8]}), (10.0, {"host-1": [3.6]})]
    _, memory = play(policy, scenes, SarsaMemory({"host-1": START}))
    expected = 0.8 * 0.85 + 0.2 * (2 / 3 + 0.1 * future)
    assert memory.tables["host-1"].rows[14][NO_ACTION] == pytest.approx(expected)


def test_learning_slows_down_with_the_visits_of_a_state() -> None:
    assert learning_rate(0, 0.2, 80) == pytest.approx(0.2)
    assert learning_rate(80, 0.2, 80) == pytest.approx(0.1)
    assert learning_rate(720, 0.2, 80) == pytest.approx(0.02)


def test_each_learning_step_counts_one_visit_of_the_state_it_came_from() -> None:
    _, memory = play(Sarsa(), [(t, {"host-1": [2.0]}) for t in (0.0, 10.0, 20.0)])
    visits = memory.tables["host-1"].visits
    assert (visits[10], sum(visits)) == (2, 2)


@given(st.tuples(*[st.sampled_from([0.0, 0.4, 0.5, 1.0])] * 3))
def test_the_best_action_has_the_largest_reward_and_doing_nothing_wins_a_tie(
    row: tuple[float, float, float],
) -> None:
    table = QTable((row,) * STATES)
    order = (NO_ACTION, SCALE_IN, SCALE_OUT)
    assert table.best(0) == max(order, key=lambda action: row[action])


steps = st.tuples(st.integers(0, STATES - 1), st.sampled_from(range(3)), st.floats(-2, 2))


@given(st.lists(steps, max_size=12))
def test_a_table_that_learns_is_made_monotonic_as_a_look_at_all_rows_would(
    learning: list[tuple[int, int, float]],
) -> None:
    table = START
    for state, action, value in learning:
        rows = [list(row) for row in table.rows]
        rows[state][action] = value
        largest = SCALE_IN
        for row in rows:
            best = QTable(((row[0], row[1], row[2]),) * STATES).best(0)
            if best < largest:
                row[largest] = max(row) + 1e-9
            largest = max(largest, best)
        table = table.learnt(state, action, value)
        assert [list(row) for row in table.rows] == rows


def test_a_table_begins_as_the_local_thresholds() -> None:
    actions = [ACTIONS[START.best(state)] for state in range(STATES)]
    assert actions == ["scale in"] * 6 + ["no action"] * 10 + ["scale out"] * 5
    assert START.thresholds == (0.3, 0.8)


def test_the_initial_table_is_the_papers_where_its_thresholds_are_used() -> None:
    printed = {
        0.7: (0.4, 0.85, 0.8),
        0.8: (0.38, 0.7, 0.85),
        0.9: (0.35, 0.5, 0.9),
        1: (0.32, 0.4, 1),
    }
    assert {u: START.rows[state_of(u)] for u in printed} == printed


@pytest.mark.parametrize(
    ("lower", "upper"), [(0.2, 0.8), (0.4, 0.8), (0.3, 0.7), (0.3, 0.9), (0.5, 0.6)]
)
def test_a_table_begins_with_the_configured_thresholds(lower: float, upper: float) -> None:
    assert QTable.from_thresholds(lower, upper).thresholds == (lower, upper)


def test_states_are_steps_of_five_percent_and_end_at_one() -> None:
    assert [state_of(u) for u in (0.0, 0.02, 0.03, 0.7, 0.9, 1.0, 1.7)] == [0, 0, 0, 14, 18, 20, 20]


def test_a_release_that_cannot_be_done_is_cancelled_and_punished_next_time() -> None:
    idle = {"host-1": [0.4]}  # 0.10, and it is the last host
    plans, memory = play(Sarsa(), [(0.0, idle)])
    assert [reason.code for reason in plans[0].reasons] == ["release-cancelled"]
    assert memory.tables["host-1"].pending == Pending(2, SCALE_IN, 0.1, cancelled=True)
    before = START.rows[2][SCALE_IN]
    _, memory = play(Sarsa(), [(1.0, idle)], memory)
    assert memory.tables["host-1"].rows[2][SCALE_IN] == pytest.approx(
        0.8 * before + 0.2 * (-1 + 0.1 * before)
    )


def test_enough_penalties_teach_a_host_to_stop_trying() -> None:
    idle = {"host-1": [0.4]}
    plans, memory = play(Sarsa(), [(float(t), idle) for t in range(12)])
    assert memory.tables["host-1"].best(2) == NO_ACTION
    assert plans[-1].reasons == ()


def test_nothing_is_learnt_or_decided_within_the_grace_period() -> None:
    hot = {"host-1": [1.2, 1.2, 1.2], "host-2": [1.6]}
    plans, memory = play(Sarsa(grace_s=30), [(0.0, hot)])
    assert plans[0].reasons[0].code == "overload"
    decided = memory.tables["host-1"]
    assert decided.pending is not None
    assert (decided.pending.state, decided.pending.action) == (18, SCALE_OUT)
    assert decided.quiet_until_s == 30.0

    calm = {"host-1": [1.2, 1.2], "host-2": [1.6, 1.2]}
    _, memory = play(Sarsa(grace_s=30), [(29.0, calm)], memory)
    assert memory.tables["host-1"] == decided
    _, memory = play(Sarsa(grace_s=30), [(30.0, calm)], memory)
    after = memory.tables["host-1"]
    assert after.visits[18] == 1
    gained = 1 + 0.5 - 0.0  # from 0.9 down to the target of 0.6
    future = START.rows[12][SCALE_OUT]
    expected = 0.8 * 0.9 + 0.2 * (gained + 0.1 * future)
    assert after.rows[18][SCALE_OUT] == pytest.approx(expected)


def test_a_missing_measurement_teaches_nothing() -> None:
    _, memory = play(Sarsa(), [(0.0, {"host-1": [2.0]})])
    snapshot = fleet_snapshot({"host-1": [2.0]}, 10.0)
    blind = replace(snapshot, hosts=(replace(snapshot.hosts[0], utilisation=None),))
    _, after = Sarsa().decide(blind, memory)
    assert after == memory


def test_a_table_comes_with_a_lease_and_goes_with_the_release() -> None:
    first = {"host-1": [2.0]}
    grown = {"host-1": [2.0], "host-2": [0.4]}
    policy = Sarsa(grace_s=15)
    _, memory = play(policy, [(0.0, first)])
    assert set(memory.tables) == {"host-1"}
    assert memory.tables["host-1"].quiet_until_s < 0  # known from the start: no grace
    _, memory = play(policy, [(10.0, grown)], memory)
    assert memory.tables["host-2"] == replace(START, quiet_until_s=25.0)
    plans, memory = play(policy, [(30.0, grown)], memory)
    assert plans[0].deployment.hosts == ("host-1",)
    assert set(memory.tables) == {"host-1"}


def test_doing_nothing_wins_a_tie() -> None:
    table = replace(START, rows=((0.5, 0.5, 0.5),) * STATES)
    assert table.best(0) == table.best(20) == NO_ACTION
    assert table.thresholds == (None, None)


def test_a_new_best_action_spreads_to_busier_hosts() -> None:
    learnt = START.learnt(10, SCALE_OUT, 2.0)
    assert all(learnt.best(state) == SCALE_OUT for state in range(10, STATES))
    assert all(learnt.best(state) == START.best(state) for state in range(10))


@given(
    st.lists(
        st.tuples(st.integers(0, STATES - 1), st.integers(0, 2), st.floats(-2, 2)), max_size=25
    )
)
def test_a_busier_host_never_prefers_a_smaller_action(
    lessons: list[tuple[int, int, float]],
) -> None:
    table = START
    for state, action, value in lessons:
        was, table = table, table.learnt(state, action, value)
        assert table.rows[state][action] >= value
        assert table.rows[:state] == was.rows[:state]
        best = [table.best(s) for s in range(STATES)]
        assert best == sorted(best)
    assert sum(table.visits) == len(lessons)


def test_what_has_just_become_a_refuge_is_neither_released_nor_judged() -> None:
    scene = {"host-1": [1.8, 1.8], "host-2": [0.4]}
    plans, memory = play(Sarsa(), [(0.0, scene)])
    assert plans[0].deployment.hosts == ("host-1", "host-2")
    assert memory.tables["host-2"].pending is None


def hot(time_s: float, most: int) -> Snapshot:
    """Two hosts above 0.9. most: hosts on offer."""
    scene = fleet_snapshot({"host-1": [1.3, 1.3, 1.3], "host-2": [1.2, 1.2, 1.2]}, time_s)
    return replace(scene, offer=replace(scene.offer, max_hosts=most))


def test_a_host_scales_out_when_the_limit_of_hosts_is_lifted() -> None:
    policy, memory = Sarsa(), Sarsa().initial_memory()
    for turn in range(40):
        plan, memory = policy.decide(hot(10.0 * turn, 2), memory)
        assert len(plan.deployment.hosts) == 2
        assert [reason.code for reason in plan.reasons] == ["no-room", "no-room"]
        assert plan.unmet
    plan, _ = policy.decide(hot(400.0, 8), memory)
    assert len(plan.deployment.hosts) > 2
    assert {reason.code for reason in plan.reasons} == {"overload"}


def test_a_scale_out_without_room_teaches_nothing() -> None:
    _, memory = Sarsa().decide(hot(0.0, 2), SarsaMemory())
    _, memory = Sarsa().decide(hot(10.0, 2), memory)
    assert {table.rows for table in memory.tables.values()} == {START.rows}


def test_a_scale_out_of_a_host_that_is_not_above_the_target_is_punished() -> None:
    eager = replace(START.learnt(10, SCALE_OUT, 1.5), visits=START.visits)
    plans, memory = play(Sarsa(), [(0.0, {"host-1": [1.0, 1.0]})], SarsaMemory({"host-1": eager}))
    assert [reason.code for reason in plans[0].reasons] == ["scale-out-cancelled"]
    _, memory = play(Sarsa(), [(10.0, {"host-1": [1.0, 1.0]})], memory)
    assert memory.tables["host-1"].rows[10][SCALE_OUT] == pytest.approx(
        0.8 * 1.5 + 0.2 * (0.15 - 1)
    )


def test_a_bad_scale_out_moves_the_threshold_up_by_one_row_and_not_further() -> None:
    """The lowest row that scales out unlearns it; busier rows keep what they prefer."""
    learnt = START.learnt(16, SCALE_OUT, 0.1)
    assert learnt.thresholds == (0.3, 0.85)
    assert learnt.rows[17:] == START.rows[17:]
    stubborn = START.learnt(18, SCALE_OUT, 0.1)
    assert stubborn.thresholds == START.thresholds
    assert stubborn.best(18) == SCALE_OUT


@pytest.mark.parametrize(("grace_for", "quiet"), [("deciding", False), ("affected", True)])
def test_a_host_that_received_operators_may_be_left_alone_too(
    grace_for: Literal["deciding", "affected"], quiet: bool
) -> None:
    hot = fleet_snapshot({"host-1": [1.0, 0.8, 0.7, 0.6, 0.5], "host-2": [1.4]})
    policy = Sarsa(grace_for=grace_for)
    plan, memory = policy.decide(hot, policy.initial_memory())
    assert sum(i.host == "host-2" for i in plan.deployment.instances) > 1
    assert (memory.tables["host-2"].quiet_until_s == 30.0) == quiet
    assert memory.tables["host-1"].quiet_until_s == 30.0
