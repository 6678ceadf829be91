"""The sender's side of one announced stream: its connections and what the server counted."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tidegate.errors import BackendError
from tidegate.lifecycle import Closing
from tidegate.listening import same_token
from tidegate.probe.results import Transport
from tidegate.probe.wire import (
    ANSWER,
    PROTOCOL,
    Answer,
    Datagrams,
    Lines,
    machine,
    proof,
    read_answer,
    retransmitted,
)

__all__ = ["Channel", "Counts", "DatagramChannel", "Returned", "Session", "StreamChannel"]

CONNECT_S = 10.0
_DAMAGED = "the server's reply is incomplete: start the same version of tidegate there"


class Returned(NamedTuple):
    """An answer, and when the sender's kernel (where it says so) and its process received it."""

    answer: Answer
    back_ns: int
    read_ns: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What the server counted of a stream; `dropped` by its kernel because its socket was full."""

    tuples: int
    packets: int
    duplicates: int
    out_of_order: int
    dropped: int
    cpu_s: float


class Channel(Protocol):
    """Sends packets and receives their answers, without waiting.

    waiting: whether something is to be sent as soon as the socket is ready. dropped: answers that
    the kernel dropped because this process was too slow.
    """

    @property
    def waiting(self) -> bool: ...  # noqa: D102

    @property
    def dropped(self) -> int: ...  # noqa: D102

    def fileno(self) -> int:
        """The socket, for select."""

    def send(self, packet: bytes) -> bool:
        """Send a packet; false if there is no room for it."""

    def flush(self) -> None:
        """Send what waits."""

    def receive(self) -> Iterator[Returned]:
        """All answers that have arrived."""

    def resent(self) -> tuple[int, int] | None:
        """Segments of TCP that were sent again, and all segments; None if unknown."""

    def close(self) -> None:
        """Close the socket."""


class DatagramChannel(Closing):
    """A channel of datagrams. server: a connection to it, which shows which address answers."""

    waiting = False

    def __init__(self, server: socket.socket, key: int) -> None:
        udp = socket.socket(server.family, socket.SOCK_DGRAM)
        udp.connect(server.getpeername())
        udp.setblocking(False)
        self._datagrams = Datagrams(udp)
        self._key = key
        self.kernel_times = self._datagrams.kernel_times

    @property
    def dropped(self) -> int:
        """Answers that the kernel dropped because this process was too slow."""
        return self._datagrams.dropped

    def fileno(self) -> int:
        """The socket, for select."""
        return self._datagrams.socket.fileno()

    def send(self, packet: bytes) -> bool:
        """Send a packet; false if the socket or the network interface has no room for it."""
        for _ in range(2):
            try:
                self._datagrams.socket.send(packet)
            except ConnectionRefusedError:  # the fate of an earlier one; this one was not sent
                continue
            except OSError:  # no room, or no route at this moment
                return False
            return True
        return False

    def flush(self) -> None:
        """Nothing: a datagram is sent at once or not at all."""

    def receive(self) -> Iterator[Returned]:
        """All answers that have arrived."""
        while True:
            try:
                data, _, back_ns, read_ns, _ = self._datagrams.receive()
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # an earlier datagram found no server
                continue
            except OSError:  # such as no route at this moment
                return
            answer = read_answer(data)
            if answer is not None and answer.key == self._key:
                yield Returned(answer, back_ns, read_ns)

    def resent(self) -> tuple[int, int] | None:
        """None: nothing is sent again."""
        return None

    def close(self) -> None:
        """Close the socket."""
        self._datagrams.close()


class StreamChannel(Closing):
    """A channel over a second TCP connection.

    server: the first one. room: bytes that may wait in the sender while the socket is full.
    """

    dropped = 0

    def __init__(self, server: socket.socket, key: int, room: int) -> None:
        self._tcp = socket.socket(server.family, socket.SOCK_STREAM)
        try:
            self._tcp.settimeout(CONNECT_S)
            self._tcp.connect(server.getpeername())
            self._tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Closing discards what a slow path has not taken yet; it would delay what comes next.
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            lines = Lines(self._tcp, CONNECT_S)
            lines.receive()
            lines.send(stream=key)
            self._tcp.setblocking(False)
        except BaseException:
            self._tcp.close()
            raise
        self._room = room
        self._out, self._in = bytearray(), bytearray()

    @property
    def waiting(self) -> bool:
        """Whether something waits for the socket."""
        return bool(self._out)

    def fileno(self) -> int:
        """The socket, for select."""
        return self._tcp.fileno()

    def send(self, packet: bytes) -> bool:
        """Send a packet, now or as soon as the socket has room; false if too much waits already."""
        if len(self._out) + len(packet) > self._room and self._out:
            return False
        self._out += packet
        self.flush()
        return True

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        with suppress(BlockingIOError):
            while self._out:
                del self._out[: self._tcp.send(self._out)]

    def receive(self) -> Iterator[Returned]:
        """All answers that have arrived."""
        try:
            more = self._tcp.recv(1 << 18)
        except BlockingIOError:
            return
        read_ns = time.monotonic_ns()
        if not more:
            raise ConnectionError("the server closed the stream")
        self._in += more
        whole = len(self._in) // ANSWER.size * ANSWER.size
        for start in range(0, whole, ANSWER.size):
            answer = read_answer(memoryview(self._in)[start:])
            if answer is None:
                raise ConnectionError("the server's answers are damaged")
            yield Returned(answer, read_ns, read_ns)
        del self._in[:whole]

    def resent(self) -> tuple[int, int] | None:
        """Segments that were sent again, and all segments; None if the kernel does not say."""
        return retransmitted(self._tcp)

    def close(self) -> None:
        """Close the connection."""
        self._tcp.close()


class Session(Closing):
    """One announced stream, with its channel and one for small datagrams (`pings`).

    Raises BackendError if the server refuses it and OSError if the connection fails.

    Args:
        address: Host and port of the server.
        token: What the server asks for; None: nothing.
        transport: Of the stream.
        rate_per_s: Tuples per second.
        for_s: Duration of the stream.
        room: Bytes that may wait in the sender while TCP's socket is full.
    """

    def __init__(
        self,
        address: tuple[str, int],
        token: str | None,
        transport: Transport,
        rate_per_s: float,
        for_s: float,
        room: int,
    ) -> None:
        self.transport, self.rate_per_s = transport, rate_per_s
        self._open: list[Closing] = []
        try:
            self._lines = Lines(socket.create_connection(address, CONNECT_S), CONNECT_S)
            self._open.append(self._lines)
            said = self._announce(token, rate_per_s, for_s)
            server = self._lines.socket
            self.key: int = said["key"] % (1 << 64)
            self.one_machine = bool(said["machine"]) and said["machine"] == machine()
            self.pings = DatagramChannel(server, self.key)
            self._open.append(self.pings)
            self.kernel_times = self.pings.kernel_times and bool(said["kernel_times"])
            self.channel: Channel
            if transport == "udp":
                self.channel = opened = DatagramChannel(server, self.key)
                self._open.append(opened)
            else:
                self.channel = stream = StreamChannel(server, self.key, room)
                self._open.append(stream)
        except BaseException:
            self.close()
            raise

    def _announce(self, token: str | None, rate_per_s: float, for_s: float) -> dict[str, Any]:
        hello = self._lines.receive()
        if hello.get("tidegate") != "probe" or hello.get("protocol") != PROTOCOL:
            raise BackendError(
                "the server is no tidegate probe of this version: start the same version there"
            )
        if hello.get("token") and token is None:
            raise BackendError("the server requires a token: give --token-file")
        nonce, theirs = secrets.token_hex(16), str(hello.get("nonce", ""))
        self._lines.send(
            nonce=nonce,
            proof=proof(token, "sender", theirs, nonce),
            rate_per_s=rate_per_s,
            for_s=for_s,
        )
        said = self._lines.receive()
        if "error" in said:
            raise BackendError(f"the server refuses: {said['error']}")
        if hello.get("token") and not same_token(
            str(said.get("proof", "")), proof(token, "server", theirs, nonce)
        ):
            raise BackendError("the server does not know the token: check the address")
        key = said.get("key")
        if not {"machine", "kernel_times"} <= said.keys() or not isinstance(key, int):
            raise BackendError(_DAMAGED)
        return said

    def fileno(self) -> int:
        """The control connection, for select: it is readable only if it was closed."""
        return self._lines.socket.fileno()

    def end(self) -> Counts:
        """End the stream; what the server counted."""
        self._lines.send(end=True)
        said = self._lines.receive()
        if not {*Counts.__slots__} <= said.keys():
            raise BackendError(_DAMAGED)
        return Counts(**{name: said[name] for name in Counts.__slots__})

    def close(self) -> None:
        """Close all connections."""
        for opened in reversed(self._open):
            opened.close()
