"""Send one stream at a fixed rate and record every answer.

One thread does everything, so its own limits are known: what it was too late for, and how much CPU
time it used. What it was too late for is not sent afterwards. A burst would queue in the network,
and the delay would be the sender's fault.
"""

from __future__ import annotations

import random
import select
import threading
import time
from array import array
from dataclasses import dataclass, field

from tidegate.probe.session import Channel, Counts, Session
from tidegate.probe.wire import LARGEST_DATAGRAM, PING, SMALLEST_PACKET, STREAM, Packet, pack_packet

__all__ = ["COLUMNS", "Recording", "send_stream"]

PACKET_S = 0.001
"""Tuples that are due within this time share a packet."""
TOO_LATE_S = 0.020
"""Tuples that are late by more than this are skipped."""
PING_S = 0.05
CPU_WINDOW_S = 0.1
LONGEST_WAIT_S = 0.1
LARGEST_RECORD = 60_000
"""Bytes of the largest packet over TCP."""
SHORTEST_LINGER_S, LONGEST_LINGER_S, LINGER_WITHOUT_ANSWER_S = 0.3, 5.0, 2.0

COLUMNS = ("number", "tuples", "sent", "arrived", "taken", "replied", "back", "read")
"""Numbers that are recorded of each answer; times in nanoseconds, as in `wire`."""


@dataclass
class Recording:
    """Everything that was seen of one stream; `answers` and `pings` hold `COLUMNS` one by one."""

    began_ns: int = 0
    duration_s: float = 0.0
    offered: int = 0
    skipped: int = 0
    refused: int = 0
    sent: int = 0
    packets: int = 0
    pings_sent: int = 0
    answers: array[int] = field(default_factory=lambda: array("q"))
    pings: array[int] = field(default_factory=lambda: array("q"))
    lateness_ns: array[int] = field(default_factory=lambda: array("q"))
    cpu_s: float = 0.0
    throttled_s: float = 0.0
    dropped: int = 0
    resent: tuple[int, int] | None = None
    counts: Counts | None = None


def send_stream(
    session: Session, for_s: float, tuple_bytes: int, cpu_share: float, stop: threading.Event
) -> Recording:
    """Send the stream of a session for a time, wait for the last answers, and end it.

    Args:
        session: An open session.
        for_s: Time in which tuples are sent, in seconds.
        tuple_bytes: Size of a tuple.
        cpu_share: Share of one core that this thread may use.
        stop: Ends the stream early.
    """
    return _Sender(session, tuple_bytes, cpu_share).run(for_s, stop)


