"""One Hypothesis profile for everybody: the same examples on every machine, and no stopwatch.

And journals that several test packages look at, made once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.fixture(scope="session")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Simulated journals by policy, for tests that look at journals; not to be written to."""
    from tests.dashboard.journals import make_journals

    return make_journals(tmp_path_factory.mktemp("journals"))
