"""No secret is in any message, log, journal, file or process list, whatever command runs.

`test_secrets_live.py` has commands that work with Spark; `demo`, `run` and `profile` have a test.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.helpers import COMMAND, tidegate
from tests.cli.secret_words import SECRET, VARIABLES
from tests.fuzz.test_commands import ENDED, commands
from tests.spark.local.doors import command_lines, files_with
from tidegate.loop.journal import Journal, Turn
from tidegate.testing import steady_snapshot


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a journal, a trace and queries; secrets are in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    with Journal("run.jsonl") as written:
        for number in range(1, 4):
            written.write(Turn(number, "static", steady_snapshot(time_s=10.0 * number)))
    Path("trace.csv").write_text("t_s,rate\n0,10\n60,30\n120,20\n")
    Path("queries.py").write_text(
        "from tidegate.fleet import continuous_query\n@continuous_query\ndef q(session): ...\n"
    )
    Path("job.py").write_text("print('never run')\n")
    return tmp_path


COMMANDS = (
    "policies",
    "allocate a:13:5 --processors 9",
    "report run.jsonl",
    "report run.jsonl --json",
    "replay run.jsonl --policy ds2",
    "calibrate run.jsonl",
    "traces describe trace.csv",
    "backtest trace.csv --policies static --bound-time 1s",
    "doctor run.jsonl",
    "dashboard run.jsonl --host 192.0.2.1 --port 1",
    "metrics run.jsonl --host 192.0.2.1 --port 1",
    "attach http://127.0.0.1:1 --slo 5s --wait 1ms",
    "attach http://127.0.0.1:1 --slo soon",
    "submit --slo 5s --metrics-address nowhere job.py",
    "fleet status",
    "fleet moves",
    f"fleet run queries.py --endpoint sc://h:1/;token={SECRET}",
    f"fleet run queries.py --endpoint sc://h:port/;token={SECRET}",
    f"fleet run queries.py --endpoint sc://{SECRET}@h:1/;use_ssl=perhaps",
    f"fleet run queries.py --endpoint h:1/;{SECRET}",
    f"fleet run queries.py --endpoint sc://h:1/token={SECRET}",
    f"fleet run queries.py --endpoint sc://h:1;token={SECRET}",
    f"fleet run queries.py --endpoint sc://h:1?{SECRET}",
    f"attach http://me:{SECRET}@127.0.0.1:1 --slo 5s --wait 1ms",
    f"attach http://127.0.0.1:1/?token={SECRET} --slo 5s --wait 1ms",
    f"doctor http://me:{SECRET}@127.0.0.1:1",
    f"dashboard run.jsonl --token {SECRET}",
)


SERVERS = ("dashboard", "metrics", "probe serve", "probe measure")
"""Those that `test_servers_keep_a_token_to_themselves` and the probe's test run."""


def _begins(command: str, words: tuple[str, ...]) -> bool:
    return tuple(command.split()[: len(words)]) == words


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: text.replace(SECRET, "SECRET")[:60])
def test_no_secret_is_printed_logged_or_written(
    command: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        done = tidegate(*command.split())
    assert done.returncode in (0, 1, 2)
    assert SECRET not in done.stdout + done.stderr + caplog.text
    assert files_with(home, SECRET) == []


OTHERS = [words for words in commands() if not any(_begins(c, words) for c in COMMANDS)]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_no_other_command_tells_a_secret(
    words: tuple[str, ...], home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They end at once, with a wrong value or without a value that they need."""
    with caplog.at_level(logging.DEBUG):
        done = tidegate(*words, *ENDED.get(words, ()))
    assert done.returncode == 2
    assert SECRET not in done.stdout + done.stderr + caplog.text
    assert files_with(home, SECRET) == []


def test_servers_keep_a_token_to_themselves(home: Path) -> None:
    token = home / "token"
    token.touch(mode=0o600)
    token.write_text(SECRET + "\n")
    for command in ("dashboard", "metrics"):
        words = [command, "run.jsonl", "--port", "0", "--token-file", "token"]
        process = subprocess.Popen(
            [sys.executable, "-uc", COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            process.stdout.readline()
            wrong = {"authorization": f"Bearer {SECRET}x"}
            assert httpx.get(url, headers=wrong, timeout=60).status_code in (401, 303)
            right = {"authorization": f"Bearer {SECRET}"}
            answer = httpx.get(url, headers=right, timeout=60)
            assert answer.status_code == 200 and SECRET not in answer.text
            assert [pid for pid, line in command_lines().items() if SECRET.encode() in line] == []
            process.terminate()
            assert SECRET not in process.communicate(timeout=60)[0]
        finally:
            process.kill()
            process.wait()
    assert files_with(home, SECRET) == [token]


def test_a_probe_proves_its_token_and_shows_it_nowhere(home: Path) -> None:
    words = ["probe", "serve", "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, "-uc", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        first = server.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", first)
        assert found is not None, first
        measure = ["probe", "measure", found[0], "--rates", "100", "--for", "2s", "--json"]
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *measure],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        server.terminate()
        said = first + server.communicate(timeout=60)[0] + done.stdout + done.stderr
        assert SECRET not in said
    finally:
        server.kill()
        server.wait()
    assert files_with(home, SECRET) == []
