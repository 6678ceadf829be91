from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.config import load_topology
from tidegate.errors import InputError, SettingError, TopologyError, UnknownPolicy
from tidegate.guards import Bounds, Guard, MissingMetrics
from tidegate.loop.stack import (
    WRAPPERS,
    StackOptions,
    build_stack,
    load_policy,
    policy_from,
    with_share,
    wrapped,
)
from tidegate.policies import Situation, available, create, policy_class
from tidegate.policies.base import Policy
from tidegate.policies.trend import Trend
from tidegate.policies.wrapper import ObservationWrapper, PolicyWrapper, innermost
from tidegate.testing import steady_snapshot


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    return path


def test_a_file_makes_a_policy_inside_its_guards(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        policy: drs
        parameters: {t_max_s: 500ms, model: ggk}
        guards:
          bounds: {min_hosts: 2, max_hosts: 8}
          missing-metrics:
        """,
    )
    policy = load_policy(path)
    assert isinstance(policy, Bounds) and policy.max_hosts == 8
    assert isinstance(policy.inner, MissingMetrics)
    assert policy.inner.inner == create("drs", t_max_s=0.5, model="ggk")


def test_guards_stand_in_one_order_whatever_the_file_says() -> None:
    one = wrapped(create("static"), {"dry-run": {}, "bounds": {}, "cool-down": {}})
    two = wrapped(create("static"), {"cool-down": {}, "dry-run": {}, "bounds": {}})
    assert one == two
    assert one.describe() == "static → cool-down() → bounds() → dry-run()"


def test_every_guard_can_be_named_in_a_file() -> None:
    everything = wrapped(create("drs"), {name: {} for name in WRAPPERS})
    assert [name for name in WRAPPERS if f"{name}(" in everything.describe()] == list(WRAPPERS)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({}, SettingError, "policy is None"),
        ({"policy": "dsr"}, UnknownPolicy, "did you mean"),
        ({"policy": "drs", "paramters": {}}, SettingError, "paramters"),
        ({"policy": "drs", "parameters": {"tmax": 1}}, SettingError, "it takes t_max_s"),
        ({"policy": "drs", "parameters": {"t_max_s": "soon"}}, InputError, "500ms"),
        ({"policy": "drs", "parameters": {"t_max_s": -1}}, SettingError, "t_max_s is -1"),
        ({"policy": "drs", "parameters": {"reserved": 1.5}}, SettingError, "whole number"),
        ({"policy": "drs", "parameters": {"model": "mm1"}}, SettingError, "one of mmk, ggk"),
        ({"policy": "drs", "parameters": [1]}, SettingError, "mapping"),
        ({"policy": "drs", "guards": {"bunds": {}}}, SettingError, "the name of a guard"),
        ({"policy": "drs", "guards": {"bounds": {"max_hosts": 0}}}, SettingError, "at least 1"),
        (
            {"policy": "drs", "guards": {"bounds": {"min_hosts": 5, "max_hosts": 2}}},
            SettingError,
            "at least min_hosts",
        ),
        (
            {"policy": "drs", "guards": {"excluded-periods": {"periods": "at noon"}}},
            SettingError,
            "HH:MM-HH:MM",
        ),
        ({"policy": "adaptive-provisioning", "parameters": {"shed": 3}}, SettingError, "true or"),
        ({"policy": "drs", "guards": {"bounds": 5}}, SettingError, "it takes min_hosts, max_hosts"),
        ({"policy": "drs", "guards": {"effect": [1]}}, SettingError, "a mapping of names"),
        ({"policy": "drs", "parameters": {1: 2}}, SettingError, "the name of a parameter"),
        (
            {"policy": "drs", "guards": {"scheduled-minimum": {"time_zone": [5]}}},
            SettingError,
            "it must be text",
        ),
        ({"policy": "local-threshold", "parameters": {"target": 0.9}}, SettingError, "rising"),
        (
            {"policy": "btu", "parameters": {"quirks": "all"}},
            SettingError,
            "a parameter of",
        ),
    ],
)
def test_a_bad_setting_is_one_sentence(
    settings: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        policy_from(settings)


def test_settings_may_be_text_as_on_a_command_line() -> None:
    made = policy_from(
        {"policy": "adaptive-provisioning", "parameters": {"shed": "yes"}},
    )
    assert made == create("adaptive-provisioning", shed=True)
    assert create("local-threshold", violations="2", fill="none") == create(
        "local-threshold", violations=2, fill=None
    )


def test_malformed_yaml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3"):
        load_policy(write(tmp_path, "policy: drs\nparameters: [1, 2\n"))
    with pytest.raises(InputError, match=r"valid YAML: .*month"):
        load_policy(write(tmp_path, "policy: drs\na: 2026-99-99\n"))
    with pytest.raises(InputError, match="nested too deeply"):
        load_policy(write(tmp_path, "policy: " + "[" * 5000))
    with pytest.raises(InputError, match="YAML mapping"):
        load_policy(write(tmp_path, "- drs\n"))
    with pytest.raises(InputError, match="No such file"):
        load_policy(tmp_path / "none.yaml")


def test_a_topology_file_may_give_service_rates(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        operators:
          - {name: extract, service_rate_per_s: 5}
          - {name: match, service_time_s: 0.25, max_instances: 4}
        sources: [{name: frames, rate_per_s: 13}]
        edges:
          - {origin: frames, target: extract}
          - {origin: extract, target: match, ratio: 2}
        """,
    )
    topology = load_topology(path)
    assert topology.by_name["extract"].service_time_s == 0.2
    assert topology.arrival_rates() == {"extract": 13.0, "match": 26.0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("operators: 3", "list of operators"),
        ("operators: [{name: a, service_rate_per_s: 0}]", "above 0"),
        ("operators: [{name: a, service_tme_s: 1}]", "no such key"),
        ("operators: [{name: a}, {name: a}]", "unique"),
        ("operators: [{name: a}]\nedges: [{origin: b, target: a}]", "known names are a"),
    ],
)
def test_a_bad_topology_is_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((TopologyError, InputError), match=words):
        load_topology(write(tmp_path, text))


