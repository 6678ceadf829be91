"""What an autoscaler makes of its settings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.autoscaler.fakes import FakeWorld, without_spark
from tidegate.errors import InputError
from tidegate.policies import create
from tidegate.policies.tide import Tide
from tidegate.policies.wrapper import innermost
from tidegate.spark.autoscaler.autoscaler import EXPECTED_STARTUP_S, Autoscaler
from tidegate.testing.spark import FakeGateway

ANY: Any = None
"""In place of a session."""


def test_a_share_is_what_the_policy_promises() -> None:
    with without_spark(FakeWorld()):
        scaler = Autoscaler(ANY, slo="5s", share="99.9%", journal=None)
    policy = innermost(scaler.policy)
    assert isinstance(policy, Tide)
    assert (policy.slo_s, policy.share) == (5.0, 0.999)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"share": 0.99, "policy": "drs"}, "share is 0.99; it must be left out with drs"),
        ({"share": 99, "policy": "tide"}, "share is 99; it must be a share above 0"),
        ({"share": 0.1, "policy": "tide"}, "share is 0.1; it must be a number between 0.5 and"),
        ({"share": 0.9, "policy": create("tide")}, "left out with a policy object"),
        ({"share": 0.9, "policy": "tide", "parameters": {"share": 0.8}}, "given once"),
    ],
)
def test_a_share_that_cannot_be_kept_is_refused_in_one_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with without_spark(FakeWorld()), pytest.raises(InputError, match=sentence) as caught:
        Autoscaler(ANY, slo="5s", journal=None, **settings)
    assert caught.value.key == "share"


def test_the_first_new_executor_is_not_expected_at_once() -> None:
    """How long one takes is unknown at first, which is not the same as no time."""
    scaler = Autoscaler(FakeGateway(1), slo="5s", max_executors=4, journal=None)
    assert scaler.offer.startup_s == EXPECTED_STARTUP_S > 0
