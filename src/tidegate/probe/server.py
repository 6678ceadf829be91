"""The end of the path that receives streams and answers every packet at once."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from tidegate.errors import BackendError, InputError
from tidegate.lifecycle import Service
from tidegate.listening import Listening, is_loopback, same_token
from tidegate.probe.wire import (
    PROTOCOL,
    STREAM,
    Answer,
    Arrival,
    Datagrams,
    Lines,
    Packet,
    machine,
    pack_answer,
    proof,
    read_packet,
)

__all__ = ["LONGEST_MOMENT_S", "MOST_TUPLES_PER_S", "ProbeServer"]

log = logging.getLogger(__name__)

LONGEST_MOMENT_S = 30.0
MOST_TUPLES_PER_S = 1_000_000
MOST_CONNECTIONS = 16
MOST_SESSIONS = 4
GREETING_S = 10.0
"""A connection has to say what it is for within this time."""
GRACE_S = 30.0
"""A session ends this long after its stream should have ended, whatever happens."""
POLL_S = 0.2
_LONGEST_PACKET = 65_535 + 64


class _Session:
    """A stream that was announced: what has arrived of it.

    most: packets that are counted; further ones are ignored, so that memory is bounded.
    """

    def __init__(self, most: int) -> None:
        self._seen = bytearray(most)
        self._highest = -1
        self.tuples = self.packets = self.duplicates = self.out_of_order = 0

    def take(self, packet: Packet) -> bool:
        """Count a packet; whether it gets an answer."""
        if packet.kind != STREAM:
            return True
        if packet.number >= len(self._seen):
            return False
        if self._seen[packet.number]:
            self.duplicates += 1
            return True
        self._seen[packet.number] = 1
        self.packets += 1
        self.tuples += packet.tuples
        if packet.number < self._highest:
            self.out_of_order += 1
        self._highest = max(self._highest, packet.number)
        return True


class ProbeServer(Service):
    """Listens for probes on one port, TCP and UDP, and answers until it is stopped.

    A control connection announces a stream and shows that the sender knows the token; only packets
    with the key of an announced stream are answered. At most four streams run at a time.

    Args:
        at: Where to listen. Port 0 takes any free one.
        shared_clock: A word that a sender with the same clock has as well, "" if nobody has; by
            default that of this machine.
        clock_ns: The monotonic clock.

    >>> with ProbeServer(Listening()) as server:
    ...     server.host
    '127.0.0.1'
    """

    def __init__(
        self,
        at: Listening,
        shared_clock: str | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._at = at
        self._machine = machine() if shared_clock is None else shared_clock
        self._clock_ns = clock_ns
        self._sessions: dict[int, _Session] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._connections: set[socket.socket] = set()
        self._loops: list[threading.Thread] = []
        self._serving: list[threading.Thread] = []
        self.host, self.port = at.host, at.port

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, once it has started."""
        return self.host, self.port

    def start(self) -> Self:
        """Listen; raises InputError if the port is taken."""
        try:
            self._listener, udp = _bind(self._at)
        except OSError as error:
            where = f"{self._at.shown_host}:{self._at.port}"
            allowed = f"an address to listen on ({error.strerror or error})"
            remedy = "choose another, or port 0 for any free port"
            raise InputError(f"{self._at.prefix}port", where, allowed, remedy) from None
        self.port = self._listener.getsockname()[1]
        self._datagrams = Datagrams(udp, self._clock_ns)
        self._loops = [
            threading.Thread(target=do, name=f"probe-{name}", daemon=True)
            for name, do in (("accept", self._accept), ("datagrams", self._answer_datagrams))
        ]
        for thread in self._loops:
            thread.start()
        return self

    def stop(self) -> None:
        """Close all connections and wait for the threads."""
        self._stopping.set()
        for thread in self._loops:
            thread.join()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._serving:
            thread.join()
        self._listener.close()
        self._datagrams.close()

    def _accept(self) -> None:
        self._listener.settimeout(POLL_S)
        while not self._stopping.is_set():
            try:
                connection, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:  # such as too many open files
                log.warning("a connection could not be accepted: %s", error)
                self._stopping.wait(POLL_S)
                continue
            with self._lock:
                full = len(self._connections) >= MOST_CONNECTIONS
                if not full:
                    self._connections.add(connection)
                    thread = threading.Thread(
                        target=self._serve, args=(connection, peer), name="probe", daemon=True
                    )
                    self._serving = [t for t in self._serving if t.is_alive()] + [thread]
                    thread.start()
            if full:
                connection.close()

    def _serve(self, connection: socket.socket, peer: Any) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with Lines(connection, GREETING_S) as lines:
                self._greet(lines)
        except (OSError, BackendError) as error:
            log.info("probe from %s: %s", peer[0], error)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _greet(self, lines: Lines) -> None:
        """Find out what a connection is for: control, or the stream of a session."""
        nonce = secrets.token_hex(16)
        token = self._at.token
        lines.send(tidegate="probe", protocol=PROTOCOL, nonce=nonce, token=token is not None)
        asked = lines.receive()
        if "stream" in asked:
            session = self._sessions.get(_whole(asked, "stream"))
            if session is not None:
                self._answer_stream(lines, session)
            return
        theirs = str(asked.get("nonce", ""))
        if token is not None and not same_token(
            str(asked.get("proof", "")), proof(token, "sender", nonce, theirs)
        ):
            lines.send(error="the token is missing or wrong")
            return
        try:
            rate, for_s = float(asked["rate_per_s"]), float(asked["for_s"])
        except (KeyError, TypeError, ValueError):
            lines.send(error="the request has no rate or no duration")
            return
        if not (0 < rate <= MOST_TUPLES_PER_S and 0 < for_s <= LONGEST_MOMENT_S):
            lines.send(error=f"at most {MOST_TUPLES_PER_S} tuples/s for {LONGEST_MOMENT_S:g} s")
            return
        session = _Session(int(rate * for_s) + 1000)
        key = secrets.randbits(64)
        with self._lock:
            free = len(self._sessions) < MOST_SESSIONS
            if free:
                self._sessions[key] = session
        if not free:
            lines.send(error=f"{MOST_SESSIONS} streams are being measured already: try later")
            return
        try:
            self._control(lines, session, key, for_s, proof(token, "server", nonce, theirs))
        finally:
            with self._lock:
                del self._sessions[key]

    def _control(
        self, lines: Lines, session: _Session, key: int, for_s: float, proven: str
    ) -> None:
        lines.socket.settimeout(for_s + GRACE_S)
        dropped, cpu_s = self._datagrams.dropped, time.process_time()
        lines.send(
            key=key, proof=proven, machine=self._machine, kernel_times=self._datagrams.kernel_times
        )
        lines.receive()
        lines.send(
            tuples=session.tuples,
            packets=session.packets,
            duplicates=session.duplicates,
            out_of_order=session.out_of_order,
            dropped=self._datagrams.dropped - dropped,
            cpu_s=time.process_time() - cpu_s,
        )

    def _answer_stream(self, lines: Lines, session: _Session) -> None:
        """Answer the packets of a TCP connection until it is closed."""
        tcp = lines.socket
        tcp.settimeout(LONGEST_MOMENT_S + GRACE_S)
        waiting = bytearray(lines.rest())
        while True:
            more = tcp.recv(1 << 18)
            taken_ns = self._clock_ns()
            if not more:
                return
            waiting += more
            answers = []
            start = 0
            while (packet := read_packet(memoryview(waiting)[start : start + 32])) is not None:
                if packet.length > _LONGEST_PACKET:
                    raise BackendError("a packet is too long")
                if len(waiting) - start < packet.length:
                    break
                start += packet.length
                if session.take(packet):
                    answers.append(self._answer(packet, taken_ns, taken_ns))
            if packet is None and len(waiting) - start >= 32:
                raise BackendError("the stream is not that of a probe")
            del waiting[:start]
            if answers:
                tcp.sendall(b"".join(answers))

    def _answer_datagrams(self) -> None:
        datagrams = self._datagrams
        datagrams.socket.settimeout(POLL_S)
        while not self._stopping.is_set():
            try:
                arrival = datagrams.receive()
                self._answer_datagram(arrival)
            except OSError:  # no datagram for a while, or one that could not be answered
                continue

    def _answer_datagram(self, arrival: Arrival) -> None:
        packet = read_packet(arrival.data)
        if packet is None or packet.length != len(arrival.data):
            return
        session = self._sessions.get(packet.key)
        if session is not None and session.take(packet):
            answer = self._answer(packet, arrival.arrived_ns, arrival.taken_ns)
            self._datagrams.answer(answer, arrival)

    def _answer(self, packet: Packet, arrived_ns: int, taken_ns: int) -> bytes:
        kind, tuples, _, key, number, sent_ns = packet
        return pack_answer(
            Answer(kind, tuples, key, number, sent_ns, arrived_ns, taken_ns, self._clock_ns())
        )

    def describe(self) -> str:
        """Where it listens, and who may connect."""
        who = "this machine only" if is_loopback(self._at.host) else "other machines with the token"
        return f"{self._at.shown_host}:{self.port} (TCP and UDP, {who})"


def _bind(at: Listening) -> tuple[socket.socket, socket.socket]:
    """A listener for TCP and a socket for UDP with the same port."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    for attempt in range(20):
        tcp = socket.create_server((at.host, at.port), family=family, backlog=MOST_CONNECTIONS)
        udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            udp.bind((at.host, tcp.getsockname()[1]))
        except OSError:
            tcp.close()
            udp.close()
            if at.port or attempt == 19:
                raise
        else:
            return tcp, udp
    raise AssertionError("unreachable")


def _whole(asked: Mapping[str, Any], name: str) -> int:
    value = asked.get(name)
    return value if isinstance(value, int) else -1
