"""A TLS proxy for a server without TLS, as in production."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path

__all__ = ["TlsProxy", "make_certificate"]


def make_certificate(file: Path) -> Path:
    """Write a key and a self-signed certificate for localhost to one file."""
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(file), "-out", "-"]
    made = subprocess.run([*words.split(), *names], capture_output=True, text=True, check=True)
    with file.open("a", encoding="ascii") as both:
        both.write(made.stdout)
    return file


class TlsProxy:
    """Accepts TLS on a free port and forwards the bytes to another port of this machine."""

    def __init__(self, target_port: int, certificate: Path) -> None:
        self._target_port = target_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def _talk(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            inner = socket.create_connection(("127.0.0.1", self._target_port))
            with inner, self._context.wrap_socket(plain, server_side=True) as outer:
                back = threading.Thread(target=self._pass, args=(inner, outer), daemon=True)
                back.start()
                self._pass(outer, inner)
                back.join()

    @staticmethod
    def _pass(origin: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
