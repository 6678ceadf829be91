"""One Hypothesis profile for everybody: the same examples on every machine, and no stopwatch."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tidegate",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tidegate")
