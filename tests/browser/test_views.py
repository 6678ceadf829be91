"""Each view shows what it must, in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.help import PHONE, VIEWS, Screen, opened
from tidegate.dashboard import serving
from tidegate.dashboard.view import Row, RowBuilder
from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.model import Deployment, Plan
from tidegate.model.steps import Step
from tidegate.testing import engine_snapshot

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def rows_of(path: Path) -> list[Row]:
    chronicle = RowBuilder()
    return [chronicle.add(turn) for turn in read_journal(path)]


def rescales(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.change and row.change.before != row.change.after]


def test_now_says_why_the_last_scaling_happened(screen: Screen, journals: dict[str, Path]) -> None:
    page = screen.show("now")
    last = rescales(rows_of(journals["drs"]))[-1].change
    assert last is not None
    hero = page.locator(".hero").inner_text()
    assert last.what in hero
    assert last.why in hero
    titles = page.locator(".figure h3").all_inner_texts()
    assert titles == [
        "Input rate",
        "Latency, p95",
        "Backlog",
        "Hosts",
        "Utilisation",
        "Cost so far",
    ]
    text = page.locator(".cards").inner_text()
    for word in ("capacity", "SLO of", "p50", "p99", "per hour now", "paid for"):
        assert word in text
    assert page.locator(".decisions li").count() == 6


def test_queries_are_shown_apart_the_worst_first(screen: Screen) -> None:
    page = screen.show("queries", journal=3)
    names = page.locator(".queries-table tbody th").all_inner_texts()
    assert [name.split("\n")[0] for name in names] == ["sessions", "audit", "alerts", "dead-letter"]
    text = page.locator(".queries").inner_text()
    for words in (
        "1 of 3 beyond the SLO: sessions (at least 44 s against 30 s)",
        "the source admits at most 5,000 rows a batch (maxOffsetsPerTrigger=5000)",
        "no rows",
        "uncertain: rows",
        "640 MB",
        "Decision of turn 28",
        "more executors do not help",
    ):
        assert words in text, words
    page = screen.show("now", journal=3)
    assert "1 of 3 queries beyond their SLO" in page.locator(".cards").inner_text()


def test_a_journal_without_queries_says_so(screen: Screen) -> None:
    assert "no queries" in screen.show("queries").locator(".queries").inner_text()


def test_a_decision_opens_with_all_that_led_to_it(
    screen: Screen, journals: dict[str, Path]
) -> None:
    page = screen.show("timeline")
    rows = rows_of(journals["drs"])
    marks = page.locator(".marks g[role=option]")
    assert marks.count() == sum(row.change is not None for row in rows)
    first = rescales(rows)[0]
    page.locator(f"#mark-{first.index}").click(force=True)
    sheet = page.locator("dialog.sheet")
    sheet.get_by_role("heading", name=f"Turn {first.number}").wait_for()
    text = sheet.inner_text()
    assert first.change is not None
    assert first.change.what in text
    for word in (
        "target of the policy",
        "planned",
        "Reasons",
        "Predicted effect",
        "Measured effect",
        "Snapshot",
        "Decided by",
    ):
        assert word in text, word
    page.keyboard.press("Escape")
    sheet.wait_for(state="hidden")
    assert len(page.locator(".timeline .chart").all()) == 3


def test_the_time_line_is_usable_by_keyboard(screen: Screen) -> None:
    page = screen.show("timeline")
    strip = page.locator(".marks")
    strip.focus()
    page.keyboard.press("End")
    last = strip.get_attribute("aria-activedescendant")
    page.keyboard.press("ArrowLeft")
    before = strip.get_attribute("aria-activedescendant")
    assert last
    assert before
    assert last != before
    label = page.locator(f"#{before}").get_attribute("aria-label")
    page.keyboard.press("Enter")
    sheet = page.locator("dialog.sheet")
    sheet.locator(".sentence").wait_for()
    said = sheet.locator(".sentence").inner_text()
    assert label is not None
    assert said in label
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Close"
    page.keyboard.press("Enter")
    sheet.wait_for(state="hidden")


def test_hosts_are_filled_by_how_busy_they_are(screen: Screen, journals: dict[str, Path]) -> None:
    page = screen.show("place")
    now = list(read_journal(journals["drs"]))[-1].snapshot
    assert now is not None
    boxes = page.locator(".host")
    assert boxes.count() == len(now.hosts)
    assert page.locator("[data-instance]").count() == len(now.instances)
    for host in now.hosts:
        box = page.locator(f"[data-host='{host.id}']")
        share = box.evaluate("box => box.querySelector('.level').offsetHeight / box.clientHeight")
        assert share == pytest.approx(min(1.0, host.utilisation or 0.0), abs=0.03)
        assert box.locator("svg.ring").count() == 1
        assert "paid time left" in (box.get_attribute("aria-label") or "")


def test_hosts_have_the_names_of_their_executors(browser: Browser, tmp_path: Path) -> None:
    snapshot = engine_snapshot(30_000, [10_000, 10_000])
    one, two = snapshot.hosts
    hosts = (
        replace(one, executor="4", address="10.0.0.7", pod="job-1a2b-exec-4"),
        replace(two, executor="5", address="10.0.0.8", status="draining", excluded=True),
    )
    with Journal(tmp_path / "run.jsonl") as journal:
        for number in (1, 2):
            seen = replace(snapshot, hosts=hosts, time_s=10.0 * number)
            outcome = Outcome((Step("lease", host=f"host-{number + 2}"),))
            journal.write(Turn(number, "static", seen, Plan(Deployment(("host-1",))), outcome))
    with serving(tmp_path / "run.jsonl", port=0) as url, opened(browser, url) as screen:
        page = screen.show("place")
        boxes = page.locator("article.host")
        assert boxes.nth(0).get_attribute("title") == "executor 4, job-1a2b-exec-4"
        assert "excluded by Spark" in boxes.nth(1).inner_text()
        page = screen.show("timeline")
        page.locator(".marks g[role=option]").first.click(force=True)
        details = page.locator("dialog.sheet details", has_text="2 hosts")
        details.locator("summary").click()
        rows = details.locator("tbody tr").all_inner_texts()
        assert [row.split("\t")[-2:] for row in rows] == [
            ["4", "job-1a2b-exec-4"],
            ["5", "10.0.0.8"],
        ]
        assert not screen.complaints


def test_offered_dropped_and_processed_are_three_figures(browser: Browser, tmp_path: Path) -> None:
    snapshot = engine_snapshot(30_000, [10_000, 10_000])
    readings = tuple(
        replace(
            reading, arrival_rate_per_s=30_000.0, processed_per_s=20_000.0, dropped_per_s=9_500.0
        )
        for reading in snapshot.operators
    )
    with Journal(tmp_path / "run.jsonl") as journal:
        for number in (1, 2):
            seen = replace(snapshot, operators=readings, time_s=10.0 * number)
            plan = Plan(Deployment(("host-1",)), shed_fraction=0.3)
            outcome = Outcome((Step("lease", host=f"host-{number + 2}"),))
            journal.write(Turn(number, "adaptive-provisioning", seen, plan, outcome))
    with serving(tmp_path / "run.jsonl", port=0) as url, opened(browser, url) as screen:
        page = screen.show("timeline")
        page.locator(".marks g[role=option]").first.click(force=True)
        section = page.locator("dialog.sheet section", has_text="Dropped items")
        assert "30 % of the input is dropped" in section.inner_text().replace("\u00a0", " ")
        cells = section.locator("tbody td").all_inner_texts()
        assert cells[-3:] == ["30 k/s", "9500/s", "20 k/s"]
        assert not screen.complaints


def test_moves_are_animated_unless_one_asks_for_calm(browser: Browser, address: str) -> None:
    script = """async () => {
        const { drawHosts } = await import('/static/hosts.js');
        const root = document.createElement('div');
        root.className = 'hosts';
        document.querySelector('main').replaceChildren(root);
        const host = (id, instances) => ({ id, status: 'running', utilisation: .5, cores: 4,
            lease_left_s: 30, lease_unit_s: 60,
            instances: instances.map((id) => ({ id, operator: id, status: 'running' })) });
        drawHosts(root, { hosts: [host('a', ['x', 'y']), host('b', ['z'])] });
        drawHosts(root, { hosts: [host('a', ['y']), host('b', ['z', 'x'])] });
        const chip = root.querySelector('[data-instance=x]');
        return [chip.closest('.host').dataset.host, chip.getAnimations().length];
    }"""
    with opened(browser, address, motion="no-preference") as lively:
        assert lively.show("place").evaluate(script) == ["b", 1]
    with opened(browser, address, motion="reduce") as calm:
        assert calm.show("place").evaluate(script) == ["b", 0]


def test_the_bottleneck_stands_out(screen: Screen) -> None:
    page = screen.show("topology")
    assert page.locator(".operator .name").all_text_contents() == ["parse", "enrich", "score"]
    (neck,) = page.locator(".operator.bottleneck .name").all_text_contents()
    assert f"The bottleneck is {neck}" in page.locator(".view").inner_text()
    assert "× 0.4" in (page.locator("svg.topology").text_content() or "")
    heads = page.locator(".topology thead th").all_inner_texts()
    assert {"arrivals", "backlog", "instances", "predicted", "measured"} <= set(heads)
    assert page.locator(".topology tbody tr").count() == 3


def test_learning_shows_the_table_and_its_thresholds(screen: Screen) -> None:
    page = screen.show("learning", journal=2)
    page.locator(".heat td.best").first.wait_for()
    assert page.locator(".heat tbody tr").count() == 21
    assert page.locator(".heat td.best").count() == 21
    heads = page.locator(".heat thead th").all_inner_texts()
    assert heads == ["utilisation", "scale in", "no action", "scale out", "visits"]
    assert re.search(r"scales in up to \d+ %.*scales out from \d+ %", page.inner_text(".learning"))
    assert page.locator(".learning .chart path.line").count() == 3


def test_without_a_learning_policy_it_says_so(screen: Screen) -> None:
    page = screen.show("learning", journal=1)
    assert "This policy does not learn." in page.inner_text(".learning")


def test_a_slider_goes_through_the_journal(screen: Screen, journals: dict[str, Path]) -> None:
    page = screen.show("replay")
    first = rows_of(journals["drs"])[0]
    slider = page.locator("#moment")
    slider.focus()
    page.keyboard.press("Home")
    page.locator(".sides .sentence", has_text="Turn 1.").wait_for()
    assert f"{first.running}" in page.locator(".facts").inner_text()
    page.keyboard.press("End")
    count = len(rows_of(journals["drs"]))
    page.locator(".sides .sentence", has_text=f"Turn {count}.").wait_for()
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.wait_for_function("document.querySelector('#moment').value > 20")
    page.get_by_role("button", name="Pause").click()


def test_two_journals_stand_side_by_side(screen: Screen) -> None:
    page = screen.show("replay")
    page.select_option("#other", label="btu")
    page.locator(".sides.two > section").nth(1).locator(".host").first.wait_for()
    sides = page.locator(".sides.two > section")
    assert sides.locator("h2").first.inner_text().startswith("drs")
    boxes = [side.bounding_box() for side in sides.all()]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
    heads = page.locator("section[aria-labelledby=sums] thead th").all_inner_texts()
    assert heads[1:] == ["drs", "btu"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, address: str, view: str) -> None:
    with opened(browser, address, size=PHONE) as screen:
        for journal in (0, 2):
            page = screen.show(view, journal)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_landmarks_names_and_the_way_by_tab(screen: Screen) -> None:
    page = screen.show("now")
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    assert page.locator("[aria-live=polite]").count() >= 1
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, a')].filter((element) =>
            !(element.innerText || element.getAttribute('aria-label') || element.labels?.length))
            .map((element) => element.outerHTML)"""
    )
    assert nameless == []
    page.reload()
    page.locator(".figure .value").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to content"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText"))
    assert [name for name in reached if name in ("Now", "Timeline", "Replay")]
    page.get_by_role("link", name="Topology").focus()
    page.keyboard.press("Enter")
    page.locator(".operator").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "main"


