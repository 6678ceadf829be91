"""Log records as JSON."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import COMMAND, tidegate
from tidegate.cli.lifecycle import logs_into
from tidegate.errors import InputError
from tidegate.logs import VARIABLE, handled_by, log_fields, log_format, log_formatter

log = logging.getLogger("tidegate.test")


class Heard:
    """The lines that were written so far."""

    def __init__(self) -> None:
        self.stream = StringIO()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def heard() -> Iterator[Heard]:
    found = Heard()
    handler = logging.StreamHandler(found.stream)
    handler.setFormatter(log_formatter("json"))
    with handled_by(handler, ("tidegate",)):
        yield found


def test_a_record_is_one_line_whatever_is_in_it(heard: Heard) -> None:
    log.warning('"two"\nlines of %s', "ärger", extra={"query": "orders", "path": Path("a")})
    (line,) = heard.lines
    assert line["message"] == '"two"\nlines of ärger'
    assert (line["query"], line["path"]) == ("orders", "a")
    assert list(line)[:4] == ["time", "level", "logger", "message"]
    assert (line["level"], line["logger"]) == ("WARNING", "tidegate.test")
    assert "ärger" in heard.stream.getvalue(), "readable without a parser"


def test_fields_are_those_of_the_block_and_of_the_thread(heard: Heard) -> None:
    other = threading.Thread(target=log.warning, args=("elsewhere",))
    with log_fields(application="app-1"), log_fields(turn=3, query=None):
        log.warning("inside")
        log.warning("nearer", extra={"turn": 4})
        other.start()
        other.join()
    log.warning("outside")
    inside, nearer, elsewhere, outside = heard.lines
    assert (inside["application"], inside["turn"]) == ("app-1", 3)
    assert "query" not in inside, "unknown"
    assert nearer["turn"] == 4
    assert "turn" not in elsewhere and "application" not in outside


def test_an_exception_is_part_of_the_line(heard: Heard) -> None:
    try:
        json.loads("nothing")
    except ValueError:
        log.exception("it failed")
    (line,) = heard.lines
    assert line["exception"].startswith("Traceback") and "JSONDecodeError" in line["exception"]


def test_fields_cannot_replace_what_every_record_has(heard: Heard) -> None:
    with log_fields(turn=1):
        log.warning("as it is", extra={"level": "none", "time": "never", "logger": "x"})
    (line,) = heard.lines
    assert (line["level"], line["logger"]) == ("WARNING", "tidegate.test")
    assert line["time"] != "never"


def test_the_option_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert log_format() == "text"
    monkeypatch.setenv(VARIABLE, "json")
    assert (log_format(), log_format("text")) == ("json", "text")
    monkeypatch.setenv(VARIABLE, "xml")
    with pytest.raises(InputError, match="TIDEGATE_LOG_FORMAT is 'xml'"):
        log_format()
    with pytest.raises(InputError, match="--log-format is 'JSON'; it must be text or json"):
        log_format("JSON")
    monkeypatch.setenv(VARIABLE, "")
    assert log_format() == "text"


def test_logs_beside_a_live_view_follow_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("text", "json"):
        monkeypatch.setenv(VARIABLE, form)
        with logs_into(tmp_path / form):
            log.warning("hear, hear")
    assert (tmp_path / "text").read_text().endswith("tidegate.test hear, hear\n")
    assert json.loads((tmp_path / "json").read_text())["message"] == "hear, hear"
    assert logging.getLogger("tidegate").propagate


def test_commands_that_serve_log_as_json(tmp_path: Path) -> None:
    journal, token = tmp_path / "run.jsonl", tmp_path / "token"
    journal.touch()
    token.write_text("tide-and-gate-and-tide")
    token.chmod(0o600)
    for command in ("metrics", "dashboard"):
        words = [command, str(journal), "--port", "0", "--host", "0.0.0.0"]
        words += ["--token-file", str(token), "--log-format", "json"]
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            assert "http://0.0.0.0:" in process.stdout.readline()
            process.stdout.readline()  # how to end it: from here on a signal is heard
            process.terminate()
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        (line,) = [json.loads(line) for line in errors.splitlines()]
        assert "without TLS" in line["message"] and line["logger"] == "tidegate.listening"
    done = tidegate("dashboard", str(journal), "--log-format", "xml")
    assert done.returncode == 2 and "--log-format is 'xml'" in done.stderr
