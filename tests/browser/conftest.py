"""One Chromium, from the system's packages, for all tests; without one each says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.help import Screen, find_browser, opened
from tests.browser.pictures import JOURNALS
from tidegate.dashboard import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium found: install chromium (make browser) to test the dashboard")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def address(journals: dict[str, Path]) -> Iterator[str]:
    """A dashboard of the simulated journals: 0 is drs, 1 btu, 2 sarsa, 3 has four queries."""
    with serving([journals[name] for name in JOURNALS], port=0) as url:
        yield url


@pytest.fixture
def screen(browser: Browser, address: str) -> Iterator[Screen]:
    """A desktop screen on it, light and without motion; errors on the page fail the test."""
    with opened(browser, address) as found:
        yield found
