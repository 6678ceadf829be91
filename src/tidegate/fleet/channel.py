"""Commands to the manager, over a Unix domain socket in the fleet's folder.

A request and its answer are one line of JSON each. Only the owner of the folder can connect, and
no port is open to the network.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.errors import BackendError, InputError

__all__ = ["Channel", "send"]

# The kernel's limit for the path of a socket, without the terminating zero.
LONGEST = 107
LONGEST_LINE = 1_000_000
"""Characters of a command, at most."""


def _address(folder: Path) -> str:
    path = str((folder / "control.sock").resolve())
    if len(path) > LONGEST:
        remedy = "choose a folder with a shorter path"
        raise InputError("--folder", str(folder), f"at most {LONGEST - 13} characters long", remedy)
    return path


class Channel:
    """Listens until it is closed. answer: returns the answer to a request; called in any thread."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        self._path = Path(_address(folder))
        self._path.unlink(missing_ok=True)  # left behind by a manager that was killed
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        self._path.chmod(0o600)
        self._socket.listen()
        threading.Thread(target=self._serve, name="fleet-channel", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(90)
            with connection.makefile("rw", encoding="utf-8") as file:
                try:
                    request = json.loads(file.readline(LONGEST_LINE))
                    if not isinstance(request, dict):
                        raise ValueError("it is no object")
                    answer = self._answer(request)
                except (ValueError, RecursionError):
                    answer = {"error": "the command is not a line of JSON"}
                file.write(json.dumps(answer) + "\n")
                file.flush()


def send(folder: Path, request: dict[str, Any], timeout_s: float = 90.0) -> dict[str, Any]:
    """Send a command to the manager of a folder; BackendError if no manager answers."""
    address = _address(folder)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(address)
            with connection.makefile("rw", encoding="utf-8") as file:
                file.write(json.dumps(request) + "\n")
                file.flush()
                answer: dict[str, Any] = json.loads(file.readline())
                if not isinstance(answer, dict):
                    raise ValueError("it does not speak our language")
    except (OSError, ValueError, RecursionError) as error:
        remedy = "start it with tidegate fleet run, or name its folder with --folder"
        raise BackendError(f"no manager answers in {folder} ({error}): {remedy}") from None
    if "error" in answer and set(answer) == {"error"}:
        raise BackendError(str(answer["error"]))
    return answer
