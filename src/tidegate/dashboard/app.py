"""The web server: static files, journals as JSON, and new turns as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tidegate.dashboard import description
from tidegate.dashboard.journals import JournalList, NotFoundError, WatchedJournal
from tidegate.dashboard.security import Access, AccessMiddleware
from tidegate.dashboard.view import columns
from tidegate.errors import LONGEST_SENTENCE, BackendError, InputError

__all__ = ["make_app"]

log = logging.getLogger(__name__)

STATIC = Path(__file__).with_name("static")
POLL_S = 0.25
KEEP_ALIVE_S = 15.0
MOST_POINTS = 4_000
GUESS_S = 0.5
"""An answer to a wrong token takes this long, in seconds, which slows down guessing."""
MOST_BYTES = 20_000
"""Upper limit of a request body."""
SIGN_IN = "Only who knows the token may use the controls."
NO_SIGN_IN = "Controls are disabled: this dashboard was started without a token for them."


def make_app(shown: JournalList, access: Access, closing: threading.Event | None = None) -> FastAPI:
    """Return the application. closing: an event that ends all streams when it is set."""
    end = closing or threading.Event()

    @asynccontextmanager
    async def watching(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_watch(shown, end))
        yield
        end.set()
        await task

    app = FastAPI(
        title="Tidegate's dashboard",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=description.ANSWERS,
        lifespan=watching,
    )
    app.add_middleware(AccessMiddleware, access=access)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    _explain_errors(app)
    _add_pages(app, access)

    @app.get("/api/journals", responses={200: description.JOURNALS})
    def journals() -> Any:
        """The journals that are shown."""
        return [{"id": n, **journal.about()} for n, journal in enumerate(shown.journals)]

    @app.get("/api/journals/{number}/series", responses={200: description.SERIES})
    def series(number: int, points: int = 1_500) -> Any:
        """All of a journal in about `points` points, between 10 and 4,000."""
        journal = shown.journal(number)
        return {**journal.about(), "rows": journal.series(max(10, min(MOST_POINTS, points)))}

    @app.get("/api/journals/{number}/turns/{index}", responses={200: description.TURN})
    def turn(number: int, index: int) -> Any:
        """A turn in full, by its position in the journal, from 0."""
        return shown.journal(number).turn(index)

    @app.get("/api/journals/{number}/turns/{index}/raw")
    def raw(number: int, index: int) -> Response:
        """A turn as a whole line of the journal."""
        return Response(shown.journal(number).raw(index), media_type="application/json")

    @app.get("/api/journals/{number}/controls", responses={200: description.CONTROLS})
    def controls(number: int, request: Request) -> Any:
        """The controls that can be used."""
        found = shown.journal(number).controllable()
        if not found["enabled"] or access.may_steer(request.headers):
            return {**found, "sign_in": False}
        why = NO_SIGN_IN if not access.can_sign_in else SIGN_IN
        return {**found, "enabled": False, "why": why, "sign_in": access.can_sign_in}

    @app.post(
        "/api/journals/{number}/controls",
        status_code=202,
        # It is described here and checked by the middleware, as for every request.
        dependencies=[Security(HTTPBearer(scheme_name="token", auto_error=False))],
        **description.CONTROL,
    )
    async def ask(number: int, request: Request) -> Any:
        """Ask the loop to pause, to run dry, or to switch to another policy."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "the request body must be JSON"}, 415)
        try:
            plain = json.loads(await _body(request))
        except (ValueError, RecursionError):
            raise InputError("request", "…", "valid JSON") from None
        if not isinstance(plain, dict):
            raise InputError("request", "…", "an object with do and value")
        control = await asyncio.to_thread(shown.journal(number).request, plain, time.time())
        return {"asked": control.describe()}

    @app.get(
        "/events/{number}", response_class=StreamingResponse, responses={200: description.EVENTS}
    )
    async def events(request: Request, number: int, after: str = "") -> Response:
        """New rows as server-sent events. after: the id of the last event that was seen."""
        journal = shown.journal(number)
        place = request.headers.get("last-event-id") or after
        stream = _events(journal, place, request, end)
        return StreamingResponse(stream, media_type="text/event-stream")

    return app