def test_light_and_dark_follow_the_system_and_can_be_changed(
    browser: Browser, address: str
) -> None:
    with opened(browser, address, scheme="dark") as screen:
        page = screen.show("now")
        theme = "document.documentElement.dataset.theme"
        assert page.evaluate(theme) == "dark"
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Switch between light and dark").click()
        assert page.evaluate(theme) == "light"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        page.reload()
        assert page.evaluate(theme) == "light"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, address: str, scheme: str) -> None:
    script = """() => {
        const style = getComputedStyle(document.documentElement);
        const rgb = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi)
            .map((part) => parseInt(part, 16) / 255);
        const linear = (c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
        const light = (name) => rgb(name).map(linear)
            .reduce((sum, c, n) => sum + c * [.2126, .7152, .0722][n], 0);
        const ratio = (a, b) => {
            const [dark, bright] = [light(a), light(b)].sort((x, y) => x - y);
            return (bright + .05) / (dark + .05);
        };
        const fores = ['--text', '--muted', '--accent', '--bad', '--good', '--warn', '--in'];
        const found = {};
        for (const back of ['--back', '--surface', '--raised'])
            for (const fore of fores)
                found[fore + ' on ' + back] = ratio(fore, back);
        return found;
    }"""
    with opened(browser, address, scheme=scheme) as screen:  # type: ignore[arg-type]
        ratios = screen.show("now").evaluate(script)
    assert len(ratios) == 21
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}
