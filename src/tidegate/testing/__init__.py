"""For those who write policies and backends: worlds, snapshots and checks of the contract."""

from __future__ import annotations

from tidegate.testing.policies import (
    HOST,
    check_policy,
    engine_snapshot,
    fleet_snapshot,
    station_snapshot,
    steady_snapshot,
)

__all__ = [
    "HOST",
    "check_policy",
    "engine_snapshot",
    "fleet_snapshot",
    "station_snapshot",
    "steady_snapshot",
]
