"""The page of what reviews found names tests that exist, and the guides promise what is true."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/reference/reviewed.md"


def test_every_finding_has_tests_that_exist() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)[1:]
    assert len(rows) > 30
    for found, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named, found
        for test in named:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_every_finding_can_be_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python scripts/reviewed.py` does so, and a named test fails; it takes minutes."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import reviewed

    known, without = reviewed.findings(), set(reviewed.findings())
    for change in reviewed.changes():
        (found,) = [row for row in known if row.startswith(change.finding)]
        without.discard(found)
        text = (ROOT / change.file).read_text(encoding="utf-8")
        assert text.count(change.old) == 1 and change.old != change.new, change
    assert without == set()


def test_a_guarantee_has_its_condition() -> None:
    text = (ROOT / "docs/guides/fleet.md").read_text(encoding="utf-8")
    promised = re.findall(r"exactly once(.{0,12})", text, re.I)
    assert promised and all(re.match(r" (for readers|if )", then) for then in promised)
