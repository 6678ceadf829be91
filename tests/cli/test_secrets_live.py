"""No secret is in any output, file or process list while commands do their work.

`test_secrets.py` has the commands that need no Spark, and words that are wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

from tests.cli.helpers import COMMAND
from tests.cli.secret_words import SECRET, WATCHED, nobody_tells
from tests.cli.test_secrets import COMMANDS, SERVERS
from tests.fuzz.test_commands import commands
from tidegate.lifecycle import wait_until
from tidegate.spark.agent import JAR, PLUGIN

ROOT = Path(__file__).parents[2]
LIMIT_S = 400.0

APP = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
query = spark.readStream.format("rate").load().writeStream.format("noop")
query = query.trigger(processingTime="500 milliseconds").queryName("q").start()
end_s = time.monotonic() + 300
while time.monotonic() < end_s and not Path("enough").exists():
    time.sleep(0.2)
query.stop()
spark.stop()
"""
QUERIES = """
from tidegate.fleet import continuous_query

@continuous_query
def q(session):
    return session.readStream.format("rate").load().writeStream.format("noop")
"""
GRID = """
policies: [static]
traces: [{workload: exchange-day, options: {mean_per_s: 10}}]
seeds: 1
mode: fluid
slo: 10s
"""
ALONE = (
    "traces build log.csv --time t_s --step 1s --out built --master local[1]",
    "sweep run grid.yaml --out swept --master local[1]",
    "sweep report swept",
    "reproduce cervino --quick --seeds 1 --report paper.html",
)
"""Commands that end by themselves, in this order."""
ELSEWHERE = ("demo", "run", "profile")
"""Commands whose own tests look for secrets: `test_demo.py` and `tests/apps/test_run.py`."""
WITH_A_FLEET = (
    "fleet status",
    "fleet status --json",
    "fleet moves",
    "fleet move q host-1",
    "fleet add more.py",
    "fleet drain host-1",
    "fleet unpark q",
    "fleet remove other",
    "fleet stop",
)
"""Commands to the manager of a fleet; some of them are refused."""
WITH_A_DRIVER = (
    "attach announced --slo 5s --dry-run --interval 1s --journal attached.jsonl --metrics-port 0",
    "doctor announced --slo 5s",
)
RUN_IN_THE_BACKGROUND = ("fleet run", "submit")


class Started:
    """A command in a folder, whose output goes to a file there."""

    def __init__(self, folder: Path, command: str) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_H", "PYSPARK_"))}
        env |= {"PYTHONPATH": os.pathsep.join(map(str, (WATCHED, ROOT / "src", ROOT)))}
        env |= {"HOME": str(folder), "TMPDIR": str(folder / "scratch"), "COLUMNS": "500"}
        (folder / "scratch").mkdir(exist_ok=True)
        self.said = folder / (command.replace(" ", "-").replace("/", "-")[:40] + ".said")
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *command.split()],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def until(self, seen: Path) -> None:
        """Wait until there is a file with something in it, or a socket."""

        def here() -> bool:
            return seen.exists() and (not seen.is_file() or seen.stat().st_size > 0)

        wait_until(lambda: here() or self.process.poll() is not None, LIMIT_S)
        assert here(), self.text

    def end(self) -> int:
        """Wait until it ends; return its exit code."""
        return self.process.wait(LIMIT_S)

    @property
    def text(self) -> str:
        """What it has said so far."""
        return self.said.read_text("utf-8", "replace")


@contextmanager
def started(folder: Path, command: str) -> Iterator[Started]:
    """A command that is ended with the block."""
    made = Started(folder, command)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.terminate()
            try:
                made.process.wait(60)
            except subprocess.TimeoutExpired:
                made.process.kill()
                made.process.wait()


