"""The page's server: static files, journals as JSON, and new turns as server-sent events."""

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

from fastapi import FastAPI, Request
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles

from tidegate.dashboard.journals import Book, Shelf
from tidegate.dashboard.security import COOKIE, Gatekeeper, Sentry
from tidegate.dashboard.view import columns
from tidegate.errors import BackendError, InputError

__all__ = ["make_app"]

log = logging.getLogger(__name__)

STATIC = Path(__file__).with_name("static")
LOOK_S = 0.25
KEEP_ALIVE_S = 15.0
MOST_POINTS = 4_000
MOST_WISH = 20_000
"""Bytes of a wish or a form at most."""


def make_app(shelf: Shelf, keeper: Gatekeeper, closing: threading.Event | None = None) -> FastAPI:
    """The application. shelf: what is shown; keeper: to whom; closing: set to end all streams."""
    end = closing or threading.Event()

    @asynccontextmanager
    async def watching(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_watch(shelf, end))
        yield
        end.set()
        await task

    app = FastAPI(
        title="Tidegate", docs_url=None, redoc_url=None, openapi_url=None, lifespan=watching
    )
    app.add_middleware(Sentry, keeper=keeper)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.exception_handler(InputError)
    async def wrong(request: Request, error: InputError) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(BackendError)
    async def impossible(request: Request, error: BackendError) -> Response:
        return JSONResponse({"error": str(error)}, 409)

    @app.get("/")
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.get("/healthz")
    async def health() -> Response:
        return JSONResponse({"ok": True})

    @app.get("/login")
    async def form(wrong: bool = False) -> Response:
        text = (STATIC / "login.html").read_text("utf-8")
        said = "That is not the token." if wrong else ""
        return HTMLResponse(text.replace("<!--said-->", said), 401 if wrong else 200)

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        fields = parse_qs((await _body(request)).decode("utf-8", "replace"))
        if not keeper.knows(fields.get("token", [""])[0]):
            await asyncio.sleep(0.5)  # makes guessing slow
            return RedirectResponse("/login?wrong=true", 303)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, keeper.session, httponly=True, samesite="strict")
        return answer

    @app.get("/api/journals")
    def journals() -> Any:
        return [{"id": n, **book.about()} for n, book in enumerate(shelf.books)]

    @app.get("/api/journals/{number}/series")
    def series(number: int, points: int = 1_500) -> Any:
        book = shelf.book(number)
        about = book.about()
        rows = book.series(max(10, min(MOST_POINTS, points)))
        return {**about, "rows": rows}

    @app.get("/api/journals/{number}/turns/{index}")
    def turn(number: int, index: int) -> Any:
        return shelf.book(number).turn(index)

    @app.get("/api/journals/{number}/turns/{index}/raw")
    def raw(number: int, index: int) -> Response:
        return Response(shelf.book(number).raw(index), media_type="application/json")

    @app.get("/api/journals/{number}/controls")
    def controls(number: int) -> Any:
        return shelf.book(number).controllable()

    @app.post("/api/journals/{number}/controls", status_code=202)
    async def ask(number: int, request: Request) -> Any:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "a wish is written in JSON"}, 415)
        try:
            wish = json.loads(await _body(request))
        except ValueError:
            raise InputError("wish", "…", "valid JSON") from None
        if not isinstance(wish, dict):
            raise InputError("wish", "…", "an object with do and value")
        control = await asyncio.to_thread(shelf.book(number).ask, wish, time.time())
        return {"asked": control.describe()}

    @app.get("/events/{number}")
    async def events(request: Request, number: int, after: str = "") -> Response:
        book = shelf.book(number)
        place = request.headers.get("last-event-id") or after
        stream = _events(book, place, request, end)
        return StreamingResponse(stream, media_type="text/event-stream")

    return app


async def _body(request: Any) -> bytes:
    """The body of a request; what is too long is not read to its end."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_WISH:
            raise InputError("body", "…", f"shorter than {MOST_WISH} bytes")
    return body


async def _watch(shelf: Shelf, end: threading.Event) -> None:
    """Take in what the journals gain, until the end."""
    while not end.is_set():
        try:
            busy = await asyncio.to_thread(shelf.refresh)
        except Exception:  # a disk that is gone for a moment: the page goes on
            log.exception("a journal could not be read")
            busy = False
        await asyncio.sleep(0 if busy else LOOK_S)


def _place(text: str) -> tuple[str, int]:
    """Edition and index out of an event's id; before everything when it is none.

    >>> _place("2xab-17"), _place("?")
    (('2xab', 17), ('', -1))
    """
    edition, _, index = text.partition("-")
    try:
        return edition, int(index)
    except ValueError:
        return "", -1


async def _events(book: Book, place: str, request: Any, end: threading.Event) -> AsyncIterator[str]:
    """New rows as they come, from a place on; ``begin`` when the journal is another one."""
    edition, index = _place(place)
    yield "retry: 1000\n\n"
    quiet_since = time.monotonic()
    while not end.is_set() and not await request.is_disconnected():
        if edition != book.edition:
            edition, index = book.edition, -1
            yield f"event: begin\nid: {edition}-{index}\ndata: {json.dumps(book.about())}\n\n"
        rows = book.after(index)
        if rows:
            index = rows[-1].index
            data = json.dumps({**book.about(), "rows": columns(rows)})
            yield f"event: turns\nid: {edition}-{index}\ndata: {data}\n\n"
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > KEEP_ALIVE_S:
            yield ": still here\n\n"
            quiet_since = time.monotonic()
        await asyncio.sleep(LOOK_S / 2)
