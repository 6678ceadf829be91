"""Guards limit what a policy may do, one concern each, and report when they bind.

A new guard is one file here and one line in `ORDER`.
"""

from __future__ import annotations

from importlib import import_module

from tidegate.guards.base import Guard
from tidegate.guards.blind import InitialHosts, WhenBlind
from tidegate.guards.budget import Budget
from tidegate.guards.change_cost import ChangeCost
from tidegate.guards.effect import Effect
from tidegate.guards.every_query import EveryQueryRuns
from tidegate.guards.holds import DryRun, Pause
from tidegate.guards.limits import Bounds, ReleaseLimit, StepLimit
from tidegate.guards.missing import MissingMetrics
from tidegate.guards.pace import CoolDown, FirstLook, Stabilisation
from tidegate.guards.schedule import ExcludedPeriods, ScheduledMinimum
from tidegate.guards.useful import UsefulHosts

__all__ = [
    "GUARDS",
    "ORDER",
    "Bounds",
    "Budget",
    "ChangeCost",
    "CoolDown",
    "DryRun",
    "Effect",
    "EveryQueryRuns",
    "ExcludedPeriods",
    "FirstLook",
    "Guard",
    "InitialHosts",
    "MissingMetrics",
    "Pause",
    "ReleaseLimit",
    "ScheduledMinimum",
    "Stabilisation",
    "StepLimit",
    "UsefulHosts",
    "WhenBlind",
]

ORDER = (
    "missing.MissingMetrics",
    "blind.InitialHosts",
    "blind.WhenBlind",
    "pace.FirstLook",
    "pace.Stabilisation",
    "pace.CoolDown",
    "limits.StepLimit",
    "limits.ReleaseLimit",
    "change_cost.ChangeCost",
    "budget.Budget",
    "useful.UsefulHosts",
    "effect.Effect",
    "schedule.ScheduledMinimum",
    "limits.Bounds",
    "every_query.EveryQueryRuns",
    "schedule.ExcludedPeriods",
    "holds.Pause",
    "holds.DryRun",
)
"""All guards as ``module.Class``, from the innermost to the outermost.

Guards that delay a decision are inside; guards that always hold are outside.
"""


def _load(entry: str) -> type[Guard]:
    module, _, name = entry.partition(".")
    guard: type[Guard] = getattr(import_module(f"{__name__}.{module}"), name)
    return guard


GUARDS: tuple[type[Guard], ...] = tuple(map(_load, ORDER))
"""The classes of all guards, in this order."""
