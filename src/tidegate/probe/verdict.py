"""What the figures of a path mean, in sentences.

A rate is carried if 99 % of its tuples were answered and they arrived at the rate at which they
were sent. A rate that the sender or the server could not keep up with says nothing about the path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tidegate.probe.results import ProbeResult, Stream
from tidegate.units import show_duration

__all__ = ["Judgement", "judge", "notes", "preferred", "verdict"]

CARRIED = 0.97
"""Share of the sent rate that has to arrive; the ends of short moments are imprecise."""
MOST_SKIPPED = 0.01
BUSY = 0.9
"""Share of a core from which on the server is the limit."""
MOST_DROPPED = 0.005
FEW = 10
"""Fewer tuples than this have no rate."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a stream was carried, or who was its limit, with the reason in a sentence."""

    limit: Literal["none", "sender", "server", "path"]
    why: str = ""


def judge(stream: Stream) -> Judgement:
    """Whether the path carried a stream, or what was the limit."""
    figures, rate = stream.figures, f"{stream.rate_per_s:,.10g} tuples/s"
    if figures.skipped_share > MOST_SKIPPED:
        sent_per_s = (figures.offered - figures.skipped) / (figures.duration_s or 1.0)
        cause = (
            f"reached its limit of CPU time for {show_duration(figures.throttled_s)}"
            if figures.throttled_s
            else "was not scheduled in time"
        )
        return Judgement(
            "sender",
            f"at {rate} the sender itself sent only {sent_per_s:,.0f}/s, because it {cause}; this "
            "is not the limit of the path",
        )
    due = figures.sent + figures.refused
    in_time = figures.delay is not None and figures.delay.p99_s is not None
    arrived = due < FEW or (figures.carried_per_s or 0.0) >= CARRIED * stream.rate_per_s
    if in_time and arrived:
        return Judgement("none")
    dropped = (figures.dropped_there or 0) + (figures.dropped_back or 0)
    if figures.server_cpu > BUSY or dropped > MOST_DROPPED * figures.packets:
        return Judgement(
            "server",
            f"at {rate} one of the two processes was too slow (the server used "
            f"{figures.server_cpu:.0%} of a core, {dropped} packets were dropped at full sockets); "
            "this is not the limit of the path",
        )
    if not figures.answered:
        return Judgement("path", f"at {rate} nothing came through")
    if not arrived:
        return Judgement("path", f"at {rate} it carried {figures.carried_per_s or 0.0:,.0f}/s")
    return Judgement("path", f"at {rate} {figures.answered / due:.1%} were answered")


def preferred(result: ProbeResult) -> tuple[Stream, ...]:
    """The streams that the verdict is about, by rate: those over TCP if there are any.

    Sources of stream processors need every tuple, so they use TCP.
    """
    tcp = [s for s in result.streams if s.transport == "tcp"]
    return tuple(sorted(tcp or result.streams, key=lambda s: s.rate_per_s))


def verdict(result: ProbeResult) -> str:
    """One or two sentences: the highest rate that the path carries, its delay, and what is beyond.

    The delay is rounded up, so that the sentence is true.
    """
    streams = preferred(result)
    judged = [(stream, judge(stream)) for stream in streams]
    carried = [stream for stream, judgement in judged if judgement.limit == "none"]
    over = streams[0].transport.upper() if streams else ""
    if not carried:
        what = (
            "This path carried none of the rates"
            if any(judgement.limit == "path" for _, judgement in judged)
            else "Nothing is known about this path"
        )
        return f"{what}: {judged[0][1].why}." if judged else f"{what}."
    best = carried[-1]
    delay = best.figures.delay
    assert delay is not None and delay.p99_s is not None
    sentence = (
        f"This path carries {best.rate_per_s:,.10g} tuples/s over {over} with 99 % under "
        f"{show_duration(_rounded_up(delay.p99_s))}, there and back."
    )
    beyond = [j.why for s, j in judged if s.rate_per_s > best.rate_per_s]
    if not beyond:
        return f"{sentence} Higher rates were not tried."
    return f"{sentence} {beyond[0][0].upper()}{beyond[0][1:]}."


def _rounded_up(seconds: float) -> float:
    """A duration with two significant digits, not shorter than it is.

    >>> _rounded_up(0.01201), _rounded_up(0.012)
    (0.013, 0.012)
    """
    power = math.floor(math.log10(seconds)) - 1 if seconds > 0 else 0
    unit: float = 10.0**power
    return round(math.ceil(seconds / unit - 1e-9) * unit, 12)


def notes(result: ProbeResult) -> list[str]:
    """What a reader has to know to read the figures."""
    said = [
        "Both ends run on one machine and share its clock, so delays one way are exact."
        if result.one_machine
        else "The clocks of the two machines are not compared, so delays are round trips. Jitter "
        "and loss need no common clock."
    ]
    if not result.kernel_times:
        said.append(
            "A kernel reports no times of datagrams, so the network-level round trip includes the "
            "scheduling of the processes."
        )
    by_datagram = [s for s in result.streams if s.transport == "udp"]
    if by_datagram and not any(s.figures.answered for s in by_datagram):
        said.append(
            "No datagram was answered: a firewall may drop UDP. Jitter and the network-level round "
            "trip are then unknown."
        )
    best = preferred(result)[-1:]
    for stream in best:
        delay, network = stream.figures.delay, stream.figures.network
        if delay and network and delay.p50_s and network.p50_s:
            share = min(1.0, network.p50_s / delay.p50_s)
            said.append(
                f"The network makes up {share:.0%} of the application-level round trip at "
                f"{stream.rate_per_s:,.10g} tuples/s over {stream.transport.upper()} (medians); "
                "the rest is spent in the two processes and their sockets."
            )
    for stream in result.streams:
        judgement = judge(stream)
        if judgement.limit in ("sender", "server"):
            said.append(f"{stream.transport.upper()}: {judgement.why}.")
    if result.outage_s:
        failed = [moment.failed for moment in result.moments if moment.failed]
        said.append(
            f"There was no connection for {show_duration(result.outage_s)} ({failed[0]}); these "
            "times are in no other figure."
        )
    if result.measured_s < 0.95 * result.planned_s:
        said.append(
            f"The run was stopped after {show_duration(result.measured_s)} of "
            f"{show_duration(result.planned_s)}."
        )
    return said
