"""Pictures of every view: those of the guide, and small ones that the tests compare with.

``make dashboard-pictures`` makes them anew, after a change of the looks that is meant.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.browser.help import DESKTOP, PHONE, VIEWS, Screen, find_browser, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
BASELINES = HERE / "baselines"
DOCS = HERE.parents[1] / "docs" / "img"
MODES: dict[str, tuple[tuple[int, int], Literal["light", "dark"]]] = {
    "light": (DESKTOP, "light"),
    "dark": (DESKTOP, "dark"),
    "phone": (PHONE, "light"),
}
JOURNALS = ("drs", "btu", "sarsa", "queries")
SMALLER = 8
"""A baseline has an eighth of the pixels each way: letters are gone, the layout is not."""
BLOCK = 4
INK = 6.0
"""Between the lightest and the darkest pixel of a block, of 255: what counts as ink."""
Image = NDArray[np.uint8]


def draw(screen: Screen, view: str) -> bytes:
    """A view as PNG, when it stands still: learning of sarsa, the replay of two journals."""
    page = screen.show(view, journal={"learning": 2, "queries": 3}.get(view, 0))
    if view == "queries":
        page.locator(".queries-table").wait_for()
    if view == "now":
        page.get_by_text("Controls are disabled").wait_for()
    if view == "replay":
        page.select_option("#other", label="btu")
        page.locator(".sides.two > section").nth(1).locator(".host").first.wait_for()
    page.mouse.move(0, 0)
    return page.screenshot(animations="disabled", caret="hide")


def small(png: bytes) -> Image:
    """A picture in an eighth of its width and height."""
    import cv2

    image: Any = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    size = (width // SMALLER, height // SMALLER)
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def difference(one: Image, other: Image) -> tuple[float, float]:
    """Mean difference of two small pictures, and the share of blocks where one alone has ink.

    A block is some 32 pixels of the screen wide: another font moves letters, not blocks; a chart
    that is gone leaves many of them empty.
    """
    if one.shape != other.shape:
        return 255.0, 1.0
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(apart.mean()), float((_ink(one) != _ink(other)).mean())


def _ink(image: Image) -> NDArray[np.bool_]:
    """Which blocks are not of one colour."""
    grey = image.astype(np.float64).mean(axis=2)
    rows, columns = (size // BLOCK for size in grey.shape)
    cut = grey[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK)
    return np.asarray(np.ptp(cut, axis=(1, 3)) > INK)


def baseline(view: str, mode: str) -> Path:
    """Where the small picture of a view lies."""
    return BASELINES / f"{view}-{mode}.png"


def make(browser: Browser, url: str) -> None:
    """Write all of them."""
    import cv2

    BASELINES.mkdir(exist_ok=True)
    DOCS.mkdir(parents=True, exist_ok=True)
    for mode, (size, scheme) in MODES.items():
        with opened(browser, url, size, scheme) as screen:
            for view in VIEWS:
                png = draw(screen, view)
                cv2.imwrite(str(baseline(view, mode)), small(png))
                if mode == "light" or (view, mode) in (("now", "phone"), ("timeline", "dark")):
                    (DOCS / f"dashboard-{view}-{mode}.png").write_bytes(png)


def main() -> None:
    """Make the pictures, with journals that the simulator writes."""
    from playwright.sync_api import sync_playwright

    from tests.dashboard.journals import make_journals
    from tidegate.dashboard import serving

    program = find_browser()
    if program is None:
        raise SystemExit("no Chromium found: run make browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        journals = make_journals(Path(folder))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with serving([journals[name] for name in JOURNALS], port=0) as url:
            make(browser, url)
        browser.close()


if __name__ == "__main__":
    main()
