"""A proxy between a probe and its server that delays, drops and repeats, and records what it did.

The records are what actually happened, not what was intended: a machine that is busy delays more.
The arrival of a datagram is the time of the kernel, as in the probe, so that nothing but the way
through the loopback interface is missing from the records.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tidegate.lifecycle import Service
from tidegate.probe.wire import STREAM, read_answer, read_packet

TIMESTAMPNS = 35
ENOUGH = 300
"""Datagrams, or chunks of a connection, after which the proxy has seen enough."""


@dataclass(frozen=True)
class Passed:
    """A datagram: kind, number, tuples, when it came, and when it left (never, if dropped)."""

    kind: int
    number: int
    tuples: int
    came_ns: int
    left_ns: tuple[int, ...] = ()

    @property
    def delay_ns(self) -> int:
        return self.left_ns[0] - self.came_ns


@dataclass(frozen=True)
class Weather:
    """What happens to datagrams in one direction, and to all bytes of TCP connections.

    delay_s: shortest and longest delay. loss, repeats: shares. bytes_per_s: of TCP, None for no
    limit.
    """

    delay_s: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0
    repeats: float = 0.0
    bytes_per_s: float | None = None


@dataclass
class Direction:
    """What passed in one direction. tcp: (came, left, bytes) of chunks by connection."""

    weather: Weather
    passed: dict[int, Passed] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    tcp: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    text: bytearray = field(default_factory=bytearray)

    def of_kind(self, kind: int) -> dict[int, Passed]:
        """Datagrams that left, by their number."""
        return {p.number: p for p in self.passed.values() if p.kind == kind and p.left_ns}


class Proxy(Service):
    """Stands between the probe and a server on loopback."""

    def __init__(
        self, server: tuple[str, int], there: Weather, back: Weather | None = None, seed: int = 1
    ) -> None:
        self._server = server
        self.there, self.back = Direction(there), Direction(back or there)
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self.enough = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def start(self) -> Self:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.address = self._tcp.getsockname()[:2]
        self._udp = self._datagrams()
        self._udp.bind(self.address)
        self._begin(self._accept)
        self._begin(self._pass_datagrams)
        return self

    def stop(self) -> None:
        self._stopping.set()
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for opened in (self._tcp, self._udp, *self._sockets):
            opened.close()

    def _begin(self, do: Callable[..., None], *words: Any) -> None:
        thread = threading.Thread(target=do, args=words, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _datagrams(self) -> socket.socket:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        udp.setblocking(False)
        return udp

    def _pass_datagrams(self) -> None:
        upstream: dict[Any, socket.socket] = {}
        clients: dict[socket.socket, Any] = {}
        waiting: list[tuple[int, int, bytes, socket.socket, Any, Direction, int]] = []
        serial = 0
        while not self._stopping.is_set():
            now = time.monotonic_ns()
            wait_s = 0.05 if not waiting else max(0.0, min(0.05, (waiting[0][0] - now) / 1e9))
            readable, _, _ = select.select([self._udp, *clients], [], [], wait_s)
            for source in readable:
                with suppress(BlockingIOError):
                    data, came_ns, sender = _receive(source)
                    if source is self._udp:
                        if sender not in upstream:
                            upstream[sender] = self._datagrams()
                            upstream[sender].connect(self._server)
                            self._sockets.append(upstream[sender])
                            clients[upstream[sender]] = sender
                        found, way = read_packet(data), self.there
                        out, to = upstream[sender], self._server
                    else:
                        found, way = read_answer(data), self.back  # type: ignore[assignment]
                        out, to = self._udp, clients[source]
                    assert found is not None
                    way.passed[serial] = Passed(found.kind, found.number, found.tuples, came_ns)
                    for _ in range(self._copies(way.weather)):
                        delay_ns = int(self._random.uniform(*way.weather.delay_s) * 1e9)
                        due = came_ns + delay_ns
                        heapq.heappush(waiting, (due, serial, data, out, to, way, len(waiting)))
                    serial += 1
                    if way is self.there and found.kind == STREAM and found.number >= ENOUGH:
                        self.enough.set()
            while waiting and waiting[0][0] <= time.monotonic_ns():
                _, number, data, out, to, way, _ = heapq.heappop(waiting)
                before_ns = time.monotonic_ns()
                out.sendto(data, to)
                left_ns = (before_ns + time.monotonic_ns()) // 2
                was = way.passed[number]
                way.order.append(number)
                way.passed[number] = replace(was, left_ns=(*was.left_ns, left_ns))

    def _copies(self, weather: Weather) -> int:
        if self._random.random() < weather.loss:
            return 0
        return 2 if self._random.random() < weather.repeats else 1

    def _accept(self) -> None:
        self._tcp.settimeout(0.05)
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                client, _ = self._tcp.accept()
                server = socket.create_connection(self._server)
                for opened in (client, server):
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._sockets.append(opened)
                self._begin(self._pass_bytes, client, server, self.there)
                self._begin(self._pass_bytes, server, client, self.back)

    def _pass_bytes(self, source: socket.socket, target: socket.socket, way: Direction) -> None:
        """Read at once, write later: chunks wait in a queue for their time."""
        queue: list[tuple[int, int, bytes]] = []
        limit = way.weather.bytes_per_s
        free_ns = 0
        passed = way.tcp.setdefault(len(way.tcp), [])
        with suppress(OSError):
            while not self._stopping.is_set():
                now = time.monotonic_ns()
                wait_s = 0.05 if not queue else max(0.0, min(0.05, (queue[0][0] - now) / 1e9))
                readable, _, _ = select.select([source], [], [], wait_s)
                if readable:
                    data = source.recv(1 << 16 if limit is None else max(1, int(limit / 100)))
                    came = time.monotonic_ns()
                    due = came + int(self._random.uniform(*way.weather.delay_s) * 1e9)
                    if limit is not None:
                        free_ns = max(free_ns, came) + int(len(data) / limit * 1e9)
                        due = max(due, free_ns)
                    queue.append((max([due, *(q[0] for q in queue[-1:])]), came, data))
                while queue and queue[0][0] <= time.monotonic_ns():
                    _, came, data = queue.pop(0)
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    target.sendall(data)
                    passed.append((came, time.monotonic_ns(), len(data)))
                    way.text += data
                    if len(passed) > ENOUGH // 3:
                        self.enough.set()


def _receive(source: socket.socket) -> tuple[bytes, int, Any]:
    data, notes, _, sender = source.recvmsg(2048, 64)
    now_ns, real_ns = time.monotonic_ns(), time.time_ns()
    for level, kind, value in notes:
        if (level, kind) == (socket.SOL_SOCKET, TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("@ll", value[:16])
            now_ns -= real_ns - (seconds * 1_000_000_000 + nanoseconds)
    return data, now_ns, sender
