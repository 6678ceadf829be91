"""What guards remember, and when they have nothing to look back at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.guards.helpers import FixedTarget
from tidegate.guards import CoolDown, FirstLook, Guard, InitialHosts, Stabilisation, WhenBlind
from tidegate.guards.base import fresh_start
from tidegate.guards.blind import InitialHostsMemory, WhenBlindMemory
from tidegate.guards.change_cost import ChangeCost, ChangeCostMemory, Disturbance
from tidegate.guards.effect import Effect, EffectMemory
from tidegate.guards.pace import CoolDownMemory, FirstLookMemory, StabilisationMemory
from tidegate.testing import steady_snapshot


@pytest.mark.parametrize(
    ("last_s", "interval_s", "window_s", "fresh"),
    [
        (None, 10.0, 60.0, True),
        (None, None, 60.0, True),
        (0.0, None, 60.0, False),
        (940.0, 10.0, 60.0, False),
        (939.0, 10.0, 60.0, True),
        (920.0, 40.0, 60.0, False),
        (919.0, 40.0, 60.0, True),
    ],
)
def test_a_gap_is_longer_than_the_window_and_than_two_turns(
    last_s: float | None, interval_s: float | None, window_s: float, fresh: bool
) -> None:
    now = replace(steady_snapshot(time_s=1_000.0), interval_s=interval_s)
    assert fresh_start(last_s, now, window_s) == fresh


MEASURED: dict[str, Any] = {"disturbances": (Disturbance(3.0),), "unneeded_s": (60.0,)}


@pytest.mark.parametrize(
    ("guard", "own", "after"),
    [
        (CoolDown, CoolDownMemory(2, 3, 100.0, 40.0), CoolDownMemory(2, 3, None, 40.0)),
        (CoolDown, CoolDownMemory(2, 3, 40.0, 100.0), CoolDownMemory(2, 3, 40.0, None)),
        (Stabilisation, StabilisationMemory(((40.0, 2), (100.0, 3)), 3), StabilisationMemory()),
        (FirstLook, FirstLookMemory(40.0, 100.0, 3), FirstLookMemory()),
        (Effect, EffectMemory(2, 5.0, 100.0), EffectMemory()),
        (Effect, EffectMemory(2, 5.0, 40.0, 100.0), EffectMemory()),
        (WhenBlind, WhenBlindMemory(100.0), WhenBlindMemory()),
        (InitialHosts, InitialHostsMemory(True, 100.0, 7), InitialHostsMemory(True, 99.0, 7)),
        (ChangeCost, ChangeCostMemory(100.0, 3, **MEASURED), ChangeCostMemory(**MEASURED)),
    ],
)
def test_only_what_is_dated_later_is_forgotten(guard: type[Guard], own: Any, after: Any) -> None:
    """A second look at the same moment is no clock that went back."""
    wrapped = guard(FixedTarget())
    assert wrapped.forget_later(own, 100.0) is own
    assert wrapped.forget_later(own, 99.0) == after
