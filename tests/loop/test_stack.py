from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import load_topology
from tidegate.errors import InputError, SettingError, TopologyError, UnknownPolicy
from tidegate.guards import Bounds, MissingMetrics
from tidegate.loop.stack import GUARDS, guarded, load_policy, policy_from
from tidegate.policies import create


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
    one = guarded(create("static"), {"dry-run": {}, "bounds": {}, "cool-down": {}})
    two = guarded(create("static"), {"cool-down": {}, "dry-run": {}, "bounds": {}})
    assert one == two
    assert one.describe() == "static → cool-down() → bounds() → dry-run()"


def test_every_guard_can_be_named_in_a_file() -> None:
    everything = guarded(create("drs"), {name: {} for name in GUARDS})
    assert [name for name in GUARDS if f"{name}(" in everything.describe()] == list(GUARDS)


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
        ({"policy": "local-threshold", "parameters": {"target": 0.9}}, SettingError, "rising"),
        ({"policy": "btu", "parameters": {"quirks": "all"}}, SettingError, "a parameter of it"),
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
        ("operators: [{name: a}]\nedges: [{origin: b, target: a}]", "known are a"),
    ],
)
def test_a_bad_topology_is_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((TopologyError, InputError), match=words):
        load_topology(write(tmp_path, text))
