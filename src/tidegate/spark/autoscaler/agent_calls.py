"""Requests to the agent in a driver: JSON over HTTP, with its token."""

from __future__ import annotations

import http.client
import ipaddress
import json
import math
import os
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from tidegate.errors import BackendError, InputError, SettingError
from tidegate.listening import check_place, shown_place
from tidegate.units import natural

__all__ = ["DEFAULT_URL", "EVENT_WAIT_S", "AgentCalls", "NoAnswer", "NotInControl", "NotThere"]

DEFAULT_URL = "http://127.0.0.1:8271"
"""Where a controller looks for an agent when nobody says otherwise."""
TIMEOUT_S = 20.0
"""Longest time that a request may take, in seconds."""
EVENT_WAIT_S = 10.0
"""Longest time for which a request waits for events, in seconds."""
REFUSED_S = 10.0
"""An address elsewhere is abandoned when it refuses connections for this time, in seconds."""
CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
"""How a connection fails that the agent has closed because it was idle."""
UNANSWERED = (TimeoutError, ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError)
"""How a request fails whose driver is suspended, or dies before it has answered."""


class NotThere(BackendError):  # noqa: N818 - it says what is wrong
    """Nobody listens at the address, or the application has not started yet."""


class NoAnswer(BackendError):  # noqa: N818
    """The agent has the request and sent no answer; it may have done what was asked."""


class NotInControl(BackendError):  # noqa: N818
    """Another controller has the application, or this one was silent for too long."""


class AgentCalls:
    """Requests to one agent; connections are kept, one for each thread.

    url, token, ca_file, certificate: see `AgentGateway`.
    """

    def __init__(
        self,
        url: str,
        token: str,
        ca_file: str | os.PathLike[str] | None,
        certificate: str = "",
    ) -> None:
        check_place(url, "address of the agent")
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            remedy = f"for example {DEFAULT_URL}"
            allowed = "http://HOST:PORT or https://…"
            raise InputError("address of the agent", shown_place(url), allowed, remedy)
        self.url = url
        self.host, self.port = parts.hostname, port
        self._near = _is_loopback(self.host)
        if parts.scheme == "http" and not self._near:
            remedy = "the token would be readable on the way: give the agent a certificate"
            raise InputError("address of the agent", url, "https beyond this machine", remedy)
        self.key = ""
        self.gone = False
        """Whether the application has ended: nobody listens any more, or another one does."""
        self._ahead_s = (-math.inf, math.inf)
        self._instance = ""
        self._refused_s: float | None = None  # since when connections are refused
        self._token = token
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https" and certificate and ca_file is None:
            self._tls = ssl.create_default_context(cadata=certificate)
            # Only this certificate is trusted, with any issuer and any name.
            self._tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._tls.check_hostname = False
        elif parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(
                    cafile=None if ca_file is None else os.fspath(ca_file)
                )
            except (OSError, ssl.SSLError) as error:
                why = getattr(error, "strerror", None) or "it has no certificates"
                raise InputError("--ca-file", str(ca_file), "a PEM file", why) from None
        self._local = threading.local()

    def get(self, path: str, **query: object) -> Any:
        """Read something."""
        return self._send("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Ask for something with a body, or change something."""
        return self._send("POST", path, json.dumps(body))

    def delete(self, path: str) -> Any:
        """Give something up."""
        return self._send("DELETE", path, None)

    def _send(self, method: str, path: str, body: str | None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self.key:
            headers["Tidegate-Controller"] = self.key
        try:
            began_s = time.monotonic()
            answer, text = self._exchange(method, path, body, headers)
        except ssl.SSLCertVerificationError as error:
            remedy = "name the certificate of its issuer with --ca-file"
            raise SettingError("certificate of the agent", self.url, "trusted", remedy) from error
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            problem = NoAnswer if isinstance(error, UNANSWERED) else BackendError
            raise problem(f"the agent at {self.url} did not answer: {why}") from error
        self._refused_s = None
        self._compare_clocks(answer.getheader("Tidegate-Time"), began_s)
        try:
            said = json.loads(text)
        except ValueError:
            raise BackendError(
                f"{self.url} is no agent of Tidegate: it does not send JSON"
            ) from None
        self._check_instance(answer.getheader("Tidegate-Instance") or "")
        if answer.status == 200:
            return said
        if answer.status == 401:
            remedy = "use the token that the agent was started with"
            raise SettingError("token", "the one given", "the agent's", remedy)
        refusal = NotInControl if answer.status == 409 else BackendError
        reason = said.get("error") if isinstance(said, dict) else None
        raise refusal(reason or f"the agent answered with status {answer.status}")

    def _check_instance(self, instance: str) -> None:
        """Notice that another driver answers at the address, whose numbers mean something else."""
        if self._instance and instance != self._instance:
            self.gone = True
            raise NotThere(f"another application answers at {self.url}: the first has ended")
        self._instance = instance

    def clock(self) -> float:
        """The driver's time, Unix seconds; this machine's before the first answer.

        It goes on with a clock that nobody can set, so it does not matter what happens to this
        machine's.
        """
        low_s, high_s = self._ahead_s
        if math.isinf(low_s):
            return time.time()
        return time.monotonic() + (low_s + high_s) / 2

    def _compare_clocks(self, text: str | None, began_s: float) -> None:
        """Narrow down how much the driver's clock is ahead, by the time that an answer has.

        It is from between the request and its answer. If that contradicts what was known, the
        driver's clock was set or has drifted, or this machine was suspended: only the new counts.
        """
        said_ms = natural(text or "")
        if said_ms is None:
            return
        said_s = said_ms / 1000
        new = (said_s - time.monotonic(), said_s + 0.001 - began_s)  # it is rounded down
        both = (max(new[0], self._ahead_s[0]), min(new[1], self._ahead_s[1]))
        self._ahead_s = both if both[0] <= both[1] else new

    def _exchange(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """One request; a kept connection that the agent has closed meanwhile is opened again."""
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is not None:
            try:
                return self._on(kept, method, path, body, headers)
            except CLOSED:
                pass
        return self._on(self._connect(), method, path, body, headers)

    def _on(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: str | None,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._local.connection = None
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            text = answer.read()
        except BaseException:
            connection.close()
            raise
        self._local.connection = connection
        return answer, text

    def _connect(self) -> http.client.HTTPConnection:
        kind: Any = http.client.HTTPConnection
        more: dict[str, Any] = {}
        if self._tls is not None:
            kind, more = http.client.HTTPSConnection, {"context": self._tls}
        connection: http.client.HTTPConnection = kind(
            self.host, self.port, timeout=TIMEOUT_S, **more
        )
        try:
            connection.connect()
        except ssl.SSLError:
            raise
        except ConnectionRefusedError:
            now_s = time.monotonic()
            self._refused_s = self._refused_s or now_s
            # On this machine nobody listens; elsewhere it may be a service that moves.
            self.gone = self.gone or self._near or now_s - self._refused_s > REFUSED_S
            raise NotThere(f"nobody answers at {self.url}: the application has ended") from None
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise NotThere(f"nobody answers at {self.url}: {why}") from None
        return connection


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
