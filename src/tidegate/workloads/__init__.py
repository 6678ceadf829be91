"""Workloads: arrival patterns, recorded traces and generators.

Every workload has ``arrivals(start_s, end_s)``, which returns sorted times by source. They depend
only on the seed, not on how a caller divides the time, so that all policies get identical items.

>>> from tidegate.workloads import ConstantRate
>>> workload = ConstantRate(320, duration_s=60, seed=7)
>>> whole = workload.arrivals(0, 60)["input"]
>>> pieces = [workload.arrivals(t, t + 1)["input"] for t in range(60)]
>>> len(whole), sum(len(piece) for piece in pieces)
(19238, 19238)
"""

from tidegate.workloads.combine import Only, Scaled, Sum
from tidegate.workloads.describe import (
    Description,
    describe,
    peak_per_s,
    series,
    sparkline,
)
from tidegate.workloads.events import EventLog
from tidegate.workloads.papers import (
    ExchangeDay,
    VideoFrames,
    VispPattern,
    cervino_ramp,
    cervino_steps,
    drs_tweets,
)
from tidegate.workloads.protocol import Predictable, Workload
from tidegate.workloads.rates import Bursty, ConstantRate, RateTrace
from tidegate.workloads.read import read_trace

__all__ = [
    "Bursty",
    "ConstantRate",
    "Description",
    "EventLog",
    "ExchangeDay",
    "Only",
    "Predictable",
    "RateTrace",
    "Scaled",
    "Sum",
    "VideoFrames",
    "VispPattern",
    "Workload",
    "cervino_ramp",
    "cervino_steps",
    "describe",
    "drs_tweets",
    "peak_per_s",
    "read_trace",
    "series",
    "sparkline",
]
