"""Connections at a time, and the time for a request, without a server."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tidegate.dashboard import limits
from tidegate.dashboard.limits import LimitedProtocol, LimitedSocket


def test_the_limits_are_those_of_the_security_page() -> None:
    assert (limits.MOST_CONNECTIONS, limits.REQUEST_S, limits.HEADER_BYTES) == (200, 10.0, 16_384)


def test_connections_beyond_the_limit_are_closed_until_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 2)
    listening = LimitedSocket(socket.AF_INET, socket.SOCK_STREAM)
    with listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def connect() -> tuple[socket.socket, socket.socket]:
            client = socket.create_connection(listening.getsockname())
            return client, listening.accept()[0]

        pairs = [connect(), connect()]
        refused = socket.create_connection(listening.getsockname())
        with pytest.raises(BlockingIOError):
            listening.accept()
        assert refused.recv(1) == b"", "it is closed"
        pairs[0][1].close()
        pairs.append(connect())
        for one in (refused, *(side for pair in pairs for side in pair)):
            one.close()


class Timer:
    """A call in the future."""

    def __init__(self, seconds: float, call: Any) -> None:
        self.seconds, self.call, self.cancelled = seconds, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Notes the timers of a protocol."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Any, *_: Any) -> Timer:
        self.timers.append(Timer(seconds, call))
        return self.timers[-1]

    def create_task(self, task: Any, **_: Any) -> Any:
        task.close()

        class Task:
            def add_done_callback(self, call: Any) -> None:
                """Never done."""

        return Task()

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]


class Transport:
    """A connection that goes nowhere."""

    aborted = False

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        """It is closed already."""

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""


async def no_page(scope: Any, receive: Any, send: Any) -> None:
    """An application that never answers."""


@pytest.fixture
def connected() -> tuple[LimitedProtocol, Loop, Transport]:
    loop, transport = Loop(), Transport()
    config = Config(app=no_page, log_config=None)
    config.load()
    protocol = LimitedProtocol(config, ServerState(), {}, loop)  # type: ignore[arg-type]
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, loop, transport


def test_a_client_that_sends_nothing_is_cut_off(
    connected: tuple[LimitedProtocol, Loop, Transport],
) -> None:
    _, loop, transport = connected
    (timer,) = loop.waiting
    assert timer.seconds == 10.0
    timer.call()
    assert transport.aborted


def test_a_request_has_one_limit_however_it_trickles_in(
    connected: tuple[LimitedProtocol, Loop, Transport],
) -> None:
    protocol, loop, _ = connected
    first = loop.waiting
    for part in (b"POST / HTTP/1.1\r\n", b"host: x\r\ncontent-length: 2\r\n"):
        protocol.data_received(part)
        assert protocol.conn.their_state is h11.IDLE and loop.waiting == first
    protocol.data_received(b"\r\na")
    assert protocol.conn.their_state is h11.SEND_BODY and loop.waiting == first
    protocol.data_received(b"b")
    assert loop.waiting == [], "an answer may take its time"


def test_a_second_request_on_the_same_connection_has_the_limit_again(
    connected: tuple[LimitedProtocol, Loop, Transport],
) -> None:
    protocol, loop, transport = connected

    async def answer() -> None:
        await protocol.cycle.send({"type": "http.response.start", "status": 204, "headers": []})
        await protocol.cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    for _ in range(2):
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert loop.waiting == []
        asyncio.run(answer())
    protocol.data_received(b"GET /")
    (timer,) = (timer for timer in loop.waiting if timer.seconds == 10.0)
    timer.call()
    assert transport.aborted


def test_a_connection_that_ended_is_not_waited_for(
    connected: tuple[LimitedProtocol, Loop, Transport],
) -> None:
    protocol, loop, _ = connected
    assert protocol.connections == {protocol}
    protocol.connection_lost(None)
    assert loop.waiting == []
    assert protocol.connections == set(), "or the server would wait for it at its end"
    protocol.connection_lost(None)
