"""A page in a browser, as the tests and the pictures use it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidegate.loop.controller import Controller
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal
from tidegate.loop.stack import wrapped
from tidegate.policies import create
from tidegate.testing import engine_snapshot
from tidegate.testing.worlds import RecordedWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
VIEWS = ("now", "queries", "timeline", "place", "topology", "learning", "replay")
READY = {
    "now": ".figure .value",
    "queries": ".queries .card p",
    "timeline": ".marks g",
    "place": ".host",
    "topology": ".operator",
    "learning": ".heat td, .learning .card",
    "replay": ".sides .host",
}
"""What is there when a view is drawn."""
LIMIT_MS = 30_000
DESKTOP, PHONE = (1280, 900), (375, 812)


def find_browser() -> str | None:
    """The system's Chromium, None when there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Screen:
    """A page of the dashboard. url: where it is served; complaints: errors that it made."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def show(self, view: str, journal: int = 0) -> Page:
        """Go to a view of a journal and wait until it is drawn."""
        page = self.page
        page.goto(f"{self.url}#{view}")
        page.locator("#journal option").nth(journal).wait_for(state="attached")
        if page.locator("#journal").input_value() != str(journal):
            page.select_option("#journal", str(journal))
        page.wait_for_function(
            "n => document.querySelector('#journal').value === String(n)", arg=journal
        )
        page.locator(f".view.{view}").wait_for()
        page.locator(READY[view]).first.wait_for()
        return page


@contextmanager
def opened(
    browser: Browser,
    url: str,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    motion: Literal["reduce", "no-preference"] = "reduce",
) -> Iterator[Screen]:
    """A fresh page; what goes wrong on it is an error at the end."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion=motion
    )
    try:
        screen = Screen(context.new_page(), url)
        screen.page.goto(url)
        screen.page.locator("#journal option").first.wait_for(state="attached")
        yield screen
        assert not screen.complaints, screen.complaints
    finally:
        context.close()


@contextmanager
def running_loop(journal: Path) -> Iterator[Controller]:
    """A real control loop that turns ten times a second and listens to controls."""
    rates = cycle([15_000, 30_000, 30_000, 18_000])
    seen = (
        replace(engine_snapshot(rate, [10_000, 10_000]), time_s=1e6 + n)
        for n, rate in enumerate(rates)
    )
    policy = wrapped(create("adaptive-provisioning"), {"bounds": {"max_hosts": 6}})
    stop = threading.Event()
    file = ControlFile(journal, policy)
    with Journal(journal) as written:
        loop = Controller(RecordedWorld(seen), policy, written, controls=file)

        def turn() -> None:
            while not stop.is_set():
                loop.step()
                stop.wait(0.1)

        thread = threading.Thread(target=turn, daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            stop.set()
            thread.join(20)
            file.close()
