"""A report page: question and answer first, then charts, then tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from tidegate.outputs import write_output

__all__ = ["Page", "standalone"]

STYLE = """
:root { --ink: #1b2733; --dim: #5c6b7a; --paper: #fff; --rule: #d9e0e6; --soft: #f3f6f8;
  --c0: #0b6e99; --c1: #d9730d; --c2: #448361; --c3: #c4314b; --c4: #6940a5; --c5: #9f6b53;
  --c6: #ad1a72; --c7: #37352f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5edf3; --dim: #9fb0bf; --paper: #11181f;
  --rule: #2b3845; --soft: #1a242e; --c0: #5cb8e4; --c1: #ffa344; --c2: #7bcf9e; --c3: #ff7a90;
  --c4: #b79af0; --c5: #d3a58c; --c6: #f07fc0; --c7: #cfcac2; } }
@media print { :root { --paper: #fff; --ink: #000; } section { break-inside: avoid; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { margin-top: 2.2rem; font-size: 1.2rem; }
.answer { font-size: 1.1rem; background: var(--soft); border-left: 4px solid var(--c0);
  padding: .7rem 1rem; } .note { color: var(--dim); }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid var(--rule);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; margin: .4rem 0; } svg text { fill: var(--ink);
  font: 11px system-ui, sans-serif; } svg .title { font-weight: 600; font-size: 12px; }
svg .tick, svg .axis { fill: var(--dim); } .grid { stroke: var(--rule); }
.mark { stroke: var(--dim); stroke-opacity: .5; stroke-width: 1.5; } .front { stroke: var(--dim); }
.line { fill: none; stroke-width: 1.7; } .shade { fill: var(--dim); fill-opacity: .16; }
"""
for _n in range(8):
    STYLE += f".line.c{_n}{{stroke:var(--c{_n})}} .bar.c{_n},.dot.c{_n}{{fill:var(--c{_n})}}\n"


class Page:
    """A self-contained HTML page that is built part by part.

    question: the title. answer: the main result, in a sentence or two.

    >>> page = Page("Which policy?", "drs costs least.")
    >>> page.table(["policy", "cost"], [["drs", 1.5]])
    >>> '<td>drs</td><td class="n">1.5</td>' in page.html()
    True
    """

    def __init__(self, question: str, answer: str) -> None:
        self._parts = [f"<h1>{escape(question)}</h1>", f'<p class="answer">{escape(answer)}</p>']
        self._title = question
        self._open = False

    def section(self, heading: str, text: str = "") -> None:
        """Start a section, optionally with a paragraph."""
        if self._open:
            self._parts.append("</section>")
        self._open = True
        self._parts.append(f"<section><h2>{escape(heading)}</h2>")
        if text:
            self.text(text)

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def picture(self, svg: str, caption: str = "") -> None:
        """Add a chart, with a caption below it."""
        self._parts.append(svg)
        if caption:
            self._parts.append(f'<p class="note">{escape(caption)}</p>')

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table; numbers are right-aligned."""
        numeric = [
            all(isinstance(row[i], int | float) or row[i] is None for row in rows) and bool(rows)
            for i in range(len(columns))
        ]
        head = "".join(
            f"<th{_side(right)}>{escape(name)}</th>"
            for name, right in zip(columns, numeric, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td{_side(right)}>{_cell(value)}</td>"
                for value, right in zip(row, numeric, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")

    def html(self) -> str:
        """Return the whole page."""
        end = "</section>" if self._open else ""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{STYLE}</style></head><body>"
            + "\n".join(self._parts)
            + end
            + "</body></html>\n"
        )

    def write(self, path: str | Path, option: str = "report") -> Path:
        """Write the page to a file, creating its folder. option: what names the file, in errors."""
        return write_output(path, self.html(), option)


def standalone(svg: str) -> str:
    """Return a chart as a separate SVG file, with the styles of a page."""
    paper = '<rect width="100%" height="100%" style="fill:var(--paper)"/>'
    start = '<svg xmlns="http://www.w3.org/2000/svg" '
    head, tag, rest = svg.replace("<svg ", start, 1).partition(">")
    # A margin would push the lower edge out of view.
    return f"{head}{tag}<style>{STYLE}svg {{ margin: 0; }}</style>{paper}{rest}\n"


def _side(right: bool) -> str:
    return ' class="n"' if right else ""


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))
