"""Secrets in the environment of commands, and a look at who tells them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def nobody_tells(folder: Path, *besides: Path) -> Iterator[None]:
    """Every secret is in the environment, and no command line or file of a folder may have one.

    besides: files that may.
    """
    leaks: list[bytes] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            leaks.extend(line for line in command_lines().values() if SECRET.encode() in line)

    watcher = threading.Thread(target=look, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.setenv(name, SECRET)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
    assert leaks == [], leaks
    assert [file for file in files_with(folder, SECRET) if file not in besides] == []
