"""The versions that are said to work are those that `make test-versions` checks."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.versions.pins import PINS
from tests.versions.run import table
from tidegate.spark.autoscaler.versions import KNOWN_VERSIONS

ROOT = Path(__file__).parents[2]


def test_known_versions_are_those_that_are_checked() -> None:
    assert tuple(PINS) == KNOWN_VERSIONS
    assert all(pin.startswith(f"{minor}.") for minor, pin in PINS.items())


def test_the_extra_allows_them_and_none_that_is_older() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (allowed,) = [
        wanted.specifier
        for text in project["optional-dependencies"]["spark"]
        if (wanted := Requirement(text)).name == "pyspark"
    ]
    assert all(pin in allowed for pin in PINS.values())
    assert "3.4.4" not in allowed


@pytest.mark.parametrize("pin", PINS.values())
def test_the_page_names_them(pin: str) -> None:
    page = ROOT / "docs" / "reference" / "versions.md"
    assert f"| {pin} |" in page.read_text(encoding="utf-8")


def test_a_version_that_failed_is_seen_in_the_table() -> None:
    one = {"check": "executors grow", "passed": False, "seen": "1", "at_s": 2.0}
    seen = {"spark": "4.3.0", "passed": False, "checks": [one], "executors": [[1.0, 1]]}
    _, line = table([seen]).splitlines()
    assert line.split() == ["4.3.0", "?", "?", "?", "?", "1", "0/1", "?", "FAILED"]
