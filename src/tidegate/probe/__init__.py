"""Measure a network path as a stream of tuples sees it: delay, jitter, loss and throughput.

Cerviño et al. ask first whether a network can feed a stream processor at all (their Figs. 2 to 4).
A server runs where the stream will be processed, and a sender sends it streams of several rates::

    with ProbeServer(Listening("127.0.0.1", 0)) as server:
        result = measure(server.address, ProbePlan(rates_per_s=(100.0,), duration_s=10.0))
    print(verdict(result))
"""

from tidegate.listening import Listening
from tidegate.probe.measure import ProbePlan, measure
from tidegate.probe.results import ProbeResult
from tidegate.probe.server import ProbeServer
from tidegate.probe.verdict import verdict

__all__ = ["Listening", "ProbePlan", "ProbeResult", "ProbeServer", "measure", "verdict"]
