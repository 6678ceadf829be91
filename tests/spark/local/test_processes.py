"""No process outlives its owner, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate.errors import BackendError
from tidegate.spark.local.processes import Process

OWNER = """
import os, sys
from pathlib import Path
from tidegate.spark.local.processes import Process
ended = Process(["sleep", "600"], Path(sys.argv[1]) / "ended.log", os.environ)
ended.stop()
child = Process(["sh", "-c", "sleep 600 & wait"], Path(sys.argv[1]) / "child.log", os.environ)
print(child.pid, flush=True)
sys.stdin.read()
"""


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def gone(group: int, within_s: float = 20.0) -> bool:
    end_s = time.monotonic() + within_s
    while alive(group) and time.monotonic() < end_s:
        time.sleep(0.05)
    return not alive(group)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_children_end_with_their_owner(tmp_path: Path, end: signal.Signals | None) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None and owner.stdout is not None
    group = int(owner.stdout.readline())
    assert alive(group)
    if end is None:
        owner.stdin.close()
    else:
        owner.send_signal(end)
    owner.wait()
    assert gone(group), "a child, or a child of it, was left behind"


def test_a_process_that_ends_before_it_says_so_is_an_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    process = Process(["sh", "-c", "echo no such luck"], tmp_path / "luck.log", os.environ)
    with pytest.raises(BackendError, match=r"luck did not start: it ended; .* no such luck"):
        process.wait_for("ready", 20)
    process.stop()


def test_stopping_takes_the_whole_group_and_may_be_repeated(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; sleep 600 & echo up; wait; wait"
    process = Process(["sh", "-c", stubborn], tmp_path / "stubborn.log", os.environ)
    process.wait_for("up", 20)
    process.stop(timeout_s=0.2)
    process.stop()
    assert gone(process.pid) and not process.running
