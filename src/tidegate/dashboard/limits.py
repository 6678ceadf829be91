"""Limits of the web server: connections at a time, the size of headers, the time for a request.

Without them, anybody who can connect could hold connections until the process, and with it an
autoscaler in the same process, has no file descriptors left.
"""

from __future__ import annotations

import asyncio
import socket
import weakref
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.dashboard.security import HEADER_BYTES

__all__ = ["HEADER_BYTES", "LimitedProtocol", "LimitedSocket"]

MOST_CONNECTIONS = 200
"""Connections at the same time, streams of events included; more are closed at once."""
REQUEST_S = 10.0
"""Longest time in which a request must be sent, in seconds. An answer may take longer."""


class LimitedSocket(socket.socket):
    """A listening socket that keeps `MOST_CONNECTIONS` connections at most.

    It counts them before a handshake of TLS, of which the server does not know yet.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; BlockingIOError if there are too many, and this one is closed."""
        connection, address = super().accept()
        if sum(other.fileno() != -1 for other in self._accepted) >= MOST_CONNECTIONS:
            connection.close()
            raise BlockingIOError("too many connections")
        self._accepted.add(connection)
        return connection, address


class LimitedProtocol(H11Protocol):
    """Closes a connection whose request does not come in time, or not at all."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, and stop waiting when it is complete."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self._late is None:
                self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