# --- the one builder ---------------------------------------------------------------------------


def names(policy: Policy) -> list[str]:
    """The stack from the inside out."""
    inner = names(policy.inner) if isinstance(policy, PolicyWrapper) else []
    return [*inner, policy.name]


@pytest.mark.parametrize("name", available())
def test_a_policy_that_forecasts_itself_has_no_trend(name: str) -> None:
    stack = build_stack(name, Situation(10.0)).describe()
    assert ("trend()" in stack) == (not create(name).forecasts)


def test_a_default_stack_has_every_default_guard_once() -> None:
    built = build_stack("drs", Situation(slo_s=10.0), StackOptions(min_hosts=2, max_hosts=9))
    assert names(built) == [
        "drs", "trend", "missing-metrics", "stabilisation", "release-limit", "change-cost",
        "useful-hosts", "effect", "bounds",
    ]  # fmt: skip
    assert isinstance(built, Bounds) and (built.min_hosts, built.max_hosts) == (2, 9)


def test_a_policy_that_picks_its_moment_is_not_held_until_its_plan_has_lasted() -> None:
    for policy in ("btu", wrapped(create("btu"), {"cool-down": {}})):
        stack = names(build_stack(policy, Situation(slo_s=10.0)))
        assert "stabilisation" not in stack and "first-look" in stack
    assert "first-look" not in names(build_stack("drs", Situation(slo_s=10.0)))


def test_guards_are_switched_off_and_set_by_name() -> None:
    options = StackOptions(
        guards={"budget": {"hard_usd_per_h": 3}, "effect": {"hold_s": "10s"}},
        without=("trend", "stabilisation"),
    )
    assert build_stack("ds2", Situation(slo_s=1.0), options).describe() == (
        "ds2 → missing-metrics() → release-limit() → change-cost() → budget(hard_usd_per_h=3.0) → "
        "useful-hosts() → effect(hold_s=10.0) → bounds()"
    )
    with pytest.raises(SettingError, match=r"without is 'stabilization'.*default guards are trend"):
        build_stack("ds2", Situation(), StackOptions(without=["stabilization"]))


def test_guards_that_a_setting_asks_for_have_their_place() -> None:
    options = StackOptions(
        without=["all"],
        max_hosts=9,
        when_blind="maximum",
        initial_hosts=4,
        scheduled_minimum="weekdays 08:00-18:00: 4",
        time_zone="Europe/Berlin",
    )
    built = build_stack("ds2", Situation(), options)
    assert names(built) == ["ds2", "initial-hosts", "when-blind", "scheduled-minimum"]
    assert names(build_stack("ds2", Situation(), StackOptions(without=["all"]))) == ["ds2"]
    with pytest.raises(SettingError, match=r"when_blind is 'maximum'.*largest number"):
        build_stack("ds2", Situation(), StackOptions(when_blind="maximum"))
    with pytest.raises(SettingError, match="time_zone"):
        build_stack("ds2", Situation(), StackOptions(time_zone="Europe/Berlin"))


