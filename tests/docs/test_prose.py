"""The project's prose is plain English, and the check that says so finds what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.prose import MANNERISMS, PLACES, ROOT, findings

SAMPLES = (
    "so many hosts, so long, and the wishes that somebody told us of",
    "draws lots; the books and the ledger thereof, each of its own, one's own",
    "in vain; whoever is let loose and heeds what came of it, which comes to nothing",
    "for people; has a word; said aloud; given up; superfluous",
    "beside it, made anew, by dials: two cooks",
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place.relative_to(ROOT)))
def test_the_prose_is_plain(place: Path) -> None:
    found = findings([place])
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("words", MANNERISMS)
def test_every_listed_expression_is_found(words: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n".join(SAMPLES))
    found = [f for f in findings([page]) if re.fullmatch(words, f.words, re.IGNORECASE)]
    assert found, "add a sample of it above"
    assert MANNERISMS[words] in str(found[0])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("page.md", "Fine.\nIt tells why.\n", 2),
        ("code.py", '"""Fine."""\n\nHELP = "What it was told."\n', 3),
        ("code.py", "x = 1\n# in vain\n", 2),
        ("app.js", "// fine\nh1.textContent = 'So many rows';\n", 2),
        ("index.html", "<p>A wish</p>\n", 1),
    ],
    ids=["page", "string", "comment", "script", "html"],
)
def test_a_mannerism_is_found_where_people_read(
    name: str, text: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    (found,) = findings([tmp_path])
    assert (found.path.name, found.line) == (name, line)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "```console\n$ tell\n```\nThe field `wish` and a plot.\n"),
        ("code.py", '"""An example.\n\n>>> wish = 1\n"""\nwish = told = 1\n'),
    ],
    ids=["page", "code"],
)
def test_names_in_code_are_not_prose(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert findings([tmp_path]) == []
