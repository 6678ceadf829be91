"""Names in a report are text: whatever they are, they add no element and no attribute to it."""

from __future__ import annotations

from html.parser import HTMLParser

from tidegate.report.charts import Series, bars, heat, lines, scatter
from tidegate.report.page import Page

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "table", "thead",
    "tbody", "tr", "th", "td", "svg", "g", "text", "tspan", "rect", "line", "circle", "path",
    "polyline", "polygon",
}  # fmt: skip


class Seen(HTMLParser):
    """Collects the elements, and the attributes that run something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "href"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page() -> Page:
    made = Page(EVIL, EVIL)
    made.section(EVIL, EVIL)
    made.text(EVIL)
    made.table([EVIL, "n"], [[EVIL, 1.5], [EVIL, 2.5]])
    series = [Series(EVIL, [0.0, 1.0], [1.0, 2.0])]
    made.picture(lines(series, EVIL, EVIL, EVIL, marks=[(0.5, EVIL)]), EVIL)
    made.picture(scatter([(EVIL, 1.0, 2.0), (EVIL, 2.0, 1.0)], EVIL, EVIL, EVIL))
    made.picture(bars([EVIL, EVIL], [(EVIL, [1.0, 2.0])], EVIL, EVIL))
    return made


def test_names_in_a_report_are_text() -> None:
    seen = Seen(page().html())
    assert seen.elements <= ALLOWED
    assert seen.handlers == []
    assert sum(EVIL in text for text in seen.texts) >= 12


def test_names_in_a_heat_map_are_text() -> None:
    svg = heat([EVIL, "b"], [EVIL, "d"], [[1.0, 2.0], [3.0, None]], EVIL, EVIL, EVIL)
    seen = Seen(svg)
    assert seen.elements <= ALLOWED and seen.handlers == []
    assert any(EVIL in text for text in seen.texts)
