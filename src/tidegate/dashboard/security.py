"""Access control: a middleware that checks host, token and origin, and sets security headers.

On loopback, every user of this machine may look, as with Spark's own pages. To steer, one needs the
token, since only the owner can write the control file next to the journal. Pages of other sites can
do neither: the Host header must name this machine, which rules out DNS rebinding, and a request
that changes something must come from the dashboard's own page. On other addresses, looking needs
the token, too. It is entered once in a form and then kept in a cookie that scripts cannot read. It
is never part of a URL.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from tidegate.listening import names_loopback, same_token

__all__ = ["HEADERS", "HEADER_BYTES", "Access", "AccessMiddleware"]

OPEN = ("/login", "/static/login.css", "/static/base.css", "/healthz")
HEADER_BYTES = 16_384
"""Largest size of a request's address and headers. The server stops reading headers that are longer
and not complete yet; those that came at once are counted here."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not "no-referrer": forms of the dashboard's own page must send their origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """Decides which requests are allowed.

    token: required for every request; None: everybody may look. loopback: whether the server
    listens on loopback only. steering_token: required to steer, where looking needs no token. port:
    of the server; browsers send a cookie to all ports of a machine, so its name has the port.
    """

    def __init__(
        self,
        token: str | None,
        loopback: bool,
        steering_token: str | None = None,
        port: int = 0,
    ) -> None:
        self._open = token is None
        self._token = steering_token if token is None else token
        self.loopback = loopback
        self.cookie = f"tidegate-{port}"
        self.session = secrets.token_urlsafe(32)

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a token at all."""
        return self._token is not None

    def knows(self, token: str) -> bool:
        """Return whether this is the token, in constant time."""
        return self._token is not None and same_token(token, self._token)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request may look."""
        return self._open or self.may_steer(headers)

    def may_steer(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the token, or the cookie that was set for it."""
        kind, _, word = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.knows(word.strip()):
            return True
        from starlette.requests import cookie_parser  # on first use, like all of Starlette

        # A browser sends the cookies of all servers on this machine. The parser in the standard
        # library gives up at the first one that it does not understand.
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie)
        return cookie is not None and same_token(cookie, self.session)

    def host_is_right(self, headers: Mapping[str, str]) -> bool:
        """Return whether the Host header names this machine; always true beyond loopback."""
        return not self.loopback or names_loopback(headers.get("host", ""))

    def origin_is_ours(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request comes from the dashboard's own page, or from no page."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or origin.partition("://")[2] == headers.get("host")


class AccessMiddleware:
    """The middleware. app: the application that is protected."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }

        async def with_headers(message: Any) -> None:
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
        await (refusal or self.app)(scope, receive, with_headers)

    def _refusal(self, scope: Any, headers: Mapping[str, str]) -> Any:
        from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse

        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        if size + sum(len(n) + len(v) + 4 for n, v in scope["headers"]) > HEADER_BYTES:
            return PlainTextResponse(f"Headers must be shorter than {HEADER_BYTES} bytes.", 431)
        if not self.access.host_is_right(headers):
            text = "This dashboard can be opened at localhost and 127.0.0.1 only."
            return PlainTextResponse(text, 421)
        changes = scope["method"] not in ("GET", "HEAD")
        if changes and not self.access.origin_is_ours(headers):
            return PlainTextResponse("Only the dashboard's own page may send this request.", 403)
        if scope["path"] in OPEN:
            return None
        if changes and not self.access.may_steer(headers):
            return JSONResponse(
                {"error": "a token is required"}, 401, {"www-authenticate": "Bearer"}
            )
        if self.access.admits(headers):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return PlainTextResponse("A token is required.", 401, {"www-authenticate": "Bearer"})
