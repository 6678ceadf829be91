"""What a probe found: figures of each stream, moment by moment and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.codec import Value

__all__ = ["Durations", "Moment", "Outlier", "ProbeResult", "Stream", "StreamFigures", "Transport"]

Transport = Literal["udp", "tcp"]


@dataclass(frozen=True, slots=True)
class Durations(Value):
    """A distribution of durations, in seconds.

    Percentiles are at most 1.2 % too long. One is None if it is unknown because more than the rest
    was lost. Mean and worst are those of what was not lost.
    """

    count: int
    mean_s: float
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    worst_s: float


@dataclass(frozen=True, slots=True)
class StreamFigures(Value):
    """What was measured of a stream. A figure that could not be measured is None.

    Args:
        duration_s: Time in which tuples were sent.
        offered: Tuples that the rate asked for.
        skipped: Tuples that the sender itself was too late for, or had no CPU time for. They were
            not sent, and no other figure includes them.
        refused: Tuples that the sender's socket did not accept: the path, or the network
            interface, was slower than the rate.
        sent: Tuples that were sent.
        received: Tuples that arrived at the server.
        answered: Tuples whose answer came back.
        carried_per_s: Tuples per second that arrived, by the clock of the server.
        delay: Application-level round trip: from handing a tuple to the sender's socket until the
            sender's process reads the answer. Tuples that were refused or not answered count as
            longer than any.
        network: Network-level round trip of small datagrams that are sent at the same time, by the
            kernels' time stamps, without the time at the server.
        one_way: From the sender to the server; only if both have the same clock.
        jitter: Change of the transit time from one packet to the next, as in RFC 3550; independent
            of the clocks.
        held: From the arrival of a packet at the server until its answer.
        lateness: Delay of packets in the sender itself, against the time at which they were due.
        packets: Packets that were sent.
        lost_there: Datagrams that were lost on the way to the server; None for TCP.
        lost_back: Answers that were lost; None for TCP.
        dropped_there: Datagrams that reached the server's machine and were dropped there because
            its process was too slow. The network did not lose them.
        dropped_back: The same for answers at the sender.
        out_of_order: Datagrams that arrived after a later one; None for TCP.
        duplicates: Datagrams that arrived more than once; None for TCP.
        resent_share: Share of TCP's segments that were sent again; None for UDP.
        sender_cpu: Share of one core that the sender used.
        server_cpu: Share of one core that the server used.
        throttled_s: Time in which the sender paused because of its limit of CPU time.
    """

    duration_s: float
    offered: int
    skipped: int
    refused: int
    sent: int
    received: int
    answered: int
    carried_per_s: float | None
    delay: Durations | None
    network: Durations | None
    one_way: Durations | None
    jitter: Durations | None
    held: Durations | None
    lateness: Durations | None
    packets: int
    lost_there: int | None
    lost_back: int | None
    dropped_there: int | None
    dropped_back: int | None
    out_of_order: int | None
    duplicates: int | None
    resent_share: float | None
    sender_cpu: float
    server_cpu: float
    throttled_s: float

    @property
    def loss(self) -> float | None:
        """Share of packets that the network lost there or back; None for TCP."""
        if self.lost_there is None or self.lost_back is None or not self.packets:
            return None
        return (self.lost_there + self.lost_back) / self.packets

    @property
    def skipped_share(self) -> float:
        """Share of the offered tuples that the sender itself did not send."""
        return self.skipped / self.offered if self.offered else 0.0


@dataclass(frozen=True, slots=True)
class Moment(Value):
    """A part of the run in which one stream was sent.

    at_s: its start, in seconds since the run began. figures: None if the connection failed;
    `failed` then says why.
    """

    transport: Transport
    rate_per_s: float
    at_s: float
    figures: StreamFigures | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Stream(Value):
    """All moments of one stream together.

    carried_cv: coefficient of variation of the throughput from moment to moment; None for fewer
    than three. outlying: moments whose 99th percentile of delay lies more than three interquartile
    ranges above the third quartile; None for fewer than eight.
    """

    transport: Transport
    rate_per_s: float
    figures: StreamFigures
    moments: int
    carried_cv: float | None
    outlying: int | None


@dataclass(frozen=True, slots=True)
class Outlier(Value):
    """One of the longest delays, with its time in seconds since the run began and its stream."""

    at_s: float
    transport: Transport
    rate_per_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class ProbeResult(Value):
    """What was found about a path.

    Args:
        address: Host and port of the server.
        started: When the run began, in ISO 8601, UTC.
        planned_s: Planned duration.
        measured_s: Actual duration.
        tuple_bytes: Size of a tuple.
        one_machine: Whether both ends share one clock, so that delays one way are exact.
        kernel_times: Whether both kernels stamp datagrams; without, the network-level round trip
            includes the scheduling of the processes.
        streams: Figures by stream.
        moments: Figures over time.
        outliers: The longest delays.
        outage_s: Time in which there was no connection.
    """

    address: str
    started: str
    planned_s: float
    measured_s: float
    tuple_bytes: int
    one_machine: bool
    kernel_times: bool
    streams: tuple[Stream, ...]
    moments: tuple[Moment, ...]
    outliers: tuple[Outlier, ...]
    outage_s: float
