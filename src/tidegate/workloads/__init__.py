"""Where items come from: arrival patterns, recorded traces and generators.

Every workload answers ``arrivals(start_s, end_s)`` with sorted times by source, and always with
the same ones for its seed, however the time is cut: policies that are compared on a workload are
compared on identical items.

>>> from tidegate.workloads import ConstantRate
>>> workload = ConstantRate(320, duration_s=60, seed=7)
>>> whole = workload.arrivals(0, 60)["input"]
>>> pieces = [workload.arrivals(t, t + 1)["input"] for t in range(60)]
>>> len(whole), sum(len(piece) for piece in pieces)
(19238, 19238)
"""

from tidegate.workloads.bursty import Bursty
from tidegate.workloads.combine import Scaled, Sum
from tidegate.workloads.describe import (
    Description,
    describe,
    peak_per_s,
    series,
    sparkline,
)
from tidegate.workloads.events import EventLog
from tidegate.workloads.exchange import ExchangeDay
from tidegate.workloads.papers import VideoFrames, cervino_ramp, cervino_steps, drs_tweets
from tidegate.workloads.protocol import Predictable, Workload
from tidegate.workloads.rates import ConstantRate, RateTrace
from tidegate.workloads.read import read_trace
from tidegate.workloads.visp import VispPattern

__all__ = [
    "Bursty",
    "ConstantRate",
    "Description",
    "EventLog",
    "ExchangeDay",
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
