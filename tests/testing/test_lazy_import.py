"""`tidegate.testing` loads its parts late, and needs neither Spark nor the development tools."""

from __future__ import annotations

import subprocess
import sys

import tidegate.testing

HEAVY = ("pyspark", "py4j", "pytest", "hypothesis", "tidegate.spark", "tidegate.fleet")


def test_a_policy_is_checked_without_spark() -> None:
    code = (
        "import sys; from tidegate.testing import check_backend, check_policy, steady_snapshot; "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_checks_need_no_test_runner() -> None:
    names = ", ".join(tidegate.testing.__all__)
    code = (
        f"import sys; from tidegate.testing import {names}; "
        "print([m for m in ('pytest', 'hypothesis') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert all(getattr(tidegate.testing, name) is not None for name in names.split(", "))