class _Sender:
    def __init__(self, session: Session, tuple_bytes: int, cpu_share: float) -> None:
        self._session, self._channel, self._pings = session, session.channel, session.pings
        self._files = (session.channel.fileno(), session.pings.fileno(), session.fileno())
        self._bytes, self._cpu_share = tuple_bytes, cpu_share
        largest = LARGEST_DATAGRAM if session.transport == "udp" else LARGEST_RECORD
        self._per_packet = max(1, largest // tuple_bytes)
        self._gap_ns = 1e9 / session.rate_per_s
        self._interval_ns = max(self._gap_ns, PACKET_S * 1e9)
        self._late_ns = int(TOO_LATE_S * 1e9 + self._interval_ns)
        self._random = random.Random(session.key)
        self._seen = Recording()
        self._answered: set[int] = set()
        self._longest_ns = 0

    def run(self, for_s: float, stop: threading.Event) -> Recording:
        seen = self._seen
        cpu_s = time.thread_time()
        begin = seen.began_ns = now = window = next_ping = next_packet = time.monotonic_ns()
        end = begin + int(for_s * 1e9)
        window_cpu_s, paused = cpu_s, False
        due = 0  # the number of the next tuple
        while now < end and not stop.is_set():
            if now - window >= CPU_WINDOW_S * 1e9:
                window, window_cpu_s, paused = now, time.thread_time(), False
            elif time.thread_time() - window_cpu_s > self._cpu_share * CPU_WINDOW_S and not paused:
                paused = True
                seen.throttled_s += CPU_WINDOW_S - (now - window) / 1e9
            if not paused and now >= next_packet:
                due = self._send_due(begin, due, now)
                next_packet = begin + int(due * self._gap_ns + self._interval_ns - self._gap_ns)
            if now >= next_ping:
                self._ping()
                # Not at fixed intervals, so that pings meet all phases of what is periodic.
                next_ping = now + int(PING_S * 1e9 * self._random.uniform(0.5, 1.5))
            resume = window + int(CPU_WINDOW_S * 1e9) if paused else next_packet
            self._wait(min(resume, next_ping, end))
            now = time.monotonic_ns()
        seen.duration_s = (now - begin) / 1e9
        seen.offered = max(due, int((now - begin - self._late_ns) / self._gap_ns))
        seen.skipped += seen.offered - due  # the sender was late, or paused, until the end
        self._linger(now)
        seen.cpu_s = time.thread_time() - cpu_s
        seen.dropped = self._channel.dropped
        seen.resent = self._channel.resent()
        seen.counts = self._session.end()
        return seen

    def _send_due(self, begin: int, due: int, now: int) -> int:
        """Send the tuples that are due, without those that are too late; the next one's number."""
        seen = self._seen
        until = int((now - begin) / self._gap_ns) + 1
        oldest = max(0, int((now - begin - self._late_ns) / self._gap_ns))
        if oldest > due:
            seen.skipped += oldest - due
            due = oldest
        while due < until:
            tuples = min(self._per_packet, until - due)
            late_ns = now - begin - int(due * self._gap_ns)
            length = max(SMALLEST_PACKET, tuples * self._bytes)
            packet = Packet(
                STREAM, tuples, length, self._session.key, seen.packets, time.monotonic_ns()
            )
            if self._channel.send(pack_packet(packet)):
                seen.packets += 1
                seen.sent += tuples
                seen.lateness_ns.append(late_ns)
            else:
                seen.refused += tuples
            due += tuples
        return due

    def _ping(self) -> None:
        seen = self._seen
        packet = Packet(
            PING, 1, SMALLEST_PACKET, self._session.key, seen.pings_sent, time.monotonic_ns()
        )
        if self._pings.send(pack_packet(packet)):
            seen.pings_sent += 1

    def _wait(self, until_ns: int) -> None:
        """Wait for answers until a moment; take those that come, and return after them."""
        wait_s = min(max(0.0, (until_ns - time.monotonic_ns()) / 1e9), LONGEST_WAIT_S)
        stream, pings, control = self._files
        sending = (stream,) if self._channel.waiting else ()
        readable, writable, _ = select.select(self._files, sending, (), wait_s)
        if writable:
            self._channel.flush()
        if stream in readable:
            self._take(self._channel, self._seen.answers)
        if pings in readable:
            self._take(self._pings, self._seen.pings)
        if control in readable:
            raise ConnectionError("the server closed the connection")

    def _take(self, channel: Channel, into: array[int]) -> None:
        for answer, back_ns, read_ns in channel.receive():
            _, tuples, _, number, sent, *server = answer
            if into is self._seen.answers:
                if number in self._answered:
                    continue
                self._answered.add(number)
            self._longest_ns = max(self._longest_ns, read_ns - sent)
            into.extend((number, tuples, sent, *server, back_ns, read_ns))

    def _linger(self, sent_ns: int) -> None:
        """Wait for the last answers: three times as long as the longest took so far."""
        while len(self._answered) < self._seen.packets:
            patience_s = LINGER_WITHOUT_ANSWER_S
            if self._longest_ns:
                patience_s = min(max(3e-9 * self._longest_ns, SHORTEST_LINGER_S), LONGEST_LINGER_S)
            until_ns = sent_ns + int(patience_s * 1e9)
            if time.monotonic_ns() >= until_ns:
                return
            self._wait(until_ns)
