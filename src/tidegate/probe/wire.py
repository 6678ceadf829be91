"""What goes over the network: packets with their times, and the lines of the control connection.

A packet carries one or more tuples of the stream, and the server answers each packet. Answers are
shorter than any packet, so that a forged source address gains nothing. All times are nanoseconds of
the monotonic clock of the machine that took them, so that a clock that is set does no harm.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.errors import BackendError
from tidegate.lifecycle import Closing

__all__ = [
    "ANSWER", "HEADER", "LARGEST_DATAGRAM", "PING", "PROTOCOL", "SMALLEST_PACKET", "STREAM",
    "Answer", "Arrival", "Datagrams", "Lines", "Packet", "machine", "pack_answer", "pack_packet",
    "proof", "read_answer", "read_packet", "retransmitted",
]  # fmt: skip

PROTOCOL = 1
HEADER = struct.Struct("<4sBxHIQIq")
"""Magic, kind, tuples, length, key, number, sent."""
ANSWER = struct.Struct("<4sBxHQIqqqq")
"""Magic, kind, tuples, key, number, sent, arrived, taken, replied."""
_ASKS, _ANSWERS = b"tgp1", b"tga1"
STREAM, PING = 1, 2

SMALLEST_PACKET = 64
"""Bytes of the smallest packet, more than those of an answer."""
LARGEST_DATAGRAM = 1400
"""Bytes that fit into one frame of Ethernet, with room for the headers of a tunnel."""

# Linux only, and without names in Python's socket module.
_SO_TIMESTAMPNS, _SO_RXQ_OVFL = 35, 40
_IP_PKTINFO, _IPV6_RECVPKTINFO, _IPV6_PKTINFO = 8, 49, 50
_TIMESPEC, _COUNT = struct.Struct("@ll"), struct.Struct("@I")
_INTERFACE = struct.Struct("@i4s4s")
_TCP_RETRANSMITTED, _TCP_SEGMENTS = 100, 136
"""Offsets of tcpi_total_retrans and tcpi_segs_out in Linux's struct tcp_info."""
_PLAUSIBLE_NS = 10_000_000_000
"""A datagram does not wait longer than this in a socket; beyond it, the clock has been set."""
_BUFFER = 4 << 20
_LONGEST_LINE = 4096


class Packet(NamedTuple):
    """A packet of the sender; `length` is that of the whole packet, in bytes."""

    kind: int
    tuples: int
    length: int
    key: int
    number: int
    sent_ns: int


class Answer(NamedTuple):
    """The answer to a packet.

    sent_ns is of the sender's clock, the others of the server's: arrived at the kernel (where it
    says so), taken by the process, replied.
    """

    kind: int
    tuples: int
    key: int
    number: int
    sent_ns: int
    arrived_ns: int
    taken_ns: int
    replied_ns: int


def pack_packet(packet: Packet) -> bytes:
    """A packet as bytes, filled up with zeros to its length."""
    return HEADER.pack(_ASKS, *packet).ljust(packet.length, b"\0")


def read_packet(data: bytes | bytearray | memoryview) -> Packet | None:
    """The packet at the beginning of some bytes; None if there is none."""
    if len(data) < HEADER.size:
        return None
    magic, *fields = HEADER.unpack_from(data)
    found = Packet(*fields)
    return found if magic == _ASKS and found.length >= SMALLEST_PACKET else None


def pack_answer(answer: Answer) -> bytes:
    """An answer as bytes."""
    return ANSWER.pack(_ANSWERS, *answer)


def read_answer(data: bytes | bytearray | memoryview) -> Answer | None:
    """The answer at the beginning of some bytes; None if there is none."""
    if len(data) < ANSWER.size:
        return None
    magic, *fields = ANSWER.unpack_from(data)
    return Answer(*fields) if magic == _ANSWERS else None


class Arrival(NamedTuple):
    """A datagram, and when the kernel and the process received it.

    address: of its sender. sent_to: what an answer has to carry in order to leave from the address
    that the datagram was sent to.
    """

    data: bytes
    address: Any
    arrived_ns: int
    taken_ns: int
    sent_to: tuple[tuple[int, int, bytes], ...]


