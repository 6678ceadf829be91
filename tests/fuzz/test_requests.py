"""Random requests to the dashboard: never an internal error, never a change without the token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import cases, within_limits
from tests.fuzz.damage import damaged
from tests.fuzz.test_files import journal_lines
from tidegate.dashboard.app import make_app
from tidegate.dashboard.journals import JournalList
from tidegate.dashboard.security import Access
from tidegate.loop.controls import ControlFile
from tidegate.policies import create

TOKEN = "fuzz-the-gate-fuzz"
BASE = "http://localhost"


class Served:
    """The application with a journal whose loop listens, without a server."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(journal_lines())
        self.controls = ControlFile(path, create("drs"))
        journals = JournalList([path])
        journals.refresh()
        self.app = make_app(journals, Access(None, True, TOKEN, 1))

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer to a request; an error of the server is status 500."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                return await client.request(method, path, **more)

        with within_limits():
            return asyncio.run(ask())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Served(tmp_path_factory.mktemp("served") / "run.jsonl")
    yield made
    made.controls.close()


numbers = st.integers() | st.sampled_from(["-1", "0", "1", "9" * 400, "nan", "", "%00", "..", "ü"])
paths = st.builds(
    str.format,
    st.sampled_from(
        ["/", "/{}", "/static/{}", "/api/journals", "/api/journals/{}/series?points={}",
         "/api/journals/{}/turns/{}", "/api/journals/{}/turns/{}/raw",
         "/api/journals/{}/controls", "/login?wrong={}", "/healthz", "/events/{}"]
    ),
    numbers,
    numbers,
)  # fmt: skip
headers = st.dictionaries(
    st.sampled_from(["cookie", "authorization", "origin", "host", "accept", "sec-fetch-site"]),
    st.sampled_from(
        ["", "x", "tidegate-1=x", "Bearer x", "bearer", "http://localhost", "localhost",
         "evil.example", "text/html", "cross-site", "[::1", "a=" + "b" * 500, ";;;="]
    ),
    max_size=3,
)  # fmt: skip
methods = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
BODY = b'{"do": "policy", "value": "drs", "parameters": {"t_max_s": "2s"}}'


@cases(0.3)
@given(method=methods, path=paths, headers=headers, body=damaged(BODY))
def test_a_stranger_gets_an_answer_and_changes_nothing(
    served: Served, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    if path.startswith("/events/0"):
        return  # it would not end
    given_headers = {"content-type": "application/json"} | headers
    answer = served.request(method, path, headers=given_headers, content=body)
    assert answer.status_code < 500, answer.text
    assert "content-security-policy" in answer.headers
    assert served.controls.take() == []


@cases(0.15)
@given(body=damaged(BODY))
def test_a_request_with_the_token_is_accepted_or_explained(served: Served, body: bytes) -> None:
    answer = served.request(
        "POST",
        "/api/journals/0/controls",
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
        content=body,
    )
    assert answer.status_code in (202, 409, 422), answer.text
    assert set(answer.json()) == {"asked" if answer.status_code == 202 else "error"}
    assert len(served.controls.take()) == (answer.status_code == 202)
