"""Each view looks as it did: small pictures compared with those that were accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.help import VIEWS, opened
from tests.browser.pictures import MODES, Image, baseline, difference, draw, small

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST_MEAN, MOST_BLOCKS = 6.0, 0.12
"""What another font, or another rounding of the simulator, may change."""


def accepted(view: str, mode: str) -> Image:
    path = baseline(view, mode)
    assert path.exists(), "run make dashboard-pictures"
    import cv2

    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    assert image is not None
    return image.astype("uint8")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_looks_as_it_did(browser: Browser, address: str, view: str, mode: str) -> None:
    size, scheme = MODES[mode]
    with opened(browser, address, size, scheme) as screen:
        seen = small(draw(screen, view))
    mean, blocks = difference(seen, accepted(view, mode))
    assert mean < MOST_MEAN, f"{mean:.1f}; if it is meant to look so: make dashboard-pictures"
    assert blocks < MOST_BLOCKS, f"{blocks:.0%}; if it is meant to look so: make dashboard-pictures"


@pytest.mark.parametrize("mode", MODES)
def test_the_comparison_tells_views_apart(mode: str) -> None:
    for view, other in zip(VIEWS, (*VIEWS[1:], VIEWS[0]), strict=True):
        mean, blocks = difference(accepted(view, mode), accepted(other, mode))
        assert mean > MOST_MEAN or blocks > MOST_BLOCKS, (view, other)


def test_the_comparison_notices_that_something_is_gone() -> None:
    whole = accepted("timeline", "light")
    empty = whole.copy()
    empty[25:85, 5:155] = empty[24, 6]  # the charts
    mean, blocks = difference(whole, empty)
    assert mean > MOST_MEAN or blocks > MOST_BLOCKS
