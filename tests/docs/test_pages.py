"""Every page says what is true: its blocks run, its outputs are compared, the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Reader, blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_can_follow(page: Path, tmp_path: Path) -> None:
    Reader(page, tmp_path).follow()


@pytest.mark.java
def test_the_tutorial_is_true_on_a_real_cluster(tmp_path: Path) -> None:
    Reader(ROOT / "docs" / "tutorial.md", tmp_path, live=True).follow()


def test_a_wrong_output_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo ebb\nflow\n```\n")
    with pytest.raises(AssertionError, match="ebb"):
        Reader(page, tmp_path).follow()


def test_what_is_not_run_says_why(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run:  -->\n```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="why"):
        Reader(page, tmp_path).follow()


def test_few_blocks_are_not_run() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    unrun = [block for block in every if block.note.startswith("not run")]
    assert len(unrun) < len(every) / 2


def _build(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-sq", "--site-dir", site, *words],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    built = _build(tmp_path)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "reference" / "policies" / "index.html").exists()


def test_pages_for_another_site_generator_are_all_there(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "docs_reference.py"
    subprocess.run([sys.executable, script, tmp_path / "pages"], check=True)
    written = {str(p.relative_to(tmp_path / "pages")) for p in tmp_path.rglob("*.md")}
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    notes = {f"background/designs/{note.name}" for note in (ROOT / "designs").glob("*.md")}
    assert set(named) | notes == written, "every page is in the navigation, and the other way round"


def test_a_page_that_shows_its_markdown_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("<div>\n- **[this](index.md)**\n</div>\n")
    settings = tmp_path / "mkdocs.yml"
    hook = ROOT / "scripts" / "docs_hook.py"
    settings.write_text(f"site_name: it\nhooks: [{hook}]\nmarkdown_extensions: [admonition]\n")
    built = _build(tmp_path / "site", "--config-file", str(settings))
    assert built.returncode == 1
    assert "index.md shows Markdown as it is written: - **[this](index.md)**" in built.stderr
