"""Who may look and who may steer, decided by the middleware alone, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegate.dashboard.security import HEADERS, Access, AccessMiddleware

TOKEN = "tide-and-gate-and-tide"
HOST = {"host": "localhost:8080"}
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGE = {"accept": "text/html,*/*"}


async def page(scope: Any, receive: Any, send: Any) -> None:
    """An application with a header of its own."""
    own = [(b"Cache-Control", b"max-age=60"), (b"x-page", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": own})
    await send({"type": "http.response.body", "body": b"page"})


def answer(
    access: Access, method: str = "GET", path: str = "/", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(n.replace("_", "-").encode(), v.encode("latin-1")) for n, v in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": given}
    asyncio.run(AccessMiddleware(page, access)(scope, None, send))
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    assert len(found) == len(sent[0]["headers"]), "no header twice"
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


OPEN = Access(None, loopback=True, steering_token=TOKEN, port=8080)
CLOSED = Access(TOKEN, loopback=False, port=8080)


@pytest.mark.parametrize(
    ("access", "method", "path", "headers", "status"),
    [
        (OPEN, "GET", "/", HOST, 200),
        (OPEN, "HEAD", "/", HOST, 200),
        (OPEN, "POST", "/", HOST, 401),
        (OPEN, "POST", "/", HOST | BEARER, 200),
        (OPEN, "DELETE", "/", HOST, 401),
        (OPEN, "GET", "/", {"host": "evil.example"}, 421),
        (OPEN, "GET", "/", {}, 421),
        (OPEN, "GET", "/", {"host": "[::1]evil"}, 421),
        (OPEN, "GET", "/", HOST | {"x": "x" * 16_300}, 200),
        (OPEN, "GET", "/", HOST | {"x": "x" * 16_400}, 431),
        (CLOSED, "GET", "/login", {f"x{n}": "x" * 1000 for n in range(17)}, 431),
        (OPEN, "GET", "/healthz", {"host": "evil.example"}, 421),
        (OPEN, "POST", "/login", HOST, 200),
        (OPEN, "POST", "/login", HOST | {"origin": "http://evil.example"}, 403),
        (OPEN, "POST", "/", HOST | BEARER | {"origin": "http://localhost:8080"}, 200),
        (OPEN, "POST", "/", HOST | BEARER | {"origin": "http://localhost:8081"}, 403),
        (OPEN, "POST", "/", HOST | BEARER | {"origin": "null"}, 403),
        (OPEN, "POST", "/", HOST | BEARER | {"sec_fetch_site": "cross-site"}, 403),
        (OPEN, "POST", "/", HOST | BEARER | {"sec_fetch_site": "same-site"}, 403),
        (OPEN, "POST", "/", HOST | BEARER | {"sec_fetch_site": "same-origin"}, 200),
        (OPEN, "POST", "/", HOST | BEARER | {"sec_fetch_site": "none"}, 200),
        (OPEN, "GET", "/", HOST | {"origin": "http://evil.example"}, 200),
        (CLOSED, "GET", "/", {"host": "any.example"}, 401),
        (CLOSED, "GET", "/", {"host": "any.example"} | BEARER, 200),
        (CLOSED, "GET", "/", {"authorization": f"bearer   {TOKEN} "}, 200),
        (CLOSED, "GET", "/", {"authorization": f"Basic {TOKEN}"}, 401),
        (CLOSED, "GET", "/", {"authorization": f"Bearer {TOKEN}x"}, 401),
        (CLOSED, "GET", "/", {"authorization": TOKEN}, 401),
        (CLOSED, "GET", "/", {"cookie": f"tidegate-8080={TOKEN}"}, 401),
        (CLOSED, "GET", "/", {"cookie": f"a b; tidegate-8080={CLOSED.session}"}, 200),
        (CLOSED, "GET", "/", {"cookie": f"tidegate-8081={CLOSED.session}"}, 401),
        (CLOSED, "GET", "/", {"cookie": f"tidegate-8080={OPEN.session}"}, 401),
        (CLOSED, "POST", "/", {"cookie": f"tidegate-8080={CLOSED.session}"}, 200),
        (CLOSED, "GET", "/", PAGE, 303),
        (CLOSED, "HEAD", "/", PAGE, 401),
        (CLOSED, "GET", "/login", {}, 200),
        (CLOSED, "GET", "/static/base.css", {}, 200),
        (CLOSED, "GET", "/static/page.js", {}, 401),
        (CLOSED, "GET", "/healthz", {}, 200),
    ],
)
def test_who_gets_which_answer(
    access: Access, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    found, sent, body = answer(access, method, path, **headers)
    assert found == status
    assert (body == b"page") == (status == 200)
    assert ("www-authenticate" in sent) == (status == 401)
    assert sent.get("location") == ("/login" if status == 303 else None)
    for name, value in HEADERS.items():
        own = name == "cache-control" and status == 200
        assert sent[name] == ("max-age=60" if own else value)


def test_without_a_token_nobody_steers_and_nobody_can_sign_in() -> None:
    access = Access(None, loopback=True)
    assert answer(access, **HOST)[0] == 200
    assert answer(access, "POST", **HOST | BEARER)[0] == 401
    assert not access.can_sign_in and not access.knows("")
    assert OPEN.can_sign_in and OPEN.knows(TOKEN) and not OPEN.knows(TOKEN[:-1])
    assert CLOSED.can_sign_in and CLOSED.knows(TOKEN)


def test_a_token_to_look_is_the_one_to_steer() -> None:
    access = Access(TOKEN, loopback=False, steering_token="another-token-here")
    assert access.knows(TOKEN) and not access.knows("another-token-here")
    assert access.cookie == "tidegate-0"


def test_what_is_no_request_passes() -> None:
    """The start and the end of the application are messages of another kind."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(AccessMiddleware(app, CLOSED)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]
