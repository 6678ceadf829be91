"""Checks and fakes for authors of policies, backends, topics and hosts.

- `check_policy`, with snapshots by hand (`steady_snapshot` and others) and two small worlds,
  `ImaginaryWorld` and `RecordedWorld`;
- `check_backend` for the worlds that a controller observes and changes;
- `check_publishing`, `check_writing` and `check_reading` for topics, on a Spark session;
- `check_host` for the hosts of a fleet;
- `FakeGateway` and `FakeCluster` in place of a Spark application, and `FakeFleet`, `FakeProvider`,
  `FakeHost` and `FakeClock` in place of a fleet.

A check raises `tidegate.errors.CheckFailed`, an AssertionError. Names load when they are first
used, so that `check_policy` needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.testing.backends import check_backend
    from tidegate.testing.fleet import FakeClock, FakeFleet, FakeHost, FakeProvider, check_host
    from tidegate.testing.policies import (
        HOST,
        check_policy,
        engine_snapshot,
        fleet_snapshot,
        station_snapshot,
        steady_snapshot,
    )
    from tidegate.testing.spark import FakeCluster, FakeGateway
    from tidegate.testing.topics import check_publishing, check_reading, check_writing
    from tidegate.testing.worlds import ImaginaryWorld, RecordedWorld

__all__ = [
    "HOST",
    "FakeClock",
    "FakeCluster",
    "FakeFleet",
    "FakeGateway",
    "FakeHost",
    "FakeProvider",
    "ImaginaryWorld",
    "RecordedWorld",
    "check_backend",
    "check_host",
    "check_policy",
    "check_publishing",
    "check_reading",
    "check_writing",
    "engine_snapshot",
    "fleet_snapshot",
    "station_snapshot",
    "steady_snapshot",
]

_HOME = {
    "FakeClock": "fleet",
    "FakeCluster": "spark",
    "FakeFleet": "fleet",
    "FakeGateway": "spark",
    "FakeHost": "fleet",
    "FakeProvider": "fleet",
    "ImaginaryWorld": "worlds",
    "RecordedWorld": "worlds",
    "check_backend": "backends",
    "check_host": "fleet",
    "check_publishing": "topics",
    "check_reading": "topics",
    "check_writing": "topics",
}
"""The modules of the names; all others are in `policies`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'policies')}"), name)
