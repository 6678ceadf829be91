"""The examples, and the outputs that they must print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
