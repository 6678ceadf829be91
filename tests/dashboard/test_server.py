"""The server over a real socket: who may look, what it answers, and events that resume."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import self_signed
from tests.cli.helpers import tidegate
from tests.dashboard.journals import TOKEN, line
from tidegate.dashboard import limits, serving
from tidegate.dashboard.app import NO_SIGN_IN, SIGN_IN
from tidegate.dashboard.security import Access
from tidegate.errors import InputError
from tidegate.loop.controls import ControlFile
from tidegate.policies import create

BEARER = {"authorization": f"Bearer {TOKEN}"}
ODD = 'json={"a": 1, "b": [2]}; a[b]=c; alone; s=a b'
"""Cookies as other servers on this machine set them."""


class Page:
    """A journal with a server on it."""

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.url = path, url

        self.edition = ""

    def await_turns(self, count: int) -> Page:
        """Wait until the server has read so many."""
        for _ in range(600):
            (about,) = httpx.get(self.url + "api/journals", timeout=20).json()
            if about["turns"] == count:
                self.edition = about["edition"]
                return self
            time.sleep(0.05)
        raise AssertionError(f"{count} turns were not read in 30 s")

    def events(self, after: str = "", header: str = "") -> Generator[tuple[str, str, Any]]:
        """(event, id, data), until whoever reads has enough; a silent server is an error."""
        headers = {"last-event-id": header} if header else {}
        address = f"{self.url}events/0?after={after}"
        with httpx.stream("GET", address, headers=headers, timeout=20) as answer:
            found: dict[str, str] = {}
            end_s = time.monotonic() + 60
            for text in answer.iter_lines():
                assert time.monotonic() < end_s, "what was waited for did not come"
                if text:
                    key, _, value = text.partition(": ")
                    found[key] = value
                elif "event" in found:
                    yield found["event"], found["id"], json.loads(found["data"])
                    found = {}


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(line(n) for n in range(1, 6)))
    with serving(path, port=0, steering_token=TOKEN) as url:
        yield Page(path, url).await_turns(5)


@pytest.mark.parametrize("form", ["{}", ODD + "; {}", "{}; " + ODD])
def test_the_cookies_of_other_servers_do_not_hide_the_one_of_the_dashboard(form: str) -> None:
    access = Access(None, loopback=True, steering_token=TOKEN, port=8080)
    right = form.replace("{}", f"tidegate-8080={access.session}")
    assert access.may_steer({"cookie": right})
    assert not access.may_steer({"cookie": right.replace(access.session, "x")})
    assert not access.may_steer({"cookie": right.replace("8080", "8081")})


def numbers(page: Page, want: int, after: str = "", header: str = "") -> list[int]:
    """Turn numbers of the events, as soon as there are so many."""
    found: list[int] = []
    for event, _, data in page.events(after, header):
        if event == "turns":
            found += data["rows"]["number"]
        if len(found) >= want:
            break
    return found


def test_events_resume_where_they_were(page: Page) -> None:
    assert numbers(page, 5) == [1, 2, 3, 4, 5]
    it = page.edition
    assert numbers(page, 2, after=f"{it}-2") == [4, 5]
    assert numbers(page, 1, header=f"{it}-3") == [5]
    assert numbers(page, 1, after=f"{it}-0", header=f"{it}-3") == [5]  # the header knows better


def test_new_turns_come_by_themselves_and_half_lines_wait(page: Page) -> None:
    stream = page.events(after=f"{page.edition}-4")
    with page.path.open("ab") as file:
        file.write(line(6) + line(7)[:30])
        file.flush()
        event, place, data = next(stream)
        assert (event, place, data["rows"]["number"]) == ("turns", f"{page.edition}-5", [6])
        file.write(line(7)[30:])
    assert next(stream)[2]["rows"]["number"] == [7]
    stream.close()


def test_a_journal_that_is_begun_again_is_told(page: Page) -> None:
    old = page.edition
    stream = page.events(after=f"{old}-4")
    page.path.write_bytes(line(1, hosts=3))
    event, place, _ = next(stream)
    assert event == "begin"
    assert not place.startswith(old)
    while (news := next(stream))[0] == "begin":
        pass
    assert news[2]["rows"]["hosts"] == [3]
    stream.close()
    assert numbers(page, 1, after=f"{old}-4") == [1]  # an old place is no place in the new one


def test_every_answer_has_careful_headers(page: Page) -> None:
    for path in ("", "static/app.js", "api/journals", "static/none.js", "api/journals/9/series"):
        answer = httpx.get(page.url + path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy, path
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
    assert httpx.get(page.url + "api/journals").headers["cache-control"] == "no-store"
    assert httpx.get(page.url + "docs").status_code == 404


def test_nothing_on_the_page_comes_from_elsewhere() -> None:
    import tidegate.dashboard

    folder = Path(tidegate.dashboard.__file__).parent / "static"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        text = path.read_text("utf-8")
        outside = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, path
        assert text.count("\n") < 400, path


def test_other_names_of_this_machine_are_refused(page: Page) -> None:
    for host, status in (
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:80", 200),
        ("[::1]:80", 200),
    ):
        assert httpx.get(page.url, headers={"host": host}).status_code == status, host


def test_wishes_need_our_own_page_and_json(page: Page) -> None:
    path = page.url + "api/journals/0/controls"
    control = {"do": "pause", "value": "in"}
    foreign = {"origin": "http://evil.example"} | BEARER
    assert httpx.post(path, json=control, headers=foreign).status_code == 403
    elsewhere = {"sec-fetch-site": "cross-site"} | BEARER
    assert httpx.post(path, json=control, headers=elsewhere).status_code == 403
    text = {"content-type": "text/plain"} | BEARER
    assert httpx.post(path, content=json.dumps(control), headers=text).status_code == 415
    kind = {"content-type": "application/json"} | BEARER
    for body in (b"{", b" " * 30_000, b"[" * 10_000, b"[]"):
        assert httpx.post(path, content=body, headers=kind).status_code == 422, body[:9]
    answer = httpx.post(path, json=control, headers=BEARER)
    assert answer.status_code == 409
    assert "no loop is listening" in answer.json()["error"]


def test_a_wish_reaches_the_loop(page: Page) -> None:
    file = ControlFile(page.path, create("drs"))
    try:
        path = page.url + "api/journals/0/controls"
        assert httpx.get(path, headers=BEARER).json()["enabled"] is True
        answer = httpx.post(path, json={"do": "pause", "value": "in"}, headers=BEARER)
        assert (answer.status_code, answer.json()) == (202, {"asked": "pause scaling in"})
        bad = {"do": "policy", "value": "drs", "parameters": {"t_max_s": "soon"}}
        assert httpx.post(path, json=bad, headers=BEARER).status_code == 422
        more = {"do": "pause", "value": "both", "until": "noon"}
        refused = httpx.post(path, json=more, headers=BEARER)
        said = "a key of the control is 'until'; it must be do, value or parameters"
        assert (refused.status_code, refused.json()) == (422, {"error": said})
        (control,) = file.take()
        assert (control.do, control.value, control.asked_s > 0) == ("pause", "in", True)
    finally:
        file.close()


def test_everybody_may_look_and_only_who_knows_the_token_may_steer(page: Page) -> None:
    file = ControlFile(page.path, create("drs"))
    wish = {"do": "pause", "value": "both"}
    try:
        path = page.url + "api/journals/0/controls"
        port = httpx.URL(page.url).port
        shown = httpx.get(path).json()
        assert (shown["enabled"], shown["sign_in"], shown["why"]) == (False, True, SIGN_IN)
        almost = {"authorization": f"Bearer {TOKEN[:-1]}"}
        for headers in ({}, almost, {"cookie": "tidegate=x"}, {"cookie": f"tidegate-{port}=x"}):
            refused = httpx.post(path, json=wish, headers=headers)
            assert (refused.status_code, refused.json()) == (401, {"error": "a token is required"})
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "LOCK"):
            assert httpx.request(method, path, json=wish).status_code == 401, method
        assert file.take() == []
        signed = httpx.post(page.url + "login", data={"token": TOKEN})
        cookie = signed.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(f"tidegate-{port}="), "browsers send it to all ports"
        assert httpx.post(path, json=wish, headers={"cookie": cookie}).status_code == 202
        assert [control.value for control in file.take()] == ["both"]
    finally:
        file.close()


def test_without_any_token_nobody_can_steer(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(line(1))
    file = ControlFile(path, create("drs"))
    try:
        with serving(path, port=0) as url:
            controls = url + "api/journals/0/controls"
            shown = httpx.get(controls).json()
            assert (shown["enabled"], shown["sign_in"], shown["why"]) == (False, False, NO_SIGN_IN)
            for token in ("None", "x" * 12):
                headers = {"authorization": f"Bearer {token}"}
                asked = httpx.post(controls, json={"do": "pause", "value": "in"}, headers=headers)
                assert asked.status_code == 401
                assert (
                    httpx.post(url + "login", data={"token": token})
                    .headers["location"]
                    .startswith("/login")
                )
        assert file.take() == []
    finally:
        file.close()


def test_half_requests_and_large_headers_end_and_others_are_answered(
    page: Page, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("ERROR")
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 12)
    monkeypatch.setattr(limits, "REQUEST_S", 0.3)
    port = httpx.URL(page.url).port
    begun = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
    halves = (b"", b"GET / HTTP/1.1\r\nHost: loc", begun + b"token=")
    with ExitStack() as stack:
        held = []
        for number in range(30):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            one.sendall(halves[number % len(halves)])
            held.append(one)
        for one in held:  # each is closed, by the limit of connections or that of time
            with suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
        # Headers that never end are refused, also if they come quickly.
        endless = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        with suppress(ConnectionResetError, BrokenPipeError):
            endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for number in range(2 * limits.HEADER_BYTES // 50):
                endless.sendall(b"X-%06d: %s\r\n" % (number, b"x" * 40))
            assert b" 400 " in endless.recv(4096)
        assert httpx.get(page.url + "healthz").status_code == 200
        for size in (17_000, 70_000):
            sent = httpx.get(page.url + "healthz", headers={"x-large": "x" * size})
            assert sent.status_code in (400, 431), size
    assert not caplog.records, "a client that is slow is no error of the server"


def test_a_token_is_asked_for_and_never_in_an_address(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(line(1))
    with serving(path, port=0, token=TOKEN) as url:
        assert TOKEN not in url
        for place in ("api/journals", "events/0", "static/app.js", f"api/journals?token={TOKEN}"):
            assert httpx.get(url + place).status_code == 401, place
        page = httpx.get(url, headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert httpx.get(url + "login").status_code == 200
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(url + "api/journals", headers=bearer).status_code == 200
        almost = {"authorization": f"Bearer {TOKEN[:-1]}"}
        assert httpx.get(url + "api/journals", headers=almost).status_code == 401
        wrong = httpx.post(url + "login", data={"token": "wrong"})
        assert wrong.headers["location"] == "/login?wrong=true"
        right = httpx.post(url + "login", data={"token": TOKEN})
        cookie = right.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        jar = {"cookie": right.headers["set-cookie"].partition(";")[0]}
        assert httpx.get(url + "api/journals", headers=jar).status_code == 200
        forged = {"cookie": jar["cookie"].partition("=")[0] + "=x"}
        assert httpx.get(url + "api/journals", headers=forged).status_code == 401


def test_beyond_loopback_a_good_token_is_needed(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InputError, match="--token"), serving(tmp_path, host=host):
            pass
    with pytest.raises(InputError, match="at least 12"), serving(tmp_path, token="short"):
        pass
    access = Access(TOKEN, loopback=False)
    assert access.host_is_right({"host": "dashboard.example"})
    assert not access.admits({})


def test_it_serves_with_tls(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(line(1))
    pair = self_signed(tmp_path / "tls")
    trusting = ssl.create_default_context(cafile=str(pair.certificate))
    with (
        serving(tmp_path, port=0, token=TOKEN, certificate=pair.certificate, key=pair.key) as url,
        httpx.Client(verify=trusting, base_url=url) as client,
    ):
        assert url.startswith("https://127.0.0.1:")
        assert client.get("api/journals").status_code == 401
        right = client.post("login", data={"token": TOKEN})
        assert "secure" in right.headers["set-cookie"].lower(), "never over plain HTTP"
        assert client.get("api/journals").status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http"))
        assert client.get("healthz").status_code == 200
    with (
        pytest.raises(InputError, match="--key"),
        serving(tmp_path, certificate=pair.certificate, key=tmp_path / "none.key"),
    ):
        pass


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match="choose another --port"), serving(tmp_path, port=port):
            pass


def test_mistakes_on_the_command_line_end_in_a_sentence(tmp_path: Path) -> None:
    for arguments, said in (
        ([str(tmp_path / "none.jsonl")], "exists"),
        ([str(tmp_path), "--host", "0.0.0.0"], "--token"),
        ([str(tmp_path), "--slo", "soon"], "--slo"),
        ([str(tmp_path), "--token-file", str(tmp_path / "none")], "--token-file"),
        ([str(tmp_path), "--certificate", str(tmp_path / "none.pem")], "--certificate"),
        ([str(tmp_path), "--token", TOKEN], "No such option"),
    ):
        result = tidegate("dashboard", *arguments)
        assert result.returncode == 2
        assert said in result.stderr


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(line(1))
    command = [sys.executable, "-c", "from tidegate.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "dashboard", str(path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        kept = Path(process.stdout.readline().split()[-1])
        assert kept.is_relative_to(tmp_path / "state")
        assert kept.stat().st_mode & 0o777 == 0o600
        process.stdout.readline()  # how to end it: from here on a signal is heard
        assert httpx.get(url, timeout=20).status_code == 200
        token = kept.read_text().strip()
        signed = httpx.post(url + "login", data={"token": token}, timeout=20)
        assert signed.headers["location"] == "/"
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.wait()