def test_settings_of_a_default_guard_add_to_its_limits() -> None:
    options = StackOptions(guards={"bounds": {"min_hosts": 2}}, min_hosts=1, max_hosts=8)
    built = build_stack("drs", Situation(slo_s=5.0), options)
    assert isinstance(built, Bounds) and (built.min_hosts, built.max_hosts) == (2, 8)


def test_parameters_of_the_user_win_over_suggestions() -> None:
    suggested = innermost(build_stack("drs", Situation(slo_s=10.0)))
    assert suggested == create("drs", t_max_s=7.0)
    chosen = build_stack("drs", Situation(slo_s=10.0), StackOptions({"t_max_s": "2s"}))
    assert innermost(chosen) == create("drs", t_max_s=2.0)


@pytest.mark.parametrize("name", available())
@pytest.mark.parametrize("batches", [True, False])
def test_what_a_policy_suggests_it_accepts(name: str, batches: bool) -> None:
    known = Situation(5.0, batches, 0.2, 12.0, 4, 80.0)
    for situation in (known, Situation(), Situation(slo_s=1e-3, micro_batches=batches)):
        create(name, **policy_class(name).suggested(situation))


def test_the_aim_is_within_the_promise_wherever_a_policy_has_one() -> None:
    situation = Situation(slo_s=10.0)
    assert policy_class("drs").suggested(situation)["t_max_s"] < 10.0
    assert policy_class("btu").suggested(situation)["aim"] < 1.0


def test_what_changes_the_view_and_what_limits_the_plan_are_two_things() -> None:
    for wrapper in WRAPPERS.values():
        assert issubclass(wrapper, ObservationWrapper) != issubclass(wrapper, Guard)
    assert [name for name, w in WRAPPERS.items() if issubclass(w, ObservationWrapper)] == ["trend"]
    assert not hasattr(Trend, "limit")


@pytest.mark.parametrize("name", available())
def test_a_first_look_never_releases_anything(name: str) -> None:
    """With 12 hosts and hardly any load, whatever the policy."""
    stack = build_stack(name, Situation(slo_s=10.0))
    if stack.style == "placement":
        return  # its hosts are filled by operators, not by load
    calm = steady_snapshot(hosts=12, queue_length=0, durations_s=[0.01]).operators[0]
    reading = replace(calm, arrival_rate_per_s=0.1, processed_per_s=0.1)
    memory = stack.initial_memory()
    hosts, seen = 12, []
    for turn in range(20):
        snapshot = replace(steady_snapshot(hosts=hosts, queue_length=0), interval_s=10.0)
        snapshot = replace(snapshot, operators=(reading,), time_s=10.0 * turn)
        plan, memory = stack.decide(snapshot, memory)
        assert plan.bounded_target > hosts / 2 or hosts <= 2, "a release never halves a job"
        hosts = plan.bounded_target
        seen.append(hosts)
    assert min(seen[:6]) >= 12, f"nothing is released in the first minute: {seen}"


def test_a_share_is_refused_where_no_policy_by_name_keeps_one() -> None:
    with pytest.raises(InputError, match="left out with drs: only a policy with the parameter"):
        with_share("drs", {}, "99%", "--share")
    with pytest.raises(InputError, match="left out with a policy object: set the share where"):
        with_share(create("tide"), {}, "99%", "--share")


def test_a_guard_without_settings_keeps_those_of_the_stack() -> None:
    # An empty entry of a YAML file is None.
    options = StackOptions(max_hosts=8, guards={"bounds": None})  # type: ignore[dict-item]
    assert build_stack("static", Situation(slo_s=10), options).describe().endswith("max_hosts=8)")


def test_a_share_joins_the_parameters_that_are_given_and_is_given_once() -> None:
    assert with_share("tide", {"most": 4.0}, "99%", "--share") == {"most": 4.0, "share": 0.99}
    assert with_share("tide", {"most": 4.0}, None, "--share") == {"most": 4.0}
    assert with_share("tide", None, None, "--share") == {}
    with pytest.raises(InputError, match="given once"):
        with_share("tide", {"share": 0.9}, "99%", "--share")
    (share,) = [p for p in type(create("tide")).parameters() if p.name == "share"]
    assert share.low is not None and share.high is not None
    for beyond in (share.low - 0.01, (share.high + 1.0) / 2):
        with pytest.raises(InputError, match="--share"):
            with_share("tide", None, beyond, "--share")