def _explain_errors(app: FastAPI) -> None:
    """Answer every error with a sentence."""

    @app.exception_handler(InputError)
    async def wrong(request: Request, error: InputError) -> Response:
        return _refusal(error, 404 if isinstance(error, NotFoundError) else 422)

    @app.exception_handler(BackendError)
    async def impossible(request: Request, error: BackendError) -> Response:
        return _refusal(error, 409)

    @app.exception_handler(RequestValidationError)
    async def wrong_part(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        allowed = "a whole number" if "int" in first["type"] else "true or false"
        return _refusal(InputError(str(first["loc"][-1]), first["input"], allowed), 422)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _add_pages(app: FastAPI, access: Access) -> None:
    """Add what a browser opens."""

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        """The page, which reads everything else by this interface."""
        return FileResponse(STATIC / "index.html")

    @app.get("/healthz")
    async def health() -> Response:
        """Whether the server answers; needs no token."""
        return JSONResponse({"ok": True})

    @app.get("/login", response_class=HTMLResponse, responses={401: description.WRONG})
    async def form(wrong: bool = False) -> Response:
        """The form for the token. wrong: whether the last one was not valid."""
        text = (STATIC / "login.html").read_text("utf-8")
        message = "This token is not valid." if wrong else ""
        return HTMLResponse(text.replace("<!--message-->", message), 401 if wrong else 200)

    @app.post("/login", status_code=303, response_class=RedirectResponse, **description.FORM)
    async def log_in(request: Request) -> Response:
        """Sign in with the token, which a cookie then stands for."""
        fields = parse_qs((await _body(request)).decode("utf-8", "replace"))
        if not access.knows(fields.get("token", [""])[0]):
            await asyncio.sleep(GUESS_S)
            return RedirectResponse("/login?wrong=true", 303)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            access.cookie, access.session, httponly=True, samesite="strict", secure=secure
        )
        return answer


def _refusal(error: Exception, status: int) -> Response:
    text = str(error)
    if len(text) > LONGEST_SENTENCE:
        text = text[: LONGEST_SENTENCE - 1] + "…"
    return JSONResponse({"error": text}, status)


async def _body(request: Any) -> bytes:
    """Read the body of a request; raises InputError if it is too long, or does not come in time."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise InputError("body", "…", f"shorter than {MOST_BYTES} bytes")
    except ClientDisconnect:  # or the time is over; nobody reads the answer
        raise InputError("body", "…", "sent as a whole, and in time") from None
    return body


async def _watch(shown: JournalList, end: threading.Event) -> None:
    """Read the journals as they grow, until `end` is set."""
    while not end.is_set():
        try:
            busy = await asyncio.to_thread(shown.refresh)
        except Exception:  # such as a disk that is away for a moment
            log.exception("cannot read a journal")
            busy = False
        await asyncio.sleep(0 if busy else POLL_S)


def _place(text: str) -> tuple[str, int]:
    """Return the edition and index in the id of an event; the start if it has none.

    >>> _place("2xab-17"), _place("?")
    (('2xab', 17), ('', -1))
    """
    edition, _, index = text.partition("-")
    try:
        return edition, int(index)
    except ValueError:
        return "", -1


async def _events(
    journal: WatchedJournal, place: str, request: Any, end: threading.Event
) -> AsyncIterator[str]:
    """Yield new rows as events, from a place on; ``begin`` when the file was replaced."""
    edition, index = _place(place)
    yield "retry: 1000\n\n"
    quiet_since = time.monotonic()
    while not end.is_set() and not await request.is_disconnected():
        if edition != journal.edition:
            edition, index = journal.edition, -1
            yield f"event: begin\nid: {edition}-{index}\ndata: {json.dumps(journal.about())}\n\n"
        rows = journal.after(index)
        if rows:
            index = rows[-1].index
            data = json.dumps({**journal.about(), "rows": columns(rows)})
            yield f"event: turns\nid: {edition}-{index}\ndata: {data}\n\n"
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > KEEP_ALIVE_S:
            yield ": keep-alive\n\n"
            quiet_since = time.monotonic()
        await asyncio.sleep(POLL_S / 2)