def ran(folder: Path, command: str) -> Started:
    """A command that has ended."""
    with started(folder, command) as done:
        done.end()
        return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in (
        ("app.py", APP),
        ("queries.py", QUERIES),
        ("more.py", QUERIES.replace("def q(", "def other(")),
        ("grid.yaml", GRID),
        ("log.csv", "t_s\n1\n2\n3\n"),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_command_is_run_with_secrets() -> None:
    """A new command needs a line here or in `COMMANDS`."""
    run = [*COMMANDS, *SERVERS, *ALONE, *WITH_A_FLEET, *WITH_A_DRIVER]
    run += [*ELSEWHERE, *RUN_IN_THE_BACKGROUND]
    words = {tuple(one.split()[:n]) for one in run for n in (1, 2)}
    assert [one for one in commands() if one not in words] == []


def test_a_secret_on_a_command_line_or_in_a_file_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), nobody_tells(tmp_path):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(2)", SECRET], check=True)
    (tmp_path / "deep").mkdir()
    with pytest.raises(AssertionError), nobody_tells(tmp_path):
        (tmp_path / "deep" / "file").write_text(f"x{SECRET}x")
    with nobody_tells(tmp_path, tmp_path / "deep" / "file"):
        assert os.environ["TIDEGATE_AGENT_TOKEN"] == SECRET


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run(['true', word])",
        "subprocess.run(f'true {word}', shell=True)",
        "os.system(f'true {word}')",
        "os.posix_spawn('/bin/true', ['true', word], os.environ)",
        "os.execv('/bin/true', ['true', word])",
        "subprocess.run([sys.executable, '-c', f'import os; os.system(\"true {word}\")'])",
    ],
)
def test_a_secret_on_the_command_line_of_a_short_program_is_found(
    start: str, tmp_path: Path
) -> None:
    """Also one that has ended before anybody can look."""
    text = f"import os, subprocess, sys; word = os.environ['TIDEGATE_AGENT_TOKEN']; {start}"
    with pytest.raises(AssertionError, match="tell-nobody"), nobody_tells(tmp_path):
        subprocess.run([sys.executable, "-c", text], check=True)
    quiet = text.replace("'TIDEGATE_AGENT_TOKEN'", "'HOME'")
    with nobody_tells(tmp_path) as started:
        subprocess.run([sys.executable, "-c", quiet], check=True)
    assert any("true" in words for words in started)


needs_java = pytest.mark.skipif(which("java") is None, reason="Spark needs Java")


@pytest.mark.java
@needs_java
def test_commands_that_work_with_spark_keep_secrets_to_themselves(home: Path) -> None:
    with nobody_tells(home) as programs:
        for command in ALONE:
            done = ran(home, command)
            assert done.process.returncode == 0, done.text
    assert any("spark-submit" in words for words in programs)


@pytest.mark.java
@needs_java
def test_a_fleet_keeps_secrets_to_itself(home: Path) -> None:
    pytest.importorskip("grpc")
    words = "fleet run queries.py --max-hosts 1 --interval 1s --memory-mb 512 --dashboard"
    with nobody_tells(home) as programs, started(home, words) as manager:
        manager.until(home / "out" / "fleet" / "control.sock")
        for command in WITH_A_FLEET:
            done = ran(home, command)
            assert done.process.returncode in (0, 2), done.text
        assert manager.end() == 0, manager.text
    assert any("spark-submit" in words for words in programs)


@pytest.mark.java
@needs_java
@pytest.mark.skipif(not JAR.exists(), reason="the agent is not compiled: run make agent")
def test_a_driver_with_an_agent_keeps_secrets_to_itself(home: Path) -> None:
    agent = (
        f"--conf spark.plugins={PLUGIN} --conf spark.tidegate.agent.announce=announced "
        f"--driver-class-path {JAR}"
    )
    words = (
        "submit --slo 5s --dry-run --interval 1s --journal submitted.jsonl --metrics-port 0 "
        f"--master local[1] {agent} app.py"
    )
    attached, doctor = WITH_A_DRIVER
    with nobody_tells(home), started(home, words) as driver:
        driver.until(home / "announced")
        with started(home, attached) as controller:
            controller.until(home / "attached.jsonl")
            driver.until(home / "submitted.jsonl")
            done = ran(home, doctor)
            assert done.process.returncode in (0, 1, 2), done.text
            (home / "enough").touch()
            assert driver.end() == 0, driver.text
            assert controller.end() == 0, controller.text
