"""Random input for every command, file format and request: it ends in a result or in a sentence.

``make test`` tries a few hundred cases, always the same ones. ``make fuzz`` tries 5,000 others each
time (``CASES=…`` for another number).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

CASES = int(os.environ.get("TIDEGATE_FUZZ", "0"))
"""Cases in all; 0 for the few hundred of ``make test``."""
USUAL = 300


def cases(share: float) -> settings:
    """Settings for a test that has this share of all cases."""
    count = max(5, round(share * (CASES or USUAL)))
    return settings(
        max_examples=count,
        derandomize=not CASES,
        suppress_health_check=list(HealthCheck),
    )
