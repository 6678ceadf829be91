"""Random input for every command, file format and request: it ends in a result or in a sentence.

It does so within two seconds of processor time and 500 MB of memory. Time that passes would depend
on what else the machine does.

``make test`` tries a few hundred cases, always the same ones. ``make fuzz`` tries 5,000 others each
time (``CASES=…`` for another number).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

CASES = int(os.environ.get("TIDEGATE_FUZZ", "0"))
"""Cases in all; 0 for the few hundred of ``make test``."""
USUAL = 300
MOST_S = 2.0
"""Processor time that an input may take, in seconds."""
MOST_KB = 500_000
"""Memory that an input may need, in kB."""


def processor_s() -> float:
    """Processor time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


@contextmanager
def within_limits() -> Iterator[None]:
    """What runs in the block must not take too much time or memory."""
    began_s = processor_s()
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert processor_s() - began_s < MOST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < MOST_KB


def cases(share: float) -> settings:
    """Settings for a test that has this share of all cases."""
    count = max(5, round(share * (CASES or USUAL)))
    return settings(
        max_examples=count,
        derandomize=not CASES,
        suppress_health_check=list(HealthCheck),
    )
