"""A way to a server that can be cut: connections pass, stall, are reset, or are refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from tidegate.lifecycle import Closing
from tidegate.spark.local.processes import LOOPBACK

PIECE = 65_536


class Way(Closing):
    """A port on loopback that leads to a server.

    target: returns the port of the server on loopback, for each connection; it may raise OSError.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._flows = threading.Event()
        self._flows.set()
        self._resets = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = socket.create_server((LOOPBACK, 0))
        self.port: int = self._server.getsockname()[1]
        self._accept()

    def stall(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._flows.clear()

    def reset(self) -> None:
        """End all connections, and each new one at once."""
        self._resets = True
        self._end_all()

    def refuse(self) -> None:
        """End all connections; nobody listens any more."""
        _end(self._server)
        self._end_all()

    def heal(self) -> None:
        """Let everything pass again."""
        self._resets = False
        self._flows.set()
        if self._server.fileno() < 0:
            self._server = socket.create_server((LOOPBACK, self.port))
            self._accept()

    def close(self) -> None:
        """End everything."""
        self._flows.set()
        self.refuse()

    def _accept(self) -> None:
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # closed
                return
            try:
                if self._resets:
                    raise OSError
                there = socket.create_connection((LOOPBACK, self._target()), 5.0)
            except OSError:
                client.close()
                continue
            there.settimeout(None)
            with self._lock:
                self._open |= {client, there}
            for one, other in ((client, there), (there, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(PIECE):
                self._flows.wait()
                other.sendall(piece)
        for end in (one, other):
            _end(end)
        with self._lock:
            self._open -= {one, other}

    def _end_all(self) -> None:
        with self._lock:
            every = list(self._open)
        for one in every:
            _end(one)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
