"""Every example is run as a user would, and its output compared with the file beside the tests.

To accept a new output: ``python -m tests.test_examples``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EVERY = sorted((ROOT / "examples").glob("*.py"))
# Those that take a session are run by tests/apps in the one that all tests share.
WITH_SPARK = [path for path in EVERY if "def main(spark" in path.read_text()]
EXAMPLES = [path for path in EVERY if path not in WITH_SPARK]


def run(example: Path) -> str:
    command = [sys.executable, str(example)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def golden(example: Path) -> Path:
    return ROOT / "tests" / "golden" / f"{example.stem}.out"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_printed_before(example: Path) -> None:
    assert run(example) == golden(example).read_text()


if __name__ == "__main__":
    for each in EXAMPLES:
        golden(each).write_text(run(each))
