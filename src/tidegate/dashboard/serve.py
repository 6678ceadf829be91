"""Serves the dashboard in a thread while a block runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from tidegate.dashboard.journals import JournalList
from tidegate.dashboard.security import Access
from tidegate.errors import BackendError, InputError
from tidegate.listening import Listening, check_token, is_loopback

__all__ = ["is_free", "serving"]

START_LIMIT_S = 30.0


@contextmanager
def serving(
    journals: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    port: int = 8080,
    host: str = "127.0.0.1",
    token: str | None = None,
    steering_token: str | None = None,
    slo_s: float | None = None,
    certificate: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> Iterator[str]:
    """Serve a dashboard of journals while the block runs; yields its address.

    Args:
        journals: One or several, or folders with journals in them; they need not exist yet.
        port: 0 for any free port.
        host: An address other than loopback requires a token.
        token: At least 12 characters, which users have to enter; None: who can connect may look.
        steering_token: The same for the controls alone, where looking needs none. With neither of
            the two, the controls are disabled.
        slo_s: Latency target, in seconds; None for the target in each journal.
        certificate: PEM file with a certificate, for TLS; a renewed file is noticed.
        key: PEM file with its key; None: it is in the file of the certificate.
    """
    try:
        import uvicorn

        from tidegate.dashboard.app import make_app
        from tidegate.dashboard.limits import HEADER_BYTES, LimitedProtocol, LimitedSocket
    except ImportError as error:
        remedy = "pip install 'tidegate[dashboard]'"
        raise BackendError(f"the dashboard requires {error.name}: {remedy}") from None

    at = Listening(host, port, token, certificate, key)
    if steering_token is not None:
        check_token(steering_token, "--token")
    one = isinstance(journals, str | PathLike)
    paths = [Path(journals)] if one else [Path(path) for path in journals]  # type: ignore[arg-type, union-attr]
    listener = _listen(host, port, LimitedSocket)
    closing = threading.Event()
    real_port = listener.getsockname()[1]
    access = Access(token, is_loopback(host), steering_token, real_port)
    app = make_app(JournalList(paths, slo_s), access, closing)
    # No access log: the terminal may be showing something else. Its warnings go where others go.
    settings = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        http=LimitedProtocol,
        loop="asyncio",  # it accepts connections with the socket's own method
        h11_max_incomplete_event_size=HEADER_BYTES,
        ws="none",
    )
    settings.load()
    settings.ssl = at.tls()
    server = uvicorn.Server(settings)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="tidegate-dashboard", daemon=True
    )
    thread.start()
    try:
        _await_start(server, thread)
        at.warn_if_readable("pages")
        yield f"{at.scheme}://{at.shown_host}:{real_port}/"
    finally:
        closing.set()
        server.should_exit = True
        thread.join(10)
        listener.close()


def _listen(host: str, port: int, kind: type[socket.socket] = socket.socket) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = kind(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or str(error)
        remedy = f"{why}: choose another --port, or 0 for any free one"
        raise InputError("--port", f"{host}:{port}", "one that is free", remedy) from None
    listener.listen(128)
    return listener


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a port is free now."""
    try:
        _listen(host, port).close()
    except InputError:
        return False
    return True


def _await_start(server: object, thread: threading.Thread) -> None:
    """Wait until the server accepts connections."""
    waited = threading.Event()
    for _ in range(int(START_LIMIT_S / 0.02)):
        if getattr(server, "started", False):
            return
        if not thread.is_alive():
            break
        waited.wait(0.02)
    raise BackendError("the dashboard's server did not start")
