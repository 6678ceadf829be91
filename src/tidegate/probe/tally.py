"""From recordings of a stream to its figures, for one moment or for all of them together."""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.probe.distribution import Distribution
from tidegate.probe.results import StreamFigures, Transport
from tidegate.probe.sender import COLUMNS, Recording

__all__ = ["Tally", "tally"]

WORST = 3
"""The longest delays of a moment that are kept with their time."""


@dataclass
class Tally:
    """Sums and distributions of one stream; two can be merged, and the figures follow from them.

    Most fields are those of `StreamFigures`. span_s and arrived: time from the first to the last
    arrival at the server, and the tuples in it. worst: (delay, time since the stream began) of the
    longest delays, in seconds.
    """

    transport: Transport
    duration_s: float = 0.0
    offered: int = 0
    skipped: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    answered: int = 0
    packets: int = 0
    packets_received: int = 0
    packets_answered: int = 0
    dropped_there: int = 0
    dropped_back: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    resent: int = 0
    segments: int = 0
    sender_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    throttled_s: float = 0.0
    arrived: int = 0
    span_s: float = 0.0
    delay: Distribution = field(default_factory=Distribution)
    network: Distribution = field(default_factory=Distribution)
    one_way: Distribution = field(default_factory=Distribution)
    jitter: Distribution = field(default_factory=Distribution)
    held: Distribution = field(default_factory=Distribution)
    lateness: Distribution = field(default_factory=Distribution)
    worst: list[tuple[float, float]] = field(default_factory=list)

    def merge(self, other: Tally) -> None:
        """Add what another tally of the same stream holds."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, Distribution):
                mine.merge(value)
            elif isinstance(value, int | float):
                setattr(self, name, mine + value)

    def figures(self) -> StreamFigures:
        """The figures of all that was added."""
        udp = self.transport == "udp"
        lost_there = self.packets - self.packets_received
        lost_back = self.packets_received - self.packets_answered
        return StreamFigures(
            duration_s=self.duration_s,
            offered=self.offered,
            skipped=self.skipped,
            refused=self.refused,
            sent=self.sent,
            received=self.received,
            answered=self.answered,
            carried_per_s=self.arrived / self.span_s if self.span_s else None,
            delay=self.delay.durations(self.sent + self.refused - self.answered),
            network=self.network.durations(),
            one_way=self.one_way.durations(),
            jitter=self.jitter.durations(),
            held=self.held.durations(),
            lateness=self.lateness.durations(),
            packets=self.packets,
            lost_there=max(0, lost_there - self.dropped_there) if udp else None,
            lost_back=max(0, lost_back - self.dropped_back) if udp else None,
            dropped_there=self.dropped_there if udp else None,
            dropped_back=self.dropped_back if udp else None,
            out_of_order=self.out_of_order if udp else None,
            duplicates=self.duplicates if udp else None,
            resent_share=self.resent / self.segments if self.segments else None,
            sender_cpu=self.sender_cpu_s / self.duration_s if self.duration_s else 0.0,
            server_cpu=self.server_cpu_s / self.duration_s if self.duration_s else 0.0,
            throttled_s=self.throttled_s,
        )


def tally(recording: Recording, transport: Transport, one_machine: bool) -> Tally:
    """The tally of one recording. one_machine: whether both ends have the same clock."""
    assert recording.counts is not None
    counts = recording.counts
    resent, segments = recording.resent or (0, 0)
    found = Tally(
        transport,
        duration_s=recording.duration_s,
        offered=recording.offered,
        skipped=recording.skipped,
        refused=recording.refused,
        sent=recording.sent,
        received=counts.tuples,
        packets=recording.packets,
        packets_received=counts.packets,
        dropped_there=counts.dropped,
        dropped_back=recording.dropped,
        out_of_order=counts.out_of_order,
        duplicates=counts.duplicates,
        resent=resent,
        segments=segments,
        sender_cpu_s=recording.cpu_s,
        server_cpu_s=counts.cpu_s,
        throttled_s=recording.throttled_s,
    )
    found.lateness.add(_numbers(recording.lateness_ns) / 1e9)
    pings = _columns(recording.pings)
    if len(pings["number"]):
        there_and_back = pings["back"] - pings["sent"] - (pings["replied"] - pings["arrived"])
        found.network.add(there_and_back / 1e9)
    seen = _columns(recording.answers)
    if not len(seen["number"]):
        return found
    order = np.argsort(seen["number"], kind="stable")
    seen = {name: column[order] for name, column in seen.items()}
    tuples = seen["tuples"]
    found.packets_answered = len(tuples)
    found.answered = int(tuples.sum())
    delays_s = (seen["read"] - seen["sent"]) / 1e9
    found.delay.add(delays_s, tuples)
    found.held.add((seen["replied"] - seen["arrived"]) / 1e9)
    transit_ns = seen["arrived"] - seen["sent"]  # with an unknown offset between two clocks
    if one_machine:
        found.one_way.add(transit_ns / 1e9, tuples)
    neighbours = np.diff(seen["number"]) == 1
    found.jitter.add(np.abs(np.diff(transit_ns))[neighbours] / 1e9)
    found.span_s = int(np.ptp(seen["arrived"])) / 1e9
    # Tuples of the first packet came before the span begins.
    found.arrived = found.answered - int(tuples[np.argmin(seen["arrived"])])
    longest = heapq.nlargest(WORST, range(len(delays_s)), key=delays_s.__getitem__)
    found.worst = [
        (float(delays_s[n]), (int(seen["sent"][n]) - recording.began_ns) / 1e9) for n in longest
    ]
    return found


def _numbers(flat: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(flat, np.int64) if len(flat) else np.empty(0, np.int64)


def _columns(flat: array[int]) -> dict[str, NDArray[np.int64]]:
    rows = _numbers(flat).reshape(-1, len(COLUMNS))
    return {name: rows[:, n] for n, name in enumerate(COLUMNS)}
