"""A web page that makes decisions plain: what happens now, why, and what came of it.

It reads a journal and nothing else, so a live run, a fleet, a simulation in progress and a replay
look the same. `serving` puts it beside a running loop in one line.
"""

from __future__ import annotations

from tidegate.dashboard.serve import serving

__all__ = ["serving"]
