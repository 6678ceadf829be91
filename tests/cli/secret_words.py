"""Secrets in the environment of commands, and a look at who tells them."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.watched.sitecustomize import NOTES
from tests.spark.local.doors import command_lines, files_with

SECRET = f"tell-nobody-{os.getpid()}-tell-nobody"
"""Another one in each process: `make test` runs two, and each looks at all command lines."""
VARIABLES = (
    "TIDEGATE_DASHBOARD_TOKEN",
    "TIDEGATE_METRICS_TOKEN",
    "TIDEGATE_AGENT_TOKEN",
    "TIDEGATE_PROBE_TOKEN",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    "TIDEGATE_KAFKA_PASSWORD",
    "TIDEGATE_KAFKA_TRUSTSTORE_PASSWORD",
    "TIDEGATE_KAFKA_KEYSTORE_PASSWORD",
)
LOOK_S = 0.2
WATCHED = Path(__file__).parent / "watched"
"""In the ``PYTHONPATH`` of a command: each of its Python processes notes what it starts."""


@contextmanager
def nobody_tells(folder: Path, *besides: Path) -> Iterator[list[str]]:
    """Every secret is in the environment, and no command line or file of a folder may have one.

    Command lines are looked at while they run, which misses those of short programs that no Python
    process starts. What Python processes start is noted and complete; the list that this yields has
    it after the block.

    besides: files that may.
    """
    leaks: list[bytes] = []
    started: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            leaks.extend(line for line in command_lines().values() if SECRET.encode() in line)

    watcher = threading.Thread(target=look, daemon=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as notes:
        for name in VARIABLES:
            patch.setenv(name, SECRET)
        patch.setenv(NOTES, notes)
        patch.setenv("PYTHONPATH", str(WATCHED), prepend=os.pathsep)
        watcher.start()
        try:
            yield started
        finally:
            ended.set()
            watcher.join()
            for file in Path(notes).iterdir():
                started += file.read_text(encoding="utf-8").splitlines()
    assert leaks == [], leaks
    told = [words for words in started if SECRET in words]
    assert told == [], told
    kept = [file for file in files_with(folder, SECRET) if file not in besides]
    assert kept == [], kept
