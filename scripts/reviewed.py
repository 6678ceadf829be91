"""Put what reviews found back into the code, one finding at a time: a named test must fail.

    python scripts/reviewed.py [--only TEXT] [--java]

The findings and their tests are in ``docs/reference/reviewed.md``, the changes of the code that
bring them back in ``reviewed.toml`` next to this file. A copy of the tree is changed, not the tree
itself. A change that no test notices is printed, and the exit code is 1. ``--java`` runs those that
only live tests notice; without it they are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "reviewed.md"
CHANGES = Path(__file__).with_suffix(".toml")
PARTS = ("src", "tests", "docs", "scripts", "agent", "benchmarks", "examples", "pyproject.toml")
LIMIT_S = 240.0
MOST_BYTES = 8 << 30
"""Memory of a test run: some findings took all that there was."""


class Change(NamedTuple):
    """A change that brings a finding back.

    finding: how its row begins. file: from the root. old, new: a text that occurs once, and what
    replaces it. java: whether only a test that starts Spark notices it.
    """

    finding: str
    file: str
    old: str
    new: str
    java: bool = False


def findings() -> dict[str, list[str]]:
    """The tests of each finding on the page."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)[1:]
    return {found: re.findall(r"`([^`]+)`", tests) for found, tests in rows}


def changes() -> list[Change]:
    """The changes, in the order of the file."""
    plain = tomllib.loads(CHANGES.read_text(encoding="utf-8"))
    return [Change(**one) for one in plain["change"]]


def noticed(change: Change, tests: list[str], copy: Path) -> bool:
    """Whether a test fails with the change."""
    file = copy / change.file
    before = file.read_text(encoding="utf-8")
    assert before.count(change.old) == 1, change
    file.write_text(before.replace(change.old, change.new), encoding="utf-8")
    marks = "java or not java" if change.java else "not java"
    words = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-m", marks, *tests]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy)])}
    try:
        done = subprocess.run(
            words, cwd=copy, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S,
            preexec_fn=None if change.java else _limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True  # what took too long is a finding, too
    finally:
        file.write_text(before, encoding="utf-8")
    return done.returncode == 1  # others mean that no test ran


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def main() -> int:
    """Try all changes; return 1 if one was not noticed."""
    reader = argparse.ArgumentParser(description="Bring findings of reviews back")
    reader.add_argument("--only", default="", help="findings with this text in them")
    reader.add_argument("--java", action="store_true", help="only those for live tests")
    given = reader.parse_args()
    known = findings()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tidegate-reviewed-") as folder:
        copy = Path(folder)
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, copy / part)
            else:
                shutil.copy(ROOT / part, copy / part)
        for change in changes():
            if given.only not in change.finding or change.java != given.java:
                continue
            found, tests = next((f, t) for f, t in known.items() if f.startswith(change.finding))
            good = noticed(change, tests, copy)
            wrong += not good
            shown = change.old.strip().splitlines()[0]
            print(f"{'noticed' if good else 'NOT NOTICED'}: {found} ({shown})", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
