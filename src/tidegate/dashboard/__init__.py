"""A web dashboard that shows each decision of a loop, its reasons and its effect.

It reads journals only, so a live run, a fleet, a simulation in progress and a recording look the
same. `serving` runs it next to a loop in the same process.
"""

from __future__ import annotations

from tidegate.dashboard.serve import serving

__all__ = ["serving"]
