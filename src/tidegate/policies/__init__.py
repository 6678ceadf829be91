"""The scaling policies, one per file, found by name.

`available()` lists all installed policies, those of other packages included. A policy is any class
that an installed distribution names in the entry-point group ``tidegate.policies``.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tidegate.errors import UnknownPolicy
from tidegate.policies.base import NoMemory, Parameter, Policy, Situation, setting

__all__ = [
    "DEFAULT_POLICY",
    "NoMemory",
    "Parameter",
    "Policy",
    "Situation",
    "available",
    "create",
    "policy_class",
    "setting",
]

GROUP = "tidegate.policies"
DEFAULT_POLICY = "tide"
"""The policy of autoscalers that are given none."""


@cache
def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def available() -> tuple[str, ...]:
    """The names of all installed policies, sorted.

    >>> "drs" in available()
    True
    """
    return tuple(sorted(_found()))


def policy_class(name: str) -> type[Policy]:
    """The policy of that name.

    >>> policy_class("drs").name
    'drs'
    >>> policy_class("sarca")
    Traceback (most recent call last):
    tidegate.errors.UnknownPolicy: policy is 'sarca'; it must be the name of an installed policy:
    did you mean sarsa? `tidegate policies` lists them
    """
    if name not in _found():
        close = get_close_matches(name, available(), n=1)
        remedy = (f"did you mean {close[0]}? " if close else "") + "`tidegate policies` lists them"
        raise UnknownPolicy("policy", name, "the name of an installed policy", remedy)
    loaded: type[Policy] = _found()[name].load()
    return loaded


def create(name: str, **settings: Any) -> Policy:
    """A policy by name, with its parameters as values or as text.

    >>> create("drs", t_max_s="500ms").t_max_s
    0.5
    """
    return policy_class(name).with_settings(settings)
