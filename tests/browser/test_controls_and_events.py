"""A loop that runs while one looks: controls with a question first, and an hour without leaking."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.help import Screen, opened, running_loop
from tests.dashboard.journals import TOKEN, repeated
from tidegate.codec import to_json
from tidegate.dashboard import serving
from tidegate.loop.controls import Control
from tidegate.loop.journal import Journal, read_journal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOUR = 3600


def asked(journal: Path) -> list[Control]:
    return [control for turn in read_journal(journal) for control in turn.controls]


def sign_in(screen: Screen) -> Page:
    """Look at a run, then enter the token for its controls."""
    page = screen.show("now")
    panel = page.locator("section[aria-labelledby=controls]")
    panel.get_by_text("Only who knows the token may use the controls.").wait_for()
    assert panel.locator("fieldset:not([disabled])").count() == 0
    panel.get_by_role("link", name="Enter the token").click()
    page.fill("#token", TOKEN)
    page.click("button")
    page.locator(".figure .value").first.wait_for()
    return page


def confirm(screen: Screen, button: str, word: str) -> None:
    """Press a button, and the word in the question that follows."""
    page = screen.page
    page.locator("section[aria-labelledby=controls]").get_by_role(
        "button", name=button, exact=True
    ).click()
    page.locator("dialog.confirm").get_by_role("button", name=word, exact=True).click()


def test_controls_ask_first_and_are_in_the_journal(browser: Browser, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    with (
        running_loop(journal),
        serving(journal, port=0, steering_token=TOKEN) as url,
        opened(browser, url) as screen,
    ):
        page = sign_in(screen)
        page.get_by_role("button", name="Pause scale-in").wait_for()
        confirm(screen, "Pause", "Cancel")
        confirm(screen, "Pause scale-in", "Pause scale-in")
        page.locator(".status .tag", has_text="scale-in paused").wait_for()
        confirm(screen, "Pause", "Pause")
        page.locator(".status .tag", has_text="paused").first.wait_for()
        page.locator("button[aria-pressed=true]", has_text="Pause").first.wait_for()
        confirm(screen, "Start dry run", "Start")
        page.locator(".status .tag", has_text="dry run").wait_for()
        page.locator("input[name=tolerance]").fill("0.2")
        confirm(screen, "Change …", "Change")
        page.locator(
            "li", has_text="decide by adaptive-provisioning with tolerance = 0.2"
        ).wait_for()
        page.locator("input[name=tolerance]").fill("many")
        confirm(screen, "Change …", "Change")
        page.get_by_text("Rejected: adaptive-provisioning: tolerance").wait_for()
        announced = page.locator("#announce")
        assert announced.get_attribute("aria-live") == "polite"
    wishes = [(control.do, control.value, control.refused) for control in asked(journal)]
    assert wishes == [
        ("pause", "in", ""),
        ("pause", "both", ""),
        ("dry-run", "on", ""),
        ("policy", "adaptive-provisioning", ""),
    ]


def test_the_policy_can_be_changed_while_it_runs(browser: Browser, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    with (
        running_loop(journal),
        serving(journal, port=0, steering_token=TOKEN) as url,
        opened(browser, url) as screen,
    ):
        page = sign_in(screen)
        page.locator("#policy").select_option("static")
        confirm(screen, "Change …", "Change")
        page.locator("li", has_text="decide by static").wait_for()
    policies = list(dict.fromkeys(turn.policy for turn in read_journal(journal)))
    assert policies == [
        "adaptive-provisioning → bounds(max_hosts=6)",
        "static → bounds(max_hosts=6)",
    ]


def test_a_recording_has_no_controls_and_says_why(screen: Screen) -> None:
    page = screen.show("now")
    page.get_by_text("Controls are disabled").wait_for()
    panel = page.locator("section[aria-labelledby=controls]")
    assert panel.locator("fieldset:not([disabled])").count() == 0
    assert panel.locator("form").count() == 0


def test_a_token_is_entered_once(browser: Browser, journals: dict[str, Path]) -> None:
    with serving(journals["drs"], port=0, token=TOKEN) as url:
        page = browser.new_page()
        try:
            page.goto(url)
            assert page.url == f"{url}login"
            page.fill("#token", "wrong")
            page.click("button")
            page.get_by_text("This token is not valid.").wait_for()
            page.fill("#token", TOKEN)
            page.click("button")
            page.locator(".figure .value").first.wait_for()
            assert page.url == url
        finally:
            page.close()


def size_of(session: Any) -> dict[str, float]:
    """Bytes of JavaScript's heap and nodes of the document, after collecting garbage."""
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    found = {metric["name"]: metric["value"] for metric in metrics}
    return {"heap": found["JSHeapUsedSize"], "nodes": found["Nodes"]}


@pytest.mark.parametrize("view", ["now", "timeline", "place"])
def test_an_hour_of_events_does_not_leak(
    browser: Browser, journals: dict[str, Path], tmp_path: Path, view: str
) -> None:
    turns = list(read_journal(journals["drs"]))[:60]
    lines = [to_json(turn) + "\n" for turn in repeated(turns, HOUR)]
    path = tmp_path / "hour.jsonl"
    Journal(path).close()
    path.write_text("".join(lines[:600]), encoding="utf-8")
    with serving(path, port=0) as url, opened(browser, url) as screen:
        page = screen.show(view)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def await_turn(number: int) -> None:
            page.wait_for_function(
                "n => document.querySelector('#status').innerText.includes(`turn ${n},`)",
                arg=number,
            )

        await_turn(600)
        early = size_of(session)
        with path.open("a", encoding="utf-8") as file:
            for start in range(600, HOUR, 100):
                file.write("".join(lines[start : start + 100]))
                file.flush()
                await_turn(start + 100)
        late = size_of(session)
        rows = page.evaluate(
            "import('/static/store.js').then((m) => [m.store.rows.index.length, m.MOST_ROWS])"
        )
    assert rows[0] <= rows[1] + 500
    assert late["nodes"] < 3 * early["nodes"] + 2000
    assert late["heap"] < early["heap"] + 12e6
