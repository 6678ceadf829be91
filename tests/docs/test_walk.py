"""The walk of a micro-batch names files that exist, and no hop imports from a higher layer."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "background" / "walk.md"
ROW = re.compile(r"^\| (\d+) \| .+ \| `(src/tidegate/\S+\.py)` \| (\d+) `(\w+)` \|$", re.MULTILINE)


class Hop(NamedTuple):
    """A row of the page's table."""

    number: int
    file: str
    layer: int
    package: str


def hops() -> list[Hop]:
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [Hop(int(number), file, int(layer), package) for number, file, layer, package in found]


def layers() -> dict[str, int]:
    """Layers by package; 1 is the lowest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    listed = next(c["layers"] for c in contracts if c["type"] == "layers")
    return {
        package.strip(): number
        for number, names in enumerate(reversed(listed), 1)
        for package in names.split("|")
    }


def imported_packages(source: str) -> Iterator[str]:
    """Packages of Tidegate that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("tidegate."):
                yield name.split(".")[1]


def imports_upwards(source: str, layer: int) -> list[str]:
    known = layers()
    return sorted({p for p in imported_packages(source) if known.get(p, 0) > layer})


def test_the_table_is_read_whole() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [hop.number for hop in hops()] == list(range(1, len(rows) + 1))
    assert len(rows) > 15
    first, last = hops()[0], [hop for hop in hops() if hop.package == "spark"][-1]
    assert first.file == last.file, "it begins and ends where Spark is"


@pytest.mark.parametrize("hop", hops(), ids=lambda hop: f"{hop.number}-{Path(hop.file).stem}")
def test_no_hop_imports_upwards(hop: Hop) -> None:
    file = ROOT / hop.file
    assert file.exists()
    assert file.relative_to(ROOT / "src" / "tidegate").parts[0] == hop.package
    assert layers()[hop.package] == hop.layer
    assert imports_upwards(file.read_text(encoding="utf-8"), hop.layer) == []


def test_the_highest_and_lowest_layer_are_those_the_page_names() -> None:
    named = re.findall(r"[Ll]ayer (\d+) \(`(\w+)`\)", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 2
    assert {layers()[package] for _, package in named} == {1, max(layers().values())}
    assert all(layers()[package] == int(number) for number, package in named)


def test_contributing_lists_the_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = {
        package: int(number)
        for number, packages in re.findall(r"^\| (\d+) \| (`.+?`) \| .+ \|$", text, re.MULTILINE)
        for package in re.findall(r"`(\w+)`", packages)
    }
    assert listed == layers()


def test_an_import_upwards_would_be_noticed() -> None:
    source = (
        "def late():\n    from tidegate.spark.autoscaler import world\n    import tidegate.units\n"
    )
    assert imports_upwards(source, layers()["loop"]) == ["spark"]
    assert imports_upwards(source, layers()["spark"]) == []
