"""The bound in hindsight: what no policy can undercut."""

from __future__ import annotations

from tidegate.lab.bound.hindsight import (
    Bound,
    Demand,
    Stream,
    cheapest_for_share,
    hindsight_bound,
)

__all__ = [
    "Bound",
    "Demand",
    "Stream",
    "cheapest_for_share",
    "hindsight_bound",
]
