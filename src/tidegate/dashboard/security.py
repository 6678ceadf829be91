"""Who may look: a middleware that checks host, token and origin, and sets careful headers.

On loopback anybody on this machine may look, as with Spark's own pages, but no other site's page
may: the Host header must name this machine, so that a name that somebody points at 127.0.0.1 is of
no use, and a wish must come from our own page. Beyond loopback a token is needed: once in a form,
from then on in a cookie that scripts cannot read. It is never part of an address.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any

from tidegate.errors import InputError

__all__ = ["HEADERS", "Gatekeeper", "Sentry", "check_exposure", "is_loopback"]

COOKIE = "tidegate"
SHORTEST_TOKEN = 12
OPEN = ("/login", "/static/login.css", "/static/base.css", "/healthz")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not "no-referrer": with it a form of our own page would not say that it comes from us.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Raise InputError when others could look without a token, or by one that can be guessed."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        allowed = f"at least {SHORTEST_TOKEN} characters long"
        raise InputError("--token", "…", allowed, "openssl rand -hex 16 makes a good one")
    if token is None and not is_loopback(host):
        remedy = "others could look and steer: give a --token, or keep to 127.0.0.1"
        raise InputError("--host", host, "a loopback address without a token", remedy)


class Gatekeeper:
    """Knows who may come in. token: None: everybody who gets here; loopback: where it listens."""

    def __init__(self, token: str | None, loopback: bool) -> None:
        self._token = token
        self.loopback = loopback
        self.session = secrets.token_urlsafe(32)

    def knows(self, token: str) -> bool:
        """Whether it is the token; takes as long for a near miss as for any."""
        return self._token is not None and hmac.compare_digest(
            token.encode("utf-8", "replace"), self._token.encode()
        )

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request brings the token, or the cookie that was given for it."""
        if self._token is None:
            return True
        kind, _, word = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.knows(word.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode("utf-8", "replace"), self.session.encode()
        )

    def host_is_right(self, headers: Mapping[str, str]) -> bool:
        """Whether the name that was called is one of this machine, where that can be known."""
        if not self.loopback:
            return True
        name = headers.get("host", "").lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        return is_loopback(name)

    def origin_is_ours(self, headers: Mapping[str, str]) -> bool:
        """Whether a request that changes something comes from our own page, or from no page."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or origin.partition("://")[2] == headers.get("host")


class Sentry:
    """The middleware. app: what is protected; keeper: who may come in."""

    def __init__(self, app: Any, keeper: Gatekeeper) -> None:
        self.app = app
        self.keeper = keeper

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }

        async def careful(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (n.encode(), v.encode())
                        for n, v in HEADERS.items()
                        if n.encode() not in given
                    ),
                ]
            await send(message)

        refusal = self._refusal(scope, headers)
        await (refusal or self.app)(scope, receive, careful)

    def _refusal(self, scope: Any, headers: Mapping[str, str]) -> Any:
        from starlette.responses import PlainTextResponse, RedirectResponse

        if not self.keeper.host_is_right(headers):
            text = "This dashboard answers to localhost and 127.0.0.1 only."
            return PlainTextResponse(text, 421)
        if scope["method"] not in ("GET", "HEAD") and not self.keeper.origin_is_ours(headers):
            return PlainTextResponse("Only the dashboard's own page may do that.", 403)
        if scope["path"] in OPEN or self.keeper.admits(headers):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return PlainTextResponse("A token is needed.", 401, {"www-authenticate": "Bearer"})
