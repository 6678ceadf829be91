"""Where a server of Tidegate listens, and who may connect: one set of rules for all of them.

Loopback is the default. Any other address requires a token, which is compared in constant time. TLS
is optional: in a cluster, scrapers often send the token over plain HTTP, so that is allowed with a
warning.
"""

from __future__ import annotations

import hmac
import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from os import PathLike
from pathlib import Path

from tidegate.errors import InputError
from tidegate.units import finite, natural

__all__ = [
    "SHORTEST_TOKEN",
    "Listening",
    "check_place",
    "check_token",
    "is_loopback",
    "names_loopback",
    "read_address",
    "same_token",
    "shown_place",
]

log = logging.getLogger(__name__)

SHORTEST_TOKEN = 12
"""Number of characters of the shortest token that is accepted."""
MOST_ROUNDS = 10
"""A handshake of TLS needs two or three rounds."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")


def names_loopback(host_header: str) -> bool:
    """Whether the header ``Host`` of a request names this machine, with or without a port.

    A page of another site whose name leads to this machine (DNS rebinding) sends its own name.

    >>> names_loopback("localhost:8080"), names_loopback("[::1]:80"), names_loopback("evil.example")
    (True, True, False)
    """
    match = _HOST.fullmatch(host_header.lower())
    return match is not None and is_loopback(match[1] or match[2])


def read_address(text: str, option: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; the address of IPv6 is in brackets.

    >>> read_address("0.0.0.0:9464", "--metrics-address"), read_address("[::]:0", "--address")
    (('0.0.0.0', 9464), ('::', 0))
    """
    host, _, port = text.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = natural(port)
    if not plain or number is None or (":" in plain and plain == host):
        remedy = "0.0.0.0:9464 listens on all addresses of IPv4, [::]:9464 on those of IPv6"
        raise InputError(option, text, "HOST:PORT", remedy)
    finite(number, option, low=0, high=65_535)
    return plain, number


_PLACE = re.compile(r"[a-z]+://(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::\d+(?!\w))?(?=\W|$)", re.IGNORECASE)


def shown_place(address: str) -> str:
    """Scheme, host and port of an address for messages: what surrounds them may be a secret.

    >>> shown_place("sc://h:1"), shown_place("sc://h:1/token=x"), shown_place("http://me:x@h:1")
    ('sc://h:1', 'sc://h:1…', '…')
    """
    found = _PLACE.match(address)
    if found is None or "@" in address:
        return "…"
    return found[0] if found[0] == address.rstrip("/") else f"{found[0]}…"


def check_place(address: str, key: str) -> None:
    """Raise InputError, without it, for an address that has a password or settings in it.

    key: what the address is, for the error.
    """
    if any(sign in address for sign in "@?#;"):
        remedy = "secrets come from the environment or a file"
        allowed = "an address without user, password and settings"
        raise InputError(key, shown_place(address), allowed, remedy)