class Datagrams(Closing):
    """A UDP socket that knows when the kernel received a datagram and how many it dropped.

    The kernel's time excludes the wait until the process is scheduled, which is not the network's.
    Where the kernel reports no times (other than Linux), they are those of the process.

    udp: the socket, which is closed with this object. clock_ns: the monotonic clock.
    """

    def __init__(self, udp: socket.socket, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.socket = udp
        self._clock_ns = clock_ns
        self.dropped = 0
        """Datagrams that the kernel dropped because this socket was full."""
        self.kernel_times = _enable(udp, _SO_TIMESTAMPNS)
        _enable(udp, _SO_RXQ_OVFL)
        # A machine may have several addresses, and its answer has to come from the right one.
        _enable(udp, _IP_PKTINFO, socket.IPPROTO_IP)
        _enable(udp, _IPV6_RECVPKTINFO, socket.IPPROTO_IPV6)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with suppress(OSError):
                udp.setsockopt(socket.SOL_SOCKET, option, _BUFFER)

    def receive(self) -> Arrival:
        """The next datagram; raises as ``recvmsg`` does, such as BlockingIOError."""
        data, notes, _, address = self.socket.recvmsg(2048, 256)
        taken_ns = self._clock_ns()
        real_ns = time.time_ns()
        arrived_ns = taken_ns
        sent_to = []
        for level, kind, value in notes:
            if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
                _, local, _ = _INTERFACE.unpack_from(value)
                sent_to.append((level, kind, _INTERFACE.pack(0, local, bytes(4))))
            elif level == socket.IPPROTO_IPV6 and kind == _IPV6_PKTINFO:
                sent_to.append((level, kind, bytes(value)))
            if level != socket.SOL_SOCKET:
                continue
            if kind == _SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                waited_ns = real_ns - (seconds * 1_000_000_000 + nanoseconds)
                if 0 <= waited_ns < _PLAUSIBLE_NS:
                    arrived_ns -= waited_ns
            elif kind == _SO_RXQ_OVFL and len(value) >= _COUNT.size:
                (self.dropped,) = _COUNT.unpack_from(value)
        return Arrival(data, address, arrived_ns, taken_ns, tuple(sent_to))

    def answer(self, data: bytes, arrival: Arrival) -> None:
        """Answer a datagram, from the address that it was sent to."""
        self.socket.sendmsg([data], arrival.sent_to, 0, arrival.address)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _enable(udp: socket.socket, option: int, level: int = socket.SOL_SOCKET) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        udp.setsockopt(level, option, 1)
    except OSError:
        return False
    return True


def retransmitted(tcp: socket.socket) -> tuple[int, int] | None:
    """Segments that were sent again, and all segments sent; None if the kernel does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        info = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    if len(info) < _TCP_SEGMENTS + 4:
        return None
    again = int.from_bytes(info[_TCP_RETRANSMITTED : _TCP_RETRANSMITTED + 4], sys.byteorder)
    return again, int.from_bytes(info[_TCP_SEGMENTS : _TCP_SEGMENTS + 4], sys.byteorder)


def machine() -> str:
    """A word that is the same for all processes that share one monotonic clock, "" if unknown.

    An address does not show it: a tunnel makes another machine look like this one.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        times = Path("/proc/self/ns/time").readlink()  # a container may have other offsets
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {times}".encode()).hexdigest()[:32]


def proof(token: str | None, role: str, server_nonce: str, sender_nonce: str) -> str:
    """The proof that one side knows the token, which itself is never sent.

    role: ``sender`` or ``server``, so that neither proof can be sent back as the other.
    """
    text = f"tidegate probe {role} {server_nonce} {sender_nonce}".encode()
    return hmac.new((token or "").encode(), text, hashlib.sha256).hexdigest()


class Lines(Closing):
    """A control connection: one JSON object a line, of bounded length."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self.socket = connection
        connection.settimeout(timeout_s)
        self._read = b""

    def send(self, **fields: Any) -> None:
        """Send one object."""
        self.socket.sendall(json.dumps(fields).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next object; BackendError if the other side does not speak this protocol."""
        while b"\n" not in self._read:
            if len(self._read) > _LONGEST_LINE:
                raise BackendError(_STRANGER)
            more = self.socket.recv(_LONGEST_LINE)
            if not more:
                raise ConnectionError("the other side closed the connection")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BackendError(_STRANGER)
        return found

    def rest(self) -> bytes:
        """What has been received after the last line."""
        found, self._read = self._read, b""
        return found

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


_STRANGER = "the other side is no tidegate probe: check the address and the port"
