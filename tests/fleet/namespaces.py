"""Spark Connect servers in network namespaces, whose links a test can cut, and paused processes.

Each server has a namespace with one link to this machine. A forwarder on loopback passes bytes over
the link, because Spark's client sends a token without TLS to localhost only. Without the rights to
create namespaces, the servers run on loopback, and their processes can only be paused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tidegate.fleet.providers import EmbeddedProvider
from tidegate.spark.agent import agent_jar
from tidegate.spark.local.processes import LOOPBACK, Process

PLUGIN = "io.tidegate.spark.FleetPlugin"
CUTS = ("down", "out", "back")


def _ip(*words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0


def can_cut() -> bool:
    """Whether this process may create network namespaces and links."""
    try:
        Link(9).close()
    except OSError:  # also if there is no program ip
        return False
    return True


class Link:
    """A namespace with a link to this machine. number: unique among the links of this process."""

    def __init__(self, number: int) -> None:
        key = os.getpid() % 10_000
        self.name = f"tg{key}n{number}"
        self.near, self.far = f"tg{key}a{number}", f"tg{key}b{number}"
        net = f"10.213.{key % 250}"
        self.here, self.address = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", self.near, "type", "veth", "peer", "name", self.far)
            _ip("link", "set", self.far, "netns", self.name)
            _ip("addr", "add", f"{self.here}/30", "dev", self.near)
            _ip("link", "set", self.near, "up")
            self._inside("addr", "add", f"{self.address}/30", "dev", self.far)
            self._inside("link", "set", self.far, "up")
            self._inside("link", "set", "lo", "up")
        except OSError:
            self.close()
            raise

    def _inside(self, *words: str, check: bool = True) -> bool:
        return _ip("-n", self.name, *words, check=check)

    def cut(self, how: str) -> None:
        """Cut the link. how: ``down`` both ways, ``out`` to the server, ``back`` from it."""
        if how == "down":
            _ip("link", "set", self.near, "down")
        elif how == "out":
            _ip("route", "add", "blackhole", f"{self.address}/32")
        else:
            self._inside("route", "add", "blackhole", f"{self.here}/32")

    def heal(self) -> None:
        """Undo every cut."""
        _ip("link", "set", self.near, "up", check=False)
        _ip("route", "del", "blackhole", f"{self.address}/32", check=False)
        self._inside("route", "del", "blackhole", f"{self.here}/32", check=False)

    def close(self) -> None:
        """Remove the namespace and the link."""
        _ip("route", "del", "blackhole", f"{self.address}/32", check=False)
        _ip("link", "del", self.near, check=False)
        _ip("netns", "del", self.name, check=False)


class Forwarder:
    """Accepts connections on a free port of loopback and passes their bytes to an address."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(near,), daemon=True).start()

    def _talk(self, near: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            near,
            socket.create_connection(self._target, timeout=10) as far,
        ):
            far.settimeout(None)
            threading.Thread(target=self._pass, args=(far, near), daemon=True).start()
            self._pass(near, far)

    @staticmethod
    def _pass(origin: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                target.sendall(data)
        for end in (origin, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Server:
    """A Connect server that a test can pause or cut off.

    number: from 0. folder: for its log. linked: whether it gets a namespace. plugin: whether it
    stops queries that were replaced.
    """

    def __init__(self, number: int, folder: Path, linked: bool, plugin: bool = True) -> None:
        self.link = Link(number) if linked else None
        self.forwarder: Forwarder | None = None
        self.paused = False
        settings: dict[str, Any] = {}
        if plugin:
            settings = {"spark.plugins": PLUGIN, "spark.jars": str(agent_jar())}
        prefix: list[str] = []
        if self.link is not None:
            settings["spark.connect.grpc.binding.address"] = self.link.address
            prefix = ["ip", "netns", "exec", self.link.name]

        def started(command: Sequence[str], log: Path, env: dict[str, str]) -> Process:
            return Process([*prefix, *command], log, env)

        provider = EmbeddedProvider("fence", folder, cores=2, memory_mb=640, settings=settings)
        with patch("tidegate.fleet.providers.Process", started):
            server = provider._launch()
        self.process, self._token = server.process, server.token

    def wait(self, timeout_s: float = 180.0) -> str:
        """Wait until the server is up; return its endpoint."""
        pattern = r"Connect server started at: [\d.]+:(\d+)"
        port = int(self.process.wait_for(pattern, timeout_s).group(1))
        if self.link is not None:
            self.forwarder = Forwarder((self.link.address, port))
            port = self.forwarder.port
        return f"sc://localhost:{port}/;token={self._token}"

    def disturb(self, fault: str) -> None:
        """Pause the process, or cut its link."""
        if fault == "pause":
            self.paused = True
            os.killpg(self.process.pid, signal.SIGSTOP)
        elif self.link is not None:
            self.link.cut(fault)

    def heal(self) -> None:
        """Undo a disturbance."""
        if self.paused:
            self.paused = False
            os.killpg(self.process.pid, signal.SIGCONT)
        if self.link is not None:
            self.link.heal()

    def close(self) -> None:
        """End the server and remove its namespace."""
        self.process.kill()
        if self.forwarder is not None:
            self.forwarder.close()
        if self.link is not None:
            self.link.close()