def same_token(given: str, token: str) -> bool:
    """Whether two tokens are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def check_token(token: str, option: str) -> None:
    """Raise InputError, which does not show it, for a token that is short or no plain text."""
    if not (len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        allowed = f"at least {SHORTEST_TOKEN} characters of ASCII long"
        raise InputError(option, "…", allowed, "generate one with openssl rand -hex 16")


@dataclass(frozen=True, slots=True)
class Listening:
    """An address to listen on, and what a client needs.

    The settings are checked when it is made: a token that is missing or short, a certificate that
    cannot be read, does not match its key or has expired raises InputError.

    Args:
        host: Address to listen on. One that is not loopback requires a token.
        port: 0 for any free port.
        token: What clients send as ``Authorization: Bearer …``; None: nothing.
        certificate: PEM file with the certificate and its chain; None: no TLS.
        key: PEM file with the key, without a passphrase; None: it is in the certificate's file.
        prefix: How the options begin in errors, such as ``--metrics-``.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    prefix: str = field(default="--", repr=False, compare=False)

    def __post_init__(self) -> None:
        finite(self.port, f"{self.prefix}port", low=0, high=65_535)
        if self.token is not None:
            check_token(self.token, f"{self.prefix}token")
        elif not is_loopback(self.host):
            raise InputError(
                f"{self.prefix}host",
                self.host,
                "a loopback address without a token",
                f"other machines could connect: give a {self.prefix}token-file",
            )
        if self.certificate is not None:
            _context(self.certificate, self.key, self.prefix)
        elif self.key is not None:
            remedy = f"give the {self.prefix}certificate too"
            raise InputError(f"{self.prefix}key", str(self.key), "left out", remedy)

    @property
    def scheme(self) -> str:
        """The scheme of its URL, ``http`` or ``https``."""
        return "http" if self.certificate is None else "https"

    @property
    def shown_host(self) -> str:
        """The host as it is in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def tls(self) -> ssl.SSLContext | None:
        """The settings of TLS for a server, None without a certificate.

        Files that are renewed are read at the next connection. If they cannot be used, the
        certificate before them stays, with a warning.
        """
        if self.certificate is None:
            return None
        certificate, key, prefix = self.certificate, self.key, self.prefix
        return _renewed(certificate, key, lambda: _context(certificate, key, prefix))

    def is_named(self, host_header: str) -> bool:
        """Whether a request with this header ``Host`` is for it; any name is, beyond loopback."""
        return not is_loopback(self.host) or names_loopback(host_header)

    def admits(self, authorization: str) -> bool:
        """Whether a request with this header ``Authorization`` has the token."""
        if self.token is None:
            return True
        kind, _, word = authorization.partition(" ")
        return kind.lower() == "bearer" and same_token(word.strip(), self.token)

    def warn_if_readable(self, what: str) -> None:
        """Warn if the token can be read on the network. what: what is served, in the plural."""
        if self.certificate is None and not is_loopback(self.host):
            log.warning(
                "%s on %s are served without TLS, so others on the network can read the token: "
                "give a %scertificate and a %skey, or keep the network private",
                what,
                self.host,
                self.prefix,
                self.prefix,
            )


def _context(
    certificate: str | PathLike[str], key: str | PathLike[str] | None, prefix: str
) -> ssl.SSLContext:
    """A context that has served one client in this process, so the certificate can be used."""
    for name, path in (("certificate", certificate), ("key", key)):
        if path is not None:
            _check_readable(f"{prefix}{name}", path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    shown = certificate if key is None else key
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or ""
        if "MISMATCH" in reason:
            allowed, remedy = f"the key of {certificate}", "it belongs to another certificate"
            raise InputError(f"{prefix}key", str(shown), allowed, remedy) from None
        remedy = "convert it to PEM, the key without a passphrase"
        allowed = "a certificate and a key that OpenSSL can read"
        if reason:
            allowed += f" ({reason.lower().replace('_', ' ')})"
        both = str(certificate) if key is None else f"{certificate} with {key}"
        raise InputError(f"{prefix}certificate", both, allowed, remedy) from None
    try:
        _try_handshake(context, certificate)
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or (error.reason or "").lower().replace("_", " ")
        remedy = "renew or replace it"
        raise InputError(
            f"{prefix}certificate", str(certificate), f"one that clients accept ({why})", remedy
        ) from None
    return context


def _check_readable(option: str, path: str | PathLike[str]) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        why = error.strerror or "unreadable"
        raise InputError(option, str(path), "a readable PEM file", why) from None


def _try_handshake(context: ssl.SSLContext, certificate: str | PathLike[str]) -> None:
    """Connect a client in memory that trusts exactly this certificate; raises ssl.SSLError."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(certificate)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(down, up)
    server = context.wrap_bio(up, down, server_side=True)
    for _ in range(MOST_ROUNDS):
        waiting = 0
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return


def _renewed(
    certificate: str | PathLike[str],
    key: str | PathLike[str] | None,
    make: Callable[[], ssl.SSLContext],
) -> ssl.SSLContext:
    """A context that replaces itself at a handshake after its files have changed."""

    def version() -> tuple[tuple[int, int, int], ...]:
        try:
            stats = [Path(path).stat() for path in (certificate, key) if path is not None]
        except OSError:  # while they are replaced, one may be missing
            return ()
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)

    known = version()
    first = latest = make()

    def greet(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal known, latest
        try:
            now = version()
            if now != known:
                known = now
                latest = make()
        except InputError as error:
            log.warning("the certificate was replaced, and the one before it stays: %s", error)
        if latest is not context:
            connection.context = latest

    first.sni_callback = greet
    return first
