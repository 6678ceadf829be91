"""The policy stack: a policy inside its guards, from the settings of a file or a command.

::

    policy: drs
    parameters: {t_max_s: 500ms}
    guards:
      bounds: {min_hosts: 1, max_hosts: 8}
      cool-down: {up_s: 30s, down_s: 5m}

Guards are put around the policy in one fixed order, whatever their order in the file: what keeps
a wish from being followed too fast is inside, what must hold in any case is outside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tidegate.config import read_yaml
from tidegate.errors import SettingError
from tidegate.guards import (
    Bounds,
    Budget,
    CoolDown,
    DryRun,
    ExcludedPeriods,
    Guard,
    MissingMetrics,
    Pause,
    Stabilisation,
    StepLimit,
)
from tidegate.guards.effect import Effect, UsefulHosts
from tidegate.guards.trend import Trend
from tidegate.policies import create
from tidegate.policies.base import Policy

__all__ = ["GUARDS", "guarded", "load_policy", "policy_from"]

GUARDS: dict[str, type[Guard]] = {
    guard.name: guard
    for guard in (
        Trend,
        MissingMetrics,
        Stabilisation,
        CoolDown,
        StepLimit,
        Budget,
        UsefulHosts,
        Effect,
        Bounds,
        ExcludedPeriods,
        Pause,
        DryRun,
    )
}
"""All guards by name, from the innermost to the outermost."""


def guarded(policy: Policy, guards: Mapping[str, Mapping[str, Any]]) -> Policy:
    """The policy inside the guards, each given by its name with its settings.

    >>> guarded(create("drs"), {"bounds": {"max_hosts": 8}, "missing-metrics": {}}).describe()
    'drs → missing-metrics() → bounds(max_hosts=8)'
    """
    for name in guards:
        if name not in GUARDS:
            known = ", ".join(GUARDS)
            raise SettingError("guards", name, "the name of a guard", f"known are {known}")
    for name, guard in GUARDS.items():
        if name in guards:
            policy = guard.around(policy, dict(guards[name] or {}))
    return policy


def policy_from(settings: Mapping[str, Any]) -> Policy:
    """A policy with its guards from the settings of a file.

    >>> policy_from({"policy": "static", "parameters": {"hosts": 3}}).describe()
    'static'
    """
    for key in settings:
        if key not in ("policy", "parameters", "guards"):
            remedy = "known are policy, parameters and guards"
            raise SettingError("settings", key, "a known key", remedy)
    if "policy" not in settings:
        raise SettingError(
            "policy", None, "given", "name one of those that `tidegate policies` lists"
        )
    for key in ("parameters", "guards"):
        if not isinstance(settings.get(key) or {}, Mapping):
            raise SettingError(key, settings[key], "a mapping of names to values")
    policy = create(str(settings["policy"]), **(settings.get("parameters") or {}))
    return guarded(policy, settings.get("guards") or {})


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """A policy with its guards from a YAML file."""
    return policy_from(read_yaml(path))
