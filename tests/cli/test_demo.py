"""`tidegate demo` for real, as small as it can be: cluster, feed, autoscaler, check, report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.cli.helpers import COMMAND, still_running
from tests.cli.secret_words import SECRET, nobody_tells
from tidegate.loop.journal import read_journal

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(which("java") is None, reason="Spark needs Java"),
]


def test_the_demo_runs_keeps_every_tick_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"  # every process of the demo inherits this
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    words = ["demo", "--seconds", "10", "--rate", "30", "--executors", "2", "--slo", "30s"]
    with nobody_tells(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words, "--out", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "executor-seconds" in done.stdout and "within 30 s" in done.stdout
    assert "lost · repeated" in done.stdout and "0 · 0" in done.stdout
    assert "exactly those of the reference" in done.stdout
    assert "about" not in done.stdout  # latencies are exact, by row
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<svg" in page
    # The warm-up has its own journal, and its figures are wherever those of the day are.
    assert "not counted: warm-up" in done.stdout and "Not counted: warm-up, " in page
    early = list(read_journal(tmp_path / "out" / "warm-up.jsonl"))
    day = list(read_journal(tmp_path / "out" / "journal.jsonl"))
    assert early and day and early[-1].snapshot and day[0].snapshot
    assert early[-1].snapshot.time_s < day[0].snapshot.time_s and day[0].number == 1
    assert (tmp_path / "out" / "journal.jsonl").stat().st_size > 0
    assert (tmp_path / "out" / "results" / "bars.parquet").stat().st_size > 0
    assert still_running(str(scratch)) == []
    assert list(scratch.iterdir()) == []
