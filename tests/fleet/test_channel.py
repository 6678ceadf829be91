"""Commands over the socket, and the command line on top of it."""

from __future__ import annotations

import json
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.errors import BackendError, InputError
from tidegate.fleet.channel import Channel, send
from tidegate.testing import FakeFleet


def test_a_command_goes_there_and_its_answer_back(tmp_path: Path) -> None:
    channel = Channel(tmp_path, lambda request: {"done": request["do"]})
    try:
        assert send(tmp_path, {"do": "x"}) == {"done": "x"}
        mode = (tmp_path / "control.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    finally:
        channel.close()
    with pytest.raises(BackendError, match="tidegate fleet run"):
        send(tmp_path, {"do": "x"})


def test_a_folder_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shorter path"):
        send(tmp_path / ("x" * 100), {"do": "x"})


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "control.sock").touch()
    channel = Channel(tmp_path, lambda request: {"done": "x"})
    try:
        assert send(tmp_path, {"do": "x"}) == {"done": "x"}
    finally:
        channel.close()
    assert not (tmp_path / "control.sock").exists()


@pytest.mark.parametrize(
    "line", [b"[" * 100_000 + b"\n", b"x" * 1_200_000, b"\xff\n", b"\n", b"5\n", b"[]\n", b"null\n"]
)
def test_what_is_no_command_is_answered_in_a_sentence(line: bytes, tmp_path: Path) -> None:
    channel = Channel(tmp_path, lambda request: {"done": "x"})
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(tmp_path / "control.sock"))
            with suppress(BrokenPipeError):  # it hangs up when a line becomes too long
                connection.sendall(line)
            answer = connection.makefile().readline()
        assert json.loads(answer) == {"error": "the command is not a line of JSON"}
        assert send(tmp_path, {"do": "x"}) == {"done": "x"}
    finally:
        channel.close()


@pytest.fixture
def running(tmp_path: Path) -> Any:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.3})
    fleet.turns(3)
    channel = Channel(tmp_path, fleet.manager.ask)
    thread = threading.Thread(target=fleet.manager.run)
    thread.start()
    yield fleet
    fleet.manager.stop()
    thread.join()
    channel.close()


def test_the_commands(running: FakeFleet) -> None:
    def tell(*words: str) -> str:
        done = CliRunner().invoke(app, ["fleet", *words, "--folder", str(running.folder)])
        assert done.exit_code == 0, done.output
        return done.output

    shown = tell("status")
    assert "host-1" in shown and "running" in shown and "local-threshold" in shown
    assert '"query": "a"' in tell("status", "--json")
    assert tell("move", "a", "host-1") == "a goes to host-1\n"
    assert "removed b" in tell("remove", "b")
    assert "drained" in tell("drain", "host-1")
    assert tell("stop") == "the fleet stops\n"


@pytest.mark.parametrize("do", [["stop"], {"stop": 1}, None, 5])
def test_a_command_of_another_kind_is_refused_at_once(running: FakeFleet, do: Any) -> None:
    with pytest.raises(BackendError, match="it must be one of status, move"):
        send(running.folder, {"do": do})


def test_mistakes_end_in_a_sentence(running: FakeFleet) -> None:
    command = ["fleet", "move", "nobody", "host-1", "--folder", str(running.folder)]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, BackendError) and "known are a, b" in str(done.exception)


def test_a_run_with_crossed_thresholds_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "q.py"
    file.write_text("from tidegate.fleet import continuous_query as q\na = q('a')(print)")
    words = ["fleet", "run", str(file), "--lower", "0.9", "--folder", str(tmp_path / "f")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, InputError) and "rising order" in str(done.exception)
