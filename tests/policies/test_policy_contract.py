"""Every installed policy keeps the contract, bare and behind guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from tidegate.guards import (
    Bounds,
    Budget,
    CoolDown,
    DryRun,
    ExcludedPeriods,
    MissingMetrics,
    Pause,
    Stabilisation,
    StepLimit,
)
from tidegate.policies import Policy, available, create
from tidegate.testing import check_policy

NAMES = {
    "local-threshold",
    "global-threshold",
    "sarsa",
    "adaptive-provisioning",
    "btu",
    "queue-threshold",
    "drs",
    "static",
    "spark-dynamic-allocation",
    "dstreams-ratio",
    "ds2",
    "lag",
    "tide",
}


def all_guards(policy: Policy) -> Policy:
    """All that change a number or a direction, with limits that bind in the imagined worlds."""
    policy = StepLimit(policy, up=2, down=1)
    policy = Stabilisation(policy, up_s=20, down_s=60)
    policy = CoolDown(policy, up_s=10, down_s=60)
    policy = Budget(policy, soft_usd_per_h=200, hard_usd_per_h=400)
    policy = MissingMetrics(policy)
    policy = ExcludedPeriods(policy, periods="00:20-00:22")
    return Bounds(policy, min_hosts=2, max_hosts=9)


def paused(policy: Policy) -> Policy:
    """The rest of the guards around all others."""
    return DryRun(Pause(all_guards(policy), direction="in"))


def test_all_techniques_of_the_papers_and_all_baselines_are_installed() -> None:
    assert set(available()) >= NAMES


@pytest.mark.parametrize("name", available())
def test_each_policy_keeps_the_contract(name: str) -> None:
    check_policy(create(name), seed=1)


@pytest.mark.parametrize("name", available())
@pytest.mark.parametrize("stack", [all_guards, paused])
def test_each_policy_keeps_the_contract_behind_all_guards(
    name: str, stack: Callable[[Policy], Policy]
) -> None:
    check_policy(stack(create(name)), seed=2, worlds=5)


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_pause_around_a_lively_policy_keeps_the_contract(
    direction: Literal["in", "out", "both"],
) -> None:
    check_policy(Pause(create("queue-threshold"), direction=direction), worlds=5)


@pytest.mark.parametrize("settings", [{"model": "ggk"}, {"t_max_s": "100ms"}, {"reserved": 2}])
def test_drs_keeps_the_contract_in_its_variants(settings: dict[str, object]) -> None:
    check_policy(create("drs", **settings), seed=4)


def test_a_fixed_number_of_hosts_keeps_the_contract() -> None:
    check_policy(create("static", hosts=3), seed=5)


def test_sarsa_of_the_textbooks_keeps_the_contract() -> None:
    check_policy(create("sarsa", bootstrap="next-action", grace_s="5s"), seed=6)
