"""``tidegate submit`` with a real driver: metrics with TLS and a token, and logs as JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.certificates import self_signed
from tests.cli.helpers import COMMAND

pytestmark = pytest.mark.java

TOKEN = "tide-and-gate-and-tide"
LONG_S = 240.0
"""For what must happen, however slow the machine is."""
APPLICATION = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
writer = rows.writeStream.queryName("orders").format("noop")
query = writer.trigger(processingTime="1 second").start()
while not Path(sys.argv[1]).exists() and query.isActive:
    time.sleep(0.1)
active = query.isActive
spark.stop()
sys.exit(0 if active else 1)
"""


@contextmanager
def submitted(folder: Path, *words: str | Path) -> Iterator[Queue[str]]:
    """The lines of output of a submitted application, which is ended in any case."""
    app, journal = folder / "app.py", folder / "journal.jsonl"
    app.write_text(APPLICATION)
    settings = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.driver.memory=512m")
    confs = [word for setting in settings for word in ("--conf", setting)]
    given = ["--slo", "5s", "--dry-run", "--interval", "1s", "--journal", journal, *words]
    command = ["submit", *given, "--master", "local[2]", *confs, app, folder / "end"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # as spark-submit does with a Python driver's
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines: Queue[str] = Queue()

    def hear() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    listener = Thread(target=hear, daemon=True)
    listener.start()
    try:
        yield lines
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        listener.join()


def record(lines: Queue[str], pattern: str) -> dict[str, object]:
    """The first record of Tidegate's log whose message matches; other lines are Spark's."""
    heard = []
    while line := lines.get(timeout=LONG_S):
        heard.append(line)
        if line.startswith('{"time"'):
            found: dict[str, object] = json.loads(line)
            if re.search(pattern, str(found["message"])):
                return found
    raise AssertionError(f"no record about {pattern}: {''.join(heard)}")


def test_metrics_are_scraped_with_a_token_over_tls_and_logs_are_json(tmp_path: Path) -> None:
    pair, token = self_signed(tmp_path), tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    files = ("--metrics-token-file", token, "--metrics-certificate", pair.certificate)
    words = ("--metrics-address", "0.0.0.0:0", *files, "--metrics-key", pair.key)
    with submitted(tmp_path, *words, "--log-format", "json") as lines:
        address = str(record(lines, "^metrics: ")["message"])
        found = re.fullmatch(r"metrics: https://0\.0\.0\.0:(\d+)/metrics", address)
        assert found is not None, address
        url = f"https://127.0.0.1:{found.group(1)}/metrics"
        trusting = ssl.create_default_context(cafile=str(pair.certificate))
        right = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(right, context=trusting, timeout=LONG_S) as response:
            assert b"tidegate_build_info" in response.read()
        with pytest.raises(HTTPError, match="401"):
            urlopen(url, context=trusting, timeout=LONG_S)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urlopen(right, context=ssl.create_default_context(), timeout=LONG_S)
        words_of_all = [command_line(folder) for folder in Path("/proc").glob("[0-9]*")]
        assert any(str(token) in words for words in words_of_all), "its file is named there"
        assert not any(TOKEN in words for words in words_of_all)


def command_line(process: Path) -> str:
    """The words of a process; nothing when it has ended meanwhile."""
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
