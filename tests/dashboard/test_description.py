"""The OpenAPI description has every route, with what it takes and what it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tidegate.dashboard.app import make_app
from tidegate.dashboard.journals import JournalList
from tidegate.dashboard.security import Access

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"
TOKEN = "described-and-described"


def the_app(access: Access | None = None) -> FastAPI:
    return make_app(JournalList([]), access or Access(None, True, TOKEN, 1))


def undescribed(app: FastAPI) -> list[str]:
    """Routes without a description, or that read a body of which it says nothing."""
    paths = app.openapi()["paths"]
    found = []
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        for method in sorted(route.methods or ()):
            said = paths.get(route.path, {}).get(method.lower(), {})
            if not said.get("description") or (method == "POST" and "requestBody" not in said):
                found.append(f"{method} {route.path}")
    return found


def test_every_route_is_described() -> None:
    app = the_app()
    assert undescribed(app) == []
    others = {getattr(route, "path", "") for route in app.routes if not isinstance(route, APIRoute)}
    assert others == {"/static", "/api/openapi.json"}

    @app.get("/api/new")
    def new() -> Any: ...

    @app.post("/api/other")
    def other() -> Any:
        """It says nothing about its body."""

    app.openapi_schema = None
    assert undescribed(app) == ["GET /api/new", "POST /api/other"]


def test_the_guide_lists_what_is_described() -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("## HTTP interface")[2]
    for path in the_app().openapi()["paths"]:
        if path.startswith(("/api/", "/events/")):
            shown = path.replace("{number}", "N").replace("{index}", "I").removesuffix("/raw")
            assert f"`{shown}" in text, path
    assert "`/api/openapi.json`" in text


@pytest.mark.parametrize(("loopback", "status"), [(True, 200), (False, 401)])
def test_who_may_look_may_read_the_description(loopback: bool, status: int) -> None:
    access = Access(None, True, TOKEN, 1) if loopback else Access(TOKEN, False, None, 1)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(the_app(access))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/api/openapi.json")

    answer = asyncio.run(ask())
    assert answer.status_code == status
    assert status != 200 or answer.json()["openapi"].startswith("3.")
