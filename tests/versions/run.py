"""The live check of every version of Spark that Tidegate supports: ``make test-versions``.

    python -m tests.versions.run                       # all of them, some two minutes each
    python -m tests.versions.run --only 3.5            # one of them; may be repeated
    python -m tests.versions.run --gateway agent       # only with the agent, or only in-process

Each version of PySpark (see `pins.py`) is installed from the package index into a separate
environment under ``out/versions``, once; Tidegate is installed there from this folder with the
extra ``spark``. Then `check.py` runs in this environment, once with each gateway. The results are
in ``out/versions/<version>/<gateway>``: ``result.json``, ``output.txt``, and, after a failure, the
logs of Spark and the journal. The exit code is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.versions.pins import GATEWAYS, PINS

ROOT = Path(__file__).parents[2]
HOME = ROOT / "out" / "versions"
CHECK_S = 1800.0
"""Longest time of one check. Each of its events has a shorter limit; this one is for a hang."""
COLUMNS = (
    *("Spark", "Scala", "Java", "Python", "gateway"),
    *("executors", "checks", "seconds", "result"),
)


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


def environment(minor: str) -> Path:
    """The Python of a version's environment, which is created if it is missing or outdated."""
    folder = HOME / minor / "venv"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, mark = folder / "bin" / "python", folder / "made-from"
    constraints = _constraints()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = (PINS[minor], constraints, json.dumps(project))
    wanted = hashlib.sha256("\n".join(sources).encode()).hexdigest()
    if mark.is_file() and mark.read_text(encoding="ascii") == wanted:
        return python
    mark.unlink(missing_ok=True)
    say(f"{minor}  installing PySpark {PINS[minor]} and Tidegate (some minutes, once)")
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    limits = HOME / minor / "constraints.txt"
    limits.write_text(constraints, encoding="utf-8")
    subprocess.run(
        [
            *(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("-e", f"{ROOT}[spark]", f"pyspark=={PINS[minor]}"),
        ],
        env={**os.environ, "PIP_CONSTRAINT": str(limits)},
        check=True,
    )
    mark.write_text(wanted, encoding="ascii")
    return python


def _constraints() -> str:
    """The project's constraints without PySpark and py4j, which differ by version."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lower().startswith(("pyspark==", "py4j==")))


def check(minor: str, gateway: str, words: Sequence[str]) -> dict[str, Any]:
    """The result of one check of a version. words: further arguments of the check."""
    folder, name = HOME / minor / gateway, f"{minor} {gateway:10}"
    folder.mkdir(parents=True, exist_ok=True)
    result, logs = folder / "result.json", folder / "logs"
    result.unlink(missing_ok=True)
    shutil.rmtree(logs, ignore_errors=True)
    failed: dict[str, Any] = {"spark": PINS[minor], "gateway": gateway, "passed": False}
    failed["checks"] = []
    try:
        python = environment(minor)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"{name}  FAILED  its environment cannot be installed: {error}")
        return failed
    command = [str(python), "-m", "tests.versions.check", str(result), "--gateway", gateway]
    command += ["--keep", str(logs), *words]
    env = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        killer = _kill_after(process, CHECK_S)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                output.write(line)
                say(f"{name}  {line.rstrip()[:150]}")
            process.wait()
        finally:
            killer.cancel()
            _kill(process)  # what is left of it
    try:
        seen: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        say(f"{name}  FAILED  it ended with code {process.returncode} and without a result")
        return failed
    if seen["spark"] != PINS[minor]:  # the environment is not what its name says
        say(f"{name}  FAILED  it ran on Spark {seen['spark']}")
        seen["passed"] = False
    if seen["passed"]:
        shutil.rmtree(logs, ignore_errors=True)
    return seen


# The check must find Spark and Tidegate in its own environment, not in the caller's.
_NOT_INHERITED = frozenset({"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"})


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a check and the JVM of its driver; the cluster's processes end with their owner."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _kill_after(process: subprocess.Popen[str], limit_s: float) -> threading.Timer:
    timer = threading.Timer(limit_s, _kill, (process,))
    timer.daemon = True
    timer.start()
    return timer


def table(results: Sequence[dict[str, Any]]) -> str:
    """One line for each version."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for seen in results:
        passed = sum(one["passed"] for one in seen["checks"])
        counts = [str(count) for _, count in seen.get("executors", ())]
        rows.append(
            (
                *(
                    str(seen.get(key, "?"))
                    for key in ("spark", "scala", "java", "python", "gateway")
                ),
                " → ".join(counts) or "?",
                f"{passed}/{len(seen['checks'])}",
                str(seen.get("seconds", "?")),
                "passed" if seen["passed"] else "FAILED",
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main() -> None:
    """Check the versions one after the other."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("--only", action="append", choices=sorted(PINS), help="check this version")
    words.add_argument("--gateway", action="append", choices=GATEWAYS, help="only this gateway")
    words.add_argument("--install", action="store_true", help="only install the environments")
    words.add_argument("--limit", help="seconds to wait for an event")
    given = words.parse_args()
    chosen = given.only or list(PINS)
    if given.install:
        for minor in chosen:
            say(f"{minor}  {environment(minor)}")
        return
    more = ("--limit", given.limit) if given.limit else ()
    began_s = time.monotonic()
    gateways = given.gateway or GATEWAYS
    results = [check(minor, gateway, more) for minor in chosen for gateway in gateways]
    say(f"\n{table(results)}\n\n{time.monotonic() - began_s:.0f} s")
    sys.exit(0 if all(seen["passed"] for seen in results) else 1)


if __name__ == "__main__":
    main()
