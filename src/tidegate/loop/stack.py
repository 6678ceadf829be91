"""The policy stack: a policy inside its observation wrappers and guards.

There is one builder, `build_stack`, for live applications, fleets, dry runs, replay, backtests,
sweeps and the Gymnasium environment. The stack that is tried is the stack that runs.

Settings in a file look like this::

    policy: drs
    parameters: {t_max_s: 500ms}
    guards:
      bounds: {min_hosts: 1, max_hosts: 8}
      cool-down: {up_s: 30s, down_s: 5m}

The order of the wrappers is fixed, whatever their order in the file. Observation wrappers are next
to the policy. Guards that delay a decision follow, and guards that always hold are outside.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidegate.config import read_yaml
from tidegate.errors import InputError, SettingError
from tidegate.guards import GUARDS
from tidegate.policies import Situation, create, policy_class
from tidegate.policies.base import Policy
from tidegate.policies.trend import Trend
from tidegate.policies.wrapper import PolicyWrapper
from tidegate.units import finite, share_of

__all__ = [
    "ALL",
    "DEFAULTS",
    "WRAPPERS",
    "StackOptions",
    "build_stack",
    "check_guards",
    "load_policy",
    "policy_from",
    "with_share",
    "wrapped",
]

_ORDER: tuple[type[PolicyWrapper], ...] = (Trend, *GUARDS)
WRAPPERS = {kind.name: kind for kind in _ORDER}
"""Observation wrappers and guards by name, from the innermost to the outermost."""

DEFAULTS: dict[str, tuple[str, ...]] = {
    "application": (
        "trend",
        "missing-metrics",
        "first-look",
        "stabilisation",
        "release-limit",
        "change-cost",
        "useful-hosts",
        "effect",
        "bounds",
    ),
    "fleet": ("missing-metrics", "bounds", "every-query-runs"),
}
"""The wrappers that a stack has unless they are switched off, by what it controls."""

Settings = Mapping[str, Any]

ALL = "all"
"""In place of a name: all default wrappers."""

SHARE = "share"
"""The parameter of policies that keep a share of the items within the latency target."""


@dataclass(frozen=True)
class StackOptions:
    """What a user may choose about a stack.

    Attributes:
        parameters: Parameters of the policy, by name.
        guards: Further guards, or other settings of default ones, by name.
        without: Names of default wrappers to switch off; ``all`` for all of them.
        min_hosts: Smallest number of hosts (executors).
        max_hosts: Largest number of hosts (executors); None for no limit.
        stabilise_s: A host is released only after it was not needed for this time, in seconds.
        when_blind: What to do while measurements are missing: ``hold`` (release nothing),
            ``maximum``, or a number of hosts.
        blind_after_s: Time for which they must be missing, in seconds.
        initial_hosts: Hosts to ask for at the start, until the first measurements; None for none.
        scheduled_minimum: Minimum by the time of day, such as ``weekdays 08:00-18:00: 4``.
        time_zone: Time zone of the schedule.
    """

    parameters: Settings = field(default_factory=dict)
    guards: Mapping[str, Settings] = field(default_factory=dict)
    without: Collection[str] = ()
    min_hosts: int = 1
    max_hosts: int | None = None
    stabilise_s: float = 60.0
    when_blind: str | int = "hold"
    blind_after_s: float = 60.0
    initial_hosts: int | None = None
    scheduled_minimum: str = ""
    time_zone: str = "UTC"

    def chosen(self) -> dict[str, Settings]:
        """The guards that are there only because a setting asks for them, with their settings.

        >>> StackOptions(initial_hosts=4, scheduled_minimum="weekdays 08:00-18:00: 4").chosen()
        {'initial-hosts': {'hosts': 4}, 'scheduled-minimum': {'periods': 'weekdays 08:00-18:00: 4',
        'time_zone': 'UTC'}}
        """
        found: dict[str, Settings] = {}
        if self.when_blind == "maximum" and self.max_hosts is None:
            remedy = "set the largest number of executors too"
            raise SettingError("when_blind", self.when_blind, "hold or a number", remedy)
        if self.when_blind != "hold":
            # What "hold" does, the default guard missing-metrics does at all times.
            found["when-blind"] = {"then": str(self.when_blind), "after_s": self.blind_after_s}
        if self.initial_hosts is not None:
            found["initial-hosts"] = {"hosts": self.initial_hosts}
        if self.scheduled_minimum:
            found["scheduled-minimum"] = {
                "periods": self.scheduled_minimum,
                "time_zone": self.time_zone,
            }
        elif self.time_zone != "UTC":
            remedy = "set the scheduled minimum too"
            raise SettingError("time_zone", self.time_zone, "left out without a schedule", remedy)
        return found


def build_stack(
    policy: str | Policy,
    situation: Situation,
    options: StackOptions | None = None,
    *,
    kind: Literal["application", "fleet"] = "application",
) -> Policy:
    """A policy with the wrappers that it has wherever it runs.

    policy: its name, or a policy that is used as it is, without suggested parameters. situation:
    what is known about the application, from which the policy suggests parameters that the user did
    not set. kind: what the stack controls.

    >>> build_stack("drs", Situation(slo_s=10)).describe()
    'drs → trend() → missing-metrics() → stabilisation(down_s=60.0) → release-limit() →
    change-cost() → useful-hosts() → effect() → bounds()'
    >>> options = StackOptions(without=["trend", "effect"], max_hosts=8)
    >>> build_stack("btu", Situation(slo_s=10), options).describe()
    'btu → missing-metrics() → first-look() → release-limit() → change-cost() → useful-hosts() →
    bounds(max_hosts=8)'
    """
    options = options or StackOptions()
    if isinstance(policy, str):
        situation = replace(situation, stabilise_s=options.stabilise_s)
        policy = create(policy, **suggested(policy, situation) | dict(options.parameters))
    settings: dict[str, Settings] = {name: {} for name in DEFAULTS[kind]}
    if policy.forecasts:
        settings.pop("trend", None)
    if "stabilisation" in settings:
        settings["stabilisation"] = {"down_s": options.stabilise_s}
        settings["first-look"] = {"wait_s": options.stabilise_s}
        # Both begin with what runs; a policy has the one that suits it.
        del settings["stabilisation" if policy.picks_its_moment else "first-look"]
    settings["bounds"] = {"min_hosts": options.min_hosts, "max_hosts": options.max_hosts}
    for name in check_guards(options.without, "without", kind):
        if name == ALL:
            settings.clear()
        settings.pop(name, None)
    settings |= options.chosen()
    for name, given in options.guards.items():
        usable = isinstance(given or {}, Mapping)  # `wrapped` refuses it otherwise
        settings[name] = {**settings.get(name, {}), **(given or {})} if usable else given
    return wrapped(policy, settings)


def check_guards(
    names: Iterable[str], option: str, kind: Literal["application", "fleet"] = "application"
) -> tuple[str, ...]:
    """The names, or a SettingError about the option for one that is not a default guard."""
    found, defaults = tuple(names), DEFAULTS[kind]
    for name in found:
        if name not in (*defaults, ALL):
            remedy = f"the default guards are {', '.join(defaults)}"
            raise SettingError(option, name, "a default guard, or all", remedy)
    return found


def suggested(name: str, situation: Situation) -> dict[str, Any]:
    """The parameters that a policy suggests for a situation; all others keep their defaults.

    >>> suggested("drs", Situation(slo_s=10))
    {'t_max_s': 7.0}
    """
    return policy_class(name).suggested(situation)


def with_share(
    policy: str | Policy,
    parameters: Settings | None,
    share: str | float | None,
    key: str = "share",
) -> dict[str, Any]:
    """The parameters of a policy with the share of items that it has to keep within the latency.

    policy: its name; a policy object has its own share. share: such as ``99%`` or 0.99, None for
    the default of the policy. key: name of the setting, for error messages.

    >>> with_share("tide", {"late_price": 20}, "99.9%")
    {'late_price': 20, 'share': 0.999}
    >>> with_share("drs", {}, "99%", "--share")
    Traceback (most recent call last):
    tidegate.errors.InputError: --share is '99%'; it must be left out with drs: only a policy with
    the parameter share keeps one, such as tide
    """
    given = dict(parameters or {})
    if share is None:
        return given
    if not isinstance(policy, str):
        remedy = "set the share where the policy is made"
        raise InputError(key, share, "left out with a policy object", remedy)
    known = {parameter.name: parameter for parameter in policy_class(policy).parameters()}
    if SHARE not in known:
        remedy = f"only a policy with the parameter {SHARE} keeps one, such as tide"
        raise InputError(key, share, f"left out with {policy}", remedy)
    if SHARE in given:
        remedy = f"the parameters have it too: {given[SHARE]!r}"
        raise InputError(key, share, "given once", remedy)
    read, allowed = share_of(share, key), known[SHARE]
    low = 0.0 if allowed.low is None else allowed.low
    high = 1.0 if allowed.high is None else allowed.high
    finite(read, key, low=low, high=high, remedy=f"{policy} promises {allowed.doc}")
    return given | {SHARE: read}


def wrapped(policy: Policy, wrappers: Mapping[str, Settings]) -> Policy:
    """The policy inside the given wrappers and no others.

    wrappers: settings of each, by name.

    >>> wrapped(create("drs"), {"bounds": {"max_hosts": 8}, "missing-metrics": {}}).describe()
    'drs → missing-metrics() → bounds(max_hosts=8)'
    """
    for name, given in wrappers.items():
        if name not in WRAPPERS:
            remedy = f"known guards are {', '.join(WRAPPERS)}"
            raise SettingError("guards", name, "the name of a guard", remedy)
        if not isinstance(given or {}, Mapping):
            known = ", ".join(parameter.name for parameter in WRAPPERS[name].parameters())
            remedy = f"it takes {known or 'no settings'}"
            raise SettingError(f"guards: {name}", given, "a mapping of names to values", remedy)
    for name, wrapper in WRAPPERS.items():
        if name in wrappers:
            policy = wrapper.around(policy, dict(wrappers[name] or {}))
    return policy


def policy_from(settings: Settings) -> Policy:
    """A policy with exactly the guards that the settings of a file name, and no default ones.

    >>> policy_from({"policy": "static", "parameters": {"hosts": 3}}).describe()
    'static'
    """
    for key in settings:
        if key not in ("policy", "parameters", "guards"):
            remedy = "known keys are policy, parameters and guards"
            raise SettingError("settings", key, "a known key", remedy)
    if "policy" not in settings:
        raise SettingError("policy", None, "given", "`tidegate policies` lists the names")
    for key in ("parameters", "guards"):
        if not isinstance(settings.get(key) or {}, Mapping):
            raise SettingError(key, settings[key], "a mapping of names to values")
    for name in settings.get("parameters") or {}:
        if not isinstance(name, str):
            raise SettingError("parameters", name, "the name of a parameter")
    policy = create(str(settings["policy"]), **(settings.get("parameters") or {}))
    return wrapped(policy, settings.get("guards") or {})


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """A policy with exactly the guards that a YAML file names."""
    return policy_from(read_yaml(path))
