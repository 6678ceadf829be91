"""Latency targets by query, however they are written."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidegate.errors import InputError
from tidegate.model import SloByQuery


@pytest.mark.parametrize("given", ["5s", 5, 5.0, "5", {"*": "5s"}, {"*": 5}, "*=5s"])
def test_one_target_is_for_all_queries(given: str | float | Mapping[str, str | float]) -> None:
    targets = SloByQuery.read(given)
    assert targets == SloByQuery(5.0)
    assert targets.of("anything") == targets.default_s == targets.largest_s == 5.0


@pytest.mark.parametrize(
    "given",
    [
        "alerts=2s,30s",
        "30s, alerts = 2s",
        "alerts=2s,*=30s",
        {"alerts": "2s", "*": "30s"},
        {"alerts": 2, "*": 30.0},
        SloByQuery(30.0, {"alerts": 2.0}),
    ],
)
def test_a_query_may_have_its_own_target(
    given: str | Mapping[str, str | float] | SloByQuery,
) -> None:
    targets = SloByQuery.read(given)
    assert (targets.of("alerts"), targets.of("totals")) == (2.0, 30.0)
    assert (targets.default_s, targets.largest_s) == (30.0, 30.0)


def test_the_largest_target_may_be_that_of_one_query() -> None:
    assert SloByQuery.read("nightly=10m,30s").largest_s == 600.0


def test_a_name_may_contain_an_equals_sign() -> None:
    assert SloByQuery.read("a=b=2s,30s").of("a=b") == 2.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("alerts=2s", "it must be a target for all other queries too: add one, such as alerts=2s,"),
        ({"alerts": "2s"}, 'add one, such as "\\*": "30s"'),
        ({}, "a target for all other queries too"),
        ("", "slo is ''; it must be a positive duration"),
        ("2s,30s", "slo is '30s'; it must be given once"),
        ("alerts=2s,alerts=3s,30s", "slo of alerts is '3s'; it must be given once"),
        ("alerts=soon,30s", "slo of alerts is 'soon'; it must be a positive duration"),
        ("=2s,30s", "write a query's name before the equals sign"),
        ("alerts=,30s", "slo of alerts is ''; it must be a positive duration"),
        ({"alerts": None, "*": "30s"}, "slo of alerts is 'None'"),
        ({"alerts": True, "*": "30s"}, "slo of alerts is 'True'"),
        (-1, "slo is -1; it must be a positive duration"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(given: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        SloByQuery.read(given)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
