"""Guards limit what a policy may do, one concern each, and say so when they bind."""

from __future__ import annotations

from tidegate.guards.base import (
    Bounds,
    Budget,
    CoolDown,
    DryRun,
    ExcludedPeriods,
    Guard,
    GuardMemory,
    MissingMetrics,
    Pause,
    Stabilisation,
    StepLimit,
)

__all__ = [
    "Bounds",
    "Budget",
    "CoolDown",
    "DryRun",
    "ExcludedPeriods",
    "Guard",
    "GuardMemory",
    "MissingMetrics",
    "Pause",
    "Stabilisation",
    "StepLimit",
]
