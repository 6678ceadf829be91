"""Finding policies by name, and reading their parameters as people write them."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate
from tidegate.errors import SettingError, UnknownPolicy
from tidegate.policies import available, create, policy_class
from tidegate.policies.base import NoMemory
from tidegate.policies.static import Static
from tidegate.testing import steady_snapshot


@pytest.mark.parametrize("name", available())
def test_each_policy_is_found_by_its_own_name_and_explains_itself(name: str) -> None:
    found = policy_class(name)
    assert found.name == name
    assert found.paper
    assert found.__doc__
    assert ">>>" in found.__doc__
    assert all(parameter.doc for parameter in found.parameters())
    assert create(name) == found()
    assert found().describe() == name


@pytest.mark.parametrize("name", available())
def test_defaults_read_as_text_are_the_defaults(name: str) -> None:
    parameters = policy_class(name).parameters()
    text = {p.name: str(p.default) for p in parameters if p.default not in (None, "")}
    assert create(name, **text) == create(name)


def test_an_unknown_name_suggests_a_close_one() -> None:
    with pytest.raises(UnknownPolicy, match="did you mean sarsa"):
        create("sarsaa")
    with pytest.raises(UnknownPolicy) as caught:
        create("zzz")
    assert "did you mean" not in str(caught.value)


def test_an_unknown_parameter_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingError, match=r"lag: treshold.*it takes threshold, tolerance"):
        create("lag", treshold=5)
    with pytest.raises(SettingError, match="drs: nothing"):
        create("drs", nothing=1)


@pytest.mark.parametrize(
    ("policy", "settings", "attribute", "value"),
    [
        ("drs", {"t_max_s": "500ms"}, "t_max_s", 0.5),
        ("drs", {"t_max_s": 2}, "t_max_s", 2.0),
        ("sarsa", {"grace_s": "0"}, "grace_s", 0.0),
        ("drs", {"reserved": "3"}, "reserved", 3),
        ("adaptive-provisioning", {"shed": "yes"}, "shed", True),
        ("adaptive-provisioning", {"shed": "off"}, "shed", False),
        ("static", {"hosts": "none"}, "hosts", None),
        ("static", {"hosts": "4"}, "hosts", 4),
        ("local-threshold", {"fill": None}, "fill", None),
        ("sarsa", {"bootstrap": "next-action"}, "bootstrap", "next-action"),
    ],
)
def test_parameters_are_read_as_their_kind(
    policy: str, settings: dict[str, Any], attribute: str, value: Any
) -> None:
    found = getattr(create(policy, **settings), attribute)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("policy", "settings", "words"),
    [
        ("drs", {"reserved": "2.5"}, "a whole number"),
        ("drs", {"reserved": 2.5}, "a whole number"),
        ("drs", {"reserved": -1}, "at least 0"),
        ("drs", {"reserved": True}, "at least 0"),
        ("drs", {"t_max_s": float("nan")}, "at least 1e-06"),
        ("ds2", {"utilisation": "much"}, "a finite number"),
        ("ds2", {"utilisation": 1.5}, "between 0.01 and 1"),
        ("adaptive-provisioning", {"shed": "maybe"}, "true or false"),
        ("adaptive-provisioning", {"shed": 1}, "true or false"),
        ("sarsa", {"bootstrap": "greedy"}, "one of same-action, next-action"),
        ("static", {"hosts": 0}, "at least 1"),
    ],
)
def test_a_parameter_of_the_wrong_kind_or_out_of_range_is_refused(
    policy: str, settings: dict[str, Any], words: str
) -> None:
    (key,) = settings
    with pytest.raises(SettingError, match=words) as caught:
        create(policy, **settings)
    assert caught.value.key == f"{policy}: {key}"


def test_a_bad_duration_is_refused_by_the_key_of_the_policy() -> None:
    with pytest.raises(ValueError, match="drs: t_max_s is 'soon'"):
        create("drs", t_max_s="soon")


@pytest.mark.parametrize(("wanted", "hosts"), [(None, 3), (3, 3), (5, 5), (1, 1)])
def test_static_keeps_its_number_whatever_happens(wanted: int | None, hosts: int) -> None:
    plan, _ = Static(hosts=wanted).decide(steady_snapshot(hosts=3), NoMemory())
    assert plan.bounded_target == hosts
    assert bool(plan.reasons) is (hosts != 3)


def test_the_names_of_the_package_are_sorted_and_all_there() -> None:
    names = [name for name in tidegate.__all__ if name != "__version__"]
    assert names == sorted(names)
    assert all(getattr(tidegate, name) is not None for name in tidegate.__all__)
    assert set(names) <= set(dir(tidegate))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tidegate.nonsense
