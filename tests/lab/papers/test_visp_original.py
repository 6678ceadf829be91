"""What the authors' code does: each difference changes a decision, and only when it is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.policies.visp_worlds import BUSY, IDLE, LATE, NOW_S, world
from tidegate.errors import SettingError
from tidegate.lab.papers.visp.original import (
    DIFFERENCES,
    OriginalBtu,
    predicted_through_origin_s,
)
from tidegate.model import Snapshot
from tidegate.policies.btu import Btu, BtuMemory
from tidegate.testing import check_policy

FULL = {"host-1": ["a", "b", "b", "b"]}
PAIR = {"host-1": ["a"], "host-2": ["a"]}


@dataclass(frozen=True)
class Case:
    """hosts and instances by operator: as the paper has it, and with the difference."""

    snapshot: Snapshot
    paper: tuple[int, Mapping[str, int]]
    coded: tuple[int, Mapping[str, int]]
    memory: BtuMemory = field(default_factory=BtuMemory)


CASES = {
    "through-origin": Case(  # a constant 0.6 s predicts 1.2 s, above the SLO of 1 s
        world({"host-1": ["a"]}, {"a": (60.0, (0.6,) * 5)}), (1, {"a": 1}), (1, {"a": 2})
    ),
    "mean-duration": Case(  # the newest is in time and so is the trend; the mean of 1.7 s is not
        world({"host-1": ["a"]}, {"a": (60.0, (2.0, 2.0, 2.0, 2.0, 0.5))}),
        (1, {"a": 1}),
        (1, {"a": 2}),
    ),
    "double-step": Case(
        world({"host-1": ["a"]}, {"a": (300.0, (2.0,))}), (1, {"a": 2}), (1, {"a": 3})
    ),
    "min-is-zero": Case(  # all have two: (2−2)/0 counts as 0, but 2/2 is 1 and beats the delay
        world({"host-1": ["a", "a", "b", "b"]}, {"a": LATE, "b": (5.0, (1.5,))}),
        (2, {"a": 3, "b": 2}),
        (1, {"a": 3, "b": 1}),
    ),
    "recent-upscale": Case(
        world(FULL, {"a": LATE, "b": IDLE}),
        (1, {"a": 2, "b": 2}),
        (2, {"a": 2, "b": 3}),
        BtuMemory({"b": 1}, {"b": NOW_S - 100}),
    ),
    "alphabetical": Case(  # c has nothing waiting, b does: c is better, b comes first
        world(
            {"host-1": ["a", "b", "b", "c", "c"]},
            {"a": LATE, "b": BUSY, "c": IDLE},
            cores={"a": 0.75, "b": 0.75, "c": 0.75},
        ),
        (1, {"a": 2, "b": 2, "c": 1}),
        (1, {"a": 2, "b": 1, "c": 2}),
    ),
    "discard-freed": Case(
        world(FULL, {"a": LATE, "b": IDLE}), (1, {"a": 2, "b": 2}), (2, {"a": 2, "b": 2})
    ),
    "wide-window": Case(  # 5 % of 600 s are 30 s
        world(PAIR, {"a": IDLE}, left_s={"host-2": 35}), (2, {"a": 2}), (1, {"a": 1})
    ),
    "young-host": Case(
        world(PAIR, {"a": IDLE}, left_s={"host-1": 500, "host-2": 10}, young=["host-1"]),
        (1, {"a": 1}),
        (2, {"a": 2}),
    ),
    "no-limit": Case(
        world(
            {"host-1": ["a"] * 7, "host-2": ["a"] * 3},
            {"a": IDLE},
            cores={"a": 0.25},
            left_s={"host-2": 10},
        ),
        (1, {"a": 8}),
        (1, {"a": 7}),
    ),
    "stop-first": Case(
        world(
            {"host-1": ["x", "a"], "host-2": ["a", "y"]},
            {"x": BUSY, "a": IDLE, "y": BUSY},
            cores={"x": 3.0, "a": 0.5, "y": 1.0},
            left_s={"host-2": 10},
        ),
        (2, {"x": 1, "a": 2, "y": 1}),
        (2, {"x": 1, "a": 1, "y": 1}),
    ),
    "random-order": Case(  # one place for two that are late; this seed looks at b first
        world({"host-1": ["a", "b", "x"]}, {"a": LATE, "b": LATE, "x": BUSY}, max_hosts=1),
        (1, {"a": 2, "b": 1, "x": 1}),
        (1, {"a": 1, "b": 2, "x": 1}),
        BtuMemory(seed=0),
    ),
}


def with_only(*differences: str) -> Btu:
    return OriginalBtu(differences=frozenset(differences))


def outcome(case: Case, *differences: str) -> tuple[int, dict[str, int]]:
    plan, _ = with_only(*differences).decide(case.snapshot, case.memory)
    return plan.bounded_target, dict(plan.deployment.counts)


def test_every_difference_has_its_case() -> None:
    assert {*CASES, "cpu-only"} == set(DIFFERENCES)


@pytest.mark.parametrize("name", CASES)
def test_each_difference_changes_a_decision_when_it_is_on(name: str) -> None:
    case = CASES[name]
    assert outcome(case) == case.paper
    assert outcome(case, name) == case.coded


def test_cpu_only_ignores_the_cached_image() -> None:
    hosts = {"host-1": ["b"], "host-2": ["b"], "host-3": ["a"] * 4}
    snapshot = world(hosts, {"a": LATE, "b": BUSY}, images={"host-2": "a"})
    paper, _ = Btu().decide(snapshot, BtuMemory())
    coded, _ = with_only("cpu-only").decide(snapshot, BtuMemory())
    assert (paper.deployment.home["a-5"], coded.deployment.home["a-5"]) == ("host-2", "host-1")


def test_double_step_adds_one_even_when_in_time() -> None:
    case = Case(world({"host-1": ["a"]}, {"a": (300.0, (0.1,))}), (1, {"a": 1}), (1, {"a": 2}))
    assert outcome(case) == case.paper
    assert outcome(case, "double-step") == case.coded


def test_recent_upscale_is_forgotten_after_three_minutes() -> None:
    old = BtuMemory({"b": 1}, {"b": NOW_S - 180})
    case = CASES["recent-upscale"]
    plan, _ = with_only("recent-upscale").decide(case.snapshot, old)
    assert plan.bounded_target == 1


def test_random_order_depends_on_seed_and_turn_and_on_nothing_else() -> None:
    snapshot = CASES["random-order"].snapshot
    policy = with_only("random-order")

    def first(seed: int, turn: int) -> str:
        plan, _ = policy.decide(snapshot, BtuMemory(seed=seed, turn=turn))
        return max(plan.deployment.counts, key=lambda name: plan.deployment.counts[name])

    by_turn = [first(seed=5, turn=turn) for turn in range(12)]
    assert set(by_turn) == {"a", "b"}
    assert by_turn == [first(seed=5, turn=turn) for turn in range(12)]
    assert {first(seed, 0) for seed in range(12)} == {"a", "b"}


def test_differences_add_up() -> None:
    case = CASES["discard-freed"]
    assert outcome(case, "discard-freed", "recent-upscale", "no-limit") == case.coded


def test_the_authors_line_goes_through_the_origin() -> None:
    assert predicted_through_origin_s([0.6] * 5) == pytest.approx(1.2)
    assert predicted_through_origin_s([0.0, 1.0, 2.0]) == pytest.approx(4.0)
    assert predicted_through_origin_s([1.0]) is None


def test_without_differences_it_is_the_published_policy() -> None:
    for case in CASES.values():
        plain, _ = Btu().decide(case.snapshot, case.memory)
        assert outcome(case) == (plain.bounded_target, dict(plain.deployment.counts))


def test_an_unknown_difference_is_refused() -> None:
    with pytest.raises(SettingError, match="name of a difference"):
        with_only("all")


def test_the_original_keeps_the_contract_of_policies() -> None:
    check_policy(OriginalBtu(), seed=3)
