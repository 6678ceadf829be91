"""Guards limit what a policy may do, one concern each, and report when they bind.

A new guard is one file here and one line in `GUARDS`.
"""

from __future__ import annotations

from tidegate.guards.base import Guard
from tidegate.guards.budget import Budget
from tidegate.guards.effect import Effect
from tidegate.guards.every_query import EveryQueryRuns
from tidegate.guards.holds import DryRun, Pause
from tidegate.guards.limits import Bounds, StepLimit
from tidegate.guards.missing import MissingMetrics
from tidegate.guards.pace import CoolDown, Stabilisation
from tidegate.guards.schedule import ExcludedPeriods
from tidegate.guards.useful import UsefulHosts

__all__ = [
    "GUARDS",
    "Bounds",
    "Budget",
    "CoolDown",
    "DryRun",
    "Effect",
    "EveryQueryRuns",
    "ExcludedPeriods",
    "Guard",
    "MissingMetrics",
    "Pause",
    "Stabilisation",
    "StepLimit",
    "UsefulHosts",
]

GUARDS: tuple[type[Guard], ...] = (
    MissingMetrics,
    Stabilisation,
    CoolDown,
    StepLimit,
    Budget,
    UsefulHosts,
    Effect,
    Bounds,
    EveryQueryRuns,
    ExcludedPeriods,
    Pause,
    DryRun,
)
"""All guards, from the innermost to the outermost.

Guards that delay a decision are inside; guards that always hold are outside.
"""
