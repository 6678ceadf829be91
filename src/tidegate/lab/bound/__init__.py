"""The hindsight bound: a cost that no policy can undercut."""

from __future__ import annotations

from tidegate.lab.bound.demand import Demand, Stream
from tidegate.lab.bound.hindsight import Bound, hindsight_bound
from tidegate.lab.bound.whole import FineDemand, whole_host_bound

__all__ = ["Bound", "Demand", "FineDemand", "Stream", "hindsight_bound", "whole_host_bound"]
