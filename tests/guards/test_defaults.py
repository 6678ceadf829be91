"""The defaults and limits of the guards' settings, as documented and as journals rely on them.

A journal leaves out what has its default value, so another default would change what it says.
"""

from __future__ import annotations

from typing import Any

from tidegate.guards import GUARDS

LIMITS: dict[str, Any] = {
    "missing-metrics": {},
    "initial-hosts": {
        "hosts": (1, 1, 10000),
    },
    "when-blind": {
        "then": ("hold", None, None),
        "after_s": (60.0, 0, None),
    },
    "first-look": {
        "wait_s": (60.0, 0, None),
    },
    "stabilisation": {
        "up_s": (0.0, 0, None),
        "down_s": (300.0, 0, None),
    },
    "cool-down": {
        "up_s": (30.0, 0, None),
        "down_s": (300.0, 0, None),
    },
    "step-limit": {
        "up": (None, 1, None),
        "down": (None, 1, None),
    },
    "release-limit": {
        "share": (0.5, 0, 1),
    },
    "change-cost": {
        "late_s": (5.0, 0, None),
        "unneeded_s": (600.0, 0, None),
        "watch_s": (60.0, 0, None),
    },
    "budget": {
        "soft_usd_per_h": (None, 0, None),
        "hard_usd_per_h": (None, 0, None),
        "slo_s": (None, 0, None),
    },
    "useful-hosts": {},
    "effect": {
        "min_gain": (0.1, 0, None),
        "settle_s": (30.0, 0, None),
        "hold_s": (300.0, 0, None),
    },
    "scheduled-minimum": {
        "periods": ("", None, None),
        "time_zone": ("UTC", None, None),
    },
    "bounds": {
        "min_hosts": (1, 1, None),
        "max_hosts": (None, 1, None),
    },
    "every-query-runs": {},
    "excluded-periods": {
        "periods": ("", None, None),
    },
    "pause": {
        "direction": ("both", None, None),
    },
    "dry-run": {},
}
"""Default, lowest and highest value of each setting, by guard."""


def test_the_defaults_and_limits_of_settings_do_not_change() -> None:
    found: dict[str, Any] = {
        guard.name: {p.name: (p.default, p.low, p.high) for p in guard.parameters()}
        for guard in GUARDS
    }
    assert found == LIMITS
