"""The commands in the README print what the README shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.unit.test_cli import tidegate

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(
    r"```console\n\$ \.venv/bin/tidegate (.*)\n((?:.*\n)*?)```", (ROOT / "README.md").read_text()
)


def without_trailing_space(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def test_the_readme_shows_commands() -> None:
    assert len(SHOWN) >= 2


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[c for c, _ in SHOWN])
def test_a_command_in_the_readme_prints_what_is_shown(command: str, output: str) -> None:
    done = tidegate(*shlex.split(command))
    assert without_trailing_space(done.stdout) == without_trailing_space(output)
